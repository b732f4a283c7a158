"""The report: complete, self-contained, and marked as the operator's."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from markupsafe import escape

from confide import POP, Plan
from confide.data.rows import Item, Row, Stream
from confide.learners import DecisionTree
from confide.runs import pictures
from confide.runs.advice import next_settings
from confide.runs.page import page
from confide.runs.report import numbers, write_html, write_json
from confide.runs.runner import Outcome, run
from confide.runs.settings import Settings
from confide.runs.style import COLOURS
from confide.runs.tally import Tally
from confide.runs.verdict import taught_of_brought, verdict
from tests.test_runner import easy


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    plan = Plan.tight(7.0, 1e-4, 3000, copies=120, unsure=100, silent=2000, beta=1e-6, guide=None)
    said = {"notes": ("the labels are treated as public",), "public": ("the <i>number</i> of rows",)}
    stream = replace(easy(3000), name="<b>&co</b>", **said)
    settings = Settings("agrawal", "trees(memory=64)", rounds=3000, epsilon=8.0, monitor=1.0)
    done = run(stream, DecisionTree(memory=64), plan, settings)
    done.tally.refused += 1
    done.tally.spoiled(12, "it has <3> fields")
    return done


@pytest.fixture(scope="module")
def guided() -> Outcome:
    return run(easy(6000), None, Plan.tight(8.0, 1e-4, 6000), Settings("agrawal", rounds=6000, epsilon=8.0))


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


def test_a_guides_page_is_whole_and_shows_no_copies(guided: Outcome) -> None:
    text = page(guided)
    read = Page()
    read.feed(text)
    assert read.open == [] and read.fetched == [] and text.count("<svg") == 1
    assert "unsure answers used" not in text and "the guide’s own answers" not in text and "without privacy" in text
    assert text.lower().count("balanced error") == 1  # no number is said twice
    assert escape(guided.pop.plan.explain()) in text and "balanced error" in text and "precision" in text
    private = numbers(guided)["operator_only"]
    assert private["guide_error"] < 0.2 and private["twin"] == guided.twin and len(private["recalls"]) == 2
    assert numbers(guided)["public"]["guide"] == guided.pop.plan.guide.params()  # type: ignore[union-attr]


def test_what_the_guide_learned_from_and_where_epochs_began_are_public_and_shown(guided: Outcome) -> None:
    settings = Settings("agrawal", rounds=6000, epsilon=8.0, seed=1)  # without a seed, chance shows noise now and then
    shares = numbers(run(easy(6000), None, Plan.tight(8.0, 1e-4, 6000), settings))["public"]["importance"]
    assert list(shares) == ["0"] and sum(shares.values()) == pytest.approx(1)  # the other column is noise
    assert "What the guide has learned from" in page(guided) and numbers(guided)["public"]["epochs"] == []
    assert "a new epoch" in pictures.errors(guided.pop.plan, guided.tally, False, [3000, 5000])
    assert "a new epoch" not in page(guided)


def test_words_between_backticks_are_code(guided: Outcome) -> None:
    told = page(replace(guided, heard=("ask `confide schema <file>` first",)))
    assert "ask <code>confide schema &lt;file&gt;</code> first" in told.lower() and "`" not in told


def test_who_answered_adds_up(outcome: Outcome, guided: Outcome) -> None:
    for one in (outcome, guided):
        bar = re.search(r'<div class="bar">(.*?)</div>', page(one))
        assert bar is not None
        widths = [float(width) for width in re.findall(r"width:([\d.]+)%", bar[1])]
        assert sum(widths) == pytest.approx(100, abs=0.1) and len(widths) >= 2


def test_whoever_might_have_answered_is_named_also_at_none(outcome: Outcome, guided: Outcome) -> None:
    found = re.search(r'<section class="coverage">.*?</section>', page(guided), flags=re.DOTALL)
    assert found is not None
    said = re.findall(r'<i class="dot (\w+)"></i>', found[0])
    assert said == ["guide", "fallback"] and "not at all" not in found[0]
    text = page(replace(outcome, tally=replace(outcome.tally, sources={"fallback": [2999, 1500, 0]}, refused=1)))
    assert re.findall(r'<i class="dot (\w+)"></i>', text) == ["copies", "fallback", "refused"]
    assert "<td>0</td><td>0.00%</td><td>–</td>" in text and "not at all" in text


def test_a_run_out_of_budget_says_so_in_red_with_the_next_command(outcome: Outcome) -> None:
    assert not outcome.out_of_budget
    stopped = replace(outcome, tally=replace(outcome.tally, halted_at=2500))
    assert stopped.out_of_budget
    text = page(stopped)
    assert '<section class="halted">' in text and 'class="stopped">finished: the copies were out of budget' in text
    command = re.search(r"To try next:</p><pre>(.*?)</pre>", text)
    assert command is not None and "<span>confide</span> <span>run</span>" in command[1]
    assert re.sub("<[^>]*>", "", command[1]) == escape(next_settings(stopped).command)  # type: ignore[union-attr]


def test_every_colour_follows_the_page_into_the_dark(outcome: Outcome) -> None:
    text = page(outcome)
    used = set(re.findall(r"var\(--(\w+)", text))
    assert used - {"part"} <= set(COLOURS) and "part" in used
    for picture in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL):
        assert not re.findall(r"#[0-9a-f]{6}", re.sub(r"var\(--\w+, #[0-9a-f]{6}\)", "", picture))
    for rule in ("prefers-color-scheme:dark", "@media print", "max-width:560px", "color-scheme:light dark"):
        assert rule in text
    assert "<span>finished</span>" in text


@pytest.mark.parametrize("night", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["ink", "soft", "ours", "limit"])
def test_text_can_be_read_on_its_paper(name: str, night: int) -> None:
    """WCAG's contrast of at least 4.5, for text of any size."""

    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05

    for paper in ("paper", "desk", "blush"):
        bright, faint = sorted((light(COLOURS[name][night]), light(COLOURS[paper][night])), reverse=True)
        assert bright / faint >= 4.5


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
    assert f"{outcome.tally.wrong:,} of 3,000" in text
    assert "Treated as public" in text and "The &lt;i&gt;number&lt;/i&gt; of rows." in text
    assert "1 row could not be read" in text
    assert "may be shown to others" in text


