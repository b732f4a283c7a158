"""The sums of a guide's leaves, the rows released of them, and θ, which follows from those rows alone."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from confide.arrays import Floats, Ints
from confide.guide.candidates import Choice, keeps
from confide.guide.carried import Carried
from confide.guide.change import (
    CLEAR,
    EVERY,
    FREQUENT,
    SLOW,
    TRIED,
    Told,
    changed,
    opposite,
    spread,
    suspected,
    told_by,
)
from confide.guide.columns import Row
from confide.guide.line import draw_line
from confide.guide.linear import MODELS, WINDOWS, Thetas, average, exponential, follow, run_rows, unfollowed, units
from confide.guide.maps import FeatureMap
from confide.guide.middle import mean_row
from confide.guide.model import Map, encode_batch
from confide.guide.partitions import DEPTH, Renewal, again, mean_squares, renewals
from confide.guide.rows import Table
from confide.guide.silence import Kept as Then
from confide.guide.silence import Silence, Span, often
from confide.planning.guided import GuidePlan
from confide.planning.stages import SHORTEST, Stage, reaching
from confide.privacy.gaussian import GaussianNoise
from confide.privacy.random import Random
from confide.privacy.sums import Products, overlap

_YOUNG = 0.4  # of the rounds: a partition that began later has not had its chance yet
_OFTEN = 8  # without an end: how often, while rounds double, partitions may be drawn anew


class Kept(NamedTuple):
    """What the warm-up was taught."""

    rounds: int
    """How many had begun when its label came."""
    row: Row
    label: int

    def __repr__(self) -> str:
        return f"Kept(rounds={self.rounds})"


class _Loud(NamedTuple):
    """The first leaves of a warm-up: of this stage, and κC in them; and their rounds, in which nothing is kept."""

    leaves: int
    clip: int
    rounds: int


class Leaves:
    """The leaves of one stage of a guide, and its map.

    `open` and `sums`, the exact sums of the open leaf and of the closed ones, are private; all else is a function of
    released rows and public constants. The noise of the next row is drawn ahead: its time betrays it.

    In a guide without an end these are the leaves of one epoch. Leaves and rows are numbered within it; what is
    called `total` and what partitions remember of their beginning counts all epochs.
    """

    def __init__(
        self,
        plan: GuidePlan,
        stage: Stage,
        features: Map,
        rng: Random,
        carried: Carried | None = None,
        softer: int = 0,
    ) -> None:
        self.plan, self.stage, self._softer = plan, stage, softer  # rounds whose leaves have kept lessons alone
        loud = (0, plan.clip) if stage.number else (plan.loud_leaves, plan.loud_clip)
        self._loud, self.planned, self.features = _Loud(*loud, plan.loud_rounds), stage, features
        self._units = self._units_of(0)
        size = features.width * plan.vectors + self._units.size
        if size > plan.node_values:
            raise ValueError(
                f"the map has {size:,} coordinates, and the plan's noise is certified for {plan.node_values:,}: take "
                "fewer features or labels"
            )
        self._mean, self._along, self.stage = _steady(stage, features)
        self.closed = 0
        self.open = np.zeros(size, dtype=np.int64)
        self.kept: list[Kept] = []  # what the warm-up was taught, and is not in a sum of this stage yet
        self.sums = np.zeros((stage.leaves, size), dtype=np.int64)
        self.rows = np.zeros((stage.leaves, size), dtype=np.int64)
        self.theta = np.zeros((features.width, plan.vectors))
        self.models = np.zeros((features.width, MODELS * plan.vectors))
        self.answering = np.zeros((features.width, plan.vectors))
        self._nodes, self._prefixes = Products(stage.root), Products(stage.root, decoding=True)
        self.choice = Choice.first(stage, plan.vectors)
        self._decoded, self._base = np.zeros(size), np.zeros(size)
        number = len(features.parts[1]) if isinstance(features, FeatureMap) else 0
        self._born = np.zeros(number, dtype=np.int64)  # after how many leaves a renewed partition began; 0 for others
        self._since_round = np.zeros(number, dtype=np.int64)  # … and after how many rounds, in whichever epoch
        self._carried, self._carried_noise = np.zeros(size), np.zeros(number)  # earlier epochs' part of the sums
        self._told = np.zeros((stage.leaves, self._units.size + 1))  # losses, in rows, since the epoch began
        self.anew = 0  # after how many rounds of the stage the model began anew; 0 for never
        self._since_leaf, self._tried = 0, 0  # leaves before what is told is of this model; before a trial of another
        self._goes_on = carried is not None  # θ has more to follow than the sums of this epoch
        self.silence = Silence.first(Then(self.answering, self.models), self._units.size)
        self.began = np.zeros(0, dtype=np.int64) if carried is None else self._begin(carried)
        self.given: tuple[Renewal, ...] = ()  # partitions that a predecessor had drawn anew
        self._older: dict[tuple[Renewal, ...], FeatureMap] = {}  # maps of earlier rounds
        self._noise, self._rng = GaussianNoise(stage.sigma2), rng
        self._ahead = self._noise.draw(rng, size)

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():  # what came from a read-only file must be writable again
            own = np.require(value, requirements=["C", "W"]) if isinstance(value, np.ndarray) else value
            setattr(self, name, own)

    def _begin(self, carried: Carried) -> Ints:
        """Go on where the epoch before ended; `carried` are θ and sums as they then were: it is returned in one row."""
        self.theta, self.models, self.answering = carried.theta, carried.models, carried.answering
        self.choice, self._since_round, self.anew = carried.choice, carried.since_round, carried.anew
        # θ is −step·sums: sums of a longer step weigh more in one that is shorter
        self._carried = carried.sums * (carried.step / self.stage.step)
        self._carried_noise = carried.noise * (carried.step / self.stage.step) ** 2
        self.silence = replace(carried.silence, base=carried.silence.base * (carried.step / self.stage.step))
        return carried.pack(self.features, self.stage.before)

    @property
    def total(self) -> int:
        """Leaves closed so far in all epochs of the stage."""
        return self.stage.before + self.closed

    @property
    def past(self) -> int:
        """Rounds of the stage, in all epochs, whose leaves are closed."""
        return self.stage.ends[self.closed - 1] if self.closed else self.stage.start

    @property
    def full(self) -> bool:
        """Whether the last leaf is closed."""
        return self.closed == self.stage.leaves

    def carried(self) -> Carried:
        """What the next epoch begins with, once this one's last leaf is closed: a function of released rows."""
        whole, noise = self._since(self._decoded, self.closed), self._left(self.closed)[1]
        choice, models = self.choice.over(self.stage), self.models
        if self._trying(self.closed, self._tried):
            models = self._untried(models)
        silence = self.silence.over(self._known(self.closed))
        if silence.quiet:
            part, size = silence.weight / self.silence.weight, silence.base.size
            whole[:size] = silence.base + part * (whole[:size] - silence.base)
            mine = self.stage.sigma2 * overlap(self.stage.root.decoder, self.closed, self.closed)
            noise = np.maximum(0.0, noise - silence.weight**2 * mine)  # which the next epoch's own noise replaces
        return Carried(
            self.theta, models, self.answering, choice, self._since_round, whole, noise, self.stage.step, self.anew,
            silence,
        )  # fmt: skip

    def left_to(self, stage: Stage, row: Ints) -> Ints:
        """What the next epoch, whose stage this is, begins with after this last row, as one row; nothing changes."""
        after = copy(self)
        vars(after).update(self._after(row))
        return after.carried().pack(after.features, stage.before)

    def next(self, stage: Stage) -> Leaves:
        """The leaves of the next epoch: θ and the map go on, sums and noise begin anew."""
        after = Leaves(self.plan, stage, self.features, self._rng, self.carried(), self._softer)
        after.given, after.kept = self.given, self.kept
        return after

    def emptied(self, kept: list[Kept]) -> Leaves:
        """The same released model, over an open sum of its own: a partition's."""
        own = copy(self)
        own.open, own.kept = np.zeros_like(self.open), kept
        vars(own).update({"_older": {}})
        return own

    def left(self) -> Carried | None:
        """What a successor begins with, wherever in the epoch this is; None before anything was released."""
        if self.closed:
            return self.carried()
        found = Carried.unpack(self.began, self.features, self.plan.vectors, self.stage) if self.began.size else None
        return None if found is None else found[0]

    def node(self) -> tuple[Ints, Ints]:
        """The open leaf's node, noise included, and its exact sum: to be made durable, then given to `close`."""
        self.sums[self.closed] = self.open
        return self._ahead + self._nodes.at(self.closed, self.sums), self.open.copy()

    def close(self, row: Ints) -> None:
        """The next leaf begins, and θ follows the released row."""
        later = self._after(row)
        later |= {"open": np.zeros_like(self.open), "_ahead": self._noise.draw(self._rng, self.open.size)}
        vars(self).update(later)  # at once: whatever interrupts it, the leaf is closed or open, and nothing between

    def _units_of(self, closed: int) -> Ints:
        """What the losses of a row are in, in the leaf after so many; those of a kept lesson are softer."""
        stage, plan = self.stage, self.plan
        soft = closed < stage.leaves and stage.ends[closed] <= self._softer
        clip, loud = plan.kept_clip if soft else plan.clip, self._loud.clip if closed < self._loud.leaves else 0
        made = units(clip, plan.vectors, stage.before + closed, stage.number == 0, loud)
        if not (stage.number and isinstance(self.features, FeatureMap) and self.features.lined):
            made[WINDOWS - 1] = 0  # no line, or a warm-up: nothing is told of it, and it is never chosen
        if soft and stage.ends[closed] <= self._loud.rounds:
            made[MODELS + 1 :] = 0  # nothing is kept of these rounds: no label counts, and none is waited for
        return made

    @property
    def clip(self) -> int:
        """κC of what is taught to the open leaf."""
        return self.plan.clip if self.closed >= self._loud.leaves else self._loud.clip

    @property
    def loud(self) -> bool:
        """Whether the open leaf is one of a warm-up's first, what is taught in which is not kept (public)."""
        return self.closed < self._loud.leaves

    def teach_kept(self, weights: Floats) -> None:
        """Add to the open leaf, all at once, what the warm-up was taught in its rounds: the bits of one by one."""
        features, plan = self.features, self.plan
        if self.full or not isinstance(features, FeatureMap):
            return
        here = bisect_right(self.kept, self.stage.ends[self.closed], key=lambda one: one.rounds)
        batch = encode_batch(features, Table.of(features.columns, [one.row for one in self.kept[:here]]))
        labels, later = np.array([one.label for one in self.kept[:here]], dtype=np.int64), self.open.copy()
        softer = units(plan.kept_clip, plan.vectors, self.total)
        run_rows(
            self.thetas._replace(units=softer), batch.starts, batch.indices, batch.values, labels, weights,
            plan.kept_clip, plan.scale, later, np.empty((here, plan.vectors)),
        )  # fmt: skip
        vars(self).update({"open": later, "kept": self.kept[here:]})  # an interrupt leaves both as they were, or none

    def load(self, rows: Sequence[Ints], sums: Sequence[Ints]) -> None:
        """Rows that were released before, and their leaves' exact sums: θ is computed again, bit for bit."""
        for row, exact in zip(rows, sums, strict=True):
            self.sums[self.closed] = exact
            vars(self).update(self._after(row))

    def map_after(self, rounds: int) -> Map:
        """The map as it was after so many rounds of this stage, before later partitions were drawn."""
        features = self.features
        if not isinstance(features, FeatureMap) or not features.renewed:
            return features
        closed = self.plan.closed_at(rounds)
        known = tuple(one for one in features.renewed if one.deal <= closed or one in self.given)
        if len(known) == len(features.renewed):
            return features
        if known not in self._older:
            self._older[known] = replace(features, renewed=known)
        return self._older[known]

    @property
    def thetas(self) -> Thetas:
        """What a row meets."""
        return Thetas(self.theta, self.answering, self.models, self.choice.frequent, self._units)

    def renewing(self) -> list[int]:
        """After which numbers of leaves partitions, if the map has any, may be drawn anew: public.

        After 32, 48, 64, 96, 128, … of the stage's rounds: the length need not be known. Without an end more often, so
        that they follow a change; if the model began anew, as if its first round were the one after that.
        """
        if not self._born.size:
            return []
        stage = self.stage
        return list(_renewing(stage.ends, stage.start, self.anew if self.plan.endless else None))

    def changing(self) -> list[int]:
        """After which numbers of leaves the map may change: public."""
        looks = range(EVERY, self.stage.leaves + 1, EVERY) if self._born.size and self._watches else ()
        return [*self.renewing(), *looks]

    @property
    def _watches(self) -> bool:
        return self.plan.endless and self.stage.number == 1

    def _after(self, row: Ints) -> dict[str, Any]:
        """What is otherwise after this row is released; `rows` is a place that nothing reads before."""
        stage, closed = self.stage, self.closed + 1
        theta, models = self.theta.copy(), self.models.copy()
        self.rows[self.closed] = row
        decoded = self._prefixes.at(self.closed, self.rows)
        since = self._since(decoded, closed)
        follow(since, stage.step / self.plan.scale, stage.momentum, self._mean, self._along, theta)
        average(theta, keeps(stage, self.closed, self.anew), models)
        tried = self._trying(self.closed, self._tried)
        if tried:
            models[:, self._slow] = self.models[:, self._slow]
        draw_line(self.features, models, self.plan.vectors, closed, 0 if tried else WINDOWS - 1)
        told = slice(decoded.size - self._units.size, decoded.size)
        leaf = self._units, self.closed, decoded[told], self._decoded[told]
        choice = self.choice if self.silence.quiet else self.choice.after(stage, *leaf, self.anew)
        later: dict[str, Any] = {"closed": closed, "theta": theta, "models": models, "_decoded": decoded}
        later |= {"choice": choice, "_units": self._units_of(closed), "_tried": self._tried}
        if self._watches:
            self._tell(later)
            found = often(self.silence.window.part(self._known(closed)), self._units)
            if self.silence.quiet or (found is False and (self.silence.often or stage.epoch)):
                return later | self._quiet(later, found)
        again = self._watched(later) if self._watches else {}
        if not again and isinstance(self.features, FeatureMap) and closed in self.renewing():
            later |= self._renewed(self.features, since, later)
        later |= again
        trying = self._trying(closed, later["_tried"])
        later["answering"] = self._chosen(later["choice"], later["models"], trying)
        if self._watches:
            known = later.get("silence", self.silence)
            if found is not None:
                known = replace(known, window=Span.after(self._units.size, closed), often=known.often or found)
            if found is not None or "_since_leaf" in again:
                models = self._untried(later["models"]) if trying else later["models"]
                known = replace(known, kept=Then(later["answering"], models))
            later["silence"] = known
        return later

    @property
    def _slow(self) -> slice:
        """Where the long window's mean is, of all models."""
        return slice((WINDOWS - 1) * self.plan.vectors, WINDOWS * self.plan.vectors)

    def _trying(self, closed: int, tried: int) -> bool:
        """Whether the opposite of the model is in the place of the long window's mean after so many leaves."""
        return 0 < tried <= closed < tried + TRIED

    def _untried(self, models: Floats) -> Floats:
        """The long window's mean begins with the usual one's."""
        out = models.copy()
        out[:, self._slow] = models[:, : self.plan.vectors]
        return out

    def _tell(self, later: dict[str, Any]) -> None:
        """Write down what the leaf's losses told; nothing reads it before."""
        told = slice(later["_decoded"].size - self._units.size, later["_decoded"].size)
        before = self._told[self.closed - 1] if self.closed else np.zeros(self._units.size + 1)
        more = later["_decoded"][told] - self._decoded[told]
        length, frequent = self.stage.length(self.closed), self.choice.frequent
        self._told[self.closed] = told_by(before, more, self._units, length, frequent)

    def _known(self, closed: int) -> Told:
        """What this epoch's leaves told."""
        return Told(self.stage, self._told, self._units, closed, self._since_leaf)

    def _quiet(self, later: dict[str, Any], heard: bool | None) -> dict[str, Any]:
        """What is otherwise while labels do not come often, or no more, or again."""
        closed, models, known = later["closed"], later["models"], self.silence
        if not known.quiet:
            return self._waits(later, known.kept)
        told, vectors = self._known(closed), self.plan.vectors
        if heard:
            return self._taught(later, known, told)
        best, better = known.better(told)
        if better:
            answering = models[:, best * vectors : (best + 1) * vectors] * exponential(self.choice.surer[0])
            return self._waits(later, Then(answering, models))
        if heard is False:
            known = replace(known, window=Span.after(self._units.size, closed))
        models[:, self._slow] = known.kept.answering
        return {"models": models, "answering": known.kept.answering, "silence": known}

    def _waits(self, later: dict[str, Any], kept: Then) -> dict[str, Any]:
        """This answers while it is quiet, and θ begins with its usual candidate."""
        theta, models = kept.models[:, : self.plan.vectors].copy(), kept.models.copy()
        models[:, self._slow], sums = kept.answering, self._sums(theta)
        span, kept = Span.after(self._units.size, later["closed"]), replace(kept, models=models)
        later = later | {"theta": theta, "models": models, "answering": kept.answering, "_tried": 0}
        later["silence"] = Silence(True, True, kept, sums, 0, span, span)
        return later | self._from(later, sums)

    def _taught(self, later: dict[str, Any], known: Silence, told: Told) -> dict[str, Any]:
        """Labels come often again: θ goes on from itself, or from what answered; or its opposite is tried."""
        closed, trial = later["closed"], known.trial.part(told)
        learned = trial.beyond(SLOW, float(trial.rows[SLOW]), CLEAR) > 0
        models = self._untried(later["models"] if learned else known.kept.models)
        if not learned and self.choice.chosen < MODELS:  # the usual one is not what answered, and may be noisier
            models = np.tile(known.kept.answering / self.choice.scale, MODELS)
        theta, part = models[:, : self.plan.vectors].copy(), known.window.part(told)
        span = Span.after(self._units.size, closed)
        later = later | {"theta": theta, "models": models, "_since_leaf": closed}
        later["answering"] = self._chosen(later["choice"], models, False)
        now = Then(later["answering"], models.copy())
        later["silence"] = Silence(True, False, now, known.base, 0, span, span)
        if self.plan.vectors == 1 and part.less(FREQUENT) > 0:
            models[:, self._slow], later["_tried"] = -theta, closed
        return later | self._from(later, self._sums(theta))

    def _sums(self, theta: Floats) -> Floats:
        """The sums that θ follows."""
        return unfollowed(theta, self.stage.step / self.plan.scale, self._mean, self._along).ravel()

    def _watched(self, later: dict[str, Any]) -> dict[str, Any]:
        """What is otherwise if what was released says that people do something else now."""
        closed, models, vectors = later["closed"], later["models"], self.plan.vectors
        known = self._known(closed)
        if self._trying(self.closed, self._tried):
            found = opposite(known, self._tried)
            if found:
                return self._again(later, models[:, self._slow].copy(), {})
            return {} if found is None else {"models": self._untried(models), "_tried": self._tried}
        if closed % EVERY == 0 and changed(known):
            return self._anew(later)
        if vectors == 1 and closed >= self._tried + 4 * TRIED and suspected(known):
            models[:, self._slow] = -models[:, :vectors]
            return {"_tried": closed}
        return {}

    def _anew(self, later: dict[str, Any]) -> dict[str, Any]:
        """The model begins anew, with the partitions that it had in the beginning, cut elsewhere."""
        features, now = self.features, self.stage.ends[later["closed"] - 1]
        more: dict[str, Any] = {"anew": now, "_since_round": np.zeros_like(self._since_round)}
        more["_carried_noise"] = np.zeros_like(self._carried_noise)
        if isinstance(features, FeatureMap) and self._born.size:
            renewed = features.renewed + again(
                features.grids, len(features.columns.categorical), self._born.size, features.seed,
                self.stage.before + later["closed"],
            )  # fmt: skip
            more["features"] = replace(features, renewed=renewed)
            more["_mean"], more["_along"], more["stage"] = _steady(self.planned, more["features"])
        return self._again(later, np.zeros_like(self.theta), more)

    def _again(self, later: dict[str, Any], theta: Floats, more: dict[str, Any]) -> dict[str, Any]:
        """θ goes on from here, and of all candidates nothing is known."""
        stage, mean, along = (more.get(name, getattr(self, name)) for name in ("stage", "_mean", "_along"))
        out = self._from(later, unfollowed(theta, stage.step / self.plan.scale, mean, along).ravel())
        out |= {"theta": theta, "models": np.tile(theta, MODELS)}
        out |= {"_tried": 0, "_since_leaf": later["closed"], "choice": self.choice.anew()}
        return out | more

    def _from(self, later: dict[str, Any], sums: Floats) -> dict[str, Any]:
        """θ follows these sums and what comes after them."""
        closed, decoded = later["closed"], later["_decoded"]
        carried, noise = self._carried.copy(), self._left(closed)[1]
        carried[: sums.size] = sums - decoded[: sums.size]
        self._parted(carried)[:] = self._parted(sums)
        out: dict[str, Any] = {"_carried": carried, "_carried_noise": noise, "_goes_on": True}
        return out | {"_base": decoded.copy(), "_born": np.full_like(self._born, closed)}

    def _chosen(self, choice: Choice, models: Floats, trying: bool) -> Floats:
        """The answering θ: the chosen candidate's, as sure as it may be; never one that is only tried."""
        vectors = self.plan.vectors
        if choice.chosen < MODELS:
            chosen = 0 if trying and choice.chosen == WINDOWS - 1 else choice.chosen
            answering = models[:, chosen * vectors : (chosen + 1) * vectors] * choice.scale
            if vectors == 1 and not self.stage.epoch:
                answering[0] += choice.prior(self.stage, self.closed, self.plan.clip) / self.features.constant
            return answering
        out = np.zeros_like(self.answering)
        out[0] = choice.odds / self.features.constant * choice.scale  # the first feature is the constant
        return out

    def _renewed(self, features: FeatureMap, since: Floats, later: dict[str, Any]) -> dict[str, Any]:
        """Draw partitions anew that stand for nothing, by what was released: their sums begin again at 0."""
        first, columns = features.parts
        size, vectors, closed = 1 << DEPTH, self.plan.vectors, later["closed"]
        values = size * vectors
        standing = (values * mean_squares(self._parted(since)) / self._left(closed)[1] - values) / math.sqrt(2 * values)
        now, deal = self.stage.ends[closed - 1], self.stage.before + closed
        young = (now - self._since_round < _YOUNG * (now - self.anew)) & (self._since_round > 0)
        begun = bool(self._since_round.any())
        changed = renewals(columns, standing, young, deal, features.seed, begun)
        base, born, since_round = self._base.copy(), self._born.copy(), self._since_round.copy()
        carried, noise = self._carried.copy(), self._carried_noise.copy()
        kept = Then(self.silence.kept.answering.copy(), self.silence.kept.models.copy())
        for i, _, _ in changed:
            part = slice(first + i * size, first + (i + 1) * size)
            flat = slice(part.start * vectors, part.stop * vectors)
            base[flat] = later["_decoded"][flat]
            later["theta"][part], later["models"][part] = 0.0, 0.0
            kept.without(part)
            carried[flat], noise[i] = 0.0, 0.0
            born[i], since_round[i] = closed, now
        if not changed:
            return {}
        renewed = replace(features, renewed=features.renewed + changed)
        mean, along, stage = _steady(self.planned, renewed)
        later = {"_mean": mean, "_along": along, "stage": stage}
        later |= {"_carried": carried, "_carried_noise": noise, "_since_round": since_round}
        later["silence"] = replace(self.silence, kept=kept)
        return later | {"_base": base, "_born": born, "features": renewed}

    def standing(self) -> tuple[Floats, float, Floats]:
        """What θ follows of each feature, squared, over all vectors; and the variance of the noise in one coordinate.

        That of features of no partition, and that of each partition's.
        """
        now = np.zeros_like(self.theta)
        follow(self._since(self._decoded, self.closed), 1.0, 0.0, self._mean, self._along, now)
        noise = self.stage.sigma2 * spread(self.stage.root.decoder, self._since_leaf, self.closed)
        noise *= self.silence.weight**2
        before = float(self._carried_noise.max()) if self._carried_noise.size else 0.0
        return np.square(now).sum(axis=1), noise + before, self._left(self.closed)[1]

    def _parted(self, values: Floats) -> Floats:
        """What of all coordinates belongs to partitions, one row each: a view."""
        first = self.features.parts[0] * self.plan.vectors if isinstance(self.features, FeatureMap) else 0
        each = self.plan.vectors << DEPTH
        return values[first : first + self._born.size * each].reshape(-1, each)

    def _since(self, decoded: Floats, now: int) -> Floats:
        """The prefix sums after `now` leaves, those of renewed partitions without what came before them.

        With what earlier epochs had gathered.
        """
        out = decoded * self.silence.weight + self._carried if self._goes_on else decoded
        if self._born.any():
            out = out.copy()
            self._parted(out)[:] -= self._left(now)[0][:, None] * self._parted(self._base)
        return out

    def _left(self, now: int) -> tuple[Floats, Floats]:
        """How much of the sum P_b before it is taken out of the sum P_n of a partition that began after b leaves.

        And the variance of what is then wrong with it. P_b is noise of variance V, and a part S that would be wrong to
        keep, of mean square τ² = mean P_b² − V, at least 0. Of all multiples, c = (cov + τ²)/(V + τ²) leaves the least
        error, cov the covariance of the noise in P_b and P_n. Noise of long ago is hardly in P_n: P_n − P_b would have
        up to twice the variance of P_n.
        """
        decoder, sigma2 = self.stage.root.decoder, self.stage.sigma2
        total = mean_squares(self._parted(self._base))
        part, weight = np.zeros(self._born.size), self.silence.weight
        error = self._carried_noise + weight * weight * sigma2 * overlap(decoder, now, now)
        for born in np.unique(self._born[self._born > 0]).tolist():
            which = self._born == born
            variance, covariance = sigma2 * overlap(decoder, born, born), sigma2 * overlap(decoder, born, now)
            whole = np.maximum(total[which], variance)
            part[which] = 1.0 - (variance - covariance) / whole
            error[which] += whole - variance - part[which] ** 2 * whole
        return part, error


@lru_cache(maxsize=64)
def _renewing(ends: tuple[int, ...], start: int, anew: int | None) -> tuple[int, ...]:
    """`Leaves.renewing`, by the ends of a stage's leaves; `anew` is None where rounds have an end."""
    powers = range(SHORTEST.bit_length(), ends[-1].bit_length())
    if anew is None:
        return tuple(reaching(ends, rounds) for power in powers for rounds in (1 << power, 3 << (power - 1)))
    times = [anew + (_OFTEN + part << power) // _OFTEN for power in powers for part in range(_OFTEN)]
    return tuple(reaching(ends, rounds) for rounds in times if max(start, anew) < rounds <= ends[-1])


def _steady(stage: Stage, features: Map) -> tuple[Floats, float, Stage]:
    """The map's mean row, of norm 1, how much of the sums along it is left out, and the stage with steady steps."""
    mean = mean_row(features)
    mean2 = math.fsum((mean**2).tolist())
    steady = stage.steady(mean2, features.unplaced if isinstance(features, FeatureMap) else 0.0)
    return (mean / math.sqrt(mean2) if mean2 else mean), steady.along(mean2), steady
