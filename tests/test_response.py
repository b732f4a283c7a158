"""Randomized response: its integers, its price, its law, and what is known of labels from what came out.

Statistical tests run on fixed seeds; each compares counts with exact probabilities by a chi-square test at level 10⁻⁷,
at most ten times in a test: had the seed not been fixed, a false alarm would have probability at most 10⁻⁶. Each shows
that the same check rejects a wrong response.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import math
import textwrap
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy.stats import chi2

from confide.games.laws import Curve
from confide.privacy.random import Random
from confide.privacy.response import MOST_LABELS, Response, each, respond, together

pytestmark = pytest.mark.claim("labels.md")

WORDS = 1 << 64
epsilons = st.floats(1e-6, 60.0)
numbers = st.integers(2, 400)


def cells(response: Response) -> list[list[int]]:
    """How many of all words say each output, by label: counted from the thresholds, not from the formula."""
    ends = [0, *(int(end) for end in response.ends), WORDS]
    table = [[0] * response.labels for _ in range(response.labels)]
    for low, high in itertools.pairwise(ends):
        for label in range(response.labels):
            said = {response.draw(label, word) for word in (low, high - 1)}
            assert len(said) == 1
            table[label][said.pop()] += high - low
    return table


@given(epsilons, st.integers(2, 30))
@settings(max_examples=60, deadline=None)
def test_every_pair_of_cells_is_within_the_price_and_one_reaches_it(epsilon: float, labels: int) -> None:
    response = Response.best(epsilon, labels)
    table = cells(response)
    assert all(sum(row) == WORDS for row in table)
    worst = max(Fraction(a[j], b[j]) for a in table for b in table for j in range(labels))
    mp.dps = 60
    exact = mp.log(mpf(worst.numerator) / mpf(worst.denominator))
    assert exact <= mpf(response.cost()) <= exact * (1 + mpf(2) ** -51) and response.cost() <= epsilon


@given(epsilons, numbers)
@settings(max_examples=200, deadline=None)
def test_no_response_of_the_same_price_tells_the_truth_more_often(epsilon: float, labels: int) -> None:
    best = Response.best(epsilon, labels)
    assert best.cost() <= epsilon
    assert best.other == 1 or Response(labels, best.other - 1).cost() > epsilon


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_the_advantage_is_that_of_the_law(epsilon: float) -> None:
    """(e^ε − 1)/(e^ε + L − 1) for two labels out of L, and (e^ε − 1)/(e^ε + 1) for two."""
    for labels in (2, 3, 23):
        response = Response.best(epsilon, labels)
        curve = Curve(response.law(0), response.law(1))
        assert curve.advantage == pytest.approx(response.advantage, abs=1e-15)
        assert response.advantage == pytest.approx(math.expm1(epsilon) / (math.exp(epsilon) + labels - 1), rel=1e-12)
        assert curve.delta(epsilon) < 1e-15 and curve.delta(epsilon - 1e-6) > 1e-9


def rejected(response: Response, drawn: np.ndarray, label: int) -> bool:
    expected = response.law(label) * drawn.size
    counts = np.bincount(drawn, minlength=response.labels)
    return bool(chi2.sf(((counts - expected) ** 2 / expected).sum(), response.labels - 1) < 1e-7)


@pytest.mark.parametrize("labels", [2, 3, 10])
def test_what_comes_out_has_its_law(labels: int) -> None:
    """And a response whose ε is a tenth larger would be noticed."""
    n, rng = 400_000, Random(seed=labels)
    response, wrong = Response.best(1.0, labels), Response.best(1.1, labels)
    for label in (0, labels - 1):
        true = np.full(n, label)
        assert not rejected(response, response.draw_many(true, rng.words(n)), label)
        assert rejected(response, wrong.draw_many(true, rng.words(n)), label)


def test_one_by_one_and_many_at_once_are_the_same() -> None:
    response, words = Response.best(0.7, 7), Random(seed=1).words(500)
    labels = np.arange(500) % 8 - 1
    many = response.draw_many(labels, words)
    ones = [-1 if y < 0 else response.draw(y, word) for y, word in zip(labels.tolist(), words.tolist(), strict=True)]
    assert many.tolist() == ones


def test_words_below_the_last_threshold_say_the_same_for_every_label() -> None:
    """So two worlds with such words see the same, whatever the labels are."""
    response = Response.best(1.0, 5)
    for word in (0, response.other - 1, response.other, 5 * response.other - 1):
        assert len({response.draw(label, word) for label in range(5)}) == 1
    assert [response.draw(label, 5 * response.other) for label in range(5)] == list(range(5))


def test_a_draw_is_the_same_work_for_every_label_and_word() -> None:
    """One loop over all thresholds, and no branch: comparisons become numbers, and are added."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(respond.py_func)))  # type: ignore[attr-defined]
    branches = (ast.If, ast.IfExp, ast.While, ast.BoolOp, ast.Break, ast.Continue, ast.Subscript)
    assert not [node for node in ast.walk(tree) if isinstance(node, branches)]
    assert sum(isinstance(node, ast.For) for node in ast.walk(tree)) == 1


