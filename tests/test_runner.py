"""The run loop and its commands: what is counted, when labels come, and that no row is ever asked twice."""

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from river import naive_bayes
from typer.testing import CliRunner

from confide import Plan
from confide.cli import run as cli_run
from confide.data.rows import BadRow, Item, Row, Stream
from confide.learners import DecisionTree
from confide.pop.pop import POP, batches
from confide.runs import runner
from confide.runs.tally import Tally

ROUNDS, SILENT = 3000, 2000
LEARNER = DecisionTree(memory=64)


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
    return Plan.tight(8.0, 1e-4, ROUNDS, copies=120, unsure=100, silent=SILENT, beta=1e-6)


@pytest.fixture(scope="module")
def stream() -> Stream:
    return easy(ROUNDS)


def listen(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The first number of every question asked from now on: it tells the rows apart."""
    heard: list[float] = []

    def evaluate(pop: POP, xs: Any, ys: Any, units: Any = None) -> batches.Evaluation:
        done = batches.evaluate(pop, xs, ys, units)
        heard.extend(float(x[0]) for x in xs[: done.rounds])
        return done

    predict = POP.predict

    def watched(self: POP, x: Any, unit: Any = None) -> Any:
        heard.append(float(x[0]))
        return predict(self, x, unit)

    monkeypatch.setattr(runner, "evaluate", evaluate)  # where rounds come in chunks
    monkeypatch.setattr(POP, "predict", watched)  # where they come one by one
    return heard


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    return listen(monkeypatch)


def firsts(stream: Stream) -> list[float]:
    return [float(row.x[0]) for row in stream.rows() if isinstance(row, Row)]


def spoiled(stream: Stream, *lines: int) -> Stream:
    """The stream with these rows bad."""

    def source(dicts: bool) -> Iterator[Item]:
        for line, item in enumerate(stream.rows(dicts), 1):
            yield BadRow(line, "it is bad") if line in lines else item

    return replace(stream, source=source)


def interrupt_at(rounds: int) -> runner.Progress:
    def progress(pop: POP, tally: Tally) -> None:
        if tally.rounds == rounds:
            signal.raise_signal(signal.SIGINT)

    return progress


def test_everything_is_counted(plan: Plan, stream: Stream) -> None:
    outcome = runner.run(stream, LEARNER, plan)
    tally = outcome.tally
    assert (tally.rounds, tally.live, tally.position, tally.bad) == (ROUNDS, ROUNDS - SILENT, ROUNDS, 0)
    assert sum(map(sum, tally.confusion)) == sum(tally.margins.values()) == tally.live
    assert tally.unanswered == tally.unsure == outcome.pop.operator.unsure
    wrong = tally.confusion[0][1] + tally.confusion[1][0]
    assert wrong <= tally.mistakes <= wrong + tally.unanswered
    assert tally.curve_rounds[-1] == ROUNDS and tally.curve_mistakes[-1] == tally.mistakes
    assert tally.curve_twin[-1] == tally.twin_mistakes < 0.05 * tally.live
    for curve in (tally.curve_rounds, tally.curve_mistakes, tally.curve_twin, tally.curve_unsure):
        assert curve == sorted(curve)
    assert outcome.pop.operator.taught == ROUNDS


def test_labels_come_as_late_as_said(plan: Plan, stream: Stream) -> None:
    taught: dict[int, int] = {}

    def progress(pop: POP, tally: Tally) -> None:
        taught[tally.rounds] = pop.operator.taught

    outcome = runner.run(stream, LEARNER, plan, delay=70, twin=False, progress=progress)
    assert taught == {1000: 930, 2000: 1930, 3000: 2930}
    assert outcome.pop.operator.taught == ROUNDS
    assert not outcome.twin and outcome.tally.twin_mistakes == 0


@pytest.mark.parametrize("twin", [True, False])
def test_compiled_chunks_and_the_plain_loop_tally_the_same(
    plan: Plan, stream: Stream, twin: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = runner.run(spoiled(stream, 40, 41), LEARNER, plan, twin=twin, seed=5)
    monkeypatch.setattr(batches, "compiles", lambda pop: False)
    slow = runner.run(spoiled(stream, 40, 41), LEARNER, plan, twin=twin, seed=5)
    assert replace(fast.tally, seconds=0.0) == replace(slow.tally, seconds=0.0)


def test_bad_rows_are_counted_and_never_asked(plan: Plan, stream: Stream, asked: list[float]) -> None:
    outcome = runner.run(spoiled(stream, 5, 17), LEARNER, plan, twin=False)
    assert (outcome.tally.bad, outcome.tally.first_bad) == (2, [[5, "it is bad"], [17, "it is bad"]])
    assert outcome.tally.rounds == ROUNDS - 2
    assert asked == [first for line, first in enumerate(firsts(stream), 1) if line not in (5, 17)]


def test_strict_stops_at_the_first_bad_row(plan: Plan, stream: Stream, asked: list[float]) -> None:
    with pytest.raises(ValueError, match="line 17 of easy is bad"):
        runner.run(spoiled(stream, 17, 30), LEARNER, plan, strict=True)
    assert len(asked) == 16


def test_history_replaces_the_silent_start(stream: Stream) -> None:
    plan = Plan.tight(8.0, 1e-4, 1000, copies=120, unsure=100, silent=0, beta=1e-6)
    history = easy(3000, seed=5)
    taught = runner.run(stream, LEARNER, plan, history=spoiled(history, 9), twin=False)
    untaught = runner.run(stream, LEARNER, plan, twin=False)
    assert (taught.tally.taught_before, taught.tally.live) == (2999, 1000)
    assert "in the history" in taught.tally.first_bad[0][1]
    assert taught.tally.error < 0.1 < untaught.tally.error


def test_people_keep_one_copy_each(plan: Plan, stream: Stream) -> None:
    def source(dicts: bool) -> Iterator[Item]:
        for i, row in enumerate(stream.rows(dicts)):
            assert isinstance(row, Row)
            yield row._replace(unit=f"person {i % 7}")

    outcome = runner.run(replace(stream, source=source), LEARNER, plan, people=True, twin=False)
    assert outcome.pop.units == "people"
    assert len(outcome.pop._bank.state()["taught"]) <= 7  # type: ignore[arg-type]


def test_an_interrupt_leaves_a_checkpoint_and_resume_asks_the_rest(
    plan: Plan, stream: Stream, asked: list[float], tmp_path: Path
) -> None:
    first = runner.run(stream, LEARNER, plan, delay=40, rescue=tmp_path / "s", progress=interrupt_at(1000))
    assert first.interrupted and first.folder == tmp_path / "s" and len(asked) == 1000
    second = runner.resume(tmp_path / "s", stream, LEARNER, delay=40)
    assert not second.interrupted and asked == firsts(stream)
    assert (second.tally.rounds, second.tally.live) == (ROUNDS, ROUNDS - SILENT)
    assert second.pop.operator.taught == ROUNDS, "labels that were waiting are taught after the resume"
    assert second.tally.twin_mistakes < 0.05 * second.tally.live, "the twin has caught up"


def test_after_a_crash_no_row_is_asked_twice(
    plan: Plan, stream: Stream, asked: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash is a run that neither checkpoints nor closes; rows that were claimed on disk are lost, not repeated."""
    monkeypatch.setattr(runner, "CLAIM", 300)
    pops: list[POP] = []

    def crash(pop: POP, tally: Tally) -> None:
        pops.append(pop)
        monkeypatch.setattr(runner._Work, "checkpoint", lambda self: None)
        raise RuntimeError("the power is gone")

    with pytest.raises(RuntimeError, match="power"):
        runner.run(stream, LEARNER, plan, state=tmp_path / "s", progress=crash)
    assert pops[0]._journal is not None
    pops[0]._journal.close()
    monkeypatch.undo()
    before, rest = len(asked), listen(monkeypatch)
    runner.resume(tmp_path / "s", stream, LEARNER, twin=False)
    assert before == 1000 and rest
    assert not set(asked) & set(rest)
    everything = firsts(stream)
    assert rest[0] == everything[1200], "rows 1000 to 1199 were claimed before the crash"


def test_a_folder_in_use_or_of_another_stream_is_refused(plan: Plan, stream: Stream, tmp_path: Path) -> None:
    runner.run(stream, LEARNER, plan, twin=False, rescue=tmp_path / "s", progress=interrupt_at(1000))
    with pytest.raises(ValueError, match="is not empty"):
        runner.run(stream, LEARNER, plan, state=tmp_path / "s")
    with pytest.raises(ValueError, match="other labels"):
        runner.resume(tmp_path / "s", replace(stream, labels=("a", "b")), LEARNER)
    with pytest.raises(ValueError, match="no saved run"):
        runner.resume(tmp_path / "nowhere", stream, LEARNER)
    runner.resume(tmp_path / "s", stream, LEARNER, twin=False)  # the refusals left it unlocked and whole


def test_rivers_learners_get_dicts() -> None:
    plan = Plan.tight(8.0, 1e-4, 400, copies=100, unsure=50, silent=350, beta=1e-6)
    outcome = runner.run(easy(400), naive_bayes.GaussianNB(), plan)
    assert outcome.tally.rounds == 400 and outcome.pop.operator.taught == 400


# ---------------------------------------------------------------------- the commands


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)
    rows = "\n".join(f"{i % 10},{int(i % 10 > 4)}" for i in range(ROUNDS))
    (tmp_path / "a.csv").write_text(f"n,y\n{rows}\n")
    app = typer.Typer()
    cli_run.register(app)

    def call(*words: str) -> str:
        result = CliRunner().invoke(app, list(words))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        return str(result.output)

    return call


SMALL = ("-e", "8", "-d", "1e-4", "-T", "3000", "--copies", "120", "--unsure", "100", "--silent", "2000")


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
        (("agrawal", "--monitor", "8"), "must be smaller"),
        (("agrawal", "--unit", "who"), "are for files"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_sentence(cli: Any, words: tuple[str, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        cli("run", *words, *SMALL)
    assert "\n" not in str(caught.value)
