"""The run loop: what is counted, when labels come, that no row decides for others, and that none is asked twice."""

import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from river import naive_bayes
from typer.testing import CliRunner

from confide import POP, Plan
from confide.cli.app import app
from confide.data.datasets import open_stream
from confide.data.files import open_file
from confide.data.layout import Column
from confide.data.rows import BadRow, Item, Row, Stream
from confide.data.schema import Schema
from confide.learners import DecisionTree, Features
from confide.planning.guided import GuidePlan
from confide.runs import runner, work
from confide.runs.asking import ask_and_teach, ask_only
from confide.runs.checkpoints import read_run, write_private
from confide.runs.runner import Hooks
from confide.runs.settings import Settings
from confide.runs.tally import Tally

ROUNDS, SILENT = 3000, 2000
LEARNER = DecisionTree(memory=64)
ALONE = Settings(twin=False)


def easy(rows: int, seed: int = 0) -> Stream:
    """Two clusters that any copy tells apart after a few records; no two rows are the same."""

    def source(dicts: bool) -> Iterator[Item]:
        rng = np.random.default_rng(seed)
        for y, noise in zip(rng.integers(0, 2, rows).tolist(), rng.random((rows, 2)), strict=True):
            x = np.array([10 * y, 0]) + noise
            yield Row(dict(enumerate(x.tolist())) if dicts else x, y)

    return Stream("easy", (0, 1), (0, 1), 2, source, rows)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan.tight(8.0, 1e-4, ROUNDS, copies=120, unsure=100, silent=SILENT, beta=1e-6, guide=None)


@pytest.fixture(scope="module")
def stream() -> Stream:
    return easy(ROUNDS)


Asked = list[tuple[str | None, float | None]]


def first(x: Any) -> float:
    return float(next(iter(x.values())) if isinstance(x, dict) else x[0])


