"""The pandas loop of docs/ten-minutes.md on rows that cannot be read, and labels that come after a warm-up."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pandas
import pytest

import confide
from confide.learners import Features

ROWS = [{"age": 40 + i, "shop": "a"} for i in range(20)]
MESSY = [*ROWS[:5], {"age": "unknown"}, *ROWS[5:], {"age": [3]}]
REASON = "feature 'age' must be a number, or None where it is missing"


def made() -> confide.Private:
    features = Features(numeric={"age": (0, 120)}, categorical={"shop": 8})
    return confide.Private(labels=["no", "yes"], epsilon=4.0, features=features)


def heard(call: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(one.message) for one in caught if issubclass(one.category, confide.ConfideWarning)]


def test_who_asks_many_hears_how_many_were_refused_and_why_the_first_was() -> None:
    model = made()
    said = heard(lambda: model.predict_many(MESSY))
    assert said == [
        f"2 of 22 questions of this call were refused, and have neither answer nor ticket; of the first: {REASON}; "
        "each answer's error has its own reason"
    ]
    assert len(heard(lambda: model.predict_many(MESSY))) == 1, "in every call: it is the caller's own"
    assert heard(lambda: model.predict_many(ROWS)) == []


def test_the_loop_of_the_docs_goes_on_over_a_messy_row() -> None:
    model = made()
    with pytest.warns(confide.ConfideWarning, match="were refused"):
        answers = model.predict_many(MESSY)
    assert [i for i, answer in enumerate(answers) if not answer.ticket] == [5, 21]
    model.learn_many([answer.ticket for answer in answers], ["yes"] * 22)
    with pytest.raises(confide.TicketError, match=r"^row 0 was refused.*used.*; so were 19 more rows$"):
        model.learn_many([answer.ticket for answer in answers], ["yes"] * 22)
    with pytest.warns(confide.ConfideWarning, match="were refused"):
        answers = model.predict_many(MESSY)
    tickets: list[Any] = [answer.ticket or None for answer in answers]
    tickets[3] = "1-2-made up"
    with pytest.raises(confide.TicketError, match=r"^row 3 was refused, .* learned: this ticket was"):
        model.learn_many(tickets, ["yes"] * 22)
    with pytest.raises(confide.TicketError, match=r"^row 7 was refused.*; so were 1 more rows$"):
        model.learn_many(["", *tickets[5:6] * 6, "x", "y"], ["yes"] * 9)


@pytest.mark.parametrize("ticket", ["", None])
def test_a_label_of_a_refused_question_is_said_to_have_no_ticket(ticket: Any) -> None:
    with pytest.raises(confide.TicketError, match="this question was refused, and the error of its answer says why"):
        made().learn(ticket, "yes")


@pytest.mark.parametrize("of", [lambda table: table.iloc[0], lambda table: table[:1]], ids=["Series", "frame"])
def test_a_row_of_pandas_is_refused_with_the_way_to_make_it_a_dict(of: Callable[[Any], Any]) -> None:
    table = pandas.DataFrame(ROWS)
    with pytest.raises(ValueError, match=r"x must be a dict of features, as declared; of a pandas row: x\.to_dict\(\)"):
        made().predict(of(table))
    assert made().predict(table.iloc[0].to_dict()).label in ("no", "yes")


def test_a_label_that_comes_after_the_warm_up_is_told_of_the_warm_up_and_of_no_promised_rounds() -> None:
    model = made()
    guide = model.plan.guide
    assert guide is not None and guide.range_rounds and model.plan.endless
    answers = model.predict_many([{"age": i % 90, "shop": "a"} for i in range(guide.range_rounds + 20)])
    (said,) = heard(lambda: model.learn_many([one.ticket for one in answers], ["yes"] * len(answers)))
    assert said == (
        f"{guide.range_rounds:,} of {len(answers):,} labels of this call came too late to teach anything: ranges are "
        f"found in the first {guide.range_rounds:,} rounds, and a label of these teaches while they last; ask and "
        "teach so many rows in batches of some tens"
    )


def test_who_asks_all_at_once_of_a_model_without_an_end_is_not_told_to_plan_more_rounds() -> None:
    model = made()
    (said,) = heard(lambda: model.predict_many([{"age": i % 90} for i in range(4000)]))
    assert said.startswith("4,000 rounds were asked in one call") and "plan for more rounds" not in said
