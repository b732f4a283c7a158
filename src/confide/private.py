"""Private: a classifier that learns from confidential feedback while it answers. The front that most people need.

It makes a promise, finds the plan that keeps it, and runs it. Without a learner of your own a private model of ours
answers (docs/proofs/guide.md). With one it is either copied, which needs very long streams (docs/proofs/halting.md), or
taught randomized labels, which protects labels and not rows (docs/proofs/labels.md); whatever would not answer is
refused with the ways on, and nothing is chosen for you that protects less than you said.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack

from confide._checks import all_labels, integer
from confide.errors import ConfideWarning, StateError
from confide.guide.importance import told
from confide.notebook import card
from confide.planning.chosen import planned
from confide.planning.labels import ONE_SIDED
from confide.planning.plan import Guarantee, Plan
from confide.planning.promise import DELTA, Promise, Protect
from confide.pop.base import TICKET_LIFE, Answer, Unit, Xs
from confide.pop.monitor import Monitor
from confide.pop.operator import Operator
from confide.pop.pop import POP
from confide.privacy.random import Random

__all__ = ["Options", "Private"]


class Options(TypedDict, total=False):
    """What `Private` takes by name beside its promise; each has a good default."""

    rounds: int | None
    """Questions that it is planned for, where that is known; without it there is no last one. Copies need it."""
    labels_per_person: int
    """Labels of one person that teach it, in all their life; more of them cost more noise for all."""
    per: int
    """Another promise to people: ε for what one person told within one period of so many rounds."""
    periods: int
    """In how many such periods one person teaches; `guarantee.life` is the ε for all of them together."""
    history: int
    """Labelled rows that are taught before the first question, by `teach_many`."""
    label_weights: Mapping[Any, float] | Sequence[float] | None
    """How much it makes of each label: for rare ones."""
    fallback: Any
    """What answers before anything was learned: "coin", a label, a callable of x, or a model of public data."""
    ticket_life: int
    """Public rounds after which a ticket expires."""
    monitor: Monitor | None
    """A private count of mistakes that may be shown to anybody."""
    deadline: tuple[int, Hashable]
    """Where labels alone are protected: rounds after which a label that has not come is taken to be this one."""
    seed: int | Random | None
    """For tests and benchmarks only: whatever is made with one promises nothing."""


_PEOPLE = ("labels_per_person", "per", "periods")  # what is for people
_ROWS = ("rounds", "history", "per", "periods", "label_weights", "fallback", "monitor")  # … for the promise to rows
_LABELS = ("deadline",)  # … and to labels alone


class Private:
    """A classifier that learns from confidential feedback while it answers, private between its users.

    Whatever one person tells it, nobody else finds out from their own answers, not even all others together: that is
    (ε, δ)-challenge-DP, with the numbers of `guarantee`. `explain()` says in plain words who answers and how well.

    Parameters
    ----------
    learner
        None: a private model of ours, which learns from noisy sums and needs no tuning. Or a model of your own, River's
        or scikit-learn's: then many copies of it vote, and it is refused where they would not answer; or, where labels
        alone are protected, it is taught randomized labels.
    labels
        All labels, public.
    epsilon, delta
        The promise to each round, or to each person; δ is 10⁻⁶ by default, and 0 where labels alone are protected.
    features
        What x holds: for arrays the number of columns; for dicts `confide.learners.Features(...)`, or nothing, and
        names and values are hashed.
    people
        Whether people are protected, each over any number of rounds, rather than rounds: then every question comes
        with `person=`, an authenticated id.
    protect
        "rows": what was asked and what was right. `"labels"` is another promise: only what was right is protected;
        rows, and whether and when a label came, are not. docs/labels.md says when that is enough.
    options
        See `Options`.

    Examples
    --------
    >>> import confide
    >>> model = confide.Private(labels=["no", "yes"], epsilon=4.0, features=1)
    >>> for i in range(2000):
    ...     answer = model.predict([i % 7 - 3.0])
    ...     model.learn(answer.ticket, "yes" if i % 7 > 3 else "no")
    >>> answer.source, model.predict([3.0]).label, model.guarantee.epsilon <= 4
    ('guide', 'yes', True)
    >>> print(confide.Private(labels=["no", "yes"], epsilon=1.0, protect="labels").guarantee)
    1-DP for labels alone: labels are protected; rows, and whether and when a label came, are not
    """

    __slots__ = ("__weakref__", "mechanism")  # a promise cannot be changed: `model.epsilon = 5` is refused

    def __init__(
        self,
        learner: Any = None,
        *,
        labels: Sequence[Hashable],
        epsilon: float,
        delta: float | None = None,
        features: Any = None,
        people: bool = False,
        protect: Protect = "rows",
        **options: Unpack[Options],
    ) -> None:
        _check(protect, people, options)
        if protect == "labels" and delta:
            raise ValueError("labels alone are protected with δ = 0: leave delta out")
        labels, due = all_labels(labels), options.get("deadline")
        promise = Promise(
            epsilon,
            DELTA if delta is None else delta,
            options.get("rounds"),
            len(labels),
            "people" if people else "rounds",
            protect,
            options.get("labels_per_person", 1),
            options.get("per"),
            options.get("periods"),
        )
        if due is None:
            plan = planned(promise, learner, takes="confide.POP", history=options.get("history", 0))
        else:
            plan = _due(promise, labels, due)
        for line in plan.warnings:
            if line != ONE_SIDED:
                warnings.warn(line, ConfideWarning, stacklevel=2)
        self.mechanism = POP(
            learner,
            plan,
            labels=labels,
            features=features,
            fallback=options.get("fallback", "coin"),
            label_weights=options.get("label_weights"),
            seed=options.get("seed"),
            ticket_life=options.get("ticket_life", TICKET_LIFE) if due is None else due[0],
            monitor=options.get("monitor"),
        )
        """What runs underneath: for `confide.evaluate`, games and the auditor."""

    # ------------------------------------------------------------------ ask and teach

    def predict(self, x: Any, person: Unit | None = None) -> Answer:
        """Answer one question: the label, who answered, and a ticket to bring the right label back with."""
        return self.mechanism.predict(x, person)

    def learn(self, ticket: str, y: Hashable) -> None:
        """The right label of an answered question: at any time, or never. A ticket is good once."""
        self.mechanism.learn(ticket, y)

    def teach(self, x: Any, y: Hashable, person: Unit | None = None) -> None:
        """A labelled row that nobody asked about."""
        self.mechanism.teach(x, y, person)

    def predict_many(self, xs: Xs, people: Sequence[Unit] | None = None) -> list[Answer]:
        """Answer many questions in order, as `predict` does, much faster; what is wrong with a row is in its answer."""
        return self.mechanism.predict_many(xs, people)

    def learn_many(self, tickets: Sequence[str], ys: Sequence[Hashable]) -> None:
        """Many right labels. All good ones are taken; if some were bad, ValueError says so afterwards."""
        self.mechanism.learn_many(tickets, ys)

    def teach_many(self, xs: Xs, ys: Sequence[Hashable], people: Sequence[Unit] | None = None) -> None:
        """Many labelled rows: history, before the first question."""
        self.mechanism.teach_many(xs, ys, people)

    def probabilities(self, x: Any) -> dict[Hashable, float]:
        """How likely each label is, by the model that everyone may see. It is free, and takes no round."""
        return self.mechanism.probabilities(x)

    # ------------------------------------------------------------------ what may be seen

    @property
    def labels(self) -> tuple[Hashable, ...]:
        """All labels, public."""
        return self.mechanism.labels

    @property
    def guarantee(self) -> Guarantee:
        """What is promised; `guarantee.sentence` says it in words."""
        return self.mechanism.guarantee

    @property
    def protect(self) -> Protect:
        """What is protected: rows, or labels alone."""
        return self.plan.promise.protect

    @property
    def plan(self) -> Plan:
        """Every number of the run, public."""
        return self.mechanism.plan

    @property
    def rounds(self) -> int:
        """Questions answered so far (public)."""
        return self.mechanism.rounds

    @property
    def standing(self) -> str:
        """Where it stands, in words (public)."""
        return self.mechanism.standing

    @property
    def operator(self) -> Operator:
        """Exact numbers for the operator's eyes only: outside the guarantee."""
        return self.mechanism.operator

    def explain(self) -> str:
        """What is promised, who answers, what to expect and why, and which columns it learned from, in plain words."""
        alone, guide = self.operator.randomizing, self.mechanism.guide
        who = "" if alone is None else f"\n{alone.model!r} answers, taught labels that were randomized as they came."
        learned = "" if guide is None or not guide.released else f"\n{told(guide.importance())}"
        return f"{self.guarantee.sentence}{who}\n{self.plan.explain()}{learned}"

    # ------------------------------------------------------------------ state on disk

    def save(self, folder: str | Path, **how: Any) -> None:
        """Write the state to this folder, and from now on keep a ledger there of everything that is spent."""
        self.mechanism.save(folder, **how)

    @classmethod
    def load(cls, folder: str | Path, **again: Any) -> Self:
        """Go on from a folder that `save` wrote; what cannot be stored is given again, as for `POP.load`.

        Who says `protect=` is refused where the folder has the other promise.
        """
        loaded, expected = cls.__new__(cls), again.pop("protect", None)
        loaded.mechanism = POP.load(folder, **again)
        if expected not in (None, loaded.protect):
            loaded.close()
            what = "labels alone" if loaded.protect == "labels" else "rows"
            raise StateError(f"{folder} protects {what}: say so with protect=")
        return loaded

    def close(self) -> None:
        """Give the folder back; another process may load it then."""
        self.mechanism.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Private({self.guarantee}, {self.standing})"

    def _repr_html_(self) -> str:
        rows = [("promise", str(self.guarantee)), ("rounds", f"{self.rounds:,}"), ("state", self.standing)]
        return card("Private", rows)


