"""The paper's OnlineGame: an adversary plays against a mechanism, and its view is all that comes out.

A game has an input bit that neither side knows. In *challenge* rounds the mechanism gets the bit's one of two inputs,
and the adversary does not see the answer; in all others both inputs are the same. The game enforces this: an adversary
that breaks a rule is refused with `RuleBroken`, since what it measures would mean nothing.

From Kaplan, Mansour, Moran, Nissim and Stemmer, "On Differentially Private Online Predictions" (2023), with units and
late labels as docs/proofs/people.md has them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from confide._checks import integer
from confide.errors import Halted
from confide.frames import rows_of
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
    flag,
    name_of,
    same,
)
from confide.pop.base import Unit
from confide.pop.evaluate import Follows, label_numbers


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
    >>> plan = confide.Plan.tight(8, 1e-6, 100, copies=160, polls=160, unsure=20, silent=0, guide=None)
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
        seen = getattr(table.mechanism, "released", ())
        view.released = [row for name, _, row in seen if not name.endswith("/ranges")]
        return view


@dataclass(frozen=True)
class _Rows:
    """A batch as the mechanism gets it."""

    xs: Any
    ys: Any
    units: Sequence[Unit] | None
    hidden: frozenset[int]

    def unit(self, row: int) -> Unit | None:
        return None if self.units is None else self.units[row]


class _Table:
    """One game: the mechanism on one side, the rules in between."""

    def __init__(self, mechanism: Any, bit: int, rounds: int, challenges: int, view: View) -> None:
        self.mechanism, self.bit, self.rounds, self.challenges, self.view = mechanism, bit, rounds, challenges, view
        self.tickets: list[tuple[Any, bool, bool]] = []  # ticket, hidden, labelled
        self.posed = 0
        self.whose: dict[bool, set[bytes]] = {True: set(), False: set()}

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

    # ------------------------------------------------------------------ the rules

    def _check(self, move: Round | Record) -> tuple[Any, Any]:
        """The rules for two inputs; returns them."""
        challenge = flag(move.challenge)
        second = move.second if challenge or move.second is not None else move.first
        if not challenge and not same(move.first, second):
            raise RuleBroken("the two inputs differ, and this is no challenge: only challenges may differ")
        self._pose(challenge, move.unit)
        return move.first, second

    def _pose(self, challenge: bool, unit: Unit | None) -> None:
        """Whose round it is, and how many challenges that makes."""
        new = challenge
        if unit is not None:
            name = name_of(unit)
            if name in self.whose[not challenge]:
                raise RuleBroken("every round of a challenged person is a challenge, and nobody else's is")
            new = challenge and name not in self.whose[True]
            self.whose[challenge].add(name)
        self.posed += new
        if self.posed > self.challenges:
            raise RuleBroken(
                f"more than {self.challenges} challenges: make the game with more, and account for a group"
            )

    def _rows(self, move: Batch) -> _Rows:
        """The rules for a batch; its rows as far as the game goes, at this bit."""
        left = self.rounds - len(self.view.answers)
        xs, ys = move.xs[:left], None if move.ys is None else move.ys[:left]
        units = None if move.units is None else list(move.units[:left])
        second = {i: pair for i, pair in (move.second or {}).items() if i not in range(len(xs), len(move.xs))}
        for i, pair in second.items():
            if i not in range(len(xs)) or not _is_pair(pair) or (ys is None and pair[1] is not None):
                raise RuleBroken("a batch's challenges are rows of it with their second (x, y), y None without labels")
        for i in range(len(xs)) if units is not None else second:
            self._pose(i in second, None if units is None else units[i])
        if second:
            xs, ys = _replaced(xs, ys, second, self.bit)
        return _Rows(xs, ys, units, frozenset(second))

    # ------------------------------------------------------------------ rounds

    def _round(self, move: Round) -> Any:
        pair = self._check(move)
        if not all(_is_pair(one) for one in pair):
            raise RuleBroken("a round's inputs are pairs (x, y), with y = None for no label")
        x, y = pair[self.bit]
        return self._play(x, y, move.unit, bool(move.challenge))

    def _play(self, x: Any, y: Any, unit: Unit | None, hidden: bool) -> Any:
        """One round; None where the mechanism had halted before."""
        try:
            answer = self.mechanism.predict(x, **_named(unit))
            seen, ticket = _seen(answer), getattr(answer, "ticket", None)
        except Halted:
            self.view.halted = True
            return None
        except ValueError as error:  # the asker's own: a malformed x took its round
            seen, ticket = Seen(None, False, str(error)), None
        self.tickets.append((ticket, hidden, y is not None))
        if y is not None and ticket is not None:
            self._told(hidden, self.mechanism.learn, ticket, y)
        self.view.answers.append(BOTTOM if hidden else seen)
        self._look()
        return self.view.answers[-1]

    def _batch(self, move: Batch) -> list[Any]:
        rows = self._rows(move)
        mechanism = self.mechanism
        follows = isinstance(mechanism, Follows) and hasattr(mechanism, "labels")
        if rows.ys is not None and follows and _speaks_for(mechanism, "follow_many", ("predict", "learn")):
            return self._follow(rows)
        if rows.ys is None and hasattr(mechanism, "rounds") and _speaks_for(mechanism, "predict_many", ("predict",)):
            return self._ask(rows)
        shown: list[Any] = []
        for i, x in enumerate(rows.xs):
            one = self._play(x, None if rows.ys is None else rows.ys[i], rows.unit(i), i in rows.hidden)
            if one is None:
                break
            shown.append(one)
            if self.view.halted:
                break
        return shown

    def _ask(self, rows: _Rows) -> list[Any]:
        before = self.mechanism.rounds
        try:
            answers = self.mechanism.predict_many(rows.xs, **({} if rows.units is None else {"units": rows.units}))
        except Halted:
            self.view.halted = True
            return []
        self._look()
        if self.view.halted:  # rows after the halt took no round
            answers = answers[: self.mechanism.rounds - before]
        self.tickets += [(getattr(one, "ticket", None), i in rows.hidden, False) for i, one in enumerate(answers)]
        return self._show([_seen(answer) for answer in answers], rows.hidden)

    def _follow(self, rows: _Rows) -> list[Any]:
        """Answer, then learn, row after row: in the mechanism's own loop, which may be compiled."""
        mechanism, names = self.mechanism, tuple(self.mechanism.labels)
        xs = rows_of(rows.xs, getattr(mechanism, "named", True))
        done = mechanism.follow_many(xs, label_numbers(names, rows.ys), rows.units)
        kinds = [Seen(label, sure) for label in (*names, None) for sure in (False, True)]
        self.tickets += [(None, i in rows.hidden, True) for i in range(len(done.answers))]
        self._look()
        return self._show([kinds[i] for i in (2 * done.answers + done.sure).tolist()], rows.hidden)  # −1 is the last

    def _show(self, seen: list[Seen], hidden: frozenset[int]) -> list[Any]:
        shown: list[Any] = [BOTTOM if i in hidden else one for i, one in enumerate(seen)] if hidden else list(seen)
        self.view.answers += shown
        return shown

    # ------------------------------------------------------------------ labels and records

    def _label(self, move: Label) -> str | None:
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
        if y is None or ticket is None or labelled:
            return None
        self.tickets[number - 1] = (ticket, hidden, True)
        return self._told(hidden, self.mechanism.learn, ticket, y)

    def _record(self, move: Record) -> str | None:
        pair = self._check(move)
        if not all(one is None or _is_pair(one) for one in pair):
            raise RuleBroken("a record is a pair (x, y), or None for nothing")
        record = pair[self.bit]
        if record is None:
            return None
        return self._teach(record[0], record[1], move.unit, bool(move.challenge))

    def _teach(self, x: Any, y: Any, unit: Unit | None, hidden: bool) -> str | None:
        return self._told(hidden, self.mechanism.teach, x, y, **_named(unit))

    def _records(self, move: Records) -> str | None:
        for unit in move.units or ():
            self._pose(False, unit)
        named = {} if move.units is None else {"units": list(move.units)}
        if hasattr(self.mechanism, "teach_many"):
            return self._told(False, self.mechanism.teach_many, move.xs, move.ys, **named)
        said = None
        for i, x in enumerate(move.xs):
            said = self._teach(x, move.ys[i], None if move.units is None else move.units[i], False) or said
        return said

    def _told(self, hidden: bool, call: Callable[..., object], *what: Any, **named: Any) -> str | None:
        """Bring a label or a record. If it is refused, its bringer is told; of the unit's nobody sees anything."""
        try:
            call(*what, **named)
        except ValueError as error:
            if not hidden:
                self.view.errors.append((len(self.view.answers), str(error)))
                return str(error)
        return None

    def _look(self) -> None:
        """Whether it has halted is public."""
        self.view.halted = getattr(self.mechanism, "state", None) == "halted"


