"""The papers' data sets, and images from local files."""

import numpy as np
import pytest

from unpooled.data.examples import images, synthetic
from unpooled.errors import InputError


def test_holzers_set_is_the_one_in_the_paper():
    X, y = synthetic.holzer()
    assert X.shape == (10_100, 2)
    assert np.bincount(y).tolist() == [2000] * 5 + [100]
    assert np.abs(X[y == 5]).max() <= 1
    # the first outlier: Python's generator, seeded with 1
    np.testing.assert_allclose(X[10_000], [2 * 0.13436424411240122 - 1, 2 * 0.8474337369372327 - 1])
    again, _ = synthetic.holzer()
    np.testing.assert_array_equal(X, again)


@pytest.mark.parametrize("seed", range(3))
def test_garsts_grid(seed):
    grid = synthetic.garst(0.1, noise=1.5, per_cluster=200, seed=seed)
    assert grid.X.shape == (3200, 2)
    assert np.bincount(grid.y).tolist() == [200] * 16
    means = np.array([grid.X[grid.y == j].mean(axis=0) for j in range(16)])
    assert np.abs(means - synthetic.GRID).max() < 5 * 1.5 / np.sqrt(200)
    assert abs((grid.X - synthetic.GRID[grid.y]).std() - 1.5) < 0.05
    spread = synthetic.garst(10.0, noise=1.5, per_cluster=200, seed=seed)

    def commonest_four(d):
        """The share of a site's rows that are of its four commonest clusters; 1/4 where all are alike."""
        counts = [np.sort(np.bincount(d.y[d.site == s], minlength=16)) for s in np.unique(d.site)]
        return np.mean([c[-4:].sum() / c.sum() for c in counts])

    assert (
        commonest_four(grid) > 0.5 > 0.4 > commonest_four(spread)
    )  # small beta: a site has its surroundings
    variable = synthetic.garst_variable(seed=seed)
    held = [len(np.unique(variable.y[variable.site == s])) for s in range(5)]
    assert held == list(synthetic.CLUSTERS_AT_SITES)


def test_triebes_sites_have_one_cluster_each():
    data = synthetic.triebe(seed=1)
    assert data.X.shape == (500, 1)
    assert {len(set(data.y[data.site == s].tolist())) for s in range(50)} == {1}
    assert np.bincount(data.y).tolist() == [100] * 5
    assert abs((data.X[:, 0] - 1 - data.y).std() - 0.2) < 0.02
    with pytest.raises(
        InputError, match=r"5 clusters cannot share 51 sites equally\. Use a multiple of 5 sites\."
    ):
        synthetic.triebe(sites=51, seed=0)


def test_stallmanns_cases():
    one = synthetic.stallmann_1(seed=0)
    np.testing.assert_array_equal(one.X[one.site == 0], one.X[one.site == 1])
    assert [np.bincount(one.y[one.site == s], minlength=3).tolist() for s in range(3)] == [
        [333, 333, 333],
        [333, 333, 333],
        [500, 500, 0],
    ]
    two = synthetic.stallmann_2(seed=0)
    assert np.bincount(two.y).tolist() == [950, 950, 100]
    three = synthetic.stallmann_3((100, 1000, 200), seed=0)
    assert [np.bincount(three.y[three.site == s], minlength=4).tolist() for s in range(3)] == [
        [50, 50, 0, 0],
        [0, 500, 500, 0],
        [0, 0, 100, 100],
    ]
    with pytest.raises(InputError, match=r"points must be 3 numbers, one for each client\. It has 2\."):
        synthetic.stallmann_3((1, 2), seed=0)


def test_g2_as_it_is_defined():
    X = synthetic.g2(8, 30, seed=0)
    assert X.shape == (2048, 8)
    np.testing.assert_array_equal(X, np.rint(X))
    np.testing.assert_allclose([X[:1024].mean(), X[1024:].mean()], [500, 600], atol=2)
    assert abs(X[:1024].std() - 30) < 1
    assert len(list(synthetic.g2_all())) == 100


def test_g2_is_truncated_and_not_rounded():
    """As in the published files: means are half a unit below 500 and 600."""
    X = synthetic.g2(1024, 10, seed=1)  # a million numbers a cluster: their mean is known to 0.01
    np.testing.assert_allclose([X[:1024].mean(), X[1024:].mean()], [499.5, 599.5], atol=0.05)


def some(n=6):
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (n, 784)).astype(np.uint8), np.arange(n)


def test_images_from_files(tmp_path):
    X, y = some()
    np.savez(tmp_path / "femnist.npz", X=X, y=y, client=y % 2)
    data = images.load_femnist(tmp_path / "femnist.npz")
    np.testing.assert_array_equal(data.pixels, X)
    assert data.owner.tolist() == [0, 1] * 3
    assert data.rows().dtype == np.float32
    np.testing.assert_allclose(data.rows(np.float64), X / 255)
    np.savez(tmp_path / "keras.npz", x_train=X.reshape(-1, 28, 28), y_train=y)
    keras = images.load_mnist(tmp_path / "keras.npz")
    np.testing.assert_array_equal(keras.pixels, X)
    assert keras.owner is None


def test_files_without_images(tmp_path):
    X, y = some()
    with pytest.raises(InputError, match="there is no such file"):
        images.load_mnist(tmp_path / "none.npz")
    np.savez(tmp_path / "short.npz", X=X)
    with pytest.raises(InputError, match=r"has no array y, but X\. Name the pixels X and the labels y\."):
        images.read_images(tmp_path / "short.npz")
    np.savez(tmp_path / "unlike.npz", X=X, y=y[:3])
    with pytest.raises(InputError, match=r"pixels of shape \(6, 784\) do not fit 3 labels"):
        images.read_images(tmp_path / "unlike.npz")
    np.savez(tmp_path / "scaled.npz", X=X * 2.0, y=y)
    with pytest.raises(InputError, match=r"pixels are from 0\.0 to 5\d\d\.0\. Scale them to 0 to 255\."):
        images.read_images(tmp_path / "scaled.npz")
    (tmp_path / "text.npz").write_text("no arrays")
    with pytest.raises(InputError, match=r"is not an \.npz file of arrays\. Save"):
        images.read_images(tmp_path / "text.npz")
