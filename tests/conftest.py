"""Where ledgers are kept in tests: files, and schemas of a PostgreSQL server that is started for them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.servers import Cluster, start


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
