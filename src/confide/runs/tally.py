"""What the operator counts in a run: exact numbers, for the operator's eyes only, outside the guarantee."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Tally"]

FIRST_BAD = 20
"""Bad rows that are reported one by one; all are counted."""


@dataclass
class Tally:
    """Counts of a run, plain enough for JSON. `live` rounds are those after the silent start.

    Examples
    --------
    >>> tally = Tally(labels=2, block=10, rounds=30, live=20, mistakes=1)
    >>> tally.error
    0.05
    """

    labels: int
    block: int
    """Rounds between two points of a curve."""
    position: int = 0
    """Rows read, good and bad."""
    rounds: int = 0
    live: int = 0
    mistakes: int = 0
    """Wrong answers in live rounds: those of the fallback, unreadable rows and rows without a label included."""
    twin_mistakes: int = 0
    unsure: int = 0
    taught_before: int = 0
    """Records of the history."""
    seconds: float = 0.0
    refused: int = 0
    """Rows whose features could not be read: each took its round, and was answered by nobody."""
    unlabelled: int = 0
    """Rows that were asked as they are, and whose label was missing or none of the labels."""
    nobodys: int = 0
    """Rows without a unit where people are protected: they took no round, so their number is public."""
    history_bad: int = 0
    """Records of the history that could not be taught."""
    first_bad: list[list[Any]] = field(default_factory=list)
    curve_rounds: list[int] = field(default_factory=list)
    curve_mistakes: list[int] = field(default_factory=list)
    curve_twin: list[int] = field(default_factory=list)
    curve_unsure: list[int] = field(default_factory=list)
    margins: dict[int, int] = field(default_factory=dict)
    """A sample of the live rounds by vote margin."""
    confusion: list[list[int]] = field(default_factory=list)
    """Live rounds that have a label, by it and by the answer; the last column counts what the copies did not answer."""

    def __post_init__(self) -> None:
        self.confusion = self.confusion or [[0] * (self.labels + 1) for _ in range(self.labels)]
        self.margins = {int(margin): n for margin, n in self.margins.items()}

    @property
    def error(self) -> float:
        """Mistakes per live round."""
        return self.mistakes / self.live if self.live else float("nan")

    @property
    def twin_error(self) -> float:
        """The twin's mistakes per live round."""
        return self.twin_mistakes / self.live if self.live else float("nan")

    @property
    def sentence(self) -> str:
        """The error in words."""
        if not self.live:
            return "no live rounds yet"
        return f"{self.error:.3%} of {self.live:,} live rounds ({self.mistakes:,} mistakes)"

    @property
    def unanswered(self) -> int:
        """Live rounds that the fallback answered."""
        return sum(row[-1] for row in self.confusion)

    @property
    def bad(self) -> int:
        """Rows of the stream that something was wrong with."""
        return self.refused + self.unlabelled + self.nobodys

    def spoiled(self, line: int, reason: str) -> None:
        """Remember what was wrong with a row, if it is one of the first."""
        if len(self.first_bad) < FIRST_BAD:
            self.first_bad.append([line, reason])

    def point(self, unsure: int) -> None:
        """Add a point to the curves."""
        self.unsure = unsure
        if self.rounds in self.curve_rounds[-1:]:
            return
        self.curve_rounds.append(self.rounds)
        self.curve_mistakes.append(self.mistakes)
        self.curve_twin.append(self.twin_mistakes)
        self.curve_unsure.append(unsure)
