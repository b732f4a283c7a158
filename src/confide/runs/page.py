"""The report as a page: plain HTML with its style and pictures inside."""

from __future__ import annotations

import math
from html import escape
from typing import Any

from confide.extras import need
from confide.pop.base import SOURCES
from confide.runs.advice import AGAIN, NOTHING, next_settings, what_happened
from confide.runs.hints import hints
from confide.runs.labels import by_label
from confide.runs.runner import Outcome
from confide.runs.style import CSS
from confide.runs.tally import LATE, percent
from confide.runs.verdict import failed, rare, taught_of_brought, verdict

__all__ = ["command_line", "notes_of", "page", "state_of"]

NARROW = 4
"""Labels up to which their table fits beside a picture."""

WHO = {
    "copies": ("copies", "they agreed"),
    "lean": ("lean", "votes and guide together"),
    "guide": ("guide", "the copies were silent, unsure or halted, or there are none"),
    "fallback": ("nobody: the fallback", "it knows nothing private"),
    "refused": ("not at all", "the row could not be read"),
}
"""Who answers, and when."""


def page(outcome: Outcome) -> str:
    """The report as HTML."""
    tally = outcome.tally
    body = [
        f"<h1>Private predictions on {escape(outcome.stream.name)}</h1>",
        f'<p class="sub">{_sub(outcome)}</p>',
        *([_out_of_budget(outcome)] if outcome.out_of_budget else []),
        *_alarms(outcome),
        _coverage(outcome),
        _cards(outcome),
        _section(f"What is promised to each {_unit(outcome)}", _promise(outcome), "promise"),
        *([_public(outcome)] if outcome.stream.public else []),
        *([_notes(outcome)] if notes_of(outcome) or tally.bad or tally.history_bad else []),
        '<div class="two">',
        *_pictures(outcome),
        _section(
            "Answers by right label",
            by_label([str(label) for label in outcome.stream.labels], tally),
            "wide" if len(outcome.stream.labels) > NARROW else "",
        ),
        "</div>",
        _section("The plan, and how to repeat this run", _settings(outcome)),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Confide: {escape(outcome.stream.name)}</title><style>{CSS}</style></head><body>"
        '<div class="banner"><b>Operator’s eyes only: outside the guarantee.</b> '
        "These are exact counts of private data. Do not publish, forward or log them.</div>"
        f"<main>{''.join(body)}</main></body></html>\n"
    )


def _sub(outcome: Outcome) -> str:
    plan = outcome.pop.plan
    who = [plan.rest] if plan.public else []
    if plan.copies:
        who.insert(0, f"{plan.copies:,} copies of {outcome.settings.learner}, {plan.polls:,} asked in a round")
    rounds = f"{outcome.pop.rounds:,} rounds"
    if plan.silent:
        rounds += f", the first {plan.silent:,} silent"
    stopped = ' class="stopped"' if outcome.out_of_budget or outcome.interrupted else ""
    return f"{rounds} · {escape(' and '.join(who))} · <span{stopped}>{escape(state_of(outcome))}</span>"


def _out_of_budget(outcome: Outcome) -> str:
    advised = next_settings(outcome)
    text = f"<p>{escape(what_happened(outcome))}</p>"
    if advised is None:
        text += f"<p>{escape(NOTHING)}</p>"
    else:
        text += f"<p>To try next:</p><pre>{command_line(advised.command)}</pre>"
    return _section("Out of budget", f'{text}<p class="note">{escape(AGAIN)}</p>', "halted")


def _alarms(outcome: Outcome) -> list[str]:
    """What makes a run useless, above all numbers."""
    said = ((verdict(outcome), "What it is worth"), (failed(outcome), "The learner failed"))
    return [_section(title, f"<p>{escape(words)}</p>", "halted") for words, title in said if words]


def notes_of(outcome: Outcome) -> list[str]:
    """What the terminal says before a run and while it goes on."""
    return [*outcome.stream.notes, *hints(outcome.stream, outcome.pop.plan), *outcome.heard]


