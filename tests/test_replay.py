"""Two worlds with identical coins: every bank keeps to the proofs' assumptions, and every breach of them is found."""

import functools
import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from river import linear_model, preprocessing, tree
from sklearn.linear_model import SGDClassifier
from sklearn.tree import DecisionTreeClassifier

from confide import POP, Gate, Guarantee, Halting, Monitor, Plan
from confide.banks import StackedBank
from confide.design import certify
from confide.learners import DecisionTree, GaussianNB, LogisticRegression, Refit
from confide.replay import Ask, Forget, Hidden, Label, Load, Script, Step, Teach, replay

SEED = 7
BANKS: dict[str, Any] = {
    "stacked logistic": LogisticRegression(),
    "stacked naive Bayes": GaussianNB(),
    "stacked trees": DecisionTree(memory=16),
    "River pipeline": preprocessing.StandardScaler() | linear_model.LogisticRegression(),
    "River tree": tree.HoeffdingTreeClassifier(grace_period=5),
    "scikit-learn": SGDClassifier(random_state=1),
    "scikit-learn refit": Refit(DecisionTreeClassifier(max_features=1), memory=16),
}
banks = pytest.mark.parametrize("learner", BANKS.values(), ids=BANKS)


@functools.cache
def small_plan(unit_unsure: int, copies: int = 16, polls: int = 16, unsure: int = 500) -> Plan:
    """A plan for a few copies: a steep gate, and an ε that nobody would run."""
    share = Fraction(polls, copies)
    gate = Gate.best(order=2, cost=3.0, poll_fraction=share, margins=polls, tie_sure=1e-6)
    halting = Halting.best(order=2, cost=1.0, unsure=unsure, start=1e-9, survive=1e-3, shift=unit_unsure)
    got = certify(gate, halting, order=2, delta=0.02, poll_fraction=share)
    return Plan(
        kind="tight",
        rounds=500,
        copies=copies,
        polls=polls,
        unsure=unsure,
        silent=15,
        unit_unsure=unit_unsure,
        labels=2,
        beta=0.01,
        order=2,
        gate=gate,
        halting=halting,
        guarantee=Guarantee(got.epsilon, got.delta, unit_unsure),
    )


def takes_dicts(learner: Any) -> bool:
    return hasattr(learner, "predict_one")


def make_pop(learner: Any, kind: type[POP] = POP, **settings: Any) -> Callable[[], POP]:
    """A maker of seeded POPs for people with G = 3."""
    features = None if takes_dicts(learner) else 2
    settings = {"plan": small_plan(3), "units": "people", "features": features, "seed": SEED, **settings}
    return lambda: kind(learner, labels=["no", "yes"], **settings)


def loader(learner: Any) -> Callable[[Path], POP]:
    return lambda folder: POP.load(folder, learner=learner, trusted=True)


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


# ---------------------------------------------------------------------- every bank keeps to it


@banks
def test_people(learner: Any) -> None:
    """Late labels, history, forgetting, a load and a crash, for a person with a cap of G = 3."""
    script = people_script(1, takes_dicts(learner), loads=(True, False))
    outcome = replay(make_pop(learner), script, load=loader(learner))
    assert outcome.copy is not None and outcome.apart > 50
    assert outcome.hidden[0] == 3, "the unit reached its cap"


@banks
def test_rounds(learner: Any) -> None:
    make = make_pop(learner, plan=small_plan(1), units="rounds")
    outcome = replay(make, rounds_script(1, takes_dicts(learner), loads=(True, False)), load=loader(learner))
    assert outcome.copy is not None and outcome.apart > 10


def test_a_malformed_round() -> None:
    make = make_pop(LogisticRegression(), plan=small_plan(1), units="rounds")
    assert replay(make, rounds_script(2, False)).unsure[1] > 0


class Echo:
    """Votes for what x says, or abstains: all copies agree, and whether the gate is sure follows from x."""

    pure = True

    def predict(self, x: Any) -> int | None:
        return None if x[0] == 0 else int(x[0] > 0)

    def learn(self, x: Any, y: int) -> None:
        pass


CLEAR, DOUBTFUL = [1.0, 0.0], [0.0, 0.0]


