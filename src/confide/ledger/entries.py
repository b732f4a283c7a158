"""What is put into a ledger, what is read from it, and what one write of it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Batch", "Entry", "Erased", "Spent"]

Erased = tuple[str, int, bytes, tuple[bytes, ...]]
"""(kind, sequence, whose, what is left): one person's rows of a note, each to be overwritten with what is left of it,
and with zeros after that."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What one call of a mechanism adds. All numbers are absolute; the form never depends on an outcome.

    Parameters
    ----------
    rounds, unsure
        Rounds taken, and unsure answers counted, up to and with this call.
    halted
        Why the run halted; None while it has not.
    shares
        (who, their unsure answers so far), for every round of a person, sure or not.
    watched
        (who, their rounds that the monitor has counted).
    used
        Tickets (epoch, number) whose label was learned.
    forgot
        (copy, who): the copy was reset and the person's open questions were dropped.
    labels
        (who, labels of theirs that the guide learned): before the sum that holds them is released.
    history
        Rows of history taken.
    released
        (kind, number, noisy row, exact sums) of what the guide releases, as bytes.
    dropped
        (kind, number): releases of this kind before this number are needed no more, and are dropped.
    notes
        (kind, width, body) for the journal: rows of one width, each beginning with the 16 bytes that say whose it is.
    erased
        Rows of the journal to be overwritten.
    sealed
        Why nobody is to be answered any more, for good.
    """

    rounds: int
    unsure: int
    halted: str | None = None
    shares: tuple[tuple[bytes, int], ...] = ()
    watched: tuple[tuple[bytes, int], ...] = ()
    used: tuple[tuple[int, int], ...] = ()
    forgot: tuple[tuple[int, bytes], ...] = ()
    labels: tuple[tuple[bytes, int], ...] = ()
    history: int = 0
    released: tuple[tuple[str, int, bytes, bytes], ...] = ()
    dropped: tuple[tuple[str, int], ...] = ()
    notes: tuple[tuple[str, int, bytes], ...] = ()
    erased: tuple[Erased, ...] = ()
    sealed: str | None = None


@dataclass(frozen=True)
class Spent:
    """What a model has spent, as the ledger has it. Private: for the mechanism and its operator alone."""

    rounds: int = 0
    unsure: int = field(default=0, repr=False)
    halted: str | None = None
    shares: Mapping[bytes, int] = field(default_factory=dict, repr=False)
    watched: Mapping[bytes, int] = field(default_factory=dict, repr=False)
    epoch: int = 0
    """How often the model was claimed."""
    sequence: int = 0
    """The number of the last entry."""
    used: frozenset[tuple[int, int]] = field(default=frozenset(), repr=False)
    forgot: tuple[tuple[int, int, bytes], ...] = field(default=(), repr=False)
    """(sequence, copy, who) of every forgetting, in order."""
    labels: Mapping[bytes, int] = field(default_factory=dict, repr=False)
    history: int = 0
    released: tuple[tuple[str, int, bytes, bytes], ...] = field(default=(), repr=False)
    """(kind, number, noisy row, exact sums) of all that the guide released and that was not dropped, in order."""
    lives: Mapping[int, tuple[int, int]] = field(default_factory=dict, repr=False, compare=False)
    """(mark, rounds before it) of every life, by its epoch."""
    sealed: str | None = None
    """Why nobody is to be answered any more."""

    @property
    def counted(self) -> bool:
        """Whether anything was ever asked of it, taught as history, or written down: it is never taken away then."""
        return bool(self.sequence or self.rounds or self.history)


@dataclass(frozen=True)
class Batch:
    """The entries of many calls, which one transaction writes for all."""

    key: int
    """The model."""
    epoch: int
    """Its owner's: a store that has another one writes nothing."""
    before: int
    """The number of the last entry that is durable."""
    entries: tuple[tuple[int, Entry], ...] = field(repr=False)
    """Each with its number, in order."""
    tear: tuple[tuple[str, int], ...] = ()
    """Notes of a kind up to this number are dropped."""

    @property
    def last(self) -> int:
        """The number of the last entry."""
        return self.entries[-1][0]

    def grown(self) -> tuple[int, int, str | None, int]:
        """Rounds, unsure answers, why it halted, rows of history."""
        entries = [entry for _, entry in self.entries]
        return (
            max([entry.rounds for entry in entries]),
            max([entry.unsure for entry in entries]),
            next((entry.halted for entry in entries if entry.halted is not None), None),
            max([entry.history for entry in entries]),
        )

    def people(self) -> dict[bytes, list[int]]:
        """Unsure answers, watched rounds and labels of everybody who is in it."""
        people: dict[bytes, list[int]] = {}
        for _, entry in self.entries:
            for column, some in enumerate((entry.shares, entry.watched, entry.labels)):
                for who, count in some:
                    counts = people.setdefault(who, [0, 0, 0])
                    counts[column] = max(counts[column], count)
        return people
