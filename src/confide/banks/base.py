"""What a bank is: all copies of a learner behind one interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from confide.arrays import Floats, Ints
from confide.contained import contained
from confide.learners.base import held
from confide.learners.called import NO_LABEL, RAISED
from confide.learners.features import Columns
from confide.privacy.counters import Ticks
from confide.privacy.gate import Rule
from confide.reading import FORM, Malformed

__all__ = [
    "FORM", "NONE", "Bank", "Batched", "Failures", "Fused", "Rounds", "RowByRow", "State", "Tallied", "encode_rows",
    "encode_table", "sealed",
]  # fmt: skip

State = Mapping[str, NDArray[Any] | str | int]


@runtime_checkable
class Bank(Protocol):
    """All copies of one learner, isolated from each other: the ground that the guarantee stands on.

    A lesson touches one copy. No other copy's votes, memory or randomness may depend on it, and asking
    for votes changes nothing at all. In a batch no row's votes depend on another row. `confide.banks.checks` tells
    whether a bank keeps to that.
    """

    @property
    def copies(self) -> int:
        """The number of copies, k."""

    @property
    def labels(self) -> int:
        """The number of labels, L; inside a bank they are the integers 0 … L−1."""

    @property
    def nbytes(self) -> int:
        """The memory held for the copies, in bytes, native parts included. Private: for the operator."""

    def encode(self, x: Any) -> Any:
        """What the methods below take for `x`: it shares nothing with `x`. Malformed x raises ValueError."""

    def votes(self, x: Any, poll: Ints) -> Ints:
        """The votes of the polled copies by label, for an encoded x, in whatever order the copies come.

        A copy that abstains adds to no label; so does one whose learner fails. A bank that counts these has the count
        in an attribute `failures`, a `Failures`.
        """

    def learn(self, copy: int, x: Any, y: int) -> None:
        """Teach one copy an encoded x.

        An exception of its learner goes up, the lesson learned in part or not at all: POP swallows it.
        """

    def encode_many(self, xs: Any) -> tuple[Any, dict[int, str]]:
        """All x encoded, for the two methods below, and what is wrong with those that cannot be.

        A row that is wrong touches no other; what stands in its place is never asked or taught.
        """

    def votes_many(self, xs: Any, polls: Ints) -> Ints:
        """The votes on each encoded row, asked of the copies in the same row of `polls`, as `votes` says them."""

    def learn_many(self, copies: Ints, xs: Any, ys: Ints) -> int:
        """Teach each encoded row to its copy, in order; a lesson that fails is left out. How many were taught."""

    def reset(self, copies: Iterable[int]) -> None:
        """Make the copies forget everything: each is as if it had never been taught."""

    def state(self, trusted: bool = False) -> State:
        """Everything the copies know, as plain arrays, numbers and strings.

        `trusted` allows pickled models inside: only for a state that nobody else can write.
        """

    def load_state(self, state: State, trusted: bool = False) -> None:
        """Take over a state of a bank that was made in the same way; anything else raises ValueError."""


class Rounds(NamedTuple):
    """A chunk of rounds for a bank that runs them fused: what goes in, and where what comes out is written.

    Rows from `progress[ROW]` on are asked, and taught where they come with a label, until words or budget run out.
    """

    rule: Rule
    """The gate."""
    go: NDArray[np.uint64]
    """The halting table."""
    polls: int
    silent: int
    """How many rows are still silent."""
    most: int
    """G: the unsure answers after which a unit is capped."""
    words: NDArray[np.uint64]
    """Uniform words from `progress[CURSOR]` on: for each row its copy, its poll, the gate's word, the lean's if there
    is one, the halting word."""
    xs: NDArray[np.float64]
    ys: Ints
    """Labels to teach at once; −1 for none."""
    malformed: NDArray[np.bool_]
    units: Ints
    """For people the row of `shares`; −1 for rounds, whose copy is drawn."""
    shares: Ints
    """Unsure answers by unit."""
    progress: Ints
    copy_of: Ints
    """Whose lesson it is: given for people, written for rounds."""
    tops: Ints
    """The copies' answer; −1 where they are unsure, silent, or the round is capped or malformed."""
    margins: Ints
    """The vote's margin; −1 in silent rounds."""
    counts: Ints
    """Votes of the last live round."""
    lean: int
    """How unsure answers are drawn: 0 not at all, 1 by `lean_sure` and `lean_first`, 2 by `weights`."""
    lean_sure: NDArray[np.uint64]
    """By offset and signed margin; it is then the gate too."""
    lean_first: NDArray[np.uint64]
    weights: NDArray[np.uint64]
    offsets: Ints
    """Public, a row each: the row of the lean's tables, or whole votes for each label."""
    leaned: Ints
    """What the lean drew; −1 where it does not answer."""


