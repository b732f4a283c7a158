"""Promises by period: ε for what one person told within one, a larger ε for all, and after the last nothing teaches."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from confide import POP, Monitor, Plan, Private, StateError
from confide.cli.app import app
from confide.games.guided import Shadow
from confide.planning.lives import Life
from confide.planning.promise import Promise
from confide.pop.state import check
from confide.privacy.random import Random
from confide.service.base import Question, Taught
from confide.service.config import ModelConfig
from confide.service.desk import PopDesk
from confide.service.models import open_desk
from tests.test_endless_hostile import LABELS, ROWS, endless, guide_of, make

pytestmark = pytest.mark.claim("guide.md", "people.md")

PER = 10


def by_period(labels: int = 1, periods: int = 2, ranges: bool = False) -> Plan:
    """Leaves of five rounds, epochs of four, periods of ten rounds."""
    plan = endless(labels, ranges=ranges).but(units="people", epsilon=500.0)
    return plan.but(per=PER, periods=periods)


def people(plan: Plan, **options: Any) -> POP:
    return make(plan, units="people", **options)


def taught(pop: POP, who: str = "ann", ticket: str | None = None) -> bool:
    """Whether one more label of this person teaches anything."""
    ticket = pop.predict(ROWS[0], who).ticket if ticket is None else ticket
    before = guide_of(pop)._leaves.open.copy()
    pop.learn(ticket, int(LABELS[0]))
    return not np.array_equal(guide_of(pop)._leaves.open, before)


def go_on(pop: POP, rounds: int) -> None:
    """So many rounds of strangers, who bring no label."""
    pop.predict_many(ROWS[:rounds], ["a stranger"] * rounds)


def next_period(pop: POP) -> None:
    go_on(pop, PER - pop.rounds % PER)


# ---------------------------------------------------------------------- caps


def test_a_person_teaches_so_often_a_period_in_so_many_periods_and_then_no_more() -> None:
    pop = people(by_period(labels=2, periods=2))
    assert [taught(pop) for _ in range(4)] == [True, True, False, False]
    next_period(pop)
    next_period(pop)  # one without a label is not used up
    assert [taught(pop) for _ in range(2)] == [True, True] and pop.operator.ended == 1
    for _ in range(3):
        next_period(pop)
        assert not taught(pop) and taught(pop, f"somebody in round {pop.rounds}")
    assert pop.operator.guide_labels == 7 and pop.operator.ended == 1


def test_the_last_round_of_a_period_and_the_first_of_the_next_are_two_periods() -> None:
    pop = people(by_period())
    go_on(pop, PER - 1)
    assert [taught(pop), taught(pop)] == [True, True] and pop.rounds == PER + 1
    assert not taught(pop)


def test_caps_live_through_restarts_forgetting_and_a_crash(tmp_path: Path) -> None:
    pop = people(by_period(labels=2, periods=2))
    pop.save(tmp_path / "s")
    found = []
    for life in range(6):  # two rounds each
        found += [taught(pop), taught(pop)]
        if life == 1:
            pop.forget("ann")
        if life == 2:  # a crash: nothing is saved any more, and the ledger alone has it
            pop.operator.loop.account.book.close()  # type: ignore[union-attr]
        elif life < 5:
            pop.save(tmp_path / "s")
            pop.close()
        if life < 5:
            pop = POP.load(tmp_path / "s")
    assert found == [True, True, *[False] * 8, True, True] and pop.rounds == 12
    pop.close()
    pop = POP.load(tmp_path / "s")
    next_period(pop)
    assert not taught(pop) and pop.operator.ended == 1
    assert check(tmp_path / "s").guarantee == pop.guarantee
    pop.close()


def test_a_restored_ledger_is_refused_where_it_is_older(tmp_path: Path) -> None:
    pop = people(by_period())
    pop.save(tmp_path / "s")
    pop.close()
    shutil.copy(tmp_path / "s" / "ledger.db", tmp_path / "old.db")
    pop = POP.load(tmp_path / "s")
    assert taught(pop)
    pop.save(tmp_path / "s")
    pop.close()
    for path in (tmp_path / "s").glob("ledger.db*"):
        path.unlink()
    shutil.copy(tmp_path / "old.db", tmp_path / "s" / "ledger.db")
    with pytest.raises(StateError, match="older than its snapshot"):
        POP.load(tmp_path / "s")


def test_a_label_counts_in_the_period_of_its_question_or_not_at_all() -> None:
    pop = people(by_period())
    ticket = pop.predict(ROWS[0], "ann").ticket
    go_on(pop, PER - 2)
    early = pop.predict(ROWS[0], "bob").ticket
    assert pop.rounds == PER and taught(pop, "bob", early)
    go_on(pop, 1)
    with pytest.warns(UserWarning, match="later than the period of their question"):
        assert not taught(pop, "ann", ticket)
    assert pop.operator.late[:3] == (1, 0, 1) and "longer periods" in pop.operator.late.sentence
    assert taught(pop), "nothing was spent by it"


@pytest.mark.parametrize("ranges", [False, True], ids=["known", "counted"])
def test_rows_together_are_capped_as_rows_one_by_one(ranges: bool) -> None:
    """Batches of all sizes over the ends of periods: the same counts, sums and answers, to the last bit."""
    plan, whos = by_period(labels=2, periods=2, ranges=ranges), [f"person {i % 3}" for i in range(60)]
    found = []
    for sizes in ((60,), (1,) * 60, (7,) * 9):
        pop, at = people(plan, seed=Random(seed=5)), 0
        for size in sizes:
            now = slice(at, min(60, at + size))
            pop.follow_many(ROWS[now], LABELS[now], whos[now])
            at += size
        found.append((sorted(pop.operator.loop.account.labels.values()), pop.guide.export()))  # type: ignore[union-attr]
        assert pop.operator.guide_labels == 12 and pop.operator.ended == 3
    assert found[0] == found[1] == found[2]


def test_history_is_of_the_first_period() -> None:
    plan = by_period(labels=2, periods=1)
    pop = people(plan)
    pop.teach_many(ROWS[:3], LABELS[:3], ["ann"] * 3)
    assert pop.operator.guide_labels == 2 and not taught(pop)
    account = pop.operator.loop.account
    assert not any(account.barred(who) for who in account.labels), "a row of theirs may still be counted"
    next_period(pop)
    assert not taught(pop) and taught(pop, "bob")


def test_between_a_call_that_was_cut_off_and_the_next_question_no_label_is_taught_to_an_old_leaf() -> None:
    """Else an epoch would have labels of more periods than are paid for."""
    pop = people(by_period())
    ticket = pop.predict(ROWS[0], "ann").ticket
    account = pop.operator.loop.account
    account.reserve(6, ())  # and then an interrupt
    assert not taught(pop, "ann", ticket) and pop.rounds == 7 and guide_of(pop).behind
    assert taught(pop)


# ---------------------------------------------------------------------- two worlds


def leaves_of(pop: POP) -> np.ndarray:
    """What the person's labels added, in the one leaf that is open."""
    return guide_of(pop)._leaves.open.copy()