@pytest.mark.parametrize("saved", [True, False], ids=["saved", "crashed"])
@pytest.mark.parametrize(
    "secret",
    [Hidden(Ask(CLEAR, "the unit"), Ask(DOUBTFUL, "the unit")), Hidden(Forget("the unit"), None)],
    ids=["unsure", "forgotten"],
)
def test_a_load_shows_nothing_of_what_came_before(secret: Hidden, saved: bool) -> None:
    """Which round was the last unsure one, or the last forgetting, is private: a load must not bring it to light."""
    plan = small_plan(3, copies=40, polls=40)
    others = [Ask(CLEAR, f"person {i}") for i in range(30)]
    script = [*others, secret, Ask(CLEAR, "another"), Load(saved), *others]
    outcome = replay(make_pop(Echo(), plan=plan), script, load=loader(Echo()))
    assert not outcome.parted


def test_with_polls_of_some_copies() -> None:
    for seed in range(4):
        outcome = replay(make_pop(LogisticRegression(), plan=small_plan(3, polls=11)), people_script(seed, False))
        assert outcome.apart > 50


def test_the_unsure_counts_differ_and_are_compared_to_the_end() -> None:
    """The check of the counts has teeth: here they differ by G, and no visible answer parts."""
    others = [Ask(x, f"person {i}") for i, x in enumerate([CLEAR, DOUBTFUL] * 20)]
    script = [*others, *[Hidden(Ask(CLEAR, "the unit"), Ask(DOUBTFUL, "the unit"))] * 5, *others]
    outcome = replay(make_pop(Echo(), plan=small_plan(3, copies=40, polls=40)), script)
    assert not outcome.parted and outcome.unsure[1] - outcome.unsure[0] == 3


def test_the_monitor_hears_at_most_its_rounds_per_unit() -> None:
    for seed in range(3):
        make = make_pop(LogisticRegression(), monitor=Monitor(epsilon=1.0, rounds_per_unit=2, delay=5))
        replay(make, people_script(seed, False, loads=(True, True)), load=loader(None))


def test_a_run_that_halts() -> None:
    """Halting in one world only is the luck of the coins; up to there everything is compared."""
    replay(make_pop(LogisticRegression(), plan=small_plan(3, unsure=5)), people_script(1, False))


@pytest.mark.parametrize("bad", [[10**400, 1.0], [1.0], [1.0, "x"], None, [[1.0, 2.0]], {"a": 1.0}, 3, b"ab"])
def test_whatever_the_unit_asks_takes_its_round_and_its_coins(bad: Any) -> None:
    """A malformed question, of whatever kind, is followed by the halting draw like any other."""
    writer = Writer(1, False)
    writer.visible(30)
    writer.steps.append(Hidden(Ask([0.5, 0.5], "the unit"), Ask(bad, "the unit")))
    writer.asks += 1
    writer.visible(5)
    replay(make_pop(LogisticRegression()), writer.steps)


# ---------------------------------------------------------------------- every breach is found


class TeachesTwo(POP):
    def _teach(self, copy: int, x: Any, label: int) -> None:
        super()._teach(copy, x, label)
        super()._teach((copy + 1) % self.plan.copies, x, label)


class LearnsFromQuestions(StackedBank):
    def votes(self, x: Any, poll: Any) -> Any:
        for copy in poll.tolist():
            self.learn(copy, x, int(x[0] > 0.3))
        return super().votes(x, poll)


class AsksChangeCopies(POP):
    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._bank = LearnsFromQuestions(LogisticRegression(), 16, 2, 2)


class SharedGenerator(LogisticRegression):
    """Every lesson is jittered by a generator that all copies share."""

    generator = np.random.default_rng(1)

    def teach(self, arrays: Any, slot: int, seen: int, x: Any, y: int) -> None:
        super().teach(arrays, slot, seen, x + self.generator.normal(size=x.size), y)


class SharedByClass:
    """Copies that vote for the label that was taught last, to whichever of them."""

    last: int | None = None

    def predict(self, x: Any) -> int | None:
        return type(self).last

    def learn(self, x: Any, y: int) -> None:
        type(self).last = y


class Uncapped(POP):
    def _live(self, x: Any, malformed: bool, who: bytes | None) -> int | None:
        self._unit_unsure.clear()
        return super()._live(x, malformed, who)


class SkipsTheDraw(POP):
    """No halting draw where nothing was counted."""

    def _fires(self, counted: bool) -> bool:
        return counted and super()._fires(counted)


class NoPollForMalformed(POP):
    def _live(self, x: Any, malformed: bool, who: bytes | None) -> int | None:
        return None if malformed else super()._live(x, malformed, who)


class CountsLabels(POP):
    """Tickets expire when too many are open, so how many labels came is seen by others."""

    def learn(self, ticket: str, y: Any) -> None:
        while len(self._open) > 6:
            self._open.pop(next(iter(self._open)))
        super().learn(ticket, y)


