"""An adversary over HTTP against a real server process: under the certificate, and a server that tells is caught."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.service.leak import attack, passing

pytestmark = pytest.mark.claim("audit.md")

GAMES = max(60, 5 * int(os.environ.get("CONFIDE_SERVER_KILLS", "0")))
"""At each bit: enough for a server that tells everything to be seen beyond its ε of 1 at this confidence."""


def test_the_auditors_best_adversary_over_http_stays_under_the_certificate() -> None:
    """False alarms of both kinds together: one in a million."""
    with passing() as folder:
        report = attack(Path(folder), GAMES)
    assert not report.alarm and report.misfit is None
    assert report.certified is not None and report.epsilon <= report.certified[0] <= 1.0


def test_a_server_that_tells_a_strangers_label_is_caught() -> None:
    with passing() as folder:
        report = attack(Path(folder), GAMES, fault="telling games")
    assert report.alarm and report.certified is not None and report.epsilon > report.certified[0]
