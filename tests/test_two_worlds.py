"""One unit's data replaced by anything: in two worlds with the same coins, nobody else sees a difference.

The net under everything: each case replaces one thing that the unit does, at any entry point, by anything, objects that
raise anything included; gates and halting draws are forced to the other world's. `replay` then compares errors,
tickets, rounds, draws, state and every other copy, which are equal, the votes, which differ by at most one, the counts,
by at most G, and what a guide released, which differs by the unit's own gradients, to the last integer. A lean's words
are forced too, and its offsets are those of the public score, in both worlds.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from confide.games.replay import Again, Ask, Disk, Forget, Hidden, Label, Replayed, Script, replay
from confide.learners import GaussianNB
from confide.privacy.random import Random
from confide.service import requests
from tests.service.worlds import CountsOpen, Desked, DeskWriter, FreesIds, GivesBack
from tests.worlds import LABELS, PEOPLE, THREE, Writer, make_pop, makers, small_plan

pytestmark = pytest.mark.claim("people.md")

MAKERS = makers()
LONG = 6
TIMES = LONG if int(os.environ.get("CONFIDE_KILLS", "20")) > 20 else 1
"""`make chaos` sends six times as many scripts: ten thousand cases and more."""
HIDDEN = 30
NARROW = {"points", "stacked, plain", "tallied points", "tallied intervals, people"}
"""Those whose x is one number."""
SLOW = {"refit", "river", "river, pipeline", "scikit-learn"}
GUIDED = {name for name in MAKERS if "guide" in name}
LEANING = {name for name in MAKERS if "leaning" in name}


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A desk's questions leave its memory soon: most steps of a script are of older ones."""
    monkeypatch.setattr(requests, "RECENT", 2)


def of_people(name: str) -> bool:
    return "people" in name or name in ("refit", "river")


def scripts(name: str, times: int = TIMES) -> int:
    """Scripts a mechanism; more where one script holds many cases and is quick."""
    if name in SLOW | GUIDED | LEANING:
        return 2 * times
    return (13 if of_people(name) else 5) * times


def writer_for(name: str, number: int, **more: Any) -> Writer:
    labels, width = THREE if "three labels" in name else LABELS, 1 if name in NARROW else 2
    return Writer(number, MAKERS[name][1], of_people(name), width=width, labels=labels, **more)


def test_there_are_thousands_of_cases() -> None:
    """A script of people hides one thing of the unit after the other, a script of rounds one round and its label."""
    cases = {}
    for name in MAKERS:
        writer = writer_for(name, 1)
        writer.write(HIDDEN, between=2, history=3)
        cases[name] = writer.cases
    assert sum(scripts(name, 1) * n for name, n in cases.items()) >= 2000
    assert sum(scripts(name, LONG) * n for name, n in cases.items()) >= 10_000


@pytest.mark.parametrize("name", MAKERS)
def test_nobody_else_sees_what_one_unit_sends(name: str) -> None:
    make, _ = MAKERS[name]

    @seed(1)
    @settings(max_examples=scripts(name), deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 10**9))
    def check(number: int) -> None:
        script = writer_for(name, number).write(HIDDEN, between=2, history=60 if name in SLOW else None)
        replay(make, script, seed=number)

    check()


LOADED = [
    "fused, people", "few rounds", "fused, people, polled", "leaning, people, polled", "leaning, three labels",
    *sorted(GUIDED - {"guided, soon halted, people"}),
]  # fmt: skip


@pytest.mark.parametrize("name", LOADED)
def test_nor_after_loads_and_while_the_disk_is_away(name: str) -> None:
    """Saved, or crashed and loaded from an older snapshot; labels come while nothing can be written."""
    for number in range(TIMES * (1 if name in GUIDED else 3)):
        replay(MAKERS[name][0], writer_for(name, number, loads=True).write(12, between=2), seed=number)


DESKED = make_pop(GaussianNB(), **{**PEOPLE, "plan": small_plan(2, rounds=2000, unsure=400)})


def desk_script(number: int) -> Script:
    """The first step opens the desk."""
    return [Disk(True), *DeskWriter(number, loads=True).write(20, between=2, history=40)]


def test_nor_at_a_desk_where_people_are_forgotten_in_secret_and_requests_are_sent_again() -> None:
    forgotten = again = 0
    for number in range(4 * TIMES):
        script = desk_script(number)
        replay(lambda rng: Desked(DESKED(rng)), script, load=Desked.load, seed=number)
        own = [step for step in script if isinstance(step, Hidden)]
        forgotten += sum(Forget("the unit") in (step.first, step.second) for step in own)
        again += sum(isinstance(step.first, Again) for step in own)
    assert forgotten > 4 * TIMES and again > 4 * TIMES


