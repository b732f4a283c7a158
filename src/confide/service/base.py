"""What the service's doors need of a model: a desk, where one process answers, learns, and remembers for good.

HTTP, tokens and pacing know nothing of copies and ledgers, and the desk nothing of them: they meet in these few words.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from confide.planning.plan import Plan

__all__ = [
    "AGAIN", "RETRY", "Desk", "Later", "Life", "NotYet", "Problem", "Question", "Records", "Refusal", "Reply", "Said",
    "Slices", "Taught",
]  # fmt: skip

RETRY = 1
"""Seconds after which to come again, where nobody knows better."""

AGAIN = frozenset({429, 503, 504})
"""Statuses that mean: come again, with the same id or ticket. None of them leaves without `Retry-After`."""


class Problem(Exception):
    """A request that is not served, and why. Its sender is told the message, which quotes nothing of the request."""

    def __init__(self, status: int, kind: str, message: str, retry: int = RETRY) -> None:
        super().__init__(message)
        self.status, self.kind, self.retry = status, kind, retry


Life = tuple[int, int, int]
"""An owner's term, the mark that no other term has, and the last entry of the ledger that it made durable."""


class Question(NamedTuple):
    """One round that somebody asks for."""

    subject: str
    """Whose it is: the authenticated id in their token."""
    id: str
    """The request's own name, chosen by the asker: a retry with it is answered from what was stored."""
    x: Any

    def __repr__(self) -> str:
        return "Question(…)"


class Taught(NamedTuple):
    """A label that somebody brings."""

    subject: str
    ticket: str
    label: Hashable

    def __repr__(self) -> str:
        return "Taught(…)"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one request was not served: for its sender alone, and never with a private value in it."""

    kind: Literal["malformed", "conflict", "ticket", "label", "halted", "later", "quota"]
    """ "later": it could not be made durable; the same request again is safe, and counts once. "quota": no round of the
    day is left to the asker, which follows from how many they took, and from nothing else."""
    message: str
    after: int = 1
    """Seconds after which to come again, where that helps."""


class Said(NamedTuple):
    """An answer, as in `confide.Answer`, for its asker's eyes only."""

    label: Any
    sure: bool
    ticket: str
    source: str
    guide: Any
    probabilities: Mapping[Hashable, float] | None = None
    """As in `confide.Told`."""

    def __repr__(self) -> str:
        return "Said(…)"


class Reply(NamedTuple):
    """What became of a question: an answer with its round's number, which is public, or a refusal."""

    answer: Said | None
    round: int = -1
    refusal: Refusal | None = None
    again: bool = False
    """Whether this is a retry's stored answer."""

    def __repr__(self) -> str:
        return f"Reply(round={self.round})"


Records = Sequence[tuple[str | None, Any, Hashable]]
"""History: subject, x, label of each."""

Slices = Generator[list[Refusal | None], None, None]
"""What is said of records, slice by slice."""


class Later(RuntimeError):
    """A private call could not be made durable: told to its caller alone, who tries again; the model goes on."""


class NotYet(RuntimeError):
    """Questions wait for the end of an import of history: told to all who ask alike."""


class Desk(Protocol):
    """One model's owner. Calls may come from several threads, and return when all they say is durable.

    They share the disk's time: while one waits for it another computes, and one write serves all that are waiting.
    `StateError` means that something could not be written or read. If the desk has `ended` then, the ledger could not
    be written, or was found to have been rolled back: nobody is answered any more, until the model is opened again.
    """

    @property
    def name(self) -> str:
        """The model's name, public."""

    @property
    def plan(self) -> Plan:
        """Every number of the run, public."""

    @property
    def ended(self) -> bool:
        """Whether nobody is answered any more, until the model is opened again: the same for all (public)."""

    @property
    def life(self) -> Life:
        """What whoever opens the model after this desk must find in its ledger."""

    @property
    def waits(self) -> bool:
        """Whether the first question waits for the end of an import of history (public)."""

    def follows(self, life: Life) -> None:
        """Refuse to go on after another desk's life if the ledger does not know all of it: it was rolled back."""

    def ask(self, questions: Sequence[Question]) -> list[Reply]:
        """Answer these in order, as one group commit whose size does not depend on what came of them."""

    def refused(self, questions: Sequence[Question]) -> Mapping[int, Reply]:
        """Those, by their places, that `ask` would refuse for what their sender took before; reading it takes no lock.

        So they need not wait in a queue to be refused. It may miss some, and never names one that is not refused.
        """

    def learn(self, lessons: Sequence[Taught]) -> list[Refusal | None]:
        """Take labels: each once, in time, from the ticket's holder; durable when this returns.

        A refusal is for its sender alone.
        """

    def not_theirs(self, lessons: Sequence[Taught]) -> Mapping[int, Refusal]:
        """Those, by their places, whose ticket is not their sender's; reading it takes no lock.

        So they need not wait in a queue to be refused. It may miss some, and never names one that `learn` would take.
        """

    def teaching(self, rows: Records, id: str | None = None) -> Slices:
        """History: labelled records (subject, x, label) that were never asked, slice by slice. The operator's.

        What is said of a slice comes when it is durable; other calls may come between slices. Until the last one, or
        until this is closed, no first question is answered. The same records again under an `id` that is known are
        acknowledged again, and those that were taught teach nothing; others are all refused as a conflict.
        """

    def forget(self, subject: str) -> bool:
        """Reset the copy that knows this person; delete their stored questions and answers.

        Whether anything was stored or counted under this name: for the operator's eyes.
        """

    @property
    def moment(self) -> Hashable:
        """Another one whenever `public` shows something else, and never when it does not; reading it takes no lock."""

    def public(self) -> Mapping[str, Any]:
        """What everyone may see: guarantee (a sentence and numbers), plan, labels, units, state, rounds, monitor."""

    def private(self) -> Mapping[str, Any]:
        """For the operator's eyes: spent budget, shares by source, errors of labels that came, open tickets, alarms."""

    def person(self, subject: str) -> Mapping[str, Any]:
        """For the operator's eyes: one person's rounds and shares."""

    def save(self) -> None:
        """Write a snapshot: what is loaded next starts from here, and replays what came since."""

    def beat(self) -> None:
        """Look whether the ledger is there; if not, the desk has ended. Called at public times."""

    def close(self) -> None:
        """Save, and give the model back."""
