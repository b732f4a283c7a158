"""An adversary over HTTP against a real server process: under the certificate, and a server that tells is caught."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.service.leak import attack
from tests.service.opened import folder

__all__ = ["folder"]

pytestmark = pytest.mark.claim("audit.md")


@pytest.mark.skipif(
    int(os.environ.get("CONFIDE_SERVER_KILLS", "20")) <= 20, reason="a minute for twenty games: `make chaos` plays them"
)
def test_the_auditors_best_adversary_over_http_stays_under_the_certificate(folder: Path) -> None:
    """False alarms of both kinds together: one in a million."""
    report = attack(folder.parent, 20)
    assert not report.alarm and report.misfit is None
    assert report.certified is not None and report.epsilon <= report.certified[0] <= 1.0


def test_a_server_that_tells_a_strangers_label_is_caught(folder: Path) -> None:
    report = attack(folder.parent, 20, fault="telling games")
    assert report.misfit is not None
