"""The picture of the page: how much more each method errs than without privacy, stream by stream.

Written by hand, so that the same results give the same bytes everywhere; in colours that can be read on white and on
black.
"""

from __future__ import annotations

from .table import Place, Table

SHOWN = {
    "confide": ("Confide, defaults", "#0d9488"),
    "dpftrl": ("DP-FTRL, tuned", "#e07a1f"),
    "rr": ("randomized response", "#8b7fd6"),
    "boosted": ("boosted trees, not private", "#8a94a0"),
}
INK, LINE = "#7d8894", "#7d889455"
WIDTH, LEFT, ROW, TOP = 460, 116, 20, 62
TICKS = (-5, 0, 5, 10, 15, 20, 25)
SPAN = (-6.5, 27.5)
"""Points that the axis shows; what is beyond stands at its end, with its number."""


def _place(excess: float) -> float:
    """From 0 to 1."""
    return min(1.0, max(0.0, (excess - SPAN[0]) / (SPAN[1] - SPAN[0])))


def _mark(method: str, x: float, y: float, colour: str, title: str) -> str:
    shape = {
        "confide": f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5.5" fill="{colour}">',
        "dpftrl": f'<path d="M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6 -6z" fill="{colour}">',
        "rr": f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" fill="{colour}">',
        "boosted": f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="none" stroke="{colour}" stroke-width="2">',
    }[method]
    return f"{shape}<title>{title}</title></{shape[1:].split(' ', 1)[0]}>"


def draw(table: Table, epsilons: tuple[float, ...] = (1.0, 4.0)) -> str:
    """One panel an ε below the other, one line a stream: those of the usual length. Narrow, so that a telephone shows
    it whole.
    """
    short = min((place[1] for place in table.places() if place[1]), default=0)
    places = [place for place in table.places() if place[1] in (None, short) and table.without(place) is not None]
    places.sort(key=lambda place: place[1] is None)
    each, panel = ROW * len(places) + 64, WIDTH - LEFT - 12
    height = TOP + each * len(epsilons) + 26
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="system-ui, sans-serif" '
        f'font-size="13" fill="{INK}" role="img" aria-label="Excess error over no privacy, by stream and method">'
    ]
    for i, (method, (words, colour)) in enumerate(SHOWN.items()):
        x, y = 20 + 220 * (i % 2), 16 + 22 * (i // 2)
        out += [_mark(method, x, y, colour, words), f'<text x="{x + 12}" y="{y + 4.5}">{words}</text>']
    for j, epsilon in enumerate(epsilons):
        top = TOP + each * j
        bottom = top + 26 + ROW * len(places)
        out.append(f'<text x="{LEFT}" y="{top + 10}" font-weight="600">ε = {epsilon:g}</text>')
        for tick in TICKS:
            x = LEFT + panel * _place(tick)
            heavy, words = (1, f"{tick:+d}") if tick else (2, "0")
            out += [
                f'<path d="M{x:.1f} {top + 20}V{bottom}" stroke="{LINE if tick else INK}" stroke-width="{heavy}"/>',
                f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{words}</text>',
            ]
        for i, place in enumerate(places):
            y = top + 24 + ROW * i + ROW / 2
            out += _line(table, place, epsilon, LEFT, panel, y)
            out.append(f'<text x="{LEFT - 12}" y="{y + 4.5:.1f}" text-anchor="end" font-size="12">{place[0]}</text>')
    words = ("points of error more than the better of one tree and the guide,", "both without privacy")
    for i, line in enumerate(words):
        out.append(f'<text x="20" y="{height - 22 + 16 * i}" font-size="12">{line}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


def _line(table: Table, place: Place, epsilon: float, left: float, panel: float, y: float) -> list[str]:
    without, marks = table.without(place), []
    assert without is not None
    for method, (words, colour) in reversed(SHOWN.items()):
        found = table.best(place, None if method == "boosted" else epsilon, method)
        if found is not None:
            excess = found.median - without
            title = f"{place[0]}, {words}: {found.median:.2f} %, {excess:+.2f} points"
            at = left + panel * _place(excess)
            marks.append(_mark(method, at, y, colour, title))
            if not SPAN[0] <= excess <= SPAN[1]:
                far = f'x="{at - 9:.1f}" y="{y + 4:.1f}" text-anchor="end" font-size="11"'
                marks.append(f"<text {far}>{excess:+.0f} →</text>")
    return [f'<path d="M{left:.0f} {y:.1f}H{left + panel:.0f}" stroke="{LINE}"/>', *marks]
