"""Notebook manners: what is shown is escaped, in the notebook's colours, and never more than the reader is told."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import confide
from confide import notebook
from confide.games.bounds import Point
from confide.games.fit import Misfit
from confide.games.report import Report
from confide.notebook import bar, card
from confide.pop.base import Answer
from confide.pop.evaluate import Evaluation

COPIES = confide.Plan.tight(60.0, 1e-2, 400, copies=30, polls=30, unsure=60, silent=0, guide=None)
GUIDED = confide.Plan.tight(4.0, 1e-5, 2000)


class _Reader(HTMLParser):
    """Texts and tags, and whether everything that is opened is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open, self.tags, self.text = list[str](), set[str](), ""
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


def _read(thing: Any) -> _Reader:
    page = thing if isinstance(thing, str) else thing._repr_html_()
    assert "background:#" not in page and "http" not in page and "<style" not in page
    read = _Reader(page)
    assert read.tags <= {"div", "b", "p", "table", "tr", "td", "th"}
    return read


def test_everything_shown_is_escaped() -> None:
    hostile = '<script>alert("x")</script>'
    shown = card(hostile, [(hostile, hostile)], head=(hostile, hostile), alarms=[hostile], notes=[hostile])
    assert "<script" not in shown and _read(shown).text.count(hostile) == 7


def test_an_answer_shows_what_its_asker_is_told_and_no_ticket() -> None:
    pop = confide.POP(None, GUIDED, labels=["<i>no</i>", "yes"], features=1)
    answer = pop.predict([1.0])
    text = _read(answer).text
    assert str(answer.label) in text and "fallback" in text and answer.ticket not in text
    refused = Answer(None, False, "", "x has a NaN: clean it first")
    assert "clean it first" in _read(refused).text and "None" not in _read(refused).text
    for source, said in (("copies", "agreed"), ("lean", "together"), ("guide", "the guide")):
        given: Any = source
        assert said in _read(Answer("yes", source == "copies", "t1", None, given, "no")).text


def test_a_plan_and_its_guarantee_say_in_a_notebook_what_they_print() -> None:
    for plan in (COPIES, GUIDED):
        text = _read(plan).text
        for line in str(plan).splitlines()[1:]:
            assert line.strip(" !·").split("  ")[-1].strip() in text
    assert GUIDED.guarantee.sentence in _read(GUIDED.guarantee).text
    seeded = confide.POP(None, GUIDED, labels=[0, 1], features=1, seed=1).guarantee
    assert "nothing is promised" in _read(seeded).text and "nothing is promised" not in _read(GUIDED.guarantee).text


def _evaluation() -> Evaluation:
    source = np.array([0, 1, 3, 2, -1] * 200)
    answers = np.where(source < 0, -1, np.arange(1000) % 2)
    labels = np.zeros(1000, int)
    guide = np.where(np.arange(1000) < 500, -1, 1)
    return Evaluation(answers, source == 3, np.full(1000, -1), source, guide, labels, 0, 700)


def test_an_evaluation_says_who_answered_how_wrongly_and_that_it_is_the_operators() -> None:
    one = _evaluation()
    text = _read(one).text
    for said in ("60.00% wrong", "the copies agreed", "could not be read", "halted at row 700", "operator"):
        assert said in text
    empty = np.empty(0, dtype=int)
    nothing = Evaluation(empty, empty > 0, empty, empty, empty, empty, 0, None)
    assert "no rounds" in _read(nothing).text and "nan" not in _read(nothing).text
    with pytest.raises(ValueError, match="nothing to draw"):
        nothing.plot()


def _report(**found: Any) -> Report:
    point = Point(0.5, "advantage", (1000, 1000), (100, 400), 0.125, 0.375)
    numbers: dict[str, Any] = {
        "name": "eps8", "adversary": "Worst(<b>)", "games": 1000, "training": 0, "confidence": 0.99, "delta": 1e-6,
        "points": (point,), "gaussian_epsilon": 1.0, "region": None, "certified": (8.0, 1e-6), "law": None,
        "yardstick": None, "alarm": False, **found,
    }  # fmt: skip
    return Report(**numbers)


def test_an_audit_shows_its_bounds_and_alarms() -> None:
    text = _read(_report()).text
    for said in ("measured, at least", "0.2500", "8.0000", "Worst(<b>)", "1,000 games"):
        assert said in text
    assert "ALARM" not in text and "MISFIT" not in text
    assert "ALARM" in _read(_report(alarm=True)).text
    assert "MISFIT" in _read(_report(misfit=Misfit("unsure answers", 0, 3.0, 1000, 500, 0.25))).text