TABLES = ("go", "lean_sure", "lean_first", "weights")
"""The parts of `Rounds` that are only read, and the same for a whole run."""


_TRY = "give it a few of your rows without Confide: a column of words and numbers, or with gaps, is the usual cause"


class Failures(NamedTuple):
    """How often learners, encoders of texts and parts failed: such a vote is an abstention, such a lesson is lost, and
    such a text has no vector. Private, for the operator.

    Examples
    --------
    >>> Failures().with_votes(np.array([0, 1, RAISED, NO_LABEL, RAISED])).sentence.partition("; ")[0]
    'the learner failed: of 5 votes 2 were lost as it raised, 1 as it answered something else than a label'
    """

    votes: int = 0
    """Votes that were asked for where learners may fail."""
    raised: int = 0
    """Votes of learners that raised."""
    no_label: int = 0
    """Votes that were neither a label nor None."""
    lessons: int = 0
    """Lessons of learners that raised."""
    texts: int = 0
    """Texts that encoders were asked about."""
    unread: int = 0
    """Texts of which encoders raised, or made something else than a vector."""
    silent: int = 0
    """Rounds in which no copy was heard, as some of them were lost and being brought back (public)."""
    rows: int = 0
    """Rows at which a part of one's own raised, or proposed what is no label: they were refused as malformed ones."""
    labels: int = 0
    """Labels at which a part of one's own raised: they taught it nothing."""

    def plus(self, other: Failures) -> Failures:
        """Both together."""
        return Failures(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def counts(self) -> dict[str, int]:
        """All of these by name."""
        return self._asdict()

    def less(self, earlier: Failures) -> Failures:
        """What came after `earlier`."""
        return Failures(*(now - then for now, then in zip(self, earlier, strict=True)))

    def with_votes(self, numbers: Ints) -> Failures:
        """With these votes, each a label's number or what stands for none."""
        raised, no_label = int((numbers == RAISED).sum()), int((numbers == NO_LABEL).sum())
        return self.plus(Failures(numbers.size, raised, no_label))

    @property
    def sentence(self) -> str:
        """What went wrong, in words; empty where nothing did."""
        parts = []
        if self.raised or self.no_label:
            lost = f"of {self.votes:,} votes {self.raised:,} were lost as it raised"
            parts.append(lost + f", {self.no_label:,} as it answered something else than a label")
        if self.lessons:
            parts.append(f"{self.lessons:,} labels were not learned as it raised")
        if self.raised or self.lessons:
            parts.append(_TRY)
        said = [f"the learner failed: {'; '.join(parts)}"] if parts else []
        if self.unread:
            said.append(f"the text encoder failed: of {self.texts:,} texts {self.unread:,} have no vector")
        if self.silent:
            said.append(f"in {self.silent:,} rounds no copy was heard, as some were lost and had to be brought back")
        if self.rows or self.labels:
            lost = f"{self.rows:,} questions were refused and {self.labels:,} labels not learned as it raised"
            said.append(f"a part of your own failed: {lost}")
        return "; ".join(said)


NONE = Failures()
"""Nothing failed."""


class Batched(ABC):
    """The single calls of a bank whose unit is a batch: each is a batch of one.

    A bank of one's own needs the three batch methods, `reset`, `state` and `load_state`.
    """

    @abstractmethod
    def encode_many(self, xs: Any) -> tuple[Any, dict[int, str]]:
        """See `Bank`."""

    @abstractmethod
    def votes_many(self, xs: Any, polls: Ints) -> Ints:
        """See `Bank`."""

    @abstractmethod
    def learn_many(self, copies: Ints, xs: Any, ys: Ints) -> int:
        """See `Bank`."""

    def encode(self, x: Any) -> Any:
        """A batch of one; what is wrong with x is raised."""
        rows, errors = self.encode_many([x])
        if errors:
            raise Malformed(errors[0])
        return rows[0]

    def votes(self, x: Any, poll: Ints) -> Ints:
        """A batch of one."""
        counts: Ints = self.votes_many([x], np.asarray(poll)[None, :])[0]
        return counts

    def learn(self, copy: int, x: Any, y: int) -> None:
        """A batch of one; a lesson that is left out raises."""
        if not self.learn_many(np.array([copy]), [x], np.array([y])):
            raise ValueError("the copy's learner failed, and the lesson is lost")


class RowByRow:
    """The batch part of a bank that has none of its own: row after row."""

    def votes_many(self: Bank, xs: Any, polls: Ints) -> Ints:
        """Row by row."""
        return np.array([self.votes(xs[i], polls[i]) for i in range(len(xs))], int).reshape(len(xs), self.labels)

    def learn_many(self: Bank, copies: Ints, xs: Any, ys: Ints) -> int:
        """Row by row."""
        taught = 0
        for copy, x, y in zip(copies.tolist(), xs, ys.tolist(), strict=True):
            with contained:
                self.learn(copy, x, y)
                taught += 1
        return taught


ROW, CURSOR, UNSURE, HALTED, TAUGHT = range(5)
"""What `Rounds.progress` holds."""


@runtime_checkable
class Fused(Bank, Protocol):
    """A bank that can run whole chunks of rounds by itself, in one compiled loop."""

    @property
    def fuses(self) -> bool:
        """Whether it can, for the learner it holds."""

    def run(self, rounds: Rounds) -> None:
        """Take the rounds as the plain loop would, with the same words in the same order."""


@runtime_checkable
class Tallied(Bank, Protocol):
    """A bank that keeps the votes of all its copies counted, so that to ask all of them costs nothing a copy."""

    def tally(self, x: Any) -> Ints:
        """`votes` of all copies."""

    def run_counted(self, rounds: Rounds, ticks: Ticks) -> None:
        """`Fused.run` for the paper's plan, whose halt is decided by a noisy counter: `ticks`."""


def lessons_for(bank: Bank, copies: Ints, xs: Any, ys: Ints) -> tuple[Ints, Ints]:
    """Copies and labels as a bank keeps numbers; ValueError where they do not fit it, or the rows."""
    copies, ys = np.asarray(copies, dtype=np.int64), np.asarray(ys, dtype=np.int64)
    if not len(xs) == copies.size == ys.size:
        raise ValueError("the lessons do not fit this bank: give an encoded x, a copy and a label for each")
    if not (within(copies, bank.copies) and within(ys, bank.labels)):
        raise ValueError("the lessons name a copy or a label that does not exist")
    return copies, ys


def within(numbers: Ints, end: int) -> bool:
    """Whether all of them are from 0 to below `end`."""
    return not numbers.size or bool(0 <= numbers.min() <= numbers.max() < end)


def in_order(taught: NDArray[Any], copies: int) -> bool:
    """Whether these are numbers of copies, each one larger than the one before."""
    return bool((np.diff(taught) > 0).all()) and within(taught, copies)


def refuse_others(state: State, name: State) -> None:
    """ValueError where a state does not name this bank."""
    for key, value in name.items():
        if state.get(key) != value:
            raise ValueError(f"the state belongs to another bank: its {key} is not {value}")


def sealed(rounds: Rounds, **others: Any) -> Rounds:
    """With tables that cannot be written to, and with other values in the fields that are named.

    One that can, as a pickled plan's, is of another type to the compiler, which would take seconds to compile a loop
    for every mixture of the two.
    """
    rule = rounds.rule
    held: dict[str, Any] = dict(zip(Rounds.__match_args__, rounds, strict=True)) | others
    held["rule"] = Rule(read_only(rule.table), rule.centre, rule.bits, read_only(rule.high), read_only(rule.low))
    return Rounds(**held | {name: read_only(held[name]) for name in TABLES})


def read_only(table: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written to."""
    seen = table.view()
    seen.flags.writeable = False
    return seen


def encode_table(encoder: Any, encode: Any, xs: Any, features: int) -> tuple[Floats, dict[int, str]]:
    """All x as rows of numbers, and what is wrong with those that are malformed."""
    table = type(xs) is np.ndarray and xs.ndim == 2 and xs.dtype.kind in "fiub" and xs.dtype.itemsize <= 8
    if table and type(encoder) is Columns and xs.shape[1] == features:
        return held(np.array(xs, dtype=np.float64, order="C")), {}
    each, errors = encode_rows(encode, xs)
    rows = np.zeros((len(each), features))
    for i, row in enumerate(each):
        if row is not None:
            rows[i] = row
    return rows, errors


def encode_rows(encode: Any, xs: Any) -> tuple[list[Any], dict[int, str]]:
    """Encode row by row: None stands for a row that is wrong, and whatever it raises stays with it."""
    rows: list[Any] = []
    errors: dict[int, str] = {}
    for i in range(len(xs)):
        row, said = None, FORM
        with contained:
            try:
                row, said = encode(xs[i]), ""
            except ValueError as error:
                said = str(error)
        rows.append(row)
        if said:
            errors[i] = said
    return rows, errors
