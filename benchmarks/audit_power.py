"""The audit's power: the smallest fault that is found, against the number of games.

    python benchmarks/audit_power.py            about five minutes of one core
    python benchmarks/audit_power.py --write    and puts the table into docs/audit.md, with its picture and the numbers

Nothing is played: the laws of the right and of the faulty mechanism are exact (confide.games.power), so is every number
here. A fault counts as found if an audit of `WorstMargin` with so many games at each bit notices it with probability
0.9, at alarm level 10⁻⁶.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from rich.progress import track

from confide.games.laws import unsure_share
from confide.games.power import smallest
from confide.games.scenarios import split_plan
from confide.planning.plan import Plan

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE, PICTURE, NUMBERS = DOCS / "audit.md", DOCS / "images" / "audit-power.svg", DOCS / "data" / "audit-power.json"
BEGIN, END = "<!-- power: written by benchmarks/audit_power.py --write -->", "<!-- end of power -->"
GAMES = (100, 1000, 10_000, 100_000, 1_000_000)
KINDS = {"entry": "table entry", "skipped": "skipped draws", "shifted": "shifted count"}
WAYS = {"fit": "laws", "certificate": "certificate"}
PLANS: dict[str, dict[str, Any]] = {
    "ε = 1, 1000 copies": {"epsilon": 1.0, "unsure": 100, "rounds": 800, "copies": 1000},
    "ε = 8, 160 copies": {"epsilon": 8.0, "unsure": 100, "rounds": 800, "copies": 160},
    "ε = 8, 101 of 400 polled": {
        "epsilon": 8.0, "unsure": 100, "rounds": 800, "copies": 400, "polls": 101, "silent": 320,
    },
}  # fmt: skip


def asked(plan: Plan) -> int:
    """Where four of five answers are unsure, as the audit's scenarios ask."""
    return next(ones for ones in range(plan.copies, plan.copies // 2, -1) if unsure_share(plan, ones) >= 0.8)


def measure(games: tuple[int, ...]) -> list[dict[str, Any]]:
    cases = [(name, kind, by, n) for name in PLANS for kind in KINDS for by in WAYS for n in games]
    plans = {name: split_plan(**given) for name, given in PLANS.items()}
    rows = []
    for name, kind, by, n in track(cases, description="faults"):
        plan: Any = plans[name]
        found = smallest(plan, n, kind, by, ones=asked(plan))  # type: ignore[arg-type]
        rows.append({"plan": name, "kind": kind, "by": by, "games": n, "smallest": found})
    return rows


def said(kind: str, value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.0f}" if kind == "shifted" else f"{value:.1%}"


def table(rows: list[dict[str, Any]], games: tuple[int, ...]) -> str:
    lines = ["| plan | fault | found by | " + " | ".join(f"{n:,}".replace(",", " ") for n in games) + " |"]
    lines.append("|---|---|---|" + "---:|" * len(games))
    for name in PLANS:
        for kind, what in KINDS.items():
            for by, way in WAYS.items():
                cells = [
                    said(kind, row["smallest"])
                    for row in rows
                    if (row["plan"], row["kind"], row["by"]) == (name, kind, by)
                ]
                lines.append(f"| {name} | {what} | {way} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    colours = dict(zip(PLANS, ("#22577a", "#e07a1f", "#57a773"), strict=True))
    style: dict[Any, Any] = {"svg.fonttype": "none", "font.size": 10, "axes.spines.top": False}
    with matplotlib.rc_context({**style, "axes.spines.right": False, "svg.hashsalt": "audit-power"}):
        figure = Figure(figsize=(10.5, 3.9), layout="constrained")
        for axes, (kind, what) in zip(figure.subplots(1, 3), KINDS.items(), strict=True):
            for name, colour in colours.items():
                for by, line in (("fit", "-"), ("certificate", "--")):
                    mine = [row for row in rows if (row["plan"], row["kind"], row["by"]) == (name, kind, by)]
                    x = [row["games"] for row in mine]
                    y = [np.nan if row["smallest"] is None else row["smallest"] for row in mine]
                    axes.plot(x, y, line, marker="o", ms=3.5, color=colour, label=f"{name}: {WAYS[by]}")
            axes.set(xscale="log", yscale="log", xlabel="games at each bit", title=what, xlim=(70, 1.4e6))
        figure.axes[0].set_ylabel("smallest that is found")
        lines, names = figure.axes[0].get_legend_handles_labels()
        figure.legend(lines, names, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
        figure.savefig(path, metadata={"Date": None, "Creator": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put table, picture and numbers into docs/")
    parser.add_argument("--quick", action="store_true", help="a hundred and a thousand games only")
    given = parser.parse_args()
    games = GAMES[:2] if given.quick else GAMES
    start = time.perf_counter()
    rows = measure(games)
    text = table(rows, games)
    print(text, f"\n{time.perf_counter() - start:.0f} s")
    if given.write:
        page = PAGE.read_text()
        head, rest = page.split(BEGIN)
        PAGE.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}")
        NUMBERS.parent.mkdir(exist_ok=True)
        NUMBERS.write_text(json.dumps(rows, indent=1) + "\n")
        draw(rows, PICTURE)


if __name__ == "__main__":
    main()
