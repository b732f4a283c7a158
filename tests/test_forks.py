"""What spends a budget refuses to go on in a forked child: two processes would spend it twice."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from confide.privacy.counters import SmoothCounter, TreeCounter
from confide.privacy.sparse import AboveThreshold, ChallengeAT

pytestmark = pytest.mark.claim("counters.md", "paper-plan.md")

MAKERS: dict[str, Callable[[], Callable[[int], object]]] = {
    "TreeCounter": lambda: TreeCounter(1.0, 100).step,
    "endless TreeCounter": lambda: TreeCounter(1.0, None).step,
    "SmoothCounter": lambda: SmoothCounter(1.0, 100).step,
    "AboveThreshold": lambda: AboveThreshold(epsilon=8.0, delta=1e-3, threshold=5, reports=2).query,
    "ChallengeAT": lambda: ChallengeAT(epsilon=8.0, delta=1e-3, threshold=5, reports=2, rounds=100).query,
}


def in_a_child(call: Callable[[int], object]) -> str:
    """What a forked child sees when it calls."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            call(0)
            said = "answered"
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        os.write(into, said.encode())
        os._exit(0)
    os.close(into)
    os.waitpid(child, 0)
    with os.fdopen(out) as file:
        return file.read()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork")
@pytest.mark.parametrize("name", MAKERS)
def test_a_forked_child_is_refused_and_the_parent_goes_on(name: str) -> None:
    call = MAKERS[name]()
    call(0)
    said = in_a_child(call)
    assert said.startswith("RuntimeError: this") and "forked" in said and "make it in the process" in said
    call(0)