def _cards(outcome: Outcome) -> str:
    tally, plan = outcome.tally, outcome.pop.plan
    late = f"after the first {LATE:.0%}"
    cards = [
        (percent(tally.error), f"wrong of all answers: {tally.wrong:,} of {_of(outcome)}"),
        (percent(tally.late_error), f"wrong {late}, when most is learned"),
        (percent(tally.late(tally.curve_frequent)), f"wrong {late} if always the most frequent label were answered"),
    ]
    if plan.guide is not None:
        own = f"the guide’s own answers wrong {late}; {percent(tally.guide_error)} of all it had"
        cards.append((percent(tally.late(tally.curve_guide)), own))
    if outcome.settings.twin:
        cards.append((percent(tally.late(tally.curve_twin)), f"wrong {late} without privacy: {outcome.twin}"))
    cards.append((percent(tally.balanced_error), "balanced error: every label as heavy as any other"))
    if (said := rare(outcome)) is not None:
        cards.append(said)
    if plan.copies:
        cards.append((f"{tally.unsure:,}", f"unsure answers used, {plan.unsure:,} planned"))
    cards.append((f"{outcome.rounds_per_second:,.0f}/s", f"rounds a second; {_duration(tally.seconds)} in all"))
    return (
        '<div class="cards">'
        + "".join(
            f'<div class="card"><div class="big">{big}</div><div class="what">{escape(what)}</div></div>'
            for big, what in cards
        )
        + "</div>"
    )


def _of(outcome: Outcome) -> str:
    """How many rounds errors are of."""
    tally = outcome.tally
    return f"{tally.known:,}" + (f" that have a label; {tally.unknown:,} have none" if tally.unknown else "")


def _who(name: str, alone: bool) -> str:
    """Who that is; a part of one's own is called what it calls itself."""
    if alone and name == "guide":
        return 'the model <span class="hint">· taught what came out for labels</span>'
    who, more = WHO.get(name, (escape(name), "a part of your own"))
    return f'{who} <span class="hint">· {more}</span>'


def _coverage(outcome: Outcome) -> str:
    """Who answered which share of the rounds, and how wrongly; whoever might have answered is named, also at none."""
    tally, plan, total = outcome.tally, outcome.pop.plan, max(1, outcome.tally.rounds)
    could = {"copies": plan.copies, "lean": plan.lean, "guide": plan.public, "fallback": True}
    errors = tally.errors()
    answered = [name for name in reversed(SOURCES) if could.get(name, name in tally.sources)]
    parts = [(name, tally.sources.get(name, [0])[0], percent(errors.get(name, math.nan))) for name in answered]
    if tally.refused:
        parts.append(("refused", tally.refused, percent(1.0)))
    bar = "".join(f'<i class="{name}" style="width:{100 * n / total:.3f}%"></i>' for name, n, _ in parts if n)
    rows = "".join(
        f'<tr><td><i class="dot {name}"></i>{_who(name, plan.promise.protect == "labels")}</td>'
        f"<td>{n:,}</td><td>{percent(n / total)}</td><td>{wrong}</td></tr>"
        for name, n, wrong in parts
    )
    table = f"<table><tr><th>answered by</th><th>rounds</th><th>share</th><th>wrong</th></tr>{rows}</table>"
    if said := taught_of_brought(outcome):
        table += f'<p class="note">{escape(said[0].upper() + said[1:])}.</p>'
    return _section("Who answered", f'<div class="bar">{bar}</div>{table}', "coverage")


def _promise(outcome: Outcome) -> str:
    guarantee = outcome.pop.guarantee
    text = f"<p><b>{escape(str(guarantee))}</b></p><p>{escape(guarantee.sentence)}</p>"
    monitor = outcome.pop.monitor
    if monitor is not None and monitor.estimate is not None:
        seen = monitor.estimate
        text += (
            f'<p class="note">Private accuracy monitor, the one number here that may be shown to others: about '
            f"{max(seen.mistakes, 0):,} mistakes {monitor.among(outcome.pop.units)} (within {seen.error:,.0f}, with "
            "probability 0.95).</p>"
        )
    return text