def test_two_worlds_that_differ_in_one_period_differ_by_twice_a_cap_at_most() -> None:
    """All that a person may do in two periods within one leaf, and in the second alike: the code's own sums."""
    best = by_period().guide
    assert best is not None
    guide = replace(best, leaf=40, growth=0)  # one leaf for all of it
    plan, clip, top = Plan(Promise(500.0, 1e-6, units="people", per=2, periods=1), (guide,)), guide.clip, 0.0

    def lived(first: tuple[int | None, ...], second: tuple[int | None, ...]) -> np.ndarray:
        pop = people(plan, seed=Random(seed=1))
        for y in (*first, *second):
            answer = pop.predict([1.0, 5.0], "ann")
            if y is not None:
                pop.learn(answer.ticket, y)
        return leaves_of(pop)

    told = list(product((None, 0, 1), repeat=2))
    sums = {both: lived(*both) for both in product(told, told)}
    for second in told:
        for one, other in product(told, told):
            top = max(top, float(np.linalg.norm((sums[one, second] - sums[other, second]).astype(float))))
    assert 1.2 * clip < top <= 2 * clip
    assert any((sums[(None, None), second] != sums[(1, None), second]).any() for second in told)


# ---------------------------------------------------------------------- what is promised, and what is refused


def test_the_plan_states_both_and_its_file_is_certified_from_its_integers() -> None:
    plan = Plan.tight(1.0, 1e-6, units="people", unit_labels=2)
    yearly = plan.but(per=3_000_000, periods=10)
    said = yearly.guarantee
    assert said.epsilon == plan.guarantee.epsilon and said.life is not None and 4.5 < said.life < 5.5
    assert (said.per, said.periods) == (3_000_000, 10)
    assert plan.but(per=1000, periods=10).guarantee.life > 12 > yearly.but(periods=2).guarantee.life > 1.9  # type: ignore[operator]
    assert Plan.from_json(yearly.to_json()) == yearly and yearly.but(per=None, periods=None) == plan
    assert "per" not in plan.to_json() and "life" not in plan.to_json()
    for text in (str(yearly), yearly.explain(), said.sentence, str(said)):
        assert f"{said.life:.4g}" in text and "3,000,000" in text
    assert "known" in said.sentence and "at most 10 periods" in said.sentence
    body = json.loads(yearly.to_json())
    for change in ({"life": 4.0}, {"life": None}, {}):
        with pytest.raises(ValueError, match=r"do not run this plan|not a plan|must be"):
            Plan.from_json(json.dumps({**body, "guarantee": {"epsilon": said.epsilon, **change}}))
    with pytest.raises(ValueError, match="do not run this plan"):  # more periods than are stated for
        Plan.from_json(json.dumps({**body, "promise": {**body["promise"], "periods": 11}}))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"per": 10}, "give both"),
        ({"periods": 10}, "give both"),
        ({"per": 0, "periods": 1}, "per=0 must be"),
        ({"per": 10, "periods": 1.5}, "periods"),
        ({"per": 10, "periods": 2, "units": "rounds"}, "promise to people"),
        ({"per": 10, "periods": 2, "units": None}, "promise to people"),
        ({"per": 10, "periods": 2, "protect": "labels"}, "promise to people"),
        ({"per": 10, "periods": 1001}, "more than 1,000 labels"),
        ({"per": 60, "periods": 3, "rounds": 120}, "more than the 2 that 120 rounds have"),
    ],
)
def test_a_promise_by_period_that_says_nothing_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Promise(**{"epsilon": 1.0, "units": "people", **given})


