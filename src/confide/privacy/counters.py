"""Counters under continual observation: noisy prefix sums of a stream, private as a whole.

A counter keeps a chain of *nodes*, each the noisy sum of a block of consecutive inputs. The chain's blocks
make up the whole past, and the answer is the sum of its nodes. Every step makes one new node. Privacy
depends on how many blocks an input lies in, accuracy on how many make up a past. The proofs, also
against an adversary who chooses inputs from answers, are in `docs/proofs/counters.md`.
"""

from __future__ import annotations

import math
import operator
import os
from abc import ABC, abstractmethod
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide._checks import integer, own_process, probability
from confide.kernels.compile import jit
from confide.privacy import chains
from confide.privacy.chains import exact_epsilon, tree_depths, tree_error, tree_levels, tree_scale, union_bound
from confide.privacy.random import Random, discrete_laplace, fits

__all__ = ["SmoothCounter", "Ticks", "TreeCounter", "tick", "tree_error", "tree_levels", "tree_scale"]


class Ticks(NamedTuple):
    """A tree counter lent to a compiled loop: its nodes, which are private, and words for their noise."""

    words: NDArray[np.uint64]
    place: NDArray[np.int64]
    """The steps taken, and where the words go on."""
    sums: NDArray[np.int64]
    answers: NDArray[np.int64]
    numerator: int
    denominator: int
    """The noise's scale."""
    limit: int
    """The run halts when an answer is at least this."""


@jit
def tick(ticks: Ticks, value: int, noise: int) -> int:
    """`TreeCounter.step` with noise that was drawn before; the answer."""
    time, nodes, merged = ticks.place[0], 0, 0
    while (time >> merged) & 1:
        merged += 1
    for level in range(merged, 63):
        nodes += (time >> level) & 1
    total = value
    for i in range(nodes, nodes + merged):
        total += ticks.sums[i]
    answer: int = ticks.answers[nodes] + total + noise
    ticks.sums[nodes], ticks.answers[nodes + 1] = total, answer
    ticks.place[0] = time + 1
    return answer


class _ChainCounter(ABC):
    """The chain of nodes; a subclass says which of them a step merges, and how wide the noise is."""

    def __init__(self, epsilon: Fraction | float, horizon: int | None, shift: int, rng: Random | None) -> None:
        self.epsilon = exact_epsilon(epsilon)
        self.horizon = None if horizon is None else integer(horizon, "horizon", at_least=1)
        self.shift = integer(shift, "shift", at_least=1)
        self._rng = Random() if rng is None else rng
        self._pid = os.getpid()
        # The steps taken, the label of the last, and for the chain's nodes their exact sums (private) and the
        # noisy sums up to their ends. Replaced as a whole, so that an interrupted step has not happened.
        self._state: tuple[int, int, tuple[int, ...], tuple[int, ...]] = (0, 0, (), (0,))
        self._lent: Ticks | None = None

    def _settle(self) -> None:
        """Go on where a compiled loop stopped, if one had this counter: its steps stand in the arrays it was lent.

        To do so twice does no harm, so that an interrupt at any moment loses no step.
        """
        if self._lent is None:
            return
        time, cursor = (int(number) for number in self._lent.place)
        nodes = time.bit_count()
        sums, answers = self._lent.sums[:nodes].tolist(), self._lent.answers[: nodes + 1].tolist()
        self._state = time, time, tuple(sums), tuple(answers)
        self._rng.give_back(cursor)
        self._lent = None

    @property
    def time(self) -> int:
        """How many steps have been taken."""
        self._settle()
        return self._state[0]

    @abstractmethod
    def _next(self, label: int) -> tuple[int, int, Fraction]:
        """The label after `label`, how many of the chain's last nodes are merged, and the noise's scale."""

    def step(self, value: int, /) -> int:
        """Take the next input, and return the noisy sum of all inputs so far.

        Parameters
        ----------
        value
            An integer from 0 to `shift`. That one unit changes all its inputs together by at most
            `shift` is the caller's promise; the counter does not know units.
        """
        own_process(self._pid, type(self).__name__)
        try:
            value = operator.index(value)
        except TypeError:
            raise ValueError("an input must be an integer") from None
        if not 0 <= value <= self.shift:
            raise ValueError("an input must lie between 0 and shift: clip it, or pay for a larger shift")
        self._settle()
        time, label, sums, answers = self._state
        if time == self.horizon:
            raise ValueError("the counter has taken all the steps of its horizon: plan a longer one")
        label, merged, scale = self._next(label)
        keep = len(sums) - merged
        total = value + sum(sums[keep:])
        answer = answers[keep] + total + discrete_laplace(self._rng, scale)
        self._state = time + 1, label, (*sums[:keep], total), (*answers[: keep + 1], answer)
        return answer

    def __repr__(self) -> str:
        seeded = "" if self._rng.secure else ", insecure: seeded"
        name = type(self).__name__
        return f"{name}(epsilon={self.epsilon}, horizon={self.horizon}, shift={self.shift}{seeded})"


