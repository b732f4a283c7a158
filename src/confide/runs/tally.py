"""What the operator counts in a run: exact numbers, for the operator's eyes only, outside the guarantee."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

FIRST_BAD = 20
"""Bad rows that are reported one by one; all are counted."""

LATE = 0.4
"""The share of the rounds that is left out where a run is judged by what it had learned."""

NOTHING = float("nan")


@dataclass
class Tally:
    """Counts of a run, plain enough for JSON.

    A row that was refused is wrong everywhere; one without a usable label is neither right nor wrong, and in no error.

    Examples
    --------
    >>> tally = Tally(labels=2, block=10, rounds=30, wrong=6, confusion=[[18, 2, 0], [4, 6, 0]])
    >>> tally.error, tally.recalls, round(tally.balanced_error, 3)
    (0.2, [0.9, 0.6], 0.25)
    """

    labels: int
    block: int
    """Rounds between two points of a curve."""
    position: int = 0
    """Rows read, good and bad."""
    rounds: int = 0
    unknown: int = 0
    """Rounds whose label was missing or none of the labels: nobody knows whether their answer was right."""
    wrong: int = 0
    twin_wrong: int = 0
    frequent_wrong: int = 0
    """Rounds in which the label that was most frequent before was not the right one."""
    guided: int = 0
    """Rounds with a label in which the guide had an answer of its own, whoever answered."""
    guide_wrong: int = 0
    """Rounds with a label in which it had none, or a wrong one."""
    live: int = 0
    """Rounds in which the copies were asked."""
    live_wrong: int = 0
    live_unknown: int = 0
    unsure: int = 0
    halted_at: int | None = None
    """The last round of the copies, where their budget was used up."""
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
    sources: dict[str, list[int]] = field(default_factory=dict)
    """For each source of answers: how many rounds it answered, how many of them wrongly, how many without a label."""
    curve_rounds: list[int] = field(default_factory=list)
    curve_unknown: list[int] = field(default_factory=list)
    curve_wrong: list[int] = field(default_factory=list)
    curve_twin: list[int] = field(default_factory=list)
    curve_guide: list[int] = field(default_factory=list)
    curve_frequent: list[int] = field(default_factory=list)
    curve_unsure: list[int] = field(default_factory=list)
    margins: dict[int, int] = field(default_factory=dict)
    """A sample of the live rounds by vote margin."""
    confusion: list[list[int]] = field(default_factory=list)
    """Rounds that have a label, by it and by the answer, whoever gave it; the last column counts refused rows."""

    def __post_init__(self) -> None:
        self.confusion = self.confusion or [[0] * (self.labels + 1) for _ in range(self.labels)]
        self.margins = {int(margin): n for margin, n in self.margins.items()}

    @property
    def brought(self) -> int:
        """Labels of rows that could be read, and of the history."""
        return sum(sum(row[: self.labels]) for row in self.confusion) + self.taught_before

    @property
    def known(self) -> int:
        """Rounds that have a usable label: those that errors are of."""
        return self.rounds - self.unknown

    @property
    def error(self) -> float:
        """Wrong answers a round with a label."""
        return _share(self.wrong, self.known)

    @property
    def late_error(self) -> float:
        """Wrong answers a round, after the first part of the rounds."""
        return self.late(self.curve_wrong)

    @property
    def twin_error(self) -> float:
        """The twin's wrong answers a round."""
        return _share(self.twin_wrong, self.known)

    @property
    def guide_error(self) -> float:
        """The error of the guide's own answers, where it had one."""
        return _share(self.guide_wrong - (self.known - self.guided), self.guided)

    @property
    def live_error(self) -> float:
        """Wrong answers a live round."""
        return _share(self.live_wrong, self.live - self.live_unknown)

    @property
    def frequent(self) -> int:
        """The number of the most frequent label."""
        totals = [sum(row) for row in self.confusion]
        return totals.index(max(totals))

    @property
    def frequent_error(self) -> float:
        """Wrong answers a round, if always the label that was most frequent before were answered."""
        return _share(self.frequent_wrong, self.known)

    def late(self, curve: list[int]) -> float:
        """What a curve has per round after the first part of the rounds; NaN before a point was made there."""
        return _share(*self.late_counts(curve))

    def late_counts(self, curve: list[int]) -> tuple[int, int]:
        """What a curve has after the first part of the rounds, and in how many that have a label; 0 and 0 for none."""
        before = [i for i, rounds in enumerate(self.curve_rounds) if rounds <= LATE * self.rounds]
        if not before:
            return 0, 0
        first = before[-1]
        known = self.curve_known
        return curve[-1] - curve[first], known[-1] - known[first]

    @property
    def curve_known(self) -> list[int]:
        """Rounds with a label, at each point of the curves."""
        return [rounds - unknown for rounds, unknown in zip(self.curve_rounds, self.curve_unknown, strict=True)]

    def errors(self) -> dict[str, float]:
        """The error of each source over the rounds with a label that it answered; NaN where there were none."""
        return {name: _share(wrong, n - unknown) for name, (n, wrong, unknown) in self.sources.items()}

    @property
    def recalls(self) -> list[float]:
        """Of the rounds that have each label, the share that was answered with it."""
        return [_share(row[i], sum(row)) for i, row in enumerate(self.confusion)]

    @property
    def precisions(self) -> list[float]:
        """Of the rounds answered with each label, the share that has it."""
        return [_share(self.confusion[i][i], sum(row[i] for row in self.confusion)) for i in range(self.labels)]

    @property
    def balanced_error(self) -> float:
        """The mean over labels, each as heavy as any other, of the share of its rounds that were wrong."""
        known = [recall for recall in self.recalls if recall == recall]
        return 1 - sum(known) / len(known) if known else NOTHING

    @property
    def sentence(self) -> str:
        """The error in words."""
        if not self.rounds:
            return "no rounds yet"
        said = f"{percent(self.error)} of {self.known:,} rounds ({self.wrong:,} wrong)"
        among = ", unreadable rows among them" if self.unlabelled < self.unknown else ""
        return f"{said}; {self.unknown:,} more have no usable label{among}" if self.unknown else said

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
        self.curve_unknown.append(self.unknown)
        self.curve_wrong.append(self.wrong)
        self.curve_twin.append(self.twin_wrong)
        self.curve_guide.append(self.guide_wrong)
        self.curve_frequent.append(self.frequent_wrong)
        self.curve_unsure.append(unsure)


def percent(share: float) -> str:
    """A share in words, with more digits near the ends; a dash where there is none.

    Examples
    --------
    >>> percent(0.25), percent(0.0012), percent(float("nan"))
    ('25.00%', '0.120%', '–')
    """
    if share != share:
        return "–"
    return f"{share:.3%}" if 0 < share < 0.01 or 0.99 < share < 1 else f"{share:.2%}"


def _share(part: int, whole: int) -> float:
    return part / whole if whole else NOTHING
