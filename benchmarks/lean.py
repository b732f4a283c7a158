"""The lean's figures: mistakes of unsure answers beside the coin's, at the same privacy.

Margins are uniform and the majority is right. The density of rounds is such that the coin's plan uses its planned
unsure answers; a lean whose gate is unsure more often needs more of them, which makes each cheaper and its tables
wider, and so on until both fit. No guide: the offset is 0.

With --votes also a simulation from real votes: copies of a logistic regression learn SEA (Street and Kim, 2001) without
noise, every live round's poll is counted, and gates and leans of the same promise are laid over the counts. Expected
values over their coins; a plan fits if it uses no more unsure answers than planned.

With --runs instead: whole runs on SEA without a guide, with a lean and with a coin, and how much longer a round of POP
with a guide takes because it leans.

python benchmarks/lean.py [--quick] [--votes] [--runs]
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from confide import POP, Plan, evaluate
from confide.banks.choose import bank_for
from confide.kernels.compile import jit
from confide.learners import LogisticRegression
from confide.planning.design import Budget, Split, build, draft, gate_for, search
from confide.planning.leaning import build_lean
from confide.planning.tight import Target
from confide.privacy.gate import Gate
from confide.privacy.lean import Lean, lean_answer
from confide.privacy.random import Random

console = Console(width=118)
Floats = NDArray[np.float64]
Law = Callable[[float], tuple[Floats, Floats]]
"""From τ to P(unsure) and P(wrong | unsure) by margin 1, 2, …"""


def settle(law: Law, tau: Callable[[float], float], density: float, planned: float) -> float:
    """Mistakes once the planned unsure answers are those that the law gives."""
    for _ in range(60):
        unsure, wrong = law(tau(planned))
        used = density * float(unsure.sum())
        if abs(used / planned - 1) < 1e-4:
            break
        planned = math.sqrt(used * planned)
    return density * float((unsure * wrong).sum())


def of_lean(lean: Lean) -> tuple[Floats, Floats]:
    row, middle = len(lean.offsets) // 2, lean.margins
    return lean.unsure[row, middle + 1 :], 1 - lean.first[row, middle + 1 :].astype(np.float64) * 2.0**-64


def sines(gate: Floats, order: int, cost: float) -> Floats:
    """The narrowest lean table of this cost, greedily: to leading order sin² of an angle that falls evenly to 0."""
    angle = math.pi / 4 - np.arange(1, gate.size + 1) / 2 * math.sqrt(cost / (2 * order))
    return np.sin(np.maximum(angle, 0.0)) ** 2


def laws(order: int, ties: float) -> dict[str, Callable[[float], Law]]:
    """What is compared; the argument is the share of the cost that the lean takes."""

    def additive(share: float) -> Law:
        return lambda tau: of_lean(Lean.additive(order=order, cost=tau, tie_sure=ties, share=share, offsets=1))

    def sine(share: float) -> Law:
        def law(tau: float) -> tuple[Floats, Floats]:
            gate = Gate.best(order=order, cost=tau * (1 - share), tie_sure=ties).table[1:]
            return gate, sines(gate, order, tau * share)

        return law

    def fill(share: float) -> Law:
        return lambda tau: of_lean(Lean.fill(order=order, cost=tau, tie_sure=ties, share=share, offsets=1))

    return {"additive, logistic": additive, "additive, sin²": sine, "fill": fill}


def continuum() -> tuple[float, float]:
    """Mistakes relative to the coin's where the step of one vote is small: of the best path and of the fill.

    In units in which one vote is one step, a path (y, χ) of unit speed has t = sech²y and wrong = sin²χ. With
    W = ∫ t·sin²χ and U = ∫ t, the unsure answers that follow widen everything by U: mistakes are W·U, and the coin's
    are ½.
    """
    best = min(wrong * mass for wrong, mass in (_best_path(float(mu)) for mu in np.linspace(0.08, 0.3, 12)))
    s = np.arange(0, 12, 1e-4)
    z = 4 * math.sqrt(0.95) * s  # a logistic lean turns at √0.95·sech(z/2)
    y = np.cumsum(np.sqrt(1 - 0.95 / np.cosh(z / 2) ** 2)) * 1e-4
    unsure = 1e-4 / np.cosh(y) ** 2
    return 2 * best, 2 * float(unsure.sum()) * float((unsure / (1 + np.exp(z))).sum())


def _best_path(mu: float) -> tuple[float, float]:
    """(W, U) of the path with the least W + μ·U: backward over χ, from each y up by any number of grid steps."""
    y, chi = np.arange(0, 8, 0.002), np.linspace(math.pi / 4, 0, 41)
    tail = 1 - np.tanh(y)  # ∫ sech² from y on: the lean stays as it is
    wrong, mass = np.zeros(y.size), tail.copy()
    for level in range(chi.size - 2, -1, -1):
        middle = math.sin((chi[level] + chi[level + 1]) / 2) ** 2
        here_wrong, here_mass = math.sin(chi[level]) ** 2 * tail, tail.copy()
        for up in range(150):
            far = y.size - up
            step = math.hypot(chi[level] - chi[level + 1], y[up]) / np.cosh(y[:far] + y[up] / 2) ** 2
            w, u = step * middle + wrong[up:], step + mass[up:]
            better = w + mu * u < here_wrong[:far] + mu * here_mass[:far]
            here_wrong[:far] = np.where(better, w, here_wrong[:far])
            here_mass[:far] = np.where(better, u, here_mass[:far])
        wrong, mass = here_wrong, here_mass
    return float(wrong[0]), float(mass[0])


def figures(quick: bool) -> None:
    table = Table(
        title="Mistakes of unsure answers relative to the coin's at δ = 10⁻⁶, full polls; best share of the cost"
    )
    for heading in ("ε", "unsure", "order", "additive, logistic", "additive, sin²", "fill", "fill at 0.95"):
        table.add_column(heading, justify="right")
    for epsilon, unsure in ((1, 1000), (1, 10_000), (4, 1000), (4, 10_000)):
        budget = Budget(epsilon, 1e-6, unsure, 1e-8, 1, Fraction(1))
        split = search(budget, lambda gate: float(gate.table.sum()))

        def tau(planned: float, budget: Budget = budget, split: Split = split) -> float:
            drafted = draft(replace(budget, unsure=round(planned)), split)
            assert drafted is not None
            return drafted[0]

        drafted = draft(budget, split)
        assert drafted is not None
        coin = gate_for(budget, split, *drafted)
        mass, ties = float(coin.table[1:].sum()), coin.tie_sure
        density, found = unsure / mass, laws(split.order, ties)
        cells = []
        for name, law in found.items():
            shares = (0.95,) if name == "fill" and quick else (0.3, 0.45) if quick else (0.2, 0.3, 0.4, 0.5, 0.6)
            shares = shares if name != "fill" or quick else (0.8, 0.9, 0.95, 0.98)
            got = {share: settle(law(share), tau, density, unsure) / (unsure / 2) for share in shares}
            best = min(got, key=got.__getitem__)
            cells.append(f"{got[best]:.3f} ({best:g})")
            if name == "fill":
                cells.append(f"{got[0.95]:.3f}")
        table.add_row(f"{epsilon}", f"{unsure}", f"{split.order}", *cells)
    console.print(table)


def speed() -> None:
    table = Table(title="Making and certifying a fill of 65 offsets")
    for heading in ("order", "cost", "polled", "rows × margins", "make, s", "certify, s", "certified / asked"):
        table.add_column(heading, justify="right")
    for order, cost, fraction, margins in (
        (12, 0.002, Fraction(1), 801),
        (12, 0.002, Fraction(201, 3200), 201),
        (30, 4e-4, Fraction(801, 4000), 801),
    ):
        begun = time.perf_counter()
        lean = Lean.fill(order=order, cost=cost, poll_fraction=fraction, margins=margins)
        made = time.perf_counter()
        got = lean.cost(order=order, poll_fraction=fraction)
        done = time.perf_counter()
        shape = " × ".join(map(str, lean.sure.shape))
        table.add_row(
            f"{order}",
            f"{cost:g}",
            str(fraction),
            shape,
            f"{made - begun:.2f}",
            f"{done - made:.2f}",
            f"{got / cost:.6f}",
        )
    console.print(table)


@jit
def _draw_all(words: NDArray[np.uint64], sure: NDArray[np.uint64], first: NDArray[np.uint64], reach: int) -> int:
    answered = 0
    for i in range(words.size // 2):
        label, settled = lean_answer(words[2 * i], words[2 * i + 1], sure, first, i & 3, i % (2 * reach) - reach)
        answered += label + int(settled)
    return answered


def draws() -> None:
    lean = Lean.fill(order=12, cost=0.002, margins=801, offsets=5)
    words = np.random.default_rng(1).integers(0, 2**64, 2_000_000, dtype=np.uint64)
    _draw_all(words[:2], lean.sure, lean.first, 400)
    begun = time.perf_counter()
    _draw_all(words, lean.sure, lean.first, 400)
    console.print(f"One gate and lean in a compiled loop: {(time.perf_counter() - begun) / 1e6 * 1e9:.1f} ns")


def votes(rounds: int, silent: int, copies: int, polls: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Signed margins of the live rounds' polls, and the right label of each."""
    draw = np.random.default_rng(seed)
    xs = draw.uniform(0, 10, (rounds, 3))
    ys = (xs[:, 0] + xs[:, 1] > 8).astype(np.int64)
    bank = bank_for(LogisticRegression(), copies=copies, labels=2, features=3, rng=Random())
    taught, margins = draw.integers(0, copies, rounds), np.zeros(rounds - silent, dtype=np.int64)
    bank.learn_many(taught[:silent], xs[:silent], ys[:silent])
    for i in range(silent, rounds):
        counts = bank.votes(xs[i], draw.choice(copies, polls, replace=False))
        margins[i - silent] = counts[0] - counts[1]
        bank.learn(int(taught[i]), xs[i], int(ys[i]))
    return margins, ys[silent:]


