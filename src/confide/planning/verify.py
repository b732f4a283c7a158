"""From a plan's integers back to what it may promise: every statement of a plan is recomputed, none is believed.

Claims and proofs: docs/proofs/halting.md, exact.md, certificate.md and paper-plan.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from confide.planning import paper
from confide.planning.copies import SLACK, early_halt
from confide.planning.guarantee import Guarantee
from confide.planning.mistakes import Certificate, certificate, rates
from confide.planning.parts import Price, price_of
from confide.privacy.halting import Halting
from confide.privacy.sparse import CounterBudget

if TYPE_CHECKING:
    from confide.planning.plan import Plan


def verify(plan: Plan) -> Guarantee:
    """The guarantee that the integers keep; ValueError if it, or anything else that the plan states, is not kept."""
    _check_kind(plan)
    for part in plan.parts:
        part.check(plan.promise)
        if part.protects != plan.promise.protect:
            raise ValueError(
                f"the promise is about {plan.promise.protect}, and the part {part.kind!r} protects {part.protects}: do "
                "not run this plan"
            )
    epsilon = _epsilon(price_of(plan.parts), plan.guarantee)
    if plan.guarantee.epsilon > plan.promise.epsilon or plan.guarantee.delta != plan.promise.delta:
        raise ValueError(
            f"the plan keeps ε = {plan.guarantee.epsilon:.6g} at δ = {plan.guarantee.delta:.3g} where "
            f"ε = {plan.promise.epsilon:.6g} at δ = {plan.promise.delta:.3g} is promised: do not run this plan"
        )
    if (life := plan.life_price()) is not None and plan.guarantee.life is not None:
        _epsilon(life, replace(plan.guarantee, epsilon=plan.guarantee.life))
    if plan.certificate is not None:
        _check_certificate(plan, plan.certificate)
    return replace(plan.guarantee, epsilon=epsilon)


def _check_kind(plan: Plan) -> None:
    """Refuse parts that a plan of this kind never has."""
    if (plan.kind == "paper") != isinstance(plan.halting, CounterBudget):
        raise ValueError("the paper's plan, and no other, halts by a noisy counter: do not run this plan")
    if len({part.kind for part in plan.parts}) < len(plan.parts):  # ledgers and journals know a part by its kind
        raise ValueError("a plan has a part of each kind once: do not run this plan")
    if plan.kind in ("certified", "paper", "agnostic") and not (plan.copies and len(plan.parts) == 1):
        raise ValueError("such a plan is copies alone; only Plan.tight has a guide: do not run this plan")
    if plan.certificate is not None and not plan.copies:
        raise ValueError("a plan without copies has no mistake certificate: do not run this plan")


def _epsilon(price: Price, said: Guarantee) -> float:
    """The ε that the integers keep at the δ that is said, if it is at most the ε that is said.

    Where all parts are Gaussian, δ at that ε is computed anew, outward, and the smallest ε that it leaves.
    """
    if price.mu2 is None:
        epsilon = price.epsilon(said.delta)
        if epsilon > said.epsilon:
            raise ValueError(
                f"the tables cost ε = {epsilon:.6g} at δ = {said.delta:.3g}, more than the claimed {said.epsilon:.6g}: "
                "do not run this plan"
            )
        return epsilon
    try:
        delta = price.delta(said.epsilon)
    except ValueError as error:
        raise ValueError(f"{error}; do not run this plan") from None
    if delta > said.delta:
        raise ValueError(
            f"the noise keeps δ = {delta:.6g} at ε = {said.epsilon:.6g}, more than the claimed {said.delta:.6g}: do "
            "not run this plan"
        )
    return min(said.epsilon, price.epsilon(said.delta))


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
            plan.tables.gate, copies=plan.copies, polls=plan.polls, fallback_error=said.fallback_error, lean=plan.lean
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