def listen(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Whose each question was that is asked from now on, and its first number: it tells the rows apart."""
    heard: Asked = []

    def note(rows: Sequence[Item], rounds: int) -> None:
        heard.extend((row.unit, None if row.x is None else first(row.x)) for row in rows[:rounds])

    def at_once(pop: POP, rows: Sequence[Item], right: Any) -> Any:
        shown = ask_and_teach(pop, rows, right)
        note(rows, shown.rounds)
        return shown

    def alone(pop: POP, rows: Sequence[Item]) -> Any:
        shown, tickets = ask_only(pop, rows)
        note(rows, shown.rounds)
        return shown, tickets

    monkeypatch.setattr(work, "ask_and_teach", at_once)
    monkeypatch.setattr(work, "ask_only", alone)
    return heard


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return listen(monkeypatch)


def firsts(stream: Stream) -> Asked:
    return [(row.unit, float(row.x[0])) for row in stream.rows() if isinstance(row, Row)]


def spoiled(stream: Stream, *lines: int) -> Stream:
    """The stream with these rows unreadable, each still its unit's."""

    def source(dicts: bool) -> Iterator[Item]:
        for line, item in enumerate(stream.rows(dicts), 1):
            yield BadRow(line, "it is bad", None, item.y, item.unit) if line in lines else item

    return replace(stream, source=source)


def peopled(stream: Stream, people: int) -> Stream:
    """The same rows, in turn of so many people."""

    def source(dicts: bool) -> Iterator[Item]:
        for i, row in enumerate(stream.rows(dicts)):
            yield Row(row.x, row.y, f"person {i % people}")

    return replace(stream, source=source)


def interrupt_at(rounds: int) -> Hooks:
    def progress(pop: POP, tally: Tally) -> None:
        if tally.rounds == rounds:
            signal.raise_signal(signal.SIGINT)

    return Hooks(progress)


def test_everything_is_counted(plan: Plan, stream: Stream) -> None:
    outcome = runner.run(stream, LEARNER, plan)
    tally = outcome.tally
    assert (tally.rounds, tally.live, tally.position, tally.bad) == (ROUNDS, ROUNDS - SILENT, ROUNDS, 0)
    assert sum(tally.margins.values()) == tally.live and sum(map(sum, tally.confusion)) == ROUNDS
    silent = tally.sources["fallback"][0] - tally.unsure
    assert silent == SILENT and tally.unsure == outcome.pop.operator.unsure
    assert tally.sources.keys() == {"fallback", "copies"} and sum(n for n, *_ in tally.sources.values()) == ROUNDS
    assert tally.wrong == tally.confusion[0][1] + tally.confusion[1][0] == sum(n for _, n, _ in tally.sources.values())
    assert tally.live_wrong < tally.wrong and tally.sources["copies"][1] <= tally.live_wrong
    assert tally.curve_rounds[-1] == ROUNDS and tally.curve_wrong[-1] == tally.wrong
    assert tally.curve_twin[-1] == tally.twin_wrong < 0.05 * ROUNDS
    assert tally.guided == 0 and tally.guide_wrong == ROUNDS and tally.halted_at is None
    for curve in (tally.curve_rounds, tally.curve_wrong, tally.curve_twin, tally.curve_unsure):
        assert curve == sorted(curve)
    assert outcome.pop.operator.taught == ROUNDS


@pytest.mark.parametrize("delay", [0, 30], ids=["labels at once", "labels late"])
def test_rows_that_take_long_move_no_others_labels(delay: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, sums = [0.0], []
    monkeypatch.setattr(work.time, "perf_counter", lambda: clock[0])
    for slow in ((), range(100, 140)):

        def source(dicts: bool, slow: Sequence[int] = slow) -> Iterator[Item]:
            for number, row in enumerate(easy(1000).rows(dicts)):
                clock[0] += number in slow
                yield row

        settings = Settings(twin=False, delay=delay, seed=1)
        outcome = runner.run(replace(easy(1000), source=source), None, Plan.tight(4.0, 1e-4, 1000), settings)
        guiding = outcome.pop.operator.loop.guiding
        assert guiding is not None
        sums.append([release.exact.tolist() for release in guiding.guide.releases()])
    assert len(sums[0]) > 10 and sums[0] == sums[1]


@pytest.mark.parametrize("delay", [0, 30], ids=["labels at once", "labels late"])
def test_a_guide_alone_answers_every_row_and_is_counted(delay: int) -> None:
    plan = Plan.tight(8.0, 1e-4, 6000)
    outcome = runner.run(easy(6000), None, plan, Settings(delay=delay))
    tally = outcome.tally
    assert plan.copies == 0 and tally.rounds == 6000 and tally.live == tally.unsure == 0 and not tally.margins
    assert tally.sources.keys() == {"fallback", "guide"} and tally.sources["guide"][0] == tally.guided > 5000
    assert tally.late_error < 0.05 and tally.late(tally.curve_guide) < 0.05 and tally.guide_error < 0.1
    assert tally.late(tally.curve_twin) < 0.01 and "without noise" in outcome.twin
    assert not outcome.out_of_budget and tally.wrong == sum(n for _, n, _ in tally.sources.values())


def noisy(rows: int) -> Stream:
    """Nothing to learn: copies disagree."""

    def source(dicts: bool) -> Iterator[Item]:
        rng = np.random.default_rng(4)
        for y, x in zip(rng.integers(0, 2, rows).tolist(), rng.random((rows, 2)), strict=True):
            yield Row(dict(enumerate(x.tolist())) if dicts else x, y)

    return Stream("noisy", (0, 1), (0, 1), 2, source, rows)


@pytest.mark.parametrize("guide", ["auto", None], ids=["with a guide", "without"])
@pytest.mark.parametrize("delay", [0, 30], ids=["labels at once", "labels late"])
def test_after_a_halt_every_row_is_still_answered(guide: Any, delay: int) -> None:
    plan = Plan.tight(8.0, 1e-4, ROUNDS, copies=120, unsure=100, silent=1000, beta=1e-6, guide=guide)
    outcome = runner.run(noisy(ROUNDS), LEARNER, plan, Settings(twin=False, delay=delay))
    tally = outcome.tally
    assert outcome.out_of_budget and tally.rounds == outcome.pop.rounds == ROUNDS
    assert tally.halted_at is not None and 1000 < tally.halted_at < ROUNDS and tally.live == tally.halted_at - 1000
    assert outcome.unanswered == (guide is None) and ("guide" in tally.sources) == (guide is not None)
    assert sum(n for n, *_ in tally.sources.values()) == ROUNDS


def test_labels_come_as_late_as_said(plan: Plan, stream: Stream) -> None:
    taught: dict[int, int] = {}

    def progress(pop: POP, tally: Tally) -> None:
        taught.setdefault(tally.rounds, pop.operator.taught)

    late = Settings(twin=False, delay=70)
    outcome = runner.run(spoiled(stream, 2950), LEARNER, plan, late, hooks=Hooks(progress))
    assert {rounds: taught[rounds] for rounds in (1000, 2000, 3000)} == {1000: 930, 2000: 1930, 3000: 2930}
    assert outcome.pop.operator.taught == ROUNDS - 1
    assert all(rounds - late.latest <= number <= rounds - 70 for rounds, number in taught.items() if rounds > 100)
    assert outcome.tally.twin_wrong == 0 and outcome.tally.refused == 1


@pytest.mark.parametrize("twin", [True, False])
def test_a_run_in_smaller_batches_tallies_the_same(
    plan: Plan, stream: Stream, twin: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(twin=twin, seed=5)
    large = runner.run(spoiled(stream, 40, 41, 2500), LEARNER, plan, settings)
    monkeypatch.setattr(work, "BATCH", 25)
    small = runner.run(spoiled(stream, 40, 41, 2500), LEARNER, plan, settings)
    assert replace(large.tally, seconds=0.0) == replace(small.tally, seconds=0.0)


# ---------------------------------------------------------------------- bad rows

SPOILS = {
    "a number that is none": "1e99,1.5,p7,Y",
    "a field too many": "5,1.5,p7,Y,more",
    "a field too few": "5,1.5,p7",
    "an unknown label": "5,1.5,p7,Q",
    "no label": "5,1.5,p7,",
    "a long text": f"5,{'z' * 200_000},p7,Y",
}


@pytest.mark.parametrize("delay", [0, 30], ids=["labels at once", "labels late"])
@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS.keys())
def test_one_persons_row_decides_no_others_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: str, delay: int
) -> None:
    """Two worlds: a file, and the same one with a row of one person unreadable. All others' rounds are the same."""
    plan = Plan.tight(8.0, 1e-4, 600, copies=120, unsure=50, silent=300, beta=1e-6, guide=None)
    rows = ["n,m,who,y"] + [f"{i % 10},1.5,p{i % 40},{'NY'[i % 10 > 4]}" for i in range(600)]
    worlds = []
    for lines in ((), (8, 568)):
        for line in lines:
            rows[line] = spoil
        (tmp_path / "a.csv").write_text("\n".join(rows) + "\n")
        stream = open_file(tmp_path / "a.csv", labels=["N", "Y"], unit="who")
        asked = listen(monkeypatch)
        settings = Settings("a.csv", unit="who", delay=delay, monitor=0.5, twin=False, seed=2)
        outcome = runner.run(stream, LEARNER, plan, settings)
        assert outcome.pop.monitor is not None
        ticks = outcome.pop.monitor.estimate and outcome.pop.monitor.estimate.rounds
        others = [(number, row) for number, row in enumerate(asked) if row[0] != "p7"]
        worlds.append((outcome.pop.rounds, outcome.pop.state, ticks, [who for who, _ in asked], others))
    assert worlds[0] == worlds[1] and worlds[0][0] == 600


@pytest.mark.parametrize("delay", [0, 30], ids=["labels at once", "labels late"])
def test_with_a_guide_too_one_persons_row_decides_no_others_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delay: int
) -> None:
    plan = Plan.tight(8.0, 1e-4, 2000, units="people")
    rows = ["n,m,who,y"] + [f"{i % 10},1.5,{100 + i % 40},{'NY'[i % 10 > 4]}" for i in range(2000)]
    worlds = []
    for spoils in ((), tuple(SPOILS.values())):
        for number, spoil in enumerate(spoils):
            rows[8 + 320 * number] = spoil.replace("p7", "107")
        (tmp_path / "a.csv").write_text("\n".join(rows) + "\n")
        stream = open_file(tmp_path / "a.csv", labels=["N", "Y"], unit="who")
        asked = listen(monkeypatch)
        settings = Settings("a.csv", unit="who", delay=delay, twin=False, seed=2)
        outcome = runner.run(stream, None, plan, settings)
        assert outcome.pop.guide is not None
        others = [(number, row) for number, row in enumerate(asked) if row[0] != "107"]
        public = (outcome.pop.rounds, outcome.pop.state, outcome.pop.guide.released)
        worlds.append((*public, [who for who, _ in asked], others))
    assert plan.copies == 0 and worlds[0] == worlds[1] and worlds[0][0] == 2000


