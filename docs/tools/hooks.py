"""What the site needs beyond MkDocs: formulas become MathML when it is built, and a browser draws them by itself."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from latex2mathml.converter import convert

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def formulas(page: str) -> str:
    """`page` with its TeX turned into MathML; a display formula scrolls by itself where it does not fit."""

    def drawn(found: re.Match[str]) -> str:
        tex = unescape(found.group(3)).strip()
        if found.group(2) == "(":
            return convert(tex)
        return f'<div class="formula">{convert(tex, display="block")}</div>'

    return _FORMULA.sub(drawn, page)


def on_page_content(html: str, **_: Any) -> str:
    """MkDocs calls this with the HTML of each page."""
    return formulas(html)
