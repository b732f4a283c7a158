"""An evaluation as a picture; apart from `evaluate`, since Matplotlib takes half a second to load."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from confide.planning.pictures import BLUE, GREEN, RED, Picture, panels, thousands
from confide.pop.base import COPIES, FALLBACK, GUIDE, LEAN, MODEL, SOURCES
from confide.pop.evaluate import Evaluation

__all__ = ["picture"]

PARTS = 60
"""Parts of a stream over which errors and shares are averaged, at most."""

_COLOURS = {COPIES: BLUE, LEAN: "#5fa8a3", GUIDE: GREEN, MODEL: GREEN, FALLBACK: "#b8c0c8", -1: "#9a1b1b"}
_REFUSED, _OTHER = -1, "#8a6fb0"  # what is drawn of a part of somebody's own


def picture(evaluation: Evaluation) -> Picture:
    """How wrong the answers were in one part of the stream after the other, and who gave them."""
    if not evaluation.rounds:
        raise ValueError("no round was taken: there is nothing to draw")
    return panels([lambda axes: _errors(axes, evaluation), lambda axes: _sources(axes, evaluation)])


def _errors(axes: Axes, evaluation: Evaluation) -> None:
    ends, known = _parts(evaluation.known)
    known = np.where(known > 0, known, np.nan)
    axes.plot(ends, _parts(evaluation.wrong)[1] / known, color=BLUE, lw=2, label="answers")
    if (had := evaluation.guide >= 0).any():
        own = np.where(_parts(had)[1] == 1, _parts(evaluation.guide_wrong)[1] / known, np.nan)  # an answer to each row
        axes.plot(ends, own, color=GREEN, ls="--", lw=2, label="the guide’s own")
    axes.set_ylim(0, None)
    axes.set_ylabel("wrong")
    axes.set_title("How wrong, as the rounds went on", fontsize=10.5)
    axes.legend(frameon=False)
    _rounds(axes, evaluation)


def _sources(axes: Axes, evaluation: Evaluation) -> None:
    known = [(i, name) for i, name in reversed([*enumerate(SOURCES)])] + [(_REFUSED, "refused")]
    found = [(i, name) for i, name in known if (evaluation.source == i).any()]
    ends, _ = _parts(evaluation.wrong)
    shares = [_parts(evaluation.source == i)[1] for i, _ in found]
    from_start = [np.append(share[0], share) for share in shares]
    names, colours = [name for _, name in found], [_COLOURS.get(i, _OTHER) for i, _ in found]
    axes.stackplot(np.append(0, ends), from_start, labels=names, colors=colours)
    axes.set_ylim(0, 1)
    axes.set_ylabel("answered by")
    axes.set_title("Who answered", fontsize=10.5)
    axes.legend(loc="lower right")
    _rounds(axes, evaluation)


def _rounds(axes: Axes, evaluation: Evaluation) -> None:
    axes.set_xlim(0, evaluation.rounds)
    axes.set_xlabel("rounds")
    axes.xaxis.set_major_formatter(thousands)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    if evaluation.halted_at is not None:
        axes.axvline(evaluation.halted_at, color=RED, lw=1.5)
        place: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        axes.annotate("copies halted", (evaluation.halted_at, 0.9), (4, 0), color=RED, **place)


def _parts(flags: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Where the parts of the stream end, and the share of True in each."""
    count = min(PARTS, flags.size)
    ends = np.linspace(0, flags.size, count + 1).astype(np.int64)
    sums = np.concatenate([[0], np.cumsum(flags)])
    return ends[1:], np.diff(sums[ends]) / np.diff(ends)
