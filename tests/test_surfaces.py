"""Every surface offers every option: an option that is added in one place and forgotten in another fails here.

The options are those of `Plan.tight` and of `POP`, read from their signatures. A surface has an option under its own
name, under another one that is named here, or not at all, with a reason that stands here.
"""

from __future__ import annotations

import ast
import inspect
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import confide
import confide.private
from confide import POP, Plan, Promise
from confide.cli.app import app
from confide.cli.plan import plan as plan_command
from confide.cli.run import run as run_command
from confide.cli.successor import successor as successor_command
from confide.learners import GaussianNB, LogisticRegression
from confide.pop.settings import Options
from confide.river import PrivateClassifier as River
from confide.runs.settings import Settings
from confide.service.config import ModelConfig
from confide.service.models import maker, planned
from confide.sklearn import PrivateClassifier as Sklearn

PLANNED = [name for name in inspect.signature(Plan.tight).parameters if name != "cls"]
MADE = [*(name for name in inspect.signature(POP.__init__).parameters if name not in ("self", "options")),
        *Options.__annotations__]  # fmt: skip


def parameters(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters)


ADAPTED = dict.fromkeys(PLANNED, "plan")  # a plan has them all

SURFACES: dict[str, tuple[list[str], set[str], dict[str, str]]] = {
    "confide plan": (PLANNED, parameters(plan_command), {}),
    "confide run": (
        PLANNED + MADE,
        parameters(run_command),
        {"units": "unit", "features": "schema"},
    ),
    "a service's file": (PLANNED + MADE, set(ModelConfig.model_fields), {"features": "columns"}),
    "confide successor": (PLANNED + MADE, parameters(successor_command), {"features": "schema"}),
    "River": (PLANNED + MADE, parameters(River), {**ADAPTED, "learner": "model", "labels": "labels"}),
    "scikit-learn": (
        PLANNED + MADE,
        parameters(Sklearn),
        {**ADAPTED, "learner": "estimator", "labels": "classes", "features": "ranges"},
    ),
    "Private": (
        PLANNED + MADE,
        parameters(confide.Private) | set(confide.private.Options.__annotations__),
        {"units": "people", "unit_labels": "labels_per_person"},
    ),
}
"""Of each surface: the options that it must have, the names that it has, and options that have another name there."""

ABSENT: dict[str, dict[str, str]] = {
    "confide plan": {"dissent": "--frontier shows all of them, and --copies says what it would choose"},
    "confide run": {
        "dissent": "it only chooses copies, which --copies says",
        "after_halt": "a run goes on after a halt, or ends with exit code 3",
        "ticket_life": "it follows from --delay",
        "public_start": "a learner is made by its name, and has learned nothing",
        "bank": "an object of Python, but for --ray",
        "relay": "its report knows copies that halt: confide.evaluate takes a relay, and so does a service",
    },
    "a service's file": {
        "dissent": "it only chooses copies, which `copies` says",
        "seed": "it has no place in a file: CONFIDE_INSECURE_SEED is for tests",
        "public_start": "a learner is made by its name, and has learned nothing",
        "relay": "`plan` has it, the file that confide plan --relay --json writes",
    },
    "confide successor": {
        "units": "they are the old model's: nothing is proved for others",
        "dissent": "it only chooses copies, which --copies says",
        "monitor": "its price over several models is not proved",
        "relay": "its price over several models is not proved",
        "seed": "it is for tests, and a model that is made with one promises nothing",
        "public_start": "a learner is made by its name, and has learned nothing",
        "bank": "it is chosen wherever the model is loaded",
    },
    "River": {
        "ticket_life": "River has no tickets",
        "monitor": "a private count of mistakes needs tickets",
        "bank": "made of the model",
    },
    "scikit-learn": {
        "ticket_life": "scikit-learn has no tickets",
        "monitor": "a private count of mistakes needs tickets",
        "public_start": "scikit-learn clones estimators, and a clone has learned nothing",
        "bank": "made of the estimator",
    },
    "Private": {
        **dict.fromkeys(
            ("copies", "unsure", "polls", "silent", "unit_unsure", "beta", "dissent", "guide", "lean", "relay"),
            "whoever chooses numbers of copies gives a plan to POP",
        ),
        "plan": "it makes the plan; POP takes one",
        **dict.fromkeys(("after_halt", "public_start", "bank"), "POP's"),
    },
}


