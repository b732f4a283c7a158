"""A desk through random lives: whatever is asked, brought, forgotten, saved and killed, in whatever order."""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.service.base import Question, Reply, Taught
from confide.service.desk import PopDesk
from tests.saved import bank_of, make, share, small_plan
from tests.service.opened import again, folder, guided, kind

pytestmark = pytest.mark.claim("people.md")
__all__ = ["folder"]

LIFE = 30
LABELS = ("no", "yes")


@dataclass
class Request:
    who: str
    name: str
    x: Any
    said: Reply
    label: str | None = None
    forgotten: bool = False


@dataclass
class World:
    """What must be true of a desk, in the plainest form."""

    desk: PopDesk
    coins: random.Random
    rounds: int = 0
    requests: dict[tuple[str, str], Request] = field(default_factory=dict)
    unsure: dict[str, int] = field(default_factory=dict)
    imports: dict[str, tuple[list[Any], int, bool]] = field(default_factory=dict)
    """Records, the rounds before them, and whether nobody of them was forgotten."""
    kills: int = 0
    retries: int = 0
    imported: int = 0
    repeated: int = 0
    """Requests of somebody who was forgotten that were sent again."""

    def alive(self, request: Request) -> bool:
        return request.said.round > self.rounds - LIFE and not request.forgotten

    def x(self) -> Any:
        coins = self.coins
        return [coins.choice([-1.0, 0.0, 2.5]), coins.random()] if coins.random() < 0.9 else [1.0]

    def who(self) -> str:
        return f"person {self.coins.randrange(12)}"

    # ------------------------------------------------------------------ what may happen

    def ask(self) -> None:
        batch = [
            Question(self.who(), f"request {self.coins.randrange(400)}", self.x())
            for _ in range(self.coins.choice([1, 1, 2, 7]))
        ]
        if self.coins.random() < 0.5 and self.requests:
            old = self.coins.choice(list(self.requests.values())[-20:])
            batch.append(Question(old.who, old.name, old.x))
        start = self.rounds
        known = {name: one for name, one in self.requests.items() if one.said.round > start - LIFE}
        for question, said in zip(batch, self.desk.ask(batch), strict=True):
            before = known.get((question.subject, question.id))
            if before is None:
                self.rounds += 1
                assert said.round == self.rounds and not said.again and kind(said.refusal) in (None, "malformed")
                request = Request(question.subject, question.id, question.x, said)
                known[question.subject, question.id] = self.requests[question.subject, question.id] = request
            elif before.forgotten:
                self.repeated += 1
                assert kind(said.refusal) == "conflict"
            elif before.x == question.x:
                self.retries += 1
                assert said.again and (said.answer, said.round) == (before.said.answer, before.said.round)
                assert said.refusal == before.said.refusal
            else:
                assert kind(said.refusal) == "conflict"

    def learn(self) -> None:
        answered = [one for one in self.requests.values() if one.said.answer is not None]
        batch = self.coins.sample(answered, min(len(answered), self.coins.choice([1, 2, 5])))
        labels = [self.coins.choice(LABELS) for _ in batch]
        bringers = [one.who if self.coins.random() < 0.9 else self.who() for one in batch]
        tickets = [one.said.answer.ticket for one in batch if one.said.answer is not None]
        said = self.desk.learn([Taught(*one) for one in zip(bringers, tickets, labels, strict=True)])
        for one, label, who, refusal in zip(batch, labels, bringers, said, strict=True):
            good = who == one.who and self.alive(one) and one.label in (None, label)
            assert kind(refusal) == (None if good else "ticket")
            if good:
                one.label = label

    def teach(self) -> None:
        """A new import, or one that was sent before: which is known for as long as a request would be."""
        if self.imports and self.coins.random() < 0.5:
            name = self.coins.choice(list(self.imports)[-6:])
            rows, before, whole = self.imports[name]
            if before > self.rounds - LIFE:
                knew = bank_of(self.desk.pop)
                assert {kind(one) for one in self.desk.teach(rows, name)} == {None if whole else "conflict"}
                assert bank_of(self.desk.pop) == knew
                self.imported += 1
                return
        else:
            name = f"import {len(self.imports)}"
            rows = [(self.who(), [self.coins.random(), 1.0], self.coins.choice(LABELS)) for _ in range(3)]
        assert self.desk.teach(rows, name) == [None] * 3
        self.imports[name] = rows, self.rounds, True

    def forget(self) -> None:
        who = self.who()
        self.desk.forget(who)
        for one in self.requests.values():
            one.forgotten = one.forgotten or one.who == who
        for name, (rows, before, whole) in self.imports.items():
            self.imports[name] = rows, before, whole and who not in [row[0] for row in rows]

    def save(self) -> None:
        self.desk.save()

    def kill(self) -> None:
        knew, taught = bank_of(self.desk.pop), self.desk.private()["open_tickets"]
        self.desk = again(self.desk, save_every=None)
        self.kills += 1
        assert bank_of(self.desk.pop) == knew and self.desk.private()["open_tickets"] == taught

    def restart(self) -> None:
        self.desk.close()
        self.desk = PopDesk.open(self.desk.folder, make, save_every=None)

    def check(self) -> None:
        assert self.desk.pop.rounds == self.rounds
        waiting = [one for one in self.requests.values() if self.alive(one) and one.said.answer and not one.label]
        assert self.desk.private()["open_tickets"] == len(waiting)
        for i in range(12):
            now = share(self.desk.pop, f"person {i}")
            assert now >= self.unsure.get(f"person {i}", 0), "a share was lowered"
            self.unsure[f"person {i}"] = now


