"""An audit of a fresh POP with a model's plan, on rows that were made up: `python -m` this, with the plan on stdin.

It is a process of its own, which knows the plan and nothing else of the model: neither its state nor anybody's rows. So
what it finds may be shown to everyone. It writes a line of JSON for its progress now and then, and one for the report.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from confide.games.adversaries import WorstMargin
from confide.games.auditor import audit_game
from confide.games.moves import Batch, Round, View
from confide.games.play import OnlineGame
from confide.games.report import Report
from confide.games.split import SplitVote
from confide.guide.columns import Columns
from confide.guide.linear import first_lesson
from confide.guide.maps import FeatureMap
from confide.learners import Features
from confide.planning.guided import GuidePlan
from confide.planning.plan import Plan
from confide.pop.pop import POP

__all__ = ["FreshPOP", "OneUnit", "audit_fresh", "main"]

Floats = NDArray[np.float64]
LEAVES = 6
"""Noisy sums that an attack on a guide waits for: the first has most of what one unit brought."""

EVERY = 0.5
"""Seconds between two lines of progress."""


@dataclass(frozen=True)
class OneUnit:
    """Against a guide: one unit brings all the labels that it may, of one kind or of another, and nobody else any.

    The score is what of the released sums lies in the direction in which the two kinds differ.

    Parameters
    ----------
    plan
        The plan of the POP that it plays against, which has a guide.
    """

    plan: Plan

    def __repr__(self) -> str:
        return f"OneUnit({self.plan.guarantee})"

    @property
    def guide(self) -> GuidePlan:
        """The guide's numbers."""
        assert self.plan.guide is not None
        return self.plan.guide

    @property
    def _own(self) -> int:
        """Rounds of the unit: they must fit in one leaf, where they do most."""
        return min(self.guide.unit_labels, self.guide.first) if self.plan.units == "people" else 1

    @cached_property
    def rounds(self) -> int:
        """Rounds of a game."""
        ends = self.guide.main.ends
        return min(self.plan.horizon, ends[min(LEAVES, len(ends)) - 1] + 1)

    def play(self, coins: np.random.Generator) -> Generator[Any, Any, None]:
        people = self.plan.units == "people"
        for _ in range(self._own):
            yield Round(({"c": "a"}, 0), ({"c": "a"}, 1), challenge=True, unit="alice" if people else None)
        others = self.rounds - self._own
        if others:
            yield Batch([{"c": "b"}] * others, None, [f"{i}" for i in range(others)] if people else None)

    @cached_property
    def _direction(self) -> Floats:
        guide, features = self.guide, FeatureMap(Columns(categorical=("c",)))
        shape, row = (features.width, guide.vectors), features.encode({"c": "a"})
        zero, one = (first_lesson(shape, *row, label, guide.clip, guide.scale) for label in (0, 1))
        return (one - zero).astype(np.float64)

    def score(self, view: View) -> float:
        """The matched filter of the released sums; 0 where there are none."""
        rows = np.array([np.ravel(row) for row in view.released], dtype=np.float64).reshape(len(view.released), -1)
        if not rows.size:
            return 0.0
        factor = self.guide.root.column(0)[: len(rows)].astype(np.float64)
        scale = math.sqrt(float((factor**2).sum()) * self.guide.sigma2) * float(np.linalg.norm(self._direction))
        return float((rows @ self._direction) @ factor) / scale


@dataclass(frozen=True)
class FreshPOP:
    """Makes the POPs that are attacked: secure ones, with the model's plan and a learner made for attacks."""

    plan: Plan

    def __call__(self) -> POP:
        units: Literal["rounds", "people"] = self.plan.units or "rounds"
        labels = list(range(self.plan.labels))
        if not self.plan.copies:
            features = Features(categorical={"c": 16})
            return POP(None, self.plan, labels=labels, features=features, fallback=0, units=units)
        return POP(
            SplitVote(self.plan.labels), self.plan, labels=labels, features=2, fallback=0, units=units,
            after_halt="raise",
        )  # fmt: skip


class _Watched:
    """A game that tells how many were played."""

    def __init__(self, game: OnlineGame, told: Callable[[int], None]) -> None:
        self._game, self._told, self._played = game, told, 0

    @property
    def adversary(self) -> Any:
        return self._game.adversary

    def play(self, bit: int, /) -> View:
        view = self._game.play(bit)
        self._played += 1
        self._told(self._played)
        return view


def audit_fresh(plan: Plan, games: int, told: Callable[[int], None] = lambda played: None) -> Report:
    """Play so many games at each bit against fresh POPs with this plan; `told` hears of each game.

    Where there are copies, one vote is attacked at the margin where the gate leaks most; where a guide answers alone,
    its noisy sums.

    Examples
    --------
    >>> plan = Plan.tight(8, 1e-6, 160, copies=160, polls=160, unsure=20, silent=0, guide=None)
    >>> report = audit_fresh(plan, 20)
    >>> report.games, report.alarm
    (20, False)
    """
    person = plan.units == "people"
    adversary = WorstMargin(plan, person=person) if plan.copies else OneUnit(plan)
    rounds = plan.rounds if isinstance(adversary, WorstMargin) else adversary.rounds
    game = OnlineGame(FreshPOP(plan), adversary, rounds)
    # With a lean the tables depend on the guide's answer, and with people a law is not known: a score is learned.
    learned = bool(plan.copies) and (plan.lean is not None or person)
    name = "one vote" if plan.copies else "one unit's labels"
    return audit_game(_Watched(game, told), games, certificate=plan, learned=learned, name=name)


def _said(report: Report) -> dict[str, Any]:
    exact = report.yardstick
    return {
        "name": report.name,
        "games": report.games,
        "training": report.training,
        "confidence": report.confidence,
        "delta": report.delta,
        "advantage": report.advantage,
        "epsilon": report.epsilon,
        "exact": None if exact is None else exact.advantage,
        "certified": report.certified,
        "alarm": report.alarm,
        "misfit": None if report.misfit is None else str(report.misfit),
        "text": str(report),
    }


def main() -> None:
    """Read `{"plan": …, "games": …, "units": …}` from stdin, play, and write what comes of it to stdout."""
    os.nice(10)  # the model that people use goes first
    given = json.load(sys.stdin)
    plan, games = Plan.from_json(json.dumps(given["plan"])), int(given["games"])
    if plan.units is None:  # a plan of an older file fits both
        plan = plan.but(units=given["units"])
    last = 0.0

    def told(played: int) -> None:
        nonlocal last
        if time.monotonic() - last >= EVERY:
            last = time.monotonic()
            print(json.dumps({"played": played}), flush=True)

    print(json.dumps({"report": _said(audit_fresh(plan, games, told))}), flush=True)


if __name__ == "__main__":
    main()
