"""The paper, run as written: its POP with its own constants, millions of copies, on streams of up to 10⁹ rounds.

    python -m benchmarks.paper                  the cells that are not kept yet: minutes each
    python -m benchmarks.paper --quick          ε = 20, 10⁷ rounds, without keeping anything: some seconds a run
    python -m benchmarks.paper --run points     one cell: `--list` has them, with how long each takes
    python -m benchmarks.paper --page           the table and the picture of docs/paper.md, from what was run

Every run is a `confide.POP`: the secure generator, the paper's gate (AboveThreshold's one comparison a round) and its
tree counter, each label taught to one copy, `Plan.paper` or `Plan.certified`, votes tallied by a `TallyBank`. Streams
are drawn from a seed, the mechanism's coins are not. Results are kept in benchmarks/results/paper.json.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib import pyplot as plt
from numpy.typing import NDArray

from confide import POP, Plan
from confide.banks import TallyBank
from confide.learners import Intervals, Points, Thresholds

RESULTS = Path(__file__).parent / "results" / "paper.json"
DOCS = Path(__file__).parent.parent / "docs"
PAGE, PICTURE = DOCS / "paper.md", DOCS / "images" / "paper.svg"
START, END = "<!-- runs, from benchmarks/results/paper.json -->", "<!-- end of runs -->"
CHUNK = 1 << 20
DELTA = 1e-6

Ints = NDArray[np.int64]
Stream = Literal["uniform", "worst", "late", "missing"]


@dataclass(frozen=True)
class Cell:
    """One run."""

    learner: str
    points: int
    epsilon: float
    rounds: int
    stream: Stream = "uniform"
    kind: Literal["paper", "certified"] = "paper"
    seed: int = 1

    @property
    def name(self) -> str:
        """What `--run` calls it."""
        plan = "" if self.kind == "paper" else ", certified"
        where = f"{self.learner} {self.points}, {self.stream}"
        return f"{where}, eps {self.epsilon:g}, {self.rounds:g}{plan}, {self.seed}"


def _both(cell: Cell) -> list[Cell]:
    return [cell, replace(cell, kind="certified")]


QUICK = [
    cell
    for learner, points in (("points", 1000), ("thresholds", 3), ("intervals", 2))
    for cell in _both(Cell(learner, points, 20.0, 10**7))
] + [Cell("points", 1000, 20.0, 10**7, stream) for stream in ("worst", "late", "missing")]  # type: ignore[arg-type]
LONG = [
    *_both(Cell("points", 1000, 4.0, 10**9)),
    *_both(Cell("points", 1000, 4.0, 10**9, "worst")),
    *(Cell("points", 1000, 4.0, 10**9, seed=seed) for seed in (2, 3, 4, 5)),
    *_both(Cell("thresholds", 3, 20.0, 16 * 10**7)),
    *_both(Cell("thresholds", 3, 20.0, 16 * 10**7, "worst")),
    *_both(Cell("intervals", 2, 20.0, 16 * 10**7)),
    *_both(Cell("intervals", 2, 20.0, 16 * 10**7, "worst")),
    *(Cell("points", 1000, 20.0, 10**8, stream) for stream in ("late", "missing")),  # type: ignore[arg-type]
]


def make(cell: Cell, copies: int) -> tuple[Any, TallyBank]:
    """The learner and its bank."""
    if cell.learner == "points":
        return Points(), TallyBank(Points(), copies, points=cell.points)
    learner = Thresholds(cell.points) if cell.learner == "thresholds" else Intervals(cell.points)
    return learner, TallyBank(learner, copies)


def target(cell: Cell) -> Ints:
    """The right label of every point: in the middle, or that on which a copy errs most often."""
    labels, middle = np.zeros(cell.points, dtype=np.int64), cell.points // 2
    begin, end = middle, cell.points if cell.learner == "thresholds" else middle + 1
    if cell.stream == "worst" and cell.learner != "points":
        _, begin, end = worst_order(cell)
    labels[begin:end] = 1
    return labels


def worst_order(cell: Cell) -> tuple[list[int], int, int]:
    """The points on which one copy errs, one after the other, and where the target begins and ends: a longest one.

    By trying every target and, at every step, every point on which the copy is wrong.
    """

    def longest(labels: Ints, told: list[int]) -> list[int]:
        copy, _ = make(cell, 1)
        for x in told:
            copy.learn([x], int(labels[x]))
        wrong = [x for x in range(cell.points) if copy.predict([x]) != labels[x]]
        return max((longest(labels, [*told, x]) for x in wrong), key=len, default=told)

    found: tuple[list[int], int, int] = [], 0, 0
    for begin in range(cell.points + 1):
        for end in range(begin, cell.points + 1) if cell.learner == "intervals" else [cell.points]:
            labels = np.array([int(begin <= x < end) for x in range(cell.points)])
            order = longest(labels, [])
            if len(order) > len(found[0]):
                found = order, begin, end
    return found


def questions(cell: Cell, copies: int) -> Iterator[Ints]:
    """The stream, in chunks. Uniform: any point, and of points the target every other time.

    Worst: the points on which a copy errs, in its own worst order, each until nearly all copies know it (4·k rounds);
    then uniform. So every copy errs as often as it can, all of them at the same time.
    """
    dice, taken = np.random.default_rng(cell.seed), 0
    order = [cell.points // 2] if cell.learner == "points" else worst_order(cell)[0]
    while taken < cell.rounds:
        number = min(CHUNK, cell.rounds - taken)
        xs = dice.integers(0, cell.points, number)
        if cell.learner == "points":
            xs[dice.random(number) < 0.5] = cell.points // 2
        if cell.stream == "worst":
            stage = (taken + np.arange(number)) // (4 * copies)
            early = stage < len(order)
            xs[early] = np.array(order)[stage[early]]
        yield xs
        taken += number


def plan_for(cell: Cell) -> Plan:
    """The paper's plan, or ours, at the same promise."""
    learner, _ = make(cell, 1)
    planner = Plan.paper if cell.kind == "paper" else Plan.certified
    return planner(cell.epsilon, DELTA, cell.rounds, learner.mistake_bound())


