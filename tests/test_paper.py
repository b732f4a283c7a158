"""The paper's own plan: its constants, what it refuses, what it truly promises, and that it runs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from confide import POP
from confide.banks import TallyBank
from confide.learners import LogisticRegression, Points
from confide.planning import paper
from confide.planning.plan import Plan
from confide.privacy.counters import TreeCounter, tree_error
from confide.privacy.gate import Gate
from confide.privacy.random import Random
from confide.privacy.renyi import epsilon_from_renyi
from confide.privacy.sparse import AboveThreshold, ChallengeAT, CounterBudget, smallest_scale, threshold_cost
from tests.forging import changed, flat

pytestmark = pytest.mark.claim("paper-plan.md")

MILLION = 1_000_000


@pytest.fixture(scope="module", autouse=True)
def remembered() -> Iterator[None]:
    """One search for each promise: the search depends on nothing else, and plans ask for the same one many times."""

    @cache
    def found(**asked: Any) -> tuple[float, int]:
        return smallest_scale(lambda s, a: threshold_cost(s, order=a), **asked)

    patch = pytest.MonkeyPatch()
    patch.setattr(paper, "smallest_scale", lambda cost, **asked: found(**asked))
    yield
    patch.undo()


def refusal(make: Callable[..., Any], *args: Any, **asked: Any) -> str:
    with pytest.raises(ValueError) as caught:
        make(*args, **asked)
    return str(caught.value)


def named_copies(said: str) -> int:
    offer = re.search(r"\bcopies=([\d,]*\d)", said.split(";")[-1])
    assert offer is not None, said
    return int(offer[1].replace(",", ""))


def budget_of(plan: Plan) -> CounterBudget:
    assert isinstance(plan.halting, CounterBudget)
    return plan.halting


@pytest.fixture(scope="module")
def running() -> Plan:
    """A size that runs."""
    return Plan.paper(30.0, 1e-3, 5000, copies=400, unsure=100)


# --- constants


@pytest.mark.parametrize(
    ("copies", "mistakes", "beta"), [(1, 1, 0.5), (1000, 1, 0.05), (777, 3, 1e-6), (10**8, 2, 0.01)]
)
def test_the_reports_solve_the_coin_game(copies: int, mistakes: int, beta: float) -> None:
    """18(dk+1) + 6·ln(1/β) + dk, and neither the paper's ln(1/β) nor without the dk rounds of the chosen copy."""
    dk = copies * mistakes
    assert paper.reports(copies, mistakes, beta) == math.ceil(18 * (dk + 1) + 6 * math.log(1 / beta) + dk)


def test_the_counter_of_the_theory() -> None:
    """λ_β ≈ 3016 at β_c = 0.01 and λ_δ ≈ 4187 at δ_λ = 5·10⁻⁸, for T = 10⁶, ε_c = 0.3, r = 1000."""
    counter = CounterBudget.make(epsilon=0.3, rounds=MILLION, unsure=1000, beta=0.01, delta=5e-8)
    assert counter.late == pytest.approx(3016, rel=1e-3)
    assert counter.over == pytest.approx(4187, rel=2e-3)
    assert counter.limit == math.ceil(1000 + counter.late)
    assert 0 <= counter.visible - (1000 + counter.late + counter.over) < 2
    assert float(counter.scale) == pytest.approx(20 / 0.3, rel=1e-6)
    assert counter.scale >= Fraction(20) / Fraction(0.3)
    hidden = CounterBudget.make(epsilon=0.3, rounds=MILLION, unsure=1000, beta=0.01, delta=5e-8, shift=2)
    assert hidden.scale >= 2 * Fraction(20) / Fraction(0.3)


def test_the_scale_of_the_theory() -> None:
    """γ ≈ 816 for N = 8204 reports within ε_gate = 0.7, and a plan's own split is not far from it."""
    scale, _ = smallest_scale(lambda s, a: threshold_cost(s, order=a), epsilon=0.7, delta=0.95e-6, reports=8204)
    assert scale == pytest.approx(816, rel=0.05)
    size = paper.size(paper.PaperRequest(1.0, 1e-6, MILLION, 1, 0.03, copies=100_000, unsure=1000, counter_share=0.3))
    assert size.counter.late == pytest.approx(3016, rel=1e-3)  # β_c = β/3
    assert size.scale == pytest.approx(scale, rel=0.05)


def test_the_paper_read_literally_needs_millions_of_copies() -> None:
    size = paper.size(paper.PaperRequest(1.0, 1e-6, MILLION, 1))
    assert 1e7 <= size.copies <= 1e10
    assert size.literal <= size.copies <= 1.02 * size.literal
    assert size.literal == pytest.approx(20 * size.scale * math.log(3 * MILLION / 0.05), rel=1e-6)
    assert size.unsure == paper.reports(size.copies, 1, 0.05 / 3)
    said = refusal(Plan.paper, 1.0, 1e-6, MILLION, mistakes=10)
    assert "copies=" in said and "unsure=" in said and "Plan.tight" in said


