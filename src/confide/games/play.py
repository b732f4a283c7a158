"""The paper's OnlineGame: an adversary plays against a mechanism, and its view is all that comes out.

A game has an input bit that neither side knows. In *challenge* rounds the mechanism gets the bit's one of two inputs,
and the adversary does not see the answer; in all others both inputs are the same. The game enforces this: an adversary
that breaks a rule is refused with `RuleBroken`, since what it measures would mean nothing.

From Kaplan, Mansour, Moran, Nissim and Stemmer, "On Differentially Private Online Predictions" (2023), with units and
late labels as docs/proofs/people.md has them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from confide._checks import integer
from confide.errors import Halted
from confide.games.moves import (
    BOTTOM,
    Adversary,
    Batch,
    Label,
    Mechanism,
    Record,
    Records,
    Round,
    RuleBroken,
    Seen,
    View,
    same,
)
from confide.pop.base import Answer
from confide.pop.evaluate import evaluate
from confide.pop.pop import POP

__all__ = ["OnlineGame"]


class OnlineGame:
    """OnlineGame_{M,B,T,g} of the paper.

    Parameters
    ----------
    make_mechanism
        Makes a fresh mechanism for each game.
    adversary
        Plays against it.
    rounds
        T: the game ends after so many.
    challenges
        g: how many challenge rounds (or challenged people, where rounds carry ids) there may be.

    Examples
    --------
    >>> import confide
    >>> from confide.games import RandomAdversary
    >>> from confide.learners import LogisticRegression
    >>> plan = confide.Plan.tight(epsilon=8, delta=1e-6, rounds=100, copies=160, polls=160, unsure=20, silent=0)
    >>> def make():
    ...     return confide.POP(LogisticRegression(), plan, labels=[0, 1], features=2)
    >>> view = OnlineGame(make, RandomAdversary(rounds=5, features=2), rounds=5).play(1)
    >>> len(view.answers), view.answers.count(BOTTOM)
    (5, 1)
    """

    def __init__(
        self, make_mechanism: Callable[[], Mechanism], adversary: Adversary, rounds: int, challenges: int = 1
    ) -> None:
        self.make_mechanism, self.adversary = make_mechanism, adversary
        self.rounds = integer(rounds, "rounds", 1)
        self.challenges = integer(challenges, "challenges", 0)

    def play(self, bit: int) -> View:
        """Play once; the view is all that comes out."""
        bit = integer(bit, "bit", 0, 1)
        view = View(coins=secrets.randbits(64))
        table = _Table(self.make_mechanism(), bit, self.rounds, self.challenges, view)
        moves = self.adversary.play(np.random.default_rng(view.coins))
        try:
            move = next(moves)
            while not table.over:
                seen = table.take(move)
                if not table.over:
                    move = moves.send(seen)
        except StopIteration:
            pass
        finally:
            moves.close()
        return view


class _Table:
    """One game: the mechanism on one side, the rules in between."""

    def __init__(self, mechanism: Any, bit: int, rounds: int, challenges: int, view: View) -> None:
        self.mechanism, self.bit, self.rounds, self.challenges, self.view = mechanism, bit, rounds, challenges, view
        self.tickets: list[tuple[Any, bool, bool]] = []  # ticket, hidden, labelled
        self.posed = 0
        self.whose: dict[bool, set[str]] = {True: set(), False: set()}

    @property
    def over(self) -> bool:
        return self.view.halted or len(self.view.answers) >= self.rounds

    def take(self, move: Any) -> Any:
        if isinstance(move, Round):
            return self._round(move)
        if isinstance(move, Batch):
            return self._batch(move)
        if isinstance(move, Label):
            return self._label(move)
        if isinstance(move, Record):
            return self._record(move)
        if isinstance(move, Records):
            return self._records(move)
        raise RuleBroken(f"{type(move).__name__} is no move: use Round, Batch, Label, Record or Records")

    def _check(self, move: Round | Record) -> tuple[Any, Any]:
        """The rules for two inputs; returns them."""
        second = move.second if move.challenge or move.second is not None else move.first
        if not move.challenge and not same(move.first, second):
            raise RuleBroken("the two inputs differ, and this is no challenge: only challenges may differ")
        unit = move.unit
        if unit is not None:
            if unit in self.whose[not move.challenge]:
                raise RuleBroken("every round of a challenged person is a challenge, and nobody else's is")
            new = move.challenge and unit not in self.whose[True]
            self.whose[move.challenge].add(unit)
        else:
            new = move.challenge
        self.posed += new
        if self.posed > self.challenges:
            raise RuleBroken(
                f"more than {self.challenges} challenges: make the game with more, and account for a group"
            )
        return move.first, second

    def _round(self, move: Round) -> Any:
        pair = self._check(move)
        if any(not (isinstance(one, tuple) and len(one) == 2) for one in pair):
            raise RuleBroken("a round's inputs are pairs (x, y), with y = None for no label")
        x, y = pair[self.bit]
        seen, ticket = self._ask(x, move.unit, move.challenge)
        if seen is None:
            return None
        self.tickets.append((ticket, move.challenge, y is not None))
        if y is not None and ticket is not None:
            self._learn(ticket, y, move.challenge)
        self.view.answers.append(BOTTOM if move.challenge else seen)
        self._look()
        return self.view.answers[-1]

    def _ask(self, x: Any, unit: str | None, hidden: bool) -> tuple[Seen | None, Any]:
        try:
            answer = self.mechanism.predict(x) if unit is None else self.mechanism.predict(x, unit=unit)
        except Halted:
            self.view.halted = True
            return None, None
        except ValueError as error:  # the asker's own: a malformed x took its round
            return Seen(None, False, str(error)), None
        return _seen(answer), getattr(answer, "ticket", None)

    def _batch(self, move: Batch) -> list[Seen]:
        xs = move.xs[: self.rounds - len(self.view.answers)]
        units = self._visible(move.units, len(xs))
        if move.ys is not None:
            return self._labelled(xs, move.ys[: len(xs)], units)
        many = getattr(self.mechanism, "predict_many", None)
        if many is None:
            return self._one_by_one(xs, units)
        before = getattr(self.mechanism, "rounds", None)
        try:
            answers = many(xs) if units is None else many(xs, units=units)
        except Halted:
            self.view.halted = True
            return []
        self._look()
        if self.view.halted:  # rows after the halt were not answered
            if before is not None:
                answers = answers[: self.mechanism.rounds - before]
            while answers and getattr(answers[-1], "error", None) is not None:
                answers = answers[:-1]
        if answers and type(answers[0]) is Answer:  # the same as below, quickly
            seen = [Seen(answer.label, answer.sure, answer.error) for answer in answers]
            self.tickets += [(answer.ticket, False, False) for answer in answers]
        else:
            seen = [_seen(answer) for answer in answers]
            self.tickets += [(getattr(answer, "ticket", None), False, False) for answer in answers]
        self.view.answers += seen
        return seen

    def _visible(self, units: Sequence[str] | None, rows: int) -> list[str] | None:
        if units is None:
            return None
        if set(units) & self.whose[True]:
            raise RuleBroken("every round of a challenged person is a challenge: leave it out of a batch")
        self.whose[False].update(units[:rows])
        return list(units[:rows])

    def _labelled(self, xs: Any, ys: Any, units: list[str] | None) -> list[Seen]:
        """Answer, then learn, row after row; for a POP by `confide.evaluate`, which is that loop compiled."""
        if isinstance(self.mechanism, POP):
            result = evaluate(self.mechanism, xs, ys, units)
            kinds = [Seen(label, sure) for label in (*self.mechanism.labels, None) for sure in (False, True)]
            seen = [kinds[i] for i in (2 * result.answers + result.sure).tolist()]  # −1, for malformed, is the last
            self.tickets += [(None, False, True)] * len(seen)
            self.view.answers += seen
            self._look()
            return seen
        shown = []
        for i, x in enumerate(xs):
            one = self._round(Round((x, ys[i]), unit=None if units is None else units[i]))
            if one is None:
                break
            shown.append(one)
            if self.view.halted:
                break
        return shown

    def _one_by_one(self, xs: Any, units: list[str] | None) -> list[Seen]:
        shown: list[Seen] = []
        for i, x in enumerate(xs):
            seen, ticket = self._ask(x, None if units is None else units[i], False)
            if seen is None:
                break
            self.tickets.append((ticket, False, False))
            self.view.answers.append(seen)
            shown.append(seen)
            self._look()
            if self.view.halted:
                break
        return shown

    def _label(self, move: Label) -> None:
        number = integer(move.round, "round", 1)
        if number > len(self.tickets):
            raise RuleBroken(f"round {number} has not taken place: label it later")
        ticket, hidden, labelled = self.tickets[number - 1]
        second = move.second if hidden or move.second is not None else move.first
        if not hidden and not same(move.first, second):
            raise RuleBroken("the two labels differ, and their round was no challenge")
        if labelled and not hidden:
            raise RuleBroken(f"round {number} has its label: one round, one label")
        y = (move.first, second)[self.bit]
        if y is not None and ticket is not None and not labelled:
            self.tickets[number - 1] = (ticket, hidden, True)
            self._learn(ticket, y, hidden)

    def _learn(self, ticket: Any, y: Any, hidden: bool) -> None:
        try:
            self.mechanism.learn(ticket, y)
        except ValueError:
            if not hidden:
                raise

    def _record(self, move: Record) -> None:
        record = self._check(move)[self.bit]
        if record is None:
            return
        x, y = record
        self.mechanism.teach(x, y, **({} if move.unit is None else {"unit": move.unit}))

    def _records(self, move: Records) -> None:
        units = self._visible(move.units, len(move.xs))
        named = {} if units is None else {"units": units}
        if hasattr(self.mechanism, "teach_many"):
            self.mechanism.teach_many(move.xs, move.ys, **named)
            return
        for i, x in enumerate(move.xs):
            self._record(Record((x, move.ys[i]), unit=None if units is None else units[i]))

    def _look(self) -> None:
        """Whether it has halted is public."""
        self.view.halted = getattr(self.mechanism, "state", None) == "halted"


def _seen(answer: Any) -> Seen:
    if hasattr(answer, "label"):
        return Seen(answer.label, bool(getattr(answer, "sure", True)), getattr(answer, "error", None))
    return Seen(answer, True)
