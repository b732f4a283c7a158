"""Weights of labels are asked for in the same words at every surface, checked by one rule, and kept with the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import confide
from confide._checks import label_weights
from confide.cli.app import app
from confide.data.schema import Schema
from confide.river import PrivateClassifier as River
from confide.service.config import read_config
from confide.service.models import open_desk, promised
from confide.sklearn import PrivateClassifier as Sklearn

LABELS = ["genuine", "fraud"]


def rows(count: int) -> list[str]:
    """One payment in ten is a fraud, and half of these look like one."""
    lines = ["amount,place,kind"]
    for i in range(count):
        fraud = i % 10 == 0
        lines.append(f"{900 if fraud and i % 20 else i % 50},{'abroad' if i % 3 else 'here'},{LABELS[fraud]}")
    return lines


@pytest.mark.parametrize("wrong", [{"frod": 2}, {"fraud": 0}, {"fraud": 1e999}, 5, [1.0], [1, 2, 3], {"fraud": "5"}])
def test_one_rule_refuses_wrong_weights_wherever_they_are_given(wrong: Any) -> None:
    plan = confide.Plan.tight(8.0, 1e-3, 200, guide=1.0)
    makes = [
        lambda: label_weights(wrong, LABELS),
        lambda: confide.POP(None, plan, labels=LABELS, features=1, label_weights=wrong),
        lambda: River(plan=plan, labels=LABELS, label_weights=wrong).pop,
        lambda: Sklearn(promise=confide.Promise(8.0), label_weights=wrong).fit([[0.0], [1.0]] * 200, LABELS * 200),
    ]
    for make in makes:
        with pytest.raises(ValueError, match="label_weights"):
            make()


def test_weights_by_label_are_weights_in_order() -> None:
    plan = confide.Plan.tight(8.0, 1e-3, 300, guide=1.0)
    xs = np.arange(300.0)[:, None] % 7
    ys = [LABELS[i % 7 == 3] for i in range(300)]
    made = [
        confide.evaluate(confide.POP(None, plan, labels=LABELS, features=1, label_weights=weights, seed=1), xs, ys)
        for weights in ({"fraud": 6}, [1, 6], None)
    ]
    assert (made[0].answers == made[1].answers).all() and (made[0].answers != made[2].answers).any()
    X, y = np.arange(400.0)[:, None] % 7, np.array([LABELS[i % 7 == 3] for i in range(400)])
    promise = confide.Promise(8.0)
    fitted = [Sklearn(promise=promise, label_weights=one, seed=1).fit(X, y) for one in ({"fraud": 6}, [6, 1])]
    assert fitted[0].pop_.label_weights == fitted[1].pop_.label_weights == (6.0, 1.0)
    assert River(plan=plan, labels=LABELS, label_weights={"fraud": 6}).pop.label_weights == (1.0, 6.0)


@pytest.mark.parametrize("how", ["option", "schema"])
def test_confide_run_takes_weights_from_the_command_line_or_a_schema_and_shows_the_rare_labels_recall(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("confide.runs.page._pictures", lambda outcome: [])
    Path("a.csv").write_text("\n".join(rows(3000)))
    Path("s.toml").write_text('label_weights = { fraud = 20 }\n[columns]\namount = "number"\nplace = "category"\n')
    command = ["run", "a.csv", "-e", "4"]
    given = ["--label-weights", "fraud=20"] if how == "option" else ["--schema", "s.toml"]
    found = {}
    for name, more in (("plain", []), ("weighed", given)):
        done = CliRunner().invoke(app, [*command, *more], env={"COLUMNS": "400", "NO_COLOR": "1"})
        report = json.loads(Path("confide-report.json").read_text())
        assert done.exit_code == 0, done.output
        found[name] = report["operator_only"]["recalls"][0], report["public"]["label_weights"]
        assert "recall of 'fraud', the rarest label (300 of 3,000)" in done.output
        assert "recall of &#39;fraud&#39;, the rarest label" in Path("confide-report.html").read_text()
        said = "20 times the least" if name == "weighed" else "--label-weights fraud=10 makes more of it,"
        assert said in done.output
    assert found["plain"][1] is None and found["weighed"][1] == [20.0, 1.0]
    assert found["weighed"][0] > found["plain"][0]
    assert how == "schema" or report["command"].endswith("--label-weights fraud=20")


@pytest.mark.parametrize("wrong", ["frod=2", "fraud", "fraud=many", "fraud=-1"])
def test_confide_run_refuses_wrong_weights_before_it_plans(
    wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("\n".join(rows(300)))
    monkeypatch.setattr("confide.runs.settings.Settings.tight", lambda *_: pytest.fail("it planned"))
    done = CliRunner().invoke(app, ["run", "a.csv", "--label-weights", wrong], env={"COLUMNS": "400"})
    assert done.exit_code != 0 and "label" in str(done.exception)


def test_a_schema_keeps_its_weights_and_refuses_others() -> None:
    given = Schema.of({"label_weights": {"fraud": 20, "a b": 0.5}, "columns": {}})
    assert given.label_weights == (("fraud", 20.0), ("a b", 0.5))
    assert 'label_weights = { "fraud" = 20.0, "a b" = 0.5 }' in given.to_toml()
    with pytest.raises(ValueError, match="label_weights must be a table"):
        Schema.of({"label_weights": {"fraud": "much"}})


SERVED = """
[models.pay]
folder = "state"
labels = ["genuine", "fraud"]
epsilon = 60.0
delta = 0.01
rounds = 400
columns = 2
"""


def test_a_served_models_weights_are_part_of_its_promise(tmp_path: Path) -> None:
    """They are taken from the file or its schema, kept, and a change is refused; also where none were written down."""
    path = tmp_path / "c.toml"

    def config(text: str) -> Any:
        path.write_text(text)
        return read_config(path).models["pay"]

    weighed = SERVED + "label_weights = { fraud = 5 }\n"
    with open_desk("pay", config(weighed)) as desk:
        assert desk.pop.label_weights == (1.0, 5.0)
    with open_desk("pay", config(weighed)) as desk:
        assert desk.pop.label_weights == (1.0, 5.0)
    for other in (SERVED, SERVED + "label_weights = { fraud = 6 }\n"):
        with pytest.raises(ValueError, match=r"models\.pay\.label_weights is not what"):
            open_desk("pay", config(other))
    entries = tmp_path / "state" / "entries.json"
    written = json.loads(entries.read_text())
    del written["promise"]["label_weights"]
    entries.write_text(json.dumps(written))
    with pytest.raises(ValueError, match=r"models\.pay\.label_weights is not what"):
        open_desk("pay", config(SERVED))
    with pytest.raises(ValueError, match="is none of the labels"):
        promised(config(SERVED + "label_weights = { spam = 5 }\n"))
    (tmp_path / "s.toml").write_text(
        'labels = ["genuine", "fraud"]\nlabel_weights = { fraud = 7 }\n[columns]\na = "number"\n'
    )
    schema = SERVED.replace("columns = 2\n", 'schema = "s.toml"\n')
    assert promised(config(schema))["label_weights"] == [1.0, 7.0]
    with pytest.raises(ValueError, match="label_weights contradicts"):
        promised(config(schema + "label_weights = { fraud = 5 }\n"))