def over(lean: Lean, margins: NDArray[np.int64], right: NDArray[np.int64]) -> tuple[float, float]:
    """(unsure answers, error) of a lean without offset on these polls, expected over its coins."""
    row, column = len(lean.offsets) // 2, np.clip(margins, -lean.margins, lean.margins) + lean.margins
    unsure, first = lean.unsure[row, column], lean.first[row, column].astype(np.float64) * 2.0**-64
    wrong = unsure * np.where(right == 0, 1 - first, first) + (1 - unsure) * ((margins < 0) != right)
    return float(unsure.sum()), float(wrong.mean())


def by_votes(seed: int) -> None:
    table = Table(
        title="SEA by real votes, δ = 10⁻⁶: error of the live rounds, and unsure answers used of those planned"
    )
    for heading in ("ε", "rounds", "polls/copies", "planned", "majority", "coin", "additive", "fill"):
        table.add_column(heading, justify="right")
    for epsilon, rounds, silent, copies, polls, unsure in (
        (4.0, 200_000, 80_000, 1579, 513, 10_000),
        (4.0, 200_000, 80_000, 3000, 513, 6000),
        (1.0, 600_000, 240_000, 18_000, 1025, 43_200),
    ):
        live = rounds - silent
        margins, right = votes(rounds, silent, copies, polls, seed)
        target = Target(epsilon, 1e-6, live, unsure, 1, 0.01, polls, unsure / (2 * live))
        budget, split = target.budget(copies, margins=polls), target.split(copies)
        sure = build(budget, split)[0].sure[np.abs(np.arange(-polls, polls + 1)).clip(0, polls)][None, :]
        coin = Lean("additive", 0.5, 1.0, (0,), sure, np.full_like(sure, 2**63))
        made = [build_lean(budget, split, make=partial(kind, offsets=1)).lean for kind in (Lean.additive, Lean.fill)]
        leans = [coin, *(lean for lean in made if isinstance(lean, Lean))]
        cells = [f"{error:.2%} ({used / unsure:.2f})" for used, error in (over(lean, margins, right) for lean in leans)]
        majority = f"{np.mean((margins < 0) != right):.2%}"
        table.add_row(f"{epsilon:g}", f"{rounds:,}", f"{polls}/{copies}", f"{unsure:,}", majority, *cells)
    console.print(table)


