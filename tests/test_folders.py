"""A folder of files is one stream: in a public order, in bounded memory, and after a stop it goes on where it was."""

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from confide import POP, Plan
from confide.data.datasets import open_stream
from confide.data.files import draft, open_file
from confide.data.rows import Stream
from confide.privacy.random import Random
from confide.runs import runner
from confide.runs.runner import Hooks
from confide.runs.settings import Settings

ROWS = 4000


def table(first: int, rows: int, **more: Any) -> pa.Table:
    """Rows of which each has a number of its own; the label follows from another one."""
    numbers = np.arange(first, first + rows)
    label = np.where(numbers % 10 > 4, "Y", "N")
    return pa.table({"at": numbers / 7, "n": numbers % 10, "y": label, **more})


def folder_of(path: Path, *sizes: int, kind: str = ".parquet") -> Path:
    """Files of so many rows, written out of order."""
    path.mkdir()
    starts = np.cumsum([0, *sizes]).tolist()
    for i in reversed(range(len(sizes))):
        made = table(starts[i], sizes[i])
        if kind == ".parquet":
            pq.write_table(made, path / f"part-{i}.parquet", row_group_size=700)
        else:
            made.to_pandas().to_csv(path / f"part-{i}{kind}", index=False)
    return path


def ats(stream: Stream) -> list[int]:
    return [round(item.x["at"] * 7) for item in stream.rows(dicts=True) if item.x is not None]


@pytest.mark.parametrize("kind", [".parquet", ".csv", ".csv.gz"])
def test_a_folder_is_read_file_by_file_in_the_order_of_names(tmp_path: Path, kind: str) -> None:
    folder = folder_of(tmp_path / "visits", 1500, 0, 900, kind=kind)
    (folder / "_SUCCESS").touch()
    heard: list[str] = []
    stream = open_file(folder, told=heard.append)
    assert ats(stream) == list(range(2400)) and stream.length == 2400
    assert [(piece.name, piece.rows) for piece in stream.files] == [
        (f"part-{i}{kind}", rows) for i, rows in enumerate((1500, 0, 900))
    ]
    assert heard[0] == f"part-0{kind}, file 1 of 3" and len(heard) == 3, "only the first pass is told"
    assert any("order of their names, letter by letter" in note for note in stream.notes)
    assert any("names of its 3 files" in said for said in stream.public)
    assert stream.where(1500) == f"row 1,500 of part-0{kind}" and stream.where(1501) == f"row 1 of part-2{kind}"


def test_a_name_without_a_slash_is_no_folder_and_the_sentence_says_what_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder_of(tmp_path / "visits", 30)
    folder_of(tmp_path / "mine", 30)
    folder_of(tmp_path / "spark.parquet", 30)
    assert open_stream("visits", rows=3).length == 3 and not open_stream("visits", rows=3).files
    with pytest.raises(ValueError, match=r"no stream is called 'mine' .the folder is written mine/"):
        open_stream("mine")
    with pytest.raises(ValueError, match="mine is a folder, which is written mine/"):
        open_stream("mine", label="y")
    assert [open_stream(name).length for name in ("visits/", "mine/", "./mine", "spark.parquet")] == [30] * 4
    with pytest.raises(ValueError, match="cannot read nowhere: No such file"):
        open_stream("nowhere/")


def other_type(folder: Path) -> None:
    made = table(1500, 100)
    pq.write_table(made.set_column(1, "n", made["n"].cast(pa.float64())), folder / "part-1.parquet")


def other_name(folder: Path) -> None:
    pq.write_table(table(1500, 100).rename_columns(["at", "m", "y"]), folder / "part-1.parquet")


def one_more(folder: Path) -> None:
    pq.write_table(table(1500, 100, z=[1] * 100), folder / "part-1.parquet")


def other_order(folder: Path) -> None:
    pq.write_table(table(1500, 100).select(["n", "at", "y"]), folder / "part-1.parquet")