def test_what_is_not_proved_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="guide alone"):
        Plan.tight(20.0, 1e-2, 3000, guide=None, copies=60, unsure=40, units="people").but(per=1000, periods=2)
    with pytest.raises(ValueError, match="promise nothing"):
        Plan.tight(30.0, 1e-6, units="people").but(per=1000, periods=500)
    plan, old = by_period(), tmp_path / "old"
    pop = people(plan)
    pop.save(old)
    pop.close()
    with pytest.raises(ValueError, match="counted by periods"):
        people(plan).succeed(old, tmp_path / "new", Life(600.0, 1e-6))
    with pytest.raises(ValueError, match="counted by periods"):
        people(endless(ranges=False)).succeed(old, tmp_path / "new", Life(600.0, 1e-6))
    with pytest.raises(ValueError, match="counted by periods"):
        Shadow.of(pop.operator.loop, None)  # type: ignore[arg-type]


def test_a_monitor_is_added_to_both() -> None:
    plan = by_period()
    both = people(plan, monitor=Monitor(0.5)).guarantee
    assert both.epsilon >= plan.guarantee.epsilon + 0.5 and both.life >= plan.guarantee.life + 0.5  # type: ignore[operator]


def test_private_takes_periods_for_people_alone() -> None:
    model = Private(labels=[0, 1], epsilon=1.0, people=True, per=1_000_000, periods=3, labels_per_person=2)
    assert model.guarantee.life is not None and model.plan.promise.counted == (1_000_000, 3, 2)
    assert "Every 1,000,000 rounds a new period begins" in model.explain()
    with pytest.raises(ValueError, match="per is for people"):
        Private(labels=[0, 1], epsilon=1.0, per=10, periods=3)
    with pytest.raises(ValueError, match="per has no meaning"):
        Private(labels=[0, 1], epsilon=1.0, people=True, protect="labels", per=10, periods=3)


# ---------------------------------------------------------------------- what the operator sees