def _is_pair(one: Any) -> bool:
    return isinstance(one, tuple) and len(one) == 2


def _speaks_for(mechanism: Any, many: str, single: Sequence[str]) -> bool:
    """Whether a batch is the mechanism's own: not where a class changes `predict` and inherits how batches are done."""

    def depth(name: str) -> int:
        kinds = type(mechanism).__mro__
        return -1 if name in vars(mechanism) else next((i for i, k in enumerate(kinds) if name in vars(k)), len(kinds))

    return hasattr(mechanism, many) and all(depth(many) <= depth(name) for name in single)


def _named(unit: Unit | None) -> dict[str, Unit]:
    return {} if unit is None else {"unit": unit}


def _replaced(xs: Any, ys: Any, second: Mapping[int, tuple[Any, Any]], bit: int) -> tuple[Any, Any]:
    """The batch at this bit. What holds it, an array or a list, is the same at both."""
    seconds = [np.asarray(x) for x, _ in second.values()]
    array = isinstance(xs, np.ndarray) and all(x.shape == xs.shape[1:] and x.dtype.kind in "fiub" for x in seconds)
    xs, ys = np.array(xs, dtype=np.float64) if array else list(xs), None if ys is None else list(ys)
    for i, (x, y) in second.items() if bit else ():
        xs[i] = x
        if ys is not None:
            ys[i] = y
    return xs, ys


def _seen(answer: Any) -> Seen:
    if hasattr(answer, "label"):
        return Seen(answer.label, bool(getattr(answer, "sure", True)), getattr(answer, "error", None))
    return Seen(answer, True)
