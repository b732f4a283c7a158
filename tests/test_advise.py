"""Advice from a public sample: a rehearsal tells what the stream will do, and nobody is asked what it has learned."""

from __future__ import annotations

import csv
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import confide
from confide.cli.app import app
from confide.learners import DecisionTree, Features
from confide.planning.guided import GuidePlan
from confide.planning.plan import Plan
from confide.runs.advising import LEARNERS, WARNING, Advice
from confide.runs.rehearsal import Guided, Sample, TooShort, guided, play, scaled, twin, votes

pytestmark = pytest.mark.claim("guide.md")

PROMISE: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-4, "rounds": 3000}


def sample(rows: int, seed: int = 0, coin: bool = False, people: int = 0) -> Sample:
    """Two numbers; the label says whether the first is large, or is a coin."""
    rng = np.random.default_rng(seed)
    xs = rng.normal(size=(rows, 2))
    ys = rng.integers(0, 2, rows) if coin else (xs[:, 0] > 0.3).astype(np.int64)
    units = tuple(f"person {i % people}" for i in range(rows)) if people else None
    return Sample(xs, ys, (0, 1), 2, units)


def copies_plan(rounds: int = 20_000, **given: Any) -> Plan:
    return Plan.tight(8.0, 1e-4, rounds, copies=600, unsure=600, polls=101, silent=rounds // 4, **given)


# --- the guide


@pytest.mark.parametrize("history", [0, 50_000])
def test_a_scaled_guide_has_the_same_labels_for_its_noise(history: int) -> None:
    plan = GuidePlan.best(1.0, 1e-6, 200_000, history=history)
    short, asked = scaled(plan, 10_000), scaled(plan, 10_000, asked=5000)
    whole = plan.rounds + plan.history
    assert (short.rounds + short.history, asked.rounds + asked.history) == (10_000, 15_000)
    assert short.history / 10_000 == pytest.approx(history / whole)
    assert short.strength == pytest.approx(plan.strength, rel=0.01)
    assert asked.strength * 10_000 / 15_000 == pytest.approx(plan.strength, rel=0.01), "only lessons count"
    assert short.step * 10_000 == pytest.approx(plan.step * whole) == pytest.approx(asked.step * 10_000)
    assert scaled(plan, whole) is plan


def test_a_short_sample_tells_what_the_long_stream_does() -> None:
    """A tenth of the rows errs as all of them do; without scaling it errs far more often.

    The rows are fixed. Over 40 runs the errors were 0.019, 0.019 and 0.080, with deviations of 0.010, 0.011 and 0.015:
    of these means they are 0.005, 0.004 and 0.005, and each bound is more than five and a half of a difference's away.
    """
    plan, few = (Plan.tight(4.0, 1e-5, rounds, guide=1.0) for rounds in (5000, 500))
    long, short = sample(5000, 1), sample(500, 2)
    real = mean_error(plan, long, 4)
    told, naive = (mean_error(one, short, 9) for one in (plan, few))
    assert real - 0.035 < told < real + 0.035 and naive > told + 0.025


def mean_error(plan: Plan, rows: Sample, runs: int) -> float:
    return sum(late_error(plan, rows) for _ in range(runs)) / runs


def late_error(plan: Plan, rows: Sample) -> float:
    assert plan.guide is not None
    return play(plan, rows, guided(plan.guide, rows), None).late_error


def test_nobody_is_asked_a_row_that_it_has_learned() -> None:
    """Coins cannot be learned, though half of the rows is taught several times over. Of rows that come twice, once in
    either half, the labels are learned: the same test would notice. The noise moves the first by 0.01."""
    plan = GuidePlan.best(8.0, 1e-4, 6000)
    coins = sample(1500, 3, coin=True)
    assert abs((guided(plan, coins).answers != coins.ys).mean() - 0.5) < 0.1
    names = np.repeat(np.arange(30), 2)
    known = np.repeat(np.random.default_rng(4).integers(0, 2, 30), 2)
    rows = [{"name": f"n{i}"} for i in np.tile(names, 25)]
    met = Sample(rows, np.tile(known, 25), (0, 1), Features(categorical={"name": 256}))
    assert (guided(plan, met).answers != met.ys).mean() < 0.3


def test_a_units_labels_past_its_cap_teach_nothing() -> None:
    """Three people, one label each: nothing is learned. With as many people as rows it is."""
    plan = GuidePlan.best(8.0, 1e-4, 2000)
    few, many = (guided(plan, sample(2000, 5, people=people)) for people in (3, 2000))
    ys = sample(2000, 5).ys
    late = slice(1000, None)
    assert (many.answers[late] != ys[late]).mean() < 0.1 < 0.25 < (few.answers[late] != ys[late]).mean()


# --- the copies


def test_votes_are_those_of_copies_with_as_many_labels_as_in_the_stream() -> None:
    plan, rows = copies_plan(), sample(2000, 6)
    counts = votes(DecisionTree(), plan, rows)
    assert counts.shape == (2000, 2) and counts[0].sum() == 0 and (counts.sum(axis=1) <= plan.polls).all()
    late = counts[1000:]
    assert (late.argmax(axis=1) == rows.ys[1000:]).mean() > 0.9


def test_no_copy_votes_on_a_row_that_it_was_taught() -> None:
    """Each knows a fifth of the rows: asked again, their votes tell the coins. Chance moves either by at most 0.01."""
    plan, coins = copies_plan(rounds=114_000), sample(1000, 7, coin=True)
    once = votes(DecisionTree(), plan, coins).argmax(axis=1) == coins.ys
    again = Sample(np.tile(coins.xs, (2, 1)), np.tile(coins.ys, 2), (0, 1), 2)
    twice = votes(DecisionTree(), plan, again).argmax(axis=1) == again.ys
    assert abs(once[250:].mean() - 0.5) < 0.07 and twice[1000:].mean() > 0.6


def test_copies_that_would_see_too_much_of_the_sample_are_not_judged() -> None:
    plan = copies_plan(rounds=300_000)
    with pytest.raises(TooShort, match="sample of at least 2,500 rows"):
        votes(DecisionTree(), plan, sample(1000))


def polls(plan: Plan, rows: Sample, right: int) -> np.ndarray[Any, Any]:
    """A poll in which so many vote for the right label, and the others for the other one."""
    counts = np.full((rows.rows, 2), plan.polls - right)
    counts[np.arange(rows.rows), rows.ys] = right
    return counts


def test_unanimous_copies_answer_every_live_round() -> None:
    plan, rows = copies_plan(guide=None), sample(2000)
    run = play(plan, rows, None, polls(plan, rows, plan.polls))
    assert run.halted is None and run.coverage["copies"] == pytest.approx(0.75, abs=0.02)
    assert run.wrong[500:].mean() < 0.02 and (run.wrong[:500] == 0.5).all(), "a coin answers in silence"


def test_unsure_answers_count_for_as_many_rounds_as_a_row_stands_for() -> None:
    plan, rows = copies_plan(guide=None), sample(2000)
    tied = np.full((2000, 2), plan.polls // 2)
    run = play(plan, rows, None, tied)
    # Ten rounds a row: 600 unsure answers are used up after 60 rows, which follow 500 silent ones.
    assert run.halted == pytest.approx(560 / 2000, abs=1e-9) and run.unsure == 1.0


def test_the_lean_answers_where_the_copies_are_unsure() -> None:
    rows = sample(2000)
    leaning, plain = copies_plan(lean="fill"), copies_plan(lean=None)
    guide = Guided(1 - rows.ys, np.zeros((2000, 1)))  # always wrong, and without an opinion
    some = polls(leaning, rows, 60)
    with_lean, without = (play(plan, rows, guide, some) for plan in (leaning, plain))
    assert with_lean.coverage["lean"] > 0 == without.coverage["lean"]
    at = with_lean.source == 2
    assert with_lean.wrong[at].mean() < 0.5, "it follows the votes"
    assert without.wrong[500:][without.source[500:] == 1].all(), "and without one the guide answers"


def test_a_person_who_was_unsure_is_answered_by_the_guide() -> None:
    plan, rows = copies_plan(units="people", guide=0.5), sample(2000, people=4)
    tied = np.full((2000, 2), plan.polls // 2)
    run = play(plan, rows, Guided(rows.ys, np.zeros((2000, 1))), tied)
    assert run.halted is None and run.coverage["guide"] == 1 and run.error == 0
    assert play(plan, sample(2000), Guided(rows.ys, np.zeros((2000, 1))), tied).halted is not None


def test_history_is_taught_and_not_judged() -> None:
    plan = Plan.tight(8.0, 1e-4, 3000, guide=1.0, history=1000)
    rows = sample(2000)
    assert play(plan, rows, Guided(rows.ys, np.zeros((2000, 1))), None).wrong.size == 1500


def test_the_twin_sees_everything() -> None:
    assert twin(DecisionTree(), sample(2000)).late_error < 0.05 and twin(None, sample(3000)).late_error < 0.1


# --- the advice


@pytest.fixture(scope="module")
def advice() -> Advice:
    rows = sample(1000)
    return confide.advise(rows.xs, rows.ys, **PROMISE, learners=["trees"])


def test_advice_is_a_plan_that_keeps_the_promise(advice: Advice) -> None:
    assert advice.plan.verify().epsilon <= 8.0 and advice.plan.rounds == 3000 and advice.plan.units == "rounds"
    assert eval(advice.call, {"confide": confide}) == advice.plan
    assert advice.chosen in advice.table and advice.table[0].name == "the guide alone"
    private = [one for one in advice.table if one.plan is not None]
    assert private == list(advice.table[: len(private)]) and len(advice.table) == len(private) + 3
    assert (advice.learner is None) == (advice.plan.copies == 0)


def test_advice_says_what_it_must(advice: Advice) -> None:
    text = advice.explain()
    assert text == str(advice) and text.startswith(WARNING) and "never protected data" in WARNING
    for said in (advice.call, "1,000 rows of the sample stood for the 3,000", "Expect about", "with twice ε"):
        assert said in text
    rounds, epsilon = advice.changes
    assert rounds.plan is not None and epsilon.plan is not None
    assert rounds.plan.rounds == 6000 and epsilon.plan.guarantee.epsilon == pytest.approx(16, rel=0.01)


def test_what_is_not_clearly_better_than_the_guide_is_not_proposed(advice: Advice) -> None:
    """Nor is anything called good that does no better than a constant."""
    alone = advice.table[0]
    if advice.chosen is not alone:
        gain = alone.run.wrong - advice.chosen.run.wrong
        assert gain.mean() > 2 * gain.std() / np.sqrt(gain.size)
    coins = sample(600, 9, coin=True)
    poor = confide.advise(coins.xs, coins.ys, **PROMISE, learners=[])
    assert poor.chosen is poor.table[0] and "not clearly better than always saying" in poor.explain()
    assert "not clearly better" not in advice.explain()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"labels": [0, 1]}, "one label"),
        ({"rows": [{"a": 1.0}] * 1000}, "features="),
        ({"rows": np.zeros((20, 2)), "labels": [0, 1] * 10}, "at least 500 rows"),
        ({"units": ["a"]}, "one unit"),
        ({"learners": ["jungle"]}, "no learner is called"),
        ({"epsilon": -1.0}, "epsilon"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_cannot_be_advised_on_is_refused_in_a_sentence(change: dict[str, Any], word: str) -> None:
    rows = sample(1000)
    with pytest.raises(ValueError, match=word) as caught:
        confide.advise(**{"rows": rows.xs, "labels": rows.ys, **PROMISE, "learners": ["trees"], **change})
    assert "\n" not in str(caught.value)


# --- the command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("advise")
    for name, rows, seed in (("sample.csv", 1000, 1), ("real.csv", 3000, 2)):
        rng = np.random.default_rng(seed)
        with open(path / name, "w", newline="", encoding="utf-8") as file:
            out = csv.writer(file)
            out.writerow(["age", "city", "outcome"])
            for age in rng.integers(18, 90, rows).tolist():
                out.writerow([age, f"city {age % 5}", "yes" if age > 50 else "no"])
    return path


def command(folder: Path, *words: str) -> Any:
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})


