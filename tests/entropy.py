"""The operating system's entropy, as tests see it: a stream of bytes that is named by the test that reads it.

A test that passed once passes in every run, seeded or not, because `os.urandom` as Confide's generators call it is
replaced while the test runs. CONFIDE_ENTROPY=system takes the system's own; CONFIDE_ENTROPY=7 takes other streams, all
different from the usual ones: the whole suite is green under any such number, and a test that is not leans on luck.
`make chaos` always takes the system's own. Processes that a test starts are not reached.
"""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

from confide.privacy import random as generators

CHOICE = "system" if int(os.environ.get("CONFIDE_KILLS", "20")) > 20 else os.environ.get("CONFIDE_ENTROPY", "0")
_OWNER = os.getpid()
_SYSTEM = os.urandom


class _Stream:
    """Bytes named by `name`; the system's own in a process that was forked, since two children must differ."""

    def __init__(self, name: str) -> None:
        self._draw = random.Random(f"{CHOICE} {name}").randbytes

    def urandom(self, n: int) -> bytes:
        return self._draw(n) if os.getpid() == _OWNER else _SYSTEM(n)


@contextmanager
def of(name: str) -> Iterator[None]:
    """While it lasts, keys of secure generators come from the stream `name`."""
    before = generators.os
    if CHOICE != "system":
        generators.os = SimpleNamespace(urandom=_Stream(name).urandom)  # type: ignore[assignment]
    try:
        yield
    finally:
        generators.os = before
