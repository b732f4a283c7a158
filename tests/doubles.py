"""Mechanisms that are broken on purpose: each must be caught by a replay or by an audit (tests/test_doubles.py).

One small class or factory for each double; its docstring says what is broken and why that leaks. Where the library
refuses the bad thing, the double steps around the refusal.
"""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

import numpy as np

from confide import POP, Gate, Guarantee, Halting, Plan
from confide.banks import StackedBank
from confide.learners import LogisticRegression
from confide.planning import paper as paper_plans
from confide.privacy.random import Random, discrete_laplace
from confide.privacy.sparse import AboveThreshold, threshold_table

MOST = (1 << 64) - 1

# ---------------------------------------------------------------------- copies that are not apart


class TeachesTwo(POP):
    """The label goes to two copies: one unit then moves two votes, and every bound is for one."""

    def _teach(self, copy: int, x: Any, label: int) -> None:
        super()._teach(copy, x, label)
        super()._teach((copy + 1) % self.plan.copies, x, label)


class RoutesInTurn(POP):
    """Labels go to the copies in turn: whether the unit brought one moves every later label to another copy."""

    def _teach(self, copy: int, x: Any, label: int) -> None:
        super()._teach(self._taught % self.plan.copies, x, label)


class LearnsFromQuestions(StackedBank):
    """Copies that take their own vote on a question for its label, and are not rewound."""

    def votes(self, x: Any, poll: Any) -> Any:
        for copy in poll.tolist():
            self.learn(copy, x, int(x[0] > 0.3))
        return super().votes(x, poll)


class NoRewind(POP):
    """predict changes every copy: the unit's one question is then in all of them."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._bank = LearnsFromQuestions(LogisticRegression(), self.plan.copies, self.plan.labels, 2)


class SharedStream(LogisticRegression):
    """Copies share a random stream: how often the unit's copy drew moves what all others draw after it."""

    generator = np.random.default_rng(1)

    def teach(self, arrays: Any, slot: int, seen: int, x: Any, y: int) -> None:
        super().teach(arrays, slot, seen, x + self.generator.normal(size=x.size), y)


class SharedMemory:
    """Copies keep what they know in their class: whatever one of them is taught, all of them vote."""

    last: int | None = None

    def predict(self, x: Any) -> int | None:
        return type(self).last

    def learn(self, x: Any, y: int) -> None:
        type(self).last = y


class ScalerInFront(POP):
    """A shared scaler in front: the unit's numbers move the mean, and with it every later question of others."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._seen, self._total = 1, np.zeros(2)

    def _scaled(self, x: Any) -> Any:
        row = np.array(x, dtype=np.float64)
        if row.shape == (2,) and bool(np.isfinite(row).all()):
            self._seen, self._total = self._seen + 1, self._total + row
        return row - self._total / self._seen

    def predict(self, x: Any, unit: str | bytes | None = None) -> Any:
        return super().predict(self._scaled(x), unit)

    def teach(self, x: Any, y: Any, unit: str | bytes | None = None) -> None:
        super().teach(self._scaled(x), y, unit)


class SharedVocabulary:
    """A shared vocabulary, for `features=`: words get columns as they come, so the unit's words move those of all."""

    width = 4

    def __init__(self) -> None:
        self.columns: dict[str, int] = {}

    def encode(self, x: Any) -> Any:
        row = np.zeros(self.width)
        for word, value in x.items():
            row[self.columns.setdefault(word, len(self.columns)) % self.width] += float(value)
        if not bool(np.isfinite(row).all()):
            raise ValueError("x has a NaN or an infinity")
        row.flags.writeable = False
        return row


class TellsOfForgetting(POP):
    """A copy that was reset refuses the labels of others: they see that somebody was forgotten."""

    gone = frozenset[int]()

    def forget(self, unit: str | bytes) -> None:
        before = set(self._taught_copies())
        super().forget(unit)
        self.gone = self.gone | (before - set(self._taught_copies()))

    def _taught_copies(self) -> list[int]:
        taught: Any = self._bank.state(trusted=True)["taught"]
        return list(taught.tolist())

    def _teach(self, copy: int, x: Any, label: int) -> None:
        if copy in self.gone:
            raise ValueError("this copy was reset")
        super()._teach(copy, x, label)


