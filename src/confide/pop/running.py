"""A part in a run: what it does in a round, with a label, after a crash.

A part runs by what was released and by public rounds: what it proposes everybody may compute. Whatever it releases is
durable first, under the part's own name. Several of them as one: `confide.pop.several`. What a part owes:
docs/proofs/parts.md.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.arrays import Flags, Floats, Ints
from confide.banks.base import Failures
from confide.errors import StateError
from confide.planning.parts import Part
from confide.pop.account import Account
from confide.pop.base import source_number
from confide.privacy.random import Random

__all__ = ["Asked", "Counted", "PastCap", "Released", "Running", "digest_of", "run_of"]

Who = bytes | None
Counted = tuple[Any, Who]
"""A row that was counted, and whose it is."""
Released = tuple[str, int, bytes, bytes]
"""(kind, number, noisy row, exact sums) of a release."""

_runs: dict[type[Part], type[Running]] = {}


class Asked(NamedTuple):
    """What a part says to many rows."""

    answers: Ints
    """What `propose` says to each row."""
    scores: Floats | None
    """Log-odds by row, as `propose` has them; zeros where there is no answer; None where it never has any."""
    rows: Sequence[Any]
    """The questions as tickets hold them, if they were asked for."""

    @classmethod
    def of(cls, answers: Ints, scores: Sequence[Floats | None], rows: Sequence[Any]) -> Asked:
        """With the scores of each row, None where it has none."""
        width = max((score.size for score in scores if score is not None), default=0)
        said = [np.zeros(width) if score is None else score for score in scores]
        return cls(answers, np.array(said).reshape(len(answers), width) if width else None, rows)


class PastCap(ValueError):
    """A label past its person's cap: nothing is drawn for it, and it teaches nothing."""


