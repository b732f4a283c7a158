"""What the service's doors need of a model: a desk, where one process answers, learns, and remembers for good.

HTTP, tokens and pacing know nothing of copies and ledgers, and the desk nothing of them: they meet in these few words.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from confide.planning.plan import Plan
from confide.pop.base import Answer

__all__ = ["Asked", "Desk", "Later", "Question", "Refusal", "Taught"]


@dataclass(frozen=True, slots=True, repr=False)
class Question:
    """One round that somebody asks for."""

    subject: str
    """Whose it is: the authenticated id in their token."""
    id: str
    """The request's own name, chosen by the asker: a retry with it is answered from what was stored."""
    x: Any


@dataclass(frozen=True, slots=True, repr=False)
class Taught:
    """A label that somebody brings."""

    subject: str
    ticket: str
    label: Hashable


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one request was not served: for its sender alone, and never with a private value in it."""

    kind: Literal["malformed", "conflict", "ticket", "label", "halted", "later"]
    """ "later": it could not be made durable; the same request again is safe, and counts once."""
    message: str


@dataclass(frozen=True, slots=True, repr=False)
class Asked:
    """What became of a question: an answer with its round's number, which is public, or a refusal."""

    answer: Answer | None
    round: int = -1
    refusal: Refusal | None = None
    again: bool = False
    """Whether this is a retry's stored answer."""


class Later(RuntimeError):
    """A private call could not be made durable: told to its caller alone, who tries again; the model goes on."""


class Desk(Protocol):
    """One model's owner. Calls may come from several threads, and return when all they say is durable.

    They share the disk's time: while one waits for it another computes, and one write serves all that are waiting.
    `StateError` from any call means that the ledger could not be written, or was found to have been rolled back: the
    model answers nobody any more, until it is opened again.
    """

    @property
    def name(self) -> str:
        """The model's name, public."""

    @property
    def plan(self) -> Plan:
        """Every number of the run, public."""

    def ask(self, questions: Sequence[Question]) -> list[Asked]:
        """Answer these in order, as one group commit whose size does not depend on what came of them."""

    def learn(self, lessons: Sequence[Taught]) -> list[Refusal | None]:
        """Take labels: each once, in time, from the ticket's holder; durable when this returns.

        A refusal is for its sender alone.
        """

    def teach(self, rows: Sequence[tuple[str | None, Any, Hashable]], id: str | None = None) -> list[Refusal | None]:
        """History: labelled records (subject, x, label) that were never asked. The operator's.

        The same records again under an `id` that is known are acknowledged again, and teach nothing; others are all
        refused as a conflict.
        """

    def forget(self, subject: str) -> None:
        """Reset the copy that knows this person; delete their stored questions, answers and request ids."""

    def public(self) -> Mapping[str, Any]:
        """What everyone may see: guarantee (a sentence and numbers), plan, labels, units, state, rounds, monitor."""

    def private(self) -> Mapping[str, Any]:
        """For the operator's eyes: spent budget, shares by source, errors of labels that came, open tickets, alarms."""

    def person(self, subject: str) -> Mapping[str, Any]:
        """For the operator's eyes: one person's rounds and shares."""

    def save(self) -> None:
        """Write a snapshot: what is loaded next starts from here, and replays what came since."""

    def close(self) -> None:
        """Save, and give the model back."""
