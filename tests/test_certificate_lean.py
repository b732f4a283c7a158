"""Mistakes with a lean: its rates against all votes and offsets, where the coin's are too low; plans that have one."""

from __future__ import annotations

from functools import cache
from itertools import combinations, combinations_with_replacement

import numpy as np
import pytest
from numpy.typing import NDArray

from confide import Plan
from confide.planning.agnostic import agnostic_plan
from confide.planning.mistakes import Rates, certificate, rates
from confide.privacy.lean import Lean

pytestmark = pytest.mark.claim("certificate.md")

Floats = NDArray[np.float64]
ABSTAINS = 2


@cache
def lean(kind: str, offsets: int) -> Lean:
    make = Lean.fill if kind == "fill" else Lean.additive
    return make(order=3, cost=0.6, margins=7, offsets=offsets, clip=3.0, tie_sure=1e-3)


def drawn(lean: Lean, row: int, margin: int, right: int) -> tuple[float, float]:
    """P(unsure), P(wrong) of one poll, from the integers: by what `Lean.draw` does with its two words."""
    column = max(-lean.margins, min(margin, lean.margins)) + lean.margins
    sure, first = int(lean.sure[row, column]) / 2**64, int(lean.first[row, column]) / 2**64
    top = 0 if margin >= 0 else 1
    leans_wrong = 1 - first if right == 0 else first
    return 1 - sure, sure * (top != right) + (1 - sure) * leans_wrong


def all_patterns(lean: Lean, copies: int, polls: int) -> tuple[Floats, Floats]:
    """sup P(unsure), sup P(wrong) over all votes, abstentions, right labels and offsets, by how many copies err."""
    unsure, wrong = np.zeros(copies + 1), np.zeros(copies + 1)
    subsets = list(combinations(range(copies), polls))
    for votes in combinations_with_replacement((0, 1, ABSTAINS), copies):
        margins = [sum((vote == 0) - (vote == 1) for vote in map(votes.__getitem__, some)) for some in subsets]
        for right in (0, 1):
            errs = sum(vote != right for vote in votes)
            for row in range(len(lean.offsets)):
                each = np.array([drawn(lean, row, margin, right) for margin in margins]).mean(axis=0)
                unsure[errs], wrong[errs] = max(unsure[errs], each[0]), max(wrong[errs], each[1])
    return unsure, wrong


def line(floor: float, slope: float, copies: int) -> Floats:
    return floor + slope * np.arange(copies + 1) / copies


@pytest.mark.parametrize("kind", ["fill", "additive"])
@pytest.mark.parametrize("offsets", [1, 5])
@pytest.mark.parametrize(("copies", "polls"), [(6, 6), (7, 7), (6, 3)])
def test_the_rates_cover_all_votes_and_offsets_and_the_coins_do_not(
    kind: str, offsets: int, copies: int, polls: int
) -> None:
    table = lean(kind, offsets)
    found = rates(table.envelope(), copies=copies, polls=polls, fallback_error=0.5, lean=table)
    unsure, wrong = all_patterns(table, copies, polls)
    assert found.unsure_floor == pytest.approx(unsure[0], rel=1e-12)
    assert found.wrong_floor == pytest.approx(wrong[0], rel=1e-12)
    assert (line(found.unsure_floor, found.unsure_slope, copies) >= unsure * (1 - 1e-12)).all()
    assert (line(found.wrong_floor, found.wrong_slope, copies) >= wrong * (1 - 1e-12)).all()
    fraction = np.arange(1, copies + 1) / copies
    assert found.wrong_slope <= 1.5 * ((wrong[1:] - wrong[0]) / fraction).max(), "and not by much more than there is"
    coin = rates(table.envelope(), copies=copies, polls=polls, fallback_error=0.5)
    above = wrong > line(coin.wrong_floor, coin.wrong_slope, copies) + 1e-3
    assert above.any(), "a lean follows a wrong majority, which the coin's rates do not know"


def worst_run(lean: Lean, copies: int, rounds: int, errors: int) -> float:
    """E[mistakes] of the best adaptive adversary, exactly: it chooses how many copies err while any error is left.

    The offset is the worst, as of a guide that is wrong and certain of it.
    """
    wrong = np.array([drawn(lean, 0, copies - 2 * bad, right=0)[1] for bad in range(copies + 1)])
    errs = np.arange(copies + 1) / copies
    value = np.zeros(errors + 1)  # by errors left
    for _ in range(rounds):
        after = np.append(value[:1], value[:-1])
        options = wrong[:, None] + errs[:, None] * after + (1 - errs)[:, None] * value
        options[1:, 0] = 0.0
        value = options.max(axis=0)
    return float(value[errors])


