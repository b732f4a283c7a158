"""History is taught once, however often an import is sent: what was taught twice might reach two copies."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import confide
from confide.guide import guide
from confide.guide.leaves import Leaves
from confide.learners import Features
from confide.ledger.book import Book
from confide.service.app import Model
from confide.service.base import Refusal
from confide.service.desk import PopDesk
from confide.service.history import SLICE, Import
from confide.service.owner import Owner
from tests.saved import bank_of, fork, make, small_plan
from tests.service.opened import again, ask, both, folder, guided, kind, open_desk
from tests.service.test_client import ASKER, OPERATOR, Cut, Running, running
from tests.service.test_desk import Sizes

pytestmark = pytest.mark.claim("people.md")
__all__ = ["folder", "running"]

KILLS = int(os.environ.get("CONFIDE_DESK_KILLS", "6"))
X = [1.0, 2.0]


def records(*people: str) -> list[Any]:
    return [(who, [float(i), 2.0], "yes") for i, who in enumerate(people)]


def digests(desk: PopDesk) -> list[bytes | None]:
    """All digests of imports that the desk has; None for each that was erased."""
    imports = desk._requests.imports._by_name.values()
    return [digest for one in imports for _, _, digest in one.pieces.values()]


def told(said: list[Refusal | None]) -> list[str | None]:
    return [kind(one) for one in said]


# ---------------------------------------------------------------------- sent again


def test_a_lost_acknowledgement_does_not_teach_twice(running: Running, folder: Path) -> None:
    with closing(open_desk(folder)) as desk:
        name = f"m{len(running.models)}"
        running.models[name] = Model(Owner(desk, running.service.metrics))
        cut = Cut(running.urls[1], cuts=2)
        with closing(cut.listening):
            token = ASKER.sign("ann", expires=60.0)
            client = confide.Client(running.urls[0], token, name, operator=(cut.url, OPERATOR))
            client.teach(X, "yes", unit="ann")
            assert cut.left == 0 and desk.pop.operator.taught == 1
            cut.left = 1
            client.teach_many([X, X], ["yes", "no"], units=["bob", "carl"])
            assert cut.left == 0 and desk.pop.operator.taught == 3
            client.teach(X, "yes", unit="ann")
            assert desk.pop.operator.taught == 4, "another import of the same record is another one"


@pytest.mark.parametrize("units", ["rounds", "people"])
def test_the_same_import_again_is_acknowledged_and_teaches_nothing(units: str, folder: Path) -> None:
    desk = open_desk(folder, units=units)
    sent = [*records("ann", "bob"), ("carl", [1.0], "no"), ("dora", X, "perhaps")]
    first = desk.teach(sent, "import 1")
    assert told(first) == [None, None, "malformed", "label"]
    known = bank_of(desk.pop)
    for one in both(desk):
        assert one.teach(sent, "import 1") == first
        assert bank_of(one.pop) == known and one.pop.operator.taught == 2


def test_a_guide_has_the_gradients_of_an_import_once(folder: Path) -> None:
    features = Features(numeric={"a": (-3.0, 3.0), "b": (-3.0, 3.0)})
    desk = PopDesk.open(folder, lambda: guided("rounds", features=features))
    sent = [("ann", {"a": 1.0, "b": 2.0}, "yes"), ("bob", {"a": 2.0, "b": -1.0}, "no")]
    desk.teach(sent, "import 1")

    def leaf(one: PopDesk) -> Any:
        return one.pop.operator.loop.guiding.guide._leaves.open.copy()  # type: ignore[union-attr]

    before, caps = leaf(desk), dict(desk.pop.operator.loop.account.labels)
    assert before.any()
    for one in both(desk):
        assert told(one.teach(sent, "import 1")) == [None, None]
        assert (leaf(one) == before).all() and one.pop.operator.loop.account.labels == caps


@pytest.mark.parametrize(
    "other",
    [
        records("ann"), records("bob", "ann"), [*records("ann"), ("bob", [1.0, 2.5], "yes")],
        [*records("ann"), ("bob", [1.0, 2.0], "no")], records("ann", "bob", "carl"),
    ],
    ids=["fewer", "other people", "another x", "another label", "more"],
)  # fmt: skip
def test_other_records_under_the_same_id_are_refused(other: list[Any], folder: Path) -> None:
    desk = open_desk(folder)
    desk.teach(records("ann", "bob"), "import 1")
    for one in both(desk):
        assert set(told(one.teach(other, "import 1"))) == {"conflict"} and one.pop.operator.taught == 2
        assert told(one.teach(records("ann", "bob"), "import 1")) == [None, None]


def test_an_import_without_an_id_is_a_new_one(folder: Path) -> None:
    desk = open_desk(folder)
    for _ in range(2):
        assert told(desk.teach(records("ann"))) == [None]
    assert desk.pop.operator.taught == 2


def test_an_import_is_remembered_for_so_many_public_rounds(folder: Path) -> None:
    desk = open_desk(folder, ticket_life=5)
    for name in ("old", "new"):
        desk.teach(records("ann"), name)
        for i in range(3):
            ask(desk, "bob", f"{name} {i}", X)
    desk = again(desk)
    taught = desk.pop.operator.taught
    desk.teach(records("ann"), "new")
    assert desk.pop.operator.taught == taught
    desk.teach(records("ann"), "old")
    assert desk.pop.operator.taught == taught + 1
    for one in both(desk):
        one.teach(records("ann"), "old")
        assert one.pop.operator.taught == taught + 1, "remembered from its second time on"


def test_after_a_snapshot_an_import_is_still_known(folder: Path) -> None:
    desk = open_desk(folder)
    desk.teach(records("ann"), "import 1")
    desk.save()
    for one in both(desk):
        one.teach(records("ann"), "import 1")
        assert one.pop.operator.taught == 1


def test_who_was_forgotten_leaves_no_digest_and_is_not_taught_again(folder: Path) -> None:
    desk = open_desk(folder)
    desk.teach(records("ann", "bob"), "import 1")
    desk.teach(records("carl"), "import 2")
    desk.forget("ann")
    for one in both(desk):
        known = bank_of(one.pop)
        assert set(told(one.teach(records("ann", "bob"), "import 1"))) == {"conflict"}
        assert told(one.teach(records("carl"), "import 2")) == [None]
        assert bank_of(one.pop) == known
        assert [digest is None for digest in digests(one)] == [True, False]


@pytest.mark.parametrize("x, label", [([1.0], "yes"), ("no numbers", "no"), (X, "perhaps")])
def test_who_is_forgotten_whose_record_was_refused_leaves_no_digest(x: Any, label: str, folder: Path) -> None:
    """Whoever has the key could try what it was."""
    desk = open_desk(folder)
    desk.teach([*records("bob"), ("ann", x, label)], "import 1")
    assert desk.forget("ann"), "something was stored of theirs"
    for one in both(desk):
        assert digests(one) == [None]
        assert not one.forget("ann")


def taught_of(desk: PopDesk, last: str) -> int:
    """Who is forgotten takes along whoever has the same copy."""
    routing, who = desk.pop.operator.loop.routing, desk.pop.keep().who
    return 1 if routing.copy_for(who("carl")) == routing.copy_for(who(last)) else SLICE + 1


@pytest.mark.parametrize("make_one", [make, lambda: guided("people")], ids=["copies", "guide"])
def test_an_import_that_was_cut_off_left_nothing_of_those_who_were_not_taken(folder: Path, make_one: Any) -> None:
    """Somebody who is in no note cannot be found when they are forgotten: so no digest may depend on their record."""
    PopDesk.open(folder / "a", make_one).close()
    shutil.copytree(folder / "a", folder / "b")  # the same keys
    left = list[Any]()
    for which, last in (("a", "ann"), ("b", "bob")):
        desk = PopDesk.open(folder / which, make_one)
        sent = [*records(*("carl" for _ in range(SLICE))), (last, X, "yes")]
        part = desk.teaching(sent, "import 1")
        assert len(next(iter(part))) == SLICE
        part.close()  # type: ignore[attr-defined]
        assert not desk.forget(last), "nothing is stored of theirs"
        desk = again(desk)
        left.append(digests(desk))
        assert all(left[-1]) and told(desk.teach(sent, "import 1")) == [None] * (SLICE + 1), "it goes on"
        assert desk.pop.operator.taught == (taught_of(desk, last) if desk.plan.copies else 0)
        assert set(told(desk.teach([*sent[:-1], ("dora", X, "yes")], "import 1"))) == {"conflict"}
        desk.forget(last)
        desk = again(desk)
        assert [digest is None for digest in digests(desk)].count(True) == 1
        assert set(told(desk.teach(sent, "import 1"))) == {"conflict"}
    assert left[0] == left[1]


def test_an_import_of_an_earlier_confide_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It had one digest, in its first slice, of all records."""
    new, sent = Import.rows, records(*(f"{i}" for i in range(SLICE + 2)))

    def old(self: Import, part: slice, taught: Any, rounds: int) -> list[Any]:
        name, digest, *rest = new(self, part, taught, rounds)
        whole = digest._replace(digest=self._digest(0, -1), copy=-1, leaf=-1)
        return [name, *([whole] if part.start == 0 else []), *rest]

    desk = open_desk(folder)
    with monkeypatch.context() as before:
        before.setattr(Import, "rows", old)
        next(iter(desk.teaching(sent, "import 1")))
    desk = again(desk)
    assert set(told(desk.teach([*sent[:-1], ("dora", X, "yes")], "import 1"))) == {"conflict"}
    assert told(desk.teach(sent, "import 1")) == [None] * (SLICE + 2) and desk.pop.operator.taught == SLICE + 2
    desk.forget("3")
    for one in both(desk):
        assert set(told(one.teach(sent, "import 1"))) == {"conflict"}


