"""A guide without an end: epochs follow each other, and nothing but noise and sums begins anew."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from confide.errors import StateError
from confide.guide.candidates import Choice
from confide.guide.columns import Columns
from confide.guide.guide import Guide, Release
from confide.guide.hashed import HashedMap
from confide.guide.leaves import Leaves
from confide.guide.partitions import mean_squares
from confide.planning.guided import GuidePlan
from confide.planning.stages import ends_of, epoch_ends, epoch_of, epoch_start
from confide.privacy.random import Random

pytestmark = pytest.mark.claim("guide.md")

LEAVES, LEAF, GROWTH = 12, 40, 8
BEST = GuidePlan.best(40.0, 1e-6, apart=False)
SMALL = replace(BEST, leaves=LEAVES, leaf=LEAF, growth=GROWTH)
COUNTING = replace(SMALL, range_rounds=100, warm_leaves=len(ends_of(100, LEAF, GROWTH)))
ALONE = replace(SMALL, range_rounds=0, warm_leaves=0, range_norm=0, range_values=0)
COLUMNS = Columns.of_array(3)
ROUNDS = 2500
RNG = np.random.default_rng(5)
ROWS = RNG.normal(size=(ROUNDS, 3)) * [1.0, 50.0, 0.01]
LABELS = (ROWS[:, 0] + ROWS[:, 1] / 50 > 0).astype(np.int64)


def made(plan: GuidePlan = COUNTING, seed: int = 1, **how: Any) -> Guide:
    return Guide(plan, COLUMNS, rng=Random(seed=seed), **how)


def led(guide: Guide, first: int, last: int, batch: bool = False) -> list[int]:
    """The answers to these rows, each asked and then taught."""
    if batch:
        return guide.follow(ROWS[first:last], LABELS[first:last]).answers.tolist()
    out = []
    for x, y in zip(ROWS[first:last], LABELS[first:last].tolist(), strict=True):
        guide.begin_round()
        question = guide.encode(x)
        if guide.finding:
            guide.count(x)
        out.append(guide.answer(question))
        guide.gradient(question, y)
    return out


def same(one: Guide, other: Guide) -> bool:
    """Whether two guides have the same bits in all that was released and follows from it."""
    a, b = one._leaves, other._leaves
    public = [(a.theta, b.theta), (a.models, b.models), (a.answering, b.answering), (a._decoded, b._decoded)]
    public += [(a._carried, b._carried), (a.choice.counts, b.choice.counts), (a._since_round, b._since_round)]
    alike = all(x.tobytes() == y.tobytes() for x, y in public)
    alike &= (one.closed, one.epoch) == (other.closed, other.epoch)
    told = [field.name for field in fields(Choice) if field.type != "Floats"]
    alike &= all(getattr(a.choice, name) == getattr(b.choice, name) for name in told)
    return alike and one.model.params() == other.model.params()


def test_leaves_of_all_epochs_are_named_by_the_number_of_rounds_alone() -> None:
    growing = LEAVES, LEAF, GROWTH
    ends = [end for epoch in range(40) for end in epoch_ends(epoch, *growing)]
    assert ends[:LEAVES] == list(ends_of(ends[LEAVES - 1], LEAF, GROWTH))
    lengths = np.diff([0, *ends])
    past = np.array([0, *ends[:-1]])
    assert (lengths == np.clip(past // GROWTH, 16, LEAF)).all()
    for epoch in range(40):
        start = epoch_start(epoch, *growing)
        assert start == ([0, *ends][epoch * LEAVES]) and epoch_of(start, *growing) == epoch
        assert epoch == 0 or epoch_of(start - 1, *growing) == epoch - 1
    many = np.arange(ends[-1])
    assert (SMALL.closed_after(many) == np.searchsorted(ends, many, side="right")).all()
    assert [SMALL.closed_at(int(one)) for one in many] == SMALL.closed_after(many).tolist()
    assert epoch_of(10**15, 1024, 2048, 256) > 10**8  # in no time


@pytest.mark.parametrize("plan", [ALONE, COUNTING])
def test_many_rounds_over_epochs_are_the_bits_of_one_by_one(plan: GuidePlan) -> None:
    one, other, pieces = made(plan), made(plan), made(plan)
    kept: list[Release] = []
    pieces.store = kept.append
    answers = led(one, 0, ROUNDS)
    assert one.epoch > 2 and led(other, 0, ROUNDS, batch=True) == answers and same(one, other)
    at = 0
    while at < ROUNDS:
        until = min(ROUNDS, at + int(RNG.integers(1, 90)))
        assert led(pieces, at, until, batch=True) == answers[at:until]
        at = until
    assert same(one, pieces) and [r.number for r in kept if r.kind == "node"] == list(range(one._leaves.total))


@pytest.mark.parametrize("plan", [ALONE, COUNTING])
def test_leaves_and_room_are_known_ahead_over_the_end_of_an_epoch(plan: GuidePlan) -> None:
    guide = made(plan)
    ahead = guide.leaves_of(ROUNDS)
    for at, x in enumerate(ROWS[:1500]):
        assert guide.leaves_of(7).tolist() == ahead[at : at + 7].tolist()
        room = guide.room  # also where an epoch, or the warm-up, is over and its last release is due
        assert guide.settle() > 0 and guide.room == room
        assert (ahead[at : at + room] == ahead[at]).all() and ahead[at + room] > ahead[at]
        guide.begin_round()
        assert guide.closed == ahead[at] and not guide.missed(at + 1)
        guide.gradient(guide.encode(x), int(LABELS[at]))
    assert guide.epoch > 1
    assert guide.missed(50) is (plan is COUNTING)  # of the warm-up alone nothing is taught late


def test_where_there_is_a_last_round_room_ends_with_each_leaf_too() -> None:
    guide = made(GuidePlan.best(40.0, 1e-6, ROUNDS))
    ahead = guide.leaves_of(ROUNDS)
    assert guide.counting > 0
    for at in range(ROUNDS - 200):
        room = guide.room
        assert room > 0 and (ahead[at : at + room] == ahead[at]).all() and ahead[at + room] > ahead[at]
        guide.begin_round()


def test_a_label_that_comes_in_the_next_epoch_teaches_its_open_leaf() -> None:
    guide = made(ALONE)
    start = epoch_start(1, LEAVES, LEAF, GROWTH)
    led(guide, 0, start - 1)
    guide.begin_round()
    question = guide.encode(ROWS[start - 1])
    guide.begin_round()
    assert guide.epoch == 1 and not guide._leaves.open.any() and not guide.missed(start)
    guide.gradient(question, 1)
    assert guide._leaves.open.any()


@pytest.mark.parametrize("plan", [ALONE, COUNTING])
def test_a_guide_resumes_at_any_leaf_of_any_epoch_with_the_same_bits(plan: GuidePlan) -> None:
    kept: list[Release] = []
    guide = made(plan, store=kept.append)
    begins = {epoch_start(e, LEAVES, LEAF, GROWTH) + (100 if plan is COUNTING else 0) for e in range(1, 4)}
    at = 0
    for until in sorted({*begins, *(b + 1 for b in begins), 60, 700, 1111, 1900}):
        led(guide, at, until)
        at = until
        for releases in (kept, guide.releases()):
            again = made(plan, seed=9)
            again.resume(guide.rounds, releases)
            assert same(guide, again) and again.rounds == guide.rounds
            if again.epoch:
                assert again.releases()[-1].number == guide.releases()[-1].number
    assert guide.epoch > 2


def test_a_crash_between_epochs_loses_nothing_and_noise_is_never_the_same() -> None:
    """The last node of an epoch is durable, and nothing else happened."""
    kept: list[Release] = []
    guide = made(ALONE, store=kept.append)
    end = epoch_start(1, LEAVES, LEAF, GROWTH)
    led(guide, 0, end + 1)
    assert len(kept) == LEAVES and guide.epoch == 1
    again = made(ALONE, seed=9)
    again.resume(end, kept)
    assert again.epoch == 1 and again.closed == LEAVES and again.rounds == end
    led(again, end, ROUNDS)
    assert again.epoch > 2


def test_an_interrupt_at_the_end_of_an_epoch_tears_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Release] = []
    guide, whole = made(ALONE, store=kept.append), made(ALONE)
    end = epoch_start(1, LEAVES, LEAF, GROWTH)
    led(guide, 0, end)
    led(whole, 0, end + 100)
    turn = Leaves.next

    def interrupted(*_: Any) -> Leaves:
        raise KeyboardInterrupt

    monkeypatch.setattr(Leaves, "next", interrupted)
    with pytest.raises(KeyboardInterrupt):
        guide.begin_round()
    monkeypatch.setattr(Leaves, "next", turn)
    led(guide, end, end + 100)
    assert guide.epoch == 1 and [r.number for r in kept] == list(range(len(kept))) and guide.closed == whole.closed


def noises(guide: Guide, kept: list[Release]) -> list[bytes]:
    """The noise of each released row: the row less the integer combination of its own epoch's exact sums."""
    out, matrix = [], guide.plan.root.matrix
    for epoch in range(len(kept) // LEAVES + 1):
        rows = kept[epoch * LEAVES : (epoch + 1) * LEAVES]
        sums = np.array([r.exact for r in rows])
        out += [(r.row - matrix[i, : i + 1] @ sums[: i + 1]).tobytes() for i, r in enumerate(rows)]
    return out


class Reuses(Leaves):
    """Broken on purpose: the noise of every epoch is drawn from the same words."""

    def next(self, stage: Any) -> Leaves:
        return Reuses(self.plan, stage, self.features, Random(seed=3), self.carried())


def test_every_node_of_every_epoch_has_noise_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Release] = []
    guide = made(ALONE, store=kept.append)
    led(guide, 0, ROUNDS)
    found = noises(guide, kept)
    assert len(found) > 3 * LEAVES and len(set(found)) == len(found)
    spread = np.concatenate([np.frombuffer(each, dtype=np.int64) for each in found]).astype(np.float64)
    assert np.mean(spread**2) == pytest.approx(guide.plan.sigma2, rel=0.1)
    kept.clear()
    monkeypatch.setattr("confide.guide.course.Leaves", Reuses)
    broken = made(ALONE, store=kept.append)
    led(broken, 0, ROUNDS)
    found = noises(broken, kept)
    assert len(set(found)) < len(found)


