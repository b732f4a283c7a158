"""A model that another process owns: requests are passed on once, as they are, and what comes back is its owner's."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from confide.service import proxy
from confide.service.app import Limits, Service
from confide.service.doors import Door, Keys, Tokens
from confide.service.logs import Log
from confide.service.metrics import Metrics
from confide.service.operators import operator_app
from confide.service.owner import Unavailable
from confide.service.public import public_app
from confide.service.verifiers import ProxyDoor
from tests.service.desks import ASKERS, OPERATORS, operator, pop, token, until
from tests.service.nursery import Nursery, free_ports
from tests.service.test_client import Running, running
from tests.service.test_doors import OPERATOR, PUBLIC, TOKENS
from tests.service.test_serve import SMALL, process, written

__all__ = ["running"]

X = [1.0, 2.0]


class Proxy:
    """A process that owns nothing, without the process: its two ports."""

    def __init__(self, owners: dict[str, str], door: Door | None = None, **options: Any) -> None:
        door = door or Tokens("asker", ASKERS)
        passed = getattr(door, "passed", ("authorization",))
        self.elsewhere = {name: proxy.Proxy(name, url, passed, **options) for name, url in owners.items()}
        self.log = io.StringIO()
        log = Log(self.log)
        self.service = Service(
            {}, door, Tokens("operator", OPERATORS), Metrics(log), log, Limits(), elsewhere=self.elsewhere
        )
        self.public, self.operator = (
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")
            for app in (public_app(self.service), operator_app(self.service))
        )

    async def ask(self, id: str, who: str = "ann", x: Any = X, model: str = "spam") -> httpx.Response:
        return await self.public.post(f"/models/{model}/ask", json={"id": id, "x": x}, headers=token(who))

    async def label(self, ticket: str, who: str = "ann", model: str = "spam") -> httpx.Response:
        content = {"ticket": ticket, "label": "yes"}
        return await self.public.post(f"/models/{model}/label", json=content, headers=token(who))

    async def close(self) -> None:
        for one in self.elsewhere.values():
            one.close()
        await self.public.aclose()
        await self.operator.aclose()


@asynccontextmanager
async def proxies(number: int, *about: Any, **options: Any) -> Any:
    made = [Proxy(*about, **options) for _ in range(number)]
    try:
        yield made
    finally:
        for one in made:
            await one.close()


@asynccontextmanager
async def listening(answer: Callable[[bytes], Awaitable[bytes]], context: ssl.SSLContext | None = None) -> Any:
    """Something that is no Confide service: its url, and the requests that came, a list for each connection."""
    came = list[list[bytes]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        here = list[bytes]()
        came.append(here)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                here.append(head + await reader.readexactly(int(head.partition(b"content-length: ")[2].split()[0])))
                if not (told := await answer(here[-1])):
                    return
                writer.write(told)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield f"{'https' if context else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}", came
    finally:
        server.close()


def http(content: bytes, *headers: str) -> bytes:
    """A response of JSON."""
    size = () if headers else (f"content-length: {len(content)}",)
    return (
        "\r\n".join(("HTTP/1.1 200 OK", "content-type: application/json", *size, *headers, "", "")).encode() + content
    )


async def nothing(_: bytes) -> bytes:
    return b""


async def forever(_: bytes) -> bytes:
    await asyncio.sleep(600)
    return b""


# ---------------------------------------------------------------------- passed on


def test_rounds_through_two_proxies_are_the_owners(running: Running) -> None:
    desk = running.add(pop())

    async def play() -> None:
        async with proxies(2, {desk.name: running.urls[0]}) as (one, two):
            padded = {"authorization": f"{token()['authorization']} "}
            asked = {"id": "q1", "x": X}
            first = await one.public.post(f"/models/{desk.name}/ask", json=asked, headers=padded)
            assert first.status_code == 200 and first.json()["round"] == 1 and not first.json()["again"]
            retry = await two.ask("q1", model=desk.name)
            assert retry.json() == {**first.json(), "again": True} and desk.pop.rounds == 1
            assert (await two.ask("q1", x=[3.0, 4.0], model=desk.name)).status_code == 409
            assert (await two.label(first.json()["ticket"], "bob", desk.name)).status_code == 404
            assert (await two.label(first.json()["ticket"], model=desk.name)).json() == {"taken": True}
            batch = {"questions": [{"id": f"m{i}", "x": X if i else [1.0]} for i in range(3)]}
            many = await one.public.post(f"/models/{desk.name}/ask-many", json=batch, headers=token())
            answers = many.json()["answers"]
            assert [("error" in answer) for answer in answers] == [True, False, False] and desk.pop.rounds == 4
            brought = {"labels": [{"ticket": answer["ticket"], "label": "no"} for answer in answers[1:]]}
            taken = await two.public.post(f"/models/{desk.name}/label-many", json=brought, headers=token())
            assert taken.json() == {"results": [{"taken": True}] * 2} and desk.pop.operator.taught == 3
            for path in (f"/models/{desk.name}", f"/models/{desk.name}/plan"):
                there = httpx.get(running.urls[0] + path, trust_env=False)
                here = await one.public.get(path)
                assert here.content == there.content and here.headers["cache-control"] == "no-store"
            listed = (await one.public.get("/models")).json()["models"]
            assert listed[desk.name]["rounds"] == 4 and listed[desk.name]["guarantee"]["epsilon"] > 0
            assert f'confide_rounds_total{{model="{desk.name}"}} 4.0' in (await one.public.get("/metrics")).text
            assert (await one.public.get("/readyz")).status_code == 200
            running.models[desk.name].owner.drain()
            assert (await one.public.get("/readyz")).json()["models"] == {desk.name: "draining"}
            assert one.log.getvalue() == two.log.getvalue() == ""

    asyncio.run(play())


def test_the_same_doors_as_the_owners_and_nobody_whom_they_refuse_reaches_it(running: Running) -> None:
    desk = running.add(pop(units="people"))

    async def play() -> None:
        async with proxies(1, {desk.name: running.urls[0]}) as (one,):
            for kind, (header, expected, _) in TOKENS.items():
                for method, path, content, closed in PUBLIC:
                    named = path.replace("spam", desk.name)
                    before = len(desk.groups)
                    told = await one.public.request(method, named, json=content, headers=_of(header, kind, desk.name))
                    if not closed:
                        assert told.status_code == 200, path
                    elif expected is not None:
                        assert told.status_code == expected and len(desk.groups) == before, (kind, path)
                    else:
                        assert told.status_code in (200, 404), (kind, path)

    def _of(header: dict[str, str], kind: str, name: str) -> dict[str, str]:
        return token(models=[name]) if kind == "asker of this model" else header

    asyncio.run(play())


def test_the_owner_asks_again_who_it_is(running: Running) -> None:
    """A proxy with other keys lets in whom the owner does not."""
    desk, keys = running.add(pop()), Keys({"k1": b"x" * 32})

    async def play() -> None:
        async with proxies(1, {desk.name: running.urls[0]}, Tokens("asker", keys)) as (one,):
            signed = Tokens("asker", keys).sign("ann", expires=60.0)
            header = {"authorization": f"Bearer {signed}"}
            told = await one.public.post(f"/models/{desk.name}/ask", json={"x": X}, headers=header)
            assert told.status_code == 401 and told.headers["www-authenticate"] == "Bearer" and not desk.pop.rounds

    asyncio.run(play())


def test_a_header_that_names_people_is_passed_on_and_no_other() -> None:
    async def play() -> None:
        async def seen(head: bytes) -> bytes:
            return http(b"{}")

        door = ProxyDoor("X-Forwarded-User", ["127.0.0.0/8"])
        async with listening(seen) as (url, came), proxies(1, {"spam": url}, door) as (one,):
            sent = {"x-forwarded-user": "ann", "cookie": "secret", "x-other": "secret"}
            told = await one.public.post("/models/spam/ask", json={"x": X}, headers=sent)
            assert told.json() == {} and b"x-forwarded-user: ann" in came[0][0] and b"secret" not in came[0][0]

    asyncio.run(play())


def test_the_operators_port_names_the_place_to_go(running: Running) -> None:
    async def play() -> None:
        async with proxies(1, {"spam": running.urls[0]}) as (one,):
            for method, path, content, closed in OPERATOR:
                told = await one.operator.request(method, path, json=content, headers=operator())
                if "spam" in path:
                    assert told.status_code == 421 and running.urls[0] in told.json()["error"]["message"], path
                else:
                    assert told.status_code == 200, path
                if closed:
                    assert (await one.operator.request(method, path, json=content)).status_code == 401
            listed = (await one.operator.get("/models", headers=operator())).json()
            assert listed == {"models": [], "elsewhere": {"spam": running.urls[0]}}

    asyncio.run(play())


# ---------------------------------------------------------------------- an owner that is away


def test_an_owner_that_is_away_is_told_to_everybody_alike() -> None:
    async def play() -> None:
        async with proxies(1, {"spam": f"http://127.0.0.1:{free_ports(1)[0]}"}) as (one,):
            told = [await one.ask("1"), await one.ask("2", "bob"), await one.label("a ticket")]
            told += [await one.public.get("/models/spam"), await one.public.get("/models/spam/plan")]
            assert {(one.status_code, one.headers["retry-after"], one.content) for one in told} == {
                (503, "1", told[0].content)
            }
            assert told[0].json()["error"]["kind"] == "unavailable"
            assert (await one.public.get("/readyz")).json()["models"] == {"spam": "its owner is away"}
            assert (await one.public.get("/models")).json() == {"models": {"spam": {"state": "away"}}}
            assert (await one.public.get("/metrics")).status_code == 200
            assert (await one.public.get("/healthz")).status_code == 200 and one.log.getvalue() == ""

    asyncio.run(play())


def test_a_request_is_never_sent_twice() -> None:
    async def play() -> None:
        async with listening(nothing) as (url, came), proxies(1, {"spam": url}) as (one,):
            assert (await one.ask("1")).status_code == 503 and len(came) == 1
            assert (await one.label("a ticket")).status_code == 503 and len(came) == 2

    asyncio.run(play())


def test_what_is_no_confide_service_is_not_given_back() -> None:
    async def play() -> None:
        async def page(_: bytes) -> bytes:
            return b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 6\r\n\r\nsecret"

        async with listening(page) as (url, came), proxies(1, {"spam": url}) as (one,):
            told = await one.ask("1")
            assert told.status_code == 503 and "secret" not in told.text and len(came) == 1

    asyncio.run(play())


@pytest.mark.parametrize("told", [b"[]", b"{}", b'{"models": 3}', b"nonsense", b'"text"', b"\xff"])
def test_an_owner_that_says_something_else_is_away(told: bytes) -> None:
    async def play() -> None:
        async def say(_: bytes) -> bytes:
            return http(told)

        async with listening(say) as (url, _), proxies(1, {"spam": url}) as (one,):
            assert (await one.public.get("/readyz")).json()["models"] == {"spam": "its owner is away"}
            assert (await one.public.get("/models")).json() == {"models": {"spam": {"state": "away"}}}
            assert (await one.public.get("/metrics")).status_code == 200

    asyncio.run(play())


def test_who_is_refused_depends_on_counts_of_requests_of_the_same_kind_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("confide.service.proxy.LONG", 2.0)

    async def play() -> None:
        async with listening(forever) as (url, _), proxies(1, {"spam": url}, room=2, timeout=1.0) as (one,):
            asked = [asyncio.create_task(one.ask(str(i))) for i in range(3)]
            brought = asyncio.create_task(one.label("a ticket"))
            statuses = sorted([(await each).status_code for each in asked])
            assert statuses == [429, 504, 504] and not brought.done(), "a label waits for as long as it takes"
            assert (await brought).status_code == 504
            assert (await one.ask("again")).status_code == 504, "there is room again"

    asyncio.run(play())


def test_whether_a_label_is_passed_on_does_not_tell_that_others_bring_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("confide.service.proxy.LONG", 1.0)

    async def world(anns: int) -> list[int]:
        async with listening(forever) as (url, came), proxies(1, {"spam": url}, room=2, timeout=1.0) as (one,):
            others = [asyncio.create_task(one.label("a ticket", "ann")) for _ in range(anns)]
            await until(lambda: sum(map(len, came)) == anns)
            told = await asyncio.gather(*(one.label("a ticket", "mallory") for _ in range(3)))
            await asyncio.gather(*others)
            return sorted(each.status_code for each in told)

    assert asyncio.run(world(0)) == asyncio.run(world(1)) == asyncio.run(world(2)) == [429, 504, 504]


@pytest.mark.parametrize(("why", "told"), [("history", "history"), ("draining", "draining"), ("<b>", "failed")])
def test_why_a_model_does_not_answer_is_told_as_its_owner_says_it(why: str, told: str) -> None:
    async def play() -> None:
        async def say(_: bytes) -> bytes:
            return http(json.dumps({"status": "not ready", "models": {"spam": why}}).encode())

        async with listening(say) as (url, _), proxies(1, {"spam": url}) as (one,):
            ready = await one.public.get("/readyz")
            assert ready.status_code == 503 and ready.json()["models"] == {"spam": told}

    asyncio.run(play())


def test_proxies_that_name_each_other_do_no_harm() -> None:
    """Each passes on what came from an asker, and nothing that was passed on."""

    async def play() -> None:
        async with listening(nothing) as (url, came), proxies(1, {"spam": url}) as (one,):
            passed = {"x-confide-passed": "1"}
            told = await one.public.post("/models/spam/ask", json={"x": X}, headers={**token(), **passed})
            assert told.status_code == 508 and (await one.public.get("/models/spam", headers=passed)).status_code == 508
            assert (await one.public.get("/readyz", headers=passed)).status_code == 200 and not came

    asyncio.run(play())


# ---------------------------------------------------------------------- connections


WHOLE: dict[str, tuple[bytes, bool]] = {
    "with its length": (http(b'{"a": 1}'), True),
    "in chunks": (http(b'3\r\n{"a\r\n5\r\n": 1}\r\n0\r\n\r\n', "transfer-encoding: chunked"), True),
    "after a hint": (b"HTTP/1.1 103 Early Hints\r\n\r\n" + http(b'{"a": 1}'), True),
    "cut short": (http(b'{"a": 1}')[:-1], False),
    "no HTTP": (b"220 mail.example.org\r\n\r\n", False),
    "two at once": (http(b'{"a": 1}') * 2, True),
}


@pytest.mark.parametrize("case", WHOLE)
def test_a_response_is_given_back_whole_or_not_at_all(case: str) -> None:
    told, whole = WHOLE[case]

    async def play() -> None:
        async def once(request: bytes) -> bytes:
            return told if b"first" in request else http(b"{}") if b"second" in request else b""

        waits = 0.5 if case == "cut short" else 30.0
        async with listening(once) as (url, came), proxies(1, {"spam": url}, timeout=waits) as (one,):
            first, second = await one.ask("first"), await one.ask("second")
            assert first.status_code == (200 if whole else 504 if case == "cut short" else 503)
            assert first.json() == {"a": 1} if whole else "error" in first.json()
            assert second.json() == {} and sum(map(len, came)) == 2
            assert len(came) == (1 if whole and case != "two at once" else 2)

    asyncio.run(play())


def test_what_comes_late_meets_no_other_request() -> None:
    async def play() -> None:
        asked, sent = asyncio.Event(), asyncio.Event()

        async def slow(request: bytes) -> bytes:
            if b"late" in request:
                await asked.wait()
                sent.set()
                return http(b'{"of": "late"}')
            return http(b'{"of": "next"}')

        async with listening(slow) as (url, came), proxies(1, {"spam": url}, timeout=1.0) as (one,):
            assert (await one.ask("late")).status_code == 504
            assert (await one.ask("next")).json() == {"of": "next"}
            asked.set()
            await sent.wait()
            await asyncio.sleep(0.05)
            assert (await one.ask("after")).json() == {"of": "next"} and [len(each) for each in came] == [1, 2]

    asyncio.run(play())


def test_connections_are_used_again_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        async def fine(_: bytes) -> bytes:
            return http(b"{}")

        async with listening(fine) as (url, came), proxies(1, {"spam": url}) as (one,):
            for i in range(3):
                await one.ask(str(i))
            assert [len(each) for each in came] == [3]
            await one.label("a ticket")
            assert [len(each) for each in came] == [3, 1], "labels have their own"
            monkeypatch.setattr("confide.service.http.IDLE", 0.0)
            await one.ask("3")
            assert [len(each) for each in came] == [3, 1, 1]

    asyncio.run(play())


def certified(folder: Path) -> Path:
    """A key and a certificate for this machine, which only it has signed."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "o")])
    day, now = timedelta(days=1), datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - day, now + day)
    here = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    signed = made.add_extension(here, critical=False).sign(key, SHA256())
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    (path := folder / "owner.pem").write_bytes(key.private_bytes(pem, *plain) + signed.public_bytes(pem))
    return path


