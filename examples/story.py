"""An adaptive attacker against a service that learns from its users: how often it guesses one person's secret.

    python examples/story.py                       # every world, under two minutes
    python examples/story.py --quick               # a few games of each, seconds
    python examples/story.py --picture story.svg   # and the picture of docs/story.md

A chat service sorts messages into "can wait" (0) and "urgent" (1), and learns what people say was right. One user
wrote a word that nobody else uses, and said which of the two was right. An attacker who runs every other account wants
to know which. docs/story.md tells the story.
"""

from __future__ import annotations

import argparse
import functools
import math
import secrets
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pictures import BLUES, GREY, ORANGE, PER_CENT, RED, picture
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from scipy.stats import beta

import confide
from confide.games import BOTTOM, Batch, OnlineGame, Records, Region, Round, Unprotected, View
from confide.learners import LogisticRegression

WORDS = 5
"""Columns of a message; the last one is the rare word."""
LABELS = [0, 1]
QUESTIONS = 2000
"""The attacker asks this often, unless the service halts before."""
COPIES = {1.0: 1600, 4.0: 300, 8.0: 160}
"""Copies for each ε: as many as the gate needs, and no more, so that a single vote weighs as much as it may."""
LESSONS = 4
"""Ordinary messages taught before the attack, for each copy, and at least 1,000 in all."""
CONFIDENCE = 0.99
WIDTHS = (8, 9, 18, 11, 12, 8)


# ---------------------------------------------------------------------- the service, in both worlds


def unprotected() -> Unprotected:
    """One learner that answers everybody."""
    return Unprotected(LogisticRegression(scale=False))


def plan(epsilon: float) -> confide.Plan:
    """A plan in which every copy is asked: the best case for an attacker, as the user's copy votes in every round."""
    copies = COPIES[epsilon]
    return confide.Plan.tight(
        epsilon, 1e-6, QUESTIONS + 1, copies=copies, polls=copies, unsure=20, silent=0, beta=1e-3, guide=None
    )


def protected(plan: confide.Plan) -> confide.POP:
    """Confide around the same learner."""
    return confide.POP(LogisticRegression(scale=False), plan, labels=LABELS, features=WORDS, after_halt="fallback")


