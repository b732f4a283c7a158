"""Counts and lessons apart: every life of a row in and after a warm-up, led through the POP itself, moves at most μ².

A life says what the row holds, when its label comes, and whether with its ticket or as a record; in which round it is
asked, if it is, is the same in both worlds. All lives are run with the same releases, which the adversary chose, so
that whatever two of them leave in sums and counts differs by the unit alone. Doubles go further than that.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from confide import POP, Plan
from confide.guide.columns import Columns
from confide.guide.counting import RangeCounts
from confide.guide.guide import Guide, Release
from confide.guide.leaves import Kept
from confide.guide.model import Question
from confide.planning.guided import GuidePlan
from confide.planning.promise import Promise
from confide.pop.guiding import Guiding
from confide.pop.state import check
from confide.privacy.random import Random
from confide.service.base import Question as Asked
from confide.service.desk import PopDesk

pytestmark = pytest.mark.claim("guide.md", "exact.md")

COUNTED, ROUNDS = 10, 30
BASE = GuidePlan(
    rounds=ROUNDS, history=0, labels=2, leaves=6, leaf=5, growth=0, clip=1 << 15, scale=1 << 16, unit_labels=1,
    sigma2=1 << 56, factor_scale=1 << 6, column_scale=1 << 6, node_values=1 << 24, range_rounds=COUNTED,
    range_norm=1 << 16, range_sigma2=1 << 34, range_values=1 << 24, warm_leaves=2, warm_sigma2=1 << 57,
    warm_factor_scale=1 << 6, warm_column_scale=1 << 6, warm_step=0.5, step=0.5, memory=60.0, momentum=0.0, apart=True,
)  # fmt: skip
WARM, MAIN = (replace(BASE, apart=False, **{name: 1 << 80}).labels_mu2 for name in ("sigma2", "warm_sigma2"))
GUIDE = replace(BASE, range_sigma2=int(2 * BASE.range_norm**2 / (MAIN - WARM)) + 1)


KEPT = replace(GUIDE, warm_sigma2=2 * GUIDE.warm_sigma2, range_sigma2=2 * GUIDE.range_sigma2)


def _told() -> GuidePlan:
    """A plan of leaves of two rounds, the first of which is loud: a fifth of μ² is for the warm-up, half for counts."""
    shorter = replace(BASE, leaf=2, leaves=15, warm_leaves=5)
    mu2 = replace(shorter, apart=False, warm_sigma2=1 << 80).labels_mu2
    warm = replace(shorter, apart=False, sigma2=1 << 80).labels_mu2
    return replace(
        shorter,
        warm_sigma2=int(5 * shorter.warm_sigma2 * warm / mu2) + 1,
        range_sigma2=int(4 * shorter.range_norm**2 / mu2) + 1,
    )


TOLD = _told()


class Life(NamedTuple):
    """What one row does."""

    asked: int | None
    taught: int | None
    record: bool
    a: float | str
    label: int


def lives_of(asked: int | None) -> list[Life]:
    """All of them with the row asked in this round; a word in place of a number cannot be read, and is not taught.

    One that is never taught is the same with either label, and so is one that is not asked either, whatever it holds.
    """
    taught = {18: (None, 9, 20), 1: (None, 1, 2, 3, 20)}.get(asked or 0, (None, 2, 5, 9, 10, 20))
    every = (Life(asked, *rest) for rest in product(taught, (False, True), (0.5, 900.0, "word"), (0, 1)))
    lives = [life for life in every if life.record or (asked is not None and (life.taught or 99) >= asked)]
    silent = Life(asked, None, True, 0.5, 0)
    return [
        life for life in lives
        if life.taught is not None or life == silent or (asked is not None and life == silent._replace(a=life.a))
    ]  # fmt: skip


@cache
def plan_of(guide: GuidePlan) -> Plan:
    return Plan(Promise(guide.epsilon(0.01), 0.01, ROUNDS), (guide,), "tight")


class Seen:
    """What a guide releases, and what everybody sees in its place: nothing, whatever the unit did."""

    def __init__(self, pop: POP) -> None:
        self.exact: dict[tuple[str, int], np.ndarray] = {}
        guiding = pop.operator.loop.guiding
        assert guiding is not None
        guiding.guide.store = self
        counts = guiding.guide._counted.counts
        self.counts = lambda: counts.copy()

    def __call__(self, release: Release) -> None:
        exact = self.counts().ravel() if release.kind == "ranges" else release.exact
        self.exact[release.kind, release.number] = exact.copy()
        release.row[:] = 0


def moved(guide: GuidePlan, kind: type[Guiding] = Guiding, **options: Any) -> Iterator[Fraction]:
    """The most that any two lives are apart, in squared deviations of the noise, by the round in which it is asked."""
    for asked in (None, 1, 4, 18):
        # No ticket is brought where it is good for a round.
        lives = [life for life in lives_of(asked) if life.record or not options]
        yield farthest(guide, [led(guide, life, kind, **options) for life in lives])


def farthest(guide: GuidePlan, worlds: Sequence[dict[tuple[str, int], np.ndarray]]) -> Fraction:
    """The most that any two of them are apart, in squared deviations of the noise, by integers."""
    apart = [Counter[int]() for _ in combinations(worlds, 2)]
    noise = {"ranges": guide.range_sigma2, "warm": guide.warm_sigma2, "node": guide.sigma2}
    for name in worlds[0]:
        sums = [world[name] for world in worlds]
        differ = np.flatnonzero(np.any([one != sums[0] for one in sums], axis=0))
        for far, (one, other) in zip(apart, combinations((one[differ].tolist() for one in sums), 2), strict=True):
            if one != other:
                far[noise[name[0]]] += sum((a - b) ** 2 for a, b in zip(one, other, strict=True))
    return max(sum((Fraction(far, sigma2) for sigma2, far in one.items()), Fraction(0)) for one in apart)


def led(guide: GuidePlan, life: Life, kind: type[Guiding], **options: Any) -> dict[tuple[str, int], np.ndarray]:
    """What a POP has in its sums, as its nodes weigh them, and counts, after this life among rounds of others."""
    pop = POP(None, plan_of(guide), labels=[0, 1], features=1, seed=1, **options)
    running = pop.operator.loop.guiding
    assert running is not None
    running.__class__ = kind
    running.guide.__class__ = kind.guide_type
    seen, ticket = Seen(pop), ""
    for number in range(1, ROUNDS + 1):
        with suppress(ValueError):  # of the word
            ticket = pop.predict([life.a]).ticket or "" if life.asked == number else ticket
        if life.asked != number:
            pop.predict([3.0])
        with suppress(ValueError):
            if life.taught == number and life.record:
                pop.teach([life.a], life.label)
            elif life.taught == number and ticket:
                pop.learn(ticket, life.label)
    return noisy(guide, seen.exact)


def noisy(guide: GuidePlan, exact: dict[tuple[str, int], np.ndarray]) -> dict[tuple[str, int], np.ndarray]:
    """What noise is added to: the counts, and leaves' sums as nodes weigh them."""
    nodes: dict[tuple[str, int], np.ndarray] = {("ranges", 0): exact["ranges", 0]}
    for name, root in (("warm", guide.warm_root), ("node", guide.root)):
        sums = [exact[name, i].astype(object) for i in range(sum(at[0] == name for at in exact))]
        factor, weights = root.factor.tolist(), root.weights.tolist()
        for i in range(len(sums)):
            nodes[name, i] = sum(factor[i - s] * weights[s] * sums[s] for s in range(i + 1))
    return nodes


