"""A POP without a last round, over the ends of epochs: saved, killed, loaded, checked and replayed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide import POP, Plan
from confide.games.replay import Script, replay
from confide.planning.guided import GuidePlan
from confide.planning.promise import Promise
from confide.planning.stages import ends_of
from confide.pop.guiding import Guiding
from confide.pop.keeping import Keeper
from confide.pop.state import check
from confide.service.base import Question, Taught
from confide.service.desk import PopDesk
from tests.scripts import crash_script, cut_script, loader, make_pop, people_script, rounds_script

pytestmark = pytest.mark.claim("guide.md")

LEAVES, LEAF, GROWTH, COUNTED = 4, 5, 8, 15
ROUNDS = 200
RNG = np.random.default_rng(7)
ROWS = RNG.normal(size=(ROUNDS, 2)) * [1.0, 30.0]
LABELS = (ROWS[:, 0] > 0).astype(np.int64)


def endless(unit_labels: int = 1, ranges: bool = True) -> Plan:
    best = GuidePlan.best(40.0, 1e-6, unit_labels=unit_labels, apart=False)
    none = {"range_norm": 0, "range_values": 0} if not ranges else {}
    counted = COUNTED if ranges else 0
    warm = len(ends_of(counted, LEAF, GROWTH))
    guide = replace(best, leaves=LEAVES, leaf=LEAF, growth=GROWTH, range_rounds=counted, warm_leaves=warm, **none)
    return Plan(Promise(60.0, 1e-6, unit_labels=unit_labels), (guide,), "tight")


def make(plan: Plan, **options: Any) -> POP:
    return POP(None, plan, labels=[0, 1], features=2, **{"fallback": 0, **options})


def guide_of(pop: POP) -> Any:
    guiding = pop.operator.loop.guiding
    assert guiding is not None
    return guiding.guide


@pytest.mark.parametrize("first", [8, 15, 17, 36, 50])
def test_a_state_that_begins_in_any_epoch_is_checked_from_its_ledger(first: int, tmp_path: Path) -> None:
    pop = make(endless())
    pop.follow_many(ROWS[:first], LABELS[:first])
    pop.save(tmp_path / "s")
    assert check(tmp_path / "s").parts["linear"][:2] == (guide_of(pop).closed, fingerprint(pop))
    at = first
    for rounds in (3, 20, 60):
        pop.follow_many(ROWS[at : at + rounds], LABELS[at : at + rounds])
        at += rounds
        pop.close()
        assert check(tmp_path / "s").parts["linear"][:2] == (guide_of(pop).closed, fingerprint(pop))
        pop = POP.load(tmp_path / "s")
        pop.save(tmp_path / "s")
    assert guide_of(pop).epoch > 1
    pop.close()


def fingerprint(pop: POP) -> str:
    guiding = pop.operator.loop.guiding
    assert guiding is not None
    return guiding.fingerprint()


def test_what_an_epoch_began_with_is_no_sum_and_no_number_of_sums_is_the_last() -> None:
    pop = make(endless())
    pop.follow_many(ROWS, LABELS)
    guide = guide_of(pop)
    assert guide.epoch > 1 and any(kind == "linear/epoch" for kind, *_ in pop.released)
    assert len(pop.guide.sums) == guide._warm.closed + guide._leaves.closed
    assert repr(pop.guide) == f"PublicGuide({guide.closed:,} sums released)"


def test_a_person_teaches_as_often_as_the_plan_says_in_all_epochs_lives_and_after_forgetting(tmp_path: Path) -> None:
    plan = endless(unit_labels=2, ranges=False)
    pop = make(plan, units="people")
    pop.save(tmp_path / "s")
    taught, at = 0, 0
    for life in range(6):
        before = guide_of(pop)._leaves.open.copy()
        pop.learn(pop.predict([1.0, 2.0], "ann").ticket, 1)
        taught += not np.array_equal(guide_of(pop)._leaves.open, before)
        if life % 2:
            pop.forget("ann")
        else:
            pop.close()
            pop = POP.load(tmp_path / "s")
        others = [f"{life}-{i}" for i in range(19)]
        pop.predict_many(ROWS[at : at + 19], others)
        at += 20
    assert taught == 2 and guide_of(pop).epoch > 3
    pop.close()


def other_rounds(seed: int) -> Script:
    return rounds_script(seed, loads=(True, False), rounds=60)


def cut(seed: int) -> Script:
    return [*cut_script(seed), *cut_script(seed + 1, crash=True)]


def loaded(seed: int) -> Script:
    return people_script(seed, loads=(True, False))


@pytest.mark.parametrize("ranges", [True, False], ids=["counted", "known"])
@pytest.mark.parametrize("written", [other_rounds, loaded, crash_script, cut])
def test_two_worlds_differ_over_epochs_by_the_units_own_gradients_alone(
    written: Callable[[int], Script], ranges: bool
) -> None:
    people = written is not other_rounds
    units: Any = {"units": "people" if people else "rounds", "fallback": "no"}
    outcome = replay(make_pop(None, plan=endless(2 if people else 1, ranges), **units), written(1), load=loader(None))
    assert outcome.released > 2 * LEAVES, "the worlds lived for more than an epoch"
    assert outcome.moved > 0 or written is crash_script, "whose unit loses what it taught with the process"


def test_a_desk_that_dies_at_the_end_of_an_epoch_teaches_each_label_once(tmp_path: Path) -> None:
    plan = endless(ranges=False)
    desk = PopDesk.open(tmp_path / "s", lambda: make(plan))
    end = LEAVES * LEAF
    for life in range(1, 4):
        at = desk.public()["rounds"]
        tickets = []
        for i in range(at, life * end):  # the last node of the epoch is made when the next round begins
            asked = desk.ask([Question(f"ann{i}", "one", ROWS[i].tolist())])[0]
            assert asked.answer is not None
            tickets.append(Taught(f"ann{i}", asked.answer.ticket, int(LABELS[i])))
        desk.learn(tickets[:-3])
        asked = desk.ask([Question(f"ann{life * end}", "one", ROWS[0].tolist())])[0]
        guide = guide_of(desk.pop)
        assert guide.epoch == life and not guide._leaves.open.any()
        desk.learn(tickets[-3:])  # of questions of the epoch before
        taught, public = guide._leaves.open.copy(), [row.tolist() for *_, row in desk.pop.released]
        desk._book._release()  # the process is gone: nothing is saved
        desk = PopDesk.open(tmp_path / "s", lambda: make(plan))
        guide = guide_of(desk.pop)
        assert [row.tolist() for *_, row in desk.pop.released] == public
        assert guide.epoch == life and np.array_equal(guide._leaves.open, taught) and taught.any()
    desk.close()


@pytest.mark.parametrize("ranges", [True, False], ids=["counted", "known"])
def test_an_import_over_warm_up_and_epochs_comes_to_its_end_and_no_sum_has_what_is_not_noted(
    ranges: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, teach, calls = endless(ranges=ranges), Keeper.teach, list[list[int]]()
    plan = replace(plan, parts=(replace(plan.parts[0], history=100),))  # type: ignore[type-var]

    def heard(keeper: Keeper, *given: Any) -> Any:
        records, entered = teach(keeper, *given)
        calls.append(records.leaves.tolist())
        assert len(set(calls[-1])) == 1, "a sum would be released before the note of a record in it"
        return records, entered

    monkeypatch.setattr(Keeper, "teach", heard)
    desk = PopDesk.open(tmp_path / "s", lambda: make(plan))
    records = [(f"ann{i}", ROWS[i].tolist(), int(LABELS[i])) for i in range(100)]
    assert [said for part in desk.teaching(records, "old") for said in part] == [None] * 100
    assert guide_of(desk.pop).epoch > 2 and sum(map(len, calls)) == 100
    desk.close()


def test_a_cap_that_begins_anew_with_an_epoch_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    teach = Guiding.teach

    def forgetful(guiding: Guiding, question: Any, label: int, who: bytes | None) -> int:
        if getattr(guiding, "epoch", 0) != guiding.guide.epoch:
            guiding.epoch = guiding.guide.epoch  # type: ignore[attr-defined]
            guiding._account.labels.clear()
        return teach(guiding, question, label, who)

    monkeypatch.setattr(Guiding, "teach", forgetful)
    make = make_pop(None, plan=endless(1, ranges=False), units="people", fallback="no")
    with pytest.raises(AssertionError, match=r"each within its unit's cap"):
        replay(make, people_script(1, batches=False, parts=12))
