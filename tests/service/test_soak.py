"""The short form of `benchmarks/soak.py --attacks`: honest people lose nothing while others attack."""

from __future__ import annotations

import math
import time
from functools import partial
from pathlib import Path

from benchmarks.attacks import CONFIG, Attacked, Outcome, Person, counted
from tests.service.nursery import Nursery, free_ports


def test_honest_people_lose_nothing_while_others_attack(tmp_path: Path) -> None:
    """Every kind of attack, and a disk that is full for a moment, twice; a minute at most where a machine is busy."""
    path, (public, operator) = tmp_path / "confide.toml", free_ports(2)
    path.write_text(CONFIG.format(public=public, operator=operator, rounds=100_000))
    nursery = Nursery(path)
    try:
        pid = nursery.start()
        labels = partial(counted, operator, nursery.operator)
        outcome = Attacked(public, pid, nursery.asker, labels, seconds=5.0, people=8).run()
        assert outcome.lost == [] and "nothing was lost" in str(outcome)
        assert sum(one.answered for one in outcome.people) >= 8 and all(map(math.isfinite, outcome.quantiles()))
        kinds = {"slow heads", "large heads", "bodies that never begin", "idle connections", "public looks", "junk"}
        assert kinds | {"greedy questions", "responses that nobody reads"} <= outcome.attacks.keys()
    finally:
        nursery.close()


def test_labels_that_were_acknowledged_and_are_gone_are_missed(tmp_path: Path) -> None:
    """A server that says things are durable which it has not written is killed."""
    path, (public, operator) = tmp_path / "confide.toml", free_ports(2)
    path.write_text(CONFIG.format(public=public, operator=operator, rounds=100_000))
    nursery = Nursery(path, "forgetful")
    try:
        nursery.start()
        token = nursery.asker.sign("ann", expires=3600.0)
        person = Person(f"http://127.0.0.1:{public}", token, time.monotonic() + 2.0)
        person.run()
        assert person.learned > 0 and counted(operator, nursery.operator) == person.learned
        assert Outcome([person], (1.0, 1.0), {}, person.learned).lost == []
        nursery.end()
        nursery.start()
        outcome = Outcome([person], (1.0, 1.0), {}, counted(operator, nursery.operator))
        assert outcome.lost == [f"{person.learned} labels were acknowledged, and 0 are counted"]
    finally:
        nursery.close()


def test_what_is_lost_is_said() -> None:
    fine, broken, short = (Person("", "", 0.0, times=[0.1]) for _ in range(3))
    broken.lost.append("ConnectionError: the service cannot be reached")
    short.answered, short.learned = 3, 2
    assert Outcome([fine], (1.0, 1.0), {}, 0).lost == []
    outcome = Outcome([fine, broken, short], (1.0, 1.0), {}, 2)
    assert len(outcome.lost) == 2 and "LOST" in str(outcome) and "1 answers whose label was not taken" in str(outcome)
