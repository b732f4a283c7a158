"""Say which versions of the site there are, for the switch in its header.

    python -m docs.tools.versions site        # site/0.2.0/, site/0.1.0/, … → site/versions.json and site/index.html

A version is a folder with a page. Whoever publishes the site keeps the folders of older versions beside the new one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

_TO_THE_NEWEST = """<!doctype html>
<meta charset="utf-8">
<title>Confide</title>
<meta http-equiv="refresh" content="0; url={0}/index.html">
<a href="{0}/index.html">Confide {0}</a>
"""


def key(version: str) -> tuple[int, ...]:
    """Versions in their order: 0.10 comes after 0.9."""
    return tuple(int(part) for part in version.split("."))


def versions(site: Path) -> list[str]:
    """The versions in `site`, the newest first."""
    found = [one.name for one in site.iterdir() if (one / "index.html").is_file()]
    return sorted((one for one in found if one.replace(".", "").isdigit()), key=key, reverse=True)


def write(site: Path) -> None:
    """Write what the header reads, and a first page that leads to the newest version."""
    there = versions(site)
    if not there:
        raise SystemExit(f"{site} holds no version: `make docs` builds one")
    listed = [{"version": one, "title": one, "aliases": ["latest"] if one == there[0] else []} for one in there]
    (site / "versions.json").write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    (site / "index.html").write_text(_TO_THE_NEWEST.format(there[0]), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