def sea(rounds: int, seed: int) -> tuple[Floats, NDArray[np.int64]]:
    """Rows and labels of SEA's first concept, without noise."""
    x = np.random.default_rng(seed).uniform(0, 10, (rounds, 3))
    return x, (x[:, 0] + x[:, 1] <= 8).astype(np.int64)


def runs(seed: int) -> None:
    table = Table(title="SEA, whole runs at δ = 10⁻⁶, guide=None: error after 40 % of the rounds")
    for heading in ("ε", "rounds", "polls/copies", "planned", "coin", "fill"):
        table.add_column(heading, justify="right")
    for epsilon, rounds, copies, polls, unsure in (
        (4.0, 200_000, 3000, 513, 6000),
        (1.0, 600_000, 18_000, 1025, 43_200),
    ):
        x, y = sea(rounds, seed)
        cells = []
        for lean in (None, "fill"):
            plan = Plan.tight(
                epsilon, 1e-6, rounds, guide=None, copies=copies, polls=polls, unsure=unsure,
                lean=lean,  # type: ignore[arg-type]
            )  # fmt: skip
            pop = POP(LogisticRegression(), plan, labels=[0, 1], features=3, seed=seed)
            cells.append(f"{evaluate(pop, x, y).error_after(0.4):.2%}")
        table.add_row(f"{epsilon:g}", f"{rounds:,}", f"{polls}/{copies}", f"{unsure:,}", *cells)
    console.print(table)


