"""Labels alone: a label is randomized once, written down before it is taught, and kept nowhere.

Statistical tests run on fixed seeds or state their false-alarm rate.
"""

from __future__ import annotations

import math
import pickle
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from river import linear_model, preprocessing, tree
from river.multiclass import OneVsRestClassifier
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import confide
from confide import POP, TicketError, evaluate
from confide.errors import ConfideWarning, StateError
from confide.labels.default import Default
from confide.labels.models import Doubled
from confide.labels.softmax import Pace, Softmax, follow_rows
from confide.learners import Features, Refit
from confide.pop import batches
from confide.pop.base import SOURCES, Durable, Mechanism, Told
from confide.pop.randomizing import Randomizing
from confide.pop.running import Running
from confide.privacy.response import Response
from tests.label_pops import LABELS, Full, Last, Listening, alone, part, taught

pytestmark = pytest.mark.claim("labels.md")


def make(learner: Any = None, **options: Any) -> POP:
    return alone(learner, **{"seed": 1, **options})


MODELS: dict[str, Callable[[], Any]] = {
    "our own": lambda: None,
    "River's tree": tree.HoeffdingTreeClassifier,
    "River's pipeline": lambda: preprocessing.StandardScaler() | linear_model.LogisticRegression(),
    "partial_fit": lambda: SGDClassifier(loss="log_loss", random_state=0),
    "an own class": Last,
}
every = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def rows(n: int, seed: int = 0) -> tuple[Any, Any]:
    xs = np.random.default_rng(seed).normal(size=(n, 2))
    return xs, np.where(xs[:, 0] > 0, "yes", "no").tolist()


@every
def test_it_is_a_mechanism(model: Callable[[], Any]) -> None:
    mechanism = make(model())
    assert isinstance(mechanism, Mechanism) and isinstance(mechanism, Durable)
    answer = mechanism.predict([1.0, 2.0])
    assert answer.label in LABELS and answer.ticket and mechanism.rounds == 1
    with pytest.raises(ValueError, match="label"):
        mechanism.learn(answer.ticket, "maybe")
    mechanism.learn(answer.ticket, "yes")
    for y in LABELS:
        with pytest.raises(TicketError, match="used"):
            mechanism.learn(answer.ticket, y)
    with pytest.raises(TicketError):
        mechanism.learn("nonsense", "yes")
    for x in (None, "text", [1.0], object()):
        with pytest.raises(ValueError):
            mechanism.predict(x)
    assert mechanism.rounds == 5 and mechanism.state == "live" and mechanism.halt_reason is None
    answers = mechanism.predict_many([[1.0, 2.0], None, [0.5, 0.5]])
    assert [a.error is None for a in answers] == [True, False, True]
    with pytest.raises(ValueError, match="row 1 was refused"):
        mechanism.learn_many([answers[0].ticket, "nonsense", answers[2].ticket], ["yes", "yes", "no"])
    with pytest.raises(ValueError, match="row 1 was refused"):
        mechanism.teach_many([[1.0, 2.0], None, [1.0, 1.0]], ["yes", "yes", "no"])


@every
def test_many_rows_are_as_one_by_one(model: Callable[[], Any]) -> None:
    xs, ys = rows(700)
    one, many = make(model()), make(model())
    result = evaluate(many, xs, ys)
    singly = []
    for x, y in zip(xs, ys, strict=True):
        answer = one.predict(x)
        singly.append(answer.label)
        one.learn(answer.ticket, y)
    assert [LABELS[i] for i in result.answers] == singly
    assert one.rounds == many.rounds and part(one).outputs.tolist() == part(many).outputs.tolist()


@every
def test_it_learns_although_labels_lie(model: Callable[[], Any]) -> None:
    if model is Last:
        pytest.skip("it repeats")
    xs, ys = rows(4000)
    assert evaluate(make(model(), epsilon=2.0), xs, ys).error_after(0.5) < 0.1


def test_it_promises_what_its_integers_cost_and_says_what_is_not_protected() -> None:
    mechanism = make(units="people", unit_labels=3, seed=None)
    guarantee = mechanism.guarantee
    assert guarantee.delta == 0.0 and 0.999 < guarantee.epsilon <= 1.0 and guarantee.secure
    assert 3 * part(mechanism).part.response.cost() <= guarantee.epsilon
    assert "rows, and whether and when a label came, are not" in guarantee.sentence
    assert "challenge" not in str(guarantee)
    assert not make().guarantee.secure
    due = make(due=(5, "no")).guarantee
    assert "within 5 rounds; rows are not" in due.sentence


