"""The guide in the loop: whose labels it may learn, and what must be durable before it learns from them.

The guide answers whenever the copies do not: in silent rounds, when they are unsure, for a unit past its cap, after a
halt. Claims and proofs: docs/proofs/guide.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.arrays import Flags, Floats, Ints
from confide.banks.base import FORM
from confide.contained import contained
from confide.guide.carried import Carried
from confide.guide.guide import Asked as Many
from confide.guide.guide import Guide, Release, alike
from confide.guide.inputs import columns_for
from confide.guide.maps import Encoded
from confide.guide.model import Map, Model, Question
from confide.planning.guided import GuidePlan
from confide.pop.account import Account
from confide.pop.running import Asked, Counted, Released, Running, Who
from confide.privacy.random import Random

__all__ = ["Guiding", "PublicGuide", "bytes_of", "guide_from", "release_of"]


_DROPPED = 4  # sums of an ended epoch that are dropped with each of the next
_MANY = 1 << 20  # leaves of a guide without an end that a journal tells apart where there are other parts


class Guiding(Running, runs=GuidePlan):
    """A guide, led through the rounds of a POP.

    Parameters
    ----------
    plan
        The guide's numbers.
    features
        What the POP was given as its features.
    label_weights
        As for `POP`.
    rng
        The generator of the noise: the guide's own.
    account
        Where caps are kept, and what is released is written down.
    """

    guide_type = Guide
    source = "guide"
    unfailing = True

    def __init__(
        self, plan: GuidePlan, features: Any, label_weights: Sequence[float] | None, rng: Random, account: Account
    ) -> None:
        super().__init__(plan, features, label_weights, rng, account)
        self.plan, self._inputs, self._weights = plan, columns_for(features), label_weights
        self._last = sys.maxsize if plan.endless else plan.length
        self.guide = self.fresh(rng, self.store, self.guide_type)
        self._counted: set[bytes] = set()  # people whose row is in the counts of the ranges
        self._records = False  # whether labels come as records, and not with tickets
        self._past = False  # whether rows of history are in the counts
        self._loaded = False  # whether it goes on from what was released: then what was counted before is lost
        self._begun = 0  # the epoch whose beginning the ledger has, or will begin with
        self._again = self._under_way = False
        self._model: tuple[int, Model] | None = None
        self._importance: tuple[int, dict[str, float]] | None = None

    def fresh(self, rng: Random, store: Callable[[Release], None], kind: type[Guide] = Guide) -> Guide:
        """A guide like this one at its beginning."""
        columns, ranges = self._inputs
        return kind(self.plan, columns, self._weights, rng, store, ranges=ranges)

    def given(self, learner: Any, labels: Sequence[Hashable], records: bool = False) -> None:
        """Where labels come as records, it is counted what they teach: a row that is asked may be taught later."""
        self._records = records

    def journaled(self) -> None:
        """A journal has what is asked: it is counted, if nothing that was taught is."""
        self._records = self._records and not self._loaded and self.guide.rounds > 0

    @property
    def _asks(self) -> bool:
        """Whether questions of rounds are counted, and not what records teach (public: it follows from calls)."""
        return not self._past and (self._loaded or not self._records)

    def rehearse(self) -> None:
        """Compile what rounds need, with a guide that is thrown away and rows that say nothing: nobody waits for it."""
        guide = self.fresh(Random(), lambda release: None)
        for _ in range(guide.ready + 1):  # the first leaf ends
            guide.begin_round()
            question = guide.encode({})
            guide.score(question)
            guide.gradient(question, 0)
        guide.follow([{}, {}], np.array([0, 1]))

    def store(self, release: Release) -> None:
        """Durable before it is used; with the last sum of an epoch what the next one begins with.

        Sums from before that are needed no more: a few are dropped with each that comes, so that no write is long.
        """
        begins, leaves, first = self.guide.begins(release), self.plan.leaves, self._begun * self.plan.leaves
        drops = []
        if release.kind == "node" and first:
            drops.append(("node", min(first, first - leaves + _DROPPED * (release.number - first + 1))))
        if begins is None:
            self.keep(*release, drops=drops)
        else:
            self.keep(*release, also=[begins], drops=[*drops, ("epoch", begins.number)])
            self._begun = begins.number

    # ------------------------------------------------------------------ one round

    def go_to(self, rounds: int) -> None:
        """So many rounds and rows of history are over, also those that the guide was not led through."""
        self._again |= self._under_way  # records that a call taught and did not come to the end of
        self._under_way = False
        self.guide.go_to(rounds)

    def begin(self) -> None:
        """A public round begins: what is due is released first."""
        self.guide.begin_round()

    def encode(self, x: Any, who: Who) -> Question:
        """x for the guide; while ranges are to be found a unit's first row is counted."""
        question = self.guide.encode(x)
        if self.guide.finding and self._counts(who):
            self.guide.count(x)
        return question

    def check(self, x: Any) -> None:
        """ValueError for an x that the guide cannot read."""
        self.guide.encode(x)

    def _counts(self, who: Who) -> bool:
        """Whether a question is counted: a person's first; of rounds all, unless records are in the counts.

        A row that is asked may be one that is taught, and both one unit, as in scikit-learn's fit and predict. After a
        load what is asked is counted: what was counted before is lost, and a record may be a part of it.
        """
        if who is None:
            return self._asks
        first = who not in self._counted and not self._account.barred(who)
        self._account.name((who,))  # no count leaves before the ledger has everybody who is in it
        self._counted.add(who)
        return first

    def propose(self, question: Question | None) -> tuple[int, Floats | None]:
        """The guide's own label and its scores, one a vector of θ; −1 and None where it has none yet."""
        score = None if question is None else self.guide.score(question)
        if score is None:
            return -1, None
        return int(score.argmax()), score[1:] if score.size == 2 else score

    def lesson(self, question: Question) -> Question:
        """What a label that comes later needs of it."""
        stage, encoded, asked, read = question
        return question if asked is None else Question(stage, encoded, None, read)

    def teach(self, question: Question | None, label: int, who: Who, counted: bool = False) -> int:
        """A label came: one gradient, if the unit's cap allows. The leaf that has it, −1 for none: nobody is told.

        That of a question of the warm-up comes too late once the warm-up is over, and spends nothing. Where labels are
        counted by periods, so does one that would be taught to a leaf that ended before this round.
        """
        if question is None or question.stage != self.guide.stage:
            return -1
        if (self._account.periods is not None and self.guide.behind) or not self._account.learns(who):
            return -1
        self.guide.gradient(question, label, counted=counted)
        return self.leaf

    def teach_many(self, questions: Sequence[Question | None], labels: Sequence[int], whos: Sequence[Who]) -> list[int]:
        """`teach` of each: their gradients are added in one call."""
        if type(self).teach is not Guiding.teach:
            return super().teach_many(questions, labels, whos)
        account, stage, leaves = self._account, self.guide.stage, [-1] * len(labels)
        given, late, leaf = list[tuple[Question, int]](), account.periods is not None and self.guide.behind, self.leaf
        for i, question in enumerate(questions):
            if question is not None and question.stage == stage and not late and account.learns(whos[i]):
                given.append((question, labels[i]))
                leaves[i] = leaf
        self.guide.gradients([one for one, _ in given], [label for _, label in given])
        return leaves

    def _record(self, x: Any, label: int, who: Who) -> int:
        """A record without a row's number: of a round it may have been asked, and counted, before.

        Where labels come as records, it is counted now, and what was asked was not.
        """
        question, asks = self.read(x), self._asks
        if who is None and not (asks or self._past) and question is not None:
            self.guide.count(x)
        return self.teach(question, label, who, counted=who is None and asks)

    def missed(self, number: int) -> bool:
        """Whether a label of this round comes too late to teach the guide (public)."""
        return self.guide.missed(self._account.history + number)

    def missed_many(self, numbers: Sequence[int]) -> list[bool]:
        """`missed` of each."""
        before = self._account.history
        return self.guide.missed_rows([before + number for number in numbers])

    @property
    def leaf(self) -> int:
        """The number of the open leaf; −1 where none takes gradients any more (public)."""
        return -1 if self.guide.rounds > self._last else self.guide.closed

    def again(self, x: Any, label: int, number: int) -> None:
        """A gradient of the open leaf that was lost with the process that had it: its unit's cap has it already."""
        question = self.read_as_of(x, number) if number else self.read(x)
        if question is not None and question.stage == self.guide.stage:
            self.guide.gradient(question, label, counted=number == 0 and self._account.rounds > 0 and self._asks)

    def read_as_of(self, x: Any, number: int) -> Question | None:
        """x for the guide as it read it in this round."""
        with contained:  # it was refused already
            return self.guide.encode_as_of(x, number + self._account.history)
        return None

    def recount(self, records: Sequence[Counted], asked: Sequence[Counted]) -> None:
        """Rows that were counted for ranges that were not released. What is left of them decides about no other."""
        self._past = self._account.history > 0
        for x, who in records:
            with contained:
                self.check(x)
                if who is None or self._counts(who):
                    self.guide.count(x)
        for x, who in asked:
            with contained:
                self.encode(x, who)

    def read(self, x: Any) -> Question | None:
        """x for the guide as it reads it now; it is not counted, whatever is."""
        with contained:  # it was refused already
            return self.guide.encode(x)
        return None

    # ------------------------------------------------------------------ many rounds

    def follow(self, xs: Any, labels: Ints, whos: Sequence[Who], bad: Flags, keep: bool = False) -> Asked:
        """Rounds, each asked and then taught its label (−1: none), as the methods above do."""
        asked = self.follow_rows(xs, labels, whos, bad, keep)[0]
        return Asked(asked.answers, asked.scores, asked.rows)

    def follow_rows(
        self, xs: Any, labels: Ints, whos: Sequence[Who], bad: Flags, keep: bool = False, history: bool = False
    ) -> tuple[Many, Ints]:
        """`follow`, or rows of history, and which labels were taught; −1 for the others."""
        guide, n = self.guide, len(labels)
        taught, counted = np.where(bad, -1, labels), ~bad
        self._account.name(whos)
        if n and whos[0] is None:
            self._past |= history
            counted &= history or self._counts(None)
        elif n:
            first = max(0, guide.counting)
            counted[:first] = [not wrong and self._counts(who) for who, wrong in zip(whos[:first], bad, strict=False)]
            before = self._account.rounds
            for i in np.flatnonzero(taught >= 0).tolist():
                if not self._account.learns(whos[i], before if history else before + i + 1):
                    taught[i] = -1
        return guide.follow(xs, taught, counted, bad, keep), taught

    def unreadable(self, xs: Any) -> dict[int, str]:
        """What is wrong with rows that the guide cannot read, now or later: that depends on its columns alone."""
        errors: dict[int, str] = {}
        for i in np.flatnonzero(self.guide.unreadable(xs)).tolist():
            errors[i] = FORM
            with contained:
                try:
                    self.guide.read(xs[i])
                except ValueError as error:
                    errors[i] = str(error)
        return errors

    # ------------------------------------------------------------------ history

    def teach_rows(self, xs: Any, labels: Ints, whos: Sequence[Who]) -> Ints:
        """Labelled records: as many as the plan has rows of history, before round 1, take a row's number each.

        Returns the leaf that has each row's gradient, −1 for none.

        All others only add to the open leaf. After a load, or a call that was cut off, records of rounds teach nothing,
        nor are they counted: what they taught may be in sums that were released, and there is no ticket to tell.
        """
        account, rows = self._account, min(len(labels), self.left)
        if rows:
            self.guide.settle()  # what is due is of earlier rows, and its entry says nothing yet of these
        account.history += rows
        may = np.where(self._again, -1, labels) if whos and whos[0] is None else labels
        leaves = self.guide.leaves_of(len(labels))
        _, taught = self.follow_rows(xs[:rows], may[:rows], whos[:rows], may[:rows] < 0, history=True)
        leaves[:rows][taught < 0] = -1
        for i in range(rows, len(labels)):
            leaves[i] = -1 if may[i] < 0 else self._record(xs[i], int(may[i]), whos[i])
        return leaves

    @property
    def left(self) -> int:
        """Records that still take a row's number each (public)."""
        return max(0, self.plan.history - self._account.history) if self._account.rounds == 0 else 0

    @property
    def together(self) -> int:
        """Up to the end of the open leaf, while records take rows' numbers."""
        return self.guide.room if self.left else sys.maxsize

    @property
    def knows(self) -> bool:
        """Whether it is known which records taught it; if not, those of rounds teach nothing (public)."""
        return not self._again

    def noted(self) -> None:
        """A journal says which records taught it, and has given those of the open leaf again."""
        self._again = False

    def teach_one(self, x: Any, label: int, who: Who) -> int:
        """One record into the open leaf, which it never closes; the leaf, −1 for none."""
        if label < 0 or (self._again and who is None):
            return -1
        return self._record(x, label, who)

    def teaching(self) -> None:
        """A call that teaches records begins: whatever cuts it off, what it taught is not known."""
        self._under_way = True

    def taught(self) -> None:
        """A call that taught records has come to its end: what one that is cut off taught, nobody knows."""
        self._under_way = False

    # ------------------------------------------------------------------ what everyone may see

    @property
    def closed(self) -> int:
        """Leaves that were released."""
        return self.guide.closed

    @property
    def most(self) -> int:
        """Leaves there are; without an end, those of two thousand million rounds."""
        return _MANY if self.plan.endless else self.plan.nodes

    @property
    def counting(self) -> bool:
        """Whether rows are still counted for ranges."""
        return self.guide.finding

    @property
    def model(self) -> Model | None:
        """The answering model as of the last release; None before the first."""
        guide = self.guide
        if guide.closed == 0:
            return None
        if self._model is None or self._model[0] != guide.closed:
            self._model = guide.closed, Model(guide.model.features, guide.model.theta.copy())
        return self._model[1]

    def importance(self) -> dict[str, float]:
        """What each column has of what was learned, as of the last release."""
        guide = self.guide
        if self._importance is None or self._importance[0] != guide.closed:
            self._importance = guide.closed, guide.importance()
        return dict(self._importance[1])

    def fingerprint(self) -> str:
        """A digest of θ, bit for bit: what `confide verify` computes again from the ledger."""
        return _digest(self.model)

    # ------------------------------------------------------------------ state

    def releases(self) -> tuple[Released, ...]:
        """All noisy sums, and the counts."""
        return tuple((f"{self.plan.kind}/{one[0]}", *one[1:]) for one in map(bytes_of, self.guide.releases()))

    def resume(self, rounds: int, released: Sequence[Released]) -> int:
        """θ as it was, the open leaf empty; the guide stands no earlier than what it released."""
        self._again = self._loaded = True
        self._begun = max((number for kind, number, *_ in released if kind == "epoch"), default=0)
        self.guide.resume(rounds, [release_of(one) for one in released])
        return self.guide.rounds

    def reads(self, features: Map) -> bool:
        """Whether a predecessor's map is of the columns that this guide reads."""
        return alike(features, self.guide.features)

    def inherit(self, features: Map, carried: Carried | None, epoch: int) -> None:
        """A fresh guide begins with a predecessor's map, and with what it had learned (`Guide.inherit`)."""
        self.guide.inherit(features, carried, epoch)
        self._begun = self.guide.epoch

    def pack(self, question: Question) -> tuple[int, dict[str, NDArray[Any]]]:
        """Its stage, and the row as that encoded it."""
        return question.stage, {"indices": question.encoded.indices, "values": question.encoded.values}

    def unpack(self, about: int, arrays: Mapping[str, NDArray[Any]]) -> Question:
        """The same row."""
        return Question(about, Encoded(arrays["indices"], arrays["values"]))

    @classmethod
    def again_from(
        cls, part: GuidePlan, features: Any, released: Sequence[Released], closed: int | None
    ) -> tuple[int, str | None]:
        """θ after so many noisy sums, computed from what a ledger says was released and nothing else."""
        releases = [release_of(one) for one in released]
        if closed is not None:
            left = {"warm": closed, "node": closed - sum(one.kind == "warm" for one in releases)}
            left |= {"ranges": left["node"] + 1}
            if any(one.kind == "epoch" and one.number * part.leaves > left["node"] for one in releases):
                return closed, None
            releases = [one for one in releases if one.kind in ("epoch", "map") or one.number < left[one.kind]]
        guide = guide_from(part, features, releases)
        return guide.closed, "" if guide.closed == 0 else _digest(guide.model)


