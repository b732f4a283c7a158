"""The one way in which Confide compiles: kernels that Python calls, and callbacks that kernels call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba
from numba.core import ccallback as untyped

from confide.kernels.cache import KernelCache

ccallback: Any = untyped

P = ParamSpec("P")
R = TypeVar("R")

OPTIONS: dict[str, Any] = {"boundscheck": False, "error_model": "numpy"}


def jit(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` to machine code on its first call, and keep the code on disk.

    The kernel runs without the interpreter lock and without bounds checks, and follows NumPy's rules for
    division by zero, so a caller checks shapes and values before it enters a kernel. Fast-math and
    automatic threads stay off: a kernel gives the same bits on every run.

    The code on disk belongs to the kernel's file and to all that it imports, as they stand: after an edit of any of
    them the kernel is compiled anew (`confide.kernels.cache`). Where no folder can hold it (a read-only installation
    without a home), and for a function outside this package, the kernel is compiled anew in every process.

    Parameters
    ----------
    function
        A function of arrays and scalars that Numba can compile without Python objects.

    Examples
    --------
    >>> @jit
    ... def add(a: int, b: int) -> int:
    ...     return a + b
    >>> add(2, 3)
    5
    """
    kernel = numba.njit(nogil=True, **OPTIONS)(function)
    with contextlib.suppress(RuntimeError):  # no place for the code
        kernel._cache = KernelCache(function)  # Numba's own door leads to its own cache
    return cast(Callable[P, R], kernel)


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` into each kernel that calls it: for parts of a loop that take large structures.

    A structure is otherwise copied at every call.
    """
    return cast(Callable[P, R], numba.njit(inline="always", nogil=True, **OPTIONS)(function))


class _Callback(ccallback.CFunc):  # type: ignore[misc]
    def enable_caching(self) -> None:
        self._cache = KernelCache(self._pyfunc)


def callback(function: Callable[..., None], signature: Any) -> Any:
    """Machine code of `function` for one signature, which kernels can be given to call. Kept on disk as `jit`'s is."""
    kind = signature.args, signature.return_type
    made = _Callback(function, kind, locals={}, options={"nopython": True, **OPTIONS})
    with contextlib.suppress(RuntimeError):  # no place for the code
        made.enable_caching()
    made.compile()
    return made
