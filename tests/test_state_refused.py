"""A state that is not as it was left, or that somebody else owns, is refused; and it is for its owner alone."""

import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide import POP, Monitor, Plan, StateError
from confide.banks import bank_for
from confide.learners import LogisticRegression
from confide.ledger import Ledger
from confide.privacy.random import Random
from tests.saved import DOUBT, bank_of, in_child, make, small_plan, spent, teach

pytestmark = pytest.mark.claim("people.md")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


# ---------------------------------------------------------------------- what is refused


def test_the_papers_plan(folder: Path) -> None:
    plan = Plan.paper(epsilon=60.0, delta=1e-2, rounds=200, copies=100, unsure=5)
    with pytest.raises(StateError, match="paper"):
        make(plan=plan, units="rounds").save(folder)


@pytest.mark.parametrize("labels", [[0.5, 1.5], [("a",), ("b",)], [b"a", b"b"]], ids=str)
def test_labels_of_odd_types(labels: list[Any], folder: Path) -> None:
    with pytest.raises(StateError, match="labels"):
        make(labels=labels, fallback=labels[0]).save(folder)
    assert not folder.exists()


def test_a_pop_lives_in_one_folder(folder: Path) -> None:
    with make() as pop:
        pop.save(folder)
        with pytest.raises(StateError, match="lives in"):
            pop.save(folder.parent / "second")
        assert not (folder.parent / "second").exists()
        pop.save(folder.parent / "state" / ".." / "state")
    with make() as other, pytest.raises(StateError, match="not empty"):
        other.save(folder)


def test_there_must_be_a_state(folder: Path) -> None:
    with pytest.raises(StateError, match="no saved state"):
        POP.load(folder)
    folder.mkdir()
    with pytest.raises(StateError, match="no saved state"):
        POP.load(folder)


def test_another_learner_is_refused(folder: Path) -> None:
    with make() as pop:
        pop.save(folder)
    with pytest.raises(ValueError, match="another bank"):
        POP.load(folder, learner=LogisticRegression(learning_rate=0.5))
    POP.load(folder).close()


class Unpicklable:
    def __init__(self) -> None:
        self.code = lambda x: x

    def predict(self, x: Any) -> str:
        return "no"

    def learn(self, x: Any, y: int) -> None:
        pass


def test_a_save_that_fails_leaves_nothing_locked(folder: Path) -> None:
    pop = make(Unpicklable())
    pop.teach(DOUBT, "no", unit="ann")
    with pytest.raises(ValueError, match="pickled"):
        pop.save(folder)
    with make() as other:
        other.save(folder)


def rewrite(folder: Path, change: Callable[[dict[str, Any]], None], **more: Any) -> None:
    """Change the snapshot's header."""
    with np.load(folder / "snapshot.npz") as file:
        arrays = {name: file[name] for name in file.files}
    header = json.loads(arrays["header"].tobytes())
    change(header)
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez(folder / "snapshot.npz", **arrays, **more)


def claim_more(header: dict[str, Any]) -> None:
    plan = json.loads(header["plan"])
    plan["guarantee"]["epsilon"] = 0.1
    header["plan"] = json.dumps(plan)


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.update(format="something"),
        lambda header: header.update(version=1),
        lambda header: header.update(version=3),
        lambda header: header["learner"].update({"class": "eval"}),
        lambda header: header["bank"].update(copies=31),
        claim_more,
    ],
    ids=["format", "version 1", "version 3", "learner", "copies", "plan"],
)
def test_a_changed_header_is_refused(change: Any, folder: Path) -> None:
    with make() as pop:
        pop.save(folder)
    rewrite(folder, change)
    for _ in range(2):  # and the lock is given back
        with pytest.raises(ValueError):
            POP.load(folder)


def test_no_pickle_is_read_unasked(folder: Path) -> None:
    with make() as pop:
        pop.save(folder)
    rewrite(folder, lambda header: None, **{"bank/evil": np.array([print], dtype=object)})
    with pytest.raises(ValueError):
        POP.load(folder)


def flip(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:-300] + bytes(255 - byte for byte in whole[-300:-290]) + whole[-290:])


