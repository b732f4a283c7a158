"""What a learner is, and the base of Confide's own learners, whose memory is a fixed set of arrays."""

from __future__ import annotations

import copy
import inspect
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, ClassVar, Protocol, Self, cast, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike, NDArray

from confide._checks import integer
from confide.arrays import Floats, Ints, Slots
from confide.contained import contained
from confide.kernels.compile import jit
from confide.kernels.memory import TEACH, VOTE, Descriptor, Kernels, describe, kernel, view
from confide.privacy.gate import lead

Layout = Mapping[str, tuple[tuple[int, ...], DTypeLike]]

LARGEST = float(np.finfo(np.float32).max)
"""What is stored is float32, so nothing larger comes in."""

_CACHE_LINE = 64
_seen = view(np.int64, 0)
_ONLY, _NOBODY = np.zeros(1, dtype=np.int32), np.empty(0, dtype=np.int32)


@runtime_checkable
class Learner(Protocol):
    """One non-private online learner: the black box that Confide makes private.

    Whatever has these two methods is a learner. It is taught labels, and returns labels: those of `labels=[…]`, never
    their numbers. The object given to a bank or to POP is a *prototype*: it is never taught, and every copy starts as a
    fresh one like it. When it is given, a copy of it is tried on rows that are made up; one that answers something else
    than a label or None, or that fails every time, is refused. A learner keeps all it knows in its own attributes: what
    two copies share (a module's generator, a class attribute, a cache) is shared between people, and breaks the
    guarantee.

    Examples
    --------
    >>> class Frequent:
    ...     def __init__(self):
    ...         self.counts = {}
    ...     def predict(self, x):
    ...         return max(self.counts, key=self.counts.get, default=None)
    ...     def learn(self, x, y):
    ...         self.counts[y] = self.counts.get(y, 0) + 1
    >>> import confide
    >>> plan = confide.Plan.tight(20.0, 1e-2, 400, copies=40, unsure=100, silent=100, guide=None)
    >>> pop = confide.POP(Frequent(), plan, labels=["no", "yes"], features=1)
    >>> pop.teach_many([[0.0]] * 400, ["yes"] * 400)
    >>> pop.operator.failures.sentence
    ''
    """

    def predict(self, x: Any, /) -> Any:
        """The label of `x`, or None to abstain. Nothing may change."""

    def learn(self, x: Any, y: Any, /) -> None:
        """Learn that the label of `x` is `y`, without keeping `x` itself."""


@runtime_checkable
class Bounded(Learner, Protocol):
    """A learner that knows its worst case."""

    def mistake_bound(self) -> int:
        """The most mistakes it makes on any sequence that its class can label without error."""


class Base:
    """Parameters stored as given: `params`, `clone` and `repr` follow from the signature."""

    pure = True  # predicting changes nothing, so banks need not rewind: a promise of every subclass
    numbered = True
    """Whether labels are called by their numbers, 0 … L−1, as Confide's own learners do behind a bank."""

    def params(self) -> dict[str, Any]:
        """The arguments that make a fresh learner like this one."""
        return {name: getattr(self, name) for name in _parameters(cast(Any, type(self)))}

    def clone(self, **changes: Any) -> Self:
        """A fresh learner that has learned nothing, with the same parameters but for `changes`."""
        given = {name: fresh(value) for name, value in self.params().items() if name not in changes}
        return type(self)(**given, **changes)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.params().items())})"


@cache  # to read a signature takes long
def _parameters(kind: type[Base]) -> tuple[str, ...]:
    return tuple(inspect.signature(kind).parameters)


class Arrays(dict[str, NDArray[Any]]):
    """The arrays of some slots, by name."""

    _memory: Descriptor | None = None

    @property
    def memory(self) -> Descriptor:
        """Where kernels find them: made once, so no array is ever replaced by another one."""
        if self._memory is None:
            self._memory = describe(self)
        return self._memory

    def __reduce__(self) -> tuple[Any, ...]:
        return Arrays, (dict(self),)  # addresses are never copied with the arrays


