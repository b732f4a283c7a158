"""Compiled loops run the source as it stands now, wherever an edit was made, and never fail for want of a cache."""

import ast
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from confide.kernels.cache import PACKAGE, kernel_sources, reached

CALLEE = """
from confide.kernels.compile import jit
@jit
def step(x):
    return x + {by}
"""
CONSTANT = "UNIT = {unit}\n"
CALLER = """
from confide.kernels.compile import jit
from confide.kernels.memory import VOTE, kernel
from confide.privacy.callee import step
from confide.privacy.constant import UNIT
@jit
def steps(n):
    x = 0
    for _ in range(n):
        x = step(x)
    return x * UNIT
def vote(memory, constants, slots, ahead, x, counts):
    counts[0] = step(counts[0])
"""
RUN = """
import ctypes, sys
import numpy as np
from confide.privacy.caller import VOTE, kernel, steps, vote
from confide.banks.ask import ask
made = kernel(vote, VOTE)
counts = np.zeros(2, dtype=np.int64)
nothing = np.zeros((0, 5), dtype=np.int64), np.zeros(0), np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32)
ask(made, *nothing, np.zeros(1), counts)
print(steps(10), counts[0], *(sum(f.stats.cache_hits.values()) for f in (steps, ask)), made.cache_hits)
"""
ASK = """
from confide.kernels.compile import jit
@jit
def ask(vote, memory, constants, slots, ahead, x, counts):
    vote(memory, constants, slots, ahead, x, counts)
"""


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A package with the real kernels folder and three small modules that use it."""
    return build(tmp_path)


def build(place: Path) -> Path:
    package = place / "confide"
    shutil.copytree(PACKAGE / "kernels", package / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    for room in ("privacy", "banks"):
        (package / room).mkdir()
        (package / room / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "privacy" / "callee.py").write_text(CALLEE.format(by=1))
    (package / "privacy" / "constant.py").write_text(CONSTANT.format(unit=1))
    (package / "privacy" / "caller.py").write_text(CALLER)
    (package / "banks" / "ask.py").write_text(ASK)
    age(package)
    return place


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Such a package after a first run, with the machine code that it kept: never run itself, only copied."""
    place = build(tmp_path_factory.mktemp("compiled"))
    assert run(place) == [10, 1, 0, 0, 0]
    return place


@pytest.fixture
def warm(compiled: Path, tmp_path: Path) -> Path:
    """A copy of it, as old and as private."""
    return Path(shutil.copytree(compiled, tmp_path / "warm"))


def age(package: Path) -> None:
    """Let every file be an hour old: what was written this very moment is compiled, and not kept."""
    for path in package.rglob("*.py"):
        then = path.stat().st_mtime - 3600
        os.utime(path, (then, then))


def start(house: Path, before: str = "", code: str = RUN, **variables: str) -> "subprocess.Popen[str]":
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment |= {"PYTHONPATH": str(house), "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(house)} | variables
    command = [sys.executable, "-W", "error", "-c", before + code]
    out = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=out, stderr=out, text=True, cwd=house)


def finish(process: "subprocess.Popen[str]") -> list[str]:
    out, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, "")
    return out.split()


def run(house: Path, before: str = "", **variables: str) -> list[int]:
    """What a new process computes: ten steps, one vote, and how often the cache served each of three kernels."""
    return [int(word) for word in finish(start(house, before, **variables))]


def kept(house: Path) -> list[Path]:
    return sorted((house / "confide").rglob("*.nbc"))


def test_an_edit_of_a_kernel_in_another_file_is_followed_and_one_that_has_no_part_in_it_stays(warm: Path) -> None:
    assert run(warm) == [10, 1, 1, 1, 1]
    before = kept(warm)
    stays = [path for path in before if path.name.startswith("ask.")]
    (warm / "confide" / "privacy" / "callee.py").write_text(CALLEE.format(by=7))
    age(warm / "confide")
    assert run(warm) == [70, 7, 0, 1, 0]
    (warm / "confide" / "privacy" / "constant.py").write_text(CONSTANT.format(unit=2))
    age(warm / "confide")
    assert run(warm) == [140, 7, 0, 1, 0]
    assert len(kept(warm)) == len(before)
    assert set(kept(warm)) & set(before) == set(stays) and len(stays) == 1  # what the old sources made is gone


def test_an_edit_of_how_kernels_are_compiled_is_an_edit_of_all(warm: Path) -> None:
    source = warm / "confide" / "kernels" / "compile.py"
    source.write_text(source.read_text() + "\n")
    age(warm / "confide")
    assert run(warm) == [10, 1, 0, 0, 0]


PAIR = """
from typing import NamedTuple
class Pair(NamedTuple):
    {one}: int
    {other}: int
"""
LESS = """
from confide.kernels.compile import jit
@jit
def less(pair):
    return pair.large - pair.small
"""
TELL = """
from confide.privacy.less import less
from confide.privacy.{where} import Pair
print(less(Pair(**dict(small=2, large=5))), sum(less.stats.cache_hits.values()))
"""


