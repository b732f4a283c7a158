"""The pictures of "Is it for me?" and "How it works": curves are drawn from the tables of real plans.

python -m docs.tools.pictures          # writes docs/images/{attack,need,copies,guide,…}.svg; a minute
python -m docs.tools.pictures gate     # one of them
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch
from matplotlib.ticker import NullLocator

import confide
from examples.pictures import BLUES, GREY, ORANGE, PER_CENT, RED, picture

IMAGES = Path(__file__).resolve().parent.parent / "images"
INK, PALE, PALE_ORANGE = "#3d4752", "#dcebf1", "#fbe6d2"
EPSILONS = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0)
USEFUL = 300  # labels for each deviation of the noise: with fewer `Plan.explain` warns


def box(ax: Axes, x: float, y: float, width: float, height: float, text: str, color: str = PALE, **more: Any) -> None:
    """A rounded box with its middle at (x, y)."""
    style = f"round,pad=0,rounding_size={min(width, height) / 5}"
    ax.add_patch(
        FancyBboxPatch((x - width / 2, y - height / 2), width, height, boxstyle=style, facecolor=color, edgecolor=GREY)
    )
    ax.text(x, y, text, ha="center", va="center", color=more.pop("ink", INK), **more)


def arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float], color: str = GREY, **more: Any) -> None:
    ax.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=13, color=color, linewidth=1.5, **more))


def person(ax: Axes, x: float, y: float, color: str = GREY) -> None:
    """A head and shoulders."""
    ax.add_patch(Circle((x, y + 0.2), 0.16, color=color))
    style = "round,pad=0,rounding_size=0.12"
    ax.add_patch(FancyBboxPatch((x - 0.24, y - 0.3), 0.48, 0.3, boxstyle=style, color=color))


def bare(ax: Axes, width: float, height: float) -> None:
    """No axes; one unit is as long to the right as it is up."""
    ax.set(xlim=(0, width), ylim=(0, height), aspect="equal")
    ax.axis("off")


def least(reached: Callable[[confide.Plan], bool], epsilon: float, most: float) -> float:
    """The fewest rounds whose plan has what is asked for, to a twentieth; `most` where none has."""
    exponents = np.arange(2.5, np.log10(most) + 1e-9, 0.05)
    low, high = 0, len(exponents) - 1
    while low < high:
        middle = (low + high) // 2
        plan = confide.Plan.tight(epsilon=epsilon, delta=1e-6, rounds=round(10 ** exponents[middle]))
        low, high = (low, middle) if reached(plan) else (middle + 1, high)
    plan = confide.Plan.tight(epsilon=epsilon, delta=1e-6, rounds=round(10 ** exponents[low]))
    return float(10 ** exponents[low]) if reached(plan) else most


def need(path: Path) -> None:
    """How many rounds it takes, by ε: what `Plan.tight` chooses."""
    most = 3e7
    useful = [least(lambda plan: plan.guide is not None and plan.guide.strength >= USEFUL, e, most) for e in EPSILONS]
    copies = [least(lambda plan: plan.copies > 0, e, most) for e in EPSILONS]
    with picture(path, (5, 3.7)) as figure:
        ax = figure.subplots()
        ax.fill_betweenx(EPSILONS, 300, useful, color=PALE_ORANGE)
        ax.fill_betweenx(EPSILONS, useful, copies, color=PALE)
        ax.fill_betweenx(EPSILONS, copies, most, color=BLUES[3], where=np.array([*copies[1:], 0]) < most, linewidth=0)
        for ends in (useful, copies):
            first = max(0, sum(end >= most for end in ends) - 1)  # from where the line comes in at the right
            ax.plot(ends[first:], EPSILONS[first:], color=BLUES[0], linewidth=1.5)
        ax.text(350, 0.72, "few labels\nfor the\nnoise", ha="left", va="center", color=INK, fontsize=9)
        ax.text(2e5, 2.0, "the guide answers", ha="center", va="center", color=INK)
        ax.text(2.7e7, 6.4, "copies\nvote too", ha="right", va="center", color=INK, fontsize=9)
        ax.set(xscale="log", yscale="log", xlim=(300, most), ylim=(0.5, 8), xlabel="rounds, all in all", ylabel="ε")
        ax.set_yticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"])
        ticks = [10**i for i in range(3, 8)]
        ax.set_xticks(ticks, [f"{tick:,}".replace(",", " ") for tick in ticks], fontsize=8.5)
        ax.yaxis.set_minor_locator(NullLocator())
        ax.set_title("Who answers, by the default plan at δ = 10⁻⁶")


def attack(path: Path) -> None:
    """What the default plan leaks, in four bars: the attack on the inbox, from the table of its page."""
    rows = re.findall(r"^\| (.+?) \| \*\*([\d.]+)%", (IMAGES.parent / "inbox.md").read_text("utf-8"), re.M)
    with picture(path, (5, 2.7)) as figure:
        ax = figure.subplots()
        for i, (_, right) in enumerate(rows):
            share, color = float(right), ORANGE if i == 0 else BLUES[3 - i]
            ax.barh(-i, share - 50, left=50, height=0.62, color=color)
            inside = share > 90
            ax.text(
                share + (-1 if inside else 1),
                -i,
                f"{right} %",
                ha="right" if inside else "left",
                va="center",
                color="white" if inside else INK,
            )
        ax.set_yticks([-i for i in range(len(rows))], [name.replace("plain", "not private") for name, _ in rows])
        ax.set_xticks([50, 60, 70, 80, 90, 100], ["a coin", "60 %", "70 %", "80 %", "90 %", "100 %"])
        ax.set(xlim=(50, 101))
        ax.grid(visible=False, axis="y")
        ax.set_title("Right guesses of what one person said")


def copies(path: Path) -> None:
    """One person, one copy, one vote."""
    with picture(path, (5, 3.1)) as figure:
        ax = figure.subplots()
        bare(ax, 10.8, 6.2)
        columns = (1.1, 2.7, 4.3, 5.9, 7.5)
        ax.text(0.5, 6.0, "people teach: each of them one copy", color=INK, va="top")
        for i, x in enumerate(columns):
            color = ORANGE if i == 2 else GREY
            person(ax, x, 4.9, color)
            arrow(ax, (x, 4.5), (x, 3.75), color)
            box(ax, x, 3.3, 1.15, 0.8, "copy", PALE_ORANGE if i == 2 else PALE)
            arrow(ax, (x, 2.85), (x, 2.15), color)
        ax.text(8.5, 3.3, "… thousands", color=INK, va="center")
        for i, x in enumerate(columns):
            box(ax, x, 1.75, 1.15, 0.6, "no" if i == 2 else "yes", PALE_ORANGE if i == 2 else PALE)
        ax.text(8.5, 1.75, "one vote each", color=INK, va="center")
        box(ax, 4.3, 0.45, 7.55, 0.8, "a lead that one vote cannot turn is said: yes", "#ffffff")
        arrow(ax, (4.3, 1.42), (4.3, 0.88))


def guide(path: Path) -> None:
    """Many lessons are summed, noise is added, and only that is ever used."""
    with picture(path, (5, 2.6)) as figure:
        ax = figure.subplots()
        bare(ax, 10, 5.2)
        for i in range(5):
            color = ORANGE if i == 2 else GREY
            person(ax, 0.6, 4.6 - 0.95 * i, color)
            arrow(ax, (1.0, 4.6 - 0.95 * i), (2.5, 3.0 - 0.2 * i), color)
        box(ax, 3.5, 2.6, 1.9, 1.5, "sum of\nwhat they\ntaught")
        ax.text(4.85, 2.6, "+", fontsize=16, ha="center", va="center", color=INK)
        rng = np.random.default_rng(4)
        x = np.linspace(5.2, 6.5, 40)
        ax.plot(x, 2.6 + 0.32 * rng.standard_normal(40), color=RED, linewidth=1.2)
        ax.text(5.85, 1.35, "noise that\nhides anyone", ha="center", va="center", color=RED, fontsize=9)
        arrow(ax, (6.6, 2.6), (7.1, 2.6))
        box(ax, 8.55, 2.6, 2.75, 1.6, "the guide:\na linear model\nall may see", fontsize=9.5)
        ax.text(8.55, 4.3, "answers every round", ha="center", va="center", color=INK, fontsize=9)
        arrow(ax, (8.55, 3.5), (8.55, 4.05))


def silence(path: Path) -> None:
    """Who answers when: a plan's own numbers, not to scale."""
    plan = confide.Plan.tight(epsilon=8.0, delta=1e-6, rounds=10_000_000)
    assert plan.guide is not None
    first = plan.guide.waits
    with picture(path, (5, 2.5)) as figure:
        ax = figure.subplots()
        bare(ax, 10, 5)
        box(ax, 0.65, 3.9, 1.1, 0.8, "fall-\nback", "#eceff2", fontsize=8.5)
        box(ax, 5.55, 3.9, 8.5, 0.8, "the guide answers whatever the copies do not")
        box(ax, 2.55, 2.5, 4.9, 0.8, "copies are silent: they learn", "#eceff2")
        box(ax, 6.65, 2.5, 3.1, 0.8, "copies answer", BLUES[3])
        box(ax, 9.0, 2.5, 1.4, 0.8, "halted", PALE_ORANGE)
        arrow(ax, (0.1, 1.5), (9.9, 1.5))
        for x, text, where in (
            (1.25, f"{first:,}".replace(",", " "), "left"),
            (5.05, f"{plan.silent:,}".replace(",", " "), "center"),
            (8.25, f"{plan.unsure:,} unsure\nanswers later".replace(",", " "), "center"),
        ):
            ax.plot([x, x], [1.35, 1.65], color=GREY)
            ax.text(x, 1.15, text, ha=where, va="top", color=INK, fontsize=9)
        ax.text(0.1, 1.15, "rounds", ha="left", va="top", color=INK, fontsize=9)