def test_what_is_taught_is_what_came_out_and_nothing_else() -> None:
    """At a tiny ε the output is nearly a coin, whatever the label: were the true one taught, all would be "yes"."""
    mechanism = make(Listening(), epsilon=0.01)
    for i in range(400):
        mechanism.learn(mechanism.predict([i, 0]).ticket, "yes")
    heard = [y for _, y in taught(mechanism).heard]
    assert len(heard) == 400 and 120 < heard.count("yes") < 280


def test_a_label_past_a_persons_cap_is_refused_for_life(tmp_path: Path) -> None:
    options: dict[str, Any] = {"units": "people", "unit_labels": 2}
    mechanism = make(**options)
    mechanism.save(tmp_path / "state")
    for x in range(2):
        mechanism.learn(mechanism.predict([x, 0], unit="ann").ticket, "yes")
    mechanism.forget("ann")
    for y in LABELS:
        with pytest.raises(ValueError, match="2 labels are taken, for life"):
            mechanism.teach([5, 0], y, unit="ann")
    mechanism.learn(mechanism.predict([1, 0], unit="bob").ticket, "no")
    mechanism.close()
    again = POP.load(tmp_path / "state")
    with pytest.raises(ValueError, match="for life"):
        again.teach([5, 0], "no", unit=b"ann")
    followed = again.follow_many([[0, 0]] * 3, np.array([1, 1, 1]), ["ann", "bob", "bob"])
    assert (followed.answers >= 0).all() and sum(again.operator.loop.account.labels.values()) == 4
    with pytest.raises(ValueError, match="row 0 was refused"):
        again.teach_many([[1, 0], [2, 0]], ["no", "no"], ["ann", "carl"])
    assert part(again).learned == 5
    again.close()


def test_labels_that_wait_together_do_not_pass_a_cap() -> None:
    """Two open questions of one person, with a deadline and without."""
    due = make(Listening(), units="people", due=(3, "no"))
    tickets = [due.predict([i, 0], unit="ann").ticket for i in range(2)]
    for ticket in tickets:
        due.learn(ticket, "yes")
    for i in range(4):
        due.predict([9, 9], unit=f"other {i}")
    assert [x for x, _ in taught(due).heard] == [(0.0, 0.0), (9.0, 9.0)]
    model = make(Listening(), units="people")
    tickets = [model.predict([i, 0], unit="ann").ticket for i in range(2)]
    model.learn(tickets[0], "yes")
    with pytest.raises(ValueError, match="for life"):
        model.learn(tickets[1], "yes")
    assert len(taught(model).heard) == 1


