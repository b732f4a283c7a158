"""Arrays by what they hold: the names that kernels and their callers share."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Singles: TypeAlias = NDArray[np.float32]
Words: TypeAlias = NDArray[np.uint64]
Slots: TypeAlias = NDArray[np.int32]
Flags: TypeAlias = NDArray[np.bool_]
