"""A plan file is believed in nothing: whatever is changed in it, it is refused or it still keeps what it states.

What it states: (ε, δ), the probability of halting early, and, with a certificate, the mistakes. Each is recomputed
here from the file's integers, without the planner: the programme of docs/proofs/halting.md in extended precision, the
rates of docs/proofs/certificate.md in a plain loop, Theorems 11 and 12 of docs/proofs/paper-plan.md as they stand.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from confide.planning import mistakes, paper
from confide.planning.mistakes import Certificate
from confide.planning.plan import Plan
from confide.privacy.cost import ONE
from confide.privacy.gate import Gate
from confide.privacy.halting import Halting
from confide.privacy.sparse import CounterBudget
from tests.forging import changed, filed, flat

pytestmark = pytest.mark.claim("halting.md", "certificate.md", "paper-plan.md")

CALM = settings(derandomize=True, deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))


@cache
def tight() -> Plan:
    return Plan.tight(4.0, 1e-5, 2000, polls=31, copies=300, unsure=40, guide=None)


@cache
def person() -> Plan:
    return Plan.tight(8.0, 1e-4, 2000, polls=31, copies=150, unsure=30, unit_unsure=2, guide=None)


@cache
def certified() -> Plan:
    return Plan.certified(16.0, 1e-2, 10_000, 1, copies=120)


@cache
def papers() -> Plan:
    return Plan.paper(5000.0, 0.1, 200_000)


# --- the independent recomputation


def exact_epsilon(plan: Plan) -> float:
    """ε of a plan with a halting table: W(0) of the backward programme, in extended precision."""
    halting, order, wide = plan.halting, plan.order, np.longdouble(2) ** -64
    assert isinstance(halting, Halting)
    share, sure = np.longdouble(plan.polls) / plan.copies, plan.gate.sure.astype(np.longdouble) * wide
    unsure, size = 1 - sure, sure.size
    triples = [
        (p, q, m)
        for p in range(size)
        for q in range(max(0, p - 2), min(size, p + 3))
        for m in range(max(0, p - 2, q - 2), min(size, p + 3, q + 3))
        if share < 1 or m == p
    ]
    p, q, m = (np.array(axis) for axis in zip(*triples, strict=True))

    def power(of_p: Any, of_q: Any) -> Any:
        with np.errstate(divide="ignore", invalid="ignore"):
            value = np.where(of_p == 0, 0, np.exp(order * np.log(of_p) + (1 - order) * np.log(of_q)))
        return np.where((of_p > 0) & (of_q == 0), np.inf, value)

    a_u = power((1 - share) * unsure[m] + share * unsure[p], (1 - share) * unsure[m] + share * unsure[q])
    a_s = power((1 - share) * sure[m] + share * sure[p], (1 - share) * sure[m] + share * sure[q])
    a_u, a_s = np.append(a_u, [0, 1, 1]), np.append(a_s, [1, 0, 0])  # a hidden round; a round whose tops differ
    go = halting.go.astype(np.longdouble) * wide
    last, shift, after, w = halting.visible, halting.shift, np.longdouble(0), np.longdouble(1)
    for n in range(last, -1, -1):
        pairs = [(n + a, n + b) for a in range(shift + 1) for b in range(shift + 1) if n + a <= last]
        hh = np.array([power(1 - go[i], 1 - go[j]) for i, j in pairs])
        cc = np.array([0 if i == last else power(go[i], go[j]) for i, j in pairs])
        left = 1 - a_s[:, None] * cc[None, :]
        if not (np.isfinite(a_s).all() and np.isfinite(a_u).all() and np.isfinite(hh).all() and (left > 0).all()):
            return math.inf
        w = max(np.longdouble(1), after, ((a_u[:, None] * after + a_s[:, None] * hh[None, :]) / left).max())
        after = (hh + cc * w).max()
    bad = last * float(sure[: min(3, size)].max()) + math.prod(float(g) for g in go[1 : last + 1])
    rest = plan.guarantee.delta - bad
    if rest <= 0:
        return math.inf
    return float(np.log(w)) / (order - 1) + math.log1p(-1 / order) - math.log(order * rest) / (order - 1)


def plain_rates(plan: Plan, error: float) -> tuple[float, float, float, float]:
    """(u(0), b, g(0), a) of full polls, entry by entry."""
    table, k = plan.gate.table.tolist(), plan.copies
    end = len(table) - 1
    u, g = [], []
    for wrong in range(k + 1):
        lead = k - 2 * wrong
        worst = max(table[min(max(lead, 0), end) :])
        least = min(table[: min(max(-lead, 0), end) + 1])
        u.append(worst)
        g.append(error * worst if lead > 0 else 1 - least + error * least)
    slopes = [max(0.0, *((x[w] - x[0]) / (w / k) for w in range(1, k + 1))) for x in (u, g)]
    return u[0], slopes[0], g[0], slopes[1]


def chernoff(count: float, budget: float, floor: float, slope: float) -> float:
    """The least of the tail's bounds over a fine grid of φ."""
    phi = np.geomspace(1e-7, 30, 4000)
    gain = -np.expm1(-phi) / slope if slope > 0 else np.expm1(np.geomspace(1e-6, 50, 4000))
    paid = phi * budget if slope > 0 else 0.0
    return float(np.exp(np.minimum(0, (paid + floor * gain - np.log1p(gain) * count).min())))


