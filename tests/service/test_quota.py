"""One asker cannot end the learning for all: rounds a person and a day, and tickets that a flood does not end."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from confide.ledger import Ledger
from confide.service.base import Question, Reply
from confide.service.config import read_config
from confide.service.desk import PopDesk
from confide.service.models import open_desk as served
from confide.service.quota import DAY, Clock, Quota, usual
from tests.saved import make, small_plan
from tests.service.desks import service, token, until
from tests.service.opened import ask, folder, killed, kind, learn, ticket
from tests.service.test_http import at, go
from tests.service.test_serve import SMALL, written

pytestmark = pytest.mark.claim("people.md")
__all__ = ["folder"]

X = [1.0, 2.0]


class Wall:
    """The machine's clock."""

    def __init__(self) -> None:
        self.minutes = 30_000_000.0

    def __call__(self) -> float:
        return 60 * self.minutes


@pytest.fixture
def wall() -> Wall:
    return Wall()


def opened(folder: Path, wall: Wall, quota: int | None = 5, **more: Any) -> PopDesk:
    def made() -> Any:
        return make(plan=small_plan(unsure=400, rounds=2000), ticket_life=10)

    return PopDesk.open(folder, made, wall=wall, save_every=None, **more).limited(quota)


def again(desk: PopDesk, wall: Wall, **more: Any) -> PopDesk:
    return opened(killed(desk), wall, **more)


def many(desk: PopDesk, who: str, names: list[str]) -> list[Reply]:
    return desk.ask([Question(who, name, X) for name in names])


def kinds(asked: list[Reply]) -> list[str | None]:
    return [kind(one.refusal) for one in asked]


def test_nobody_takes_more_rounds_than_these_in_a_day(folder: Path, wall: Wall) -> None:
    desk = opened(folder, wall)
    assert kinds(many(desk, "ann", ["1", "2", "3", "4", "5", "6", "7"])) == [None] * 5 + ["quota"] * 2
    assert desk.pop.rounds == 5, "no round was taken"
    assert kinds(many(desk, "ann", ["1", "5", "6"])) == [None, None, "quota"], "what was stored is still told"
    assert kinds([ask(desk, "bob", "1", X)]) == [None], "others are not held up"
    refused = ask(desk, "ann", "6", X).refusal
    assert refused is not None and refused.after == 60 * DAY
    wall.minutes += DAY - 1
    assert kind(ask(desk, "ann", "6", "whatever it is").refusal) == "quota"
    wall.minutes += 1
    assert kinds(many(desk, "ann", ["6", "7"])) == [None, None] and desk.pop.rounds == 8
    desk.close()


def test_what_cannot_be_read_counts_as_it_takes_its_round(folder: Path, wall: Wall) -> None:
    desk = opened(folder, wall)
    for i in range(5):
        assert kind(ask(desk, "ann", str(i), "words").refusal) == "malformed"
    assert kind(ask(desk, "ann", "more", X).refusal) == "quota" and desk.pop.rounds == 5
    desk.close()


def test_it_does_not_depend_on_labels_nor_on_being_forgotten(folder: Path, wall: Wall) -> None:
    """Else the number of rounds, which is public, would tell who brought labels, and who was forgotten."""
    for number, private in enumerate(("nothing", "labels", "forgotten", "forgotten, killed")):
        desk = opened(folder / str(number), wall)
        told = [ask(desk, "ann", str(i), X) for i in range(4)]
        if private == "labels":
            assert not any(learn(desk, "ann", ticket(one), "yes") for one in told)
        if "forgotten" in private:
            desk.forget("ann")
        if "killed" in private:
            desk = again(desk, wall)
        assert kinds(many(desk, "ann", ["a", "b", "c"])) == [None, "quota", "quota"], private
        assert desk.pop.rounds == 5
        desk.close()


