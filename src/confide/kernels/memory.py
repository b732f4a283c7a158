"""How a learner's kernels are called from compiled code, whichever learner it is.

A chunk of rounds runs in one compiled loop (`confide.banks.rounds`) that calls a learner's vote and lesson through
these two signatures. A learner's arrays come as *memory*: a row for each array, with its address and shape. A learner's
numbers come as *constants*. A learner by itself is asked through the same two functions, so the arithmetic is written
once, and a copy in the compiled loop agrees with the learner by itself to the last bit.

The loop is compiled once and serves every learner; the machine code is kept on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numba
import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from confide.kernels.compile import callback

carray: Any = getattr(numba, "carray")  # noqa: B009, which Numba's own types leave out

Descriptor = NDArray[np.int64]
Kernels = tuple[Callable[..., None], Callable[..., None]]
"""A vote and a lesson of the two signatures below, compiled by `jit` so that Python can call them too."""

_MEMORY, _CONSTANTS = types.int64[:, ::1], types.float64[::1]
_X = types.Array(types.float64, 1, "C", readonly=True)  # as an encoder makes it: the same code serves single calls
VOTE = types.void(_MEMORY, _CONSTANTS, types.int32[::1], types.int32[::1], _X, types.int64[::1])
"""vote(memory, constants, slots, ahead, x, counts): `ahead` are slots that will probably vote next, to be sent for"""
TEACH = types.void(_MEMORY, _CONSTANTS, types.int64, types.int64, _X, types.int64)
"""teach(memory, constants, slot, seen, x, y)"""

_made: dict[Callable[..., None], Any] = {}


def kernel(function: Callable[..., None], signature: Any) -> Any:
    """Machine code of `function` that compiled code can call; made once in a process, kept on disk."""
    if function not in _made:
        _made[function] = callback(getattr(function, "py_func", function), signature)
        _made[function]._numba_type_ = types.FunctionType(signature)  # else found out anew in every call
    return _made[function]


def describe(arrays: Mapping[str, NDArray[Any]]) -> Descriptor:
    """Memory: address, slots, two more lengths (1 where there are fewer), and the bytes of a slot.

    It points into the arrays: keep them alive, and describe them anew when they are replaced.
    """
    rows = []
    for array in arrays.values():
        if not array.flags.c_contiguous or array.ndim > 3:
            raise ValueError("arrays must lie in one piece, with at most two lengths besides the slots")
        lengths = [*array.shape[1:], 1, 1][:2]
        rows.append([array.ctypes.data, array.shape[0], *lengths, lengths[0] * lengths[1] * array.itemsize])
    return np.array(rows, dtype=np.int64)


class Described:
    """Arrays, and where they lie. A copy has addresses of its own: they are never copied with the arrays."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.arrays, self.memory = arrays, describe(arrays)

    def __reduce__(self) -> tuple[Any, ...]:
        return Described, (self.arrays,)


def _to_pointer(context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


_pointer: Any = intrinsic(_to_pointer)


def view(dtype: Any, lengths: int) -> Callable[[Descriptor, int], NDArray[Any]]:
    """For kernels: `view(dtype, lengths)(memory, i)` is the i-th array, with so many lengths besides the slots."""
    if lengths == 0:

        def array(memory: Descriptor, i: int) -> Any:
            return carray(_pointer(memory[i, 0]), (memory[i, 1],), dtype)
    elif lengths == 1:

        def array(memory: Descriptor, i: int) -> Any:
            return carray(_pointer(memory[i, 0]), (memory[i, 1], memory[i, 2]), dtype)
    else:

        def array(memory: Descriptor, i: int) -> Any:
            return carray(_pointer(memory[i, 0]), (memory[i, 1], memory[i, 2], memory[i, 3]), dtype)

    compiled: Callable[[Descriptor, int], NDArray[Any]] = numba.njit(inline="always")(array)
    return compiled
