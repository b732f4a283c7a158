"""Names of older questions: each is found in its last round, in memory or on the disk, and no other is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.service import names as module
from confide.service.names import SCHEMA, Names

HALVES = st.integers(-(2**63), 2**63 - 1)


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    with closing(made()) as db:
        yield db


def made() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.executescript(SCHEMA)
    return db


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.sampled_from([*range(-40, 40), -(2**63), 2**63 - 1]), min_size=1, max_size=9), max_size=30),
    st.lists(HALVES, max_size=5), st.integers(1, 12), st.integers(1, 3), st.integers(0, 200),
)  # fmt: skip
def test_names_are_as_in_a_dict(
    parts: list[list[int]], strange: list[int], run: int, runs: int, gone: int
) -> None:
    """A name that was asked again, once its time was over, is of its last round."""
    with pytest.MonkeyPatch.context() as patch, closing(made()) as db:
        patch.setattr(module, "RUN", run)
        patch.setattr(module, "RUNS", runs)
        names, known, number = Names(db), dict[int, int](), 0
        for part in parts:
            rounds = [number := number + 1 for _ in part]
            names.add(part, rounds)
            known.update(zip(part, rounds, strict=True))
        asked = [*known, *strange]
        assert names.find(asked) == known | {half: known[half] for half in strange if half in known}
        assert names.find([]) == {}
        names.drop(gone)
        found = names.find(asked)
        assert all(known[half] == at for half, at in found.items() if at > gone)
        assert {half for half, at in known.items() if at > gone} <= {*found}


def test_what_was_never_asked_is_looked_for_on_the_disk_two_times_in_ten_thousand(db: sqlite3.Connection) -> None:
    """With a full filter; 80 of 200,000 or more come by chance less than once in a million times."""
    rng = np.random.default_rng(1)
    names, halves = Names(db), rng.integers(-(2**63), 2**63 - 1, size=module.RUN * module.RUNS)
    for i in range(0, len(halves), module.RUN):
        names.add(halves[i : i + module.RUN].tolist(), range(i + 1, i + module.RUN + 1))
    (only,), others = names._filters, rng.integers(-(2**63), 2**63 - 1, size=200_000)
    assert len(only.may_have(module._places(others))) < 80
    assert len(only.may_have(module._places(halves))) == len(halves), "none that was is missed"
    some = halves[::997].tolist()
    assert names.find(some) == {half: 1 + 997 * i for i, half in enumerate(some)}
    (size,) = db.execute("SELECT sum(length(names)) FROM run").fetchone()
    assert size == 16 * len(halves)
    names.drop(len(halves))
    assert db.execute("SELECT count(*) FROM run").fetchone() == (0,) and not names.find(some)


def test_a_filter_goes_with_its_runs_however_short_names_are_known(db: sqlite3.Connection) -> None:
    """A model's tickets may last for two runs: then no filter has what is long gone for more than its own time."""
    rng, names, at = np.random.default_rng(2), Names(db), 0
    for _ in range(3 * module.RUNS + 5):
        names.add(rng.integers(-(2**63), 2**63 - 1, size=module.RUN).tolist(), range(at + 1, at + module.RUN + 1))
        at += module.RUN
        names.drop(at - 2 * module.RUN)
    others = module._places(rng.integers(-(2**63), 2**63 - 1, size=100_000))
    assert len(names._filters) <= 2 and all(len(one.may_have(others)) < 60 for one in names._filters)
    names.drop(at)
    assert not names._filters and not names.find([1])
