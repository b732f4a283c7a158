"""The exact laws, against enumeration and against games."""

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import confide
from benchmarks.constant import constant_query_epsilon
from confide.games import BOTTOM, OnlineGame, Region, Seen, SplitVote, View, WorstMargin, constant_query, yardstick
from confide.games.adversaries import tally
from confide.games.fit import misfit
from confide.games.laws import Turned, outcomes, unsure_share
from confide.games.scenarios import SplitPOP, split_plan
from confide.privacy.halting import Halting

pytestmark = pytest.mark.claim("audit.md")

PLAN = split_plan(8.0, unsure=20, rounds=300, copies=160)
TINY = Halting([int(0.9 * 2**64), int(0.8 * 2**64), int(0.5 * 2**64), int(0.25 * 2**64), 0], shift=1)


@pytest.mark.parametrize("hidden", [0, 1, 3])
@pytest.mark.parametrize("rounds", [1, 2, 6, 9])
def test_outcomes_are_what_enumeration_gives(hidden: int, rounds: int) -> None:
    p, table = 0.3, TINY.table
    halted, alive = {}, {}

    def go(u: int, s: int, chance: float) -> None:
        """A round is next."""
        if u + s == rounds:
            alive[u] = alive.get(u, 0.0) + chance
            return
        for unsure, share in ((1, p), (0, 1 - p)):
            now = (u + unsure, s + 1 - unsure)
            h = table[min(now[0] + hidden, TINY.stop)]
            halted[now] = halted.get(now, 0.0) + chance * share * h
            if h < 1:
                go(*now, chance * share * (1 - h))

    first = table[min(hidden, TINY.stop)]
    halted[0, 0] = first
    go(0, 0, 1 - first)
    law = outcomes(p, TINY, hidden, rounds)
    assert law.halted.sum() + law.alive.sum() == pytest.approx(1, abs=1e-12)
    for (u, s), chance in halted.items():
        assert law.halted[u, s] == pytest.approx(chance, abs=1e-14)
    for u, chance in alive.items():
        assert law.alive[u] == pytest.approx(chance, abs=1e-14)
    assert np.count_nonzero(law.halted > 1e-15) <= len(halted) and np.count_nonzero(law.alive > 1e-15) <= len(alive)


def test_without_a_shift_the_counts_are_sufficient() -> None:
    """The likelihood ratio of a whole path is that of its (u, s): enumerate the paths of six rounds."""
    p, q, table = 0.3, 0.4, TINY.table
    a, b = outcomes(p, TINY, 0, 6, drawn=False), outcomes(q, TINY, 0, 6, drawn=False)
    for path in itertools.product([0, 1], repeat=6):
        chances = []
        for unsure in (p, q):
            chance, n = 1.0, 0
            for one in path:
                n += one
                chance *= (unsure if one else 1 - unsure) * (1 - table[min(n, TINY.stop)])
            chances.append(chance)
        if chances[0] > 0:
            u = sum(path)
            assert chances[1] / chances[0] == pytest.approx(b.alive[u] / a.alive[u])


def test_unsure_share_is_the_gates_table_and_averages_over_polls() -> None:
    assert unsure_share(PLAN, 100) == PLAN.gate.table[40]
    polled = confide.Plan.tight(8, 1e-6, 3000, copies=1000, polls=129, unsure=200, silent=0, beta=1e-3, guide=None)
    some = np.array([0.0, 1.0]).repeat([300, 700])
    rng = np.random.default_rng(3)
    margins = [abs(2 * int(rng.choice(some, 129, replace=False).sum()) - 129) for _ in range(4000)]
    sampled = polled.gate.table[margins]
    assert unsure_share(polled, 700) == pytest.approx(sampled.mean(), abs=6 * sampled.std() / math.sqrt(4000))


def test_the_yardstick_is_close_to_the_gate_alone_and_below_the_certificate() -> None:
    curve, ones = yardstick(PLAN, shift=0)
    gate_alone = constant_query_epsilon(PLAN.gate, reports=PLAN.halting.stop, delta=1e-6)[0]  # type: ignore[union-attr]
    assert 0.75 * gate_alone < curve.epsilon(1e-6) < gate_alone  # the halt comes earlier than n_stop, mostly
    region = Region.of(PLAN)
    false, true = curve.corners
    assert all(region.holds(a, b - 1e-9) for a, b in zip(false[::50], true[::50], strict=True))
    shifted, _ = yardstick(PLAN)
    assert shifted.advantage > curve.advantage
    assert all(constant_query(PLAN, s, s + 1).advantage <= curve.advantage + 1e-9 for s in range(ones - 8, ones + 9))


