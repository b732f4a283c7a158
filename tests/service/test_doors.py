"""The doors: who is let in, to what, and what they are told otherwise. Every endpoint with every kind of token."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from starlette.datastructures import Headers
from typer.testing import CliRunner

from confide.cli.app import app as command_line
from confide.service.config import read_config
from confide.service.doors import Keys, NotAdmitted, Tokens, seconds
from confide.service.operators import operator_app
from confide.service.public import public_app
from confide.service.verifiers import JwtDoor, ProxyDoor
from tests.service.desks import ASKERS, OPERATORS, MemoryDesk, operator, pop, service, token

PUBLIC: list[tuple[str, str, Any, bool]] = [
    ("POST", "/models/spam/ask", {"x": [1.0, 2.0]}, True),
    ("POST", "/models/spam/ask-many", {"questions": [{"x": [1.0, 2.0]}]}, True),
    ("POST", "/models/spam/label", {"ticket": "T", "label": "yes"}, True),
    ("POST", "/models/spam/label-many", {"labels": [{"ticket": "T", "label": "yes"}]}, True),
    ("GET", "/models", None, False),
    ("GET", "/models/spam", None, False),
    ("GET", "/models/spam/plan", None, False),
    ("GET", "/metrics", None, False),
    ("GET", "/healthz", None, False),
    ("GET", "/readyz", None, False),
    ("GET", "/docs", None, False),
    ("GET", "/openapi.json", None, False),
]
OPERATOR: list[tuple[str, str, Any, bool]] = [
    ("GET", "/models", None, True),
    ("GET", "/models/spam", None, True),
    ("GET", "/metrics", None, True),
    ("POST", "/models/spam/person", {"subject": "ann"}, True),
    ("POST", "/models/spam/history", {"rows": [{"x": [1.0, 2.0], "label": "yes", "subject": "ann"}]}, True),
    ("POST", "/models/spam/forget", {"subject": "ann"}, True),
    ("POST", "/models/spam/drain", {"on": False}, True),
    ("POST", "/models/spam/save", {}, True),
    ("GET", "/models/spam/audit", None, True),
    ("POST", "/models/spam/audit", {"games": 20}, True),
    ("POST", "/models/spam/audit/stop", None, True),
    ("GET", "/healthz", None, False),
    ("GET", "/readyz", None, False),
    ("GET", "/docs", None, False),
    ("GET", "/openapi.json", None, False),
]


def forged(header: dict[str, str], **changes: Any) -> dict[str, str]:
    """The token with other claims, and the old signature."""
    head, body, mac = header["authorization"].removeprefix("Bearer ").split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))) | changes
    packed = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return {"authorization": f"Bearer {head}.{packed}.{mac}"}


def expired(kind: Any, keys: Keys) -> dict[str, str]:
    return {"authorization": f"Bearer {Tokens(kind, keys, clock=lambda: 1000.0).sign('ann', expires=1.0)}"}


def signed_by_others(kind: Any) -> dict[str, str]:
    return {"authorization": f"Bearer {Tokens(kind, Keys({'k1': b'x' * 32})).sign('ann', expires=60.0)}"}


def crossed(head: str, keys: Keys) -> dict[str, str]:
    """A token signed with one kind's keys that claims to be of the other."""
    kind: Any = "asker" if head == "operator" else "operator"
    text = Tokens(kind, keys).sign("ann", expires=60.0)
    return {"authorization": f"Bearer confide-{head}.{text.partition('.')[2]}"}


# What each kind of token gets at an asker's and at an operator's endpoint; None: let in.
TOKENS: dict[str, tuple[dict[str, str], int | None, int | None]] = {
    "none": ({}, 401, 401),
    "empty": ({"authorization": "Bearer "}, 401, 401),
    "another scheme": ({"authorization": "Basic YW5uOmFubg=="}, 401, 401),
    "nonsense": ({"authorization": "Bearer nonsense"}, 401, 401),
    "half a token": ({"authorization": token()["authorization"][:-4]}, 401, 403),
    "asker": (token(), None, 403),
    "another asker": (token("bob"), None, 403),
    "asker of this model": (token(models=["spam"]), None, 403),
    "asker of another model": (token(models=["news"]), 403, 403),
    "asker of no model": (token(models=[]), 403, 403),
    "operator": (operator(), 403, None),
    "expired asker": (expired("asker", ASKERS), 401, 403),
    "expired operator": (expired("operator", OPERATORS), 403, 401),
    "forged asker": (forged(token(), sub="bob"), 401, 403),
    "forged expiry": (forged(expired("asker", ASKERS), exp=10**12), 401, 403),
    "forged operator": (forged(operator(), sub="root"), 403, 401),
    "forged key name": (forged(token(), kid="k2"), 401, 403),
    "asker of other keys": (signed_by_others("asker"), 401, 403),
    "operator of other keys": (signed_by_others("operator"), 403, 401),
    "operator by askers' keys": (crossed("operator", ASKERS), 403, 401),
    "asker by operators' keys": (crossed("asker", OPERATORS), 401, 403),
}