class Whole(Guiding):
    """A record after the warm-up teaches as much as any other, though its row may be in the counts."""

    def teach(self, question: Question | None, label: int, who: bytes | None, counted: bool = False) -> int:
        return super().teach(question, label, who)


class Late(Guiding):
    """A label of a question of the warm-up teaches after it."""

    def teach(self, question: Question | None, label: int, who: bytes | None, counted: bool = False) -> int:
        late = None if question is None else question._replace(stage=self.guide.stage)
        return super().teach(late, label, who, counted)


class Both(Guiding):
    """What is asked and what is taught is counted."""

    def _counts(self, who: bytes | None) -> bool:
        return True


class Loud(Guide):
    """What the warm-up was taught teaches the other stage as if nothing had been paid for it."""

    def close_next(self) -> bool:
        vars(self.plan)["clip"], clip = 2 * self.plan.clip, self.plan.clip  # k follows it
        try:
            return super().close_next()
        finally:
            vars(self.plan)["clip"] = clip


class Loudly(Guiding):
    guide_type = Loud


class Twice(Guide):
    """What is taught in a loud leaf is kept, too."""

    def gradient(self, question: Question, y: int, /, *, counted: bool = False) -> None:
        super().gradient(question, y, counted=counted)
        if self.finding and self._leaves.loud and question.read is not None:
            self._leaves.kept.append(Kept(self.rounds, question.read, y))


