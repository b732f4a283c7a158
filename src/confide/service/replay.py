"""A desk comes back: from the snapshot and the journal to where the process was that is gone."""

from __future__ import annotations

from typing import Any

from confide.pop.keeping import Keeper, Past
from confide.pop.state import Saved
from confide.service.counts import Counts
from confide.service.memory import Memory
from confide.service.rows import ASKED, Rows, unpack

__all__ = ["replay"]


def replay(saved: Saved, keeper: Keeper, memory: Memory, counts: Counts) -> None:
    """Teach what was learned since the snapshot, let open questions wait again, and remember stored answers.

    The order is that of the journal. See docs/proofs/people.md for what may be taught again, and to whom.
    """
    lessons, counted = list[Past](), list[tuple[bytes, Any]]()
    since = counts.sequence
    if since is None:  # older counts do not say it, and are as old as the snapshot
        since = -1 if counts.empty else saved.header["sequence"]
    for kind, sequence, width, body in saved.journal():
        rows = list(Rows.of(width).read(body))
        if kind == ASKED:
            memory.asked(rows, sequence, max((row.number for row in rows), default=0))
            if sequence > since:
                counts.asked([row.number for row in rows], [row.source for row in rows], saved.spent.unsure)
            if keeper.counting:
                counted += [(row.whose, unpack(row.x)) for row in rows if row.x is not None and row.label >= 0]
            continue
        known = [(row, memory.ticket((row.epoch, row.number))) for row in rows if sequence > since]
        came = [(row.number, row.label != stored.row.label) for row, stored in known if stored is not None]
        counts.labelled([number for number, _ in came], [wrong for _, wrong in came])
        memory.taught(rows, sequence, saved.spent.rounds)
        lessons += [Past(sequence, row.copy, unpack(row.x), row.label, row.leaf) for row in rows if row.x is not None]
    keeper.recount(counted)
    keeper.replay(lessons, saved.header["sequence"], [(sequence, copy) for sequence, copy, _ in saved.spent.forgot])
    memory.expire(saved.spent.rounds)
    waiting = [(one.key, one.row) for one in memory.waiting()]
    keeper.reopen([(key, row.whose, row.copy, row.label, unpack(row.x)) for key, row in waiting if row.x is not None])