def test_a_bad_row_takes_its_round_and_counts_as_wrong(plan: Plan, stream: Stream, asked: Asked) -> None:
    outcome = runner.run(spoiled(stream, 5, 2500), LEARNER, plan)
    tally = outcome.tally
    assert (tally.refused, tally.bad, tally.first_bad) == (2, 2, [[5, "it is bad"], [2500, "it is bad"]])
    assert tally.rounds == ROUNDS == len(asked) and asked[4] == asked[2499] == (None, None)
    assert min(tally.wrong, tally.twin_wrong) >= 2 and sum(map(sum, tally.confusion)) == tally.rounds
    assert sum(row[-1] for row in tally.confusion) == 2
    assert outcome.pop.operator.taught == ROUNDS - 2


def test_a_row_of_nobody_takes_no_round(plan: Plan, stream: Stream, asked: Asked) -> None:
    def source(dicts: bool) -> Iterator[Item]:
        for i, row in enumerate(peopled(stream, 9).rows(dicts)):
            yield BadRow(i + 1, "its unit is missing") if i in (3, 2500) else row

    nameless = replace(stream, source=source)
    outcome = runner.run(nameless, LEARNER, plan, Settings(unit="who", twin=False))
    assert outcome.tally.nobodys == outcome.tally.bad == 2 and outcome.pop.rounds == ROUNDS - 2
    assert asked == [row for i, row in enumerate(firsts(peopled(stream, 9))) if i not in (3, 2500)]