def test_a_label_that_could_not_be_written_is_not_taught_and_nobody_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The draw was seen by nobody. Whoever loads the state finds the ticket as it was, or used if the write came."""
    disk = Full(monkeypatch)
    pop = make(Listening())
    waiting = pop.predict([1, 0]).ticket
    pop.save(tmp_path / "state")
    disk.full = True
    for y in LABELS:
        with pytest.raises(StateError, match="could not be written"):
            pop.learn(waiting, y)
        assert taught(pop).heard == [], "written before it is taught"
    disk.full = False
    for act in (lambda: pop.predict([2, 0]), lambda: pop.learn(waiting, "yes"), lambda: pop.teach([2, 0], "no")):
        with pytest.raises(StateError, match="could not be written"):
            act()
    pop.close()
    with POP.load(tmp_path / "state", learner=Listening(), trusted=True) as again:
        again.learn(waiting, "yes")
        assert len(taught(again).heard) == 1
        with pytest.raises(TicketError):
            again.learn(waiting, "yes")


@every
def test_what_was_written_is_taught_after_a_crash_and_never_drawn_again(
    model: Callable[[], Any], tmp_path: Path
) -> None:
    xs, ys = rows(80)
    first = make(model())
    first.save(tmp_path / "state")
    for x, y in zip(xs[:40], ys[:40], strict=True):
        first.learn(first.predict(x).ticket, y)
    first.follow_many(xs[40:], np.array([LABELS.index(y) for y in ys[40:]]))
    waiting = first.predict(xs[0])
    said = first.predict(xs[3]).label
    first.close()  # nothing was saved since
    again = POP.load(tmp_path / "state", learner=model(), trusted=True)
    assert part(again).outputs.tolist() == part(first).outputs.tolist() and again.rounds == 82
    assert again.predict(xs[3]).label == said
    with pytest.raises(TicketError):
        again.learn(waiting.ticket, "yes")
    again.close()


def test_a_state_of_one_promise_is_not_loaded_as_another(tmp_path: Path) -> None:
    mechanism = make()
    mechanism.save(tmp_path / "state")
    with pytest.raises(StateError):
        POP.load(tmp_path / "state")  # it is in use
    mechanism.close()
    with pytest.raises(StateError, match="another model"):
        POP.load(tmp_path / "state", learner=Last())
    with pytest.raises(StateError, match="labels alone"):
        confide.Private.load(tmp_path / "state", protect="rows").close()
    with make(Last()) as other:
        other.save(tmp_path / "other")
    with pytest.raises(StateError, match="trusted"):
        POP.load(tmp_path / "other", learner=Last())


def test_before_its_deadline_a_label_changes_nothing() -> None:
    """Two worlds: in one the label comes, in the other it does not. Until the deadline nothing differs but the draw."""
    worlds = [make(Listening(), due=(3, "no"), epsilon=30.0) for _ in range(2)]
    tickets = [world.predict([1, 0]).ticket for world in worlds]
    worlds[0].learn(tickets[0], "yes")
    for _ in range(2):
        for world in worlds:
            world.predict([2, 0])
    assert [taught(world).heard for world in worlds] == [[], []]
    for world in worlds:
        world.predict([3, 0])
    assert [taught(world).heard for world in worlds] == [[((1.0, 0.0), "yes")], [((1.0, 0.0), "no")]]
    with pytest.raises(TicketError, match="expired"):
        worlds[1].learn(tickets[1], "yes")


def test_an_unreadable_label_is_not_quoted() -> None:
    mechanism = make()
    answer = mechanism.predict([0, 0])
    for y in ("a secret diagnosis", ["unhashable"], None, object()):
        with pytest.raises(ValueError) as told:
            mechanism.learn(answer.ticket, y)
        assert "secret" not in str(told.value) and told.value.__cause__ is None
    mechanism.learn(answer.ticket, "yes")


def test_when_a_model_is_refitted_depends_on_how_many_labels_came_alone() -> None:
    fits: list[list[int]] = []
    for label in LABELS:
        mechanism = make(LogisticRegression())
        model, moments = part(mechanism).model, list[int]()
        assert isinstance(model, Doubled)
        original = model._begun
        model._begun = lambda m=moments, o=original, k=model: (m.append(k.taught), o())[1]  # type: ignore[method-assign]
        mechanism.follow_many(np.ones((300, 2)), np.full(300, LABELS.index(label)))
        fits.append(moments)
    assert fits[0] == fits[1] == [64, 96, 128, 192, 256]


@pytest.mark.parametrize("beside", [False, True], ids=["in the call", "beside"])
def test_our_own_model_is_the_same_after_a_load_also_while_trees_are_fitted(beside: bool) -> None:
    """Trees are fitted after 512 labels; beside answers they are used from 576 on."""
    response, (xs, ys) = Response.best(2.0, 2), rows(800)
    outs = np.array([LABELS.index(y) for y in ys])
    model = Default(2, response)
    model.beside = beside
    model.follow(model.read_many(xs[:560]), outs[:560])
    before = model.answer(model.read(xs[0]))[1]
    again = Default(2, response)
    again.restore(model.state())
    assert again.answer(again.read(xs[0]))[1].tolist() == before.tolist()
    both = [one.follow_probabilities(one.read_many(xs[560:700]), outs[560:700]) for one in (model, again)]
    assert (both[0] == both[1]).all()


def test_texts_are_kept_as_they_are_and_one_long_one_takes_no_room_for_others() -> None:
    """An array of texts drops zeros at an end, so that a load changed the map; and it has the longest one's room."""
    texts = ["so", "so\x00", "\x00", "", "\ud800\udc00", "a" * 100_000]
    xs = [{"age": float(i), "said": texts[i % 5 if i else 5]} for i in range(600)]
    response, outs = Response.best(2.0, 2), np.arange(600) % 2
    model, again = (Default(Features(numeric=["age"], text={"said": 16}), response) for _ in range(2))
    model.follow(model.read_many(xs[:400]), outs[:400])
    state = model.state()
    assert sum(array.nbytes for name, array in state.items() if name.startswith("kept/")) < 200_000
    again.restore(state)
    both = [one.follow_probabilities(one.read_many(xs[400:]), outs[400:]) for one in (model, again)]
    assert (both[0] == both[1]).all()
    assert all((a == b).all() for a, b in zip(model._model, again._model, strict=True))


