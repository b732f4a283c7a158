"""Advice before a deployment: several plans rehearsed on a public sample, and the one that did best.

Never for protected data: the proposal depends on every row of the sample, and a plan is public.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.frames import rows_of, values_of
from confide.planning.plan import Plan
from confide.planning.promise import DELTA
from confide.pop.base import Unit, Xs
from confide.pop.evaluate import label_numbers
from confide.runs.advice import LABELS_A_COPY
from confide.runs.names import learner_named
from confide.runs.rehearsal import Guided, Rehearsed, Sample, TooShort, constant, guided, paired, play, twin, votes
from confide.runs.settings import EPSILON
from confide.runs.tally import LATE, percent

WARNING = (
    "Only a sample that is nobody's secret may be measured like this, never protected data: the proposal depends on "
    "every row of it, and a plan is public."
)

LEARNERS = ("trees", "logistic", "gaussian-nb")
"""What copies are tried of, unless the user says otherwise."""

FEWEST_ROWS, MOST_ROWS = 500, 50_000
"""Rows of a sample: with fewer little can be said, and more are not read."""

SHARES = (0.1, 0.3)
"""Parts of the live rounds that are tried as unsure answers."""

SURE = 2.0
"""Standard errors by which a plan with copies must do better than the guide alone to be proposed."""

_LIVE = 0.6  # of the rounds, where copies learn in silence for as long as they do by default

Progress = Callable[[int, int, str], object]


@dataclass(frozen=True)
class Tried:
    """One thing that was rehearsed on the sample, and how it did there.

    Parameters
    ----------
    name
        What it is, in words.
    run
        Its rehearsal.
    plan
        The plan for the stream; None for what is not private.
    learner
        What the copies were, or the twin; None where there were none.
    given
        What `Plan.tight` was given beside the promise.
    """

    name: str
    run: Rehearsed
    plan: Plan | None = None
    learner: str | None = None
    given: tuple[tuple[str, Any], ...] = ()

    @property
    def spread(self) -> float:
        """Two standard errors of its error, for the rows that the sample happens to have."""
        return float(2 * self.run.wrong.std() / np.sqrt(self.run.wrong.size))


@dataclass(frozen=True)
class Deployment:
    """The promise, and what the real stream will be; as for `advise`."""

    epsilon: float
    delta: float
    rounds: int
    history: int = 0
    unit_unsure: int | None = None
    unit_labels: int | None = None
    people: bool = False

    def plan(self, labels: int, **given: Any) -> Plan:
        """`Plan.tight` for this promise."""
        return Plan.tight(**self.arguments(labels, alone=given.get("guide") == 1), **given)

    def arguments(self, labels: int, alone: bool) -> dict[str, Any]:
        """What `Plan.tight` is given, defaults left out, and what is the copies' where a guide is alone."""
        caps = {"unit_unsure": self.unit_unsure, "unit_labels": self.unit_labels} if self.people else {}
        caps |= {"unit_unsure": None} if alone else {}
        more = {"labels": None if labels == 2 else labels, "history": self.history or None, **caps}
        promise = {"epsilon": self.epsilon, "delta": self.delta, "rounds": self.rounds}
        units = "people" if self.people else "rounds"
        return {**promise, "units": units, **{name: value for name, value in more.items() if value is not None}}


@dataclass(frozen=True)
class Advice:
    """A plan that was proposed for a stream, and what it was chosen from."""

    asked: Deployment
    rows: int
    """Rows of the sample that were used."""
    labels: tuple[Hashable, ...]
    table: tuple[Tried, ...]
    """Everything that was tried, the private first, then what is not private."""
    changes: tuple[Tried, ...]
    """The guide alone with twice the rounds, and with twice ε."""
    chosen: Tried
    notes: tuple[str, ...] = ()

    @property
    def plan(self) -> Plan:
        """The proposed plan."""
        assert self.chosen.plan is not None
        return self.chosen.plan

    @property
    def learner(self) -> str | None:
        """What its copies should be; None where it has none."""
        return self.chosen.learner

    @property
    def call(self) -> str:
        """The call that makes the plan."""
        more = dict(self.chosen.given)
        given = {**self.asked.arguments(len(self.labels), alone=more.get("guide") == 1), **more}
        return f"confide.Plan.tight({', '.join(f'{name}={_literal(value)}' for name, value in given.items())})"

    def explain(self) -> str:
        """What is proposed, what to expect of it and what would change it, in plain words: one sentence a line."""
        chosen, run, free = self.chosen, self.chosen.run, self.free
        halted = f"The copies would be out of budget after {run.halted or 0:.0%} of the rounds; then the guide answers."
        lines = [
            WARNING,
            f"{self.rows:,} rows of the sample stood for the {self.asked.rounds + self.asked.history:,} of the stream, "
            "with noise and lessons brought to their number.",
            f"Proposed: {chosen.name}" + (f", copies of {chosen.learner}." if chosen.learner else "."),
            f"    {self.call}",
            f"Expect about {percent(run.error)} wrong of all answers (± {percent(chosen.spread)} by the rows at hand) "
            f"and {percent(run.late_error)} after the first {LATE:.0%} of the rounds; without privacy "
            f"{free.name} has {percent(free.run.late_error)} there.",
            f"Answers come from {_sources(run.coverage)}.",
            *([] if run.halted is None else [halted]),
            self._changes(),
            "A stream that is not like the sample will do otherwise; and the best of several looks a little better "
            "than it is.",
        ]
        return "\n".join([*lines, *(note if note.startswith("!") else f"· {note}" for note in self.notes)])

    @property
    def free(self) -> Tried:
        """The best of what is not private."""
        return min((one for one in self.table if one.plan is None), key=lambda one: one.run.late_error)

    def _changes(self) -> str:
        now, rounds, epsilon = (percent(one.run.error) for one in (self.table[0], *self.changes))
        return f"The guide alone has {now}; with twice the rounds it would have {rounds}, with twice ε {epsilon}."

    def __str__(self) -> str:
        return self.explain()


