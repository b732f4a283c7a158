"""What the site needs beyond MkDocs: formulas become MathML, pages that docstrings name links, numbers stay whole."""

from __future__ import annotations

import re
import sys
from html import unescape
from typing import Any

from latex2mathml.converter import convert

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
_MARKUP = re.compile(r"(<pre.*?</pre>|<[^>]*>)", re.DOTALL)
_WITHIN = re.compile(r"(?<=\d) (?=%|\d{3}(?!\d))")
_PAGE = re.compile(r"\bdocs/((?:proofs/)?[\w-]+)\.md\b")


def formulas(page: str) -> str:
    """`page` with its TeX turned into MathML; a display formula scrolls by itself where it does not fit."""

    def drawn(found: re.Match[str]) -> str:
        tex = unescape(found.group(3)).strip()
        if found.group(2) == "(":
            return convert(tex)
        return f'<div class="formula">{convert(tex, display="block")}</div>'

    return _FORMULA.sub(drawn, page)


def links(page: str, url: str) -> str:
    """`page` of the reference, at `url`, with the pages that docstrings name as links."""
    up = "../" * url.count("/")
    return _PAGE.sub(lambda found: f'<a href="{up}{found[1]}/">{found[0]}</a>', page)


def numbers(page: str) -> str:
    """`page` with numbers such as 20 000, and 5 %, that no line's end cuts in two."""
    parts = _MARKUP.split(page)
    return "".join(part if i % 2 else _WITHIN.sub("\u00a0", part) for i, part in enumerate(parts))


def on_page_content(html: str, page: Any, files: Any, **_: Any) -> str:
    """MkDocs calls this with the HTML of each page, one after the other; every tenth says how far it is."""
    pages = [file.page for file in files.documentation_pages()]
    number = pages.index(page) + 1
    if number % 10 == 0 or number == len(pages):
        print(f"{number} of {len(pages)} pages", file=sys.stderr, flush=True)
    return formulas(numbers(links(html, page.url) if page.url.startswith("reference/") else html))
