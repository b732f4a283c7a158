"""Memory and pipes that two processes of one machine share, for what goes from one to the other and back.

They have no name in any folder: the other process reaches them through the one that made them (`/proc`, Linux), as only
the same user may, and they are gone when both are. On another machine, or in another container, nothing is reached, and
what is to go there travels otherwise. One call at a time has the memory, from its writing to the reading of its answer;
the pipes say that there is something to read. Whoever waits sleeps, and the end of a process ends the wait.
"""

from __future__ import annotations

import mmap
import os
import pickle
import secrets
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, cast

__all__ = ["SPACE", "Lent", "Reached", "Where", "copied", "packed", "room", "unpacked", "written"]

SPACE = 8 << 20
"""Bytes of a memory: a batch of 4096 rows with polls of 513, for one of two shards, is 3 MB."""

QUIET = 5.0
"""Seconds without an answer after which somebody else is asked whether the other process lives."""

LINE = 64
"""Bytes of a cache line, at which arrays begin."""


class Where(NamedTuple):
    """How another process finds what was lent."""

    process: int
    file: int
    name: str
    """Fresh and long: what has it is this memory, and on another machine nothing has."""
    asked: int
    said: int


class Lent:
    """A memory and two pipes, on the side that made them."""

    def __init__(self, name: str) -> None:
        file = os.memfd_create(name)
        os.fchmod(file, 0o600)
        self._close = weakref.finalize(self, os.close, file)
        os.posix_fallocate(file, 0, SPACE)  # what is not there now would end this process when it is written
        self._bytes, self._taken = memoryview(mmap.mmap(file, SPACE)), threading.Lock()
        (asked, self._ask), (self._said, say) = Pipe(duplex=False), Pipe(duplex=False)
        self._theirs, self._end = (asked, say), cast(int | None, None)
        self._number, self._process = 0, os.getpid()
        self.where = Where(os.getpid(), file, name, asked.fileno(), say.fileno())

    @staticmethod
    def new() -> Lent | None:
        """A memory; None where the system gives none."""
        if not hasattr(os, "memfd_create"):
            return None
        with suppress(OSError):
            return Lent(f"confide-{secrets.token_hex(16)}")
        return None

    def met(self, process: int) -> None:
        """This process has reached it: its end is felt from now on, whoever else holds its ends of the pipes."""
        with suppress(OSError, AttributeError):  # where it cannot be looked at the pipes say it, or `finish` asks
            self._end = os.pidfd_open(process)
            weakref.finalize(self, os.close, self._end)

    def close(self) -> None:
        """Whoever has not reached it yet never does; and the end of whoever has is felt from now on."""
        self._close()
        for end in self._theirs:
            end.close()

    def begin(self, call: str, parts: Sequence[memoryview]) -> bool:
        """Have the other side do `call` with these; False without room, where a call before has the memory still, or in
        a process that was forked from the one that made it."""
        if room(parts) > SPACE or os.getpid() != self._process or not self._taken.acquire(blocking=False):
            return False
        self._number += 1
        with suppress(OSError):  # the other side is gone, as `finish` finds
            self._ask.send_bytes(pickle.dumps((self._number, call, written(self._bytes, parts))))
        return True

    def finish(self, lives: Callable[[], object]) -> tuple[str, Any]:
        """How the call ended, and its answer in this process's own memory, however long it takes.

        EOFError where the other side is gone. `lives` raises what it likes if that is so.
        """
        ends: list[Any] = [self._said] if self._end is None else [self._said, self._end]
        while self._said not in (ready := wait(ends, QUIET)):
            if ready and not self._said.poll():
                raise EOFError
            lives()
        number, ended, what = pickle.loads(self._said.recv_bytes())
        if number != self._number:
            raise EOFError
        if ended == "done":
            what = unpacked(copied(self._bytes, what), what)
        self._taken.release()
        return ended, what


class Reached:
    """What another process lent."""

    def __init__(self, where: Where, memory: memoryview) -> None:
        self.memory, fds = memory, f"/proc/{where.process}/fd"
        self._asked = Connection(os.open(f"{fds}/{where.asked}", os.O_RDONLY), writable=False)
        self._say = Connection(os.open(f"{fds}/{where.said}", os.O_WRONLY), readable=False)

    @staticmethod
    def at(where: Where) -> Reached | None:
        """What is there; None where that is not to be had from here."""
        path = f"/proc/{where.process}/fd/{where.file}"
        with suppress(OSError):
            if os.readlink(path) == f"/memfd:{where.name} (deleted)":
                with open(path, "r+b") as file:
                    return Reached(where, memoryview(mmap.mmap(file.fileno(), SPACE)))
        return None

    def serve(self, do: Callable[[str, Sequence[int]], tuple[str, Any]]) -> None:
        """Do what is asked, call after call, until the other side is gone."""
        with suppress(EOFError, OSError):
            while True:
                number, call, sizes = pickle.loads(self._asked.recv_bytes())
                self._say.send_bytes(pickle.dumps((number, *do(call, sizes))))


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
