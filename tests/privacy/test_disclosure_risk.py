"""Risks of summary tables, measured by attacks: known cases, and that protection lowers them."""

from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest

from unpooled.data import Table
from unpooled.data.readers import Reading, read_table
from unpooled.errors import TooFewPeopleError
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.privacy.microaggregation.disclosure_risk import (
    clustering_cost,
    measure_risks,
    membership_by_size,
    proposed_size,
)

HEART = files("unpooled.data.examples") / "heart_disease.csv"


def normal(columns: int, n: int = 2000) -> Table:
    rng = np.random.default_rng(0)
    return Table.from_columns({f"x{j}": rng.normal(size=n) for j in range(columns)})


@pytest.mark.parametrize(
    ("columns", "g", "auc", "found"), [(4, 5, 0.73, 0.05), (16, 5, 0.95, 0.38), (16, 11, 0.83, 0.13)]
)
def test_membership_is_inferred_at_least_as_well_as_published(columns, g, auc, found):
    """Half of 2,000 people in the table; the figures of a likelihood ratio with the within-group variance."""
    risk = measure_risks(normal(columns), SummarySettings(g), ("x0",)).membership
    assert risk.auc >= auc
    assert risk.found >= found


@pytest.mark.parametrize(
    ("hospital", "auc", "found"),
    [("cleveland", 0.85, 0.12), ("hungarian", 0.667, 0.04), ("switzerland", 0.707, 0), ("va", 0.713, 0.04)],
)
def test_membership_of_real_tables_is_inferred_as_well_as_by_other_attackers(hospital, auc, found):
    """Codes are categories. The figures are those of a review, the larger ones where two differ by splits."""
    codes = ("site", "num", "cp", "sex", "fbs", "exang", "restecg", "slope", "thal")
    heart = read_table(str(HEART), Reading(categorical=codes))
    mine = heart.values[:, heart.index("site")] == heart.categories["site"].index(hospital)
    table = Table(heart.names, heart.kinds, heart.categories, heart.values[mine]).without(("site",))
    risks = measure_risks(table, SummarySettings(5), ("num",))
    assert risks.membership.auc >= auc
    assert risks.membership.found >= found
    assert risks.singled_out[0] >= 0.12  # what Anonymeter 1.1 found in one of these tables at most


def test_who_lacks_a_value_is_inferred_from_the_numbers_of_values():
    """Missing values at random in many columns, and one number for all: only their pattern identifies."""
    rng = np.random.default_rng(4)
    columns = {f"x{j}": np.where(rng.random(600) < 0.3, np.nan, rng.integers(0, 2, 600)) for j in range(12)}
    risk = measure_risks(Table.from_columns(columns), SummarySettings(5), ("x0",)).membership
    assert risk.auc > 0.8  # 0.74 without them


def test_people_in_no_table_and_controls_cannot_be_distinguished():
    """With groups of all people, members and controls have the same means: nothing is found."""
    risk = measure_risks(normal(4, 800), SummarySettings(180), ("x0",)).membership
    assert abs(risk.auc - 0.5) < 0.06


def test_diverse_values_lower_what_members_disclose():
    """A category at random: only being in a group tells it, and diversity takes most of that away."""
    rng = np.random.default_rng(1)
    table = Table.from_columns(
        {**{f"x{j}": rng.normal(size=600) for j in range(6)}, "hiv": rng.choice(["no", "yes"], 600).tolist()}
    )
    plain, diverse = (
        measure_risks(table, settings, ("hiv",)).attributes[0]
        for settings in (SummarySettings(5), SummarySettings(5, diverse=("hiv",), diverse_by=0.1))
    )
    assert plain.members - plain.controls > 0.15
    assert plain.uniform > 0.2
    assert diverse.members - diverse.controls < (plain.members - plain.controls) / 2
    assert diverse.uniform == 0
    assert abs(plain.controls - 0.5) < 0.1


def test_a_column_of_0_and_1_is_inferred_as_a_category():
    """A diagnosis that follows from another column, in both codings."""
    rng = np.random.default_rng(2)
    columns = {f"x{j}": rng.normal(size=600) for j in range(4)}
    ill = columns["x0"] + 0.3 * rng.normal(size=600) > 0.5
    for diagnosis in (ill.astype(float), np.where(ill, "yes", "no")):
        table = Table.from_columns({**columns, "ill": diagnosis})
        (risk,) = measure_risks(table, SummarySettings(5, sensitive=("ill",)), ("ill",)).attributes
        assert not risk.number
        assert risk.members > 0.8
        assert risk.guess == pytest.approx(1 - ill.mean(), abs=0.05)


def test_a_position_of_an_ordinal_column_is_right_or_wrong():
    rng = np.random.default_rng(2)
    columns = {f"x{j}": rng.normal(size=600) for j in range(4)}
    table = Table.from_columns({**columns, "stage": np.digitize(columns["x0"], [-0.5, 0.5]).astype(float)})
    table = replace(table, kinds=(*table.kinds[:-1], "early < middle < late"))
    (risk,) = measure_risks(table, SummarySettings(5, sensitive=("stage",)), ("stage",)).attributes
    assert not risk.number
    assert risk.members > 0.7
    assert risk.guess < 0.45


def test_one_of_a_few_numbers_is_inferred_exactly_and_guessed_by_the_most_frequent():
    """A diagnosis coded 0 to 4, which is mostly 0: an estimate of 0.3 is 0, and not wrong by 0.3."""
    rng = np.random.default_rng(2)
    columns = {f"x{j}": rng.normal(size=600) for j in range(4)}
    grade = np.digitize(columns["x0"], [0.2, 0.8, 1.3, 1.8]).astype(float)
    table = Table.from_columns({**columns, "grade": grade})
    (risk,) = measure_risks(table, SummarySettings(5, sensitive=("grade",)), ("grade",)).attributes
    assert not risk.number
    assert risk.members > risk.guess
    assert risk.guess == pytest.approx((grade == 0).mean(), abs=0.05)


def test_a_larger_group_finds_fewer_and_the_smallest_sufficient_one_is_proposed():
    sizes = membership_by_size(normal(6, 600), SummarySettings())
    assert [one.min_group_size for one in sizes] == [5, 8, 11, 16, 25]
    assert sizes[0].auc > sizes[-1].auc
    proposed = proposed_size(sizes)
    assert all(one.found > 0.05 for one in sizes if one.min_group_size < proposed)


def test_the_cost_of_a_summary_table_is_near_one_where_clusters_are_clear():
    rng = np.random.default_rng(2)
    X = np.repeat(np.array([[0.0, 0], [9, 0], [0, 9]]), 100, axis=0) + rng.normal(size=(300, 2))
    table = Table.from_columns({"x": X[:, 0], "y": X[:, 1]})
    assert 1.0 <= clustering_cost(table, SummarySettings(5), (3,))[0] < 1.02
    assert np.isnan(clustering_cost(table, SummarySettings(150), (3,))).all()


def test_too_few_people_are_an_error():
    with pytest.raises(TooFewPeopleError, match="too few to measure"):
        measure_risks(normal(2, 15), SummarySettings(5))
