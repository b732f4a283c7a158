"""The water report: every household learns whether it is above or below the median, and nothing about its neighbours.

    python examples/water.py                       # accuracy at several ε, then the check, under two minutes
    python examples/water.py --quick               # the same with few repetitions, seconds
    python examples/water.py --picture water.svg   # and the picture of docs/water.md

A water company reads every meter, and tells each household "above" or "below" the neighbourhood's median. The report of
one household says something about the others: joint differential privacy bounds how much all the others' reports
together say about one. Every household is a copy with one vote, Confide's gate decides, and its halting gate ends it.
docs/water.md says which guarantee this is, and why.
"""

from __future__ import annotations

import argparse
import functools
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pictures import BLUES, GREY, ORANGE, PER_CENT, picture
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import confide
from confide.games import BOTTOM, Region, View, audit_game
from confide.privacy.halting import Halting
from confide.privacy.random import Random

HOUSEHOLDS = 4000
GRID = 200_000
"""Litres in a quarter: what the private median, for comparison, chooses from."""
EPSILONS = (1.0, 2.0, 4.0, 8.0)
WORDS = ("below", "above")

Litres = NDArray[np.float64]


# ---------------------------------------------------------------------- the report


def votes(litres: Litres) -> list[tuple[int, int]]:
    """For each household how many others use more, and how many use less: their votes for "below" and for "above"."""
    ordered = np.sort(litres)
    more = litres.size - np.searchsorted(ordered, litres, side="right")
    less = np.searchsorted(ordered, litres, side="left")
    return list(zip(more.tolist(), less.tolist(), strict=True))


def report(litres: Litres, plan: confide.Plan, rng: Random) -> list[str | None]:
    """For each household in turn "above", "below", or None: so close to the median that it is not told.

    It ends where the budget does: whoever comes after that is not told either.
    """
    assert isinstance(plan.halting, Halting)
    answers: list[str | None] = []
    unsure = 0
    for counts in votes(litres):
        label = plan.gate.decide(counts, rng)
        unsure += label is None
        answers.append(None if label is None else WORDS[label])
        if plan.halting.fires(unsure, rng):
            break
    return answers


def exact_report(litres: Litres) -> list[str | None]:
    """What everybody would be told without protection."""
    return [WORDS[int(less > more)] for more, less in votes(litres)]


@functools.cache
def make_plan(epsilon: float, households: int) -> confide.Plan:
    """The smallest budget that the report itself will need, found without looking at any meter.

    If no two meters agree, the margins are those of the ranks 1 … n whatever the litres are. So the expected number of
    unsure answers follows from the gate alone, and `unsure` is chosen five deviations above it.
    """
    margins = np.abs(2 * np.arange(households) - (households - 1))

    def planned(unsure: int) -> tuple[confide.Plan, float]:
        made = confide.Plan.tight(
            epsilon,
            1e-6,
            households,
            copies=households,
            polls=households,
            unsure=unsure,
            silent=0,
            beta=1e-4,
            guide=None,
        )
        rates = sure_rates(made, margins)
        return made, float((1 - rates).sum() + 5 * np.sqrt((rates * (1 - rates)).sum()))

    unsure, (made, needed) = 50, planned(50)
    while needed > unsure:
        unsure = math.ceil(needed)
        made, needed = planned(unsure)
    return made


def sure_rates(plan: confide.Plan, margins: NDArray[np.int64]) -> NDArray[np.float64]:
    """The probability of being told, by the margin."""
    table = plan.gate.table
    return 1 - table[np.minimum(margins, table.size - 1)]


# ---------------------------------------------------------------------- how well it does


def neighbourhood(households: int) -> Litres:
    """Synthetic meters: litres in a quarter, around 30,000, within the grid."""
    litres = np.exp(np.random.default_rng().normal(math.log(30_000), 0.5, size=households))
    return np.clip(np.round(litres, 2), 0, GRID - 1)


def median_rates(litres: Litres, epsilon: float) -> NDArray[np.float64]:
    """For comparison, exactly: each household's probability of a right report from an ε-private median on the grid.

    The exponential mechanism: z is chosen with probability proportional to exp(−ε·|below − above|/4), the difference of
    which one household changes by 2. No z is drawn here: these are its probabilities.
    """
    ordered, grid = np.sort(litres), np.arange(GRID)
    off = np.abs(2 * np.searchsorted(ordered, grid, side="right") - litres.size)
    weights = np.exp(-epsilon * (off - off.min()) / 4)
    below = np.cumsum(weights / weights.sum())  # P(z ≤ grid)
    above = below[np.floor(litres).astype(np.int64)]
    return np.where(litres > np.median(litres), above, 1 - above)


