"""The paper's other games: AdaptiveQuery, AdaptiveInput, ChallengeAT-Game, GeneralGame, CompositionGame."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from confide._checks import integer
from confide.errors import Halted
from confide.games.moves import BOTTOM, Mechanism, RuleBroken, View, flag, name_of, same
from confide.games.play import OnlineGame
from confide.pop.base import Unit

__all__ = [
    "AdaptiveInput",
    "AdaptiveQuery",
    "ChallengeATGame",
    "CompositionGame",
    "GeneralGame",
    "Input",
    "OnData",
    "Phase",
    "Query",
    "Session",
    "Start",
]


class _Bits:
    """What all games do: give the adversary its coins, carry moves to the mechanism, and keep the view."""

    def __init__(self, adversary: Any, rounds: int) -> None:
        self.adversary = adversary
        self.rounds = integer(rounds, "rounds", 1)

    def play(self, bit: int) -> View:
        """Play once; the view is all that comes out."""
        bit = integer(bit, "bit", 0, 1)
        view = View(coins=secrets.randbits(64))
        moves = self.adversary.play(np.random.default_rng(view.coins))
        try:
            self._rounds(bit, moves, view)
        except StopIteration:
            pass
        except Halted:
            view.halted = True
        finally:
            moves.close()
        return view

    def _rounds(self, bit: int, moves: Generator[Any, Any, None], view: View) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class Start:
    """The adversary's first move: two neighbouring data sets, equal in all but one place."""

    first: Sequence[Any]
    second: Sequence[Any]


@dataclass(frozen=True)
class Query:
    """A query of the data set: a function. Two of them in a challenge."""

    first: Callable[[Any], Any]
    second: Callable[[Any], Any] | None = None
    challenge: bool = False


@dataclass(frozen=True)
class Input:
    """An input point; two of them in the challenge round."""

    first: Any
    second: Any = None
    challenge: bool = False


@dataclass
class OnData:
    """A mechanism that is asked for whole numbers (`AboveThreshold`, `ChallengeAT`), holding a data set."""

    data: Sequence[Any]
    mechanism: Any

    def query(self, function: Callable[[Any], Any]) -> Any:
        """The mechanism's answer to `function(data)`."""
        if self.mechanism.halted:
            raise Halted("it has halted")
        return self.mechanism.query(function(self.data))


