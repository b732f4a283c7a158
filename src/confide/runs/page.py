"""The report and the advice as pages: plain HTML with its style and pictures inside, from the templates in pages/."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from confide.extras import need
from confide.pop.base import SOURCES
from confide.runs import advice as advised
from confide.runs.advising import WARNING, Advice, Tried
from confide.runs.hints import hints
from confide.runs.runner import Outcome
from confide.runs.style import COLOURS, said
from confide.runs.tally import LATE, percent
from confide.runs.verdict import failed, rare, state_of, taught_of_brought
from confide.runs.worth import worth

WIDEST = 12
"""Labels up to which the answers are shown as a square."""

HEADINGS = ("tried", "copies", "labels each", "unsure", "wrong", "±", f"after {LATE:.0%}", "halts")
"""Of the table of what advice has tried."""

_PAGES = Environment(
    loader=PackageLoader("confide.runs", "pages"),
    autoescape=True,
    trim_blocks=True,
    keep_trailing_newline=True,
    undefined=StrictUndefined,
)
_PAGES.globals["colours"] = COLOURS
_PAGES.filters |= {
    "count": "{:,}".format,
    "percent": percent,
    "said": said,
    "sentence": lambda said: f"{said[0].upper()}{said[1:].removesuffix('.')}.",
}


def page(outcome: Outcome) -> str:
    """The report as HTML."""
    known = {"outcome": outcome, "pop": outcome.pop, "tally": outcome.tally, "sub": _sub(outcome)}
    if outcome.out_of_budget:
        known |= {"happened": advised.what_happened(outcome), "advised": advised.next_settings(outcome)}
    return _PAGES.get_template("report.html").render(
        **known,
        state=state_of(outcome),
        nothing=advised.NOTHING,
        again=advised.AGAIN,
        alarms=((worth(outcome), "What it is worth"), (failed(outcome), "The learner failed")),
        answered=_answered(outcome),
        total=max(1, outcome.tally.rounds),
        taught=taught_of_brought(outcome),
        cards=_cards(outcome),
        notes=notes_of(outcome),
        pictures=_pictures(outcome),
        labels=_by_label(outcome),
        learned={} if (guide := outcome.pop.guide) is None else guide.importance(),
        widest=WIDEST,
    )


def _sub(outcome: Outcome) -> str:
    plan = outcome.pop.plan
    who = [plan.rest] if plan.public else []
    if plan.copies:
        who.insert(0, f"{plan.copies:,} copies of {outcome.settings.learner}, {plan.polls:,} asked in a round")
    silent = f", the first {plan.silent:,} silent" if plan.silent else ""
    return f"{outcome.pop.rounds:,} rounds{silent} · {' and '.join(who)}"


def notes_of(outcome: Outcome) -> list[str]:
    """What the terminal says before a run and while it goes on."""
    return [*outcome.stream.notes, *hints(outcome.stream, outcome.pop.plan), *outcome.heard]


def _cards(outcome: Outcome) -> list[tuple[str, str]]:
    tally, plan = outcome.tally, outcome.pop.plan
    late = f"after the first {LATE:.0%}"
    known = f"{tally.known:,}" + (f" that have a label; {tally.unknown:,} have none" if tally.unknown else "")
    cards = [
        (percent(tally.error), f"wrong of all answers: {tally.wrong:,} of {known}"),
        (percent(tally.late_error), f"wrong {late}, when most is learned"),
        (percent(tally.late(tally.curve_frequent)), f"wrong {late} if always the most frequent label were answered"),
    ]
    if plan.guide is not None and plan.copies:  # alone, its answers are the answers
        own = f"the guide’s own answers wrong {late}; {percent(tally.guide_error)} of all it had"
        cards.append((percent(tally.late(tally.curve_guide)), own))
    if outcome.settings.twin:
        cards.append((percent(tally.late(tally.curve_twin)), f"wrong {late} without privacy: {outcome.twin}"))
    balanced = "balanced error: the mean of what recall leaves, every label as heavy as any other"
    cards.append((percent(tally.balanced_error), balanced))
    if (found := rare(outcome)) is not None:
        cards.append(found)
    if plan.copies:
        cards.append((f"{tally.unsure:,}", f"unsure answers used, {plan.unsure:,} planned"))
    cards.append((f"{outcome.rounds_per_second:,.0f}/s", f"rounds a second; {_duration(tally.seconds)} in all"))
    return cards


def _answered(outcome: Outcome) -> list[tuple[str, int, float]]:
    """Who answered how many rounds, and how wrongly; whoever might have answered is named, also at none."""
    tally, plan, errors = outcome.tally, outcome.pop.plan, outcome.tally.errors()
    could = {"copies": plan.copies, "lean": plan.lean, "guide": plan.public, "fallback": True}
    names = [name for name in reversed(SOURCES) if could.get(name, name in tally.sources)]
    parts = [(name, tally.sources.get(name, [0])[0], errors.get(name, math.nan)) for name in names]
    return parts + ([("refused", tally.refused, 1.0)] if tally.refused else [])


class _LabelRow(NamedTuple):
    """The answers where this label was right, by label; the last count is of refused rows."""

    label: str
    counts: list[int]
    recall: float
    precision: float
    taken_for: str


def _by_label(outcome: Outcome) -> list[_LabelRow]:
    labels, tally, rows = [str(label) for label in outcome.stream.labels], outcome.tally, []
    for i, (label, counts) in enumerate(zip(labels, tally.confusion, strict=True)):
        wrong = max(((n, labels[j]) for j, n in enumerate(counts[:-1]) if j != i and n), default=None)
        taken_for = "–" if wrong is None else f"{wrong[1]} ({wrong[0]:,})"
        rows.append(_LabelRow(label, counts, tally.recalls[i], tally.precisions[i], taken_for))
    return rows if len(labels) <= WIDEST else sorted(rows, key=lambda row: -sum(row.counts))


def _pictures(outcome: Outcome) -> list[tuple[str, Markup, str]]:
    plan, tally = outcome.pop.plan, outcome.tally
    try:
        plots: Any = need("confide.runs.pictures", "report", "drawing the pictures of a report")
    except ValueError as error:
        return [("Pictures", Markup(), str(error))]
    epochs = [] if (guide := outcome.pop.guide) is None else guide.epochs(outcome.pop.rounds)
    drawn = [("How wrong, as the rounds went on", plots.errors(plan, tally, outcome.settings.twin, epochs), "")]
    if plan.copies:
        seen = sum(tally.margins.values())
        note = f"A sample of {seen:,} live rounds. Where the curve is high, a lead is too small to answer."
        drawn.append(("Unsure answers against the budget", plots.unsure(plan, tally), ""))
        drawn.append(("Vote margins against the gate", plots.margins(plan, tally), note))
    return drawn


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60)} s"


# ---------------------------------------------------------------------- advice


def cells(one: Tried) -> tuple[str, ...]:
    """A row of the table of what was tried."""
    plan, run = one.plan, one.run
    name, numbers = one.name if plan is not None else f"{one.name}, not private", ("", "", "")
    if plan is not None and plan.copies:
        name, history = f"{one.name}: {one.learner}", 0 if plan.guide is None else plan.guide.history
        numbers = f"{plan.copies:,}", f"{(plan.rounds + history) / plan.copies:,.0f}", f"{plan.unsure:,}"
    halts = "" if run.halted is None else f"at {run.halted:.0%}"
    return name, *numbers, percent(run.error), percent(one.spread), percent(run.late_error), halts


def proposal(advice: Advice, name: str, command: str) -> str:
    """The page: what is proposed for a stream like the sample of this name, and what it was chosen from."""
    words = "\n".join(advice.explain().splitlines()[1:])
    known = {"advice": advice, "name": name, "command": command, "warning": WARNING, "headings": HEADINGS}
    rows = [(cells(one), one is advice.chosen) for one in (*advice.table, *advice.changes)]
    return _PAGES.get_template("advice.html").render(**known, words=words, rows=rows, picture=_curves(advice))


def _curves(advice: Advice) -> Markup | str:
    try:
        plots: Any = need("confide.runs.pictures", "report", "drawing the picture of the advice")
    except ValueError as error:
        return str(error)
    alone, free = advice.table[0], advice.free
    lines = [("proposed", "-", advice.chosen.run.curve), ("the guide alone", "--", alone.run.curve)]
    drawn: Markup = plots.curves([*lines, ("without privacy", "-", free.run.curve)], advice.asked.rounds)
    return drawn