class Stacked(Base, ABC):
    """A learner whose memory is a fixed set of arrays, so that a bank can hold many of them side by side.

    `layout` names the arrays. `vote` and `teach` work on arrays with one more axis in front, the *slot*: a
    learner by itself has one slot, a `StackedBank` has one for each copy that was taught. Both run the same
    `kernels`, as compiled loops do, so a copy in a bank and the learner by itself agree to the last bit. A learner
    without kernels has a `vote` and a `teach` of its own, which are asked from Python.

    Parameters
    ----------
    labels
        The number of labels. POP and the banks set it; give it only when using a learner by itself.
    warmup
        Abstain until this many labels were learned; at least 1.
    class_weight
        One positive weight for each label, or None for all equal.
    """

    kernels: ClassVar[Kernels | None] = None
    """A vote and a lesson of the signatures in `confide.kernels.memory`, compiled by `confide.kernels.compile.jit`."""

    def __init__(self, labels: int, warmup: int, class_weight: Sequence[float] | None) -> None:
        self.labels = integer(labels, "labels", 2, 1 << 15)
        self.warmup = integer(warmup, "warmup", 1)
        self.class_weight = class_weight
        weight = np.ones(labels) if class_weight is None else np.array(class_weight, dtype=np.float64)
        if weight.shape != (labels,) or not (np.isfinite(weight) & (weight > 0)).all():
            raise ValueError(f"class_weight must hold {labels} positive numbers, one for each label")
        self._weight = weight
        self._arrays: Arrays | None = None
        self._features = 0

    @abstractmethod
    def layout(self, features: int) -> Layout:
        """Shape and type of each array of one slot. `seen`, the labels learned, is added to these."""

    def vote(self, arrays: Arrays, slots: Slots, x: Floats, counts: Ints) -> None:
        """Add the vote of each slot to `counts`; a negative slot abstains."""
        assert self.kernels is not None, "a learner without kernels has a vote of its own"
        self.kernels[0](arrays.memory, self._constants, slots, _NOBODY, x, counts)

    def teach(self, arrays: Arrays, slot: int, seen: int, x: Floats, y: int) -> None:
        """Teach one slot, which has learned `seen` labels before."""
        assert self.kernels is not None, "a learner without kernels has a lesson of its own"
        self.kernels[1](arrays.memory, self._constants, slot, seen, x, y)

    def constants(self) -> Floats:
        """The numbers that `kernels` take."""
        return np.zeros(1)

    @cached_property
    def _constants(self) -> Floats:
        return self.constants()

    def compiled(self) -> Kernels | None:
        """The kernels for compiled loops; None where there are none, or where a subclass votes or learns otherwise."""
        for kind in type(self).__mro__:
            if "kernels" in vars(kind):
                return self.kernels
            if vars(kind).keys() & {"vote", "teach", "layout", "memory", "constants", "allocate"}:
                return None
        return None

    def allocate(self, features: int, slots: int) -> Arrays:
        """Arrays for so many slots that have learned nothing."""
        layout = {"seen": ((), np.int64), **self.layout(features)}
        return Arrays({name: _zeros((slots, *shape), np.dtype(dtype)) for name, (shape, dtype) in layout.items()})

    def predict(self, x: Any, /) -> int | None:
        """The label index of `x`, or None before `warmup` labels were learned."""
        x = vector(x, self._features or None)
        if self._arrays is None or self._arrays["seen"][0] < self.warmup:
            return None
        counts = np.zeros(self.labels, dtype=np.int64)
        self.vote(self._arrays, _ONLY, x, counts)
        return int(counts.argmax())

    def learn(self, x: Any, y: int, /) -> None:
        """Learn that the label of `x` is the index `y`."""
        x = vector(x, self._features or None)
        y = integer(y, "a label", 0, self.labels - 1)
        if self._arrays is None:
            self._features = x.size
            self._arrays = self.allocate(x.size, 1)
        seen = int(self._arrays["seen"][0])
        self.teach(self._arrays, 0, seen, x, y)
        self._arrays["seen"][0] = seen + 1

    def follow(self, xs: Floats, ys: Ints) -> Ints:
        """What it predicts of each row before it learns it: the label, or −1 where it abstains.

        It is the loop of `predict` and `learn`, compiled where there are kernels.
        """
        if len(xs) != ys.size:
            raise ValueError(f"there are {len(xs)} rows for {ys.size} labels: give one label for each")
        predictions = np.full(ys.size, -1)
        kernels = self.compiled()
        if kernels is None:
            for i, x in enumerate(xs):
                label = self.predict(x)
                predictions[i] = -1 if label is None else label
                self.learn(x, int(ys[i]))
            return predictions
        rows = np.array(xs, dtype=np.float64, order="C")
        if rows.ndim != 2 or rows.shape[1] != (self._features or rows.shape[1]) or not holds_all(rows).all():
            rows = np.array([vector(x, self._features or None) for x in xs])  # raises, and says what is wrong
        if self._arrays is None:
            self._features = rows.shape[1]
            self._arrays = self.allocate(self._features, 1)
        if ys.size and not 0 <= ys.min() <= ys.max() < self.labels:
            raise ValueError(f"a label must be a whole number from 0 to {self.labels - 1}")
        vote, teach = kernel(kernels[0], VOTE), kernel(kernels[1], TEACH)
        counts = np.zeros(self.labels, dtype=np.int64)
        _follow(vote, teach, self._arrays.memory, self._constants, self.warmup, rows, ys, predictions, counts)
        return predictions

    def sound(self, arrays: Arrays) -> bool:
        """Whether arrays that were read from somewhere can be used: no number in them leads outside of them."""
        return bool((arrays["seen"] >= 0).all())

    @property
    def learned(self) -> Arrays | None:
        """The arrays of this learner's one slot; None when it has learned nothing."""
        return self._arrays


