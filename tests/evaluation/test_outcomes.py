"""Outcome columns: described from totals as pandas and scipy describe pooled rows, and never clustered by."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

import unpooled
from helpers import bits
from studies import study_of
from unpooled.algorithms import Lloyd
from unpooled.app.cli import app
from unpooled.data import PreparationOptions, Table
from unpooled.data.outcomes import PreparationWithOutcomes
from unpooled.data.transforms import Number, Preparation
from unpooled.errors import InputError, QueryRefusedError, SchemaMismatchError
from unpooled.evaluation import Analysis
from unpooled.federation import LocalFederation, Simulation
from unpooled.protocol import run
from unpooled.protocol.exchange import Part, Request, RequestId
from unpooled.protocol.questions.outcome_sums import AskOutcomes
from unpooled.site import Site
from unpooled.site.chain import AskedPart, Exchange
from unpooled.site.study_guard import StudyLimitsGuard

OUTCOMES = ["days", "died", "ward"]


def patients(seed: int = 0, n: int = 240, lacking: float = 0.1) -> pd.DataFrame:
    """Patients of three sites and two clusters, which differ in their outcomes; some values are missing."""
    rng = np.random.default_rng(seed)
    group = rng.integers(2, size=n)
    frame = pd.DataFrame(
        {
            "site": np.array(["a", "b", "c"])[rng.integers(3, size=n)],
            "age": rng.normal(50, 5, n) + 30 * group,
            "bmi": rng.normal(25, 2, n) + 8 * group,
            "days": rng.gamma(2.0, 2.0, n) + 3 * group,
            "died": (rng.random(n) < 0.1 + 0.3 * group).astype(float),
            "ward": np.array(["x", "y", "z"])[(rng.integers(3, size=n) + group) % 3],
        }
    )
    for name in OUTCOMES:
        frame.loc[rng.random(n) < lacking, name] = None
    return frame


def clustered(frame: pd.DataFrame, **options):
    options.setdefault("outcomes", OUTCOMES)
    return unpooled.cluster(frame, 2, site_column="site", **options).job_result


def labels_of(result, frame: pd.DataFrame) -> np.ndarray:
    """The cluster of every row, from 0; -1 for a row that is left out."""
    table = Table.from_columns({name: frame[name].tolist() for name in ("age", "bmi")})
    preparation = result.agreement.preparation
    X, labels = preparation.apply(table), np.full(len(frame), -1)
    away = np.nansum((X[:, None] - result.description.centers) ** 2, axis=2)
    labels[preparation.rows_used(table)] = away.argmin(axis=1)
    return labels


def check_number(outcome, values, labels, rel):
    for j in range(2):
        own, rest = values[labels == j].dropna(), values[(labels >= 0) & (labels != j)].dropna()
        assert outcome.known[j] == pytest.approx(len(own), rel=rel)
        assert outcome.value[j] == pytest.approx(own.mean(), rel=rel)
        assert outcome.deviation[j] == pytest.approx(own.std(), rel=rel)
        interval = stats.ttest_ind(own, rest, equal_var=False).confidence_interval(0.95)
        assert outcome.low[j] == pytest.approx(interval.low, rel=rel)
        assert outcome.high[j] == pytest.approx(interval.high, rel=rel)
        pooled = ((len(own) - 1) * own.var() + (len(rest) - 1) * rest.var()) / (len(own) + len(rest) - 2)
        assert outcome.effect[j] == pytest.approx((own.mean() - rest.mean()) / pooled**0.5, rel=rel)
    groups = [values[labels == j].dropna() for j in range(2)]
    f = stats.f_oneway(*groups).statistic
    within = sum(map(len, groups)) - 2
    assert outcome.explained == pytest.approx(f / (f + within), rel=rel)
    assert outcome.overall == pytest.approx(values[labels >= 0].mean(), rel=rel)


def check_shares(outcomes, values, labels, rel):
    taken = (labels >= 0) & values.notna().to_numpy()
    table = pd.crosstab(labels[taken], values[taken].to_numpy())
    v = stats.contingency.association(table, method="cramer")
    for outcome in outcomes:
        category = float(outcome.category) if values.dtype.kind == "f" else outcome.category
        for j in range(2):
            own, rest = (values[taken & (labels == i)] == category for i in (j, 1 - j))
            assert outcome.known[j] == pytest.approx(len(own), rel=rel)
            assert outcome.value[j] == pytest.approx(own.mean(), rel=rel)
            difference = own.mean() - rest.mean()
            assert outcome.difference[j] == pytest.approx(difference, rel=rel)
            (a, b), (c, d) = (
                stats.binomtest(int(x.sum()), len(x)).proportion_ci(0.95, "wilson") for x in (own, rest)
            )
            low = difference - np.hypot(own.mean() - a, d - rest.mean())
            high = difference + np.hypot(b - own.mean(), rest.mean() - c)
            assert (outcome.low[j], outcome.high[j]) == pytest.approx((low, high), rel=rel)
        assert outcome.explained == pytest.approx(v, rel=rel)


@pytest.mark.parametrize(
    ("options", "rel"),
    [
        ({}, 1e-9),
        ({"missing": "fill"}, 1e-9),
        ({"missing": "drop"}, 1e-9),
        ({"missing": "keep"}, 1e-9),
        ({"scale": "rank"}, 1e-9),
        ({"secure": True}, 1e-6),
        ({"exact_sums": True}, 1e-9),
    ],
    ids=str,
)
def test_totals_give_the_statistics_of_pooled_rows(options, rel):
    frame = patients()
    frame.loc[::17, "bmi"] = None
    result = clustered(frame, **options)
    labels = labels_of(result, frame)
    assert result.k == 2
    assert (labels == -1).any() == (options.get("missing") == "drop")
    days, died, *wards = result.outcomes
    assert [(o.column, o.category) for o in result.outcomes] == [
        ("days", ""), ("died", "1"), ("ward", "x"), ("ward", "y"), ("ward", "z"),
    ]  # fmt: skip
    check_number(days, frame["days"], labels, rel)
    check_shares([died], frame["died"], labels, rel)
    check_shares(wards, frame["ward"], labels, rel)


@pytest.mark.parametrize("options", [{}, {"protect": "raw"}], ids=str)
def test_outcomes_do_not_change_the_clusters(options):
    frame = patients()
    result = clustered(frame, **options)
    without = clustered(frame.drop(columns=OUTCOMES), outcomes=(), **options)
    assert bits(result.description.centers) == bits(without.description.centers)
    assert bits(result.choice.scores) == bits(without.choice.scores)


def test_in_summary_tables_outcomes_count_neither_in_the_grouping_nor_in_the_distance():
    frame, how = patients(), {"protect": "summary", "min_group_size": 6}
    result = clustered(frame, **how)
    without = clustered(frame, outcomes=(), columns=["age", "bmi"], sensitive=OUTCOMES, **how)
    assert bits(result.description.centers) == bits(without.description.centers)


def test_summary_tables_give_estimates_near_the_rows_and_say_so():
    frame = patients(n=900, lacking=0.0)
    result, exact = (
        clustered(frame, protect="summary", categorical="died"),
        clustered(frame, categorical="died"),
    )
    assert result.outcomes_estimated
    assert not exact.outcomes_estimated
    for estimate, truth in zip(result.outcomes, exact.outcomes, strict=True):
        assert estimate.known.sum() == 900
        assert estimate.value == pytest.approx(truth.value, abs=0.2 if not truth.category else 0.02)
        assert (estimate.high - estimate.low) == pytest.approx(truth.high - truth.low, rel=0.15)


def test_tables_of_too_few_groups_give_no_interval_of_a_number():
    result = clustered(patients(n=90, lacking=0.0), protect="summary", min_group_size=5)
    days, died = result.outcomes[:2]
    assert np.isnan([*days.low, *days.high, *days.effect]).all()
    assert np.isfinite([*days.value, *died.low]).all()
    assert any("too few groups" in warning for warning in result.warnings)


def test_a_site_in_raw_mode_suppresses_small_cells_of_outcomes():
    frame = patients(n=120, lacking=0.0)
    labels = labels_of(clustered(frame), frame)
    few = frame.index[(labels == 0) & (frame["site"] == "a")]
    frame.loc[few[3:], "days"] = None  # three patients of cluster 1 at a have a value
    result = clustered(frame, protect="raw", min_cluster_size=5)
    days = result.outcomes[0]
    known = [sum(n for n in frame[labels == j].groupby("site")["days"].count() if n >= 5) for j in range(2)]
    assert sorted(days.known.tolist()) <= sorted(map(float, known))
    assert days.known.sum() < frame["days"].count()


def test_sites_that_answer_for_themselves_give_the_same_bits():
    frame = patients()
    tables = {
        site: Table.from_columns({name: part[name].tolist() for name in part.columns if name != "site"})
        for site, part in frame.groupby("site")
    }
    analysis = Analysis(PreparationOptions(outcomes=tuple(OUTCOMES)), (Lloyd(k=2),))
    local = LocalFederation([Site(name, table) for name, table in tables.items()])
    one, other = (run(analysis, there, seed=3).state for there in (Simulation.from_rows(tables), local))
    assert bits(one.description.outcomes) == bits(other.description.outcomes)


def test_an_outcome_that_some_sites_lack_is_described_where_it_is():
    frame = patients(lacking=0.0)
    parts = {site: part.drop(columns="site") for site, part in frame.groupby("site")}
    parts["a"] = parts["a"].drop(columns="died")
    result = unpooled.cluster(parts, 2, outcomes="died").job_result
    assert result.outcomes[0].known.sum() == len(parts["b"]) + len(parts["c"])
    assert any("outcome died at a: no value at all" in warning for warning in result.warnings)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"columns": ["age", "died"]}, InputError, "died is in columns and in outcomes"),
        ({"exclude": "died", "outcomes": "died"}, (InputError, SchemaMismatchError), "died"),
        ({"outcomes": "dead"}, SchemaMismatchError, "lacks dead"),
        (
            {"outcomes": "days", "epsilon": 1.0, "columns": ["age"], "bounds": {"age": (0, 110)}},
            InputError,
            "outcomes needs one more query of the rows.*Run without outcomes, or",
        ),
    ],
    ids=str,
)
def test_outcomes_that_cannot_be_described_are_refused_with_the_reason(options, error, message):
    with pytest.raises(error, match=message):
        clustered(patients(), **options)


def test_a_constant_outcome_is_left_out_with_its_reason():
    frame = patients().assign(died=1.0)
    result = clustered(frame)
    assert {"column": "died", "why": "constant (1)"} in result.left_out
    assert [o.column for o in result.outcomes] == ["days", "ward", "ward", "ward"]


def test_the_command_prints_outcomes_and_writes_them_as_json(tmp_path):
    frame = patients()
    files = []
    for site, part in frame.groupby("site"):
        files.append(str(tmp_path / f"{site}.csv"))
        part.drop(columns="site").to_csv(files[-1], index=False)
    words = ["fit", *files, "-k", "2", "--outcomes", "died,days"]
    printed = CliRunner().invoke(app, words, env={"COLUMNS": "200"}).output
    assert "Outcomes, which do not count in the distance" in printed
    assert "died = 1 (Cramér's V" in printed
    value = json.loads(CliRunner().invoke(app, [*words, "--json"]).output)
    assert value["columns"] == ["age", "bmi", "ward"]
    died, days = value["outcomes"]
    assert (died["column"], died["category"], days["column"]) == ("died", "1", "days")
    assert died["clusters"][0].keys() >= {"n", "value", "difference_from_others", "interval_95", "cohens_h"}
    assert days["clusters"][0].keys() >= {"n", "value", "sd", "cohens_d"}
    out = tmp_path / "run"
    assert CliRunner().invoke(app, [*words, "-o", str(out)]).exit_code == 0
    assert "--outcomes died,days" in (out / "report.html").read_text()


OUTCOME, FEATURE = Number("days", 0.0, 0.0, 1.0), Number("age", 0.0, 0.0, 1.0)
WIDE = PreparationWithOutcomes.beside(Preparation((FEATURE,), False), (OUTCOME,))


def asked(question, transform=WIDE):
    exchange = Exchange(Request(RequestId("run", 0, 0, 0), (Part("total", question, transform, 0),)))
    exchange.parts = (AskedPart(exchange.request.parts[0]),)
    return exchange


def test_a_study_that_names_no_outcomes_does_not_allow_the_question():
    question = AskOutcomes(np.zeros((2, 2)), 1)
    with pytest.raises(QueryRefusedError, match="does not contain AskOutcomes"):
        StudyLimitsGuard(study_of(columns=("age",))).check(asked(question))
    named = study_of(columns=("age",), outcomes=("days",), questions=(("AskOutcomes", 2),))
    StudyLimitsGuard(named).check(asked(question))
    other = study_of(columns=("age",), outcomes=("died",), questions=(("AskOutcomes", 2),))
    with pytest.raises(QueryRefusedError, match="not about column days"):
        StudyLimitsGuard(other).check(asked(question))


@pytest.mark.parametrize("outcomes", [0, 2, -1])
def test_a_number_of_outcomes_that_leaves_no_column_to_cluster_by_is_refused(outcomes):
    with pytest.raises(InputError, match="outcomes of 2 columns"):
        AskOutcomes(np.zeros((2, 2)), outcomes).lengths()
    with pytest.raises(QueryRefusedError, match="outcomes of 2 columns"):
        PreparationWithOutcomes((FEATURE, OUTCOME), False, outcomes, False).check(None)