def test_games_have_the_law_that_is_claimed() -> None:
    """Unsure answers at the halt, against the exact law; each of four bounds fails with probability 10⁻⁷."""
    adversary = WorstMargin(PLAN)
    game = OnlineGame(SplitPOP(PLAN), adversary, PLAN.rounds)
    for bit in (0, 1):
        law = adversary.worlds[bit]
        scores, rounds = [], []
        for _ in range(400):
            view = game.play(bit)
            unsure, sure = tally(view)
            assert view.halted and law.halted[unsure, sure] > 0
            scores.append(adversary.score(view))
            rounds.append(unsure + sure)
        curve = adversary.law()
        assert curve is not None
        shown = int((np.array(scores) > 0).sum())
        expected = curve.tails(np.array([0.0]))[bit][0]
        assert binom.cdf(shown, 400, expected) > 1e-7 and binom.sf(shown - 1, 400, expected) > 1e-7
        middle = int(np.median(rounds))
        u, s = np.indices(law.halted.shape)
        chance = law.halted[u + s <= middle].sum()
        early = sum(n <= middle for n in rounds)
        assert binom.cdf(early, 400, chance) > 1e-7 and binom.sf(early - 1, 400, chance) > 1e-7


def test_the_changed_vote_counts_in_every_round() -> None:
    adversary = WorstMargin(PLAN, ones=100)
    zero, one = adversary._shares
    share = Fraction(100, 160)
    t = PLAN.gate.table
    assert zero == pytest.approx(float(share) * t[40] + float(1 - share) * t[42])
    assert one == pytest.approx(float(share) * t[38] + float(1 - share) * t[40])
    with pytest.raises(ValueError, match="majority"):
        WorstMargin(PLAN, ones=80)
    paper = confide.Plan.paper(8, 1e-6, 100, copies=20_000, unsure=10)
    with pytest.raises(ValueError, match="halting table"):
        WorstMargin(paper)
    with pytest.raises(ValueError, match="halting table"):
        constant_query(paper, 90, 91)


Views = dict[tuple[object, ...], list[float]]
"""The probabilities of a view at bit 0 and bit 1."""


def _views(turned: Turned, rounds: int) -> Views:
    """Every view, turns included, by following each world: (turns, outcomes, halted)."""
    found: Views = {}
    k, table, stop = turned.copies, turned.halting.table, turned.halting.stop
    more, same, fewer = turned.shares

    def go(bit: int, place: int, count: int, turns: tuple[int, ...], seen: tuple[bool, ...], chance: float) -> None:
        h = table[min(count, stop)]
        for halted, share in ((True, h), (False, 1 - h)):
            if halted or len(seen) == rounds:
                found.setdefault((turns, seen, halted), [0.0, 0.0])[bit] += chance * share
        if len(seen) == rounds or h == 1:
            return
        for turn in range(k):
            here = (place + turn) % k < turned.ones
            p = (same if here else more, fewer if here else same)[bit]
            for unsure, share in ((True, p), (False, 1 - p)):
                go(bit, place, count + unsure, (*turns, turn), (*seen, unsure), chance * (1 - h) * share / k)

    for bit, place in itertools.product((0, 1), range(k)):
        for before, weight in enumerate(turned.hidden[bit]):
            go(bit, place, before, (), (), weight / k)
    return found


def _merged(views: Views, part: str) -> float:
    """Total variation of what is left of the views."""
    kept: Views = {}
    for (turns, seen, halted), (zero, one) in views.items():  # type: ignore[misc]
        key = {
            "all": (turns, seen, halted),
            "outcomes": (seen, halted),
            "counts": (sum(seen), len(seen), halted),
        }[part]
        both = kept.setdefault(key, [0.0, 0.0])
        both[0] += zero
        both[1] += one
    return sum(abs(one - zero) for zero, one in kept.values()) / 2