def test_strict_refuses_a_bad_row_before_anything_is_asked(plan: Plan, stream: Stream, asked: Asked) -> None:
    with pytest.raises(ValueError, match="line 17 of easy is bad"):
        runner.run(spoiled(stream, 17, 30), LEARNER, plan, Settings(strict=True))
    assert not asked


def test_a_stream_that_does_not_fit_the_learner_is_refused_at_once(plan: Plan, asked: Asked) -> None:
    def source(dicts: bool) -> Iterator[Item]:
        return (Row({"city": "Rome"}, i % 2) for i in range(ROUNDS))

    texts = Stream("texts", (0, 1), ("city",), 1, source, ROUNDS)
    with pytest.raises(ValueError, match="none of the first 128 rows of texts fits the learner") as caught:
        runner.run(texts, Features(numeric=["city"]) | LEARNER, plan, ALONE)
    assert not asked and "Rome" not in str(caught.value)


def test_rows_that_do_not_fit_the_learner_are_refused_one_by_one(plan: Plan) -> None:
    def source(dicts: bool) -> Iterator[Item]:
        for i in range(ROUNDS):
            yield Row({"n": "two" if i >= 2990 else float(i % 10)}, int(i % 10 > 4))

    mixed = Stream("mixed", (0, 1), ("n",), 1, source, ROUNDS)
    tally = runner.run(mixed, Features(numeric=["n"]) | LEARNER, plan).tally
    assert (tally.rounds, tally.refused) == (ROUNDS, 10) and tally.first_bad[0] == [2991, work.MISFIT]
    assert tally.wrong >= 10 and tally.twin_wrong >= 10