# ---------------------------------------------------------------------- what others see


class Touchy(LogisticRegression):
    """A learner, sound by itself, that fails once it has learned from a large number."""

    def teach(self, arrays: Any, slot: int, seen: int, x: Any, y: int) -> None:
        if seen and abs(float(arrays["weights"][slot].ravel()[0])) > 1e3:
            raise ArithmeticError("the weights have left all bounds")
        super().teach(arrays, slot, seen, x, y)
        if abs(x[0]) > 100:
            arrays["weights"][slot] = 1e6


class ShowsExceptions(POP):
    """An exception of the taught copy is shown to its asker: it tells of what others taught that copy."""

    def _teach(self, copy: int, x: Any, label: int) -> None:
        self._bank.learn(copy, x, label)
        self._taught += 1


class EvictsByCount(POP):
    """Tickets are evicted by count: whether the unit's own are still open decides whose is refused."""

    def learn(self, ticket: str, y: Any) -> None:
        while len(self._open) > 6:
            self._open.pop(next(iter(self._open)))
        super().learn(ticket, y)


class SilentByLabels(POP):
    """Silence ends on a count of labels: when the others get answers tells whether the unit brought its label."""

    def predict(self, x: Any, unit: str | bytes | None = None) -> Any:
        self._asked = getattr(self, "_asked", self.plan)
        enough = self._taught >= self._asked.silent
        self.plan = replace(self._asked, silent=0 if enough else self._asked.rounds - 1)
        return super().predict(x, unit)


class ShowsTheCount(POP):
    """What everybody sees follows the private count of unsure answers, which has the unit's in it."""

    @property
    def rounds(self) -> int:
        return self._round + self._unsure


class WatchesAnswered(POP):
    """The monitor counts a person's first rounds that were well-formed: which these are is private."""

    def predict(self, x: Any, unit: str | bytes | None = None) -> Any:
        saved = dict(self._unit_counted)
        try:
            return super().predict(x, unit)
        except ValueError:
            self._unit_counted = saved
            raise


# ---------------------------------------------------------------------- coins, counts and halting


class Uncapped(POP):
    """No cap: one person is counted unsure more than G times, and the halting gate hides a shift of G only."""

    def _live(self, x: Any, malformed: bool, who: bytes | None) -> int | None:
        self._unit_unsure.clear()
        return super()._live(x, malformed, who)


class NoDrawWhereCapped(POP):
    """No halting draw for capped rounds: a round that cannot halt tells that its asker's share is used up."""

    def _live(self, x: Any, malformed: bool, who: bytes | None) -> int | None:
        self._capped = who is not None and self._unit_unsure.get(who, 0) >= self.plan.unit_unsure
        return super()._live(x, malformed, who)

    def _fires(self, counted: bool) -> bool:
        return not self._capped and super()._fires(counted)


class NoDrawWhereSure(POP):
    """A halting draw only where an unsure answer was counted: no halt in a hidden round tells that it was sure."""

    def _fires(self, counted: bool) -> bool:
        return counted and super()._fires(counted)


class NoPollForMalformed(POP):
    """No poll and no draw for a malformed question: what was in a round decides whether it can halt the run."""

    def _live(self, x: Any, malformed: bool, who: bytes | None) -> int | None:
        return None if malformed else super()._live(x, malformed, who)


class _OnePoll:
    """A generator that draws its first poll once more, and again."""

    def __init__(self, rng: Any) -> None:
        self.rng = rng
        self.polls: dict[tuple[int, int], Any] = {}

    def subset(self, k: int, m: int) -> Any:
        if (k, m) not in self.polls:
            self.polls[k, m] = self.rng.subset(k, m)
        return self.polls[k, m]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rng, name)