def test_text_from_outside_is_escaped(outcome: Outcome) -> None:
    text = page(outcome)
    assert "<b>&co" not in text and "&lt;b&gt;&amp;co" in text
    assert "it has &lt;3&gt; fields" in text


def test_json_keeps_the_public_apart(outcome: Outcome, tmp_path: Path) -> None:
    write_json(outcome, tmp_path / "r.json")
    read = json.loads((tmp_path / "r.json").read_text())
    assert read == json.loads(json.dumps(numbers(outcome)))
    assert read["operator_only"]["wrong"] == outcome.tally.wrong
    assert not {"error", "wrong", "sources", "margins", "confusion", "bad", "refused", "seconds"} & set(read["public"])
    assert read["settings"] == outcome.settings.to_json() and read["command"] == outcome.settings.command
    assert read["public"]["plan"]["unsure"] == 100


def test_many_labels_are_listed_instead_of_squared(outcome: Outcome) -> None:
    labels = tuple(range(20))
    tally = replace(outcome.tally, labels=20, confusion=[[0] * 21 for _ in labels])
    tally.confusion[3][3], tally.confusion[3][4] = 9, 1
    many = page(replace(outcome, tally=tally, stream=replace(outcome.stream, labels=labels)))
    assert "most often taken for" in many and "most often taken for" not in page(outcome)
    assert "<td>3</td><td>10</td><td>90.00%</td><td>100.00%</td><td>4 (1)</td>" in many


def test_a_run_that_never_went_live_can_be_reported(tmp_path: Path) -> None:
    plan = Plan.tight(8.0, 1e-4, 3000, copies=120, unsure=100, silent=2000, beta=1e-6, guide=None)
    early = run(easy(500), DecisionTree(memory=64), plan)
    write_html(early, tmp_path / "r.html")
    assert numbers(early)["operator_only"]["live_error"] is None
    assert "0 of 100 planned" not in (text := (tmp_path / "r.html").read_text()) and "500 rounds" in text


