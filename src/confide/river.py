"""POP as a River classifier.

River says what was right by `learn_one(x, y)`, without a ticket. To look up which question this x answers would break
the promise: whether two people asked the same x would decide which copies other people's labels go to, and one changed
x could shift all of them. So `learn_one` never looks at what was asked. Each label teaches a copy drawn afresh (or the
person's own copy), which is as good: a round's copy is used for nothing but its label, so it may as well be drawn when
the label comes. A question and its label together still touch one copy. Proof page: docs/proofs/people.md.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Hashable, Iterator, Sequence
from functools import cache
from types import FrameType
from typing import Any, Literal

try:
    from river import base, compose, linear_model, preprocessing
except ModuleNotFoundError as missing:
    if missing.name != "river":
        raise
    raise ModuleNotFoundError('confide.river needs River: pip install "confide[river]"', name="river") from None

from confide.learners import GaussianNB, HashedFeatures
from confide.planning.plan import Plan
from confide.pop.pop import POP
from confide.privacy.random import Random

__all__ = ["PrivateClassifier"]

ROUNDS = 1_000_000
"""Rounds planned for unless the user says otherwise."""

_CHANGED_BY_TRANSFORMING = ("GaussianRandomProjector", "PoissonInclusion", "RBFSampler", "SparseRandomProjector")


class PrivateClassifier(base.Classifier):
    """Makes a classifier private between the people who use it.

    Every `predict_one` is a round and answers as `confide.POP.predict` does: by the copies' votes when they are clear,
    else by the fallback. Every `learn_one` is a lesson for one copy. Labels may come late, out of order or never, and
    records that were never asked about may be taught as history. (ε, δ)-challenge-DP with the numbers of
    `pop.guarantee`, for each round (a question and one label for it) or for each person. Proof pages:
    docs/proofs/halting.md, docs/proofs/people.md.

    Put everything that learns inside: `PrivateClassifier(StandardScaler() | model)`. In front of it, as in
    `StandardScaler() | PrivateClassifier(model)`, a scaler has seen everybody and is shared by all copies; that leaks,
    and is warned about.

    Parameters
    ----------
    model
        A River classifier or pipeline, a Confide learner for dicts (`Features(...) | DecisionTree()`), or anything else
        that `confide.POP` takes: a prototype, never taught.
    plan
        A `confide.Plan`. Without one, `Plan.tight` with the next three.
    labels
        All labels, public.
    epsilon, delta
        The promise, if no plan is given: by default 1.0 and 10⁻⁶.
    rounds
        The calls of `predict_one` to plan for, if no plan is given: by default one million.
    fallback
        What answers when nothing private may be used: "coin", one of the labels, a callable of x, or a model of public
        data.
    units
        "rounds", or "people": then both methods take `unit`, an authenticated id. `evaluate.progressive_val_score`
        passes it on from a stream of `(x, y, {"unit": id})`.
    after_halt
        "raise" `confide.Halted`, or answer by the "fallback".
    public_start
        Start every copy from what `model` has learned, on public data only.
    seed
        For tests and benchmarks only: whatever is made with one promises nothing. Or a generator.

    Examples
    --------
    The first 6000 rounds are silent and answered by a coin; nearly all others are right.

    >>> from confide import Plan
    >>> from confide.learners import DecisionTree, Features
    >>> from river import evaluate, metrics
    >>> from river.datasets import synth
    >>> model = PrivateClassifier(
    ...     Features(numeric=["age", "salary", "loan"]) | DecisionTree(),
    ...     Plan.tight(epsilon=8.0, delta=1e-6, rounds=10_000, silent=6000, copies=160, unsure=100, beta=1e-6),
    ...     labels=(0, 1),
    ...     seed=1,
    ... )
    >>> rows = synth.Agrawal(seed=1).take(10_000)
    >>> score = evaluate.progressive_val_score(rows, model, metrics.Accuracy(), delay=100)
    >>> round(score.get(), 2)  # of all rounds, the silent ones included
    0.69
    >>> model.pop.state, model.pop.guarantee.epsilon <= 8
    ('live', True)
    """

    def __init__(
        self,
        model: Any,
        plan: Plan | None = None,
        *,
        labels: Sequence[Hashable] = (False, True),
        epsilon: float | None = None,
        delta: float | None = None,
        rounds: int | None = None,
        fallback: Any = "coin",
        units: Literal["rounds", "people"] = "rounds",
        after_halt: Literal["raise", "fallback"] = "raise",
        public_start: bool = False,
        seed: int | Random | None = None,
    ) -> None:
        if plan is not None and (epsilon, delta, rounds) != (None, None, None):
            raise ValueError("give a plan, or epsilon, delta and rounds to make one from: not both")
        self.model = model
        self.plan = plan
        self.labels = labels
        self.epsilon, self.delta, self.rounds = epsilon, delta, rounds
        self.fallback = fallback
        self.units = units
        self.after_halt = after_halt
        self.public_start = public_start
        self.seed = seed
        self._pop: POP | None = None
        self._warned = False

    @property
    def pop(self) -> POP:
        """The POP underneath, made when it is first needed: its state, its guarantee, its operator's view."""
        if self._pop is None:
            plan = self.plan
            if plan is None:
                epsilon = 1.0 if self.epsilon is None else self.epsilon
                delta = 1e-6 if self.delta is None else self.delta
                rounds = ROUNDS if self.rounds is None else self.rounds
                plan = Plan.tight(epsilon, delta, rounds, labels=len(self.labels), guide=None)
            self._pop = POP(
                self.model,
                plan,
                labels=self.labels,
                fallback=self.fallback,
                units=self.units,
                after_halt=self.after_halt,
                ticket_life=1,  # no ticket is ever brought back, so none needs to be kept
                public_start=self.public_start,
                seed=None if isinstance(self.seed, Random) else self.seed,
                rng=self.seed if isinstance(self.seed, Random) else None,
            )
        return self._pop

    def predict_one(self, x: dict[base.typing.FeatureName, Any], unit: str | bytes | None = None, **_: Any) -> Any:
        """Answer one round. Every call counts; x that cannot be read takes its round too, then raises ValueError."""
        self._look_in_front()
        return self.pop.predict(x, unit).label

    def learn_one(
        self, x: dict[base.typing.FeatureName, Any], y: base.typing.ClfTarget, unit: str | bytes | None = None
    ) -> None:
        """Teach one copy that the label of x is y, whether or not x was asked about; free of charge."""
        self._look_in_front()
        self.pop.teach(x, y, unit)

    def predict_proba_one(self, x: dict[base.typing.FeatureName, Any], **_: Any) -> dict[base.typing.ClfTarget, float]:
        """Refused: probabilities would show the votes."""
        raise NotImplementedError(
            "PrivateClassifier gives labels only: probabilities would show how the copies voted, which leaks what "
            "people told them; use a metric of labels, such as Accuracy"
        )

    @property
    def _multiclass(self) -> bool:
        return len(self.labels) > 2

    def _more_tags(self) -> set[str]:
        return set(getattr(self.model, "_tags", ()))

    def _get_params(self) -> dict[str, Any]:
        # River clones what is in here to untaught models; what was learned from public data is to be kept.
        kept = {"fallback": self.fallback} | ({"model": self.model} if self.public_start else {})
        return super()._get_params() | kept

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {
            "model": preprocessing.StandardScaler() | linear_model.LogisticRegression(),
            "plan": _small_plan(labels=2),
            "seed": 1,
        }
        segments = ("brickface", "cement", "foliage", "grass", "path", "sky", "window")
        yield {
            "model": HashedFeatures(64) | GaussianNB(),
            "plan": _small_plan(labels=9),
            "labels": (False, True, *segments),
            "seed": 1,
        }

    def _look_in_front(self) -> None:
        """Warn, once, if pipelines call in which steps in front of this one learn: all copies would share them."""
        if self._warned:
            return
        here: base.Estimator = self
        shared: list[str] = []
        frame: FrameType | None = sys._getframe(2)
        level = 3
        while frame is not None and frame.f_globals.get("__name__") == compose.Pipeline.__module__:
            pipeline = frame.f_locals.get("self")
            if isinstance(pipeline, compose.Pipeline):
                shared = [str(step) for step in pipeline.steps.values() if step is not here and _learns(step)] + shared
                here = pipeline
            frame = frame.f_back
            level += 1
        if shared:
            self._warned = True
            inside = " | ".join(f"{name}()" if name.isidentifier() else name for name in shared)
            warnings.warn(
                f"{' | '.join(shared)} in front of PrivateClassifier learns from everybody and is shared by all "
                f"copies: that leaks. Put it inside: PrivateClassifier({inside} | model, ...)",
                stacklevel=level,
            )


def _learns(step: Any) -> bool:
    """Whether a step of a pipeline changes with what goes through it; True for steps that nobody knows."""
    parts = getattr(step, "steps", None) or getattr(step, "transformers", None)
    if isinstance(parts, dict):
        return any(_learns(part) for part in parts.values())
    fixed = getattr(type(step), "learn_one", None) is base.Transformer.learn_one
    return not fixed or type(step).__name__ in _CHANGED_BY_TRANSFORMING


@cache
def _small_plan(labels: int) -> Plan:
    """A plan for River's checks, whose streams have a few hundred rows."""
    return Plan.tight(20.0, 1e-2, 2000, copies=45, unsure=100, silent=150, labels=labels, guide=None)