def lean_time(seed: int) -> None:
    """The processor's time of whole runs with a guide and copies, with and without a lean, in turn."""
    rounds = 200_000
    x, y = sea(rounds, seed)
    plans = [
        Plan.tight(4.0, 1e-6, rounds, guide=0.3, copies=3000, polls=129, unsure=6000, lean=lean)  # type: ignore[arg-type]
        for lean in (None, "fill")
    ]
    ratios = []
    for _ in range(6):
        took = []
        for plan in plans:
            pop = POP(LogisticRegression(), plan, labels=[0, 1], features=3, seed=seed)
            start = time.process_time()
            evaluate(pop, x, y)
            took.append(time.process_time() - start)
        ratios.append(took[1] / took[0])
    ratios = sorted(ratios[1:])  # the first one compiles
    spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
    console.print(f"A round with lean and guide takes {ratios[2]:.2f} times one with the guide ({spread}).")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer shares, no continuum")
    parser.add_argument("--votes", action="store_true", help="also the simulation from real votes, a minute more")
    parser.add_argument("--seed", type=int, default=1, help="of the simulation")
    parser.add_argument("--runs", action="store_true", help="whole runs on SEA instead")
    given = parser.parse_args()
    if given.runs:
        runs(given.seed)
        lean_time(given.seed)
        return
    quick = given.quick
    figures(quick)
    speed()
    draws()
    if given.votes:
        by_votes(given.seed)
    if not quick:
        best, filled = continuum()
        console.print(
            f"Continuum, many unsure answers: joint optimum {best:.3f} of the coin's mistakes, fill {filled:.3f}"
        )


if __name__ == "__main__":
    main()
