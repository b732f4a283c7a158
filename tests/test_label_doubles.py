"""Labels alone: two worlds see the same to the last bit, every double is caught with its cause, the auditor finds ε."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from confide.games import audit
from confide.pop.loop import Loop
from confide.pop.randomizing import Randomizing
from tests.broken import labels as broken
from tests.label_pops import LABELS, Asker, Last, Listening, alone, part
from tests.label_worlds import Step, violated

pytestmark = pytest.mark.claim("labels.md")

ASK = Step("ask")
HIDDEN = ("yes", "no")


def brought(n: int = 70, challenged: int = 3) -> list[Step]:
    """Each label comes at once, the challenged one a little later, and a used ticket comes again."""
    script: list[Step] = []
    for i in range(n):
        label = LABELS[i % 2]
        script += [ASK, Step("label", i, HIDDEN if i == challenged else (label, label))]
    return [*script, Step("label", challenged, HIDDEN), ASK]


RETRIED = [ASK, *[Step("label", 0, HIDDEN, disk_full=True)] * 3, Step("label", 0, HIDDEN), ASK]
LATE = [ASK, Step("label", 0, ("yes", None)), ASK, ASK]
DUE = [*LATE, ASK, ASK]
"""In one world the label comes, in the other it does not."""


def make(learner: Any = None, **options: Any) -> Any:
    return lambda: alone(learner, seed=1, **options)


SCRIPTS = {"brought": brought(), "brought again": RETRIED}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
@pytest.mark.parametrize(
    "learner", [None, GaussianNB(), DecisionTreeClassifier(), Last()], ids=lambda one: type(one).__name__
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_two_worlds_are_the_same(
    learner: Any, script: list[Step], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert violated(make(learner), script, tmp_path, monkeypatch) == ""


def test_with_a_deadline_they_are_the_same_where_a_label_comes_in_one_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert violated(make(Last(), due=(3, "no")), DUE, tmp_path, monkeypatch) == ""


def test_without_a_deadline_one_sided_labels_protect_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page says so: the same script without a deadline differs at once."""
    assert "differs" in violated(make(Last()), LATE, tmp_path, monkeypatch)


DOUBLES: list[tuple[type[Randomizing] | type[Loop], Any, list[Step], str]] = [
    (broken.AnewAtRetry, Last(), RETRIED, "drawn for twice"),
    (broken.WeightSawTruth, Listening(), brought(), "what the model knows|an answer|a file"),
    (broken.OnlyWhenItCame, Last(), DUE, "what the model knows|an answer"),
    (broken.TaughtBeforeDeadline, Last(), LATE, "what the model knows"),
    (broken.TruthInJournal, Last(), brought(), "a file"),
    (broken.RefitByLabel, DecisionTreeClassifier(), brought(), "when it was fitted|what the model knows"),
    (broken.ErrorQuotes, Last(), brought(), "a message"),
]


@pytest.mark.parametrize(("kind", "learner", "script", "cause"), DOUBLES, ids=[d[0].__name__ for d in DOUBLES])
def test_every_double_is_caught_with_its_cause(
    kind: Any, learner: Any, script: list[Step], cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"loop": kind} if issubclass(kind, Loop) else {"runs": kind}
    due = {"due": (3, "no")} if script in (DUE, LATE) else {}
    said = violated(make(learner, **options, **due), script, tmp_path, monkeypatch)
    assert any(one in said for one in cause.split("|")), said


def test_every_double_is_here_and_says_what_is_broken() -> None:
    elsewhere = {"CountedAfterWriting"}  # tests/test_label_attacks.py interrupts it
    assert {d[0].__name__ for d in DOUBLES} | elsewhere == set(broken.__all__)
    assert all(getattr(broken, name).__doc__ for name in broken.__all__)


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_the_auditor_reaches_the_exact_advantage(epsilon: float) -> None:
    """Of (e^ε − 1)/(e^ε + 1) all but the statistical error, and no alarm (at level 10⁻⁶).

    The report's is a lower bound, some 2.6 deviations below what was seen; 5 more are missed once in 10⁶ runs.
    """
    promised = alone(Last(), epsilon=epsilon)
    games = 2500
    report = audit(
        lambda: alone(Last(), epsilon=epsilon),
        Asker(part(promised).part.response),
        games=games,
        certificate=(promised.guarantee.epsilon, 1e-9),
    )
    exact = math.expm1(epsilon) / (math.exp(epsilon) + 1)
    assert not report.alarm, str(report)
    assert report.advantage > exact - 8 * math.sqrt(0.5 / games)
