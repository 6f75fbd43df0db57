"""Sums over halves: the halves divide the rows, and no small cell follows from two of them."""

import numpy as np
import pytest

from unpooled.errors import UnpooledError
from unpooled.federation import LocalFederation, Simulation
from unpooled.protocol.algorithm import total
from unpooled.protocol.exchange import run_protocol
from unpooled.protocol.questions.cluster_sums import AskClusterSums
from unpooled.protocol.questions.half_sums import AskHalfSums, AskObservedHalfSums
from unpooled.protocol.questions.sums_with_missing import AskObservedSums
from unpooled.site import Site


def rows(seed=0, n=300):
    rng = np.random.default_rng(seed)
    return {f"s{i}": rng.normal(size=(n + i, 3)) for i in range(3)}


def asked(federation, question):
    return run_protocol(total(federation.sites, question), federation)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_two_halves_of_every_split_add_up_to_all_rows_and_splits_differ(weighted):
    X = rows()
    weights = {name: np.arange(len(x)) % 7 + 1.0 for name, x in X.items()} if weighted else None
    there = Simulation.from_rows(X, weights=weights)
    centers = np.random.default_rng(1).normal(size=(4, 3))
    halves = asked(there, AskHalfSums(np.repeat(centers[None], 6, axis=0), 11))
    whole = asked(there, AskClusterSums(centers[None]))
    for split in range(3):
        both = slice(2 * split, 2 * split + 2)
        np.testing.assert_allclose(halves.mass[both].sum(axis=0), whole.mass[0])
        np.testing.assert_allclose(halves.sums[both].sum(axis=0), whole.sums[0], atol=1e-9)
        np.testing.assert_allclose(halves.inertia[both].sum(axis=0), whole.inertia[0])
        assert 0.4 < halves.mass[2 * split].sum() / whole.mass.sum() < 0.6
    assert not np.array_equal(halves.mass[0], halves.mass[2])
    other = asked(there, AskHalfSums(np.repeat(centers[None], 6, axis=0), 12))
    assert not np.array_equal(halves.mass[0], other.mass[0])


def test_with_missing_cells_they_are_sums_of_observed_cells():
    X = rows(2)
    there = Simulation.from_rows(X)
    centers = np.random.default_rng(1).normal(size=(2, 4, 3))
    for question, same in (
        (AskObservedHalfSums(centers, 5), AskHalfSums(centers, 5)),
        (AskObservedSums(centers), AskClusterSums(centers)),
    ):
        a, b = asked(there, question), asked(there, same)
        np.testing.assert_allclose(a.mass, b.mass)
        np.testing.assert_allclose(a.sums, b.sums, atol=1e-9)


def test_parts_of_very_many_rows_are_smaller_and_disjoint():
    there = Simulation.from_rows(rows(n=5000))
    centers = np.zeros((2, 1, 3))
    parts = asked(there, AskHalfSums(centers, 3, 0.1)).mass[:, 0]
    assert ((parts > 1300) & (parts < 1700)).all()
    with pytest.raises(UnpooledError, match=r"a share must be in \(0, 0.5\]"):
        asked(there, AskHalfSums(centers, 3, 0.6))


def test_simulation_and_sites_that_answer_for_themselves_give_the_same_bits():
    X = rows(4)
    question = AskHalfSums(np.random.default_rng(1).normal(size=(6, 5, 3)), 99)
    one = asked(Simulation.from_rows(X), question)
    other = asked(LocalFederation([Site(name, x) for name, x in X.items()]), question)
    for name in ("sums", "mass", "inertia"):
        assert np.array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("seed", range(5))
def test_a_site_in_raw_mode_discloses_no_cell_of_which_few_rows_are_in_the_other_half(seed):
    rng = np.random.default_rng(seed)
    X, minimum = rng.normal(size=(60, 2)), 5
    centers = rng.normal(size=(6, 2))
    there = Simulation.from_rows({"a": X}, min_cluster_size=minimum)
    halves = asked(there, AskHalfSums(np.repeat(centers[None], 2, axis=0), seed))
    plain = asked(Simulation.from_rows({"a": X}), AskHalfSums(np.repeat(centers[None], 2, axis=0), seed))
    disclosed = halves.mass > 0
    rest = plain.mass[::-1]
    assert (plain.mass[disclosed] >= minimum).all()
    assert ((rest[disclosed] >= minimum) | (rest[disclosed] == 0)).all()
    hidden = np.where(disclosed, 0.0, plain.mass).sum(axis=1)
    assert ((hidden == 0) | (hidden >= minimum)).all()
