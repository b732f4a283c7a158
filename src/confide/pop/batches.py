"""Many rounds at once: what the loop does one by one, in the bank's batches, or fused where the bank can.

A batch is a sequence of rounds like any other: every row has its own poll, gate word, count and halting word, in order.
What is drawn does not depend on what was voted, so the words are those that the plain loop would draw, and under a seed
both agree to the last bit (tests/test_batches.py). All rounds of a batch are taken first, before the public parts,
which go before the copies, learn or release anything of them. Proof pages: docs/proofs/people.md, docs/proofs/parts.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from confide.arrays import Flags, Ints
from confide.banks.base import CURSOR, HALTED, ROW, TAUGHT, UNSURE, Fused, Rounds, Tallied
from confide.contained import contained
from confide.errors import ConfideWarning
from confide.pop.base import COPIES, FALLBACK, LEAN, Followed
from confide.pop.loop import NOTHING, Loop, Outcome, merged_rows
from confide.pop.running import PastCap
from confide.pop.tickets import Waiting
from confide.privacy.gate import lead
from confide.privacy.halting import Halting
from confide.privacy.sparse import CounterBudget

__all__ = ["Chunk", "Records", "ask_many", "follow", "fuses", "refuse", "teach_many"]

WORDS = 1 << 17
"""Random words that are held ready for a chunk: a megabyte."""

NO_TABLE = np.zeros(1, dtype=np.uint64)
"""Where a counter decides the halt."""


@dataclass(repr=False)
class Chunk:
    """What a chunk of rounds left behind: a row for each question, as far as `rows`."""

    rows: int
    xs: Any
    """The encoded rows."""
    errors: dict[int, str]
    """What was wrong with a row: for its asker alone."""
    copies: Ints
    shown: Ints
    """The number of the label shown; −1 where there is an error."""
    sure: Flags
    margins: Ints
    source: NDArray[np.int8]
    guided: Ints
    """The public parts' own answers."""
    own: NDArray[np.int8]
    """The numbers of the sources of these."""
    leaned: Ints
    """What the lean drew; −1 where it does not answer."""
    offsets: Ints
    """The lean's public offsets."""
    encoded: list[tuple[Any, ...]] = field(default_factory=list)
    """The rows as the parts take them, where tickets will hold them."""

    @classmethod
    def of(cls, rows: int, xs: Any, errors: dict[int, str], n: int) -> Chunk:
        """A chunk of n rows of which nothing is known."""
        copies, shown, margins, guided, leaned = np.full((5, n), NOTHING)
        none, source, own = np.zeros((n, 0), dtype=np.int64), np.zeros(n, np.int8), np.full(n, NOTHING, np.int8)
        return cls(rows, xs, errors, copies, shown, np.zeros(n, bool), margins, source, guided, own, leaned, none)

    def followed(self) -> Followed:
        """For the operator: answers by row, −1 where there was an error."""
        n = self.rows
        shown, source = self.shown[:n].copy(), self.source[:n].copy()
        wrong = [i for i in self.errors if i < n]
        shown[wrong] = source[wrong] = NOTHING
        return Followed(shown, self.sure[:n], self.margins[:n], source, self.guided[:n])


def fuses(loop: Loop) -> bool:
    """Whether this loop's rounds run fused: in the bank's own compiled loop."""
    if type(loop) is not Loop or loop.account.legs is not None:
        return False  # in a relay what is drawn in a round depends on the firings before it
    if loop.parts and (not loop.goes_on or loop.parts.hears):
        return False  # where a halt ends the answers, nothing public may run ahead of it; nor labels of their questions
    if loop.plan.copies == 0:
        return True
    counter = loop.account.counter
    halts = isinstance(loop.plan.halting, Halting) if counter is None else loop.tallies and counter.lends
    full = loop.tallies or not hasattr(loop.bank, "tally")
    return bool(loop.rng.one_stream and halts and full and getattr(loop.bank, "fuses", False))


