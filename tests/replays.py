"""Scripts for replays, and the doubles that a replay catches.

A script runs in two worlds with identical coins; a violated line, with its round and cause, is the catch.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from confide import POP, Gate, Guarantee, Halting, Monitor, Plan
from confide.games.replay import Ask, AskMany, Forget, Hidden, Label, Load, Script, Step, Teach, replay
from confide.learners import Features, LogisticRegression
from confide.planning.design import certify
from tests import doubles

SEED = 7


@functools.cache
def small_plan(unit_unsure: int, copies: int = 16, polls: int = 16, unsure: int = 500) -> Plan:
    """A plan for a few copies: a steep gate, and an ε that nobody would run."""
    share = Fraction(polls, copies)
    gate = Gate.best(order=2, cost=3.0, poll_fraction=share, margins=polls, tie_sure=1e-6)
    halting = Halting.best(order=2, cost=1.0, unsure=unsure, start=1e-9, survive=1e-3, shift=unit_unsure)
    sizes = {"copies": copies, "polls": polls, "unsure": unsure}
    return make_plan(gate, halting, order=2, delta=0.02, rounds=500, silent=15, **sizes)


def make_plan(
    gate: Gate, halting: Halting, *, order: int, delta: float, copies: int, polls: int, **numbers: int
) -> Plan:
    """A plan with these tables, and what they certify."""
    got = certify(gate, halting, order=order, delta=delta, poll_fraction=Fraction(polls, copies))
    return Plan(
        kind="tight",
        copies=copies,
        polls=polls,
        unit_unsure=halting.shift,
        labels=2,
        beta=0.01,
        order=order,
        gate=gate,
        halting=halting,
        guarantee=Guarantee(got.epsilon, got.delta, halting.shift),
        **numbers,
    )


def takes_dicts(learner: Any) -> bool:
    return hasattr(learner, "predict_one")


def make_pop(learner: Any, kind: type[POP] = POP, **settings: Any) -> Callable[[], POP]:
    """A maker of seeded POPs for people with G = 3."""
    features = None if takes_dicts(learner) else 2
    settings = {"plan": small_plan(3), "units": "people", "features": features, "seed": SEED, **settings}
    return lambda: kind(learner, labels=["no", "yes"], **settings)


def loader(learner: Any, kind: type[POP] = POP) -> Callable[[Path], POP]:
    return lambda folder: kind.load(folder, learner=learner, trusted=True)


class Writer:
    """Writes a script: people ask at random, and labels come late, out of order, or never."""

    def __init__(self, seed: int, dicts: bool, people: bool = True) -> None:
        self.random = random.Random(seed)
        self.dicts, self.people = dicts, people
        self.steps: list[Step | Hidden] = []
        self.waiting: list[tuple[int, Step | Hidden]] = []
        self.asks = 0

    def x(self, first: float) -> Any:
        values = [first, self.random.uniform(-1, 1)]
        return {"a": values[0], "b": values[1]} if self.dicts else values

    def someone(self) -> str | None:
        return f"person {self.random.randrange(60)}" if self.people else None

    def visible(self, rounds: int) -> None:
        for _ in range(rounds):
            first, noise = self.random.uniform(-1, 1), self.random.random()
            y = "yes" if (first > 0) != (noise < 0.05) else "no"
            self.steps.append(Ask(self.x(first), self.someone()))
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
        other = float("nan") if malformed else self.random.choice([-1.0, 1.0])
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


def people_script(seed: int, dicts: bool, loads: tuple[bool, ...] = ()) -> Script:
    """One hidden person among sixty: asks, labels, history and forgetting that differ between the worlds."""
    writer = Writer(seed, dicts)
    for x in (-1.0, -0.5, 0.5, 1.0):
        writer.steps.append(Hidden(Teach(writer.x(x), "yes", "the unit"), Teach(writer.x(-x), "no", "the unit")))
    for part in range(10):
        writer.visible(9)
        writer.hidden(malformed=part == 6)
        if part in (4, 8):
            writer.steps.append(Hidden(Forget("the unit"), None))
        if part in (3, 7) and loads:
            writer.steps.append(Load(saved=loads[part == 7]))
    return writer.steps


def rounds_script(seed: int, dicts: bool, loads: tuple[bool, ...] = ()) -> Script:
    """One hidden round among a hundred."""
    writer = Writer(seed, dicts, people=False)
    writer.visible(30)
    writer.hidden(malformed=seed == 2)
    for saved in loads:
        writer.visible(10)
        writer.steps.append(Load(saved))
    writer.visible(40)
    return writer.steps


def secret_word_script(seed: int, word: Any, other: Any) -> Script:
    """The unit teaches something odd in one world, something usual in the other; then the others go on."""
    writer = Writer(seed, isinstance(word, dict))
    writer.steps.append(Hidden(Teach(word, "yes", "the unit"), Teach(other, "yes", "the unit")))
    writer.visible(60)
    return writer.steps


def one_label_script(seed: int) -> Script:
    """The unit asks once; its label comes, or it does not."""
    writer = Writer(seed, False)
    writer.visible(10)
    writer.steps.append(Hidden(Ask([0.5, 0.0], "the unit"), Ask([0.5, 0.0], "the unit")))
    writer.asks += 1
    writer.steps.append(Hidden(Label(writer.asks, "yes"), None))
    writer.visible(30)
    return writer.steps


def batch_script(seed: int) -> Script:
    """Whole batches of others after the unit's lesson, then their labels."""
    writer = Writer(seed, False)
    writer.visible(20)
    writer.steps.append(Hidden(Teach([1.0, 0.0], "yes", "the unit"), Teach([1.0, 0.0], "no", "the unit")))
    for _ in range(4):
        people, first = [writer.someone() or "" for _ in range(10)], writer.asks
        xs = [writer.x(writer.random.uniform(-1, 1)) for _ in people]
        writer.steps.append(AskMany(xs, people))
        writer.asks += len(people)
        writer.steps += [Label(first + 1 + i, "yes" if x[0] > 0 else "no") for i, x in enumerate(xs)]
    return writer.steps


