"""Ordinal columns: categories with an order are clustered by their positions, and described by both."""

import numpy as np
import pytest

import unpooled
from unpooled.data.readers import read_table
from unpooled.errors import InputError, SchemaMismatchError
from unpooled.options.reading import Reading
from unpooled.privacy.microaggregation import SummarySettings, microaggregate

GRADES = ("low", "mid", "high")
READING = Reading(ordinal=(("grade", GRADES),))


def table(n=60, seed=0):
    rng = np.random.default_rng(seed)
    at = rng.integers(3, size=n)
    return {"grade": [GRADES[i] for i in at], "age": (40 + 15 * at + rng.normal(size=n)).tolist()}


def test_cells_are_positions_and_blanks_are_missing():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"grade": ["high", None, " low", "mid"], "age": [1.5, 2, 3, 4]})
    read = read_table(frame, READING, "north")
    assert read.kinds == ("low < mid < high", "number")
    assert read.values[:, 0].tolist()[::2] == [2.0, 0.0]
    assert np.isnan(read.values[1, 0])
    assert read.categories == {}


def test_a_category_without_a_place_is_an_error_that_names_it():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"grade": ["high", "higher"], "age": [1.5, 2]})
    with pytest.raises(InputError, match="column grade: 'higher' has no place in the order low < mid < high"):
        read_table(frame, READING, "north")


@pytest.mark.parametrize("protect", ["none", "summary"])
def test_clusters_are_those_of_the_positions_and_are_printed_with_the_nearest_category(protect, tmp_path):
    pandas = pytest.importorskip("pandas")
    frames = {name: pandas.DataFrame(table(seed=seed)) for seed, name in enumerate(("north", "south"))}
    positions = {
        name: frame.assign(grade=frame["grade"].map(GRADES.index).astype(float))
        for name, frame in frames.items()
    }
    how = {"protect": protect, "one_row_per_person": protect == "summary"}
    ordinal = unpooled.cluster(frames, 3, ordinal={"grade": GRADES}, **how)
    numbers = unpooled.cluster(positions, 3, numbers="grade", **how)
    assert ordinal.centers["grade"].tolist() == numbers.centers["grade"].tolist()
    assert "grade low" in repr(ordinal)
    assert {name: found.tolist() for name, found in ordinal.labels.items()} == {
        name: found.tolist() for name, found in numbers.labels.items()
    }
    page = ordinal.report(tmp_path / "report.html").read_text(encoding="utf-8")
    assert "ordinal (low is 0, mid is 1, high is 2)" in page


def test_another_order_at_a_site_is_an_error():
    pandas = pytest.importorskip("pandas")
    frames = {name: read_table(pandas.DataFrame(table()), how, name) for name, how in (
        ("north", READING), ("south", Reading(ordinal=(("grade", GRADES[::-1]),))),
    )}  # fmt: skip
    from unpooled.data import PreparationOptions
    from unpooled.data.schema_agreement import agree_schema
    from unpooled.federation import Simulation
    from unpooled.protocol.exchange import run_protocol

    federation = Simulation.from_rows(frames)
    with pytest.raises(
        SchemaMismatchError, match="grade is high < mid < low at south; low < mid < high at north"
    ):
        run_protocol(agree_schema(federation.sites, PreparationOptions()), federation)


def test_a_summary_table_has_means_of_positions():
    pandas = pytest.importorskip("pandas")
    read = read_table(pandas.DataFrame(table()), READING, "north")
    made = microaggregate(read, SummarySettings(one_row_per_person=True))
    assert "low < mid < high" in made.kinds
    assert 0 <= made.means["grade"].min() <= made.means["grade"].max() <= 2