def run(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    return f"{result.output} {result.exception or ''}"


def test_the_ledger_says_who_teaches_no_more(tmp_path: Path) -> None:
    pop = people(by_period(labels=2, periods=2))
    pop.save(tmp_path / "s")
    assert taught(pop) and taught(pop, "bob")
    next_period(pop)
    assert taught(pop)
    pop.close()
    said = run("ledger", str(tmp_path / "s"))
    assert "2 who taught, of whom 0 teach nothing any more" in said and "2 of 2 periods used by one person" in said
    assert "all 2 periods of one person, together" in said and "number 2, of 10 rounds each" in said
    ann = run("ledger", str(tmp_path / "s"), "--person", "ann")
    assert "taught 2 labels, in 2 of 2 periods" in ann and "1 more of theirs" in ann
    assert "taught 0 labels, in 0 of 2 periods" in run("ledger", str(tmp_path / "s"), "--person", "eve")
    pop = POP.load(tmp_path / "s")
    next_period(pop)
    go_on(pop, 1)
    pop.close()
    assert "of whom 1 teach nothing any more" in run("ledger", str(tmp_path / "s"))


def test_the_command_plans_by_period(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    asked = ["plan", "--endless", "--units", "people", "--per", "1000000", "--periods", "5", "--json", str(path)]
    assert "all periods of one person" in run(*asked)
    assert Plan.from_json(path).promise.counted == (1_000_000, 5, 1)
    assert "give both" in run(*asked[:6])
    assert "per" in run("plan", "--per", "10", "--periods", "2", "--mistakes", "1")


def test_a_service_counts_by_period_and_its_operator_sees_who_is_over(tmp_path: Path) -> None:
    """Over a restart, with the journal's labels, and for one person."""
    plan, folder = by_period(), tmp_path / "s"

    def opened() -> PopDesk:
        return PopDesk.open(folder, lambda: people(plan), name="m", room=64)

    def teach(desk: PopDesk, number: int, who: str = "ann") -> None:
        answer = desk.ask([Question(who, f"{number}", [1.0, 2.0])])[0].answer
        assert answer is not None
        desk.learn([Taught(who, answer.ticket, 1)])

    desk = opened()
    for number in range(3):
        teach(desk, number)
    assert desk.person("ann")["guide_labels"] == 1 == desk.person("ann")["periods"]
    desk.close()
    desk = opened()
    for number in range(3, PER + 4):
        teach(desk, number, "ann" if number % 2 else "bob")
    ann = desk.person("ann")
    assert (ann["guide_labels"], ann["most_guide_labels"], ann["periods"], ann["most_periods"]) == (2, 2, 2, 2)
    assert desk.private()["people_ended"] == 2
    assert any("teach nothing any more" in one for one in desk.private()["alarms"])
    desk.close()


def test_a_services_file_has_both_entries_and_keeps_them(tmp_path: Path) -> None:
    given: dict[str, Any] = {"folder": tmp_path / "m", "columns": 2, "labels": ["a", "b"], "epsilon": 4.0}
    entries: dict[str, Any] = {"units": "people", "per": 1000, "periods": 3}
    open_desk("m", ModelConfig(**given, **entries)).close()
    with pytest.raises(ValueError, match=r"models\.m\.periods is not"):
        open_desk("m", ModelConfig(**given, **{**entries, "periods": 4}))
    with pytest.raises(ValueError, match=r"models\.m\.per is not"):
        open_desk("m", ModelConfig(**given, units="people"))
    with pytest.raises(ValueError, match="promise to people"):
        open_desk("n", ModelConfig(**{**given, "folder": tmp_path / "n"}, per=1000, periods=3))
    path = tmp_path / "plan.json"
    path.write_text(Plan.tight(4.0, 1e-6, units="people").but(per=1000, periods=3).to_json())
    filed = {**given, "folder": tmp_path / "f", "plan": path}
    filed.pop("epsilon")
    with pytest.raises(ValueError, match="contradict"):
        open_desk("f", ModelConfig(**filed, **{**entries, "per": 999}))
    desk = open_desk("f", ModelConfig(**filed, **entries))
    assert desk.plan.promise.counted == (1000, 3, 1)
    desk.close()
