"""What a planner says to a user: refusals in the words of the arguments, with what works; warnings where it is odd."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from confide import POP, Monitor
from confide.planning import arguments, tight
from confide.planning.agnostic import agnostic_plan
from confide.planning.mistakes import Certificate
from confide.planning.plan import BETA, MISTAKE_BETA, Guarantee, Plan

pytestmark = pytest.mark.claim("certificate.md", "monitor.md")

INTERNAL = r"\b(start|tie_sure|survive|nats|cost|margins|poll_fraction|split|Rényi|order|bad events)\b"
"""Words of the planner's inside, which a user never gave."""


def phases(**asked: Any) -> Any:
    return agnostic_plan(**{"factor": 1.0, "extra": 1.0, **asked})


def copies(**asked: Any) -> Plan:
    return Plan.tight(**asked, guide=None)


REFUSED: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (copies, {"rounds": 99_999_999, "beta": 1e-6}),
    (copies, {"rounds": 10**12}),
    (copies, {"rounds": 10**15}),
    (copies, {"beta": 1e-9}),
    (copies, {"delta": 1e-20}),
    (copies, {"delta": 1e-300}),
    (copies, {"epsilon": 1e-5}),
    (copies, {"epsilon": 1e-12}),
    (copies, {"epsilon": 501.0}),
    (copies, {"polls": 1}),
    (copies, {"copies": 5}),
    (copies, {"unsure": 900_000}),
    (Plan.certified, {"mistakes": 1_000_000}),
    (Plan.certified, {"mistakes": 1, "rounds": 10**12}),
    (Plan.certified, {"mistakes": 1, "rounds": 1000}),
    (Plan.certified, {"mistakes": 1, "beta": 1e-9}),
    (Plan.certified, {"mistakes": 1, "epsilon": 501.0}),
    (Plan.certified, {"mistakes": 1, "epsilon": 266.0, "delta": 1e-235}),
    (Plan.certified, {"mistakes": 1, "copies": 3}),
    (Plan.certified, {"mistakes": 1, "fallback_error": 1.5}),
    (Plan.paper, {"mistakes": 1_000_000}),
    (Plan.paper, {"epsilon": 0.001, "delta": 1e-3, "rounds": 5000, "copies": 400, "unsure": 100}),
    (Plan.paper, {"epsilon": 1e-4, "delta": 1e-100}),
    (phases, {"epsilon": -1.0}),
    (phases, {"rounds": 1000}),
    (phases, {"rounds": 10**13}),
    (phases, {"copies": 2}),
    (Plan.tight, {"rounds": 10**12}),
    (Plan.tight, {"epsilon": 1e-5}),
    (Plan.tight, {"epsilon": 0.1, "rounds": 1000}),
    (Plan.tight, {"delta": 1e-300, "epsilon": 1e-3}),
    (Plan.tight, {"guide": 1.0, "copies": 100}),
    (Plan.tight, {"guide": 1.5}),
    (Plan.tight, {"copies": 5}),
]


def refusal(make: Callable[..., Any], asked: dict[str, Any]) -> str:
    with pytest.raises(ValueError) as caught:
        make(**{"epsilon": 1.0, "delta": 1e-6, "rounds": 1_000_000, **asked})
    return str(caught.value)


@pytest.mark.parametrize(("make", "asked"), REFUSED, ids=lambda value: getattr(value, "__name__", str(value)))
def test_a_refusal_speaks_of_the_arguments(make: Callable[..., Any], asked: dict[str, Any]) -> None:
    said = refusal(make, asked)
    assert not re.search(INTERNAL, said), said
    assert "\n" not in said and len(said) < 400
    assert any(f"{name}=" in said for name in ("epsilon", "delta", "beta", "rounds", "copies", "polls", *asked)), said
    assert re.search(r"\b(can|ask|plan|leave|give|must|in reach)\b", said), said


def offers(said: str) -> list[dict[str, float]]:
    """Each argument that a refusal says would do."""
    found = re.findall(r"\b(epsilon|delta|beta|rounds|copies|polls|mistakes)=([\d.e+-]+\d|\d)", said.split(";")[-1])
    return [{name: float(value) if name in ("epsilon", "delta", "beta") else int(value)} for name, value in found]


