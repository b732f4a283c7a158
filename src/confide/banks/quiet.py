"""While learners of others are at work: no warnings of theirs, and no settings that they leave behind."""

from __future__ import annotations

import sys
import threading
import warnings
from typing import Any, Self

import numpy as np


class _Here(threading.local):
    """How many `Quiet` this thread is in. As a filter's pattern it matches every warning while there are any."""

    depth = 0

    def match(self, text: str) -> bool:
        return self.depth > 0


_HERE = _Here()
_FILTER: Any = ("ignore", _HERE, Warning, None, 0)


class Quiet:
    """Warnings raised in this thread are dropped, and numpy raises none; its settings are afterwards as they were.

    `warnings.catch_warnings` would do that for all threads, and undo what others set meanwhile. This puts one filter
    into the process's list, which matches nothing but in a thread that is in here.

    Examples
    --------
    >>> with Quiet():
    ...     warnings.warn("the copies disagree")
    ...     _ = np.seterr(all="raise")
    >>> np.geterr()["over"]
    'warn'
    """

    def __enter__(self) -> Self:
        filters: Any = warnings.filters
        if not filters or filters[0] is not _FILTER:  # the first time, and whenever others changed the list
            filters[:] = [_FILTER, *(other for other in filters if other is not _FILTER)]
        _HERE.depth += 1
        self._numpy = np.errstate(all="ignore")
        self._numpy.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._numpy.__exit__(None, None, None)
        _HERE.depth -= 1


class Apart(Quiet):
    """Quiet, and scikit-learn's settings too are afterwards as they were: no copy sets them for others."""

    def __enter__(self) -> Self:
        super().__enter__()
        sklearn = sys.modules.get("sklearn")
        self._sklearn = None if sklearn is None else sklearn.config_context()
        if self._sklearn is not None:
            self._sklearn.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._sklearn is not None:
            self._sklearn.__exit__(None, None, None)
        super().__exit__()