def _public(outcome: Outcome) -> str:
    lines = "".join(f"<li>{escape(line[0].upper() + line[1:])}.</li>" for line in outcome.stream.public)
    more = "Everything else of a row is read by itself."
    if outcome.pop.plan.promise.protect == "labels":
        more = "Nor does it cover anything else of a row but its label."
    return _section(
        "Treated as public",
        f'<ul>{lines}</ul><p class="note">The promise does not cover these: they were read from all rows together, or '
        f"decide when a row is asked. {more}</p>",
    )


def _notes(outcome: Outcome) -> str:
    tally = outcome.tally
    lines = [f"<p>{escape(note[0].upper() + note[1:].removesuffix('.'))}.</p>" for note in notes_of(outcome)]
    kinds = (
        (tally.refused, "could not be read: each took its round, was answered by nobody, and counts as wrong"),
        (tally.unlabelled, "had no usable label: each was asked, taught nothing, and is in no error"),
        (tally.nobodys, "named no unit: nobody’s, so they took no round, and their number is public"),
        (tally.history_bad, "of the history could not be taught"),
    )
    lines += [f"<p>{count:,} row{'s' * (count != 1)} {what}.</p>" for count, what in kinds if count]
    if tally.first_bad:
        shown = "".join(f"<tr><td>{line:,}</td><td>{escape(reason)}</td></tr>" for line, reason in tally.first_bad)
        lines.append(f"<table><tr><th>line</th><th>what was wrong, in the first rows of these</th></tr>{shown}</table>")
    return _section("To know about data and plan", "".join(lines), "warn")


def _pictures(outcome: Outcome) -> list[str]:
    plan, tally = outcome.pop.plan, outcome.tally
    try:
        plots: Any = need("confide.runs.pictures", "report", "drawing the pictures of a report")
    except ValueError as error:
        return [_section("Pictures", f"<p>{escape(str(error))}</p>")]
    drawn = [_section("How wrong, as the rounds went on", plots.errors(plan, tally, outcome.settings.twin))]
    if plan.copies:
        seen = sum(tally.margins.values())
        note = f"A sample of {seen:,} live rounds. Where the curve is high, a lead is too small to answer."
        drawn += [
            _section("Unsure answers against the budget", plots.unsure(plan, tally)),
            _section("Vote margins against the gate", f'{plots.margins(plan, tally)}<p class="note">{note}</p>'),
        ]
    return drawn


def _settings(outcome: Outcome) -> str:
    plan = outcome.pop.plan
    return (
        f"<pre>{escape(plan.explain())}</pre><details><summary>All its numbers</summary>"
        f"<pre>{escape(str(plan))}</pre></details><pre>{command_line(outcome.settings.command)}</pre>"
        '<p class="note">Its randomness is fresh each time, so another run differs in detail.</p>'
    )


def command_line(command: str) -> str:
    """A command that may break between its words, but not inside of one."""
    return " ".join(f"<span>{escape(word)}</span>" for word in command.split(" "))


def _section(title: str, body: str, kind: str = "") -> str:
    return f'<section class="{kind}"><h2>{title}</h2>{body}</section>'


def _unit(outcome: Outcome) -> str:
    return "person" if outcome.pop.units == "people" else "round"


def state_of(outcome: Outcome) -> str:
    """Where the run stands (public)."""
    if outcome.interrupted:
        return "interrupted"
    if not outcome.out_of_budget:
        left = f": the planned rounds are over, and {outcome.unasked:,} rows were not asked" if outcome.unasked else ""
        return f"finished{left}"
    then = "the fallback" if outcome.pop.plan.guide is None else "the guide"
    return f"finished: the copies were out of budget, and {then} answered on"


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60)} s"
