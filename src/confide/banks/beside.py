"""Memory that two processes of one machine share, for what goes from one to the other and back.

It has no name in any folder: the other process reaches it through the one that made it (`/proc`, Linux), as only the
same user may, and it is gone when both are. On another machine, or in another container, nothing is reached, and what
is to go there travels otherwise. One call at a time has the memory, from its writing to the reading of its answer.
"""

from __future__ import annotations

import mmap
import os
import pickle
import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

__all__ = ["LINE", "SPACE", "Lent", "Where", "copied", "packed", "reached", "room", "unpacked", "written"]

SPACE = 8 << 20
"""Bytes of a memory: a batch of 4096 rows with polls of 513, for one of two shards, is 3 MB."""

LINE = 64
"""Bytes of a cache line, at which arrays begin."""


class Where(NamedTuple):
    """How another process finds a memory."""

    process: int
    file: int
    name: str
    """Fresh and long: what has it is this memory, and on another machine nothing has."""


class Lent:
    """A memory, on the side that made it."""

    def __init__(self, file: int, name: str) -> None:
        os.posix_fallocate(file, 0, SPACE)  # what is not there now would end this process when it is written
        self.where, self._bytes = Where(os.getpid(), file, name), memoryview(mmap.mmap(file, SPACE))
        self._taken = threading.Lock()

    @staticmethod
    def new() -> Lent | None:
        """A memory; None where the system gives none."""
        if not hasattr(os, "memfd_create"):
            return None
        with suppress(OSError):
            name = f"confide-{secrets.token_hex(16)}"
            file = os.memfd_create(name)
            try:
                return Lent(file, name)
            except OSError:
                os.close(file)
        return None

    def close(self) -> None:
        """Whoever has not reached it yet never does."""
        os.close(self.where.file)

    def begin(self, parts: Sequence[memoryview]) -> list[int] | None:
        """Write what a call is given; None where there is no room, or a call before has the memory still."""
        if room(parts) > SPACE or not self._taken.acquire(blocking=False):
            return None
        return written(self._bytes, parts)

    def finish(self, sizes: Sequence[int] | None) -> Any:
        """The answer of that call, in this process's own memory; None where it came otherwise."""
        said = None if sizes is None else unpacked(copied(self._bytes, sizes), sizes)
        self._taken.release()
        return said


def reached(where: Where) -> memoryview | None:
    """The memory that another process made; None where that is not to be had from here."""
    path = f"/proc/{where.process}/fd/{where.file}"
    with suppress(OSError):
        if os.readlink(path) == f"/memfd:{where.name} (deleted)":
            with open(path, "r+b") as file:
                return memoryview(mmap.mmap(file.fileno(), SPACE))
    return None


def packed(given: Any, dumps: Callable[..., bytes] = pickle.dumps) -> list[memoryview]:
    """A thing in bytes: a head, and its arrays as they are."""
    buffers: list[pickle.PickleBuffer] = []
    head = dumps(given, protocol=5, buffer_callback=buffers.append)
    return [memoryview(head), *(buffer.raw() for buffer in buffers)]


def room(parts: Sequence[memoryview]) -> int:
    """Bytes of these one after the other, each at the beginning of a cache line."""
    return sum(map(_lines, (part.nbytes for part in parts)))


def written(memory: memoryview, parts: Sequence[memoryview]) -> list[int]:
    """Put these into a memory; their sizes."""
    begin = 0
    for part in parts:
        memory[begin : begin + part.nbytes] = part
        begin += _lines(part.nbytes)
    return [part.nbytes for part in parts]


def unpacked(blob: memoryview, sizes: Sequence[int]) -> Any:
    """What was packed into parts of these sizes; its arrays stay where they are."""
    parts, begin = [], 0
    for size in sizes:
        parts.append(blob[begin : begin + size])
        begin += _lines(size)
    return pickle.loads(parts[0], buffers=parts[1:])


def copied(memory: memoryview, sizes: Sequence[int]) -> memoryview:
    """Parts of these sizes, which stay when the memory is written again."""
    return memoryview(bytearray(memory[: sum(map(_lines, sizes))]))


def _lines(size: int) -> int:
    return -(-size // LINE) * LINE
