"""One learner by itself, in a compiled loop."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from confide.arrays import Floats, Ints
from confide.kernels.compile import jit
from confide.kernels.memory import view
from confide.privacy.gate import lead

_seen = view(np.int64, 0)


@jit
def follow(
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