def test_the_plan_of_millions_of_copies_is_certified_and_written_without_a_table_of_them() -> None:
    """(4, 10⁻⁶), 10⁹ rounds: 1.8·10⁷ copies, and a bound below 0.4 × the rounds."""
    plan = Plan.paper(4.0, 1e-6, 10**9)
    assert 1.7e7 < plan.copies < 1.9e7 and plan.guarantee.epsilon <= 4
    assert plan.certificate is not None and plan.certificate.mistakes <= 0.4 * plan.rounds
    text = plan.to_json()
    assert len(text) < 3000 and Plan.from_json(text) == plan and f"{plan.certificate.mistakes:,}" in str(plan)
    laplace = flat(plan)["gate"]
    for change in ({"laplace_scale": 0.9}, {"laplace_quarters": 0.05}):
        name, factor = next(iter(change.items()))
        value = type(laplace[name])(laplace[name] * factor)
        refusal(Plan.from_json, changed(plan, gate={**laplace, name: value}))
    for nonsense in (math.nan, -1.0, 1e30, "1"):
        refusal(Plan.from_json, changed(plan, gate={**laplace, "laplace_scale": nonsense}))


def test_the_paper_runs_with_its_millions_of_copies() -> None:
    """Nobody errs before they are taught, and one who was taught is one of 1.8·10⁷."""
    plan = Plan.paper(4.0, 1e-6, 10**9)
    bank = TallyBank(Points(), plan.copies, points=10)
    pop = POP(Points(), plan, labels=[0, 1], features=1, seed=6, bank=bank)
    xs = np.full((2000, 1), 4.0)
    found = pop.follow_many(xs, np.ones(2000, dtype=np.int64))
    assert found.sure.all() and not found.answers.any()
    assert plan.copies - found.margins[-1] == 2 * len({*bank.state()["taught"].tolist()}) - 2  # type: ignore[union-attr]


def test_the_counters_share_is_optimised() -> None:
    def scale(share: float | None) -> float:
        return paper.size(paper.PaperRequest(30.0, 1e-3, 5000, 1, copies=400, unsure=100, counter_share=share)).scale

    assert scale(None) <= min(scale(share) for share in (0.02, 0.1, 0.2, 0.4)) * 1.01


# --- the true promise


@pytest.mark.parametrize(
    "asked",
    [
        {"epsilon": 30.0, "delta": 1e-3, "rounds": 5000, "copies": 400, "unsure": 100},
        {"epsilon": 8.0, "delta": 1e-4, "rounds": 5000, "copies": 2000, "unsure": 100, "labels": 5},
        {"epsilon": 100.0, "delta": 1e-2, "rounds": 5000, "copies": 250, "unsure": 400, "counter_share": 0.3},
        {"epsilon": 1.0, "delta": 1e-6, "rounds": MILLION, "copies": 100_000, "unsure": 1000},
    ],
)
def test_a_plan_keeps_what_is_asked(asked: dict[str, Any]) -> None:
    """ε_gate + ε_c and δ' + N·x + δ_λ, from the shipped table and the counter's numbers alone."""
    plan = Plan.paper(**asked)
    counter, guarantee = budget_of(plan), plan.guarantee
    assert guarantee.delta == asked["delta"] and 0.9 * asked["epsilon"] <= guarantee.epsilon <= asked["epsilon"]
    assert plan.kind == "paper" and plan.polls == plan.copies == asked["copies"] and plan.unsure == asked["unsure"]
    assert plan.silent == 0 and plan.unit_unsure == 1 and plan.labels == asked.get("labels", 2)
    assert counter.scale * Fraction(counter.epsilon) >= asked["rounds"].bit_length()  # L = ⌊log₂T⌋ + 1
    assert counter.over >= tree_error(asked["rounds"], counter.scale, guarantee.delta / 4)
    ties = counter.visible * plan.gate.tie_sure
    assert ties <= guarantee.delta / 4
    total = counter.visible * plan.gate.cost(order=plan.order)
    found = epsilon_from_renyi(total, plan.order, guarantee.delta * 3 / 4 - ties) + counter.epsilon
    assert guarantee.epsilon == pytest.approx(found, rel=1e-9)
    assert plan.verify().epsilon == guarantee.epsilon
    if "counter_share" in asked:
        assert counter.epsilon == asked["epsilon"] * asked["counter_share"]


