"""One unit's data replaced by anything: in two worlds with the same coins, nobody else sees a difference.

The net under everything: each case replaces one thing that the unit does, at any entry point, by anything, objects that
raise anything included; gates and halting draws are forced to the other world's. `replay` then compares errors, tickets,
rounds, draws, state and every other copy, which are equal, the votes, which differ by at most one, and the counts, by
at most G.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from confide.games.replay import replay
from tests.worlds import Writer, makers

pytestmark = pytest.mark.claim("people.md")

MAKERS = makers()
SCRIPTS = 26
HIDDEN = 30


@pytest.mark.parametrize("name", MAKERS)
def test_nobody_else_sees_what_one_unit_sends(name: str) -> None:
    make, dicts = MAKERS[name]
    people = "people" in name or name in ("refit", "river")

    @seed(1)
    @settings(max_examples=SCRIPTS, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 10**9))
    def check(number: int) -> None:
        script = Writer(number, dicts, people).write(HIDDEN, between=2)
        replay(make, script, seed=number)

    check()
