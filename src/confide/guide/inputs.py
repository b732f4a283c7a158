"""From the features that a POP is given to those of its guide: one declaration for both."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

from confide.guide.columns import Columns
from confide.guide.hashed import HashedMap
from confide.learners import Columns as Arrays
from confide.learners import Features, Pipeline


def columns_for(features: Any) -> tuple[Columns | HashedMap, dict[str, tuple[float, float]]]:
    """The guide's columns or map for `features`, and the declared ranges of numeric columns: what `Guide` takes.

    A number of features, or `confide.learners.Columns`, is an array read by position; `Features` and names of numbers
    are columns by name; of a pipeline `features | learner` the features count. Whatever else comes (`HashedFeatures`,
    an encoder of one's own, a model for River's dicts, None) has names that nobody declared, and they are hashed.

    Examples
    --------
    >>> columns_for(Features(numeric={"age": (0, 120)}, categorical={"city": 16}))
    (Columns(numeric=('age',), categorical=('city',), text=()), {'age': (0.0, 120.0)})
    >>> columns_for(2)
    (Columns(numeric=('0', '1'), categorical=(), text=()), {})
    >>> columns_for(None)
    (HashedMap(width=8192, pairs=64), {})
    """
    if isinstance(features, Pipeline):
        return columns_for(features.features)
    if isinstance(features, Arrays):
        return Columns.of_array(features.width), {}
    if isinstance(features, Integral) and not isinstance(features, bool):
        return Columns.of_array(int(features)), {}
    if isinstance(features, Sequence) and not isinstance(features, str | bytes):
        return columns_for(Features(numeric=list(features)))
    if isinstance(features, Features):
        numeric = (*features.numeric, *features.log)
        texts, known = tuple(features.text or ()), features.embeddings
        encoders = tuple(known.get(name) for name in texts) if known else ()
        return Columns(numeric, tuple(features.categorical or ()), texts, encoders), features.ranges
    return HashedMap(), {}
