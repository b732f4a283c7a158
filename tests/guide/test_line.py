"""The line is what a model says, as far as a line can say it; it follows from released rows alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.guide.columns import Columns
from confide.guide.guide import Guide
from confide.guide.hashed import HashedMap
from confide.guide.levels import EDGE, STEPS, middle_and_inverse
from confide.guide.line import draw_line
from confide.guide.linear import MODELS, WINDOWS
from confide.guide.maps import FeatureMap
from confide.guide.middle import made_up
from confide.guide.model import Model, map_from_params, map_params
from confide.guide.ranges import declared
from confide.planning.guided import GuidePlan
from confide.privacy.random import Random

pytestmark = pytest.mark.claim("guide.md")

COLUMNS = Columns.of_array(3)
MAP = FeatureMap(COLUMNS, declared({str(i): (0, 10) for i in range(3)}, COLUMNS.numeric))
HALF = 5 - 10 * EDGE / STEPS  # of what lies between the edges of these columns, around 5


def drawn(features: FeatureMap | HashedMap, theta: np.ndarray, times: int = 40) -> np.ndarray:
    """The line of a model, after so many times."""
    vectors = theta.shape[1]
    models = np.tile(theta, MODELS)
    models[:, WINDOWS * vectors :] = 0.0
    for i in range(times):
        draw_line(features, models, vectors, 1 + 4 * i, 0)
    return models[:, WINDOWS * vectors :]


def said(features: FeatureMap, theta: np.ndarray, rows: np.ndarray) -> np.ndarray:
    model = Model(features, theta)
    return np.array([model.score(features.encode(row))[1:] for row in rows.tolist()])


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_of_a_model_that_is_a_line_and_noise_the_line_is_left(noise: float) -> None:
    """x₀ + x₁ > 8, with noise in bins and partitions: of it less than a third is left."""
    rng, own = np.random.default_rng(3), 1 + 2 * MAP.lined  # the constant and what is a line's in any case
    theta = np.zeros((MAP.width, 1))
    theta[own:] = rng.normal(0, noise, size=(MAP.width - own, 1))
    theta[0], theta[1:3] = 4 / MAP.constant, 2 * HALF * 2.0**14
    rows = rng.uniform(0, 10, size=(4000, 3))
    right = rows[:, 0] + rows[:, 1] > 8
    wrong, left = (((said(MAP, each, rows)[:, 0] > 0) != right).mean() for each in (theta, drawn(MAP, theta)))
    assert left < 0.003 and left <= wrong / 3


def test_a_line_has_the_constant_and_its_own_numbers_and_nothing_else() -> None:
    theta = np.random.default_rng(1).normal(size=(MAP.width, 2))
    line = drawn(MAP, theta)
    assert line[: 1 + MAP.lined].all() and not line[1 + MAP.lined :].any()


def test_no_step_says_less_of_what_the_model_says() -> None:
    """Cross entropy never rises: steps are divided by the largest curvature there is."""
    indices, values = made_up(MAP, 2048, EDGE / STEPS)
    for vectors in (1, 3):
        theta = np.random.default_rng(vectors).normal(0, 20, size=(MAP.width, vectors))
        models, before = np.tile(theta, MODELS), np.inf
        models[:, WINDOWS * vectors :] = 0.0
        wanted = _likely((theta[indices] * values[:, :, None]).sum(axis=1))
        for _ in range(12):
            draw_line(MAP, models, vectors, 1, 0)
            found = _likely((models[indices][:, :, WINDOWS * vectors :] * values[:, :, None]).sum(axis=1))
            entropy = -float((wanted * np.log(found)).sum())
            assert entropy <= before * (1 + 1e-6), "but for what exponentials are rounded by"
            before = entropy


def _likely(scores: np.ndarray) -> np.ndarray:
    both = np.concatenate([np.zeros_like(scores), scores], axis=1) if scores.shape[1] == 1 else scores
    weights = np.exp(np.clip(both - both.max(axis=1, keepdims=True), -30, 0))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def test_the_line_follows_the_mean_that_it_is_told_to_and_no_other() -> None:
    rng = np.random.default_rng(5)
    models = rng.normal(size=(MAP.width, MODELS))
    others = np.where(np.arange(MODELS) == WINDOWS - 1, models, rng.normal(size=models.shape))
    models[:, WINDOWS:] = others[:, WINDOWS:] = 0.0
    for each in (models, others):
        draw_line(MAP, each, 1, 1, WINDOWS - 1)
    assert models[:, WINDOWS].any() and models[:, WINDOWS].tobytes() == others[:, WINDOWS].tobytes()


def test_rows_of_a_line_are_made_up_without_the_ends_of_grids_and_all_of_a_mean_row() -> None:
    """A grid's last steps reach as far as the last count's bin does: of what lies there nothing may be learned."""
    grid = np.linspace(0, 10, STEPS + 1 - EDGE).tolist()
    features = FeatureMap(COLUMNS, (tuple([*grid, 11.0, 12.0, 13.0]),) * 3)
    middle, half = (grid[EDGE] + 10) / 2, (10 - grid[EDGE]) / 2
    for rows, edge, low, high in ((512, 0.0, 0.0, 13.0), (2048, EDGE / STEPS, grid[EDGE], 10.0)):
        indices, values = made_up(features, rows, edge)
        numbers = np.sort(values[:, 1:4] * 2.0**14 * half + middle, axis=0)  # as the line has them
        shares = (edge + (1 - 2 * edge) * (np.arange(rows) + 0.5) / rows) * STEPS
        assert indices.shape[0] == rows and low <= numbers.min() and high - 1 < numbers.max() <= high
        wanted = np.interp(shares, np.arange(STEPS + 1), [*grid, 11.0, 12.0, 13.0])
        assert np.allclose(numbers, np.minimum(wanted, middle + 1.5 * half)[:, None], atol=1e-9)


def test_an_end_that_is_noise_takes_no_column_out_of_the_line_and_a_rare_value_is_in_it() -> None:
    grid = np.linspace(0, 10, STEPS + 1)
    middle, inverse = middle_and_inverse(tuple(np.where(np.arange(STEPS + 1) > STEPS - EDGE, 1e16, grid).tolist()))
    assert middle == 5 and inverse == pytest.approx(1 / HALF)
    assert middle_and_inverse((0.0,) * STEPS + (1.0,)) == (0.5, 2.0)  # 0 but for a few: its edges are one value
    assert middle_and_inverse((7.0,) * (STEPS + 1)) == (7.0, 0.0)
    assert middle_and_inverse(None) == (0.0, 0.0)


@pytest.mark.parametrize(
    "features",
    [
        HashedMap(16),
        FeatureMap(Columns(("a",), ("b",)), declared({"a": (0, 1)}, ("a",))),
        FeatureMap(Columns(("a",), (), ("b",)), declared({"a": (0, 1)}, ("a",))),
        FeatureMap(Columns.of_array(2)),
        FeatureMap(Columns.of_array(33), declared({str(i): (0, 1) for i in range(33)}, Columns.of_array(33).numeric)),
    ],
    ids=["hashed", "a category", "a text", "nothing is known", "33 columns"],
)
def test_where_a_map_has_no_line_it_is_the_model_itself_and_its_loss_is_nothing(features: FeatureMap) -> None:
    theta = np.random.default_rng(1).normal(size=(features.width, 1))
    assert drawn(features, theta, times=1).tobytes() == theta.tobytes()


_VALUE = st.one_of(st.floats(-1e300, 1e300), st.sampled_from([0.0, 1.0, -1.0, 5e-324]))
_GRID = st.lists(_VALUE, min_size=65, max_size=65)


@settings(max_examples=25, deadline=None)
@given(grids=st.lists(_GRID, min_size=1, max_size=3), length=st.sampled_from([0.0, 1.0, 1e6, 1e150]))
def test_whatever_the_grids_and_the_model_are_the_line_is_finite(grids: list[list[float]], length: float) -> None:
    features = FeatureMap(Columns.of_array(len(grids)), tuple(tuple(sorted(grid)) for grid in grids), partitions=4)
    theta = length * np.random.default_rng(len(grids)).normal(size=(features.width, 1))
    assert np.isfinite(drawn(features, theta, times=2)).all()


def test_a_row_is_no_longer_than_one_with_the_line_and_its_map_is_made_again() -> None:
    features = map_from_params(map_params(MAP))
    assert isinstance(features, FeatureMap) and features == MAP and features.lined == 3
    for row in ([0.0] * 3, [1e9, -1e9, 5.0], [float("nan")] * 3):
        encoded = features.encode(row)
        assert float((encoded.values**2).sum()) <= 1.0
        assert encoded.values[1:4].tolist() == [
            2.0**-14 * min(max((x - 5) / HALF, -1.5), 1.5) if x == x else 0.0 for x in row
        ]


def test_two_guides_with_the_same_releases_have_the_same_line_whatever_they_were_taught() -> None:
    """All labels the other way round, the same released rows: what answers has the same bits, and is a line here."""
    rng, n = np.random.default_rng(2), 6000
    rows = rng.uniform(0, 10, size=(n, 3))
    labels = (rows[:, 0] + rows[:, 1] > 8).astype(np.int64)
    plan = replace(GuidePlan.best(epsilon=8.0, delta=1e-6, rounds=n, private_ranges=False))
    released: list[np.ndarray] = []
    first = Guide(plan, MAP, rng=Random(seed=1), store=lambda release: released.append(release.row.copy()))
    first.follow(rows, labels)
    again = iter(released)
    second = Guide(plan, MAP, rng=Random(seed=9), store=lambda release: np.copyto(release.row, next(again)))
    second.follow(rows, 1 - labels)
    assert first.model.params() == second.model.params()
    assert first._leaves.choice.chosen == WINDOWS, "where a line is all, it is the line that answers"


def test_a_linear_rule_of_few_numbers_is_found_better_with_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """SEA's rule, 20,000 rounds at ε = 4, three seeds: without the line errors are twice as many, or more."""
    rng, n = np.random.default_rng(4), 20_000
    rows = rng.uniform(0, 10, size=(n, 3))
    labels, late = (rows[:, 0] + rows[:, 1] > 8).astype(np.int64), slice(n // 2, n)
    plan = GuidePlan.best(epsilon=4.0, delta=1e-6, rounds=n)

    def errors() -> float:
        answers = [Guide(plan, COLUMNS, rng=Random(seed=seed)).follow(rows, labels).answers for seed in (1, 2, 3)]
        return float(np.mean([(one[late] != labels[late]).mean() for one in answers]))

    with_line = errors()
    monkeypatch.setattr("confide.guide.leaves.draw_line", lambda *given: None)
    assert with_line < 0.7 * errors()
