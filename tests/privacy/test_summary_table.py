"""The summary table: by hand, its laws over many tables, its form, and what it costs."""

import numpy as np
import pytest

from helpers import blobs, split
from unpooled import FederatedFuzzyCMeans, FederatedKMeans
from unpooled.data import Table
from unpooled.data.summary_table import SummaryTable, described, from_csv, to_csv
from unpooled.errors import InputError
from unpooled.privacy.microaggregation import SummarySettings, microaggregate
from unpooled.privacy.microaggregation.collinear import collinear
from unpooled.privacy.microaggregation.group_means import (
    ColumnSpread,
    category_cells,
    number_cells,
    spread_of,
)
from unpooled.privacy.microaggregation.people import CategoryMembership, People
from unpooled.privacy.microaggregation.scales import frozen_categories

FIVE = SummarySettings(min_group_size=5)


def table(seed: int, n: int = 120, visits: bool = False) -> Table:
    """Numbers (skewed, missing, nearly constant), categories (some rare), and the person column."""
    rng = np.random.default_rng(seed)
    who = rng.integers(0, max(1, n // 3), n) if visits else np.arange(n)
    return Table.from_columns(
        {
            "who": [f"P{i}" for i in who],
            "age": rng.normal(50, 12, n).round(),
            "pay": np.exp(rng.normal(8, 1, n)),
            "lab": np.where(rng.random(n) < 0.12, np.nan, rng.normal(0, 1, n)),
            "rare": (rng.random(n) < 0.02) * 7.0,
            "sex": rng.choice(["f", "m", "x", None], n, p=[0.5, 0.4, 0.03, 0.07]).tolist(),
        }
    )


# ---------------------------------------------------------------- by hand


def test_two_groups_of_three_by_hand():
    rows = Table.from_columns({"age": [30.0, 31.0, 32.0, 70.0, 71.0, 72.0], "sex": list("fffmmm")})
    summary = microaggregate(rows, SummarySettings(min_group_size=3), made="2026-01-02")
    assert to_csv(summary) == "people in the group,age,sex = f,sex = m\n3,31,3,0\n3,71,0,3\n"


def test_a_person_is_the_mean_of_his_rows_and_counts_once():
    rows = Table.from_columns({"id": list("aaabc"), "x": [1.0, 2.0, 3.0, 10.0, np.nan], "y": list("uvvuu")})
    people = People(rows, SummarySettings(person="id"))
    assert people.count == 3
    assert people.number("x")[:2].tolist() == [2.0, 10.0]
    assert np.isnan(people.number("x")[2])
    held = people.category("y")
    assert np.bincount(held.who, held.share).tolist() == [1.0, 1.0, 1.0]


def test_nobody_dominates_a_mean():
    """Of seven people near 10 one has a million: the mean moves by no more than the third largest allows."""
    spread = ColumnSpread(median=10.0, mean=10.0, deviation=1.0, typical=1.0)
    values = np.array([[9.0, 9.5, 10.0, 10.5, 11.0, 12.0, 1e6]])
    known, mean, _ = number_cells(values, np.zeros((1, 7), bool), spread, 5)
    assert known.tolist() == [7.0]
    assert mean[0] <= 10 + (2 + 4) / 7  # the third largest deviation is 1: cut to 2 * max(1, 1) = 2


def test_two_far_people_are_cut_and_three_are_not():
    spread = ColumnSpread(median=0.0, mean=0.0, deviation=1.0, typical=1.0)
    two = np.array([[0.0, 0.0, 0.0, 1000.0, 1000.0]])
    three = np.array([[0.0, 0.0, 1000.0, 1000.0, 1000.0]])
    nobody = np.zeros((1, 5), bool)
    assert number_cells(two, nobody, spread, 5)[1][0] == pytest.approx(2 * 2 / 5, abs=1 / 16)
    assert number_cells(three, nobody, spread, 5)[1][0] == pytest.approx(600, rel=1 / 32)


def test_a_cell_that_too_few_have_is_not_disclosed():
    spread = ColumnSpread(0.0, 0.0, 1.0, 1.0)
    values = np.array([[1.0, 1.0, 1.0, 1.0, np.nan], [1.0] * 5])
    known, mean, _ = number_cells(values, np.zeros((2, 5), bool), spread, 5)
    assert known.tolist() == [0.0, 5.0]
    assert mean.tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("counts", "categories"),
    [
        ({"f": 10, "m": 10}, ("f", "m")),
        ({"f": 10, "m": 10, "x": 3, "y": 3}, ("f", "m", "other")),  # together enough to be shown
        ({"f": 12, "m": 10, "x": 2}, ("f", "m")),  # too few even together: they count as the commonest
        ({"x": 3, "y": 4}, ("other",)),
        ({"x": 2, "y": 2}, ()),
        ({"other": 9, "f": 9}, ("f", "other")),  # a reserved name
    ],
)
def test_rare_categories(counts, categories):
    names = tuple(counts)
    category = np.repeat(np.arange(len(names)), list(counts.values()))
    held = CategoryMembership(np.arange(len(category)), category, np.ones(len(category)))
    found = frozen_categories(names, held, 5)
    assert found.names == categories
    if "x" in names and "other" not in categories and categories:
        assert found.places(names)[names.index("x")] == categories.index("f")


def test_categories_of_a_group_are_whole_people_and_add_up():
    held = CategoryMembership(np.arange(6), np.array([0, 0, 1, 1, 1, 0]), np.ones(6))
    known, counts = category_cells(held, np.array([0, 1]), 2, np.array([0, 0, 0, 0, 0, 1]), 2, 3)
    assert known.tolist() == [5.0, 0.0]
    assert counts.tolist() == [[2.0, 3.0], [0.0, 0.0]]


@pytest.mark.parametrize("seed", range(20))
def test_parts_of_people_are_rounded_to_whole_ones(seed):
    """People with many rows of many categories: a third of a person would tell of three rows."""
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(12), rng.integers(1, 32, 12))
    category = rng.integers(0, 31, len(who))
    rows = np.bincount(who)
    labels = np.repeat([0, 1], 6)
    known, counts = category_cells(
        CategoryMembership(who, category, 1 / rows[who]), np.arange(31), 31, labels, 2, 5
    )
    assert np.array_equal(counts, np.round(counts))
    assert counts.min() >= 0
    assert np.array_equal(counts.sum(axis=1), known)


