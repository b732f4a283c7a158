"""Successors: a new model under a new promise, which begins with what the old one released, while lives go on."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from confide import POP, Monitor, Plan, StateError
from confide.cli.app import app
from confide.ledger import Ledger, store
from confide.planning.lives import Life, check_whole, cost_of
from confide.pop import heirs, lives
from confide.pop.state import check
from confide.service.base import Question, Taught
from confide.service.config import read_config
from confide.service.desk import PopDesk
from confide.service.models import open_desk
from tests.saved import make as with_copies
from tests.saved import small_plan
from tests.test_endless_hostile import LABELS, LEAF, LEAVES, ROWS, endless, fingerprint, guide_of, make

pytestmark = pytest.mark.claim("composition.md", "people.md")

EPOCH = LEAVES * LEAF
PLAN = endless(ranges=False)
COST = cost_of(PLAN.guide, False)  # type: ignore[arg-type]


def lasting(units: int) -> Life:
    """The life that has room for so much, and hardly more."""
    return Life(Life(1.0, 1e-6).epsilon_at(units) * 1.002, 1e-6)


TWO = lasting(2 * COST.label)


def people(plan: Plan = PLAN, **options: Any) -> POP:
    return make(plan, units="people", **options)


def taught(pop: POP, *whos: str) -> list[bool]:
    """Whether one more label of each of these teaches anything."""
    found = []
    for i, who in enumerate(whos):
        ticket = pop.predict(ROWS[i], who).ticket
        before = guide_of(pop)._leaves.open.copy()
        pop.learn(ticket, int(LABELS[i]))
        found.append(not np.array_equal(guide_of(pop)._leaves.open, before))
    return found


def lived(folder: Path, rounds: int = 3 * EPOCH + 7, plan: Plan = PLAN) -> POP:
    """An old model: Ann has taught it, Bob has asked and been silent."""
    pop = people(plan)
    pop.save(folder)
    assert taught(pop, "ann") == [True]
    pop.predict(ROWS[0], "bob")
    whos = [f"person {i}" for i in range(rounds)]
    for ticket, y in zip([a.ticket for a in pop.predict_many(ROWS[:rounds], whos)], LABELS[:rounds], strict=True):
        pop.learn(ticket, int(y))
    return pop


# ---------------------------------------------------------------------- lives go on


def test_a_person_teaches_all_models_of_a_line_together_no_more_than_their_life_allows(tmp_path: Path) -> None:
    """With room for one label in each of two models, and no third."""
    lived(tmp_path / "1").close()
    second = people()
    told = second.succeed(tmp_path / "1", tmp_path / "2", TWO)
    assert told.people == 3 * EPOCH + 8 and told.spent == 0, "whoever taught a label; one more has room"
    assert taught(second, "ann", "ann", "bob") == [True, False, True]
    second.forget("ann")
    second.close()
    second = POP.load(tmp_path / "2")
    assert taught(second, "ann") == [False]
    second.close()
    third = people()
    told = third.succeed(tmp_path / "2", tmp_path / "3")
    assert told.spent == 1, "Ann"
    assert taught(third, "ann", "bob", "carl", "person 5") == [False, True, True, True]
    third.close()
    third = POP.load(tmp_path / "3")
    assert taught(third, "ann", "bob", "carl", "person 5") == [False, False, False, False]
    assert third.operator.guide_labels == 3, "those that count from earlier models were not learned here"
    third.close()


def test_labels_cost_their_square_in_each_model_and_prices_differ(tmp_path: Path) -> None:
    """A life of five: 2² + 1² in one order, 1² + 2² in the other."""
    plan = endless(2, ranges=False)
    life = lasting(5 * cost_of(plan.guide, False).label)  # type: ignore[arg-type]
    for first, second in ((2, 1), (1, 2)):
        folder = tmp_path / str(first)
        old = people(plan)
        old.save(folder / "1")
        assert taught(old, *["ann"] * first) == [True] * first
        old.close()
        new = people(plan)
        new.succeed(folder / "1", folder / "2", life)
        assert taught(new, "ann", "ann", "bob", "bob", "bob") == [True, second == 2, True, True, False]
        new.close()


def test_a_row_that_was_counted_for_ranges_is_charged_also_of_whoever_never_taught(tmp_path: Path) -> None:
    plan = endless()
    cost = cost_of(plan.guide, True)  # type: ignore[arg-type]
    old = people(plan)
    old.save(tmp_path / "1")
    old.predict(ROWS[0], "bob")
    assert taught(old, "ann") == [True]
    old.close()
    new = people(plan)  # the old one's ranges are not found: the new one counts its own
    told = new.succeed(tmp_path / "1", tmp_path / "2", lasting(cost.of(1) + cost.ranges // 2))
    assert told.people == told.spent == 2 and "nothing goes on" in told.kept
    loop = new.operator.loop
    assert [loop.account.barred(loop.routing.who(who)) for who in ("ann", "bob", "carl")] == [True, False, False]
    for who, teaches in (("ann", False), ("bob", False), ("carl", True)):
        before = guide_of(new)._counted.counts.sum()
        assert taught(new, who) == [teaches]
        assert (guide_of(new)._counted.counts.sum() > before) == (who != "ann"), "not even a row of hers has room"
    new.close()
    check(tmp_path / "2")


@pytest.mark.parametrize("kind", ["small", "newcomer", "changed", "none"])
def test_a_model_that_would_break_a_life_is_refused_and_the_old_one_goes_on(kind: str, tmp_path: Path) -> None:
    old = lived(tmp_path / "1", 5)
    old.close()
    new, life, says = people(), TWO, ""
    if kind == "small":
        life, says = lasting(COST.label // 2), "may have cost somebody|model alone costs"
    elif kind == "newcomer":
        louder = replace(PLAN.guide, sigma2=PLAN.guide.sigma2 // 8)  # type: ignore[union-attr,type-var]
        new, says = people(Plan(replace(PLAN.promise, epsilon=600.0), (louder,), "tight")), "model alone costs"
    elif kind == "changed":
        middle = people()
        middle.succeed(tmp_path / "1", tmp_path / "m", TWO)
        middle.close()
        (tmp_path / "1").rename(tmp_path / "0")
        (tmp_path / "m").rename(tmp_path / "1")
        life, says = lasting(5 * COST.label), "a promise that was made stays"
    else:
        life, says = None, "declare what all models together"  # type: ignore[assignment]
    with pytest.raises(ValueError, match=says):
        new.succeed(tmp_path / "1", tmp_path / "2", life)
    assert not (tmp_path / "2").exists()
    POP.load(tmp_path / "1").close()


def test_what_is_not_proved_is_refused(tmp_path: Path) -> None:
    lived(tmp_path / "1", 5).close()
    with pytest.raises(ValueError, match="protects people: so must"):
        make(PLAN).succeed(tmp_path / "1", tmp_path / "2", TWO)
    with pytest.raises(ValueError, match="monitor"):
        people(monitor=Monitor(0.1)).succeed(tmp_path / "1", tmp_path / "2", TWO)
    begun = people()
    begun.predict(ROWS[0], "ann")
    with pytest.raises(ValueError, match="not begun"):
        begun.succeed(tmp_path / "1", tmp_path / "2", TWO)


def test_rounds_as_units_pay_whole_prices(tmp_path: Path) -> None:
    """A record may be taught again to the successor, and nobody knows which it was."""
    for name, life in (("much", lasting(3 * COST.label)), ("little", lasting(COST.label * 3 // 2))):
        pop = make(PLAN)
        pop.follow_many(ROWS[:30], LABELS[:30])
        pop.save(tmp_path / name)
        pop.close()
        new = make(PLAN)
        if name == "much":
            assert new.succeed(tmp_path / name, tmp_path / "2", life).people == 0
            new.close()
            check(tmp_path / "2")
        else:
            with pytest.raises(ValueError, match="all models of this line together cost"):
                new.succeed(tmp_path / name, tmp_path / "3", life)


def test_models_with_copies_pay_whole_prices_at_one_order(tmp_path: Path) -> None:
    plan = small_plan()
    once, twice = plan.guarantee.epsilon, check_whole(Life(5000.0, 0.05), [plan, plan])
    assert once < twice < 2.5 * once
    with pytest.raises(ValueError, match="all models of this line together cost"):
        check_whole(Life(0.99 * twice, 0.05), [plan, plan])
    old = with_copies()
    old.save(tmp_path / "1")
    old.learn(old.predict([0.0, 1.0], "ann").ticket, "yes")
    old.close()
    with pytest.raises(ValueError, match="all models of this line together cost"):
        with_copies().succeed(tmp_path / "1", tmp_path / "2", Life(0.99 * twice, 0.05))
    new = with_copies()
    assert new.succeed(tmp_path / "1", tmp_path / "2", Life(1.01 * twice, 0.05)).people == 0
    new.close()
    with POP.load(tmp_path / "2") as again:
        assert again.operator.loop.line is not None and again.rounds == 0


# ---------------------------------------------------------------------- one heir


def test_a_model_has_one_heir_and_is_over(tmp_path: Path) -> None:
    lived(tmp_path / "1", 5).close()
    heir = people()
    heir.succeed(tmp_path / "1", tmp_path / "2", TWO)
    with pytest.raises(StateError, match="has a successor"):
        POP.load(tmp_path / "1")
    with pytest.raises(StateError, match="another successor"):
        people().succeed(tmp_path / "1", tmp_path / "3", TWO)
    with pytest.raises(StateError, match="a folder of its own"):
        people().succeed(tmp_path / "1", tmp_path / "2", TWO)
    heir.close()


@pytest.mark.parametrize("at", ["seal", "save", "snapshot"])
def test_a_succession_that_is_cut_off_is_finished_by_the_same_call(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lived(tmp_path / "1", 5).close()

    def cut(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        where = {"seal": (heirs, "seal"), "save": (heirs.state, "save"), "snapshot": (heirs.state.snapshot, "write")}
        patch.setattr(*where[at], cut)
        broken = people()
        with pytest.raises(KeyboardInterrupt):
            broken.succeed(tmp_path / "1", tmp_path / "2", TWO)
        broken.close()
    if at != "seal":
        with pytest.raises(StateError, match="has a successor"):
            POP.load(tmp_path / "1")
        with pytest.raises(StateError, match="another successor"):
            people().succeed(tmp_path / "1", tmp_path / "3", TWO)
    new = people()
    new.succeed(tmp_path / "1", tmp_path / "2", TWO)
    assert taught(new, "ann", "ann") == [True, False]
    new.close()


def test_a_successor_that_resets_caps_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken on purpose: what people taught before is carried over, and their caps begin anew."""
    lived(tmp_path / "1", 5).close()
    middle = people()
    middle.succeed(tmp_path / "1", tmp_path / "2", TWO)
    assert taught(middle, "ann") == [True]
    middle.close()
    bring = heirs._bring
    monkeypatch.setattr(heirs, "_bring", lambda *given: (bring(*given)[0], {}))
    reset = people()
    reset.succeed(tmp_path / "2", tmp_path / "3")
    assert taught(reset, "ann") == [True], "a third label, with room for two"
    reset.close()
    for look in (check, POP.load):
        with pytest.raises(StateError, match="teach more here than their earlier models left them"):
            look(tmp_path / "3")


