"""Settings that do not suit a table are refused in one sentence; summary tables of odd columns."""

import numpy as np
import pytest
from test_distributed_summary import divided, planned

from unpooled.data import Table
from unpooled.data.column_kinds import CATEGORY, TEXT
from unpooled.errors import InputError
from unpooled.privacy.microaggregation import SummarySettings, microaggregate, regroup
from unpooled.privacy.microaggregation.distributed import whole_site
from unpooled.site.table_changes import renew
from unpooled.site.table_store import SummaryFolder

N = 60
ROWS = Table.from_columns({"age": 20.0 + np.arange(N) % 50, "sex": ["f", "m"] * (N // 2)})


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"log_transform": ("sex",)}, "column sex has no numbers, so it has no logarithm"),
        ({"consumption": ("sex",)}, "column sex has no numbers, so it cannot be consumption"),
    ],
)
def test_a_column_of_texts_has_no_logarithm_and_no_share(settings, says):
    with pytest.raises(InputError, match=says):
        microaggregate(ROWS, SummarySettings(**settings))


def test_a_share_of_a_logarithm_is_none():
    with pytest.raises(InputError, match="column age is both in consumption and in log"):
        SummarySettings(consumption=("age",), log_transform=("age",))


def test_people_whose_ids_were_not_kept_get_no_registry(tmp_path):
    """A column of many texts that was read as text has no ids: who was disclosed would not be known later."""
    ids = np.arange(N, dtype=np.float64)
    table = Table(("id", "age"), (TEXT, ROWS.kinds[0]), {}, np.column_stack([ids, ROWS.values[:, 0]]))
    with pytest.raises(InputError, match="column id has many different texts, which were not kept"):
        SummaryFolder(tmp_path / "a").make(table, SummarySettings(person="id", no_sensitive_columns=True))
    assert not (tmp_path / "a" / "summary").exists()
    assert len(microaggregate(table, SummarySettings(person="id"))) > 1  # without a folder nobody asks later


def table(people, flat: float = 1.0) -> Table:
    ages = [20.0 + 7 * (i % 9) + 0.1 * i for i in people]
    return Table.from_columns(
        {"id": [f"P{i}" for i in people], "age": np.array(ages), "flat": np.full(len(ages), flat)}
    )


@pytest.fixture
def place(tmp_path):
    place = SummaryFolder(tmp_path)
    place.make(table(range(40)), SummarySettings(min_group_size=3, person="id", no_sensitive_columns=True))
    place.approve("the officer")
    return place


def test_a_change_in_a_column_that_shows_one_value_for_all_is_no_change(place):
    """What is disclosed of it is a constant: nobody's value is in it, so nobody is disclosed anew."""
    assert renew(place, table(range(40), flat=2.0)).empty


def test_many_people_are_placed_in_parts_and_nobody_twice(place, monkeypatch):
    monkeypatch.setattr(regroup, "_AT_ONCE", 8)
    found = renew(place, table(range(94)))
    members = [person for group in found.added for person in group.members]
    assert len(members) == len(set(members)) >= 30
    assert all(len(group.members) >= 3 for group in found.added)
    assert CATEGORY not in found.summary.kinds


# ---------------------------------------------------------------- in parts


def test_an_array_in_parts_with_a_column_of_too_few_values_has_no_rows_to_answer_from():
    X = np.random.default_rng(0).normal(size=(90, 2))
    plan, (summary_table, _) = planned([X[:45], X[45:]], SummarySettings())
    assert np.isfinite(plan.matrix(summary_table)).all()
    X[3:, 1] = np.nan
    plan, (summary_table, _) = planned([X[:45], X[45:]], SummarySettings())
    with pytest.raises(InputError, match="column 1 has too few values for a summary table"):
        plan.matrix(summary_table)


def test_a_category_that_hardly_anybody_has_is_in_no_part():
    rare = Table.from_columns({"age": np.arange(90.0), "drug": ["x", "y", *[None] * 88]})
    _, summaries = planned(divided(rare, SummarySettings(), 3), SummarySettings())
    for summary_table in (*summaries, microaggregate(rare)):
        assert list(summary_table.means) == ["age"]
        assert not summary_table.counts


def test_people_in_two_parts_are_found_whatever_number_of_them_is_looked_at_at_once(monkeypatch):
    by_id = SummarySettings(person="id", no_sensitive_columns=True)
    apart, both = (table(range(a, a + 40)) for a in (0, 30))
    monkeypatch.setattr(whole_site, "_IDS_AT_ONCE", 7)
    with pytest.raises(InputError, match="of its people have rows in several partitions"):
        planned([apart, both], by_id)
    assert len(planned([apart, table(range(40, 80))], by_id)[1]) == 2