def test_an_owner_behind_tls_must_have_a_certificate_that_this_machine_trusts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = certified(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)

    async def fine(_: bytes) -> bytes:
        return http(b"{}")

    async def play() -> None:
        async with listening(fine, context) as (url, came), proxies(1, {"spam": url}) as (one,):
            assert (await one.ask("1")).status_code == 503 and not any(came), "nothing was sent"
            monkeypatch.setenv("SSL_CERT_FILE", str(path))
            async with proxies(1, {"spam": url}) as (two,):
                assert (await two.ask("1")).json() == {} and (await two.ask("2")).json() == {}
                assert [len(each) for each in came if each] == [2]

    asyncio.run(play())


# ---------------------------------------------------------------------- real processes


PORTS = "[public]\nport = {}\n[operator]\nport = {}\n"


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Nursery]:
    folder = tmp_path / "owner"
    folder.mkdir()
    text = SMALL.replace("[public]\nport = 0\n[operator]\nport = 0\n", PORTS.format(*free_ports(2)))
    made = Nursery(written(folder, text))
    try:
        yield made
    finally:
        made.close()


def test_an_owner_that_was_killed_is_found_again_and_knows_what_it_told(owner: Nursery, tmp_path: Path) -> None:
    """The proxy is a process too; nothing of what it passes on is in what it writes."""
    keys = owner.config.doors.asker_keys
    doors = f'[doors]\nasker_keys = "{keys}"\n[models.spam]\nowner = "{owner.public}"\n'
    path = written(tmp_path, PORTS.format(0, 0) + doors)
    header = {"authorization": f"Bearer {owner.asker.sign('canary-ann', expires=600.0)}"}
    question = {"id": "canary-id", "x": [8675309.25, 2.0]}
    owner.start()
    with process(path) as there, httpx.Client(headers=header, base_url=there.public, trust_env=False) as client:
        first = client.post("/models/spam/ask", json=question).json()
        assert first["round"] == 1
        owner.end(signal.SIGKILL)
        away = client.post("/models/spam/ask", json=question)
        assert away.status_code == 503 and away.headers["retry-after"] == "1"
        assert client.get("/readyz").status_code == 503
        owner.start()
        assert client.get("/readyz").status_code == 200
        assert client.post("/models/spam/ask", json=question).json() == {**first, "again": True}

        async def through_another() -> None:
            async with proxies(1, {"spam": owner.public}, owner.asker) as (two,):
                brought = {"ticket": first["ticket"], "label": "yes"}
                for _ in range(2):
                    taken = await two.public.post("/models/spam/label", json=brought, headers=header)
                    assert taken.json() == {"taken": True}

        asyncio.run(through_another())
        assert client.get("/models/spam").json()["rounds"] == 1
        own = there.get("/metrics")
        assert 'confide_requests_total{model="spam",operation="ask",status="503"} 1.0' in own
        assert there.end(signal.SIGTERM) == 0
    assert [json.loads(line)["event"] for line in there.written if line] == ["serving", "stopping", "stopped"]
    for canary in ("canary", "8675309", first["ticket"]):
        assert canary not in "".join((*there.written, own))
    assert not (tmp_path / "state").exists()