def ask_many(loop: Loop, xs: Any, whos: Sequence[bytes | None]) -> list[Outcome]:
    """Take as many of the rounds as plan and budget allow, the copies as they are."""
    loop.reserve(whos)
    if type(loop) is not Loop or loop.account.legs is not None or (loop.parts and not loop.goes_on):  # one by one
        outcomes: list[Outcome] = []
        while len(outcomes) < len(xs) and (loop.account.open() or loop.goes_on):
            outcomes.append(loop.ask(xs[len(outcomes)], whos[len(outcomes)]))
        return outcomes
    first = loop.account.rounds
    chunk = _chunk(loop, xs, np.full(len(xs), NOTHING), whos, keep=True)
    outcomes, journaled = list[Outcome](), loop.tickets.kept
    columns = (chunk.copies, chunk.shown, chunk.sure, chunk.source, chunk.guided)
    rows = zip(*(column[: chunk.rows].tolist() for column in columns), strict=True)
    issue, watches, errors = loop.tickets.issue, loop.monitor is not None, chunk.errors
    for i, (copy, shown, sure, source, said) in enumerate(rows):
        number = first + i + 1
        watched = watches and loop.watch(whos[i], number)
        if i in errors:
            issue(number, None)
            outcomes.append(Outcome(NOTHING, error=ValueError(errors[i]), number=number))
            continue
        x = None if journaled and copy == NOTHING else chunk.xs[i]  # which nobody will learn from, nor save
        if isinstance(x, np.ndarray):
            x = x.copy()
            x.flags.writeable = False
        questions = chunk.encoded[i] if chunk.encoded else ()
        waiting = Waiting(copy, x, shown, watched, whos[i], questions)
        ticket = "" if journaled else issue(number, waiting)
        outcomes.append(Outcome(shown, sure, ticket, None, source, said, number, waiting))
    loop.tickets.expire(loop.account.rounds)
    return outcomes


def follow(loop: Loop, xs: Any, labels: Ints, whos: Sequence[bytes | None]) -> Chunk:
    """Ask each row, then teach its label (−1: none) before the next row, as many as plan and budget allow."""
    loop.reserve(whos)
    if fuses(loop):
        first, labels = loop.account.rounds, loop.parts.receive_rows(labels, whos)[0]
        chunk = _chunk(loop, xs, labels, whos)
        for i in range(chunk.rows if loop.monitor is not None else 0):
            watched = loop.watch(whos[i], first + i + 1)
            if watched and labels[i] >= 0 and i not in chunk.errors and chunk.shown[i] != labels[i]:
                assert loop.monitor is not None
                loop.monitor.wrong(0)
        loop.tickets.expire(loop.account.rounds)
        return chunk
    n = len(labels)
    chunk = Chunk.of(0, None, {}, n)
    while chunk.rows < n and (loop.account.open() or loop.goes_on):
        i, live = chunk.rows, loop.voting and loop.account.rounds >= loop.quiet
        outcome = loop.ask(xs[i], whos[i])
        chunk.rows += 1
        if live and loop.last is not None:
            chunk.margins[i] = lead(loop.last)[1]
        if outcome.error is not None:
            if not isinstance(outcome.error, Exception):
                raise outcome.error
            chunk.errors[i] = str(outcome.error)
            continue
        chunk.shown[i], chunk.sure[i] = outcome.label, outcome.sure
        chunk.source[i], chunk.guided[i] = outcome.source, outcome.guided
        if labels[i] >= 0:
            key = loop.tickets.epoch, loop.account.rounds
            with suppress(PastCap):  # counted for the operator
                loop.learn(key, int(labels[i]))
            loop.account.used.discard(key)  # nobody holds it, and no snapshot has it
    loop.lessons.apply()
    return chunk