@pytest.mark.parametrize("surface", SURFACES)
def test_every_surface_offers_every_option_or_says_why_not(surface: str) -> None:
    wanted, offered, called = SURFACES[surface]
    absent = ABSENT[surface]
    for option in dict.fromkeys(wanted):
        has = called.get(option, option) in offered
        assert has or option in absent, f"{surface} has no {option}: offer it, or say here why not"
        assert not (has and option in absent), f"{surface} has {option} now: leave it out of those that are absent"
    assert not absent.keys() - set(wanted), "an option that is none"
    assert all(name in offered for name in called.values())


def test_an_option_that_is_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, offered, called = SURFACES["a service's file"]
    for forgotten in ("lean", "label_weights"):
        assert forgotten in offered
        monkeypatch.setitem(SURFACES, "a service's file", (wanted, offered - {forgotten}, called))
        with pytest.raises(AssertionError, match=f"has no {forgotten}"):
            test_every_surface_offers_every_option_or_says_why_not("a service's file")


NOT_SAID_ANEW = {
    "folder", "predecessor",  # two arguments
    "units", "protect", "per", "periods", "monitor", "monitor_delay", "deadline", "missing", "partitions",  # not proved
    "columns",  # --schema
    "bank", "ticket_hours", "quota", "room", "save_every", "release_every", "trusted",  # how it is served
}  # fmt: skip
"""Entries of a service's file that `confide successor` has no option for."""


def test_a_successor_is_offered_every_entry_of_a_promise_that_a_service_file_has() -> None:
    entries = set(ModelConfig.model_fields) - {"schema_file"} | {"schema"}
    assert entries - parameters(successor_command) == NOT_SAID_ANEW


# ---------------------------------------------------------------------- and they are heeded

NUMBERS = {"epsilon": 20.0, "delta": 1e-2, "rounds": 2000, "copies": 60, "polls": 40, "unsure": 100, "silent": 100}


@cache
def leaning(lean: str | None) -> Plan:
    return Plan.tight(**NUMBERS, guide=None, lean=lean)  # type: ignore[arg-type]


def file(**entries: Any) -> ModelConfig:
    return ModelConfig(folder=Path("nowhere"), labels=["no", "yes"], columns=2, **{**NUMBERS, **entries})


@pytest.mark.parametrize("lean", ["additive", "none"])
def test_a_lean_is_heeded_on_every_surface(lean: str, tmp_path: Path) -> None:
    plan = leaning(None if lean == "none" else lean)
    assert (plan.lean is None) == (lean == "none")
    units = plan.but(units="rounds")
    assert Settings(**NUMBERS, guide=False, lean=lean).tight(2, None) == units  # type: ignore[arg-type]
    assert planned(file(guide=False, lean=lean)) == units
    assert River(LogisticRegression(), plan=plan, features=2, labels=(0, 1)).pop.plan.lean == plan.lean
    fitted = Sklearn(LogisticRegression(), plan=plan, seed=1).fit([[0.0, 1.0], [1.0, 0.0]] * 200, [0, 1] * 200)
    assert fitted.pop_.plan.lean == plan.lean
    words = [*(f"--{name}={value}" for name, value in NUMBERS.items()), "--no-guide", f"--lean={lean}"]
    done = CliRunner().invoke(app, ["plan", *words, "--json", str(tmp_path / "plan.json")])
    assert done.exit_code == 0, done.output
    assert Plan.from_json(tmp_path / "plan.json") == plan
    other = Settings(plan=str(tmp_path / "plan.json"), lean="fill")
    with pytest.raises(ValueError, match=f"--lean fill contradicts .* which says {lean}"):
        other.filed()
    assert Settings(plan=str(tmp_path / "plan.json"), lean=lean).filed() == plan