class Running:
    """One part in a run. What a subclass leaves out does nothing: it never proposes, learns or releases.

    `class Counting(Running, runs=Count)` makes every plan with the part `Count` run with it.

    What it raises at somebody's row or label is that row's or label's alone, and counted for the operator
    (`Failures`). A row is refused then, as one that cannot be read, and its asker is told no words of it but those of a
    ValueError out of `encode` or `check`; a label is taken, teaches this part nothing, and nobody is told, but for one
    that `receive` fails at, which teaches nobody. So count a row only once nothing can be wrong with it. What is done
    at public rounds, as `begin`, ends the call that it was in.

    Parameters
    ----------
    part
        Its numbers.
    features, label_weights
        What the POP was given.
    rng
        The generator of its noise: its own.
    account
        Where caps are kept, and what is released is written down.
    """

    source: ClassVar[str] = ""
    """What `Answer.source` says where it answers; empty where it never proposes."""
    notes: ClassVar[bool] = False
    """Whether it notes what it learns by itself, where no owner keeps a journal."""
    unfailing: ClassVar[bool] = False
    """Whether no row and no label makes it raise, but for what `encode` and `check` say of a row.

    Only such a part is led through many at once by its own `follow`, `teach_many`, `teach_rows` and `receive_rows`, and
    nothing that it raises is caught; any other is led row by row, by the methods for one.
    """

    def __init_subclass__(cls, runs: type[Part] | None = None, **more: Any) -> None:
        super().__init_subclass__(**more)
        if runs is not None:
            _runs[runs] = cls

    def __init__(self, part: Any, features: Any, label_weights: Any, rng: Random, account: Account) -> None:
        self.part: Any = part
        self.rng, self._account = rng, account
        self.number = source_number(self.source) if self.source else -1
        self.note = f"part/{part.kind}"
        """The kind of its notes in a journal."""
        self._offered: dict[str, tuple[int, bytes]] = {}  # by kind, the last release that was given to a ledger

    def given(self, learner: Any, labels: Sequence[Hashable], records: bool = False) -> None:
        """What else the POP was given: for a part that teaches a learner itself; and whether labels come as records."""

    def journaled(self) -> None:
        """From now on an owner's journal has every question and every label."""

    # ------------------------------------------------------------------ one round

    def go_to(self, rounds: int) -> None:
        """So many rounds and rows of history are over, also those that it was not led through."""

    def begin(self) -> None:
        """A public round begins: what is due is released first."""

    def encode(self, x: Any, who: Who) -> Any:
        """x as a question; ValueError for one that it cannot read."""
        return None

    def check(self, x: Any) -> None:
        """ValueError for an x that it cannot read, in a question or a record; nothing is counted."""

    def unreadable(self, xs: Any) -> dict[int, str]:
        """What is wrong with rows that it cannot read, now or later: where it knows more than `check`."""
        return {}

    def propose(self, question: Any) -> tuple[int, Floats | None]:
        """Its own label and its scores, one a vector of log-odds; −1 and None where it has none.

        −2 − label is no answer of its own: the label is public, and answers for it as the fallback does. Scores are
        those of the labels, of two labels the second one's alone.
        """
        return -1, None

    def lesson(self, question: Any) -> Any:
        """What a label that comes later needs of a question."""
        return question

    def receive(self, label: int, who: Who) -> int:
        """A label comes in; what this gives is all that anything sees of it, and −1 means that it is not taken.

        `PastCap`, for its bringer, says why. One that it fails at is not taken either.
        """
        return label

    def receive_rows(self, labels: Ints, whos: Sequence[Who]) -> tuple[Ints, dict[int, ValueError]]:
        """`receive` of each, −1 where there is none, or where it is not taken; and why it is not."""
        refused: dict[int, ValueError] = {}
        if type(self).receive is Running.receive:
            return labels, refused
        came = np.full(len(labels), -1)
        for i, (label, who) in enumerate(zip(labels.tolist(), whos, strict=True)):
            try:
                came[i] = self.receive(label, who) if label >= 0 else -1
            except PastCap as error:
                refused[i] = error.with_traceback(None)  # whose calls hold the label
        return came, refused

    def forget(self, who: bytes) -> None:
        """Drop what waits of a person."""

    def teach(self, question: Any, label: int, who: Who) -> int:
        """A label came. The number of its open release, which has it now; −1 for none: nobody is told."""
        return -1

    def teach_many(self, questions: Sequence[Any], labels: Sequence[int], whos: Sequence[Who]) -> list[int]:
        """`teach` of each, in order."""
        return [self.teach(*one) for one in zip(questions, labels, whos, strict=True)]

    def missed(self, number: int) -> bool:
        """Whether a label of this round comes too late to teach it (public)."""
        return True

    def missed_many(self, numbers: Sequence[int]) -> list[bool]:
        """`missed` of each."""
        return [self.missed(number) for number in numbers]

    # ------------------------------------------------------------------ many rounds

    def follow(self, xs: Any, labels: Ints, whos: Sequence[Who], bad: Flags, keep: bool = False) -> Asked:
        """Rounds, each asked and then taught its label (−1: none), as the methods above do.

        Rows that are `bad` take their round and are neither asked nor taught; no other row may be unreadable.
        """
        answers, rows, scores = np.full(len(labels), -1), list[Any](), list[Floats | None]()
        for i in range(len(labels)):
            self.begin()
            question = None if bad[i] else self.encode(xs[i], whos[i])
            answers[i], score = (-1, None) if bad[i] else self.propose(question)
            scores.append(score)
            if labels[i] >= 0 and not bad[i]:
                self.teach(self.lesson(question), int(labels[i]), whos[i])
            if keep:
                rows.append(None if bad[i] else self.lesson(question))
        return Asked.of(answers, scores, rows)

    # ------------------------------------------------------------------ history

    def teaching(self) -> None:
        """A call that teaches records begins: nothing of them was looked at."""

    def teach_one(self, x: Any, label: int, who: Who) -> int:
        """One labelled record that was never asked; the open release that has it, −1 for none."""
        return -1

    def teach_rows(self, xs: Any, labels: Ints, whos: Sequence[Who]) -> Ints:
        """Labelled records (−1: refused); the open release that has each, −1 for none."""
        return np.array([self.teach_one(xs[i], int(labels[i]), whos[i]) for i in range(len(labels))], dtype=np.int64)

    def taught(self) -> None:
        """A call that taught records has come to its end."""

    @property
    def together(self) -> int:
        """How many records may be taught at once: none of them is in a release before the entry that notes it."""
        return sys.maxsize

    @property
    def knows(self) -> bool:
        """Whether it is known which records taught it; if not, those of rounds teach nothing (public)."""
        return True

    def noted(self) -> None:
        """A journal says which records taught it, and has given those of the open release again."""

    # ------------------------------------------------------------------ what everyone may see

    @property
    def closed(self) -> int:
        """How many of its releases lessons can be in no more (public)."""
        return 0

    @property
    def leaf(self) -> int:
        """The number of the release that is open; −1 where lessons are in none any more (public)."""
        return self.closed

    @property
    def most(self) -> int:
        """How many of them there are, at most; or, without an end, are told apart where there are other parts."""
        return 0

    @property
    def counting(self) -> bool:
        """Whether questions themselves still add to something that will be released (public)."""
        return False

    def fingerprint(self) -> str:
        """A digest of what it answers by: `confide verify` computes it again from the ledger."""
        return digest_of(self.releases())

    @property
    def failures(self) -> Failures:
        """How often what it is made of failed, since it was made or loaded."""
        return Failures()

    def rehearse(self) -> None:
        """Compile what rounds need; nothing changes."""

    # ------------------------------------------------------------------ state

    def keep(
        self,
        kind: str,
        number: int,
        noisy: Ints,
        exact: Ints,
        *,
        also: Sequence[tuple[str, int, Ints, Ints]] = (),
        drops: Sequence[tuple[str, int]] = (),
    ) -> None:
        """Durable when it returns, with the rounds taken and the mark or cap of every lesson in it.

        It must happen at public rounds. Who is cut off in it gives the same row again, or is refused: one with other
        noise would be a second release of the same sums. What is written with it (`also`) follows from releases, and
        what then is needless, all of a kind before a number, is dropped in the same transaction.
        """
        book = self._account.book
        if book is None:
            return
        row, *others = (
            (f"{self.part.kind}/{name}", at, said.astype("<i8").tobytes(), hidden.astype("<i8").tobytes())
            for name, at, said, hidden in ((kind, number, noisy, exact), *also)
        )
        sequence, offered = book.released(*row[:2]), (number, blake2b(row[2]).digest())
        if sequence is None:
            self._offered[kind] = offered
            dropped = tuple((f"{self.part.kind}/{name}", before) for name, before in drops)
            sequence = self._account.enter(released=(row, *others), dropped=dropped).sequence
        elif self._offered.get(kind) != offered:  # an interrupt came before the wait
            raise StateError("a release is on its way to the disk with other noise: load the state again")
        book.wait(sequence)

    def releases(self) -> tuple[Released, ...]:
        """Everything that it released, for a ledger that begins now."""
        return ()

    def resume(self, rounds: int, released: Sequence[Released]) -> int:
        """Go on after so many rounds and rows of history from what was released; where it then stands."""
        return rounds

    def read_as_of(self, x: Any, number: int) -> Any:
        """x as it read it in this round, for a label that comes later; None where it cannot."""
        return None

    def again(self, x: Any, label: int, number: int) -> None:
        """A lesson of the open release that was lost with the process that had it: its unit's cap has it already."""

    def recount(self, records: Sequence[Counted], asked: Sequence[Counted]) -> None:
        """Rows of history, and questions, that were counted, and are in no release."""

    def noted_since(self, body: bytes) -> None:
        """One of its own notes that is later than the snapshot."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a snapshot keeps of it beside its releases."""
        return {}

    def restore(self, arrays: Mapping[str, NDArray[Any]], trusted: bool) -> None:
        """Go on from what `arrays` gave; a pickle only where that is `trusted`."""

    def pack(self, question: Any) -> tuple[Any, dict[str, NDArray[Any]]] | None:
        """A question in an open ticket as JSON and arrays; None where there is nothing to keep."""
        return None

    def unpack(self, about: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
        """The question that `pack` wrote."""
        return None

    @classmethod
    def again_from(
        cls, part: Any, features: Any, released: Sequence[Released], closed: int | None
    ) -> tuple[int, str | None]:
        """From what a ledger has: how often it was released (`closed`, else all), and the fingerprint then.

        None for a fingerprint of long ago: what it is made of was dropped since.
        """
        return len(released), digest_of(released)


def digest_of(released: Iterable[Released]) -> str:
    """A digest of releases; empty where there are none."""
    made, some = blake2b(digest_size=16), False
    for kind, number, noisy, _ in released:
        made.update(f"{kind.rpartition('/')[2]}:{number}:".encode() + noisy)
        some = True
    return made.hexdigest() if some else ""


def run_of(part: Part) -> type[Running]:
    """What runs a part; ValueError where nothing does."""
    found = next((_runs[kind] for kind in type(part).__mro__ if kind in _runs), None)
    if found is None:
        raise ValueError(f"nothing runs the part {part.kind!r}: import what defines it")
    return found