@pytest.fixture(scope="module")
def doors() -> Any:
    made = service(MemoryDesk(pop_=pop(units="people")))
    return made, {"public": public_app(made), "operator": operator_app(made)}


async def send(app: Any, method: str, path: str, content: Any, headers: dict[str, str]) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        return await client.request(method, path, json=content, headers=headers)


def run(*about: Any) -> httpx.Response:
    return asyncio.run(send(*about))


@pytest.mark.parametrize("kind", TOKENS)
def test_every_endpoint_lets_in_whom_it_should_and_nobody_else(doors: Any, kind: str) -> None:
    header, at_public, at_operator = TOKENS[kind]
    for door, endpoints, expected in (("public", PUBLIC, at_public), ("operator", OPERATOR, at_operator)):
        for method, path, content, closed in endpoints:
            response = run(doors[1][door], method, path, content, header)
            if not closed:
                assert response.status_code == 200, (door, path)
            elif expected is not None:
                assert response.status_code == expected, (door, path)
                assert response.json()["error"]["kind"] == "token" and response.headers["www-authenticate"] == "Bearer"
            else:
                assert response.status_code in (200, 404) and (response.status_code == 200 or "label" in path), path


def test_the_table_has_every_endpoint(doors: Any) -> None:
    for door, endpoints in (("public", PUBLIC), ("operator", OPERATOR)):
        described = run(doors[1][door], "GET", "/openapi.json", None, {}).json()
        known = {
            (method.upper(), path.replace("{model}", "spam"), "security" in operation)
            for path, operations in described["paths"].items()
            for method, operation in operations.items()
        }
        pages = {"/docs", "/openapi.json"}
        assert known == {(method, path, closed) for method, path, _, closed in endpoints if path not in pages}


def test_a_label_is_taken_from_the_tickets_holder_alone(doors: Any) -> None:
    made = service(MemoryDesk(pop_=pop(units="people")))
    app = public_app(made)
    ticket = run(app, "POST", "/models/spam/ask", {"x": [1.0, 2.0]}, token("ann")).json()["ticket"]
    lesson = {"ticket": ticket, "label": "yes"}
    assert run(app, "POST", "/models/spam/label", lesson, token("bob")).status_code == 404
    assert run(app, "POST", "/models/spam/label", lesson, token("ann")).json() == {"taken": True}


def test_a_door_has_its_own_names_and_operators_mean_the_same_people() -> None:
    made = service(MemoryDesk(pop_=pop(units="people")))
    run(public_app(made), "POST", "/models/spam/ask", {"x": [1.0, 2.0]}, token("ann"))
    told = run(operator_app(made), "POST", "/models/spam/person", {"subject": "ann"}, operator())
    assert told.json() == {"person": {"rounds": 1}}
    other = ProxyDoor("x-user", ["127.0.0.1"])
    assert other.named("ann") != made.door.named("ann")


def test_a_key_that_is_removed_ends_its_tokens(tmp_path: Path) -> None:
    keys = Keys.make(tmp_path / "keys" / "askers")
    assert (tmp_path / "keys" / "askers").stat().st_mode & 0o777 == 0o600
    old = {"authorization": f"Bearer {Tokens('asker', keys).sign('ann', expires=60.0)}"}
    lines = (tmp_path / "keys" / "askers").read_text() + f"new {'ab' * 32}\n"
    (tmp_path / "keys" / "askers").write_text(lines)
    both = Keys.make(tmp_path / "keys" / "askers")
    assert both.newest[0] == "new" and Tokens("asker", both).admit(old, None).subject == "tokens:ann"
    (tmp_path / "keys" / "askers").write_text(lines.splitlines()[1])
    with pytest.raises(NotAdmitted, match="not a token that this service has signed"):
        Tokens("asker", Keys.read(tmp_path / "keys" / "askers")).admit(old, None)
    (tmp_path / "keys" / "askers").write_text("k1 tooshort\n")
    with pytest.raises(ValueError, match="no file of keys") as refused:
        Keys.read(tmp_path / "keys" / "askers")
    assert "tooshort" not in str(refused.value)


@pytest.mark.parametrize("subject", ["", "a" * 257, "a\nb", "\0"])
def test_a_subject_is_a_name(subject: str) -> None:
    with pytest.raises(ValueError, match="printable"):
        Tokens("asker", ASKERS).sign(subject, expires=60.0)


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "0d", "1.5h", "30 d", "9999999999d"])
def test_a_length_of_time_is_written_in_one_way(text: str) -> None:
    with pytest.raises(ValueError, match="90s, 15m, 12h or 30d"):
        seconds(text)


SECRET = "s" * 64
CLAIMS = {"sub": "ann", "aud": "confide", "iss": "https://login.example.org", "exp": 4_000_000_000}


