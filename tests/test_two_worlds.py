"""One unit's data replaced by anything: in two worlds with the same coins, nobody else sees a difference.

The net under everything: each case replaces one thing that the unit does, at any entry point, by anything, objects that
raise anything included; gates and halting draws are forced to the other world's. `replay` then compares errors,
tickets, rounds, draws, state and every other copy, which are equal, the votes, which differ by at most one, and the
counts, by at most G.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from confide.games.replay import Ask, replay
from confide.privacy.random import Random
from tests.worlds import Writer, makers

pytestmark = pytest.mark.claim("people.md")

MAKERS = makers()
SCRIPTS, MANY = 26, 76
"""Scripts a mechanism; more where one script holds many cases and is quick."""
HIDDEN = 30
NARROW = {"points", "stacked, plain"}
"""Those whose x is one number."""
SLOW = {"refit", "river", "river, pipeline", "scikit-learn"}


def of_people(name: str) -> bool:
    return "people" in name or name in ("refit", "river")


def scripts(name: str) -> int:
    return MANY if of_people(name) and name not in SLOW else SCRIPTS


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


@pytest.mark.parametrize("name", ["fused, people", "few rounds", "fused, people, polled"])
def test_nor_after_loads_and_while_the_disk_is_away(name: str) -> None:
    """Saved, or crashed and loaded from an older snapshot; labels come while nothing can be written."""
    make, dicts = MAKERS[name]
    for number in range(8):
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
