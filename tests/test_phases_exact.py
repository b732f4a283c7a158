"""The proofs of docs/proofs/phases.md on worlds so small that every outcome of every coin is counted.

Privacy: the best adaptive adversary against three copies, by its belief over what it does not see. Mistakes: the best
adversary that sees everything, by dynamic programming. Each with a broken mechanism that must be found out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from itertools import permutations, product

import pytest

from confide.planning.agnostic import AgnosticBound
from confide.planning.mistakes import Rates, rates, tail
from confide.privacy.gate import Gate

pytestmark = pytest.mark.claim("phases.md")

# ---------------------------------------------------------------------------------------------------------- privacy

COPIES = 3
UNSURE = (0.9, 0.9, 0.9, 0.3)
"""P(unsure) by margin. Not a gate one would run: what is compared is a run of phases with one phase."""
HALT = (0.1, 0.4, 0.7, 1.0)
"""P(halt) by the count of unsure answers."""
FRESH = ((0,) * COPIES, 0)
"""What each copy was last told, and the count. A copy votes for that on question 0, and for 0 on question 1."""

State = tuple[tuple[int, ...], int]
Belief = dict[State, float]
Round = tuple[int, int]
"""A question and its label."""


def _ask(belief: Belief, x: int) -> dict[tuple[int | None, bool], Belief]:
    """By what is shown, a label or unsure, and whether it halts: what is then believed, with its probability."""
    out: dict[tuple[int | None, bool], Belief] = defaultdict(lambda: defaultdict(float))
    for (told, count), p in belief.items():
        ones = sum(told) if x == 0 else 0
        unsure = UNSURE[abs(COPIES - 2 * ones)]
        for shown, q in ((int(2 * ones > COPIES), 1 - unsure), (None, unsure)):
            now = count + (shown is None)
            for halts, h in ((True, HALT[now]), (False, 1 - HALT[now])):
                if q * h:
                    out[shown, halts][told, now] += p * q * h
    return out


def _teach(belief: Belief, y: int) -> Belief:
    taught: Belief = defaultdict(float)
    for (told, count), p in belief.items():
        for copy in range(COPIES):
            taught[(*told[:copy], y, *told[copy + 1 :]), count] += p / COPIES
    return taught


def _anew(belief: Belief, keep: bool) -> Belief:
    """The next phase; copies that are kept, to be found out, keep what they know."""
    begun: Belief = defaultdict(float)
    for (told, _), p in belief.items():
        begun[told if keep else FRESH[0], 0] += p
    return begun


def leak(epsilon: float, rounds: int, hidden: int, phases: str) -> float:
    """max over adaptive adversaries and contents of the hidden round of Σ over views of (P − e^ε·Q)⁺, either way."""

    def worth(first: Belief, second: Belief, i: int, unit: tuple[Round, Round]) -> float:
        p, q = sum(first.values()), sum(second.values())
        if p == 0.0:
            return 0.0
        if i == rounds or q == 0.0:
            return max(0.0, p - math.exp(epsilon) * q)
        if i == hidden:  # only whether it halts is seen
            asked = [_ask(belief, x) for belief, (x, _) in zip((first, second), unit, strict=True)]
            total = 0.0
            for halts in (False, True):
                after: list[Belief] = []
                for found, (_, y) in zip(asked, unit, strict=True):
                    merged: Belief = defaultdict(float)
                    for (_, halted), belief in found.items():
                        if halted == halts:
                            for state, weight in belief.items():
                                merged[state] += weight
                    after.append(merged if halts else _teach(merged, y))
                total += go_on(after[0], after[1], i, unit, halts)
            return total
        best = 0.0
        for x in (0, 1):
            one, other = _ask(first, x), _ask(second, x)
            total = 0.0
            for seen in one.keys() | other.keys():
                a, b = one.get(seen, {}), other.get(seen, {})
                if seen[1]:
                    total += go_on(a, b, i, unit, True)
                else:
                    total += max(go_on(_teach(a, y), _teach(b, y), i, unit, False) for y in (0, 1))
            best = max(best, total)
        return best

    def go_on(first: Belief, second: Belief, i: int, unit: tuple[Round, Round], halted: bool) -> float:
        if halted and phases == "one":
            return worth(first, second, rounds, unit)
        if halted:
            first, second = (_anew(belief, phases == "kept copies") for belief in (first, second))
        return worth(first, second, i + 1, unit)

    contents = list(product((0, 1), (0, 1)))
    return max(worth({FRESH: 1.0}, {FRESH: 1.0}, 0, unit) for unit in permutations(contents, 2))


@pytest.mark.parametrize("epsilon", [0.0, 0.7])
def test_all_phases_leak_no_more_than_one(epsilon: float) -> None:
    """The hidden round is in some phase, begun `start` rounds before: the run leaks at most the worst such phase."""
    for hidden in (0, 1):
        one = max(leak(epsilon, 3 - start, hidden - start, "one") for start in range(hidden + 1))
        assert leak(epsilon, 3, hidden, "fresh copies") <= one + 1e-12
    assert leak(epsilon, 3, 0, "fresh copies") == pytest.approx(leak(epsilon, 3, 0, "one"), rel=1e-9)
    assert leak(epsilon, 3, 0, "kept copies") > 1.03 * leak(epsilon, 3, 0, "one")


# --------------------------------------------------------------------------------------------------------- mistakes

C, D = 2.0, 0.5
"""A learner of the two constant functions that says what most of its labels said errs at most 2·OPT + 1 times."""
GATES = {
    "steep": ((0.3, 0.3, 0.02), 0.002, 9),
    "flat": ((0.6, 0.6, 0.05), 0.001, 9),
    "never unsure when agreed": ((0.5, 0.5, 0.0), 0.0, 10),
}
worlds = pytest.mark.parametrize(("table", "early", "rounds"), GATES.values(), ids=GATES)


def setting(table: tuple[float, ...], early: float, rounds: int) -> tuple[AgnosticBound, list[float]]:
    """The bound for two copies, and a halting table that comes down right after r."""
    rate: Rates = rates(Gate(table), copies=2, polls=2, fallback_error=0.5)
    unsure = math.ceil(rate.unsure_floor * rounds + 2 * rate.unsure_slope * C * 2 * D)
    bound = AgnosticBound(rounds, 2, unsure, C, D, early * rounds, rate)
    return bound, [early] * (unsure + 1) + [0.6, 1.0]


def most(
    bound: AgnosticBound,
    halt: list[float],
    table: tuple[float, ...],
    final: Callable[[int, int], float],
    *,
    mistake: float = 0.0,
    one_copy: bool = False,
    labels: tuple[int, ...] = (0, 1),
) -> float:
    """max over adversaries that see everything of E[mistake·mistakes + final(phases, OPT)]."""

    @cache
    def worth(i: int, leads: tuple[int, int], count: int, ones: int, phase: int) -> float:
        if i == bound.rounds:
            return final(phase, min(ones, i - ones))
        said = sum(lead > 0 for lead in leads)
        unsure = table[abs(2 - 2 * said)]
        best = -math.inf
        for y in labels:  # before the answer
            wrong = float((said == 2) != y)
            value = mistake * ((1 - unsure) * wrong + unsure / 2)
            step = 2 * y - 1
            taught = [(leads[0] + step, leads[1]), (leads[0], leads[1] + step)]
            for now, p in ((count, 1 - unsure), (count + 1, unsure)):
                h = halt[min(now, len(halt) - 1)]
                if p * h:
                    value += p * h * worth(i + 1, (0, 0), 0, ones + y, phase + (i + 1 < bound.rounds))
                for new in taught[: 1 if one_copy else 2]:
                    if p * (1 - h):
                        value += p * (1 - h) * worth(i + 1, new, now, ones + y, phase) / (1 if one_copy else 2)
            best = max(best, value)
        return best

    return worth(0, (0, 0), 0, 0, 1)


@worlds
def test_no_adversary_exceeds_the_bounds(table: tuple[float, ...], early: float, rounds: int) -> None:
    """The bounds are linear in OPT, so they hold for E[OPT] where OPT is random: E[… − slope·OPT] ≤ the bound at 0."""
    bound, halt = setting(table, early, rounds)
    slope = bound.phases(1) - bound.phases(0)
    assert most(bound, halt, table, lambda phases, opt: phases - slope * opt) <= bound.phases(0)
    rate = bound.rates
    slope = rate.wrong_slope * C * (1 + 2 * D * slope)
    limit = rate.wrong_floor * rounds + rate.wrong_slope * C * 2 * D * bound.phases(0)
    assert most(bound, halt, table, lambda _, opt: -slope * opt, mistake=1.0) <= limit


def test_labels_for_one_copy_alone_break_the_bound() -> None:
    """Where the taught copy is not uniform, the others never learn, and phases follow each other without an error."""
    table, early, _ = GATES["never unsure when agreed"]
    bound, halt = setting(table, early, 30)

    def phases(one_copy: bool) -> float:
        return most(bound, halt, table, lambda phases, _: phases, one_copy=one_copy, labels=(1,))

    assert phases(one_copy=True) > bound.phases(0) >= phases(one_copy=False)


def test_a_label_chosen_after_the_answer_beats_the_bound() -> None:
    """One round, whose label is what was not answered: one mistake for certain, no error of the best constant."""
    bound, _ = setting((0.99, 0.99, 0.99), 0.0, 1)
    assert bound.mistakes(0) < 0.6


@worlds
def test_likely_phases(table: tuple[float, ...], early: float, rounds: int) -> None:
    """P[a second phase begins, and OPT ≤ o] against the tail that `likely_mistakes` adds up."""
    bound, halt = setting(table, early, rounds)
    for o in (0, 1, 3):
        found = most(bound, halt, table, lambda phases, opt, o=o: float(phases > 1 and opt <= o))
        floor, budget = bound.rates.unsure_floor * rounds, C * (o + 2 * D)
        assert found <= bound.beta + tail(bound.unsure, budget=budget, floor=floor, slope=bound.rates.unsure_slope)
