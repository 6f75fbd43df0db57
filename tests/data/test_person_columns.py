"""Columns that seem to identify people are found by content, and ordinary categories are not."""

from importlib.resources import as_file, files

import numpy as np
import pytest
from sklearn import datasets
from tests.amounts import amounts
from tests.data.people_tables import ordinary, parkinsons, repeated_people

from unpooled.data import Table
from unpooled.data.person_columns import distinct_texts, other_ids, person_columns
from unpooled.data.readers import Reading, read_table

MAX_REFUSED = 0.02  # of ordinary tables


def is_refused(table):
    return bool(person_columns(table) or distinct_texts(table))


@pytest.mark.parametrize("many", amounts(25, 200))
def test_law_tables_with_several_rows_per_person_are_refused(many):
    """Where there is an id, or a pair of columns that never change and at least five rows per person."""
    found = rest = 0
    for seed in range(many):
        made = repeated_people(seed)
        refused = is_refused(made.table)
        if made.id or (len(made.constants) >= 2 and made.rows_per_person >= 5):
            assert refused, (seed, made.table.shape, made.id, made.constants)
        else:
            found, rest = found + refused, rest + 1
    print(f"{found} of {rest} others are refused")


@pytest.mark.parametrize("many", amounts(25, 200))
def test_law_ordinary_tables_with_strong_categories_are_not_refused(many):
    refused = [seed for seed in range(many) if is_refused(ordinary(seed))]
    assert len(refused) <= max(1, MAX_REFUSED * many), refused


def test_the_id_of_parkinsons_telemonitoring_is_found_whatever_its_name():
    first, *others = person_columns(parkinsons())
    assert (first.columns, first.values) == (("subject#",), 42)
    assert set(first.steady) == {"age", "sex"}
    assert "131 rows each; within a value sex, age never change" in str(first)
    assert [one.columns for one in others] == [("age",)]
    assert person_columns(parkinsons(with_id=False))[0].columns == ("age",)
    assert person_columns(parkinsons(), ("subject#", "age")) == []


@pytest.mark.parametrize("name", ["heart_disease", "penguins", "iris", "wine", "breast_cancer", "diabetes"])
def test_real_tables_of_one_row_per_person_are_not_refused(name):
    if name in ("heart_disease", "penguins"):
        with as_file(files("unpooled.data.examples") / f"{name}.csv") as path:
            table = read_table(path, Reading())
    else:
        loaded = getattr(datasets, f"load_{name}")()
        columns = dict(zip(loaded.feature_names, loaded.data.T, strict=True))
        table = Table.from_columns(columns | {"target": loaded.target.astype(float)})
    assert not is_refused(table)


def test_one_other_column_decides_only_if_it_is_sure():
    """A table of three columns: two that identify people, and one that depends on them much, or hardly."""
    rng = np.random.default_rng(5)
    who = np.repeat(np.arange(300), 8)
    town, sex = rng.integers(0, 20, 300)[who], rng.integers(0, 2, 300)[who]
    columns = {"town": np.array([f"t{i}" for i in town]), "sex": np.array(["f", "m"])[sex]}
    much = rng.normal(size=300)[who] + 0.5 * rng.normal(size=len(who))
    (one,) = person_columns(Table.from_columns(columns | {"m": much}))
    assert set(one.columns) == {"town", "sex"}
    assert person_columns(Table.from_columns(columns | {"m": rng.normal(size=len(who))})) == []


def test_a_number_of_visits_shows_people():
    """Every value has the visits 1 to 5, so a column of them varies less between values than by chance."""
    rng = np.random.default_rng(6)
    who = np.repeat(np.arange(40), 5)
    columns = {"code": np.array([f"c{i}" for i in who]), "m": rng.normal(size=40)[who] + rng.normal(size=200)}
    day = {"day": np.array(list("abcde"))[rng.integers(0, 5, 200)]}
    other = {"dose": rng.integers(1, 6, 200).astype(float)}
    visit = {"visit": np.tile(np.arange(1.0, 6.0), 40)}
    assert person_columns(Table.from_columns(columns | day | other)) == []
    assert person_columns(Table.from_columns(columns | day | visit))[0].columns == ("code",)


def test_the_same_rows_in_another_order_give_the_same_columns():
    table = parkinsons()
    mixed = np.random.default_rng(1).permutation(len(table))
    other = Table(table.names, table.kinds, table.categories, table.values[mixed])
    assert person_columns(other) == person_columns(table)


def test_names_and_functions_of_a_category_are_not_people():
    rng = np.random.default_rng(3)
    age = rng.integers(20, 90, 800).astype(float)
    ward = rng.integers(0, 12, 800)
    table = Table.from_columns(
        {
            "age": age,
            "born": 2026 - age,
            "decade": age // 10,
            "ward": np.array([f"w{i}" for i in ward]),
            "ward name": np.array([f"ward {i}" for i in ward]),
            "clinic": np.array([f"c{i // 4}" for i in ward]),
            "pressure": np.round(100 + age / 2 + 8 * rng.normal(size=800)),
            "crp": np.round(np.exp(rng.normal(size=800)), 1),
        }
    )
    assert person_columns(table) == []
    assert distinct_texts(table) == []


def test_two_columns_that_identify_people_together_are_found():
    rng = np.random.default_rng(4)
    who = np.repeat(np.arange(60), 25)
    towns, jobs = rng.integers(0, 7, 60), rng.integers(0, 6, 60)
    columns = {"town": np.array(list("abcdefg"))[towns][who], "job": np.array(list("uvwxyz"))[jobs][who]}
    for j in range(6):
        columns[f"m{j}"] = np.round(rng.normal(size=60)[who] + rng.normal(size=len(who)), 4)
    (one,) = person_columns(Table.from_columns(columns))
    assert set(one.columns) == {"town", "job"}


def test_other_ids_of_the_same_people_are_whole_numbers_that_differ():
    who = np.repeat(np.arange(50), 3)
    rng = np.random.default_rng(0)
    columns = {
        "who": who + 1.0,
        "sid": rng.permutation(50)[who] + 100.0,
        "height": np.round(rng.normal(170, 9, 50), 1)[who],
        "born": rng.integers(1940, 2000, 50).astype(float)[who],
        "visit": np.tile([1.0, 2.0, 3.0], 50),
    }
    assert other_ids(Table.from_columns(columns), "who") == ("sid",)


def test_texts_are_distinct_by_people_not_by_rows():
    who = np.repeat(np.arange(40), 5)
    table = Table.from_columns(
        {"who": who + 1.0, "name": np.array([f"N{i}" for i in who]), "ward": np.array(list("abcde"))[who % 5]}
    )
    assert distinct_texts(table) == []
    assert [one.column for one in distinct_texts(table, "who")] == ["name"]