class TellsOfForgetting(POP):
    """A forgotten copy refuses the labels of others."""

    gone = frozenset[int]()

    def forget(self, unit: str | bytes) -> None:
        before = set(self._taught_copies())
        super().forget(unit)
        self.gone = self.gone | (before - set(self._taught_copies()))

    def _taught_copies(self) -> list[int]:
        taught: Any = self._bank.state(trusted=True)["taught"]
        return list(taught.tolist())

    def _teach(self, copy: int, x: Any, label: int) -> None:
        if copy in self.gone:
            raise ValueError("this copy was reset")
        super()._teach(copy, x, label)


class ShowsTheCount(POP):
    """The state that everybody sees follows the private count."""

    @property
    def rounds(self) -> int:
        return self._round + self._unsure


class WatchesAnswered(POP):
    """The monitor counts a person's first rounds that were well-formed: which these are is private."""

    def predict(self, x: Any, unit: str | bytes | None = None) -> Any:
        saved = dict(self._unit_counted)
        try:
            return super().predict(x, unit)
        except ValueError:
            self._unit_counted = saved
            raise


BROKEN: list[tuple[str, Any, type[POP], str]] = [
    ("a label taught to two copies", LogisticRegression(), TeachesTwo, r"copy \d+: its memory differs"),
    ("questions that change copies", LogisticRegression(), AsksChangeCopies, r"copy \d+: its memory differs"),
    ("a generator that copies share", SharedGenerator(), POP, r"copy \d+: its memory differs"),
    ("a class attribute", SharedByClass(), POP, r"copy \d+: its vote differs"),
    ("no cap", LogisticRegression(), Uncapped, r"counted unsure 4 times"),
    ("a halting draw left out", LogisticRegression(), SkipsTheDraw, r"the coins"),
    ("a poll left out", LogisticRegression(), NoPollForMalformed, r"the coins"),
    ("tickets that expire by number", LogisticRegression(), CountsLabels, r"what others see"),
    ("a reset that others notice", LogisticRegression(), TellsOfForgetting, r"what others see"),
    ("a count that is shown", LogisticRegression(), ShowsTheCount, r"what everybody sees"),
]


@pytest.mark.parametrize(("learner", "kind", "cause"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_a_breach_is_found(learner: Any, kind: type[POP], cause: str) -> None:
    with pytest.raises(AssertionError, match=rf"round \d+ .*{cause}"):
        for seed in range(5):  # the routing follows the POP's seed, the questions the script's
            replay(make_pop(learner, kind, seed=SEED + seed), people_script(seed, False))


def test_a_monitor_that_follows_private_data_is_found() -> None:
    """In one world the unit's first question is malformed; its second must not take that one's place."""
    writer = Writer(1, False)
    for first in (0.5, float("nan")), (0.5, 0.5):
        writer.steps.append(Hidden(Ask([first[0], 0.0], "the unit"), Ask([first[1], 0.0], "the unit")))
        writer.steps.append(Hidden(Label(len(writer.steps) // 2 + 1, "no"), Label(len(writer.steps) // 2 + 1, "no")))
        writer.asks += 1
    writer.visible(30)
    monitor = Monitor(epsilon=1.0, rounds_per_unit=1, delay=5)
    replay(make_pop(LogisticRegression(), monitor=monitor, fallback="yes"), writer.steps)
    with pytest.raises(AssertionError, match="2 of the monitor's inputs differ"):
        replay(make_pop(LogisticRegression(), WatchesAnswered, monitor=monitor, fallback="yes"), writer.steps)


# ---------------------------------------------------------------------- scripts that prove nothing are refused


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ([Hidden(Ask([0, 0], "a"), None)], "must be in both worlds"),
        ([Hidden(Forget("a"), Forget("b"))], "one unit"),
        ([Hidden(Ask([0, 0]), Ask([1, 0])), Hidden(Ask([0, 0]), Ask([1, 0]))], "one unit"),
        ([Hidden(Forget("a"), None), Ask([0, 0], "a")], "is hidden"),
        ([Hidden(Load(), None)], "a Load is public"),
        ([Ask([0, 0]), Hidden(Label(1, "yes"), None)], "a label is hidden where"),
        ([Hidden(Ask([0, 0]), Ask([1, 1])), Label(1, "yes")], "a label is hidden where"),
    ],
)
def test_a_script_hides_one_unit(script: Script, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        replay(make_pop(LogisticRegression()), script)


def test_a_replay_needs_a_seed() -> None:
    with pytest.raises(ValueError, match="seed"):
        replay(lambda: POP(LogisticRegression(), small_plan(1), labels=[0, 1], features=2), [])