def advise(
    rows: Xs,
    labels: Sequence[Hashable] | NDArray[Any],
    *,
    epsilon: float = EPSILON,
    delta: float = DELTA,
    rounds: int,
    features: Any = None,
    units: Sequence[Unit] | None = None,
    unit_unsure: int | None = None,
    unit_labels: int | None = None,
    history: int = 0,
    learners: Sequence[Any] = LEARNERS,
    progress: Progress | None = None,
) -> Advice:
    """A plan for a stream like this public sample, rehearsed on it. Never for protected data.

    The proposal depends on every row that is given here, and nothing protects them: a plan is public. How a sample that
    is shorter than the stream stands for it: see `confide.runs.rehearsal`.

    Parameters
    ----------
    rows, labels
        Public rows, in the order of their time, with their labels; as `confide.evaluate` takes them.
    epsilon, delta, rounds, history
        The promise, and how long the real stream and the history before it will be.
    features
        As for `POP`; for arrays it may be left out.
    units
        One id a row, to protect people; give whole people, with all their rows.
    unit_unsure, unit_labels
        As for `Plan.tight`.
    learners
        What copies are tried of: names as `confide run --learner` takes them, or learners.
    progress
        Called with the number of steps done, their total, and what comes next.

    Examples
    --------
    >>> import confide, numpy
    >>> xs = numpy.arange(1500).reshape(500, 3) % [7, 11, 13]
    >>> advice = confide.advise(xs, xs[:, 0] > xs[:, 1] - 3, epsilon=8.0, delta=1e-4, rounds=1000, learners=[])
    >>> advice.plan.rounds, advice.plan.guarantee.epsilon <= 8, advice.chosen.name
    (1000, True, 'the guide alone')
    """
    xs = rows_of(rows, features is not None and not isinstance(features, int))
    if features is None:
        features = xs.shape[1] if isinstance(xs, np.ndarray) and xs.ndim == 2 else None
        if features is None:
            raise ValueError("say what the rows hold with features=: their number for arrays, Features(...) for dicts")
    plain, units = list(values_of(labels)), values_of(units)
    known = tuple(sorted(set(plain), key=lambda label: (type(label).__name__, label)))
    numbers = label_numbers(known, plain)
    if len(xs) != numbers.size or (units is not None and len(units) != numbers.size):
        raise ValueError("give one label, and where people are protected one unit, for each row")
    if units is None and {unit_unsure, unit_labels} - {None, 1}:
        raise ValueError("unit_unsure and unit_labels are for people: give units=, one id for each row")
    asked = Deployment(epsilon, delta, rounds, history, unit_unsure, unit_labels, units is not None)
    sample = Sample(xs, numbers, known, features, None if units is None else tuple(units))
    return advise_sample(sample, asked, learners, progress)


def advise_sample(
    sample: Sample, asked: Deployment, learners: Sequence[Any] = LEARNERS, progress: Progress | None = None
) -> Advice:
    """`advise` for a sample that was read already."""
    if sample.rows < FEWEST_ROWS or len(sample.labels) < 2:
        raise ValueError(f"a sample of at least {FEWEST_ROWS} rows, with two labels or more, is needed to advise")
    sample = sample.first(min(MOST_ROWS, asked.rounds + asked.history))
    named = {one if isinstance(one, str) else type(one).__name__: one for one in learners}
    named = {name: learner_named(one) if isinstance(one, str) else one for name, one in named.items()}
    return _Advising(sample, asked, named, progress).go()


