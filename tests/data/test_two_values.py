"""Numbers with two values over all sites: read as categories, from rows and from summary tables."""

import numpy as np
import pandas as pd
import pytest

from unpooled import cluster
from unpooled.data import PreparationOptions, Table, agree_schema
from unpooled.data.merged_schema import merged
from unpooled.data.schema import AskSchema
from unpooled.data.summary_table import described, from_csv, to_csv
from unpooled.data.transforms import Binary, Number
from unpooled.federation import Simulation
from unpooled.privacy.microaggregation import SummarySettings, microaggregate
from unpooled.protocol.exchange import run_protocol
from unpooled.protocol.site_batch import SiteBatch


def agreed(tables, **options):
    federation = Simulation.from_rows(tables)
    return run_protocol(agree_schema(federation.sites, PreparationOptions(**options)), federation)


def schema(table, minimum=1.0):
    batch = SiteBatch(table, np.array([0, len(table)]), None, np.zeros(1, np.uint64), minimum)
    return AskSchema().answer_all(batch)[0]


def column(name, values):
    return Table.from_columns({name: np.asarray(values, dtype=float), "age": np.arange(float(len(values)))})


def test_two_values_over_all_sites_make_a_category_and_a_third_one_at_any_site_a_number():
    two = {"a": column("sex", [0, 1] * 6), "b": column("sex", [1] * 12)}
    assert isinstance(agreed(two).preparation.columns[0], Binary)
    three = two | {"c": column("sex", [2] * 12)}
    assert type(agreed(three).preparation.columns[0]) is Number
    assert "constant (1)" in dict(agreed({"b": two["b"]}).left_out)["sex"]


def test_a_share_is_that_of_the_higher_value_and_a_missing_value_is_the_more_frequent_one():
    sites = {"a": column("code", [1, 2, 2, 2, np.nan, 2]), "b": column("code", [2, 1, 2, 2, 2, 2])}
    code = agreed(sites).preparation.columns[0]
    assert (code.low, code.high, code.fill) == (1.0, 2.0, 2.0)
    share = 10 / 12  # of 9 rows and one that is filled
    assert code.shift == pytest.approx(1 + share)
    assert code.scale == pytest.approx(np.sqrt(share * (1 - share)))
    assert code.share(1.25) == 0.25
    kept = agreed(sites, missing="keep").preparation.columns[0]
    assert kept.shift == pytest.approx(1 + 9 / 11)


def test_a_scale_by_name_or_no_scaling_keeps_a_number():
    sites = {"a": column("sex", [0, 1] * 6)}
    for options in ({"scales": (("sex", "standard"),)}, {"scale": "none"}):
        assert type(agreed(sites, **options).preparation.columns[0]) is Number
    sites = {"a": Table.from_columns({"sex": [0.0, 1.0] * 6, "dose": np.arange(1.0, 13.0)})}
    sex, dose = agreed(sites, scale="log").preparation.columns
    assert isinstance(sex, Binary)  # 0 has no logarithm
    assert dose.label == "log(dose)"


def test_rows_and_summary_tables_agree_on_the_same_column():
    rng = np.random.default_rng(0)
    tables = {s: column("sex", rng.integers(2, size=200)) for s in "ab"}
    rows, summary = agreed(tables), agreed({s: microaggregate(t) for s, t in tables.items()})
    one, other = rows.preparation.columns[0], summary.preparation.columns[0]
    assert isinstance(one, Binary)
    assert isinstance(other, Binary)
    assert (one.low, one.high) == (other.low, other.high) == (0.0, 1.0)
    assert other.shift == pytest.approx(one.shift, abs=0.01)


def test_no_site_names_a_value_that_too_few_have():
    values = [0.0] * 60 + [7.0] * 3
    summary = microaggregate(column("x", values), SummarySettings(min_group_size=5))
    assert summary.values == {"x": (0.0,)}
    assert schema(column("x", values), minimum=5.0).categories[0] == ("0",)
    assert schema(column("x", values)).categories[0] == ("0", "7")
    assert schema(column("x", [0.0, 1.0, 2.0] * 9)).categories[0] == ()


def test_a_summary_table_keeps_its_values_in_its_file():
    summary = microaggregate(column("x", [1.0, 2.0] * 40))
    again = from_csv(to_csv(summary), described(summary))
    assert again.values == summary.values == {"x": (1.0, 2.0)}
    assert again.digest == summary.digest


def test_a_relay_states_the_values_of_its_sites_if_all_do():
    a, b, c = (schema(column("x", v)) for v in ([0, 1] * 5, [0] * 10, [0, 1, 2] * 5))
    assert merged({"a": a, "b": b}, "same").categories[0] == ("0", "1")
    assert merged({"a": a, "c": c}, "same").categories[0] == ()


def test_clusters_are_described_by_shares():
    rng = np.random.default_rng(1)
    side = rng.integers(2, size=300)
    has = (rng.random(300) < 0.1 + 0.8 * side) * 1
    table = pd.DataFrame({"x": 6.0 * side + rng.normal(size=300), "angina": has})
    result = cluster({"a": table[:150], "b": table[150:]}, n_clusters=2)
    profile = result.profile
    angina = profile[profile["column"] == "angina"]
    assert set(angina["category"]) == {"1"}
    clusters = result.predict(table)
    assert angina.set_index("label")["value"].to_dict() == pytest.approx(
        {j: has[clusters == j].mean() for j in (0, 1)}
    )
    assert angina["overall"].tolist() == pytest.approx([has.mean()] * 2)
    assert "angina = 1" in result.job_result.distinctive_traits(0)
