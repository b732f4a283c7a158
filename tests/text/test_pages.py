"""The pages about texts: their snippets run, and their numbers are those that were measured."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
MISSING = importlib.util.find_spec("wordllama") is None
needs = pytest.mark.skipif(MISSING, reason='needs the package wordllama: pip install "confide[text]"')


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


@pytest.fixture
def load() -> Iterator[Any]:
    """A script's module, as it is when it is run."""
    before, path = set(sys.modules), list(sys.path)

    def load(script: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(Path(script).stem, ROOT / script)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module

    yield load
    sys.path[:] = path
    for name in (set(sys.modules) - before) & {"run", "text", "guide_streams", "inbox", "inbox.messages", "pictures"}:
        del sys.modules[name]


@needs
@pytest.mark.parametrize("name", ["text.md", "inbox.md"])
def test_the_snippets_run(name: str) -> None:
    parts = re.findall(r"```python\n(.*?)```", page(name), flags=re.DOTALL)
    room: dict[str, Any] = {}
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        for part in parts:
            exec(compile(part, name, "exec"), room)
    assert len(parts) == (3 if name == "text.md" else 1)
    assert said.getvalue() == ("praise\n" if name == "text.md" else "")


def test_the_table_of_texts_is_what_was_measured(load: Any) -> None:
    result = json.loads((ROOT / "benchmarks" / "results" / "text.json").read_text(encoding="utf-8"))
    assert load("benchmarks/text.py").table(result) in page("text.md")
    assert set(result["encoders"]) == {"words", "wordllama", "minilm"}
    for name in ("wordllama", "minilm"):  # the head on the same vectors, at (4, 10⁻⁶)
        vectors = result["encoders"][name]["vectors"]
        assert max(one["late"] for one in vectors["4"]) <= vectors["head"]["late"] + 4
        copies = result["encoders"][name]["copies"]
        assert f"{copies['share']:g} %" in page("text.md") and f"{copies['copies']} copies" in page("text.md")


def test_the_inbox_s_numbers_are_what_was_measured(load: Any) -> None:
    result = json.loads((ROOT / "benchmarks" / "results" / "inbox.json").read_text(encoding="utf-8"))
    first, second = load("examples/inbox/run.py").tables(result).split("\n\n")
    assert first in page("inbox.md") and second in page("inbox.md")


def test_the_inbox_runs_without_any_file(load: Any, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.delenv("CONFIDE_DATA", raising=False)
    result = load("examples/inbox/run.py").main(["--quick", "--pictures", str(tmp_path)])
    assert result["stream"] == "made-up messages" and result["messages"] == 2000
    assert result["late"]["plain"] < 0.12 and result["late"]["Confide, ε = 4"] < 0.4
    plain, private = result["attacks"]
    assert plain["right"] == plain["games"] == 30
    # At the certified rate all thirty come with probability below 10⁻⁶; without noise they would.
    assert private["right"] < 30 and private["certified"] ** 30 < 1e-6
    assert "right guesses" in (tmp_path / "inbox-attack.svg").read_text(encoding="utf-8")