def test_the_table_is_laplace_noise_around_a_quarter_of_the_copies(running: Plan) -> None:
    said = re.search(r"γ = ([\d.,]+\d)", " ".join(running.notes))
    assert said is not None
    gamma = float(said[1].replace(",", ""))
    margin = np.array([0, 100, 180, 200, 220, 260])
    distance = (margin / 2 - running.copies / 4) / gamma
    unsure = np.where(distance > 0, 0.5 * np.exp(-np.abs(distance)), 1 - 0.5 * np.exp(-np.abs(distance)))
    assert running.gate.table[margin] == pytest.approx(unsure, rel=0.05)
    assert running.gate.table[running.copies // 2] == pytest.approx(0.5)


# --- refusals


@pytest.mark.parametrize(
    "asked",
    [
        {"epsilon": 30.0, "delta": 1e-3, "rounds": 5000, "unsure": 100},
        {"epsilon": 1.0, "delta": 1e-6, "rounds": MILLION, "unsure": 1000},
        {"epsilon": 30.0, "delta": 1e-3, "rounds": 5000},
        {"epsilon": 200.0, "delta": 1e-2, "rounds": 20_000, "mistakes": 2},
    ],
    ids=str,
)
def test_too_few_copies_leak_and_the_number_named_does_not(asked: dict[str, Any]) -> None:
    said = refusal(Plan.paper, **asked, copies=10)
    assert "copies=10" in said and "leak" in said
    plan = Plan.paper(**asked, copies=named_copies(said))
    assert plan.guarantee.epsilon <= asked["epsilon"]
    assert budget_of(plan).visible * plan.gate.tie_sure <= plan.guarantee.delta


@pytest.mark.parametrize(("epsilon", "delta", "rounds", "unsure"), [(30.0, 1e-3, 5000, 100), (8.0, 1e-4, 5000, 100)])
def test_the_fewest_copies_are_named(epsilon: float, delta: float, rounds: int, unsure: int) -> None:
    """Fewer than the number named are refused because they leak, not to be on the safe side."""
    enough = named_copies(refusal(Plan.paper, epsilon, delta, rounds, unsure=unsure, copies=10))
    size = paper.size(paper.PaperRequest(epsilon, delta, rounds, 1, copies=enough, unsure=unsure))
    fewer = math.floor(enough * 0.98)
    gate = Gate.laplace(scale=size.scale, threshold=fewer / 4)
    try:
        got = paper.recertify(gate, size.counter, order=size.order, delta=delta, rounds=rounds)
    except ValueError:
        return
    assert got > epsilon, f"{fewer} copies keep the promise too"


def test_a_small_k_truly_leaks(running: Plan) -> None:
    """The paper's POP with k = 20 at this noise: a near-tie shows its majority far more often than δ allows."""
    gate = Gate.laplace(scale=6.0, threshold=5)
    assert budget_of(running).visible * gate.tie_sure > 1
    with pytest.raises(ValueError, match="bad events alone"):
        running.but(gate=gate).verify()


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, math.nan, math.inf])
def test_a_counter_share_that_is_none_is_refused(share: float) -> None:
    assert "counter_share" in refusal(Plan.paper, 30.0, 1e-3, 5000, copies=400, unsure=100, counter_share=share)


# --- the mistake bound


def test_the_certificate_is_given_where_the_paper_proves_it() -> None:
    few = Plan.paper(5000.0, 0.1, 200_000, copies=2000)
    assert few.certificate is None and "no mistake certificate" in str(few)
    full = Plan.paper(5000.0, 0.1, 200_000)
    stated = full.certificate
    assert stated is not None and full.copies > 2000 and full.unsure == paper.reports(full.copies, 1, 0.05 / 3)
    assert stated.mistakes <= full.unsure < 200_000 and stated.early_halt <= stated.beta == 0.05
    assert stated.mistakes <= stated.expected_mistakes <= stated.mistakes + 0.05 * 200_000
    assert any("k ≥ 20·γ·ln(T/β)" in line for line in stated.hypotheses)
    assert f"{stated.mistakes:,}" in str(full)
    unsure = Plan.paper(5000.0, 0.1, 200_000, copies=full.copies, unsure=full.unsure // 2)
    assert unsure.certificate is None


def test_what_is_printed_of_the_halt_is_true(running: Plan) -> None:
    """The paper's run halts by a noisy count: it may go on past the limit, and nothing is certain about it."""
    assert "for certain" not in str(running)


# --- JSON


def test_a_plan_comes_back_from_json(running: Plan) -> None:
    back = Plan.from_json(running.to_json())
    assert back == running and back.halting == running.halting and str(back) == str(running)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("over", 0.0),
        ("over", -1e9),
        ("over", math.nan),
        ("late", math.nan),
        ("late", 1e9),
        ("unsure", 100_000),
        ("scale", "1"),
        ("scale", "1/0"),
        ("scale", "0"),
        ("scale", "nonsense"),
        ("counter_epsilon", 1.0),
        ("counter_epsilon", 29.0),
        ("counter_epsilon", -1.0),
        ("counter_epsilon", math.nan),
    ],
)
def test_a_changed_counter_is_refused(running: Plan, name: str, value: Any) -> None:
    halting = {**flat(running)["halting"], name: value}
    refusal(Plan.from_json, changed(running, halting=halting))


