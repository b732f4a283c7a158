"""The reference: what each round must show and count, said independently of the loop that is being watched.

From the tape's words, the copies' votes, the tables and the caps; with a lean also from the guide's public scores
(docs/proofs/gate.md, docs/proofs/halting.md, docs/proofs/lean.md).
"""

from __future__ import annotations

import copy as copying
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np

from confide.banks.base import Bank
from confide.contained import contained
from confide.games.guided import Released
from confide.games.leaned import Ear, Offsets, Scores, decided, offsets_for
from confide.games.script import Ask, AskMany, Disk, Follow, Load, Step, size
from confide.games.tape import Drawn
from confide.ledger.book import Entry
from confide.pop.base import COPIES, FALLBACK, GUIDE, LEAN, SOURCES
from confide.pop.fallback import Fallback
from confide.pop.loop import Loop
from confide.privacy.gate import lead
from confide.privacy.halting import Halting, goes_on
from confide.privacy.random import Random


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
    row: bytes = b""
    """A digest of the question as the copies get it; empty where it has none."""
    offsets: Offsets = ()
    """The lean's public offsets."""
    leaned: int = -1
    """What the lean's word draws, where the gate is unsure and there is a lean."""

    @property
    def shows(self) -> bool:
        """Whether the copies answer."""
        return self.sure and self.live and not (self.malformed or self.capped)

    @property
    def counted(self) -> bool:
        """Whether it adds to the count of unsure answers."""
        return self.live and not (self.sure or self.malformed or self.capped)

    @property
    def leans(self) -> bool:
        """Whether the lean answers: in rounds that are counted, and in no others."""
        return self.counted and self.leaned >= 0

    @property
    def kind(self) -> str:
        """What kind of round it is, in a word."""
        return "malformed" if self.malformed else "silent" if not self.live else "capped" if self.capped else "live"


@dataclass
class Expected:
    """What a step must do, by the reference."""

    rounds: list[Round] = field(default_factory=list)
    copies: list[int] = field(default_factory=list)
    """The copies that may learn in it."""
    whos: list[bytes | None] = field(default_factory=list)
    words: int | None = None
    """Words of the tape that it draws; None where that is not known."""
    shares: dict[bytes, int] = field(default_factory=dict)
    """Unsure answers of each person after it."""
    taken: int = 0
    """Rounds that it takes: also those after a halt, where questions are still answered."""
    guided: list[int] = field(default_factory=list)
    """The guide's own answer in each of them; −1 where it has none."""
    fault: str = ""

    @property
    def halts(self) -> bool:
        """Whether its last round halts."""
        return bool(self.rounds and self.rounds[-1].halts)


@dataclass
class Line:
    """What one step of a world left behind."""

    public: tuple[object, ...]
    """What everybody may know: rounds, state, loads, the guarantee."""
    shown: list[object]
    """Error and tickets, as those who took the step saw them: one for each row of a batch."""
    answers: list[tuple[object, bool]]
    """Label, and whether the copies gave it."""
    sources: list[str]
    """Who is said to have given it."""
    used: int | None
    """Words used of the tape; None where a halt cut the step short."""
    rounds: list[Round] = field(default_factory=list)
    votes: list[list[int | None]] = field(default_factory=list)
    """Each copy's vote on the question of each live round."""
    copies: dict[int, bytes] = field(default_factory=dict)
    """A digest of each taught copy's memory."""
    unsure: int = 0
    watched: dict[bytes, int] = field(default_factory=dict)
    """Whose rounds the monitor counts, and how many."""
    heard: list[int] = field(default_factory=list)
    """The monitor's inputs so far."""
    entries: list[Entry] = field(default_factory=list)
    """What was put into the ledger."""
    guided: list[object] = field(default_factory=list)
    """The guide's own answers."""
    released: list[Released] = field(default_factory=list)
    """What the guide released."""
    fault: str = ""
    """What this world did otherwise than the reference."""

    @property
    def halt(self) -> int | None:
        """The row that halts."""
        return len(self.rounds) - 1 if self.rounds and self.rounds[-1].halts else None


class Polled(NamedTuple):
    """What a round has before its words decide anything."""

    malformed: bool
    counts: tuple[int, ...]
    """The poll's votes by label; empty in silent rounds."""
    row: bytes


