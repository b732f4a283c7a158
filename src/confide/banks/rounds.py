"""Whole chunks of rounds in one compiled loop: poll, votes, gate, halting draw, lesson.

The loop does what `confide.POP` does round by round, with the same words in the same order, so that under a seed both
give the same answers and leave the same copies behind (tests/test_batches.py). `POP` is the reference to read; here is
the same once more for machines. Every row has its own poll, gate draw, count and halting draw.

A chunk that runs out of random words stops *before* the row that it cannot finish, and is called again.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from confide.kernels.compile import jit
from confide.kernels.machine import prefetch
from confide.kernels.memory import view
from confide.privacy.draws import draw_below, draw_marked
from confide.privacy.tables import lead

__all__ = ["COIN", "HIDDEN", "NOTHING", "UNTAUGHT", "WARMING", "ask", "teach_rows"]

UNTAUGHT, WARMING = -1, -2
COIN, HIDDEN = -1, -2  # fallbacks: a coin, or one that is not known here
NOTHING = -1  # no label, no copy

ROW, CURSOR, UNSURE, FREE, HALTED, TAUGHT = range(6)  # what `ask` keeps in `progress`

_seen, _bytes = view(np.int64, 0), view(np.uint8, 1)

Words = NDArray[np.uint64]
Ints = NDArray[np.int64]
Slots = NDArray[np.int32]
Floats = NDArray[np.float64]


@jit
def _slot_of(copy: int, memory: Ints, start: Ints, slot: Slots, free: Slots, progress: Ints) -> int:
    """The slot of a copy; one that has none gets its own number, or else a free one, with what the prototype knows."""
    if slot[copy] < 0:
        if memory[0, 1] == slot.size:
            slot[copy] = copy
        else:
            progress[FREE] -= 1
            slot[copy] = free[progress[FREE]]
        for i in range(start.shape[0]):  # none where the prototype knows nothing: free slots are zeros
            size = memory[i, 4]
            begin, own = _byte_rows(start, i, size), _byte_rows(memory, i, size)
            for j in range(size):
                own[slot[copy], j] = begin[0, j]
    return int(slot[copy])


@jit
def _send_for_lesson(memory: Ints, slot: int) -> None:
    """Fetch the first cache lines of all arrays of a slot."""
    for i in range(memory.shape[0]):
        here = memory[i, 0] + memory[i, 4] * slot
        for line in range(min(memory[i, 4] // 64 + 1, 4)):
            prefetch(here + 64 * line)


@jit
def _find(poll: Ints, voter: Slots, idle: Words, dense: bool, slots: Slots) -> int:
    """Write the slot of each polled copy over `slots`, negative where it abstains; how many were never taught.

    In a dense bank a copy's slot is its own number, and a table of bits, small enough for the cache, says who votes.
    """
    untaught = 0
    for j in range(poll.size):
        copy = poll[j]
        slots[j] = copy
        if not dense or (idle[copy >> 6] >> np.uint64(copy & 63)) & np.uint64(1):
            slots[j] = voter[copy]
            untaught += slots[j] == UNTAUGHT
    return untaught


@jit
def _byte_rows(memory: Ints, i: int, size: int) -> NDArray[np.uint8]:
    shape = np.empty((1, 5), np.int64)
    shape[0, 0], shape[0, 1], shape[0, 2] = memory[i, 0], memory[i, 1], size
    return _bytes(shape, 0)


@jit
def _lesson(
    teach: Callable[..., None],
    memory: Ints,
    start: Ints,
    constants: Floats,
    warmup: int,
    slot: Slots,
    voter: Slots,
    idle: Words,
    free: Slots,
    progress: Ints,
    copy: int,
    x: Floats,
    y: int,
) -> None:
    here = _slot_of(copy, memory, start, slot, free, progress)
    seen = _seen(memory, 0)
    teach(memory, constants, here, seen[here], x, y)
    seen[here] += 1
    bit = np.uint64(1) << np.uint64(copy & 63)
    if seen[here] >= warmup:
        voter[copy] = here
        idle[copy >> 6] &= ~bit
    else:
        voter[copy] = WARMING
        idle[copy >> 6] |= bit
    progress[TAUGHT] += 1


@jit
def teach_rows(
    teach: Callable[..., None],
    memory: Ints,
    start: Ints,
    constants: Floats,
    warmup: int,
    slot: Slots,
    voter: Slots,
    idle: Words,
    free: Slots,
    progress: Ints,
    copies: Ints,
    xs: Floats,
    ys: Ints,
) -> None:
    """Teach row after row to its copy."""
    for i in range(ys.size):
        _lesson(
            teach, memory, start, constants, warmup, slot, voter, idle, free, progress, copies[i], xs[i], ys[i]
        )


@jit
def ask(
    vote: Callable[..., None],
    teach: Callable[..., None],
    memory: Ints,
    start: Ints,
    constants: Floats,
    warmup: int,
    slot: Slots,
    voter: Slots,
    idle: Words,
    free: Slots,
    words: Words,
    sure: Words,
    go: Words,
    copies: int,
    polls: int,
    silent: int,
    fallback: int,
    most: int,
    xs: Floats,
    ys: Ints,
    malformed: NDArray[np.bool_],
    units: Ints,
    unit_unsure: Ints,
    progress: Ints,
    copy_of: Ints,
    shown: Ints,
    answered: NDArray[np.bool_],
    margins: Ints,
    counts: Ints,
) -> None:
    """Ask rows from progress[ROW] on, and teach those that come with a label, until words or budget run out.

    `silent` is how many rows are still silent. `units` holds −1 for rounds, whose copy is drawn and goes into
    `copy_of`; else the row of `unit_unsure`, and `copy_of` is given. `margins` is −1 in silent rounds.
    """
    dense = memory[0, 1] == copies
    begins = start.shape[0] > 0 and _seen(start, 0)[0] >= warmup
    poll, following, slots = np.empty(polls, np.int64), np.empty(polls, np.int64), np.empty(polls, np.int32)
    only, alike = np.zeros(1, np.int32), np.empty(counts.size, np.int64)
    ahead, nobody = np.empty(polls, np.int32), np.empty(0, np.int32)
    taken = np.zeros((copies + 63) >> 6, np.uint64)
    guessed_at, guessed_end, next_untaught, found = -1, -1, 0, False
    while progress[ROW] < xs.shape[0] and progress[HALTED] == 0:
        i, cursor = progress[ROW], progress[CURSOR]
        copy, unit = copy_of[i], units[i]
        live = i >= silent
        if unit < 0:
            value, cursor = draw_below(words, cursor, np.uint64(copies))
            if cursor < 0:
                return
            copy = np.int64(value)
        if ys[i] >= 0 and slot[copy] >= 0:  # what the lesson will need is sent for before the votes are counted
            _send_for_lesson(memory, slot[copy])
        label, margin, answer = -1, -1, -1
        counted, capped, known, go_on = False, False, False, np.uint64(0)
        if live:
            for j in range(counts.size):
                counts[j] = 0
            if polls < copies:
                known, found = found and cursor == guessed_at, False
                if cursor == guessed_at:
                    poll, following, cursor = following, poll, guessed_end
                else:
                    cursor = draw_marked(words, cursor, copies, polls, poll, taken)
                    if cursor < 0:
                        return
                # Unless a coin is drawn, the next poll is settled by now: its copies are sent for while these vote.
                guessed_at = cursor + 2
                if i + 1 < xs.shape[0] and units[i + 1] < 0:
                    value, guessed_at = draw_below(words, guessed_at, np.uint64(copies))
                    prefetch(slot.ctypes.data + 4 * np.int64(value))
                    prefetch(voter.ctypes.data + 4 * np.int64(value))
                guessed_end = -1
                if guessed_at >= 0:
                    guessed_end = draw_marked(words, guessed_at, copies, polls, following, taken)
                if guessed_end < 0:
                    guessed_at = -1
            if not malformed[i]:
                untaught = 0
                if polls < copies:
                    if known:
                        slots, ahead, untaught = ahead, slots, next_untaught
                    else:
                        untaught = _find(poll, voter, idle, dense, slots)
                    if guessed_at >= 0:
                        next_untaught, found = _find(following, voter, idle, dense, ahead), True
                    vote(memory, constants, slots, ahead if guessed_at >= 0 else nobody, xs[i], counts)
                else:
                    for j in range(copies if begins else 0):
                        untaught += voter[j] == UNTAUGHT
                    vote(memory, constants, voter, nobody, xs[i], counts)
                if begins and untaught > 0:
                    for j in range(counts.size):
                        alike[j] = 0
                    vote(start, constants, only, nobody, xs[i], alike)
                    for j in range(counts.size):
                        counts[j] += untaught * alike[j]
            if cursor + 2 > words.size:
                return
            top, margin = lead(counts)
            is_sure = words[cursor] < sure[min(margin, sure.size - 1)]
            go_on = words[cursor + 1]
            cursor += 2
            capped = unit >= 0 and unit_unsure[unit] >= most
            counted = not (is_sure or malformed[i] or capped)
            label = top if is_sure and not (malformed[i] or capped) else -1
        answer = label
        if label < 0 and not malformed[i]:
            answer = fallback
            if fallback == COIN:
                value, cursor = draw_below(words, cursor, np.uint64(counts.size))
                if cursor < 0:
                    return
                answer = int(value)
        progress[CURSOR] = cursor  # nothing was changed up to here
        if counted:
            progress[UNSURE] += 1
            if unit >= 0:
                unit_unsure[unit] += 1
        if live and go_on >= go[min(progress[UNSURE], go.size - 1)]:
            progress[HALTED] = 1
        copy_of[i], shown[i], answered[i], margins[i] = copy, answer, label >= 0, margin
        progress[ROW] += 1
        if ys[i] >= 0 and not malformed[i]:
            before = voter[copy]
            _lesson(teach, memory, start, constants, warmup, slot, voter, idle, free, progress, copy, xs[i], ys[i])
            found = found and voter[copy] == before