def test_a_run_with_an_adverse_guide_keeps_the_bound_and_breaks_the_coins() -> None:
    """By dynamic programming over the errors that the copies have left."""
    table, copies, rounds = Lean.fill(order=6, cost=0.3, margins=61, offsets=9, clip=3.0, tie_sure=1e-3), 61, 600

    def bound(rate: Rates) -> float:
        said = certificate(
            rate, rounds=rounds, budget=copies, unsure=rounds + 1, start=0.0, after_halt=1.0, beta=1.0
        )
        return said.expected_mistakes

    told, asked = worst_run(table, copies, rounds, copies), {"copies": copies, "polls": copies, "fallback_error": 0.5}
    right = bound(rates(table.envelope(), **asked, lean=table))  # type: ignore[arg-type]
    assert 0.95 * right < told <= right
    assert told > 1.1 * bound(rates(table.envelope(), **asked))  # type: ignore[arg-type]


@cache
def plans(lean: str | None) -> Plan:
    return Plan.certified(8.0, 1e-6, 20_000, 1, lean=lean)  # type: ignore[arg-type]


def test_a_certified_plan_keeps_the_coin_unless_asked() -> None:
    coin = plans(None)
    assert coin.lean is None and coin.certificate is not None
    for kind in ("fill", "additive"):
        plan = plans(kind)
        assert isinstance(plan.lean, Lean) and plan.lean.kind == kind and plan.lean.offsets == (0,)
        assert plan.verify().epsilon <= 8 and Plan.from_json(plan.to_json()) == plan
        assert plan.certificate is not None
        more = plan.certificate.expected_mistakes / coin.certificate.expected_mistakes
        assert 1.05 < more < 1.5, "it costs something, where the majority may be wrong"


def test_the_coins_certificate_with_a_lean_is_refused() -> None:
    plan = plans("fill")
    assert plan.certificate is not None and plan.mistakes is not None and plan.gate is not None
    coin = certificate(
        rates(plan.gate, copies=plan.copies, polls=plan.polls, fallback_error=0.5),
        rounds=plan.rounds, budget=plan.mistakes * plan.copies, unsure=plan.unsure,
        start=float(plan.halting.table[: plan.unsure + 1].max()), after_halt=0.5, beta=plan.certificate.beta,  # type: ignore[union-attr]
    )  # fmt: skip
    assert coin.expected_mistakes < plan.certificate.expected_mistakes
    with pytest.raises(ValueError, match="says less than the tables certify"):
        plan.but(certificate=coin).verify()


def test_of_many_labels_any_unsure_answer_may_be_wrong() -> None:
    plan = Plan.certified(8.0, 1e-6, 20_000, 1, lean="additive", labels=3)
    assert plan.gate is not None and plan.certificate is not None and plan.lean is not None
    worst = rates(plan.gate, copies=plan.copies, polls=plan.polls, fallback_error=1.0)
    found = rates(plan.gate, copies=plan.copies, polls=plan.polls, fallback_error=2 / 3, lean=plan.lean)
    assert found == worst and plan.verify().epsilon <= 8


def test_a_phase_may_lean_too() -> None:
    plain, bound = agnostic_plan(8.0, 1e-6, 50_000, factor=2.633, extra=1.0)
    plan, leaning = agnostic_plan(8.0, 1e-6, 50_000, factor=2.633, extra=1.0, lean="fill")
    assert plain.lean is None and isinstance(plan.lean, Lean) and plan.verify().epsilon <= 8
    assert bound.mistakes(100) < leaning.mistakes(100) < 1.6 * bound.mistakes(100)
    assert leaning.rates == rates(
        plan.lean.envelope(), copies=plan.copies, polls=plan.polls, fallback_error=0.5, lean=plan.lean
    )


def test_what_there_is_not_is_refused() -> None:
    for wrong in ({"lean": "much"}, {"lean": "fill", "labels": 3}):
        with pytest.raises(ValueError, match="lean="):
            Plan.certified(8.0, 1e-6, 20_000, 1, **wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="lean="):
            agnostic_plan(8.0, 1e-6, 20_000, factor=2.0, extra=1.0, **wrong)  # type: ignore[arg-type]
    paper = Plan.paper(8.0, 1e-2, 100, copies=20_000, unsure=10)
    with pytest.raises(ValueError, match="tosses a coin"):
        paper.but(lean=plans("fill").lean).verify()
