"""Reference tables: shares and correlations of the data, one hump elsewhere, groups like those of sites."""

import numpy as np
import pytest

from unpooled import kernels
from unpooled.evaluation.reference_scores import References
from unpooled.evaluation.reference_tables import (
    GRID,
    category,
    column,
    correlation,
    few_values,
    fit_model,
    one_hump,
)
from unpooled.evaluation.replication import split_gains
from unpooled.protocol.questions.half_sums import in_part


def of(x):
    """The column behind a histogram of x, as sites would give it."""
    x = (x - x.mean()) / x.std()
    cell = kernels.nearest(x[:, None], GRID[:, None]).labels
    mass = np.bincount(cell, minlength=len(GRID)).astype(float)
    n = np.maximum(mass, 1)
    means = np.bincount(cell, x, len(GRID)) / n
    squares = np.bincount(cell, x * x, len(GRID)) / n
    return x, column(GRID, mass, means, np.maximum(squares - means**2, 0.0), 1.0)


def test_one_hump_by_hand():
    assert one_hump(np.array([1.0, 3.0, 2.0]), np.ones(3)).tolist() == [1.0, 3.0, 2.0]
    assert one_hump(np.array([3.0, 1.0, 3.0]), np.ones(3)).tolist() in ([3.0, 2.0, 2.0], [2.0, 2.0, 3.0])


@pytest.mark.parametrize("seed", range(5))
def test_a_fitted_hump_rises_and_falls_and_is_no_worse_than_any_other_hump(seed):
    rng = np.random.default_rng(seed)
    density, weights = rng.random(9), rng.random(9) + 0.1
    fitted = one_hump(density, weights)
    top = int(fitted.argmax())
    assert (np.diff(fitted[: top + 1]) >= -1e-12).all()
    assert (np.diff(fitted[top:]) <= 1e-12).all()
    error = weights @ (fitted - density) ** 2
    for _ in range(200):
        peak = rng.integers(9)
        other = np.concatenate([np.sort(rng.random(peak)), np.sort(rng.random(9 - peak))[::-1]])
        assert error <= weights @ (other - density) ** 2 + 1e-12


def test_a_column_of_few_values_keeps_its_values_and_shares():
    x = np.repeat([1.0, 2.0, 3.0, 4.0], [40, 30, 20, 10])
    standard, made = of(x)
    np.testing.assert_allclose(made.by_rank(100)[:, 0], standard)
    np.testing.assert_allclose(made.by_rank(200)[:, 0], np.repeat(standard, 2))


@pytest.mark.parametrize("shape", ["normal", "log-normal", "t"])
def test_other_columns_keep_their_shape(shape):
    rng = np.random.default_rng(0)
    x = {
        "normal": rng.standard_normal(2000),
        "log-normal": np.exp(rng.standard_normal(2000)),
        "t": rng.standard_t(4, 2000),
    }[shape]
    standard, made = of(x)
    drawn = made.by_rank(2000)[:, 0]
    assert (drawn.mean(), drawn.std()) == (pytest.approx(0, abs=1e-9), pytest.approx(1))
    at = [0.05, 0.25, 0.5, 0.75, 0.95]
    np.testing.assert_allclose(np.quantile(drawn, at), np.quantile(standard, at), atol=0.08)


def test_two_humps_become_one_and_many_equal_values_stay():
    rng = np.random.default_rng(1)
    both = np.concatenate([rng.normal(-4, 1, 1000), rng.normal(4, 1, 1000)])
    standard, made = of(both)
    middle = [np.mean(np.abs(v) < 0.4) for v in (standard, made.by_rank(2000)[:, 0])]
    assert middle[0] < 0.02
    assert middle[1] > 0.1
    _, made = of(np.where(rng.random(2000) < 0.4, 0.0, rng.gamma(3, 1, 2000)))
    values, counts = np.unique(made.by_rank(2000)[:, 0].round(9), return_counts=True)
    assert 650 < counts.max() < 850  # some of the 800 belong to the hump
    assert values[0] == values[counts.argmax()]  # nothing lies below the zeros


@pytest.mark.parametrize("group", [1, 5])
def test_tables_have_the_wanted_correlations(group):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((900, 1)) + rng.standard_normal((900, 4))
    columns = [of(np.exp(0.5 * X[:, 0]))[1], of(X[:, 1])[1], of(np.clip(np.rint(X[:, 2]), -1, 1))[1]]
    columns.append(few_values(np.array([-1.0, 1.0]), np.array([0.5, 0.5])))
    wanted = correlation(np.full((4, 4), 0.4) + 0.6 * np.eye(4))
    sizes = np.array([300, 300])
    model = fit_model(columns, wanted, sizes, group, np.random.default_rng(0))
    tables = model.tables(20, np.random.default_rng(1))
    np.testing.assert_allclose(model.correlations(tables), wanted, atol=0.06)
    assert len(tables.offsets) == 21
    if group == 1:
        assert tables.weights is None
        assert (np.diff(tables.offsets) == 600).all()
    else:
        assert tables.weights.min() >= group
        assert [
            tables.weights[a:b].sum() for a, b in zip(tables.offsets, tables.offsets[1:], strict=False)
        ] == [600] * 20
    again = fit_model(columns, wanted, sizes, group, np.random.default_rng(0))
    assert np.array_equal(again.tables(20, np.random.default_rng(1)).X, tables.X)


def test_categories_are_ordered_by_how_they_go_with_other_columns():
    shares = np.array([0.5, 0.2, 0.3])
    effects = np.array([0.0, 2.0, -2.0])
    covariance = (shares * (effects - shares @ effects))[:, None]
    made = category(np.eye(3), shares, covariance)
    order = [int(row.argmax()) for row in made.values]
    assert order in ([2, 0, 1], [1, 0, 2])
    assert np.bincount(made.by_rank(100).argmax(axis=1)).tolist() == [50, 20, 30]


def test_scores_of_references_are_those_of_k_means_and_of_their_halves():
    """The figures by their definitions, for one table."""
    rng = np.random.default_rng(5)
    model = fit_model(
        [of(rng.standard_normal(300))[1] for _ in range(3)],
        np.eye(3),
        np.array([300]),
        1,
        np.random.default_rng(0),
    )
    tables = model.tables(2, np.random.default_rng(1))
    scores = References(tables, 9).scores(3)
    X = tables.X[:300]
    found = kernels.kmeans(X, [0, 300], 3, [9], n_init=16)
    total = ((X - X.mean(axis=0)) ** 2).sum()
    assert scores.ratios[0] == pytest.approx((total - found.inertia[0]) / found.inertia[0])
    gains = []
    for split in range(3):
        halves = [X[in_part(9, split, part, 0.5, np.arange(300))] for part in (0, 1)]
        centers = []
        for half in halves:
            c = found.centers[0]
            for _ in range(5):
                labels = kernels.nearest(half, c).labels
                c = np.array([half[labels == j].mean(axis=0) for j in range(3)])
            centers.append(c)
        for half, other in ((halves[0], centers[1]), (halves[1], centers[0])):
            labels = kernels.nearest(half, other).labels
            means = np.array([half[labels == j].mean(axis=0) for j in range(3)])
            gains.append(split_gains(np.bincount(labels) / len(half), means, np.cov(half.T, bias=True)))
    assert scores.gains[0] == pytest.approx(np.mean(gains))
