"""Sums over raw rows, as secure sums open them: what follows about rows, with all assignments known."""

import numpy as np
import pytest
from tests.amounts import amounts

from unpooled.algorithms import Lloyd
from unpooled.algorithms.polish import Polish
from unpooled.data import Table
from unpooled.federation import LocalFederation, Simulation
from unpooled.privacy.microaggregation import SummarySettings, microaggregate
from unpooled.privacy.microaggregation.summarize import make_first_summary
from unpooled.protocol import run
from unpooled.protocol.questions.cluster_sums import AskClusterSums
from unpooled.protocol.questions.exact_sums import AskExactSums
from unpooled.site import Site
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


class Exact(LocalFederation):
    """Sites in raw mode that sum securely: it records the cells of all rows in every exact round."""

    def __init__(self, *given, **more):
        super().__init__(*given, **more)
        self.sets, self.others = [], set()

    def ask(self, request_id, asks):
        for ask in asks:
            if isinstance(ask.question, AskExactSums):
                self.sets.append(ask.question.centers)
            else:
                self.others.add(ask.question.reads)
        return super().ask(request_id, asks)


def polished(rows, k):
    """Clusters on groups of rows, and one exact round."""
    tables = {s: microaggregate(X) for s, X in rows.items()}
    federation = Exact.from_rows(
        {s: t.matrix() for s, t in tables.items()},
        {s: t.people for s, t in tables.items()},
        within={s: np.nan_to_num(t.within) for s, t in tables.items()},
        raw=rows,
        secure=True,
    )
    return federation, run(Polish(Lloyd(k=k)), federation, seed=0).state


@pytest.mark.parametrize("make", [apart, overlapping])
@pytest.mark.parametrize("n", [150, *amounts(600, 3000)])
@pytest.mark.parametrize("d", [2, 8])
@pytest.mark.parametrize("k", [3, 8])
def test_an_exact_round_after_groups_of_rows_determines_at_most_one_row(make, n, d, k):
    """With known assignments. If the sums of all groups are known besides, the budget bounds what follows."""
    rows = make(0, n, d)
    federation, found = polished(rows, k)
    X = np.concatenate(list(rows.values()))
    assert (found.exact.sites, len(federation.sets), federation.others) == (3, 1, {"rows"})
    exact = [cells(X, federation.sets[0])]
    judged = determined(exact, n)
    assert (judged.equations <= k, len(judged.rows) <= 1) == (True, True)
    assert len(determined([*exact, groups_of(rows)], n).rows) <= (k - 1) * 5 / 4
    pooled = run(Lloyd(k=k), Simulation.from_rows({"all": X}), seed=0).state.centers
    few = make is overlapping and n == 150 and k == 8  # 30 groups do not describe so many clusters
    assert inertia(X, found.centers) <= (1.12 if few else 1.03) * inertia(X, pooled)


def groups_of(rows):
    """The group of every row of all sites."""
    labels, first = [], 0
    for X in rows.values():
        table = Table.from_columns({f"x{j}": x for j, x in enumerate(X.T)})
        own = np.zeros(len(X), dtype=np.int64)
        groups = make_first_summary(table, SummarySettings()).members
        for number, members in enumerate(groups):
            own[members] = first + number
        first += len(groups)
        labels.append(own)
    return np.concatenate(labels)
