"""Doubles of the compiled loop: banks whose fused rounds do something else than the plain loop."""

from __future__ import annotations

from typing import Any

import numpy as np

from confide.banks.base import CURSOR, HALTED, ROW, UNSURE, Rounds
from tests.broken.base import Broken, Compiled

__all__ = [
    "GateByLabelsCompiled",
    "GoesOnToTheEnd",
    "HaltsOnLabelsCompiled",
    "NoDrawWhereMalformedCompiled",
    "OnePollABlock",
    "RefundsAgreementCompiled",
    "SharesNotCounted",
    "UncappedCompiled",
    "WrongInequalityCompiled",
]


def _changed(rounds: Rounds, **parts: Any) -> Rounds:
    """The same rounds with some parts changed."""
    return Rounds(**{**dict(zip(Rounds.__annotations__, rounds, strict=True)), **parts})


class _Uncapped(Compiled):
    def run(self, rounds: Rounds) -> None:
        super().run(_changed(rounds, most=1 << 60))


class UncappedCompiled(Broken):
    """No cap in the compiled loop: in batches one person is counted unsure more than G times."""

    bank_type = _Uncapped


class _WrongInequality(Compiled):
    def run(self, rounds: Rounds) -> None:
        sure = ~rounds.rule.table
        sure.setflags(write=False)  # as the table is: other code would be compiled for another kind of array
        super().run(_changed(rounds, rule=rounds.rule._replace(table=sure)))


class WrongInequalityCompiled(Broken):
    """The wrong inequality in the compiled loop: sure where the table says unsure."""

    bank_type = _WrongInequality


class _GateByLabels(Compiled):
    def run(self, rounds: Rounds) -> None:
        table = rounds.rule.table[2 * (self.lessons % 3) :]
        super().run(_changed(rounds, rule=rounds.rule._replace(table=table)))


class GateByLabelsCompiled(Broken):
    """The compiled loop reads its gate table at another margin, by the number of labels taught."""

    bank_type = _GateByLabels


class _HaltsOnLabels(Compiled):
    def run(self, rounds: Rounds) -> None:
        super().run(_changed(rounds, go=rounds.go[min(30 * self.lessons, rounds.go.size - 1) :]))


class HaltsOnLabelsCompiled(Broken):
    """The compiled loop makes its halting draw at unsure + 30·labels."""

    bank_type = _HaltsOnLabels


class _OnePoll(Compiled):
    def run(self, rounds: Rounds) -> None:
        words, row = rounds.words.copy(), int(rounds.progress[ROW])
        drawn = int(rounds.units[row] < 0)
        size = drawn + (rounds.polls if rounds.polls < self.copies else 0) + 2
        first = int(rounds.progress[CURSOR]) + max(0, rounds.silent - row) * drawn
        for at in range(first, words.size - size, size):
            words[at + drawn : at + size - 2] = words[first + drawn : first + size - 2]
        super().run(_changed(rounds, words=words))


class OnePollABlock(Broken):
    """One poll for a whole block of the compiled loop: the words are drawn, and not used."""

    bank_type = _OnePoll


class _NoDraw(Compiled):
    def run(self, rounds: Rounds) -> None:
        progress = rounds.progress
        while progress[ROW] < rounds.ys.size and not progress[HALTED]:
            row = int(progress[ROW])
            super().run(_changed(rounds, ys=rounds.ys[: row + 1]))
            if progress[ROW] == row:
                return
            if rounds.malformed[row] and row >= rounds.silent:
                progress[CURSOR], progress[HALTED] = progress[CURSOR] - 1, 0


class NoDrawWhereMalformedCompiled(Broken):
    """No halting draw for malformed rows of the compiled loop: its word is left for the next row."""

    bank_type = _NoDraw


class _GoesOn(Compiled):
    def run(self, rounds: Rounds) -> None:
        progress, halted = rounds.progress, 0
        while progress[ROW] < rounds.ys.size:
            row, progress[HALTED] = int(progress[ROW]), 0
            super().run(rounds)
            halted = halted or int(progress[HALTED])
            if progress[ROW] == row:
                break
        progress[HALTED] = halted and progress[ROW] == rounds.ys.size


class GoesOnToTheEnd(Broken):
    """A halt counts at the end of a chunk only: the rows after it are answered by copies that nobody paid for."""

    bank_type = _GoesOn


class _SharesNotCounted(Compiled):
    def run(self, rounds: Rounds) -> None:
        super().run(_changed(rounds, shares=rounds.shares.copy()))


class SharesNotCounted(Broken):
    """The compiled loop does not bring back what each person has used: every batch begins with all shares unused."""

    bank_type = _SharesNotCounted


class _Refunds(Compiled):
    def run(self, rounds: Rounds) -> None:
        first = int(rounds.progress[ROW])
        super().run(rounds)
        taken = slice(first, int(rounds.progress[ROW]))
        agree = (rounds.tops[taken] == rounds.ys[taken]) & (rounds.ys[taken] >= 0)
        rounds.progress[UNSURE] = max(0, rounds.progress[UNSURE] - np.count_nonzero(agree))


class RefundsAgreementCompiled(Broken):
    """The compiled loop takes one off the count for every label that agrees with its answer."""

    bank_type = _Refunds
