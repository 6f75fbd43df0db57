"""Units of secure sums at sites whose columns are empty, all zero, or far from one another.

Whether a site refuses a unit must follow from the question and from what it states in its schema.
"""

import numpy as np
import pytest

from unpooled.data import Number, Preparation, Table
from unpooled.data.schema import AskColumns
from unpooled.data.transforms import Category
from unpooled.errors import QueryRefusedError
from unpooled.privacy.microaggregation import SummarySettings, microaggregate
from unpooled.protocol.exchange import Part
from unpooled.protocol.questions.cluster_sums import AskMoments
from unpooled.site.fixed_point_range import COARSEST, FINEST, LARGEST, NOTHING, FixedPointRange, stated_sizes

RNG = np.random.default_rng(0)
USUAL = Table.from_columns({"x": RNG.normal(50, 9, 60), "y": RNG.normal(size=60)})
ZERO = Table.from_columns({"x": np.zeros(60), "y": RNG.normal(size=60)})
LACKING = Table.from_columns({"y": RNG.normal(size=60)})


def unit(scale: float, origin: float = 0.0) -> Part:
    """A question about a column in units of ``scale`` from ``origin`` on, with nothing filled in."""
    return Part("total", AskMoments(), Preparation((Number("x", np.nan, origin, scale),), drop=False), 0)


def refusal(table, part: Part) -> str:
    try:
        FixedPointRange(table)(part)
    except QueryRefusedError as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize("table", [USUAL, ZERO, LACKING], ids=["usual", "zero", "lacking"])
def test_a_unit_whose_square_is_no_number_is_refused_by_every_site(table):
    """Also by one whose column is all zero, or that has no such column: it would answer alone."""
    for scale in (2 * LARGEST, 2.0**1000):
        assert "the unit of column x is far above the size of its values" in refusal(table, unit(scale))
        columns = AskColumns(("x",), np.zeros(1), np.full(1, scale), (), (), False)
        assert "the unit of column x is far above" in refusal(table, Part("total", columns, None, 0))
    assert refusal(table, unit(LARGEST)) == ""  # nothing is left of the column, at any site


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf])
@pytest.mark.parametrize("table", [USUAL, ZERO, LACKING], ids=["usual", "zero", "lacking"])
def test_a_unit_that_is_no_positive_number_is_refused_by_every_site(table, scale):
    assert "the scaling of a column is not a positive number" in refusal(table, unit(scale))
    assert "not a positive number" in refusal(table, unit(1.0, origin=np.nan))
    assert "not a positive number" in refusal(table, unit(1.0, origin=np.inf))


def test_the_ends_of_the_range_are_taken_and_what_is_beyond_is_not():
    size = stated_sizes(USUAL)["x"]
    assert size == pytest.approx(10 ** (7 / 4))  # 51, to a quarter of a power of ten
    assert refusal(USUAL, unit(COARSEST * size)) == ""
    assert "far above" in refusal(USUAL, unit(1.01 * COARSEST * size))
    assert "far above" in refusal(USUAL, unit(0.99 * NOTHING * size))
    assert refusal(USUAL, unit(1.01 * NOTHING * size)) == ""
    assert refusal(USUAL, unit(FINEST * size)) == ""
    assert "far below" in refusal(USUAL, unit(0.99 * FINEST * size))
    assert "far below" in refusal(USUAL, unit(FINEST * size, origin=2 * size))  # of what is subtracted, too


def test_the_unit_of_a_category_is_that_of_shares():
    table = Table.from_columns({"x": RNG.normal(size=60), "kind": ["a", "b"] * 30})

    def part(scale: float) -> Part:
        columns = (Number("x", 0.0, 0.0, 1.0), Category("kind", ("a", "b"), False, 0, scale))
        return Part("total", AskMoments(), Preparation(columns, drop=False), 0)

    assert refusal(table, part(1.0)) == ""
    assert refusal(table, part(COARSEST)) == ""
    assert "far above" in refusal(table, part(2 * COARSEST))
    assert "far below" in refusal(table, part(FINEST / 2))
    assert "not a positive number" in refusal(table, part(np.nan))


def test_a_fill_counts_as_what_is_subtracted():
    def part(fill: float) -> Part:
        return Part("total", AskMoments(), Preparation((Number("y", fill, 0.0, 1.0),), drop=False), 0)

    assert refusal(USUAL, part(1.0)) == ""
    assert refusal(USUAL, part(np.nan)) == ""  # nothing is filled in
    assert "far below" in refusal(USUAL, part(2.0**50))


def test_the_size_that_a_summary_table_states_is_that_of_its_schema():
    """A power of 1000 only where the schema states none: all means between 0 and 1."""
    table = Table.from_columns({"age": RNG.normal(50, 3, 200), "share": RNG.uniform(0.2, 0.8, 200)})
    sizes = stated_sizes(microaggregate(table, SummarySettings(min_group_size=5)))
    assert sizes["age"] == pytest.approx(10 ** (np.round(4 * np.log10(50)) / 4))
    assert sizes["share"] in (10**-0.25, 10**-0.5, 1e-3)
    assert stated_sizes(np.zeros((5, 1))) == {0: 0.0}