@pytest.mark.parametrize("saved", [False, True])
def test_a_restart_does_not_give_the_day_back(folder: Path, wall: Wall, saved: bool) -> None:
    desk = opened(folder, wall)
    many(desk, "ann", ["1", "2", "3"])
    wall.minutes += 600
    many(desk, "ann", ["4", "5"])
    for i in range(30):  # a ticket's life goes by: the journal must not lose the day with it
        ask(desk, f"other {i}", "1", X)
    if saved:
        desk.save()
    ask(desk, "other", "1", X)
    desk = again(desk, wall)
    assert kinds(many(desk, "ann", ["6"])) == ["quota"]
    wall.minutes += DAY - 600
    assert kinds(many(desk, "ann", ["6", "7", "8", "9"])) == [None] * 3 + ["quota"], "those from before are a day old"
    desk.close()


def test_a_clock_that_jumps_shuts_nobody_out_for_long(folder: Path, wall: Wall) -> None:
    desk = opened(folder, wall)
    for jump in (400 * DAY, -400 * DAY, -DAY, 3 * DAY):
        wall.minutes += jump
        ask(desk, "bob", f"tick {jump}", X)
        for _ in range(2):
            desk = again(desk, wall)
            wall.minutes += DAY
            name = f"{jump} {wall.minutes} "
            assert kinds(many(desk, "ann", [name + str(i) for i in range(6)])) == [None] * 5 + ["quota"]
    desk.close()


def test_a_flood_does_not_end_others_tickets(folder: Path, wall: Wall) -> None:
    desk = opened(folder, wall, quota=1000, ticket_hours=24)
    mine = ask(desk, "ann", "1", X)
    many(desk, "eve", [str(i) for i in range(40)])
    for _ in range(2):
        assert ask(desk, "ann", "1", X).again and desk.pop.rounds == 41, (
            "four times a ticket's rounds later it is known"
        )
        desk = again(desk, wall, quota=1000, ticket_hours=24)
    assert learn(desk, "ann", ticket(mine), "yes") is None
    late = ask(desk, "ann", "2", X)
    wall.minutes += DAY
    many(desk, "eve", [f"more {i}" for i in range(9)])
    assert ask(desk, "ann", "2", X).again, "a day later, and nine rounds"
    ask(desk, "eve", "last", X)
    assert kind(learn(desk, "ann", ticket(late), "yes")) == "ticket", "and after both it is over"
    desk.close()


def test_the_journal_ends_what_is_over(folder: Path, wall: Wall) -> None:
    desk = opened(folder, wall, quota=1000, ticket_hours=2)
    for i in range(30):
        wall.minutes += DAY
        ask(desk, "ann", str(i), X)
        desk.save()
    assert len([kind for kind, *_ in _journal(desk)]) <= 13 and len(desk._requests._by_name) <= 10
    assert len(desk._requests._rounds) <= 10 and not len(desk.pop.operator.loop.tickets), "one store has them"
    desk.close()


def _journal(desk: PopDesk) -> list[Any]:
    return Ledger(desk.folder / "ledger.db").journal("pop")


def test_a_clock_counts_what_passed_and_a_quota_a_day() -> None:
    clock, quota = Clock(), Quota(3)
    for minute, shows in ((1000, 0), (1010, 10), (900, 10), (910, 20), (10**6, 20 + DAY)):
        assert clock.at(minute) == shows
        clock.tick(minute)
        assert clock.now == shows
    for minute in (0, 0, 5):
        quota.took(b"ann", minute)
    assert quota.left(b"ann", 6) == 0 and quota.wait(b"ann", 6) == DAY - 6 and quota.left(b"bob", 6) == 3
    assert quota.left(b"ann", DAY) == 2 and quota.left(b"ann", DAY + 5) == 3
    for minute in range(0, 20 * DAY, 7):
        quota.took(b"%d" % minute, minute)
    assert len(quota._people) <= 2 * DAY / 7 + 2, "who asks no more is kept nowhere"


# ---------------------------------------------------------------------- the service


def test_a_service_is_protected_without_a_word_in_its_file(tmp_path: Path) -> None:
    desk = served("spam", read_config(written(tmp_path)).models["spam"])
    shown = desk.public()
    assert (shown["quota"], shown["ticket_hours"]) == (usual(400), 24) == (100, 24)
    told = desk.ask([Question("eve", str(i), X) for i in range(400)])
    assert sum(one.answer is not None for one in told) == 100 and desk.public()["rounds"] == 100
    assert desk.ask([Question("ann", "1", X)])[0].answer is not None, "others go on"
    desk.close()
    changed = read_config(written(tmp_path, SMALL + "quota = 250\nticket_hours = 48\n"))
    desk = served("spam", changed.models["spam"])
    assert (desk.public()["quota"], desk.public()["ticket_hours"]) == (250, 48), (
        "both may be changed: they promise nothing"
    )
    told = desk.ask([Question("eve", f"more {i}", X) for i in range(400)])
    assert sum(one.answer is not None for one in told) == 150
    desk.close()


