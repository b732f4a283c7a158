"""Labels alone on a file: the plan, the run, the report, and the words on each of them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from confide import POP, Plan
from confide.cli.app import app
from confide.planning.guided import GuidePlan
from confide.planning.labels import NOT_PROTECTED
from confide.planning.parts import Price, price_of
from confide.pop.base import SOURCES
from confide.privacy.response import together

pytestmark = pytest.mark.claim("labels.md", "parts.md")


def written(folder: Path, rows: int = 600, seed: int = 1) -> Path:
    """A file with a number, a category, a text, a date, missing values, people and a label that follows from them."""
    coins, lines = random.Random(seed), ["day,who,amount,city,note,verdict"]
    for i in range(rows):
        amount, city = coins.uniform(0, 100), coins.choice(["Oslo", "Rome", ""])
        note = coins.choice(["please pay", "hello there", ""])
        verdict = "bad" if amount > 60 or city == "Rome" else "good"
        shown = "" if i % 17 == 0 else f"{amount:.1f}"
        lines.append(f"2026-01-{1 + i % 28:02},p{i % 90},{shown},{city},{note},{verdict}")
    path = folder / "mails.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def ran(folder: Path, *options: str, code: int = 0) -> tuple[str, dict[str, Any], str]:
    """What the terminal says, the report's numbers, and its page."""
    report = folder / "report.html"
    told = CliRunner().invoke(
        app,
        ["run", str(written(folder)), "--label", "verdict", "--protect", "labels", "--report", str(report), *options],
        catch_exceptions=False,
    )
    assert told.exit_code == code, told.output
    return told.output, json.loads(report.with_suffix(".json").read_text()), report.read_text()


def test_a_file_is_run_and_every_surface_says_what_is_protected(tmp_path: Path) -> None:
    said, numbers, page = ran(tmp_path, "--epsilon", "4")
    plain = " ".join(said.replace("│", " ").split())
    assert NOT_PROTECTED in plain and NOT_PROTECTED in page
    assert numbers["public"]["guarantee"]["protect"] == "labels" and numbers["public"]["guarantee"]["delta"] == 0
    assert "--protect labels" in numbers["command"]
    own = numbers["operator_only"]
    assert own["late_error"] < 0.2 < own["late_frequent_error"] and own["twin_error"] is not None
    assert own["twin"] == "the same model, taught labels that were not randomized"
    assert "the guide" not in said and "copies" not in said


def test_people_have_a_cap_and_the_report_says_what_was_taken(tmp_path: Path) -> None:
    said, numbers, _ = ran(tmp_path, "--unit", "who", "--unit-labels", "2", "--no-twin")
    assert numbers["operator_only"]["labels_over"] == 600 - 2 * 90
    assert "180 of 600 labels were taken: of each person at most 2" in " ".join(said.replace("│", " ").split())
    assert numbers["public"]["guarantee"]["units"] == "people"


OWN = """
from river import compose, linear_model, preprocessing
from sklearn.compose import ColumnTransformer
from sklearn.tree import DecisionTreeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

river = compose.SelectType(float) | preprocessing.StandardScaler() | linear_model.LogisticRegression()
city = ColumnTransformer([("c", OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["city"])])
table = make_pipeline(city, DecisionTreeClassifier(max_depth=4))
online = GaussianNB()
class Raises:
    def predict(self, x): raise KeyError("secret")
    def learn(self, x, y): raise KeyError("secret")
raises = Raises()
"""


