"""Plans and the frontier as pictures; apart from them, since Matplotlib takes half a second to load."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from confide.planning.frontier import Point
from confide.planning.guided import GuidePlan
from confide.planning.linear import faint
from confide.planning.plan import Plan
from confide.privacy.halting import Halting

BLUE, GREEN, RED, SOFT = "#22577a", "#7a9e3f", "#b5446e", "#8b95a1"

thousands = FuncFormatter(
    lambda value, _: f"{value / 1e6:g} M" if value >= 1e6 else f"{value / 1e3:g} k" if value >= 1e3 else f"{value:g}"
)
"""Rounds on an axis."""


class Picture(Figure):
    """A figure that a notebook shows by itself, whatever Matplotlib's backend is; it belongs to no window."""

    def show(self, warn: bool = True) -> None:
        """Refused, with what works: a script that ends would take the window with it."""
        raise RuntimeError("this picture has no window: write it with savefig('plan.png'), or look at it in a notebook")

    def _repr_png_(self) -> bytes:
        written = io.BytesIO()
        self.savefig(written, format="png", dpi=110)
        return written.getvalue()


def panels(paints: Sequence[Callable[[Axes], None]]) -> Picture:
    """A picture with one panel beside the other."""
    figure = Picture(figsize=(5.2 * len(paints), 3.6), layout="constrained")
    for number, paint in enumerate(paints, 1):
        axes = figure.add_subplot(1, len(paints), number)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(True, alpha=0.3)
        axes.set_axisbelow(True)
        paint(axes)
    return figure


def picture(plan: Plan) -> Picture:
    """How sure the copies must be, how long they last, and how clear the guide gets: what there is of these.

    Examples
    --------
    >>> plan = Plan.tight(1.0, 1e-6, 300_000)
    >>> [axes.get_xlabel() for axes in picture(plan).axes]
    ['labels']
    """
    paints: list[Callable[[Axes], None]] = []
    if plan.copies:
        paints.append(lambda axes: _gate(axes, plan))
    if isinstance(halting := plan.halting, Halting):
        paints.append(lambda axes: _lasts(axes, plan, halting))
    if (guide := plan.guide) is not None:
        paints.append(lambda axes: _clears(axes, guide))
    return panels(paints)


def _gate(axes: Axes, plan: Plan) -> None:
    lead = np.arange(0, plan.polls + 1, max(1, plan.polls // 10_000))
    axes.plot(lead, plan.tables.gate.unsure_at(lead), color=RED, lw=2)
    axes.set(xlim=(0, plan.polls), ylim=(0, 1.04), xlabel="lead, in votes", ylabel="probability to be unsure")
    axes.set_title(f"How sure {plan.polls:,} of {plan.copies:,} copies must be", fontsize=10.5)
    axes.xaxis.set_major_formatter(thousands)


def _lasts(axes: Axes, plan: Plan, halting: Halting) -> None:
    """The halting table: it is drawn from in every live round, at the count of then."""
    axes.plot(np.arange(halting.stop + 1), np.maximum(halting.table, 2.0**-64), color=BLUE, lw=2)
    axes.axvline(plan.unsure, color=SOFT, lw=1.2, ls="--")
    axes.annotate(
        f"planned: {plan.unsure:,}", (plan.unsure, 0.97), (-4, 0), xycoords=("data", "axes fraction"),
        textcoords="offset points", rotation=90, ha="right", va="top", color="#5b6672",
    )  # fmt: skip
    axes.set(xlim=(0, halting.stop), yscale="log", xlabel="unsure answers so far", ylabel="probability to halt")
    axes.set_title("How long the copies last", fontsize=10.5)
    axes.xaxis.set_major_formatter(thousands)


def _clears(axes: Axes, guide: GuidePlan) -> None:
    """Labels against the noise in the sum of their gradients, leaf after leaf."""
    noise = np.sqrt(guide.sigma2 * np.asarray(guide.root.variances(), dtype=float)) / guide.scale
    labels, bound = np.array(guide.main.ends), faint(guide.labels)
    clear = labels / noise
    axes.plot(labels, clear, color=GREEN, lw=2)
    axes.axhline(bound, color=SOFT, lw=1.2, ls="--")
    # the curve rises: where it has crossed the line it is above the words, and else below them all the way
    over = clear[-1] > bound
    axes.annotate(
        "below: few labels for the noise", (0.98, bound), (0, -12 if over else 4), xycoords=("axes fraction", "data"),
        textcoords="offset points", ha="right", color="#5b6672", fontsize=9,
    )  # fmt: skip
    axes.set(xlim=(0, labels[-1]), yscale="log")
    axes.set(xlabel="labels", ylabel="labels for a deviation of the noise")
    axes.set_title("How clear the guide gets", fontsize=10.5)
    axes.xaxis.set_major_formatter(thousands)


def draw(points: Sequence[Point], title: str, rounds: int, path: Path) -> None:
    """Save the frontier as a picture."""
    figure = Figure(figsize=(7.5, 4.6), layout="constrained")
    axes = figure.add_subplot()
    for share, colour in zip(sorted({p.dissent for p in points}), ("#38a3a5", "#22577a", "#b5446e"), strict=False):
        line = [p for p in points if p.dissent == share]
        name = f"{share:.0%} of a poll may dissent"
        axes.plot([p.unsure for p in line], [p.copies for p in line], "o-", color=colour, label=name)
    axes.set(xscale="log", yscale="log", xlabel="unsure answers tolerated", ylabel="copies needed", title=title)
    few = axes.secondary_yaxis(
        "right", functions=(lambda c: rounds / np.maximum(c, 1), lambda c: rounds / np.maximum(c, 1))
    )
    few.set_ylabel("labels per copy")
    for axis in (axes.yaxis, few.yaxis, axes.xaxis):
        axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}"))
        axis.set_minor_formatter(NullFormatter())
    for axis in (axes.yaxis, few.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.grid(True, which="major", alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)
