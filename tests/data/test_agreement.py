"""Sites agree on one preparation: the one that scikit-learn would fit on the pooled table."""

import re

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from helpers import bits
from unpooled.data import Category, Number, PreparationOptions, Table, agree_schema
from unpooled.data.schema import AskColumns, AskSchema
from unpooled.errors import InputError, SchemaMismatchError
from unpooled.federation import LocalFederation, Simulation
from unpooled.protocol.algorithm import transformed
from unpooled.protocol.exchange import run_protocol
from unpooled.protocol.questions.cluster_sums import AskMoments
from unpooled.site import Site

pytestmark = pytest.mark.quick


def columns(seed, n, shift=0.0):
    rng = np.random.default_rng(seed)
    x = rng.normal(50 + shift, 9, n)
    y = np.where(rng.random(n) < 0.15, np.nan, rng.gamma(2.0, 3.0, n))
    c = [None if rng.random() < 0.1 else str(v) for v in rng.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1])]
    return {"x": x, "y": y, "c": c}


def sites(**more):
    return {
        name: columns(i, n, 5 * i) | more for i, (name, n) in enumerate({"p": 80, "q": 130, "r": 60}.items())
    }


def federation(given, **settings):
    return Simulation.from_rows(
        {name: Table.from_columns(cells) for name, cells in given.items()}, **settings
    )


def agreed(given, minimum=1, **preparation_options):
    there = federation(given, min_cluster_size=minimum)
    return run_protocol(agree_schema(there.sites, PreparationOptions(**preparation_options)), there)


def pooled(given, names):
    return {
        name: np.concatenate([np.asarray(given[s][name], dtype=object) for s in sorted(given)])
        for name in names
    }


# ---------------------------------------------------------------- equal to pooling


def test_equals_scikit_learn_on_the_pooled_table():
    given = sites()
    transform = agreed(given, min_category_share=0.0, missing="fill").preparation
    ours = np.concatenate([transform.apply(Table.from_columns(given[s])) for s in sorted(given)])
    whole = pooled(given, ("x", "y", "c"))
    X = np.column_stack([whole["x"], whole["y"], whole["c"]])
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    hot = make_pipeline(
        SimpleImputer(strategy="most_frequent", missing_values=None), OneHotEncoder(sparse_output=False)
    )
    theirs = ColumnTransformer([("n", numbers, [0, 1]), ("c", hot, [2])]).fit_transform(X)
    theirs[:, 2:] /= np.sqrt(theirs[:, 2:].var(axis=0).sum())  # a whole category counts as one column
    np.testing.assert_allclose(ours, theirs.astype(float), atol=1e-12)
    assert ours[:, 2:].var(axis=0).sum() == pytest.approx(1.0)


def test_dropped_rows_are_dropped_before_anything_is_computed():
    given = sites()
    agreement = agreed(given, missing="drop")
    ours = np.concatenate([agreement.preparation.apply(Table.from_columns(given[s])) for s in sorted(given)])
    whole = pooled(given, ("x", "y", "c"))
    keep = ~np.isnan(whole["y"].astype(float)) & np.array([v is not None for v in whole["c"]])
    X = np.column_stack([whole["x"], whole["y"]])[keep].astype(float)
    np.testing.assert_allclose(ours[:, :2], StandardScaler().fit_transform(X), atol=1e-12)
    assert agreement.used == keep.sum() == len(ours)


def test_scales():
    given = sites()
    plain = agreed(given, scale="none").preparation.columns
    assert [(c.shift, c.scale) for c in plain if isinstance(c, Number)] == [(0.0, 1.0)] * 2
    bounded = agreed(
        given, scale="min-max", bounds=(("x", 0.0, 100.0), ("y", -1.0, 39.0))
    ).preparation.columns
    assert [(c.shift, c.scale) for c in bounded if isinstance(c, Number)] == [(0.0, 100.0), (-1.0, 40.0)]
    assert bounded[2].scale == pytest.approx(np.sqrt(2))  # two categories lie 1 apart
    with pytest.raises(InputError, match="none for y"):
        agreed(given, scale="min-max", bounds=(("x", 0.0, 100.0),))


def test_far_from_zero_nothing_cancels():
    given = {"p": {"x": 1e9 + np.arange(10.0)}, "q": {"x": 1e9 + np.arange(10.0, 20.0)}}
    (column,) = agreed(given).preparation.columns
    assert column.scale == pytest.approx(np.arange(20.0).std(), rel=1e-9)


@pytest.mark.parametrize("minimum", [1, 5])
def test_fused_and_site_by_site_give_the_same_bits(minimum):
    given = sites()
    fused = federation(given, min_cluster_size=minimum)
    apart = LocalFederation(
        [Site(n, Table.from_columns(c), min_cluster_size=minimum) for n, c in given.items()]
    )
    transform = run_protocol(agree_schema(fused.sites, PreparationOptions(missing="drop")), fused)
    assert bits(transform) == bits(
        run_protocol(agree_schema(apart.sites, PreparationOptions(missing="drop")), apart)
    )

    def moments(where):
        from unpooled.protocol.algorithm import total

        return run_protocol(transformed(transform.preparation, total(where.sites, AskMoments())), where)

    assert bits(moments(fused)) == bits(moments(apart))


