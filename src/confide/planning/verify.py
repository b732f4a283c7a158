"""From a plan's tables back to what it may promise: every statement of a plan is recomputed, none is believed.

Claims and proofs: docs/proofs/halting.md, exact.md, certificate.md and paper-plan.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from confide.planning import paper
from confide.planning.design import certify
from confide.planning.guarantee import Guarantee
from confide.planning.guided import GuidePlan
from confide.planning.leaning import certify_lean, certify_weights
from confide.planning.mistakes import Certificate, certificate, rates
from confide.privacy.gate import Gate
from confide.privacy.halting import Halting
from confide.privacy.lean import Lean
from confide.privacy.sparse import CounterBudget

if TYPE_CHECKING:
    from confide.planning.plan import Plan

SLACK = 1e-9
"""Relative: two searches for the least of a bound, or its last digits, may differ by this much."""


def verify(plan: Plan) -> Guarantee:
    """The guarantee that the tables keep; ValueError if it, or anything else that the plan states, is not kept."""
    if (plan.kind == "paper") != isinstance(plan.halting, CounterBudget):
        raise ValueError("the paper's plan, and no other, halts by a noisy counter: do not run this plan")
    if plan.guide is not None:
        _check_guide(plan, plan.guide)
    if plan.lean is not None and plan.kind == "paper":
        raise ValueError("the paper's plan tosses a coin when unsure: do not run this plan")
    if (plan.order is None) != (plan.copies == 0):
        raise ValueError("copies are accounted for at a Rényi order, a guide alone exactly: do not run this plan")
    epsilon = _epsilon(plan)
    if epsilon > plan.guarantee.epsilon:
        raise ValueError(
            f"the tables cost ε = {epsilon:.6g} at δ = {plan.guarantee.delta:.3g}, more than the claimed "
            f"{plan.guarantee.epsilon:.6g}: do not run this plan"
        )
    if plan.certificate is not None:
        _check_certificate(plan, plan.certificate)
    return replace(plan.guarantee, epsilon=epsilon)


def _epsilon(plan: Plan) -> float:
    """What the integers cost at the plan's δ."""
    if plan.copies == 0:
        if plan.guide is None or plan.gate is not None or plan.halting is not None or plan.kind != "tight":
            raise ValueError("a plan without copies is a guide alone, without tables: do not run this plan")
        if plan.polls or plan.unsure or plan.silent or plan.lean is not None or plan.certificate is not None:
            raise ValueError(
                "a plan without copies has no polls, unsure answers, silent rounds, lean or mistake certificate: "
                "do not run this plan"
            )
        return _alone(plan.guide, plan.guarantee)
    gate, halting = plan.tables
    return _tables(plan, gate, halting) if isinstance(halting, Halting) else _paper(plan, gate, halting)


def _alone(guide: GuidePlan, said: Guarantee) -> float:
    """What a guide alone costs: δ at the claimed ε is computed anew, outward, and the smallest ε that it leaves."""
    try:
        delta = guide.delta(said.epsilon)
    except ValueError as error:
        raise ValueError(f"{error}; do not run this plan") from None
    if delta > said.delta:
        raise ValueError(
            f"the noise keeps δ = {delta:.6g} at ε = {said.epsilon:.6g}, more than the claimed {said.delta:.6g}: do "
            "not run this plan"
        )
    return min(said.epsilon, guide.epsilon(said.delta))


def _check_guide(plan: Plan, guide: GuidePlan) -> None:
    """Refuse a guide that was made for another plan."""
    if plan.kind != "tight":
        raise ValueError("only Plan.tight has a guide: do not run this plan")
    if (guide.rounds, guide.labels) != (plan.rounds, plan.labels):
        raise ValueError("the guide was made for other rounds or labels: do not run this plan")
    if guide.unit_labels != plan.guarantee.unit_labels or (plan.units == "rounds" and guide.unit_labels != 1):
        raise ValueError("the guide learns another number of a unit's labels than the promise says")


