"""Whole chunks of rounds in one compiled loop: poll, votes, gate, halting draw, lesson.

The loop does what `confide.pop.loop` does round by round, with the same words in the same order, so that under a seed
both give the same answers and leave the same copies behind (tests/test_batches.py). That loop is the reference to read;
here is the same once more for machines, with the same decisions: `lead` and `passes` of the gate, `goes_on` of the
halting gate. Every row has its own poll, gate word and halting word.

What is drawn does not depend on what was voted, so the polls of a block of rows are drawn first; while one row's
copies vote, the next row's are sent for. A chunk that runs out of random words stops *before* the row that it cannot
finish, and is called again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.arrays import Flags, Floats, Ints, Slots, Words
from confide.banks.base import CURSOR, HALTED, ROW, TAUGHT, UNSURE, Rounds
from confide.kernels.compile import inlined, jit
from confide.kernels.machine import prefetch
from confide.kernels.memory import view
from confide.privacy.draws import SHORT, draw_below, draw_marked
from confide.privacy.gate import lead, passes
from confide.privacy.halting import goes_on
from confide.privacy.lean import lean_answer
from confide.privacy.weigh import weigh

UNTAUGHT, WARMING = -1, -2

BLOCK = 4096
"""Polled copies that are drawn ahead, about."""

_seen, _bytes = view(np.int64, 0), view(np.uint8, 1)

Vote = Callable[..., None]
Teach = Callable[..., None]


class Copies(NamedTuple):
    """A stacked bank as kernels see it."""

    memory: Ints
    """The arrays (`confide.kernels.memory`): a row of each belongs to the copy of the same number."""
    start: Ints
    """The same for what every copy starts with; empty where that is nothing."""
    constants: Floats
    warmup: int
    voter: Slots
    """A copy's own number, or why it does not vote."""
    idle: Words
    """A bit for every copy that does not vote: small enough for the cache."""


class Block(NamedTuple):
    """What was drawn for the next rows."""

    copies: Ints
    polls: NDArray[Any]
    gate: Words
    lean: Words
    go: Words
    ends: Ints
    """Where in the words each row ends."""
    taken: Words
    """All zeros: for `draw_marked`."""


@jit
def _byte_rows(memory: Ints, i: int, size: int) -> NDArray[np.uint8]:
    shape = np.empty((1, 5), np.int64)
    shape[0, 0], shape[0, 1], shape[0, 2] = memory[i, 0], memory[i, 1], size
    return _bytes(shape, 0)


@inlined
def _begin(copies: Copies, copy: int) -> None:
    """Give a copy what the prototype knows, before its first lesson."""
    for i in range(copies.start.shape[0]):
        size = copies.memory[i, 4]
        begin, own = _byte_rows(copies.start, i, size), _byte_rows(copies.memory, i, size)
        for j in range(size):
            own[copy, j] = begin[0, j]


@jit
def mark(voter: Slots, idle: Words, copy: int, now: int) -> None:
    """Write down where a copy votes, negative where it does not, and its bit."""
    voter[copy] = now
    bit = np.uint64(1) << np.uint64(copy & 63)
    idle[copy >> 6] = idle[copy >> 6] | bit if now < 0 else idle[copy >> 6] & ~bit


@inlined
def _lesson(teach: Teach, copies: Copies, progress: Ints, copy: int, x: Floats, y: int) -> None:
    if copies.voter[copy] == UNTAUGHT:
        _begin(copies, copy)
    seen = _seen(copies.memory, 0)
    teach(copies.memory, copies.constants, copy, seen[copy], x, y)
    seen[copy] += 1
    mark(copies.voter, copies.idle, copy, copy if seen[copy] >= copies.warmup else WARMING)
    progress[TAUGHT] += 1


@jit
def teach_rows(teach: Teach, copies: Copies, progress: Ints, copy_of: Ints, xs: Floats, ys: Ints) -> None:
    """Teach row after row to its copy."""
    for i in range(ys.size):
        _lesson(teach, copies, progress, copy_of[i], xs[i], ys[i])