def _chunk(loop: Loop, xs: Any, labels: Ints, whos: Sequence[bytes | None], keep: bool = False) -> Chunk:
    """The rounds of a chunk: the public parts' share in them, then the copies', fused or in the bank's batches.

    What is public does not depend on the copies; they have its scores for the lean. Each is in the order of rounds.
    """
    loop.lessons.apply()
    encoded, errors = loop.bank.encode_many(xs)
    chunk = Chunk.of(len(xs), encoded, errors, len(xs))
    _propose(loop, chunk, xs, labels, whos, keep)
    _vote(loop, chunk, labels, whos)
    n = chunk.rows
    chunk.errors = {i: said for i, said in chunk.errors.items() if i < n}
    given, failed = loop.fallback.answers(xs[:n])  # of every row, needed or not
    ways: list[tuple[Ints, Any]] = [(chunk.guided[:n], chunk.own[:n])]
    if loop.plan.copies:
        ways = [(np.where(chunk.sure[:n], chunk.shown[:n], NOTHING), COPIES), (chunk.leaned[:n], LEAN), *ways]
    shown, source = merged_rows(ways, given)
    good = np.ones(n, dtype=np.bool_)
    good[list(chunk.errors)] = False
    np.copyto(chunk.shown[:n], shown, where=good)
    np.copyto(chunk.source[:n], source, where=good)
    for i, error in failed.items():
        # For its asker alone: the others must not see that this row was unsure.
        if good[i] and source[i] == FALLBACK and chunk.guided[i] < 0:
            chunk.errors[i] = str(error)
    return chunk


def _vote(loop: Loop, chunk: Chunk, labels: Ints, whos: Sequence[bytes | None]) -> None:
    """The copies' part: until the rounds are over, or they halt; the rounds after that are taken all the same."""
    account, plan, n = loop.account, loop.plan, chunk.rows
    chunk.rows = 0
    if account.open():
        chunk.rows = min(n, plan.horizon - account.rounds)
        if plan.copies == 0:
            account.take(chunk.rows)
        else:
            if loop.routing.units == "people":
                chunk.copies[:] = loop.routing.copies_for(whos)
            take = _run_fused if fuses(loop) else _run_votes
            take(loop, chunk, labels, whos)
    if chunk.rows < n and loop.goes_on:
        account.open()
        account.take(n - chunk.rows)
        chunk.copies[chunk.rows :] = NOTHING
        chunk.rows = n


def _propose(loop: Loop, chunk: Chunk, xs: Any, labels: Ints, whos: Sequence[bytes | None], keep: bool) -> None:
    """The public parts' rounds, and the lean's offsets. What they cannot read is refused for the copies too."""
    for i, said in loop.parts.unreadable(xs, chunk.errors).items():
        chunk.errors.setdefault(i, said)
    bad = np.zeros(chunk.rows, dtype=np.bool_)
    bad[list(chunk.errors)] = True
    proposed = loop.parts.follow(xs, labels, whos, bad, keep)
    chunk.errors.update(proposed.errors)
    chunk.guided[:], chunk.own[:], chunk.encoded = proposed.answers, proposed.sources, proposed.rows
    if loop.leaning is not None:
        chunk.offsets = loop.leaning.offsets(proposed.scores, chunk.rows)


