"""The River adapter: River's own checks, its evaluation, and what must not leak through it."""

import copy
import pickle
import subprocess
import sys
import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from river import base, checks, compose, evaluate, linear_model, metrics, naive_bayes, optim, preprocessing, tree
from river import feature_extraction as fx
from river.datasets import synth

import confide
from confide import Plan, Promise
from confide.learners import DecisionTree, Features, LogisticRegression
from confide.river import PrivateClassifier

SMALL = Plan.tight(20.0, 1e-2, 2000, copies=60, unsure=100, silent=1000, guide=None)
BRIEF = Promise(8.0, rounds=2000)
PEOPLE = SMALL.but(units="people")


def small(model: Any = None, plan: Plan = SMALL, **settings: Any) -> PrivateClassifier:
    """A seeded classifier for one feature, "a"."""
    learner = Features(numeric=["a"]) | DecisionTree(memory=32) if model is None else model
    return PrivateClassifier(learner, plan=plan, **{"seed": 1, **settings})


def stream(rounds: int = 2000) -> Iterator[tuple[dict[str, Any], bool]]:
    """The sign of a number."""
    for i in range(rounds):
        a = float((i * 37) % 41 - 20)
        yield {"a": a}, a > 0


def live_accuracy(model: Any, delay: int | None = None, rounds: int = 2000) -> float:
    """Accuracy of the answers of the live rounds, by River's own evaluation."""
    right: list[bool] = []
    steps = evaluate.iter_progressive_val_score(
        stream(rounds), model, metrics.Accuracy(), delay=delay, yield_predictions=True
    )
    for step, (_, y) in zip(steps, stream(rounds), strict=True):
        right.append(step["Prediction"] == y)
    return sum(right[SMALL.silent :]) / (rounds - SMALL.silent)


# ------------------------------------------------------------------ River's checks


@pytest.mark.filterwarnings("ignore:the guide learns as rounds are asked")  # which most checks never do
@pytest.mark.parametrize("which", range(3), ids=["River's model, two labels", "our learner, nine labels", "the guide"])
def test_every_check_of_river_passes(which: int) -> None:
    model = PrivateClassifier(**list(PrivateClassifier._unit_test_params())[which])
    assert not model._unit_test_skips()
    failures, names = {}, []
    for check in checks.yield_checks(model):
        names.append(check.__name__)
        try:
            check(model.clone())
        except Exception as error:
            failures[check.__name__] = repr(error)
    assert not failures
    assert len(names) > 40 and "check_shuffle_features_no_impact" in names


def test_seeding_decides_everything_and_nothing_else_does() -> None:
    checks.common.check_seeding_is_idempotent(small(seed=None), list(stream(1100)))
    one, two = small(seed=None, fallback="coin"), small(seed=None, fallback="coin")
    # Equal coins in all 64 silent rounds: a false alarm has probability 2^-64.
    assert [one.predict_one(x) for x, _ in stream(64)] != [two.predict_one(x) for x, _ in stream(64)]


# ------------------------------------------------------------------ evaluation


@pytest.mark.parametrize("delay", [None, 100])
def test_it_learns_in_progressive_validation(delay: int | None) -> None:
    model = small()
    assert live_accuracy(model, delay) > 0.97
    assert model.pop.rounds == 2000 and model.pop.operator.taught == 2000
    assert model.pop.state == "live"


def test_labels_out_of_order_are_learned_too() -> None:
    model = small()
    score = evaluate.progressive_val_score(
        stream(), model, metrics.Accuracy(), delay=lambda x, y: 1 + (x["a"] * 61) % 97
    )
    assert score.get() > 0.7  # half of the rounds are a coin
    assert model.pop.operator.taught == 2000


def test_a_genuine_river_model_learns() -> None:
    model = small(preprocessing.StandardScaler() | linear_model.LogisticRegression(optim.SGD(0.1)))
    assert live_accuracy(model, rounds=1300) > 0.95


def test_without_a_guide_metrics_of_probabilities_are_refused_with_the_reason() -> None:
    with pytest.raises(NotImplementedError, match="probabilities would show how the copies voted"):
        evaluate.progressive_val_score(stream(10), small(), metrics.ROCAUC())
    with pytest.raises(NotImplementedError, match="labels only"):
        small().predict_proba_one({"a": 1.0})