def _digest(model: Model | None) -> str:
    return "" if model is None else blake2b(model.theta.tobytes(), digest_size=16).hexdigest()


def guide_from(part: GuidePlan, features: Any, releases: Sequence[Release]) -> Guide:
    """The guide that made these releases."""
    columns, ranges = columns_for(features)
    guide = Guide(part, columns, ranges=ranges)
    guide.resume(0, releases)
    return guide


def release_of(saved: Released) -> Release:
    """What a ledger says that was released."""
    kind, number, noisy, exact = saved
    return Release(kind, number, np.frombuffer(noisy, dtype="<i8").astype(np.int64), np.frombuffer(exact, dtype="<i8"))


def bytes_of(release: Release) -> Released:
    """What a ledger holds of a release."""
    kind, number, row, exact = release
    return kind, number, row.astype("<i8").tobytes(), exact.astype("<i8").tobytes()


class PublicGuide:
    """The guide as everyone may see it: it was released privately as a whole. Asking it is free and takes no round."""

    def __init__(self, guiding: Guiding, lock: Any) -> None:
        self._guiding, self._lock = guiding, lock

    @property
    def released(self) -> int:
        """Noisy sums released so far; where there is a last round, of `plan.guide.nodes` at most."""
        return self._guiding.guide.closed

    @property
    def sums(self) -> list[Ints]:
        """The noisy sums themselves, as they were released: θ is computed from them and from public constants.

        Without an end those of the warm-up and of the open epoch; what that one began with is in `POP.released`.
        """
        with self._lock:
            return [row for kind, _, row, _ in self._guiding.guide.releases() if kind in ("warm", "node")]

    def probabilities(self, x: Any) -> Floats:
        """One a label, all alike before the first release."""
        with self._lock:
            model, labels = self._guiding.model, self._guiding.plan.labels
        return np.full(labels, 1 / labels) if model is None else model.probabilities(x)

    def importance(self) -> dict[str, float]:
        """The share that each column has of what was learned, largest first; columns that the noise hides have none.

        Empty where none stands out, where names are hashed, and while the most frequent label is answered.
        """
        with self._lock:
            return self._guiding.importance()

    def epochs(self, rounds: int) -> list[int]:
        """After which of so many questions a new epoch began, where there is no last round."""
        with self._lock:
            guide = self._guiding.guide
            return [began for one in guide.epochs if (began := one - guide.rounds + rounds) > 0]

    def export(self) -> dict[str, Any]:
        """The model as JSON's kinds of values: it may be shipped. `confide.guide.model.Model.from_params` reads it."""
        with self._lock:
            model = self._guiding.model
        if model is None:
            raise ValueError("the guide has released nothing yet: ask again later")
        return model.params()

    def __repr__(self) -> str:
        plan = self._guiding.plan
        return f"PublicGuide({self.released:,}{'' if plan.endless else f' of {plan.nodes:,}'} sums released)"