def watched_script() -> Script:
    """In one world the unit's first question is malformed; its second must not take that one's place."""
    writer = Writer(1, False)
    for first in (0.5, float("nan")), (0.5, 0.5):
        writer.steps.append(Hidden(Ask([first[0], 0.0], "the unit"), Ask([first[1], 0.0], "the unit")))
        writer.steps.append(Hidden(Label(len(writer.steps) // 2 + 1, "no"), Label(len(writer.steps) // 2 + 1, "no")))
        writer.asks += 1
    writer.visible(30)
    return writer.steps


@dataclass(frozen=True)
class ReplayHunt:
    """A double, the correct thing in its place, and the cause that a replay must name."""

    name: str
    cause: str
    """A regular expression."""
    learner: Any = None
    kind: type[POP] = POP
    sound: Any = None
    """What takes the learner's place in the correct mechanism, where the learner is the double."""
    settings: Callable[[bool], dict[str, Any]] = lambda broken: {}
    script: Callable[[int], Script] = lambda seed: people_script(seed, dicts=False)

    first: int = 0
    """The seed to begin with: not every script has somebody who shares a copy with the unit."""

    def catch(self) -> str:
        """What the first replay says that says anything."""
        return next((line for line in map(self.run, range(self.first, self.first + 8)) if line), "")

    def run(self, seed: int, broken: bool = True) -> str:
        """What the replay says, or nothing. The routing follows the POP's seed, the questions the script's."""
        learner = (self.learner if broken or self.sound is None else self.sound) or LogisticRegression()
        kind = self.kind if broken else POP

        def make() -> POP:  # settings anew: features may be an object that learns
            return make_pop(learner, kind, seed=SEED + seed, **self.settings(broken))()

        try:
            replay(make, self.script(seed), load=loader(learner, kind))
        except AssertionError as violated:
            return str(violated)
        return ""


def _vocabulary(broken: bool) -> dict[str, Any]:
    return {"features": doubles.SharedVocabulary() if broken else Features(numeric=["a", "b", "zebra"])}


def _monitored(broken: bool) -> dict[str, Any]:
    return {"monitor": Monitor(epsilon=1.0, rounds_per_unit=1, delay=5), "fallback": "yes"}


_loads = functools.partial(people_script, dicts=False, loads=(True, False))
_words = functools.partial(secret_word_script, word={"zebra": 1.0}, other={"a": 1.0})
_large = functools.partial(secret_word_script, word=[1000.0, 0.0], other=[0.5, 0.0])

REPLAYS = [
    ReplayHunt("the label goes to two copies", r"copies \[\d+, \d+\]: one label", kind=doubles.TeachesTwo),
    ReplayHunt(
        "labels go to the copies in turn",
        r"went to copy \d+ or \d+",
        kind=doubles.RoutesInTurn,
        script=one_label_script,
    ),
    ReplayHunt("labels of one unit go to two copies", r"the unit taught a second copy", kind=doubles.RoutesInTurn),
    ReplayHunt("predict changes every copy", r"copy \d+: its memory .* a question changed it", kind=doubles.NoRewind),
    ReplayHunt(
        "copies share a random stream",
        r"copy \d+: its memory .* share a random stream",
        learner=doubles.SharedStream(),
        sound=LogisticRegression(),
    ),
    ReplayHunt(
        "copies share a memory",
        r"copy \d+: its vote .* reads what copies share",
        learner=doubles.SharedMemory(),
        sound=LogisticRegression(),
    ),
    ReplayHunt("a shared scaler in front", r"copy.*changed by the unit.*a scaler", kind=doubles.ScalerInFront),
    ReplayHunt("a shared vocabulary", r"copy.*changed by the unit.*a vocabulary", settings=_vocabulary, script=_words),
    ReplayHunt("silence that ends on a count of labels", r"the coins|everybody", kind=doubles.SilentByLabels, first=1),
    ReplayHunt("a resume that forgets", r"forgot what was spent", kind=doubles.ForgetsSpending, script=_loads),
    ReplayHunt("randomness restored", r"brought back randomness", kind=doubles.RestoresCoins, script=_loads),
    ReplayHunt("no halting draw for capped rounds", r"the coins", kind=doubles.NoDrawWhereCapped, first=4),
    ReplayHunt("no halting draw for sure rounds", r"the coins", kind=doubles.NoDrawWhereSure),
    ReplayHunt("no poll for malformed questions", r"the coins", kind=doubles.NoPollForMalformed),
    ReplayHunt("tickets evicted by count", r"what others see", kind=doubles.EvictsByCount),
    ReplayHunt(
        "an exception shown to its asker",
        r"what others see .*ArithmeticError",
        learner=doubles.Touchy(),
        kind=doubles.ShowsExceptions,
        script=_large,
        first=1,
    ),
    ReplayHunt("a reset that others notice", r"what others see", kind=doubles.TellsOfForgetting, first=1),
    ReplayHunt("a count that is shown", r"what everybody sees", kind=doubles.ShowsTheCount),
    ReplayHunt("no cap", r"counted unsure 4 times", kind=doubles.Uncapped),
    ReplayHunt(
        "the same poll in every round",
        r"copies \[.*\]: they were asked by a poll",
        kind=doubles.SamePoll,
        settings=lambda broken: {"plan": small_plan(3, polls=11)},
    ),
    ReplayHunt(
        "one poll for a whole batch",
        r"copies \[.*\]: they were asked by a poll",
        kind=doubles.OnePollABatch,
        settings=lambda broken: {"plan": small_plan(3, polls=11)},
        script=batch_script,
    ),
    ReplayHunt(
        "a monitor that follows private data",
        r"2 of the monitor's inputs differ",
        kind=doubles.WatchesAnswered,
        settings=_monitored,
        script=lambda seed: watched_script(),
    ),
]
