"""The commands and snippets of the pages, and what is done with each: run, run in a shorter form, or not, and why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
LANGUAGES = {"python", "sh", "text", "toml", "nginx"}
_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^(?P=indent)```$", re.M | re.S
)


class Rule(NamedTuple):
    """Commands that begin like this, on all pages or on one, become `instead`, or are not run where that is None."""

    begins: str
    instead: str | None
    reason: str
    page: str | None = None

    def fits(self, command: str, page: str) -> bool:
        return self.page in (None, page) and re.match(self.begins, command) is not None


# In the order in which they are tried; a command that none of them fits is run as it stands.
RULES = (
    Rule(r"python3 -m venv confide-env", None, "installs: make newcomer does it, in an environment of its own"),
    Rule(r"\. confide-env/bin/activate", None, "installs: make newcomer does it, in an environment of its own"),
    Rule(r"pip install", None, "installs: make newcomer does it, in an environment of its own"),
    Rule(r"make ", None, "make runs its targets itself"),
    Rule(r"python -m benchmarks\.evidence --check", None, "minutes of cells; the tests of evidence rerun some"),
    Rule(r"docker ", None, "needs docker"),
    Rule(r"useradd |install -D|systemctl |systemd-analyze ", None, "needs root and systemd"),
    Rule(r"python3 -m venv /opt/confide", None, "needs root and systemd"),
    Rule(r"confide token .* > /etc/prometheus/", None, "needs root and Prometheus"),
    Rule(r"confide audit --quick", None, "minutes of games; docs/audit.md has it too", "README.md"),
    Rule(r"confide audit --folder", None, "hours of games; confide audit --quick is run"),
    Rule(r"python examples/support_bot/run\.py", None, "opens a browser and does not end; its tests run it"),
    Rule(r"CONFIDE_DATA=folder python", None, "needs a file that is not Confide's to give"),
    Rule(r"python examples/inbox/run\.py --quick", "python examples/inbox/run.py --quick", "as it stands"),
    Rule(r"python examples/inbox/run\.py", "true", "minutes; its quick form is run"),
    Rule(r"python examples/story\.py --quick", "python examples/story.py --quick", "as it stands"),
    Rule(
        r"python examples/story\.py --picture", "python examples/story.py --quick --picture story.svg", "its quick form"
    ),
    Rule(r"python examples/story\.py", "true", "80 seconds; its quick form is run"),
    Rule(r"python examples/water\.py --quick", "python examples/water.py --quick", "as it stands"),
    Rule(
        r"python examples/water\.py --picture", "python examples/water.py --quick --picture water.svg", "its quick form"
    ),
    Rule(r"python examples/water\.py", "true", "a minute; its quick form is run"),
)

# Snippets that are parts of something else, by their page and their beginning.
EXCERPTS = {
    ("docs/story.md", "def play("): "a part of examples/story.py, which is run",
    ("docs/story.md", "Unprotected("): "a part of examples/story.py, which is run",
    ("docs/water.md", "def report("): "a part of examples/water.py, which is run",
}


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: str
    line: int
    language: str
    title: str | None
    text: str

    @property
    def excerpt(self) -> str | None:
        """Why this snippet is not run, or None."""
        for (page, begins), reason in EXCERPTS.items():
            if self.page == page and self.text.startswith(begins):
                return reason
        return None


def pages() -> list[Path]:
    """The front page and the guides; proofs hold no commands, and the reference's examples are doctests."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of `page`, in order."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        inside = re.sub(rf"^{found['indent']}", "", found["text"], flags=re.M)
        line = text.count("\n", 0, found.start()) + 1
        yield Block(str(page.relative_to(ROOT)), line, found["language"], found["title"], inside)


def indented(page: Path) -> list[str]:
    """Code that is set off by spaces alone: nobody highlights it, and nothing runs it."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return re.findall(r"(?:\A|\n)\n((?:    [^\n]+\n)+)", text)


def commands(block: Block) -> Iterator[tuple[str, Rule | None]]:
    """The commands of a block, each with the rule that changes it."""
    for command in re.sub(r"\\\n\s*", "", block.text).splitlines():
        bare = re.split(r"\s{2,}#", command)[0].strip()
        if bare and not bare.startswith("#"):
            yield bare, next((rule for rule in RULES if rule.fits(bare, block.page)), None)
