"""The guide as a part: its price, whom it was made for, and what is said of it. Its numbers: `confide.planning.guided`.

Claims and proofs: docs/proofs/guide.md, docs/proofs/exact.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from confide.planning import outlook
from confide.planning.parts import Cap, Part, Price

if TYPE_CHECKING:
    from confide.planning.guided import GuidePlan
    from confide.planning.plan import Plan
    from confide.planning.promise import Promise

_SHOWN = (1_000, 10_000)  # rounds of a plan without an end, before that of its first epoch

FAINT = 300.0
"""Labels for each deviation of the noise in their sum: with fewer, a guide of two labels may gain little. Measured, on
six streams without declared ranges: with 136 three have an error within a point of the more frequent label's, with 407
five are better by at least five points."""


class LinearPart(Part):
    """What `GuidePlan` is as a part of a plan."""

    answers = "the guide"

    @property
    def _own(self) -> GuidePlan:
        return cast("GuidePlan", self)

    def price(self) -> Price:
        """μ² and the noise: it releases Gaussian sums and nothing else."""
        return Price(self._own.mu2, self._own.noises, shared=not self._own.endless)

    def check(self, promise: Promise) -> None:
        """Refuse a guide that was made for another promise."""
        guide = self._own
        if (guide.rounds, guide.labels) != (promise.rounds, promise.labels):
            raise ValueError("the guide was made for other rounds or labels: do not run this plan")
        if guide.unit_labels != promise.unit_labels or (promise.units == "rounds" and guide.unit_labels != 1):
            raise ValueError("the guide learns another number of a unit's labels than the promise says")
        if guide.apart and promise.units == "people":
            raise ValueError("the guide was made for rounds, and people pay for their counts too: plan with units=")

    @property
    def cap(self) -> Cap:
        """Labels."""
        most = self._own.unit_labels
        plural = "s" * (most > 1)
        return Cap(most, f"{most} label{plural} for the guide", f"teaches the guide at most {most} label{plural}")

    @property
    def waits(self) -> int:
        """Rounds before the first release."""
        return outlook.waiting(self._own)

    def rows(self, plan: Plan) -> list[tuple[str, str]]:
        """How many sums, and how often."""
        guide = self._own
        first, ranges = guide.main.ends[0], f", and finds where numbers lie in {guide.range_rounds:,} rounds"
        often = f"one every {guide.leaf:,} rounds" + (f", and every {first:,} at first" if first < guide.leaf else "")
        many = f"{guide.leaves:,} noisy sums{' an epoch' if guide.endless else ''}"
        said = f"{many}, {often}{ranges if guide.range_rounds else ''}"
        alone = [] if plan.copies else [("copies", "none: the guide answers alone, and nothing halts")]
        return [*alone, ("guide", said)]

    def sentences(self, plan: Plan) -> list[str]:
        """What it is, when it answers, and how clear it becomes."""
        guide = self._own
        return [
            "The guide is a linear model that learns from noisy sums of what people teach. It is private itself, so "
            f"everyone may see it. {outlook.begins(guide)}; before that the fallback does.",
            *(self._without_end(plan) if guide.endless else self._at_the_end(plan)),
            *self._by_period(plan),
        ]

    def _counted(self, plan: Plan) -> str:
        return f"what a unit may teach is counted for {'life' if plan.promise.per is None else 'each period'}"

    def _by_period(self, plan: Plan) -> list[str]:
        said, most = plan.guarantee, self._own.unit_labels
        if said.life is None:
            return []
        labels = "one label of a person teaches" if most == 1 else f"{most:,} labels of a person teach"
        return [
            f"Every {said.per:,} rounds a new period begins. In each of them {labels}, in at most {said.periods:,} "
            f"periods of their life, and then no more. Later labels are accepted and teach nothing, and so are labels "
            "whose question was asked in an earlier period.",
            f"What one person told within one period has ε = {said.epsilon:.4g}, all that they ever told has ε = "
            f"{said.life:.4g}.",
        ]

    def _at_the_end(self, plan: Plan) -> list[str]:
        strength = f"{self._own.strength:,.0f} labels for each deviation of their noise{self._if_taught(plan)}"
        return [f"At the end its sums hold {strength}.", *outlook.more_for_guide(plan)]

    def _without_end(self, plan: Plan) -> list[str]:
        guide = self._own
        shown = [f"{rounds / guide.deviation():,.0f} after {rounds:,}" for rounds in (*_SHOWN, guide.epoch(1).start)]
        return [
            "It has no last round. Rounds are cut into epochs by their numbers. The first ends after "
            f"{guide.epoch(1).start:,} rounds. In each of them sums and noise begin anew; what was learned is kept. "
            f"The promise is one for all of them: {self._counted(plan)}.",
            f"Labels for each deviation of the noise in its sums{self._if_taught(plan)}: {', '.join(shown)} rounds; "
            "300 are enough for two labels, 30 for ten.",
        ]

    def _if_taught(self, plan: Plan) -> str:
        """The condition for that: of each person only as many labels teach as the plan says."""
        most = self._own.unit_labels
        if plan.units != "people":
            return ""
        if plan.promise.per is not None:
            return f", if nobody brings more than {most:,} label{'s' * (most > 1)} a period: no more of them teach"
        if most == 1:
            return ", if every round is another person's: of each person one label teaches, and no other"
        return f", if nobody brings more than {most:,} labels: no more of one person teach"

    def warnings(self, plan: Plan) -> list[str]:
        """Warn of too few rounds for the noise."""
        strength, said = self._own.strength, plan.guarantee.epsilon
        if strength >= faint(plan.labels):
            return []
        if plan.endless:
            return [
                f"epsilon={said:.3g} leaves {strength:,.0f} labels for each deviation of the noise after "
                f"{self._own.epoch(1).start:,} rounds, and {faint(plan.labels):,.0f} are enough: until long after that "
                "the guide may do little better than the most frequent label; take a larger epsilon"
            ]
        enough = float(f"{plan.rounds * faint(plan.labels) / strength:.2g}")
        return [
            f"rounds={plan.rounds:,} at epsilon={said:.3g} are few for the noise: the guide may do "
            "little better than the most frequent label; declare kinds and ranges of the columns, take fewer of them, "
            f"or plan with about {enough:,.0f} rounds"
        ]

    def certified(self, plan: Plan) -> str:
        """By how much a unit moves it, and the noise."""
        own, alone = self._own, "" if plan.copies else " alone"
        return (
            f"a guide{alone} that one unit moves by {float(own.mu2) ** 0.5:.6g} deviations of its noise; "
            f"its sums are released in whole numbers, and in their unit the noise of each has σ² = {own.sigma2}"
        )


def faint(labels: int) -> float:
    """`FAINT` for so many labels: the more there are, the less the most frequent one says.

    Measured: with 47 the guide tells the ten digits of LED apart in 40 % of the rounds, one label in 11 %.
    """
    return FAINT if labels == 2 else FAINT / 10
