"""docs/evidence.md, docs/numbers.md, a picture and the README's table, from benchmarks/results/: no number is typed.

python -m benchmarks.evidence.page [--check]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from textwrap import fill

from dpftrl import RATES, noise_multiplier

from .cells import CLASSES, DELTA, EPSILONS, FEW, RESULTS, SEEDS, SHORT, WITHOUT, Line, read
from .picture import draw
from .private import SCALES
from .streams import ABOUT
from .table import Duel, Place, Table, duels, standard_error

ROOT = Path(__file__).parents[2]
TEMPLATE, NUMBERS_TEMPLATE = (Path(__file__).with_name(name) for name in ("template.md", "numbers.md"))
PAGE, NUMBERS, PICTURE = (ROOT / "docs" / name for name in ("evidence.md", "numbers.md", "images/evidence.svg"))
NEXT = ",\u00a0"
"""Between lengths, which stay on one line."""
KEEPS, WINS = 0.95, 0.75
"""The shares of all pairs that are aimed at."""
FRONT = ("kdd99", "hotel", "elec", "sst2", "sea")
"""What the README shows: files of several kinds, and where Confide loses."""
README, BEGIN, END = ROOT / "README.md", "<!-- evidence:begin -->", "<!-- evidence:end -->"
COLUMNS = {
    "confide": "**Confide**",
    "dpftrl": "DP-FTRL",
    "labels": "labels alone",
    "rr": "RR",
    "majority": "one label",
    "nonprivate": "tree",
    "nonprivate-guide": "guide, no noise",
    "river": "River",
    "boosted": "boosted",
    "pop": "copies",
    "guide": "guide",
    "guide-hindsight": "guide, best step",
}


def _rows(number: int) -> str:
    power = len(str(number)) - 1
    return f"10{''.join('⁰¹²³⁴⁵⁶⁷⁸⁹'[int(d)] for d in str(power))}" if number == 10**power else f"{number:,}"


def _cell(table: Table, place: Place, epsilon: float, method: str) -> str:
    at = None if method in WITHOUT else epsilon
    best = table.best(place, at, method)
    if best is None:
        return "×" if table.missing(place, at, method) else "–"
    if best.spread is None:
        return f"{best.median:.2f}"
    return f"{best.median:.2f}\u00a0±\u00a0{best.spread / 2:.2f}"


def _tables(table: Table) -> list[str]:
    """One table an ε and length."""
    out: list[str] = []
    lengths = sorted({place[1] for place in table.places() if place[1]})
    for length in lengths:
        places = [p for p in table.places() if p[1] == length or (length == lengths[0] and p[1] is None)]
        places.sort(key=lambda place: place[1] is None)
        what = f"{_rows(length)} rows" + (", files as long as they are" if length == lengths[0] else "")
        for epsilon in sorted({e for place in places for e in table.epsilons(place)}):
            there = [p for p in places if epsilon in table.epsilons(p)]
            out += ["", f"### ε = {epsilon:g}, {what}", ""]
            every = {m: [_cell(table, place, epsilon, m) for place in there] for m in COLUMNS}
            run = {m: cells for m, cells in every.items() if set(cells) != {"–"}}
            out += [f"| stream | {' | '.join(COLUMNS[m] for m in run)} |", f"|---|{'---:|' * len(run)}"]
            for place, *cells in zip(there, *run.values(), strict=True):
                people = " (people)" if table.units(place) == "people" else ""
                out.append(f"| {place[0]}{people} | {' | '.join(cells)} |")
            out += _reasons(table, there, epsilon)
    return out


def _reasons(table: Table, places: list[Place], epsilon: float) -> list[str]:
    """Why cells are missing, one sentence a reason."""
    reasons: dict[str, list[str]] = {}
    for place in places:
        for method in COLUMNS:
            why = table.missing(place, None if method in WITHOUT else epsilon, method)
            if why:
                reasons.setdefault(f"{COLUMNS[method]}: {why}", []).append(place[0])
    return ["", *(f"× {', '.join(names)}: {why}." for why, names in reasons.items())] if reasons else []


def _paper(table: Table) -> str:
    """What the paper's own plan would need."""
    found = []
    for place in table.places():
        for epsilon in table.epsilons(place):
            why = table.missing(place, epsilon, "paper")
            if why:
                found.append((float(why.split()[1]), epsilon, place))
    if not found:
        return "not asked yet."
    (few, low, at), (many, high, there) = min(found), max(found)
    return (
        f"`Plan.paper` can be run nowhere here ({len(found)} pairs of a stream and an ε were asked). It needs from "
        f"{few:,.0f} copies ({at[0]}, ε = {low:g}) to {many:,.0f} ({there[0]}, ε = {high:g}), more than there are "
        "rounds to teach each of them one label."
    )


