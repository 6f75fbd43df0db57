"""What leaves a site in a whole analysis: no row, and nothing about groups below the site's minimum."""

import numpy as np
import pytest

from helpers import Recorder, arrays_in
from unpooled.algorithms import Lloyd
from unpooled.data import PreparationOptions, Table
from unpooled.data.schema import ColumnTotals, Schema
from unpooled.evaluation import Analysis
from unpooled.federation import LocalFederation
from unpooled.protocol import run
from unpooled.protocol.questions.description import Crossing, Outline, Profile
from unpooled.site import Guard, Site

MINIMUM = 5


@pytest.fixture(scope="module")
def watched():
    """An analysis over three sites whose answers are recorded: replies, prepared rows and tables by site."""
    rng = np.random.default_rng(6)
    tables, guards = {}, {}
    for name, n in (("p", 40), ("q", 70), ("r", 55)):
        label = rng.integers(3, size=n)
        x, y = (np.array([0.0, 5.0, 9.0])[label] + rng.standard_normal(n) for _ in range(2))
        x[:2] = np.nan
        c = [None if i == 3 else "abz"[v] for i, v in enumerate(np.where(rng.random(n) < 0.05, 2, label % 2))]
        tables[name], guards[name] = Table.from_columns({"x": x, "y": y, "c": c}), Recorder()
    sites = [Site(n, t, min_cluster_size=MINIMUM, guards=[Guard()], log=guards[n]) for n, t in tables.items()]
    methods = tuple(Lloyd(k=k, min_cluster_size=MINIMUM) for k in (2, 3, 4))
    state = run(Analysis(PreparationOptions(), methods), LocalFederation(sites)).state
    rows = {name: state.agreement.preparation.apply(table) for name, table in tables.items()}
    return {name: guard.seen for name, guard in guards.items()}, rows, tables


def test_no_row_leaves(watched):
    replies, rows, _ = watched
    for name, seen in replies.items():
        for _, reply in seen:
            for array in arrays_in(reply):
                if array.ndim and array.shape[-1] == rows[name].shape[1]:
                    vectors = array.reshape(-1, array.shape[-1])
                    near = np.isclose(vectors[:, None], rows[name][None], rtol=1e-9, atol=1e-12).all(axis=2)
                    assert not near.any(), type(reply).__name__


def test_no_group_below_the_minimum_is_counted(watched):
    replies, _, _ = watched
    kinds = set()
    for seen in replies.values():
        for _, reply in seen:
            counts = {
                Schema: lambda r: [r.rows, np.nan_to_num(r.missing, posinf=0.0)],
                ColumnTotals: lambda r: [r.rows, r.count, r.categories],
                Crossing: lambda r: [r.counts],
                Profile: lambda r: [r.mass],
                Outline: lambda r: [r.mass],
            }.get(type(reply), lambda r: [r.mass] if hasattr(r, "mass") else [])
            kinds.add(type(reply))
            for array in counts(reply):
                assert not ((array > 0) & (array < MINIMUM)).any(), type(reply).__name__
    assert {Schema, ColumnTotals, Crossing, Profile, Outline} <= kinds


def test_no_rare_category_is_named(watched):
    replies, _, tables = watched
    suppressed = 0
    for name, seen in replies.items():
        schema = next(reply for _, reply in seen if isinstance(reply, Schema))
        codes = np.asarray(tables[name].values)[:, 2]
        for code, category in enumerate(tables[name].categories["c"]):
            rows = int((codes == code).sum())
            assert rows >= MINIMUM or category not in schema.categories[2]
            suppressed += rows < MINIMUM
    assert suppressed
