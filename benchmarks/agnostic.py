"""Mistakes in phases where labels are noisy or the concept drifts, beside OPT, the paper's bound and ours.

    python benchmarks/agnostic.py --out runs.json --picture docs/images/agnostic.svg    500 000 rounds, (8, 10⁻⁶)
    python benchmarks/agnostic.py --quick                                               50 000 rounds, under a minute

Thresholds on 7 points (8 hypotheses, dimension 3), questions uniform, copies of `WeightedMajority`. Labels are the
target's, flipped with probability 1, 5 or 10 %; or they are exact, and the target moves by one point after each third
of the rounds (drift), or from one end to the other after half of them (jump). OPT: errors of the hypothesis that is
best for the whole sequence.

  phases      `confide.pop.phases.Phases`: fresh copies whenever the budget of unsure answers is used
  POP_[u,w]   the paper's: also after u mistakes by a private counter, u = r; a tenth of ε pays for it

Bounds: in expectation (docs/proofs/phases.md, Claim 2, and Claim 4 for POP_[u,w]), with probability 0.95 (Claim 3), and
the paper's with its constants read literally. A coin makes T/2 mistakes: what is above that says nothing. Runs are
secure, so they differ each time; `--out` keeps finished runs. Exits with 1 when a run passes a bound.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from confide import Monitor, Plan
from confide.learners import WeightedMajority
from confide.planning import paper
from confide.planning.agnostic import AgnosticBound, agnostic_plan
from confide.pop.phases import Phases

DELTA, BETA, COUNTER = 1e-6, 0.05, 0.1
THRESHOLDS = np.tri(8, 7, -1).astype(np.int64)
LEARNER = WeightedMajority(THRESHOLDS)
FACTOR = math.log(1 / LEARNER.beta) / math.log(2 / (1 + LEARNER.beta))
EXTRA = math.log(len(THRESHOLDS)) / math.log(1 / LEARNER.beta)
STREAMS = {"1 % noise": 0.01, "5 % noise": 0.05, "10 % noise": 0.10, "drift": 0.0, "jump": 0.0}
MARKS = 200
OURS, THEIRS = "#22577a", "#b5446e"

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Way:
    """One of the two mechanisms, with its plan."""

    name: str
    plan: Plan
    bound: AgnosticBound
    stop_after: int | None
    monitor: Monitor | None

    def begin(self) -> Phases:
        return Phases(LEARNER, self.plan, labels=[0, 1], features=1, stop_after=self.stop_after, monitor=self.monitor)


def ways(epsilon: float, rounds: int) -> list[Way]:
    """Both, at the same ε."""

    def planned(share: float) -> tuple[Plan, AgnosticBound]:
        return agnostic_plan(epsilon * share, DELTA, rounds, factor=FACTOR, extra=EXTRA)

    plan, bound = planned(1.0)
    other, looser = planned(1 - COUNTER)
    counter = Monitor(epsilon * COUNTER, delay=1)
    return [Way("phases", plan, bound, None, None), Way("POP_[u,w]", other, looser, other.unsure, counter)]


def literal(epsilon: float, rounds: int, opt: float) -> float:
    """The paper's bound: (1 + OPT/M) phases of w = 2u mistakes, u for copies that err C·(M + D) times, M = D."""
    d = math.ceil(FACTOR * 2 * EXTRA)
    size = paper.size(paper.PaperRequest(epsilon, DELTA, rounds, d, beta=BETA))
    return (1 + opt / EXTRA) * 2 * paper.reports(size.copies, d, BETA / 3)


