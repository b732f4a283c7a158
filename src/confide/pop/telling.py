"""What a POP warns of: whoever calls it hears what is public, each once, and what became of their own labels.

That a label came too late is said in every call that brings one: were it said once in all, the second to bring one
would hear from the silence that there was a first. Python's own filter shows it once a place.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from confide.contained import contained
from confide.errors import ConfideWarning
from confide.pop.batches import Unread
from confide.pop.lessons import MORE, PAST, TOO_LATE, Late
from confide.pop.look import learns, standing
from confide.pop.loop import Loop

__all__ = ["Telling"]

LABELS_IN_VAIN = "labels brought now teach nothing"
RECORDS_IN_VAIN = (
    "records teach the guide nothing after a load, or after a call with records that was cut off: "
    "they may be in its sums already; teach all history in one go, before the state is saved"
)

MANY = 4000
"""The same of a plan without an end, as if it had so many rounds."""

HALF = 2
"""The planned rounds divided by what makes a first batch too long to learn from."""

FEW = 10
"""The rounds divided by how many labels may come after the last of them without a word."""

LOOKED = 400
"""The first questions, of which it is looked whether their labels can teach at all."""

_NAMED = 8  # names that are shown
_LEVEL = 4  # the warning is the caller's of POP's method; its labels come through one more of its own


class Telling:
    """The warnings of one POP.

    Parameters
    ----------
    loop
        The running parts, whose public numbers decide.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._said: set[str] = set()
        self._after = 0  # records that came when all rounds were over
        self._asked, self._people = 0, set[bytes | None]()  # of the first questions

    def _warn(self, kind: str | None, words: str, level: int = _LEVEL) -> None:
        """Once for a kind; what has none is the caller's own."""
        if kind not in self._said:
            if kind is not None:
                self._said.add(kind)
            warnings.warn(words, ConfideWarning, stacklevel=level)

    def stands(self) -> None:
        """Of a halt, and of the end of the planned rounds: as soon as it is public."""
        if self._loop.goes_on:  # else Halted says so
            self._stands("")

    def _stands(self, labels: str, own: bool = False) -> None:
        loop = self._loop
        rounds, reason = loop.account.shown
        if reason is None:
            return
        learning = learns(loop.plan, rounds, reason)
        if labels and learning:
            return
        where = standing(loop.plan, rounds, reason, loop.goes_on)
        kind = None if own else f"{learning}{labels}"
        self._warn(kind, f"this POP stands still: {where}{labels}", _LEVEL + 1 + own)

    def names(self, names: Sequence[Hashable], first: Sequence[Any]) -> None:
        """Of a first question that has none of the declared names: to its asker, whose they are."""
        lacks = False
        with contained:  # whatever a row does when it is looked at, the others of its call are answered
            lacks = any(isinstance(x, Mapping) and not any(name in x for name in names) for x in first)
        if not names or not lacks:
            return
        some = ", ".join(map(repr, names[:_NAMED])) + (", …" if len(names) > _NAMED else "")
        self._warn("names", f"the first question has none of the declared names {some}: it is answered as an empty one")

    def at_once(self, before: int, asked: int) -> None:
        """Of a first batch with most of the planned rounds, none of whose labels can have taught anything in them."""
        loop, plan = self._loop, self._loop.plan
        few = HALF * asked < (MANY if plan.endless else plan.rounds)
        if few or before or loop.account.history or plan.copies or loop.parts.closed < 2:
            return
        planned = "" if plan.endless else f" of {plan.rounds:,} planned"
        self._warn(
            "at once",
            f"{asked:,}{planned} rounds were asked in one call, and nothing was learned in them: "
            f"no label can come before its row is answered; {TOO_LATE}{'' if plan.endless else MORE}",
        )

    def refused(self, errors: Sequence[BaseException], asked: int) -> None:
        """Of questions of this call that were refused: to their asker, in every call."""
        Unread.warn([str(error) for error in errors if isinstance(error, ValueError)], asked, _LEVEL - 1)

    def people(self, whos: Sequence[bytes | None]) -> None:
        """Of so few people that most labels come past their cap: by who asks, which is public, and nothing else."""
        if self._asked >= LOOKED or self._loop.routing.units == "rounds":
            return
        some = whos[: LOOKED - self._asked]
        self._asked += len(some)
        self._people.update(some)
        if self._asked < LOOKED:
            return
        most = self._loop.account.most
        if most is None or 2 * most * len(self._people) >= LOOKED:
            return
        people, can = len(self._people), most * len(self._people)
        self._warn(
            "people",
            f"the first {LOOKED} questions came from {people:,} people, of each of whom {most:,} labels teach: "
            f"{can:,} of {LOOKED} at most; raise labels_per_person, at the price of noise",
        )

    def labels(self, before: Late, brought: int) -> None:
        """Of labels of this call that came too late: by the age of their rounds, which is public, and in every call."""
        self._stands(f"; {LABELS_IN_VAIN}", own=True)
        late = self._loop.late
        if late.old > before.old:
            count = late.labels - before.labels
            own = "the label" if brought == 1 else f"{count:,} of {brought:,} labels"
            self._warn(None, f"{own} of this call came too late to teach anything: {self._why()}", _LEVEL + 1)
        if late.past > before.past:
            self._warn(None, f"labels of this call came later than the period of their question: {PAST}", _LEVEL + 1)

    def _why(self) -> str:
        """Why labels are late, by public numbers: the warm-up is over, or the rounds that were planned."""
        plan, rounds = self._loop.plan, self._loop.account.rounds
        warm = 0 if plan.guide is None else plan.guide.range_rounds - self._loop.account.history
        if 0 < warm < rounds and not self._loop.parts.missed_many([warm + 1])[0]:
            return (
                f"ranges are found in the first {warm:,} rounds, and a label of these teaches while they last; ask and "
                "teach so many rows in batches of some tens"
            )
        return TOO_LATE + ("" if plan.endless else MORE)

    def records(self, rows: int) -> None:
        """Of records that teach the guide nothing (`Guiding.teach_rows`): that depends on calls alone."""
        loop = self._loop
        rounds = loop.account.rounds
        if not loop.parts.knows and loop.routing.units == "rounds":
            self._warn("records", RECORDS_IN_VAIN)
        self._stands(f"; {LABELS_IN_VAIN}")
        self._after += rows if rounds >= loop.plan.horizon else 0
        if FEW * self._after >= max(rounds, FEW * FEW):
            over = f"{self._after:,} labels came after the last of {loop.plan.rounds:,} planned rounds"
            self._warn("after", f"{over}, and teach nothing: {TOO_LATE}{MORE}")