@jit
def _follow(
    vote: Callable[..., None],
    teach: Callable[..., None],
    memory: Ints,
    constants: Floats,
    warmup: int,
    xs: Floats,
    ys: Ints,
    predictions: Ints,
    counts: Ints,
) -> None:
    """One learner by itself, slot 0: predict each row (−1 while it warms up), then learn it."""
    only, seen = np.zeros(1, np.int32), _seen(memory, 0)
    for i in range(ys.size):
        predictions[i] = -1
        if seen[0] >= warmup:
            for j in range(counts.size):
                counts[j] = 0
            vote(memory, constants, only, only[:0], xs[i], counts)
            predictions[i] = lead(counts)[0]
        teach(memory, constants, 0, seen[0], xs[i], ys[i])
        seen[0] += 1


def _zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Zeros that begin with a cache line, so that a row of whole lines touches no line more."""
    size = math.prod(shape) * dtype.itemsize
    room = np.zeros(size + _CACHE_LINE, dtype=np.uint8)
    first = -room.ctypes.data % _CACHE_LINE
    return room[first : first + size].view(dtype).reshape(shape)


def vector(x: Any, features: int | None = None) -> Floats:
    """`x` as a new read-only float64 array of the right length, or a ValueError that says what is wrong."""
    row = None
    with contained:  # x may be any object at all
        row = np.array(x, dtype=np.float64)
    if row is None:
        raise ValueError("x must be an array of numbers; for a dict use Features")
    if row.ndim != 1 or row.size == 0:
        raise ValueError("x must be a one-dimensional array of at least one number")
    if features is not None and row.size != features:
        raise ValueError(f"x has {row.size} features where {features} are expected")
    if not _holds(row):
        raise ValueError("x has a NaN, an infinity or a number above float32's range: clean it first")
    row.flags.writeable = False
    return row


@jit
def _holds(row: Floats) -> bool:
    """Whether float32 can hold all numbers; a NaN never."""
    held = True
    for value in row:
        held = held and abs(value) <= LARGEST
    return held


@jit
def holds_all(rows: Floats) -> NDArray[np.bool_]:
    """Which rows float32 can hold."""
    held = np.empty(rows.shape[0], np.bool_)
    for i in range(rows.shape[0]):
        held[i] = _holds(rows[i])
    return held


def held(rows: Floats) -> Floats:
    """The numbers themselves, changed to what copies can store: 0 where one is missing, else the nearest of float32."""
    _hold(rows if rows.ndim == 1 else rows.ravel())
    return rows


@jit
def _hold(numbers: Floats) -> None:
    for i in range(numbers.size):
        numbers[i] = min(max(numbers[i], -LARGEST), LARGEST) if numbers[i] == numbers[i] else 0.0


def positive(name: str, value: Any, zero: bool = False) -> float:
    """`value` as a finite float above zero (or zero, where allowed), or a ValueError that names it."""
    number = float(value)
    if not (0 <= number < float("inf")) or (number == 0 and not zero):
        raise ValueError(f"{name} must be {'at least 0' if zero else 'above 0'} and finite")
    return number


def fresh(thing: Any) -> Any:
    """A model like `thing` that has learned nothing; anything that is no model is copied."""
    if hasattr(thing, "clone") and not isinstance(thing, type):  # Confide's and River's
        return thing.clone()
    if hasattr(thing, "get_params") and hasattr(thing, "fit") and "sklearn.base" in sys.modules:
        return sys.modules["sklearn.base"].clone(thing)
    return copy.deepcopy(thing)
