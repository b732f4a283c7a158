"""How the commands speak: one console, plain sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

OPERATOR = "operator only, outside the guarantee"

console = Console()


def say(text: str, style: str | None = None) -> None:
    """A sentence; brackets and numbers in it stay as they are."""
    console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def planning(rounds: int | None) -> Iterator[None]:
    """A sign of life while a plan is made: for a thousand million rounds that takes some ten seconds."""
    with console.status(f"planning{'' if rounds is None else f' {rounds:,} rounds'}: a moment"):
        yield


@contextmanager
def reading(stream: str) -> Iterator[Callable[[str], None]]:
    """A sign of life while a stream is read the first time, and what changes it to the file that is read."""
    with console.status(f"reading {escape(stream)}") as status:
        yield lambda name: status.update(f"reading {escape(name)}, a first time")