class Twofold(Guiding):
    guide_type = Twice


class Ordered(Guide):
    """What the warm-up was taught is put in leaves by its order: one lesson that does not come moves all others."""

    def gradient(self, question: Question, y: int, /, *, counted: bool = False) -> None:
        super().gradient(question, y, counted=counted)
        kept = self._leaves.kept
        if self.finding and kept:
            kept[-1] = kept[-1]._replace(rounds=len(kept))


class InOrder(Guiding):
    guide_type = Ordered


def test_the_dearer_of_two_is_paid() -> None:
    assert GUIDE.mu2 == MAIN == GUIDE.labels_mu2 >= WARM + GUIDE.range_mu2 > 0.999 * MAIN
    assert replace(GUIDE, apart=False).mu2 == MAIN + GUIDE.range_mu2
    assert replace(GUIDE, apart=False).record_clip == GUIDE.clip > GUIDE.record_clip
    louder = replace(GUIDE, range_sigma2=GUIDE.range_sigma2 // 2)
    assert louder.mu2 == WARM + louder.range_mu2 and replace(GUIDE, sigma2=GUIDE.sigma2 // 2).mu2 == 2 * MAIN


def test_a_loud_label_and_the_counts_of_its_row_are_as_dear_as_all_and_no_dearer() -> None:
    for plan in (TOLD, GuidePlan.best(1.0, 1e-6, 5000), GuidePlan.best(4.0, 1e-6), GuidePlan.best(2.0, 1e-6, 9000, 5)):
        a_clip = Fraction(4 * plan.warm_root.load, plan.warm_sigma2)
        dear = [plan.range_mu2 + a_clip * clip**2 for clip in (plan.loud_clip, plan.loud_clip + 1)]
        assert dear[0] <= plan.mu2 < dear[1] and plan.clip < plan.loud_clip < 1 << 31
        assert 0 < plan.loud_rounds == plan.warm.ends[plan.loud_leaves - 1] < plan.range_rounds / 4
        assert plan.warm.ends[:4] == plan.main.ends[:4]  # a leaf without lessons is one in both stages
    people = GuidePlan.best(1.0, 1e-6, 5000, apart=False)
    assert people.loud_clip == people.clip and people.loud_leaves == people.loud_rounds == 0


@pytest.mark.parametrize("options", [{}, {"ticket_life": 1}], ids=["tickets", "records"])
@pytest.mark.parametrize("guide", [GUIDE, KEPT, TOLD], ids=["nothing kept", "kept", "loud"])
def test_no_two_lives_of_a_row_are_further_apart_than_certified(guide: GuidePlan, options: dict[str, Any]) -> None:
    if guide is TOLD:
        assert guide.loud_rounds == 2 and guide.kept_clip > 0 and guide.loud_clip > 1.5 * guide.clip
    else:
        assert guide.mu2 == MAIN and guide.kept_clip == (0 if guide is GUIDE else int(guide.clip / 2**0.5))
        assert guide.loud_rounds == 0
    assert 0.5 * guide.mu2 < max(moved(guide, **options)) <= guide.mu2


@pytest.mark.parametrize(
    ("guide", "kind", "options"),
    [(GUIDE, Whole, {}), (GUIDE, Late, {}), (GUIDE, Both, {"ticket_life": 1}), (KEPT, Loudly, {}), (TOLD, Twofold, {})],
    ids=["whole", "late", "both", "loud", "twice"],
)
def test_a_row_that_is_in_both_goes_further(guide: GuidePlan, kind: type[Guiding], options: dict[str, Any]) -> None:
    assert any(apart > guide.mu2 for apart in moved(guide, kind, **options))


def _taught(kind: type[Guiding], missing: int | None, late: int = 0) -> dict[tuple[str, int], np.ndarray]:
    """The sums of a POP after rounds that all bring a label, some of them later, but one perhaps."""
    pop = POP(None, plan_of(KEPT), labels=[0, 1], features=1, seed=1)
    running = pop.operator.loop.guiding
    assert running is not None
    running.__class__, running.guide.__class__ = kind, kind.guide_type
    seen, open_ = Seen(pop), {}
    for number in range(1, ROUNDS + 1):
        open_[number] = pop.predict([float(number)]).ticket
        if (due := number - late * (number % 3)) in open_ and due != missing:
            pop.learn(open_.pop(due), due % 2)
    return seen.exact


@pytest.mark.parametrize(
    ("kind", "late", "leaves"),
    [(Guiding, 0, {"warm": 1, "node": 1}), (Guiding, 2, {"warm": 1, "node": 1}), (InOrder, 0, {"warm": 1, "node": 2})],
    ids=["in time", "late", "in order"],
)
def test_a_lesson_that_does_not_come_leaves_all_others_in_their_leaves(
    kind: type[Guiding], late: int, leaves: dict[str, int]
) -> None:
    whole, less = (_taught(kind, missing, late) for missing in (None, 4))
    moved = Counter(name for name, number in whole if not np.array_equal(whole[name, number], less[name, number]))
    assert moved == leaves


@pytest.mark.parametrize("places", [1, 2, 3, 5])
def test_what_is_kept_is_taught_once_wherever_it_is_interrupted(places: int) -> None:
    """Ctrl-C comes when a release of the main stage is stored, or while kept lessons are added."""
    plan = GuidePlan.best(4.0, 1e-6, 2000)
    rows = np.random.default_rng(1).normal(size=(2000, 2))
    labels = (rows[:, 0] > 0).astype(np.int64)

    def led(interrupts: int) -> Guide:
        guide, left = Guide(plan, Columns.of_array(2), rng=Random(seed=1)), interrupts

        def store(release: Release) -> None:
            nonlocal left
            if release.kind == "node" and left:
                left -= 1
                raise KeyboardInterrupt

        guide.store = store
        for x, y in zip(rows, labels, strict=True):
            while True:
                with suppress(KeyboardInterrupt):
                    guide.begin_round()
                    break
            question = guide.encode(x)
            if guide.finding:
                guide.count(x)
            guide.gradient(question, int(y))
        return guide

    whole, cut = led(0), led(places)
    assert not whole.finding and whole.closed == cut.closed
    for one, other in zip(whole.releases(), cut.releases(), strict=True):
        assert one.kind == other.kind and np.array_equal(one.exact, other.exact) and np.array_equal(one.row, other.row)
    taught = sum(int(np.abs(one.exact).sum()) for one in whole.releases() if one.kind == "node" and one.number < 5)
    assert taught > 0


def _live(pop: POP, life: Life | None) -> None:
    with suppress(ValueError):
        if life is not None:
            pop.teach([life.a], life.label)


def _handed_over(life: Life | None, folder: Path, **options: Any) -> dict[tuple[str, int], np.ndarray]:
    """Its record is the only one; then a desk takes the POP over."""
    pop = POP(None, plan_of(GUIDE), labels=[0, 1], features=1, seed=1, **options)
    seen = Seen(pop)
    pop.predict([3.0])
    _live(pop, life)
    pop.save(folder / f"{life}")
    desk = PopDesk("m", pop, folder / f"{life}")
    for i in range(ROUNDS - 1):
        desk.ask([Asked(f"{i}", "q", [3.0])])
    pop.close()
    return noisy(GUIDE, seen.exact)


def _cut_off(life: Life | None, folder: Path, **options: Any) -> dict[tuple[str, int], np.ndarray]:
    """Its record comes first; another one's is cut off."""
    pop = POP(None, plan_of(GUIDE), labels=[0, 1], features=1, seed=1, **options)
    seen, guiding = Seen(pop), pop.operator.loop.guiding
    assert guiding is not None
    pop.predict([3.0])
    _live(pop, life)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(guiding, "read", interrupted)
        pop.teach([3.0], 0)
    for _ in range(ROUNDS - 1):
        pop.predict([3.0])
        pop.teach([3.0], 0)
    return noisy(GUIDE, seen.exact)


def _cut_off_itself(life: Life | None, folder: Path, **options: Any) -> dict[tuple[str, int], np.ndarray]:
    """Its own record is cut off, where a row that can be read is read, and another is found to be none."""
    pop = POP(None, plan_of(GUIDE), labels=[0, 1], features=1, seed=1, **options)
    seen, guiding = Seen(pop), pop.operator.loop.guiding
    assert guiding is not None
    pop.predict([3.0])
    if life is not None:
        place = "check" if life.a == "word" else "read"
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(guiding, place, interrupted)
            pop.teach([life.a], life.label)
    for _ in range(ROUNDS - 1):
        pop.predict([3.0])
        pop.teach([3.0], 0)
    return noisy(GUIDE, seen.exact)


def interrupted(*_: Any) -> Any:
    signal.raise_signal(signal.SIGINT)
    raise AssertionError("Ctrl-C raises")


@pytest.mark.parametrize("options", [{}, {"ticket_life": 1}], ids=["tickets", "records"])
@pytest.mark.parametrize("lead", [_handed_over, _cut_off, _cut_off_itself])
def test_what_one_record_is_decides_about_no_others_counts(lead: Any, options: dict[str, Any], tmp_path: Path) -> None:
    lives = [Life(None, 1, True, a, 1) for a in (0.5, "word")]
    one, other = (lead(life, tmp_path, **options) for life in lives)
    assert farthest(GUIDE, [one, other]) <= GUIDE.mu2


@pytest.mark.parametrize(("kind", "number"), [("ranges", 0), ("node", 0), ("node", 1)])
@pytest.mark.parametrize("durable", [False, True])
def test_a_state_that_was_saved_inside_the_switch_is_verified(
    kind: str, number: int, durable: bool, tmp_path: Path
) -> None:
    pop, cut = POP(None, plan_of(KEPT), labels=[0, 1], features=1, seed=1), []
    pop.save(tmp_path / "m")
    guiding = pop.operator.loop.guiding
    assert guiding is not None and guiding.guide.store is not None
    store = guiding.guide.store

    def cutting(release: Release) -> None:
        here = not cut and (release.kind, release.number) == (kind, number)
        if durable or not here:
            store(release)
        if here:
            cut.append(release)
            raise KeyboardInterrupt

    guiding.guide.store = cutting
    for i in range(20):
        try:
            pop.learn(pop.predict([float(i)]).ticket, i % 2)
        except KeyboardInterrupt:
            pop.save(tmp_path / "m")
    pop.close()
    assert cut and check(tmp_path / "m").parts["linear"].compared


def test_a_state_that_is_first_saved_inside_the_switch_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes when the counts are released, and the map is made of them."""
    pop = POP(None, plan_of(KEPT), labels=[0, 1], features=1, seed=1)
    for i in range(20):
        with monkeypatch.context() as patch:
            if i == COUNTED:
                patch.setattr(RangeCounts, "map", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    pop.predict([float(i)])
                pop.save(tmp_path / "m")
        pop.learn(pop.predict([float(i)]).ticket, i % 2)
    pop.close()
    assert check(tmp_path / "m").parts["linear"].compared


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0, 8.0])
@pytest.mark.parametrize("rounds", [3000, 100_000, None])
def test_what_is_planned_leaves_nothing_of_the_budget(epsilon: float, rounds: int | None) -> None:
    plan = GuidePlan.best(epsilon, 1e-6, rounds)
    main = replace(plan, apart=False, warm_sigma2=1 << 84).labels_mu2
    assert main > (1 - 1e-9) * plan.mu2
    if plan.apart:
        warm = replace(plan, apart=False, sigma2=1 << 84).labels_mu2
        kept = 4 * plan.kept_clip**2 * Fraction(plan.load, plan.sigma2)
        assert (1 - 1e-3) * plan.mu2 < warm + plan.range_mu2 + kept <= plan.mu2
        assert 4 * plan.record_clip**2 * Fraction(plan.load, plan.sigma2) + plan.range_mu2 <= plan.mu2


def test_people_pay_for_both() -> None:
    rounds, people = (Plan.tight(1.0, 1e-6, 100_000, units=units) for units in ("rounds", "people"))
    assert rounds.guide is not None and people.guide is not None
    assert rounds.guide.apart and not people.guide.apart
    assert rounds.but(units="people").guide == people.guide and rounds.guide.together().mu2 <= rounds.guide.mu2
    with pytest.raises(ValueError, match="plan with units='people'"):
        POP(None, Plan.tight(1.0, 1e-6, 100_000), labels=[0, 1], features=1, units="people")
    with pytest.raises(ValueError, match="made for rounds"):
        replace(people, parts=(rounds.guide,)).verify()
    with pytest.raises(ValueError, match="one label each"):
        replace(GUIDE, unit_labels=2)
