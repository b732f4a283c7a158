"""Adversaries for the other games: composition, membership in a stream, and the paper's simulator B̂."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from confide.banks import bank_for
from confide.games.adversaries import WorstMargin
from confide.games.moves import BOTTOM, Adversary, Batch, Record, Records, Round, RuleBroken, Seen, View
from confide.games.others import Query, Start
from confide.games.play import OnlineGame
from confide.pop.base import Answer
from confide.privacy.random import Random


@dataclass(frozen=True)
class Repeated:
    """B* of the composition game: the worst-margin adversary against one fresh mechanism after the other.

    Adaptive: it stops when the sum of the log-likelihoods so far is beyond `enough`.

    Parameters
    ----------
    make_mechanism, adversary
        Of each game.
    times
        The most games.
    enough
        Log-likelihood at which it stops.
    """

    make_mechanism: Callable[[], Any]
    adversary: WorstMargin
    times: int
    enough: float = float("inf")

    def __repr__(self) -> str:
        return f"Repeated({self.adversary!r}, times={self.times})"

    def play(self, coins: np.random.Generator) -> Generator[OnlineGame, Any, None]:
        total = 0.0
        for _ in range(self.times):
            view = yield OnlineGame(self.make_mechanism, self.adversary, self.adversary.plan.rounds)
            total += self.adversary.score(view)
            if abs(total) > self.enough:
                return

    def score(self, view: View) -> float:
        """The sum of the games' log-likelihoods."""
        return sum(self.adversary.score(game) for game in view.answers)


@dataclass(frozen=True)
class Membership:
    """Did this person teach it? Everybody else's records are taught, then it asks what that person would have asked.

    Parameters
    ----------
    xs, ys
        Everybody else's labelled records, which the attacker knows.
    target
        The person's records (x, y): taught at bit 1, and not at bit 0.
    probes
        Questions asked afterwards, each for one of the people under control.
    people
        Play against a POP for people: everybody has an id.
    """

    xs: Any
    ys: Any
    target: Sequence[tuple[Any, Any]]
    probes: Any
    people: bool = False

    def __repr__(self) -> str:
        return f"Membership({len(self.xs)} records, {len(self.target)} of the target, {len(self.probes)} probes)"

    def play(self, coins: np.random.Generator) -> Generator[Any, Any, None]:
        order = coins.permutation(len(self.xs))
        units = [f"person {i}" for i in order] if self.people else None
        yield Records(self.xs[order], self.ys[order], units)
        for record in self.target:
            yield Record(None, record, challenge=True, unit="target" if self.people else None)
        yield Batch(self.probes, units=[f"asker {i}" for i in range(len(self.probes))] if self.people else None)

    def summary(self, view: View) -> list[float]:
        """How the probes were answered: unsure, with the person's own labels, otherwise."""
        seen = [answer for answer in view.answers if answer is not BOTTOM]
        sure = sum(answer.sure for answer in seen)
        own = {y for _, y in self.target}
        ours = sum(answer.sure and answer.label in own for answer in seen)
        return [len(seen), len(seen) - sure, ours, sure - ours, float(view.halted)]


class Unprotected:
    """One learner that answers everybody: what POP replaces, and what an attack on it gets."""

    def __init__(self, learner: Any) -> None:
        self._learner = learner
        self._open: dict[str, Any] = {}

    def predict(self, x: Any) -> Answer:
        """Its answer; label 0 before it can answer."""
        ticket = str(len(self._open))
        self._open[ticket] = x
        label = self._learner.predict(x)
        return Answer(0 if label is None else label, True, ticket)

    def learn(self, ticket: str, y: int) -> None:
        """Learn."""
        self._learner.learn(self._open.pop(ticket), y)

    def teach(self, x: Any, y: int) -> None:
        """Learn a record."""
        self._learner.learn(x, y)


@dataclass
class Simulator:
    """B̂ of the paper: an adversary of the ChallengeAT-Game that runs one of the OnlineGame inside.

    It keeps the k copies of both worlds itself, with the same coins, and asks ChallengeAT for the query
    f_i = −|k/2 − Σ votes| of the world it is in. So the adversary inside sees what it would see of the paper's POP:
    that is how the paper reduces one privacy claim to the other.

    Parameters
    ----------
    adversary
        B, which plays Rounds with labels 0 and 1.
    learner, copies, features
        What POP would be made of; `copies` is even, so that queries are whole numbers.
    """

    adversary: Adversary
    learner: Any
    copies: int
    features: Any = None

    def __post_init__(self) -> None:
        if self.copies % 2:
            raise ValueError("copies must be even: the query −|k/2 − votes| is then a whole number")

    def __repr__(self) -> str:
        return f"Simulator({self.adversary!r}, copies={self.copies})"

    @cached_property
    def _everyone(self) -> Any:
        return np.arange(self.copies)

    def play(self, coins: np.random.Generator) -> Generator[Any, Any, None]:
        yield Start([0], [1])
        seed = int(coins.integers(1 << 62))
        banks = [bank_for(self.learner, self.copies, 2, self.features, Random(seed)) for _ in range(2)]
        moves = self.adversary.play(np.random.default_rng(int(coins.integers(1 << 62))))
        move = next(moves, None)
        while move is not None:
            if not isinstance(move, Round):
                raise RuleBroken("the simulator plays Rounds: one at a time")
            pair = (move.first, move.second if move.challenge and move.second is not None else move.first)
            own = int(coins.integers(self.copies))
            votes = [banks[b].votes(banks[b].encode(pair[b][0]), self._everyone) for b in (0, 1)]
            values = [-abs(self.copies // 2 - int(v[1])) for v in votes]
            if move.challenge:
                yield Query(_constant(values[0]), _constant(values[1]), challenge=True)
                seen: Any = BOTTOM
            else:
                report = yield Query(_lookup(values))
                tops = [int(v[1] * 2 >= self.copies) for v in votes]
                if not report and tops[0] != tops[1]:
                    return  # not well defined: the two worlds' majorities differ, and ChallengeAT erred
                seen = Seen(int(coins.integers(2)) if report else tops[0], not report)
            for b in (0, 1):
                x, y = pair[b]
                if y is not None:
                    banks[b].learn(own, banks[b].encode(x), y)
            try:
                move = moves.send(seen)
            except StopIteration:
                return


def _lookup(values: list[int]) -> Callable[[Sequence[int]], int]:
    return lambda data: values[data[0]]


def _constant(value: int) -> Callable[[Sequence[int]], int]:
    return lambda data: value
