"""One unit's data replaced by anything: in two worlds with the same coins, nobody else sees a difference.

The net under everything: each case replaces one thing that the unit does, at any entry point, by anything, objects that
raise anything included; gates and halting draws are forced to the other world's. `replay` then compares errors,
tickets, rounds, draws, state and every other copy, which are equal, the votes, which differ by at most one, the counts,
by at most G, and what a guide released, which differs by the unit's own gradients, to the last integer.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from confide.games.replay import Ask, Hidden, Label, replay
from confide.privacy.random import Random
from tests.worlds import Writer, makers

pytestmark = pytest.mark.claim("people.md")

MAKERS = makers()
SCRIPTS, MANY = 26, 80
"""Scripts a mechanism; more where one script holds many cases and is quick."""
HIDDEN = 30
NARROW = {"points", "stacked, plain"}
"""Those whose x is one number."""
SLOW = {"refit", "river", "river, pipeline", "scikit-learn"}
GUIDED = {name for name in MAKERS if "guide" in name}


def of_people(name: str) -> bool:
    return "people" in name or name in ("refit", "river")


def scripts(name: str) -> int:
    if name in GUIDED:
        return 4
    if name in SLOW:
        return 12
    return MANY if of_people(name) else SCRIPTS


def test_there_are_ten_thousand_cases() -> None:
    """A script of people hides one thing of the unit after the other, a script of rounds one round and its label."""
    hidden = [Writer(1, False, of_people(name)) for name in MAKERS]
    for writer in hidden:
        writer.write(HIDDEN, between=2, history=3)
    assert sum(scripts(name) * writer.cases for name, writer in zip(MAKERS, hidden, strict=True)) >= 10_000


@pytest.mark.parametrize("name", MAKERS)
def test_nobody_else_sees_what_one_unit_sends(name: str) -> None:
    make, dicts = MAKERS[name]
    people = of_people(name)

    @seed(1)
    @settings(max_examples=scripts(name), deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 10**9))
    def check(number: int) -> None:
        writer = Writer(number, dicts, people, width=1 if name in NARROW else 2)
        script = writer.write(HIDDEN, between=2, history=60 if name in SLOW else None)
        replay(make, script, seed=number)

    check()


LOADED = ["fused, people", "few rounds", "fused, people, polled", *sorted(GUIDED - {"guided, soon halted, people"})]


@pytest.mark.parametrize("name", LOADED)
def test_nor_after_loads_and_while_the_disk_is_away(name: str) -> None:
    """Saved, or crashed and loaded from an older snapshot; labels come while nothing can be written."""
    make, dicts = MAKERS[name]
    for number in range(2 if name in GUIDED else 8):
        replay(make, Writer(number, dicts, "people" in name, loads=True).write(12, between=2), seed=number)


@pytest.mark.parametrize("name", sorted(NARROW))
def test_the_scripts_of_narrow_questions_can_be_read(name: str) -> None:
    """Else the test above would say little of them."""
    make, _ = MAKERS[name]
    xs = [step.x for step in Writer(1, False, False, width=1).write(40, between=2) if isinstance(step, Ask)]
    assert len(xs) > 10 and len(make(Random(seed=1)).readable(xs)) < len(xs) / 4


def test_the_scripts_come_to_sure_answers_and_to_halts() -> None:
    """Else the test above would compare fallbacks only, as it once did."""
    outcomes = {}
    for name in ("fused, people", "fused, people, polled", "soon halted, people"):
        make, dicts = MAKERS[name]
        scripts = [Writer(number, dicts, people=True).write(HIDDEN, between=2) for number in range(6)]
        outcomes[name] = [replay(make, script, seed=i) for i, script in enumerate(scripts)]
    assert all(sum(one.sure for one in outcomes[name]) > 30 for name in list(outcomes)[:2])
    assert sum(one.halted for one in outcomes["soon halted, people"]) >= 3


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