def test_plans_and_evaluations_are_drawn() -> None:
    lean = confide.Plan.tight(60.0, 1e-2, 2000, copies=60, unsure=200, guide=0.3, lean="fill")
    for plan, panels in ((COPIES, 2), (GUIDED, 1), (lean, 3), (confide.Plan.paper(8.0, 1e-3, 1000), 1)):
        drawn = plan.plot()
        assert len(drawn.axes) == panels and drawn._repr_png_().startswith(b"\x89PNG")
    drawn = _evaluation().plot()
    wrong, guide = drawn.axes[0].lines[:2]
    assert np.isclose(np.asarray(wrong.get_ydata(), float).mean(), 0.6, atol=0.02)
    own = np.asarray(guide.get_ydata(), float)
    assert np.isnan(own[:30]).all() and (own[30:] == 1).all()  # it had no answer in the first half
    legend = drawn.axes[1].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["copies", "lean", "guide", "fallback", "refused"]


@pytest.mark.parametrize("what", ["plan", "evaluation"])
def test_a_picture_says_which_extra_it_needs(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("confide.planning.pictures", "confide.pop.pictures", "matplotlib.figure", "matplotlib.axes"):
        monkeypatch.setitem(sys.modules, name, None) if name.startswith("matplotlib") else monkeypatch.delitem(
            sys.modules, name, raising=False
        )
    with pytest.raises(ValueError, match=r"pip install .confide\[report\]."):
        GUIDED.plot() if what == "plan" else _evaluation().plot()


class _Shown:
    """What a notebook was asked to show."""

    def __init__(self) -> None:
        self.looks: list[str] = []
        self.HTML = str

    def display(self, look: str, display_id: bool) -> _Shown:
        assert display_id
        self.looks.append(look)
        return self

    def update(self, look: str) -> None:
        self.looks.append(look)


def _in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> _Shown:
    shown = _Shown()
    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    monkeypatch.setattr(notebook, "OFTEN", -1.0)
    return shown


def test_progress_in_a_notebook_needs_no_widgets(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = _in_a_notebook(monkeypatch)
    pop = confide.POP(None, GUIDED, labels=[0, 1], features=1)
    xs = np.arange(300.0)[:, None]
    confide.evaluate(pop, xs, np.zeros(300, int), progress=True)
    assert 'value="0"' in shown.looks[0] and "300 of 300" in shown.looks[-1]
    with pytest.raises(KeyError), bar("<games>", 10, 4) as advance:
        advance(3)
        raise KeyError
    assert "&lt;games&gt;" in shown.looks[-1] and "7 of 10" in shown.looks[-1]


def test_progress_in_a_terminal_and_by_a_call(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[int] = []
    pop = confide.POP(None, GUIDED, labels=[0, 1], features=1)
    confide.evaluate(pop, np.zeros((30, 1)), np.zeros(30, int), progress=seen.append)
    assert sum(seen) == 30 and capsys.readouterr().out == ""
    confide.evaluate(pop, np.zeros((30, 1)), np.zeros(30, int), progress=True)
    assert "30/30" in capsys.readouterr().out


def test_a_pop_says_where_it_stands_in_plain_words() -> None:
    """Nothing halts a guide alone: after its rounds it answers on, and learns no more."""
    pop = confide.POP(None, confide.Plan.tight(8.0, 1e-4, 200), labels=["<b>", "b"], features=1)
    assert repr(pop).startswith("POP(the guide alone, (") and repr(pop).endswith(", live)")
    pop.predict_many([[1.0]] * 200)
    pop.predict([1.0])
    assert repr(pop).endswith("are over: the guide answers on as it is, and learns no more)")
    assert "NoBank" not in repr(pop)
    text = _read(pop).text
    for said in ("(8, 0.0001)-challenge-DP", "201; planned for 200", "answers on", "none: the guide answers alone"):
        assert said in text, text


def test_a_picture_of_a_plan_says_how_it_is_written() -> None:
    with pytest.raises(RuntimeError, match=r"savefig"):
        GUIDED.plot().show()


def test_a_picture_counts_a_guides_noise_once() -> None:
    """Its end is what the plan says of its strength, however many labels a person may bring."""
    plan = confide.Plan.tight(4.0, 1e-6, 20_000, units="people", unit_labels=4)
    assert plan.guide is not None
    end = float(np.asarray(plan.plot().axes[0].lines[0].get_ydata(), float)[-1])
    assert end == pytest.approx(plan.guide.strength, rel=0.3)
