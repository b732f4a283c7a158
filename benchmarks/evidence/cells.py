"""Which cells the table has, in which order they are run, and what one of them says."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide import __version__

from .streams import GENERATORS, NAMES, STRANGERS, TABLE

RESULTS = Path(__file__).parents[1] / "results"
QUICK_RESULTS = Path("build") / "evidence-quick"
DELTA = 1e-6
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
SEEDS = (1, 2, 3)
SHORT, LONG, LONGEST = 10**5, 10**6, 10**7
FEW = (1.0, 8.0)
"""The ε of long streams."""
TWO = (1.0, 4.0)
"""The ε of strangers' streams, and of labels alone."""
LONGEST_STREAMS = ("agrawal5", "sea", "rbf")
SLOW = {
    "forest": ("nycflights13", "kdd99", "kdd99x23", "hotel", "appointments", "sst2"),
    "rr-boosted": ("kdd99x23",),
    "guide-hindsight": ("kdd99x23",),
}
"""What would take hours: River's forest is run up to 10⁵ rows of numbers, and boosted trees for 23 labels once."""
LATE = 0.4
"""The errors that are compared are those after this share of the rows."""
RARE = 0.8
"""Where one label is so frequent, precision and recall of the others are told too."""

TWINS = ("nonprivate", "nonprivate-guide")
"""Without privacy: the excess is over the better of these."""
WITHOUT = ("majority", *TWINS, "boosted", "river", "forest")
"""Methods without privacy: one cell a stream."""
SURE = ("majority", "nonprivate", "boosted", "river", "forest", "paper")
"""Methods without a seed."""
SEEDED = ("confide", "labels", "dpftrl", "guide-hindsight", "rr", "rr-boosted", "pop", "guide")
LABELS_ONLY = ("labels", "rr", "rr-boosted")
"""They protect labels and not rows, with δ = 0."""
METHODS = (*WITHOUT, *SEEDED, "paper")


Line = dict[str, Any]
"""What is known of one cell, as it is written."""


@dataclass(frozen=True)
class Cell:
    """One run: a stream, how many rows of it (None: the file's), ε (None: no privacy), a method, its seed."""

    stream: str
    rows: int | None
    epsilon: float | None
    method: str
    seed: int

    @property
    def name(self) -> str:
        """`stream/rows/ε/method/seed`: what --cell takes."""
        rows = "all" if self.rows is None else str(self.rows)
        return f"{self.stream}/{rows}/{'-' if self.epsilon is None else f'{self.epsilon:g}'}/{self.method}/{self.seed}"

    @classmethod
    def named(cls, name: str) -> Cell:
        try:
            stream, rows, epsilon, method, seed = name.split("/")
            cell = cls(
                stream,
                None if rows == "all" else int(rows),
                None if epsilon == "-" else float(epsilon),
                method,
                int(seed),
            )
        except ValueError:
            raise ValueError(f"{name!r} is no cell: write stream/rows/ε/method/seed, as the results do") from None
        if stream not in NAMES or method not in METHODS or (cell.epsilon is None) != (method in WITHOUT):
            raise ValueError(f"there is no cell {name!r}: streams are {', '.join(NAMES)}; methods {', '.join(METHODS)}")
        return cell

    @property
    def command(self) -> str:
        return f"python -m benchmarks.evidence --cell {self.name}"


def _of(streams: Iterable[str], rows: int, epsilons: Iterable[float], methods: Iterable[str], seed: int) -> list[Cell]:
    out = []
    for stream in streams:
        length = rows if stream in GENERATORS else None
        for method in methods:
            if (seed == 1 or method not in (*WITHOUT, *SURE)) and stream not in SLOW.get(method, ()):
                asked: Iterable[float | None] = (None,) if method in WITHOUT else epsilons
                out += [Cell(stream, length, epsilon, method, seed) for epsilon in asked]
    return out


