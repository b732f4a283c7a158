"""Scripts for replays: one unit among many people, alone and in batches, with loads and a disk that goes away."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confide import POP
from confide.games.replay import (
    Ask,
    AskMany,
    Cut,
    Disk,
    Follow,
    Forget,
    Hidden,
    Label,
    LabelMany,
    Load,
    Script,
    Step,
    Teach,
    TeachMany,
)
from confide.privacy.random import Random
from tests import worlds
from tests.worlds import LABELS

small_plan = functools.partial(worlds.small_plan, copies=16, polls=16, unsure=500, silent=15, rounds=500)
POLLED = small_plan(3, polls=11)
HALTING = small_plan(3, polls=11, start=0.05)
"""It halts soon, by the halting draw."""
GUIDED = worlds.guided_plan(3, 2, copies=16, polls=11, rounds=500)
LEANING = worlds.guided_plan(3, 2, copies=16, polls=11, rounds=500, lean="fill")
LEANING_ALONE = small_plan(3, polls=11, lean="fill")
TAUGHT = worlds.guided_plan(3, 2, copies=16, polls=11, rounds=500, history=30)
RANGED = worlds.guided_plan(3, 2, copies=16, polls=11, rounds=500, ranges=24)


def takes_dicts(learner: Any) -> bool:
    return hasattr(learner, "predict_one")


def make_pop(learner: Any, kind: type[POP] = POP, **settings: Any) -> Callable[[Random], POP]:
    """A maker of POPs for people with G = 3 on a given tape."""
    features = None if takes_dicts(learner) else 2
    settings = {"plan": small_plan(3), "units": "people", "features": features, **settings}
    return lambda rng: kind(learner, labels=LABELS, seed=rng, **settings)


def loader(learner: Any, kind: type[POP] = POP) -> Callable[[Path, Random], POP]:
    return lambda folder, rng: kind.load(folder, learner=learner, trusted=True, rng=rng)


class Writer:
    """Writes a script: people ask at random, and labels come late, out of order, or never."""

    def __init__(self, seed: int, dicts: bool = False, people: bool = True) -> None:
        self.random = random.Random(seed)
        self.dicts, self.people = dicts, people
        self.steps: list[Step | Hidden] = []
        self.waiting: list[tuple[int, Step | Hidden]] = []
        self.asks = 0

    def x(self, first: float | str) -> Any:
        values = [first, self.random.uniform(-1, 1)]
        return {"a": values[0], "b": values[1]} if self.dicts else values

    def y(self, first: float, noise: float = 1.0) -> str:
        return "yes" if (first > 0) != (noise < 0.05) else "no"

    def someone(self) -> str | None:
        return f"person {self.random.randrange(60)}" if self.people else None

    def visible(self, rounds: int) -> None:
        for _ in range(rounds):
            first, noise = self.random.uniform(-1, 1), self.random.random()
            y = self.y(first, noise)
            self.steps.append(Ask(self.x(first if noise < 0.95 else "x"), self.someone()))
            self.asks += 1
            if noise < 0.8:
                self.waiting.append((self.random.randrange(12), Label(self.asks, y)))
            if noise < 0.1:
                self.steps.append(Teach(self.x(first), y, self.someone()))
            if noise < 0.04 and self.people:
                self.steps.append(Forget(self.someone() or ""))
            self.bring_labels()

    def bring_labels(self) -> None:
        self.steps += [step for due, step in self.waiting if due <= 0]
        self.waiting = [(due - 1, step) for due, step in self.waiting if due > 0]

    def hidden(self, malformed: bool = False) -> None:
        """The unit asks something doubtful in one world and something clear in the other, and labels differ."""
        who = "the unit" if self.people else None
        other = "x" if malformed else self.random.choice([-1.0, 1.0])
        self.steps.append(Hidden(Ask(self.x(0.0), who), Ask(self.x(other), who)))
        self.asks += 1
        mine, yours = Label(self.asks, "yes"), Label(self.asks, "no")
        kind = self.random.randrange(3)
        if kind == 0:
            self.waiting.append((4, Hidden(mine, yours)))
        elif kind == 1:
            self.waiting += [(2, Hidden(mine, None)), (9, Hidden(None, yours))]
        else:
            self.steps.append(Hidden(None, yours))

    def rows(self, n: int) -> tuple[list[float], list[Any], list[str]]:
        """First numbers, questions and people of a batch."""
        firsts = [self.random.uniform(-1, 1) for _ in range(n)]
        return firsts, [self.x(first) for first in firsts], [self.someone() or "" for _ in firsts]

    def batch(self, kind: str, n: int = 8, malformed: bool = False, holds_unit: bool = True) -> None:
        """A batch of others, with the unit in its second row: something else in each world, malformed in one."""
        firsts, xs, people = self.rows(n)
        row = 1 if holds_unit else n
        people[row : row + 1] = ["the unit"] if holds_unit else []
        here, there = self.x(0.0), self.x("x" if malformed else 1.0)

        def one(mine: Any, label: str) -> Step:
            asked = [*xs[:row], mine, *xs[row + 1 :]]
            ys = [self.y(first) for first in firsts]
            ys[row : row + 1] = [label] if holds_unit else []
            numbers = [LABELS.index(y) for y in ys]
            if kind == "teach":
                return TeachMany(asked, ys, people)
            return Follow(asked, numbers, people) if kind == "follow" else AskMany(asked, people)

        both = one(here, "yes"), one(there, "no")
        self.steps.append(Hidden(*both, rows=(row,)) if holds_unit else both[0])
        if kind == "ask":
            asks = [self.asks + 1 + i for i in range(n)]
            labels = [self.y(first) for first in firsts]
            mine = [*labels[:row], "maybe", *labels[row + 1 :]]
            some = slice(0, n, 1 if holds_unit and not malformed else n)
            if holds_unit and not malformed:  # in one world the unit's own label is none
                self.steps.append(Hidden(LabelMany(asks, labels), LabelMany(asks, mine), rows=(row,)))
            else:
                self.steps.append(LabelMany(asks[some], labels[some]))
        self.asks += n if kind != "teach" else 0


def people_script(
    seed: int, dicts: bool = False, loads: tuple[bool, ...] = (), parts: int = 6, batches: bool = True
) -> Script:
    """One hidden person among sixty: questions, labels, records and forgetting that differ between the worlds."""
    writer = Writer(seed, dicts)
    for x in (-1.0, -0.5, 0.5, 1.0):
        writer.steps.append(Hidden(Teach(writer.x(x), "yes", "the unit"), Teach(writer.x(-x), "no", "the unit")))
    for part in range(parts):
        writer.visible(8)
        writer.hidden(malformed=part == 3)
        if batches:
            writer.batch(("ask", "follow", "teach")[(part + seed) % 3], malformed=part >= 3)
        if part in (2, 4):
            writer.steps.append(Hidden(Forget("the unit"), None))
        if part in (1, 3) and loads:
            writer.steps.append(Load(saved=loads[part == 3]))
    return writer.steps


def rounds_script(seed: int, dicts: bool = False, loads: tuple[bool, ...] = (), rounds: int = 40) -> Script:
    """One hidden round among others."""
    writer = Writer(seed, dicts, people=False)
    writer.visible(30)
    writer.hidden(malformed=seed == 2)
    for saved in loads:
        writer.visible(rounds // 4)
        writer.steps.append(Load(saved))
    writer.visible(rounds)
    return writer.steps


def secret_word_script(seed: int, word: Any, other: Any) -> Script:
    """The unit teaches something odd in one world, something usual in the other; then the others go on."""
    writer = Writer(seed, isinstance(word, dict))
    writer.steps.append(Hidden(Teach(word, "yes", "the unit"), Teach(other, "yes", "the unit")))
    writer.visible(60)
    return writer.steps


def one_label_script(seed: int) -> Script:
    """The unit asks once; its label comes, or it does not."""
    writer = Writer(seed)
    writer.visible(10)
    writer.steps.append(Hidden(Ask([0.5, 0.0], "the unit"), Ask([0.5, 0.0], "the unit")))
    writer.asks += 1
    writer.steps.append(Hidden(Label(writer.asks, "yes"), None))
    writer.visible(30)
    return writer.steps


def batch_script(seed: int, malformed: bool = False, parts: int = 6) -> Script:
    """Batches only, all of which hold the unit, after a few rounds to learn from."""
    writer = Writer(seed)
    writer.batch("teach", 40)
    writer.visible(16)
    for i in range(parts):
        writer.batch(("ask", "follow", "ask")[i % 3], malformed=malformed)
    return writer.steps


def _rows(dice: random.Random, n: int) -> tuple[list[Any], list[int]]:
    xs = [[dice.uniform(-1, 1), dice.choice([-1.0, 0.5])] for _ in range(n)]
    return xs, [int(x[0] > 0) for x in xs]


def cut_script(seed: int, crash: bool = False) -> Script:
    """Batches that hold the unit are cut off, at one of the guide's releases or after all of them."""
    dice, script = random.Random(seed), list[Step | Hidden]()
    for part in range(4):
        (xs, ys), after = _rows(dice, 14), dice.choice([1, 2, 9])
        row, units = dice.randrange(14), [f"person {dice.randrange(30)}" for _ in range(14)]
        units[row] = "the unit"
        pair = [Cut(Follow(xs, [*ys[:row], y, *ys[row + 1 :]], units), after, crash) for y in (0, 1)]
        script.append(Hidden(*pair, rows=(row,)))
        script += [Ask(x, f"person {20 + part}") for x in _rows(dice, 4)[0]]
    return script