DEEDS = {"ask": 10, "learn": 8, "teach": 4, "forget": 1, "save": 1, "kill": 2, "restart": 0.5}


@pytest.mark.parametrize("seed", range(4))
def test_random_lives(seed: int, folder: Path) -> None:
    """Every request is one round; every answer stays the same; every acknowledged label was learned, once."""
    desk = PopDesk.open(
        folder, lambda: make(plan=small_plan(unsure=3000, rounds=20_000), ticket_life=LIFE), save_every=None
    )
    world = World(desk, random.Random(seed))
    for deed in world.coins.choices(list(DEEDS), weights=list(DEEDS.values()), k=120):
        getattr(world, deed)()
        world.check()
    assert world.kills > 3 and world.retries > 3 and world.rounds > 60 and world.imported > 1
    world.desk.close()


@pytest.mark.parametrize("units", ["rounds", "people"])
def test_random_lives_of_a_guide(units: str, folder: Path) -> None:
    """Every gradient that was learned is in one sum, once: against a guide that nothing interrupts.

    Noise is new in every life, so θ is not the same; at θ = 0, before the first release, gradients are.
    """
    coins = random.Random(7)
    desk = PopDesk.open(folder, lambda: guided(units, epsilon=2.0), save_every=None)
    twin = PopDesk.open(folder.with_name("twin"), lambda: guided(units, epsilon=2.0), save_every=None)
    plan = desk.pop.plan.guide
    assert plan is not None and plan.range_rounds == 0
    waiting: list[tuple[str, str, str]] = []
    for i in range(plan.first):
        who, x = f"person {i % 9}", [coins.random(), coins.random()]
        mine, other = (one.ask([Question(who, str(i), x)])[0].answer for one in (desk, twin))
        assert mine is not None and other is not None
        waiting.append((who, mine.ticket, other.ticket))
        while waiting and coins.random() < 0.6:
            who, first, second = waiting.pop(coins.randrange(len(waiting)))
            label = coins.choice(LABELS)
            assert desk.learn([Taught(who, first, label)]) == twin.learn([Taught(who, second, label)]) == [None]
        if coins.random() < 0.3:
            desk.save()
        if coins.random() < 0.3:
            desk = again(desk, save_every=None)
    leaves = [_open(one) for one in (desk, twin)]
    assert leaves[0].any() and (leaves[0] == leaves[1]).all()
    for one in (desk, twin):
        one.ask([Question("last", "last", [0.5, 0.5])])  # the leaf is released
    sums = [one.pop.operator.loop.guiding.guide._leaves.sums[0] for one in (desk, twin)]  # type: ignore[union-attr]
    assert (sums[0] == leaves[0]).all() and (sums[1] == leaves[0]).all()
    desk = again(desk)
    assert not _open(desk).any(), "what was released is not learned again"


def _open(desk: PopDesk) -> Any:
    guiding = desk.pop.operator.loop.guiding
    assert guiding is not None
    return np.array(guiding.guide._leaves.open)


# ---------------------------------------------------------------------- two worlds


def _others(desk: PopDesk, mine: int) -> dict[int, list[Any]]:
    """What every copy but one knows, bit for bit."""
    bank = bank_of(desk.pop)
    arrays = [value for name, value in bank.items() if name.startswith("array ")]
    return {copy: [rows[i] for rows in arrays] for i, copy in enumerate(bank["taught"]) if copy != mine}


def test_in_two_worlds_all_copies_but_one_come_back_the_same(folder: Path) -> None:
    """One person says other things, brings other labels or none, is forgotten; the process is killed meanwhile."""
    worlds = [
        PopDesk.open(
            folder.with_name(f"world {bit}"),
            lambda: make(plan=small_plan(unsure=3000), seed=5, ticket_life=60),
            save_every=None,
        )
        for bit in range(2)
    ]
    routing = worlds[0].pop.operator.loop.routing
    mine = routing.copy_for(routing.who("hidden"))
    public, differed = random.Random(11), 0
    for step in range(60):
        who, x, y = f"person {public.randrange(30)}", [public.random(), -1.0], public.choice(LABELS)
        deed = public.choice(["visible", "visible", "hidden", "kill", "save", "forget"])
        for bit, desk in enumerate(worlds):
            own = random.Random(step * 2 + bit)
            if deed == "visible":
                answer = desk.ask([Question(who, str(step), x)])[0].answer
                assert answer is not None and desk.learn([Taught(who, answer.ticket, y)]) == [None]
            elif deed == "hidden":
                mess = [own.random(), own.random()] if own.random() < 0.8 else [1.0]
                said = desk.ask([Question("hidden", str(step), mess)])[0]
                desk.ask([Question("hidden", str(step), [own.random(), 0.0])])  # a conflict, or a retry
                if said.answer is not None and own.random() < 0.7:
                    desk.learn([Taught("hidden", said.answer.ticket, own.choice(LABELS))])
                if own.random() < 0.2:
                    desk.forget("hidden")
            elif deed == "forget":
                desk.forget(who)
            elif deed == "save":
                desk.save()
            else:
                worlds[bit] = again(desk, save_every=None)
        assert worlds[0].pop.rounds == worlds[1].pop.rounds
        assert _others(worlds[0], mine) == _others(worlds[1], mine)
        differed += bank_of(worlds[0].pop) != bank_of(worlds[1].pop)
    assert differed > 5 and len(_others(worlds[0], mine)) > 5
