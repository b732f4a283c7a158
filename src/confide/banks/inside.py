"""Looking inside models that others wrote: their randomness, their weight, and whether they stay put."""

from __future__ import annotations

import copy as copying
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

from confide.contained import contained
from confide.learners.called import Called
from confide.learners.rowwise import Heard

_SEED_NAMES = ("seed", "random_state", "_seed")
_CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
_ATOMS = (str, bytes, int, float, complex, type(None), np.generic, Called, Heard, *_CODE)
_QUICK = frozenset(_ATOMS)
_TAME = ("sklearn", "numpy", "builtins", "collections")
_GENERATORS = (random.Random, np.random.RandomState, np.random.Generator)

# River's estimators that stay as they are when they predict from names that they have learned from, and pass on the
# same names always. Each is tried in the tests. The others are rewound.
_PURE_IN_RIVER = """
    ALMAClassifier BernoulliNB ComplementNB ExtremelyFastDecisionTreeClassifier GaussianNB
    HoeffdingTreeClassifier KNNClassifier LogisticRegression MultinomialNB NoChangeClassifier
    OneVsOneClassifier OneVsRestClassifier PAClassifier Perceptron Pipeline PriorClassifier SGTClassifier
    SoftmaxRegression StandardScaler MinMaxScaler MaxAbsScaler
"""
_SWITCH = "_LEARN_UNSUPERVISED_DURING_PREDICT"  # what river.compose.learn_during_predict sets, on the class


def walk(thing: Any) -> Iterator[Any]:
    """Every object that can be reached from `thing`, once, in a fixed order."""
    seen: set[int] = set()
    stack = [thing]
    while stack:
        here = stack.pop()
        if type(here) in _QUICK or isinstance(here, _ATOMS) or id(here) in seen:
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


def stand_apart(learner: Any) -> None:
    """Refuse a learner whose copies are known to share something that no copying separates.

    Examples
    --------
    >>> from river import neighbors
    >>> stand_apart(neighbors.KNNClassifier(engine=neighbors.LazySearch()))
    >>> stand_apart(neighbors.KNNClassifier())
    Traceback (most recent call last):
    ...
    ValueError: all copies would share a list that River's SWINN keeps in its class: use engine=neighbors.LazySearch()
    """
    for here in walk(learner):
        if type(here).__module__.startswith("river.") and type(here).__name__ == "SWINN":
            raise ValueError(
                "all copies would share a list that River's SWINN keeps in its class: use engine=neighbors.LazySearch()"
            )


def hold_still(learner: Any) -> None:
    """Make River's pipeline in `learner`, and those that are its steps, deaf to `river.compose.learn_during_predict`.

    That switch may be thrown at any time and by any thread, and then a question teaches.
    """
    stack: list[Any] = [getattr(learner, "model", None)]
    while stack:
        here = stack.pop()
        if _is_pipeline(here):
            setattr(here, _SWITCH, False)
            stack.extend(here.steps.values())


def is_pure(learner: Any, fixed: bool = False) -> bool:
    """Whether predicting is known to leave a learner as it is once it was taught.

    Known are learners that say so by the attribute `pure`, scikit-learn's estimators, and, where x has the same names
    always (`fixed`), River's in the list above; all of them without a generator inside, and pipelines only if they were
    made to `hold_still`: those that a wrapper clones for itself were not.
    """
    for here in walk(learner):
        if isinstance(here, _GENERATORS):
            return False
        home = type(here).__module__.partition(".")[0]
        if home == "river":
            estimator = hasattr(here, "predict_one") or hasattr(here, "transform_one")
            if estimator and not (fixed and type(here).__name__ in _PURE_IN_RIVER.split()):
                return False
            if _is_pipeline(here) and _SWITCH not in vars(here):
                return False
        elif home not in _TAME and not getattr(here, "pure", False):
            return False
    return True


def _is_pipeline(thing: Any) -> bool:
    return hasattr(thing, _SWITCH) and isinstance(getattr(thing, "steps", None), dict)


def freeze(thing: Any) -> bytes | None:
    """What `thaw` makes another one from; None where it cannot be pickled."""
    with contained:
        return pickle.dumps(thing, protocol=5)
    return None


def thaw(frozen: bytes | None, thing: Any) -> Any:
    """Another `thing`, from its pickle where there is one: three to seven times as fast as a deep copy."""
    return copying.deepcopy(thing) if frozen is None else pickle.loads(frozen)


class _Scale(pickle.Pickler):
    """A pickler that only weighs: functions and modules count nothing."""

    def persistent_id(self, obj: Any) -> Any:
        return 0 if isinstance(obj, _CODE) else None


def weigh(thing: Any) -> int:
    """The bytes that `thing` pickles to, an estimate of its memory that includes arrays and native parts.

    Of what cannot be pickled only the shell is counted.
    """
    buffer = io.BytesIO()
    with contained:
        _Scale(buffer, protocol=5).dump(thing)
        return buffer.getbuffer().nbytes
    return sys.getsizeof(thing)
