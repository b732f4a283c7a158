"""Doubles of the guide: what its sums hold, when they are released, with which noise, and what θ follows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.guide.guide import Asked, Guide, Release
from confide.guide.leaves import Leaves
from confide.guide.linear import add_gradient
from confide.guide.model import Batch, Question
from confide.pop.account import Account
from confide.pop.guiding import Guiding, bytes_of
from confide.pop.loop import Loop
from confide.pop.running import Released
from confide.pop.settings import Settings
from confide.privacy.gaussian import GaussianNoise
from tests.broken.base import WithGuide

__all__ = [
    "AtExactSums",
    "BatchProduct",
    "CapIgnored",
    "CountsRowsTwice",
    "DropsBadRecords",
    "GradientsAtExactSums",
    "HalfNoise",
    "LeavesByLabels",
    "LossesBeside",
    "MapOfExactCounts",
    "NoiseTwice",
    "RedrawsANode",
    "SkipsEmptyLeaves",
    "StepFromLabels",
    "TakesRoundsAfterwards",
    "UsedBeforeDurable",
    "product",
]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


# ---------------------------------------------------------------------- what the sums hold


class _Uncapped(Guiding):
    def teach(self, question: Question | None, label: int, who: bytes | None, counted: bool = False) -> int:
        return super().teach(question, label, None, counted)

    def follow_rows(
        self,
        xs: Any,
        labels: Ints,
        whos: Sequence[bytes | None],
        bad: NDArray[np.bool_],
        keep: bool = False,
        history: bool = False,
    ) -> tuple[Asked, Ints]:
        return super().follow_rows(xs, labels, [None] * len(whos), bad, keep, history)


class CapIgnored(WithGuide, guiding=_Uncapped):
    """Every label of a person teaches the guide: with n of them they move its sums n/c times as far as is charged."""


class AtExactSums(Guide):
    """A guide whose gradients are taken at the exact sum of the open leaf as well."""

    def gradient(self, question: Question, y: int, /, *, counted: bool = False) -> None:
        leaves = self._leaves
        kept = leaves.theta.copy()
        leaves.theta -= leaves.stage.step / self.plan.scale * leaves.open[: kept.size].reshape(kept.shape)
        super().gradient(question, y, counted=counted)
        leaves.theta[:] = kept


class GradientsAtExactSums(WithGuide, guide=AtExactSums):
    """Gradients at sums without noise: the unit's gradient moves every later one, and nobody charges for those."""


class LossesBeside(Guide):
    """A guide whose gradients are as long as the clip, whatever losses stand beside them: a row's norm is larger."""

    def gradient(self, question: Question, y: int, /, *, counted: bool = False) -> None:
        leaves, plan = self._leaves, self.plan
        whole, size = leaves.open.copy(), leaves.theta.size
        super().gradient(question, y, counted=counted)
        add_gradient(leaves.theta, *question.encoded, y, 1.0, plan.clip, plan.scale, whole)
        leaves.open[:size] = whole[:size]


class _CountsTwice(Guiding):
    def _counts(self, who: bytes | None) -> bool:
        return True


class CountsRowsTwice(WithGuide, guiding=_CountsTwice):
    """Every row of a person is counted for the ranges: the counts hide one of them."""


class _WholeRecords(Guiding):
    def teach_rows(self, xs: Any, labels: Ints, whos: Sequence[bytes | None]) -> Ints:
        good, leaves = np.flatnonzero(labels >= 0), np.full(len(labels), -1)
        some = [xs[i] for i in good.tolist()]
        leaves[good] = super().teach_rows(some, labels[good], [whos[i] for i in good.tolist()])
        return leaves


class DropsBadRecords(WithGuide, guiding=_WholeRecords):
    """A record of the history that cannot be read takes no row: all after it move up, and leaves hold other rows."""


# ---------------------------------------------------------------------- when, and with which noise


class _TakenLate(Account):
    def reserve(self, rounds: int, whos: Iterable[bytes | None]) -> None:
        super().reserve(0, whos)


