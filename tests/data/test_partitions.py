"""Splits of rows into sites: every row goes to one site, sizes and skews are as requested, seeds decide."""

import numpy as np
import pytest

from unpooled.data import partitions as partition
from unpooled.errors import InputError

SEEDS = range(5)


def data(seed=0, n=600, labels=6):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, labels, n)
    return rng.standard_normal((n, 2)) + 5 * np.stack([y % 3, y // 3], axis=1), y


def every(seed):
    X, y = data()
    return {
        "iid": partition.iid(len(X), 7, seed=seed),
        "sizes": partition.sizes(len(X), [100, 0, 500], seed=seed),
        "power_law": partition.power_law(len(X), 7, 1.5, seed=seed),
        "dirichlet": partition.dirichlet(y, 7, 0.3, seed=seed),
        "shards": partition.shards(y, 7, 2, seed=seed),
        "pathological": partition.pathological(y, 7, 2, seed=seed),
        "by_kmeans": partition.by_kmeans(X, 7, seed=seed),
        "half_iid": partition.half_iid(X, 7, seed=seed),
        "by_distance": partition.by_distance(X, X[:7], 1.0, seed=seed),
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_every_row_goes_to_one_site_and_the_seed_decides_which(seed):
    X, _ = data()
    again, other = every(seed), every(seed + 100)
    for name, labels in every(seed).items():
        assert labels.shape == (600,), name
        assert labels.dtype == np.int64, name
        assert labels.min() >= 0, name
        assert labels.max() < 7, name
        np.testing.assert_array_equal(labels, again[name], err_msg=name)
        assert (labels != other[name]).any(), name
        parts = partition.split_rows(X, labels)
        together = np.concatenate(list(parts.values()))
        np.testing.assert_array_equal(np.sort(together, axis=0), np.sort(X, axis=0), err_msg=name)


@pytest.mark.parametrize("seed", SEEDS)
def test_sizes(seed):
    assert np.bincount(partition.iid(602, 7, seed=seed)).tolist() == [86] * 7
    assert np.bincount(partition.iid(604, 7, seed=seed)).tolist() == [87, 87] + [86] * 5
    assert np.bincount(partition.sizes(10, [3, 0, 7], seed=seed)).tolist() == [3, 0, 7]
    counts = np.bincount(partition.power_law(10_000, 5, 1.0, min_rows=0, seed=seed))
    np.testing.assert_allclose(counts / counts[0], 1 / np.arange(1, 6), atol=1e-3)
    assert np.bincount(partition.power_law(100, 10, 3.0, min_rows=4, seed=seed)).min() >= 4


@pytest.mark.parametrize("seed", SEEDS)
def test_the_smaller_alpha_the_more_a_label_is_at_one_site(seed):
    _, y = data(n=3000)

    def max_share(alpha):
        labels = partition.dirichlet(y, 10, alpha, seed=seed)
        table = np.array([np.bincount(labels[y == j], minlength=10) for j in range(6)])
        return (table.max(axis=1) / table.sum(axis=1)).mean()

    shares = [max_share(alpha) for alpha in (0.01, 1.0, 100.0)]
    assert shares[0] > 0.75 > 0.5 > shares[1] > shares[2]
    assert shares[2] < 0.15  # 0.1 would be equal
    assert np.bincount(partition.dirichlet(y, 10, 0.1, min_rows=20, seed=seed)).min() >= 20


@pytest.mark.parametrize("seed", SEEDS)
def test_shards_and_pathological_sites_have_few_labels(seed):
    _, y = data(n=1200)
    shards = partition.shards(y, 12, 2, seed=seed)
    held = [len(np.unique(y[shards == s])) for s in range(12)]
    assert max(held) <= 4  # a shard of neighbours in label order spans two labels at most
    assert np.bincount(shards).tolist() == [100] * 12
    few = partition.pathological(y, 12, 2, seed=seed)
    assert [len(np.unique(y[few == s])) for s in range(12)] == [2] * 12


def test_natural_ids_in_sorted_order():
    assert partition.natural_id(["oslo", "bern", "oslo", "cork"]).tolist() == [2, 0, 2, 1]
    assert partition.natural_id(np.array([30, 10, 30])).tolist() == [1, 0, 1]


@pytest.mark.parametrize("seed", SEEDS)
def test_k_means_sites_are_clusters_and_half_of_them_are_not(seed):
    X, _ = data(n=1200)

    def spread(labels):
        return sum(((X[labels == s] - X[labels == s].mean(axis=0)) ** 2).sum() for s in np.unique(labels))

    iid, half, whole = (
        spread(f) / spread(np.zeros(len(X)))
        for f in (
            partition.iid(len(X), 6, seed=seed),
            partition.half_iid(X, 6, seed=seed),
            partition.by_kmeans(X, 6, seed=seed),
        )
    )
    assert whole < 0.2 < half < 0.8 < iid


@pytest.mark.parametrize("seed", SEEDS)
def test_by_distance_for_very_small_and_very_large_beta(seed):
    X, _ = data(n=2000)
    places = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 5.0]])
    nearest = ((X[:, None] - places) ** 2).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(partition.by_distance(X, places, 1e-12, seed=seed), nearest)
    shares = np.bincount(partition.by_distance(X, places, 1e6, seed=seed)) / len(X)
    np.testing.assert_allclose(shares, 1 / 3, atol=0.05)  # a row reaches every site, and one of them is drawn
    on_a_site = partition.by_distance(places, places, 1e-12, seed=seed)
    assert on_a_site.tolist() == [0, 1, 2]