@dataclass(frozen=True)
class Outcome:
    """What came of the reports of one ε."""

    epsilon: float
    plan: confide.Plan
    distance: NDArray[np.float64]
    """Households between each household and the median."""
    told: NDArray[np.float64]
    """The share of the repetitions in which it was told."""
    wrong: int
    """Wrong reports in all repetitions together."""
    halted: int
    """Repetitions that ran out of budget."""
    median: NDArray[np.float64]
    """P(right) from a private median of the same ε."""


def measure(litres: Litres, epsilon: float, repetitions: int, tick: Callable[[], object]) -> Outcome:
    """Report so often, with fresh coins each time."""
    plan, rng, truth = make_plan(epsilon, litres.size), Random(), exact_report(litres)
    told, wrong, halted = np.zeros(litres.size), 0, 0
    for _ in range(repetitions):
        answers = report(litres, plan, rng)
        told[: len(answers)] += [answer is not None for answer in answers]
        wrong += sum(answer not in (None, right) for answer, right in zip(answers, truth, strict=False))
        halted += len(answers) < litres.size
        tick()
    rank = np.argsort(np.argsort(litres))
    distance = np.abs(rank - (litres.size - 1) / 2)
    return Outcome(epsilon, plan, distance, told / repetitions, wrong, halted, median_rates(litres, epsilon))


# ---------------------------------------------------------------------- the check


def one_vote(litres: Litres, household: int, other: float) -> bool:
    """What the proof uses: with another meter in one household, every other household's counts differ by one vote."""
    changed = litres.copy()
    changed[household] = other
    moved = np.abs(np.array(votes(changed)) - np.array(votes(litres)))
    return bool((np.delete(moved, household, axis=0) <= 1).all())


@dataclass(frozen=True)
class Neighbours:
    """All other households together, against one: they chose their meters so that its one vote counts most.

    The one household uses either nothing or a great deal. `lead` households use nothing, and all others the same amount
    in between: each of those asks at the same margin, one vote more or less.
    """

    plan: confide.Plan
    lead: int

    def litres(self, bit: int) -> Litres:
        """Everybody's meters."""
        meters = np.ones(self.plan.copies)
        meters[0] = 2.0 * bit
        meters[self.plan.copies - self.lead :] = 0.0
        return meters

    def score(self, view: View) -> float:
        """The log-likelihood ratio of who was told; without a lead, who was told what."""
        seen = [answer for answer in view.answers[: self.plan.copies - self.lead] if answer is not BOTTOM]
        if not self.lead:
            return float(seen.count("below") - seen.count("above"))
        zero, one = sure_rates(self.plan, np.array([self.lead + 1, self.lead - 1]))
        told = sum(answer is not None for answer in seen)
        return told * math.log(one / zero) + (len(seen) - told) * math.log((1 - one) / (1 - zero))


@dataclass(frozen=True)
class JointGame:
    """The definition as a game: the bit says which of two meters one household has, the others see their reports."""

    adversary: Neighbours
    protected: bool = True

    def play(self, bit: int) -> View:
        """Play once; the household's own report is hidden."""
        litres = self.adversary.litres(bit)
        answers = report(litres, self.adversary.plan, Random()) if self.protected else exact_report(litres)
        return View([BOTTOM, *answers[1:]])


def check(epsilon: float, games: int, households: int) -> None:
    """Re-certify the plan, test what its proof assumes, and let all neighbours attack; raises if anything fails."""
    plan = make_plan(epsilon, households)
    verified = plan.verify()
    print(f"\n{plan.guarantee}: certified again from the shipped tables, ε = {verified.epsilon:.4f}")
    litres, coins = neighbourhood(households), np.random.default_rng()
    for other in (0.0, GRID - 1.0, *coins.choice(litres, 50)):
        if not one_vote(litres, int(coins.integers(households)), float(other)):
            raise RuntimeError("one household changed more than one vote of another's count")
    print("one household's meter changes one vote of everybody else's count: so it was in 52 replacements")
    lead = plan.gate.margin(unsure=0.4)
    region = Region.of(plan)
    honest = audit_game(JointGame(Neighbours(plan, lead)), games, certificate=plan, progress=sys.stdout.isatty())
    naive = audit_game(JointGame(Neighbours(plan, 0), protected=False), 300, certificate=plan)
    print(f"all neighbours against one household, {games:,} games at each bit (300 of exact reports), 99 % confidence:")
    print(f"  exact reports      advantage ≥ {naive.advantage:.3f}: {'broken' if naive.alarm else 'not caught'}")
    print(f"  this report        advantage ≥ {honest.advantage:.3f}, certified ≤ {region.advantage:.3f}")
    if honest.alarm or not naive.alarm:
        raise RuntimeError("the audit does not agree with the certificate")