def test_what_is_kept_does_not_grow_with_epochs() -> None:
    guide, sizes = made(), []
    for first in range(0, ROUNDS, 100):
        led(guide, first, first + 100, batch=True)
        if guide.epoch:
            sizes.append((len(guide.releases()), guide._leaves.sums.shape[0]))
    assert guide.epoch > 2
    assert max(sizes)[0] <= COUNTING.warm_leaves + 2 + LEAVES and {size[1] for size in sizes} == {LEAVES}


def test_partitions_are_drawn_anew_in_later_epochs_and_lost_questions_are_read_by_their_own_map() -> None:
    rng = np.random.default_rng(1)
    x = rng.uniform(size=(6000, 9))
    y = ((x[:, 2] > 0.5) ^ (x[:, 5] > 0.5)).astype(np.int64)
    plan = replace(BEST, leaves=48, leaf=48, growth=32, range_rounds=400, warm_leaves=len(ends_of(400, 48, 32)))
    guide = Guide(plan, Columns.of_array(9), rng=Random(seed=1))
    kept: list[Release] = []
    guide.store = kept.append
    guide.follow(x[:5000], y[:5000])
    renewed = [one.deal for one in guide.features.renewed]  # type: ignore[union-attr]
    assert guide.epoch >= 2 and any(deal > 48 for deal in renewed)
    again = Guide(plan, Columns.of_array(9), rng=Random(seed=2))
    again.resume(5000, guide.releases())
    assert same(guide, again) and again.features.renewed == guide.features.renewed  # type: ignore[union-attr]
    for row in (600, 1500, 3000, 4999):
        one, other = guide.encode_as_of(x[row], row + 1), again.encode_as_of(x[row], row + 1)
        assert one.encoded.indices.tolist() == other.encoded.indices.tolist()
    early = Guide(plan, Columns.of_array(9), rng=Random(seed=1))
    early.follow(x[:1500], y[:1500])
    early.begin_round()
    assert early.encode(x[1500]).encoded.indices.tolist() == guide.encode_as_of(x[1500], 1501).encoded.indices.tolist()