@pytest.mark.parametrize(
    ("make", "asked"),
    [
        (copies, {"rounds": 99_999_999, "beta": 1e-6}),
        (copies, {"delta": 1e-20}),
        (copies, {"polls": 3}),
        (Plan.certified, {"mistakes": 1, "rounds": 1000}),
        (Plan.certified, {"mistakes": 1, "epsilon": 16.0, "rounds": 10**12}),
        (Plan.certified, {"mistakes": 1000, "epsilon": 16.0, "rounds": 20_000}),
        (Plan.certified, {"mistakes": 1, "epsilon": 16.0, "delta": 1e-17, "rounds": 10_000}),
        (Plan.tight, {"epsilon": 0.1, "rounds": 1000}),
        (Plan.tight, {"epsilon": 1e-5, "guide": 1.0}),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_what_a_refusal_offers_works(make: Callable[..., Plan], asked: dict[str, Any]) -> None:
    said = refusal(make, asked)
    found = offers(said)
    assert found, said
    for offer in found:
        plan = make(**{"epsilon": 1.0, "delta": 1e-6, "rounds": 1_000_000, **asked, **offer})
        assert plan.verify() == plan.guarantee


@pytest.mark.parametrize("epsilon", [-1, 0, math.nan, "1", None, True])
@pytest.mark.parametrize("make", [Plan.tight, Plan.paper, lambda **asked: Plan.certified(mistakes=1, **asked), phases])
def test_an_epsilon_that_is_none_is_refused_as_such(make: Callable[..., Any], epsilon: Any) -> None:
    assert refusal(make, {"epsilon": epsilon}).startswith(f"epsilon={epsilon} must be a positive number")


def test_planning_loads_no_heavy_package() -> None:
    """`confide verify` is to answer at once."""
    loaded = "{'scipy.stats', 'scipy.optimize', 'matplotlib'} & {*sys.modules}"
    heavy = f"import sys, confide.planning.frontier; print({loaded})"
    assert subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True).stdout == "set()\n"


# --- one promise, one plan


def test_one_beta_for_everybody() -> None:
    """The default is a public constant, so that nothing else plans with another one."""
    assert tight.BETA is BETA is arguments.BETA == 0.01 and MISTAKE_BETA == 0.05
    asked = {"epsilon": 8.0, "delta": 1e-4, "rounds": 30_000}
    assert Plan.tight(**asked, guide=None) == Plan.tight(**asked, beta=BETA, guide=None)  # type: ignore[arg-type]
    chosen = Plan.tight(**asked, guide=None)  # type: ignore[arg-type]
    given = {name: getattr(chosen, name) for name in ("copies", "polls", "unsure", "silent")}
    assert Plan.tight(**asked, **given, guide=None) == chosen  # type: ignore[arg-type]


# --- warnings


def test_copies_that_learn_nothing_are_warned_of() -> None:
    plan = Plan.tight(1.0, 1e-6, 1_000_000, copies=1_000_000_000, guide=None)
    assert any("copies=1,000,000,000" in line and "fewer copies" in line for line in plan.warnings)
    assert "about 0 labels" not in str(plan) and "less than one label" in str(plan)
    assert all(f"! {line}" in str(plan) for line in plan.warnings)
    assert Plan.from_json(plan.to_json()).warnings == plan.warnings


def test_many_polls_are_warned_of() -> None:
    plan = Plan.tight(8.0, 1e-6, 1_000_000, polls=20_000, copies=20_000, guide=None)
    assert any("polls=20,000" in line for line in plan.warnings)


def test_a_promise_that_is_none_is_warned_of_and_an_ordinary_plan_is_not() -> None:
    assert any("epsilon=" in line for line in Plan.tight(40.0, 1e-6, 10_000, copies=160, guide=None).warnings)
    assert "delta=0.01: nothing is promised" in Plan.tight(8.0, 0.01, 30_000, guide=1.0).warnings[0]
    for plan in (Plan.tight, Plan.certified, Plan.paper):
        with pytest.raises(ValueError, match=r"delta=0\.5 promises nothing"):
            plan(8.0, 0.5, 30_000, mistakes=1) if plan != Plan.tight else plan(8.0, 0.5, 30_000)
    ordinary = Plan.tight(8.0, 1e-4, 30_000, guide=None)
    assert ordinary.warnings == () and "!" not in str(ordinary)


def test_a_weak_promise_is_planned_without_a_warning_of_numpys() -> None:
    """Where h came to 1 in doubles, its logarithm was asked for."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for copies in (60, 160):
            assert Plan.tight(40.0, 1e-6, 10_000, copies=copies, beta=1e-6, guide=None).guarantee.epsilon <= 40.0


# --- sums, and what a certificate counts with


def test_a_guarantee_is_added_to_upwards() -> None:
    rounded_down = 0
    for i in range(1, 200):
        for extra in (0.1, 0.3, 1e-17, i / 7):
            base = Guarantee(i / 13, 1e-6, 3, secure=False)
            total = base.plus(extra)
            exact = Fraction(base.epsilon) + Fraction(extra)
            assert Fraction(total.epsilon) >= exact > Fraction(math.nextafter(total.epsilon, 0.0))
            assert (total.delta, total.unit_unsure, total.secure) == (1e-6, 3, False)
            rounded_down += Fraction(base.epsilon + extra) < exact
    assert rounded_down > 100  # the plain sum would have promised too much so often
    assert Guarantee(1.0, 1e-6).plus(0.0) == Guarantee(1.0, 1e-6)
    for bad in (-0.1, math.nan, math.inf):
        with pytest.raises(ValueError):
            Guarantee(1.0, 1e-6).plus(bad)


def test_a_certificate_says_which_fallback_it_counts_with() -> None:
    coin = Plan.certified(8.0, 1e-4, 100_000, 1, copies=600).certificate
    any_ = Plan.certified(8.0, 1e-4, 100_000, 1, copies=600, fallback_error=1.0)
    three = Plan.certified(8.0, 1e-4, 100_000, 1, copies=600, labels=3)
    assert coin is not None and any_.certificate is not None and three.certificate is not None
    assert coin.fallback_error == 0.5 and any("fallback" in line for line in coin.hypotheses)
    assert coin.covers("coin", 2) and not coin.covers("coin", 3) and not coin.covers("constant", 2)
    assert any_.certificate.covers("constant", 2) and any_.certificate.covers("model", 9)
    assert three.certificate.covers("coin", 3) and three.certificate.covers("coin", 2)
    assert "any fallback" in str(any_) and "a coin as fallback" in str(three)
    assert not Certificate(1.0, 1, 0.1, 0.1, fallback_error=0.2).covers("coin", 2)


def test_the_sentence_is_about_who_is_protected_and_what_there_is() -> None:
    """A round is no person, and where there are no copies there is no unsure answer to receive."""
    asked = {"epsilon": 2.0, "delta": 1e-6, "rounds": 20_000}
    rounds = Plan.tight(**asked, units="rounds").guarantee.sentence  # type: ignore[arg-type]
    people = Plan.tight(**asked, units="people", unit_labels=4).guarantee.sentence  # type: ignore[arg-type]
    either = Plan.tight(**asked).guarantee.sentence  # type: ignore[arg-type]
    assert "a single round" in rounds and "person" not in rounds and "unsure" not in rounds
    assert "one person, who teaches the guide at most 4 labels, told" in people and "round" not in people
    assert "a single round, or a person who teaches the guide at most 1 label)" in either and "unsure" not in either
    both = Plan.tight(8.0, 1e-5, 30_000, copies=900, unsure=900, polls=101, units="people")
    assert "receives at most 1 unsure answer, and teaches the guide" in both.guarantee.sentence
    assert Plan.from_json(both.to_json()).guarantee.sentence == both.guarantee.sentence
    assert both.verify().sentence == both.guarantee.sentence


def test_a_pops_sentence_is_about_its_units() -> None:
    plan = Plan.tight(2.0, 1e-6, 500)
    assert "one person, who teaches" in POP(None, plan, labels=[0, 1], units="people", features=1).guarantee.sentence
    assert "person" not in POP(None, plan, labels=[0, 1], features=1, monitor=Monitor(0.1)).guarantee.sentence


def test_too_many_labels_are_refused_with_what_to_plan() -> None:
    plan = Plan.tight(2.0, 1e-6, 2000)
    with pytest.raises(ValueError, match=r"make the plan with labels=5$"):
        POP(None, plan, labels=["a", "b", "c", "d", "e"], features=1)
    with pytest.raises(ValueError, match=r"different from each other"):
        POP(None, plan, labels=["a", "a"], features=1)