def _rare(table: Table) -> list[str]:
    """Precision and recall, where a label is rare."""
    methods = [m for m in COLUMNS if m not in ("majority", "guide", "pop", "river", "guide-hindsight")]
    lines = []
    for place in table.places():
        for epsilon in table.epsilons(place):
            cells, any_there = [], False
            for method in methods:
                found = table.best(place, None if method in WITHOUT else epsilon, method)
                line = {} if found is None else found.lines[0]
                any_there |= "precision" in line
                cells.append(f"{line['precision']:.1f} / {line['recall']:.1f}" if "precision" in line else "–")
            if any_there:
                lines.append(f"| {place[0]} | {table.rows(place):,} | {epsilon:g} | {' | '.join(cells)} |")
    head = f"| stream | rows | ε | {' | '.join(COLUMNS[m] for m in methods)} |"
    return [head, f"|---|---:|---:|{'---:|' * len(methods)}", *lines] if lines else ["No stream has one yet."]


def _counts(table: Table, fought: list[Duel]) -> list[str]:
    """How often the defaults keep up with tuned DP-FTRL, and how often they are clearly better."""
    total, keep, win = len(fought), sum(d.keeps_up for d in fought), sum(d.wins for d in fought)
    could = sum(d.theirs > d.without for d in fought)
    (lies, pairs), (ours, both) = _less(table, "rr"), _less(table, "labels")
    lost, less = [(d.place, d.epsilon) for d in fought if not d.keeps_up], sum(d.ours < d.theirs for d in fought)

    def share(part: int, aim: float) -> str:
        missed = "" if part >= aim * total else ": **missed**"
        found = f"{100 * part / max(1, total):.1f} %; aimed at: {100 * aim:g} %{missed}"
        return f"**{part} of {total}** pairs of a stream and an ε ({found})"

    return [
        "- **Keeps up** with DP-FTRL whose rate and map were chosen in hindsight, on "
        f"{share(keep, KEEPS)}: errs at most 1.03 times as often, plus two standard errors. Errs less on {less}.",
        f"- **Wins** on {share(win, WINS)}: has at least a tenth less excess over no privacy. On {total - could} pairs "
        "DP-FTRL errs no more than our twin without privacy, so it has no excess, and nothing can be won there; of the "
        f"other {could} Confide wins {100 * win / max(1, could):.0f} %.",
        f"- **Loses** against DP-FTRL on {_listed(lost)}; against randomized labels, which "
        f"protect less, on {len(lies)} of {pairs} pairs.",
        f'- **Labels alone**: where rows need no protection, our own model under `protect="labels"` errs less than '
        f"with rows protected on **{len(ours)} of {both}** pairs.",
    ]