def test_people_are_named_by_the_stream() -> None:
    model = small(plan=PEOPLE)
    named = ((x, y, {"unit": f"person {i % 50}"}) for i, (x, y) in enumerate(stream(1200)))
    evaluate.progressive_val_score(named, model, metrics.Accuracy(), delay=10)
    assert model.pop.rounds == model.pop.operator.taught == 1200
    taught = model.pop.operator.bank.state()["taught"]
    assert 1 < len(taught) <= 50  # each person has one copy
    with pytest.raises(ValueError, match="protects people"):
        model.predict_one({"a": 1.0})
    with pytest.raises(ValueError, match="protects rounds"):
        small().learn_one({"a": 1.0}, True, unit="somebody")


def test_history_is_free_and_needs_no_question() -> None:
    model = small(plan=Plan.tight(20.0, 1e-2, 1000, copies=60, unsure=100, silent=0, guide=None))
    for x, y in stream(1500):
        model.learn_one(x, y)
    assert model.pop.rounds == 0 and model.pop.operator.taught == 1500
    assert sum(model.predict_one(x) == y for x, y in stream(200)) > 190


def test_after_the_halt() -> None:
    short = Plan.tight(20.0, 1e-2, 300, copies=40, unsure=20, silent=10, guide=None)
    stopped = small(plan=short, after_halt="raise")
    with pytest.raises(confide.Halted):
        for x, _ in stream(301):
            stopped.predict_one(x)  # nothing was taught: every answer is unsure
    assert stopped.pop.halt_reason == "budget"
    stopped.learn_one({"a": 1.0}, True)
    going = small(plan=short, fallback=True)
    assert all(going.predict_one(x) for x, _ in stream(301))
    assert going.pop.state == "halted" and going.pop.rounds == 301


def test_what_cannot_be_read_takes_its_round() -> None:
    model = small()
    for bad in ({"a": 1j}, {"a": [1]}, None):
        with pytest.raises(ValueError):
            model.predict_one(bad)  # type: ignore[arg-type]
    assert model.pop.rounds == 3
    with pytest.raises(ValueError, match="not one of the labels"):
        model.learn_one({"a": 1.0}, "maybe")


# ------------------------------------------------------------------ the guide


def noisy(rounds: int) -> list[tuple[dict[Any, Any], bool]]:
    """A stream in which one label in ten is wrong."""
    return list(synth.SEA(noise=0.1, seed=1).take(rounds))


def test_with_nothing_but_labels_it_learns_a_noisy_stream() -> None:
    """The majority is right in 64 % of the rounds, whoever knows all but the noise in 90 %."""
    rows = noisy(6000)
    model = PrivateClassifier(promise=Promise(4.0, rounds=6000), seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "PrivateClassifier was made without features=")
        hashed = evaluate.progressive_val_score(rows, model, metrics.Accuracy()).get()
    assert model.pop.rounds == 6000 and model.pop.plan.copies == 0
    columns = Features(numeric={0: (0, 10), 1: (0, 10), 2: (0, 10)})
    declared = PrivateClassifier(features=columns, promise=Promise(4.0, rounds=6000), seed=1)
    score = evaluate.progressive_val_score(rows, declared, metrics.Accuracy(), delay=50).get()
    assert 0.7 < hashed < score and score > 0.8


def test_probabilities_are_the_guides_and_take_no_round() -> None:
    model = PrivateClassifier(promise=BRIEF, features=Features(numeric={"a": (-20, 20)}), seed=1)
    assert model.predict_proba_one({"a": 3.0}) == {False: 0.5, True: 0.5}
    wrong = 0
    for x, y in stream():
        answer = model.predict_one(x)
        shares = model.predict_proba_one(x)
        wrong += model.pop.rounds > 100 and answer != max(shares, key=lambda label: shares[label])
        model.learn_one(x, y)
    assert model.pop.rounds == 2000 and wrong == 0
    assert model.predict_proba_one({"a": 15.0})[True] > 0.8 > 0.2 > model.predict_proba_one({"a": -15.0})[True]
    with pytest.raises(ValueError, match="number"):
        model.predict_proba_one({"a": "high"})
    names = PrivateClassifier(promise=BRIEF, labels=("a", "b", "c"))
    assert set(names.predict_proba_one({"a": 1.0})) == {"a", "b", "c"}