# ---------------------------------------------------------------------- history, people, learners


def test_history_replaces_the_silent_start(stream: Stream) -> None:
    plan = Plan.tight(8.0, 1e-4, 1000, copies=120, unsure=100, silent=0, beta=1e-6, guide=None)
    history = easy(3000, seed=5)
    taught = runner.run(stream, LEARNER, plan, ALONE, history=spoiled(history, 9))
    untaught = runner.run(stream, LEARNER, plan, ALONE)
    assert (taught.tally.taught_before, taught.tally.history_bad, taught.tally.live) == (2999, 1, 1000)
    assert taught.tally.bad == 0 and "in the history" in taught.tally.first_bad[0][1]
    assert taught.tally.live_error < 0.1 < untaught.tally.live_error


class Remembers:
    """Warns of whatever it is taught."""

    labels = 2

    def predict(self, x: Any) -> None:
        return None

    def learn(self, x: Any, y: int) -> None:
        warnings.warn(f"a private {x[0]}", stacklevel=2)


def test_people_keep_one_copy_each_and_a_warning_is_said_once(stream: Stream) -> None:
    plan = Plan.tight(8.0, 1e-4, 400, copies=100, unsure=50, silent=350, beta=1e-6, guide=None)
    said: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        settings = Settings(unit="who", twin=False)
        outcome = runner.run(peopled(stream, 7), Remembers(), plan, settings, hooks=Hooks(say=said.append))
    assert outcome.pop.units == "people" and 1 <= len(outcome.pop.operator.bank._replicas) <= 7  # type: ignore[attr-defined]
    assert len(said) <= 1 and "private" not in "".join(said)


def test_rivers_learners_get_dicts() -> None:
    plan = Plan.tight(20.0, 1e-2, 200, copies=40, unsure=20, silent=180, beta=1e-6, guide=None)
    outcome = runner.run(easy(200), naive_bayes.GaussianNB(), plan)
    assert outcome.tally.rounds == 200 and outcome.pop.operator.taught == 200


# ---------------------------------------------------------------------- stopping and going on


def test_an_interrupt_leaves_a_checkpoint_and_resume_asks_the_rest(
    plan: Plan, stream: Stream, asked: Asked, tmp_path: Path
) -> None:
    late = Settings(delay=40)
    first = runner.run(stream, LEARNER, plan, late, rescue=tmp_path / "s", hooks=interrupt_at(1000))
    assert first.interrupted and first.folder == tmp_path / "s" and len(asked) == 1000
    assert len(read_run(tmp_path / "s").waiting) == 40
    second = runner.resume(tmp_path / "s", stream, LEARNER)
    assert not second.interrupted and asked == firsts(stream) and second.settings == late
    assert (second.tally.rounds, second.tally.live) == (ROUNDS, ROUNDS - SILENT)
    assert second.pop.operator.taught == ROUNDS, "labels that were waiting are taught after the resume"
    assert second.tally.twin_wrong < 0.05 * ROUNDS, "the twin has caught up"


def test_an_interrupted_guide_goes_on_where_it_stood(asked: Asked, tmp_path: Path) -> None:
    stream, plan = easy(6000), Plan.tight(8.0, 1e-4, 6000)
    first = runner.run(stream, None, plan, rescue=tmp_path / "s", hooks=interrupt_at(3000))
    assert first.interrupted and len(asked) == 3000 and first.pop.guide is not None
    second = runner.resume(tmp_path / "s", stream, LEARNER)
    assert asked == firsts(stream) and second.tally.rounds == 6000 and second.pop.guide is not None
    assert second.pop.guide.released > first.pop.guide.released > 0 and second.tally.late_error < 0.05
    assert second.tally.late(second.tally.curve_twin) < 0.05


