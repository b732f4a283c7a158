"""The report as a page: plain HTML with its style and pictures inside."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from confide.data.extras import need
from confide.runs.advice import AGAIN, NOTHING, next_settings, what_happened
from confide.runs.runner import Outcome

__all__ = ["page", "state_of"]

WIDEST = 12
"""Labels up to which the confusion is shown as a square."""

NARROW = 4
"""Labels up to which that square fits beside a picture."""

_CSS = """
:root { --ink:#1f2933; --soft:#5b6672; --line:#dde2e7; --ours:#22577a; --paper:#fff; }
* { box-sizing: border-box; }
body { margin:0; background:#f4f6f8; color:var(--ink); font:15px/1.55 system-ui, "DejaVu Sans", sans-serif; }
.banner { background:#9a1b1b; color:#fff; padding:.7rem 1rem; text-align:center; }
.banner b { letter-spacing:.02em; }
main { max-width:1080px; margin:0 auto; padding:1.6rem 1.2rem 3rem; }
h1 { font-size:1.7rem; margin:.2rem 0 .1rem; } h2 { font-size:1.08rem; margin:0 0 .5rem; }
.sub { color:var(--soft); margin:0 0 1.2rem; }
.cards { display:grid; grid-template-columns:repeat(auto-fit,minmax(190px,1fr)); gap:.8rem; margin-bottom:.8rem; }
.card, section { background:var(--paper); border:1px solid var(--line); border-radius:10px; }
.card { padding:.8rem 1rem; } .card .big { font-size:1.75rem; font-weight:650; line-height:1.2; color:var(--ours); }
.card .what { color:var(--soft); font-size:.86rem; }
section { padding:1rem 1.2rem; margin-bottom:.8rem; overflow-x:auto; }
.two { display:grid; grid-template-columns:repeat(auto-fit,minmax(440px,1fr)); gap:.8rem; }
.two section { margin-bottom:0; min-width:0; } .two .wide { grid-column:1/-1; } .two + section { margin-top:.8rem; }
section svg { width:100%; height:auto; display:block; } section svg text { font-family:inherit; }
.promise { border-left:5px solid var(--ours); } .promise p { margin:.2rem 0; font-size:1.03rem; }
.halted { border-left:5px solid #9a1b1b; background:#fdf3f3; } .halted h2 { color:#9a1b1b; }
.halted pre { background:#fff; }
.warn { border-left:5px solid #e07a1f; max-height:22rem; overflow-y:auto; }
section.warn th, section.warn td { text-align:left; }
.note { color:var(--soft); font-size:.88rem; margin:.5rem 0 0; }
table { border-collapse:collapse; font-variant-numeric:tabular-nums; }
th, td { padding:.3rem .7rem; text-align:right; border-bottom:1px solid var(--line); }
th { color:var(--soft); font-weight:550; font-size:.86rem; } td:first-child, th:first-child { text-align:left; }
pre { background:#f4f6f8; border-radius:8px; padding:.8rem 1rem; font-size:.85rem; white-space:pre-wrap; }
@media print { body { background:#fff; } section, .card { break-inside:avoid; } }
"""


def page(outcome: Outcome) -> str:
    """The report as HTML."""
    pop, tally, plan = outcome.pop, outcome.tally, outcome.pop.plan
    body = [
        f"<h1>Private predictions on {escape(outcome.stream.name)}</h1>",
        f'<p class="sub">{pop.rounds:,} rounds, {min(plan.silent, pop.rounds):,} of them silent · '
        f"{escape(outcome.settings.learner)} · {plan.copies:,} copies, {plan.polls:,} asked in a round · "
        f"{escape(state_of(outcome))}</p>",
        *([_out_of_budget(outcome)] if outcome.out_of_budget else []),
        _cards(outcome),
        _section(f"What is promised to each {_unit(outcome)}", _promise(outcome), "promise"),
        *([_notes(outcome)] if outcome.stream.notes or tally.bad or tally.history_bad else []),
        '<div class="two">',
        *_pictures(outcome),
        _section(
            "Answers by right label",
            _confusion([str(label) for label in outcome.stream.labels], tally.confusion),
            "wide" if len(outcome.stream.labels) > NARROW else "",
        ),
        "</div>",
        _section("The plan, and how to repeat this run", _settings(outcome)),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Confide: {escape(outcome.stream.name)}</title><style>{_CSS}</style></head><body>"
        '<div class="banner"><b>Operator’s eyes only: outside the guarantee.</b> '
        "These are exact counts of private data. Do not publish, forward or log them.</div>"
        f"<main>{''.join(body)}</main></body></html>\n"
    )


def _out_of_budget(outcome: Outcome) -> str:
    advised = next_settings(outcome)
    text = f"<p>{escape(what_happened(outcome))}</p>"
    if advised is None:
        text += f"<p>{escape(NOTHING)}</p>"
    else:
        text += f"<p>To try next:</p><pre>{escape(advised.command)}</pre>"
    return _section("Out of budget", f'{text}<p class="note">{escape(AGAIN)}</p>', "halted")


def _cards(outcome: Outcome) -> str:
    tally, plan = outcome.tally, outcome.pop.plan
    cards = [(_percent(tally.error), f"wrong: {tally.mistakes:,} of {tally.live:,} live rounds")]
    if outcome.settings.twin:
        cards.append((_percent(tally.twin_error), f"wrong for one non-private twin: {tally.twin_mistakes:,}"))
    cards.append((f"{tally.unsure:,}", f"unsure answers used, {plan.unsure:,} planned"))
    cards.append((f"{outcome.rounds_per_second:,.0f}/s", f"rounds a second; {_duration(tally.seconds)} in all"))
    return (
        '<div class="cards">'
        + "".join(
            f'<div class="card"><div class="big">{big}</div><div class="what">{what}</div></div>' for big, what in cards
        )
        + "</div>"
    )


def _promise(outcome: Outcome) -> str:
    guarantee = outcome.pop.guarantee
    text = f"<p><b>{escape(str(guarantee))}</b></p><p>{escape(guarantee.sentence)}</p>"
    monitor = outcome.pop.monitor
    if monitor is not None and monitor.estimate is not None:
        seen = monitor.estimate
        text += (
            f'<p class="note">Private accuracy monitor, the one number here that may be shown to others: about '
            f"{max(seen.mistakes, 0):,} mistakes in {seen.rounds:,} rounds, silent ones included (within "
            f"{seen.error:,.0f}, with probability 0.95).</p>"
        )
    return text


def _notes(outcome: Outcome) -> str:
    tally = outcome.tally
    lines = [f"<p>{escape(note[0].upper() + note[1:])}.</p>" for note in outcome.stream.notes]
    kinds = (
        (tally.refused, "could not be read: each took its round, was answered by nobody, and counts as wrong"),
        (tally.unlabelled, "had no usable label: each was asked, taught nothing, and counts as wrong"),
        (tally.nobodys, "named no unit: nobody’s, so they took no round, and their number is public"),
        (tally.history_bad, "of the history could not be taught"),
    )
    lines += [f"<p>{count:,} row{'s' * (count != 1)} {what}.</p>" for count, what in kinds if count]
    if tally.first_bad:
        shown = "".join(f"<tr><td>{line:,}</td><td>{escape(reason)}</td></tr>" for line, reason in tally.first_bad)
        lines.append(f"<table><tr><th>line</th><th>what was wrong, in the first rows of these</th></tr>{shown}</table>")
    return _section("To know about the data", "".join(lines), "warn")


def _pictures(outcome: Outcome) -> list[str]:
    plan, tally = outcome.pop.plan, outcome.tally
    try:
        plots: Any = need("confide.runs.pictures", "report", "drawing the pictures of a report")
    except ValueError as error:
        return [_section("Pictures", f"<p>{escape(str(error))}</p>")]
    seen = sum(tally.margins.values())
    note = f"A sample of {seen:,} live rounds. Where the curve is high, a lead is too small to answer."
    return [
        _section("Mistakes since the silent start", plots.mistakes(plan, tally, outcome.settings.twin)),
        _section("Unsure answers against the budget", plots.unsure(plan, tally)),
        _section("Vote margins against the gate", f'{plots.margins(plan, tally)}<p class="note">{note}</p>'),
    ]


def _confusion(labels: Sequence[str], table: Sequence[Sequence[int]]) -> str:
    if len(labels) > WIDEST:
        return _by_label(labels, table)
    head = "".join(f"<th>{escape(label)}</th>" for label in labels)
    rows = []
    for i, (label, counts) in enumerate(zip(labels, table, strict=True)):
        total = sum(counts)
        cells = []
        for j, count in enumerate(counts):
            colour = "34,87,122" if j == i else "154,27,27" if j < len(labels) else "224,122,31"
            share = count / total if total else 0.0
            strength = 0.0 if not count else 0.12 + 0.5 * share
            title = f"{share:.3%} of its rounds"
            cells.append(f'<td style="background:rgba({colour},{strength:.2f})" title="{title}">{count:,}</td>')
        right = _percent(counts[i] / total) if total else "–"
        rows.append(f"<tr><td>{escape(label)}</td>{''.join(cells)}<td>{right}</td></tr>")
    return (
        f"<table><tr><th>right label</th>{head}<th>not answered</th><th>right</th></tr>"
        f"{''.join(rows)}</table>"
        '<p class="note">Live rounds by right label and the copies’ answer. “Not answered”: the fallback’s answer was '
        "given, or the row could not be read.</p>"
    )


def _by_label(labels: Sequence[str], table: Sequence[Sequence[int]]) -> str:
    rows = []
    for i in sorted(range(len(labels)), key=lambda i: -sum(table[i])):
        counts = table[i]
        total = sum(counts)
        wrong = [(count, labels[j]) for j, count in enumerate(counts[:-1]) if j != i and count]
        worst = f"{escape(max(wrong)[1])} ({max(wrong)[0]:,})" if wrong else "–"
        right = _percent(counts[i] / total) if total else "–"
        rows.append(
            f"<tr><td>{escape(labels[i])}</td><td>{total:,}</td><td>{right}</td><td>{counts[-1]:,}</td><td>{worst}</td></tr>"
        )
    head = "".join(f"<th>{name}</th>" for name in ("label", "rounds", "right", "not answered", "most often taken for"))
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _settings(outcome: Outcome) -> str:
    return (
        f"<pre>{escape(str(outcome.pop.plan))}</pre><pre>{escape(outcome.settings.command)}</pre>"
        '<p class="note">Its randomness is fresh each time, so another run differs in detail.</p>'
    )


def _section(title: str, body: str, kind: str = "") -> str:
    return f'<section class="{kind}"><h2>{title}</h2>{body}</section>'


def _unit(outcome: Outcome) -> str:
    return "person" if outcome.pop.units == "people" else "round"


def state_of(outcome: Outcome) -> str:
    """Where the run stands (public)."""
    if outcome.out_of_budget:
        return "halted: the privacy budget is used up"
    return "interrupted" if outcome.interrupted else "finished"


def _percent(share: float) -> str:
    if share != share:
        return "–"
    return f"{share:.3%}" if share < 0.01 or share > 0.99 else f"{share:.2%}"


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60)} s"
