"""What a ledger keeps over epochs: what the open one began with and its sums, and no sum of those that ended."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from confide import POP, Plan
from confide.cli.app import app
from confide.ledger import Entry, Ledger
from confide.ledger.sqlite import SqliteStore
from confide.pop.guiding import Guiding
from confide.pop.state import check
from confide.service.base import Question, Taught
from confide.service.desk import PopDesk
from tests.test_endless_hostile import LABELS, LEAF, LEAVES, ROWS, endless, guide_of, make

pytestmark = pytest.mark.claim("guide.md", "people.md")

PLAN = endless(ranges=False)
EPOCH = LEAVES * LEAF


def led(pop: POP, rounds: int) -> None:
    at = pop.rounds % 100
    pop.follow_many(ROWS[at : at + rounds], LABELS[at : at + rounds])


def said(*arguments: str) -> str:
    found = CliRunner().invoke(app, list(arguments))
    assert found.exit_code == 0, found.output
    return " ".join(found.output.split())


def kept(place: str | Path, model: str = "pop") -> list[tuple[str, int]]:
    return [(kind, number) for kind, number, *_ in Ledger(place).read(model).released]


# ---------------------------------------------------------------------- it forgets


def test_what_is_dropped_is_gone_with_what_replaces_it(place: str) -> None:
    """Of one kind, before one number, of one model, in the transaction of the entry: in a file and on a server."""
    with Ledger(place) as ledger:
        for name in ("shop", "bank"):
            ledger.create(name)
            book = ledger.claim(name)
            rows = tuple(("linear/node", i, b"noisy", b"exact") for i in range(4))
            book.wait(book.add(Entry(1, 0, released=(*rows, ("linear/warm", 0, b"noisy", b"exact")))))
            if name == "shop":
                begun = ("linear/epoch", 1, b"row", b"")
                book.add(Entry(2, 0, released=(begun,), dropped=(("linear/node", 3), ("linear/epoch", 1))))
                assert len(kept(place, name)) == 5, "nothing is dropped before what replaces it is there"
                book.wait(book.sequence)
            book.close()
    assert kept(place, "shop") == [("linear/epoch", 1), ("linear/node", 3), ("linear/warm", 0)]
    assert len(kept(place, "bank")) == 5


def test_over_twenty_epochs_a_ledger_is_as_large_as_after_three(place: str, tmp_path: Path) -> None:
    pop, sizes, most = make(PLAN), [], 0
    pop.save(tmp_path / "s", ledger=place)
    for _ in range(7):
        for _ in range(6):
            led(pop, EPOCH // 2)
            most = max(most, len(kept(place)))
        guide = guide_of(pop)
        pop.close()
        sizes.append(0 if "://" in place else Path(place).stat().st_size)
        pop = POP.load(tmp_path / "s", ledger=place)
        assert guide_of(pop).closed == guide.closed and np.array_equal(guide_of(pop).model.theta, guide.model.theta)
    assert guide_of(pop).epoch >= 20 and most <= LEAVES + 2
    assert max(sizes) - sizes[0] <= 8192, "two pages: rows of restarts, and where rows lie in their pages"
    pop.close()


def test_a_guide_whose_ledger_forgets_nothing_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Guiding, "store", lambda guiding, release: guiding.keep(*release))
    pop = make(PLAN)
    pop.save(tmp_path / "s")
    led(pop, 5 * EPOCH)
    assert len(kept(tmp_path / "s" / "ledger.db")) > 4 * LEAVES
    pop.close()


def test_a_person_costs_a_ledger_at_most_ninety_bytes_however_many_epochs_they_are_in(tmp_path: Path) -> None:
    longer = replace(PLAN.guide, leaf=250)  # type: ignore[type-var]
    pop, people, sizes = make(Plan(PLAN.promise, (longer,), "tight"), units="people"), 4000, []
    pop.save(tmp_path / "s")
    for life in range(4):
        whos = [f"person {i}" for i in range(people if life > 1 else people // 2)]
        pop.predict_many(np.resize(ROWS, (len(whos), 2)), whos)
        pop.close()
        sizes.append((tmp_path / "s" / "ledger.db").stat().st_size)
        pop = POP.load(tmp_path / "s")
    pop.close()
    assert sizes[1] - sizes[0] <= 8192 and sizes[3] - sizes[2] <= 8192, "the same people again cost nothing more"
    assert 0 < (sizes[2] - sizes[1]) / (people // 2) <= 90


# ---------------------------------------------------------------------- and goes on from what stays


def test_a_ledger_of_whole_epochs_without_their_beginnings_goes_on_and_drops_them_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that was written before there were beginnings."""
    with monkeypatch.context() as old:
        old.setattr(Guiding, "store", lambda guiding, release: guiding.keep(*release))
        pop = make(PLAN)
        pop.save(tmp_path / "s")
        led(pop, 2 * EPOCH + 3)
        theta = guide_of(pop).model.theta.copy()
        pop.close()
    pop = POP.load(tmp_path / "s")
    assert np.array_equal(guide_of(pop).model.theta, theta) and guide_of(pop).epoch == 2
    led(pop, EPOCH // 2)
    assert len(kept(tmp_path / "s" / "ledger.db")) >= 2 * LEAVES, "nothing is dropped that a load would need"
    led(pop, 2 * EPOCH)
    assert len(kept(tmp_path / "s" / "ledger.db")) <= LEAVES + 2
    pop.close()
    POP.load(tmp_path / "s").close()


def test_a_snapshot_of_an_ended_epoch_is_told_apart_and_one_of_the_open_epoch_is_compared(
    tmp_path: Path,
) -> None:
    pop = make(PLAN)
    led(pop, 3)
    pop.save(tmp_path / "s")
    led(pop, 3 * EPOCH)
    pop.close()
    found = check(tmp_path / "s").parts["linear"]
    assert found.released == guide_of(pop).closed and not found.compared
    assert "older than the epoch that runs" in said("verify", str(tmp_path / "s"))
    with POP.load(tmp_path / "s") as again:
        again.save(tmp_path / "s")
    assert check(tmp_path / "s").parts["linear"].compared
    assert "it is what is in use" in said("verify", str(tmp_path / "s"))


class Photographs:
    """Copies of a state's folder before and after each of its writes: what a process that dies there leaves."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.taken, self.on = folder, list[Path](), False
        write = SqliteStore.write

        def photographed(store: Any, batch: Any) -> None:
            self.take()
            write(store, batch)
            self.take()

        monkeypatch.setattr(SqliteStore, "write", photographed)

    def take(self) -> None:
        if self.on:
            self.taken.append(self.folder.parent / f"photograph {len(self.taken)}")
            shutil.copytree(self.folder, self.taken[-1])


def test_a_process_that_dies_around_the_end_of_an_epoch_releases_no_sum_twice_and_lowers_no_cap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ann's only label is taught in the last round of an epoch; before and after every write until the next began."""
    camera = Photographs(tmp_path / "s", monkeypatch)
    pop = make(PLAN, units="people")
    pop.save(tmp_path / "s")
    pop.predict_many(ROWS[: 2 * EPOCH - 1], [f"person {i}" for i in range(2 * EPOCH - 1)])
    camera.on = True
    ticket = pop.predict(ROWS[0], "ann").ticket
    pop.learn(ticket, 1)
    for i in range(LEAF + 1):
        pop.predict(ROWS[i], f"other {i}")
    camera.on = False
    who = pop.operator.loop.routing.who("ann")
    shown = {(kind, number): row.tobytes() for kind, number, row in pop.released}
    pop.close()
    epochs, turned = set(), 0
    for folder in camera.taken:
        rows = {number for kind, number in kept(folder / "ledger.db") if kind == "linear/node"}
        begun = {number for kind, number in kept(folder / "ledger.db") if kind == "linear/epoch"}
        assert len(begun) == 1, "one beginning, never none and never two"
        with POP.load(folder) as again:
            guide, account = guide_of(again), again.operator.loop.account
            found = {(kind, number): row.tobytes() for kind, number, row in again.released}
            assert all(shown[one] == row for one, row in found.items() if one in shown)
            assert account.labels.get(who, 0) == 1 or guide.closed < 2 * LEAVES, "her label is released with her cap"
            assert guide.closed == max(rows) + 1
            epochs.add(guide.epoch)
            turned += guide.epoch == 2 and min(rows) < 2 * LEAVES
            known = account.labels.get(who, 0)
            again.learn(again.predict(ROWS[1], "ann").ticket, 1)
            assert account.labels[who] == 1 and guide._leaves.open.any() == (known == 0)
            again.predict_many(ROWS[:EPOCH], [f"later {i}" for i in range(EPOCH)])
        assert len(kept(folder / "ledger.db")) <= LEAVES + 2
    assert epochs == {1, 2} and turned, "it died before the turn, after it, and before all of the old sums were dropped"


def test_a_drop_before_the_beginning_is_durable_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken on purpose: sums are dropped when the last one is written, and what the next epoch begins with is not."""

    def hasty(guiding: Guiding, release: Any) -> None:
        ends = guiding.guide.begins(release)
        guiding.keep(*release, drops=[] if ends is None else [("node", ends.number * LEAVES)])

    monkeypatch.setattr(Guiding, "store", hasty)
    pop = make(PLAN)
    pop.save(tmp_path / "s")
    led(pop, EPOCH + LEAF + 1)
    pop.close()
    with pytest.raises(Exception, match="missing in the ledger"):
        POP.load(tmp_path / "s")


def test_a_backup_from_an_ended_epoch_is_noticed_and_sealed(tmp_path: Path) -> None:
    plan: Plan = PLAN
    folder, backup = tmp_path / "s", tmp_path / "backup"
    desk = PopDesk.open(folder, lambda: make(plan))
    desk.ask([Question("ann", "first", ROWS[0].tolist())])
    desk.close()
    shutil.copytree(folder, backup)
    desk = PopDesk.open(folder, lambda: make(plan))
    for i in range(3 * EPOCH + 1):
        asked = desk.ask([Question(f"ann{i}", "one", ROWS[i].tolist())])[0]
    assert guide_of(desk.pop).epoch == 3 and asked.answer is not None
    desk.close()
    old = PopDesk.open(backup, lambda: make(plan))
    with pytest.raises(Exception, match="rolled back"):
        old.learn([Taught(f"ann{3 * EPOCH}", asked.answer.ticket, 1)])
    old.close()
    with pytest.raises(Exception, match="rolled back"):
        PopDesk.open(backup, lambda: make(plan))
    for path in backup.glob("ledger.db*"):  # the ledger alone, beside the newest snapshot
        shutil.copy(path, folder / path.name)
    with pytest.raises(Exception, match=r"older than its snapshot|rolled back"):
        PopDesk.open(folder, lambda: make(plan))
