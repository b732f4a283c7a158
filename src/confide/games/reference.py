"""The reference: what each round must show and count, said independently of the loop that is being watched.

From the tape's words, the copies' votes, the tables and the caps (docs/proofs/gate.md, docs/proofs/halting.md).
"""

from __future__ import annotations

import copy as copying
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from confide.banks.base import Bank
from confide.games.script import Ask, AskMany, Follow, Load, Step
from confide.games.tape import Drawn
from confide.pop.loop import Loop
from confide.privacy.gate import is_sure, lead
from confide.privacy.halting import Halting, goes_on

__all__ = ["Before", "Line", "Reference", "Round", "copy_of", "digests"]


class Round(NamedTuple):
    """What a round must show, by the reference."""

    malformed: bool
    capped: bool
    live: bool
    counts: tuple[int, ...]
    """The poll's votes by label."""
    sure: bool
    """What the gate said."""
    halts: bool

    @property
    def shows(self) -> bool:
        """Whether the copies answer."""
        return self.sure and self.live and not (self.malformed or self.capped)

    @property
    def counted(self) -> bool:
        """Whether it adds to the count of unsure answers."""
        return self.live and not (self.sure or self.malformed or self.capped)


@dataclass
class Line:
    """What one step of a world left behind."""

    public: tuple[object, ...]
    """What everybody may know: rounds, state, loads, the guarantee."""
    shown: list[str]
    """Error and tickets, as those who took the step saw them: one for each row of a batch."""
    answers: list[tuple[object, bool]]
    used: int | None
    """Words used of the tape; None where a halt cut the step short."""
    rounds: list[Round] = field(default_factory=list)
    votes: list[list[int | None]] = field(default_factory=list)
    """Each copy's vote on the question of each live round."""
    copies: dict[int, bytes] = field(default_factory=dict)
    """A digest of each taught copy's memory."""
    unsure: int = 0
    heard: list[int] = field(default_factory=list)
    """The monitor's inputs so far."""
    fault: str = ""
    """What this world did otherwise than the reference."""


@dataclass
class Reference:
    """The rounds of one step, from words, votes, tables and caps."""

    loop: Loop
    step: Any
    whos: list[bytes | None]
    drawn: list[Drawn]
    words: Any

    def rounds(self) -> list[Round]:
        loop, step, account = self.loop, self.step, self.loop.account
        loop.lessons.apply()
        bank, unsure, shares = loop.bank, account.unsure, dict(account.shares)
        if isinstance(step, Follow):
            bank = copying.deepcopy(bank)
        done: list[Round] = []
        for i, drawn in enumerate(self.drawn):
            x = step.x if isinstance(step, Ask) else step.xs[i]
            encoded, malformed = loop.encode(x)
            who = self.whos[i]
            capped = who is not None and shares.get(who, 0) >= loop.plan.unit_unsure
            one = self._round(bank, encoded, malformed is not None, capped, drawn, unsure)
            unsure += one.counted
            if one.counted and who is not None:
                shares[who] = shares.get(who, 0) + 1
            done.append(one)
            if one.halts:
                break
            if isinstance(step, Follow) and step.ys[i] >= 0 and malformed is None:
                bank.learn_many(np.array([copy_of(loop, who, drawn)]), [encoded], np.array([step.ys[i]]))
        return done

    def _round(
        self, bank: Bank, x: Any, malformed: bool, capped: bool, drawn: Drawn, unsure: int
    ) -> Round:
        plan = self.loop.plan
        if drawn.poll is None:
            return Round(malformed, False, False, (), False, False)
        counts = np.zeros(plan.labels, dtype=np.int64) if malformed else bank.votes(x, drawn.poll)
        sure = bool(is_sure(self.words[drawn.gate], plan.gate.sure, lead(counts)[1]))
        count = unsure + int(not (sure or malformed or capped))
        halting = plan.halting
        halts = isinstance(halting, Halting) and not goes_on(self.words[drawn.gate + 1], halting.go, count)
        return Round(malformed, capped, True, tuple(counts.tolist()), sure, halts)