def test_over_http_it_is_429_and_says_when(folder: Path, wall: Wall) -> None:
    desk: Any = opened(folder, wall)
    desk.again = lambda: desk

    async def main() -> None:
        made = service(desk)
        async with at(made) as client:
            name = f"/models/{desk.name}"
            questions = {"questions": [{"x": X, "id": str(i)} for i in range(7)]}
            told = await client.post(f"{name}/ask-many", json=questions, headers=token("eve"))
            assert told.status_code == 200
            assert [one.get("error", {}).get("kind") for one in told.json()["answers"]] == [None] * 5 + ["quota"] * 2
            for body, operation in (({"x": X, "id": "9"}, "ask"), ({"questions": [{"x": X}] * 3}, "ask-many")):
                told = await client.post(f"{name}/{operation}", json=body, headers=token("eve"))
                assert told.status_code == 429 and told.json()["error"]["kind"] == "quota"
                assert told.headers["retry-after"] == str(60 * DAY)
            assert desk.pop.rounds == 5
            assert (await client.post(f"{name}/ask", json={"x": X}, headers=token("ann"))).status_code == 200
        made.models[desk.name].owner.close()

    go(main())


def test_refused_questions_take_no_place_that_others_wait_for(folder: Path, wall: Wall) -> None:
    desk: Any = opened(folder, wall)
    desk.again, real, gate = (lambda: desk), desk.ask, threading.Event()

    def slow(questions: Any) -> Any:
        assert gate.wait(20)
        return real(questions)

    async def main() -> None:
        made = service(desk, requests=3)
        owner = made.models[desk.name].owner
        told = await owner.ask([Question("eve", str(i), X) for i in range(6)])
        assert kinds(told) == [None] * 5 + ["quota"]
        assert kinds(await owner.ask([Question("eve", "6", X)])) == ["quota"], "the desk says so first"
        desk.ask = slow
        waiting = [asyncio.create_task(owner.ask([Question("ann", "1", X)]))]
        async with asyncio.timeout(60):
            for i in range(50):
                assert kinds(await owner.ask([Question("eve", f"more {i}", X)] * 3)) == ["quota"] * 3
        assert owner.waiting["ask"] <= 1 and not owner.full(("ask", ""))
        mixed = [Question("eve", name, X) for name in ("a", "2", "b")]
        waiting += [asyncio.create_task(owner.ask(one)) for one in ([Question("bob", "1", X)], mixed)]
        await until(lambda: owner.waiting["ask"] >= 3)
        assert owner.waiting["ask"] == 3, "of a batch only what the desk has to look up"
        gate.set()
        ann, bob, eve = [await one for one in waiting]
        assert kinds(ann + bob + eve) == [None, None, "quota", None, "quota"] and eve[1].again
        assert desk.pop.rounds == 7
        wall.minutes += DAY
        assert kinds(await owner.ask([Question("eve", "c", X)])) == [None], "a day later"
        owner.close()

    go(main())


def test_a_refusal_is_kept_only_where_the_rounds_were_taken(folder: Path, wall: Wall) -> None:
    """Who asked more than a day's rounds of a model that takes none has taken none."""
    desk = opened(folder, wall)
    questions = [Question("eve", str(i), X) for i in range(6)]
    assert desk.refused(questions) == {}
    desk.ask(questions)
    assert desk.refused(questions) == {}, "nobody was refused at once, with nothing before it"
    desk.ask(questions)
    assert list(desk.refused(questions)) == [5] and desk.refused([Question("ann", "1", X)]) == {}
    assert kinds(list(desk.refused(questions).values())) == ["quota"]
    desk.limited(7)
    assert desk.refused(questions) == {} and kinds(desk.ask(questions)) == [None] * 6
    desk.close()
    assert desk.refused(questions) == {}
