"""The linear rule of labels alone: what it is fitted to, what it makes of strange columns, and what it is for."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import check_grad
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from confide.guide.inputs import columns_for
from confide.labels.default import Default
from confide.labels.linear import Linear, _loss, fit_linear
from confide.learners import Features
from confide.privacy.response import Response

pytestmark = pytest.mark.claim("labels.md")


def places(n: int, columns: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, columns))


def drawn(response: Response, ys: np.ndarray, seed: int = 1) -> np.ndarray:
    words = np.random.default_rng(seed).integers(0, 1 << 64, size=ys.size, dtype=np.uint64)
    return response.draw_many(ys.astype(np.int64), words)


def test_where_labels_hardly_lie_it_is_logistic_regression() -> None:
    """scikit-learn's, with the same prior, on the same columns put to mean 0 and spread 1."""
    rng, xs = np.random.default_rng(3), places(3000)
    ys = (xs @ [1.0, -2.0, 0.5] + rng.logistic(size=3000) > 0.3).astype(np.int64)
    rule = fit_linear(xs, ys, Response.best(30.0, labels=2))
    # Two vectors of weights, each with the prior, are one of their difference with half of it.
    other = LogisticRegression(C=2 / 0.01, tol=1e-10, max_iter=1000).fit((xs - rule.middle) * rule.scale, ys)
    told = other.predict_proba((xs - rule.middle) * rule.scale)
    assert np.abs(rule.probabilities(xs) - told).max() < 1e-3


@pytest.mark.parametrize("labels", [2, 5])
def test_its_slope_is_that_of_its_loss(labels: int) -> None:
    rng, response = np.random.default_rng(4), Response.best(1.0, labels)
    xs, outs = np.ascontiguousarray(places(40)), rng.integers(0, labels, size=40)

    def loss(flat: np.ndarray) -> float:
        w = flat.reshape(labels, 3)
        return _loss(xs, outs, w, response.truth, response.lie, np.zeros_like(w))

    def slope(flat: np.ndarray) -> np.ndarray:
        w = flat.reshape(labels, 3)
        found = np.zeros_like(w)
        _loss(xs, outs, w, response.truth, response.lie, found)
        return found.ravel()

    assert check_grad(loss, slope, rng.normal(size=3 * labels)) < 1e-4


def test_a_row_is_told_the_same_alone_and_among_others() -> None:
    response, xs = Response.best(1.0, labels=3), places(600)
    rule = fit_linear(xs, drawn(response, xs.argmax(axis=1)), response)
    told = rule.probabilities(xs)
    assert all((rule.probabilities(xs[i : i + 1])[0] == told[i]).all() for i in range(50))
    assert told.sum(axis=1) == pytest.approx(1.0)


def test_equal_rows_and_outputs_make_an_equal_rule() -> None:
    response, xs = Response.best(1.0, labels=2), places(600)
    outs = drawn(response, xs[:, 0] > 0)
    some, others = (fit_linear(xs.copy(), outs.copy(), response) for _ in range(2))
    assert all((a == b).all() for a, b in zip(some, others, strict=True))


def test_strange_columns_are_read_and_rows_far_out_have_a_bound() -> None:
    """Missing everywhere, one value, infinite, as large as a number can be: none of it becomes NaN."""
    response, xs = Response.best(2.0, labels=2), places(800, columns=6)
    ys = xs[:, 0] > 0
    xs[:, 1], xs[:, 2], xs[::3, 3], xs[::5, 4], xs[::7, 5] = np.nan, 4.0, np.nan, np.inf, -1e308
    rule = fit_linear(xs, drawn(response, ys), response)
    strange = np.array([[np.nan] * 6, [np.inf] * 6, [-np.inf] * 6, [1e308] * 6])
    assert np.isfinite(rule.probabilities(strange)).all()
    assert (rule.probabilities(xs).argmax(axis=1) == ys).mean() > 0.9


def test_numbers_at_both_ends_of_all_numbers_warn_nobody() -> None:
    """What lies between them is no number any more: who makes errors of warnings had no fit."""
    xs = np.array([[-1.7e308], *[[1.7e308]] * 9])
    rule = fit_linear(xs, np.array([0, *[1] * 9]), Response.best(8.0, labels=2))
    assert rule.probabilities(xs).argmax(axis=1).tolist() == [0, *[1] * 9]


def test_a_rule_of_many_columns_and_labels_is_the_same_on_one_thread_and_on_two() -> None:
    """Who adds up in as many parts as there are threads has another rule after a restart with other ones."""
    response, xs = Response.best(2.0, labels=16), places(300, columns=700)
    outs = drawn(response, np.arange(300) % 16)
    some = []
    for threads in (1, 2):
        with threadpool_limits(limits=threads):
            some.append(fit_linear(xs, outs, response).weights)
    assert (some[0] == some[1]).all()


def test_nothing_but_columns_without_a_spread_tells_how_often_each_label_is() -> None:
    response = Response.best(2.0, labels=2)
    ys = np.arange(4000) % 5 == 0
    told = fit_linear(np.ones((4000, 1)), drawn(response, ys), response).probabilities(np.ones((1, 1)))
    assert told[0, 1] == pytest.approx(0.2, abs=0.05)


def test_a_weighing_of_numbers_is_found_where_labels_lie() -> None:
    """The rule of SEA: two columns' sum, a third that means nothing. Without the rule it errs three times as often."""
    response, rng = Response.best(1.0, labels=2), np.random.default_rng(8)
    xs = rng.uniform(0.0, 10.0, size=(12_000, 3))
    ys = (xs[:, 0] + xs[:, 1] > 8.0).astype(np.int64)
    model = Default(3, response)
    told = model.follow(model.read_many(xs), drawn(response, ys))
    error = (told != ys)[8000:].mean()
    assert error < 0.01, error


def test_there_is_no_rule_without_columns_of_numbers_and_none_for_very_many_labels() -> None:
    words = Features(numeric=[], categorical={"city": 8})
    assert columns_for(words)[0].numeric == ()
    several = [Default(*given)._others for given in ((3, Response.best(1.0, 2)), (words, Response.best(1.0, 2)))]
    assert several[0] == several[1] + 1
    assert Default(3, Response.best(1.0, 17))._others == 0


def test_a_rule_is_arrays_alone() -> None:
    rule = fit_linear(places(100), np.zeros(100, dtype=np.int64), Response.best(1.0, labels=2))
    assert all(isinstance(part, np.ndarray) and part.dtype == np.float64 for part in rule)
    told = Linear(*(np.array(part) for part in rule)).probabilities(places(5))
    assert (told == rule.probabilities(places(5))).all()


def test_a_state_without_room_for_a_rule_is_refused_in_words() -> None:
    """As that of a model from before there was one."""
    response = Response.best(1.0, labels=2)
    state = Default(3, response).state()
    for changed in ({**state, "model/2": state["model/2"][:-1]}, {k: v for k, v in state.items() if k != "model/2"}):
        with pytest.raises(ValueError, match="another version"):
            Default(3, response).restore(changed)