def torn(folder: Path) -> None:
    whole = (folder / "part-1.parquet").read_bytes()
    (folder / "part-1.parquet").write_bytes(whole[: len(whole) // 2])


def damaged(folder: Path) -> None:
    """In the middle of its rows: its columns can be read all the same."""
    whole = bytearray((folder / "part-1.parquet").read_bytes())
    whole[10:200] = b"\xff" * 190
    (folder / "part-1.parquet").write_bytes(whole)


REFUSED = {
    "a column of another type": (other_type, r"part-1.parquet: column 'n' is double, and int64 in part-0.parquet"),
    "a column of another name": (other_name, r"part-1.parquet has no column 'n', which part-0.parquet has"),
    "one column more": (one_more, r"part-1.parquet has a column 'z', which part-0.parquet has not"),
    "columns in another order": (other_order, r"part-1.parquet: column 'n' stands where part-0.parquet has 'at'"),
    "a torn file": (torn, r"cannot read .*part-1.parquet: it is damaged"),
    "damaged rows": (damaged, r"cannot read .*part-1.parquet: it is damaged"),
    "a file of another kind": (lambda folder: (folder / "z.csv").write_text("a,b\n1,2\n"), "are of one kind"),
    "a file of no kind": (lambda folder: (folder / "notes.txt").touch(), "'notes.txt', which cannot be read"),
    "a folder inside": (lambda folder: (folder / "more").mkdir(), "a folder 'more' in it"),
}


@pytest.mark.parametrize(("harm", "says"), REFUSED.values(), ids=REFUSED)
def test_a_folder_that_is_not_one_stream_is_refused_before_the_run(tmp_path: Path, harm: Any, says: str) -> None:
    folder = folder_of(tmp_path / "visits", 1500, 1500)
    harm(folder)
    with pytest.raises(ValueError, match=says) as caught:
        open_file(folder)
    assert "\n" not in str(caught.value)


def test_what_else_a_folder_is_refused_for(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty has no files that can be read"):
        open_file(tmp_path / "empty")
    folder = folder_of(tmp_path / "csv", 300, 300, kind=".csv")
    with pytest.raises(ValueError, match="no --order"):
        open_file(folder, order=["at"])
    with pytest.raises(ValueError, match=r"drafted from one file, such as .*part-0.csv"):
        draft(folder)
    (folder / "part-1.csv").write_text((folder / "part-1.csv").read_text().replace(",", ";"))
    with pytest.raises(ValueError, match=r"part-1.csv has another separator or encoding than part-0.csv"):
        open_file(folder)


def test_a_column_of_nothing_but_missing_values_fits_any_type(tmp_path: Path) -> None:
    """Nothing of it is cast; the files that have values must agree."""
    folder = folder_of(tmp_path / "visits", 300, 300, 300)
    for i, values in ((0, pa.nulls(300)), (1, pa.array(["Oslo"] * 300)), (2, pa.array([7] * 300))):
        pq.write_table(table(300 * i, 300, town=values).select(["town", "at", "n", "y"]), folder / f"part-{i}.parquet")
    with pytest.raises(ValueError, match=r"'town' is int64, and string in part-1.parquet"):
        open_file(folder)
    (folder / "part-2.parquet").unlink()
    assert open_file(folder).length == 600


def test_a_file_that_changes_while_it_is_run_is_noticed(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "visits", 1500, 1500)
    stream = open_file(folder)
    pq.write_table(table(0, 1500), folder / "part-1.parquet", compression="none")
    rows = stream.rows()
    for _ in range(1500):
        next(rows)
    with pytest.raises(ValueError, match=r"part-1.parquet was changed while it was read"):
        next(rows)


# ---------------------------------------------------------------------- stopping and going on


def stop_at(rounds: int, sent: int) -> Hooks:
    def progress(pop: POP, _: object) -> None:
        if pop.rounds == rounds:
            signal.raise_signal(sent)

    return Hooks(progress)


SETTINGS = Settings(twin=False)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan.tight(8.0, 1e-4, ROWS)


def answered(stream: Stream, plan: Plan, patch: pytest.MonkeyPatch, state: Path, stop: Hooks) -> list[int]:
    """All answers of a run under a seed, and of its rest if it is stopped, which draws on where it stood."""
    heard, generator = list[int](), Random(5)
    follow, load, asked = POP.follow_many, POP.load, runner._asked

    def following(self: POP, *rows: Any) -> Any:
        done = follow(self, *rows)
        heard.extend(done.answers.tolist())
        return done

    with patch.context() as patched:
        patched.setattr(POP, "follow_many", following)
        patched.setattr(POP, "load", lambda path, **more: load(path, **more, rng=generator))
        patched.setattr(runner, "_asked", lambda settings: asked(settings) | {"seed": generator})
        first = runner.run(stream, None, plan, SETTINGS, rescue=state, hooks=stop)
        assert first.interrupted == (stop.progress is not None)
        if first.interrupted:
            assert 0 < len(heard) == first.pop.rounds < ROWS
            runner.resume(state, stream, None)
    return heard


def test_a_stopped_run_goes_on_with_the_answers_of_one_that_never_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: Plan
) -> None:
    stream = open_file(folder_of(tmp_path / "visits", 1500, 1500, 1000))
    whole = answered(stream, plan, monkeypatch, tmp_path / "none", Hooks())
    assert len(whole) == ROWS and len(set(whole)) == 2
    for name, sent in (("Ctrl-C", signal.SIGINT), ("kill", signal.SIGTERM)):
        assert answered(stream, plan, monkeypatch, tmp_path / name, stop_at(2000, sent)) == whole, name


def added(folder: Path) -> None:
    pq.write_table(table(0, 10), folder / "part-9.parquet")


def changed(folder: Path) -> None:
    made = table(0, 1500).to_pydict()
    made["at"][1400] += 1
    pq.write_table(pa.table(made), folder / "part-0.parquet", row_group_size=700)


BETWEEN = {
    "added": (added, "part-9.parquet was not there when the run was begun"),
    "changed": (changed, "part-0.parquet is not what it was when the run was begun"),
    "gone": (lambda folder: (folder / "part-2.parquet").unlink(), "part-2.parquet is gone since the run was begun"),
}


def test_files_must_be_what_they_were_when_a_run_goes_on(tmp_path: Path, plan: Plan) -> None:
    folder = folder_of(tmp_path / "visits", 1500, 1500, 1000)
    runner.run(open_file(folder), None, plan, SETTINGS, rescue=tmp_path / "s", hooks=stop_at(2000, signal.SIGTERM))
    for harm, says in BETWEEN.values():
        saved = {path: path.read_bytes() for path in folder.iterdir()}
        harm(folder)
        with pytest.raises(ValueError, match=says):
            runner.resume(tmp_path / "s", open_file(folder), None)
        for path in folder.iterdir():
            path.unlink()
        for path, body in saved.items():
            path.write_bytes(body)
    assert runner.resume(tmp_path / "s", open_file(folder), None).pop.rounds == ROWS, "copied anew, and the same"