@pytest.mark.filterwarnings("ignore:delta=0.01")
def test_label_weights_are_heeded_on_every_surface() -> None:
    promise, weights = Promise(20.0, 1e-2, 400), (1.0, 5.0)
    rows = {"labels": ["no", "yes"], "features": 2, "label_weights": {"yes": 5}}
    alone: Any = {"copies": None, "polls": None, "unsure": None, "silent": None, "label_weights": {"yes": 5}}
    made = [
        confide.Private(epsilon=20.0, delta=1e-2, rounds=400, **rows).mechanism,  # type: ignore[arg-type]
        River(promise=promise, **rows).pop,  # type: ignore[arg-type]
        Sklearn(promise=promise, label_weights={"yes": 5}).fit([[0.0], [1.0]] * 200, ["no", "yes"] * 200).pop_,
        maker("spam", file(**alone))(),
    ]
    assert [pop.label_weights for pop in made] == [weights] * 4  # type: ignore[union-attr]


# ---------------------------------------------------------------------- few names, few parameters


def test_a_dozen_names_are_shown() -> None:
    names = [name for name in dir(confide) if not name.startswith("_")]
    assert set(names) == set(confide.__all__) - {"__version__"} and len(names) == 12
    for name in names:
        assert getattr(confide, name).__doc__
    with pytest.raises(AttributeError):
        _ = confide.Gate  # type: ignore[attr-defined]


SOURCE = Path(confide.__file__).parent
MANY = {"confide/planning/plan.py tight", "confide/sklearn.py __init__", "confide/river.py __init__"}
"""What may have more than twelve parameters: the planner, and the adapters, which follow others' habits."""


def taken(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    given = function.args
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def test_nothing_takes_more_than_twelve_parameters() -> None:
    """Commands are no callables: their parameters are the options of a command line."""
    many = set[str]()
    for path in SOURCE.rglob("*.py"):
        place = path.relative_to(SOURCE.parent).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if function and taken(node) > 12 and not place.startswith("confide/cli/"):
                many.add(f"{place} {node.name}")
    assert many <= MANY
    assert len(inspect.signature(POP).parameters) <= 9 and len(inspect.signature(confide.Private).parameters) <= 8


def test_the_promise_is_said_once() -> None:
    """The adapters take a promise or a plan, and none of their fields: two places could say two things."""
    fields = {*parameters(Promise), *PLANNED} - {"labels", "history"}  # names of labels, and rows of the first fit
    for adapter in (River, Sklearn):
        assert {"promise", "plan"} <= parameters(adapter) and not fields & parameters(adapter)


# ---------------------------------------------------------------------- a plan without an end


def test_a_plan_without_an_end_is_planned_run_and_served_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("a,b,y\n" + "".join(f"{i % 7},{i % 3},{'xy'[i % 7 > 3]}\n" for i in range(300)))
    asked = ["plan", "-e", "8", "--endless", "--units", "rounds", "--json", "plan.json"]
    assert CliRunner().invoke(app, asked).exit_code == 0
    done = CliRunner().invoke(app, ["run", "a.csv", "--plan", "plan.json", "--no-twin", "--report", "r.html"])
    assert done.exit_code == 0 and "300, and no last one; finished" in done.output, done.output
    assert json.loads(Path("r.json").read_text())["public"]["plan"]["rounds"] is None
    short = CliRunner().invoke(app, ["run", "a.csv", "--plan", "plan.json", "-T", "100", "--no-twin"])
    assert short.exit_code == 0 and "100, and no last one; finished" in short.output, short.output
    entries = {"labels": ["x", "y"], "columns": 2, "plan": Path("plan.json")}
    assert planned(ModelConfig(folder=Path("nowhere"), **entries)).endless  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"rounds = 100 contradicts plan\.json, which has no last one"):
        planned(ModelConfig(folder=Path("nowhere"), rounds=100, **entries))  # type: ignore[arg-type]


def test_copies_of_a_model_that_answers_are_still_copies() -> None:
    """The refusal is of models that would not answer, and of no other."""
    plan = leaning(None)
    assert River(GaussianNB(), plan=plan, features=2, labels=(0, 1)).pop.plan.copies == 60
