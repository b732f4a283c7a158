"""Does a mechanism do what its tables say? Numbers of the view whose exact laws are known, against the games.

The certificate's alarm asks whether too much leaks; this asks whether the mechanism is the one that was certified,
which shows with far fewer games. Proof page: docs/proofs/audit.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from confide.arrays import Floats
from confide.games.laws import Law

QUANTILES = (0.01, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 0.99)
"""Where the laws are compared: at these places of each number's law."""


@dataclass(frozen=True)
class Misfit:
    """A number of the view that came out otherwise than the tables say."""

    number: str
    bit: int
    threshold: float
    games: int
    hits: int
    """Games in which the number was above the threshold."""
    expected: float
    """The probability of that by the plan's tables."""

    def __str__(self) -> str:
        share = f"{self.hits / self.games:.4f} of the games at bit {self.bit}, not {self.expected:.4f}"
        return f"the {self.number} exceed {self.threshold:.6g} in {share}"


def cuts(laws: Sequence[Law]) -> list[tuple[int, int, float, float]]:
    """What is compared, whatever the games show: (number, bit, threshold, its exact probability of being exceeded)."""
    found = []
    for number, law in enumerate(laws):
        values = np.unique(law.values)
        for bit in (0, 1):
            tails = law.tails(bit, values)
            places = {int(np.argmin(np.abs(tails - quantile))) for quantile in QUANTILES}
            found += [(number, bit, float(values[at]), float(tails[at])) for at in sorted(places)]
    return found


def odd_hits(games: int, expected: float, level: float) -> tuple[int, int]:
    """Fewer hits than the first or more than the second: together with probability at most `level`, exactly."""
    low, high = int(binom.ppf(level / 2, games, expected)), int(binom.isf(level / 2, games, expected))
    while low > 0 and binom.cdf(low - 1, games, expected) > level / 2:
        low -= 1
    while binom.sf(high, games, expected) > level / 2:
        high += 1
    return low, high


def misfit(laws: Sequence[Law], zero: Floats, one: Floats, level: float) -> Misfit | None:
    """The worst misfit, if there is any: where the tables are those of the laws, with probability at most `level`.

    Parameters
    ----------
    laws
        The law of each number, in the order of the columns.
    zero, one
        A row a game, at bit 0 and at bit 1.
    """
    planned, found = cuts(laws), []
    for number, bit, threshold, expected in planned:
        column = (zero, one)[bit][:, number]
        hits = int((column > threshold).sum())
        low, high = odd_hits(column.size, expected, level / len(planned))
        if not low <= hits <= high:
            chance = min(binom.logcdf(hits, column.size, expected), binom.logsf(hits - 1, column.size, expected))
            found.append((chance, Misfit(laws[number].name, bit, threshold, column.size, hits, expected)))
    return min(found, key=lambda one: one[0])[1] if found else None
