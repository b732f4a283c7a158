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
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cache
from types import FrameType
from typing import Any, Literal

try:
    from river import base, compose, linear_model, preprocessing
except ModuleNotFoundError as missing:
    if missing.name != "river":
        raise
    raise ModuleNotFoundError('confide.river needs River: pip install "confide[river]"', name="river") from None

from confide.errors import ConfideWarning
from confide.learners import GaussianNB, HashedFeatures, Pipeline
from confide.planning.chosen import Kept, check_given, kept, refuse_another
from confide.planning.plan import Plan
from confide.planning.promise import Promise
from confide.pop.pop import POP
from confide.privacy.random import Random

__all__ = ["PrivateClassifier"]

_CHANGED_BY_TRANSFORMING = ("GaussianRandomProjector", "PoissonInclusion", "RBFSampler", "SparseRandomProjector")


class PrivateClassifier(base.Classifier):
    """Makes a classifier private between the people who use it.

    Every `predict_one` is a round and answers as `confide.POP.predict` does: by the copies' votes when they are clear,
    else by the guide, a linear model learned from noisy sums; before its first sum by the fallback. Every `learn_one`
    is a lesson for one copy and for the guide. Labels may come late, out of order or never, and records that were never
    asked about may be taught as history. `predict_proba_one` is the guide's own: it was released privately as a whole,
    so asking it is free and takes no round. (ε, δ)-challenge-DP with the numbers of `pop.guarantee`, for each round (a
    question and one label for it) or for each person. Proof pages: docs/proofs/guide.md, docs/proofs/halting.md,
    docs/proofs/people.md.

    Put everything that learns inside: `PrivateClassifier(StandardScaler() | model)`. In front of it, as in
    `StandardScaler() | PrivateClassifier(model)`, a scaler has seen everybody and is shared by all copies; that leaks,
    and is warned about.

    Parameters
    ----------
    model
        None: the guide alone, which is what streams of less than millions of rounds need. Or a River classifier or
        pipeline, a Confide learner for dicts (`Features(...) | DecisionTree()`), or anything else that `confide.POP`
        takes: a prototype, never taught, of which there are copies. It is refused where they would not answer. Where
        the promise is to labels alone one fresh model like it is taught randomized labels.
    promise
        A `confide.Promise`: ε, δ, how many rounds, and whether rounds or people are protected. None: ε = 1, δ = 10⁻⁶,
        for each round, without a last one. Copies need a number of rounds. With `units="people"` both methods take
        `unit`, an authenticated id; `evaluate.progressive_val_score` passes it on from a stream of
        `(x, y, {"unit": id})`.
    plan
        A `confide.Plan` that keeps a promise, instead of one: for copies, leans and shares of your own choice.
    labels
        All labels, public.
    features
        `confide.learners.Features(...)`, where names are known and the model does not bring them: the guide then learns
        sooner and more. Without them, names and values are hashed.
    label_weights
        One positive public number a label, in their order or by label: how much the guide makes of it. For rare labels.
    fallback
        What answers when nothing private may be used and there is no guide yet: "coin", one of the labels, a callable
        of x, or a model of public data.
    after_halt
        What becomes of questions after a halt: answered by the guide, else the "fallback"; or "raise" `confide.Halted`.
    public_start
        Start every copy from what `model` has learned, on public data only.
    seed
        For tests and benchmarks only: whatever is made with one promises nothing. Or a generator.

    Examples
    --------
    One label in ten is wrong; logistic regression that is not private is right in 88 % of these rounds.

    >>> from confide.learners import Features
    >>> from river import evaluate, metrics
    >>> from river.datasets import synth
    >>> columns = Features(numeric={0: (0, 10), 1: (0, 10), 2: (0, 10)})
    >>> model = PrivateClassifier(promise=Promise(epsilon=1.0, rounds=10_000), features=columns, seed=1)
    >>> rows = synth.SEA(noise=0.1, seed=1).take(10_000)
    >>> score = evaluate.progressive_val_score(rows, model, metrics.Accuracy(), delay=100)
    >>> round(score.get(), 2)  # of all rounds, the first ones included
    0.81
    >>> model.predict_proba_one({0: 9.0, 1: 9.0, 2: 1.0})[True] > 0.8, model.pop.guarantee.epsilon <= 1
    (True, True)
    """

    def __init__(
        self,
        model: Any = None,
        *,
        promise: Promise | None = None,
        plan: Plan | None = None,
        labels: Sequence[Hashable] = (False, True),
        features: Any = None,
        label_weights: Mapping[Any, float] | Sequence[float] | None = None,
        fallback: Any = "coin",
        after_halt: Literal["raise", "fallback"] = "fallback",
        public_start: bool = False,
        seed: int | Random | None = None,
    ) -> None:
        check_given((promise, plan))
        if features is not None and isinstance(model, Pipeline):
            raise ValueError("the model brings its own features: leave features out")
        self.model = model
        self.promise, self.plan = promise, plan
        self.labels = labels
        self.features, self.label_weights = features, label_weights
        self.fallback = fallback
        self.after_halt = after_halt
        self.public_start = public_start
        self.seed = seed
        self._pop: POP | None = None
        self._kept: Kept = None, None
        self._warned = False
        self._lessons: int | None = 0  # labels that came before anything was asked; None once that was said

    @property
    def pop(self) -> POP:
        """The POP underneath, made when it is first needed: its state, its guarantee, its operator's view."""
        given = self.promise, self.plan
        if self._pop is None:
            plan = kept(given, len(self.labels), self.model)
            if self.model is None and self.features is None:
                _say_missing()
            self._pop = POP(
                self.model,
                plan,
                labels=self.labels,
                features=self.features,
                fallback=self.fallback,
                label_weights=self.label_weights,
                seed=self.seed,
                after_halt=self.after_halt,
                ticket_life=1,  # no ticket is ever brought back, so none needs to be kept
                public_start=self.public_start,
            )
            self._kept = given
        refuse_another(self._kept, given)
        return self._pop

    def predict_one(self, x: dict[base.typing.FeatureName, Any], unit: str | bytes | None = None, **_: Any) -> Any:
        """Answer one round. Every call counts; x that cannot be read takes its round too, then raises ValueError."""
        self._look_in_front()
        return self.pop.predict(x, unit).label

    def learn_one(
        self, x: dict[base.typing.FeatureName, Any], y: base.typing.ClfTarget, unit: str | bytes | None = None
    ) -> None:
        """Teach one copy and the guide that the label of x is y, whether or not x was asked about; free of charge."""
        self._look_in_front()
        if self._lessons is not None:
            self._lessons += 1  # before x is looked at: what is in one row must not decide a warning that all see
        self.pop.teach(x, y, unit)

    def predict_proba_one(self, x: dict[base.typing.FeatureName, Any], **_: Any) -> dict[base.typing.ClfTarget, float]:
        """The guide's probabilities: free, and no round. All alike before its first sum is released.

        Where copies answer too, the most probable label is not always what `predict_one` says.
        """
        self._look_in_front()
        plan = self.pop.plan
        if plan.guide is None and plan.promise.protect == "rows":
            raise NotImplementedError(
                "PrivateClassifier gives labels only where its plan has no guide: probabilities would show how the "
                "copies voted, which leaks what people told them; use a metric of labels, such as Accuracy"
            )
        if self._lessons is not None and plan.guide and self._lessons > plan.guide.first and self.pop.rounds == 0:
            self._lessons = None
            warnings.warn(
                "the guide learns as rounds are asked, and predict_one was never called: all its probabilities are "
                "alike; call predict_one as well for every x",
                stacklevel=2,
            )
        shares: dict[Any, float] = self.pop.probabilities(x)
        return shares

    @property
    def _multiclass(self) -> bool:
        return len(self.labels) > 2

    def _more_tags(self) -> set[str]:
        return set(getattr(self.model, "_tags", ()))

    def _get_params(self) -> dict[str, Any]:
        # River clones what is in here to untaught models; what was learned from public data is to be kept.
        public = {"fallback": self.fallback} | ({"model": self.model} if self.public_start else {})
        return super()._get_params() | public

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
        yield {"plan": Plan.tight(20.0, 1e-2, 2000, guide=1.0), "seed": 1}

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
            way = f"Put it inside: PrivateClassifier({inside} | model, ...)"
            way = "Leave it out: the guide needs no scaler, and takes ranges in Features" if self.model is None else way
            warnings.warn(
                f"{' | '.join(shared)} in front of PrivateClassifier learns from everybody and is shared by all: "
                f"that leaks. {way}",
                stacklevel=level,
            )


def _say_missing() -> None:
    """Warn of what would make a guide better, where it was left out."""
    warnings.warn(
        "PrivateClassifier was made without features=, so names and values are hashed; Features(numeric={'age': "
        "(0, 120)}) does better. It answers all the same, and less well",
        ConfideWarning,
        stacklevel=4,
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
