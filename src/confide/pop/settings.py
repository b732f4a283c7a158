"""What a POP was made with: checked once, kept as given."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, TypedDict

from confide._checks import integer
from confide.banks import Bank, Place
from confide.learners import Columns, Encoder, Features, Pipeline
from confide.planning.chosen import refuse_unasked
from confide.planning.plan import Guarantee, Plan
from confide.pop.monitor import Monitor
from confide.privacy.sparse import CounterBudget

__all__ = ["Options", "Settings", "check_options"]


_READ = (Columns, Features)  # encoders that the guide can read by
_verified: weakref.WeakValueDictionary[int, Plan] = weakref.WeakValueDictionary()


class Options(TypedDict, total=False):
    """What `POP` takes by name beside what it is made of; each has a good default."""

    after_halt: Literal["raise", "fallback"]
    """What becomes of questions after a halt: answered by the guide, else the "fallback"; or "raise" `Halted`."""
    ticket_life: int
    """Public rounds after which a ticket expires. With 1 labels come with their rows (`teach`): ranges are then found
    from what is taught, and not from what is asked."""
    monitor: Monitor | None
    """A private count of mistakes that may be shown to anybody; None for none."""
    public_start: bool
    """Start every copy from what `learner` has learned (on public data only)."""
    bank: Bank | Place | None
    """A bank of your own, instead of the one made from `learner` and `features`; or where the copies are to live:
    `confide.banks.Threads(...)`, `confide.banks.ray.Actors(...)`. None for here."""


def check_options(given: Iterable[str]) -> None:
    """Refuse a name that is no option, in Python's own way."""
    for name in given:
        if name not in Options.__annotations__:
            raise TypeError(f"POP has no option {name!r}: it takes {', '.join(Options.__annotations__)}")


@dataclass(frozen=True)
class Settings:
    """The arguments of a POP, as its docstring explains them."""

    learner: Any
    plan: Plan
    labels: tuple[Hashable, ...]
    fallback: Any
    features: Any
    units: Literal["rounds", "people"]
    after_halt: Literal["raise", "fallback"]
    ticket_life: int
    monitor: Monitor | None
    public_start: bool
    label_weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if len(self.index) != len(self.labels):
            raise ValueError("labels must be different from each other: name each once")
        if len(self.labels) < 2:
            raise ValueError("give at least two labels: all that may ever be answered")
        if len(self.labels) != self.plan.labels:
            raise ValueError(
                f"the plan is for {self.plan.labels} labels, and there are {len(self.labels)}: make the plan with "
                f"labels={len(self.labels)}"
            )
        if self.units not in ("rounds", "people"):
            raise ValueError(f"units={self.units!r} must be 'rounds' or 'people'")
        if self.after_halt not in ("raise", "fallback"):
            raise ValueError(f"after_halt={self.after_halt!r} must be 'raise' or 'fallback'")
        integer(self.ticket_life, "ticket_life", at_least=1)
        if self.plan.units not in (None, self.units):
            raise ValueError(f"the plan was made for {self.plan.units}, this POP for {self.units}: plan with units=")
        if self.units == "people" and self.plan.guide is not None and self.plan.guide.apart:
            raise ValueError("the plan was made for rounds, this POP for people: plan with units='people'")
        self._check_learner()
        if self.plan.relay and self.after_halt == "raise":
            raise ValueError("a relay of copies does not halt: leave after_halt out")
        if self.units == "people" and sum(part.cap is not None for part in self.plan.public) > 1:
            raise ValueError(
                "two parts of this plan learn from labels, and a person's labels are counted once for both: plan them "
                "for rounds, or apart"
            )
        if self.units == "people" and isinstance(self.plan.halting, CounterBudget):
            raise ValueError("the paper's plan protects rounds, not people: use Plan.tight(..., unit_unsure=G)")

    def _check_learner(self) -> None:
        plan = self.plan
        if self.learner is None and plan.copies:
            last = "" if plan.endless else f", rounds={plan.rounds}"
            raise ValueError(
                "the plan has copies, and so needs a learner; for a guide alone plan with "
                f"Plan.tight(epsilon, delta{last}, guide=1.0)"
            )
        refuse_unasked(self.learner, plan, "confide.POP")
        if any(getattr(part, "deadline", None) not in (None, self.ticket_life) for part in plan.public):
            raise ValueError("a ticket is good until its label is due: ticket_life must be the deadline")
        if self.monitor is not None and plan.promise.protect == "labels":
            raise ValueError(
                "a monitor has its own ε for rows, and labels alone are protected here: leave it out; the error can be "
                "estimated from what came out, which is public"
            )
        if isinstance(self.learner, Pipeline) and self.features is not None:
            raise ValueError("the learner brings its own features: leave features out")
        if self.public_start and not plan.copies:
            raise ValueError("the plan has no copies, so none has a public start: leave public_start out")
        if not plan.copies and isinstance(self.features, Encoder) and not isinstance(self.features, _READ):
            raise ValueError(
                "features= is HashedFeatures or an encoder of your own, which copies alone read by, and this plan has "
                "none: declare confide.learners.Features, or leave it out, and names and values are hashed"
            )
        if self.label_weights is not None and plan.guide is None:
            raise ValueError("label_weights are the guide's, and this plan has none")

    def verify(self) -> None:
        """Certify the plan's tables, once for a plan: plans do not change."""
        if _verified.get(id(self.plan)) is not self.plan:
            self.plan.verify()
            _verified[id(self.plan)] = self.plan

    def check_certificate(self, fallback: str) -> None:
        """Warn where the plan's mistake certificate does not hold with this kind of fallback."""
        certificate = self.plan.certificate
        if certificate is not None and not certificate.covers(fallback, self.plan.labels):
            warnings.warn(
                "the plan's mistake certificate does not hold with this fallback, which may be wrong in every answer: "
                "take fallback='coin', or make the plan with Plan.certified(..., fallback_error=1.0)",
                stacklevel=3,
            )

    @property
    def index(self) -> dict[Hashable, int]:
        """The labels' numbers."""
        return {label: i for i, label in enumerate(self.labels)}

    @property
    def inputs(self) -> Any:
        """The features, wherever they were given."""
        return self.learner.features if isinstance(self.learner, Pipeline) else self.features

    @property
    def named(self) -> bool:
        """Whether x is a dict of named features rather than an array."""
        features = self.inputs
        return not (isinstance(features, int | Columns) and not isinstance(features, bool))

    @cached_property
    def guarantee(self) -> Guarantee:
        """The plan's guarantee plus the monitor's price."""
        plan = replace(self.plan.guarantee, units=self.units)
        return plan if self.monitor is None else plan.plus(self.monitor.epsilon)

    def options(self) -> dict[str, Any]:
        """All but learner and plan, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("learner", "plan")}