@pytest.mark.parametrize("id", [None, "import 1"])
@pytest.mark.parametrize("make_one", [make, lambda: guided("people")], ids=["copies", "guide"])
def test_what_an_import_writes_follows_from_how_many_records_it_has(
    folder: Path, id: str | None, make_one: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import that does not fit on the disk stops everybody: whether it does must not tell what a record was."""
    sizes, written = Sizes(monkeypatch), set[tuple[Any, ...]]()
    odd = [("ann", X, "yes"), ("ann", "no numbers", "yes"), ("ann", X, "no label"), ("ann", [0.5] * 200, "yes")]
    for number, record in enumerate(odd):
        desk = PopDesk.open(folder / str(number), make_one)
        sizes.seen.clear()
        said = told(desk.teach([*records("bob"), record, *records("carl")], id))
        assert said == [None, {0: None, 2: "label"}.get(number, "malformed"), None]
        written.update(sizes.seen)
        assert bank_of(again(desk).pop) == bank_of(desk.pop)
    assert len(written) == 1


# ---------------------------------------------------------------------- killed


def _make() -> Any:
    return make(plan=small_plan(unsure=4000, rounds=50_000), ticket_life=5000)


def _live(folder: Path, life: int, pipe: int) -> None:
    """Import until killed; tell what is sent before it is."""
    desk = PopDesk.open(folder, _make, save_every=None)
    for number in range(10**9):
        sent = records(*(f"{life} {number} {i}" for i in range(3)))
        os.write(pipe, json.dumps([f"{life} {number}", sent]).encode() + b"\n")
        desk.teach(sent, f"{life} {number}")
        if number % 5 == 4:
            desk.save()


def _killed(folder: Path, life: int, after: float) -> Iterator[Any]:
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        try:
            _live(folder, life, writing)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        lines = file.readline()
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
        lines += file.read()
    return (json.loads(line) for line in lines.splitlines())


def test_killed_at_random_moments_every_record_is_taught_once(folder: Path) -> None:
    """The sender of the last import cannot know whether it was taken, and sends it again."""
    PopDesk.open(folder, _make).close()
    moments, sent = random.Random(5), list[Any]()
    for kill in range(KILLS):
        sent += _killed(folder, kill, moments.uniform(0, 0.1))
        with PopDesk.open(folder, _make) as desk:
            assert desk.pop.operator.taught in (3 * len(sent), 3 * len(sent) - 3)
            for name, rows in sent:
                assert told(desk.teach([tuple(row) for row in rows], name)) == [None] * 3
            assert desk.pop.operator.taught == 3 * len(sent)
    assert len(sent) > KILLS


# ---------------------------------------------------------------------- the guide

HISTORY = 60


@cache
def _plan(units: str) -> confide.Plan:
    return confide.Plan.tight(epsilon=8.0, delta=1e-5, rounds=600, guide=1.0, units=units, history=HISTORY)


def long_history(units: str) -> Any:
    """A guide alone, whose plan has rows of history in several leaves."""
    plan = _plan(units)
    features = Features(numeric={"a": (-100.0, 100.0)})
    return confide.POP(None, plan, labels=["no", "yes"], features=features, units=units)  # type: ignore[arg-type]


class Gradients:
    """How often the guide learned each record, of those sums that were released or will be: by the record's number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.released = Counter[float](), Counter[float]()
        run, teach, close = guide.run_rows, guide.teach_row, Leaves.close

        def run_rows(thetas: Any, starts: Any, indices: Any, values: Any, labels: Any, *rest: Any) -> Any:
            for i in np.flatnonzero(labels >= 0).tolist():
                self.open[_number(values[starts[i] : starts[i + 1]])] += 1
            return run(thetas, starts, indices, values, labels, *rest)

        def teach_row(*given: Any) -> Any:
            self.open[_number(given[6])] += 1  # the row's values
            return teach(*given)

        def closed(leaves: Leaves, row: Any) -> None:
            close(leaves, row)
            self.released.update(self.open)
            self.open.clear()

        monkeypatch.setattr(guide, "run_rows", run_rows)
        monkeypatch.setattr(guide, "teach_row", teach_row)
        monkeypatch.setattr(Leaves, "close", closed)

    @property
    def all(self) -> Counter[float]:
        return self.open + self.released


def _number(values: Any) -> float:
    """What tells a record from the others: they have one number each."""
    return float(np.round(np.dot(values, np.arange(1.0, len(values) + 1.0)), 9))


def numbered() -> list[Any]:
    return [(f"p{i}", {"a": float(i)}, "yes") for i in range(HISTORY)]


@pytest.mark.parametrize("units", ["rounds", "people"])
def test_after_a_reopen_history_teaches_the_guide(units: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Gradients(monkeypatch)
    PopDesk.open(folder, lambda: long_history(units)).close()
    with PopDesk.open(folder, _make) as desk:
        assert told(desk.teach(numbered(), "import 1")) == [None] * HISTORY
    assert len(seen.all) == HISTORY and set(seen.all.values()) == {1}


@pytest.mark.parametrize("units", ["rounds", "people"])
def test_killed_before_any_write_of_an_import_each_record_is_in_one_leaf(
    units: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Releases are written amid a slice: the note of their records is never behind them."""
    write = Book._write
    for number in range(1, 12):
        with monkeypatch.context() as patch:
            seen, left = Gradients(patch), [number]
            desk = PopDesk.open(folder / str(number), lambda: long_history(units))

            def dies(book: Book, left: list[int] = left) -> None:
                left[0] -= 1
                if left[0] == 0:
                    raise SystemExit
                write(book)

            patch.setattr(Book, "_write", dies)
            with contextlib.suppress(SystemExit):
                desk.teach(numbered(), "import 1")
            patch.setattr(Book, "_write", write)
            seen.open.clear()  # lost with the process
            desk = again(desk)
            assert told(desk.teach(numbered(), "import 1")) == [None] * HISTORY
            assert len(seen.all) == HISTORY and set(seen.all.values()) == {1}
            account = desk.pop.operator.loop.account
            assert account.history == HISTORY
            assert set(account.labels.values()) == ({1} if units == "people" else set())
            desk.close()


def test_a_state_whose_records_no_journal_has_refuses_history_aloud(folder: Path) -> None:
    """A library's own records may be in what was released: taught again, one would be there twice."""
    with long_history("rounds") as pop:
        pop.teach_many([x for _, x, _ in numbered()], ["yes"] * HISTORY)
        pop.predict({"a": 1.0})
        pop.save(folder)
    for _ in range(2):
        with PopDesk.open(folder, _make) as desk, pytest.raises(ValueError, match="does not have all records"):
            desk.teach(numbered(), "import 1")


def test_an_import_that_is_cut_off_ends_the_model_until_it_is_opened_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Gradients(monkeypatch)
    desk = PopDesk.open(folder, lambda: long_history("rounds"))

    def fails(*_: Any) -> Any:
        raise MemoryError

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(Import, "rows", fails)
        desk.teach(numbered(), "import 1")
    assert desk.ended
    seen.open.clear()
    desk = again(desk)
    assert told(desk.teach(numbered(), "import 1")) == [None] * HISTORY
    assert set(seen.all.values()) == {1} and len(seen.all) == HISTORY
