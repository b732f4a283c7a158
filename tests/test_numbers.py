"""Every number of a plan is Python's own after construction, whatever kind it was given as.

NumPy's integers wrap: a certificate that multiplies them may come out small.
"""

from __future__ import annotations

import importlib
import json
import math
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

import confide
import confide.planning
import confide.privacy
from confide._checks import Numbers
from confide.planning.agnostic import AgnosticBound
from confide.planning.guarantee import Guarantee
from confide.planning.guided import GuidePlan
from confide.planning.mistakes import Certificate, Rates
from confide.planning.plan import Plan
from confide.privacy.gate import Gate
from confide.privacy.halting import Halting
from confide.privacy.lean import Lean
from confide.privacy.renyi import compose, epsilon_from_renyi, group
from confide.privacy.sparse import CounterBudget
from confide.privacy.sums import divergence
from confide.privacy.weigh import Weights

pytestmark = pytest.mark.claim("halting.md", "guide.md", "certificate.md", "paper-plan.md")

WHOLE = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.intp, np.longlong]
REAL = [np.float16, np.float32, np.float64, np.longdouble, *WHOLE]
ODD = [True, np.True_, "2", b"2", 2.0, np.float64(2), None, (2,), [2], np.array([2]), 2 + 0j, math.nan, Fraction(5, 2)]
GUIDE = GuidePlan.best(epsilon=1.0, delta=1e-6, rounds=100_000)


@cache
def tables() -> Plan:
    return Plan.tight(4.0, 1e-5, 2000, polls=31, copies=300, unsure=40, guide=None)


@cache
def paper() -> Plan:
    return Plan.paper(5000.0, 0.1, 200_000)


def made() -> dict[str, Any]:
    """One of each kind of thing whose numbers are promises."""
    gate = Gate.best(order=12, cost=0.007)
    return {
        "guide": GUIDE,
        "promise": tables().promise,
        "copies": tables().voters,
        "the paper's": paper().voters,
        "certified": Plan.certified(16.0, 1e-2, 10_000, 1, copies=120),
        "guarantee": Guarantee(1.0, 1e-6, 1, unit_labels=2),
        "certificate": Certificate(10.0, 20, 0.5, 0.25),
        "counter": paper().halting,
        "lean": Lean.fill(order=12, cost=0.01, margins=40, offsets=5),
        "weights": Weights.beside(gate, order=12, cost=0.003),
        "agnostic": AgnosticBound(1000, 20, 10, 2.0, 3.0, 0.5, Rates(0.5, 1.0, 0.25, 2.0)),
    }


def same(value: Any, kind: Callable[[Any], Any]) -> Any:
    """The number as that kind; None where it does not hold it."""
    try:
        with np.errstate(all="ignore"):
            other = kind(value)
        return other if other.item() == value and float(other) == float(value) else None
    except (OverflowError, TypeError, ValueError):
        return None


