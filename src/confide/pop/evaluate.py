"""How a mechanism does on a stream: ask each row, then teach its label. The operator's own tool."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from confide.arrays import Flags, Ints
from confide.banks.base import NONE, Failures
from confide.contained import contained
from confide.errors import Halted
from confide.extras import need
from confide.frames import rows_of, values_of
from confide.notebook import bar, card
from confide.pop.base import SOURCES, WHO, Answer, Followed, Mechanism, Unit, Xs

if TYPE_CHECKING:
    from confide.planning.pictures import Picture

__all__ = ["Evaluation", "Follows", "evaluate", "label_numbers"]

CHUNK = 4096
"""Rows that are prepared together."""

FIRST = 256
"""If so many rows at the start are all refused, something is wrong with all of them."""


@runtime_checkable
class Follows(Protocol):
    """A mechanism that asks and teaches many rows at once."""

    def follow_many(self, xs: Any, ys: Ints, units: Sequence[Unit] | None = None) -> Followed:
        """Ask each row, then teach its label (a number, −1 for none) before the next one."""

    def readable(self, xs: Any) -> dict[int, str]:
        """What is wrong with rows that cannot be read; takes no round."""


@dataclass(frozen=True, repr=False)
class Evaluation:
    """How a mechanism did on a stream. Exact, for the operator's eyes only, and outside the guarantee.

    A row that was refused is a wrong answer in every number; one without a label that is known is in no error.

    Examples
    --------
    >>> answers, labels = np.array([0, 1, 1, -1]), np.array([0, 1, 0, 1])
    >>> source = np.array([1, 3, 1, -1])
    >>> nothing = np.full(4, -1)
    >>> one = Evaluation(answers, source == 3, nothing, source, nothing, labels, 2, None)
    >>> one.error, one.live_error, one.coverage["guide"], one.errors["guide"]
    (0.5, 1.0, 0.5, 0.5)
    """

    answers: Ints
    """The label's number shown in each round; −1 for a row that was refused."""
    sure: Flags
    """Whether the copies answered."""
    margins: Ints
    """The vote's margin; −1 in silent rounds."""
    source: NDArray[np.int8]
    """Where each answer came from, a number of `confide.pop.base.SOURCES`; −1 for a row that was refused."""
    guide: Ints
    """The guide's own answer on every row; −1 where it had none."""
    labels: Ints
    """The right label's number; −1 for one that the mechanism does not know."""
    silent: int
    """How many of the first rows were silent rounds."""
    halted_at: int | None
    """The row from which on the copies took no part any more; None if they did not halt."""
    failures: Failures = NONE
    """How often the learner failed meanwhile."""

    @property
    def wrong(self) -> Flags:
        """Whether the answer was wrong, refused rows included; where no label is known, it was not."""
        return np.asarray(self.known & ((self.answers != self.labels) | (self.answers < 0)))

    @property
    def known(self) -> Flags:
        """Which rows have a label that the mechanism knows: errors are of these alone."""
        return self.labels >= 0

    def _error(self, wrong: Flags, of: Any) -> float:
        return _mean(wrong[of][self.known[of]])

    @property
    def rounds(self) -> int:
        """Rounds taken: fewer than asked for where the mechanism raises after its halt."""
        return self.answers.size

    @property
    def refused(self) -> Flags:
        """Which rows could not be read."""
        return self.answers < 0

    @property
    def live(self) -> int:
        """Live rounds."""
        return self.rounds - self.silent

    @property
    def mistakes(self) -> int:
        """Wrong answers in live rounds."""
        return int(self.wrong[self.silent :].sum())

    @property
    def error(self) -> float:
        """Wrong answers a round, over all rows that have a label."""
        return self._error(self.wrong, slice(None))

    @property
    def live_error(self) -> float:
        """Wrong answers a live round."""
        return self._error(self.wrong, slice(self.silent, None))

    def error_after(self, share: float) -> float:
        """Wrong answers a round, over the rows after this share of them."""
        return self._error(self.wrong, slice(int(share * self.rounds), None))

    @property
    def coverage(self) -> dict[str, float]:
        """The share of all rows that each source answered."""
        return {name: _mean(self.source == i) for i, name in enumerate(SOURCES)}

    @property
    def errors(self) -> dict[str, float]:
        """The error of each source over the rows that it answered; NaN where there were none."""
        return {name: self._error(self.wrong, self.source == i) for i, name in enumerate(SOURCES)}

    @property
    def guide_error(self) -> float:
        """The error of the guide's own answers over the rows where it had one; NaN without a guide."""
        return self._error(self.guide_wrong, self.guide >= 0)

    @property
    def guide_wrong(self) -> Flags:
        """Whether the guide's own answer was wrong; where it had none it was."""
        return np.asarray(self.known & ((self.guide != self.labels) | (self.guide < 0)))

    def __repr__(self) -> str:
        parts = [f"{share:.1%} by {name}" for name, share in self.coverage.items() if share]
        more = f", {int(self.refused.sum()):,} refused" if self.refused.any() else ""
        more += "" if self.known.all() else f", {int((~self.known).sum()):,} without a label, in no error"
        more += f"; {self.failures.sentence}" if self.failures.sentence else ""
        return f"Evaluation({self.rounds:,} rounds, error {self.error:.3%}, {', '.join(reversed(parts))}{more})"

    def plot(self) -> Picture:
        """How wrong the answers were as the rounds went on, and who answered: a Matplotlib figure (extra `report`)."""
        drawn: Picture = need("confide.pop.pictures", "report", "drawing an evaluation").picture(self)
        return drawn

    def _repr_html_(self) -> str:
        shares, errors = self.coverage, self.errors
        rows = [
            (WHO[name], f"{int((self.source == i).sum()):,}", f"{shares[name]:.2%}", f"{errors[name]:.2%}")
            for i, name in reversed(list(enumerate(SOURCES)))
            if shares[name] > 0
        ]
        if refused := int(self.refused.sum()):
            rows.append(("nobody: it could not be read", f"{refused:,}", f"{refused / self.rounds:.2%}", "100.00%"))
        alarms = [] if self.halted_at is None else [f"The copies halted at row {self.halted_at:,}: out of budget."]
        if said := self.failures.sentence:
            alarms.append(f"{said[0].upper()}{said[1:]}.")
        return card(
            f"{self.rounds:,} rounds, {self.error:.2%} wrong" if self.rounds else "no rounds",
            rows,
            head=("answered by", "rounds", "share", "wrong"),
            alarms=alarms,
            notes=(
                *([] if self.known.all() else [f"{int((~self.known).sum()):,} rows without a label are in no error."]),
                *([f"{self.error_after(0.5):.2%} wrong in the second half."] if self.rounds > 1 else []),
                "Exact: for the operator’s eyes only, outside the guarantee.",
            ),
        )