def _neighbours(start: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    if not isinstance(start, Start):
        raise RuleBroken("the first move is a Start with two data sets")
    first, second = start.first, start.second
    apart = sum(not same(a, b) for a, b in zip(first, second, strict=False)) + abs(len(first) - len(second))
    if apart > 1:
        raise RuleBroken(f"the data sets differ in {apart} places: neighbours differ in one")
    return first, second


def _check_query(query: Callable[[Any], Any], data: tuple[Any, Any], sensitivity: int) -> None:
    apart = abs(query(data[0]) - query(data[1]))
    if not apart <= sensitivity:  # also where it is no number
        raise RuleBroken(f"a query differs by {apart} between the data sets: at most {sensitivity}")


class AdaptiveQuery(_Bits):
    """AdaptiveQuery_{M,B,Q}: the adversary chooses two neighbouring data sets, then queries of one of them.

    Parameters
    ----------
    make_mechanism
        Makes a mechanism with `query(function)` from a data set; `OnData` helps with Confide's own.
    adversary
        Yields a `Start`, then `Query` after `Query`, and is sent the answers.
    rounds
        The most queries.
    sensitivity
        Δ: how far a query's values on the two data sets may be apart. The game evaluates both.
    """

    def __init__(self, make_mechanism: Callable[[Any], Any], adversary: Any, rounds: int, sensitivity: int = 1) -> None:
        super().__init__(adversary, rounds)
        self.make_mechanism = make_mechanism
        self.sensitivity = integer(sensitivity, "sensitivity", 1)

    def _rounds(self, bit: int, moves: Generator[Any, Any, None], view: View) -> None:
        data = _neighbours(next(moves))
        mechanism = self.make_mechanism(data[bit])
        move = next(moves)
        while True:
            if not isinstance(move, Query) or flag(move.challenge) or move.second is not None:
                raise RuleBroken("a move in this game is one Query: there are no challenges")
            _check_query(move.first, data, self.sensitivity)
            view.answers.append(mechanism.query(move.first))
            if len(view.answers) == self.rounds:
                return
            move = moves.send(view.answers[-1])


class AdaptiveInput(_Bits):
    """AdaptiveInput_{M,B}: inputs one by one, one of them a challenge. All answers are shown, the challenge's too.

    Parameters
    ----------
    make_mechanism
        Makes a mechanism with `step(x)`, such as a counter.
    adversary
        Yields `Input` after `Input`, and is sent the answers.
    rounds
        The most inputs.
    """

    def __init__(self, make_mechanism: Callable[[], Any], adversary: Any, rounds: int) -> None:
        super().__init__(adversary, rounds)
        self.make_mechanism = make_mechanism

    def _rounds(self, bit: int, moves: Generator[Any, Any, None], view: View) -> None:
        mechanism, posed = self.make_mechanism(), 0
        move = next(moves)
        while True:
            if not isinstance(move, Input):
                raise RuleBroken("a move in this game is an Input")
            posed += flag(move.challenge)
            pair = _pair(move, posed)
            view.answers.append(mechanism.step(pair[bit]))
            if len(view.answers) == self.rounds:
                return
            move = moves.send(view.answers[-1])


def _pair(move: Any, posed: int) -> tuple[Any, Any]:
    if posed > 1:
        raise RuleBroken("there is one challenge in this game")
    if move.challenge:
        return move.first, move.second
    if move.second is not None and not same(move.first, move.second):
        raise RuleBroken("the two inputs differ, and this is no challenge")
    return move.first, move.first


class ChallengeATGame(_Bits):
    """ChallengeAT-Game_B: queries of one of two neighbouring data sets, one of them a challenge and not shown.

    Parameters
    ----------
    make_mechanism
        Makes a mechanism with `query(function)` from a data set: `lambda data: OnData(data, ChallengeAT(…))`.
    adversary
        Yields a `Start`, then `Query` after `Query`; is sent the answers, BOTTOM for the challenge.
    rounds
        The most queries.
    sensitivity
        Δ: how far a query's values on the two data sets may be apart. The game evaluates both.
    """

    def __init__(self, make_mechanism: Callable[[Any], Any], adversary: Any, rounds: int, sensitivity: int = 1) -> None:
        super().__init__(adversary, rounds)
        self.make_mechanism = make_mechanism
        self.sensitivity = integer(sensitivity, "sensitivity", 1)

    def _rounds(self, bit: int, moves: Generator[Any, Any, None], view: View) -> None:
        data = _neighbours(next(moves))
        mechanism, posed = self.make_mechanism(data[bit]), 0
        move = next(moves)
        while True:
            if not isinstance(move, Query):
                raise RuleBroken("a move in this game is a Query")
            posed += flag(move.challenge)
            pair = _pair(move, posed)
            for query in pair:  # in the challenge the two may be far apart; each of them has this sensitivity
                _check_query(query, data, self.sensitivity)
            answer = mechanism.query(pair[bit])
            view.answers.append(BOTTOM if move.challenge else answer)
            if len(view.answers) == self.rounds:
                return
            move = moves.send(view.answers[-1])


class Session:
    """What an interaction has of the mechanism: questions, labels and records of its own unit."""

    def __init__(self, mechanism: Any, unit: Unit | None) -> None:
        self._mechanism = mechanism
        self._unit: dict[str, Unit] = {} if unit is None else {"unit": unit}
        self.asked = 0

    def predict(self, x: Any) -> Any:
        """Ask."""
        self.asked += 1
        return self._mechanism.predict(x, **self._unit)

    def learn(self, ticket: Any, y: Any) -> None:
        """Bring the label of one's own question."""
        self._mechanism.learn(ticket, y)

    def teach(self, x: Any, y: Any) -> None:
        """Bring a record."""
        self._mechanism.teach(x, y, **self._unit)


Interaction = Callable[[Session], Any]


@dataclass(frozen=True)
class Phase:
    """A whole interaction: a function of a `Session`, whose result is what its user saw. Two in the challenge.

    That rounds take place is public, so in the challenge both interactions ask exactly `asks` times. What they ask,
    teach, and label may follow from their own answers.
    """

    first: Interaction
    second: Interaction | None = None
    challenge: bool = False
    asks: int = 1
    unit: Unit | None = None


class GeneralGame(_Bits):
    """GeneralGame_{M,B,T}: whole interactions, one a phase, one of them a challenge.

    Parameters
    ----------
    make_mechanism
        Makes a fresh mechanism.
    adversary
        Yields `Phase` after `Phase`; is sent what the user saw, BOTTOM for the challenge.
    rounds
        T: the most phases.
    """

    def __init__(self, make_mechanism: Callable[[], Mechanism], adversary: Any, rounds: int) -> None:
        super().__init__(adversary, rounds)
        self.make_mechanism = make_mechanism

    def _rounds(self, bit: int, moves: Generator[Any, Any, None], view: View) -> None:
        mechanism: Any = self.make_mechanism()
        posed, known = 0, set[bytes]()
        move = next(moves)
        while True:
            if not isinstance(move, Phase):
                raise RuleBroken("a move in this game is a Phase")
            posed += flag(move.challenge)
            pair = _pair(move, posed)
            if move.unit is not None:
                if name_of(move.unit) in known:
                    raise RuleBroken("a phase is all of its user's rounds: a new user each")
                known.add(name_of(move.unit))
            session = Session(mechanism, move.unit)
            seen = None
            try:
                seen = pair[bit](session)  # Halted ends the game
            except ValueError:  # the unit's own: a label or a record that was refused
                if not move.challenge:
                    raise
            if move.challenge and session.asked != move.asks:
                raise RuleBroken(f"the challenge asked {session.asked} times, not {move.asks}: that is public")
            view.answers.append(BOTTOM if move.challenge else seen)
            view.halted = getattr(mechanism, "state", None) == "halted"
            if len(view.answers) == self.rounds or view.halted:
                return
            move = moves.send(view.answers[-1])


class CompositionGame(_Bits):
    """CompositionGame_{B*,m}: OnlineGames one after the other, all with the same bit.

    Parameters
    ----------
    adversary
        B*: yields `OnlineGame`s, each with a mechanism and an adversary of its own, and is sent their views.
    times
        m: the most games.
    """

    def __init__(self, adversary: Any, times: int) -> None:
        super().__init__(adversary, times)

    def _rounds(self, bit: int, moves: Generator[Any, Any, None], view: View) -> None:
        move = next(moves)
        while True:
            if not isinstance(move, OnlineGame) or move.challenges > 1:
                raise RuleBroken("a move in this game is an OnlineGame with one challenge")
            view.answers.append(move.play(bit))
            if len(view.answers) == self.rounds:
                return
            move = moves.send(view.answers[-1])
