"""Small POPs for people, to be saved, loaded, forked, killed and looked into by the tests of state."""

import functools
import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from confide import POP, Plan
from confide.learners import LogisticRegression
from confide.ledger import Book, Entry
from confide.planning.copies import Copies
from confide.planning.design import certify
from confide.planning.promise import Promise
from confide.pop.account import Account
from confide.privacy.gate import Gate
from confide.privacy.halting import Halting

DOUBT = [0.0, 0.0]
"""The copies abstain until they are taught, so before that every live answer is unsure."""
CLEAR = [1.0, 0.0]
"""A question on which all copies of `Echo` agree."""


class Echo:
    """Votes for what x says, or abstains: whether the gate is sure follows from x alone."""

    pure = True

    def predict(self, x: Any) -> str | None:
        return ("no", "yes")[int(x[0]) - 1] if x[0] > 0 else None

    def learn(self, x: Any, y: str) -> None:
        pass


ECHO: dict[str, Any] = {"learner": Echo(), "trusted": True}
"""What `load` needs for a POP of `Echo`."""


@functools.cache
def small_plan(unsure: int = 100, unit_unsure: int = 2, rounds: int = 5000, copies: int = 30) -> Plan:
    """A steep gate for few copies, and an ε that nobody would run."""
    gate = Gate.best(order=2, cost=3.0, margins=copies, tie_sure=1e-6)
    halting = Halting.best(order=2, cost=1.0, unsure=unsure, start=2.0**-40, survive=1e-3, shift=unit_unsure)
    got = certify(gate, halting, order=2, delta=0.02, poll_fraction=Fraction(1))
    part = Copies(copies, copies, unsure, 0, unit_unsure, 2, 2, 0.01, gate, halting)
    return Plan(Promise(got.epsilon, got.delta, rounds), (part,), "tight")


def make(learner: Any = None, **settings: Any) -> POP:
    """A secure POP for people."""
    defaults = {"plan": small_plan(), "labels": ["no", "yes"], "fallback": "no", "units": "people", "features": 2}
    return POP(
        LogisticRegression() if learner is None else learner, **{"after_halt": "raise", **{**defaults, **settings}}
    )  # type: ignore[arg-type]


def echo(**settings: Any) -> POP:
    """A POP that is sure of `CLEAR`, but for 1 in 10⁷, and unsure of `DOUBT`."""
    return make(Echo(), **{"plan": small_plan(copies=60), **settings})


def teach(pop: POP, people: int = 100, name: str = "teacher", dicts: bool = False) -> None:
    for i in range(people):
        x = [i % 7 - 3.0, i % 3 - 1.0]
        pop.teach({"a": x[0], "b": x[1]} if dicts else x, "yes" if i % 7 > 3 else "no", unit=f"{name} {i}")


def bank_of(pop: POP) -> dict[str, Any]:
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in pop.operator.bank.state(trusted=True).items()
    }


def account(pop: POP) -> Account:
    return pop.operator.loop.account


def copy_of(pop: POP, unit: str) -> int:
    routing = pop.operator.loop.routing
    return routing.copy_for(routing.who(unit))


def share(pop: POP, unit: str) -> int:
    """The unsure answers of a person."""
    who = pop.operator.loop.routing.who(unit)
    assert who is not None
    return account(pop).shares.get(who, 0)


def spent(pop: POP) -> tuple[Any, ...]:
    """Everything that must never go down."""
    now = account(pop)
    return now.rounds, now.unsure, now.shares, now.watched, pop.halt_reason


def fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # later Pythons warn of forks beside threads
        return os.fork()


def in_child(act: Callable[[], object]) -> str:
    """The name of the exception that `act` raises in a process of its own, or nothing."""
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        try:
            act()
        except BaseException as error:
            os.write(writing, type(error).__name__.encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as file:
        return file.read()


class Spy:
    """What goes into the book, and how often it is written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entries: list[Entry] = []
        self.writes = 0
        add, write = Book.add, Book._write

        def added(book: Book, entry: Entry) -> int:
            self.entries.append(entry)
            return add(book, entry)

        def written(book: Book) -> None:
            self.writes += 1
            write(book)

        monkeypatch.setattr(Book, "add", added)
        monkeypatch.setattr(Book, "_write", written)

    def look(self, act: Callable[[], object]) -> tuple[Any, ...]:
        """How many entries and writes a call makes, and the form of its entry."""
        self.entries.clear()
        self.writes = 0
        with suppress(ValueError):  # what its asker is told
            act()
        form = [(len(e.shares), len(e.watched), len(e.forgot)) for e in self.entries]
        return len(self.entries), self.writes, *form


def full(book: Book) -> None:
    raise OSError(28, "No space left on device")
