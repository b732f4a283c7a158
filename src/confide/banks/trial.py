"""A learner tried out when it is given, on rows that are made up: so that one that cannot answer is not run in silence.

Refused is what is wrong whatever the rows: a learner that answers something else than a label or None; and, where the
number of columns is known, so that these rows are such as will come, one that raises whenever it is taught, or whenever
it is asked after it was taught. Where nothing is known of the rows, an exception tells nothing of the learner: then a
warning says that it could not be tried. Refused is also a learner whose copies share what one of them was taught, as
far as `confide.banks.sharing` or another copy's answers show it. Nobody's data is looked at, and what is tried are
copies that are thrown away.
"""

from __future__ import annotations

import copy as copying
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from confide.banks.inside import freeze, reseed, thaw
from confide.banks.quiet import Apart
from confide.banks.sharing import mark, marks
from confide.contained import contained, tried
from confide.errors import ConfideWarning
from confide.learners.base import Base, Learner
from confide.learners.called import Called, NoLabel
from confide.learners.features import Encoder, Pipeline

_ZERO, _TEXT = float(0), ""
_MADE_UP = (_ZERO, _TEXT)
_TIMES = 3
_ALIKE = 20
"""Answers of untaught copies that must agree before another answer counts: one that a coin decides passes them once in
a million times, at most."""


class _Anything(dict[Any, Any]):
    """A row without features, that has whatever feature it is asked for."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self._value = value

    def __missing__(self, key: Any) -> Any:
        return self._value

    def __contains__(self, key: Any) -> bool:
        return True

    def get(self, key: Any, default: Any = None) -> Any:
        return self._value

    def like(self, number: int) -> Any:
        """Another value of the same kind."""
        return f"text {number}" if isinstance(self._value, str) else float(number + 2)


def try_out(learner: Learner, called: Called, width: int | None, encoder: Encoder) -> None:
    """Refuse a learner that answers no labels, or that never works.

    Parameters
    ----------
    learner
        The prototype.
    called
        The labels as it calls them.
    width
        The number of columns of the rows that will come, where it is known.
    encoder
        What makes the rows.
    """
    if _known(learner):
        return
    if _inside(thaw(freeze(learner), learner)) is _inside(learner):
        raise ValueError(
            f"a copy of {_name(learner)} is the same object, so all copies would learn what one is taught: let "
            "__deepcopy__ make another one"
        )
    outcomes = list[BaseException | None]()
    for rows in _rows(width, encoder):
        outcomes.append(_tried(learner, called, rows))
        if outcomes[-1] is None and type(_inside(learner)).__module__.partition(".")[0] != "confide":
            _stand_apart(learner, called, rows)
    if None in outcomes:
        return
    failed = outcomes[0]
    said = f"{_name(learner)} was given as a learner, and failed whenever it was tried on rows that are made up"
    why = f"{type(failed).__name__}: {failed}"
    if width is not None:
        raise ValueError(f"{said} ({why}). Let predict return None to abstain") from failed
    warnings.warn(
        f"{said}, as no features are declared ({why}). If that is not the fault of these rows, it will never answer: "
        "declare features=, the number of columns, and it is tried on rows that have them",
        ConfideWarning,
        stacklevel=6,
    )


def stands_still(encoder: Encoder) -> None:
    """Refuse an encoder of somebody else's that changes by what it encodes: all copies would share what it learned."""
    if type(encoder).__module__.partition(".")[0] == "confide":
        return
    values = _ZERO, float(7), _TEXT, "text"
    dicts: list[Any] = [form for value in values for form in (_Anything(value), {"a": value, "b": value})]
    rows = [*dicts, *(_fixed(np.full(width, value)) for value in values[:2] for width in (1, 2))]
    copied, failed = tried(copying.deepcopy, encoder)
    one = encoder if failed is not None else copied
    before = [_encoded(one, row) for row in rows]
    if [_encoded(one, row) for row in rows] != before:
        raise ValueError(
            f"{type(encoder).__name__} makes something else of a row after it met others: whatever it learns or draws "
            "is shared by all copies, and leaks. Declare columns and ranges instead, and scale inside the learner"
        )


def _encoded(encoder: Encoder, row: Any) -> bytes | None:
    """What it makes of a row that is made up; None where it takes no such row."""
    encoded, failed = tried(encoder.encode, row)
    return mark(encoded) if failed is None else None


def _known(learner: Any) -> bool:
    """Whether it is one of Confide's own, which are tested, and no subclass that somebody else wrote."""
    inner = learner.learner if isinstance(learner, Pipeline) else learner
    numbered = isinstance(inner, Base) and inner.numbered
    return numbered and type(inner).__module__.partition(".")[0] == "confide"


def _rows(width: int | None, encoder: Encoder) -> Iterator[list[Any]]:
    """Pairs of rows to try, those that most learners take first."""
    if width is not None:
        yield [_fixed(np.zeros(width)), _fixed(np.ones(width))]
        return
    encoded, failed = tried(lambda: [encoder.encode({}), encoder.encode({})])
    if failed is None:  # an encoder of one's own may take other rows
        yield encoded
    yield from ([_Anything(value)] * 2 for value in _MADE_UP)
    yield [_fixed(np.zeros(1)), _fixed(np.ones(1))]


