"""The operator's report of a run: one HTML file that needs nothing else, and the same numbers as JSON.

It is exact, so it is outside the guarantee, and says so at the top.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

from confide.runs import pictures as plots
from confide.runs.runner import Outcome

__all__ = ["command", "numbers", "write_html", "write_json"]

WIDEST = 12
"""Labels up to which the confusion is shown as a square."""

NARROW = 4
"""Labels up to which that square fits beside a picture."""

USUAL = {"unit-unsure": 1, "delay": 0, "fallback": "coin", "stream-seed": 0}
"""Settings that need not be repeated."""

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
.warn { border-left:5px solid #e07a1f; max-height:22rem; overflow-y:auto; }
section.warn th, section.warn td { text-align:left; }
.note { color:var(--soft); font-size:.88rem; margin:.5rem 0 0; }
table { border-collapse:collapse; font-variant-numeric:tabular-nums; }
th, td { padding:.3rem .7rem; text-align:right; border-bottom:1px solid var(--line); }
th { color:var(--soft); font-weight:550; font-size:.86rem; } td:first-child, th:first-child { text-align:left; }
pre { background:#f4f6f8; border-radius:8px; padding:.8rem 1rem; font-size:.85rem; white-space:pre-wrap; }
@media print { body { background:#fff; } section, .card { break-inside:avoid; } }
"""


def numbers(outcome: Outcome) -> dict[str, Any]:
    """Everything the report shows, in two parts: what is public, and what is for the operator alone."""
    pop, tally, plan = outcome.pop, outcome.tally, outcome.pop.plan
    monitor = pop.monitor.estimate if pop.monitor is not None else None
    guarantee = pop.guarantee
    names = ("kind", "rounds", "silent", "copies", "polls", "unsure", "unit_unsure", "labels", "beta")
    return {
        "format": "confide-report",
        "version": 1,
        "public": {
            "guarantee": {
                "epsilon": guarantee.epsilon,
                "delta": guarantee.delta,
                "secure": guarantee.secure,
                "units": pop.units,
                "sentence": guarantee.sentence,
            },
            "plan": {name: getattr(plan, name) for name in names},
            "stream": outcome.stream.name,
            "labels": [str(label) for label in outcome.stream.labels],
            "notes": list(outcome.stream.notes),
            "rounds": pop.rounds,
            "state": _state(outcome),
            "monitor": None if monitor is None else monitor._asdict(),
        },
        "operator_only": {
            "warning": "exact numbers, outside the guarantee: never to be shown to others",
            "error": _number(tally.error),
            "twin_error": _number(tally.twin_error) if outcome.twin else None,
            "unanswered": tally.unanswered,
            "memory_bytes": pop.operator.nbytes,
            "rounds_per_second": _number(outcome.rounds_per_second),
            **asdict(tally),
        },
        "settings": outcome.settings,
        "command": command(outcome.settings),
    }


def command(settings: dict[str, Any]) -> str:
    """The command line that repeats a run from its settings; empty where there are none."""
    if not settings:
        return ""
    words = ["confide run"]
    for name, value in settings.items():
        if name == "stream":
            words.insert(1, shlex.quote(str(value)))
        elif value is True:
            words.append(f"--{name}")
        elif value is not None and value is not False and value != USUAL.get(name):
            words.append(f"--{name} {shlex.quote(str(value))}")
    return " ".join(words)


def write_json(outcome: Outcome, path: Path) -> None:
    """Write `numbers` to a file."""
    _write(path, json.dumps(numbers(outcome), indent=1, ensure_ascii=False) + "\n")


def write_html(outcome: Outcome, path: Path) -> None:
    """Write the page: nothing in it is fetched from anywhere."""
    _write(path, page(outcome))


