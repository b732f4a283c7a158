"""What the service writes: one line of JSON for an event, in words and numbers that say nothing of anybody.

No x, label, answer, subject, request id, token or ticket is ever given to it. Of an error it writes the kind and the
place in the source, never the words: they might quote a value.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

__all__ = ["Log"]

_PACKAGE = str(Path(__file__).parent.parent)


class Log:
    """Writes events.

    Parameters
    ----------
    stream
        Where to; None for standard error.
    clock
        The time of an event; for tests.

    Examples
    --------
    >>> log = Log(sys.stdout, clock=lambda: datetime(2030, 1, 1, tzinfo=UTC))
    >>> log.event("late", model="spam")
    {"time": "2030-01-01T00:00:00+00:00", "event": "late", "model": "spam"}
    >>> log.error("failed", ValueError("something private"))
    {"time": "2030-01-01T00:00:00+00:00", "event": "failed", "error": "ValueError", "at": ""}
    """

    def __init__(
        self, stream: TextIO | None = None, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._stream, self._clock, self._lock = stream, clock, threading.Lock()

    def event(self, event: str, **public: str | float | None) -> None:
        """Something happened. Everything given here is written."""
        line = json.dumps({"time": self._clock().isoformat(timespec="seconds"), "event": event, **public})
        with self._lock:
            print(line, file=self._stream or sys.stderr, flush=True)

    def error(self, event: str, error: BaseException, **public: str | float | None) -> None:
        """Something went wrong: what kind of thing, and where in Confide's source."""
        self.event(event, **public, error=type(error).__name__, at=_place(error))

    def capture(self) -> None:
        """Take over what libraries would write by themselves: a warning's template, without what was put in it."""
        root = logging.getLogger()
        root.handlers = [_Handler(self)]
        root.setLevel(logging.WARNING)
        for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi", "asyncio"):
            logger = logging.getLogger(name)
            logger.handlers, logger.propagate = [], True
        logging.getLogger("uvicorn.access").disabled = True
        threading.excepthook = lambda told: self.error("thread", told.exc_value or RuntimeError())

    def loop_error(self, loop: Any, context: dict[str, Any]) -> None:
        """An event loop's handler for errors that nobody took."""
        self.error("loop", context.get("exception") or RuntimeError())


class _Handler(logging.Handler):
    """Writes a library's warnings without their arguments."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        known = str(record.msg) if record.name.startswith("uvicorn") and not record.exc_info else ""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self._log.error("library", error, logger=record.name, level=record.levelname)
        else:
            self._log.event("library", logger=record.name, level=record.levelname, message=known)


def _place(error: BaseException) -> str:
    """The innermost line of Confide's own that an error went through."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.startswith(_PACKAGE):
            return f"{frame.filename[len(_PACKAGE) + 1 :]}:{frame.lineno}"
    return ""
