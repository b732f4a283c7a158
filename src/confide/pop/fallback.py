"""The fallback: what answers when nothing private may be used."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.contained import contained
from confide.privacy.random import Random

__all__ = ["Fallback"]

FAILED = "the fallback failed"


class Fallback:
    """A coin, a constant, or a public model.

    It is asked in every round, needed or not, so that nobody else can tell from the time whether it was; and its coin
    has a generator of its own, so that no other draw depends on whether one was tossed.

    Parameters
    ----------
    given
        "coin", one of the labels, a callable of x, or a model with `predict_one`.
    index
        The labels' numbers.
    rng
        For the coin alone.
    """

    def __init__(self, given: Any, index: Mapping[Hashable, int], rng: Random) -> None:
        self.given = given
        self.kind = "public"
        """"coin", "constant" or "public"."""
        self._index, self._rng = index, rng
        self._constant = 0
        self._function: Callable[[Any], Any] | None = None
        if is_label(given, index):
            self.kind, self._constant = "constant", index[given]
        elif isinstance(given, str) and given == "coin":
            self.kind = "coin"
        else:
            function = getattr(given, "predict_one", given)
            if not callable(function):
                raise ValueError(
                    "fallback must be 'coin', one of the labels, a callable of x, or a model with predict_one"
                )
            self._function = function

    def answer(self, x: Any) -> int | ValueError:
        """The number of a label; where a public model fails, what its asker is told."""
        if self.kind == "coin":
            return self._rng.below(len(self._index))
        if self._function is None:
            return self._constant
        with contained:
            try:
                return self._index[self._function(x)]
            except (KeyError, TypeError):
                return ValueError("the fallback answered with something that is not one of the labels")
            except ValueError as error:
                return error
        return ValueError(FAILED)

    def answers(self, xs: Any) -> tuple[NDArray[np.int64], dict[int, ValueError]]:
        """`answer` of each row, −1 where it fails, and what its asker is told there."""
        if self.kind == "coin":
            return self._rng.below_many(len(self._index), len(xs)), {}
        given = np.full(len(xs), self._constant)
        failed: dict[int, ValueError] = {}
        for i in range(0 if self._function is None else len(xs)):
            label = self.answer(xs[i])
            if isinstance(label, ValueError):
                given[i], failed[i] = -1, label
            else:
                given[i] = label
        return given, failed


def is_label(thing: Any, index: Mapping[Hashable, int]) -> bool:
    """Whether `thing` is one of the labels."""
    try:
        return thing in index
    except (TypeError, ValueError):  # it has no hash, or no truth
        return False