@pytest.mark.parametrize("change", ["short", "size", "number", "nan"])
def test_a_beginning_that_is_no_beginning_of_this_guide_is_refused(change: str) -> None:
    guide = made(ALONE)
    led(guide, 0, 900, batch=True)
    begun, nodes = guide.releases()[0], guide.releases()[1:]
    row = begun.row.copy()
    if change == "short":
        row = row[:-1]
    elif change == "size":
        row[0] += 1
    elif change == "nan":
        row[-1:] = np.array([np.nan]).view(np.int64)
    wrong = begun._replace(row=row, number=begun.number + (change == "number"))
    with pytest.raises(StateError, match=r"missing in the ledger|do not belong"):
        made(ALONE).resume(900, [wrong, *nodes])
    with pytest.raises(StateError, match=r"missing in the ledger|do not belong"):
        made(replace(ALONE, rounds=None, leaves=LEAVES + 1)).resume(900, [begun, *nodes])


def test_rows_without_names_and_many_labels_live_over_epochs_too() -> None:
    plan = replace(GuidePlan.best(40.0, 1e-6, labels=4, private_ranges=False), leaves=LEAVES, leaf=LEAF, growth=GROWTH)
    guide = Guide(plan, HashedMap(64), rng=Random(seed=1))
    rows = [{"a": float(i % 4), "b": float(i % 3)} for i in range(1500)]
    guide.follow(rows, np.arange(1500) % 4)
    again = Guide(plan, HashedMap(64), rng=Random(seed=2))
    again.resume(1500, guide.releases())
    assert guide.epoch > 1 and same(guide, again)


