"""How things look in a notebook: small pieces of HTML that need nothing else, in the notebook's own colours."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

from confide.extras import need

__all__ = ["bar", "card"]

OFTEN = 0.2
"""Seconds between two looks of a bar in a notebook."""

_CARD = "border-left:.25em solid currentColor;padding:.1em 0 .1em .9em;margin:.3em 0;max-width:60em"
_TABLE = "border-collapse:collapse;background:none;margin:.3em 0"
_CELL = "padding:.1em 1.2em .1em 0;vertical-align:top;background:none;border:0;"
_ALARM = "color:#d9363e;font-weight:600;margin:.2em 0"
_NOTE = "opacity:.75;margin:.2em 0"


def card(
    title: str,
    rows: Iterable[Sequence[object]] = (),
    *,
    head: Sequence[str] = (),
    alarms: Iterable[str] = (),
    notes: Iterable[str] = (),
) -> str:
    """A title, a table, what is alarming and what is to be noted: everything escaped, no colour of a background.

    Examples
    --------
    >>> "<td" in card("a", [("b", 1)]), "&lt;b&gt;" in card("<b>"), "background:#" in card("a")
    (True, True, False)
    """
    plain, numbers = _CELL + "text-align:left", _CELL + "text-align:right"

    def line(cells: Sequence[object], kind: str) -> str:
        styles = [numbers if head and i else plain for i in range(len(cells))]
        inside = (f'<{kind} style="{style}">{_text(cell)}</{kind}>' for style, cell in zip(styles, cells, strict=True))
        return f"<tr>{''.join(inside)}</tr>"

    shown = (line(head, "th") if head else "") + "".join(line(row, "td") for row in rows)
    return (
        f'<div class="mathjax_ignore tex2jax_ignore" style="{_CARD}"><b>{_text(title)}</b>'
        + "".join(f'<p style="{_ALARM}">{_text(line)}</p>' for line in alarms)
        + (f'<table style="{_TABLE}">{shown}</table>' if shown else "")
        + "".join(f'<p style="{_NOTE}">{_text(line)}</p>' for line in notes)
        + "</div>"
    )


@contextmanager
def bar(name: str, total: int, done: int = 0, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """A bar that is advanced by steps: in a notebook a plain element that needs no widgets, else in the terminal."""
    display = _display() if shown else None
    if not shown:
        yield lambda steps: None
    elif display is not None:
        one = _Bar(display, name, total, done)
        try:
            yield one.advance
        finally:
            one.show()
    else:
        rich: Any = need("rich.progress", "cli", "a progress bar")
        texts = rich.TextColumn("{task.description}"), rich.BarColumn(), rich.MofNCompleteColumn()
        with rich.Progress(*texts, rich.TimeRemainingColumn()) as progress:
            task = progress.add_task(name, total=total, completed=done)
            yield lambda steps: progress.advance(task, steps)


class _Bar:
    """A bar in a notebook, shown again in its place."""

    def __init__(self, display: Any, name: str, total: int, done: int) -> None:
        self._display, self._name, self._total, self._done = display, name, total, done
        self._handle = display.display(self._look(), display_id=True)
        self._last = time.monotonic()

    def advance(self, steps: int) -> None:
        self._done += steps
        if time.monotonic() - self._last > OFTEN:
            self.show()

    def show(self) -> None:
        self._last = time.monotonic()
        self._handle.update(self._look())

    def _look(self) -> Any:
        look = f'<progress max="{max(1, self._total)}" value="{self._done}"></progress>'
        return self._display.HTML(f"{_text(self._name)} {look} {self._done:,} of {self._total:,}")


def _display() -> Any:
    """What shows HTML in the notebook that we are in; None outside of one."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return importlib.import_module("IPython.display") if hasattr(shell, "kernel") else None


def _text(value: object) -> str:
    return escape(str(value))
