"""Doubles of what is durable: what is written, when it can be seen, and what a load brings back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from confide.errors import StateError
from confide.planning.plan import Plan
from confide.pop.account import Account, Mark
from confide.pop.loop import Loop
from confide.pop.pop import POP
from confide.pop.settings import Settings
from confide.pop.state import Saved
from confide.privacy.random import Random
from tests.broken.base import Broken

__all__ = [
    "AnswersBeforeDurable",
    "EntersTheAnswered",
    "FailsOpen",
    "ForgetsSpending",
    "HaltBeforeDurable",
    "LabelsStopEverybody",
    "RestoresCoins",
    "RevivesTheForgotten",
    "RevivesTickets",
    "RevivesUsedTickets",
    "WritesWhereUnsure",
]


class _Accounts(Broken):
    account_type: type[Account] = Account

    def spoil(self, loop: Loop, settings: Settings) -> None:
        loop.account = self.account_type(loop.plan, loop.rng)
        loop.account.monitor = loop.monitor


# ---------------------------------------------------------------------- what a load brings back


class ForgetsSpending(POP):
    """A resume that forgets what was spent: every crash buys N more unsure answers."""

    def resume(self, saved: Saved, trusted: bool = False) -> Self:
        super().resume(saved, trusted)
        account = self.operator.loop.account
        account.unsure, account.shares = 0, {}
        return self


class RestoresCoins(POP):
    """Randomness restored with a snapshot: what is asked again after a load is answered with the same noise."""

    def save(self, path: str | Path, *, ledger: str | None = None, model: str = "pop") -> None:
        super().save(path, ledger=ledger, model=model)
        (Path(path) / "coins").write_text(str(Random().below(1 << 62)))

    def resume(self, saved: Saved, trusted: bool = False) -> Self:
        super().resume(saved, trusted)
        self.operator.loop.rng = Random(seed=int((saved.folder / "coins").read_text()))
        return self


class RevivesTheForgotten(POP):
    """A load takes the snapshot's copies as they are: whoever was forgotten since then is remembered again."""

    def resume(self, saved: Saved, trusted: bool = False) -> Self:
        return super().resume(replace(saved, spent=replace(saved.spent, forgot=())), trusted)


class RevivesTickets(POP):
    """A load restores the open questions of people who were forgotten since the snapshot: their labels still teach."""

    def resume(self, saved: Saved, trusted: bool = False) -> Self:
        nobody = tuple((sequence, copy, b"") for sequence, copy, _ in saved.spent.forgot)
        return super().resume(replace(saved, spent=replace(saved.spent, forgot=nobody)), trusted)


class RevivesUsedTickets(POP):
    """A ticket that was learned before a crash is taken again after the load: a label counts twice."""

    def resume(self, saved: Saved, trusted: bool = False) -> Self:
        return super().resume(replace(saved, spent=replace(saved.spent, used=frozenset())), trusted)


# ---------------------------------------------------------------------- what is written


class _WhereUnsure(Account):
    entered = 0

    def enter(self, *whos: bytes | None, **more: Any) -> Mark:
        grown, self.entered = self.unsure > self.entered, self.unsure
        if grown or any(more.values()) or self.used or self.book is None:
            return super().enter(*whos, **more)
        return Mark(self.book.sequence, self.rounds, self.halted)


class WritesWhereUnsure(_Accounts):
    """An entry only where an unsure answer was counted: the disk, its time and its failures tell who was unsure."""

    account_type = _WhereUnsure


class _Answered(Account):
    entered = 0

    def enter(self, *whos: bytes | None, **more: Any) -> Mark:
        taken, self.entered = self.rounds - self.entered, self.rounds
        return super().enter(*whos[:taken], **more)

    def reserve(self, rounds: int, whos: Iterable[bytes | None]) -> None:
        super().reserve(rounds, ())


class EntersTheAnswered(_Accounts):
    """An entry names those whose rows were taken before a halt: its form tells at which row a batch halted."""

    account_type = _Answered


class _LabelsStop(Account):
    def settle(self, mark: Mark, *, private: bool = False) -> None:
        super().settle(mark)


class LabelsStopEverybody(_Accounts):
    """A label whose write fails ends the run for everybody: they see that somebody brought one."""

    account_type = _LabelsStop


class _Open(Account):
    def settle(self, mark: Mark, *, private: bool = False) -> None:
        with contextlib.suppress(StateError):
            super().settle(mark, private=private)


class FailsOpen(_Accounts):
    """A write that fails is passed over: answers leave, and after a restart nobody knows what they cost."""

    account_type = _Open


class _Early(Account):
    def __init__(self, plan: Plan, rng: Random) -> None:
        super().__init__(plan, rng)

    def settle(self, mark: Mark, *, private: bool = False) -> None:
        book, self.book = self.book, None
        super().settle(mark, private=private)
        self.book = book


class AnswersBeforeDurable(_Accounts):
    """Answers leave before what they cost is on the disk: a crash in between gives the budget back."""

    account_type = _Early


class HaltBeforeDurable(Broken):
    """A halt can be seen before it is on the disk: after a crash in between, the run that was seen to halt goes on."""

    @property
    def halt_reason(self) -> str | None:
        return self.operator.loop.account.halted