# ---------------------------------------------------------------------- what comes out


def table(outcomes: list[Outcome]) -> str:
    """The numbers, as text."""
    widths = (8, 15, 8, 9, 30, 26)
    heads = ("ε", "told nothing", "wrong", "halted", "told, of the nearest 200/800", "wrong by a private median")
    rows = [heads]
    for one in outcomes:
        near = "/".join(f"{one.told[one.distance <= d].mean():.0%}" for d in (100, 400))
        untold = f"{(1 - one.told).sum():.0f} = {1 - one.told.mean():.1%}"
        by_median = f"{(1 - one.median).sum():.2f}"
        rows.append((f"{one.epsilon:g}", untold, str(one.wrong), str(one.halted), near, by_median))
    return "\n".join("".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows)


def draw(outcomes: list[Outcome], path: Path) -> None:
    """Right reports by the number of households between a household and the median."""
    with picture(path, (7.2, 3.9)) as figure:
        axes = figure.add_subplot()
        households = outcomes[0].distance.size
        steps = np.geomspace(0.5, households / 2, 25)
        ranks = np.arange(households // 2) + 0.5

        def by_distance(one: Outcome, values: NDArray[np.float64]) -> tuple[list[float], list[float]]:
            bins = [(one.distance >= low) & (one.distance < high) for low, high in pairwise(steps)]
            means = [(float(one.distance[here].mean()), float(values[here].mean())) for here in bins if here.any()]
            return [x for x, _ in means], [y for _, y in means]

        for one, colour in zip(outcomes, BLUES, strict=False):
            exact = sure_rates(one.plan, (2 * ranks).astype(np.int64))
            axes.plot(ranks, (1 + exact) / 2, color=colour, lw=2)
            place = (float(ranks[np.argmax(exact > 0.5)]), 0.75)
            axes.annotate(f"ε = {one.epsilon:g}", place, (8, -8), textcoords="offset points", color=colour)
            axes.plot(*by_distance(one, (1 + one.told) / 2), "o", color=colour, ms=4)
        first = outcomes[0]
        axes.plot(*by_distance(first, first.median), color=ORANGE, lw=1.5, ls="--")
        name = f"private median\non a grid, ε = {first.epsilon:g}"
        axes.annotate(name, (0.4, 0.925), color=ORANGE)
        axes.axhline(0.5, color=GREY, lw=1)
        axes.set(xscale="log", ylim=(0.45, 1.03), xlabel="households between this one and the median")
        axes.set_title(f"right reports, with a coin for whoever is not told; {households:,} households")
        axes.yaxis.set_major_formatter(PER_CENT)
        axes.xaxis.set_major_formatter("{x:,.0f}")


def main(arguments: list[str] | None = None) -> list[Outcome]:
    """Report, print how it went, check the promise, and draw."""
    first, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=first, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two ε, few repetitions and games")
    parser.add_argument("--households", type=int, default=HOUSEHOLDS, help="how many meters (default: %(default)s)")
    parser.add_argument("--picture", type=Path, metavar="PATH", help="draw the picture there, as .svg or .png")
    asked = parser.parse_args(arguments)
    if asked.households < 1000:
        parser.error("--households must be at least 1000: among fewer, hardly anybody can be told")
    epsilons = (4.0, 8.0) if asked.quick else EPSILONS
    repetitions, games, checked = (2, 40, 8.0) if asked.quick else (100, 2000, 4.0)
    litres = neighbourhood(asked.households)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    outcomes = []
    with Progress(*columns, disable=not sys.stderr.isatty(), console=Console(stderr=True)) as bar:
        for epsilon in epsilons:
            task = bar.add_task(f"ε = {epsilon:g}", total=repetitions)
            outcomes.append(measure(litres, epsilon, repetitions, functools.partial(bar.advance, task)))
    print(table(outcomes))
    check(checked, games, asked.households)
    if asked.picture is not None:
        draw(outcomes, asked.picture)
        print(f"picture: {asked.picture}")
    return outcomes


if __name__ == "__main__":
    main()
