"""Vectors whose weights come with a package; skipped where it is not installed."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import numpy as np
import pytest

from confide.text import Embedding, WordLlama

MISSING = importlib.util.find_spec("wordllama") is None
needs = pytest.mark.skipif(MISSING, reason='needs the package wordllama: pip install "confide[text]"')


@pytest.fixture(scope="module")
def encoder() -> WordLlama:
    return WordLlama()


@needs
def test_like_texts_have_like_vectors(encoder: WordLlama) -> None:
    texts = ("a great film", "a wonderful movie", "income tax form")
    film, movie, tax = (Embedding(encoder).vector(text) for text in texts)
    assert film @ movie > 0.2 + film @ tax


@needs
def test_a_vector_is_its_text_s_own_to_the_last_bit(encoder: WordLlama) -> None:
    texts = ["a fine film", "", "x" * 5000, "naïve 🙂 text", "a fine film", " "]
    together = encoder.encode(texts)
    assert together.dtype == np.float32 and together.shape == (6, 256)
    assert all(np.array_equal(encoder.encode([text])[0], row) for text, row in zip(texts, together, strict=True))
    assert not together[1].any()


@needs
def test_loading_runs_none_of_the_package_s_code(encoder: WordLlama) -> None:
    assert "wordllama" not in sys.modules


@needs
def test_a_text_that_was_met_before_is_read_anew() -> None:
    """Of a tokenizer's cache the clock tells: who asks about another's text again is answered sooner."""
    encoder = WordLlama()
    before = encoder.encode(["text with a \U0001fae8"])
    encoder._tokens.model.byte_fallback = False  # shows in what is read from now on, and not in what was kept
    assert not np.array_equal(encoder.encode(["text with a \U0001fae8"]), before)


def test_without_the_package_the_message_says_what_to_install(monkeypatch: Any) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r'pip install "confide\[text\]"'):
        WordLlama()