class TreeCounter(_ChainCounter):
    """The binary-tree counter, pure epsilon-differentially private (`docs/proofs/counters.md`).

    The chain follows the binary digits of the time: step 6 = 4 + 2 has a node for steps 1 to 4 and one for
    5 to 6. With L = ⌊log₂ horizon⌋ + 1 digits an input lies in at most L nodes, so discrete Laplace noise of
    scale shift·L/epsilon pays for it; a step takes O(log horizon) time and memory. From Dwork, Naor, Pitassi
    and Rothblum, "Differential Privacy under Continual Observation" (2010), and Chan, Shi and Song, "Private
    and Continual Release of Statistics" (2011).

    Parameters
    ----------
    epsilon
        The price of all answers together. A float counts as the smaller of its exact value and of the
        decimal number that it prints as.
    horizon
        The number of steps; None when it is not known. Then a new tree starts at steps 1, 2, 4, 8, …, and
        epsilon holds for ever.
    shift
        The largest total change (sum of absolute changes) that one unit can make to the inputs.
    rng
        The generator; by default a secure one of the counter's own.

    Examples
    --------
    >>> counter = TreeCounter(epsilon=0.5, horizon=1000)
    >>> counter.scale
    Fraction(20, 1)
    >>> noisy = [counter.step(1) for _ in range(1000)]
    >>> round(counter.error(beta=0.01))
    454
    """

    def __init__(
        self, epsilon: Fraction | float, horizon: int | None, shift: int = 1, rng: Random | None = None
    ) -> None:
        super().__init__(epsilon, horizon, shift, rng)
        # of every tree so far; a known horizon has one tree
        self._scales = [tree_scale(self.epsilon, 1 if self.horizon is None else self.horizon, self.shift)]

    def _scale_of(self, tree: int) -> Fraction:
        """The scale of tree number `tree`, which has so many levels, where the horizon is not known."""
        return tree_scale(self.epsilon, (1 << tree) - 1, self.shift)

    @property
    def scale(self) -> Fraction:
        """The scale of the noise in every node; with an unknown horizon, of the tree now growing."""
        return self._scales[-1]

    def _next(self, label: int) -> tuple[int, int, Fraction]:
        label += 1
        place = label
        if self.horizon is None:  # tree number k = 1, 2, … holds the steps 2ᵏ⁻¹ to 2ᵏ − 1 and has k levels
            levels = label.bit_length()
            if levels > len(self._scales):
                self._scales.append(self._scale_of(levels))
            place -= (1 << (levels - 1)) - 1
        return label, (place & -place).bit_length() - 1, self._scales[-1]

    @property
    def lends(self) -> bool:
        """Whether a compiled loop may take its steps: with a known horizon, small noise and one stream of words."""
        return self.horizon is not None and self._rng.one_stream and fits(self.scale)

    def lend(self, words: int, limit: int) -> Ticks:
        """The counter for a compiled loop, with at least so many words, until its next use here."""
        own_process(self._pid, type(self).__name__)
        self._settle()
        time, _, sums, answers = self._state
        nodes, known = np.zeros(65, dtype=np.int64), np.zeros(66, dtype=np.int64)
        nodes[: len(sums)], known[: len(answers)] = sums, answers
        lent, cursor = self._rng.lend(words)
        ratio, place = self.scale, np.array([time, cursor])
        self._lent = Ticks(lent, place, nodes, known, ratio.numerator, ratio.denominator, limit)
        return self._lent

    def error(self, beta: float, two_sided: bool = True, at: int | None = None) -> float:
        """A bound that the errors of all answers keep together, with probability at least 1 − beta.

        With a known horizon it is one number. Without one it grows with the step: with probability at least
        1 − beta, for *every* step t the error of its answer is within `error(beta, at=t)`.
        """
        probability(beta, "beta")
        sides = 2 if two_sided else 1
        if self.horizon is not None:
            if at is not None:
                raise ValueError("with a known horizon one bound holds for all steps: leave out `at`")
            return union_bound(math.log(sides / beta), [(self.scale, tree_depths(self.horizon))])
        if at is None:
            raise ValueError("without a horizon the bound grows with the step: say at which one")
        last = integer(at, "at", at_least=1).bit_length()
        # tree number k (from 1) fails with probability at most beta·6/(π²k²), and these add up to beta
        confidence = math.log(sides / beta) + math.log(math.pi**2 * last**2 / 6)
        past = [(self._scale_of(k), (0, 1)) for k in range(1, last)]  # one node each, over all their steps
        now = (self._scale_of(last), tree_depths(1 << (last - 1)))
        return union_bound(confidence, [*past, now])