@jit
def _send_for_lesson(memory: Ints, copy: int) -> None:
    """Fetch the first cache lines of all arrays of a copy."""
    for i in range(memory.shape[0]):
        here = memory[i, 0] + memory[i, 4] * copy
        for line in range(min(memory[i, 4] // 64 + 1, 4)):
            prefetch(here + 64 * line)


@jit
def _find(poll: Ints, voter: Slots, idle: Words, slots: Slots) -> int:
    """Write the slot of each polled copy over `slots`, negative where it abstains; how many were never taught."""
    untaught = 0
    for j in range(poll.size):
        copy = poll[j]
        slots[j] = copy
        if (idle[copy >> 6] >> np.uint64(copy & 63)) & np.uint64(1):
            slots[j] = voter[copy]
            untaught += slots[j] == UNTAUGHT
    return untaught


@inlined
def draw(rounds: Rounds, k: int, block: Block) -> int:
    """Draw copies, polls and words of the next rows; for how many the words sufficed."""
    cursor: int = rounds.progress[CURSOR]
    most: int = min(block.ends.size, rounds.ys.size - rounds.progress[ROW])
    for j in range(most):
        cursor = _draw_row(rounds, k, block, j, block.polls[j], cursor)
        if cursor < 0:
            return j
    return most


@inlined
def _draw_row(rounds: Rounds, k: int, block: Block, j: int, poll: NDArray[Any], cursor: int) -> int:
    """What one row needs; where in the words it ends, or a negative number if they ran out."""
    i, words, leans = rounds.progress[ROW] + j, rounds.words, 1 if rounds.lean > 0 else 0
    block.copies[j] = rounds.copy_of[i]
    if rounds.units[i] < 0:
        value, cursor = draw_below(words, cursor, np.uint64(k))
        if cursor >= 0:
            block.copies[j] = np.int64(value)
    if cursor >= 0 and i >= rounds.silent:
        if rounds.polls < k:
            cursor = draw_marked(words, cursor, k, rounds.polls, poll, block.taken)
        if cursor < 0 or cursor + 2 + leans > words.size:
            cursor = SHORT
        else:
            block.gate[j], block.lean[j], block.go[j] = words[cursor], words[cursor + leans], words[cursor + 1 + leans]
            cursor += 2 + leans
    block.ends[j] = cursor
    return cursor


@jit
def block_of(size: int, polls: int, k: int) -> Block:
    """Room for so many rows."""
    return Block(
        np.empty(size, np.int64),
        np.empty((size, polls if polls < k else 0), np.int64),
        np.empty(size, np.uint64),
        np.empty(size, np.uint64),
        np.empty(size, np.uint64),
        np.empty(size, np.int64),
        np.zeros((k + 63) >> 6 if polls < k else 0, np.uint64),
    )


@inlined
def _count(
    vote: Vote, copies: Copies, x: Floats, counts: Ints, slots: Slots, ahead: Slots, untaught: int, alike: Ints
) -> None:
    """The votes of these slots, and those of copies that were never taught, which all vote as the prototype does."""
    for j in range(counts.size):
        counts[j] = 0
    vote(copies.memory, copies.constants, slots, ahead, x, counts)
    if untaught > 0:
        for j in range(counts.size):
            alike[j] = 0
        only = np.zeros(1, np.int32)
        vote(copies.start, copies.constants, only, only[:0], x, alike)
        for j in range(counts.size):
            counts[j] += untaught * alike[j]


@inlined
def decide(rounds: Rounds, i: int, gate: np.uint64, leans: np.uint64) -> bool:
    """Gate, lean, count and cap of one live row, from the votes in `rounds.counts`; whether it was counted unsure."""
    unit, progress, leaned = rounds.units[i], rounds.progress, -1
    top, margin = lead(rounds.counts)
    if rounds.lean == 1:
        signed = rounds.counts[0] - rounds.counts[1]
        leaned, sure = lean_answer(gate, leans, rounds.lean_sure, rounds.lean_first, rounds.offsets[i, 0], signed)
    else:
        sure = passes(gate, rounds.rule, margin)
        if rounds.lean == 2:
            leaned = weigh(leans, rounds.weights, rounds.counts, rounds.offsets[i])
    capped = unit >= 0 and rounds.shares[unit] >= rounds.most
    charged = not (rounds.malformed[i] or capped)
    counted = charged and not sure
    if counted:
        progress[UNSURE] += 1
        if unit >= 0:
            rounds.shares[unit] += 1
    rounds.tops[i] = top if sure and charged else -1
    rounds.leaned[i] = leaned if charged and not sure else -1
    rounds.margins[i] = margin
    return counted


@inlined
def _take(vote: Vote, teach: Teach, copies: Copies, rounds: Rounds, block: Block, drawn: int, begins: bool) -> None:
    """Take the rows that were drawn, until one halts."""
    progress, k = rounds.progress, copies.voter.size
    polled, alike = rounds.polls < k, np.empty(rounds.counts.size, np.int64)
    slots, ahead = np.empty(rounds.polls if polled else 0, np.int32), np.empty(rounds.polls if polled else 0, np.int32)
    found, untaught, next_untaught, nobody = False, 0, 0, np.empty(0, np.int32)
    for j in range(drawn):
        i, copy = progress[ROW], block.copies[j]
        if rounds.ys[i] >= 0:  # what the lesson will need is sent for before the votes are counted
            _send_for_lesson(copies.memory, copy)
        if i >= rounds.silent:
            if polled:
                if found:
                    slots, ahead, untaught = ahead, slots, next_untaught
                else:
                    untaught = _find(block.polls[j], copies.voter, copies.idle, slots)
                found = j + 1 < drawn
                if found:
                    next_untaught = _find(block.polls[j + 1], copies.voter, copies.idle, ahead)
                _count(vote, copies, rounds.xs[i], rounds.counts, slots, ahead if found else nobody,
                       untaught if begins else 0, alike)  # fmt: skip
            else:
                untaught = 0
                for c in range(k if begins else 0):
                    untaught += copies.voter[c] == UNTAUGHT
                _count(vote, copies, rounds.xs[i], rounds.counts, copies.voter, nobody, untaught, alike)
            if rounds.malformed[i]:
                rounds.counts[:] = 0
            decide(rounds, i, block.gate[j], block.lean[j])
            if not goes_on(block.go[j], rounds.go, progress[UNSURE]):
                progress[HALTED] = 1
        rounds.copy_of[i], progress[CURSOR] = copy, block.ends[j]
        progress[ROW] += 1
        if rounds.ys[i] >= 0 and not rounds.malformed[i]:
            before = copies.voter[copy]
            _lesson(teach, copies, progress, copy, rounds.xs[i], rounds.ys[i])
            found = found and copies.voter[copy] == before
        if progress[HALTED]:
            return


@jit
def ask(vote: Vote, teach: Teach, copies: Copies, rounds: Rounds) -> None:
    """Ask rows from progress[ROW] on, and teach those that come with a label, until words or budget run out."""
    k = copies.voter.size
    begins = copies.start.shape[0] > 0 and _seen(copies.start, 0)[0] >= copies.warmup
    size = min(max(BLOCK // rounds.polls, 2), 64)
    block = block_of(size, rounds.polls, k)
    while rounds.progress[ROW] < rounds.ys.size and rounds.progress[HALTED] == 0:
        drawn = draw(rounds, k, block)
        if drawn == 0:
            return
        _take(vote, teach, copies, rounds, block, drawn, begins)


class Asked(NamedTuple):
    """Rows for those of the copies that are here: numbers `first` to `end`, without the last."""

    first: int
    end: int
    polls: NDArray[Any]
    """Who of them is asked, row after row, by their numbers less `first`."""
    ends: Ints
    """Where each row ends in it; empty where all are asked about every row."""
    asked: Flags
    """Whose votes are wanted."""
    copies: Ints
    """Whose lesson the row is."""
    xs: Floats
    ys: Ints
    """Labels to teach; −1 for none."""


class Cut(NamedTuple):
    """Polls by shards, each of which has a range of numbers."""

    edges: Ints
    """Where these ranges begin, and the end of the last."""
    polls: NDArray[Any]
    """A line for each shard, as `Asked.polls` says it."""
    ends: Ints


_FEW = 8
"""Up to so many shards, a poll is gone through once for each; beyond that once, with a look at where each copy is."""


@inlined
def _deal(poll: NDArray[Any], j: int, cut: Cut) -> None:
    """`_cut_row` for many shards."""
    shards = cut.ends.shape[0]
    share = shards / cut.edges[shards]
    for s in range(shards):
        cut.ends[s, j] = cut.ends[s, j - 1] if j > 0 else 0
    for c in range(poll.size):
        s = min(np.int64(poll[c] * share), shards - 1)  # or one beside it: ranges are about alike
        while poll[c] >= cut.edges[s + 1]:
            s += 1
        while poll[c] < cut.edges[s]:
            s -= 1
        cut.polls[s, cut.ends[s, j]] = poll[c] - cut.edges[s]
        cut.ends[s, j] += 1


@inlined
def _cut_row(poll: NDArray[Any], j: int, wanted: bool, cut: Cut) -> None:
    """Write down one row's poll for each shard, after those of the rows before; nobody's, if none is wanted."""
    shards = cut.ends.shape[0]
    if wanted and shards > _FEW:
        _deal(poll, j, cut)
    for s in range(0 if wanted and shards > _FEW else shards):
        first, size, polls = cut.edges[s], np.uint64(cut.edges[s + 1] - cut.edges[s]), cut.polls[s]
        found = np.uint64(cut.ends[s, j - 1] if j > 0 else 0)
        if wanted:
            for c in range(poll.size):
                place = np.uint64(poll[c] - first)  # a large number, where the copy is before the first one
                polls[found] = place  # the next one over it, unless it is here: a branch would be guessed wrong
                found += np.uint64(place < size)
        cut.ends[s, j] = found


@jit
def cut_rows(polls: Ints, cut: Cut) -> None:
    """Polls that were drawn, by shards."""
    for j in range(polls.shape[0]):
        _cut_row(polls[j], j, True, cut)


@inlined
def _find_here(asked: Asked, i: int, copies: Copies, slots: Slots) -> tuple[int, int]:
    """`_find` for the copies that are here: how many these are, and how many of them were never taught."""
    begin, untaught = asked.ends[i - 1] if i > 0 else 0, 0
    found = asked.ends[i] - begin
    for j in range(found):
        copy = asked.first + np.int64(asked.polls[begin + j])
        slots[j] = copy
        if (copies.idle[copy >> 6] >> np.uint64(copy & 63)) & np.uint64(1):
            slots[j] = copies.voter[copy]
            untaught += slots[j] == UNTAUGHT
    return found, untaught


@jit
def count_rows(vote: Vote, teach: Teach, copies: Copies, asked: Asked, counts: Ints, taught: Ints) -> None:
    """The votes on each row of the copies that are here, and then the row's lesson, if its copy is here too."""
    begins = copies.start.shape[0] > 0 and _seen(copies.start, 0)[0] >= copies.warmup
    rows, polled, progress, m = asked.ys.size, asked.ends.size > 0, np.zeros(5, np.int64), 0
    for i in range(asked.ends.size):
        m = max(m, asked.ends[i] - (asked.ends[i - 1] if i > 0 else 0))
    slots, ahead, nobody = np.empty(m, np.int32), np.empty(m, np.int32), np.empty(0, np.int32)
    found, n, untaught, more, next_untaught = False, 0, 0, 0, 0
    alike = np.empty(counts.shape[1], np.int64)
    for i in range(rows):
        copy = asked.copies[i]
        here = asked.ys[i] >= 0 and asked.first <= copy < asked.end
        if here:
            _send_for_lesson(copies.memory, copy)
        if asked.asked[i] and polled:
            if found:
                slots, ahead, n, untaught = ahead, slots, more, next_untaught
            else:
                n, untaught = _find_here(asked, i, copies, slots)
            found = i + 1 < rows and asked.asked[i + 1]
            if found:
                more, next_untaught = _find_here(asked, i + 1, copies, ahead)
            _count(vote, copies, asked.xs[i], counts[i], slots[:n], ahead[:more] if found else nobody,
                   untaught if begins else 0, alike)  # fmt: skip
        elif asked.asked[i]:
            untaught = 0
            for c in range(asked.first, asked.end if begins else asked.first):
                untaught += copies.voter[c] == UNTAUGHT
            voter = copies.voter[asked.first : asked.end]
            _count(vote, copies, asked.xs[i], counts[i], voter, nobody, untaught, alike)
        if here:
            before = copies.voter[copy]
            _lesson(teach, copies, progress, copy, asked.xs[i], asked.ys[i])
            found, taught[i] = found and copies.voter[copy] == before, 1


@jit
def draw_rows(rounds: Rounds, k: int, block: Block, cut: Cut) -> int:
    """`draw`, for who counts the votes elsewhere; a block has room for one poll."""
    cursor: int = rounds.progress[CURSOR]
    most: int = min(block.ends.size, rounds.ys.size - rounds.progress[ROW])
    for j in range(most):
        cursor = _draw_row(rounds, k, block, j, block.polls[0], cursor)
        if cursor < 0:
            return j
        i = rounds.progress[ROW] + j
        if cut.ends.size > 0:
            _cut_row(block.polls[0], j, i >= rounds.silent and not rounds.malformed[i], cut)
    return most


@jit
def decide_rows(rounds: Rounds, block: Block, drawn: int, counts: Ints, taught: Ints, silent: bool) -> None:
    """Gate, lean and halting draw of the rows that were drawn, from votes that were counted elsewhere.

    Where they are `silent`, what was drawn for them is thrown away: nothing is asked, counted or charged.
    """
    progress = rounds.progress
    for j in range(drawn):
        i = progress[ROW]
        if i >= rounds.silent and not silent:
            for label in range(rounds.counts.size):
                rounds.counts[label] = 0 if rounds.malformed[i] else counts[j, label]
            decide(rounds, i, block.gate[j], block.lean[j])
            if not goes_on(block.go[j], rounds.go, progress[UNSURE]):
                progress[HALTED] = 1
        rounds.copy_of[i], progress[CURSOR] = block.copies[j], block.ends[j]
        progress[ROW] += 1
        progress[TAUGHT] += taught[j]
        if progress[HALTED]:
            return
