"""How the examples draw: text stays text in an SVG, and the colours are those of Confide's reports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

BLUES = ("#22577a", "#3a86a8", "#6fb1c7", "#8cc3d3")
ORANGE, RED, GREY = "#e07a1f", "#9a1b1b", "#8b95a1"
PER_CENT = FuncFormatter(lambda value, _: f"{100 * value:g} %")

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": "#3d4752",
    "axes.titlesize": 10.5,
    "axes.titlecolor": "#3d4752",
    "axes.titlelocation": "left",
    "xtick.color": "#5b6672",
    "ytick.color": "#5b6672",
    "axes.grid": True,
    "grid.color": "#e3e7eb",
    "axes.axisbelow": True,
    "legend.frameon": False,
}


@contextmanager
def picture(path: Path, size: tuple[float, float]) -> Iterator[Figure]:
    """A figure to draw on; it is written to `path` at the end, as SVG or PNG by its name."""
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": path.stem}):
        figure = Figure(figsize=size, layout="constrained")
        yield figure
        metadata = {"Date": None, "Creator": None} if path.suffix == ".svg" else None
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata=metadata, dpi=150)
