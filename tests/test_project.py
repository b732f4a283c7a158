"""The project keeps its promises about itself."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import confide

ROOT = Path(__file__).resolve().parent.parent

# Put together here, so that this file does not contain what it forbids.
MACHINE_PATHS = re.compile("/" + "(?:work|root|home|tmp/venv|tmp/brief)" + r"/")
PROOF_PAGE = re.compile(r"docs/proofs/([\w-]+\.md)")


def machine_paths(text: str) -> list[str]:
    """The lines of `text` that name a place on somebody's machine."""
    return [line.strip() for line in text.splitlines() if MACHINE_PATHS.search(line)]


def missing_pages(text: str) -> set[str]:
    """The proof pages that `text` names and that do not exist."""
    return {page for page in PROOF_PAGE.findall(text) if not (ROOT / "docs" / "proofs" / page).is_file()}


def project_files() -> list[Path]:
    """Every file that is tracked or would be, caches and builds left out."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs a git checkout, to tell the project's files from others")
    return [path for name in listing.split("\0") if name and (path := ROOT / name).is_file()]


def test_version_is_the_same_everywhere() -> None:
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert metadata["project"]["version"] == confide.__version__


def test_no_file_names_a_place_on_a_machine() -> None:
    files = project_files()
    assert ROOT / "pyproject.toml" in files
    found = {}
    for path in files:
        content = path.read_bytes()
        if b"\0" in content:
            continue
        if lines := machine_paths(content.decode("utf-8", errors="replace")):
            found[str(path.relative_to(ROOT))] = lines
    assert not found


@pytest.mark.parametrize("folder", ["work", "root", "home", "tmp/venv"])
def test_a_place_on_a_machine_is_noticed(folder: str) -> None:
    assert machine_paths(f"fine\nreads /{folder}/data.csv") == [f"reads /{folder}/data.csv"]
    assert not machine_paths(f"reads {folder}/data.csv and my{folder}")


def test_every_proof_page_named_in_the_source_exists() -> None:
    sources = sorted((ROOT / "src").rglob("*.py"))
    assert sources
    named = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in sources}
    assert not {name: pages for name, text in named.items() if (pages := missing_pages(text))}


def test_a_missing_proof_page_is_noticed() -> None:
    assert missing_pages("see docs/proofs/index.md and docs/proofs/nowhere.md") == {"nowhere.md"}
