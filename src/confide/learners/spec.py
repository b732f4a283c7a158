"""Confide's own learners and features as plain JSON, so that a saved state can name them without pickle."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from confide import learners
from confide.errors import StateError
from confide.learners.base import Base
from confide.text import UnknownEncoder


def to_spec(thing: Any) -> Any:
    """A learner, features, a number of features, or a pipeline of these as JSON; None for what JSON cannot hold.

    What comes out makes an equal one by `from_spec`. A thing for which that is not certain has no spec, and must be
    given again where a state is loaded.

    Examples
    --------
    >>> from confide.learners import Features, LogisticRegression, Perceptron
    >>> to_spec(Features(numeric=("age",)) | Perceptron())["features"]["params"]["numeric"]
    {'tuple': ['age']}
    >>> from_spec(to_spec(Features(numeric=("age",)) | Perceptron())).features
    Features(numeric=('age',), log=(), categorical=None, text=None)
    >>> to_spec(object()) is None
    True
    """
    if isinstance(thing, learners.Pipeline):
        parts = to_spec(thing.features), to_spec(thing.learner)
        return None if None in parts else {"features": parts[0], "learner": parts[1]}
    if isinstance(thing, (int, np.integer)):
        return int(thing)
    if not isinstance(thing, Base) or _own(type(thing).__name__) is not type(thing):
        return None
    params = thing.params()
    try:
        plain = json.loads(json.dumps(params))
    except (TypeError, ValueError):
        return None
    # JSON has no tuples, and a bank goes by the learner's repr: keep them apart from lists.
    plain |= {name: {"tuple": plain[name]} for name, value in params.items() if isinstance(value, tuple)}
    spec = {"class": type(thing).__name__, "params": plain}
    try:
        return spec if repr(from_spec(spec)) == repr(thing) else None
    except StateError:
        return None


def from_spec(spec: Any) -> Any:
    """The thing that `to_spec` described, having learned nothing.

    Raises
    ------
    StateError
        If it names a learner that this Confide does not have, or has otherwise.
    """
    if not isinstance(spec, dict):
        return spec
    if "class" not in spec:
        return learners.Pipeline(from_spec(spec["features"]), from_spec(spec["learner"]))
    kind = _own(spec["class"])
    if kind is None:
        raise StateError(
            f"the state names an unknown learner {spec['class']!r}: load it with the Confide that wrote it"
        )
    params = {name: tuple(value["tuple"]) if _is_tuple(value) else value for name, value in spec["params"].items()}
    try:
        return kind(**params)
    except UnknownEncoder as error:
        raise StateError(str(error)) from None
    except (TypeError, ValueError):
        raise StateError(
            f"the state's {spec['class']} has other parameters than this Confide's: load it with the one that wrote it"
        ) from None


def _is_tuple(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"tuple"} and isinstance(value["tuple"], list)


def _own(name: Any) -> type[Base] | None:
    """The class of this name among Confide's own."""
    kind = getattr(learners, name, None) if name in learners.__all__ else None
    return kind if isinstance(kind, type) and issubclass(kind, Base) else None
