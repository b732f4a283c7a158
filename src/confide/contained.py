"""What a learner, a fallback, an encoder or a row raises is its own: one rule for all that others bring.

A failure told to others would tell them of what a copy knows, or of what stands in a row. It need be no Exception:
libraries written in Rust panic with what is none, and a program may call `sys.exit` or raise KeyboardInterrupt. Only
what a signal raised passes, which is of who runs this: Ctrl-C, and whatever a handler raises that the program has set
up, such as one that exits when it is told to end. A signal raises in the main thread alone.
"""

from __future__ import annotations

import dis
import functools
import signal
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, TracebackType
from typing import Any, cast

__all__ = ["Caught", "Contained", "by_signal", "contained", "tried"]

_RAISES = dis.opmap["RAISE_VARARGS"]
_SIGNALS = tuple(map(int, signal.valid_signals()))


class Contained:
    """A block in which somebody else's program or value is at work: whatever it raises ends the block, and no more.

    Parameters
    ----------
    passes
        What goes up all the same, as Confide's own words do.

    Examples
    --------
    >>> with Contained(ValueError):
    ...     raise SystemExit
    """

    def __init__(self, *passes: type[BaseException]) -> None:
        self._passes = passes

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return error is not None and not isinstance(error, self._passes) and not by_signal(error)


class Caught(Contained):
    """The same, once, and of what was raised its type alone: its words may quote a value.

    Examples
    --------
    >>> with (caught := Caught()):
    ...     int("a secret")
    >>> caught.kind
    'ValueError'
    """

    kind = ""
    """The name of the type; empty where nothing was raised."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if kind is None:
            return False
        self.kind = kind.__name__
        return super().__exit__(kind, error, trace)


contained = Contained()
"""The block out of which only what a signal raised comes."""


def tried(act: Callable[..., Any], *given: Any) -> tuple[Any, BaseException | None]:
    """What it returns, and None; or None, and what it raised: for who runs this, where nobody's data was at work."""
    try:
        return act(*given), None
    except BaseException as error:
        if by_signal(error):
            raise
        return None, error


def by_signal(error: BaseException) -> bool:
    """Whether a signal raised this: then it is of who runs the program, and no learner's.

    Examples
    --------
    >>> by_signal(tried(exit)[1])
    False
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    return any(map(_raised_by_one, _with_causes(error)))


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """An exit that somebody's program made of an interrupt is one; a chain may be long, or lead back to itself."""
    seen, one = set[int](), cast(BaseException | None, error)
    while one is not None and id(one) not in seen:
        yield one
        seen.add(id(one))
        one = one.__context__ if isinstance(one, SystemExit | KeyboardInterrupt) else None


def _raised_by_one(error: BaseException) -> bool:
    trace = error.__traceback__
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    called = [one.tb_frame for one in frames[1:]]
    if isinstance(error, Exception):  # there are many, and to look at all handlers takes long
        called = [frame for frame in called if _holds_a_frame(frame)]
    if called and not {frame.f_code for frame in called}.isdisjoint(_handlers()):
        return True
    if not isinstance(error, KeyboardInterrupt):
        return False
    # Python's own handler of Ctrl-C leaves no frame: the interrupt comes from within a line that raises nothing.
    return not frames or frames[-1].tb_frame.f_code.co_code[frames[-1].tb_lasti] != _RAISES


def _holds_a_frame(frame: FrameType) -> bool:
    """Whether a function was called as handlers are: with the frame that was interrupted."""
    held = [one for value in frame.f_locals.values() for one in (value if type(value) is tuple else (value,))]
    return any(type(one) is FrameType for one in held)


def _handlers() -> Iterator[CodeType]:
    """The code of all handlers that are set up."""
    for number in _SIGNALS:
        handler: Any = signal.getsignal(number)
        while isinstance(handler, functools.partial):
            handler = handler.func
        handler = getattr(handler, "__func__", handler)
        if callable(handler) and not hasattr(handler, "__code__"):
            handler = next((vars(kind)["__call__"] for kind in type(handler).__mro__ if "__call__" in vars(kind)), None)
        code = getattr(handler, "__code__", None)
        if code is not None:
            yield code
