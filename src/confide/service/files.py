"""How many files a process may have open, and how many of them connections may be: a ledger must always find one."""

from __future__ import annotations

import contextlib
import sys
from typing import NamedTuple

try:
    import resource
except ModuleNotFoundError:  # not on every system
    _resource = None
else:
    _resource = resource

__all__ = ["Room", "raised", "room_for"]

CONNECTIONS = 2000
"""Connections at the public port, where the file does not say how many."""

OPERATOR, BACKLOG = 128, 1024
"""Connections at the operator's port; those that the system may have taken on and that nobody has looked at yet."""

OWN, MODEL, ELSEWHERE = 128, 32, 400
"""Files of the process itself, of a model (ledger, snapshots, locks), and to a model's owner elsewhere."""

FEWEST = 16
"""Connections without which nobody is served."""


class Room(NamedTuple):
    """How many connections there may be."""

    public: int
    operator: int
    backlog: int


def raised() -> int:
    """Files that may be open from now on: as many as the system lets this process have."""
    if _resource is None:
        return sys.maxsize
    soft, hard = _resource.getrlimit(_resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # a system may have a limit of its own
        _resource.setrlimit(_resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return sys.maxsize if soft == _resource.RLIM_INFINITY else soft


def room_for(files: int, wanted: int | None, models: int, elsewhere: int) -> Room:
    """Connections for which there are files, when all that the process needs for itself is put aside.

    Both ports may be handed a whole backlog at once, before any of it can be refused.

    Parameters
    ----------
    files
        Files that may be open.
    wanted
        Connections at the public port; None for as many as there may well be.
    models, elsewhere
        Models that are owned here, and by other processes.

    Examples
    --------
    >>> room_for(20_000, None, 1, 0)
    Room(public=2000, operator=128, backlog=1024)
    >>> room_for(512, None, 1, 0)
    Room(public=160, operator=64, backlog=64)
    """
    operator, backlog = min(OPERATOR, files // 8), min(BACKLOG, files // 8)
    own = OWN + MODEL * models + ELSEWHERE * elsewhere + operator + 2 * backlog
    public = min(CONNECTIONS, files - own) if wanted is None else wanted
    if public < FEWEST or public > files - own:
        raise ValueError(
            f"{files:,} files may be open, and {max(public, FEWEST):,} connections need {max(public, FEWEST) + own:,}: "
            "raise the limit (ulimit -n, or LimitNOFILE= under systemd), or lower limits.connections"
        )
    return Room(public, operator, backlog)