@dataclass
class Before:
    """How a world stood before a step."""

    copies: dict[int, bytes]
    unsure: int
    shares: dict[bytes, int]
    halted: str | None
    rounds: int

    @classmethod
    def of(cls, loop: Loop | None) -> Before:
        if loop is None:
            return cls({}, 0, {}, None, 0)
        loop.lessons.apply()
        account = loop.account
        return cls(digests(loop.bank), account.unsure, dict(account.shares), account.halted, account.rounds)

    def moved(self, loop: Loop | None, allowed: set[int], cause: str) -> str:
        """Which copy changed that must not have."""
        if loop is None:
            return ""
        after = digests(loop.bank)
        changed = {copy for copy in self.copies.keys() | after.keys() if self.copies.get(copy) != after.get(copy)}
        return f"copy {min(changed - allowed)}: {cause}" if changed - allowed else ""

    def compare(
        self, loop: Loop, step: Step | None, rounds: list[Round], line: Line, allowed: set[int] | None, strict: bool
    ) -> str:
        """What the world did otherwise than the reference says."""
        if allowed is not None:
            asked = isinstance(step, Ask | AskMany)
            cause = "a question changed it" if asked else "a lesson or a reset that was not its own changed it"
            if fault := self.moved(loop, set() if asked else allowed, cause):
                return fault
        if not strict:
            return ""
        if isinstance(step, Ask | AskMany | Follow):
            return self._shown(loop, step, rounds, line) or self._spent(loop, rounds)
        if not isinstance(step, Load) and (loop.account.halted, loop.account.rounds) != (self.halted, self.rounds):
            return "it halted, or took a round, in a step that asks nothing: a halt may begin in a question only"
        if not isinstance(step, Load) and (loop.account.unsure, loop.account.shares) != (self.unsure, self.shares):
            return "the count of unsure answers moved in a step that asks nothing"
        return ""

    def _shown(self, loop: Loop, step: Any, rounds: list[Round], line: Line) -> str:
        """Whether each answer is what votes, word, table and cap say."""
        labels = list(loop.index)
        answers = line.answers
        for i, one in enumerate(rounds):
            if i >= len(answers) or one.malformed:
                continue
            label, sure = answers[i]
            if label is None:  # the fallback failed, for its asker alone
                continue
            if sure != one.shows:
                said = "sure" if sure else "unsure"
                return f"it said {said}, which votes {one.counts}, word, table and cap do not"
            if sure and label != labels[lead(np.array(one.counts))[0]]:
                return f"it showed {label!r}, which is not the top label of the votes {one.counts}"
        return ""

    def _spent(self, loop: Loop, rounds: list[Round]) -> str:
        account, counted = loop.account, sum(one.counted for one in rounds)
        if account.unsure != self.unsure + counted:
            return f"the count of unsure answers grew by {account.unsure - self.unsure}, and {counted} were counted"
        if account.rounds != self.rounds + len(rounds):
            return f"{account.rounds - self.rounds} rounds were taken, and {len(rounds)} were asked"
        if isinstance(loop.plan.halting, Halting):
            halts = bool(rounds and rounds[-1].halts)
            if (account.halted == "budget") != (halts or self.halted == "budget"):
                said = "it halted" if account.halted else "it went on"
                return f"{said}, and the halting word against the table at the count says otherwise"
        grown = sum(account.shares.values()) - sum(self.shares.values())
        if loop.routing.units == "people" and grown != counted:
            return f"the shares of people grew by {grown}, and {counted} were counted"
        return ""


def copy_of(loop: Loop, who: bytes | None, drawn: Drawn | None) -> int:
    if who is not None:
        return loop.routing.copy_for(who)
    assert drawn is not None and drawn.copy is not None
    return drawn.copy


def digests(bank: Bank) -> dict[int, bytes]:
    """A digest of each taught copy. A bank's state has one row a taught copy, or all their pickles end to end."""
    state: Mapping[str, Any] = bank.state(trusted=True)
    taught = state["taught"].tolist()
    if "pickles" in state:
        rows: list[Any] = [np.split(state["pickles"], np.cumsum(state["sizes"])[:-1])]
    else:
        rows = [value for name, value in state.items() if isinstance(value, np.ndarray) and name != "taught"]
    known = [b"".join(part[i].tobytes() for part in rows) for i in range(len(taught))]
    return {copy: hashlib.sha256(memory).digest() for copy, memory in zip(taught, known, strict=True)}