def test_history_teaches_the_guide_before_the_first_round() -> None:
    plan = Plan.tight(8.0, 1e-4, 1000, history=6000)
    history = spoiled(easy(6000, seed=5), 9)
    taught = runner.run(easy(1000), None, plan, ALONE, history=history)
    assert (taught.tally.taught_before, taught.tally.history_bad) == (5999, 1)
    assert taught.tally.sources["guide"][0] == 1000 and taught.tally.error < 0.05


HISTORY = {"unreadable x": "1e999,1.5,N", "no label": "3,1.5,", "unknown label": "3,1.5,maybe", "too few fields": "3"}


@pytest.mark.parametrize("bad", HISTORY.values(), ids=HISTORY)
def test_a_bad_record_of_the_history_takes_its_row_and_moves_no_other(tmp_path: Path, bad: str) -> None:
    """Which rows are in which leaf: the last number of a sum counts labels, and nothing else of a row."""
    plan = Plan.tight(8.0, 1e-4, 500, history=900)
    guide = GuidePlan.best(7.9, 1e-4, 500, history=900, private_ranges=False)
    schema = Schema((Column("n", "number", 0.0, 10.0), Column("m", "number", 0.0, 3.0)), labels=("N", "Y"))
    rows, sums, rounds = [f"{i % 10},{i % 7 / 3},{'NY'[i * i % 10 > 4]}" for i in range(1400)], [], set()
    for record in (rows[300], bad):
        for name, lines in (("old", [*rows[:300], record, *rows[301:900]]), ("new", rows[900:])):
            (tmp_path / f"{name}.csv").write_text("\n".join(["n,m,y", *lines]) + "\n")
        old, new = (open_file(tmp_path / f"{name}.csv", schema=schema) for name in ("old", "new"))
        outcome = runner.run(new, None, plan.but(guide=guide), Settings(seed=2, twin=False), history=old)
        guiding = outcome.pop.operator.loop.guiding
        assert guiding is not None
        sums.append([int(release.exact[-1]) for release in guiding.guide.releases()])
        rounds.add((guiding.guide.rounds, outcome.pop.operator.loop.account.history))
        assert outcome.tally.taught_before + outcome.tally.history_bad == 900
    assert rounds == {(1400, 900)} and len(sums[0]) > 50
    apart = [leaf for leaf, (one, other) in enumerate(zip(*sums, strict=True)) if one != other]
    assert apart == [sum(end <= 300 for end in guide.main.ends)]


CRASH = """
import os, sys
from pathlib import Path
from confide import Plan
from confide.data.datasets import open_stream
from confide.learners import DecisionTree
from confide.runs import runner, work
from confide.runs.settings import Settings

plan = Plan.tight(8.0, 1e-4, 3000, copies=120, unsure=100, silent=2000, beta=1e-6)

def crash(pop, tally):
    if tally.rounds == 1000:
        os._exit(9)

runner.run(open_stream("agrawal", rows=3000), DecisionTree(memory=64), plan, Settings(twin=False),
           state=Path(sys.argv[1]), hooks=runner.Hooks(crash))
"""


def test_after_a_crash_no_row_is_asked_twice(asked: Asked, tmp_path: Path) -> None:
    """Nor is any left out: the ledger has each round before its answer, so its rounds say which row is next."""
    died = subprocess.run([sys.executable, "-c", CRASH, str(tmp_path / "s")], timeout=120)
    assert died.returncode == 9
    stream = open_stream("agrawal", rows=ROUNDS)
    outcome = runner.resume(tmp_path / "s", stream, LEARNER)
    assert asked == firsts(stream)[1000:]
    assert outcome.tally.rounds == len(asked), "what a crash lost is not counted"


