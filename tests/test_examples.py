"""The examples run, and say what their pages say."""

import importlib.util
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from confide.privacy.random import Random

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def examples() -> Iterator[Path]:
    """The examples' folder, from which they import what they share, as it is when one of them is run."""
    before = set(sys.modules)
    sys.path.insert(0, str(EXAMPLES))
    yield EXAMPLES
    sys.path.remove(str(EXAMPLES))
    for name in (set(sys.modules) - before) & {"story", "water", "pictures"}:
        del sys.modules[name]


@pytest.fixture(scope="module")
def story(examples: Path) -> ModuleType:
    return load("story")


@pytest.fixture(scope="module")
def water(examples: Path) -> ModuleType:
    return load("water")


def test_the_story_in_its_quick_form(story: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare, confided = story.main(["--quick", "--picture", str(tmp_path / "story.svg")])
    assert bare.right.all() and bare.pairs == 10  # read off within the first questions
    # At the certified rate of 55.6 %, 29 of 30 right guesses come with probability 6e-7.
    assert confided.right.size == 30 and confided.right.sum() <= 28
    assert confided.pairs > 100  # it was asked until it halted
    assert confided.error < 0.1
    picture = (tmp_path / "story.svg").read_text(encoding="utf-8")
    assert "right guesses of the secret label, 30 games each" in picture  # text stays text
    assert "unprotected" in capsys.readouterr().out


def test_the_story_has_the_right_intervals(story: ModuleType) -> None:
    world = story.World(1.0, 1600, 0.7311, 0.5554, np.array([True] * 60 + [False] * 40), np.zeros(1), 1.0, 0.0)
    low, high = world.interval
    assert low < 0.6 < high
    assert sum(chance(i, low) for i in range(60, 101)) == pytest.approx(0.005)
    assert sum(chance(i, high) for i in range(61)) == pytest.approx(0.005)


def chance(hits: int, rate: float) -> float:
    return math.comb(100, hits) * rate**hits * (1 - rate) ** (100 - hits)


def test_the_water_in_its_quick_form(water: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = water.main(["--quick", "--picture", str(tmp_path / "water.svg")])  # raises if its own check fails
    assert [one.wrong for one in outcomes] == [0, 0]  # whoever is told is told the truth
    for one in outcomes:
        near, far = one.distance < 5, one.distance > 600
        assert one.told[near].mean() < 0.5 < one.told[far].mean() or one.halted
    out = capsys.readouterr().out
    assert "exact reports" in out and "broken" in out
    assert "right reports, with a coin" in (tmp_path / "water.svg").read_text(encoding="utf-8")


def test_everybody_else_is_one_vote(water: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    litres = np.array([5.0, 1.0, 3.0, 3.0])
    assert water.votes(litres) == [(0, 3), (3, 0), (1, 1), (1, 1)]  # equal meters vote for neither
    assert all(water.one_vote(litres, i, other) for i in range(4) for other in (0.0, 3.0, 9.0))
    real = water.votes
    monkeypatch.setattr(water, "votes", lambda these: [(2 * more, 2 * less) for more, less in real(these)])
    assert not water.one_vote(litres, 0, 0.0)  # two votes are noticed


def test_the_water_report_ends_with_its_budget(water: ModuleType) -> None:
    plan = water.make_plan(8.0, 4000)
    answers = water.report(np.ones(4000), plan, Random())  # all alike: every vote is a tie, and nobody is told
    assert len(answers) <= plan.halting.stop and answers == [None] * len(answers)


def test_the_private_median_is_a_distribution(water: ModuleType) -> None:
    litres = np.arange(10.0, 1010.0)
    right = water.median_rates(litres, 1.0)
    assert ((right >= 0) & (right <= 1)).all()
    assert right[0] > 0.999 and right[-1] > 0.999 and 0.3 < right[499] < 0.9