def _check(protect: str, people: bool, options: Mapping[str, Any]) -> None:
    """Refuse what nobody would heed."""
    for name in options:
        if name not in Options.__annotations__:
            raise TypeError(f"Private has no option {name!r}: it takes {', '.join(Options.__annotations__)}")
    if protect not in ("rows", "labels"):
        raise ValueError(f'protect={protect!r} must be "rows", what was asked and what was right, or "labels" alone')
    for name in _ROWS if protect == "labels" else _LABELS:
        if name in options:
            raise ValueError(f'{name} has no meaning with protect="{protect}": leave it out')
    for name in _PEOPLE:
        if not people and name in options:
            raise ValueError(f"{name} is for people, and rounds are protected: say people=True, or leave it out")
    integer(options.get("labels_per_person", 1), "labels_per_person", at_least=1)


def _due(promise: Promise, labels: Sequence[Hashable], due: tuple[int, Hashable]) -> Plan:
    """The plan for labels alone with a deadline, and the label that stands for one that has not come by then."""
    rounds, missing = due
    if missing not in labels:
        raise ValueError("declare a deadline together with the label that stands for a missing one: (rounds, label)")
    return Plan.labels_alone(
        promise.epsilon, len(labels), units=promise.units or "rounds", unit_labels=promise.unit_labels,
        due=(rounds, labels.index(missing)),
    )  # fmt: skip
