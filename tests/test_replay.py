"""Two worlds with identical coins: every bank keeps to the proofs' assumptions. Breaches: tests/test_doubles.py."""

from typing import Any

import pytest
from river import linear_model, preprocessing, tree
from sklearn.linear_model import SGDClassifier
from sklearn.tree import DecisionTreeClassifier

from confide import Monitor
from confide.games.replay import Ask, AskMany, Disk, Forget, Hidden, Label, Load, Script, replay
from confide.learners import DecisionTree, GaussianNB, LogisticRegression, Refit, Stacked
from tests import strangers, worlds
from tests.broken import tables
from tests.scripts import (
    POLLED,
    Writer,
    batch_script,
    disk_script,
    loader,
    make_pop,
    people_script,
    rounds_script,
    small_plan,
    takes_dicts,
    watched_script,
)

pytestmark = pytest.mark.claim("people.md")

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


# ---------------------------------------------------------------------- every bank keeps to it


@banks
def test_people(learner: Any) -> None:
    """Late labels, history, forgetting, batches, a load and a crash, for a person with a cap of G = 3."""
    script = people_script(1, takes_dicts(learner), loads=(True, False))
    outcome = replay(make_pop(learner), script, load=loader(learner))
    assert outcome.copy is not None and outcome.apart > 50 and outcome.steps == len(script)
    assert outcome.hidden[0] == 3, "the unit reached its cap"


@banks
def test_rounds(learner: Any) -> None:
    make = make_pop(learner, plan=small_plan(1), units="rounds")
    rounds = 40 if isinstance(learner, Stacked) else 20  # others vote and are compared slowly
    script = rounds_script(1, takes_dicts(learner), loads=(True, False), rounds=rounds)
    outcome = replay(make, script, load=loader(learner))
    assert outcome.copy is not None and outcome.apart > 10


def test_a_malformed_round() -> None:
    make = make_pop(LogisticRegression(), plan=small_plan(1), units="rounds")
    assert replay(make, rounds_script(2, False)).unsure[1] > 0


class Echo:
    """Votes for what x says, or abstains: all copies agree, and whether the gate is sure follows from x."""

    pure = True

    def predict(self, x: Any) -> str | None:
        return None if x[0] == 0 else "yes" if x[0] > 0 else "no"

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
        assert replay(make_pop(LogisticRegression(), plan=POLLED), people_script(seed)).apart > 50


def test_the_unsure_counts_differ_and_are_compared_to_the_end() -> None:
    """The check of the counts has teeth: here they differ by G, and no visible answer parts."""
    others = [Ask(x, f"person {i}") for i, x in enumerate([CLEAR, DOUBTFUL] * 20)]
    script = [*others, *[Hidden(Ask(CLEAR, "the unit"), Ask(DOUBTFUL, "the unit"))] * 5, *others]
    outcome = replay(make_pop(Echo(), plan=small_plan(3, copies=40, polls=40)), script)
    assert not outcome.parted and outcome.unsure[1] - outcome.unsure[0] == 3


def test_the_monitor_hears_at_most_its_rounds_per_unit() -> None:
    for seed in range(3):
        make = make_pop(LogisticRegression(), monitor=Monitor(epsilon=1.0, rounds_per_unit=2, delay=5))
        replay(make, people_script(seed, loads=(True, True)[: seed % 2 * 2]))
    make = make_pop(LogisticRegression(), monitor=Monitor(epsilon=1.0, rounds_per_unit=1, delay=5), fallback="yes")
    replay(make, watched_script())


@pytest.mark.parametrize("seed", range(4))
def test_a_run_that_halts_is_compared_up_to_there(seed: int) -> None:
    """By its halting word, the same in both worlds, or by its count, which may stop one world alone."""
    script = people_script(seed)
    plans = [small_plan(3, start=0.05), small_plan(3, unsure=2, start=0.01)]
    halted = [replay(make_pop(LogisticRegression(), plan=plan), script).steps for plan in plans]
    assert all(10 < steps <= len(script) for steps in halted)


