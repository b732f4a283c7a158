"""What is promised where labels alone are protected, and the part that keeps it. Proof page: docs/proofs/labels.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from functools import cached_property
from typing import TYPE_CHECKING

from confide._checks import Numbers, integer
from confide.planning.guarantee import Guarantee
from confide.planning.parts import Cap, Part, Price
from confide.planning.promise import Promise
from confide.privacy.response import Response, each, together

if TYPE_CHECKING:
    from confide.planning.plan import Plan

NOT_PROTECTED = "labels are protected; rows, and whether and when a label came, are not"
"""How every page, message and object says what this promise protects."""


ONE_SIDED = (
    "where labels come for one outcome only, that one came says which it was: then declare a deadline, and what a "
    "missing label means"
)
"""A warning for labels that come one by one. A file has all of its labels, so it is not said there."""

MANY = 10_000
"""Labels for little to be learned, from which on it is said how many it takes."""


@dataclass(frozen=True)
class LabelGuarantee(Guarantee):
    """ε for the labels of a unit, and nothing for its rows; δ is 0.

    Examples
    --------
    >>> print(LabelGuarantee(1.0, 0.0))
    1-DP for labels alone: labels are protected; rows, and whether and when a label came, are not
    """

    deadline: int | None = None
    """Public rounds after which a label that has not come is replaced; None where none is."""

    def __str__(self) -> str:
        return f"{self.brief}: {self.protected}"

    @property
    def brief(self) -> str:
        """The same without what it is about."""
        seeded = "" if self.secure else " (insecure: seeded, so nothing is promised)"
        return f"{_up(self.epsilon, 4)}-DP for labels alone{seeded}"

    @property
    def protected(self) -> str:
        """What is protected, and what is not."""
        if self.deadline is None:
            return NOT_PROTECTED
        return f"labels are protected, and whether one came within {self.deadline:,} rounds; rows are not"

    @property
    def sentence(self) -> str:
        """The guarantee in one sentence that a lawyer could read."""
        factor = _up(math.nextafter(math.exp(self.epsilon), math.inf), 3) if self.epsilon < 700 else "e to the ε"
        whose = "the one label of a round"
        if self.units == "people":
            many = self.unit_labels or 1
            whose = "one person's one label" if many == 1 else f"all labels of one person, {many} at most,"
        return (
            f"Whatever {whose} said, everyone together, asking adaptively for as long as they like and seeing the "
            f"model itself, sees any given pattern with a probability that changes by at most a factor of {factor} "
            f"(ε = {_up(self.epsilon, 4)}); {self.protected}."
        )


@dataclass(frozen=True)
class RandomizedLabels(Part, Numbers, kind="labels"):
    """Every label is randomized once, when it comes, and one ordinary model is taught what came out.

    Its price is a pure ε, which protects labels and is never added to one that protects rows.

    Parameters
    ----------
    labels, other
        The integers that are drawn with (`confide.privacy.response.Response`).
    unit_labels
        Labels of one unit that are ever taken.
    deadline, missing
        Public rounds after which a label is due, and the number of the one that stands for one that has not come.
    """

    labels: int
    other: int
    unit_labels: int = 1
    deadline: int | None = None
    missing: int | None = None

    protects = "labels"
    answers = "the model"

    def __post_init__(self) -> None:
        super().__post_init__()
        integer(self.unit_labels, "unit_labels", at_least=1)
        if (self.deadline is None) != (self.missing is None):
            raise ValueError("declare a deadline together with the label that stands for a missing one, or neither")
        if self.deadline is not None and self.missing is not None:
            integer(self.deadline, "deadline", at_least=1)
            integer(self.missing, "missing", at_least=0, at_most=self.labels - 1)
        self.response  # noqa: B018  # refuses integers that are no response

    @cached_property
    def response(self) -> Response:
        """The law of what comes out."""
        return Response(self.labels, self.other)

    def price(self) -> Price:
        """All labels of a unit together."""
        return Price(pure=together(self.response.cost(), self.unit_labels))

    def check(self, promise: Promise) -> None:
        """ValueError where it was made for another promise."""
        if (self.labels, self.unit_labels) != (promise.labels, promise.unit_labels):
            raise ValueError("the response was made for other labels, or another cap on them: do not run this plan")

    @property
    def cap(self) -> Cap:
        """Labels of one person."""
        many = "1 label" if self.unit_labels == 1 else f"{self.unit_labels:,} labels"
        return Cap(self.unit_labels, many, f"brings at most {many}")

    def rows(self, plan: Plan) -> list[tuple[str, str]]:
        """How often a label comes out as it is, and what stands for a missing one."""
        kept = f"comes out as it is in {self.response.truth:.1%} of cases, as each other one in {self.response.lie:.2%}"
        due = [] if self.deadline is None else [("deadline", f"{self.deadline:,} rounds, then a declared label")]
        return [("each label", kept), *due]

    def sentences(self, plan: Plan) -> list[str]:
        """What it does."""
        return [
            f"Labels are randomized as they come: {self.response.truth:.1%} come out as they are. One ordinary model, "
            "yours or ours, is taught what came out; nothing halts, and the model itself may be shown."
        ]

    def warnings(self, plan: Plan) -> list[str]:
        """Warn of labels whose coming tells what they are, and of an ε for which 64 bits are too few."""
        most = plan.guarantee.epsilon
        said = f"epsilon={plan.promise.epsilon:g}: a label is drawn with 64 bits, so that it is {_up(most, 4)} at most"
        return [ONE_SIDED] * (self.deadline is None) + [said] * (1.01 * most < plan.promise.epsilon) + self._faint

    @property
    def enough(self) -> float:
        """Labels after which rows that are alike tell theirs from any other, by two standard errors, for every label.

        Where n rows are alike, their label comes out n·(truth − lie) times more often than another, with a variance
        of at most n·(truth + lie).
        """
        law = self.response
        return self.labels * 4.0 * (law.truth + law.lie) / law.advantage**2

    @property
    def _faint(self) -> list[str]:
        if self.enough <= MANY:
            return []
        fewer = ["fewer labels of each person"] * (self.unit_labels > 1) + ["fewer labels"] * (self.labels > 2)
        return [
            f"a label comes out as it is in {self.response.truth:.2%} of cases, and as {_other(self.labels)} in "
            f"{self.response.lie:.2%}: until about {float(f'{self.enough:.2g}'):,.0f} labels have come, little is "
            f"learned; take {' or '.join(['a larger epsilon', *fewer])}"
        ]

    def certified(self, plan: Plan) -> str:
        """What `confide verify` says of it."""
        return f"of 2**64 words {self.other} say each label that was not brought"


def labels_alone(promise: Promise, due: tuple[int, int] | None) -> RandomizedLabels:
    """The response that tells the truth most often within the promise."""
    if promise.units == "rounds" and promise.unit_labels != 1:
        raise ValueError("a round has one label: leave unit_labels out, or protect people")
    labels, most = promise.labels or 2, promise.unit_labels
    response = Response.best(each(promise.epsilon, most), labels)
    return RandomizedLabels(labels, response.other, most, *(due or (None, None)))


def label_guarantee(promise: Promise, parts: Sequence[Part], epsilon: float) -> LabelGuarantee:
    """What is promised, with the deadline that a part declares."""
    part = next((part for part in parts if isinstance(part, RandomizedLabels)), None)
    return LabelGuarantee(epsilon, promise.delta, deadline=None if part is None else part.deadline)


def _other(labels: int) -> str:
    return "the other one" if labels == 2 else "each other one"


def _up(value: float, digits: int) -> str:
    """So many digits, rounded up: what is said is never less than what is promised."""
    return f"{float(Context(prec=digits, rounding=ROUND_CEILING).plus(Decimal(repr(value)))):.{digits}g}"