def test_the_command_proposes_a_plan_that_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    asked = ("-e", "8", "-d", "1e-4", "-T", "3000", "--learner", "trees")
    done = command(folder, "advise", "sample.csv", "--public", *asked)
    assert done.exit_code == 0, done.output
    out = " ".join(done.output.split())
    assert WARNING in out
    plan = Plan.from_json(folder / "confide-plan.json")
    assert plan.rounds == 3000 and plan.guarantee.epsilon <= 8
    page = (folder / "confide-advice.html").read_text(encoding="utf-8")
    assert "always the most frequent label" in page and "the guide alone, twice ε" in page  # no terminal cuts it short
    assert page.count("<svg") == 1 and page.index("never protected data") < page.index("<main>")
    assert not re.findall(r"(?:src|href)=\"(?!#)|@import", page) and "confide.Plan.tight(" in page
    said = re.search(r"To run it: confide (run .*)", done.output)
    assert said is not None and "--public sample.csv" in said[1] and "--plan confide-plan.json" in said[1]
    run = command(folder, *shlex.split(said[1].replace("YOUR.csv", "real.csv")), "--no-twin")
    assert run.exit_code == 0, run.output


@pytest.mark.parametrize("words", [["sample.csv"], ["missing.csv", "-T", "5000"]], ids=str)
def test_without_a_word_that_it_is_public_no_file_is_touched(
    folder: Path, words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    done = command(folder, "advise", *words)
    assert isinstance(done.exception, ValueError) and "--public" in str(done.exception)
    assert "\n" not in str(done.exception) and not list(tmp_path.iterdir())


def test_the_commands_help_begins_with_the_warning(folder: Path) -> None:
    text = " ".join(command(folder, "advise", "--help").output.split())
    usage, _, rest = text.partition("NEVER for protected data")
    assert rest and "--epsilon" not in usage and "a plan is public" in rest
    assert all(name in text for name in LEARNERS)


def test_the_rounds_of_the_real_stream_are_asked_for(folder: Path) -> None:
    done = command(folder, "advise", str(folder / "sample.csv"), "--public")
    assert isinstance(done.exception, ValueError) and "--rounds" in str(done.exception)


# --- its page


def test_the_page_of_planning_warns_before_it_shows() -> None:
    page = (Path(__file__).parent.parent / "docs" / "planning.md").read_text(encoding="utf-8")
    assert page.index("Never on protected data") < page.index("confide advise sample.csv")
