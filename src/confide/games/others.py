"""The paper's other games: AdaptiveQuery, AdaptiveInput, ChallengeAT-Game, GeneralGame, CompositionGame."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from confide._checks import integer
from confide.errors import Halted
from confide.games.moves import BOTTOM, RuleBroken, View, flag, name_of, same
from confide.games.play import OnlineGame
from confide.pop.base import Unit

Moves = Generator[Any, Any, None]
Take = Callable[[Any], Any]
"""Takes a move, and gives what is shown of it."""


class _Bits(ABC):
    """What all games do: give the adversary its coins, carry moves to the mechanism, and keep the view."""

    def __init__(self, make_mechanism: Any, adversary: Any, rounds: int) -> None:
        self.make_mechanism, self.adversary = make_mechanism, adversary
        self.rounds = integer(rounds, "rounds", 1)

    def play(self, bit: int) -> View:
        """Play once; the view is all that comes out."""
        bit = integer(bit, "bit", 0, 1)
        view = View(coins=secrets.randbits(64))
        moves = self.adversary.play(np.random.default_rng(view.coins))
        try:
            take = self._begin(bit, moves, view)
            view.answers.append(take(next(moves)))
            while len(view.answers) < self.rounds and not view.halted:
                view.answers.append(take(moves.send(view.answers[-1])))
        except StopIteration:
            pass
        except Halted:
            view.halted = True
        finally:
            moves.close()
        return view

    @abstractmethod
    def _begin(self, bit: int, moves: Moves, view: View) -> Take:
        """Make the mechanism; what comes back takes the moves."""


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
        super().__init__(make_mechanism, adversary, rounds)
        self.sensitivity = integer(sensitivity, "sensitivity", 1)

    def _begin(self, bit: int, moves: Moves, view: View) -> Take:
        data = _neighbours(next(moves))
        mechanism, pair = self.make_mechanism(data[bit]), self._rule()

        def take(move: Any) -> Any:
            two = pair(move)
            for query in two:  # in a challenge the two may be far apart; each of them has this sensitivity
                _check_query(query, data, self.sensitivity)
            answer = mechanism.query(two[bit])
            return BOTTOM if move.challenge else answer

        return take

    def _rule(self) -> Callable[[Any], tuple[Any, Any]]:
        """What checks a move, and gives its two queries."""

        def pair(move: Any) -> tuple[Any, Any]:
            if not isinstance(move, Query) or flag(move.challenge) or move.second is not None:
                raise RuleBroken("a move in this game is one Query: there are no challenges")
            return move.first, move.first

        return pair


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

    def _begin(self, bit: int, moves: Moves, view: View) -> Take:
        mechanism, pair = self.make_mechanism(), _one_challenge(Input, "a move in this game is an Input")
        return lambda move: mechanism.step(pair(move)[bit])


def _one_challenge(kind: type[Query | Input | Phase], otherwise: str) -> Callable[[Any], tuple[Any, Any]]:
    """What checks that moves are of a kind, and one of them at most a challenge; gives the two inputs of a move."""
    posed = 0

    def pair(move: Any) -> tuple[Any, Any]:
        nonlocal posed
        if not isinstance(move, kind):
            raise RuleBroken(otherwise)
        posed += flag(move.challenge)
        if posed > 1:
            raise RuleBroken("there is one challenge in this game")
        if move.challenge:
            return move.first, move.second
        if move.second is not None and not same(move.first, move.second):
            raise RuleBroken("the two inputs differ, and this is no challenge")
        return move.first, move.first

    return pair


class ChallengeATGame(AdaptiveQuery):
    """ChallengeAT-Game_B: as AdaptiveQuery, but one of the queries is a challenge and not shown.

    A mechanism for it is `lambda data: OnData(data, ChallengeAT(…))`. The adversary is sent BOTTOM for the challenge.
    """

    def _rule(self) -> Callable[[Any], tuple[Any, Any]]:
        return _one_challenge(Query, "a move in this game is a Query")


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

    def _begin(self, bit: int, moves: Moves, view: View) -> Take:
        mechanism, known = self.make_mechanism(), set[bytes]()
        pair = _one_challenge(Phase, "a move in this game is a Phase")

        def take(move: Any) -> Any:
            two = pair(move)
            if move.unit is not None:
                if name_of(move.unit) in known:
                    raise RuleBroken("a phase is all of its user's rounds: a new user each")
                known.add(name_of(move.unit))
            session = Session(mechanism, move.unit)
            seen = None
            try:
                seen = two[bit](session)  # Halted ends the game
            except ValueError:  # the unit's own: a label or a record that was refused
                if not move.challenge:
                    raise
            if move.challenge and session.asked != move.asks:
                raise RuleBroken(f"the challenge asked {session.asked} times, not {move.asks}: that is public")
            view.halted = getattr(mechanism, "state", None) == "halted"
            return BOTTOM if move.challenge else seen

        return take


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
        super().__init__(None, adversary, times)

    def _begin(self, bit: int, moves: Moves, view: View) -> Take:
        def take(move: Any) -> View:
            if not isinstance(move, OnlineGame) or move.challenges > 1:
                raise RuleBroken("a move in this game is an OnlineGame with one challenge")
            return move.play(bit)

        return take