# ---------------------------------------------------------------- columns


def test_constant_columns_and_columns_without_values_are_left_out_by_name():
    given = sites()
    for cells in given.values():
        n = len(cells["x"])
        cells |= {"one": np.full(n, 3.0), "none": np.full(n, np.nan), "same": ["z"] * n}
    agreement = agreed(given)
    assert [c.name for c in agreement.preparation.columns] == ["x", "y", "c"]
    assert dict(agreement.left_out) == {
        "one": "constant (3)",
        "none": "no value at any site",
        "same": "constant",
    }
    with pytest.raises(SchemaMismatchError, match="column none has no value at any site"):
        agreed(given, columns=("x", "none"))


@pytest.mark.parametrize(
    ("categories", "warning"),
    [
        (("ab", "ab", "cd"), r"c at r: no other site has any of its categories \(r: c, d; elsewhere: a, b\)"),
        (("ab", "cd", "ef"), r"c at p, q, r: no .*\(p: a, b; q: c, d; r: e, f\)"),
        (("ab", "bc", "c"), ""),
        (("ab", "ab", "cdefghijklmnopqr"), ""),  # one row a category: chance
        (("ab", "ab", ""), ""),
    ],
)
def test_categories_that_no_other_site_has_are_named_by_column_and_site(categories, warning):
    n = 16
    given = {
        site: {"x": np.arange(float(n)) % 7, "c": [own[i % len(own)] if own else None for i in range(n)]}
        for site, own in zip("pqr", categories, strict=True)
    }
    warnings = [line for line in agreed(given).warnings if "categories" in line]
    assert len(warnings) == bool(warning)
    assert all(re.match(warning, line) for line in warnings), warnings


def test_differences_are_a_table_and_common_takes_the_rest():
    given = sites()
    del given["q"]["y"]
    given["r"]["extra"] = np.arange(60.0)
    with pytest.raises(SchemaMismatchError, match="q lacks y, extra") as error:
        agreed(given)
    assert error.value.table == (
        ("column", "p", "q", "r"),
        ("y", "number", "-", "number"),
        ("extra", "-", "-", "number"),
    )
    common = agreed(given, columns="common")
    assert [c.name for c in common.preparation.columns] == ["x", "c"]
    assert common.left_out == (("y", "not at q"), ("extra", "not at p, q"))


def test_no_common_columns_and_kinds_that_differ():
    with pytest.raises(SchemaMismatchError, match="no column is common"):
        agreed({"p": {"a": [1.0, 2.0]}, "q": {"b": [1.0, 2.0]}}, columns="common")
    with pytest.raises(SchemaMismatchError, match="category at q; number at p"):
        agreed({"p": {"a": [1.0, 2.0]}, "q": {"a": ["x", "y"]}})


def test_an_empty_column_at_one_site_fits_any_kind():
    given = {"p": {"x": [1.0, 2.0, 4.0], "c": ["u", "v", "u"]}, "q": {"x": [np.nan] * 2, "c": [None, None]}}
    assert [type(c) for c in agreed(given, min_category_share=0.0).preparation.columns] == [Number, Category]


def test_refusing_missing_values_names_the_place():
    with pytest.raises(InputError, match="column y at site p"):
        agreed(sites(), missing="refuse")


def test_mixed_up_units_are_named():
    given = {f"s{i}": {"height": np.random.default_rng(i).normal(172, 9, 60)} for i in range(4)}
    assert agreed(given).warnings == ()
    given["s2"]["height"] = given["s2"]["height"] / 100
    (warning,) = agreed(given).warnings
    assert warning == (
        "height at s2: values about 100 times smaller than elsewhere; another unit? "
        "Convert it at s2, or leave it out (--exclude height)"
    )
    given["s2"]["height"] = np.zeros(60)
    (warning,) = agreed(given).warnings
    assert warning.startswith("height at s2: every value is 0; elsewhere it is about 1")


UNITS = {
    "Kelvin": (lambda x: x + 273.15, "Celsius and Kelvin", (37, 0.7)),
    "another 0": (lambda x: x + 1900, "another unit, whose 0 lies elsewhere", (55, 12)),
    "pounds": (lambda x: x * 2.2046, "kilograms and pounds", (75, 14)),
    "inches": (lambda x: x / 2.54, "inches and centimetres", (172, 9)),
    "Fahrenheit": (lambda x: x * 1.8 + 32, "Celsius and Fahrenheit", (37, 0.7)),
    "glucose": (lambda x: x * 18.016, "mmol/l and mg/dl", (5.5, 1.2)),
    "months": (lambda x: x * 12, "times larger", (50, 15)),
}


