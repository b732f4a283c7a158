"""Advice as a page: plain HTML with its style and its picture inside."""

from __future__ import annotations

from html import escape
from typing import Any

from confide.extras import need
from confide.runs.advising import WARNING, Advice, Tried
from confide.runs.page import command_line
from confide.runs.style import CSS
from confide.runs.tally import LATE, percent

__all__ = ["HEADINGS", "cells", "proposal"]

HEADINGS = ("tried", "copies", "labels each", "unsure", "wrong", "±", f"after {LATE:.0%}", "halts")
"""Of the table of what was tried."""


def cells(one: Tried) -> tuple[str, ...]:
    """A row of the table."""
    plan, run = one.plan, one.run
    name, numbers = one.name if plan is not None else f"{one.name}, not private", ("", "", "")
    if plan is not None and plan.copies:
        name, history = f"{one.name}: {one.learner}", 0 if plan.guide is None else plan.guide.history
        numbers = f"{plan.copies:,}", f"{(plan.rounds + history) / plan.copies:,.0f}", f"{plan.unsure:,}"
    halts = "" if run.halted is None else f"at {run.halted:.0%}"
    return name, *numbers, percent(run.error), percent(one.spread), percent(run.late_error), halts


def proposal(advice: Advice, name: str, command: str) -> str:
    """The page: what is proposed for a stream like the sample of this name, and what it was chosen from."""
    rows = "".join(_row(one, one is advice.chosen) for one in (*advice.table, *advice.changes))
    head = "".join(f"<th>{escape(heading)}</th>" for heading in HEADINGS)
    said = escape("\n".join(advice.explain().splitlines()[1:]))
    body = [
        f"<h1>A plan for a stream like {escape(name)}</h1>",
        f'<p class="sub">{advice.rows:,} rows stood for {advice.asked.rounds:,} rounds</p>',
        f'<section class="promise"><h2>What is proposed, and what to expect</h2><pre>{said}</pre></section>',
        f"<section><h2>As the rounds go on</h2>{_picture(advice)}</section>",
        f"<section><h2>What was tried</h2><table><tr>{head}</tr>{rows}</table></section>",
        f"<section><h2>The plan</h2><pre>{escape(advice.plan.explain())}</pre>"
        f"<pre>{command_line(command)}</pre></section>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Confide: advice for {escape(name)}</title><style>{CSS}</style></head><body>"
        f'<div class="banner"><b>Made from a sample that was said to be public.</b> {escape(WARNING)}</div>'
        f"<main>{''.join(body)}</main></body></html>\n"
    )


def _row(one: Tried, chosen: bool) -> str:
    name, *numbers = cells(one)
    shown = f"<b>{escape(name)}</b>" if chosen else escape(name)
    return f"<tr><td>{shown}</td>{''.join(f'<td>{escape(number)}</td>' for number in numbers)}</tr>"


def _picture(advice: Advice) -> str:
    try:
        plots: Any = need("confide.runs.pictures", "report", "drawing the picture of the advice")
    except ValueError as error:
        return f"<p>{escape(str(error))}</p>"
    alone, free = advice.table[0], advice.free
    lines = [("proposed", "-", advice.chosen.run.curve), ("the guide alone", "--", alone.run.curve)]
    drawn: str = plots.curves([*lines, ("without privacy", "-", free.run.curve)], advice.asked.rounds)
    return drawn