def page(outcome: Outcome) -> str:
    """The report as HTML."""
    pop, tally, plan = outcome.pop, outcome.tally, outcome.pop.plan
    body = [
        f"<h1>Private predictions on {escape(outcome.stream.name)}</h1>",
        f'<p class="sub">{pop.rounds:,} rounds, {plan.silent:,} of them silent · {escape(_learner(outcome))} · '
        f"{plan.copies:,} copies, {plan.polls:,} asked in a round · {escape(_state(outcome))}</p>",
        _cards(outcome),
        _section(f"What is promised to each {_unit(outcome)}", _promise(outcome), "promise"),
        *([_notes(outcome)] if outcome.stream.notes or tally.bad else []),
        '<div class="two">',
        _section("Mistakes since the silent start", plots.mistakes(plan, tally, outcome.twin)),
        _section("Unsure answers against the budget", plots.unsure(plan, tally)),
        _section("Vote margins against the gate", plots.margins(plan, tally) + _margins_note(outcome)),
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


def _cards(outcome: Outcome) -> str:
    tally, plan = outcome.tally, outcome.pop.plan
    cards = [(_percent(tally.error), f"wrong: {tally.mistakes:,} of {tally.live:,} live rounds")]
    if outcome.twin:
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
    if tally.bad:
        shown = "".join(f"<tr><td>{line:,}</td><td>{escape(reason)}</td></tr>" for line, reason in tally.first_bad)
        more = f", the first {len(tally.first_bad)} of them:" if tally.bad > len(tally.first_bad) else ":"
        lines.append(f"<p>{tally.bad:,} bad row{'s' * (tally.bad != 1)}, not asked and not taught{more}</p>")
        lines.append(f"<table><tr><th>line</th><th>reason</th></tr>{shown}</table>")
    return _section("To know about the data", "".join(lines), "warn")


def _margins_note(outcome: Outcome) -> str:
    seen = sum(outcome.tally.margins.values())
    return (
        f'<p class="note">A sample of {seen:,} live rounds. Where the curve is high, a lead is too small to answer.</p>'
    )


def _confusion(labels: Sequence[str], table: Sequence[Sequence[int]]) -> str:
    if len(labels) > WIDEST:
        return _by_label(labels, table)
    head = "".join(f"<th>{escape(label)}</th>" for label in labels)
    rows = []
    for i, (label, counts) in enumerate(zip(labels, table, strict=True)):
        total = max(1, sum(counts))
        cells = []
        for j, count in enumerate(counts):
            colour = "34,87,122" if j == i else "154,27,27" if j < len(labels) else "224,122,31"
            strength = 0.0 if not count else 0.12 + 0.5 * count / total
            title = f"{count / total:.3%} of its rounds"
            cells.append(f'<td style="background:rgba({colour},{strength:.2f})" title="{title}">{count:,}</td>')
        rows.append(f"<tr><td>{escape(label)}</td>{''.join(cells)}<td>{_percent(counts[i] / total)}</td></tr>")
    return (
        f"<table><tr><th>right label</th>{head}<th>not answered</th><th>right</th></tr>"
        f"{''.join(rows)}</table>"
        '<p class="note">Live rounds by right label and answer. “Not answered”: the fallback’s answer was given.</p>'
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
    text = f"<pre>{escape(str(outcome.pop.plan))}</pre>"
    text += f'<p class="note">Learner: <code>{escape(_learner(outcome))}</code></p>'
    if outcome.settings:
        text += f"<pre>{escape(command(outcome.settings))}</pre>"
        text += '<p class="note">Its randomness is fresh each time, so another run differs in detail.</p>'
    return text


def _section(title: str, body: str, kind: str = "") -> str:
    return f'<section class="{kind}"><h2>{title}</h2>{body}</section>'


def _learner(outcome: Outcome) -> str:
    return str(outcome.settings.get("learner") or outcome.pop)


def _unit(outcome: Outcome) -> str:
    return "person" if outcome.pop.units == "people" else "round"


def _state(outcome: Outcome) -> str:
    reason = outcome.pop.halt_reason
    if reason == "budget":
        return "halted: the privacy budget is used up"
    if outcome.interrupted:
        return "interrupted"
    return "finished"


def _number(value: float) -> float | None:
    return value if value == value else None


def _percent(share: float) -> str:
    if share != share:
        return "–"
    return f"{share:.3%}" if share < 0.01 or share > 0.99 else f"{share:.2%}"


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60)} s"


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror}") from None