def test_what_refit_would_have_been_told_in_vain_is_refused() -> None:
    with pytest.raises(ValueError, match="leave them out"):
        make(Refit(LogisticRegression(), memory=1000))
    make(Refit(LogisticRegression()))


def test_a_pipeline_with_a_one_hot_encoder_takes_dicts() -> None:
    encoder = ColumnTransformer([("city", OneHotEncoder(handle_unknown="ignore"), ["city"])], remainder="passthrough")
    model = make(make_pipeline(encoder, LogisticRegression()), epsilon=3.0, features=None)
    xs = [{"city": ("Rome", "Oslo", "Bern")[i % 3], "age": float(i % 50)} for i in range(600)]
    result = evaluate(model, xs, ["yes" if x["city"] == "Oslo" else "no" for x in xs])
    assert result.error_after(0.5) < 0.05 and model.operator.failures.lessons == 0
    told = model.predict(xs[1])
    assert isinstance(told, Told) and told.label == "yes" and told.probabilities is not None
    assert model.probabilities(xs[1]) == told.probabilities
    assert sum(told.probabilities.values()) == pytest.approx(1.0)


def test_a_model_that_never_was_fitted_answers_nothing_and_everyone_is_told() -> None:
    model = make(LogisticRegression(), features=None)
    with pytest.warns(ConfideWarning, match="raised ValueError, in its fit to 64 labels.* has never been fitted"):
        for _ in range(70):
            answer = model.predict({"city": "Oslo"})
            model.learn(answer.ticket, "yes")
    assert model.predict({"city": "Oslo"}).source == "fallback"
    assert {one.source for one in model.predict_many([{"city": "Oslo"}] * 3)} == {"fallback"}
    assert "has failed to learn anything" in model.standing
    assert "failed" not in make(LogisticRegression()).standing


def test_of_a_model_that_learns_the_first_rows_alone_are_the_fallbacks() -> None:
    model = make(LogisticRegression())
    result = model.follow_many(np.ones((70, 2)), np.zeros(70, dtype=np.int64))
    assert [SOURCES[i] for i in result.source] == ["fallback"] * 64 + ["model"] * 6


def test_where_a_table_cannot_be_made_its_asker_hears_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    model = make(LogisticRegression(), features=None)
    with pytest.raises(ValueError, match=r"confide\[sklearn\]"):
        model.predict({"age": 3.0})
    make(make_pipeline(DictVectorizer(), LogisticRegression()), features=None).predict({"age": 3.0})


def test_rare_labels_are_not_lost_and_frequencies_are_unbiased() -> None:
    """Five labels, one of which has 80 %: whose outputs are 43 %, and an own model still tells the others apart."""
    rng = np.random.default_rng(1)
    ys = rng.choice(5, 20_000, p=[0.8, 0.1, 0.05, 0.03, 0.02])
    xs = np.eye(5)[ys] + rng.normal(0, 0.1, (20_000, 5))
    model = make(labels=range(5), epsilon=1.5, features=5)
    result = evaluate(model, xs, ys)
    assert result.error_after(0.5) < 0.01
    assert part(model).frequencies.tolist() == pytest.approx([0.8, 0.1, 0.05, 0.03, 0.02], abs=0.03)


def test_our_own_probabilities_are_calibrated() -> None:
    """Of answers that are said with probability p so many are right, within 5 hundredths on average."""
    rng = np.random.default_rng(2)
    xs = rng.normal(size=(20_000, 3))
    true = 1 / (1 + np.exp(-2 * xs[:, 0]))
    ys = (rng.random(20_000) < true).astype(np.int64)
    model = make(labels=[0, 1], features=3, seed=3)
    model.follow_many(xs[:16_000], ys[:16_000])
    said = np.array([model.probabilities(x)[1] for x in xs[16_000:16_600]])
    assert np.abs(said - true[16_000:16_600]).mean() < 0.08