def _run_fused(loop: Loop, chunk: Chunk, labels: Ints, whos: Sequence[bytes | None]) -> None:
    """The chunk in the bank's own loop; what it spent is the account's, also after an interrupt."""
    plan, account = loop.plan, loop.account
    people: dict[bytes, int] = {}
    units = np.full(len(whos), NOTHING)
    if loop.routing.units == "people":
        units[:] = [people.setdefault(who, len(people)) for who in whos if who is not None]
    shares = np.array([account.shares.get(who, 0) for who in people] or [0], dtype=np.int64)
    malformed = np.zeros(len(labels), dtype=np.bool_)
    malformed[list(chunk.errors)] = True
    progress = np.zeros(5, dtype=np.int64)
    progress[UNSURE], silent = account.unsure, plan.silent - account.rounds
    counts, rows = np.zeros(plan.labels, dtype=np.int64), chunk.rows
    leaning = loop.leaning
    assert leaning is not None
    go = plan.halting.go if isinstance(plan.halting, Halting) else NO_TABLE
    need = min(getattr(loop.bank, "words", WORDS), 64 + rows * (5 if plan.polls == plan.copies else plan.polls + 5))
    try:
        while progress[ROW] < rows and not progress[HALTED]:
            words, progress[CURSOR] = loop.rng.lend(need)
            before = int(progress[ROW])
            try:
                _run(
                    loop, need,
                    Rounds(
                        leaning.rule, go, plan.polls, silent, plan.unit_unsure, words,
                        chunk.xs[:rows], labels[:rows], malformed, units, shares, progress,
                        chunk.copies, chunk.shown, chunk.margins, counts,
                        leaning.kind, leaning.sure, leaning.first, leaning.weights, chunk.offsets, chunk.leaned,
                    )
                )  # fmt: skip
            finally:
                loop.rng.give_back(int(progress[CURSOR]))
            if progress[ROW] == before:
                need *= 2
    finally:
        chunk.rows = int(progress[ROW])
        account.take(chunk.rows)
        account.unsure = int(progress[UNSURE])
        account.shares.update({who: int(shares[i]) for who, i in people.items() if shares[i]})
        labelled = int(((labels[: chunk.rows] >= 0) & ~malformed[: chunk.rows]).sum())
        loop.lessons.count(int(progress[TAUGHT]), labelled - int(progress[TAUGHT]))
        chunk.sure[:] = chunk.shown >= 0
        if chunk.rows and chunk.margins[chunk.rows - 1] >= 0:
            loop.last = counts
        if progress[HALTED]:
            account.halted = "budget"


def _run(loop: Loop, need: int, rounds: Rounds) -> None:
    """Rounds until words or budget run out; where the paper's counter decides the halt, with it."""
    counter, halting = loop.account.counter, loop.plan.halting
    if counter is None or not isinstance(halting, CounterBudget):
        cast(Fused, loop.bank).run(rounds)
        return
    cast(Tallied, loop.bank).run_counted(rounds, counter.lend(2 * need, halting.limit))


def _run_votes(loop: Loop, chunk: Chunk, labels: Ints, whos: Sequence[bytes | None]) -> None:
    """The chunk in the bank's batches: all words first, then all votes, then the decisions one by one."""
    plan, rng, account, rows = loop.plan, loop.rng, loop.account, chunk.rows
    silent = max(0, min(rows, plan.silent - account.rounds))
    live = rows - silent
    polls = None if loop.tallies else np.empty((live, plan.polls), dtype=np.int64)
    words = np.zeros((live, 3), dtype=np.uint64)
    leaning = loop.leaning
    assert leaning is not None
    for i in range(rows):
        if whos[i] is None:
            chunk.copies[i] = loop.routing.copy_for(None)
        if i >= silent:
            poll = loop.poll()
            if polls is not None and poll is not None:
                polls[i - silent] = poll
            words[i - silent] = rng.word(), 0 if plan.lean is None else rng.word(), rng.word()
    good = np.array([i for i in range(silent, rows) if i not in chunk.errors], dtype=np.int64)
    votes = np.zeros((rows, plan.labels), dtype=np.int64)
    asked: Any = chunk.xs[good] if isinstance(chunk.xs, np.ndarray) else [chunk.xs[i] for i in good.tolist()]
    votes[good] = _votes(loop, asked, None if polls is None else polls[good - silent])
    if loop.silent:
        silent = rows
    account.take(silent)
    for i in range(silent, rows):
        account.take()
        gate_word, lean_word, halting_word = (int(word) for word in words[i - silent])
        malformed, capped = i in chunk.errors, account.capped(whos[i])
        top, chunk.margins[i], sure, leaned = leaning.decide(votes[i], gate_word, lean_word, chunk.offsets[i])
        loop.last = votes[i].copy()
        account.spend(whos[i], not (sure or malformed or capped), int(halting_word))
        if sure and not (malformed or capped):
            chunk.shown[i], chunk.sure[i] = top, True
        elif not (malformed or capped):
            chunk.leaned[i] = leaned
        if account.halted is not None:
            chunk.rows = i + 1
            return


