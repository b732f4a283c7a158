"""Whether a `-wal` is whole: SQLite takes one with a damaged page for one that ends there, and forgets what follows.

A write that was torn leaves at most one transaction behind the last that counts, because each is on the disk before
the next begins. Two or more of them are damage. SQLite describes the format in its documentation of WAL files.
"""

from __future__ import annotations

import struct
from pathlib import Path

__all__ = ["lost"]

_HEADER, _FRAME, _PAGE = 32, 24, 4096


def lost(wal: Path, frames: int) -> int:
    """How many transactions stand in a `-wal` after so many frames, the last that SQLite takes for good.

    What is left of earlier rounds through the file has another salt, and does not count.
    """
    whole = wal.read_bytes() if wal.exists() else b""
    if len(whole) < _HEADER + _FRAME:
        return 0
    sound = _sound(whole)
    step = _FRAME + (int.from_bytes(whole[8:12]) if sound else _PAGE)
    salt = whole[16:24] if sound else whole[_HEADER + 8 : _HEADER + 16]
    starts = range(_HEADER + frames * step, len(whole) - _FRAME + 1, step)
    return sum(whole[at + 8 : at + 16] == salt and any(whole[at + 4 : at + 8]) for at in starts)


def _sound(whole: bytes) -> bool:
    """Whether the file's header has the checksum that it should have."""
    words = struct.unpack(">6I" if whole[3] & 1 else "<6I", whole[:24])
    first = second = 0
    for one, other in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) % 2**32
        second = (second + other + first) % 2**32
    return whole[24:32] == struct.pack(">2I", first, second)
