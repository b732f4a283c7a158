"""Killed at random moments, again and again: nothing that anybody was told is missing afterwards."""

import json
import os
import random
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from confide import POP, Halted, TicketError
from confide.pop.account import Account
from tests.saved import DOUBT, account, bank_of, copy_of, fork, make, share, small_plan

pytestmark = pytest.mark.claim("people.md")

KILLS = int(os.environ.get("CONFIDE_KILLS", "20"))
PLAN = small_plan(unsure=1000, rounds=20_000)


class Victim:
    """What a child does until it is killed, and what it has shown to the world before that."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rounds = 0
        self.unsure = 0
        self.units: dict[str, int] = {}
        self.forgotten: set[str] = set()
        self.used: list[str] = []
        self.halted = False

    def check(self, pop: POP) -> None:
        """Nothing that was shown is forgotten."""
        assert pop.rounds >= self.rounds, f"{self.rounds} rounds were shown, {pop.rounds} are known"
        assert pop.operator.unsure >= self.unsure, f"{self.unsure} unsure answers were shown, fewer are known"
        assert all(share(pop, unit) >= count for unit, count in self.units.items()), "a cap was lowered"
        bank = bank_of(pop)
        known = {copy for copy, mean in zip(bank["taught"], bank["array mean"], strict=True) if mean[0]}
        assert not known & {copy_of(pop, unit) for unit in self.forgotten}, "a forgotten copy came back"
        assert pop.state == "halted" or not self.halted, "a halt was forgotten"
        for ticket in self.used[-12:]:
            try:
                pop.learn(ticket, "no")
            except TicketError:
                continue
            raise AssertionError("a used ticket was taken again")

    def live(self, seed: int, tell: Callable[..., None]) -> None:
        """Load, or start, and go on until the end."""
        coins, waiting = random.Random(seed), list[str]()
        if (self.folder / "snapshot.npz").exists():
            pop = POP.load(self.folder)
            self.check(pop)
        else:
            pop = make(plan=PLAN)
            for i in range(40):
                pop.teach([1.0, i], "yes", unit=f"teacher {i}")  # nobody else's x begins with anything but 0
            pop.save(self.folder)
        tell(loaded=True)
        for number in range(10**9):
            unit = f"person {coins.randrange(200)}"
            try:
                answer = pop.predict([0.0, -1.0], unit=unit)
            except Halted:
                tell(halted=True)
                return
            tell(rounds=pop.rounds, unsure=account(pop).unsure, unit=unit, count=share(pop, unit))
            waiting.append(answer.ticket)
            if number % 5 == 4:
                pop.save(self.folder)
                pop.learn(waiting[-3], "no")  # the snapshot has it open
                tell(used=waiting[-3])
                unit = f"teacher {coins.randrange(40)}"
                pop.forget(unit)
                tell(forgotten=unit)

    def shown(self, line: dict[str, Any]) -> None:
        self.rounds = max(self.rounds, line.get("rounds", 0))
        self.unsure = max(self.unsure, line.get("unsure", 0))
        if "unit" in line:
            self.units[line["unit"]] = max(self.units.get(line["unit"], 0), line["count"])
        if "forgotten" in line:
            self.forgotten.add(line["forgotten"])
        if "used" in line:
            self.used.append(line["used"])
        self.halted |= line.get("halted", False)


def run_and_kill(victim: Victim, seed: int, after: float, until: str = "") -> list[dict[str, Any]]:
    """Everything that a child told before it was killed, so many seconds after it began or, by turns, had loaded.

    Or right after it had told what is named `until`.
    """
    reading, writing = os.pipe()
    child = fork()
    if child == 0:

        def tell(**line: Any) -> None:
            os.write(writing, json.dumps(line).encode() + b"\n")
            if until in line:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            victim.live(seed, tell)
        except BaseException as error:
            tell(error=f"{type(error).__name__}: {error}")
        os._exit(0)
    os.close(writing)
    more = os.read(reading, 1 << 16) if seed % 2 else b" "
    deadline, told = time.monotonic() + after, more.lstrip()
    while more and (left := deadline - time.monotonic()) > 0:
        if select.select([reading], [], [], left)[0]:
            more = os.read(reading, 1 << 16)
            told += more
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as file:
        told += file.read()
    return [json.loads(line) for line in told.splitlines()]


def kill_many(folder: Path, kills: int, until: str = "") -> tuple[int, int]:
    """Kill so many children, each after a random while; how many loads and answers there were between them.

    Each child checks what those before it had shown, and goes on until it is killed itself.
    """
    with make(plan=PLAN) as pop:  # everything is imported and compiled before the first fork
        pop.teach(DOUBT, "no", unit="ann")
        pop.save(folder / "warm")
    with POP.load(folder / "warm") as pop:
        pop.learn(pop.predict(DOUBT, unit="ann").ticket, "no")
        pop.predict(DOUBT, unit="ann")
    moments = random.Random(1)
    lives, loads, answers, victim = 0, 0, 0, Victim(folder / "life 0")
    for kill in range(kills):
        told = run_and_kill(victim, kill, after=60.0 if until else moments.uniform(0, 0.3), until=until)
        for line in told:
            assert "error" not in line, f"kill {kill}: {line['error']}"
            victim.shown(line)
        loads += any("loaded" in line for line in told)
        answers += sum("unsure" in line for line in told)
        begun = victim.folder.exists() and not (victim.folder / "snapshot.npz").exists()
        assert not begun or not victim.rounds, "answers were given before there was a state"
        if victim.halted or begun:
            lives += 1
            victim = Victim(folder / f"life {lives}")
    return loads, answers


def test_killed_at_random_moments(tmp_path: Path) -> None:
    """Killed while loading, answering, learning, forgetting and saving: the state loads, with nothing forgotten."""
    loads, answers = kill_many(tmp_path, KILLS)
    assert loads > KILLS / 4 and answers > KILLS, "the children were killed before they had done anything"


def lag(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers leave before what they cost is written, which the next save does."""
    monkeypatch.setattr(Account, "settle", lambda self, mark, **how: setattr(self, "_shown", mark[1:]))


def lose_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries lack the tickets that were used."""
    enter = Account.enter

    def lossy(self: Account, *whos: bytes | None, **more: Any) -> Any:
        self.used.clear()
        return enter(self, *whos, **more)

    monkeypatch.setattr(Account, "enter", lossy)


def lose_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries lack who was forgotten."""
    enter = Account.enter
    monkeypatch.setattr(Account, "enter", lambda self, *whos, **more: enter(self, *whos, **{**more, "forgot": ()}))


@pytest.mark.parametrize(
    ("broken", "until", "said"),
    [
        (lag, "unit", "are known|was lowered|taken again|came back"),
        (lose_used, "used", "taken again"),
        (lose_forgotten, "forgotten", "came back"),
    ],
    ids=["lags", "lacks used tickets", "lacks the forgotten"],
)
def test_a_ledger_that_is_behind_is_noticed(
    broken: Callable[[pytest.MonkeyPatch], None], until: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail: a child that dies once it has told what was not written is found out by the next."""
    broken(monkeypatch)
    with pytest.raises(AssertionError, match=said):
        kill_many(tmp_path, 4, until)