def test_a_tuple_that_a_kernel_does_not_import_is_part_of_its_signature(house: Path) -> None:
    """With the fields in another order, or of another module, the same types would stand for other numbers."""
    room = house / "confide" / "privacy"
    (room / "less.py").write_text(LESS)

    def told(where: str, one: str, other: str) -> list[str]:
        (room / f"{where}.py").write_text(PAIR.format(one=one, other=other))
        age(house / "confide")
        return finish(start(house, code=TELL.format(where=where)))

    assert told("pair", "small", "large") == ["3", "0"]
    assert told("pair", "large", "small") == ["3", "0"]
    (room / "pair.py").unlink()
    assert told("moved", "large", "small") == ["3", "0"]
    assert told("moved", "large", "small") == ["3", "1"]


def test_what_was_edited_this_moment_is_compiled_and_not_kept(house: Path) -> None:
    """It could have been imported before the edit, and would then be kept under the new source's digest."""
    (house / "confide" / "privacy" / "callee.py").write_text(CALLEE.format(by=3))
    later = (house / "confide" / "privacy" / "callee.py").stat().st_mtime + 3600
    os.utime(house / "confide" / "privacy" / "callee.py", (later, later))
    assert run(house) == [30, 3, 0, 0, 0]
    assert [path.name.split(".")[0] for path in kept(house)] == ["ask"]  # which has no part in the edit


def test_an_edit_while_the_process_runs_is_not_kept(house: Path) -> None:
    callee = house / "confide" / "privacy" / "callee.py"
    edit = f"import confide.kernels.cache, pathlib; pathlib.Path({str(callee)!r}).write_text({CALLEE.format(by=9)!r})\n"
    assert run(house, before=edit)[:2] == [90, 9]
    assert [path.name.split(".")[0] for path in kept(house)] == ["ask"]


def test_a_doubtful_file_is_passed_over(warm: Path) -> None:
    half, empty, *others = kept(warm)
    half.write_bytes(half.read_bytes()[:-100])
    empty.write_bytes(b"")
    for path in others:
        path.chmod(0o666)  # whoever may have written it
    assert run(warm) == [10, 1, 0, 0, 0]
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept(warm)} == {0o600}  # made anew


def test_without_a_folder_for_the_code_kernels_still_run(house: Path) -> None:
    nowhere = house / "a file"
    nowhere.touch()  # root may write anywhere, but not into a file
    for room in ("privacy", "banks", "kernels"):
        (house / "confide" / room / "__pycache__").touch()
    variables = {"HOME": str(nowhere), "XDG_CACHE_HOME": str(nowhere)}
    assert run(house, **variables) == [10, 1, 0, 0, 0]


def test_a_write_that_fails_does_not_matter(house: Path) -> None:
    full = """
import os
def full(*args, **named):
    raise OSError(28, "no space")
import confide.kernels.cache
os.replace = full
"""
    assert run(house, before=full) == [10, 1, 0, 0, 0]
    assert not list((house / "confide").rglob("*.nbc*"))


def test_processes_may_compile_at_the_same_moment_and_keep_it_private_whatever_the_umask(house: Path) -> None:
    running = [start(house, before="import os; os.umask(0)\n") for _ in range(2)]
    assert [finish(process)[:2] for process in running] == [["10", "1"]] * 2
    assert kept(house) and {stat.S_IMODE(path.stat().st_mode) for path in kept(house)} == {0o600}
    assert run(house) == [10, 1, 1, 1, 1]


def is_kernel(function: ast.FunctionDef) -> bool:
    decorators = [node.id for node in function.decorator_list if isinstance(node, ast.Name)]
    return "jit" in decorators or [arg.arg for arg in function.args.args[:2]] == ["memory", "constants"]


def used_names(function: ast.FunctionDef) -> set[str]:
    return {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}


def test_whatever_a_kernel_uses_comes_from_a_file_in_its_digest() -> None:
    """Else an edit there would go unnoticed. Errors may be raised in kernels: only their names are compiled in."""
    sources, kernels = kernel_sources(), 0
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert not any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree)), "relative imports"
        compiled = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and is_kernel(node)]
        kernels += len(compiled)
        assert path in sources or not compiled, path
        digest = reached([path], sources) if compiled else {}
        homes = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("confide")
            for alias in node.names
        }
        for name in {homes[used] for f in compiled for used in used_names(f) if used in homes}:
            whole, module = PACKAGE.parent / Path(*name.split(".")), PACKAGE.parent / Path(*name.split(".")[:-1])
            assert {whole.with_suffix(".py"), module.with_suffix(".py")} & digest.keys(), (path, name)
    assert kernels > 50


def test_kernels_of_other_packages_are_not_kept(house: Path) -> None:
    (house / "outside.py").write_text(CALLEE.format(by=1))
    report = "import outside; print(outside.step(1), outside.step.stats.cache_path)"
    assert finish(start(house, code=report)) == ["2", "None"]


def test_a_file_that_is_run_by_another_name_keeps_nothing_that_others_would_load(house: Path) -> None:
    """Machine code names its module: kept by `python -m doctest`, say, it would fail whoever imports that module."""
    report = "import sys; sys.path.insert(0, 'confide/privacy'); import callee; print(callee.step(1))"
    assert finish(start(house, code=report)) == ["2"] and not [path for path in kept(house) if "callee" in path.name]
    assert run(house)[:2] == [10, 1]