FIRST = ("majority", *TWINS, "confide", "dpftrl", "rr", "boosted", "rr-boosted", "paper")
CLASSES: dict[str, list[Cell]] = {
    "first": _of(TABLE, SHORT, EPSILONS, FIRST, 1),
    "seeds": [cell for seed in (2, 3) for cell in _of(TABLE, SHORT, EPSILONS, ("confide", "dpftrl"), seed)],
    "parts": _of(TABLE, SHORT, FEW, ("guide", "pop"), 1),
    "long": _of(GENERATORS, LONG, FEW, ("majority", *TWINS, "confide", "dpftrl", "guide", "paper"), 1),
    "longest": _of(LONGEST_STREAMS, LONGEST, FEW, (*TWINS, "majority", "confide", "guide"), 1),
    "river": _of(TABLE, SHORT, (), ("river",), 1),
    "hindsight": _of(TABLE, SHORT, EPSILONS, ("guide-hindsight",), 1),
    "rest": [
        *_of(TABLE, SHORT, (0.5, 2.0, 4.0), ("guide", "pop"), 1),
        *(c for seed in (2, 3) for c in _of(TABLE, SHORT, EPSILONS, ("rr",), seed) if c.stream != "kdd99x23"),
    ],
    "strangers": [
        *_of(STRANGERS, SHORT, TWO, ("majority", *TWINS, "confide", "dpftrl"), 1),
        *(cell for seed in (2, 3) for cell in _of(STRANGERS, SHORT, TWO, ("confide", "dpftrl"), seed)),
        *_of(STRANGERS, SHORT, TWO, ("guide", "pop"), 1),
    ],
    "labels": _of(NAMES, SHORT, TWO, ("labels",), 1),
    "forest": _of(TABLE, SHORT, (), ("forest",), 1),
}
"""All cells by what they are worth, the most first."""

QUICK = {
    "quick": [
        *_of(("sea", "agrawal1", "led"), 5000, (1.0, 8.0), (*FIRST, "guide-hindsight", "guide", "pop", "river"), 1),
        *_of(("sea", "agrawal1", "led"), 5000, (1.0, 8.0), ("confide", "dpftrl"), 2),
    ]
}


def score(answers: NDArray[np.int64], labels: NDArray[np.int64]) -> dict[str, float]:
    """Errors in per cent; where a label is rare, precision and recall of the late rows. −1 is no answer: wrong."""
    late = slice(int(LATE * len(labels)), None)
    out = {"late": _percent(answers[late] != labels[late]), "all": _percent(answers != labels)}
    counts = np.bincount(labels)
    common = int(counts.argmax())
    if len(counts) == 2 and counts[common] < RARE * len(labels):
        return out
    if len(counts) > 2 and counts.min() > 0.01 * len(labels):
        return out
    a, y = answers[late], labels[late]
    rare = [label for label in np.unique(y).tolist() if len(counts) > 2 or label != common]
    if not rare:
        return out
    found = [(float(((a == k) & (y == k)).sum()), float((a == k).sum()), float((y == k).sum())) for k in rare]
    out["precision"] = round(100 * float(np.mean([hit / max(1.0, said) for hit, said, _ in found])), 3)
    out["recall"] = round(100 * float(np.mean([hit / there for hit, _, there in found])), 3)
    return out


def _percent(wrong: NDArray[np.bool_]) -> float:
    return round(100 * float(wrong.mean()), 4)


def record(cell: Cell, units: str, length: int | None, seconds: float, got: dict[str, Any]) -> Line:
    """The line of a cell: what was asked, what came out, and how to have it again."""
    return {
        "cell": cell.name,
        "stream": cell.stream,
        "rows": length,
        "epsilon": cell.epsilon,
        "delta": None if cell.epsilon is None else 0.0 if cell.method in LABELS_ONLY else DELTA,
        "units": units,
        "method": cell.method,
        "seed": cell.seed,
        **got,
        "seconds": round(seconds, 2),
        "version": __version__,
        "command": cell.command,
    }


def read(folder: Path = RESULTS) -> dict[str, Line]:
    """All lines of the results by the names of their cells; of two for one cell the later."""
    lines: dict[str, Line] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for text in path.read_text("utf-8").splitlines():
            line = json.loads(text)
            lines[line["cell"]] = line
    return lines


def write(line: Line, folder: Path) -> None:
    """Add a line to the stream's file, in one piece: several processes may do so."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{line['stream']}.jsonl").open("ab", buffering=0) as file:
        file.write((json.dumps(line, ensure_ascii=False) + "\n").encode())
