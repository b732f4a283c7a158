"""The binary tree, as a reference that one can read for the sums of `confide.privacy.sums`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class BinaryTree:
    """The binary tree: node (j, i) is the sum of the i-th block of 2ʲ leaves; a prefix is a sum of few nodes.

    Examples
    --------
    >>> tree = BinaryTree(1000)
    >>> tree.load, round(float(tree.load * tree.variances().mean()), 1)
    (10, 49.4)
    >>> tree.closing(4), tree.prefix(6)
    ([(0, 3), (1, 1), (2, 0)], [(2, 0), (1, 2)])
    """

    def __init__(self, leaves: int) -> None:
        self.leaves = leaves
        self.load = self.leaves.bit_length()

    def closing(self, leaves: int) -> list[tuple[int, int]]:
        """The nodes (level, number) that close with leaf number `leaves`, counted from 1."""
        return [(j, (leaves >> j) - 1) for j in range(leaves.bit_length()) if leaves % (1 << j) == 0]

    def prefix(self, leaves: int) -> list[tuple[int, int]]:
        """The nodes whose sum is the first `leaves` leaves: one for each binary one."""
        return [(j, (leaves >> j) - 1) for j in reversed(range(leaves.bit_length())) if leaves >> j & 1]

    def variances(self) -> Floats:
        """The variance of each decoded prefix sum, for noise of variance 1 in every node."""
        return np.array([i.bit_count() for i in range(1, self.leaves + 1)], dtype=np.float64)
