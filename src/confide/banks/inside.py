"""Looking inside models that others wrote: their randomness, their weight, and whether they stay put."""

from __future__ import annotations

import hashlib
import io
import pickle
import random
import sys
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["is_pure", "reseed", "walk", "weigh"]

_SEED_NAMES = ("seed", "random_state", "_seed")
_CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
_ATOMS = (str, bytes, int, float, complex, type(None), np.generic, *_CODE)
_TAME = ("sklearn", "numpy", "builtins", "collections")
_GENERATORS = (random.Random, np.random.RandomState, np.random.Generator)

# River's estimators that stay as they are when they predict from features that they have learned from. Each is
# tried in the tests. The others are rewound.
_PURE_IN_RIVER = """
    ALMAClassifier BernoulliNB ComplementNB ExtremelyFastDecisionTreeClassifier GaussianNB
    HoeffdingTreeClassifier KNNClassifier LogisticRegression MultinomialNB NoChangeClassifier
    OneVsOneClassifier OneVsRestClassifier PAClassifier Perceptron Pipeline PriorClassifier SGTClassifier
    SoftmaxRegression StandardScaler MinMaxScaler MaxAbsScaler OneHotEncoder
"""


def walk(thing: Any) -> Iterator[Any]:
    """Every object that can be reached from `thing`, once, in a fixed order."""
    seen: set[int] = set()
    stack = [thing]
    while stack:
        here = stack.pop()
        if isinstance(here, _ATOMS) or id(here) in seen:
            continue
        seen.add(id(here))
        yield here
        if isinstance(here, dict):
            stack.extend(reversed([*here.keys(), *here.values()]))
        elif isinstance(here, list | tuple | set | frozenset | deque):
            stack.extend(reversed(list(here)))
        elif isinstance(here, np.ndarray):
            stack.extend(here.ravel().tolist() if here.dtype == object else [])
        elif isinstance(here, types.MethodType):
            stack.append(here.__self__)
        else:
            slots = [name for kind in type(here).__mro__ for name in getattr(kind, "__slots__", ())]
            held = [getattr(here, name) for name in slots if hasattr(here, name)]
            stack.extend(reversed([*held, *getattr(here, "__dict__", {}).values()]))


def reseed(thing: Any, key: bytes, seeds: bool) -> None:
    """Give every generator inside `thing` a stream of its own, derived from `key`, and where `seeds`, every seed.

    A model that has learned keeps its seeds: it may hash by them.
    """
    for number, here in enumerate(list(walk(thing))):
        digest = hashlib.blake2b(number.to_bytes(8, "big"), key=key, digest_size=32).digest()
        seed = int.from_bytes(digest, "big")
        if isinstance(here, random.Random):
            here.seed(seed)
        elif isinstance(here, np.random.RandomState):
            here.seed([seed >> 32 * word & 0xFFFFFFFF for word in range(8)])
        elif isinstance(here, np.random.Generator):
            here.bit_generator.state = type(here.bit_generator)(seed).state
        elif seeds:
            attributes = getattr(here, "__dict__", {})
            for name in _SEED_NAMES:
                if name in attributes and isinstance(attributes[name], int | np.integer | None):
                    attributes[name] = seed % (1 << 31)


def is_pure(learner: Any) -> bool:
    """Whether predicting is known to leave the learner as it is.

    Known are learners that say so by the attribute `pure`, River's estimators in the list above, and
    scikit-learn's, all of them without a generator inside.
    """
    for here in walk(learner):
        if isinstance(here, _GENERATORS):
            return False
        home = type(here).__module__.partition(".")[0]
        if home == "river":
            estimator = hasattr(here, "predict_one") or hasattr(here, "transform_one")
            learning = getattr(here, "_LEARN_UNSUPERVISED_DURING_PREDICT", False)
            if (estimator and type(here).__name__ not in _PURE_IN_RIVER.split()) or learning:
                return False
        elif home not in _TAME and not getattr(here, "pure", False):
            return False
    return True


class _Scale(pickle.Pickler):
    """A pickler that only weighs: functions and modules count nothing."""

    def persistent_id(self, obj: Any) -> Any:
        return 0 if isinstance(obj, _CODE) else None


def weigh(thing: Any) -> int:
    """The bytes that `thing` pickles to, an estimate of its memory that includes arrays and native parts.

    Of what cannot be pickled only the shell is counted.
    """
    buffer = io.BytesIO()
    try:
        _Scale(buffer, protocol=5).dump(thing)
    except Exception:
        return sys.getsizeof(thing)
    return buffer.getbuffer().nbytes