KEYS = [b"", b"short", bytes(32), bytes(63), bytes(64), bytes(65)]
DAMAGE: dict[str, Callable[[Path], object]] = {
    "the snapshot is empty": lambda folder: (folder / "snapshot.npz").write_bytes(b""),
    "the snapshot is cut": lambda folder: os.truncate(folder / "snapshot.npz", 100),
    "the snapshot lacks its end": lambda folder: os.truncate(folder / "snapshot.npz", 5000),
    "the snapshot's bytes are others": lambda folder: flip(folder / "snapshot.npz"),
    "the ledger is gone": lambda folder: (folder / "ledger.db").unlink(),
    "the ledger is empty": lambda folder: (folder / "ledger.db").write_bytes(b""),
    "the ledger is cut": lambda folder: os.truncate(folder / "ledger.db", 4096),
    "the key is gone": lambda folder: (folder / "key").unlink(),
    **{f"the key is {len(key)} others": lambda folder, key=key: (folder / "key").write_bytes(key) for key in KEYS},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_refused_and_nothing_stays_locked(damage: str, folder: Path) -> None:
    """With another key people would reach second copies, and tickets could be forged."""
    with make() as pop:
        pop.save(folder)
        pop.predict(DOUBT, unit="ann")
    shutil.copytree(folder, folder.parent / "whole")
    DAMAGE[damage](folder)
    for _ in range(2):
        with pytest.raises(StateError):
            POP.load(folder)
    for path in (folder.parent / "whole").iterdir():
        shutil.copy(path, folder)
    with POP.load(folder) as back:
        assert spent(back) == spent(pop)


def test_an_older_ledger_is_refused(folder: Path) -> None:
    """A backup of the ledger alone, put back: it would forget what was spent since."""
    with make() as pop:
        pop.save(folder)
        pop.predict(DOUBT, unit="ann")
    before = {path: path.read_bytes() for path in folder.glob("ledger.db*")}
    with POP.load(folder) as pop:
        pop.predict(DOUBT, unit="bob")
        pop.save(folder)
    now = {path: path.read_bytes() for path in before}
    for path, whole in before.items():
        path.write_bytes(whole)
    for _ in range(2):
        with pytest.raises(StateError, match="older than its snapshot"):
            POP.load(folder)
    for path, whole in now.items():
        path.write_bytes(whole)
    with POP.load(folder) as back:
        assert back.operator.unsure == 2


def left(folder: Path) -> Path:
    """What a process leaves that is killed after 40 unsure answers: all of them are in the -wal."""

    def live() -> None:
        pop = make()
        pop.save(folder)
        for i in range(40):
            pop.predict(DOUBT, unit=f"person {i}")
        os._exit(0)

    assert in_child(live) == ""
    return folder / "ledger.db-wal"


PAGE = 24 + 4096


@pytest.mark.parametrize("at", [9, 17, 30, 32, 32 + 9, 32 + 200, 32 + 20 * PAGE, 32 + 20 * PAGE + 4000, -5 * PAGE])
def test_a_damaged_wal_is_refused(at: int, folder: Path) -> None:
    """SQLite itself takes it for one that ends there, and would forget what follows."""
    wal = left(folder)
    whole = wal.read_bytes()
    changed = bytearray(whole)
    changed[at] ^= 4
    wal.write_bytes(changed)
    for _ in range(2):
        with pytest.raises(StateError, match="damaged"):
            POP.load(folder)
        with pytest.raises(StateError, match="damaged"):
            Ledger(folder / "ledger.db").create("another")
    wal.write_bytes(whole)
    (folder / "ledger.db-shm").unlink()
    with POP.load(folder) as back:
        assert back.operator.unsure == 40


@pytest.mark.parametrize("cut", [1, 100, 4096, PAGE, PAGE + 1])
def test_a_torn_write_was_never_answered(cut: int, folder: Path) -> None:
    wal = left(folder)
    os.truncate(wal, wal.stat().st_size - cut)
    with POP.load(folder) as back:
        assert back.operator.unsure == 39
        back.predict(DOUBT, unit="ann")
    with POP.load(folder) as again:
        assert again.operator.unsure == 40


# ---------------------------------------------------------------------- files and locks


def test_files_are_for_their_owner_alone(folder: Path) -> None:
    before = os.umask(0)
    try:
        with make() as pop:
            pop.save(folder)
            pop.predict(DOUBT, unit="ann")
            pop.save(folder)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {"snapshot.npz", "ledger.db", "ledger.db-wal", "key"} < modes.keys() and set(modes.values()) == {0o600}


def test_ids_and_keys_are_not_in_the_open(folder: Path) -> None:
    """No id is written anywhere, and the keys only to their own file."""
    with make(monitor=Monitor(epsilon=1.0)) as pop:
        for _ in range(3):
            pop.predict(DOUBT, unit="ann of the long name")
        pop.save(folder)
    for path in folder.iterdir():
        assert b"ann of" not in path.read_bytes()
        assert path.name == "key" or pop.operator.loop.routing.secret[:32] not in path.read_bytes()


def test_a_second_one_is_refused_until_the_first_is_closed(folder: Path) -> None:
    pop = make()
    pop.save(folder)
    with pytest.raises(StateError, match="in use"):
        POP.load(folder)
    assert in_child(lambda: POP.load(folder)) == "StateError"
    assert in_child(lambda: pop.predict(DOUBT, unit="ann")) == "RuntimeError", "nor is a forked one used"
    pop.close()
    pop.close()
    with pytest.raises(StateError, match="closed"):
        pop.predict(DOUBT, unit="ann")
    with POP.load(folder) as back:
        back.predict(DOUBT, unit="ann")
        assert in_child(lambda: POP.load(folder)) == "StateError"
    assert in_child(lambda: POP.load(folder).close()) == ""


def test_a_dead_process_holds_no_lock(folder: Path) -> None:
    with make() as pop:
        pop.save(folder)
    assert in_child(lambda: POP.load(folder)) == ""
    POP.load(folder).close()


def test_a_loaded_pop_is_not_copied(folder: Path) -> None:
    with make(seed=1) as pop:
        pop.save(folder)
        with pytest.raises(TypeError, match="budget"):
            pop.__getstate__()


def test_a_bank_of_ones_own_is_given_again_and_never_lost_in_silence(folder: Path) -> None:
    def bank() -> Any:
        return bank_for(LogisticRegression(), small_plan().copies, 2, 2, Random())

    with make(bank=bank()) as pop:
        teach(pop)
        pop.save(folder)
        known = bank_of(pop)
    with pytest.raises(StateError, match=r"load\(path, bank=…\)"):
        POP.load(folder)
    mine = bank()
    with POP.load(folder, bank=mine) as back:
        assert back.operator.bank is mine and bank_of(back) == known
        back.save(folder)


def test_a_bank_is_refused_where_there_was_none(folder: Path) -> None:
    with make() as pop:
        pop.save(folder)
    with pytest.raises(StateError, match="leave bank out"):
        POP.load(folder, bank=bank_for(LogisticRegression(), small_plan().copies, 2, 2, Random()))
