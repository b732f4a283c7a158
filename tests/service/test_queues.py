"""Who waits for whom: nobody for a long import or for public looks, and under overload nobody for seconds."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from confide import POP, Plan
from confide.learners import Features
from confide.service import history
from confide.service.app import Limits
from confide.service.base import Question, Taught
from confide.service.desk import PopDesk
from confide.service.forms import HISTORY
from confide.service.logs import Log
from confide.service.metrics import Metrics
from confide.service.operators import _records, operator_app
from confide.service.owner import ENOUGH, CallRefused, Owner, Unavailable, lane
from confide.service.public import public_app
from confide.service.words import NO_SUBJECT
from tests.saved import make
from tests.service.desks import MemoryDesk, operator, pop, service, token, until
from tests.service.opened import again, both, folder, open_desk
from tests.service.test_desk import Sizes
from tests.service.test_http import X, at, go, post

pytestmark = pytest.mark.claim("people.md")
__all__ = ["folder"]

SLICE = 8


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "SLICE", SLICE)


def records(number: int, first: int = 0) -> list[Any]:
    return [(f"person {i}", [float(i % 7), 2.0], "yes" if i % 3 else "no") for i in range(first, first + number)]


def guided() -> POP:
    """A guide alone, for which history was planned: it takes leaves by the number of a row, before round 1 alone."""
    plan = Plan.tight(epsilon=8.0, delta=1e-5, rounds=600, guide=1.0, units="people", history=40)
    features = Features(numeric={"a": (0.0, 7.0), "b": (0.0, 7.0)})
    return POP(None, plan, labels=["no", "yes"], features=features, units="people")


def named(rows: list[Any]) -> list[Any]:
    return [(who, dict(zip("ab", x, strict=True)), y) for who, x, y in rows]


# ---------------------------------------------------------------------- history in slices


def test_between_slices_others_are_served(folder: Path) -> None:
    desk = PopDesk.open(folder, make)
    owner, taken = Owner(desk, Metrics(Log())), list[str]()
    real, gate = desk._teacher.take, threading.Event()

    def slow(*given: Any) -> Any:
        taken.append("slice")
        if len(taken) > 2:
            assert gate.wait(60)
        return real(*given)

    desk._teacher.take = slow  # type: ignore[method-assign]

    async def main() -> None:
        first = asyncio.create_task(owner.teach(records(6 * SLICE), "import 1"))
        while len(taken) < 3:
            await asyncio.sleep(0.005)
        assert (await owner.look())["rounds"] == 0 and await owner.plan()
        forgetting = asyncio.create_task(owner.call(lambda one: (one.forget("person 1"), taken.append("forgotten"))))
        second = asyncio.create_task(owner.teach(records(1), "import 2"))
        await asyncio.sleep(0.02)
        gate.set()
        await forgetting
        with pytest.raises(CallRefused, match="another import"):
            await second
        assert await first == [None] * (6 * SLICE)
        assert taken.index("forgotten") < len(taken) - 1, "the operator's other work did not wait for the end"

    go(main())
    owner.close()


def test_the_first_round_waits_for_the_end_of_the_history(folder: Path) -> None:
    desk = PopDesk.open(folder, guided)
    slices = desk.teaching(named(records(40)), "import 1")
    owner = Owner(desk, Metrics(Log()))

    async def main() -> None:
        assert next(slices) == [None] * SLICE and desk.waits and owner.waits
        with pytest.raises(Unavailable, match="first question waits"):
            await owner.ask([_question("ann", "1")])
        assert [one for part in slices for one in part] == [None] * 32 and not owner.waits
        assert (await owner.ask([_question("ann", "1")]))[0].round == 1
        assert desk.pop.operator.loop.account.history == 40, "all of it was history, and none was taught as it came"

    go(main())
    owner.close()


def test_an_import_that_is_given_up_lets_the_first_round_go(folder: Path) -> None:
    desk = PopDesk.open(folder, guided)
    slices = desk.teaching(named(records(40)), "import 1")
    next(slices)
    slices.close()
    assert not desk.waits and desk.ask([_question("ann", "1")])[0].round == 1
    desk.close()


def test_a_record_whose_subject_is_no_name_takes_its_row_and_refuses_no_other(folder: Path) -> None:
    """Too long, no text, empty, not to be printed, or not there: each is a placeholder, and counted."""
    odd: list[Any] = ["b" * 257, 7, ["ann"], "", "a\nb", None]
    good = {"x": {"a": 1.0, "b": 2.0}, "label": "yes"}
    rows = [{**good, "subject": name} for name in ("ann", *odd, "bob")]
    body = json.dumps({"rows": rows, "id": "import 1"}).encode()
    door = service()
    with PopDesk.open(folder, guided) as desk:
        told = desk.teach(_records(door, HISTORY.read(body).rows), "import 1")
        assert [one is None for one in told] == [True, *[False] * len(odd), True]
        assert {one.message for one in told if one is not None} == {NO_SUBJECT}
        assert desk.pop.operator.loop.account.history == len(rows), "rows are counted before they are looked at"
    door.models["spam"].owner.close()


@pytest.mark.parametrize("done", [0, 1, 2, 5])
@pytest.mark.parametrize("saved", [False, True])
def test_an_import_that_was_interrupted_goes_on_where_it_stopped(folder: Path, done: int, saved: bool) -> None:
    whole = PopDesk.open(folder / "whole", make)
    whole.teach(records(5 * SLICE + 3), "import 1")
    desk = PopDesk.open(folder / "part", make)
    slices = desk.teaching(records(5 * SLICE + 3), "import 1")
    for _ in range(done):
        next(slices)
    if saved:
        desk.save()
    desk = again(desk)
    assert desk.pop.operator.taught == done * SLICE
    assert desk.teach(records(5 * SLICE + 3), "import 1") == [None] * (5 * SLICE + 3)
    assert desk.pop.operator.taught == 5 * SLICE + 3 == whole.pop.operator.taught
    desk = again(desk)
    assert desk.teach(records(5 * SLICE + 3), "import 1") == [None] * (5 * SLICE + 3)
    assert desk.pop.operator.taught == 5 * SLICE + 3
    assert {one.kind for one in desk.teach(records(5 * SLICE + 2), "import 1") if one} == {"conflict"}
    whole.close(), desk.close()


def test_who_is_in_the_last_slice_and_forgotten_takes_the_digest_along(folder: Path) -> None:
    desk = PopDesk.open(folder, make)
    desk.teach(records(3 * SLICE), "import 1")
    desk.forget(f"person {3 * SLICE - 1}")
    for one in both(desk):
        assert {said.kind for said in one.teach(records(3 * SLICE), "import 1") if said} == {"conflict"}
        known = one._requests.imports.get(one._keeper.hash(b"import", b"import 1"))
        assert known is not None and [digest is None for *_, digest in known.pieces.values()] == [False, False, True]


def test_reading_the_records_holds_up_nobody(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = PopDesk.open(folder, make)
    owner, gate, real = Owner(desk, Metrics(Log())), threading.Event(), history.pack
    monkeypatch.setattr(history, "pack", lambda *given: (gate.wait(60), real(*given))[1])

    async def main() -> None:
        taught = asyncio.create_task(owner.teach(records(2 * SLICE), "import 1"))
        await asyncio.sleep(0.05)
        await owner.call(lambda one: one.forget("somebody"))
        assert (await owner.ask([Question("ann", "1", [1.0, 2.0])]))[0].round == 1 and not taught.done()
        gate.set()
        assert await taught == [None] * (2 * SLICE)
        with pytest.raises(CallRefused, match="an id"):
            await owner.teach(records(2 * SLICE), None)

    go(main())
    owner.close()


def test_many_records_need_an_id(folder: Path) -> None:
    """Without one it could not be said where to go on."""
    with open_desk(folder) as desk:
        assert desk.teach(records(SLICE)) == [None] * SLICE
        with pytest.raises(ValueError, match="an id"):
            desk.teach(records(SLICE + 1))
        assert desk.pop.operator.taught == SLICE


def test_what_a_slice_writes_follows_from_how_many_records_it_has(folder: Path, monkeypatch: Any) -> None:
    sizes, written = Sizes(monkeypatch), set[tuple[Any, ...]]()
    for number, odd in enumerate([("ann", [1.0, 2.0], "yes"), ("ann", "none", "yes"), ("ann", [1.0, 2.0], "what")]):
        desk = PopDesk.open(folder / str(number), make)
        sizes.seen.clear()
        desk.teach([*records(SLICE + 2), odd, *records(SLICE, 50)], "import 1")
        written.add(tuple(sizes.seen))
        desk.close()
    assert len(written) == 1


def _question(who: str, name: str) -> Question:
    return Question(who, name, {"a": 1.0, "b": 2.0})


# ---------------------------------------------------------------------- looks, and too many


def test_public_looks_and_the_operator_do_not_wait_for_each_other() -> None:
    desk, gate = MemoryDesk(pop_=pop(units="people")), threading.Event()
    public = desk.public

    async def main() -> None:
        made = service(desk)
        owner = made.models["spam"].owner
        async with at(made) as client, at(made, operator_app) as door:
            forget = {"json": {"subject": "ann"}, "headers": operator()}
            desk.public = lambda: (gate.wait(60), public())[1]  # type: ignore[assignment,method-assign]
            looks = [asyncio.create_task(client.get("/models/spam")) for _ in range(100)]
            looks += [asyncio.create_task(client.get("/models/spam/plan")) for _ in range(100)]
            await until(lambda: owner.waiting["look"] > 100)
            assert (await door.post("/models/spam/forget", **forget)).status_code == 200
            gate.set()
            assert {one.status_code for one in await asyncio.gather(*looks)} == {200}
            desk.gate.clear()  # and now a forgetting that takes long
            slow = asyncio.create_task(door.post("/models/spam/forget", **forget))
            await asyncio.sleep(0.05)
            assert (await client.get("/models/spam/plan")).status_code == 200
            assert (await client.get("/models/spam")).status_code == 200
            desk.gate.set()
            assert (await slow).status_code == 200

    go(main())


def test_whether_a_label_is_refused_does_not_tell_that_others_bring_labels() -> None:
    """What one person sends is bounded by what they sent themselves: how many labels others bring is private."""
    desk, lesson = MemoryDesk(), {"ticket": "none", "label": "yes"}

    async def world(anns: int, by: dict[str, int]) -> list[int]:
        made = service(desk, **by)
        async with at(made) as client:
            desk.gate.clear()
            owner = made.models["spam"].owner
            first = [asyncio.create_task(post(client, "label", lesson)) for _ in range(anns)]
            await until(lambda: owner.waiting["label"] == anns)
            mine = [asyncio.create_task(post(client, "label", lesson, "mallory")) for _ in range(6)]
            await until(lambda: owner.waiting["label"] + sum(one.done() for one in mine) == anns + 6)
            now = [one.result().status_code if one.done() else 0 for one in mine]
            desk.gate.set()
            await asyncio.gather(*first, *mine)
            made.models["spam"].owner.close()
            return now

    for by in ({"requests": 4}, {"room": 4}):
        assert go(world(0, by)) == go(world(1, by)) == go(world(4, by)) == [0, 0, 0, 0, 429, 429]


def test_a_label_waits_behind_others_for_as_long_as_it_takes_and_is_taken() -> None:
    """A timeout would be a refusal for what others bring, which is private; a question has one."""
    desk, limits = MemoryDesk(), Limits(timeout=0.1)

    async def main() -> None:
        made = service(desk, limits=limits)
        async with at(made) as client:
            told = dict[str, Any]()
            for who in ("ann", "bob"):
                while (asked := await post(client, "ask", {**X, "id": "1"}, who)).status_code != 200:
                    pass  # a busy machine: the retry finds the answer
                told[who] = asked.json()["ticket"]
            desk.gate.clear()
            others = asyncio.create_task(post(client, "label", {"ticket": told["bob"], "label": "yes"}, "bob"))
            mine = asyncio.create_task(post(client, "label", {"ticket": told["ann"], "label": "no"}, "ann"))
            assert (await post(client, "ask", {**X, "id": "2"}, "ann")).status_code == 504
            await asyncio.sleep(3 * limits.timeout)
            assert not mine.done(), "nobody is told how long others keep it"
            desk.gate.set()
            assert [(await one).status_code for one in (others, mine)] == [200, 200]
        assert desk.pop.operator.taught == 2

    go(main())


def test_a_ticket_that_is_not_its_senders_is_refused_before_it_waits(folder: Path) -> None:
    desk = PopDesk.open(folder, make)
    (asked,) = desk.ask([Question("ann", "1", [1.0, 2.0])])
    assert asked.answer is not None and asked.answer.ticket is not None
    owner, ticket = Owner(desk, Metrics(Log()), requests=1), asked.answer.ticket

    async def main() -> None:
        with desk._lock:  # nobody is served now
            garbage = [Taught("mallory", one, "yes") for one in (ticket, "x", "", "0-1-2-é", ticket + "0")]
            told = await asyncio.wait_for(owner.learn(garbage), 60)
            assert [one.kind for one in told if one is not None] == ["ticket"] * 5
            assert not owner.waiting["label"] and not owner.full(lane("label", "mallory"))
            mine = asyncio.create_task(owner.learn([Taught("ann", "x", "no"), Taught("ann", ticket, "yes")]))
            await until(lambda: owner.waiting["label"] == 1)
            assert owner.full(lane("label", "ann"))
        refused, taken = await mine
        assert refused is not None and refused.kind == "ticket" and taken is None

    go(main())
    owner.close()


@pytest.mark.parametrize("full", [False, True])
def test_who_may_not_use_a_model_is_not_told_whether_its_queue_is_full(full: bool) -> None:
    desk = MemoryDesk()

    async def main() -> None:
        made = service(desk, requests=1)
        async with at(made) as client:
            if full:
                desk.gate.clear()
            waiting = asyncio.create_task(post(client, "ask", X, "mallory"))
            await until(lambda: waiting.done() or made.models["spam"].owner.waiting["ask"] == 1)
            other = await client.post("/models/spam/ask", json=X, headers=token("mallory", models=["news"]))
            assert other.status_code == 403
            desk.gate.set()
            assert (await waiting).status_code == 200

    go(main())


@pytest.mark.parametrize("operation", ["ask", "label"])
def test_what_is_too_much_is_refused_at_once_and_nothing_of_it_is_read(operation: str) -> None:
    desk = MemoryDesk()
    content = X if operation == "ask" else {"ticket": "none", "label": "yes"}

    async def main() -> None:
        made = service(desk, requests=4)
        app = public_app(made)
        async with at(made) as client:
            desk.gate.clear()
            waiting = [asyncio.create_task(post(client, operation, content)) for _ in range(4)]
            await until(lambda: made.models["spam"].owner.waiting[operation] == 4)
            refused = await asyncio.gather(*(post(client, operation, content) for _ in range(300)))
            assert {one.status_code for one in refused} == {429} and all(one.headers["retry-after"] for one in refused)
            assert not any(one.done() for one in waiting), "they did not wait for those before them"
            sent = list[Any]()

            async def send(message: Any) -> None:
                sent.append(message)

            async def never() -> Any:
                raise AssertionError("nothing is to be read")

            headers = [(b"authorization", token()["authorization"].encode())]
            scope = {"type": "http", "method": "POST", "path": f"/models/spam/{operation}", "query_string": b""}
            await app({**scope, "headers": headers}, never, send)
            assert sent[0]["status"] == 429
            other = "label" if operation == "ask" else "ask"
            one = asyncio.create_task(post(client, other, {"ticket": "none", "label": "no"} if other == "label" else X))
            await until(lambda: one.done() or made.models["spam"].owner.waiting[other] == 1)
            assert not one.done(), "the other kind has a room of its own"
            desk.gate.set()
            assert all(told.status_code != 429 for told in await asyncio.gather(*waiting, one))

    go(main())


def test_who_gathers_follows_from_questions_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question that comes alone does not wait for others, nor does a label ever: how many there are is private."""
    slept = list[str]()
    note = lambda _: slept.append(threading.current_thread().name)  # noqa: E731
    clock = SimpleNamespace(perf_counter=time.perf_counter, sleep=note)
    monkeypatch.setattr("confide.service.owner.time", clock)
    desk = MemoryDesk()
    owner = Owner(desk, Metrics(Log()))

    async def main() -> None:
        for i in range(3):
            await owner.ask([Question("ann", str(i), X)])
        assert slept == []
        desk.gate.clear()
        first = asyncio.create_task(owner.ask([Question("ann", "first", X)]))
        await until(lambda: not owner._queues["ask"] and owner.waiting["ask"] == 1)
        others = [asyncio.create_task(owner.ask([Question("ann", f"other {i}", X)])) for i in range(5)]
        await until(lambda: owner.waiting["ask"] == 6)
        desk.gate.set()
        await asyncio.gather(first, *others)
        assert desk.groups[-2:] == [("ask", 1), ("ask", 5)] and slept == []
        await owner.ask([Question("ann", "next", X)])
        assert slept == ["ask spam"]
        await owner.ask([Question("ann", "alone again", X)])
        assert slept == ["ask spam"]
        owner._several = True  # as after a group of several
        await owner.ask([Question("ann", f"row {i}", X) for i in range(ENOUGH)])
        assert slept == ["ask spam"], "so many rows wait for no others"
        owner._several = True
        await owner.ask([Question("ann", f"fewer {i}", X) for i in range(ENOUGH - 1)])
        assert slept == 2 * ["ask spam"]
        del slept[1:]
        desk.gate.clear()
        lessons = [asyncio.create_task(owner.learn([Taught(f"person {i}", "one", "ham")])) for i in range(6)]
        await until(lambda: owner.waiting["label"] == 6)
        desk.gate.set()
        await asyncio.gather(*lessons)
        await owner.learn([Taught("ann", "another", "ham")])
        assert slept == ["ask spam"]

    go(main())
    owner.close()