def _by(fought: list[Duel]) -> list[str]:
    """The same by length and ε."""
    lines = []
    for length in sorted({d.place[1] or SHORT for d in fought}):
        for epsilon in sorted({d.epsilon for d in fought}):
            part = [d for d in fought if d.epsilon == epsilon and (d.place[1] or SHORT) == length]
            if part:
                words = f"{_rows(length)}{' or the file' if length == SHORT else ''} | {epsilon:g}"
                kept, won = sum(d.keeps_up for d in part), sum(d.wins for d in part)
                lines.append(f"| {words} | {kept} of {len(part)} | {won} of {len(part)} |")
    return lines


def _streams(table: Table) -> list[str]:
    """Each stream in a line."""
    places = table.places()
    lengths = {name: [_rows(table.rows(place)) for place in places if place[0] == name] for name in ABOUT}
    return [f"| {name} | {ABOUT[name]} | {NEXT.join(rows)} |" for name, rows in lengths.items() if rows]


def _losses(table: Table, fought: list[Duel]) -> list[str]:
    lost = sorted((duel for duel in fought if not duel.keeps_up), key=lambda d: d.limit - d.ours)
    out = ["| stream | rows | ε | Confide | DP-FTRL | no privacy |", "|---|---:|---:|---:|---:|---:|"]
    for d in lost:
        errors = " | ".join(f"{error:.2f}" for error in (d.ours, d.theirs, d.without))
        out.append(f"| {d.place[0]} | {_rows(table.rows(d.place))} | {d.epsilon:g} | {errors} |")
    lies, _ = _less(table, "rr")
    return [
        *(out if lost else ["Nowhere against DP-FTRL, of what was run."]),
        "",
        f"No better than always saying the most frequent label: {_listed(_blind(table, 0))}. Worse than it by two "
        f"standard errors or more: {_listed(_blind(table, 2))}. Randomized labels err less on {_listed(lies)}.",
    ]


def _blind(table: Table, errors: float) -> list[tuple[Place, float]]:
    """Where the most frequent label errs no more than Confide, by at least so many standard errors."""
    found = []
    for place in table.places():
        for epsilon in table.epsilons(place):
            ours, none = table.summary(place, epsilon, "confide"), table.summary(place, None, "majority")
            if ours is not None and none is not None:
                margin = errors * standard_error(none.median, table.rows(place))
                found += [(place, epsilon)] if ours.median >= none.median + margin else []
    return found


def _less(table: Table, method: str) -> tuple[list[tuple[Place, float]], int]:
    """Where a method that protects labels alone errs less than Confide, and of how many pairs of a stream and an ε."""
    worse, pairs = [], 0
    for place in table.places():
        for epsilon in table.epsilons(place):
            ours, theirs = table.summary(place, epsilon, "confide"), table.best(place, epsilon, method)
            if ours is not None and theirs is not None:
                pairs += 1
                worse += [(place, epsilon)] if theirs.median < ours.median else []
    return worse, pairs


def _listed(pairs: list[tuple[Place, float]]) -> str:
    """Streams one after the other, with their rows where there are more than usual, and their ε where it is not all."""
    by: dict[Place, list[float]] = {}
    for place, epsilon in pairs:
        by.setdefault(place, []).append(epsilon)
    words = []
    for (name, rows), each in by.items():
        usual = rows in (None, SHORT)
        told = [] if usual or rows is None else [f"{_rows(rows)} rows"]
        told += [] if each == list(EPSILONS if usual else FEW) else [f"ε = {', '.join(f'{e:g}' for e in each)}"]
        words.append(f"{name} ({', '.join(told)})" if told else name)
    return ", ".join(words) or "nowhere"


