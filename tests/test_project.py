"""The project keeps its promises about itself."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import confide

ROOT = Path(__file__).resolve().parent.parent

# Put together here, so that this file does not contain what it forbids.
MACHINE_PATHS = re.compile("/" + "(?:work|root|home|tmp/venv|tmp/brief)" + r"/")
CLAIM = re.compile(r"mark\.claim\(([^)]*)\)")
EXTRAS = (
    *("typer", "rich", "matplotlib", "jinja2", "pyarrow", "pandas", "polars", "river", "sklearn", "psycopg"),
    *("tokenizers", "safetensors", "wordllama"),
)
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
    short = confide.__version__.rpartition(".")[0]
    assert f"version {short}:" in (ROOT / "README.md").read_text(encoding="utf-8")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## \[(\d[^]]*)\]", changes, flags=re.MULTILINE)[0] == confide.__version__


def unknown_tests(text: str) -> set[str]:
    """The lines of a list of tests that name no test."""
    found = set()
    for line in text.splitlines():
        name, _, test = line.partition("::")
        path = ROOT / name
        if line.startswith("#") or (path.is_file() and test.rpartition(".")[2] in path.read_text(encoding="utf-8")):
            continue
        found.add(line)
    return found


def test_what_is_left_out_of_the_fast_tests_is_a_test() -> None:
    assert not unknown_tests((ROOT / "tests" / "slow.txt").read_text(encoding="utf-8"))
    assert unknown_tests("tests/test_nothing.py\n# tests/a.py") == {"tests/test_nothing.py"}
    assert unknown_tests("tests/test_gate.py\ntests/test_gate.py::test_" + "nothing")


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


def claimed(text: str) -> set[str]:
    """The proof pages that a test file says it tests."""
    return {page for marked in CLAIM.findall(text) for page in re.findall(r"[\w-]+\.md", marked)}


def test_every_proof_page_has_tests_and_every_claim_its_page() -> None:
    pages = {path.name for path in (ROOT / "docs" / "proofs").glob("*.md")} - {"index.md"}
    files = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if path != Path(__file__).resolve()]
    tested = {page for path in files for page in claimed(path.read_text(encoding="utf-8"))}
    assert len(pages) > 10
    assert tested == pages


def test_a_claim_is_read_from_its_mark() -> None:
    assert claimed('pytestmark = pytest.mark.claim("a-b.md", "c.md")\n# d.md') == {"a-b.md", "c.md"}


def in_a_new_process(code: str) -> str:
    """What `code` prints where none of the extras is installed."""
    blocked = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""
    done = subprocess.run([sys.executable, "-c", blocked + code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_core_runs_without_any_extra() -> None:
    code = """
import importlib, pkgutil
import confide
from confide.learners import LogisticRegression
for name in confide.__all__:
    getattr(confide, name)
rooms = ["kernels", "privacy", "planning", "learners", "banks", "ledger", "pop"]
extra = {"confide.planning.pictures", "confide.pop.pictures", "confide.ledger.postgres", "confide.ledger.server"}
for room in rooms:
    home = importlib.import_module(f"confide.{room}")
    for module in pkgutil.walk_packages(home.__path__, f"confide.{room}."):
        if module.name not in extra:
            importlib.import_module(module.name)
plan = confide.Plan.tight(epsilon=8.0, delta=1e-5, rounds=2000, copies=150, unsure=100, silent=1000)
pop = confide.POP(LogisticRegression(), plan, labels=["no", "yes"], features=1)
for i in range(3):
    pop.learn(pop.predict([1.0]).ticket, "yes")
print(pop.rounds)
"""
    assert in_a_new_process(code) == "3"


def test_an_extra_that_is_missing_is_noticed() -> None:
    with pytest.raises(AssertionError, match="No module named 'rich'"):
        in_a_new_process("import rich.console")


def test_importing_confide_alone_loads_nothing_heavy() -> None:
    code = "import confide, sys; print(sorted({'numpy', 'scipy', 'numba', 'cryptography'} & set(sys.modules)))"
    assert in_a_new_process(code) == "[]"
    assert "numpy" in in_a_new_process(code.replace("confide,", "numpy,"))
