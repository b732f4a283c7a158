"""A model over many processes: killed under load, nothing acknowledged is lost, and nothing is there twice."""

from pathlib import Path

import pytest

from tests.service import apart

pytestmark = pytest.mark.claim("partitions.md")


def test_owners_merger_and_doors_are_killed_and_nothing_is_lost(tmp_path: Path) -> None:
    counted, killed, statuses = apart.run(tmp_path, kills=2, seed=3)
    assert sum(killed.values()) == 2 and counted["rounds"] > 0 and counted["releases"] > 0 and statuses[200] > 0
