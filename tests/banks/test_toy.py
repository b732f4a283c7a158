"""A bank of somebody's own, in one file: it passes every check, runs in a POP, and goes on after a load."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from confide import POP, Plan
from confide.banks.base import Bank, Batched, State, encode_rows
from confide.banks.checks import check_bank, example_records
from confide.learners import Columns, LogisticRegression

Ints = NDArray[np.int64]


class Counts(Batched):
    """Each copy counts labels by the sign of the first number, and votes for the label seen most often there."""

    def __init__(self, copies: int, labels: int = 2, width: int = 3) -> None:
        self._seen = np.zeros((copies, 2, labels), dtype=np.int64)
        self._columns = Columns(width)

    @property
    def copies(self) -> int:
        return len(self._seen)

    @property
    def labels(self) -> int:
        return self._seen.shape[2]

    @property
    def nbytes(self) -> int:
        return self._seen.nbytes

    def encode_many(self, xs: Any) -> tuple[Any, dict[int, str]]:
        return encode_rows(self._columns.encode, xs)

    def votes_many(self, xs: Any, polls: Ints) -> Ints:
        votes = np.zeros((len(xs), self.labels), dtype=np.int64)
        for i, (x, poll) in enumerate(zip(xs, polls, strict=True)):
            if ((poll < 0) | (poll >= self.copies)).any():
                raise ValueError("the poll names a copy that does not exist")
            known = self._seen[poll, int(x[0] > 0)]
            np.add.at(votes[i], known.argmax(axis=1)[known.any(axis=1)], 1)
        return votes

    def learn_many(self, copies: Ints, xs: Any, ys: Ints) -> int:
        if (copies < 0).any() or (copies >= self.copies).any() or (ys < 0).any() or (ys >= self.labels).any():
            raise ValueError("the lessons name a copy or a label that does not exist")
        for copy, x, y in zip(copies, xs, ys, strict=True):
            self._seen[copy, int(x[0] > 0), y] += 1
        return len(ys)

    def reset(self, copies: Iterable[int]) -> None:
        chosen = np.array(list(copies), dtype=np.int64)
        if ((chosen < 0) | (chosen >= self.copies)).any():
            raise ValueError("there is no such copy")
        self._seen[chosen] = 0

    def state(self, trusted: bool = False) -> State:
        return {"bank": "Counts", "seen": self._seen.copy()}

    def load_state(self, state: State, trusted: bool = False) -> None:
        seen = np.array(state["seen"])
        if state.get("bank") != "Counts" or seen.shape != self._seen.shape or seen.dtype != np.int64:
            raise ValueError("the state belongs to another bank")
        self._seen = seen


def test_whole_batches_are_all_that_a_bank_must_have() -> None:
    bank: Bank = Counts(5)
    assert isinstance(bank, Bank)
    check_bank(Counts, example_records(features=3))


def test_a_single_call_is_a_batch_of_one() -> None:
    bank = Counts(5)
    bank.learn(3, bank.encode([1.0, 0.0, 0.0]), 1)
    assert bank.votes(bank.encode([2.0, 0.0, 0.0]), np.arange(5)).tolist() == [0, 1]
    with pytest.raises(ValueError, match="another number of features"):
        bank.encode([1.0])


def test_a_given_bank_goes_on_after_a_load(tmp_path: Path) -> None:
    plan = Plan.tight(60.0, 1e-2, 400, copies=60, polls=60, unsure=50, silent=100, guide=None)
    pop = POP(LogisticRegression(), plan, labels=["no", "yes"], features=3, bank=Counts(60), seed=1)
    dice = np.random.default_rng(1)
    for x in dice.normal(size=(300, 3)):
        pop.learn(pop.predict(x).ticket, "yes" if x[0] > 0 else "no")
    before = pop.operator.bank.state()
    pop.save(tmp_path / "pop")
    pop.close()
    with pytest.raises(ValueError, match="a bank of your own"):
        POP.load(tmp_path / "pop")
    with POP.load(tmp_path / "pop", bank=Counts(60)) as again:
        after = again.operator.bank.state()
        assert np.array_equal(before["seen"], after["seen"]) and before["seen"].sum() == 300
        answers = again.predict_many(np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]))
        assert [answer.label for answer in answers if answer.sure] == ["yes", "no"]