@pytest.mark.parametrize(
    "change",
    [
        {"rounds": 10**9},
        {"unit_unsure": 2},
        {"order": 40},
        {"guarantee": {"epsilon": 20.0, "delta": 1e-3}},
        {"guarantee": {"epsilon": 30.0, "delta": 1e-6}},
        {"gate": {"sure": [["0", 3], [str(2**63), 500]]}},
    ],
    ids=str,
)
def test_claims_beyond_the_table_are_refused(running: Plan, change: dict[str, Any]) -> None:
    refusal(Plan.from_json, changed(running, **change))


# --- end to end


def play(asks: Callable[[int], bool], copies: int, rounds: int, seed: int) -> tuple[int, int]:
    """(mistakes, reports) when every label is 1 and a copy says 0 until it is taught: d = 1.

    `asks` is the mechanism: whether so many dissenting copies are reported; a report is answered by a coin.
    """
    coins, know, mistakes, reports = np.random.default_rng(seed).random((rounds, 2)), 0, 0, 0
    for coin, chosen in coins.tolist():
        if asks(min(know, copies - know)):
            reports += 1
            mistakes += coin < 0.5
        else:
            mistakes += know < copies - know
        know += chosen < (copies - know) / copies
    return mistakes, reports


def test_the_papers_pop_runs_with_its_challenge_at() -> None:
    """200 000 rounds at k = 20·γ·ln(T/β): it does not halt, and the mistake bound holds by far."""
    rounds = 200_000
    size = paper.size(paper.PaperRequest(5000.0, 0.1, rounds, 1))
    mechanism = ChallengeAT(
        epsilon=5000.0,
        delta=0.1,
        threshold=math.ceil(size.copies / 4),
        reports=size.unsure,
        rounds=rounds,
        beta=0.05 / 3,
        counter_share=0.02,
        rng=Random(seed=1),
    )
    assert 20 * mechanism.scale * math.log(rounds / 0.05) <= size.copies * 1.05
    mistakes, reports = play(mechanism.query, size.copies, rounds, seed=1)
    assert not mechanism.halted and 0.1 * size.copies < reports <= size.unsure
    assert 0 < mistakes <= paper.reports(size.copies, 1, 0.05 / 3)


def test_the_plans_own_table_and_counter_run() -> None:
    rounds = 20_000
    plan = Plan.paper(5000.0, 0.1, rounds, copies=2561, unsure=5000)
    counter = TreeCounter(budget_of(plan).noise_epsilon, rounds, rng=Random(seed=2))
    assert counter.scale == budget_of(plan).scale
    words, halts = Random(seed=3), []

    def asks(dissent: int) -> bool:
        unsure = plan.gate.decide([dissent, plan.copies - dissent], words) is None
        halts.append(counter.step(int(unsure)) >= budget_of(plan).limit)
        return unsure

    mistakes, reports = play(asks, plan.copies, rounds, seed=2)
    assert not any(halts) and 0 < mistakes < 4 * plan.copies and reports <= plan.unsure


def test_above_threshold_runs_without_the_challenge() -> None:
    rounds, copies = 20_000, 2000
    mechanism = AboveThreshold(epsilon=2000.0, delta=0.1, threshold=copies // 4, reports=6000, rng=Random(seed=4))
    mistakes, reports = play(mechanism.query, copies, rounds, seed=4)
    assert not mechanism.halted and 0 < mistakes < 4 * copies and reports < 6000


def test_pop_runs_on_the_papers_plan(running: Plan) -> None:
    pop = POP(LogisticRegression(), running, labels=["no", "yes"], features=1, seed=5, after_halt="raise")
    asked = np.random.default_rng(5).uniform(-1, 1, 1500)
    for x in asked[:1450]:
        pop.teach([x], "yes" if x > 0 else "no")
    right = 0
    for x in asked[1450:]:
        answer = pop.predict([x])
        right += answer.label == ("yes" if x > 0 else "no")
        pop.learn(answer.ticket, "yes" if x > 0 else "no")
    assert right > 25
    assert pop.guarantee.epsilon == running.guarantee.epsilon and not pop.guarantee.secure
