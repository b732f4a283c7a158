"""The worked example: one command, a page, and a model that learns from thumbs."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from confide.service.doors import Keys, Tokens
from tests.service.chromium import MISSING, Chromium, found

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "support_bot"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    sys.path.insert(0, str(FOLDER))
    yield load("run")
    sys.path.remove(str(FOLDER))
    for name in ("run", "questions"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def running(example: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int, Tokens]]:
    folder = tmp_path_factory.mktemp("bot")
    with example.bot(folder) as (address, public, _):
        yield address, public, Tokens("asker", Keys.make(folder / "keys" / "askers"))


def post(url: str, content: Any, token: str = "") -> dict[str, Any]:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, json.dumps(content).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        told: dict[str, Any] = json.load(response)
        return told


def test_made_up_people_ask_and_say_what_helped(example: ModuleType, running: tuple[str, int, Tokens]) -> None:
    address, public, tokens = running
    told: list[tuple[int, float]] = []
    example.crowd(public, tokens, 10, lambda people, share: told.append((people, share)))
    assert [people for people, _ in told] == [10] and 0 <= told[0][1] <= 1
    with urllib.request.urlopen(f"{address}models/{example.MODEL}", timeout=60) as response:
        shown = json.load(response)
    assert shown["rounds"] == 40 and shown["units"] == "people" and shown["labels"] == list(example.ANSWERS)


def test_a_visitor_is_somebody_new_who_asks_by_the_page(running: tuple[str, int, Tokens]) -> None:
    address, _, _ = running
    ann, bob = (post(f"{address}visit", {})["token"] for _ in range(2))
    assert ann != bob
    answer = post(f"{address}models/answers/ask", {"x": {"words": "where is my parcel"}, "id": "1"}, ann)
    again = post(f"{address}models/answers/ask", {"x": {"words": "where is my parcel"}, "id": "1"}, ann)
    assert again["again"] and again["label"] == answer["label"]
    with pytest.raises(urllib.error.HTTPError, match="404"):
        post(f"{address}models/answers/label", {"ticket": answer["ticket"], "label": "parcel"}, bob)
    taken = post(f"{address}models/answers/label", {"ticket": answer["ticket"], "label": "parcel"}, ann)
    assert taken == {"taken": True}
    with pytest.raises(urllib.error.HTTPError, match="404"):
        post(f"{address}models/answers/forget", {"subject": "x"}, ann)


def test_questions_have_answers_and_are_the_same_every_time(example: ModuleType) -> None:
    made = [example.question(random.Random(seed)) for seed in range(200)]
    assert {name for _, name in made} == set(example.ANSWERS)
    assert made == [example.question(random.Random(seed)) for seed in range(200)]


@pytest.mark.skipif(found() is None, reason=MISSING)
def test_a_thumb_down_and_what_would_have_helped_in_a_browser(running: tuple[str, int, Tokens], tmp_path: Path) -> None:
    with Chromium() as browser:
        browser.screen(390, 800, phone=True)
        browser.open(running[0])
        browser.wait("document.body?.dataset.ready")
        browser.run("document.querySelector('#words').focus()")
        browser.type("there is a crack in the lamp")
        browser.press("Enter")
        browser.wait("document.querySelector('[aria-label=\"This did not help\"]')")
        browser.run("document.querySelector('[aria-label=\"This did not help\"]').focus()")
        browser.press("Enter")
        browser.wait("document.activeElement.closest('fieldset')")
        browser.press("Enter")
        browser.wait("document.querySelector('.thanks').textContent.startsWith('Thank you')")
        assert "factor of" in browser.run("document.querySelector('#promise').textContent")
        assert browser.run("document.documentElement.scrollWidth") <= 390
        assert browser.console == [] and all(one.startswith(running[0]) or one == "data:," for one in browser.requests)
        browser.picture(tmp_path / "bot.png")
