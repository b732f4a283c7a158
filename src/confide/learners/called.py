"""What a learner calls the labels: by themselves, as its user does, or by their numbers, as Confide's own do."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.contained import contained

Labels = int | Sequence[Hashable]
"""All labels, or only their number: then they are called 0 … L−1."""

ABSTAINS, RAISED, NO_LABEL = -1, -2, -3
"""Instead of a label's number: the learner abstains; it raised; what it answered is none of the labels."""


class NoLabel(ValueError):
    """What a learner answered is none of the labels. It quotes nothing: an answer may be private.

    Parameters
    ----------
    said
        A sentence.
    kind
        The name of the answer's type, where it is known.
    """

    def __init__(self, said: str, kind: str = "") -> None:
        super().__init__(said)
        self.kind = kind


class Called:
    """The labels as a learner calls them.

    Parameters
    ----------
    labels
        All of them, or their number.

    Examples
    --------
    >>> called = Called(["no", "yes"])
    >>> called.number("yes"), called.number(None), called.values[1]
    (1, -1, 'yes')
    """

    def __init__(self, labels: Labels) -> None:
        self.values = values_of(labels)
        self._index = {value: i for i, value in enumerate(self.values)}
        if len(self._index) < len(self.values):
            raise ValueError("labels must be different from each other: name each once")
        if None in self._index:
            raise ValueError("None cannot be a label of this learner, which abstains by it: take another one")

    def number(self, answer: Any) -> int:
        """The number of an answer, or ABSTAINS; NoLabel for anything else."""
        if answer is None:
            return ABSTAINS
        with contained:  # whatever it does when it is looked up
            return self._index[answer]
        raise NoLabel("a label must be one of those that were given", type(answer).__name__)

    def learned(self, y: Any) -> int:
        """The number of a label that is to be learned."""
        number = self.number(y)
        if number < 0:
            raise NoLabel("None is no label, so it cannot be learned")
        return number

    def numbers(self, answers: Iterable[Any]) -> NDArray[np.int64]:
        """The same of many answers; NO_LABEL where one is none."""
        return np.array([self._number(answer) for answer in answers], dtype=np.int64)

    def _number(self, answer: Any) -> int:
        try:
            return self.number(answer)
        except NoLabel:
            return NO_LABEL


def values_of(labels: Labels) -> tuple[Hashable, ...]:
    """The labels themselves."""
    if isinstance(labels, str | bytes):
        raise ValueError("labels must be a list of all labels, or their number")
    return tuple(range(labels)) if isinstance(labels, int | np.integer) else tuple(labels)


def called_by(learner: Any, labels: Labels) -> Called:
    """The labels as this learner calls them: Confide's own by their numbers, all others as they are given."""
    return Called(len(values_of(labels)) if getattr(learner, "numbered", False) else labels)