@pytest.mark.parametrize("learner", ["river", "table", "online"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_learner_of_ones_own_is_taught_itself(learner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"own_{learner}.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    _, numbers, _ = ran(tmp_path, "--epsilon", "4", "--learner", f"own_{learner}:{learner}")
    own = numbers["operator_only"]
    assert own["sources"]["model"][0] > 500 and not any(own["failures"].values())
    assert own["late_error"] < own["late_frequent_error"] + 0.05


@pytest.mark.filterwarnings("always:your model raised")
def test_an_own_model_that_fails_is_said_once_and_in_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_raises.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    said, numbers, page = ran(tmp_path, "--learner", "own_raises:raises", "--no-twin", code=3)
    assert said.count("your model raised") == 1 and "The learner failed" in page and "secret" not in said + page
    assert numbers["operator_only"]["failures"]["lessons"] == 600


def test_a_run_with_late_labels_is_stopped_and_goes_on(tmp_path: Path) -> None:
    plan = Plan.labels_alone(2.0, rounds=50)
    pop = POP(None, plan, labels=[0, 1], features=1)
    tickets = [pop.predict([float(i)]).ticket for i in range(20)]
    pop.learn_many(tickets[:10], [i % 2 for i in range(10)])
    pop.save(tmp_path / "s")
    before = pop.operator.randomizing
    pop.close()
    with POP.load(tmp_path / "s") as other:
        again = other.operator.randomizing
        assert before is not None and again is not None and again.outputs.tolist() == before.outputs.tolist()
        other.learn_many(tickets[10:], [0] * 10)
        assert again.learned == 20


def test_follow_many_is_one_by_one() -> None:
    plan = Plan.labels_alone(2.0, rounds=300)
    one, many = (POP(None, plan, labels=[0, 1], features=1, seed=5) for _ in range(2))
    single = []
    for i in range(300):
        answer = one.predict([i % 7 - 3.0])
        single.append((answer.label, answer.source))
        one.learn(answer.ticket, int(i % 7 > 3))
    xs, ys = np.array([[i % 7 - 3.0] for i in range(300)]), np.array([int(i % 7 > 3) for i in range(300)])
    done = many.follow_many(xs, ys)
    both = zip(single[1:], done.answers.tolist()[1:], done.source.tolist()[1:], strict=True)
    assert all((label, source) == (answer, SOURCES[number]) for (label, source), answer, number in both)
    left, right = one.operator.randomizing, many.operator.randomizing
    assert left is not None and right is not None and left.outputs.tolist() == right.outputs.tolist()


# ---------------------------------------------------------------------- the plan


def test_the_price_is_the_sum_of_a_persons_labels_and_no_more(tmp_path: Path) -> None:
    plan = Plan.labels_alone(1.0, 3, units="people", unit_labels=4)
    part: Any = plan.parts[0]
    assert plan.guarantee.epsilon == together(part.response.cost(), 4) <= 1.0 and plan.guarantee.delta == 0
    assert plan.guarantee.epsilon > 1 - 1e-9 and plan.order is None and plan.verify() == plan.guarantee
    assert Plan.from_json(plan.to_json()) == plan and NOT_PROTECTED in str(plan) and "4 labels" in str(plan)
    body = json.loads(plan.to_json())
    for change in ({"other": part.other - 2**40}, {"unit_labels": 5}, {"labels": 2}, {"other": 0}, {"missing": 1}):
        forged = {**body, "parts": [{**body["parts"][0], **change}]}
        with pytest.raises(ValueError):
            Plan.from_json(json.dumps(forged))
    with pytest.raises(ValueError, match="the promise is about rows"):
        Plan.from_json(json.dumps({**body, "promise": {**body["promise"], "protect": "rows", "delta": 1e-6}}))


def test_it_is_never_added_to_a_price_for_rows() -> None:
    labels, guide = Plan.labels_alone(1.0, rounds=400), GuidePlan.best(4.0, 1e-4, 400, private_ranges=False)
    with pytest.raises(ValueError, match="do not add up"):
        price_of((guide, *labels.parts))
    assert Price(pure=0.5).epsilon(1e-9) == 0.5 and Price(pure=0.5).best_order(1e-9) is None


def test_confide_plan_asks_once_which_promise_it_is(tmp_path: Path) -> None:
    asked = "Must nobody learn what was asked, or only what was answered as right?"
    rows = CliRunner().invoke(app, ["plan", "-T", "20000"]).output
    assert asked in " ".join(rows.split()) and "(1, 1e-06)-challenge-DP" in rows
    made = tmp_path / "plan.json"
    people = ["--units", "people", "--unit-labels", "3", "--json", str(made)]
    told = CliRunner().invoke(app, ["plan", "--protect", "labels", *people])
    assert told.exit_code == 0 and NOT_PROTECTED in " ".join(told.output.split()), told.output
    assert "run it with: confide run --protect labels" in " ".join(told.output.split())
    verified = CliRunner().invoke(app, ["verify", str(made)])
    assert verified.exit_code == 0 and "certified" in verified.output, verified.output
    given = ["run", str(written(tmp_path)), "--label", "verdict", "--plan", str(made), "--unit", "who"]
    given += ["--report", str(tmp_path / "r.html")]
    refused = CliRunner().invoke(app, given)
    said = " ".join(f"{refused.exception} {refused.output}".split())
    assert refused.exit_code != 0 and "protects labels, and this run rows" in said
    assert CliRunner().invoke(app, [*given, "--protect", "labels"]).exit_code == 0


IGNORED = [["--delta", "1e-6"], ["--monitor", "0.1"], ["--copies", "40"], ["--no-guide"]]


@pytest.mark.parametrize("option", IGNORED, ids=" ".join)
def test_what_would_be_ignored_is_refused(option: list[str], tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["run", str(written(tmp_path, 20)), "--protect", "labels", *option])
    said = " ".join(f"{told.exception} {told.output}".split())
    assert told.exit_code != 0 and f"{option[0]} has no meaning with --protect labels" in said


def test_a_learner_that_would_not_be_used_is_told_of_this_way(tmp_path: Path) -> None:
    report = str(tmp_path / "r.html")
    told = CliRunner().invoke(app, ["run", str(written(tmp_path)), "--learner", "logistic", "--report", report])
    assert told.exit_code != 0 and "say --protect labels, and it answers itself" in str(told.exception)