def _fixed(row: Any) -> Any:
    row.flags.writeable = False
    return row


def _tried(learner: Any, called: Called, rows: list[Any]) -> BaseException | None:
    """Ask and teach a copy a few times; None where it learned, and answered after that, at least once; else why not."""
    copy = _copy(learner)
    _ask(copy, called, rows)
    asked, taught = list[BaseException | None](), list[BaseException | None]()
    for x, label in zip(rows, called.values, strict=False):
        with Apart():
            taught.append(tried(copy.learn, x, label)[1])
        asked += _ask(copy, called, rows)
    for outcomes in (taught, asked):
        if None not in outcomes:
            return outcomes[-1]
    return None


def _ask(copy: Any, called: Called, rows: list[Any]) -> list[BaseException | None]:
    """What it raises for each row; None where it answers."""
    failures: list[BaseException | None] = []
    for x in rows:
        with Apart():
            answer, failed = tried(copy.predict, x)
        if isinstance(failed, NoLabel):
            raise ValueError(f"{_name(copy)} answers something else than labels, which it must return")
        if failed is not None:
            failures.append(failed)
            continue
        try:
            if all(answer is not value for value in _MADE_UP):  # it may be one of the row's own
                called.number(answer)
        except NoLabel:
            known = ", ".join(map(repr, called.values[:4])) + (", …" if len(called.values) > 4 else "")
            raise ValueError(
                f"{_name(copy)} predicts {_short(answer)} for a row that is made up, which is none of the labels "
                f"{known}: return the label itself, or None to abstain"
            ) from None
        failures.append(None)
    return failures


def _stand_apart(learner: Any, called: Called, rows: list[Any]) -> None:
    """Refuse a learner whose copies share what one of them is taught.

    What a lesson moves once and never again is no sharing but something set up late: it moved in `_tried` already. And
    another thread may draw from a generator meanwhile: so only what moves each time counts.
    """
    moved: set[str] | None = None
    for time in range(_TIMES):
        now = _moved(learner, called, _others(rows, time), called.values[time % len(called.values)])
        moved = now if moved is None else moved & now
        if not moved:
            return
    raise ValueError(
        f"copies of {_name(learner)} share {' and '.join(sorted(moved or ()))}: what one of them is taught or asked "
        "would reach the others, and the promise would not hold. Keep it in the learner itself, made in __init__; a "
        "generator too, which Confide seeds anew in every copy"
    )


def _moved(learner: Any, called: Called, rows: list[Any], label: Any) -> set[str]:
    """What moves outside a copy when it is taught and asked, by what it is called."""
    taught, other, asked = (_copy(learner) for _ in range(3))
    alike = [_said(asked if time == 0 else _copy(learner), called, rows) for time in range(_ALIKE)]
    before, inside = marks(learner), mark(other)
    for x in rows:
        with Apart():
            tried(taught.learn, x, label)
    _said(taught, called, rows)
    after = marks(learner)
    moved = {name for name, was in before.items() if after.get(name) != was}
    if mark(other) != inside:
        moved.add("an object that stands in each of them")
    if not moved and all(said == alike[0] for said in alike) and _said(other, called, rows) != alike[0]:
        moved.add("something that Confide does not see, as another copy answers otherwise after one was taught")
    return moved


def _copy(learner: Any) -> Any:
    copy = thaw(freeze(learner), learner)
    reseed(copy, b"a trial", seeds=True)  # nothing is drawn from generators that others use
    return copy


def _said(copy: Any, called: Called, rows: list[Any]) -> list[int | str]:
    """What it answers, or which exception it raises."""
    said: list[int | str] = []
    for x in rows:
        with Apart():
            answer, failed = tried(copy.predict, x)
        said.append(type(failed).__name__ if failed is not None else int(called.numbers([answer])[0]))
    return said


def _others(rows: list[Any], time: int) -> list[Any]:
    """Rows of the same form with other values, so that also what remembers rows meets new ones."""
    if all(isinstance(x, np.ndarray) for x in rows):
        return [_fixed(np.full_like(x, time + 2 + i / 2)) for i, x in enumerate(rows)]
    if all(isinstance(x, _Anything) for x in rows):
        return [_Anything(x.like(time + i)) for i, x in enumerate(rows)]
    return rows


def _inside(learner: Any) -> Any:
    """What was given, without what Confide put around it."""
    for inside in ("learner", "model", "estimator"):
        learner = getattr(learner, inside, learner) if isinstance(learner, Base) else learner
    return learner


def _name(learner: Any) -> str:
    return type(_inside(learner)).__name__


def _short(answer: Any) -> str:
    said = ""
    with contained:
        said = repr(answer)
    return said if 0 < len(said) <= 40 else f"a {type(answer).__name__}"
