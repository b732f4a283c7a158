"""Parts of a plan: private mechanisms, each with a price, and what they cost together.

A part is one private mechanism's numbers: integers from which its price follows and nothing else. What a part owes so
that prices add up is docs/proofs/parts.md; that a part pays is proved on the part's own page.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, cast

from confide._checks import Numbers
from confide.privacy.exact import Noise, delta_of, epsilon_of
from confide.privacy.renyi import epsilon_from_renyi, sum_up
from confide.privacy.sums import divergence

if TYPE_CHECKING:
    from confide.planning.plan import Plan
    from confide.planning.promise import Promise, Protect

_ORDERS = (*range(2, 65), *range(68, 257, 4), *range(288, 1025, 32))

_kinds: dict[str, type[Part]] = {}


class Unreachable(ValueError):
    """No tables keep this promise; the caller says so in the words of its own arguments."""


class TooRare(Unreachable):
    """The bad events of 64-bit tables alone are likelier than δ."""


class Cap(NamedTuple):
    """What one unit may do in its life, at most."""

    most: int
    short: str
    """"2 labels for the guide"."""
    long: str
    """"teaches the guide at most 2 labels"."""


@dataclass(frozen=True)
class Price(Numbers):
    """What a part, or several together, costs: bounds that hold on every path of an adaptive adversary.

    Parameters
    ----------
    mu2, noises
        Of what releases Gaussian sums only: μ², by how much one unit moves all of it in squared deviations of its
        noise, and how much noise of which variance there is. None for anything else.
    curve
        Of anything else: the Rényi divergence at an order, rounded up.
    bad
        The probability of the events outside of which the curve holds.
    part_of_delta
        The same, as a part of the promise's δ.
    pure
        An ε by itself, which is added after the conversion.
    order
        The order that its tables were made for; None where any will do.
    """

    mu2: Fraction | None = None
    noises: tuple[Noise, ...] = ()
    curve: Callable[[int], float] | None = None
    bad: Fraction | int = 0
    part_of_delta: Fraction | int = 0
    pure: float = 0.0
    order: int | None = None
    shared: bool = True
    """Whether the noises are all that a run has, however many units move them; else they are those that one moves."""

    def __post_init__(self) -> None:
        super().__post_init__()
        masses = self.bad, self.part_of_delta
        if not all(isinstance(mass, Fraction | int) and mass >= 0 for mass in masses) or self.pure < 0:
            raise ValueError("a price is never negative, and bad events have exact probabilities: give fractions")
        other = any(masses) or self.pure or self.curve is not None or self.order is not None
        if self.mu2 is not None and (other or not self.noises):
            raise ValueError("a Gaussian price is μ² and all noises, and nothing beside them: give the rest as a curve")

    def at(self, order: int) -> float:
        """The Rényi divergence at this order, rounded up; ValueError where a curve says what no divergence is."""
        if self.mu2 is not None:
            return divergence(order, self.mu2)
        spent = 0.0 if self.curve is None else self.curve(order)
        if not spent >= 0:
            raise ValueError("a part's curve is negative, or no number: do not run this plan")
        return spent

    def plus(self, other: Price) -> Price:
        """Of both together: exactly, if both are Gaussian, else at one order."""
        if self.order is not None and other.order not in (None, self.order):
            raise ValueError("two parts have tables for different Rényi orders: do not run this plan")
        mu2 = None if self.mu2 is None or other.mu2 is None else self.mu2 + other.mu2
        one, two = self, other
        return Price(
            mu2,
            (*self.noises, *other.noises),
            None if mu2 is not None else lambda order: sum_up(one.at(order), two.at(order)),
            self.bad + other.bad,
            self.part_of_delta + other.part_of_delta,
            sum_up(self.pure, other.pure),
            self.order if other.order is None else other.order,
            self.shared and other.shared,
        )

    @property
    def only_pure(self) -> bool:
        """Whether it is an ε and nothing beside it: then there is nothing to convert."""
        return self.mu2 is None and self.curve is None and not (self.bad or self.part_of_delta)

    def best_order(self, delta: float) -> int | None:
        """The order at which it is accounted for; None where it is converted exactly."""
        if self.mu2 is not None or self.only_pure:
            return None
        return min(_ORDERS, key=lambda order: self.converted(delta, order)) if self.order is None else self.order

    def converted(self, delta: float, order: int) -> float:
        """ε at this δ by way of this order, rounded up; TooRare where bad events alone are likelier."""
        bad = Fraction(delta) * self.part_of_delta + self.bad
        return sum_up(epsilon_from_renyi(self.at(order), order, left_of(delta, bad)), self.pure)

    def delta(self, epsilon: float, people: int = 1) -> float:
        """δ of a Gaussian price at this ε, rounded up; for so many units together who tell each other everything."""
        return delta_of(epsilon, self._moved(people), self._noises(people))

    def epsilon(self, delta: float, people: int = 1) -> float:
        """ε at this δ, rounded up; for several units together only where it is Gaussian."""
        if self.mu2 is not None:
            return _exactly(delta, self._moved(people), self._noises(people))
        if self.only_pure and people == 1:
            return self.pure
        order = self.best_order(delta)
        if people != 1 or order is None:
            raise ValueError("only Gaussian parts are converted exactly for several units: use group privacy")
        return self.converted(delta, order)

    def _noises(self, people: int) -> tuple[Noise, ...]:
        """The noise in what so many units move: all there is, or at most so many times that of one."""
        if self.shared:
            return self.noises
        return tuple(Noise(people * one.values, one.variance) for one in self.noises)

    def _moved(self, people: int) -> Fraction:
        if self.mu2 is None:
            raise ValueError("not all parts are Gaussian, so that nothing is converted exactly: take epsilon(delta)")
        return self.mu2 * people**2


_exactly = lru_cache(maxsize=256)(epsilon_of)
"""Its cache holds numbers of plans, which are public. Every look at a served model describes its plan again."""


def left_of(delta: float, bad: Fraction) -> float:
    """What bad events leave of δ for the conversion; TooRare where that is nothing."""
    rest = math.nextafter(float(Fraction(delta) - bad), -math.inf)  # exact, then one rounding: they may nearly cancel
    if not rest > 0:
        raise TooRare(
            f"the tables' bad events alone have probability {float(bad):.3g}, which is not below delta={delta:g}"
        )
    return rest


class Part(ABC):
    """One private mechanism's numbers: a frozen dataclass of integers, floats and tables, known by its `kind`.

    A subclass names its kind, `class Count(Part, kind="count")`, and with it plans with such a part are read from their
    files. How it runs is registered apart: `confide.pop.running.Running`.
    """

    kind: ClassVar[str] = ""
    """Its name in files and ledgers."""
    protects: ClassVar[Protect] = "rows"
    """What its price is about: prices of parts that protect different things are never added."""
    answers: ClassVar[str] = ""
    """Who it is, in words, where it answers; empty where it never does."""

    def __init_subclass__(cls, kind: str = "", **more: Any) -> None:
        super().__init_subclass__(**more)
        if kind:
            cls.kind = kind
            _kinds[kind] = cls

    @abstractmethod
    def price(self) -> Price:
        """What it costs, computed from its numbers alone."""

    @abstractmethod
    def check(self, promise: Promise) -> None:
        """ValueError where its numbers do not belong together, or were made for another promise."""

    def params(self) -> dict[str, Any]:
        """What makes the same part again: JSON's kinds of values only."""
        return asdict(cast(Any, self))

    @classmethod
    def from_params(cls, params: dict[str, Any]) -> Self:
        """The part that `params` describes; unknown or missing names are refused."""
        if set(params) != {each.name for each in fields(cast(Any, cls))}:
            raise ValueError(f"these are not the numbers of the part {cls.kind!r}: read the plan again from its file")
        return cls(**params)

    @property
    def cap(self) -> Cap | None:
        """What one unit may do with it, at most; None where that is not limited by a number."""
        return None

    @property
    def waits(self) -> int:
        """Rounds before it answers, where it ever does."""
        return 0

    def rows(self, plan: Plan) -> list[tuple[str, str]]:
        """What `print(plan)` says of it: a name and a value each."""
        return [(self.kind, "a part of this plan")]

    def sentences(self, plan: Plan) -> list[str]:
        """What `plan.explain()` says of it."""
        return []

    def warnings(self, plan: Plan) -> list[str]:
        """What to think twice about, a sentence each with what to do."""
        return []

    def certified(self, plan: Plan) -> str:
        """What `confide verify` says of it."""
        return self.kind


def price_of(parts: Sequence[Part]) -> Price:
    """What parts cost together; ValueError where they do not protect the same thing, or there are none."""
    if not parts:
        raise ValueError("a plan without parts answers nothing private: give it one, or use the fallback by itself")
    if len({part.protects for part in parts}) != 1:
        raise ValueError("one part protects rows, another labels alone: their prices do not add up, so plan them apart")
    total = parts[0].price()
    for part in parts[1:]:
        total = total.plus(part.price())
    return total


def read_part(body: dict[str, Any]) -> Part:
    """The part that a file holds; ValueError for a kind that nobody has registered."""
    params = dict(body)
    kind = params.pop("part")
    if not isinstance(kind, str) or kind not in _kinds:
        raise ValueError("this plan has a part that this Confide does not know: import what defines it")
    return _kinds[kind].from_params(params)