def test_a_median_that_is_one_persons_own_is_not_disclosed():
    """Numbers of sixteen digits that differ in the last ones: constant to rounding, and each somebody's."""
    rng = np.random.default_rng(0)
    ids = 2024010100000000.0 + rng.permutation(5000)[:999]
    summary = microaggregate(Table.from_columns({"accession": ids, "age": rng.normal(50, 15, 999)}))
    assert not np.isin(summary.means["accession"], ids).any()


@pytest.mark.parametrize("g", [3, 4, 5, 6, 8])
@pytest.mark.parametrize("n", [3, 4, 5, 6, 7, 12, 30])
@pytest.mark.parametrize("far", [1, 2])
def test_far_people_do_not_move_the_summary_table(g, n, far):
    """One or two people at a million, at two million: the table is the same, or shows nothing of them."""
    if n < g:
        return
    found = []
    for size in (1e6, 2e6):
        x = np.linspace(10, 12, n)
        x[:far] = size * (1 + np.arange(far))
        summary = microaggregate(np.stack([x, np.zeros(n)], axis=1), SummarySettings(min_group_size=g))
        found.append(to_csv(summary) if "0" in summary.means else "")
    assert found[0] == found[1]


def test_the_third_person_of_a_cell_with_two_cut_ones_is_not_known_to_a_percent():
    pay = np.zeros(100)
    pay[:3], pay[5:8] = [1e6, 1e5, 1234], [9e5, 8e4, 777]
    rows = Table.from_columns({"x": np.repeat(np.arange(20.0) * 10, 5), "pay": pay})
    summary = microaggregate(rows, SummarySettings(min_group_size=5, sensitive=("pay",)))
    sums = 5 * summary.means["pay"][summary.means["pay"] > 0]
    rest = sums - 2 * 2 ** np.floor(np.log2(sums / 2))
    assert not any(abs(r / true - 1) < 0.01 for r in rest for true in (1234, 777))