def test_it_is_neither_copied_nor_used_by_a_fork() -> None:
    with pytest.raises(TypeError, match="save"):
        pickle.dumps(make(seed=None))
    mechanism = make()
    mechanism.keep()._pid += 1
    for act in (lambda: mechanism.predict([0, 0]), lambda: mechanism.probabilities([0, 0])):
        with pytest.raises(RuntimeError):
            act()


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_the_exact_advantage_is_reached_and_not_passed(epsilon: float) -> None:
    """A model that repeats what it was taught shows the output whole: 4000 games a bit, 6 standard errors."""
    shown = []
    for label in LABELS:
        mechanism = make(Last(), epsilon=epsilon, seed=5)
        count = 0
        for _ in range(4000):
            mechanism.learn(mechanism.predict([0, 0]).ticket, label)
            count += taught(mechanism).said == "yes"
        shown.append(count / 4000)
    exact = math.expm1(epsilon) / (math.exp(epsilon) + 1)
    assert abs(shown[1] - shown[0] - exact) < 6 * math.sqrt(0.5 / 4000)


@pytest.mark.parametrize("ys", [[0], [0, 2], [0, -2], [[0], [1]]])
def test_rows_without_one_label_each_are_refused_before_any_round_is_taken(ys: Any) -> None:
    model = make()
    with pytest.raises(ValueError, match=r"give one label for each|from 0 to 1"):
        model.follow_many(np.ones((2, 2)), np.array(ys))
    assert model.rounds == 0


def test_a_batch_that_is_cut_off_has_taken_its_rounds_and_caps_before_anything_is_taught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who goes on at `model.rounds` brings no label a second time: two draws of one label would cost twice."""
    model = make(units="people")

    def cut_off(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(part(model).model, "follow", cut_off)
    with pytest.raises(KeyboardInterrupt):
        model.follow_many(np.ones((3, 2)), np.array([0, 1, 1]), ["ann", "bob", "carl"])
    monkeypatch.undo()
    assert model.rounds == 3
    for name in ("ann", "bob", "carl"):
        with pytest.raises(ValueError, match="for life"):
            model.teach([1.0, 1.0], "yes", name)


def test_half_a_label_is_none_and_takes_no_round() -> None:
    model = make()
    with pytest.raises(ValueError, match="as a whole number"):
        model.follow_many([[1.0, 2.0]] * 3, np.array([0.0, 0.5, 1.0]))  # type: ignore[arg-type]
    assert model.rounds == 0


class Odd:
    """Reads anything."""

    def predict(self, x: Any) -> str:
        return "yes"

    def learn(self, x: Any, y: str) -> None:
        return


@pytest.mark.parametrize("due", [None, (50, "no")], ids=["label by label", "with a deadline"])
def test_a_row_that_cannot_be_written_ends_its_own_question_alone_and_who_saves_is_told(
    due: tuple[int, str] | None, tmp_path: Path
) -> None:
    pop = make(Odd(), features=None, due=due)
    tickets = [pop.predict({"a": a}).ticket for a in (1.0, {2.0}, 3.0)]
    with pytest.warns(ConfideWarning, match="cannot be written down: give plain"):
        pop.save(tmp_path / "m")
    with pytest.raises(TicketError, match="written down"):
        pop.learn(tickets[1], "yes")
    pop.close()
    with POP.load(tmp_path / "m", learner=Odd(), trusted=True) as back:
        held = [waiting.questions[0].row for _, waiting in back.operator.loop.tickets]
        assert held == [{"a": 1.0}, {"a": 3.0}]
        back.learn_many([tickets[0], tickets[2]], ["yes", "no"])
        with pytest.raises(TicketError):
            back.learn(tickets[1], "yes")


def test_only_a_label_past_its_cap_is_passed_over_in_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else is wrong with a label is told, and not taken for a cap."""
    xs, _ = rows(4)
    pop = make(Last(), units="people")
    monkeypatch.setattr(batches, "fuses", lambda loop: False)
    pop.follow_many(xs, np.array([1, 0, 1, 0]), ["ann", "ann", "bob", "bob"])
    assert part(pop).over == 2 and part(pop).learned == 2

    def wrong(*_: Any) -> int:
        raise ValueError("something else")

    monkeypatch.setattr(Randomizing, "receive", wrong)
    with pytest.raises(ValueError, match="something else"):
        pop.follow_many(xs, np.array([1, 0, 1, 0]), ["carl", "carl", "dora", "dora"])