def messages(coins: np.random.Generator, number: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Ordinary messages without the rare word, and what was right for them."""
    ys = coins.integers(2, size=number)
    xs = coins.normal(size=(number, WORDS)) + 1.5 * (2 * ys[:, None] - 1)
    xs[:, -1] = 0.0
    return xs, ys


# ---------------------------------------------------------------------- the attacker


@dataclass(frozen=True)
class Attacker:
    """Reads one user's label off a rare word, by questions that differ in nothing else.

    It asks in pairs: the same message with a great deal of the rare word, and with as much of it taken away. Only what
    that user taught can make a difference between the two. The rest of the message is tuned by the answers so far to
    where all others are about to disagree and one vote counts most; there it stays until the service halts.

    Parameters
    ----------
    history
        Messages that the other accounts taught before, all of them the attacker's.
    aim
        The share of unsure answers at which it wants to be.
    """

    history: int
    aim: float = 0.4

    def play(self, coins: np.random.Generator) -> Generator[Any, Any, None]:
        yield Records(*messages(coins, self.history))
        rare = np.append(np.zeros(WORDS - 1), 1.0)
        yield Round((rare, 0), (rare, 1), challenge=True)  # one user's: the bit decides, the answer is not shown
        strength, step, before, evidence, pairs = 1.0, 3.0, -1.0, 0, 0
        while abs(evidence) < 6 * math.sqrt(pairs) or not pairs:  # beyond that nobody doubts any more
            pair = np.full((2, WORDS), strength)
            pair[:, -1] = 1e6, -1e6
            seen = yield Batch(np.tile(pair, (10, 1)))
            off = sum(not one.sure for one in seen) / len(seen) - self.aim
            step = max(0.1, 0.6 * step) if off * before < 0 else step  # turned around: smaller steps from here
            strength, before = strength * math.exp(step * off), off  # unsure too often: a clearer message
            evidence, pairs = evidence + int(_leans(seen).sum()), pairs + 10

    @staticmethod
    def evidence(view: View) -> NDArray[np.int64]:
        """After each pair of questions: how much more often "urgent" came with the word than without it, so far."""
        return np.cumsum(_leans([one for one in view.answers if one is not BOTTOM]))


def _leans(seen: list[Any]) -> NDArray[np.int64]:
    """For each pair: the answer with the word minus the answer without; urgent is 1, can wait −1, unsure 0."""
    values = np.array([2 * one.label - 1 if one.sure else 0 for one in seen], dtype=np.int64)
    return values[0 : values.size - 1 : 2] - values[1 : values.size : 2]


# ---------------------------------------------------------------------- the games


def name_of(epsilon: float) -> str:
    """How a world is called."""
    return f"Confide, ε = {epsilon:g}" if math.isfinite(epsilon) else "unprotected, ε = ∞"


@dataclass(frozen=True)
class World:
    """One service under attack, and what came of it."""

    epsilon: float
    copies: int
    ceiling: float
    """The highest rate of right guesses that ε and δ allow."""
    certified: float
    """The highest rate that the plan's tables allow: all their (ε, δ) at once."""
    right: NDArray[np.bool_]
    """Whether the attacker guessed right, game by game."""
    along: NDArray[np.float64]
    """Its rate of right guesses, had it stopped after 1, 2, … pairs of questions; a halt stops it anyway."""
    pairs: float
    """Pairs of questions that it came to ask, on average."""
    error: float
    """Errors of the service on ordinary messages, unsure answers (by a coin) included."""

    @property
    def name(self) -> str:
        return name_of(self.epsilon)

    @property
    def rate(self) -> float:
        return float(self.right.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """Clopper and Pearson's, two-sided."""
        hits, games, tail = int(self.right.sum()), self.right.size, (1 - CONFIDENCE) / 2
        low = float(beta.ppf(tail, hits, games - hits + 1)) if hits else 0.0
        high = float(beta.ppf(1 - tail, hits + 1, games - hits)) if hits < games else 1.0
        return low, high


def attack(make: Callable[[], Any], attacker: Attacker, games: int) -> Iterator[tuple[bool, NDArray[np.int8], int]]:
    """Play; for each game whether the guess is right, the guesses along the way (right 1, none 0, wrong −1), pairs."""
    game = OnlineGame(make, attacker, QUESTIONS + 1)
    for _ in range(games):
        bit = secrets.randbelow(2)
        found = Attacker.evidence(game.play(bit))
        sign = 2 * bit - 1
        along = np.zeros(QUESTIONS // 2, dtype=np.int8)
        along[: found.size] = np.sign(found) * sign
        along[found.size :] = along[found.size - 1] if found.size else 0
        guess = int(along[-1]) if along[-1] else 2 * secrets.randbelow(2) - 1  # nothing seen: a coin
        yield guess == 1, along, found.size


def usefulness(make: Callable[[], Any], history: int) -> float:
    """Errors on 1,000 ordinary messages, without an attack."""
    coins, service = np.random.default_rng(), make()
    for x, y in zip(*messages(coins, history), strict=True):
        service.teach(x, int(y))
    wrong = [service.predict(x).label != y for x, y in zip(*messages(coins, 1000), strict=True)]
    return float(np.mean(wrong))


def measure(epsilon: float, games: int, tick: Callable[[], object]) -> World:
    """Attack one world so many times; ε = ∞ is the unprotected one."""
    make: Callable[[], Any] = unprotected
    ceiling, certified, copies = 1.0, 1.0, 1
    if math.isfinite(epsilon):
        chosen = plan(epsilon)
        make, copies = functools.partial(protected, chosen), chosen.copies
        (e, delta), region = (chosen.guarantee.epsilon, chosen.guarantee.delta), Region.of(chosen)
        ceiling = 0.5 + (math.expm1(e) + 2 * delta) / (math.exp(e) + 1) / 2
        certified = 0.5 + region.advantage / 2
    history = max(1000, LESSONS * copies)
    right, along, pairs = [], np.zeros(QUESTIONS // 2), []
    for hit, path, asked in attack(make, Attacker(history), games):
        right.append(hit)
        along += (path + 1) / 2
        pairs.append(asked)
        tick()
    error = usefulness(make, history)
    return World(epsilon, copies, ceiling, certified, np.array(right), along / games, float(np.mean(pairs)), error)


# ---------------------------------------------------------------------- what comes out


def table(worlds: list[World]) -> str:
    """The numbers, as text."""
    heads = ("copies", "right", "99 % interval", "certified", "by ε alone", "errors")
    lines = [" " * 18 + "".join(f"{head:>{width}}" for head, width in zip(heads, WIDTHS, strict=True))]
    for world in worlds:
        low, high = world.interval
        cells = [f"{world.copies:,}", f"{world.rate:.1%}", f"{low:.1%} – {high:.1%}"]
        cells += [f"≤ {bound:.2%}" if bound < 1 else "–" for bound in (world.certified, world.ceiling)]
        cells.append(f"{world.error:.1%}")
        row = "".join(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=True))
        lines.append(f"{world.name:18}{row}")
    return "\n".join(lines)


def draw(worlds: list[World], path: Path) -> None:
    """Guesses in each world with their bounds, and guesses by the number of questions asked."""
    with picture(path, (9.4, 3.9)) as figure:
        left, right = figure.subplots(1, 2, width_ratios=(1.1, 1))
        colours = [ORANGE, *BLUES[::-1][-(len(worlds) - 1) :]]
        for i, (world, colour) in enumerate(zip(worlds, colours, strict=True)):
            low, high = world.interval
            left.bar(i, world.rate - 0.5, 0.6, bottom=0.5, color=colour)
            left.errorbar(i, world.rate, [[world.rate - low], [high - world.rate]], color="#3d4752", capsize=4, lw=1.2)
            if world.certified < 1:
                bounds = ("certified by the tables", "allowed by ε and δ alone") if i == 1 else (None, None)
                span = ([i - 0.42, i + 0.42],)
                left.plot(*span, [world.certified] * 2, color=RED, lw=2, label=bounds[0])
                left.plot(*span, [world.ceiling] * 2, color=RED, lw=1.2, ls=":", label=bounds[1])
            questions = 2 * np.arange(1, world.along.size + 1)
            right.plot(questions, world.along, color=colour, lw=2, label=world.name)
        left.axhline(0.5, color=GREY, lw=1)
        names = ["\n".join([*world.name.split(", "), f"{100 * world.rate:.1f} %"]) for world in worlds]
        left.set_xticks(range(len(worlds)), names)
        left.grid(False, axis="x")
        left.set(ylim=(0.45, 1.04), title=f"right guesses of the secret label, {worlds[0].right.size} games each")
        left.legend(loc="upper right", bbox_to_anchor=(1.02, 0.86), fontsize=9)
        right.axhline(0.5, color=GREY, lw=1)
        right.set(ylim=(0.45, 1.04), xscale="log", xlabel="questions asked", title="… by the number of questions")
        right.legend(loc="center left", bbox_to_anchor=(0.0, 0.6), fontsize=9)
        for axes in (left, right):
            axes.yaxis.set_major_formatter(PER_CENT)
            axes.set_yticks(np.linspace(0.5, 1.0, 6))
        right.xaxis.set_major_formatter("{x:,.0f}")


def main(arguments: list[str] | None = None) -> list[World]:
    """Attack all worlds, print what came of it, and draw it."""
    first, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=first, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="30 games, unprotected and at ε = 1")
    parser.add_argument("--games", type=int, help="games in each world: more of them narrow the intervals")
    parser.add_argument("--picture", type=Path, metavar="PATH", help="draw the picture there, as .svg or .png")
    asked = parser.parse_args(arguments)
    games = asked.games or (30 if asked.quick else 1200)
    if games < 1:
        parser.error("--games must be at least 1")
    epsilons = [math.inf, 1.0] if asked.quick else [math.inf, *sorted(COPIES, reverse=True)]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    worlds = []
    with Progress(*columns, disable=not sys.stderr.isatty(), console=Console(stderr=True)) as bar:
        for epsilon in epsilons:
            task = bar.add_task(name_of(epsilon), total=games)
            worlds.append(measure(epsilon, games, functools.partial(bar.advance, task)))
    print(table(worlds))
    if asked.picture is not None:
        draw(worlds, asked.picture)
        print(f"picture: {asked.picture}")
    return worlds


if __name__ == "__main__":
    main()
