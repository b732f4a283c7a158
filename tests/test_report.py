"""The report: complete, self-contained, and marked as the operator's."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from confide import Plan
from confide.data.rows import Item, Row, Stream
from confide.learners import DecisionTree
from confide.runs.page import page
from confide.runs.report import numbers, write_html, write_json
from confide.runs.runner import Outcome, run
from confide.runs.settings import Settings


def easy(rows: int, seed: int = 0) -> Stream:
    """Two clusters that any copy tells apart after a few records; no two rows are the same."""

    def source(dicts: bool) -> Iterator[Item]:
        rng = np.random.default_rng(seed)
        for y, noise in zip(rng.integers(0, 2, rows).tolist(), rng.random((rows, 2)), strict=True):
            x = np.array([10 * y, 0]) + noise
            yield Row(dict(enumerate(x.tolist())) if dicts else x, y)

    return Stream("easy", (0, 1), (0, 1), 2, source, rows)


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    plan = Plan.tight(7.0, 1e-4, 3000, copies=120, unsure=100, silent=2000, beta=1e-6, guide=None)
    stream = replace(easy(3000), name="<b>&co</b>", notes=("the labels are treated as public",))
    settings = Settings("agrawal", "trees(memory=64)", rounds=3000, epsilon=8.0, monitor=1.0)
    done = run(stream, DecisionTree(memory=64), plan, settings)
    done.tally.refused += 1
    done.tally.spoiled(12, "it has <3> fields")
    return done


class Page(HTMLParser):
    """Checks that tags close, and collects what the page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self.fetched += [
            f"{tag} {name}={value}"
            for name, value in attrs
            if name in ("src", "href", "xlink:href") and not (value or "").startswith("#")
        ]
        if tag in ("script", "link", "img", "iframe"):
            self.fetched.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in ("meta", "br"):
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_fetches_nothing(outcome: Outcome) -> None:
    text = page(outcome)
    read = Page()
    read.feed(text)
    assert read.open == [] and read.fetched == []
    assert not re.findall(r"@import|url\((?!#)", text)
    assert text.count("<svg") == 3


def test_ids_in_the_pictures_do_not_meet(outcome: Outcome) -> None:
    pictures = re.findall(r"<svg.*?</svg>", page(outcome), flags=re.DOTALL)
    used = [set(re.findall(r"url\(#([^)]+)\)", picture)) for picture in pictures]
    defined = [set(re.findall(r'<clipPath id="([^"]+)"', picture)) for picture in pictures]
    assert all(u <= d for u, d in zip(used, defined, strict=True))
    assert len(set.union(*defined)) == sum(map(len, defined))


def test_the_page_says_what_it_must(outcome: Outcome) -> None:
    text = page(outcome)
    assert text.index("Operator’s eyes only: outside the guarantee") < text.index("<main>")
    guarantee = outcome.pop.guarantee
    assert guarantee.sentence in text and f"{guarantee.epsilon:.4g}" in text
    assert f"{outcome.tally.mistakes:,} of 1,000 live rounds" in text
    assert "treated as public" in text and "1 row could not be read" in text
    assert "may be shown to others" in text


def test_text_from_outside_is_escaped(outcome: Outcome) -> None:
    text = page(outcome)
    assert "<b>&co" not in text and "&lt;b&gt;&amp;co" in text
    assert "it has &lt;3&gt; fields" in text


def test_json_keeps_the_public_apart(outcome: Outcome, tmp_path: Path) -> None:
    write_json(outcome, tmp_path / "r.json")
    read = json.loads((tmp_path / "r.json").read_text())
    assert read == json.loads(json.dumps(numbers(outcome)))
    assert read["operator_only"]["mistakes"] == outcome.tally.mistakes
    assert not {"error", "mistakes", "margins", "confusion", "bad", "refused", "seconds"} & set(read["public"])
    assert read["settings"] == outcome.settings.to_json() and read["command"] == outcome.settings.command
    assert read["public"]["plan"]["unsure"] == 100


def test_many_labels_are_listed_instead_of_squared(outcome: Outcome) -> None:
    labels = tuple(range(20))
    tally = replace(outcome.tally, labels=20, confusion=[[0] * 21 for _ in labels])
    tally.confusion[3][3], tally.confusion[3][4] = 9, 1
    many = page(replace(outcome, tally=tally, stream=replace(outcome.stream, labels=labels)))
    assert "most often taken for" in many and "most often taken for" not in page(outcome)
    assert "<td>3</td><td>10</td><td>90.00%</td><td>0</td><td>4 (1)</td>" in many


def test_a_run_that_never_went_live_can_be_reported(tmp_path: Path) -> None:
    plan = Plan.tight(8.0, 1e-4, 3000, copies=120, unsure=100, silent=2000, beta=1e-6, guide=None)
    early = run(easy(500), DecisionTree(memory=64), plan)
    write_html(early, tmp_path / "r.html")
    assert numbers(early)["operator_only"]["error"] is None
    assert "–" in (tmp_path / "r.html").read_text()


def test_the_command_repeats_the_settings() -> None:
    assert Settings().command == "confide run agrawal"
    settings = Settings("my file.csv", "trees(memory=64)", epsilon=0.25, labels=("a", "b c"), strict=True, twin=False)
    said = "confide run 'my file.csv' --learner 'trees(memory=64)' --epsilon 0.25 --labels 'a,b c' --strict --no-twin"
    assert settings.command == said


def test_settings_come_back_from_json_and_others_are_refused() -> None:
    settings = Settings("a.csv", epsilon=2.0, labels=("x", "y"), unit="who", delay=9, monitor=0.5)
    plain = json.loads(json.dumps(settings.to_json()))
    assert Settings.from_json(plain) == settings
    with pytest.raises(ValueError, match="version 1"):
        Settings.from_json({**plain, "version": 1})
    with pytest.raises(ValueError, match="unknown entry, 'colour'"):
        Settings.from_json({**plain, "colour": "red"})


def test_a_place_that_cannot_be_written_is_named(outcome: Outcome, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot write"):
        write_html(outcome, tmp_path / "missing" / "r.html")
