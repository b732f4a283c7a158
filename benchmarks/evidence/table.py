"""The lines of the results as one table: medians over seeds, excesses, and how often Confide keeps up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

from .cells import LATE, TWINS, Line
from .streams import GENERATORS, NAMES

TOGETHER = {"river": ("river", "forest"), "rr": ("rr", "rr-boosted")}
"""Methods of which the page shows the better one."""

Place = tuple[str, int | None]
"""A stream, and its rows as they were asked for: None for all of a file's."""


@dataclass(frozen=True)
class Summary:
    """A method on a stream at an ε: late errors in per cent, over the seeds that were run."""

    errors: tuple[float, ...]
    lines: tuple[Line, ...]

    @property
    def median(self) -> float:
        return median(self.errors)

    @property
    def spread(self) -> float | None:
        return max(self.errors) - min(self.errors) if len(self.errors) > 1 else None


class Table:
    """All results, asked by stream, rows, ε and method."""

    def __init__(self, lines: dict[str, Line]) -> None:
        self._lines: dict[tuple[Place, float | None, str], list[Line]] = {}
        for line in lines.values():
            place = line["stream"], line["rows"] if line["stream"] in GENERATORS else None
            self._lines.setdefault((place, line["epsilon"], line["method"]), []).append(line)

    def places(self) -> list[Place]:
        """Streams and lengths, shortest first, in the order of the streams."""
        return sorted({key[0] for key in self._lines}, key=lambda at: (at[1] or 0, NAMES.index(at[0])))

    def rows(self, place: Place) -> int:
        """How many rows there are."""
        return max(int(line["rows"]) for key, lines in self._lines.items() if key[0] == place for line in lines)

    def units(self, place: Place) -> str:
        return next(str(lines[0]["units"]) for key, lines in self._lines.items() if key[0] == place)

    def epsilons(self, place: Place) -> list[float]:
        return sorted({key[1] for key in self._lines if key[0] == place and key[1] is not None})

    def summary(self, place: Place, epsilon: float | None, method: str) -> Summary | None:
        lines = [line for line in self._lines.get((place, epsilon, method), ()) if "late" in line]
        lines.sort(key=lambda line: line["seed"])
        return Summary(tuple(line["late"] for line in lines), tuple(lines)) if lines else None

    def best(self, place: Place, epsilon: float | None, method: str) -> Summary | None:
        """The same, of the best of those methods that stand for one."""
        found = [self.summary(place, epsilon, name) for name in TOGETHER.get(method, (method,))]
        return min((each for each in found if each is not None), key=lambda each: each.median, default=None)

    def missing(self, place: Place, epsilon: float | None, method: str) -> str | None:
        """Why there is no number; None where nobody has run it."""
        lines = self._lines.get((place, epsilon, method), [])
        return next((str(line["missing"]) for line in lines if "missing" in line), None)

    def without(self, place: Place) -> float | None:
        """The error without privacy: of the better twin."""
        found = [s.median for method in TWINS if (s := self.summary(place, None, method)) is not None]
        return min(found) if len(found) == len(TWINS) else None


@dataclass(frozen=True)
class Duel:
    """Confide with its defaults and tuned DP-FTRL on one stream at one ε."""

    place: Place
    epsilon: float
    ours: float
    theirs: float
    without: float
    error: float
    """The standard error of theirs: as many rows, each wrong or not."""

    @property
    def limit(self) -> float:
        return 1.03 * self.theirs + 2 * self.error

    @property
    def keeps_up(self) -> bool:
        return self.ours <= self.limit

    @property
    def wins(self) -> bool:
        """A tenth less excess over no privacy, where theirs has any."""
        return self.theirs > self.without and self.ours - self.without <= 0.9 * (self.theirs - self.without)


def standard_error(percent: float, rows: int) -> float:
    """Of an error in per cent over the late ones of so many rows, each drawn by itself."""
    part = percent / 100
    return 100 * math.sqrt(part * (1 - part) / ((1 - LATE) * rows))


def duels(table: Table) -> list[Duel]:
    """Every stream, length and ε where both were run."""
    out = []
    for place in table.places():
        without = table.without(place)
        for epsilon in table.epsilons(place):
            ours, theirs = (table.summary(place, epsilon, method) for method in ("confide", "dpftrl"))
            if ours is None or theirs is None or without is None:
                continue
            error = standard_error(theirs.median, table.rows(place))
            out.append(Duel(place, epsilon, ours.median, theirs.median, without, error))
    return out
