"""Scales of skewed columns: by totals only, and equal to scikit-learn's on the pooled table."""

import numpy as np
import pytest
from sklearn.preprocessing import QuantileTransformer, RobustScaler, StandardScaler

from unpooled.data import PreparationOptions, Table
from unpooled.data.schema_agreement import agree_schema
from unpooled.data.transforms import Shaped
from unpooled.errors import InputError
from unpooled.federation import Simulation
from unpooled.privacy.microaggregation import microaggregate
from unpooled.protocol.exchange import run_protocol


def agreed(tables, **preparation_options):
    federation = Simulation.from_rows({name: Table.from_columns(columns) for name, columns in tables.items()})
    return run_protocol(
        agree_schema(tuple(sorted(tables)), PreparationOptions(**preparation_options)), federation
    )


def skewed(seed=0, n=40, missing=0.0):
    rng = np.random.default_rng(seed)
    tables = {}
    for i, name in enumerate("abc"):
        income = np.round(np.exp(rng.normal(7 + i / 3, 1.2, n + i)), 2)
        visits = rng.integers(1, 9, n + i).astype(float)  # many ties
        income[rng.random(n + i) < missing] = np.nan
        tables[name] = {"income": income, "visits": visits, "age": rng.normal(50, 9, n + i)}
    return tables


def pooled(tables, name):
    return np.concatenate([columns[name] for columns in tables.values()])[:, None]


def prepared(tables, agreement):
    return np.concatenate(
        [agreement.preparation.apply(Table.from_columns(columns)) for columns in tables.values()]
    )


def ranks(X):
    shares = QuantileTransformer(n_quantiles=33, subsample=None).fit_transform(X)
    return StandardScaler().fit_transform(shares)


EXPECTED = {
    "standard": StandardScaler().fit_transform,
    "robust": RobustScaler(unit_variance=True).fit_transform,
    "log": lambda X: StandardScaler().fit_transform(np.log(X)),
    "rank": ranks,
    "none": lambda X: X,
}


def test_a_median_by_hand():
    tables = {"a": {"x": [1.0, 2.0, 100.0]}, "b": {"x": [4.0, 3.0]}}
    (column,) = agreed(tables, scale="robust").preparation.columns
    assert column.shift == pytest.approx(3.0, rel=1e-12)
    assert column.scale == pytest.approx(2.0 / 1.34897950039, rel=1e-11)  # from 2 to 4


@pytest.mark.parametrize("scale", EXPECTED)
@pytest.mark.parametrize("seed", range(5))
def test_each_scale_is_that_of_the_pooled_table(scale, seed):
    tables = skewed(seed)
    X = prepared(tables, agreed(tables, scale=scale))
    for j, name in enumerate(("income", "visits", "age")):
        if scale == "log" and name == "age":
            continue
        np.testing.assert_allclose(
            X[:, j : j + 1], EXPECTED[scale](pooled(tables, name)), rtol=1e-8, atol=1e-8
        )


def test_columns_may_have_scales_of_their_own():
    tables = skewed(1)
    agreement = agreed(tables, scales=(("income", "log"), ("visits", "rank")))
    X = prepared(tables, agreement)
    for j, (name, scale) in enumerate((("income", "log"), ("visits", "rank"), ("age", "standard"))):
        np.testing.assert_allclose(
            X[:, j : j + 1], EXPECTED[scale](pooled(tables, name)), rtol=1e-8, atol=1e-8
        )
    assert agreement.preparation.names == ("log(income)", "rank(visits)", "age")
    assert agreement.preparation.kinds == {"income": "number", "visits": "number", "age": "number"}


@pytest.mark.parametrize("scale", ["robust", "log", "rank"])
@pytest.mark.parametrize("missing", ["fill", "drop"])
def test_missing_values_count_in_no_quantile(scale, missing):
    tables = skewed(3, missing=0.2)
    X = prepared(tables, agreed(tables, scales=(("income", scale),), missing=missing))
    raw = pooled(tables, "income")
    there = ~np.isnan(raw[:, 0])
    known = EXPECTED["robust" if scale == "robust" else scale](raw[there])
    result = X[:, 0] if missing == "drop" else X[there, 0]
    if missing == "fill" and scale != "robust":  # the variance of all rows, filled ones at the mean
        known = known / np.sqrt(there.mean())
    np.testing.assert_allclose(result, known[:, 0], rtol=1e-8, atol=1e-8)
    if missing == "fill":
        assert np.abs(X[~there, 0]).max() < 1e-9


def test_what_has_no_logarithm_is_one_error():
    with pytest.raises(InputError, match=r"column x has a value that is not above 0.*--scale x=rank"):
        agreed({"a": {"x": [1.0, 0.0, 3.0]}}, scale="log")


def test_a_middle_half_of_one_value_is_one_error():
    with pytest.raises(InputError, match=r"column x: the middle half of its values is 2,.*x=rank"):
        agreed({"a": {"x": [2.0] * 8 + [1.0, 50.0]}}, scale="robust")


def test_a_constant_is_left_out_whatever_the_scale():
    tables = {"a": {"x": [2.0, 2.0], "y": [1.0, 5.0]}, "b": {"x": [2.0, 2.0], "y": [3.0, 4.0]}}
    for scale in ("robust", "log", "rank"):
        assert dict(agreed(tables, scale=scale).left_out) == {"x": "constant (2)"}


def test_scales_of_unknown_columns_are_all_named():
    with pytest.raises(InputError, match="--scale for q, r, which"):
        agreed(skewed(), scales=(("q", "log"), ("r", "rank")))


def test_a_summary_table_has_no_ranks():
    columns = skewed()["a"]
    federation = Simulation.from_rows({"a": microaggregate(Table.from_columns(columns))})
    with pytest.raises(InputError, match=r"--scale rank of income needs all rows.*--log-transform income"):
        run_protocol(agree_schema(("a",), PreparationOptions(scales=(("income", "rank"),))), federation)


def test_ranks_of_values_beyond_all_others_are_0_and_1():
    column = Shaped("x", 0.5, 0.0, 1.0, "rank", (1.0, 2.0, 2.0, 4.0))
    np.testing.assert_allclose(column.shaped(np.array([-5.0, 2.0, 9.0])), [0.0, 0.5, 1.0])


def test_a_tail_that_dominates_the_distances_is_named_with_advice():
    rng = np.random.default_rng(0)
    tables = {s: {"crp": np.exp(rng.normal(0, 1.5, 400)), "age": rng.normal(50, 9, 400)} for s in "ab"}
    (warning,) = agreed(tables).warnings
    assert warning.startswith("crp (")
    assert "--scale crp=rank lets all rows count" in warning
    assert agreed(tables, scales=(("crp", "log"),)).warnings == ()


@pytest.mark.parametrize("seed", range(5))
def test_usual_columns_give_no_warning_of_a_tail(seed):
    rng = np.random.default_rng(seed)
    columns = {
        "normal": rng.normal(size=300),
        "uniform": rng.random(300) * 9,
        "groups": rng.normal(size=300) + 9 * rng.integers(0, 3, 300),
        "rare": (rng.random(300) < 0.01).astype(float),
        "gamma": rng.gamma(2.0, 3.0, 300),
    }
    assert agreed({"a": columns, "b": columns}).warnings == ()