class TakesRoundsAfterwards(WithGuide):
    """The guide learns and releases before the rounds of a batch are taken: cut off, the same rows teach it again."""

    def spoil(self, loop: Loop, settings: Settings) -> None:
        loop.account = _TakenLate(loop.plan, loop.rng)
        super().spoil(loop, settings)


class _ByLabels(Guide):
    taught = 0

    def gradient(self, question: Question, y: int, /, *, counted: bool = False) -> None:
        super().gradient(question, y, counted=counted)
        self.taught += 1

    def _due(self) -> str | None:
        rounds, self.rounds = self.rounds, self.taught
        try:
            return super()._due()
        finally:
            self.rounds = rounds


class LeavesByLabels(WithGuide, guide=_ByLabels):
    """A leaf ends after so many labels: when sums are released tells how many labels came, the unit's included."""


class _SkipsEmpty(Guide):
    def _due(self) -> str | None:
        due = super()._due()
        return None if due in ("warm", "node") and not self._leaves.open.any() else due


class SkipsEmptyLeaves(WithGuide, guide=_SkipsEmpty):
    """A leaf without labels is not released: where the unit's label was the only one, everybody sees that it came."""


class _SameNoise(Leaves):
    def close(self, row: Ints) -> None:
        noise = self._ahead
        super().close(row)
        self._ahead = noise


class NoiseTwice(WithGuide, leaves=_SameNoise):
    """Two nodes have one noise: their difference is that of exact sums."""


class _Half(Leaves):
    def node(self) -> tuple[Ints, Ints]:
        self._ahead = GaussianNoise(self.stage.sigma2 // 4).draw(self._rng, self.open.size)
        return super().node()


class HalfNoise(WithGuide, leaves=_Half):
    """Half of the noise that the plan charges for."""


class _Redraws(Guiding):
    def resume(self, rounds: int, released: Sequence[Released]) -> int:
        kinds = [one[0] for one in released]
        stage = "node" if "ranges" in kinds or "node" in kinds else "warm"
        return super().resume(rounds, [one for one in released if one[:2] != (stage, kinds.count(stage) - 1)])


class RedrawsANode(WithGuide, guiding=_Redraws):
    """A load takes the last node for one that was never released: it comes again, with other noise on the same sums."""


class _Hurried(Guiding):
    def store(self, release: Release) -> None:
        kind, *rest = bytes_of(release)
        self._account.enter(released=((f"linear/{kind}", *rest),))


class UsedBeforeDurable(WithGuide, guiding=_Hurried):
    """A node is used before it is on the disk: a crash in between releases it again, with other noise."""


# ---------------------------------------------------------------------- what θ and scores follow


class _Stepped(Leaves):
    def close(self, row: Ints) -> None:
        taught = np.count_nonzero(self.open)  # labels of the leaf, more or less
        super().close(row)
        self.answering *= 1.0 + taught / 1024.0


class StepFromLabels(WithGuide, leaves=_Stepped):
    """The step grows with the labels that came: θ, which everybody sees, then tells how many there were."""


def product(batch: Batch, theta: Floats) -> Floats:
    """All scores of a batch by one matrix product."""
    columns, n = np.unique(batch.indices), batch.starts.size - 1
    rows = np.repeat(np.arange(n), np.diff(batch.starts))
    dense = np.zeros((n, columns.size))
    dense[rows, np.searchsorted(columns, batch.indices)] = batch.values
    return np.asarray(dense @ np.ascontiguousarray(theta[columns]))


class _Product(Guide):
    def run(self, batch: Batch, labels: Ints, other: Batch | None = None) -> Floats:
        theta = self.model.theta.copy()
        out = super().run(batch, labels, other)
        return out if self.closed == 0 else product(batch if other is None else other, theta)


class BatchProduct(WithGuide, guide=_Product):
    """Scores of a batch by one matrix product: the last bit of a row's depends on what the other rows are."""


class _Exact(Guide):
    def _found(self, row: Ints) -> None:
        super()._found(self._counted.counts.ravel() if self.rounds else row)


class MapOfExactCounts(WithGuide, guide=_Exact):
    """The map is made from counts without noise: cuts that everybody sees tell where the unit's number lies."""