def test_by_distance_follows_equation_2():
    X = np.zeros((20_000, 2))
    places = np.array([[1.0, 0.0], [4.0, 0.0]])
    p = 1 - np.exp(-0.5 / np.array([1.0, 4.0]))
    expected = p[0] * (1 - p[1]) + p[0] * p[1] / 2 + (1 - p[0]) * (1 - p[1])
    share = (partition.by_distance(X, places, 0.5, seed=1) == 0).mean()
    assert abs(share - expected) < 4 * np.sqrt(expected * (1 - expected) / len(X))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: partition.iid(3, 4, seed=0), r"3 rows cannot be divided over 4 sites\. Use 1 to 3 sites\."),
        (lambda: partition.sizes(5, [2, 2], seed=0), r"must be 5, the number of rows\. It is 4\."),
        (
            lambda: partition.power_law(10, 4, 1.0, min_rows=3, seed=0),
            "10 rows are not enough for 4 sites of at least 3 rows",
        ),
        (lambda: partition.dirichlet([0, 1], 2, 0.0, seed=0), r"alpha must be above 0\. It is 0\.0\."),
        (
            lambda: partition.dirichlet([0] * 4, 2, 1.0, min_rows=3, seed=0),
            "1000 draws gave no split of 4 rows with 3 rows at each of 2 sites",
        ),
        (lambda: partition.pathological([0, 1], 2, 3, seed=0), r"must be from 1 to 2, .* It is 3\."),
        (lambda: partition.pathological([0, 1, 2], 2, 1, seed=0), "2 sites of 1 labels cannot hold 3"),
        (lambda: partition.by_distance(np.zeros((2, 2)), np.zeros((2, 3)), 1, seed=0), "same columns"),
        (
            lambda: partition.by_distance(np.zeros((2, 2)), np.zeros((2, 2)), 0, seed=0),
            "beta must be above 0",
        ),
        (
            lambda: partition.split_rows(np.zeros((2, 1)), np.zeros(3, dtype=int)),
            "There are 2 rows and 3 site labels",
        ),
        (lambda: partition.natural_id([]), "ids must be one list"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_half_iid_with_given_halves():
    X = np.random.default_rng(0).standard_normal((60, 2))
    at_random, clustered = np.arange(0, 60, 2), np.arange(1, 60, 2)
    site = partition.half_iid(X, 5, seed=1, halves=(at_random, clustered))
    assert np.bincount(site[at_random]).tolist() == [6] * 5  # divided equally
    other = partition.half_iid(X, 5, seed=2, halves=(at_random, clustered))
    assert np.bincount(other[at_random]).tolist() == [6] * 5
    assert (site != other).any()
    with pytest.raises(InputError, match="each of the 60 rows must be in one of the halves, once"):
        partition.half_iid(X, 5, seed=1, halves=(at_random, at_random))