def test_labels_received_together_are_those_received_one_by_one() -> None:
    """The same words, the same caps, the same refusals: the batch is faster, and nothing else."""
    labels = np.array([0, 1, -1, 1, 0, 1, 1, -1])
    whos = [bytes([i]) * 16 for i in (1, 2, 3, 1, 1, 2, 4, 4)]
    one, many = (part(alone(Last(), units="people", unit_labels=2, seed=5)) for _ in range(2))
    came, refused = Running.receive_rows(one, labels, whos)  # the plain loop
    found, past = many.receive_rows(labels, whos)
    assert found.tolist() == came.tolist()
    assert list(past) == list(refused) == [4] and str(past[4]) == str(refused[4])
    assert many.over == one.over == 1
    assert many._account.labels == one._account.labels
    assert many.rng.word() == one.rng.word()


def test_rows_that_were_looked_at_before_a_call_are_read_again_in_it() -> None:
    pop = alone(Listening(), features=2)
    rows = [[1.0, 2.0], [3.0, 4.0]]
    assert pop.readable(rows) == {}
    rows[0] = [5.0, 6.0]
    pop.follow_many(rows, np.array([0, 1]))
    assert [row for row, _ in taught(pop).heard] == [(5.0, 6.0), (3.0, 4.0)]


def test_who_answers_nothing_is_answered_for_by_the_label_that_led_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row by row, by what came out before it; a batch has what calls one by one have."""
    batch, single = (alone(Last(), seed=9) for _ in range(2))
    for pop in (batch, single):
        monkeypatch.setattr(taught(pop), "predict", lambda x: None)
    ys = np.array([1, 1, 0, -1, 1, 0, 0, 0, 1])
    shown = batch.follow_many(np.zeros((ys.size, 2)), ys).answers.tolist()
    said = []
    for y in ys.tolist():
        answer = single.predict([0.0, 0.0])
        said.append(LABELS.index(answer.label))
        if y >= 0:
            single.learn(answer.ticket, LABELS[y])
    assert shown[1:] == said[1:]  # before the first a coin answers
    assert part(batch).outputs.tolist() == part(single).outputs.tolist()


def test_a_model_that_was_loaded_is_the_one_that_is_asked() -> None:
    """What is kept of how a model is called is of the model that is there."""
    pop = alone(tree.HoeffdingTreeClassifier(), features=None, seed=3)
    pop.predict({"a": 1.0})
    model: Any = part(pop).model
    state = model.state()
    pop.learn(pop.predict({"a": 1.0}).ticket, "yes")
    model.restore(state)
    assert model._voice._learner is model.learner


def test_a_model_that_knows_nothing_yet_abstains() -> None:
    """Alone and in a batch alike: it is answered for, and nobody is told that all labels are equally likely."""
    for model in (tree.HoeffdingTreeClassifier(), OneVsRestClassifier(linear_model.LogisticRegression())):
        for pop in (make(model, features=None), make(model, features=None)):
            answer = pop.predict({"a": 1.0})
            assert isinstance(answer, Told) and answer.source == "fallback" and answer.probabilities is None
        followed = make(model, features=None).follow_many([{"a": 1.0}], np.array([-1]))
        assert [SOURCES[n] for n in followed.source] == ["fallback"]


def test_a_model_that_cannot_take_what_it_is_asked_is_refused_with_the_way_on() -> None:
    with pytest.raises(ValueError, match="put Refit around it"):
        make(make_pipeline(OneHotEncoder(), Refit(LogisticRegression())), features=None)
    pop = make(SGDClassifier(), features=None)
    with pytest.raises(ValueError, match=r"takes arrays of numbers: make them of dicts by features=Features"):
        pop.predict({"a": 1.0})
    encoded = make(SGDClassifier(), features=Features(numeric=["a"]))
    assert encoded.predict({"a": 1.0}).label in LABELS


def test_a_label_that_surely_is_a_replacement_teaches_nothing_and_is_no_failure() -> None:
    """Of columns that are not scaled a linear model soon says 0 and 1; scikit-learn refuses a weight of 0."""
    pop = alone(SGDClassifier(loss="log_loss", random_state=0), features=None, seed=1)
    model: Any = part(pop).model
    xs = np.random.default_rng(1).normal(size=(600, 2)) * [1000.0, 1.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConfideWarning)
        for x in xs:
            pop.learn(pop.predict(x).ticket, LABELS[int(x[0] > 0)])
    assert not any(pop.operator.failures)
    row, before = model.read([5000.0, 0.0]), taught(pop).model.coef_.copy()
    assert model.answer(row)[1].tolist() == [0.0, 1.0]
    model.teach(row, 0)
    assert (taught(pop).model.coef_ == before).all() and not any(pop.operator.failures)


def test_what_was_said_of_a_row_is_its_weight_only_while_nothing_was_taught() -> None:
    """The model is asked once for an answer and its label's weight; after another lesson it is asked anew."""
    models: list[Any] = [part(alone(SGDClassifier(loss="log_loss", random_state=0), features=None)).model for _ in "ab"]
    rows = [np.array(x) for x in np.random.default_rng(2).normal(size=(40, 2))]
    asked = list[Any]()
    for model, lazy in zip(models, (True, False), strict=True):
        shares = model._voice.shares
        model._voice.shares = lambda x, shares=shares: asked.append(x) or shares(x)
        for i in range(0, 40, 2):
            held = [model.read(x) for x in rows[i : i + 2]]
            for row in held:
                model.answer(row)
            if not lazy:
                model._known = None
            for row, out in zip(reversed(held), (0, 1), strict=True):  # the first label is the last question's
                model.teach(row, out)
    known, anew = (model.learner.model for model in models)
    first = 4  # before the first lesson there is nothing to keep
    assert (known.coef_ == anew.coef_).all() and len(asked) == first + 19 * 3 + 20 * 4


