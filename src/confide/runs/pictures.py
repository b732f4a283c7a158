"""The pictures of a report, as SVG to put into a page."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from confide.planning.pictures import thousands
from confide.planning.plan import Plan
from confide.privacy.halting import Halting
from confide.runs.style import COLOURS, in_colours
from confide.runs.tally import Tally

WINDOWS = 40
"""Parts of a run over which its error is averaged."""

OURS, TWIN, GATE, GUIDE, QUIET, LIMIT, SOFT, LINE = (
    COLOURS[name][0] for name in ("ours", "twin", "gate", "guide", "quiet", "limit", "soft", "line")
)
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: the page's font, and searchable
    "font.family": "sans-serif",
    "font.size": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": SOFT,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": SOFT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "axes.grid": True,
    "grid.color": LINE,
    "axes.axisbelow": True,
    "legend.frameon": False,
}

_STEEP = 8.0  # times of what comes later: a start above it is cut off, since it would hide the rest


def errors(plan: Plan, tally: Tally, twin: bool, epochs: Sequence[int] = ()) -> Markup:
    """The error in the last rounds, beside the guide's own and the twin's; `epochs` are the rounds where one began."""

    def paint(axes: Axes) -> None:
        lines = [("answers", OURS, "-", tally.curve_wrong)]
        if plan.guide is not None and plan.copies:  # alone, its answers are the answers
            lines.append(("the guide’s own", GUIDE, "--", tally.curve_guide))
        if twin:
            lines.append(("without privacy", TWIN, "-", tally.curve_twin))
        top = start = 0.0
        for name, colour, style, curve in lines:
            x, y = _moving(tally, curve)
            axes.plot(x, y, color=colour, ls=style, lw=2, label=name)
            top, start = max([top, *y[len(y) // 8 :]]), max([start, *y[: len(y) // 8 + 1]])
        _rounds(axes, plan, tally)
        for i, begins in enumerate(epochs):
            axes.axvline(begins, color=SOFT, lw=1, ls=":", label=None if i else "a new epoch")
        axes.set_ylabel("wrong, in the last rounds")
        axes.set_ylim(0, min(1.04, max(1.25 * top, 1.05 * start if start < _STEEP * top else 0.0)) or 1)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
        axes.legend(loc="upper left", bbox_to_anchor=(0, 1.13), ncols=4)

    return _svg("errors", paint)


def curves(lines: list[tuple[str, str, list[float]]], rounds: int) -> Markup:
    """Learning curves of a stream, each with its name and style: the error in one part after the other."""

    def paint(axes: Axes) -> None:
        top = 0.0
        for (name, style, curve), colour in zip(lines, (OURS, GUIDE, TWIN), strict=False):
            ends = rounds * (np.arange(len(curve)) + 1) / len(curve)
            axes.plot(ends, curve, color=colour, ls=style, lw=2, label=name)
            top = max([top, *curve[len(curve) // 8 :]])
        axes.set(xlim=(0, rounds), ylim=(0, min(1.04, 1.25 * top) or 1), xlabel="rounds", ylabel="wrong")
        axes.xaxis.set_major_formatter(thousands)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
        axes.legend(loc="upper left", bbox_to_anchor=(0, 1.13), ncols=3)

    return _svg("curves", paint)


def _moving(tally: Tally, curve: list[int]) -> tuple[list[float], list[float]]:
    """The slope of a curve of counts over a small part of it: per round that has a label."""
    x, y, known = (np.array([0, *points]) for points in (tally.curve_rounds, curve, tally.curve_known))
    step = max(1, (x.size - 1) // WINDOWS)
    ends = np.arange(step, x.size)
    return x[ends].tolist(), ((y[ends] - y[ends - step]) / np.maximum(1, known[ends] - known[ends - step])).tolist()


def unsure(plan: Plan, tally: Tally) -> Markup:
    """Unsure answers against what was planned, and where the run would halt for certain."""

    def paint(axes: Axes) -> None:
        axes.plot([0, *tally.curve_rounds], [0, *tally.curve_unsure], color=OURS, lw=2)
        lines = [(plan.unsure, "--", "planned", -11)]
        if isinstance(plan.halting, Halting):
            lines.append((plan.halting.stop, ":", "halts for certain", 4))
        for height, style, name, off in lines:
            axes.axhline(height, color=LIMIT, lw=1.5, ls=style)
            place: dict[str, Any] = {
                "xycoords": ("axes fraction", "data"),
                "textcoords": "offset points",
                "ha": "right",
            }
            axes.annotate(f"{name}: {height:,}", (0.99, height), (0, off), color=LIMIT, **place)
        axes.set_ylim(top=1.12 * max(height for height, *_ in lines))
        _rounds(axes, plan, tally)
        axes.set_ylabel("unsure answers")
        axes.yaxis.set_major_formatter(thousands)

    return _svg("unsure", paint)


def margins(plan: Plan, tally: Tally) -> Markup:
    """How far the winning label led, against the gate's probability to say unsure."""

    def paint(axes: Axes) -> None:
        seen = np.array(sorted(tally.margins))
        shares = np.array([tally.margins[int(margin)] for margin in seen], dtype=float)
        step = 2 * max(1, round(plan.polls / 80))  # even, since margins of two labels are all odd or all even
        bins = np.arange(0, plan.polls + 1 + step, step)
        if seen.size:
            weights = shares / shares.sum()
            axes.hist(seen, bins=bins.tolist(), weights=weights, color=OURS, label="live rounds (left, log)")
        axes.set(yscale="log", xlabel="lead of the winning label, in votes", ylabel="share of live rounds")
        axes.set_xlim(0, plan.polls + 1)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        right = axes.twinx()
        right.grid(False)
        right.spines["right"].set_visible(True)
        lead = np.arange(0, plan.polls + 1, max(1, plan.polls // 10_000))
        right.plot(lead, plan.tables.gate.unsure_at(lead), color=GATE, lw=2, label="P(unsure) (right)")
        right.set_ylim(0, 1.04)
        right.set_ylabel("P(unsure)", color=GATE)
        handles = [h for ax in (axes, right) for h in ax.get_legend_handles_labels()[0]]
        names = [n for ax in (axes, right) for n in ax.get_legend_handles_labels()[1]]
        right.legend(handles, names, loc="upper left", bbox_to_anchor=(0, 1.13), ncols=2)

    return _svg("margins", paint)


def _rounds(axes: Axes, plan: Plan, tally: Tally) -> None:
    """The x axis: all planned rounds, the silent ones shaded."""
    last = tally.rounds if plan.endless else plan.rounds
    axes.set_xlim(0, max(last, 1))
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(thousands)
    axes.set_xlabel("rounds")
    if plan.silent:
        axes.axvspan(0, plan.silent, color=QUIET, lw=0, zorder=0)
        place: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "ha": "center"}
        axes.text(0.5 * plan.silent, 0.25, "silent: copies learn", color=SOFT, **place)
    if tally.rounds < last:
        axes.axvline(tally.rounds, color=SOFT, lw=1)
    if tally.halted_at is not None:
        axes.axvline(tally.halted_at, color=LIMIT, lw=1.5)
        place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        axes.annotate("copies halted", (tally.halted_at, 0.97), (4, -8), color=LIMIT, **place)


def _svg(name: str, paint: Callable[[Axes], None]) -> Markup:
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}):  # a salt each: ids must not meet in one page
        figure = Figure(figsize=(6.3, 3.2), layout="constrained")
        paint(figure.add_subplot())
        page = io.StringIO()
        figure.savefig(page, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = page.getvalue()
    svg = in_colours(text[text.index("<svg") :]).replace("<svg ", f'<svg role="img" aria-label="{name}" ', 1)
    return Markup(svg)  # Matplotlib escapes what it draws