def test_a_plan_without_an_end_is_written_down_and_read_again() -> None:
    assert GuidePlan.from_params(BEST.params()) == BEST and BEST.rounds is None
    with pytest.raises(ValueError, match="no last round"):
        _ = BEST.length
    with pytest.raises(ValueError, match="at most 0"):
        GuidePlan.best(1.0, 1e-6, 1000).epoch(1)
    for epsilon in (1e-3, 0.01, 0.1, 16.0):
        plan = GuidePlan.best(epsilon, 1e-6)
        assert plan.delta(epsilon) <= 1e-6 and plan.warm_leaves <= 1024


def test_after_all_labels_change_it_follows() -> None:
    """What was learned is unlearned, also what an earlier epoch had learned."""
    rng = np.random.default_rng(2)
    x = rng.uniform(size=(60_000, 4))
    y = (x[:, 0] + x[:, 1] > 1).astype(np.int64)
    y[40_000:] = 1 - y[40_000:]
    wrong = Guide(GuidePlan.best(8.0, 1e-6), Columns.of_array(4), rng=Random(seed=1)).follow(x, y).answers != y
    assert wrong[40_000:40_500].mean() > 0.9 and wrong[50_000:].mean() < 0.05


def test_where_epochs_began_and_what_was_learned_are_known_in_every_epoch() -> None:
    guide = made()
    assert guide.epochs == [] and guide.importance() == {}
    for rounds in range(ROUNDS):
        before = guide.epoch
        led(guide, rounds, rounds + 1)
        if guide.epoch > before:  # the round that begins it is the first one after
            assert guide.epochs[-1] == rounds
    assert len(guide.epochs) == guide.epoch >= 3
    shares = guide.importance()
    assert {"0", "1"} <= set(shares) and sum(shares.values()) == pytest.approx(1)


def test_the_noise_that_earlier_epochs_left_is_known_in_every_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody teaches and partitions stay: sums hold noise alone, as much of it as is said, in each epoch."""
    monkeypatch.setattr(Leaves, "_renewed", lambda self, *given: {})
    columns = Columns.of_array(3)
    plan = replace(GuidePlan.best(8.0, 1e-6, private_ranges=False), leaves=64, leaf=16, growth=64)
    guide = Guide(plan, columns, rng=Random(seed=1), ranges={name: (0.0, 10.0) for name in columns.numeric})
    for epoch in range(1, 6):
        while guide.epoch < epoch or guide._leaves.closed < 63:
            guide.follow(np.zeros((16, 3)), np.full(16, -1))
        leaves = guide._leaves
        found = mean_squares(leaves._parted(leaves._since(leaves._decoded, leaves.closed))).mean()
        assert 0.8 < found / leaves._left(leaves.closed)[1].mean() < 1.25, f"epoch {epoch}"