def keeps_mistakes(plan: Plan, said: Certificate) -> bool:
    """Theorem 10 with what the file says of its hypotheses, up to the grid's one in a thousand."""
    assert isinstance(plan.halting, Halting) and plan.mistakes is not None and plan.polls == plan.copies
    if plan.silent or plan.unit_unsure != 1:
        return False
    u, b, g, a = plain_rates(plan, said.fallback_error)
    budget, rounds = plan.mistakes * plan.copies, plan.rounds
    early = rounds * float(plan.halting.table[: plan.unsure + 1].max())
    halts = early + chernoff(plan.unsure, budget, u * rounds, b)
    expected = g * rounds + a * budget + said.fallback_error * rounds * min(1.0, halts)
    more = halts + chernoff(said.mistakes + 1, budget, g * rounds, a)
    return (
        said.expected_mistakes >= min(rounds, expected) * (1 - 1e-3)
        and said.early_halt >= min(1.0, halts) * (1 - 1e-2)
        and (said.mistakes >= rounds or more <= said.beta * (1 + 1e-2))
    )


def levels(counter: CounterBudget, rounds: int, p: float) -> float:
    """λ(p) of docs/proofs/paper-plan.md by a grid over s."""
    b, depth = float(counter.scale), rounds.bit_length()
    s = np.linspace(1e-4, 1 - 1e-4, 20_000) / b
    return float(((math.log(rounds / p) - depth * np.log1p(-((s * b) ** 2))) / s).min())


def keeps_paper(plan: Plan) -> bool:
    """Theorem 11, and Theorem 12 where a certificate is stated."""
    counter, order, delta = plan.halting, plan.order, plan.guarantee.delta
    assert isinstance(counter, CounterBudget)
    if plan.polls != plan.copies or plan.silent or plan.unit_unsure != 1 or counter.unsure != plan.unsure:
        return False
    drawn = Fraction(plan.rounds.bit_length()) / Fraction(counter.epsilon)
    if not drawn <= counter.scale <= drawn * (1 + Fraction(1, 2**20)):
        return False
    near = 1 - 1e-6
    if counter.over < levels(counter, plan.rounds, delta / 4) * near:
        return False
    if counter.late < levels(counter, plan.rounds, plan.beta / 3) * near:
        return False
    sure = plan.gate.sure.astype(np.longdouble) * np.longdouble(2) ** -64
    tau = 0.0
    for step in (1, 2):
        for p, q in ((sure[step:], sure[:-step]), (sure[:-step], sure[step:])):
            with np.errstate(divide="ignore", invalid="ignore"):
                a_u, a_s = (1 - p) ** order * (1 - q) ** (1 - order), p**order * q ** (1 - order)
                value = np.where(p == q, 1, a_u / (1 - a_s))
            if not (np.isfinite(value).all() and (value > 0).all()):
                return False
            tau = max(tau, float(np.log(value.max())) / (order - 1))
    rest = delta * 3 / 4 - counter.visible * float(sure[:3].max())
    if rest <= 0:
        return False
    gate = counter.visible * tau + math.log1p(-1 / order) - math.log(order * rest) / (order - 1)
    if max(0.0, gate) + counter.epsilon > plan.guarantee.epsilon * (1 + 1e-9):
        return False
    return plan.certificate is None or keeps_papers_mistakes(plan, plan.certificate)


def keeps_papers_mistakes(plan: Plan, said: Certificate) -> bool:
    assert isinstance(plan.halting, CounterBudget) and plan.mistakes is not None
    dk, part = plan.mistakes * plan.copies, said.beta / 3
    most = 18 * (dk + 1) + 6 * math.log(1 / part) + dk
    tail = plan.gate.table[min(math.ceil(0.6 * plan.copies), plan.gate.sure.size - 1) :]
    return (
        plan.unsure >= most
        and plan.rounds * float(tail.max()) <= part
        and plan.halting.late >= levels(plan.halting, plan.rounds, part) * (1 - 1e-6)
        and said.mistakes >= min(plan.rounds, most)
        and said.expected_mistakes >= min(plan.rounds, most + said.beta * plan.rounds) * (1 - 1e-9)
        and said.early_halt >= said.beta
    )