def _coverage(table: Table) -> list[str]:
    """Who answered, where there were copies; and how many plans had none."""
    lines, alone = [], 0
    for place in table.places():
        for epsilon in table.epsilons(place):
            found = table.summary(place, epsilon, "confide")
            if found is None:
                continue
            line = found.lines[0]
            if not line["parameters"]["copies"]:
                alone += 1
                continue
            by = line["answered"]
            parts = " | ".join(f"{100 * by[who]:.1f}" for who in ("copies", "lean", "guide", "fallback", "nobody"))
            lines.append(f"| {place[0]} | {table.rows(place):,} | {epsilon:g} | {parts} |")
    head = ["| stream | rows | ε | copies | lean | guide | fallback | nobody |", "|---|---:|---:|" + "---:|" * 5]
    first = (
        f"Where the planner saw no use for copies, on {alone} pairs of a stream and an ε, the guide answered all rows "
        "but the first few. Elsewhere, in per cent of all rows, seed 1:"
    )
    return [first, "", *head, *lines] if lines else [first]


def _filled(template: Path, parts: dict[str, str]) -> str:
    text = template.read_text("utf-8")
    for name, part in parts.items():
        text = text.replace("{" + name + "}", part)
    return text


def render(lines: dict[str, Line]) -> str:
    """The page."""
    table, planned = Table(lines), {cell.name for cells in CLASSES.values() for cell in cells}
    fought = duels(table)
    parts = {
        "run": f"{len(planned & set(lines)):,}",
        "planned": f"{len(planned):,}",
        "versions": " and ".join(sorted({line["version"] for line in lines.values()})),
        "counts": "\n".join(_counts(table, fought)),
        "by": "\n".join(_by(fought)),
        "streams": "\n".join(_streams(table)),
        "rates": str(len(RATES)),
        "scales": ", ".join(f"{scale:g}" for scale in SCALES),
        "paper": _paper(table),
        "nn_rows": _rows(SHORT),
        "nn_votes": f"{noise_multiplier(1.0, DELTA) * SHORT**0.5:,.0f}",
        "losses": "\n".join(_losses(table, fought)),
    }
    return _filled(TEMPLATE, parts)


def numbers(lines: dict[str, Line]) -> str:
    """The page with all tables."""
    table = Table(lines)
    found = {"tables": _tables(table), "rare": _rare(table), "coverage": _coverage(table)}
    return _filled(NUMBERS_TEMPLATE, {"seeds": str(len(SEEDS)), **{k: "\n".join(v) for k, v in found.items()}})


def front(table: Table, text: str) -> str:
    """The README with its table between the two marks; as it is, where it has none."""
    if BEGIN not in text:
        return text
    rows = []
    for place in table.places():
        cells = [table.summary(place, e, method) for e in (1.0, 4.0) for method in ("confide", "dpftrl")]
        without = table.without(place)
        if place[0] in FRONT and place[1] in (None, SHORT) and without is not None and None not in cells:
            told = " | ".join(f"{cell.median:.2f} %" for cell in cells if cell is not None)
            rows.append(f"| {place[0]} | {table.rows(place):,} | {without:.2f} % | {told} |")
    head = "| stream | rounds | no privacy | Confide, ε = 1 | DP-FTRL †, ε = 1 | Confide, ε = 4 | DP-FTRL †, ε = 4 |"
    below = (
        "† Rate and map chosen in hindsight, by the errors shown, and ranges from the first rows, unprotected. *No "
        "privacy* is one tree, or the guide without noise, whichever errs less: it is simple and not tuned, so Confide "
        "may err less than it."
    )
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    lines = [BEGIN, "", head, "|---|---:|---:|---:|---:|---:|---:|", *rows, "", *fill(below, 120).splitlines(), "", END]
    return before + "\n".join(lines) + after


def pages(folder: Path = RESULTS) -> dict[Path, str]:
    """What is to be written where."""
    lines = read(folder)
    table = Table(lines)
    readme = front(table, README.read_text("utf-8"))
    return {PAGE: render(lines), NUMBERS: numbers(lines), PICTURE: draw(table), README: readme}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the page is not up to date")
    given = parser.parse_args()
    for path, text in pages().items():
        if given.check and (not path.is_file() or path.read_text("utf-8") != text):
            sys.exit(f"{path.relative_to(ROOT)} is not what the results say: run this without --check")
        if not given.check:
            path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
