"""The dashboard in a real browser: what it shows, where, to whom; by keyboard, on a phone, in the dark."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import httpx
import pytest

from confide import Plan
from confide.games import OnlineGame, audit
from confide.service.app import Service
from confide.service.dashboard.audits import AuditRunning, Audits
from confide.service.dashboard.fresh import FreshPOP, OneUnit, audit_fresh
from confide.service.operators import operator_app
from confide.service.past import EVERY, Past
from tests.service.browsed import COPIES, made, served
from tests.service.chromium import MISSING, Chromium, found
from tests.service.desks import MemoryDesk, operator, service, token

STATIC = files("confide.service.dashboard") / "static"
browser_only = pytest.mark.skipif(found() is None, reason=MISSING)
TOKEN = operator()["authorization"].removeprefix("Bearer ")


def get(path: str, headers: dict[str, str] | None = None) -> httpx.Response:
    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(operator_app(service(MemoryDesk())))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.get(path, headers=headers or {})

    return asyncio.run(go())


# ---------------------------------------------------------------------- the files


def test_the_page_is_for_everybody_and_holds_nothing() -> None:
    page = get("/")
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    for name in ("app.js", "style.css", "icon.svg"):
        told = get(f"/dashboard/{name}")
        assert told.status_code == 200 and told.headers["content-security-policy"] == policy
        assert told.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name", ["nothing.js", "__init__.py", "../fresh.py", "..%2f__init__.py", "%2e%2e/audits.py"])
def test_no_other_file_is_served(name: str) -> None:
    assert get(f"/dashboard/{name}").status_code == 404


def test_the_pages_name_no_other_host_and_no_inline_script() -> None:
    for file in STATIC.iterdir():
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text and "https:" not in text and "//" not in text.replace("// ", ""), file.name
        assert "innerHTML =" not in text and "eval(" not in text and 'setAttribute("style"' not in text
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert "style=" not in page and "onclick" not in page and page.count("<script") == 1


# ---------------------------------------------------------------------- what is remembered


def test_who_did_what_is_told_to_operators_of_that_model_and_never_about_whom() -> None:
    async def go() -> list[Any]:
        house = service(MemoryDesk(), MemoryDesk("other"))
        transport = httpx.ASGITransport(operator_app(house))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            await client.post("/models/spam/forget", json={"subject": "canary"}, headers=operator())
            await client.post("/models/spam/drain", json={"on": False}, headers=token())  # is not let in
            await client.get("/models/spam", headers=operator())
            told = [await client.get(f"/models/{name}", headers=operator()) for name in ("spam", "other")]
            assert "canary" not in told[0].text
            return [one.json()["service"]["deeds"] for one in told]

    here, there = asyncio.run(go())
    assert [(one["operator"], one["operation"]) for one in here] == [("tokens:op", "forget")] and there == []


def test_a_long_past_has_few_moments_farther_apart() -> None:
    seconds = itertools.count(0, EVERY)
    past = Past(clock=lambda: float(next(seconds)))
    for rounds in range(3000):
        past.note({"rounds": rounds, "monitor": {"mistakes": 7}}, {"labels": 1})
    times = [one["time"] or 0.0 for one in past.moments]
    assert 128 <= len(times) <= 256 and times[0] == 0.0 and times[-1] > 2900 * EVERY
    assert past.moments[-1]["mistakes"] == 7 and min(b - a for a, b in itertools.pairwise(times)) >= 16 * EVERY


# ---------------------------------------------------------------------- audits


def test_an_audit_needs_an_operator_and_a_number() -> None:
    async def go() -> list[tuple[int, Any]]:
        transport = httpx.ASGITransport(operator_app(service(MemoryDesk())))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            at, mine = "/models/spam/audit", operator()
            told = [
                await client.get(at), await client.get(at, headers=token()), await client.post(at, json={"games": 20}),
                await client.post(f"{at}/stop"), await client.post(at, json={"games": 3}, headers=mine),
                await client.get("/models/nix/audit", headers=mine), await client.get(at, headers=mine),
            ]  # fmt: skip
            return [(one.status_code, one.json()) for one in told]

    told = asyncio.run(go())
    assert [status for status, _ in told] == [401, 403, 401, 401, 422, 404, 200]
    assert told[-1][1] == {"audit": None}


def test_one_audit_at_a_time_and_it_can_be_stopped() -> None:
    audits = Audits()
    audits.start("spam", COPIES, "people", 100_000)
    try:
        with pytest.raises(AuditRunning):
            audits.start("other", COPIES, "people", 20)
        seen = audits.look("spam")
        assert seen is not None and seen["state"] == "running" and audits.look("other") is None
    finally:
        audits.stop("spam")
    seen = audits.look("spam")
    assert seen is not None and seen["state"] == "stopped" and seen["report"] is None


def test_an_audit_that_cannot_run_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    audits = Audits()
    audits.start("spam", COPIES, "people", 20)
    end = time.monotonic() + 60
    while (seen := audits.look("spam")) is not None and seen["state"] == "running" and time.monotonic() < end:
        time.sleep(0.01)
    assert seen is not None and seen["state"] == "failed"


def test_the_attack_on_a_guide_tells_little_noise_from_enough() -> None:
    plan = Plan.tight(2.0, 1e-6, 600, units="people", unit_labels=2)
    assert plan.guide is not None and not plan.copies
    less = replace(plan.guide, sigma2=plan.guide.sigma2 // 2500)
    other = plan.but(guide=less, guarantee=replace(plan.guarantee, epsilon=less.epsilon(1e-6)))
    attack = OneUnit(plan)
    report = audit(FreshPOP(plan), attack, games=40, certificate=plan)
    assert not report.alarm  # by mistake with probability 1e-6
    game = OnlineGame(FreshPOP(other), attack, attack.rounds)
    zero, one = ([attack.score(game.play(bit)) for _ in range(8)] for bit in (0, 1))
    assert max(zero) < min(one)  # each is six deviations or more from the middle


def test_what_a_plan_has_is_what_is_attacked() -> None:
    played = list[int]()
    plan = Plan.tight(8, 1e-6, 160, copies=160, polls=160, unsure=20, silent=0, guide=None)
    report = audit_fresh(plan, 20, played.append)
    assert played == list(range(1, 41)) and "WorstMargin" in report.adversary and report.law is not None
    assert not report.alarm and report.misfit is None  # each by mistake with probability 1e-6


# ---------------------------------------------------------------------- in the browser


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    made_ = made(tmp_path_factory.mktemp("models"))
    yield made_
    for model in made_.models.values():
        model.owner.close()


@pytest.fixture(scope="module")
def url(house: Service) -> Iterator[str]:
    with served(operator_app(house)) as at:
        yield at


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    with Chromium() as browser:
        yield browser


@pytest.fixture
def page(chromium: Chromium, url: str) -> Iterator[Chromium]:
    """Signed in, at a model; afterwards nothing was said on the console, and nothing was asked of another host."""
    chromium.console.clear()
    chromium.requests.clear()
    chromium.screen(1280, 900)
    chromium.open(f"{url}/")
    chromium.wait("document.querySelector('#token')")
    chromium.run(f"sessionStorage.setItem('confide-operator', {json.dumps(TOKEN)})")
    at(chromium, url, "#/spam")
    yield chromium
    chromium.run("sessionStorage.clear()")
    assert chromium.console == []
    assert chromium.requests and all(one.startswith(url) and TOKEN not in one for one in chromium.requests)


def at(browser: Chromium, url: str, hash_: str) -> None:
    browser.open("about:blank")
    browser.open(f"{url}/{hash_}")
    browser.wait("document.body?.dataset.ready >= 1")


def folder(tmp_path: Path) -> Path:
    """Where pictures go: CONFIDE_PICTURES names a place to keep them, for people to look at."""
    kept = Path(os.environ.get("CONFIDE_PICTURES", tmp_path))
    kept.mkdir(parents=True, exist_ok=True)
    return kept


def inside(page: Chromium, part: str) -> str:
    return str(page.run(f"document.querySelector('.part.{part}').innerText"))


@browser_only
def test_signing_in_by_keyboard(chromium: Chromium, url: str) -> None:
    chromium.console.clear()
    chromium.run("sessionStorage.clear()") if chromium.run("location.origin") == url else None
    chromium.open(f"{url}/")
    chromium.wait("document.activeElement?.id === 'token'")
    chromium.type("confide-operator.nonsense.x")
    chromium.press("Enter")
    chromium.wait("document.querySelector('.alarm')")
    assert "not a token" in chromium.text()
    assert chromium.run("sessionStorage.length") == 0, "a token that was refused is not kept"
    chromium.wait("document.activeElement?.id === 'token'")
    chromium.type(TOKEN)
    chromium.press("Enter")
    chromium.wait("document.querySelectorAll('.cards li').length === 2")
    assert chromium.run("location.href") == f"{url}/" and chromium.run("document.cookie") == ""
    chromium.run("document.querySelector('#leave').focus()")
    chromium.press("Enter")
    chromium.wait("document.querySelector('#token')")
    assert chromium.run("sessionStorage.length + localStorage.length") == 0
    assert len(chromium.console) == 2 and all("401" in one for one in chromium.console)  # the refusals, and no more


@browser_only
def test_what_may_be_shown_is_apart_from_what_may_not(page: Chromium) -> None:
    shown, eyes = inside(page, "shown"), inside(page, "eyes")
    for words in ("The promise", "ε = 41, δ = 0.001", "1,510 of 3,000", "first 8 answers to each person", "Insecure"):
        assert words in shown, words
    private = ("Budget spent", "planned unsure", "Who answered", "labels that came", "Latency", "Open tickets")
    for words in (*private, "Over time"):
        assert words in eyes and words not in shown, words
    assert page.run("document.querySelectorAll('.part.eyes svg[role=img][aria-label]').length") == 4
    assert page.run("document.querySelectorAll('.part.shown svg').length") == 0
    rows = page.run("document.querySelector('[aria-label=\"Latency, in numbers\"] table').innerText")
    assert "ask" in rows and "label" in rows and "ms" in rows and "audit" not in rows


@browser_only
def test_a_model_without_copies_says_so(page: Chromium, url: str) -> None:
    at(page, url, "#/queue")
    assert "This plan has no copies" in inside(page, "eyes")
    assert "What it has learned from" in inside(page, "shown")
    at(page, url, "#/nix")
    assert "There is no such model" in page.text()


@browser_only
def test_a_person_is_looked_up_and_forgotten_by_keyboard(page: Chromium) -> None:
    page.run("document.querySelector('#subject').focus()")
    page.type("person 3")
    page.press("Enter")
    page.wait("document.body.innerText.includes('rounds that are remembered')")
    page.wait("document.body.innerText.includes('looked a person up')")
    assert "person 3" not in page.run("document.querySelector('[aria-label=\"Who did what\"]').innerText")
    assert "10" in page.run("document.querySelector('#subject').closest('.panel').querySelector('dd').innerText")
    for escape in (True, False):
        page.run("document.querySelector('#subject').closest('.panel').querySelector('.danger').focus()")
        page.press("Enter")
        page.wait(AT_HAND)
        assert "person 3" in page.text()
        if escape:
            page.press("Escape")
            page.wait("!document.querySelector('dialog')")
            assert page.run("document.querySelector('#subject').value") == "person 3"
        else:
            page.press("Tab", shift=True)
            page.press("Enter")
            page.wait("document.querySelector('#notice').textContent === 'Forgotten.'")
    page.run("document.querySelector('#subject').focus()")
    page.type("person 3")
    page.press("Enter")
    page.wait("document.querySelector('#subject').closest('.panel').querySelector('dd')?.innerText === '0'")


@browser_only
def test_drained_and_taken_up_again(page: Chromium, house: Service) -> None:
    button = "[...document.querySelectorAll('button')].find((one) => one.textContent.includes('questions'))"
    owner = house.models["spam"].owner
    page.run(f"{button}.focus()")
    page.press("Enter")
    page.wait(AT_HAND)
    page.press("Tab", shift=True)
    page.press("Enter")
    page.wait("document.body.innerText.includes('This model takes no questions now')")
    assert owner.draining
    page.run(f"{button}.focus()")
    page.press(" ")
    page.wait("!document.body.innerText.includes('This model takes no questions now')")
    assert not owner.draining


@browser_only
def test_everything_is_reached_by_tab_and_seen_when_it_is(page: Chromium) -> None:
    wanted = page.run("document.querySelectorAll('a, button:not([hidden]), input, summary').length")
    page.run("(window.seen = new Set(), window.bare = [], document.activeElement.blur())")
    for _ in range(60):
        page.press("Tab")
        page.run(
            "(() => { const one = document.activeElement; if (one === document.body) return; window.seen.add(one);"
            " const style = getComputedStyle(one);"
            " if (style.outlineStyle === 'none' || parseFloat(style.outlineWidth) < 2) window.bare.push(one.outerHTML);"
            " })()"
        )
    reached = page.run(
        "[...document.querySelectorAll('a, button, input, summary')].filter((one) => one.checkVisibility() &&"
        " !window.seen.has(one)).map((one) => one.outerHTML)"
    )
    assert wanted > 10 and reached == [] and page.run("window.bare") == []
    unnamed = page.run(
        "[...document.querySelectorAll('input')].filter((one) => !one.labels.length).length +"
        " [...document.querySelectorAll('a, button')].filter((one) => !one.textContent.trim()).length"
    )
    landmarks = [page.run(f"document.querySelectorAll('{one}').length") for one in ("header", "nav", "main", "footer")]
    assert unnamed == 0 and landmarks == [1, 1, 1, 1] and page.run("document.querySelectorAll('h1').length") == 1


AT_HAND = "document.querySelector('dialog[open]') && document.activeElement.textContent === 'Leave it'"
"""In a dialog what cannot be undone is not what a key does first."""

CONTRAST = """
(() => {
  const level = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * level(r) + 0.7152 * level(g) + 0.0722 * level(b);
  const colour = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return n.length > 3 && !n[3] ? null : n; };
  const behind = (one) => { for (; one; one = one.parentElement) {
    const found = colour(getComputedStyle(one).backgroundColor); if (found) return found; } return [255, 255, 255]; };
  const faint = [];
  for (const one of document.querySelectorAll('body *')) {
    const own = [...one.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || !one.checkVisibility() || one.closest('svg, .skip')) continue;
    const [a, b] = [light(colour(getComputedStyle(one).color)), light(behind(one))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) faint.push(one.outerHTML.slice(0, 90));
  }
  return faint;
})()
"""


@browser_only
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 360])
def test_read_on_a_phone_and_in_the_dark(page: Chromium, url: str, tmp_path: Path, dark: bool, width: int) -> None:
    page.screen(width, 800, dark=dark, phone=width < 500)
    at(page, url, "#/spam")
    page.wait(f"document.documentElement.clientWidth === {width}")
    page.run("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")
    assert page.run("document.documentElement.scrollWidth") <= width, "nothing is wider than the screen"
    assert page.run(CONTRAST) == []
    assert page.run("[...document.querySelectorAll('svg.chart')].every((one) => one.clientWidth > 200)")
    picture = page.picture(folder(tmp_path) / f"dashboard-{width}-{'dark' if dark else 'light'}.png")
    assert picture.startswith(b"\x89PNG") and len(picture) > 20_000


@browser_only
def test_an_audit_of_a_fresh_pop_reports_and_leaves_the_model_alone(page: Chromium, url: str, house: Service) -> None:
    at(page, url, "#/queue")
    public = house.models["queue"].owner
    before = json.dumps(asyncio.run(_public(public)), default=str)
    page.run("document.querySelector('#games').value = 20; document.querySelector('#games').focus()")
    page.press("Enter")
    page.wait("document.querySelector('progress:not([hidden])')")
    page.wait("document.body.innerText.includes('No measured point lies above the certificate')")
    assert "leaks at least" in inside(page, "shown") and "ALARM" not in page.text()
    assert json.dumps(asyncio.run(_public(public)), default=str) == before


async def _public(owner: Any) -> Any:
    return await owner.call(lambda desk: desk.public())
