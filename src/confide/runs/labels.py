"""Answers by their right label, as a table of the report: a square where it fits, else a line a label."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from confide.runs.tally import Tally, percent

__all__ = ["by_label"]

WIDEST = 12
"""Labels up to which the answers are shown as a square."""


def by_label(labels: Sequence[str], tally: Tally) -> str:
    """What was answered where each label was right; recall and precision of each."""
    made = _lines(labels, tally) if len(labels) > WIDEST else _square(labels, tally)
    return (
        f'{made}<p class="note">All rounds that have a label, whoever answered. Recall: of the rounds with this label, '
        "those answered with it. Precision: of the answers with it, those that were right. Balanced error, the mean "
        f"of what recall leaves: {percent(tally.balanced_error)}.</p>"
    )


def _square(labels: Sequence[str], tally: Tally) -> str:
    refused = any(row[-1] for row in tally.confusion)
    head = "".join(f"<th>{escape(label)}</th>" for label in labels) + "<th>none</th>" * refused
    rows = []
    for i, (label, counts) in enumerate(zip(labels, tally.confusion, strict=True)):
        total, cells = sum(counts), []
        for j, count in enumerate(counts if refused else counts[:-1]):
            share = count / total if total else 0.0
            part, kind = 0.0 if not count else 12 + 50 * share, "right" if j == i else "wrong"
            title = f"{share:.3%} of its rounds"
            cells.append(f'<td class="{kind}" style="--part:{part:.0f}%" title="{title}">{count:,}</td>')
        recall, precision = percent(tally.recalls[i]), percent(tally.precisions[i])
        rows.append(f"<tr><td>{escape(label)}</td>{''.join(cells)}<td>{recall}</td><td>{precision}</td></tr>")
    return f"<table><tr><th>right label</th>{head}<th>recall</th><th>precision</th></tr>{''.join(rows)}</table>"


def _lines(labels: Sequence[str], tally: Tally) -> str:
    rows, table = [], tally.confusion
    for i in sorted(range(len(labels)), key=lambda i: -sum(table[i])):
        counts = table[i]
        wrong = [(count, labels[j]) for j, count in enumerate(counts[:-1]) if j != i and count]
        worst = f"{escape(max(wrong)[1])} ({max(wrong)[0]:,})" if wrong else "–"
        recall, precision = percent(tally.recalls[i]), percent(tally.precisions[i])
        rows.append(
            f"<tr><td>{escape(labels[i])}</td><td>{sum(counts):,}</td><td>{recall}</td><td>{precision}</td>"
            f"<td>{worst}</td></tr>"
        )
    head = "".join(f"<th>{name}</th>" for name in ("label", "rounds", "recall", "precision", "most often taken for"))
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"