def stream(name: str, rounds: int) -> tuple[Ints, Ints]:
    """Questions and labels."""
    draw = np.random.default_rng()
    x = draw.integers(0, 7, rounds)
    moves = {"drift": 3 + 3 * np.arange(rounds) // rounds, "jump": 1 + 6 * (2 * np.arange(rounds) // rounds)}
    target = moves.get(name, np.full(rounds, 4))
    flipped = draw.random(rounds) < STREAMS[name]
    return x, THRESHOLDS[target, x] ^ flipped


def twin_mistakes(x: Ints, y: Ints) -> int:
    """The learner by itself, without privacy."""
    learner, mistakes = LEARNER.clone(), 0
    for point, label in zip(x.tolist(), y.tolist(), strict=True):
        mistakes += learner.predict([point]) != label
        learner.learn([point], label)
    return mistakes


def play(way: Way, name: str, step: Callable[[int], None]) -> dict[str, Any]:
    """One run to the end of its rounds."""
    rounds = way.plan.rounds
    x, y = stream(name, rounds)
    run, mistakes, curve, start = way.begin(), 0, [], time.perf_counter()
    ends: list[int] = []
    every, phase = max(1, rounds // MARKS), 1
    for i, (point, label) in enumerate(zip(x.tolist(), y.tolist(), strict=True), start=1):
        answer = run.predict([point])
        mistakes += answer.label != label
        run.learn(answer.ticket, label)
        if run.phase != phase:
            phase = run.phase
            ends.append(i - 1)
        if i % every == 0:
            curve.append(mistakes)
            step(every)
    best = (THRESHOLDS[:, x] != y).sum(axis=1)
    return {
        "mistakes": mistakes,
        "opt": int(best.min()),
        "phases": run.phase,
        "ends": ends,
        "twin": twin_mistakes(x, y),
        "curve": curve,
        "copies": way.plan.copies,
        "seconds": round(time.perf_counter() - start, 1),
    }


def picture(path: Path, both: list[Way], done: dict[str, list[dict[str, Any]]]) -> None:
    """Left: mistakes by OPT, bounds and runs. Right: mistakes so far in the stream that jumps."""
    rounds, ours, other = both[0].plan.rounds, both[0].bound, both[1].bound
    style: dict[Any, Any] = {"svg.fonttype": "none", "font.size": 10.5, "axes.spines.top": False}
    more = {"axes.spines.right": False, "axes.grid": True, "grid.color": "#e3e7eb", "axes.axisbelow": True}
    with matplotlib.rc_context({**style, **more, "legend.frameon": False, "svg.hashsalt": "agnostic"}):
        figure = Figure(figsize=(9.5, 4.3), layout="constrained")
        left, right = figure.subplots(1, 2)
        shares = np.linspace(0, 0.12, 61)
        bounds = [
            ("bound, POP_[u,w]", [other.mistakes(s * rounds, both[1].stop_after) for s in shares], THEIRS, ":"),
            ("bound, phases", [ours.mistakes(s * rounds) for s in shares], OURS, "-"),
            ("the same, 95 %", [ours.likely_mistakes(s * rounds, BETA) for s in shares], OURS, "--"),
        ]
        for label, values, colour, line in bounds:
            left.plot(shares, np.array(values) / rounds, color=colour, ls=line, lw=1.5, label=label)
        left.plot(shares, shares, color="#8b95a1", lw=1, label="OPT")
        left.axhline(0.5, color="#9a1b1b", lw=1, ls="--")
        left.annotate("a coin", (0, 0.5), (0, 3), textcoords="offset points", color="#9a1b1b")
        for way, mark, colour in zip(both, ("o", "x"), (OURS, THEIRS), strict=True):
            runs = [run for name in STREAMS for run in done.get(f"{way.name} {name}", [])]
            places = [(run["opt"] / rounds, run["mistakes"] / rounds) for run in runs if run["opt"] < 0.12 * rounds]
            left.plot(*np.array(places).T, mark, color=colour, ms=7, label=f"runs, {way.name}")
            run = done[f"{way.name} jump"][0]
            x = np.arange(len(run["curve"]) + 1) / len(run["curve"])
            right.plot(x, np.array([0, *run["curve"]]) / rounds, color=colour, lw=2, label=way.name)
            for n, end in enumerate(run["ends"]):
                label = f"{way.name}: new phase" if n == 0 else ""
                right.axvline(end / rounds, color=colour, lw=1, ls=":", label=label)
        right.plot([0, 1], [0, done["phases jump"][0]["opt"] / rounds], color="#8b95a1", lw=1, label="OPT, evenly")
        left.set(xlabel="OPT, share of the rounds", ylabel="mistakes, share of the rounds", ylim=(0, 0.62))
        right.set(xlabel="rounds; the target jumps after half of them", ylabel="mistakes so far", xlim=(0, 1))
        right.set_ylim(bottom=0)
        for axes in (left, right):
            axes.legend(loc="upper left", bbox_to_anchor=(0, 1.27), ncols=2, fontsize=9)
            axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
            axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        path.parent.mkdir(parents=True, exist_ok=True)
        metadata = {"Date": None, "Creator": None} if path.suffix == ".svg" else None
        figure.savefig(path, metadata=metadata, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, a larger ε, 5 % noise and jump")
    parser.add_argument("--runs", type=int, default=1, help="runs of each kind")
    parser.add_argument("--out", type=Path, help="JSON file of finished runs, to go on from")
    parser.add_argument("--picture", type=Path, help="where to draw it, .svg or .png")
    given = parser.parse_args()
    epsilon, rounds = (32.0, 50_000) if given.quick else (8.0, 500_000)
    console = Console()
    if not console.is_terminal:
        console.width = 150
    both = ways(epsilon, rounds)
    names = ["5 % noise", "jump"] if given.quick else list(STREAMS)
    kept = json.loads(given.out.read_text()) if given.out and given.out.exists() else {}
    done: dict[str, list[dict[str, Any]]] = {}
    with Progress(console=console, transient=True) as progress:
        for number in range(given.runs):
            for name in names:
                for way in both:
                    key = f"{way.name} {name} T={rounds} ε={epsilon:g} k={way.plan.copies} run {number + 1}"
                    if key not in kept:
                        bar = progress.add_task(escape(key), total=rounds)
                        kept[key] = play(way, name, lambda n, bar=bar: progress.advance(bar, n))
                        progress.remove_task(bar)
                        if given.out:
                            given.out.write_text(json.dumps(kept, ensure_ascii=False))
                    done.setdefault(f"{way.name} {name}", []).append(kept[key])
    said = f"T = {rounds:,}, ({epsilon:g}, {DELTA:g}), most of {given.runs} run(s), a coin: {rounds // 2:,}"
    table = Table(box=SIMPLE, title=f"Mistakes in phases, {said}")
    table.add_column("stream")
    table.add_column("mechanism")
    for heading in ("copies", "OPT", "mistakes", "phases", "not private", "expected ≤", "95 % ≤", "paper ≤"):
        table.add_column(heading, justify="right")
    good = True
    for name in names:
        for way in both:
            runs = done[f"{way.name} {name}"]
            opt, most = max(run["opt"] for run in runs), max(run["mistakes"] for run in runs)
            expected = way.bound.mistakes(opt, way.stop_after)
            likely = way.bound.likely_mistakes(opt, BETA) if way.stop_after is None else rounds
            good &= most <= min(expected, likely)
            table.add_row(
                *(name, escape(way.name), f"{way.plan.copies:,}", f"{opt:,}", f"{most:,}"),
                f"{max(run['phases'] for run in runs)}",
                f"{max(run['twin'] for run in runs):,}",
                f"{expected:,.0f}",
                f"{likely:,}" if way.stop_after is None else "",
                "" if way.stop_after is None else f"{literal(epsilon, rounds, opt):.1e}",
            )
    console.print(table)
    if given.picture:
        picture(given.picture, both, done)
    console.print("Every run is below its bounds." if good else "A RUN PASSED A BOUND.")
    if not good:
        raise SystemExit("a run passed a bound")


if __name__ == "__main__":
    main()