def run(cell: Cell) -> dict[str, Any]:
    """Ask and teach every row of the stream."""
    began = time.process_time()
    plan = plan_for(cell)
    stated = plan.certificate
    if stated is None:  # before the first row, not after the last
        raise SystemExit(f"{cell.name}: could not run: the plan has no bound on mistakes to be compared with")
    planned, labels = time.process_time() - began, target(cell)
    learner, bank = make(cell, plan.copies)
    pop = POP(learner, plan, labels=[0, 1], features=1, bank=bank)
    mistakes = unsure = taken = 0
    ones, busy, curve, dice = 0, 0.0, list[list[int]](), np.random.default_rng(cell.seed + 100)
    for xs in questions(cell, plan.copies):
        right, rows = labels[xs], xs[:, None].astype(np.float64)
        told = right.copy()
        if cell.stream == "missing":
            told[dice.random(xs.size) < 0.5] = -1
        elif cell.stream == "late":
            told[:] = -1
        since = time.process_time()
        found = pop.follow_many(rows, told)
        if cell.stream == "late":  # the labels of a million rounds, after all of them were asked
            pop.teach_many(rows, right)
        busy += time.process_time() - since
        mistakes += int((found.answers != right).sum())
        unsure += int((~found.sure).sum())
        ones, taken = ones + int(right.sum()), taken + xs.size
        curve.append([taken, mistakes])
    return {
        **asdict(cell), "delta": DELTA, "promised": plan.guarantee.epsilon, "mistake_bound": plan.mistakes,
        "copies": plan.copies, "planned_unsure": plan.unsure, "bound": stated.mistakes,
        "covered": cell.stream in ("uniform", "worst"), "mistakes": mistakes, "unsure": unsure,
        "constant": min(ones, taken - ones), "halted": pop.state == "halted" and pop.halt_reason != "rounds",
        "bytes_a_copy": bank.nbytes / bank.copies, "plan_seconds": planned, "seconds": busy,
        "curve": curve[:: max(1, len(curve) // 60)] + curve[-1:],
    }  # fmt: skip


def _of_constant(row: dict[str, Any]) -> str:
    """Mistakes over those of the best constant answer; a target on which a copy errs most may be constant itself."""
    return f"{row['mistakes'] / row['constant']:.2g}" if row["constant"] else "–"


def said(result: dict[str, Any]) -> str:
    """One line."""
    rounds, bound = result["rounds"], result["bound"]
    held = "" if result["covered"] else " (not covered: labels are not prompt)"
    return (
        f"{Cell(**{name: result[name] for name in Cell.__dataclass_fields__}).name}: d = {result['mistake_bound']}, "
        f"{result['copies']:,} copies of {result['bytes_a_copy']:.1f} bytes, bound {bound:,} = {bound / rounds:.3g} × "
        f"rounds{held}, mistakes {result['mistakes']:,} = {result['mistakes'] / bound:.3g} × bound = "
        f"{_of_constant(result)} × best constant, unsure {result['unsure']:,} of "
        f"{result['planned_unsure']:,}, {'halted, ' if result['halted'] else ''}"
        f"{rounds / result['seconds'] / 1e6:.1f} million rounds a second of one core"
    )


def kept() -> dict[str, dict[str, Any]]:
    """What was run."""
    found: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return found


def keep(cell: Cell, result: dict[str, Any]) -> None:
    """Add a result to the others."""
    text = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in {**kept(), cell.name: result}.items())
    RESULTS.write_text("{\n" + text + "\n}\n")


def _power(rounds: int) -> str:
    """10⁹, or 1.6·10⁸."""
    digits = len(str(rounds)) - 1
    raised = str(digits).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{'' if rounds == 10**digits else f'{rounds / 10**digits:g}·'}10{raised}"


def table(results: dict[str, dict[str, Any]]) -> str:
    """The page's table."""
    lines = [
        "| class, stream | d | (ε, 10⁻⁶), rounds | plan | copies | allowed ÷ rounds | mistakes | ÷ allowed | "
        "÷ best constant | million rounds/s |",
        "|---|---|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in results.values():
        if row["seed"] > 1:
            continue
        rounds, allowed = row["rounds"], row["bound"] if row["covered"] else None
        lines.append(
            f"| {row['learner']} on {row['points']:,}, {row['stream']} | {row['mistake_bound']} | "
            f"{row['epsilon']:g}, {_power(rounds)} | {row['kind']} | {row['copies']:,} | "
            + (f"{allowed / rounds:.2g}" if allowed else "no bound")
            + f" | {row['mistakes']:,} | "
            + (f"{row['mistakes'] / allowed:.2g}" if allowed else "–")
            + f" | {_of_constant(row)} | {rounds / row['seconds'] / 1e6:.1f} |"
        )
    again = sorted(row["mistakes"] for row in results.values() if row["seed"] > 1)
    if again:
        lines += ["", f"The first line was run {len(again)} times more: {again[0]:,} to {again[-1]:,} mistakes."]
    return "\n".join(lines)


def picture(results: dict[str, dict[str, Any]]) -> None:
    """What the theorem allows, what the paper's POP does, and what our constants save."""
    shown = [row for row in results.values() if row["epsilon"] == 4 and row["stream"] == "uniform" and row["seed"] == 1]
    colours = {"paper": "#b3412e", "certified": "#1f6f8b"}
    names = {"paper": "the paper's plan", "certified": "Plan.certified"}
    with matplotlib.rc_context({"svg.hashsalt": "paper", "font.size": 10}):
        figure, axes = plt.subplots(figsize=(7.2, 4.2), layout="constrained")
        for row in shown:
            rounds, mistakes = np.array(row["curve"]).T
            colour, name = colours[row["kind"]], names[row["kind"]]
            axes.plot(rounds, np.maximum(mistakes, 1), color=colour, lw=2, label=f"{name}: mistakes")
            allowed = f"{name}: allowed, {row['copies']:,} copies"
            axes.axhline(row["bound"], color=colour, lw=1.4, ls="--", label=allowed)
        if shown:
            rounds = np.array(shown[0]["curve"])[:, 0]
            axes.plot(rounds, rounds * shown[0]["constant"] / rounds[-1], color="#888888", lw=1, label="best constant")
        axes.set(xscale="log", yscale="log", xlabel="rounds", ylabel="mistakes so far")
        axes.set_title("Points, (4, 10⁻⁶), 10⁹ rounds", fontsize=11)
        axes.legend(frameon=False, fontsize=8.5)
        figure.savefig(PICTURE, metadata={"Date": None, "Creator": None})


def page() -> None:
    """Write the table into the page, and the picture beside it."""
    results, text = kept(), PAGE.read_text()
    before, rest = text.split(START)
    PAGE.write_text(f"{before}{START}\n{table(results)}\n{END}{rest.split(END)[1]}")
    picture(results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the small cells, printed and not kept")
    parser.add_argument("--run", metavar="WORD", action="append", help="the cells whose name begins so, and keep them")
    parser.add_argument("--list", action="store_true", help="the cells that are kept, and which are there")
    parser.add_argument("--page", action="store_true", help="write docs/paper.md's table and picture")
    asked = parser.parse_args()
    nothing = not (asked.quick or asked.run or asked.list or asked.page)
    for cell in QUICK if asked.quick else []:
        print(said(run(cell)), flush=True)
    for cell in LONG:
        there = cell.name in kept()
        if any(cell.name.startswith(word) for word in asked.run or []) or (nothing and not there):
            result = run(cell)
            keep(cell, result)
            print(said(result), flush=True)
        elif asked.list or nothing:
            print(f"{cell.name}{' (there)' if there else ''}; about {cell.rounds / 3e6 / 60:.1f} minutes")
    if asked.page:
        page()


if __name__ == "__main__":
    main()