class Owner:
    """One of a model's owners. One that starts listens already, and says nothing until another has answered."""

    def __init__(self, url: str, starts: asyncio.Event | None = None, other: asyncio.Event | None = None) -> None:
        self.url, self._starts, self._other, self.asked = url, starts, other, 0

    async def _said(self) -> None:
        self.asked += 1
        if self._starts is not None:
            await self._starts.wait()
        if self._other is not None:
            self._other.set()

    async def missing(self) -> str | None:
        await self._said()
        return None if self._starts is None else "draining"

    async def look(self) -> dict[str, Any] | None:
        await self._said()
        return {"from": self.url} if self._starts is None else None

    async def passed(self, *_: Any) -> str:
        await self._said()
        if self._starts is not None:
            raise Unavailable("away")
        return self.url


def test_an_owner_that_starts_keeps_nobody_from_a_look_at_the_others() -> None:
    """While they opened their partitions, `/readyz` at a door took as many timeouts as there are owners."""

    async def main() -> None:
        answered = asyncio.Event()
        one, two = Owner("http://a:1", starts=answered), Owner("http://b:1", other=answered)
        routed = proxy.Routed(bytes(32), 2, {0: one, 1: two})  # type: ignore[dict-item]
        async with asyncio.timeout(5):
            assert await routed.missing() == "draining"
            answered.clear()
            assert await routed.look() == {"from": "http://b:1"}
            answered.clear()
            assert await routed.passed("look", "", {}, None) == "http://b:1"  # type: ignore[comparison-overlap]
        alone = proxy.Routed(bytes(32), 2, {0: Owner("http://a:1", starts=answered)})  # type: ignore[dict-item]
        assert await alone.look() is None
        with pytest.raises(Unavailable):
            await alone.passed("look", "", {}, None)

    asyncio.run(main())


def test_a_look_asks_one_owner_while_owners_answer() -> None:
    """It is open to everyone: asked of all of them, a flood of looks would be as many floods as there are owners."""
    one, two = Owner("http://a:1"), Owner("http://b:1")
    routed = proxy.Routed(bytes(32), 2, {0: one, 1: two})  # type: ignore[dict-item]
    assert asyncio.run(routed.look()) == {"from": "http://a:1"}
    assert asyncio.run(routed.passed("look", "", {}, None)) == "http://a:1"  # type: ignore[comparison-overlap]
    assert (one.asked, two.asked) == (2, 0)