def test_a_ledger_without_the_accounts_is_refused(tmp_path: Path) -> None:
    lived(tmp_path / "1", 5).close()
    new = people()
    new.succeed(tmp_path / "1", tmp_path / "2", TWO)
    new.close()
    with closing(sqlite3.connect(tmp_path / "2" / "ledger.db")) as db, db:
        db.create_function("checksum", -1, store.checksum)
        db.execute("DELETE FROM model WHERE name = 'pop.before'")
    with pytest.raises(StateError, match="damaged"):
        POP.load(tmp_path / "2")


# ---------------------------------------------------------------------- what was released goes on


@pytest.mark.parametrize("ranges", [True, False], ids=["counted", "known"])
@pytest.mark.parametrize("rounds", [EPOCH // 2 + 15, 2 * EPOCH + 1, 3 * EPOCH + 9])
def test_it_begins_with_the_map_and_with_what_was_learned(ranges: bool, rounds: int, tmp_path: Path) -> None:
    old = make(endless(ranges=ranges))
    old.follow_many(ROWS[:rounds], LABELS[:rounds])
    old.save(tmp_path / "1")
    guide = guide_of(old)
    theta, said = guide._leaves.answering.copy(), guide._leaves.features
    old.close()
    new = make(endless(ranges=ranges))
    told = new.succeed(tmp_path / "1", tmp_path / "2", Life(200.0, 1e-6))
    assert told.kept == "the map and what was learned go on"
    heir = guide_of(new)
    assert np.array_equal(heir._leaves.answering, theta) and heir._leaves.features == said and not heir.finding
    assert new.predict(ROWS[0]).source == "guide", "from the first round on"
    new.follow_many(ROWS[:77], LABELS[:77])
    assert heir.rounds == 78 and heir.epoch > max(1, guide.epoch)
    new.close()
    assert check(tmp_path / "2").parts["linear"][:2] == (heir.closed, fingerprint(new))
    again = POP.load(tmp_path / "2")
    assert np.array_equal(guide_of(again).model.theta, heir.model.theta) and guide_of(again).closed == heir.closed
    again.close()


def test_a_label_is_added_and_columns_change_and_it_says_what_is_lost(tmp_path: Path) -> None:
    old = make(endless())
    old.follow_many(ROWS[:60], LABELS[:60])
    old.save(tmp_path / "1")
    old.close()
    shutil.copytree(tmp_path / "1", tmp_path / "other")
    life, plan = Life(200.0, 1e-6), Plan.tight(30.0, 1e-6, labels=3, units="rounds")
    three = POP(None, plan, labels=[0, 1, 2], features=2)
    told = three.succeed(tmp_path / "1", tmp_path / "2", life)
    assert told.kept == "the map goes on, and what was learned is lost: the labels are others"
    assert not guide_of(three).finding and guide_of(three).closed == 0
    three.follow_many(ROWS[:40], LABELS[:40])
    three.close()
    POP.load(tmp_path / "2").close()
    wider = POP(None, endless(), labels=[0, 1], features=3)
    assert "columns are others" in wider.succeed(tmp_path / "other", tmp_path / "3", life).kept
    wider.close()


# ---------------------------------------------------------------------- the service and the operator


def said(*arguments: object) -> str:
    found = CliRunner().invoke(app, [str(one) for one in arguments])
    assert found.exit_code == 0, (found.output, found.exception)
    return " ".join(found.output.split())


def test_the_command_line_makes_a_successor_and_shows_a_life_to_the_operator(tmp_path: Path) -> None:
    plan = Plan.tight(1.0, 1e-6, units="people")
    old = POP(None, plan, labels=["no", "yes"], features=2, units="people")
    old.save(tmp_path / "1")
    old.learn(old.predict([1.0, 2.0], "ann").ticket, "yes")
    old.close()
    found = said("successor", tmp_path / "1", tmp_path / "2", "--epsilon", 0.5, "--life-epsilon", 1.2)
    assert "(0.5, 1e-06)-challenge-DP" in found and "nothing goes on" in found and "1 with a life" in found
    found = said("ledger", tmp_path / "2")
    assert "life ε = 1.2, δ = 1e-06" in found and "ε = 1.001 of 1.2" in found.partition("operator")[2]
    ann, carl = (said("ledger", tmp_path / "2", "--person", who) for who in ("ann", "carl"))
    assert "was never here: ε = 1.001 of 1.2 so far" in ann and "1 more of theirs are learned here, of 1" in ann
    assert "was never here: ε = 0 of 1.2 so far" in carl
    assert "has no predecessor" in said("ledger", tmp_path / "1")
    assert CliRunner().invoke(app, ["successor", str(tmp_path / "1"), str(tmp_path / "3")]).exit_code != 0



WEIGHED: dict[str, Any] = {"labels": ["genuine", "fraud", "spam"], "label_weights": {"fraud": 5, "spam": 2}}


def weighed(folder: Path, **numbers: Any) -> Plan:
    """An old model with a promise of its own: three labels of a person, unlike weights, and other options."""
    plan = Plan.tight(1.0, 1e-7, units="people", unit_labels=3, labels=3, **numbers)
    with POP(None, plan, units="people", features=2, fallback="fraud", ticket_life=99, **WEIGHED) as old:
        old.save(folder)
    return plan


def test_what_is_not_said_anew_is_inherited(tmp_path: Path) -> None:
    plan = weighed(tmp_path / "1", rounds=5000)
    found = said("successor", tmp_path / "1", tmp_path / "2", "--life-epsilon", 5)
    assert "changes: nothing that was promised" in found
    with POP.load(tmp_path / "2") as heir:
        assert heir.plan == plan and heir.label_weights == (1.0, 5.0, 2.0) and heir.units == "people"
        assert heir.options["fallback"] == "fraud" and heir.options["ticket_life"] == 99
    found = said("successor", tmp_path / "2", tmp_path / "3", "--epsilon", 0.5)
    assert "epsilon: 1 before, now 0.5" in found and "labels of a person:" not in found and "lost: the" not in found
    with POP.load(tmp_path / "3") as heir:
        promise = heir.plan.promise
        assert (promise.epsilon, promise.delta, promise.rounds, promise.unit_labels) == (0.5, 1e-7, 5000, 3)
        assert heir.label_weights == (1.0, 5.0, 2.0)
    said("successor", tmp_path / "3", tmp_path / "4", "--endless", "--unit-labels", 2)
    with POP.load(tmp_path / "4") as heir:
        assert heir.plan.endless and heir.plan.promise.unit_labels == 2 and heir.plan.promise.epsilon == 0.5


def test_labels_that_stay_keep_their_weights_and_what_is_lost_is_said_before_the_old_model_is_over(
    tmp_path: Path,
) -> None:
    weighed(tmp_path / "1")
    arguments = ("successor", tmp_path / "1", tmp_path / "2", "--labels", "genuine,fraud,phish", "--life-epsilon", 5)
    found = said(*arguments, "--dry-run")
    assert "labels: genuine, fraud, spam before, now genuine, fraud, phish" in found
    assert "lost: the weight 2 of label 'spam'" in found and "nothing goes on: the old one had no map yet" in found
    assert not (tmp_path / "2").exists()
    POP.load(tmp_path / "1").close()  # it is not over
    assert said(*arguments).startswith(found.rstrip())
    with POP.load(tmp_path / "2") as heir:
        assert heir.label_weights == (1.0, 5.0, 1.0) and heir.plan.promise.unit_labels == 3
    said("successor", tmp_path / "2", tmp_path / "3", "--label-weights", "phish=9")
    with POP.load(tmp_path / "3") as heir:
        assert heir.label_weights == (1.0, 1.0, 9.0)
    found = said("successor", tmp_path / "3", tmp_path / "4", "--labels", "genuine,phish")
    assert "lost: the fallback, which is no label of the new model" in found
    schema = 'labels = ["no", "phish"]\nlabel_weights = { no = 3 }\n[columns]\na = "number"\n'
    (tmp_path / "new.toml").write_text(schema)
    said("successor", tmp_path / "4", tmp_path / "5", "--schema", tmp_path / "new.toml")
    with POP.load(tmp_path / "5") as heir:
        assert heir.labels == ("no", "phish") and heir.label_weights == (3.0, 1.0) and heir.names == ("a",)


def test_copies_go_on_as_they_were_planned_or_are_listed_as_lost(tmp_path: Path) -> None:
    with with_copies() as old:
        old.save(tmp_path / "1")
        plan, before = old.plan, len(old.plan.tables.gate.table)
    life = ("--life-epsilon", 5000, "--life-delta", 0.05)
    found = said("successor", tmp_path / "1", tmp_path / "2", *life)
    assert "lost: what the copies learned: theirs begin anew" in found
    with POP.load(tmp_path / "2") as heir:
        assert heir.plan == plan and len(heir.plan.tables.gate.table) == before
    found = said("successor", tmp_path / "2", tmp_path / "3", "--endless", "--epsilon", 1, "--guide", "--dry-run")
    assert f"copies: {plan.copies:,} before, now 0" in found and f"lost: the {plan.copies:,} copies" in found


def test_a_life_that_was_not_declared_is_asked_for_by_the_name_of_its_option(tmp_path: Path) -> None:
    weighed(tmp_path / "1")
    found = CliRunner().invoke(app, ["successor", str(tmp_path / "1"), str(tmp_path / "2")])
    assert "--life-epsilon" in str(found.exception) and "life_epsilon in a service's file" in str(found.exception)


def test_the_ledger_of_one_model_says_no_more_than_it_promised_and_knows_people_by_their_tokens(tmp_path: Path) -> None:
    pop = POP(None, Plan.tight(1.0, 1e-6, units="people"), labels=["no", "yes"], features=2, units="people")
    pop.save(tmp_path / "1")
    for name in ("tokens:ann", "tokens:bob", "proxy:bob", "carl"):
        pop.learn(pop.predict([1.0, 2.0], name).ticket, "yes")
    pop.close()
    assert "most ε = 1 of 1, at" in said("ledger", tmp_path / "1")
    for name in ("ann", "tokens:ann", "carl", "proxy:bob"):
        assert "was here: ε = 1 of 1 so far, 0 of it" in said("ledger", tmp_path / "1", "--person", name), name
    assert "was never here: ε = 0 of 1" in said("ledger", tmp_path / "1", "--person", "dora")
    twice = CliRunner().invoke(app, ["ledger", str(tmp_path / "1"), "--person", "bob"])
    assert twice.exit_code and "may be 'tokens:bob' or 'proxy:bob'" in str(twice.exception)


FILE = """
[models.new]
folder = "new"
labels = ["no", "yes"]
columns = 2
units = "people"
epsilon = 0.5
delta = 1e-6
life_epsilon = 1.5
predecessor = { folder = "old" }
"""


def test_a_served_model_names_its_predecessor_and_no_ticket_of_that_one_ends_it(tmp_path: Path) -> None:
    plan = Plan.tight(1.0, 1e-6, units="people")
    old = PopDesk.open(tmp_path / "old", lambda: POP(None, plan, labels=["no", "yes"], features=2, units="people"))
    tickets = [old.ask([Question(who, "1", [1.0, 2.0])])[0].answer.ticket for who in ("ann", "bob")]  # type: ignore[union-attr]
    old.learn([Taught("ann", tickets[0], "yes")])
    old.close()
    (tmp_path / "file.toml").write_text(FILE)
    config = read_config(tmp_path / "file.toml").models["new"]
    desk: Any = open_desk("new", config)
    loop = desk.pop.operator.loop
    who = loop.routing.who("ann")
    assert who == desk._keeper.who("ann") and Ledger(tmp_path / "new" / "ledger.db").read("pop.before").labels[who] > 0
    assert desk.learn([Taught("bob", tickets[1], "yes")])[0] is not None, "a ticket of the old model is refused"
    answer = desk.ask([Question("ann", "1", [1.0, 2.0])])[0].answer
    assert desk.learn([Taught("ann", answer.ticket, "yes")]) == [None] and not desk.ended
    desk.close()
    again = open_desk("new", config)  # the old one is over, and not read again
    again.close()
    alone = config.model_copy(update={"folder": tmp_path / "other", "predecessor": None, "life_epsilon": None})
    open_desk("new", alone).close()
    with pytest.raises(ValueError, match="began without one"):
        open_desk("new", config.model_copy(update={"folder": tmp_path / "other", "life_epsilon": None}))


def test_only_what_a_plan_certifies_is_said_as_its_promise() -> None:
    """An account is converted outwards, so a whole life's may come out a little above the promise that was proved."""
    plan = Plan.tight(1.0, 1e-6, None, units="people", unit_labels=4)
    assert plan.guide is not None
    life, cost = Life(plan.guarantee.epsilon, plan.guarantee.delta), cost_of(plan.guide, counts=True)
    whole = cost.of(cost.most)
    assert life.epsilon < life.epsilon_at(whole) < 1.01 * life.epsilon, "else there is nothing to tell apart"
    assert lives._used(life, whole, whole) == life.epsilon
    assert lives._used(life, whole + 1, whole) > life.epsilon, "a unit more than was charged is not the promise"
    assert lives._used(life, whole, 0) == life.epsilon_at(whole), "nor is an account of several models"