def _mean(flags: Flags) -> float:
    return float(np.mean(flags)) if flags.size else float("nan")


def evaluate(
    mechanism: Mechanism,
    xs: Xs,
    ys: Sequence[Hashable] | NDArray[Any],
    units: Sequence[Unit] | None = None,
    *,
    progress: Callable[[int], object] | bool = False,
) -> Evaluation:
    """Ask each row, then teach its label, in order, until the rows are used up, or a mechanism that raises has halted.

    It is the loop `answer = pop.predict(x); pop.learn(answer.ticket, y)`, with the same coins and the same copies in
    the end, in compiled chunks where there are kernels for the learner.

    Parameters
    ----------
    mechanism
        A POP, or any other mechanism. It is changed: its rounds and its budget are used.
    xs, ys
        The stream: arrays, sequences, or a table of pandas, polars or Arrow. A row that cannot be read takes its round
        and counts as a wrong answer; one whose label is not one of the labels is asked, not taught, and in no error.
    units
        One id a row, for a mechanism that protects people.
    progress
        True for a bar, in a terminal or a notebook; or called with the number of rounds taken since its last call.

    Examples
    --------
    >>> import confide
    >>> plan = confide.Plan.tight(epsilon=4.0, delta=1e-5, rounds=2000)
    >>> pop = confide.POP(None, plan, labels=[0, 1], features=1)
    >>> xs = np.arange(2000.0)[:, None] % 7 - 3
    >>> result = evaluate(pop, xs, (xs[:, 0] > 0).astype(int))
    >>> result.rounds, result.error_after(0.5) < 0.2
    (2000, True)
    """
    xs = rows_of(xs, getattr(mechanism, "named", True), getattr(mechanism, "names", ()))
    labels = label_numbers(mechanism.labels, ys)
    if len(xs) != labels.size:
        raise ValueError(f"there are {len(xs)} rows for {labels.size} labels: give one label for each")
    units = values_of(units)
    if isinstance(units, str | bytes) or (units is not None and len(units) != labels.size):
        raise ValueError("units must be a sequence of ids, one for each row")
    follows = cast(Follows, mechanism if hasattr(mechanism, "follow_many") else _OneByOne(mechanism))
    _check_readable(follows, xs[:FIRST], labels)
    silent, parts, at, before = _silent_left(mechanism), [Followed.of()], 0, mechanism.halt_reason
    failed = _failures(mechanism)
    with _told(progress, labels.size) as tell:
        while at < labels.size:
            part = slice(at, min(at + CHUNK, labels.size))
            parts.append(follows.follow_many(xs[part], labels[part], None if units is None else units[part]))
            taken = parts[-1].rounds
            at += taken
            tell(taken)
            if taken == 0:
                break
    answers, sure, margins, source, guide = (np.concatenate([part[i] for part in parts]) for i in range(5))
    halted = _halted_at(margins, before) if mechanism.halt_reason == "budget" else None
    failed = _failures(mechanism).less(failed)
    return Evaluation(answers, sure, margins, source, guide, labels[:at], min(silent, at), halted, failed)