@dataclass
class Reference:
    """The rounds of one step, from words, votes, tables, caps and, for a lean, the guide's public scores."""

    loop: Loop
    step: Any
    whos: list[bytes | None]
    drawn: list[Drawn]
    polled: list[Polled] = field(default_factory=list)
    """One for each round that may be taken."""
    done: Expected = field(default_factory=Expected)
    unsure: int = 0
    ear: Ear = field(default_factory=Ear)

    def prepare(self) -> Self:
        """Before the step: who learns, and what the polled copies vote. Changes nothing."""
        loop, step = self.loop, self.step
        loop.lessons.apply()
        bank, self.unsure = loop.bank, loop.account.unsure
        self.done = Expected(shares=dict(loop.account.shares), whos=self.whos, words=0)
        self.done.copies = [copy_of(loop, self.whos[i], one) for i, one in enumerate(self.drawn)]
        if isinstance(step, Follow):
            bank = copying.deepcopy(bank)
        for i, drawn in enumerate(self.drawn):
            x = step.x if isinstance(step, Ask) else step.xs[i]
            encoded, malformed = loop.encode(x)
            again, _ = loop.encode(x)
            if _digest(encoded) != _digest(again):
                self.done.fault = "a question was encoded in two ways: something that learns stands before all copies"
            counts = self._votes(bank, encoded, malformed is not None, drawn)
            self.polled.append(Polled(malformed is not None, counts, _digest(encoded)))
            if isinstance(step, Follow) and step.ys[i] >= 0 and malformed is None:
                bank.learn_many(np.array([self.done.copies[i]]), [encoded], np.array([step.ys[i]]))
        return self

    def _votes(self, bank: Bank, x: Any, malformed: bool, drawn: Drawn) -> tuple[int, ...]:
        if drawn.poll is None:
            return ()
        counts = np.zeros(self.loop.plan.labels, dtype=np.int64)
        if not malformed:
            with contained:  # a bank that fails as a whole has abstained
                counts = bank.votes(x, drawn.poll)
        return tuple(counts.tolist())

    @property
    def over(self) -> bool:
        """Whether no round of the step is left to decide."""
        return len(self.done.rounds) == len(self.drawn) or self.done.halts

    def decide(self, words: Any, scores: Scores) -> None:
        """After the step, or as far as it got: what the next round's words say."""
        i, plan, done = len(self.done.rounds), self.loop.plan, self.done
        drawn, (malformed, counts, row), who = self.drawn[i], self.polled[i], self.whos[i]
        one = Round(malformed, False, False, (), False, False, row)
        if drawn.poll is not None:
            capped = who is not None and done.shares.get(who, 0) >= plan.unit_unsure
            offsets = offsets_for(plan, None if malformed else scores)
            gate, lean, halt = (int(words[at]) for at in (drawn.gate, drawn.lean, drawn.halt))
            sure, leaned = decided(plan, np.array(counts), gate, lean, offsets)
            self.unsure += not (sure or malformed or capped)
            halting = plan.halting
            halts = isinstance(halting, Halting) and not goes_on(np.uint64(halt), halting.go, self.unsure)
            one = Round(malformed, capped, True, counts, sure, halts, row, offsets, leaned)
            if not malformed:
                live = sum(before.live for before in done.rounds)
                done.fault = done.fault or self.ear.fault(i, live, size(self.step), scores, offsets)
        if one.counted and who is not None:
            done.shares[who] = done.shares.get(who, 0) + 1
        done.rounds.append(one)
        done.words = None if one.halts else drawn.end


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

    def compare(self, loop: Loop, step: Step | None, expected: Expected, line: Line, strict: bool) -> str:
        """What the world did otherwise than the reference says."""
        if isinstance(step, Load | Disk):
            return ""
        asked = isinstance(step, Ask | AskMany)
        cause = "a question changed it" if asked else "a lesson or a reset that was not its own changed it"
        fault = self.moved(loop, set() if asked else set(expected.copies), cause) or expected.fault
        if fault or not strict:
            return fault
        if None not in (expected.words, line.used) and line.used != expected.words:
            drew = f"it drew {line.used} words, and its copies, polls, gates and halting draws take {expected.words}"
            return f"{drew}: one was left out, or drawn that must not be"
        if isinstance(step, Ask | AskMany | Follow):
            said = self._spent(loop, expected) or _shown(loop, step, expected, line)
            return said or self._halted(loop, expected)
        account = loop.account
        if (account.halted, account.rounds) != (self.halted, self.rounds):
            return "it halted, or took a round, in a step that asks nothing: a halt may begin in a question only"
        if (account.unsure, account.shares) != (self.unsure, self.shares):
            return "the count of unsure answers moved in a step that asks nothing"
        return ""

    def _spent(self, loop: Loop, expected: Expected) -> str:
        account, rounds = loop.account, expected.rounds
        if account.rounds != self.rounds + expected.taken:
            return f"{account.rounds - self.rounds} rounds were taken, and {expected.taken} were to be taken"
        live = [one for one in rounds if one.live]
        if live and (loop.last is None or tuple(loop.last.tolist()) != live[-1].counts):
            counted = None if loop.last is None else tuple(loop.last.tolist())
            return f"the votes {counted} were counted, and the copies that its poll names voted {live[-1].counts}"
        grown, counted_ = account.unsure - self.unsure, sum(one.counted for one in rounds)
        if grown != counted_:
            kinds = ", ".join(one.kind for one in rounds)
            return f"the count of unsure answers grew by {grown}, and {counted_} were to be counted (rounds: {kinds})"
        if {who: n for who, n in account.shares.items() if n} != {who: n for who, n in expected.shares.items() if n}:
            return f"the shares of people are not what they were counted unsure: {counted_} in this step"
        return ""

    def _halted(self, loop: Loop, expected: Expected) -> str:
        account, halting = loop.account, loop.plan.halting
        if account.halted == "rounds" and account.rounds < loop.plan.horizon:
            return "it halted as if its rounds were over, and they are not"
        if isinstance(halting, Halting) and (account.halted == "budget") != (expected.halts or self.halted == "budget"):
            said = "it halted" if account.halted else "it went on"
            return f"{said}, and the halting word against the table at the count says otherwise"
        return ""