def test_a_guide_that_is_never_asked_says_so_once() -> None:
    """A metric of probabilities asks for nothing else, and then no leaf ever ends."""
    model = PrivateClassifier(promise=BRIEF, features=Features(numeric={"a": (-20, 20)}), seed=1)
    with pytest.warns(UserWarning, match="predict_one was never called") as caught:
        score = evaluate.progressive_val_score(stream(200), model, metrics.ROCAUC())
    assert len(caught) == 1 and score.get() == 0.5
    for x, y in stream(1000):
        model.predict_one(x)
        model.learn_one(x, y)
    assert evaluate.progressive_val_score(stream(200), model, metrics.ROCAUC()).get() > 0.9


def test_a_model_that_would_never_answer_is_refused_with_the_three_ways_on() -> None:
    tree = Features(numeric={"a": (-20, 20)}) | DecisionTree()
    for given, why in (
        ({"promise": Promise(1.0, rounds=5000)}, "copies would see"),
        ({}, "planned for a number of rounds"),
        ({"plan": Plan.tight(8.0, 1e-6, 2000, guide=1.0)}, "the plan has no copies"),
    ):
        with pytest.raises(ValueError, match=f"would never answer: .*{why}") as refused:
            PrivateClassifier(tree, **given).predict_one({"a": 1.0})
        for way in ("leave the learner out", 'protect="labels" to confide.Private', "a plan of your own to plan="):
            assert way in str(refused.value)
    with pytest.raises(ValueError, match="needs a learner"):
        PrivateClassifier(plan=SMALL).predict_one({"a": 1.0})
    with pytest.raises(ValueError, match="leave features out"):
        PrivateClassifier(Features(numeric=["a"]) | DecisionTree(), features=Features(numeric=["a"]))


def test_a_model_that_has_begun_takes_no_other_promise() -> None:
    model = PrivateClassifier(promise=BRIEF, seed=1)
    model.predict_one({"a": 1.0})
    for name, other in (("promise", Promise(80.0, rounds=2000)), ("plan", SMALL)):
        before = getattr(model, name)
        setattr(model, name, other)
        for call in (model.predict_one, model.predict_proba_one):
            with pytest.raises(ValueError, match="made with another promise"):
                call({"a": 1.0})
        setattr(model, name, before)
    model.promise = Promise(8.0, rounds=2000)  # the same
    model.predict_one({"a": 1.0})
    assert model.pop.rounds == 2 and model.clone({"promise": Promise(2.0)}).pop.guarantee.epsilon <= 2


def test_copies_and_guide_read_the_same_features() -> None:
    plan = Plan.tight(20.0, 1e-2, 2000, copies=200, unsure=100, silent=1000, guide=0.3)
    model = PrivateClassifier(DecisionTree(memory=32), plan=plan, features=Features(numeric={"a": (-20, 20)}), seed=1)
    assert live_accuracy(model) > 0.95
    assert model.pop.predict({"a": 9.0}).guide is True and model.predict_proba_one({"a": 9.0})[True] > 0.5


def test_label_weights_are_passed_on() -> None:
    models = [
        PrivateClassifier(promise=Promise(8.0, rounds=1000), label_weights=weights, seed=1)
        for weights in (None, (0.2, 1.0))
    ]
    for model in models:
        for i in range(1000):
            model.predict_one({"a": 1.0})
            model.learn_one({"a": 1.0}, i % 4 == 0)
    plain, heavy = (model.predict_proba_one({"a": 1.0})[True] for model in models)
    assert heavy > plain + 0.3


# ------------------------------------------------------------------ privacy


def lessons(model: PrivateClassifier) -> dict[int, bytes]:
    """What each taught copy knows."""
    state = dict(model.pop.operator.bank.state())
    arrays = [value for name, value in sorted(state.items()) if name.startswith("array ")]
    return {int(c): b"".join(a[i].tobytes() for a in arrays) for i, c in enumerate(state["taught"])}  # type: ignore[arg-type]


def by_content(model: PrivateClassifier) -> tuple[Callable[[Any], None], Callable[[Any, Any], None]]:
    """The tempting wrong way: give a label to the oldest open question with the same x."""
    waiting: dict[float, deque[str]] = defaultdict(deque)
    model.pop.operator.loop.tickets.life = 1000

    def ask(x: Any) -> None:
        waiting[x["a"]].append(model.pop.predict(x).ticket)

    def learn(x: Any, y: Any) -> None:
        model.pop.learn(waiting[x["a"]].popleft(), y)

    return ask, learn


