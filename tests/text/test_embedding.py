"""Encoders of texts: one text, one vector of norm at most 1, whatever comes and whoever else asks."""

from __future__ import annotations

import json
import signal
import tomllib
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import confide
from confide import Plan
from confide.data.layout import Layout
from confide.data.schema import Schema
from confide.errors import StateError
from confide.guide.columns import Columns
from confide.guide.inputs import columns_for
from confide.guide.maps import FeatureMap
from confide.guide.model import Model, encode_batch
from confide.learners import Features, LogisticRegression
from confide.text import Embedding, encoder_named, register
from confide.text.embedding import LONGEST
from tests.worlds import guided_plan

pytestmark = pytest.mark.claim("guide.md")

WIDTH = 6


class Letters:
    """How often each of a few letters comes; it counts how many texts it was asked about at a time."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.longest = 0

    def encode(self, texts: Sequence[str]) -> Any:
        self.calls.append(len(texts))
        self.longest = max([self.longest, *map(len, texts)])
        for text in texts:
            text.encode("utf-8")  # as most tokenizers do: a lone surrogate is an error
        counts = [[text.count(letter) for letter in "aeioun"] for text in texts]
        return np.array(counts, dtype=np.float32) + np.float32(len(texts) - 1)  # padding: others would show


class Panic(BaseException):
    """What encoders written in Rust raise: no Exception."""


class Says:
    """Returns what it was made with, for every text but plain ones."""

    def __init__(self, found: Any) -> None:
        self.found = found

    def encode(self, texts: Sequence[str]) -> Any:
        if texts[0] in ("a text", ""):
            return np.ones((1, WIDTH), dtype=np.float32)
        if isinstance(self.found, BaseException):
            raise self.found
        return self.found


@pytest.fixture(scope="session")
def letters() -> str:
    """The name of a registered encoder; workers that take over tests set this up more than once in a process."""
    register("test:letters", Letters)
    return "test:letters"


def squares(values: Any) -> Fraction:
    """The squared norm, exactly."""
    return sum((Fraction(float(value)) ** 2 for value in values), Fraction(0))


@settings(deadline=None, max_examples=300)
@given(st.lists(st.floats(width=32), min_size=WIDTH, max_size=WIDTH))
def test_whatever_numbers_come_the_norm_is_at_most_one(found: list[float]) -> None:
    embedding = Embedding(Says(np.array([found], dtype=np.float32)))
    assert squares(embedding.vector("x")) <= 1
    features = FeatureMap(Columns(text=("t",), encoders=(embedding,)), words=16)
    encoded = features.encode({"t": "x"})
    assert squares(encoded.values) <= 1
    assert (np.diff(encoded.indices) > 0).all() and encoded.indices[-1] == features.width - 1


@pytest.mark.parametrize("size", [1e-300, 1e-45, 1e-30, 1.0, 1e30, 3.4e38, 1e300])
def test_a_direction_is_kept_whatever_its_length(size: float) -> None:
    found = np.array([[3, -4, 0, 0, 0, 0]], dtype=np.float64) * size
    assert Embedding(Says(found)).vector("x") == pytest.approx([0.6, -0.8, 0, 0, 0, 0], abs=2e-6)


@pytest.mark.parametrize(
    "found",
    [
        np.full((1, WIDTH), np.nan),
        np.array([[np.inf, 1, 1, 1, 1, 1]]),
        np.zeros((1, WIDTH)),
        np.ones((1, WIDTH + 1)),
        np.ones((2, WIDTH)),
        "words",
        None,
        [[None] * WIDTH],
        RuntimeError("secret words"),
        MemoryError(),
        Panic("secret words"),
    ],
)
def test_what_an_encoder_cannot_do_is_a_text_without_a_vector(found: Any) -> None:
    assert not Embedding(Says(found)).vector("x").any()


def test_an_encoder_is_stopped_by_who_runs_it_and_by_nobody_else() -> None:
    class Stops:
        def encode(self, texts: Any, /) -> Any:
            if texts == ["x"]:
                signal.raise_signal(signal.SIGINT)
            return np.ones((len(texts), WIDTH), dtype=np.float32)

    with pytest.raises(KeyboardInterrupt):
        Embedding(Stops()).vector("x")
    for raised in (SystemExit(), KeyboardInterrupt()):
        assert not Embedding(Says(raised)).vector("x").any()


@pytest.mark.parametrize(
    "encoder", [object(), Says(None).encode, 3.5, None], ids=["nothing", "a method", "half a column", "none"]
)
def test_what_is_no_encoder_is_refused_at_once(encoder: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"encode\(texts\)|must be"):
        Features(text={"t": encoder})


def test_an_encoder_that_does_not_work_is_refused_at_once() -> None:
    class Broken:
        def encode(self, texts: Sequence[str]) -> Any:
            raise OSError("no weights")

    class Vague:
        def encode(self, texts: Sequence[str]) -> Any:
            return np.ones((1, 2 + len(texts[0])))

    for encoder, reason in ((Broken(), "failed on a plain text"), (Vague(), "always as many")):
        with pytest.raises(ValueError, match=reason):
            Features(text={"t": encoder})


def test_texts_are_encoded_one_at_a_time_and_as_in_a_batch() -> None:
    letters = Letters()
    columns, _ = columns_for(Features(numeric=["n"], text={"t": letters, "u": 8, "v": letters}))
    assert isinstance(columns, Columns)
    features = FeatureMap(columns, words=32, partitions=2)
    texts = ["an ocean", "", "b" * 300, "\ud800 alone", "ΩΩ", "in one union"]
    rows: list[Any] = [{"n": i, "t": text, "u": text, "v": text[::-1]} for i, text in enumerate(texts)]
    rows[2:2] = [{"t": b"bytes"}, {"t": 7}, 3]
    batch = encode_batch(features, rows)
    assert batch.refused.tolist() == [x in ({"t": b"bytes"}, {"t": 7}, 3) for x in rows]
    encoded = batch.rows()
    for i in np.flatnonzero(~batch.refused):
        row, alone = encoded[i], features.encode(rows[i])
        assert row is not None
        assert np.array_equal(row.indices, alone.indices) and row.values.tobytes() == alone.values.tobytes()
        assert squares(alone.values) <= 1
    assert set(letters.calls) == {1}


def test_a_very_long_text_is_read_from_its_beginning() -> None:
    letters = Letters()
    embedding = Embedding(letters)
    assert np.array_equal(embedding.vector("a" + "o" * 10_000_000), embedding.vector("a" + "o" * (LONGEST - 1)))
    assert letters.longest == LONGEST


def test_copies_take_the_vector_and_the_guide_takes_words_too(letters: str) -> None:
    features = Features(numeric=["n"], categorical={"c": 2}, text={"t": letters, "u": 4})
    row = features.encode({"n": 5, "c": "x", "t": "ae", "u": "one"})
    assert features.width == row.size == 1 + 2 + WIDTH + 4
    assert row[3:9] == pytest.approx([0.5**0.5, 0.5**0.5, 0, 0, 0, 0], abs=2e-6)
    assert not features.encode({"n": 5})[3:9].any()
    columns, _ = columns_for(features)
    assert isinstance(columns, Columns)
    features_of = FeatureMap(columns, words=16)
    found, first = features_of.encode({"t": "ae"}), features_of.width - WIDTH
    words, vector = found.values[(first - 32 <= found.indices) & (found.indices < first)], found.values[-WIDTH:]
    assert float(squares(vector)) == pytest.approx(float(squares(words)), rel=1e-4)


def test_a_guide_learns_what_only_the_encoder_tells(letters: str) -> None:
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 2, 3000)
    middles = ["".join(rng.choice(list("bcdfghklmpqrst"), 6)) for _ in labels]  # no word comes twice
    texts = [f"{'oa'[label]}{middle}" for label, middle in zip(labels, middles, strict=True)]
    errors = {}
    for kind in (letters, 64):
        plan = confide.Plan.tight(epsilon=4.0, delta=1e-6, rounds=labels.size)
        pop = confide.POP(None, plan, labels=[0, 1], features=Features(text={"t": kind}), seed=1)
        found = confide.evaluate(pop, [{"t": text} for text in texts], labels.tolist())
        errors[kind] = np.mean(np.array(found.answers)[2000:] != labels[2000:])
    assert errors[letters] < 0.05 < 0.1 < errors[64]


def test_hostile_texts_take_their_rounds_and_no_more(letters: str) -> None:
    plan = confide.Plan.tight(epsilon=4.0, delta=1e-6, rounds=400)

    def answered(strange: list[Any]) -> tuple[int, list[Any], list[Any]]:
        pop = confide.POP(None, plan, labels=[0, 1], features=Features(text={"t": letters}), seed=3)
        texts: list[Any] = ["a" if i % 2 else "o" for i in range(400)]
        texts[5 : 5 + len(strange)] = strange
        found = confide.evaluate(pop, [{"t": text} for text in texts], [None] * 20 + [i % 2 for i in range(20, 400)])
        return len(found.answers), list(found.answers[20:]), pop.guide.export()["theta"]

    plain = answered([])
    assert answered(["", "\udcff", "x" * 200_000, b"bytes", None, 7, float("nan"), ["a"]]) == plain


def test_a_named_encoder_is_kept_in_a_state_and_in_an_exported_guide(letters: str, tmp_path: Path) -> None:
    plan = confide.Plan.tight(epsilon=4.0, delta=1e-6, rounds=300)
    pop = confide.POP(None, plan, labels=[0, 1], features=Features(text={"t": letters, "u": 4}))
    for i in range(200):
        pop.learn(pop.predict({"t": "a" if i % 2 else "o"}).ticket, i % 2)
    model = Model.from_params(json.loads(json.dumps(pop.guide.export())))
    x = {"t": "aaa", "u": "o"}
    assert np.array_equal(model.probabilities(x), pop.guide.probabilities(x))
    pop.save(tmp_path / "state")
    pop.close()
    again = confide.POP.load(tmp_path / "state")
    assert np.array_equal(again.guide.probabilities(x), model.probabilities(x))
    again.close()


def test_a_state_whose_encoder_is_not_known_says_what_to_do(letters: str, tmp_path: Path, monkeypatch: Any) -> None:
    plan = confide.Plan.tight(epsilon=4.0, delta=1e-6, rounds=300)
    pop = confide.POP(None, plan, labels=[0, 1], features=Features(text={"t": letters}))
    pop.save(tmp_path / "state")
    pop.close()
    encoder_named.cache_clear()
    monkeypatch.setattr("confide.text.names._made", {})
    with pytest.raises(StateError, match=r"no encoder 'test:letters'.*confide\.text\.register"):
        confide.POP.load(tmp_path / "state")


def test_an_encoder_without_a_name_is_not_written_down(tmp_path: Path) -> None:
    plan = confide.Plan.tight(epsilon=4.0, delta=1e-6, rounds=300)
    pop = confide.POP(None, plan, labels=[0, 1], features=Features(text={"t": Letters()}))
    for _ in range(100):
        pop.predict({"t": "a"})
    for make in (pop.guide.export, lambda: pop.save(tmp_path / "state")):
        with pytest.raises(ValueError, match=r"confide\.text\.register"):
            make()


def test_names_are_given_once_and_unknown_ones_refused() -> None:
    register("test:letters", Letters)
    register("test:letters", Letters)  # the same again: nothing changed
    for name in ("wordllama", "test:letters", "sentence-transformers:mine", "two words", ""):
        with pytest.raises(ValueError, match="name"):
            register(name, lambda: Letters())
    with pytest.raises(ValueError, match=r"no encoder 'none': take one of wordllama, minilm"):
        Features(text={"t": "none"})


def test_few_shot_copies_answer_from_vectors(letters: str) -> None:
    learner = Features(text={"t": letters}) | LogisticRegression()
    for i in range(40):
        learner.learn({"t": "ana" if i % 2 else "ono"}, i % 2)
    assert [learner.predict({"t": text}) for text in ("a", "o")] == [1, 0]


def test_a_schema_names_an_encoder(letters: str) -> None:
    entry = {"kind": "text", "encoder": letters}
    schema = Schema.of({"columns": {"note": entry, "age": "number"}})
    assert Schema.of(tomllib.loads(schema.to_toml())).columns == schema.columns
    layout = Layout(schema.columns)
    assert layout.features.text == {"note": letters}
    x = layout.x(["an ocean", "41"])
    assert layout.features.encode(x)[1:] == pytest.approx(Embedding(letters).vector("an ocean"))
    for wrong in ({**entry, "width": 4}, {"kind": "category", "encoder": letters}, {"kind": "text", "encoder": 3}):
        with pytest.raises(ValueError, match="encoder"):
            Schema.of({"columns": {"note": wrong}})


# ---------------------------------------------------------------------- failures, for the operator


class Picky:
    """Fails on some texts, each in a way of its own."""

    def encode(self, texts: Any, /) -> Any:
        if "raise" in texts[0]:
            raise RuntimeError("a secret text")
        if "exit" in texts[0]:
            raise SystemExit
        size = 3 if "short" in texts[0] else 4
        return np.full((1, size), np.nan if "nan" in texts[0] else 1.0, dtype=np.float32)


FAILS = ["raise", "exit", "short", "nan"]


@pytest.mark.parametrize("alone", [True, False], ids=["guide", "copies"])
def test_texts_that_an_encoder_fails_on_are_counted_for_the_operator_alone(alone: bool) -> None:
    features = Features(text={"t": Picky()})
    learner = None if alone else LogisticRegression()
    plan = guided_plan(alone=True) if alone else Plan.tight(60.0, 1e-2, 400, copies=30, unsure=60, silent=0, guide=None)
    features.encode({"t": "raise"})  # before there is a POP
    pop = confide.POP(learner, plan, labels=[0, 1], features=features)
    pop.predict_many([{"t": text} for text in ("fine", "good", "", *FAILS)])
    assert (pop.operator.failures.texts, pop.operator.failures.unread) == (7, 4)
    pop.predict({"t": "raise"})
    assert pop.operator.failures.sentence == "the text encoder failed: of 8 texts 5 have no vector"
    assert "failed" not in repr(pop) + pop._repr_html_()
    done = confide.evaluate(pop, [{"t": "nan"}, {"t": "fine"}], [0, 1])
    assert done.failures.unread == 1 and "of 2 texts 1 have no vector" in repr(done)


def test_a_saved_state_keeps_the_count(tmp_path: Any) -> None:
    register("test:picky", Picky)
    pop = confide.POP(None, guided_plan(alone=True), labels=[0, 1], features=Features(text={"t": "test:picky"}))
    pop.predict_many([{"t": text} for text in ("fine", *FAILS)])
    pop.save(tmp_path / "pop")
    pop.close()
    with confide.POP.load(tmp_path / "pop") as again:
        assert (again.operator.failures.texts, again.operator.failures.unread) == (5, 4)
        again.predict({"t": "raise"})
        assert (again.operator.failures.texts, again.operator.failures.unread) == (6, 5)