def _tables(plan: Plan, gate: Gate, halting: Halting) -> float:
    if halting.shift != plan.unit_unsure:
        raise ValueError("the halting table hides another shift than unit_unsure says")
    if plan.live * early_halt(halting, plan.unsure) > plan.beta * (1 + SLACK):
        raise ValueError("the halting table halts early more often than beta says: do not believe this plan")
    delta = plan.guarantee.delta
    order, share = plan.renyi_order, plan.poll_fraction
    beside = 0.0 if plan.guide is None else plan.guide.certify(order)
    if plan.lean is None:
        return certify(gate, halting, order=order, delta=delta, poll_fraction=share, beside=beside).epsilon
    if isinstance(plan.lean, Lean):
        if plan.labels != 2 or not np.array_equal(plan.lean.envelope().sure, gate.sure):
            raise ValueError("the lean is for two labels, and the gate its envelope: do not run this plan")
        return certify_lean(plan.lean, halting, order=order, delta=delta, poll_fraction=share, beside=beside).epsilon
    labels = plan.labels
    return certify_weights(
        plan.lean, gate, halting, order=order, delta=delta, poll_fraction=share, labels=labels, beside=beside
    ).epsilon


def _paper(plan: Plan, gate: Gate, counter: CounterBudget) -> float:
    if plan.unit_unsure != 1:
        raise ValueError("the paper's plan protects rounds: its unit_unsure is 1")
    if plan.polls != plan.copies or plan.silent or counter.unsure != plan.unsure:
        raise ValueError("the paper's plan asks every copy, is never silent and counts to its unsure answers")
    got = paper.recertify(gate, counter, order=plan.renyi_order, delta=plan.guarantee.delta, rounds=plan.rounds)
    paper.check_delay(counter, rounds=plan.rounds, beta=plan.beta)
    return got.epsilon


def early_halt(halting: Halting, unsure: int) -> float:
    """The largest probability of halting in a round while at most `unsure` answers were unsure."""
    return float(halting.table[: unsure + 1].max())


def _check_certificate(plan: Plan, said: Certificate) -> None:
    """Refuse a mistake bound that says less than the tables certify."""
    if plan.mistakes is None or plan.mistakes < 1:
        raise ValueError("a mistake certificate needs the learner's mistake bound, of at least 1")
    if plan.silent or plan.unit_unsure != 1:
        raise ValueError("a mistake certificate is for plans of rounds, without silent ones: do not believe this plan")
    if not (0 < said.beta < 1 and 0 <= said.fallback_error <= 1):
        raise ValueError("a mistake certificate's beta lies strictly between 0 and 1, its fallback_error from 0 to 1")
    true = _from_paper(plan, said) if plan.kind == "paper" else _from_tables(plan, said)
    kept = (
        said.expected_mistakes >= true.expected_mistakes * (1 - SLACK)
        and said.mistakes >= true.mistakes
        and said.early_halt >= true.early_halt * (1 - SLACK)
    )
    if not kept:
        raise ValueError("the mistake certificate says less than the tables certify: do not believe this plan")


def _from_tables(plan: Plan, said: Certificate) -> Certificate:
    assert isinstance(plan.halting, Halting) and plan.mistakes is not None
    return certificate(
        rates(
            plan.tables.gate,
            copies=plan.copies,
            polls=plan.polls,
            fallback_error=said.fallback_error,
            lean=plan.lean,
        ),
        rounds=plan.rounds,
        budget=plan.mistakes * plan.copies,
        unsure=plan.unsure,
        start=early_halt(plan.halting, plan.unsure),
        after_halt=said.fallback_error,
        beta=said.beta,
    )


def _from_paper(plan: Plan, said: Certificate) -> Certificate:
    assert isinstance(plan.halting, CounterBudget) and plan.mistakes is not None
    paper.check_delay(plan.halting, rounds=plan.rounds, beta=said.beta)
    true = paper.bounded(
        plan.tables.gate,
        copies=plan.copies,
        unsure=plan.unsure,
        mistakes=plan.mistakes,
        rounds=plan.rounds,
        beta=said.beta,
    )
    if true is None:
        raise ValueError("the paper proves no mistake bound for these tables: do not believe this plan")
    return true