HIDDEN = {"none": ((1.0,), (1.0,)), "alike": ((0.5, 0.5), (0.5, 0.5)), "one more": ((1.0,), (0.0, 1.0))}


@pytest.mark.parametrize("shift", list(HIDDEN))
def test_the_turns_tell_more_than_the_counts(shift: str) -> None:
    """(u, s, halted) is sufficient for the outcomes if the hidden counts have one law, for the turns never."""
    hidden = HIDDEN[shift]
    turned = Turned(5, 3, (0.05, 0.3, 0.9), TINY, hidden)
    views = _views(turned, 3)
    assert sum(zero for zero, _ in views.values()) == pytest.approx(1) == sum(one for _, one in views.values())
    for (turns, seen, halted), (zero, one) in views.items():  # type: ignore[misc]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.nan_to_num(np.log(one) - np.log(zero), nan=0.0, posinf=np.inf, neginf=-np.inf)
        assert turned.score(np.array(turns, int), np.array(seen, bool), halted) == pytest.approx(ratio)
    counts, order, everything = (_merged(views, part) for part in ("counts", "outcomes", "all"))
    assert everything > order + 1e-3
    assert (order == pytest.approx(counts)) if shift != "one more" else order > counts + 1e-4
    p, q = (sum(w * t for w, t in zip((0.6, 0.4), pair, strict=True)) for pair in ((0.3, 0.05), (0.9, 0.3)))
    laws = []
    for share, weights in zip((p, q), hidden, strict=True):
        parts = [(w, outcomes(share, TINY, n, 3)) for n, w in enumerate(weights)]
        laws.append(
            np.concatenate([sum(w * getattr(o, name).ravel() for w, o in parts) for name in ("halted", "alive")])
        )
    assert counts == pytest.approx(np.abs(laws[0] - laws[1]).sum() / 2)  # the law of the counts is exact all the same


def test_a_turned_score_reads_the_plans_tables() -> None:
    turned = Turned.of(PLAN, 100, ((1.0,), (0.0, 1.0)))
    t = PLAN.gate.table
    assert turned.shares == (t[42], t[40], t[38])
    rng = np.random.default_rng(5)
    turns = rng.integers(160, size=50)
    assert turned.score(turns, np.ones(50, bool), False) > turned.score(turns, np.zeros(50, bool), False)
    with pytest.raises(ValueError, match="halting table"):
        Turned.of(confide.Plan.paper(8, 1e-6, 100, copies=20_000, unsure=10), 90, ((1.0,), (1.0,)))


# ---------------------------------------------------------------------- silence, polls, batches, turns

SILENT = confide.Plan.tight(8, 1e-6, 400, copies=160, polls=160, unsure=20, silent=160, beta=1e-3, guide=None)
POLLED = confide.Plan.tight(8, 1e-6, 500, copies=300, polls=101, unsure=30, silent=200, beta=1e-3, guide=None)


def test_the_laws_begin_after_the_silent_rounds() -> None:
    plain = confide.Plan.tight(8, 1e-6, 240, copies=160, polls=160, unsure=20, silent=0, beta=1e-3, guide=None)
    late, early = (WorstMargin(plain.but(rounds=plain.rounds + s, silent=s), ones=100) for s in (160, 0))
    assert late.law() is not None and early.law() is not None
    assert np.array_equal(late.worlds[1].flat, early.worlds[1].flat)
    assert constant_query(SILENT, 100, 101).zero.size == constant_query(SILENT, 100, 101, rounds=239).zero.size


@pytest.mark.parametrize("plan", [SILENT, POLLED], ids=["silence", "silence and polls"])
@pytest.mark.parametrize("person", [False, True], ids=["rounds", "people"])
@pytest.mark.parametrize("together", [False, True], ids=["alone", "in a batch"])
def test_games_with_silence_polls_people_and_batches_have_the_exact_law(
    plan: confide.Plan, person: bool, together: bool
) -> None:
    """Twenty-four games at each bit fit all laws: false positives 10⁻⁷ each."""
    adversary = WorstMargin(plan, person=person, together=together)
    game = OnlineGame(SplitPOP(plan, "people" if person else "rounds"), adversary, plan.rounds)
    rows = []
    for bit in (0, 1):
        views = [game.play(bit) for _ in range(24)]
        for view in views:
            assert (
                not any(answer.sure for answer in view.answers[: plan.silent]) and BOTTOM is view.answers[plan.silent]
            )
        rows.append(np.array([adversary.numbers(view) for view in views]))
    assert misfit(adversary.laws(), rows[0], rows[1], 1e-7) is None
    moved = [rows[0] + [0, 60, 60], rows[1] + [0, 60, 60]]
    assert misfit(adversary.laws(), moved[0], moved[1], 1e-7) is not None  # and it can fail


