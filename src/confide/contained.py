"""What a learner, a fallback, an encoder or a row raises is its own: one rule for all that others bring.

A failure told to others would tell them of what a copy knows, or of what stands in a row. It need be no Exception:
libraries written in Rust panic with what is none, and a program may call `sys.exit`. Only an interrupt passes, which is
of who runs this.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

__all__ = ["Contained", "contained", "tried"]


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
        self._passes: tuple[type[BaseException], ...] = (KeyboardInterrupt, *passes)

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return kind is not None and not issubclass(kind, self._passes)


contained = Contained()
"""The block out of which only an interrupt comes."""


def tried(act: Callable[..., Any], *given: Any) -> tuple[Any, BaseException | None]:
    """What it returns, and None; or None, and what it raised: for who runs this, where nobody's data was at work."""
    try:
        return act(*given), None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return None, error