@pytest.mark.parametrize("seed", range(10))
def test_collinear_columns_have_missing_values_in_the_same_rows(seed):
    """A status as text and as code, one person lacking the code: no cell differs by them alone."""
    rng = np.random.default_rng(seed)
    status = rng.random(200) < 0.3
    code = status.astype(float)
    code[rng.integers(200)] = np.nan
    rows = Table.from_columns(
        {
            "age": rng.normal(50, 9, 200),
            "hiv": np.where(status, "pos", "neg").tolist(),
            "hiv_code": code,
            "mg": rng.normal(5, 1, 200),
        }
    )
    assert collinear(rows, rows.names) == (("hiv", "hiv_code"),)
    summary = microaggregate(rows, SummarySettings(sensitive=("hiv", "hiv_code")))
    assert np.array_equal(summary.people_with_value("hiv"), summary.people_with_value("hiv_code"))
    assert np.array_equal(summary.people_with_value("mg"), summary.people)


@pytest.mark.parametrize(
    "column",
    [
        np.r_[np.zeros(20), np.inf],
        np.r_[np.zeros(20), 1e308],
        1e300 * np.arange(21.0),
        5e-324 * np.arange(21.0),
        np.full(21, -0.0),
        np.r_[np.full(20, 1.5e99), 1.0],
    ],
)
def test_odd_numbers_give_a_summary_table_or_one_error(column):
    rows = Table.from_columns({"x": column, "y": np.arange(21.0)})
    if np.abs(column).max() > 1e100:
        with pytest.raises(InputError, match="column x has a value that is infinite"):
            microaggregate(rows)
        return
    summary = microaggregate(rows)
    assert np.isfinite(summary.means["x"]).all()
    assert from_csv(to_csv(summary), described(summary)).digest == summary.digest


def test_odd_names_keep_their_columns():
    rows = Table.from_columns({"": np.arange(30.0), "a\rb": np.arange(30.0), "c\nd": ["x\ry", "z"] * 15})
    summary = microaggregate(rows)
    assert summary.names == ("", "a\rb", "c\nd")
    assert from_csv(to_csv(summary), described(summary)).digest == summary.digest
    with pytest.raises(InputError, match=r"two columns would be called log\(pay\)"):
        microaggregate(
            Table.from_columns({"pay": np.arange(1.0, 31), "log(pay)": np.arange(30.0)}),
            SummarySettings(log_transform=("pay",)),
        )


def test_the_spread_leaves_the_extremes_out():
    x = np.concatenate([np.arange(100.0), [1e9]])
    assert spread_of(x, 5).deviation < 40
    assert spread_of(np.full(20, 3.0), 5).typical == 0
    assert spread_of(np.array([1.0, 2.0]), 5) is None


def test_a_column_that_is_constant_but_for_a_few_is_its_median():
    summary = microaggregate(table(0), SummarySettings(min_group_size=5, person="who"))
    assert set(summary.means["rare"][summary.people_with_value("rare") > 0]) == {0.0}


def test_the_logarithm_takes_the_place_of_a_column():
    summary = microaggregate(
        table(1), SummarySettings(min_group_size=5, person="who", log_transform=("pay",))
    )
    assert "pay" not in summary.names
    assert "log(pay)" in summary.means
    with pytest.raises(InputError, match="lab has a value that is not above 0"):
        microaggregate(table(1), SummarySettings(log_transform=("lab",)))


# ---------------------------------------------------------------- laws


@pytest.mark.parametrize("seed", range(12))
def test_no_number_of_a_summary_table_is_about_fewer_than_g_people(seed):
    """Patients with 1 to 40 visits: groups, cells and categories count people, never visits."""
    rng = np.random.default_rng(seed)
    visits = rng.integers(1, 41, 200)
    who = np.repeat(np.arange(200), visits)
    n = len(who)
    rows = Table.from_columns(
        {
            "who": [f"P{i}" for i in who],
            "x": rng.normal(size=200)[who] + 0.1 * rng.normal(size=n),
            "y": np.where(rng.random(n) < 0.3, np.nan, rng.normal(size=n)),
            "z": rng.choice(["a", "b", "rare"], n, p=[0.6, 0.398, 0.002]).tolist(),
        }
    )
    for g in (3, 5, 8):
        summary = microaggregate(rows, SummarySettings(min_group_size=g, person="who"))
        assert summary.people.sum() == 200
        assert summary.people.min() >= g
        assert (summary.known[(summary.known > 0)] >= g).all()
        assert "who" not in summary.names
        own_category = list(zip(who, raw_categories(rows), strict=True))
        holders = {category: len({w for w, own in own_category if own == category})
                   for category in ("a", "b", "rare")}  # fmt: skip
        for category in summary.categories["z"]:
            assert category == "other" or holders[category] >= g


