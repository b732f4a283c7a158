"""An inbox that learns from everybody and betrays nobody: `python examples/inbox/run.py`.

    python examples/inbox/run.py                             # made-up messages, or SST-2 where CONFIDE_DATA has it
    python examples/inbox/run.py --quick                     # less of everything, seconds
    python examples/inbox/run.py --pictures docs/images      # and the pictures of docs/inbox.md

An inbox sorts messages into complaints and praise, and learns from those who say what was right. It runs three times on
the same messages: plain, and inside Confide at ε = 4 and ε = 1. Then somebody who runs every other account wants to
know what one person said about a message of theirs. docs/inbox.md tells what comes of it.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from inbox.messages import LABELS, messages
from pictures import BLUES, GREY, ORANGE, PER_CENT, RED, picture
from scipy.stats import beta

import confide
from confide.data.rows import Row
from confide.games import Batch, OnlineGame, Region, Round, Unprotected, View
from confide.guide.inputs import columns_for
from confide.guide.maps import FeatureMap
from confide.learners import Features
from confide.pop.base import COPIES
from confide.runs.regression import Regression

DELTA = 1e-6
EPSILONS = (4.0, 1.0)
ATTACKED = (8.0, 4.0, 1.0)
SECRET = "zolgensma qwirk vyxol"
"""One person's message: words that nobody else uses, so that nothing else is known of them."""
ATTACK_ROUNDS = 320


def features(encoder: str | None) -> Features:
    """What a message is: its words, and its vector if there is an encoder."""
    return Features(text={"text": encoder or 512})


def found_encoder() -> str | None:
    """WordLlama's vectors where that package is installed."""
    try:
        Features(text={"text": "wordllama"})
    except ValueError as missing:
        print(f"hashed words alone: {missing}")
        return None
    return "wordllama"


# ---------------------------------------------------------------------- learning


def private(rows: list[dict[str, str]], right: Sequence[str], epsilon: float, encoder: str | None) -> Any:
    """Confide as it comes; whether each answer was wrong, and how many were the copies'."""
    plan = confide.Plan.tight(epsilon=epsilon, delta=DELTA, rounds=len(rows))
    pop = confide.POP(None, plan, labels=LABELS, features=features(encoder))
    found = confide.evaluate(pop, rows, list(right))
    wrong = np.asarray(found.answers) != np.array([LABELS.index(label) for label in right])
    return wrong, float(np.mean(found.source == COPIES))


def plain(rows: list[dict[str, str]], right: Sequence[str], encoder: str | None) -> NDArray[np.bool_]:
    """One ordinary logistic regression over the same features, for everybody."""
    numbers = np.array([LABELS.index(label) for label in right])
    items = [Row(x, y) for x, y in zip(rows, right, strict=True)]
    return Regression(features(encoder), 2).follow(items, numbers) != numbers


def late(wrong: NDArray[np.bool_]) -> float:
    """Errors after the first 40 %."""
    return float(wrong[int(0.4 * wrong.size) :].mean())


# ---------------------------------------------------------------------- the attack


class Plain:
    """The plain inbox as a learner that anybody may ask."""

    def __init__(self, encoder: str | None) -> None:
        self._model = Regression(features(encoder), 2)

    def predict(self, x: Any) -> int:
        return int(self._model.predict([Row(x, None)])[0])

    def learn(self, x: Any, y: int) -> None:
        self._model.learn(x, y)


@dataclass(frozen=True)
class Attacker:
    """Wants to know what one person said about their own message; it has all other accounts.

    It asks about that message right after. Where a guide shows its noisy sums to everybody, it reads these as well as
    anybody can: no other account of its own brings a label, so the sums are that person's label and noise, and it
    weighs every sum by what of the label is in it.
    """

    encoder: str | None
    plan: confide.Plan | None

    def play(self, coins: np.random.Generator) -> Generator[Any, Any, None]:
        x = {"text": SECRET}
        yield Round((x, 0), (x, 1), challenge=True)  # the bit is what the person said; the answer is not shown
        yield Batch([x] * (1 if self.plan is None else self.plan.rounds - 1))

    def guess(self, view: View) -> int:
        """What that person said."""
        if self.plan is None or self.plan.guide is None:
            return int(view.answers[-1].label)
        columns, _ = columns_for(features(self.encoder))
        indices, values = FeatureMap(columns).encode({"text": SECRET})  # type: ignore[arg-type]  # declared: columns
        rows = np.array(view.released, dtype=np.float64)[:, indices]
        evidence = float((rows @ values) @ self.plan.guide.root.column(0)[: len(rows)])
        return int(evidence < 0)  # the gradient of a label points away from it


def attack(epsilon: float | None, games: int, encoder: str | None) -> dict[str, Any]:
    """Play so many games against the plain inbox (None) or Confide, and count right guesses."""
    plan = None if epsilon is None else confide.Plan.tight(epsilon=epsilon, delta=DELTA, rounds=ATTACK_ROUNDS)
    attacker = Attacker(encoder, plan)

    def make() -> Any:
        if plan is None:
            return Unprotected(Plain(encoder))
        return confide.POP(None, plan, labels=[0, 1], features=features(encoder))

    game, hits = OnlineGame(make, attacker, ATTACK_ROUNDS), 0
    for _ in range(games):
        bit = secrets.randbelow(2)
        hits += attacker.guess(game.play(bit)) == bit
    low = float(beta.ppf(0.005, hits, games - hits + 1)) if hits else 0.0
    high = float(beta.ppf(0.995, hits + 1, games - hits)) if hits < games else 1.0
    certified = None if plan is None else round(0.5 + Region.of(plan).advantage / 2, 4)
    interval = [round(low, 4), round(high, 4)]
    return {"epsilon": epsilon, "games": games, "right": hits, "interval": interval, "certified": certified}