def usual_sites(rng, mean, spread, n=80):
    """Four sites whose means and spreads differ as those of hospitals do."""
    return {
        f"s{i}": {"x": rng.normal(mean + 0.3 * spread * rng.normal(), spread * rng.uniform(0.85, 1.15), n)}
        for i in range(4)
    }


@pytest.mark.parametrize("unit", UNITS)
def test_a_usual_change_of_units_is_named_by_site_and_column(unit):
    change, expected, (mean, spread) = UNITS[unit]
    warned = 0
    for seed in range(20):
        given = usual_sites(np.random.default_rng(seed), mean, spread)
        assert agreed(given).warnings == ()
        given["s2"]["x"] = change(given["s2"]["x"])
        warnings = agreed(given).warnings
        warned += len(warnings) == 1 and warnings[0].startswith("x at s2: ") and expected in warnings[0]
    assert warned >= 18


@pytest.mark.parametrize("sites", [("s1",), ("s2", "s3")], ids=["2 sites", "2 of 4 sites"])
@pytest.mark.parametrize("unit", ["pounds", "inches", "Fahrenheit", "Kelvin"])
def test_half_of_the_sites_have_another_unit(unit, sites):
    change, expected, (mean, spread) = UNITS[unit]
    warned = 0
    for seed in range(20):
        given = usual_sites(np.random.default_rng(seed), mean, spread)
        given = {site: given[site] for site in (("s0", "s1") if sites == ("s1",) else given)}
        for site in sites:
            given[site]["x"] = change(given[site]["x"])
        warnings = agreed(given).warnings
        warned += (
            len(warnings) == 1
            and warnings[0].startswith(f"x at {', '.join(sites)}: ")
            and re.search(rf"\((degrees )?{expected}[,)]", warnings[0]) is not None
        )
    assert warned >= 15


def test_raw_mode_sites_of_usual_differences_give_no_warning():
    for seed in range(20):
        assert agreed(usual_sites(np.random.default_rng(seed), 75, 14), minimum=5).warnings == ()


def test_a_site_of_one_person_gives_no_warning_about_units():
    rng = np.random.default_rng(0)
    names = ("age", "weight", "height", "pulse", "crp", "visits")
    given = {s: {n: rng.normal(70, 9, 40) for n in names} for s in ("p", "q")}
    given["r"] = {n: np.array([55.0]) for n in names}
    assert agreed(given).warnings == ()


def test_how_often_something_is_so_has_nothing_to_do_with_units():
    rng = np.random.default_rng(0)
    given = {
        f"s{i}": {"yes": (rng.random(200) < p).astype(float), "x": rng.normal(size=200)}
        for i, p in enumerate((0.5, 0.5, 0.01))
    }
    assert agreed(given).warnings == ()


# ---------------------------------------------------------------- what is not disclosed


def test_few_cells_and_rare_categories_are_not_disclosed():
    cells = {"x": np.arange(40.0), "c": ["a"] * 20 + ["b"] * 17 + ["odd"] * 3}
    cells["x"][:2] = np.nan
    cells["y"] = np.where(np.arange(40) < 3, 1.0, np.nan)
    (schema,) = conduct_each({"p": cells}, minimum=5)
    assert "odd" not in schema.categories[1]
    assert np.isnan(schema.missing[0])  # some, but fewer than five
    assert np.isinf(schema.missing[2])  # nearly all
    assert np.isnan(schema.size[2])
    totals = reply(
        {"p": cells}, AskColumns(("x", "y"), np.zeros(2), np.ones(2), ("c",), (("a", "b", "odd"),), False), 5
    )
    assert totals.count.tolist() == [38, 0]
    assert totals.sums[1] == 0
    assert totals.categories[2] == 0
    assert 17 not in totals.categories  # what is suppressed must not follow by subtraction


def reply(given, question, minimum):
    from unpooled.protocol.algorithm import total

    there = federation(given, min_cluster_size=minimum)
    return run_protocol(total(there.sites, question), there)


def conduct_each(given, minimum):
    from unpooled.protocol.algorithm import each

    there = federation(given, min_cluster_size=minimum)
    return run_protocol(each(there.sites, AskSchema()), there).values()


def test_rare_categories_are_merged_and_unknown_ones_have_a_place():
    given = {"p": {"c": ["a"] * 60 + ["b"] * 38 + ["odd"] * 2}}
    agreement = agreed(given, min_category_share=0.05)
    (column,) = agreement.preparation.columns
    assert (column.categories, column.other, agreement.merged) == (("a", "b"), True, (("c", ("odd",)),))
    transform = agreement.preparation
    np.testing.assert_array_equal(
        transform.apply(Table.from_columns({"c": ["odd", "new", None]})).argmax(axis=1), [2, 2, 0]
    )


def test_a_question_about_tables_to_a_site_with_an_array_is_a_clear_error():
    there = Simulation.from_rows({"p": np.zeros((3, 2))})
    with pytest.raises(Exception, match="named columns"):
        run_protocol(agree_schema(there.sites, PreparationOptions()), there)
