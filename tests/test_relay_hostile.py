"""What a hostile reader tried on the relay that the other tests do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide import POP
from confide.learners import LogisticRegression
from confide.planning.guided import GuidePlan
from confide.planning.plan import Plan
from confide.planning.promise import Promise
from confide.pop import account as accounts
from confide.pop.state import opened
from tests.saved import bank_of
from tests.test_relay import LABELS, legs, pop_of, relay

pytestmark = pytest.mark.claim("relay.md")


def test_a_saved_relay_that_released_nothing_may_still_be_taught_history_by_a_desk(tmp_path: Path) -> None:
    part = relay().voters
    assert part is not None
    pop = pop_of(plan=Plan(Promise(500.0, 0.02, None, 2, "rounds"), (part, GuidePlan.at(4.0, None))))
    pop.save(tmp_path / "it")
    pop.close()
    with opened(tmp_path / "it") as saved:
        assert saved.noted, "a leg's row is no release"
        saved.book.close()


def _world(unit: int, label: str | None, late: int, learner: Any, batch: int) -> dict[int, Any]:
    """What copies know after each of 260 rounds; labels come five rounds late, the unit's by itself. Nobody fires."""
    pop: POP = pop_of(learner, relay(live=30, silent=20), seed=5)
    xs = np.random.default_rng(2).normal(size=(260, 2))
    open_, banks = dict[int, str](), dict[int, Any]()
    for first in range(0, 260, batch):
        for i, answer in enumerate(pop.predict_many(xs[first : first + batch]), first):
            open_[i] = answer.ticket
        now = first + batch
        for i in sorted(open_):
            due = i + (late if i == unit else 5)
            y = label if i == unit else LABELS[int(xs[i, 0] > 0)]
            if due < now:
                ticket = open_.pop(i)
                if y is not None:
                    pop.learn(ticket, y)
        banks[now] = _copies(bank_of(pop)), legs(pop)
    return banks


def _copies(state: dict[str, Any]) -> dict[int, bytes]:
    """By copy what it knows, of a bank of plain arrays or of pickles."""
    taught = np.asarray(state["taught"]).tolist()
    if "sizes" in state:
        ends, blob = np.cumsum(state["sizes"]).tolist(), np.asarray(state["pickles"], dtype=np.uint8).tobytes()
        return {copy: blob[end - size : end] for copy, end, size in zip(taught, ends, state["sizes"], strict=True)}
    arrays = [np.asarray(one) for name, one in sorted(state.items()) if name.startswith("array ")]
    return {copy: b"".join(one[i].tobytes() for one in arrays) for i, copy in enumerate(taught)}


def _learner(name: str) -> Any:
    if name == "ours":
        return LogisticRegression()
    linear = pytest.importorskip("sklearn.linear_model")
    return linear.SGDClassifier(loss="log_loss", random_state=0)


@pytest.mark.parametrize(
    ("unit", "name", "batch"),
    [
        *((unit, "ours", batch) for unit in (3, 49, 79) for batch in (1, 7)),
        (49, "scikit-learn", 1),
        (79, "scikit-learn", 7),
    ],
)
def test_two_worlds_differ_in_one_copy_and_after_its_reset_in_none(
    unit: int, name: str, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "goes_on", lambda word, go, count: True)
    first = _world(unit, "no", 1, _learner(name), batch)
    other = [("yes", 1), (None, 1), ("yes", 40), ("yes", 90), ("no", 150)]
    for label, late in other if name == "ours" else other[::3]:  # how late a label is does not depend on the learner
        second, differed = _world(unit, label, late, _learner(name), batch), set[int]()
        assert max(where.number for _, where in first.values()) >= 3
        for now, (ours, where) in first.items():
            theirs, there = second[now]
            assert where == there
            differ = {copy for copy in {*ours, *theirs} if ours.get(copy) != theirs.get(copy)}
            differed |= differ
            if where.number >= 3:  # the unit was asked in leg 0 or 1, so its copy was reset by the end of leg 2
                assert not differ, (label, late, now)
        assert len(differed) <= 1