class SamePoll(POP):
    """The same poll in every round: where the unit's copy is in it, it is asked always and not with probability m/k."""

    def _live(self, x: Any, malformed: bool, who: bytes | None) -> int | None:
        if not isinstance(self._rng, _OnePoll):
            self._rng: Any = _OnePoll(self._rng)
        return super()._live(x, malformed, who)


class OnePollABatch(POP):
    """One poll for a whole batch: a batch of one question asked often is as bad as the same poll in every round."""

    def predict_many(self, xs: Any, units: Any = None) -> Any:
        fresh, self._rng = self._rng, _OnePoll(self._rng)
        try:
            return super().predict_many(xs, units)
        finally:
            self._rng = fresh


class WrongInequality(POP):
    """The threshold compared with the wrong inequality: sure where the table says unsure, so near-ties are shown."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._sure = np.where(self._sure == 0, ~np.uint64(0), np.uint64(0) - self._sure)


# ---------------------------------------------------------------------- tables


class Unchecked(Plan):
    """A plan that is not verified: for tables that the library would refuse, and to save games the time."""

    def verify(self) -> Guarantee:
        return self.guarantee


def unchecked(plan: Plan, **changes: Any) -> Plan:
    """The same plan, changed, with the guarantee that it no longer keeps."""
    return Unchecked(**{**{name: getattr(plan, name) for name in plan.__dataclass_fields__}, **changes})


def steep_entry(plan: Plan, margin: int) -> Plan:
    """One table entry too steep: between this margin and the one a vote below, the gate leaps from unsure to sure."""
    sure = plan.gate.sure.copy()
    sure[margin:] = np.maximum(sure[margin:], np.uint64(MOST - (MOST >> 10)))
    return unchecked(plan, gate=Gate.from_integers(sure))


def half_noise(sparse: AboveThreshold) -> AboveThreshold:
    """Noise of half the scale in AboveThreshold: every report costs twice what was paid for."""
    sparse.table = threshold_table(sparse.scale / 2)
    return sparse


def half_scale(plan: Plan, scale: float, **laplace: Any) -> Plan:
    """Noise of half the scale in the gate: every unsure answer costs twice what was paid for."""
    return unchecked(plan, gate=Gate.laplace(scale=scale / 2, **laplace))


def _table(go: list[int], shift: int) -> Halting:
    """A halting gate with this very table, whatever Halting thinks of it."""
    halting = Halting.__new__(Halting)
    halting._go, halting.shift = np.array(go, dtype=np.uint64), shift
    return halting


def halting_ignored(plan: Plan) -> Plan:
    """Halting ignored: N unsure answers were paid for, and the run goes on for ever."""
    return unchecked(plan, halting=_table([MOST] * 4, plan.unit_unsure))


def exact_count(plan: Plan) -> Plan:
    """The exact count instead of the halting gate: the run stops at the r-th unsure answer, hidden ones included."""
    return unchecked(plan, halting=_table([MOST] * plan.unsure + [0], plan.unit_unsure))


def one_copy(epsilon: float, delta: float, rounds: int) -> Plan:
    """k = 1 with the paper's majority: noise decides whether to answer, but the answer is the only copy's own vote."""
    size = paper_plans.size(epsilon, delta, rounds, 1, copies=1, unsure=1)
    return Unchecked(
        kind="paper",
        rounds=rounds,
        copies=1,
        polls=1,
        unsure=1,
        silent=0,
        unit_unsure=1,
        labels=2,
        beta=0.05,
        order=size.order,
        gate=Gate.laplace(scale=size.scale, threshold=size.copies / 4),
        halting=size.counter,
        guarantee=Guarantee(epsilon, delta),
    )


# ---------------------------------------------------------------------- state on disk


class ForgetsSpending(POP):
    """A resume that forgets what was spent: every crash buys N more unsure answers."""

    @classmethod
    def load(cls, path: str | Path, **settings: Any) -> Self:
        pop = super().load(path, **settings)
        pop._unsure = 0
        pop._unit_unsure.clear()
        return pop


class RestoresCoins(POP):
    """Randomness restored with a snapshot: what is asked again after a load is answered with the same noise."""

    def save(self, path: str | Path) -> None:
        super().save(path)
        kept = self._rng if not self._rng.secure else Random(seed=self._rng.below(1 << 62))
        self._rng = kept
        (Path(path) / "coins").write_bytes(pickle.dumps(kept))

    @classmethod
    def load(cls, path: str | Path, **settings: Any) -> Self:
        pop = super().load(path, **settings)
        pop._rng = pickle.loads((Path(path) / "coins").read_bytes())
        return pop


# ---------------------------------------------------------------------- the sparse vector technique


@dataclass(frozen=True)
class Variant:
    """One of the six algorithms of Lyu, Su and Li, "Understanding the Sparse Vector Technique for Differential
    Privacy" (2017), for whole-number queries of sensitivity 1 and a threshold of 0."""

    number: int
    what: str
    shares: tuple[Fraction, Fraction]
    """What ε₁ and ε₂ are of ε."""
    threshold_noise: str = "1/e1"
    noise: str = "2c/e2"
    redraws: bool = False
    """Whether the threshold's noise is drawn again after each report."""
    shows: bool = False
    """Whether a report shows the noisy value."""
    stops: bool = True
    """Whether it stops after c reports."""

    def true_epsilon(self, epsilon: float, reports: int) -> float:
        """The right verdict: what it costs."""
        return {1: epsilon, 2: epsilon, 4: (1 + 6 * reports) / 4 * epsilon}.get(self.number, math.inf)

    def scales(self, epsilon: Fraction, reports: int) -> tuple[Fraction, Fraction]:
        """The scales of the noise on the threshold and on a query."""
        one, two = (share * epsilon for share in self.shares)
        scale = {"1/e1": 1 / one, "c/e1": reports / one, "0": Fraction(0), "1/e2": 1 / two}
        scale |= {"c/e2": reports / two, "2c/e2": 2 * reports / two}
        return scale[self.threshold_noise], scale[self.noise]