@pytest.mark.parametrize("forced", [True, False])
def test_a_batch_may_meet_its_halt_at_different_rows(forced: bool) -> None:
    """Nobody is accused where the tables say so: one world's count is G ahead, and this table halts at the 100th."""
    plan = tables.exact_count(small_plan(3, copies=40, polls=40, unsure=100, silent=0))
    first = [Hidden(Ask(CLEAR, "the unit"), Ask(DOUBTFUL, "the unit"))] * 3
    batches = [AskMany([DOUBTFUL] * 60, [f"person {60 * i + j}" for j in range(60)]) for i in range(3)]
    make = make_pop(Echo(), plan=plan, after_halt="fallback")
    outcome = replay(make, [*first, *batches], forced=forced)
    assert outcome.unsure == [100, 100] and outcome.steps == 5, "the worlds part in the second batch, and only there"


def test_a_label_whose_write_fails_is_its_bringers_own_business() -> None:
    outcome = replay(make_pop(LogisticRegression()), disk_script(1))
    assert outcome.steps == len(disk_script(1))


@pytest.mark.parametrize("bad", [[10**400, 1.0], [1.0], [1.0, "x"], None, [[1.0, 2.0]], {"a": 1.0}, 3, b"ab"])
def test_whatever_the_unit_asks_takes_its_round_and_its_coins(bad: Any) -> None:
    """A malformed question, of whatever kind, is followed by the halting draw like any other."""
    writer = Writer(1, False)
    writer.visible(30)
    writer.steps.append(Hidden(Ask([0.5, 0.5], "the unit"), Ask(bad, "the unit")))
    writer.asks += 1
    writer.visible(5)
    replay(make_pop(LogisticRegression()), writer.steps)


# ---------------------------------------------------------------------- batches


@pytest.mark.parametrize("seed", range(3))
def test_batches(seed: int) -> None:
    """A batch is a sequence of rounds like any other: its labels come one by one, and polls are drawn for each row."""
    assert replay(make_pop(LogisticRegression(), plan=POLLED), batch_script(seed, malformed=seed == 1)).apart > 5


def test_a_batch_with_a_malformed_row() -> None:
    writer = Writer(1, False)
    writer.visible(20)
    writer.hidden()
    writer.steps.append(AskMany([[0.5, 0.5], ["x", 0.0], [0.1, 0.2]], ["a", "b", "c"]))
    writer.steps.append(Label(writer.asks + 3, "yes"))
    replay(make_pop(LogisticRegression()), writer.steps)


# ---------------------------------------------------------------------- scripts that prove nothing are refused


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ([Hidden(Ask([0, 0], "a"), None)], "must be in both worlds"),
        ([Hidden(Forget("a"), Forget("b"))], "one unit"),
        ([Hidden(Ask([0, 0]), Ask([1, 0])), Hidden(Ask([0, 0]), Ask([1, 0]))], "one unit"),
        ([Hidden(Forget("a"), None), Ask([0, 0], "a")], "is hidden"),
        ([Hidden(Load(), None)], "a Load is public"),
        ([Hidden(AskMany([[0, 0]], ["a"]), None)], "must be in both worlds"),
        ([Hidden(AskMany([[0, 0]], ["a"]), AskMany([[0, 1]], ["a"]))], "`rows` says"),
        ([Hidden(Disk(False), None)], "so is the Disk"),
        ([Hidden(Forget("a"), None), AskMany([[0, 0]], ["a"])], "is hidden"),
        ([Ask([0, 0]), Hidden(Label(1, "yes"), None)], "a label is hidden where"),
        ([Hidden(Ask([0, 0]), Ask([1, 1])), Label(1, "yes")], "a label is hidden where"),
    ],
)
def test_a_script_hides_one_unit(script: Script, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        replay(make_pop(LogisticRegression()), script)


@pytest.mark.parametrize(
    ("name", "seed", "cause"),
    [
        ("turnout", 2, "the count of unsure answers grew by 0, and 1 were to be counted"),
        ("late_shares", 1, "the count of unsure answers grew by 4, and 3 were to be counted"),
        ("memo", 19, "the copies that its poll names voted"),
        ("seats", 5, "its memory differs"),
        ("copies_monitored", 0, "which rounds the monitor counts hangs on private data"),
    ],
)
def test_mechanisms_of_somebody_who_had_not_read_this_are_caught_by_scripts_not_written_for_them(
    name: str, seed: int, cause: str
) -> None:
    make, people = strangers.MAKERS[name]
    with pytest.raises(AssertionError, match=cause):
        replay(make, worlds.Writer(seed, False, people).write(30, between=2), seed=seed)
