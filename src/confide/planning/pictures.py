"""The frontier as a picture; apart from `frontier`, since Matplotlib takes half a second to load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from confide.planning.frontier import Point


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
