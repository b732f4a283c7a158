"""The pages: each has its place, what they show can be run, and the site is complete without a network."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import confide
import confide.games
import confide.learners
import confide.text
from docs.tools import blocks, check, versions

ROOT = blocks.ROOT
PAGES = {str(page.relative_to(ROOT)): page for page in blocks.pages()}
SNIPPETS = [
    name
    for name, page in PAGES.items()
    if any(one.language == "python" and not one.excerpt for one in blocks.blocks(page))
]
# Left to `make docs-check`, which runs everything, and to tests of their own.
LONG = {
    "docs/audit.md": "plays thousands of games",
    "docs/replay.md": "replays two worlds",
    "docs/service.md": "needs its service",
    "docs/inbox.md": "needs an encoder: tests/text/test_pages.py",
    "docs/text.md": "needs an encoder: tests/text/test_pages.py",
}
LOADED = re.compile(r"""<(?:link|script|img|iframe|source)\b[^>]*?\b(?:href|src)=["']?(?:https?:)?//([^/"'>\s]+)""")
FETCHED = re.compile(r"""(?:@import\s+|url\()["']?(?:https?:)?//([^/"')\s]+)""")

# What is not run, by page: docker, systemd and a browser are not for a test, and make runs its targets itself.
NOT_RUN = {
    "README.md": {"installs", "make runs its targets itself", "minutes", "minutes of games"},
    "docs/audit.md": {"hours of games"},
    "docs/deploy.md": {"installs", "needs docker", "needs root and systemd", "needs root and Prometheus"},
    "docs/evidence.md": {"make runs its targets itself", "minutes of cells"},
    "docs/index.md": {"installs"},
    "docs/inbox.md": {"minutes", "needs a file that is not Confide's to give"},
    "docs/service.md": {"installs", "opens a browser and does not end"},
    "docs/sklearn.md": {"installs"},
    "docs/story.md": {"80 seconds", "a part of examples/story.py, which is run"},
    "docs/ten-minutes.md": {"installs"},
    "docs/text.md": {"installs"},
    "docs/water.md": {"a minute", "a part of examples/water.py, which is run"},
}


def named(nav: object) -> Iterator[str]:
    """The pages that a navigation names."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for inside in nav.values():
            yield from named(inside)
    elif isinstance(nav, list):
        for inside in nav:
            yield from named(inside)


def settings() -> dict[str, object]:
    loaded = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def test_every_page_has_its_place_and_proofs_come_last() -> None:
    order = list(named(settings()["nav"]))
    there = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert set(order) == there and len(order) == len(there)
    first = [next(i for i, page in enumerate(order) if page.startswith(one)) for one in ("for-me", "epsilon", "how")]
    last = [next(i for i, page in enumerate(order) if page.startswith(one)) for one in ("reference/", "proofs/")]
    assert [*first, *last] == sorted([*first, *last]) and order[-1].startswith("proofs/")


def test_a_page_without_a_place_is_noticed() -> None:
    assert list(named([{"a": "a.md"}, {"b": ["b.md", {"c": "c.md"}]}])) == ["a.md", "b.md", "c.md"]


# ------------------------------------------------------------------ what they show


@pytest.mark.parametrize("name", PAGES)
def test_code_is_fenced_and_has_a_language(name: str) -> None:
    assert not blocks.indented(PAGES[name])
    assert {one.language for one in blocks.blocks(PAGES[name])} <= blocks.LANGUAGES


def test_code_that_is_not_fenced_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Text.\n\n    code = 1\n\n```python\nfine = 2\n```\n", encoding="utf-8")
    assert blocks.indented(page) == ["    code = 1\n"]


def not_run(page: Path) -> set[str]:
    """Why some of a page's blocks are not run, or only in a shorter form."""
    reasons = {one.excerpt for one in blocks.blocks(page) if one.excerpt}
    for one in blocks.blocks(page):
        if one.language == "sh":
            rules = [rule for _, rule in blocks.commands(one) if rule is not None]
            reasons |= {re.split(r"[:;] ", rule.reason)[0] for rule in rules if rule.instead in (None, "true")}
    return reasons


def test_whatever_is_not_run_has_its_reason() -> None:
    assert {name: why for name, page in PAGES.items() if (why := not_run(page))} == NOT_RUN


def test_every_rule_is_needed() -> None:
    used = {
        rule for page in PAGES.values() for one in blocks.blocks(page) if one.language == "sh"
        for _, rule in blocks.commands(one) if rule is not None
    }  # fmt: skip
    assert used == set(blocks.RULES)
    begun = {key for key in blocks.EXCERPTS for one in blocks.blocks(ROOT / key[0]) if one.text.startswith(key[1])}
    assert begun == set(blocks.EXCERPTS)


def test_what_is_left_to_the_longer_check_has_snippets() -> None:
    assert LONG.keys() <= set(SNIPPETS)


@pytest.mark.parametrize("name", sorted(set(SNIPPETS) - LONG.keys()))
def test_the_snippets_of_a_page_run(name: str) -> None:
    assert check.check(PAGES[name], shell=False) > 0


def reader(folder: Path) -> check.Reader:
    check.prepare(folder)
    return check.Reader(folder)


def test_a_snippet_or_command_that_fails_is_noticed(tmp_path: Path) -> None:
    for language, text, error in (("python", "1 / 0", ZeroDivisionError), ("sh", "cat no-such-file", RuntimeError)):
        page = ROOT / "docs" / "tools" / "none.md"
        block = blocks.Block(str(page), 1, language, None, text)
        one = check.Reader(tmp_path)
        with pytest.raises(error):
            one.python(block) if language == "python" else one.shell(*next(blocks.commands(block)))
        assert "CONFIDE_PUBLIC__PORT" not in os.environ  # what is for the page stays with the page


def test_what_a_command_exports_is_there_for_the_next(tmp_path: Path) -> None:
    one = reader(tmp_path)
    one.shell("export TICKET=$(head -c 3 visits.csv)", None)
    one.shell("test $TICKET = age", None)
    assert one.local("http://127.0.0.1:8000/") == f"http://127.0.0.1:{one.ports['8000']}/"


# ------------------------------------------------------------------ the site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make test` has built it a moment ago, or built now."""
    if "CONFIDE_SITE" in os.environ:
        return Path(os.environ["CONFIDE_SITE"])
    for module in ("material", "mkdocstrings", "latex2mathml"):
        if importlib.util.find_spec(module) is None:
            pytest.skip("needs the extra `docs`: pip install 'confide[docs]'")
    folder = tmp_path_factory.mktemp("site") / "0.0.1"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_loads_nothing_from_other_hosts(site: Path) -> None:
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    assert len(pages) > 40
    assert not {str(path): found for path, text in pages.items() if (found := LOADED.findall(text))}
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert styles and not [found for text in styles if (found := FETCHED.findall(text))]
    # The theme would fetch a library for diagrams, and counts of stars for a repository: there are neither.
    assert not [path for path, text in pages.items() if 'class="mermaid"' in text or "md-source" in text]


def test_what_is_loaded_from_elsewhere_is_noticed() -> None:
    assert LOADED.findall('<link rel="x" href="https://fonts.example.org/a.css"><a href="https://fine.example.org">')
    assert FETCHED.findall("@import '//a.example.org/x'; b { src: url(https://b.example.org/y) }") == [
        "a.example.org", "b.example.org"
    ]  # fmt: skip


def test_code_is_highlighted_formulas_are_drawn_and_names_are_found(site: Path) -> None:
    assert '<span class="kn">import</span>' in (site / "index.html").read_text(encoding="utf-8")
    gate = (site / "proofs" / "gate" / "index.html").read_text(encoding="utf-8")
    assert '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">' in gate and "arithmatex" not in gate
    plans = (site / "reference" / "plans" / "index.html").read_text(encoding="utf-8")
    assert 'id="confide.Plan.tight"' in plans or 'id="confide.planning.plan.Plan.tight"' in plans
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert any("epsilon" in one["location"] for one in index["docs"])


def test_every_public_name_has_its_place_in_the_reference(site: Path) -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (site / "reference").rglob("*.html"))
    anchors = set(re.findall(r'id="(confide[\w.]*)"', text))
    homes = (confide, confide.games, confide.learners, confide.text)
    names = {f"{home.__name__}.{name}" for home in homes for name in home.__all__ if not name.startswith("__")}
    assert len(names) > 60
    # A function that its module is named after stands there under its full name.
    assert not {name for name in names - anchors if f"{name}.{name.rpartition('.')[2]}" not in anchors}
    assert 'href="../../proofs/gate/">docs/proofs/gate.md</a>' in text


def test_no_formula_is_left_as_tex(site: Path) -> None:
    tex = re.compile(r'class="arithmatex"|\\\(|\$\$')
    assert not [path for path in site.rglob("*.html") if tex.search(path.read_text(encoding="utf-8"))]


def test_versions_are_offered_the_newest_first(tmp_path: Path) -> None:
    for name in ("0.9.0", "0.10.0", "assets"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").touch()
    versions.write(tmp_path)
    listed = json.loads((tmp_path / "versions.json").read_text(encoding="utf-8"))
    assert [one["version"] for one in listed] == ["0.10.0", "0.9.0"] and listed[0]["aliases"] == ["latest"]
    assert "url=0.10.0/" in (tmp_path / "index.html").read_text(encoding="utf-8")