_HALF, _QUARTER = (Fraction(1, 2), Fraction(1, 2)), (Fraction(1, 4), Fraction(3, 4))
VARIANTS = {
    1: Variant(1, "theirs: private", _HALF),
    2: Variant(2, "Dwork and Roth (2014): private", _HALF, threshold_noise="c/e1", redraws=True),
    3: Variant(3, "lecture notes of Roth (2011): shows the noisy value, which bounds the threshold's noise", _HALF,
               noise="c/e2", shows=True),
    4: Variant(4, "Lee and Clifton (2014): noise for one report, c of them given", _QUARTER, noise="1/e2"),
    5: Variant(5, "Stoddard, Chen and Machanavajjhala (2014): no noise on queries, no end", _HALF, noise="0",
               stops=False),
    6: Variant(6, "Chen, Xiao, Zhang and Xu (2015): no end", _HALF, noise="1/e2", stops=False),
}  # fmt: skip


class SparseVector:
    """The technique as a variant has it. `query` gives None for a value below, True or the noisy value for a report."""

    def __init__(self, variant: Variant, epsilon: Fraction, reports: int, rng: Random) -> None:
        self._variant, self._left, self._rng = variant, reports, rng
        self._threshold_scale, self._scale = variant.scales(epsilon, reports)
        self._rho = discrete_laplace(rng, self._threshold_scale)

    @property
    def halted(self) -> bool:
        """Whether the last report was given."""
        return self._variant.stops and self._left <= 0

    def query(self, value: int) -> int | None:
        """Whether the value, with noise, is at least the noisy threshold."""
        noisy = value + (discrete_laplace(self._rng, self._scale) if self._scale else 0)
        if noisy < self._rho:
            return None
        self._left -= 1
        if self._variant.redraws:
            self._rho = discrete_laplace(self._rng, self._threshold_scale)
        return noisy if self._variant.shows else True
