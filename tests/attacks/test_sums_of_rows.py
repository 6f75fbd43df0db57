"""Sums over raw rows, as secure sums open them: what follows about rows, with all assignments known."""

import numpy as np
import pytest
from tests.amounts import amounts

from unpooled import Lloyd, LocalFederation, Simulation, Site, run
from unpooled.privacy.microaggregation import microaggregate
from unpooled.protocol.questions.cluster_sums import AskClusterSums
from unpooled.site.audit.posterior import determined


class Opened(LocalFederation):
    """A federation that records the cells of all rows in every set of clusters that is summed."""

    def __init__(self, rows):
        super().__init__([Site(name, X) for name, X in rows.items()])
        self.X, self.sets = np.concatenate([rows[s] for s in sorted(rows)]), []

    def ask(self, request_id, asks):
        for ask in asks:
            if isinstance(ask.question, AskClusterSums):
                self.sets += [cells(self.X, centers) for centers in ask.question.centers]
        return super().ask(request_id, asks)


def cells(X, centers):
    return np.argmin([((X - c) ** 2).sum(axis=1) for c in centers], axis=0)


def inertia(X, centers):
    return np.min([((X - c) ** 2).sum(axis=1) for c in centers], axis=0).sum()


def overlapping(seed, n, d):
    """Six clusters that all three sites have, and that run into each other."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(6, d))[rng.integers(6, size=n)] * 1.5 + rng.normal(size=(n, d))
    return dict(zip("abc", np.array_split(X, 3), strict=True))


def apart(seed, n, d):
    """Four clusters of each of three sites."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(0, 6, (12, d))
    return {
        s: centers[4 * i + rng.integers(4, size=n // 3)] + rng.normal(size=(n // 3, d))
        for i, s in enumerate("abc")
    }


@pytest.mark.parametrize(
    ("make", "d", "least"), [(overlapping, 8, 600), (overlapping, 2, 450), (apart, 2, 400)]
)
def test_an_ordinary_run_on_rows_determines_most_of_them(make, d, least):
    federation = Opened(make(0, 600, d))
    run(Lloyd(k=8), federation, seed=0)
    found = determined(federation.sets, 600)
    assert len(found.rows) >= least
    assert found.equations >= least


@pytest.mark.parametrize("n", [150, *amounts(600, 3000)])
@pytest.mark.parametrize("d", [2, 8])
@pytest.mark.parametrize("k", [3, 8])
def test_one_round_on_rows_after_summary_tables_determines_at_most_one_row(n, d, k):
    for seed in range(2):
        rows = apart(seed, n, d)
        X = np.concatenate(list(rows.values()))
        tables = {s: microaggregate(own) for s, own in rows.items()}
        summaries = Simulation.from_rows(
            {s: t.matrix() for s, t in tables.items()}, {s: t.people for s, t in tables.items()}
        )
        found = run(Lloyd(k=k), summaries, seed=seed).state.centers
        federation = Opened(rows)
        one = run(Lloyd(k=k, init=found, max_rounds=1), federation, seed=seed).state.centers
        pooled = run(Lloyd(k=k), Simulation.from_rows({"all": X}), seed=seed).state.centers
        judged = determined(federation.sets, n)
        assert len(federation.sets) == 1
        assert judged.equations <= k
        assert len(judged.rows) <= 1
        assert inertia(X, one) <= 1.03 * inertia(X, pooled)