def _votes(loop: Loop, xs: Any, polls: Ints | None) -> Ints:
    """The rows' votes; a bank that fails as a whole, which none should, has abstained."""
    if polls is not None:
        with contained:
            return loop.bank.votes_many(xs, polls)
    each = [loop.votes(xs[i], None if polls is None else polls[i]) for i in range(len(xs))]
    return np.array(each, dtype=np.int64).reshape(len(xs), loop.plan.labels)


# ---------------------------------------------------------------------- records


class Records(NamedTuple):
    """What became of records: a row each."""

    copies: Ints
    labels: Ints
    """−1 where it was refused."""
    leaves: Ints
    """The open releases that have it (`confide.pop.several.Parts.stamp`); −1 for none."""
    refused: dict[int, ValueError]
    past: dict[int, ValueError]
    """Labels that a part did not take: past a person's cap."""
    numbered: int
    """How many, the first ones, took a row's number each, and may be counted for ranges (public)."""

    def __repr__(self) -> str:
        return f"Records({len(self.labels)})"


def teach_many(loop: Loop, xs: Any, ys: Sequence[Hashable], whos: Sequence[bytes | None]) -> Records:
    """Teach many records. Every row has its copy drawn."""
    loop.parts.teaching()
    copies = np.full(len(whos), NOTHING)
    if loop.plan.copies:
        copies = loop.routing.copies_for(whos) + loop.first_of(loop.account.rounds + 1)
    rows, errors = loop.bank.encode_many(xs)
    errors = {**loop.parts.unreadable(xs, errors), **errors}
    refused: dict[int, ValueError] = {i: ValueError(said) for i, said in errors.items()}
    labels = np.full(len(copies), NOTHING)
    for i, y in enumerate(ys):
        try:
            labels[i] = loop.label(y)
        except ValueError as error:
            refused.setdefault(i, error.with_traceback(None))  # whose calls hold the label
    good = np.array([i for i in range(len(copies)) if i not in refused], dtype=np.int64)
    taught: Any = rows[good] if isinstance(rows, np.ndarray) else [rows[i] for i in good.tolist()]
    labels[list(refused)] = NOTHING
    labels, past = loop.parts.receive_rows(labels, whos)
    if loop.plan.copies:
        loop.lessons.many(copies[good], taught, labels[good])
    before, leaves = loop.account.history, loop.parts.teach_rows(xs, labels, whos)
    return Records(copies, labels, leaves, dict(sorted(refused.items())), past, loop.account.history - before)


def refuse(refused: Mapping[int, ValueError]) -> None:
    """Say which rows were not learned, once all others are: what one unit sent must not decide that."""
    for i, error in refused.items():
        more = f"; so were {len(refused) - 1} more rows" if len(refused) > 1 else ""
        raise type(error)(f"row {i} was refused, and all good rows were learned: {error}{more}")


class Unread(ConfideWarning):
    """Questions of a call were refused: how many, and why the first was; for their asker."""

    @classmethod
    def warn(cls, errors: Sequence[str], asked: int, level: int) -> None:
        """Say it of a call with these errors, where there are any.

        A filter that raises warnings is not heeded: one person's row must not take the answers of all others.
        """
        if errors:
            with suppress(cls):
                warnings.warn(
                    cls(
                        f"{len(errors):,} of {asked:,} questions of this call were refused, and have neither answer "
                        f"nor ticket; of the first: {errors[0]}; each answer's error has its own reason"
                    ),
                    stacklevel=level + 1,
                )


def ticketed(tickets: Sequence[Any]) -> list[int]:
    """The places of those that there are: a question that was refused has none, and nothing to learn."""
    return [i for i, ticket in enumerate(tickets) if ticket is not None and not (type(ticket) is str and not ticket)]