def history_script(seed: int) -> Script:
    """A history in which the unit's record can be read in one world alone."""
    dice = random.Random(seed)
    xs, ys = _rows(dice, 4)
    labels, units = [LABELS[y] for y in ys], [f"person {i}" for i in range(4)]
    row = dice.randrange(4)
    units[row] = "the unit"
    bad = TeachMany([*xs[:row], None, *xs[row + 1 :]], labels, units)
    asks = [Ask(x, f"person {i}") for i, x in enumerate(_rows(dice, 12)[0])]
    return [Hidden(TeachMany(xs, labels, units), bad, rows=(row,)), *asks]


def watched_script() -> Script:
    """In one world the unit's first question is malformed; its second must not take that one's place."""
    writer = Writer(1)
    for first in (0.5, "x"), (0.5, 0.5):
        writer.steps.append(Hidden(Ask([first[0], 0.0], "the unit"), Ask([first[1], 0.0], "the unit")))
        writer.steps.append(Hidden(Label(len(writer.steps) // 2 + 1, "no"), Label(len(writer.steps) // 2 + 1, "no")))
        writer.asks += 1
    writer.visible(30)
    return writer.steps


def disk_script(seed: int) -> Script:
    """The disk goes away while the unit brings a label, in one world only, and comes back."""
    writer = Writer(seed)
    writer.visible(20)
    writer.steps.append(Hidden(Ask([0.5, 0.0], "the unit"), Ask([0.5, 0.0], "the unit")))
    writer.asks += 1
    writer.steps += [Disk(False), Hidden(Label(writer.asks, "yes"), None), Disk(True)]
    writer.visible(3)
    writer.steps.append(Disk(False))
    writer.visible(3)
    return writer.steps


def crash_script(seed: int) -> Script:
    """The unit asks, a snapshot is taken; then it brings a label or is forgotten, the process crashes, and it tries."""
    writer = Writer(seed)
    writer.visible(20)
    for _ in range(2):
        writer.steps.append(Hidden(Ask([0.5, 0.0], "the unit"), Ask([-0.5, 0.0], "the unit")))
    first, second = writer.asks + 1, writer.asks + 2
    writer.asks += 2
    writer.steps += [
        Hidden(Teach([0.5, 0.5], "yes", "the unit"), Teach([0.5, 0.5], "no", "the unit")),
        Load(saved=True),
        Hidden(Label(first, "yes"), Label(first, "no")),
        Load(saved=False),
        Hidden(Label(first, "yes"), Label(first, "no")),
        Hidden(Forget("the unit"), Forget("the unit")),
        Load(saved=False),
        Hidden(Label(second, "yes"), Label(second, "no")),
    ]
    writer.visible(5)
    return writer.steps


def shape_script(seed: int) -> Script:
    """The unit sends one number where two are wanted, in one world."""
    writer = Writer(seed)
    writer.visible(25)
    writer.steps.append(Hidden(Ask([0.5], "the unit"), Ask([0.5, 0.0], "the unit")))
    writer.asks += 1
    writer.visible(5)
    return writer.steps