def web_token(key: str = SECRET, algorithm: str = "HS256", **changes: Any) -> dict[str, str]:
    claims = {name: value for name, value in (CLAIMS | changes).items() if value is not None}
    return {"authorization": f"Bearer {jwt.encode(claims, key, algorithm=algorithm)}"}


def jwt_door() -> JwtDoor:
    return JwtDoor(SECRET, ["HS256"], "confide", "https://login.example.org")


def test_a_web_token_names_a_person_of_its_issuer() -> None:
    assert jwt_door().admit(web_token(), None).subject == "jwt:https://login.example.org:ann"


@pytest.mark.parametrize(
    "header",
    [
        web_token(exp=1000), web_token(exp=None), web_token(aud="others"), web_token(aud=None), web_token(iss="others"),
        web_token(sub=None), web_token(key="t" * 64), web_token(algorithm="HS512"), web_token(sub="a" * 300),
        {"authorization": "Bearer a.b.c"}, {}, token(),
    ],
)  # fmt: skip
def test_a_web_token_that_is_not_for_us_is_refused(header: dict[str, str]) -> None:
    with pytest.raises(NotAdmitted) as refused:
        jwt_door().admit(header, None)
    assert refused.value.status == 401 and "ann" not in str(refused.value)


def test_a_web_token_does_not_choose_its_algorithm() -> None:
    unsigned = jwt.encode(CLAIMS, None, algorithm="none")  # type: ignore[arg-type]
    with pytest.raises(NotAdmitted):
        jwt_door().admit({"authorization": f"Bearer {unsigned}"}, None)
    with pytest.raises(ValueError, match="algorithms"):
        JwtDoor(SECRET, ["None"], "confide", "i")


@pytest.mark.parametrize("peer", ["192.0.2.1", "10.0.1.1", None, "", "testclient"])
def test_a_proxys_header_counts_from_the_proxy_alone(peer: str | None) -> None:
    door = ProxyDoor("X-User", ["10.0.0.0/24", "::1"])
    assert door.admit({"x-user": "ann"}, "10.0.0.7").subject == door.admit({"x-user": "ann"}, "::1").subject
    for headers in ({"x-user": "ann"}, {"x-user": "ann", "x-forwarded-for": "10.0.0.7"}):
        with pytest.raises(NotAdmitted):
            door.admit(headers, peer)
    for headers in ({}, {"x-user": ""}, {"x-user": "a" * 300}):
        with pytest.raises(NotAdmitted, match="named nobody"):
            door.admit(headers, "10.0.0.7")
    with pytest.raises(ValueError, match="name the proxies"):
        ProxyDoor("X-User", [])


def test_a_name_in_a_header_has_no_blanks_around_it_and_stands_there_once() -> None:
    """Servers leave blanks behind a value: "ann " is ann, here and where it is passed on to, or one person is two."""
    door = ProxyDoor("X-User", ["10.0.0.0/24"])
    sent = [Headers(raw=[(b"x-user", value)]) for value in (b"ann", b"ann ", b"ann\t ")]
    assert {door.admit(headers, "10.0.0.7").subject for headers in sent} == {"proxy:ann"}
    twice = Headers(raw=[(b"x-user", b"bob"), (b"x-user", b"ann")])  # a proxy that added its own to what came
    for headers in (twice, Headers(raw=[(b"x-user", b" \t")])):
        with pytest.raises(NotAdmitted, match="named nobody"):
            door.admit(headers, "10.0.0.7")


def test_the_command_makes_tokens_that_the_doors_take(tmp_path: Path) -> None:
    path = tmp_path / "confide.toml"
    path.write_text('[models.spam]\nfolder = "s"\nlabels = ["no", "yes"]\ncolumns = 2\nrounds = 10\n')

    def made(*options: str) -> str:
        result = CliRunner().invoke(command_line, ["token", str(path), "--subject", "ann", *options])
        assert result.exit_code == 0, result.output
        return result.output.strip()

    doors = read_config(path).doors
    header = {"authorization": f"Bearer {made('--model', 'spam', '--expires', '2h')}"}
    caller = Tokens("asker", Keys.read(doors.asker_keys)).admit(header, None)
    assert caller.subject == "tokens:ann" and caller.models == {"spam"}
    late = Tokens("asker", Keys.read(doors.asker_keys), clock=lambda: 2_000_000_000_000.0)
    with pytest.raises(NotAdmitted, match="expired"):
        late.admit(header, None)
    header = {"authorization": f"Bearer {made('--operator')}"}
    assert Tokens("operator", Keys.read(doors.operator_keys)).admit(header, None).models is None
    refused = CliRunner().invoke(command_line, ["token", str(path), "--subject", "ann", "--model", "nix"])
    assert refused.exit_code != 0 and "no model 'nix'" in str(refused.exception)
