"""Successors, where somebody would teach more than their life allows and nobody would be told."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from confide import POP, Plan, StateError
from confide.ledger import Entry
from confide.planning.lives import cost_of
from confide.pop import heirs
from confide.pop.account import Account
from confide.service.desk import PopDesk
from tests.saved import make as with_copies
from tests.test_endless_hostile import COUNTED, LABELS, ROWS, endless, guide_of
from tests.test_successors import TWO, lasting, lived, people, taught

ENTER = Account.enter

pytestmark = pytest.mark.claim("composition.md", "people.md")


# ---------------------------------------------------------------------- a row that was counted is in the ledger


def _charged(folder: Path, plan: Plan, *whos: str) -> list[bool]:
    """Whether a successor charges these for the row of theirs that the old model counted."""
    cost = cost_of(plan.guide, True)  # type: ignore[arg-type]
    new = people(plan)
    new.succeed(folder, folder.with_name("heir"), lasting(2 * cost.of(1)))
    loop = new.operator.loop
    accounts = heirs.Predecessor(folder.with_name("heir"), None, "pop").place().read("pop.before").labels
    new.close()
    return [accounts.get(loop.routing.who(who), 0) >= cost.ranges for who in whos]


def _cut(self: Account, *given: Any, **more: Any) -> Any:
    """A call is cut off, or killed, after its last release."""
    if not more.get("released"):
        raise KeyboardInterrupt
    return ENTER(self, *given, **more)


def test_a_row_that_was_counted_before_the_first_save_is_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = endless()
    old = people(plan)
    old.predict(ROWS[0], "bob")
    old.predict_many(ROWS[1:3], ["carl", "dora"])
    with monkeypatch.context() as patch:
        patch.setattr(Account, "enter", _cut)
        with pytest.raises(KeyboardInterrupt):
            old.predict_many(ROWS[3 : COUNTED + 3], [f"person {i}" for i in range(COUNTED)])
    assert not guide_of(old).finding, "their rows are in ranges that were released"
    old.save(tmp_path / "old")
    old.close()
    assert _charged(tmp_path / "old", plan, "bob", "carl", "dora", "person 3") == [True] * 4


@pytest.mark.parametrize("after_halt", ["raise", "fallback"])
def test_a_row_that_was_counted_in_a_call_that_was_killed_is_charged(
    after_halt: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ranges are released in the midst of the call that counted the rows; then the process is gone."""
    plan = endless()
    old = people(plan, after_halt=after_halt)
    old.save(tmp_path / "old")
    whos = [f"person {i}" for i in range(COUNTED + 2)]
    with monkeypatch.context() as patch:
        patch.setattr(Account, "enter", _cut)
        with pytest.raises(KeyboardInterrupt):
            old.predict_many(ROWS[: len(whos)], whos)
    assert not guide_of(old).finding, "their rows are in ranges that were released"
    shutil.copytree(tmp_path / "old", tmp_path / "killed")  # what a kill leaves
    old.close()
    assert _charged(tmp_path / "killed", plan, *whos[:COUNTED]) == [True] * COUNTED


# ---------------------------------------------------------------------- what has begun is no successor


@pytest.mark.parametrize("many", [False, True])
def test_a_pop_that_was_taught_records_is_no_successor(many: bool, tmp_path: Path) -> None:
    """Else caps begin anew for whom it was taught, and the key that names people and copies is another one."""
    lived(tmp_path / "1", 5).close()
    new = people()
    if many:
        new.teach_many(ROWS[:1], [int(LABELS[0])], ["carl"])
    else:
        new.teach(ROWS[0], int(LABELS[0]), "carl")
    with pytest.raises(ValueError, match="has not begun"):
        new.succeed(tmp_path / "1", tmp_path / "2", TWO)
    assert not POP.load(tmp_path / "1").close(), "the old one goes on"


def test_a_pop_whose_copies_were_taught_is_no_successor(tmp_path: Path) -> None:
    old = with_copies(units="people")
    old.save(tmp_path / "1")
    old.close()
    new = with_copies(units="people")
    new.teach([0.5, 1.0], "yes", "ann")
    with pytest.raises(ValueError, match="has not begun"):
        new.succeed(tmp_path / "1", tmp_path / "2", TWO)


# ---------------------------------------------------------------------- one heir, once


def test_an_heir_whose_snapshot_is_gone_never_begins_again(tmp_path: Path) -> None:
    """Its ledger has what was spent: it is not thrown away for a fresh one."""
    lived(tmp_path / "1", 5).close()
    heir = people()
    heir.succeed(tmp_path / "1", tmp_path / "2", TWO)
    assert taught(heir, "ann") == [True]
    heir.close()
    (tmp_path / "2" / "snapshot.npz").unlink()
    before = (tmp_path / "2" / "ledger.db").read_bytes()
    with pytest.raises(StateError, match="restore its newest backup"):
        people().succeed(tmp_path / "1", tmp_path / "2", TWO)
    with pytest.raises(StateError, match="restore its newest backup"):
        PopDesk.open(
            tmp_path / "2", people, succeeds=lambda pop, *_: pop.succeed(tmp_path / "1", tmp_path / "2", TWO)
        )
    assert (tmp_path / "2" / "ledger.db").read_bytes() == before


def test_a_succession_that_failed_leaves_nothing_that_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old model is sealed for an heir: one in memory alone, beside the one that the next try makes, were two."""
    lived(tmp_path / "1", 5).close()
    broken = people()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(heirs.state.snapshot, "write", full)
        with pytest.raises(OSError):
            broken.succeed(tmp_path / "1", tmp_path / "2", TWO)
    with pytest.raises(StateError):
        broken.predict(ROWS[0], "ann")
    broken.close()
    with monkeypatch.context() as patch:
        patch.setattr(heirs.state, "save", full)
        second = people()
        with pytest.raises(OSError):
            second.succeed(tmp_path / "1", tmp_path / "2", TWO)
    with pytest.raises(StateError):
        second.predict(ROWS[0], "ann")


def test_a_ledger_that_was_rolled_back_has_no_successor(tmp_path: Path) -> None:
    """It does not know the life in which its snapshot was written, though it has as many entries by now."""
    folder = tmp_path / "1"
    old = people()
    old.save(folder)
    old.close()
    shutil.copy(folder / "ledger.db", tmp_path / "backup")
    old = POP.load(folder)
    assert taught(old, "ann") == [True]
    old.save(folder)
    old.close()
    for rest in folder.glob("ledger.db*"):
        rest.unlink()
    shutil.copy(tmp_path / "backup", folder / "ledger.db")
    _add_entries(folder, 9)
    with pytest.raises(StateError, match="rolled back"):
        POP.load(folder)
    with pytest.raises(StateError, match="rolled back"):
        people().succeed(folder, tmp_path / "2", TWO)


def test_people_have_no_other_names_by_a_key_that_is_not_the_old_models(tmp_path: Path) -> None:
    """Whoever taught the old one would be a stranger to its successor."""
    lived(tmp_path / "1", 5).close()
    (tmp_path / "1" / "key").write_bytes(bytes(64))
    with pytest.raises(StateError, match="not the one this state was made with"):
        people().succeed(tmp_path / "1", tmp_path / "2", TWO)


def _add_entries(folder: Path, count: int) -> None:
    """Somebody goes on with the older ledger."""
    place = heirs.Predecessor(folder, None, "pop").place()
    with place.claim("pop") as book:
        for _ in range(count):
            book.wait(book.add(Entry(rounds=0, unsure=0)))
