"""A desk comes back: from the snapshot and the journal to where the process was that is gone."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confide.pop.keeping import Keeper, Past
from confide.pop.state import Saved
from confide.service.counts import Counts
from confide.service.journal import ASKED, COUNTED, NUMBERED, TAUGHT, Columns, Row, Rows, unpack
from confide.service.requests import Requests

__all__ = ["recover"]

_MANY = 1000  # questions that are looked at together


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Meanwhile no cycles are looked for: there are none among so many rows, and each look goes through them all."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@_without_collecting()
def recover(saved: Saved, keeper: Keeper, requests: Requests, counts: Counts) -> None:
    """Teach what was learned since the snapshot, let open questions wait again, and remember stored answers.

    The order is that of the journal. See docs/proofs/people.md for what may be taught again, and to whom.
    """
    lessons, records, counted = list[Past](), list[tuple[bytes, Any]](), list[tuple[bytes, Any]]()
    since, closed = saved.header["sequence"], keeper.leaf
    if counts.sequence < 0 and not counts.empty:  # older counts do not say it, and are as old as the snapshot
        counts.sequence = since
    for kind, sequence, _, body in saved.journal():
        if kind == COUNTED and sequence > counts.sequence:  # before rows that are in it would be counted for nothing
            counts.read(body, sequence)
    for kind, sequence, width, body in saved.journal():  # a day of it need not fit into the memory
        if kind == COUNTED:
            continue
        if kind not in (ASKED, TAUGHT):  # a part's own, from before there was a desk
            continue
        rows = list(Rows.of(width).read(body))
        if kind == ASKED:
            requests.again(body, width, sequence, keeper.stamp)
            if sequence > counts.sequence:
                stored = [row for row in rows if row.number > 0 and not row.forgotten]
                counts.asked([row.number for row in stored], [row.source for row in stored], saved.spent.unsure)
                counts.awaited(Columns.of(stored))
            lessons += [
                Past(sequence, row.copy, unpack(row.x), row.stands, row.number, row.number)
                for row in rows
                if row.x is not None and row.stands >= 0 and row.number >= closed
            ]
            if keeper.counting:
                counted += [(row.whose, unpack(row.x)) for row in rows if row.x is not None and row.label >= 0]
            continue
        if sequence > counts.sequence:
            came = [row for row in rows if row.number > 0 and row.epoch > 0]
            counts.labelled(Columns.of(came), [_answered(row, requests) for row in came])
        requests.taught(rows, sequence)
        if keeper.counting:
            history = [row for row in rows if (row.number, row.epoch, row.source) == (0, 0, NUMBERED)]
            records += [(row.whose, unpack(row.x)) for row in history if row.x is not None]
        lessons += [
            Past(sequence, row.copy, unpack(row.x), row.label, row.leaf, row.number)
            for row in rows
            if row.x is not None and (sequence > since or row.leaf >= closed)
        ]
    keeper.recount(records, counted)
    keeper.replay(lessons, since, [(sequence, copy) for sequence, copy, _ in saved.spent.forgot])
    if saved.noted:
        keeper.noted()
    while requests.expire(saved.spent.rounds, _MANY):
        pass


def _answered(lesson: Row, requests: Requests) -> int:
    """What was answered to the question of a label; rows of an earlier Confide leave that to the question's row."""
    answered = requests.answered((lesson.epoch, lesson.number)) if lesson.guided < 0 else None
    return lesson.guided if answered is None else answered