@contextmanager
def _told(progress: Callable[[int], object] | bool, rounds: int) -> Iterator[Callable[[int], object]]:
    """Whom to tell how many rounds were taken."""
    if callable(progress):
        yield progress
    else:
        with bar("rounds", rounds, shown=bool(progress)) as advance:
            yield advance


def _halted_at(margins: Ints, before: str | None) -> int | None:
    """The row after the last that was voted on; the first if it had halted before; None where nobody tells."""
    voted = np.flatnonzero(margins >= 0)
    return int(voted[-1]) + 1 if voted.size else 0 if before == "budget" else None


def _failures(mechanism: Mechanism) -> Failures:
    counted = getattr(getattr(mechanism, "operator", mechanism), "failures", NONE)
    return counted if isinstance(counted, Failures) else NONE


def _silent_left(mechanism: Mechanism) -> int:
    plan = getattr(mechanism, "plan", None)
    return 0 if plan is None else max(0, plan.silent - mechanism.rounds)


def _check_readable(follows: Follows, xs: Any, labels: Ints) -> None:
    """Refuse a stream of which no row can be used, before it takes a round."""
    if not len(xs):
        return
    if (labels[: len(xs)] < 0).all():
        raise ValueError(f"none of the first {len(xs)} labels is one that this mechanism knows: labels are fixed")
    errors = follows.readable(xs)
    if len(errors) == len(xs):
        raise ValueError(f"none of the first {len(xs)} rows can be read: {errors[0]}")


class _OneByOne:
    """Any mechanism, asked row by row."""

    def __init__(self, mechanism: Mechanism) -> None:
        self._mechanism = mechanism

    def readable(self, xs: Any) -> dict[int, str]:
        return {}

    def follow_many(self, xs: Any, ys: Ints, units: Sequence[Unit] | None = None) -> Followed:
        labels, given = self._mechanism.labels, list[Answer]()
        for i in range(len(ys)):
            try:
                given.append(self._mechanism.predict(xs[i], None if units is None else units[i]))
            except Halted:
                break
            except ValueError:  # for its asker alone
                given.append(Answer(None, False, "", "refused"))
            else:
                if ys[i] >= 0:
                    self._mechanism.learn(given[-1].ticket, labels[ys[i]])
        return Followed.of(given, labels)


def label_numbers(labels: Sequence[Hashable], ys: Any) -> Ints:
    """The number of every label; −1 for what is none."""
    count = len(labels)
    if isinstance(ys, np.ndarray) and ys.ndim == 1 and ys.dtype.kind in "iu" and tuple(labels) == tuple(range(count)):
        return np.where((ys >= 0) & (ys < count), ys, -1).astype(np.int64)
    index = {label: i for i, label in enumerate(labels)}
    return np.array([_number(index, y) for y in values_of(ys)], dtype=np.int64)


def _number(index: dict[Hashable, int], y: Any) -> int:
    with contained:  # whatever y does when it is looked up
        return index.get(y, -1)
    return -1