class SmoothCounter(_ChainCounter):
    """A counter whose chains follow numbers with a fixed count of ones (`docs/proofs/counters.md`).

    Label the steps by the integers with `ones` ones and `zeros` zeros in binary, in increasing order. A past
    is then made of at most `ones` nodes and an input lies in at most `zeros` of them, so noise of scale
    shift·zeros/epsilon pays for it. No chains with these two limits reach a longer horizon. With as many ones
    as zeros this is the smooth binary mechanism of Andersson and Pagh, "A Smooth Binary Mechanism for
    Efficient Private Continual Observation" (2023), without noise on nodes that are always empty; the default
    is the pair with the smallest ones·zeros², which is better for Laplace noise.

    Parameters
    ----------
    epsilon, horizon, shift, rng
        As for `TreeCounter`, with a known horizon.
    balanced
        Take as many ones as zeros.

    Examples
    --------
    >>> counter = SmoothCounter(epsilon=0.5, horizon=1000)
    >>> counter.ones, counter.zeros, counter.scale
    (17, 3, Fraction(6, 1))
    >>> noisy = [counter.step(1) for _ in range(1000)]
    >>> round(counter.error(beta=0.01))
    186
    """

    def __init__(
        self, epsilon: Fraction | float, horizon: int, shift: int = 1, rng: Random | None = None, balanced: bool = False
    ) -> None:
        horizon = integer(horizon, "horizon", at_least=1)
        super().__init__(epsilon, horizon, shift, rng)
        self.ones, self.zeros = chains.balanced_code(horizon) if balanced else chains.best_code(horizon)
        """The most nodes a past is made of, and an input lies in."""
        self.scale = chains.round_up(self.shift * self.zeros / self.epsilon)
        self._state = 0, (1 << self.ones) - 1, (), (0,)

    def _next(self, label: int) -> tuple[int, int, Fraction]:
        lowest = label & -label
        carried = label + lowest
        run = (label ^ carried).bit_count() - 1  # the length of the lowest block of ones
        merged = 0 if lowest == 1 else run  # ones at the very bottom stand for empty nodes
        return carried | ((1 << (run - 1)) - 1), merged, self.scale

    def error(self, beta: float, two_sided: bool = True, at: int | None = None) -> float:
        """A bound that the errors of all answers keep together, with probability at least 1 − beta."""
        probability(beta, "beta")
        if at is not None:
            raise ValueError("with a known horizon one bound holds for all steps: leave out `at`")
        assert self.horizon is not None
        depths = chains.smooth_depths(self.horizon, self.ones, self.zeros)
        return union_bound(math.log((2 if two_sided else 1) / beta), [(self.scale, depths)])
