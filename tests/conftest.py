"""What all tests share: where folders are made, and ledgers kept (files, or schemas of a PostgreSQL server that is
started for them), examples and draws that are the same in every run, a collector of garbage that does not look at the
tests themselves, and which tests `make check` leaves out.
"""

import gc
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests import entropy
from tests.servers import Cluster, memory, start

LONG = int(os.environ.get("CONFIDE_KILLS", "20")) > 20
"""`make chaos` looks for examples that nobody has seen."""
settings.register_profile("confide", deadline=None, derandomize=not LONG)
settings.load_profile("confide")


SLOW = {line for line in Path(__file__).with_name("slow.txt").read_text().splitlines() if not line.startswith("#")}
"""Tests, or whole files of them, that take seconds."""


def pytest_configure() -> None:
    """Folders are made in memory, where nothing waits for a disk, unless TMPDIR says where.

    What a killed process wrote is there as it is on a disk; `make chaos` goes to the disk. And interrupts are heard: a
    shell that starts a command in the background has them ignored, and whoever tests them would wait in vain.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    asked = LONG or not {"TMPDIR", "CONFIDE_SERVER_KILLS"}.isdisjoint(os.environ)
    if not asked and (found := memory()) is not None:
        os.environ["TMPDIR"] = tempfile.tempdir = found  # processes that tests start, and those that run tests, follow


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files that are slow as a whole are not even imported where slow tests are left out."""
    left_out = config.getoption("markexpr") == "not slow"
    return True if left_out and collection_path.relative_to(config.rootpath).as_posix() in SLOW else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark those that are slow: for all their parameters alike."""
    for item in items:
        name = item.nodeid.partition("[")[0]
        if not SLOW.isdisjoint((name, name.partition("::")[0])):
            item.add_marker("slow")


def pytest_collection_finish() -> None:
    """Thousands of tests and all modules stay until the end: the collector need not look at them again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """What a test draws, unseeded too, is the same in every run: whatever ran before it, in whichever process."""
    with entropy.of(item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest) -> Iterator[object]:
    """What several tests share is the same whichever of them asks for it first."""
    if fixturedef.scope == "function":
        return (yield)
    with entropy.of(f"{fixturedef.baseid} {fixturedef.argname} {getattr(request, 'param_index', 0)}"):
        return (yield)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A server of our own, for all tests of this process; skipped where there is none to start."""
    running = start()
    yield running
    running.end()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a ledger may be made that is not there yet: in a file, or on a server."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.db")
    fresh: Callable[[], str] = request.getfixturevalue("cluster").fresh
    return fresh()