class _Advising:
    """One piece of advice in the making."""

    def __init__(self, sample: Sample, asked: Deployment, learners: dict[str, Any], progress: Progress | None) -> None:
        self.sample, self.asked, self.learners, self.progress = sample, asked, learners, progress
        self.labels, self.notes, self.done = len(sample.labels), list[str](), 0
        self.guides: dict[str, Guided] = {}
        self.tried: list[Tried] = []
        lean = "fill" if self.labels == 2 else "additive"
        unsure = [round(share * _LIVE * asked.rounds) for share in SHARES]
        self.wishes: list[tuple[str, dict[str, Any]]] = [
            ("copies and lean", {"unsure": unsure[0], "lean": lean}),
            ("copies", {"unsure": unsure[0], "lean": None}),
            ("copies and lean, often unsure", {"unsure": unsure[1], "lean": lean}),
            ("what Plan.tight chooses", {}),
        ]
        self.total = 4 + 2 * len(learners) + len(self.wishes) - 1

    def go(self) -> Advice:
        alone = self._alone("the guide alone", self.asked)
        self.tried.append(alone)
        twice = replace(self.asked, rounds=2 * self.asked.rounds), replace(self.asked, epsilon=2 * self.asked.epsilon)
        words = "twice the rounds", "twice ε"
        changes = tuple(self._alone(f"the guide alone, {name}", one) for name, one in zip(words, twice, strict=True))
        self._with_copies()
        private = tuple(self.tried)
        better = [one for one in private[1:] if _clearly(one, alone)]
        chosen = min(better, key=lambda one: one.run.error, default=alone)
        twins = [self._twin("the regression", None), *(self._twin(name, one) for name, one in self.learners.items())]
        twins.append(Tried("always the most frequent label", constant(self.sample)))
        if not _clearly(chosen, replace(twins[-1], run=twins[-1].run.last(chosen.run.wrong.size))):
            self.notes.append("! what is proposed is not clearly better than always saying the most frequent label")
        self._step("done")
        notes = tuple(dict.fromkeys(self.notes))
        return Advice(self.asked, self.sample.rows, self.sample.labels, (*private, *twins), changes, chosen, notes)

    def _step(self, what: str) -> None:
        if self.progress is not None:
            self.progress(min(self.done, self.total), self.total, what)
        self.done += 1

    def _alone(self, name: str, asked: Deployment) -> Tried:
        self._step(name)
        plan = asked.plan(self.labels, guide=1.0)
        return Tried(name, play(plan, self.sample, self._guided(plan), None), plan, None, (("guide", 1.0),))

    def _guided(self, plan: Plan) -> Guided | None:
        """A rehearsal of the plan's guide; that of another with the same ratio of labels to noise does."""
        if plan.guide is None:
            return None
        key = f"{plan.guide.strength:.2g} of {plan.rounds}"
        if key not in self.guides:
            self.guides[key] = guided(plan.guide, self.sample)
        return self.guides[key]

    def _with_copies(self) -> None:
        """All learners with the first plan that has copies, then the best of them with the others."""
        learners = self.learners
        for name, given in self.wishes:
            found = []
            for learner in learners:
                self._step(f"{name} of {learner}")
                if (one := self._copies(name, given, learner)) is not None:
                    found.append(one)
            if found:
                best = min(found, key=lambda one: one.run.error).learner
                assert best is not None
                learners = {best: self.learners[best]}
            self.tried += found

    def _copies(self, name: str, given: dict[str, Any], learner: str) -> Tried | None:
        try:
            plan = self.asked.plan(self.labels, **given)
        except ValueError as error:
            self.notes.append(f"{name}: {error}")
            return None
        if not plan.copies:
            return None
        each = (self.asked.rounds + self.asked.history) / plan.copies
        if each < LABELS_A_COPY:
            self.notes.append(f"{name}: each copy would be taught {each:,.0f} labels, too few to vote by")
            return None
        try:
            counts = votes(self.learners[learner], plan, self.sample)
        except TooShort as error:
            self.notes.append(f"{name}: {error}")
            return None
        run = play(plan, self.sample, self._guided(plan), counts)
        return Tried(name, run, plan, learner, tuple(given.items()))

    def _twin(self, name: str, learner: Any) -> Tried:
        self._step(f"{name}, without privacy")
        return Tried(name, twin(learner, self.sample), None, name)


def _clearly(one: Tried, other: Tried) -> bool:
    """Whether the first does better by more than the rows at hand make likely by chance."""
    gain, error = paired(one.run, other.run)
    return gain > SURE * error


def _literal(value: Any) -> str:
    return f"{value:_}" if isinstance(value, int) and not isinstance(value, bool) else repr(value)


def _sources(coverage: dict[str, float]) -> str:
    parts = [f"the {name} in {percent(share)}" for name, share in reversed(coverage.items()) if share]
    return f"{', '.join(parts)} of the rounds"