def as_it_is(model: PrivateClassifier) -> tuple[Callable[[Any], None], Callable[[Any, Any], None]]:
    return lambda x: model.predict_one(x) and None, model.learn_one


@pytest.mark.parametrize(("way", "private"), [(as_it_is, True), (by_content, False)])
def test_one_person_who_asks_what_others_ask_moves_one_copy(way: Any, private: bool) -> None:
    """Two worlds with the same coins: somebody's x is what 30 others ask about, or not. Labels alternate."""
    worlds = []
    for mine in (1.0, 5.0):
        model = small(Features(numeric=["a"]) | LogisticRegression(), seed=3)
        ask, learn = way(model)
        ask({"a": mine})
        for _ in range(30):
            ask({"a": 1.0})
        for i in range(30):
            learn({"a": 1.0}, bool(i % 2))
        learn({"a": mine}, True)
        worlds.append(lessons(model))
    one, two = worlds
    moved = [c for c in one.keys() | two.keys() if one.get(c) != two.get(c)]
    assert len(moved) >= 1  # else the worlds were the same
    assert (len(moved) == 1) == private


def test_no_ticket_is_kept() -> None:
    model = small()
    for x, _ in stream(500):
        model.predict_one(x)
    assert len(model.pop.operator.loop.tickets) == 1


SCALER = preprocessing.StandardScaler


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: SCALER() | small(), "PrivateClassifier(StandardScaler() | model, ...)"),
        (lambda: compose.Pipeline(SCALER(), small()), "PrivateClassifier(StandardScaler() | model, ...)"),
        (lambda: compose.Pipeline(SCALER(), compose.Select("a") | small()), "StandardScaler"),
        (lambda: compose.Select("a") | SCALER() | preprocessing.MaxAbsScaler() | small(), "StandardScaler() | MaxAbs"),
        (lambda: (SCALER() + compose.Select("a")) | small(), "StandardScaler"),
        (lambda: fx.RBFSampler(seed=1) | small(), "RBFSampler"),
        (lambda: (SCALER() | small()).clone(), "StandardScaler"),
    ],
)
@pytest.mark.filterwarnings("ignore:the first question has none of the declared names")
@pytest.mark.parametrize("method", ["predict_one", "learn_one"])
def test_a_shared_preprocessor_is_warned_about_once(make: Any, named: str, method: str) -> None:
    pipeline = make()
    assert isinstance(pipeline, base.Classifier)
    arguments: tuple[Any, ...] = ({"a": 1.0},) if method == "predict_one" else ({"a": 1.0}, True)
    with pytest.warns(UserWarning, match="in front of PrivateClassifier learns from everybody") as caught:
        getattr(pipeline, method)(*arguments)
    (said,) = [one for one in caught if "declared names" not in str(one.message)]  # RBFSampler gives others
    assert named in str(said.message) and said.filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "the first question has none of the declared names")
        pipeline.predict_one({"a": 1.0})


@pytest.mark.parametrize(
    "make",
    [
        lambda: small(SCALER() | linear_model.LogisticRegression()),
        lambda: compose.Select("a") | preprocessing.Normalizer() | small(),
        lambda: (compose.Select("a") + compose.Prefixer("b_")) | small(),
        lambda: (lambda x: {"a": x["a"]}) | small(),
    ],
)
def test_what_does_not_learn_or_is_inside_is_not_warned_about(make: Any) -> None:
    model = make()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict_one({"a": 1.0})
        model.learn_one({"a": 1.0}, True)


# ------------------------------------------------------------------ copies, clones, parameters


def test_seeded_ones_are_copied_and_live_secure_ones_are_not() -> None:
    seeded = small()
    seeded.predict_one({"a": 1.0})
    twin, third = copy.deepcopy(seeded), pickle.loads(pickle.dumps(seeded))
    answers = [[model.predict_one(x) for x, _ in stream(50)] for model in (seeded, twin, third)]
    assert answers[0] == answers[1] == answers[2]
    secure = small(seed=None)
    copy.deepcopy(secure)  # nothing to spend yet
    secure.predict_one({"a": 1.0})
    for attempt in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="not copied or pickled"):
            attempt(secure)
    with pytest.raises(TypeError, match="not copied or pickled"):
        secure.clone(include_attributes=True)
    assert secure.clone().pop.rounds == 0