def test_the_command_repeats_the_settings() -> None:
    assert Settings().command == "confide run visits"
    settings = Settings("my file.csv", "trees(memory=64)", epsilon=0.25, labels=("a", "b c"), strict=True, twin=False)
    said = "confide run 'my file.csv' --learner 'trees(memory=64)' --epsilon 0.25 --labels 'a,b c' --strict --no-twin"
    assert settings.command == said


def test_settings_come_back_from_json_and_others_are_refused() -> None:
    settings = Settings("a.csv", labels=("x", "y"), unit="who", delay=9, monitor=0.5, drop=("a",), guide=False)
    assert "--no-guide" in settings.command and "--drop a" in settings.command
    plain = json.loads(json.dumps(settings.to_json()))
    assert Settings.from_json(plain) == settings
    for version in (1, 2):
        with pytest.raises(ValueError, match=f"version {version}"):
            Settings.from_json({**plain, "version": version})
    with pytest.raises(ValueError, match="unknown entry, 'colour'"):
        Settings.from_json({**plain, "colour": "red"})


def test_a_place_that_cannot_be_written_is_named(outcome: Outcome, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot write"):
        write_html(outcome, tmp_path / "missing" / "r.html")


def lopsided(rows: int, signal: bool = False, people: int = 0) -> Stream:
    """One label in eight is "yes", by chance alone, or as x says."""

    def source(dicts: bool) -> Iterator[Item]:
        rng = np.random.default_rng(1)
        for i, (noise, says) in enumerate(zip(rng.random((rows, 2)), rng.random(rows) < 0.125, strict=True)):
            x = noise + np.array([10 * says if signal else 0, 0])
            unit = f"p{i % people}" if people else None
            yield Row(dict(enumerate(x.tolist())) if dicts else x, "yes" if says else "no", unit)

    return Stream("lopsided", ("yes", "no"), ("0", "1"), 2, source, rows)


def test_a_model_that_is_no_better_than_the_most_frequent_label_says_so() -> None:
    done = run(lopsided(4000), None, Plan.tight(1.0, 1e-6, 4000), Settings("agrawal", rounds=4000))
    kept, tally = numbers(done)["operator_only"], done.tally
    assert 0.1 < kept["frequent_error"] < 0.15 and tally.frequent == 1
    assert abs(kept["late_frequent_error"] - 0.125) < 0.03 and len(kept["recalls"]) == 2
    assert "No better than a constant answer" in kept["verdict"] and "'no'" in kept["verdict"]
    assert escape(kept["verdict"]) in page(done) and "the most frequent label were answered" in page(done)
    assert "Nor is the twin without privacy" in kept["verdict"]  # the twin finds nothing either
    assert "hardly help" not in kept["verdict"] and "--label-weights yes=10" in kept["verdict"]
    alone = replace(done, settings=Settings("agrawal", rounds=4000, twin=False))
    assert "Useless at ε = 1" in verdict(alone) and "larger --epsilon" in verdict(alone)
    assert "--label-weights yes=10" in verdict(alone) and "Without --no-twin this says whether" in verdict(alone)
    assert "--unit-labels" not in verdict(alone)
    misspelt = verdict(replace(done, tally=replace(tally, unlabelled=2000)))
    assert misspelt.startswith("Of 4,000 rows 2,000 have no label, or none of those that are declared ('yes', 'no')")


def test_labels_that_come_too_late_are_to_come_sooner() -> None:
    settings = Settings("agrawal", rounds=3000, twin=False, delay=5000)
    done = run(lopsided(3000), None, Plan.tight(1.0, 1e-6, 3000), settings)
    assert "too late to teach anything: shorten --delay." in verdict(done) and "range" not in verdict(done)


def test_a_model_that_is_better_is_not_called_useless(guided: Outcome) -> None:
    assert verdict(guided) == "" and "No better" not in page(guided)


def test_rare_labels_that_are_found_at_the_price_of_more_mistakes_are_told_apart(guided: Outcome) -> None:
    tally = replace(guided.tally, confusion=[[600, 200, 0], [1200, 4000, 0]], rounds=6000)
    points = {"curve_wrong": [0, 0, 1400], "curve_rounds": [0, 2400, 6000], "curve_frequent": [0, 0, 800]}
    tally = replace(tally, **points, curve_unknown=[0, 0, 0])
    said = verdict(replace(guided, tally=tally))
    assert said.startswith("More often wrong than a constant answer, but it finds the rarer labels")
    tally = replace(tally, curve_wrong=[0, 0, 790])
    assert verdict(replace(guided, tally=tally)).startswith("About as often wrong as a constant answer, but it finds")
    assert "--label-weights" not in verdict(replace(guided, tally=tally))
    weighed = POP(None, guided.pop.plan, labels=["no", "yes"], features=2, label_weights=[1, 10], seed=1)
    said = verdict(replace(guided, tally=tally, pop=weighed))
    assert said.endswith("Smaller --label-weights err less often.")


def test_the_first_rows_decide_no_verdict() -> None:
    done = run(lopsided(150), None, Plan.tight(8.0, 1e-4, 150), Settings("agrawal", rounds=150, twin=False))
    assert verdict(done) == ""


def test_the_report_has_the_notes_that_the_terminal_prints(guided: Outcome) -> None:
    told = replace(guided, heard=("the learner <warned>",))
    assert "The learner &lt;warned&gt;." in page(told)
    assert numbers(told)["operator_only"]["notes"][-1] == "the learner <warned>"
    assert "warned" not in str(numbers(told)["public"])


def test_labels_that_a_cap_kept_from_the_guide_are_shown_to_the_operator_where_there_are_some() -> None:
    plan = Plan.tight(8.0, 1e-4, 3000, units="people", unit_labels=2)
    settings = Settings("agrawal", unit="who", rounds=3000, epsilon=8.0, twin=False)
    capped, free = (run(lopsided(3000, people=some), None, plan, settings) for some in (100, 3000))
    said = taught_of_brought(capped)
    assert "of 3,000 labels: of each person at most 2" in said and said[1:] in page(capped)
    assert said not in str(numbers(capped)["public"])
    learned = free.pop.operator.guide_labels
    assert learned is not None and learned > 2000


class Hopeless:
    """Works when it is tried, and never again."""

    pure = True

    def predict(self, x: object) -> str:
        if np.asarray(x).max() > 1:
            raise RuntimeError("the secret is 42")
        return "no"

    def learn(self, x: object, y: str) -> None:
        return


def test_a_learner_that_fails_all_the_time_is_said_at_the_end() -> None:
    plan = Plan.tight(20.0, 1e-2, 400, copies=40, unsure=100, silent=100, beta=1e-6, guide=None)
    done = run(lopsided(400, signal=True), Hopeless(), plan, Settings("agrawal", rounds=400, twin=False))
    lost = done.pop.operator.failures
    assert lost.raised > 100 and numbers(done)["operator_only"]["failures"] == lost._asdict()
    assert "The learner failed: of" in page(done) and "secret" not in page(done)
    assert "failed" not in str(numbers(done)["public"])


def test_rows_that_the_planned_rounds_left_over_are_said() -> None:
    done = run(easy(3000), None, Plan.tight(8.0, 1e-4, 2000), Settings("agrawal", rounds=2000, twin=False))
    assert done.unasked == 1000 and "1,000 rows were not asked" in page(done)


def test_rows_that_could_not_be_read_are_among_those_without_a_usable_label() -> None:
    tally = Tally(labels=2, block=10, rounds=30, unknown=5, unlabelled=2, wrong=1)
    assert tally.sentence.endswith("5 more have no usable label, unreadable rows among them")
    assert replace(tally, unlabelled=5).sentence.endswith("5 more have no usable label")