def _shown(loop: Loop, step: Any, expected: Expected, line: Line) -> str:
    """Whether each answer is what votes, words, tables and cap say, and otherwise the guide's or the fallback's."""
    labels, rounds = list(loop.index), expected.rounds
    for i, (label, sure) in enumerate(line.answers):
        one = rounds[i] if i < len(rounds) else None
        if label is None or (one is not None and one.malformed):  # or the fallback failed: for its asker alone
            continue
        if one is None and sure:
            return "the copies answered after the halt"
        if one is not None and sure != one.shows:
            said = "sure" if sure else "unsure"
            return f"it said {said} in a {one.kind} round, which votes {one.counts}, word, table and cap do not"
        if one is not None and sure and label != labels[lead(np.array(one.counts))[0]]:
            return f"it showed {label!r}, which is not the top label of the votes {one.counts}"
        guided = expected.guided[i] if i < len(expected.guided) else -1
        if line.guided[i] != (None if guided < 0 else labels[guided]):
            return f"the guide's own answer is {line.guided[i]!r}, which is not what was released says of this question"
        leans = one is not None and one.leans
        if not sure:
            said = _unsure(loop, step.x if isinstance(step, Ask) else step.xs[i], label, one if leans else None, guided)
            if said:
                return said
        source = COPIES if sure else LEAN if leans else GUIDE if guided >= 0 else FALLBACK
        if line.sources[i] != SOURCES[source]:
            return f"it named {line.sources[i]} as its source, and it is {SOURCES[source]}"
    return ""


def _unsure(loop: Loop, x: Any, label: Any, leans: Round | None, guided: int) -> str:
    """Whether an answer that is not sure is the lean's where there is one, else the guide's, else the fallback's."""
    labels = list(loop.index)
    if leans is not None:
        says = f"it showed {label!r} where the lean's word says {labels[leans.leaned]!r} of the votes {leans.counts}"
        return "" if label == labels[leans.leaned] else says
    if guided >= 0:
        says = f"it showed {label!r} where the guide, which is public, says {labels[guided]!r}"
        return "" if label == labels[guided] else says
    public = Fallback(loop.fallback.given, loop.index, Random(seed=0))
    other = public.answer(x) if public.kind != "coin" else None
    if isinstance(other, int) and label != labels[other]:
        return f"it showed {label!r} where the fallback, which is public, says {labels[other]!r}"
    return ""


def copy_of(loop: Loop, who: bytes | None, drawn: Drawn | None) -> int:
    if who is not None:
        return loop.routing.copy_for(who)
    assert drawn is not None and drawn.copy is not None
    return drawn.copy


def digests(bank: Bank) -> dict[int, bytes]:
    """A digest of each taught copy. A bank's state has one row a taught copy, or all their pickles end to end."""
    state: Mapping[str, Any] = bank.state(trusted=True)
    if not bank.copies:
        return {}
    taught = state["taught"].tolist()
    if "pickles" in state:
        known: list[Any] = np.split(state["pickles"], np.cumsum(state["sizes"])[:-1])[: len(taught)]
    else:
        parts = [_rows(part) for name, part in state.items() if isinstance(part, np.ndarray) and name != "taught"]
        known = [b"".join(part[i] for part in parts) for i in range(len(taught))]
    return {copy: hashlib.sha256(memory).digest() for copy, memory in zip(taught, known, strict=True)}


def _rows(part: np.ndarray) -> list[bytes]:
    """The bytes of each row."""
    whole, rows = part.tobytes(), len(part)
    size = len(whole) // max(rows, 1)
    return [whole[i * size : (i + 1) * size] for i in range(rows)]


def _digest(x: Any) -> bytes:
    """What an encoded question is, where that can be told: an array, or a dict of plain values."""
    if isinstance(x, np.ndarray) and x.dtype != object:
        return hashlib.sha256(x.tobytes()).digest()
    if isinstance(x, dict) and all(type(part) in (str, int, float, bool) for pair in x.items() for part in pair):
        return hashlib.sha256(repr(sorted(x.items(), key=repr)).encode(errors="replace")).digest()
    return b""