@pytest.mark.parametrize("name", list(made()))
def test_every_number_is_pythons_own_whatever_it_was_given_as(name: str) -> None:
    thing = made()[name]
    tried = 0
    for each in fields(thing):
        value = getattr(thing, each.name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        for kind in WHOLE if isinstance(value, int) else REAL:
            given = same(value, kind)
            if given is not None:
                again = replace(thing, **{each.name: given})
                assert type(getattr(again, each.name)) is type(value), f"{each.name} as {kind.__name__}"
                assert getattr(again, each.name) == value
                tried += 1
    assert tried >= 2


@pytest.mark.parametrize("name", list(made()))
def test_what_is_no_number_is_refused_by_name(name: str) -> None:
    thing = made()[name]
    for each in fields(thing):
        if each.type not in ("int", "float"):
            continue
        for odd in ODD:
            if each.type == "float" and not isinstance(odd, bool | np.bool_) and odd in (2.0, Fraction(5, 2)):
                continue
            with pytest.raises(ValueError, match=each.name):
                replace(thing, **{each.name: odd})


def classes() -> Iterator[type]:
    """Every dataclass of the two folders that promise."""
    for package in (confide.planning, confide.privacy):
        for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            if found.name.endswith("pictures"):
                continue
            for thing in vars(importlib.import_module(found.name)).values():
                if isinstance(thing, type) and is_dataclass(thing) and thing.__module__ == found.name:
                    yield thing


def test_every_class_of_numbers_checks_them_in_the_one_place() -> None:
    found = list(classes())
    assert {GuidePlan, Plan, Guarantee, Certificate, CounterBudget, Lean, Weights} <= set(found)
    for kind in found:
        assert issubclass(kind, Numbers), f"{kind.__module__}.{kind.__name__}: its numbers may be NumPy's"


@pytest.mark.parametrize("kind", WHOLE)
def test_numpys_integers_do_not_wrap_in_a_certificate(kind: Any) -> None:
    """ε = 0.48 was stated where 1.0 is true, and a guide with hardly any noise was believed."""
    asked = {"epsilon": 1.0, "delta": 1e-6, "rounds": 50_000, "units": "people"}
    assert Plan.tight(**asked, unit_labels=kind(2)) == Plan.tight(**asked, unit_labels=2)  # type: ignore[arg-type]
    clip = same(1 << 15, kind)
    if clip is not None:
        assert replace(GUIDE, clip=clip, sigma2=1).mu2 == replace(GUIDE, clip=1 << 15, sigma2=1).mu2 > 1e9
    plan = Plan.tight(1.0, 1e-6, 50_000, units="people", unit_labels=2)
    assert plan.guide is not None
    with pytest.raises(ValueError, match="do not run"):
        plan.but(guide=replace(plan.guide, unit_labels=kind(2), sigma2=1)).verify()


@pytest.mark.parametrize("kind", WHOLE)
def test_costs_are_the_same_for_every_kind_of_integer(kind: Any) -> None:
    plan = tables()
    assert isinstance(plan.gate, Gate) and isinstance(plan.halting, Halting)
    order = kind(plan.order)
    gate = Gate.best(order=plan.order, cost=0.007)
    assert gate.cost(order=order) == gate.cost(order=plan.order)
    assert plan.halting.cost(order=order) == plan.halting.cost(order=plan.order)
    assert type(Halting(plan.halting.go, kind(1)).shift) is int
    lean, weights = made()["lean"], made()["weights"]
    assert lean.cost(order=order) == lean.cost(order=plan.order)
    assert weights.cost(gate, order=order) == weights.cost(gate, order=plan.order)
    assert divergence(order, Fraction(4000)) == divergence(int(order), Fraction(4000))
    assert epsilon_from_renyi(0.5, order, 1e-6) == epsilon_from_renyi(0.5, plan.order, 1e-6)
    assert compose(0.1, 1e-9, kind(100), 1e-6) == compose(0.1, 1e-9, 100, 1e-6)
    assert group(0.1, 1e-9, kind(100)) == group(0.1, 1e-9, 100)


@pytest.mark.parametrize("kind", [np.int16, np.int32, np.int64, np.uint16, np.uint32, np.uint64])
def test_a_plan_asked_for_in_numpys_integers_is_the_same_plan(kind: Any) -> None:
    numbers = {"rounds": 2000, "copies": 300, "unsure": 40, "polls": 31, "silent": 800}
    one = Plan.tight(4.0, 1e-5, guide=None, **numbers)  # type: ignore[arg-type]
    two = Plan.tight(4.0, 1e-5, guide=None, **{name: kind(number) for name, number in numbers.items()})
    assert one.to_json() == two.to_json()


# --- files: any value of JSON in any place


NUMBERS = [True, False, -1, 0, 2, 2.5, 1e308, math.nan, math.inf, -math.inf, 10**400]
VALUES: list[Any] = [None, *NUMBERS, "2", "nan", "", "é", "-1", "1_0", " 2", [], {}, [[]]]


def places(body: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a file, of a long list the first two and the last."""
    inside = list(body.items()) if isinstance(body, dict) else list(enumerate(body)) if isinstance(body, list) else []
    for key, value in inside if len(inside) < 20 or isinstance(body, dict) else [*inside[:2], inside[-1]]:
        if key in ("notes", "hypotheses"):  # words; what is assumed is not read from the file
            continue
        yield (*path, key)
        yield from places(value, (*path, key))


def put(body: Any, path: tuple[Any, ...], value: Any) -> str:
    """The file with this value at that place."""
    here = body = json.loads(body)
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = value
    return json.dumps(body)


@cache
def guided() -> Plan:
    return Plan.tight(8.0, 1e-4, 3000, polls=15, copies=400, unsure=200, labels=3, lean="additive", guide=0.3)


@cache
def filled() -> Plan:
    return Plan.tight(8.0, 1e-4, 3000, polls=15, copies=400, unsure=200, lean="fill", guide=0.3)


@cache
def alone() -> Plan:
    return Plan.tight(8.0, 1e-4, 3000, guide=1.0)


@pytest.mark.parametrize("plan", [tables, paper, guided, filled, alone])
def test_whatever_stands_in_a_file_it_is_refused_or_the_plan_is_certified_anew(plan: Callable[[], Plan]) -> None:
    """A reader may only refuse with ValueError; what is read is what is written again, number by number."""
    text = plan().to_json()
    for path in places(json.loads(text)):
        for value in VALUES:
            try:
                read = Plan.from_json(put(text, path, value))
            except ValueError:
                continue
            said = json.loads(read.to_json())
            for key in path:
                said = said[key]
            assert said == value, path
            assert isinstance(value, bool) is isinstance(said, bool) and isinstance(value, str) is isinstance(said, str)
            assert read.verify().epsilon <= read.guarantee.epsilon