def gate(path: Path) -> None:
    """P(unsure) by the lead, as shipped."""
    with picture(path, (5, 2.9)) as figure:
        ax = figure.subplots()
        for epsilon, color in ((1.0, BLUES[0]), (4.0, BLUES[2])):
            plan = confide.Plan.tight(
                epsilon=epsilon, delta=1e-6, rounds=100_000, copies=4000, unsure=1000, polls=4000, silent=0, guide=None
            )
            assert plan.gate is not None
            table = np.asarray(plan.gate.table, dtype=float)
            lead = np.arange(min(4001, len(table)))
            ax.plot(lead, table[: len(lead)], color=color, label=f"ε = {epsilon:g}", linewidth=2)
        ax.set(xlim=(0, 2500), ylim=(0, 1.02), xlabel="lead of the first label, in votes of 4000", ylabel="unsure")
        ax.yaxis.set_major_formatter(PER_CENT)
        ax.legend()
        ax.set_title("The gate: how often a lead is not said")


def halting(path: Path) -> None:
    """The probability that the copies halt after a round, by the count of unsure answers, as shipped."""
    plan = confide.Plan.tight(
        epsilon=1.0, delta=1e-6, rounds=100_000, copies=4000, unsure=1000, polls=4000, silent=0, guide=None
    )
    assert plan.halting is not None
    table = np.asarray(plan.halting.table, dtype=float)
    with picture(path, (5, 2.6)) as figure:
        ax = figure.subplots()
        ax.plot(np.arange(len(table)), table, color=BLUES[0], linewidth=2)
        ax.axvline(plan.unsure, color=ORANGE, linewidth=1.5, linestyle="--")
        ax.text(plan.unsure - 40, 0.5, "planned", ha="right", color=ORANGE)
        ax.set(xlim=(0, len(table) * 1.03), ylim=(0, 1.03), xlabel="unsure answers so far, a count that nobody sees")
        ax.yaxis.set_major_formatter(PER_CENT)
        ax.set_title("Halting: how likely this round is the copies' last")


PICTURES = {one.__name__: one for one in (attack, need, copies, guide, silence, gate, halting)}

if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        PICTURES[name](IMAGES / f"{name}.svg")