def test_a_folder_in_use_or_of_another_stream_is_refused(plan: Plan, stream: Stream, tmp_path: Path) -> None:
    runner.run(stream, LEARNER, plan, ALONE, rescue=tmp_path / "s", hooks=interrupt_at(1000))
    with pytest.raises(ValueError, match="is not empty"):
        runner.run(stream, LEARNER, plan, state=tmp_path / "s")
    with pytest.raises(ValueError, match="other labels"):
        runner.resume(tmp_path / "s", replace(stream, labels=("a", "b")), LEARNER)
    with pytest.raises(ValueError, match="no saved run"):
        runner.resume(tmp_path / "nowhere", stream, LEARNER)
    saved = (tmp_path / "s" / "run.json").read_text()
    for damage, says in (
        (saved[:99], "damaged"),
        (saved.replace('"version": 4', '"version": 3', 1), "another version"),
    ):
        write_private(tmp_path / "s" / "run.json", damage)
        with pytest.raises(ValueError, match=says):
            runner.resume(tmp_path / "s", stream, LEARNER)
    write_private(tmp_path / "s" / "run.json", saved)
    runner.resume(tmp_path / "s", stream, LEARNER)  # the refusals left it unlocked and whole


# ---------------------------------------------------------------------- the commands


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("confide.runs.page._pictures", lambda outcome: [])
    rows = "\n".join(f"{i % 10},{int(i % 10 > 4)}" for i in range(ROUNDS))
    (tmp_path / "a.csv").write_text(f"n,y\n{rows}\n")

    def call(*words: str) -> str:
        result = CliRunner().invoke(app, list(words))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        return str(result.output)

    return call


SMALL = (
    "-e",
    "8",
    "-d",
    "1e-4",
    "-T",
    "3000",
    "--copies",
    "120",
    "--unsure",
    "100",
    "--silent",
    "2000",
    "--beta",
    "1e-6",
)


def test_run_status_and_the_files(cli: Any, tmp_path: Path) -> None:
    shown = cli("run", "a.csv", *SMALL, "--learner", "trees(memory=64)", "--state", "s", "--monitor", "1", "--no-twin")
    assert "3,000 of 3,000" in shown and "operator only" in shown and "may be shown" in shown.replace("\n", " ")
    assert (tmp_path / "confide-report.html").is_file() and (tmp_path / "confide-report.json").is_file()
    public, private = cli("status", "s").split("operator only")
    assert "3,000 of 3,000" in public and "unsure" not in public and "error" not in public
    assert "unsure" in private and "error" in private and "trees(memory=64)" in private


def test_resume_takes_the_settings_of_the_run(cli: Any) -> None:
    cli("run", "a.csv", *SMALL, "--state", "s", "--no-twin")
    with pytest.raises(ValueError, match="leave out epsilon"):
        cli("run", "--resume", "--state", "s", "-e", "2")
    with pytest.raises(ValueError, match="needs --state"):
        cli("run", "--resume")
    assert "3,000 of 3,000" in cli("run", "--resume", "--state", "s")


def test_a_seed_is_loud_and_a_read_label_set_is_said(cli: Any) -> None:
    shown = " ".join(cli("run", "a.csv", *SMALL, "--seed", "1", "--no-twin").split())
    assert "insecure: seeded" in shown and "treated as public" in shown
    assert "treated as public" not in " ".join(cli("run", "a.csv", *SMALL, "--labels", "0,1", "--no-twin").split())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("agrawal", "--learner", "oracle"), "no learner is called"),
        (("agrawal", "--learner", "nowhere:Thing"), "cannot be imported"),
        (("agrawal", "--learner", "trees(64)"), "write parameters as"),
        (("agrawal", "--fallback", "9"), "must be coin"),
        (("agrawal", "--monitor", "8"), "must be a part of --epsilon 8"),
        (("agrawal", "--delay", "-3"), "delay=-3 must be at least 0"),
        (("agrawal", "--unit", "who"), "are for files"),
        (("agrawal", "--rounds", "0"), "rounds=0 must be at least 1"),
        (("agrawal", "--state", "a.csv/s"), "cannot be made"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_sentence(cli: Any, words: tuple[str, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        cli("run", *SMALL, *words)
    assert "\n" not in str(caught.value)