@given(epsilons, numbers)
@settings(max_examples=100, deadline=None)
def test_it_is_read_again_as_it_was_written(epsilon: float, labels: int) -> None:
    response = Response.best(epsilon, labels)
    assert Response.from_params(json.loads(json.dumps(response.params()))) == response


@pytest.mark.parametrize(
    ("labels", "other"),
    [(1, 5), (0, 5), (2, 0), (2, -1), (2, WORDS // 2), (3, WORDS // 2), (MOST_LABELS + 1, 1), (2.0, 5), (2, True)],
)
def test_what_is_unsafe_is_refused(labels: int, other: int) -> None:
    with pytest.raises(ValueError):
        Response(labels, other)
    with pytest.raises(ValueError):
        Response.from_params({"labels": labels, "other": other})


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan, 1e-20])
def test_an_epsilon_that_cannot_be_kept_is_refused(epsilon: float) -> None:
    with pytest.raises(ValueError, match="epsilon"):
        Response.best(epsilon, 2)


def test_params_of_something_else_are_refused() -> None:
    for params in ({}, {"labels": 2}, {"labels": 2, "other": 5, "keep": 3}, {"labels": 2, "other": "5"}):
        with pytest.raises(ValueError):
            Response.from_params(params)


def test_a_huge_epsilon_is_kept_and_costs_what_its_integers_cost() -> None:
    assert Response.best(1000.0, 2).other == 1 and 44 < Response.best(1000.0, 2).cost() < 44.5


def test_a_label_that_is_none_draws_nothing() -> None:
    response = Response.best(1.0, 3)
    for label, word in ((-1, 0), (3, 0), (0, -1), (0, WORDS)):
        with pytest.raises(ValueError):
            response.draw(label, word)
    for labels, words in (([0, 3], 2), ([0, -2], 2), ([0], 2)):
        with pytest.raises(ValueError):
            response.draw_many(np.array(labels), np.zeros(words, dtype=np.uint64))


def test_frequencies_are_unbiased() -> None:
    """Exactly: the mean over all outputs is the share; and a count of 200,000 is within 6 deviations of it."""
    response, shares = Response.best(1.0, 4), np.array([0.6, 0.3, 0.1, 0.0])
    seen = sum(share * response.law(label) for label, share in enumerate(shares))
    assert response.frequencies(seen) == pytest.approx(shares, abs=1e-12)
    true = np.random.default_rng(1).choice(4, 200_000, p=shares)
    found = response.frequencies(np.bincount(response.draw_many(true, Random(seed=2).words(true.size)), minlength=4))
    deviation = 0.5 / math.sqrt(true.size) / response.advantage
    assert np.abs(found - shares).max() < 6 * deviation and found.sum() == pytest.approx(1.0)


def test_probabilities_of_outputs_become_those_of_labels() -> None:
    response = Response.best(2.0, 5)
    true = np.random.default_rng(1).dirichlet(np.ones(5), size=20)
    seen = response.lie + response.advantage * true
    assert response.undone(seen) == pytest.approx(true, abs=1e-12)
    outside = response.undone(np.eye(5))
    assert (outside >= 0).all() and outside.sum(axis=1) == pytest.approx(1.0)


@pytest.mark.parametrize("labels", [2, 3, 23])
def test_undoing_one_row_or_many_has_the_bits_of_the_plain_projection(labels: int) -> None:
    response = Response.best(1.0, labels)
    said = np.asfortranarray(np.random.default_rng(labels).dirichlet(np.full(labels, 0.3), size=50))
    whole, found = response.undone(said), (said - response.lie) / response.advantage
    for row, near in zip(found, whole, strict=True):
        falling = -np.sort(-row)
        over = (np.cumsum(falling) - 1.0) / np.arange(1, labels + 1)
        assert near.tolist() == np.maximum(row - over[(falling > over).sum() - 1], 0.0).tolist()
    assert [response.undone(row).tolist() for row in said] == whole.tolist()
    for wrong in ([np.nan] * labels, [np.inf] + [0.0] * (labels - 1), [0.5] * (labels + 1), 0.5):
        with pytest.raises(ValueError, match="finite numbers"):
            response.undone(wrong)


@given(st.floats(1e-3, 50.0), st.integers(1, 1000))
def test_shares_add_up_to_no_more_than_the_whole(epsilon: float, number: int) -> None:
    share = each(epsilon, number)
    assert together(share, number) <= epsilon
    assert Fraction(math.nextafter(share, math.inf)) * number > Fraction(epsilon)
