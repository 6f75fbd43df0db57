"""certify: totals only, no condition, and true whatever the sites keep or suppress."""

import numpy as np
import pytest
from reproduction.dual_problems import dual_problem, dual_shape

from helpers import Declines, arrays_in, watched
from unpooled import FederatedKMeans, certify, exact_kmeans
from unpooled.errors import InputError, TooFewAnswersError
from unpooled.federation import LocalFederation, Simulation
from unpooled.optimality.bounds import AskBounds, half_widths
from unpooled.optimality.questions import AskRange
from unpooled.protocol.algorithm import total
from unpooled.protocol.exchange import run_protocol
from unpooled.site import Site


def clustered(name: str):
    rows, k = dual_problem(name), dual_shape(name)[2]
    best = exact_kmeans(np.concatenate(list(rows.values())), k).inertia
    return rows, FederatedKMeans(k, tol=1e-12, random_state=0).fit(rows).cluster_centers_, best


@pytest.mark.parametrize("name", ["2N2D3K1", "2N4D4K1", "3N2D3K1", "3N3D3K1", "4N3D3K1"])
def test_it_proves_the_optimum_with_no_condition(name):
    rows, centers, best = clustered(name)
    proof = certify(Simulation.from_rows(rows), centers, time_limit=30)
    assert proof.proved
    assert proof.condition == "unconditional"
    assert best * (1 - 1.1e-4) <= proof.lower_bound <= best * (1 + 1e-9)
    assert proof.inertia == pytest.approx(best)


def test_a_poor_clustering_is_recognised():
    rows, centers, best = clustered("2N3D3K1")
    poor = centers + np.array([[0.2], [0.0], [0.0]])
    proof = certify(Simulation.from_rows(rows), poor, time_limit=30)
    assert proof.inertia <= best * (1 + 1e-6)  # it met better centres, and says which
    assert proof.lower_bound <= best * (1 + 1e-9)


def test_time_is_up_and_the_bound_still_holds():
    rng = np.random.default_rng(0)
    rows = {f"s{i}": rng.uniform(size=(60, 4)) for i in range(2)}
    centers = FederatedKMeans(4, random_state=0).fit(rows).cluster_centers_
    proof = certify(Simulation.from_rows(rows), centers, time_limit=1.0)
    assert not proof.proved
    assert 0 < proof.lower_bound < proof.inertia


def test_the_bound_holds_whatever_prices_the_sites_keep():
    """Prices that do not even sum to zero: the correction accounts for them."""
    rows, centers, best = clustered("2N2D3K1")
    X = np.concatenate(list(rows.values()))
    low, high = np.tile(X.min(axis=0), (1, 3, 1)), np.tile(X.max(axis=0), (1, 3, 1))
    for seed in range(20):
        about = centers + np.random.default_rng(seed).normal(scale=0.3, size=centers.shape)
        ask = AskBounds(
            low=low,
            high=high,
            cells=np.arange(3)[None],
            references=centers,
            centers=about[None],
            steps=np.ones(1),
            names=np.zeros(1, dtype=np.int64),
            parents=np.array([-1]),
            nodes=10**6,
            seconds=10.0,
        )
        federation = Simulation.from_rows(rows)
        result = run_protocol(total(federation.sites, ask), federation)
        q = result.prices[0]
        assert np.abs(q.sum()) > 1e-3
        assert result.lower[0] - (np.abs(q) * half_widths(low[0], high[0])).sum() <= best


def test_sites_are_asked_for_sums_alone():
    rows, centers, _ = clustered("3N2D3K1")
    federation, recorder = watched(rows)
    certify(federation, centers, box=[[-2, -2], [2, 2]], time_limit=5)
    assert {part.verb for part, _ in recorder.seen} == {"total"}
    assert not any(isinstance(part.question, AskRange) for part, _ in recorder.seen)


def test_a_site_discloses_nothing_of_a_cluster_below_its_minimum():
    rows, centers, best = clustered("2N2D3K1")
    federation, recorder = watched(rows, 4)
    proof = certify(federation, centers, box=[[-2, -2], [2, 2]], time_limit=5)
    assert proof.lower_bound <= best * (1 + 1e-9)
    for part, reply in recorder.seen:
        if isinstance(part.question, AskBounds):
            assert ((reply.counts == 0) | (reply.counts >= 4)).all()
            assert (reply.sums[reply.counts == 0] == 0).all()
            assert all(np.isfinite(a).all() for a in arrays_in(reply))


def test_a_site_that_does_not_answer_ends_it():
    """Its rows would be missing from the inertia, and the gap would look smaller than it is."""
    rows, centers, _ = clustered("3N2D3K1")
    sites = [Site(name, X, guards=[Declines()] if name == "node-2" else []) for name, X in rows.items()]
    with pytest.raises(TooFewAnswersError, match="2 of 3 sites answered, 3 needed; missing: node-2"):
        certify(LocalFederation(sites), centers, box=[[-2, -2], [2, 2]])


def test_a_site_below_its_minimum_adds_nothing_to_either_number():
    rows, centers, _ = clustered("2N2D3K1")
    few = {**rows, "few": rows["node-1"][:3] + 0.5}
    box = [[-2, -2], [2, 2]]
    with_it = certify(Simulation.from_rows(few, min_cluster_size=4), centers, box=box, time_limit=2)
    without = certify(Simulation.from_rows(rows, min_cluster_size=4), centers, box=box, time_limit=2)
    assert with_it.input_inertia == pytest.approx(without.input_inertia)
    assert with_it.lower_bound <= exact_kmeans(np.concatenate(list(rows.values())), 3).inertia


def test_bad_input_is_named():
    federation = Simulation.from_rows(dual_problem("2N2D3K1"))
    for settings, message in (
        ({"centers": [[np.nan, 0.0]]}, "centers must be finite"),
        ({"centers": [[0.0, 0.0]], "box": [[0, 0], [0.1, 0.1]]}, "the box excludes rows of 2 of 2 sites"),
        ({"centers": [[0.0, 0.0]], "time_limit": 0}, "time_limit above 0"),
        ({"centers": np.zeros((33, 2))}, "33 clusters: exact solving is out of reach beyond 32"),
    ):
        with pytest.raises(InputError, match=message):
            certify(federation, **settings)
