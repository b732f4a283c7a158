"""The colours of a report by day and by night: each has a name, also inside the pictures. The rest: pages/base.html."""

import re

from markupsafe import Markup, escape

COLOURS = {
    "ink": ("#1f2933", "#e4e8ec"),
    "soft": ("#5b6672", "#a3adb8"),
    "line": ("#dde2e7", "#3a434d"),
    "paper": ("#ffffff", "#1d2329"),
    "desk": ("#f4f6f8", "#14181c"),
    "ours": ("#22577a", "#7fb8dd"),
    "twin": ("#e07a1f", "#f0a35c"),
    "gate": ("#b5446e", "#e58aae"),
    "guide": ("#7a9e3f", "#a9cc70"),
    "lean": ("#5fa8a3", "#7cc5c0"),
    "quiet": ("#eef1f4", "#2a323a"),
    "limit": ("#9a1b1b", "#ff8f85"),
    "blush": ("#fdf3f3", "#33191a"),
    "none": ("#b8c0c8", "#6b7681"),
}
"""Each by its name, on light paper and in the dark."""


def said(text: object) -> Markup:
    """Text as a page has it, everything escaped: what stands between backticks is code.

    Examples
    --------
    >>> str(said("say `a < b`, or not"))
    'say <code>a &lt; b</code>, or not'
    """
    return Markup(re.sub(r"`([^`\n]+)`", r"<code>\1</code>", str(escape(text))))


def in_colours(picture: str) -> str:
    """A picture's own colours by their names, so that it follows the page; outside of one they stay what they were.

    Examples
    --------
    >>> in_colours("fill: #22577a")
    'fill: var(--ours, #22577a)'
    """
    for name, (light, _) in COLOURS.items():
        picture = picture.replace(light, f"var(--{name}, {light})")
    return picture
