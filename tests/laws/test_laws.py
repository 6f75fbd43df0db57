"""The laws of PAPERS.md that hold for several methods; each method's own are in its file.

In algorithms/: 1-3, 5-8, 24 test_dwf.py; 11, 12, 21, 22 test_fkm.py; 18 test_minibatch.py; 19 test_kfed.py.
Beside this file: 20 test_metrics.py; 25 test_contract.py.
"""

import numpy as np
import pytest
from scipy.stats import ortho_group

from helpers import blobs, in_order, inertia_of, nearest, pooled, rounds, split
from unpooled.algorithms import DWF, EWF, FKM, KFed, Lloyd, MiniBatch
from unpooled.algorithms.dwf import AskLocalMoves
from unpooled.algorithms.fkm import AskOneStep
from unpooled.federation import Simulation
from unpooled.protocol import run
from unpooled.protocol.algorithm import each, total
from unpooled.protocol.exchange import run_protocol
from unpooled.protocol.questions.cluster_sums import AskClusterSums

K, D = 4, 3

METHODS = {
    "lloyd": lambda init: Lloyd(k=K, init=init, tol=0.0),
    "dwf": lambda init: DWF(k=K, init=init),
    "dwf-as-published": lambda init: DWF(k=K, init=init, learning_rate=0.3, momentum=0.8, local_steps=5),
    "ewf": lambda init: EWF(k=K, init=init, local_steps=2),
    "mini-batch": lambda init: MiniBatch(k=K, init=init, momentum=0.5, epochs=2, client_rate=0.7),
}
each_method = pytest.mark.parametrize("name", METHODS)
seeds = pytest.mark.parametrize("seed", range(4))


def case(seed, **how):
    """Overlapping rows over five sites, and centres to start from."""
    rows = split(blobs(seed, n=150, d=D, k=K, spread=4.0)[0], 5, seed, **how)
    X = pooled(rows)
    return rows, X[np.random.default_rng(seed).choice(len(X), K, replace=False)] + 0.01


def path(name, rows, init, count=6):
    """(rounds, k, d): the centres after every round."""
    return np.stack(
        [state.centers for state in rounds(METHODS[name](init), Simulation.from_rows(rows), count)]
    )


def close(a, b, scale=1.0):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-10 * scale)


# ---------------------------------------------------------------- 4


@each_method
@seeds
def test_law_04_the_order_of_the_clients_does_not_matter(name, seed):
    rows, init = case(seed, skewed=True)
    order = np.random.default_rng(seed).permutation(list(rows)).tolist()
    renamed = dict(zip(order, rows.values(), strict=True))  # other names, so another order of the sums
    close(path(name, renamed, init), path(name, rows, init))


# ---------------------------------------------------------------- 9


@each_method
@seeds
def test_law_09_equivariant_to_rotation_shift_and_scale(name, seed):
    rows, init = case(seed)
    rotation = ortho_group.rvs(D, random_state=seed)
    for scale, turn, shift in [
        (1.0, rotation, 0.0),
        (1.0, np.eye(D), 50.0),
        (1e3, np.eye(D), 0.0),
        (5, rotation, 7.0),
    ]:

        def moved(Z, scale=scale, turn=turn, shift=shift):
            return scale * (Z @ turn) + shift

        result = path(name, {s: moved(X) for s, X in rows.items()}, moved(init))
        close(result, moved(path(name, rows, init)), scale=100 * scale)


@seeds
def test_law_09_the_default_start_shifts_and_scales_with_the_data(seed):
    rows, _ = case(seed)
    moved = {s: 20.0 * X + 300.0 for s, X in rows.items()}
    plain, shifted = (
        run(Lloyd(k=K), Simulation.from_rows(r), seed=seed).state.centers for r in (rows, moved)
    )
    np.testing.assert_allclose(in_order(shifted), in_order(20.0 * plain + 300.0), rtol=1e-7)


# ---------------------------------------------------------------- 10


def test_law_10_by_hand():
    rows = {"a": np.array([[0.0], [1.0], [9.0]]), "b": np.array([[8.0]])}
    result = run_protocol(
        each(("a", "b"), AskClusterSums(np.array([[[0.0], [10.0]]]))), Simulation.from_rows(rows)
    )
    assert {s: r.mass[0].tolist() for s, r in result.items()} == {"a": [2.0, 1.0], "b": [0.0, 1.0]}


@seeds
@pytest.mark.parametrize("skewed", [False, True])
def test_law_10_client_counts_add_up_to_the_pooled_counts_and_n(seed, skewed):
    rows, centers = case(seed, skewed=skewed)
    X, federation = pooled(rows), Simulation.from_rows(rows)
    counts = np.bincount(nearest(X, centers), minlength=K)
    one_by_one = run_protocol(each(federation.sites, AskClusterSums(centers[None])), federation).values()
    assert sum(r.mass[0] for r in one_by_one).tolist() == counts.tolist()
    assert sum(r.mass.sum() for r in one_by_one) == len(X)
    moves = run_protocol(total(federation.sites, AskLocalMoves(centers, 5, "counts")), federation)
    assert moves.weight.tolist() == counts.tolist()
    for kind in ("before", "after"):
        steps = run_protocol(each(federation.sites, AskOneStep(centers, kind, 1.0)), federation)
        assert sum(r.counts.sum() for r in steps.values()) == len(X)


# ---------------------------------------------------------------- 23


def thrice(rows):
    return {s: np.repeat(X, 3, axis=0) for s, X in rows.items()}


@each_method
@seeds
def test_law_23_replicating_all_rows_changes_nothing(name, seed):
    rows, init = case(seed)
    close(path(name, thrice(rows), init), path(name, rows, init))


@seeds
@pytest.mark.parametrize("method", [Lloyd(k=K, init="random"), DWF(k=K, init="random")], ids=["lloyd", "dwf"])
def test_law_23_from_a_start_of_its_own(seed, method):
    rows, _ = case(seed)
    once, more = (run(method, Simulation.from_rows(r), seed=seed).state.centers for r in (rows, thrice(rows)))
    close(in_order(once), in_order(more))


@seeds
def test_law_23_fkm(seed):
    rows, init = case(seed)
    once, more = (
        run_protocol(each(tuple(rows), AskOneStep(init, "before", 1.0)), Simulation.from_rows(r))
        for r in (rows, thrice(rows))
    )
    for site in rows:
        close(more[site].means, once[site].means)
        assert more[site].counts.tolist() == (3 * once[site].counts).tolist()


# ---------------------------------------------------------------- all methods find what is plain to see


@pytest.mark.parametrize(
    "method",
    [Lloyd(k=K), DWF(k=K), DWF.as_published(k=K), EWF(k=K), FKM(k=K), KFed(k=K), MiniBatch(k=K)],
    ids=lambda m: type(m).__name__,
)
@seeds
def test_every_method_finds_separated_clusters(method, seed):
    rng = np.random.default_rng(seed)
    middle = 100.0 * np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    X = middle[np.arange(200) % 4] + rng.normal(size=(200, 2))
    centers = run(method, Simulation.from_rows(split(X, 5, seed)), seed=seed).state.centers
    np.testing.assert_allclose(in_order(np.round(centers, -1)), in_order(middle), atol=1e-9)
    assert inertia_of(X, centers) < 1.05 * inertia_of(X, middle)
