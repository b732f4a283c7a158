"""The one way in which Confide compiles kernels."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba

__all__ = ["jit"]

P = ParamSpec("P")
R = TypeVar("R")


def jit(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` to machine code on its first call, and keep the code on disk.

    The kernel runs without the interpreter lock and without bounds checks, and follows NumPy's rules for
    division by zero, so a caller checks shapes and values before it enters a kernel. Fast-math and
    automatic threads stay off: a kernel gives the same bits on every run.

    The code on disk is renewed when the kernel's own file changes, not when a kernel that it calls in
    another file does: keep kernels that call each other in one module, or, as `_rounds` must use those of `_draws`
    and `_tables`, run `make clean` after an edit there. Where no folder can hold the code
    (an interactive session, a read-only installation), the kernel is compiled anew in every process.

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
    options: dict[str, Any] = {"nogil": True, "boundscheck": False, "error_model": "numpy"}
    try:
        kernel = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # Numba found no place for the cache
        kernel = numba.njit(**options)(function)
    return cast(Callable[P, R], kernel)
