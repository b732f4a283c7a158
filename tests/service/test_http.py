"""Asking and teaching over HTTP: what is answered, how requests share a desk, and what happens to too many."""

from __future__ import annotations

import asyncio
import html
import json
import unicodedata
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from confide import POP, Plan
from confide.learners import Features
from confide.service.app import Limits, Service
from confide.service.doors import Tokens
from confide.service.operators import operator_app
from confide.service.public import public_app
from confide.service.verifiers import ProxyDoor
from tests.service.desks import ASKERS, MemoryDesk, operator, pop, service, token, until

X = {"x": [1.0, 2.0]}


@asynccontextmanager
async def at(made: Service, app: Callable[[Service], Any] = public_app) -> AsyncIterator[httpx.AsyncClient]:
    """A client, and an end that closes the owners."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app(made)), base_url="http://test") as client:
        yield client


def go(test: Awaitable[Any]) -> Any:
    async def main() -> Any:
        return await asyncio.wait_for(test, 30)  # type: ignore[arg-type]

    return asyncio.run(main())


async def post(client: httpx.AsyncClient, operation: str, content: Any, who: str = "ann") -> httpx.Response:
    return await client.post(f"/models/spam/{operation}", json=content, headers=token(who))


def test_a_round_from_question_to_label() -> None:
    desk = MemoryDesk()

    async def main() -> None:
        async with at(service(desk)) as client:
            told = (await post(client, "ask", {**X, "id": "q1"})).json()
            assert told.keys() == {"id", "round", "again", "label", "sure", "source", "guide", "ticket"}
            assert told["id"] == "q1" and told["round"] == 1 and told["label"] in ("no", "yes") and not told["again"]
            lesson = {"ticket": told["ticket"], "label": "yes"}
            assert (await post(client, "label", lesson)).json() == {"taken": True}
            refused = await post(client, "label", {**lesson, "label": "no"})
            assert refused.status_code == 404 and refused.json()["error"]["kind"] == "ticket"
            wrong = await post(client, "label", {"ticket": told["ticket"], "label": "maybe"})
            assert wrong.status_code in (404, 422) and desk.pop.operator.taught == 1

    go(main())


def test_a_retry_gets_the_stored_answer_and_takes_no_round() -> None:
    desk = MemoryDesk()

    async def main() -> None:
        async with at(service(desk)) as client:
            first = (await post(client, "ask", {**X, "id": "q1"})).json()
            again = (await post(client, "ask", {**X, "id": "q1"})).json()
            assert again == {**first, "again": True} and desk.pop.rounds == 1
            other = await post(client, "ask", {"x": [9.0, 9.0], "id": "q1"})
            assert other.status_code == 409 and other.json()["error"]["kind"] == "conflict" and desk.pop.rounds == 1
            others = (await post(client, "ask", {**X, "id": "q1"}, who="bob")).json()
            assert others["again"] is False  # ids are one's own
            nameless = [(await post(client, "ask", X)).json()["again"] for _ in range(2)]
            assert nameless == [False, False] and desk.pop.rounds == 4

    go(main())


def test_many_rows_have_their_own_answers_and_errors() -> None:
    desk = MemoryDesk()

    async def main() -> None:
        async with at(service(desk)) as client:
            rows = [{**X, "id": "a"}, {"x": None, "id": "b"}, {**X, "id": "a"}, {"x": [1.0]}]
            told = (await post(client, "ask-many", {"questions": rows})).json()["answers"]
            assert ["error" in one for one in told] == [False, True, False, True]
            assert told[2] == {**told[0], "again": True} and desk.pop.rounds == 3
            labels = [{"ticket": told[0]["ticket"], "label": "yes"}, {"ticket": "nonsense", "label": "yes"}]
            results = (await post(client, "label-many", {"labels": labels})).json()["results"]
            assert results[0] == {"taken": True} and results[1]["error"]["kind"] == "ticket"

    go(main())


def test_what_the_model_cannot_read_takes_its_round_and_what_is_no_question_does_not() -> None:
    desk = MemoryDesk()

    async def main() -> None:
        async with at(service(desk)) as client:
            refused = await post(client, "ask", {"x": {"canary": "canary"}})
            assert refused.status_code == 422 and refused.json()["round"] == 1 and desk.pop.rounds == 1
            headers = token()
            for body in (b"", b"{", b"[]", b"null", b'{"y": 1}', b'{"x": 1, "canary": 2}', b'{"x": 1, "id": ""}',
                         b'{"x": 1, "id": 7}', b"\xff", b'{"x": "\\ud800"}', b"[" * 100_000):  # fmt: skip
                told = await client.post("/models/spam/ask", content=body, headers=headers)
                assert told.status_code == 422 and told.json()["error"]["kind"] == "form", body
                assert "canary" not in told.text
            assert desk.pop.rounds == 1

    go(main())


def test_singles_that_wait_share_a_group_and_batches_stay_whole() -> None:
    desk = MemoryDesk()

    async def main() -> None:
        made = service(desk, group=8, threads=1)
        async with at(made) as client:
            desk.gate.clear()
            owner = made.models["spam"].owner
            asks = [asyncio.create_task(post(client, "ask", {**X, "id": f"q{i}"})) for i in range(21)]
            await until(lambda: owner.waiting["ask"] == 21)
            asks.append(asyncio.create_task(post(client, "ask-many", {"questions": [X] * 20})))
            await until(lambda: owner.waiting["ask"] == 41)
            desk.gate.set()
            assert all(one.status_code == 200 for one in await asyncio.gather(*asks))
            sizes = [rows for _, rows in desk.groups]
            assert sum(sizes) == 41 and max(sizes[:-1]) == 8 and sizes[-1] == 20 and len(sizes) <= 5
            assert sorted(one.json()["round"] for one in await asyncio.gather(*asks[:-1])) == list(range(1, 22))

    go(main())


@pytest.mark.parametrize("outcome", ["yes", None])
def test_who_is_refused_depends_on_counts_of_questions_alone(outcome: str | None) -> None:
    """Readable or not, labelled by others or not: of 13 questions with room for 8, the same 5 are refused."""
    desk = MemoryDesk()

    async def main() -> list[int]:
        made = service(desk, room=8, group=4)
        async with at(made) as client:
            ticket = (await post(client, "ask", X)).json()["ticket"]
            desk.gate.clear()
            first = asyncio.create_task(post(client, "ask", X))
            await until(lambda: made.models["spam"].owner.waiting["ask"] == 1)
            lessons = [asyncio.create_task(post(client, "label", {"ticket": ticket, "label": "yes"})) for _ in range(3)]
            question = X if outcome else {"x": "unreadable"}
            waiting = [asyncio.create_task(post(client, "ask", question)) for _ in range(12)]
            await until(lambda: sum(one.done() for one in waiting) == 5)
            desk.gate.set()
            told = await asyncio.gather(*waiting)
            await asyncio.gather(first, *lessons)
            refused = [one for one in told if one.status_code == 429]
            assert all(one.headers["retry-after"] == "1" and one.json()["error"]["kind"] == "busy" for one in refused)
            return [i for i, one in enumerate(told) if one.status_code == 429]

    assert go(main()) == [7, 8, 9, 10, 11]


def test_a_timeout_ends_the_waiting_and_never_the_round() -> None:
    desk = MemoryDesk()

    async def main() -> None:
        async with at(service(desk, limits=Limits(timeout=0.05))) as client:
            desk.gate.clear()
            told = await post(client, "ask", {**X, "id": "q1"})
            assert told.status_code == 504 and told.headers["retry-after"] and "same id" in told.text
            desk.gate.set()
            for _ in range(600):  # as long as a busy machine takes
                if desk.pop.rounds:
                    break
                await asyncio.sleep(0.05)
            assert desk.pop.rounds == 1
            again = (await post(client, "ask", {**X, "id": "q1"})).json()
            assert again["again"] and again["round"] == 1 and desk.pop.rounds == 1

    go(main())


def test_what_is_too_large_is_refused_before_it_is_read() -> None:
    desk = MemoryDesk()

    async def main() -> None:
        async with at(service(desk, limits=Limits(body=2000, batch=5))) as client:
            assert (await post(client, "ask-many", {"questions": [X] * 5})).status_code == 200
            assert (await post(client, "ask-many", {"questions": [X] * 6})).status_code == 413
            assert (await post(client, "ask-many", {"questions": []})).status_code == 422
            assert (await post(client, "ask", {"x": "a" * 2000})).status_code == 413

            async def slowly() -> AsyncIterator[bytes]:
                for _ in range(100):
                    yield b"a" * 100

            told = await client.post("/models/spam/ask", content=slowly(), headers=token())
            assert told.status_code == 413 and desk.pop.rounds == 5

    go(main())


def test_a_request_that_comes_too_slowly_is_refused_and_a_strangers_is_not_read() -> None:
    async def main() -> None:
        sent: list[Any] = []

        async def receive() -> Any:
            if not sent:
                sent.append("began")
                return {"type": "http.request", "body": b'{"x"', "more_body": True}
            await asyncio.sleep(600)

        async def send(message: Any) -> None:
            sent.append(message)

        app = public_app(service(limits=Limits(timeout=0.05)))
        scope = {"type": "http", "method": "POST", "path": "/models/spam/ask", "query_string": b""}
        await app({**scope, "headers": []}, receive, send)
        assert sent[0]["status"] == 401  # and nothing was read
        sent.clear()
        await app({**scope, "headers": [(b"authorization", token()["authorization"].encode())]}, receive, send)
        assert sent[1]["status"] == 408

    go(main())


def test_a_model_that_cannot_write_says_the_same_to_everybody() -> None:
    desk = MemoryDesk()

    async def main() -> None:
        made = service(desk)
        async with at(made) as client, at(made, operator_app) as door:
            desk.broken = True
            told = [await post(client, "ask", {"x": x}) for x in ([1.0, 2.0], None, "text")]
            told.append(await post(client, "label", {"ticket": "nonsense", "label": "yes"}))
            assert {(one.status_code, one.text) for one in told} == {(503, told[0].text)} and "disk" not in told[0].text
            assert (await client.get("/readyz")).status_code == 503
            assert (await client.get("/readyz")).json()["models"] == {"spam": "failed"}
            assert (await client.get("/healthz")).status_code == 200
            seen = (await door.get("/models/spam", headers=operator())).json()
            assert "make room" in seen["service"]["failure"]
            desk.broken = False
            while (await client.get("/readyz")).status_code == 503:
                await asyncio.sleep(0.05)
            assert (await post(client, "ask", X)).status_code == 200

    go(main())


def test_a_model_that_drains_takes_labels_and_no_questions() -> None:
    desk = MemoryDesk()

    async def main() -> None:
        made = service(desk)
        async with at(made) as client, at(made, operator_app) as door:
            ticket = (await post(client, "ask", X)).json()["ticket"]
            told = await door.post("/models/spam/drain", json={"on": True}, headers=operator())
            assert told.json() == {"draining": True} and (await client.get("/readyz")).status_code == 503
            refused = await post(client, "ask", X)
            assert refused.status_code == 503 and refused.headers["retry-after"] and desk.pop.rounds == 1
            assert (await post(client, "label", {"ticket": ticket, "label": "yes"})).status_code == 200
            await door.post("/models/spam/drain", json={"on": False}, headers=operator())
            assert (await post(client, "ask", X)).status_code == 200

    go(main())


def test_an_owner_that_is_closed_serves_what_waits_first() -> None:
    desk = MemoryDesk()

    async def main() -> None:
        made = service(desk, group=2)
        async with at(made) as client:
            desk.gate.clear()
            asks = [asyncio.create_task(post(client, "ask", X)) for _ in range(7)]
            await until(lambda: made.models["spam"].owner.waiting["ask"] == 7)
            closing = asyncio.create_task(asyncio.to_thread(made.models["spam"].owner.close))
            await asyncio.sleep(0.05)
            assert (await post(client, "ask", X)).status_code == 503
            desk.gate.set()
            assert [one.status_code for one in await asyncio.gather(*asks)] == [200] * 7
            await closing
            made.models["spam"].owner.close()
            assert desk.pop.rounds == 7 and desk.closed == 1

    go(main())


def test_the_operator_imports_history_forgets_and_sees() -> None:
    desk = MemoryDesk(pop_=pop(units="people"))

    async def main() -> None:
        made = service(desk)
        async with at(made) as client, at(made, operator_app) as door:
            rows = [{"x": [1.0, 2.0], "label": "yes", "subject": "ann"}, {"x": None, "label": "no", "subject": "bob"}]
            told = await door.post("/models/spam/history", json={"rows": rows}, headers=operator())
            assert told.json()["taken"] == 1 and told.json()["refused"][0]["row"] == 1
            await post(client, "ask", X)
            seen = (await door.get("/models", headers=operator())).json()["models"][0]
            assert seen["public"]["rounds"] == 1 and seen["private"]["taught"] == 1 and seen["service"]["late"] == 0
            told = await door.post("/models/spam/forget", json={"subject": "ann"}, headers=operator())
            assert told.json() == {"forgotten": True}
            told = await door.post("/models/spam/forget", json={"subject": "anm"}, headers=operator())
            assert told.json()["forgotten"] is False and "spelled" in told.json()["message"]
            assert told.json()["message"].endswith("The copy that would have learned from them was reset all the same")
            assert (await door.post("/models/spam/save", headers=operator())).json() == {"saved": True} and desk.saved
            assert (await door.post("/models/nix/save", headers=operator())).status_code == 404

    go(main())


@pytest.mark.parametrize(
    ("said", "status"), [("NaN", 200), ("1e400", 200), ("-Infinity", 200), ('"NaN"', 200), ('"inf"', 422)]
)
def test_numbers_that_json_does_not_have_are_read_as_the_page_says(said: str, status: int) -> None:
    plan, features = Plan.tight(1.0, 1e-6, units="people"), Features(numeric={"a": (0, 1)})
    desk = MemoryDesk(pop_=POP(None, plan, labels=["no", "yes"], features=features))

    async def main() -> None:
        async with at(service(desk)) as client:
            headers = {**token("ann"), "content-type": "application/json"}
            body = f'{{"id": "1", "x": {{"a": {said}}}}}'
            assert (await client.post("/models/spam/ask", content=body, headers=headers)).status_code == status

    go(main())


def test_who_is_not_known_to_a_model_without_copies_is_told_of_none() -> None:
    plan = Plan.tight(1.0, 1e-6, units="people")
    desk = MemoryDesk(pop_=POP(None, plan, labels=["no", "yes"], features=2))

    async def main() -> None:
        async with at(service(desk), operator_app) as door:
            told = await door.post("/models/spam/forget", json={"subject": "anm"}, headers=operator())
            assert told.json()["forgotten"] is False and "copy" not in told.json()["message"]

    go(main())


def test_a_bad_record_of_an_import_takes_its_row_and_refuses_no_other() -> None:
    """A label that is missing, or that no label can be; an x that is not there."""
    desk = MemoryDesk()

    async def main() -> None:
        async with at(service(desk), operator_app) as door:
            bad: list[dict[str, Any]] = [{"x": [1.0, 2.0]}, {"x": [1.0, 2.0], "label": ["no"]}, {"label": "no"}]
            rows = [*bad, {"x": [1.0, 2.0], "label": "yes"}]
            told = await door.post("/models/spam/history", json={"rows": rows}, headers=operator())
            assert told.json()["taken"] == 1 and [one["row"] for one in told.json()["refused"]] == [0, 1, 2]

    go(main())


def test_what_a_model_does_not_do_is_refused_to_the_operator_with_a_sentence() -> None:
    async def main() -> None:
        async with at(service(), operator_app) as door:
            told = await door.post("/models/spam/forget", json={"subject": "ann"}, headers=operator())
            assert told.status_code == 422 and "only people can be forgotten" in told.text

    go(main())


def test_an_error_nobody_expected_is_told_in_no_words() -> None:
    desk = MemoryDesk()

    async def main() -> None:
        made = service(desk)
        async with at(made) as client:
            desk.public = lambda: {"canary": [][0]}  # type: ignore[method-assign]
            told = await client.get("/models/spam")
            assert told.status_code == 503 and "canary" not in told.text
            made.door.admit = lambda *_: {}["canary"]  # type: ignore[method-assign, index, misc]
            told = await post(client, "ask", X)
            assert told.status_code == 500 and "canary" not in told.text
        written = [json.loads(line) for line in made.written.getvalue().splitlines()]  # type: ignore[attr-defined]
        assert [line["error"] for line in written] == ["IndexError", "KeyError"] and "canary" not in str(written)

    go(main())


def test_everyone_may_see_what_is_promised_and_nothing_more() -> None:
    made = service(MemoryDesk(), MemoryDesk("news", pop(units="people")))

    async def main() -> None:
        async with at(made) as client, at(made, operator_app) as door:
            await post(client, "ask", X)
            shown = (await client.get("/models")).json()["models"]
            assert shown.keys() == {"spam", "news"} and shown["spam"]["rounds"] == 1
            one = (await client.get("/models/spam")).json()
            plan = Plan.from_json((await client.get("/models/spam/plan")).text)
            assert "factor of" in one["guarantee"]["sentence"] and plan.rounds == 60
            assert "insecure: seeded" in one["guarantee"]["text"]
            text = (await client.get("/metrics")).text
            names = {line.split("{")[0] for line in text.splitlines() if not line.startswith("#")}
            assert names == {"confide_rounds_total", "confide_state", "confide_guarantee"}
            own = (await door.get("/metrics", headers=operator())).text
            for name in ("requests_total", "request_seconds_bucket", "desk_seconds_bucket", "rows_total", "ledger"):
                assert f"confide_{name}" in own
            assert 'confide_requests_total{model="spam",operation="ask",status="200"} 1.0' in own

    go(main())


def test_the_page_shows_every_operation_with_a_worked_example_and_loads_nothing() -> None:
    async def main() -> None:
        async with at(service()) as client:
            page = (await client.get("/docs")).text
            described = (await client.get("/openapi.json")).json()
        assert "<script" not in page and "src=" not in page and "http" not in page.replace("https://…", "")
        for path, operations in described["paths"].items():
            for operation in operations.values():
                assert path in page and operation["summary"] in html.unescape(page)
                if "requestBody" in operation:
                    content = operation["requestBody"]["content"]["application/json"]
                    assert content["examples"]["worked"]["value"]
        assert "`" not in page and "<code>GET /models/{model}</code> says what is promised" in page

    go(main())


def test_an_operators_token_for_one_model_shows_nothing_of_another() -> None:
    async def main() -> None:
        made = service(MemoryDesk("spam"), MemoryDesk("news"))
        async with at(made) as client, at(made, operator_app) as door:
            for name in ("spam", "news"):
                await client.post(f"/models/{name}/ask", json={"x": [1.0, 2.0]}, headers=token())
            for models, shown in ((["spam"], ["spam"]), (["news"], ["news"]), (None, ["spam", "news"]), ([], [])):
                seen = await door.get("/models", headers=operator(models))
                assert [one["name"] for one in seen.json()["models"]] == shown
                text = (await door.get("/metrics", headers=operator(models))).text
                named = {name for name in ("spam", "news") if f'model="{name}"' in text}
                assert named == set(shown) and ("confide_rows_total{" in text) == bool(shown)

    go(main())


@pytest.mark.parametrize("name", ["René", "Анна", "王小明", "ann"])
def test_a_name_is_one_person_at_every_door(name: str) -> None:
    """A proxy's header brings it in bytes, a token and the operator's JSON in Unicode, composed or not."""
    apart = unicodedata.normalize("NFD", name)

    async def main() -> None:
        desk = MemoryDesk(pop_=pop(units="people"))
        made = service(desk)
        made.door = ProxyDoor("x-user", ["127.0.0.1"])
        async with at(made) as client, at(made, operator_app) as door:
            for spelled in (name, apart):
                told = await client.post(
                    "/models/spam/ask", json={"x": [1.0, 2.0]}, headers={b"x-user": spelled.encode()}
                )
                assert told.status_code == 200
            assert {who for who, _ in desk.stored} == {f"proxy:{unicodedata.normalize('NFC', name)}"}
            for spelled in (name, apart):
                person = await door.post("/models/spam/person", json={"subject": spelled}, headers=operator())
                assert person.json() == {"person": {"rounds": 2}}
                told = await door.post("/models/spam/forget", json={"subject": spelled}, headers=operator())
                assert told.json() == {"forgotten": True}

    go(main())
    tokens = Tokens("asker", ASKERS)
    heads = [{"authorization": f"Bearer {tokens.sign(one, expires=60.0)}"} for one in (name, apart)]
    assert len({tokens.admit(head, None).subject for head in heads}) == 1


def test_a_header_that_is_not_in_utf_8_and_a_name_that_is_none_are_refused() -> None:
    async def main() -> None:
        made = service(MemoryDesk(pop_=pop(units="people")))
        made.door = ProxyDoor("x-user", ["127.0.0.1"])
        async with at(made) as client, at(made, operator_app) as door:
            for raw, said in (("René".encode("latin-1"), "UTF-8"), ("a\u200bb".encode(), "named nobody")):
                told = await client.post("/models/spam/ask", json={"x": [1.0, 2.0]}, headers={b"x-user": raw})
                assert told.status_code == 401 and said in told.text
            for operation in ("person", "forget"):
                told = await door.post(f"/models/spam/{operation}", json={"subject": "a\u200b"}, headers=operator())
                assert told.status_code == 422 and "printable" in told.text
            rows = [{"x": [1.0, 2.0], "label": "yes", "subject": one} for one in ("ann", "a\u200bb")]
            told = await door.post("/models/spam/history", json={"rows": rows}, headers=operator())
            assert told.json()["taken"] == 1 and [one["row"] for one in told.json()["refused"]] == [1]

    go(main())
