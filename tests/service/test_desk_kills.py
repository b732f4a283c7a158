"""Desks that are killed at random moments: what anybody was told is true afterwards."""

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from confide.service.base import Question, Taught
from confide.service.desk import PopDesk
from tests.saved import fork, make, small_plan
from tests.service.opened import folder

pytestmark = pytest.mark.claim("people.md")
__all__ = ["folder"]

KILLS = int(os.environ.get("CONFIDE_DESK_KILLS", "8"))


def _make() -> Any:
    return make(plan=small_plan(unsure=4000, rounds=50_000), ticket_life=5000)


def _live(folder: Path, seed: int, pipe: int) -> None:
    """Ask and bring labels until killed; tell what was answered and acknowledged, each when it is."""
    desk, coins, waiting = PopDesk.open(folder, _make, save_every=97), random.Random(seed), list[Any]()
    for number in range(10**9):
        batch = [Question(f"person {coins.randrange(50)}", f"{seed} {number} {i}", [0.0, i * 1.0]) for i in range(4)]
        for one, said in zip(batch, desk.ask(batch), strict=True):
            assert said.answer is not None
            told = [one.subject, one.id, one.x, said.answer.ticket, said.answer.label, said.round]
            os.write(pipe, json.dumps({"answered": told}).encode() + b"\n")
            waiting.append(told)
        coins.shuffle(waiting)
        labels = [coins.choice(["no", "yes"]) for _ in waiting[:3]]
        desk.learn([Taught(one[0], one[3], y) for one, y in zip(waiting[:3], labels, strict=True)])
        for one, y in zip(waiting[:3], labels, strict=True):
            os.write(pipe, json.dumps({"learned": [one[0], one[3], y]}).encode() + b"\n")
        del waiting[:3]


def _kill(folder: Path, seed: int, after: float) -> list[dict[str, Any]]:
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        try:
            _live(folder, seed, writing)
        except BaseException as error:
            os.write(writing, json.dumps({"error": repr(error)}).encode() + b"\n")
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        told = file.readline()  # it has begun
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        told += file.read()
    return [json.loads(line) for line in told.splitlines()]


def test_killed_at_random_moments_nothing_that_was_told_is_untrue(folder: Path) -> None:
    PopDesk.open(folder, _make).close()  # everything is compiled before the first fork
    moments, answered, learned = random.Random(3), list[Any](), dict[tuple[str, str], str]()
    for kill in range(KILLS):
        for line in _kill(folder, kill, moments.uniform(0, 0.12)):
            assert "error" not in line, line
            if "answered" in line:
                answered.append(line["answered"])
            else:
                who, ticket, label = line["learned"]
                learned[who, ticket] = label
        with PopDesk.open(folder, _make) as desk:
            said = desk.ask([Question(who, name, x) for who, name, x, *_ in answered])
            for (_, _, _, ticket, label, number), one in zip(answered, said, strict=True):
                assert one.again and one.answer is not None
                assert (one.answer.ticket, one.answer.label, one.round) == (ticket, label, number)
            assert len({number for *_, number in answered}) == len(answered), "no round was taken twice"
            other = {"no": "yes", "yes": "no"}
            same = desk.learn([Taught(*key, label) for key, label in learned.items()])
            refused = desk.learn([Taught(*key, other[label]) for key, label in learned.items()])
            assert not any(same) and all(one is not None and one.kind == "ticket" for one in refused)
            assert desk.pop.operator.taught >= len(learned)
    assert len(answered) > 4 * KILLS and len(learned) > KILLS