def test_with_a_deadline_a_state_does_not_count_the_labels_that_came() -> None:
    """Whether one came is protected from whoever is shown the model; what waits beside it stays in its folder."""
    came, missed = (alone(Last(), due=(5, "no"), seed=3) for _ in range(2))
    answers = [pop.predict([0.0, 0.0]) for pop in (came, missed)]
    came.learn(answers[0].ticket, "yes")
    assert part(came).arrays()["numbers"].tolist() == part(missed).arrays()["numbers"].tolist()


def test_of_many_labels_a_rare_one_is_not_lost() -> None:
    """Four labels of one per cent each among 23: without a least weight most of their rows are answered otherwise."""
    coins, response, n, columns = np.random.default_rng(0), Response.best(1.0, 23), 100_000, 8
    true = coins.choice(23, n, p=np.r_[0.57, 0.22, 0.17, np.full(4, 0.01), np.zeros(16)])
    noise = 1 + 16 * np.arange(columns) + coins.integers(0, 16, (n, columns))
    rows = np.concatenate([np.zeros((n, 1), np.int64), noise, (1 + 16 * columns + true)[:, None]], axis=1)
    outs, many = response.draw_many(true, coins.integers(0, 2**64, n, dtype=np.uint64)), rows.shape[1]
    lost = {}
    for least in (0.0, Pace.of(23).least):
        model, said = Softmax.zeros(1 + 16 * columns + 23, 23), np.empty((n, 23))
        given = np.arange(0, n * many + 1, many), rows.ravel(), np.full(n * many, many**-0.5), np.zeros((n, 0, 23))
        pace = Pace.of(23)._replace(least=least)
        follow_rows(model, pace, *given, outs, response.truth, response.lie, said)
        rare = (true > 2) & (np.arange(n) > 0.6 * n)
        lost[least] = float((said.argmax(axis=1) != true)[rare].mean())
    assert lost[Pace.of(23).least] < 0.4 < 0.5 < lost[0.0]


def test_of_many_labels_the_likeliest_is_said_as_it_deserves() -> None:
    """What the least weight adds to every label is taken off again: at ε = 1 it was 13 hundredths of 23 labels."""
    coins, response, n = np.random.default_rng(0), Response.best(1.0, 23), 60_000
    true = coins.choice(3, n, p=[0.6, 0.2, 0.2])
    outs = response.draw_many(true, coins.integers(0, 2**64, n, dtype=np.uint64))
    model, said = Softmax.zeros(3, 23), np.empty((n, 23))
    given = np.arange(n + 1), true, np.ones(n), np.zeros((n, 0, 23))
    follow_rows(model, Pace.of(23), *given, outs, response.truth, response.lie, said)
    late = said[n // 2 :]
    assert (late.argmax(axis=1) == true[n // 2 :]).all()
    assert 0.95 < late.max(axis=1).mean() < 1.0
    assert np.allclose(said.sum(axis=1), 1.0) and (said > 0).all()
