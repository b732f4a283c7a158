"""When models are fitted anew, and from when on the new one answers: both follow from how many labels came.

In a service a fit runs beside the answers. It begins when there are enough new rows, and its model answers from an
eighth more labels on, whenever the fit ended: whoever brings that label waits for it, if need be. So neither the speed
of the machine nor a restart changes who answers what.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from confide.contained import Caught

__all__ = ["Fit", "next_fit"]

M = TypeVar("M")

_SHARE = 8
"""Beside answers a fit has this part of the labels so far to come to its end."""


def next_fit(taught: int, first: int, memory: int, halfway: bool = False) -> int:
    """The number of labels at which a model is fitted next: doubled each time, until all that is kept is new.

    `halfway`: also in the middle between two of these moments, while rows still double.

    Examples
    --------
    >>> next_fit(0, 64, 1000), next_fit(64, 64, 1000), next_fit(2500, 64, 1000)
    (64, 128, 3000)
    >>> next_fit(0, 64, 1000, True), next_fit(64, 64, 1000, True), next_fit(96, 64, 1000, True)
    (64, 96, 128)
    """
    if taught >= memory:
        return (taught // memory + 1) * memory
    due = first
    while due <= taught:
        due *= 2
    middle = due * 3 // 4
    return middle if halfway and due > first and taught < middle else due


class Fit(Generic[M]):
    """A fit that was begun.

    Parameters
    ----------
    make
        Gives the fitted model; it must read nothing that others change.
    taught
        How many labels came so far.
    beside
        Whether it runs in a thread of its own. If not, it has come to its end when this is made.
    """

    raised = ""
    """The type of what a fit that failed has raised."""

    def __init__(self, make: Callable[[], M | None], taught: int, beside: bool) -> None:
        self.at = taught + taught // _SHARE if beside else taught
        """After so many labels its model answers."""
        self._made: M | None = None
        self._thread: threading.Thread | None = None
        if beside:
            self._thread = threading.Thread(target=self._run, args=(make,), daemon=True)
            self._thread.start()
        else:
            self._run(make)

    def _run(self, make: Callable[[], M | None]) -> None:
        with (caught := Caught()):  # somebody else's estimator may raise: what its last fit knew stays
            self._made = make()
        self.raised = caught.kind

    def result(self) -> M | None:
        """What was fitted, when it is; None where the fit failed. A fit that has come to its end can be pickled."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        return self._made
