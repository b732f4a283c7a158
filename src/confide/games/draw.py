"""The audit's picture: measured points, exact curves, and the certified region."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from confide.games.laws import Curve
from confide.games.report import Report

MEASURED, EXACT, CERTIFIED, COIN = "#e07a1f", "#22577a", "#dfe7ee", "#8b95a1"
_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8b95a1",
    "axes.labelcolor": "#3d4752",
    "xtick.color": "#5b6672",
    "ytick.color": "#5b6672",
    "legend.frameon": False,
}


def draw(reports: Sequence[Report], path: Path | str) -> None:
    """One panel a report: what tests for the bit can do, on logarithmic scales; the suffix of `path` is the format."""
    columns = min(2, len(reports))
    rows = math.ceil(len(reports) / columns)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(4.6 * columns, 3.7 * rows + 0.4), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, report in zip(panels, reports, strict=False):
            _panel(axes, report)
        for axes in panels[len(reports) :]:
            axes.set_visible(False)
        panels[0].legend(loc="lower right", fontsize=8)
        figure.savefig(path, dpi=150)


def _panel(axes: Axes, report: Report) -> None:
    """Tests for bit 1 and, with false and true positives of their own, for bit 0: both corners of the curve."""
    lowest = 10.0 ** math.floor(math.log10(3 / report.games))
    false = np.geomspace(lowest, 1, 300)
    if report.region is not None:
        allowed = [report.region.power(rate) for rate in false]
        axes.fill_between(false, false, allowed, color=CERTIFIED, lw=0, label="certified region")
    axes.plot(false, false, color=COIN, lw=1, ls=":", label="guessing")
    if report.yardstick is not None:
        mirrored = Curve(report.yardstick.one, report.yardstick.zero)
        for curve, line, bit in ((report.yardstick, "-", 1), (mirrored, "--", 0)):
            exact = [curve.power(rate) for rate in false]
            axes.plot(false, exact, color=EXACT, lw=1.6, ls=line, label=f"yardstick, exact: tests for bit {bit}")
    ones = [(point.false, point.true) for point in report.points if point.true > point.false]
    zeros = [(1 - true, 1 - false) for false, true in ones]
    for points, face, bit in ((ones, MEASURED, 1), (zeros, "white", 0)):
        places = [place for place in points if place[0] < 0.5]
        x, y = zip(*places, strict=True) if places else ((), ())
        axes.plot(x, y, "o", ms=5, mec=MEASURED, mfc=face, label=f"measured, at least: tests for bit {bit}")
    axes.set(xscale="log", yscale="log", xlim=(lowest, 1.15), ylim=(lowest, 1.15))
    axes.set_xlabel("false positives")
    axes.set_ylabel("true positives")
    axes.set_title(f"{report.name.replace('eps', 'ε =')}: ε ≥ {report.epsilon:.2f}", fontsize=10)