def keeps(plan: Plan) -> bool:
    """Whether the plan's numbers keep what it states."""
    if isinstance(plan.halting, CounterBudget):
        return plan.kind == "paper" and keeps_paper(plan)
    if plan.kind == "paper" or plan.halting.shift != plan.unit_unsure:
        return False
    early = plan.live * float(plan.halting.table[: plan.unsure + 1].max())
    if early > plan.beta * (1 + 1e-6) or exact_epsilon(plan) > plan.guarantee.epsilon * (1 + 1e-9):
        return False
    return plan.certificate is None or keeps_mistakes(plan, plan.certificate)


# --- any change


NUMBERS = ("rounds", "copies", "polls", "unsure", "silent", "unit_unsure", "labels", "beta", "order", "mistakes")
FACTORS = st.one_of(
    st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.001, 1.01, 1.1, 2.0, 10.0, -1.0]), st.floats(0.2, 5.0, allow_nan=False)
)


@cache
def tabled() -> Plan:
    """The paper's plan with a table in place of a gate that computes its integers."""
    return papers().but(gate=Gate.from_integers(papers().tables.gate.sure))


def grown(value: Any, factor: float) -> Any:
    if value is None:
        return 1
    return round(value * factor) if isinstance(value, int) else value * factor


def bent(runs: list[list[Any]], place: int, factor: float) -> list[list[Any]]:
    """The table with one run's rarer outcome made `factor` times as likely."""
    out = [list(run) for run in runs]
    entry = int(out[place % len(out)][0])
    rarer = min(max(round(min(entry, ONE - entry) * factor), 0), ONE - 1)
    out[place % len(out)][0] = str(rarer if entry <= ONE // 2 else min(ONE - rarer, ONE - 1))
    return out


@st.composite
def changes(draw: st.DrawFn) -> Callable[[dict[str, Any]], None]:
    """One thing done to a plan's JSON."""
    kind = draw(st.sampled_from(["number", "promise", "certificate", "gate", "halting", "cut", "kind", "swap"]))
    factor, place, name = draw(FACTORS), draw(st.integers(0, 10_000)), draw(st.integers(0, 100))

    def change(body: dict[str, Any]) -> None:
        table = body["gate"] if name % 2 or "go" not in body["halting"] else body["halting"]
        column = "sure" if "sure" in table else "go"
        if kind == "number":
            key = NUMBERS[name % len(NUMBERS)]
            body[key] = grown(body[key], factor)
        elif kind == "promise":
            key = ("epsilon", "delta")[name % 2]
            body["guarantee"][key] *= factor
        elif kind == "certificate" and body["certificate"]:
            key = ("expected_mistakes", "mistakes", "beta", "early_halt", "fallback_error")[name % 5]
            body["certificate"][key] = grown(body["certificate"][key], factor)
        elif kind == "certificate":
            body["certificate"] = {"expected_mistakes": 50.0, "mistakes": 60, "beta": 0.05, "early_halt": 0.01}
            body["certificate"] |= {"fallback_error": 0.5, "hypotheses": []}
            body["mistakes"] = 1
        elif kind == "gate" and "sure" not in body["gate"]:
            key = ("laplace_scale", "laplace_quarters")[name % 2]
            body["gate"][key] = grown(body["gate"][key], factor)
        elif kind == "gate":
            body["gate"]["sure"] = bent(body["gate"]["sure"], place, factor)
        elif kind == "halting" and "go" in body["halting"]:
            body["halting"]["go"] = bent(body["halting"]["go"], place, factor)
        elif kind == "halting":
            key = ("counter_epsilon", "unsure", "late", "over", "scale")[name % 5]
            scale = key == "scale"
            old = Fraction(body["halting"][key]) if scale else body["halting"][key]
            body["halting"][key] = str(old * Fraction(factor)) if scale else grown(old, factor)
        elif kind == "cut" and len(table.get(column, ())) > 3:
            del table[column][place % (len(table[column]) - 1)]
        elif kind == "kind":
            body["kind"] = ("tight", "certified", "paper", "agnostic")[name % 4]
        elif kind == "swap" and len(table.get(column, ())) > 2:
            i = place % (len(table[column]) - 2)
            table[column][i], table[column][i + 1] = table[column][i + 1], table[column][i]

    return change


@pytest.mark.parametrize("made", [tight, person, certified, papers])
def test_a_plan_as_it_was_made_keeps_what_it_states(made: Callable[[], Plan]) -> None:
    assert keeps(made()) and Plan.from_json(made().to_json()) == made()


@pytest.mark.parametrize("made", [tight, person, certified, papers, tabled])
@CALM
@given(st.lists(changes(), min_size=1, max_size=2))
def test_a_changed_file_is_refused_or_keeps_what_it_states(
    made: Callable[[], Plan], each: list[Callable[[dict[str, Any]], None]]
) -> None:
    body = flat(made())
    for change in each:
        change(body)
    try:
        read = Plan.from_json(filed(body))
    except ValueError:
        return
    assume(read.certificate is None or read.polls == read.copies)
    assert keeps(read), {name: body[name] for name in NUMBERS}


def test_the_judge_would_notice() -> None:
    """The recomputation refutes what is false, so that the test above can fail."""
    plan, sure, said = tight(), certified(), certified().certificate
    assert said is not None
    assert not keeps(plan.but(guarantee=replace(plan.guarantee, epsilon=plan.guarantee.epsilon * 0.98)))
    assert not keeps(plan.but(beta=plan.beta / 2)) and not keeps(plan.but(polls=60))
    assert not keeps(sure.but(certificate=replace(said, expected_mistakes=said.expected_mistakes * 0.9)))
    assert not keeps(sure.but(certificate=replace(said, mistakes=round(said.mistakes * 0.8))))
    assert not keeps(sure.but(mistakes=2)) and not keeps(sure.but(silent=100))
    assert not keeps(papers().but(unsure=papers().unsure // 2)) and not keeps(papers().but(rounds=10**7))


# --- forgeries that were believed


def test_a_certificate_of_a_plan_with_silent_rounds_is_refused() -> None:
    """In silent rounds the fallback answers: a bound without them is false by up to their number."""
    plan = certified()
    with pytest.raises(ValueError, match="silent"):
        plan.but(silent=5000).verify()
    assert plan.but(silent=5000, certificate=None, kind="tight").verify() == plan.guarantee


BOAST = {"beta": 0.05, "early_halt": 0.05, "fallback_error": 1.0, "hypotheses": []}


def test_a_forged_certificate_of_a_paper_plan_is_refused() -> None:
    """r, T·t[v] and the counter's delay are read from the integers."""
    small = Plan.paper(30.0, 1e-3, 5000, copies=400, unsure=100)
    most = paper.reports(400, 1, 0.05 / 3)
    boast = {**BOAST, "expected_mistakes": float(min(5000, most + 250)), "mistakes": min(5000, most)}
    with pytest.raises(ValueError, match="no mistake bound"):
        Plan.from_json(changed(small, certificate=boast, mistakes=1))
    full = papers()
    stated = flat(full)["certificate"]
    assert Plan.from_json(changed(full, certificate=stated)) == full
    wide = Gate.laplace(scale=18.0, threshold=full.copies / 4)  # more noise: more private, and unsure too often
    assert full.but(gate=wide, certificate=None).verify().epsilon < full.guarantee.epsilon
    with pytest.raises(ValueError, match="no mistake bound"):
        full.but(gate=wide).verify()
    halting = flat(full)["halting"]
    with pytest.raises(ValueError, match="halts before"):
        Plan.from_json(changed(full, halting={**halting, "late": halting["late"] * 0.9}))
    with pytest.raises(ValueError, match="less than the tables certify"):
        Plan.from_json(changed(full, certificate={**stated, "expected_mistakes": float(stated["mistakes"])}))


def test_the_counters_noise_must_be_the_one_that_is_drawn() -> None:
    """A scale above S·L/ε_c passed, though the counter draws with S·L/ε_c and λ belongs to what is drawn."""
    body = flat(papers())["halting"]
    for factor in (Fraction(99, 100), Fraction(101, 100), Fraction(2)):
        scale = str(Fraction(body["scale"]) * factor)
        with pytest.raises(ValueError, match="noise is not that"):
            Plan.from_json(changed(papers(), halting={**body, "scale": scale, "over": body["over"] * 3}))


def test_what_is_assumed_is_not_read_from_the_file() -> None:
    stated = {**flat(certified())["certificate"], "hypotheses": ["none"]}
    read = Plan.from_json(changed(certified(), certificate=stated))
    assert read.certificate is not None and read.certificate.hypotheses == mistakes.HYPOTHESES


def test_a_beta_that_the_table_does_not_keep_is_refused() -> None:
    for change in ({"beta": tight().beta / 2}, {"rounds": 20_000}, {"unsure": 60}):
        with pytest.raises(ValueError, match="halts early more often"):
            Plan.from_json(changed(tight(), **change))


def test_a_plan_file_of_another_version_is_refused() -> None:
    for version in (1, 3, 5):
        with pytest.raises(ValueError, match="make it again"):
            Plan.from_json(changed(certified(), version=version))
