"""The plan that keeps a promise, where none is given: one rule, and one refusal, for every front."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from confide.planning.plan import Plan
from confide.planning.promise import Promise

__all__ = ["Kept", "check_given", "kept", "planned", "refuse_another", "refuse_unasked"]

Kept = tuple[Promise | None, Any]
"""A promise or a plan (or what makes one), as an adapter was given them."""

_tight = lru_cache(maxsize=64)(Plan.tight)  # cross-validation asks for the same plan again and again


def kept(given: Kept, labels: int, learner: Any, **numbers: Any) -> Plan:
    """The plan that an adapter was given, or the one that keeps its promise; without either, that of ε = 1.

    Examples
    --------
    >>> kept((Promise(2.0, rounds=20_000), None), 3, None).labels
    3
    """
    promise, plan = check_given(given)
    if plan is not None:
        refuse_unasked(learner, plan, "plan=")
        return plan
    if promise.labels not in (None, labels):
        raise ValueError(f"the promise is for {promise.labels} labels, and there are {labels}: leave labels out of it")
    promise = replace(promise, labels=labels, units=promise.units or "rounds")
    return planned(promise, learner, takes="plan=", **numbers)


def check_given(given: Kept) -> tuple[Promise, Plan | None]:
    """What was given, or the usual promise; ValueError where it is something else, or both."""
    promise, plan = given
    if promise is not None and not isinstance(promise, Promise):
        raise ValueError(f"promise must be a confide.Promise, not {type(promise).__name__}: confide.Promise(epsilon=1)")
    if plan is not None and not isinstance(plan, Plan):
        raise ValueError(f"plan must be a confide.Plan, not {type(plan).__name__}: confide.Plan.tight makes one")
    if promise is not None and plan is not None:
        raise ValueError("give a promise, or a plan that keeps one: not both")
    return Promise(1.0) if promise is None else promise, plan


def refuse_another(before: Kept, now: Kept) -> None:
    """Refuse to go on with another promise: what was spent, was spent under the first one."""
    if any(one is not other and one != other for one, other in zip(before, now, strict=True)):
        raise ValueError(
            "this model was made with another promise, or plan, and all that it has spent is under that one: set it "
            "back, or make a new model, which is a new promise"
        )


def planned(promise: Promise, learner: Any, *, takes: str, **numbers: Any) -> Plan:
    """The plan that keeps a promise: of our own model without a learner; with one of copies of it, or a refusal.

    Parameters
    ----------
    takes
        Who would take a plan of the user's own, for the refusal.
    numbers
        As for `Plan.tight`: what the promise does not say.

    Examples
    --------
    >>> planned(Promise(1.0), None, takes="confide.POP").endless
    True
    """
    if promise.protect == "labels":
        units, most = promise.units or "rounds", promise.unit_labels
        return Plan.labels_alone(
            promise.epsilon, promise.labels or 2, rounds=promise.rounds, units=units, unit_labels=most
        )
    plan = _tight(
        promise.epsilon,
        promise.delta,
        promise.rounds,
        labels=promise.labels or 2,
        guide=1.0 if learner is None else "auto",
        units=promise.units,
        unit_labels=promise.unit_labels,
        **numbers,
    )
    why = plan.notes[0].partition(": ")[2] if plan.notes else ""
    if plan.endless:
        why = "copies of a learner are planned for a number of rounds, millions of them, and none was given (rounds=)"
    refuse_unasked(learner, plan, takes, why)
    return plan if promise.per is None else plan.but(per=promise.per, periods=promise.periods)


def refuse_unasked(learner: Any, plan: Plan, takes: str, why: str = "the plan has no copies") -> None:
    """Refuse a learner that the plan would never ask, so that nobody believes that it answered; name the ways on."""
    if learner is None or plan.copies or plan.promise.protect == "labels":
        return
    name = learner.__name__ if isinstance(learner, type) else type(learner).__name__
    raise ValueError(
        f"{name} would never answer: {why}. Three ways on: leave the learner out, and Confide's own private model "
        f'answers; or say protect="labels" to confide.Private, and {name} itself is taught randomized labels, which '
        f"protects labels and not rows; or give a plan of your own to {takes}, "
        f"Plan.tight(epsilon={plan.promise.epsilon:g}, …, copies=…, unsure=…)"
    )