def test_the_turned_score_is_the_likelihood_of_the_view() -> None:
    """The turns are the adversary's own coins, so they come back from the view; silent rounds are left out."""
    adversary, counts = WorstMargin(SILENT, ones=100, turned=True), WorstMargin(SILENT, ones=100)
    game = OnlineGame(SplitPOP(SILENT), adversary, SILENT.rounds)
    assert adversary.law() is None and adversary.laws() == ()
    asked: list[int] = []

    class Watched(confide.POP):
        def follow_many(self, xs: Any, ys: Any, units: Any = None) -> Any:
            asked.extend(np.round(np.asarray(xs)[:, 1] * 160).astype(int).tolist())
            return super().follow_many(xs, ys, units)

    def make() -> Watched:
        return Watched(SplitVote(), SILENT, labels=[0, 1], features=2, fallback=0, seed=11)

    view = OnlineGame(make, adversary, SILENT.rounds).play(1)
    live = [not answer.sure for answer in view.answers[161:]]
    weights = tuple((1 - p, p) for p in (unsure_share(SILENT, 160), unsure_share(SILENT, 80)))
    turned = Turned.of(SILENT, 100, weights)  # type: ignore[arg-type]
    turns = np.array(asked[160:][: len(live)])
    assert adversary.score(view) == pytest.approx(turned.score(turns, np.array(live), view.halted))
    scores = [[one.score(game.play(bit)) for _ in range(60)] for bit in (0, 1) for one in (adversary,)]
    assert np.mean(scores[1]) > np.mean(scores[0])
    assert abs(adversary.score(view) - counts.score(view)) < 2
    for wrong in ({"challenges": 2}, {"late": True}):
        for kind in ("turned", "together"):
            with pytest.raises(ValueError, match="one challenge"):
                WorstMargin(SILENT, ones=100, **{kind: True, **wrong})  # type: ignore[arg-type]


def test_with_many_copies_the_turns_add_next_to_nothing() -> None:
    """Total variation with the turns, from the exact likelihood of simulated views, less that without: below 1 %.

    Both are means of |tanh(score/2)| over the same views, so their difference has a small deviation: 2000 views.
    """
    plan = split_plan(8.0, unsure=20, rounds=300, copies=160)
    adversary = WorstMargin(plan, ones=100, turned=True)
    counts, gains = WorstMargin(plan, ones=100), []
    assert isinstance(plan.halting, Halting)
    rng, h = np.random.default_rng(4), plan.halting.table
    more, same, fewer = (unsure_share(plan, 100 + change) for change in (1, 0, -1))
    for i in range(2000):
        bit, place, seed = i % 2, int(rng.integers(160)), int(rng.integers(1 << 62))
        turns = np.concatenate([*adversary._turns(np.random.default_rng(seed))])[: plan.rounds - 1]
        inside = (place + turns) % 160 < 100
        chance = np.where(inside, fewer, same) if bit else np.where(inside, same, more)
        unsure = rng.random(turns.size) < chance
        hidden = int(rng.random() < unsure_share(plan, 80 if bit else 160))
        levels = np.minimum(np.concatenate([[0], np.cumsum(unsure)]) + hidden, plan.halting.stop)
        halts = np.flatnonzero(rng.random(levels.size) < h[levels])
        rounds = int(halts[0]) if halts.size else turns.size
        seen = [BOTTOM, *(Seen(0, not one) for one in unsure[:rounds].tolist())]
        view = View(seen, bool(halts.size), coins=seed)
        gains.append(abs(math.tanh(adversary.score(view) / 2)) - abs(math.tanh(counts.score(view) / 2)))
    exact = counts.law()
    assert exact is not None
    assert abs(np.mean(gains)) + 5 * np.std(gains) / math.sqrt(2000) < 0.01 * exact.advantage