# ---------------------------------------------------------------------- what comes out


def name_of(epsilon: float | None) -> str:
    return "plain" if epsilon is None else f"Confide, ε = {epsilon:g}"


def curve(wrong: NDArray[np.bool_], points: int = 40) -> tuple[NDArray[np.float64], list[float]]:
    """Errors in stretches that follow each other."""
    edges = np.linspace(0, wrong.size, points + 1).astype(int)
    return (edges[1:] + edges[:-1]) / 2, [float(wrong[a:b].mean()) for a, b in pairwise(edges)]


def draw_learning(curves: dict[float | None, NDArray[np.bool_]], name: str, path: Path) -> None:
    with picture(path, (5, 3.4)) as figure:
        axes = figure.subplots()
        for (epsilon, wrong), colour in zip(curves.items(), (ORANGE, BLUES[0], BLUES[2]), strict=True):
            label = f"{name_of(epsilon)}: {100 * late(wrong):.1f} % after the first 40 %"
            axes.plot(*curve(wrong), color=colour, lw=2, label=label)
        axes.axhline(0.5, color=GREY, lw=1, ls=":")
        axes.set(ylim=(0, 0.55), xlim=(0, None), xlabel="messages so far", title=f"wrong answers, {name}")
        axes.yaxis.set_major_formatter(PER_CENT)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.legend(loc="lower left", fontsize=9)


def draw_attack(found: Sequence[dict[str, Any]], path: Path) -> None:
    with picture(path, (5, 3.3)) as figure:
        axes = figure.subplots()
        for i, (one, colour) in enumerate(zip(found, (ORANGE, *BLUES), strict=False)):
            rate, (low, high) = one["right"] / one["games"], one["interval"]
            axes.bar(i, rate - 0.5, 0.6, bottom=0.5, color=colour)
            axes.errorbar(i, rate, [[max(0, rate - low)], [max(0, high - rate)]], color=GREY, capsize=4, lw=1.4)
            if one["certified"] is not None:
                label = "at most this, by the certificate" if i == 1 else None
                axes.plot([i - 0.42, i + 0.42], [one["certified"]] * 2, color=RED, lw=2, label=label)
        axes.axhline(0.5, color=GREY, lw=1)
        names = [f"{name_of(one['epsilon'])}, {100 * one['right'] / one['games']:.1f} %" for one in found]
        names = [name.replace(", ", "\n") for name in names]
        axes.set_xticks(range(len(found)), names)
        axes.grid(False, axis="x")
        axes.set(ylim=(0.45, 1.04), title="right guesses of what one person said; a coin: 50 %")
        axes.yaxis.set_major_formatter(PER_CENT)
        axes.legend(loc="upper right", fontsize=9)


def tables(result: dict[str, Any]) -> str:
    """The numbers as docs/inbox.md has them."""
    lines = ["| inbox | wrong after the first 40 % | wrong, all messages |", "|---|---|---|"]
    lines += [f"| {name} | {result['late'][name]:.1%} | {wrong:.1%} |" for name, wrong in result["all"].items()]
    lines += ["", "| inbox | right guesses | 99 % interval | by the certificate |", "|---|---|---|---|"]
    for one in result["attacks"]:
        low, high = one["interval"]
        bound = "–" if one["certified"] is None else f"≤ {one['certified']:.1%}"
        rate = one["right"] / one["games"]
        lines.append(f"| {name_of(one['epsilon'])} | **{rate:.1%}** | {low:.1%} – {high:.1%} | {bound} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Learn, attack, print, draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="2,000 messages, 30 games, plain and ε = 1")
    parser.add_argument("--games", type=int, default=400, help="games against each inbox")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="draw the pictures there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there")
    asked = parser.parse_args(arguments)
    encoder = found_encoder()
    name, texts, right = messages(2000 if asked.quick else None)
    rows = [{"text": text} for text in texts]
    curves: dict[float | None, NDArray[np.bool_]] = {None: plain(rows, right, encoder)}
    copies = {}
    for epsilon in EPSILONS:
        curves[epsilon], copies[epsilon] = private(rows, right, epsilon, encoder)
    print(f"{name}: {len(rows):,} messages, with {encoder or 'no encoder'}")
    for epsilon, wrong in curves.items():
        print(f"  {name_of(epsilon):16} {late(wrong):6.1%} wrong after the first 40 %, {wrong.mean():.1%} of all")
    games = 30 if asked.quick else asked.games
    found = [attack(epsilon, games, encoder) for epsilon in ((None, 1.0) if asked.quick else (None, *ATTACKED))]
    for one in found:
        bound = "" if one["certified"] is None else f", at most {one['certified']:.1%} by its certificate"
        print(f"  {name_of(one['epsilon']):16} {one['right'] / games:6.1%} of {games} attacks guessed right{bound}")
    result = {
        "stream": name, "messages": len(rows), "encoder": encoder, "delta": DELTA,
        "late": {name_of(e): round(late(w), 4) for e, w in curves.items()},
        "all": {name_of(e): round(float(w.mean()), 4) for e, w in curves.items()},
        "copies": {name_of(e): share for e, share in copies.items()}, "attacks": found,
    }  # fmt: skip
    if asked.pictures is not None:
        draw_learning(curves, name, asked.pictures / "inbox-learning.svg")
        draw_attack(found, asked.pictures / "inbox-attack.svg")
    if asked.json is not None:
        asked.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


if __name__ == "__main__":
    main()