def test_a_clone_keeps_what_was_learned_from_public_data() -> None:
    public = naive_bayes.GaussianNB()
    for x, y in stream(200):
        public.learn_one(x, y)
    fallback = small(fallback=public)
    start = small(copy.deepcopy(public), public_start=True)
    ready = Plan.tight(20.0, 1e-2, 1000, copies=60, unsure=100, silent=0, guide=None)
    for model in (fallback, fallback.clone(), start.clone({"plan": ready}), start.clone({"plan": ready}).clone()):
        assert sum(model.predict_one(x) == y for x, y in stream(100)) > 90


def test_a_plan_or_a_promise() -> None:
    with pytest.raises(ValueError, match="not both"):
        PrivateClassifier(naive_bayes.GaussianNB(), plan=SMALL, promise=Promise(1.0))
    three = PrivateClassifier(promise=Promise(4.0, rounds=5000), labels=("a", "b", "c")).pop
    assert three.plan.rounds == 5000 and three.plan.labels == 3 and three.guarantee.epsilon <= 4
    assert three.guarantee.secure
    named = PrivateClassifier(promise=Promise(8.0, rounds=2000, units="people", unit_labels=2)).pop
    assert named.units == "people" and named.guarantee.unit_labels == 2
    default = PrivateClassifier().pop
    assert default.plan.endless and default.labels == (False, True)
    assert default.plan.copies == 0 and default.plan.units == "rounds"
    assert default.guarantee.epsilon <= 1 and default.guarantee.delta <= 1e-6
    with pytest.raises(ValueError, match="make the plan with labels=3"):
        PrivateClassifier(naive_bayes.GaussianNB(), plan=SMALL, labels=(0, 1, 2)).predict_one({"a": 1.0})
    with pytest.raises(ValueError, match="the promise is for 2 labels, and there are 3"):
        PrivateClassifier(promise=Promise(1.0, labels=2), labels=(0, 1, 2)).predict_one({"a": 1.0})


def test_the_model_given_is_never_taught() -> None:
    model = naive_bayes.GaussianNB()
    before = pickle.dumps(model)
    private = small(model)
    for x, y in stream(1020):
        private.predict_one(x)
        private.learn_one(x, y)
    assert pickle.dumps(model) == before


def test_importing_confide_imports_neither_river_nor_sklearn() -> None:
    code = "import confide, sys; sys.exit(any(m.split('.')[0] in ('river', 'sklearn') for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(("rounds", "declared"), [(None, False), (None, True), (1000, False), (1000, True)])
def test_what_was_left_out_and_would_help_is_said_once_and_answers_come_from_the_first_sum_on(
    rounds: int | None, declared: bool
) -> None:
    features = Features(numeric={"a": (0, 4)}) if declared else None
    model = PrivateClassifier(labels=(0, 1), features=features, promise=Promise(8.0, rounds=rounds), seed=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(600):
            x = {"a": float(i % 5)}
            model.predict_one(x)
            model.learn_one(x, int(i % 5 > 2))
    said = [str(one.message) for one in caught]
    assert len(said) == (not declared)
    assert all("rounds=" not in one and "features=" in one for one in said)
    answers = [model.pop.predict({"a": float(i % 5)}) for i in range(200)]
    assert {one.source for one in answers} == {"guide"}, "nobody is answered by a coin"
    right = sum(one.label == int(i % 5 > 2) for i, one in enumerate(answers))
    assert right > (150 if declared else 130)  # seeded: no chance


def test_where_labels_alone_are_protected_the_model_itself_is_taught_randomized_labels() -> None:
    model = tree.HoeffdingTreeClassifier(grace_period=50)
    private = PrivateClassifier(model, promise=Promise(4.0, protect="labels"), labels=(0, 1), seed=1)
    for i in range(1500):
        x = {"a": float(i % 5)}
        private.predict_one(x)
        private.learn_one(x, int(i % 5 > 2))
    assert [private.predict_one({"a": float(i)}) for i in range(5)] == [0, 0, 0, 1, 1]
    assert private.predict_proba_one({"a": 4.0})[1] > 0.8 and private.pop.plan.promise.protect == "labels"
    assert "rows, and whether and when a label came, are not" in str(private.pop.guarantee)