def test_a_desk_that_frees_the_ids_of_the_forgotten_is_found() -> None:
    mine = [Hidden(Ask([0.5, x], "the unit"), Ask([0.5, x], "the unit")) for x in (0.0, 1.0)]
    script = [Disk(True), *mine, Hidden(Forget("the unit"), None), Hidden(Again(1), Again(1))]
    replay(lambda rng: Desked(DESKED(rng)), script, load=Desked.load)
    with pytest.raises(AssertionError, match=r"took a round|drew"):
        replay(lambda rng: FreesIds(DESKED(rng)), script, load=FreesIds.load)

    def found(number: int) -> bool:
        try:
            replay(lambda rng: FreesIds(DESKED(rng)), desk_script(number), load=FreesIds.load, seed=number)
        except AssertionError:
            return True
        return False

    assert any(map(found, range(6))), "the random scripts find it too"


def quota_script(number: int) -> tuple[Script, int]:
    writer = DeskWriter(number, loads=True)
    writer.steps.append(Disk(True))
    writer.write(8, between=2, history=20)
    return writer.steps, writer.use_up()


def test_nor_from_who_has_used_up_a_quota() -> None:
    """Whether a round is left follows from how many were taken: not from labels, and not from who was forgotten."""
    for number in range(3 * TIMES):
        script, quota = quota_script(number)
        replay(lambda rng, most=quota: Desked(DESKED(rng), most), script, load=Desked.load, seed=number)  # type: ignore[misc]


@pytest.mark.parametrize("desk", [CountsOpen, GivesBack])
def test_a_quota_that_tells_of_labels_or_of_forgetting_is_found(desk: type[Desked]) -> None:
    def found(number: int) -> bool:
        script, quota = quota_script(number)
        try:
            replay(lambda rng: desk(DESKED(rng), quota), script, load=desk.load, seed=number)
        except AssertionError as error:
            return "took a round" in str(error) or "drew" in str(error)
        return False

    assert any(map(found, range(6)))


CUT = ["leaning, guided", "leaning, guided, three labels, people", "guide alone, few rounds, people",
       "guide alone, counting"]  # fmt: skip
"""Those with a guide that answer after a halt: it goes through a batch before the copies do."""


@pytest.mark.parametrize("name", CUT)
def test_nor_where_a_batch_is_cut_off_and_nobody_else_is_taught_twice(name: str) -> None:
    """By an interrupt, or by a crash and a load: its rounds are taken, and what it taught is never taught again."""
    for number in range(2 * TIMES):
        writer = writer_for(name, number, cuts=True, loads=number % 2 == 1)
        replay(MAKERS[name][0], writer.write(8, between=3, history=3), seed=number)


@pytest.mark.parametrize("name", sorted(GUIDED))
def test_nor_what_is_wrong_with_a_record_of_the_history(name: str) -> None:
    """Each takes its row, so that nobody else's is in another leaf."""
    for number in range(2 * TIMES):
        writer = writer_for(name, number)
        writer.taught(24)
        replay(MAKERS[name][0], writer.write(2, between=4, history=0), seed=number)


@pytest.mark.parametrize("name", sorted(NARROW))
def test_the_scripts_of_narrow_questions_can_be_read(name: str) -> None:
    """Else the test above would say little of them."""
    make, _ = MAKERS[name]
    xs = [step.x for step in writer_for(name, 1).write(40, between=2) if isinstance(step, Ask)]
    assert len(xs) > 10 and len(make(Random(seed=1)).readable(xs)) < len(xs) / 4


def outcomes(name: str, number: int = 4) -> list[Replayed]:
    scripts = [writer_for(name, i).write(HIDDEN, between=2) for i in range(number)]
    return [replay(MAKERS[name][0], script, seed=i) for i, script in enumerate(scripts)]


def test_the_scripts_come_to_sure_answers_and_to_halts() -> None:
    """Else the test above would compare fallbacks only, as it once did."""
    for name in ("fused, people", "fused, people, polled"):
        assert sum(one.sure for one in outcomes(name, 6)) > 30
    assert sum(one.halted for one in outcomes("soon halted, people")) >= 2


@pytest.mark.parametrize("name", ["leaning, guided, people", "leaning, guided, three labels, people"])
def test_the_scripts_come_to_leans_that_a_guide_leads(name: str) -> None:
    found = outcomes(name, 2)
    assert sum(one.leaned for one in found) > 40 and sum(one.led for one in found) > 20
    assert sum(one.sure for one in found) > 2 and all(one.apart for one in found)


@pytest.mark.parametrize("name", ["guided, people", "guide alone, people", "guide alone"])
def test_a_guide_releases_and_the_unit_moves_what_it_releases(name: str) -> None:
    """Opposite labels for one row, as often as the cap allows, then rounds of others: nearly all that is charged."""
    make, _ = MAKERS[name]
    people, dicts, labels = of_people(name), name == "guide alone", 2 if of_people(name) else 1
    x = {"a": 0.5, "b": 0.5, "c": "u"} if dicts else [0.5, 0.5]
    unit, asks = ("the unit" if people else None), 60
    others = [Ask(x, f"person {i}" if people else None) for i in range(asks)]
    secret = [Hidden(Ask(x, unit), Ask(x, unit)) for _ in range(labels)]
    said = [Hidden(Label(asks + 1 + i, "no"), Label(asks + 1 + i, "yes")) for i in range(labels)]
    outcome = replay(make, [*others, *secret, *said, *others])
    assert outcome.released > 20
    assert outcome.moved > 0.6