def raw_categories(rows: Table) -> list[str]:
    return [rows.categories["z"][int(code)] for code in rows.values[:, rows.index("z")]]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("visits", [False, True])
def test_a_summary_table_survives_its_file_and_says_nothing_of_the_order_of_rows(seed, visits):
    rows = table(seed, visits=visits)
    settings = SummarySettings(min_group_size=5, person="who", study_columns=("age",), sensitive=("sex",))
    summary = microaggregate(rows, settings, made="2026-01-02")
    again = from_csv(to_csv(summary), described(summary))
    assert again.digest == summary.digest
    assert all(np.array_equal(again.means[n], summary.means[n]) for n in summary.means)
    assert np.array_equal(again.known, summary.known)
    assert np.array_equal(again.within, summary.within, equal_nan=True)
    order = np.lexsort([np.nan_to_num(v) for _, v in reversed(summary.cells())])
    assert np.array_equal(order, np.arange(len(summary)))


@pytest.mark.parametrize("seed", range(8))
def test_means_lie_on_a_grid_and_sums_are_kept(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(rng.normal(0, 100), rng.uniform(0.1, 10), (400, 3))
    summary = microaggregate(X, FIVE)
    for j, name in enumerate(summary.names):
        grid = spread_of(X[:, j], 5).grid
        assert np.array_equal(summary.means[name], np.round(summary.means[name] / grid) * grid)
        total = summary.people @ summary.means[name]
        assert abs(total - X[:, j].sum()) <= len(X) * grid + 1e-6 * abs(total)


def test_the_variance_within_groups_has_two_digits_and_needs_ten_groups():
    X = np.random.default_rng(0).normal(size=(200, 2))
    for value in microaggregate(X, FIVE).within:
        assert value == float(f"{value:.1e}")
    assert np.isnan(microaggregate(X[:40], FIVE).within).all()


def test_the_total_variance_is_that_of_the_rows():
    X = np.random.default_rng(1).normal(size=(2000, 6))
    summary = microaggregate(X, FIVE)
    for j, name in enumerate(summary.names):
        mean = summary.people @ summary.means[name] / 2000
        between = summary.people @ (summary.means[name] - mean) ** 2 / 2000
        assert between + summary.within[j] == pytest.approx(X[:, j].var(), rel=0.05)


@pytest.mark.parametrize("n", [5, 9, 10, 11, 19, 20, 33])
def test_few_people(n):
    X = np.random.default_rng(n).normal(size=(n, 2))
    summary = microaggregate(X, FIVE)
    assert len(summary) >= 1
    assert len(summary) <= n // 5
    assert summary.people.sum() == n
    if n < 10:
        assert len(summary) == 1


def test_too_few_people_have_no_summary_table():
    with pytest.raises(InputError, match="fewer than 5 people"):
        microaggregate(np.zeros((4, 2)))
    rows = Table.from_columns({"id": list("aaaaabbbb"), "x": np.arange(9.0)})
    with pytest.raises(InputError, match="fewer than 5 people"):
        microaggregate(rows, SummarySettings(person="id"))


def test_many_missing_values_make_larger_groups():
    rng = np.random.default_rng(0)
    x = np.where(rng.random(400) < 0.3, np.nan, rng.normal(size=400))
    summary = microaggregate(Table.from_columns({"x": x, "y": rng.normal(size=400)}), FIVE)
    assert summary.people.min() >= 10
    assert (
        summary.people_with_value("x").sum() > 0.95 * (~np.isnan(x)).sum()
    )  # who has a value is in a shown cell


@pytest.mark.parametrize(
    ("people", "columns", "size"),
    [
        *(
            (people, 1, size)
            for people, size in ((20, 5), (359, 5), (360, 6), (480, 8), (660, 11), (10**6, 11))
        ),
        (303, 14, 12),  # Cleveland: 24 groups remain
        (1000, 16, 16),
        (1000, 100, 41),
        (100, 100, 5),
        (10**6, 40, 40),
    ],
)
def test_the_default_size_of_groups_follows_people_and_columns(people, columns, size):
    assert SummarySettings().group_size_for(people, columns) == size
    assert SummarySettings(8).group_size_for(people, columns) == 8


def test_columns_that_are_not_disclosed_do_not_make_larger_groups():
    rng = np.random.default_rng(0)
    table = Table.from_columns(
        {"who": [f"P{i}" for i in range(240)], **{f"x{j}": rng.normal(size=240) for j in range(7)}}
    )
    assert microaggregate(table, SummarySettings(person="who")).min_group_size == 7
    assert microaggregate(table.without(("x0", "x1")), SummarySettings(person="who")).min_group_size == 5


@pytest.mark.parametrize(
    ("settings", "printed"),
    [
        ({"min_group_size": 2}, "at least 3"),
        ({"min_group_size": True}, "at least 3"),
        ({"study_columns": ("a",), "sensitive": ("a",)}, "both"),
        ({"person": "a", "study_columns": ("a",)}, "identifies people"),
    ],
)
def test_settings_that_make_no_sense(settings, printed):
    with pytest.raises(InputError, match=printed):
        SummarySettings(**settings)


def test_columns_and_people_that_are_not_there_are_named():
    with pytest.raises(InputError, match="no column 'nobody'"):
        microaggregate(table(0), SummarySettings(person="nobody"))
    with pytest.raises(InputError, match="row 2 has no value in column"):
        microaggregate(
            Table.from_columns({"id": ["a", None, "b"], "x": [1.0, 2.0, 3.0]}), SummarySettings(person="id")
        )


def test_progress_is_reported_and_can_stop_it():
    shares = []
    microaggregate(np.random.default_rng(0).normal(size=(2000, 3)), progress=lambda step, s: shares.append(s))
    assert shares[0] == 0
    assert shares == sorted(shares)

    def stop(step, share):
        if share > 0.3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        microaggregate(np.random.default_rng(0).normal(size=(2000, 3)), progress=stop)


# ---------------------------------------------------------------- in the estimators


@pytest.mark.parametrize("scale", [None, "standard"])
def test_clusters_from_summary_tables_are_nearly_those_of_the_rows(scale):
    X, _ = blobs(3, n=3000, d=3, k=4, spread=0.8)
    rows = split(X, 3)
    plain = FederatedKMeans(4, scale=scale, random_state=0).fit(rows)
    summarized = FederatedKMeans(4, scale=scale, random_state=0, protect="summary").fit(rows)
    unscaled = summarized.score(np.concatenate(list(rows.values())))
    assert summarized.inertia_ == pytest.approx(-unscaled)  # of the rows, not of the summary tables
    assert summarized.inertia_ <= 1.01 * plain.inertia_
    assert len(summarized.labels_) == 3000


def test_fuzzy_clusters_from_summary_tables():
    X, _ = blobs(4, n=1200, d=2, k=3, spread=0.6)
    rows = split(X, 3)
    plain = FederatedFuzzyCMeans(3, random_state=0).fit(rows)
    summarized = FederatedFuzzyCMeans(3, random_state=0, protect="summary").fit(rows)
    assert summarized.objective_ <= 1.02 * plain.objective_


def test_a_site_of_too_few_rows_is_left_out_and_named():
    X, _ = blobs(5, n=600)
    rows = {"big": X[:597], "small": X[597:]}
    with pytest.warns(UserWarning, match="small"):
        model = FederatedKMeans(3, random_state=0, protect="summary").fit(rows)
    assert len(model.labels_) == 600
    with pytest.raises(InputError, match="no site has enough rows"):
        FederatedKMeans(2, protect="summary").fit({"a": X[:3], "b": X[3:6]})


def test_what_does_not_go_with_a_summary_table_is_refused_by_name():
    X, _ = blobs(6)
    with pytest.raises(InputError, match="sample_weight"):
        FederatedKMeans(2, protect="summary").fit(X, sample_weight=np.ones(len(X)))
    with pytest.raises(InputError, match="protect must be"):
        FederatedKMeans(2, protect="nothing").fit(X)
    with pytest.warns(DeprecationWarning, match="min_cluster_size"):
        FederatedKMeans(2, min_cluster_size=5, random_state=0).fit(X)


def test_the_form_of_a_summary_table_is_checked_when_it_is_read():
    summary = microaggregate(table(0), FIVE)
    about, text = described(summary), to_csv(summary)
    with pytest.raises(InputError, match="lacks columns"):
        from_csv("\n".join(line.rpartition(",")[0] for line in text.splitlines()), about)
    with pytest.raises(InputError, match="too many columns"):
        from_csv("\n".join(f"{line},1" for line in text.splitlines()), about)
    assert isinstance(from_csv(text, about), SummaryTable)
