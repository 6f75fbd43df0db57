"""Robust: what a fifth of the sites can do to it, and what it costs when all are honest."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.cluster import KMeans

from helpers import inertia_of
from unpooled import FederatedKMeans
from unpooled.algorithms import Lloyd, Robust
from unpooled.algorithms.robust import geometric_median
from unpooled.errors import InputError
from unpooled.federation import LocalFederation
from unpooled.protocol import run
from unpooled.protocol.consistency import ConsistencyCheck
from unpooled.protocol.questions.cluster_sums import ClusterSums, LocalMeans
from unpooled.site import Guard, Site


def test_the_geometric_median_by_hand():
    corners = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0]])
    np.testing.assert_allclose(geometric_median(corners, np.ones(4)), [1.0, 1.0])
    heavy = geometric_median(corners, np.array([10.0, 1.0, 1.0, 1.0]))
    np.testing.assert_allclose(heavy, [0.0, 0.0], atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_the_geometric_median_minimises_its_sum(seed):
    rng = np.random.default_rng(seed)
    points, weights = rng.normal(size=(9, 3)), rng.uniform(0.5, 2, 9)

    def cost(at):
        return weights @ np.linalg.norm(points - at, axis=1)

    found = geometric_median(points, weights)
    around = found + rng.normal(scale=0.01, size=(200, 3))
    assert all(cost(found) <= cost(at) for at in around)


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    """The checks of replies are off: the method has to stand alone, as against lies from the start."""
    monkeypatch.setattr(ConsistencyCheck, "check", lambda self, site, request, replies: None)
    monkeypatch.setattr(ClusterSums, "check", lambda self, question: None)


class Hostile(Site):
    """A site that lies in a way of its own."""

    def __init__(self, name, X, kind, seed):
        super().__init__(name, X, guards=[Guard()])
        self.kind, self.rng = kind, np.random.default_rng(seed)

    def answer(self, request):
        response = super().answer(request)
        lies = (self._lie(part, reply) for part, reply in zip(request.parts, response.replies, strict=True))
        return replace(response, replies=tuple(lies))

    def _lie(self, part, reply):
        if isinstance(reply, LocalMeans):
            far = 50 + 30 * self.rng.standard_normal(reply.means.shape)
            return LocalMeans(far, np.full(reply.counts.shape, 1e7))
        if not isinstance(reply, ClusterSums):
            return reply
        mass = reply.mass
        match self.kind:
            case "huge":  # all rows far away, and a thousand times as many
                mass = 1000 * mass + 1e5
                return replace(reply, mass=mass, sums=20.0 * mass[..., None] * np.ones_like(reply.sums))
            case "swap":  # every cluster where another one is, at no inertia
                centers = part.question.centers
                mass = np.full_like(mass, 1e6)
                moved = mass[..., None] * (centers[:, ::-1] - centers)
                return replace(reply, mass=mass, sums=moved, inertia=0 * reply.inertia)
            case "noise":
                return replace(
                    reply,
                    sums=reply.sums + 5 * (1 + mass[..., None]) * self.rng.standard_normal(reply.sums.shape),
                )
            case "shift":  # all rows one standard deviation off: no single reply is impossible
                return replace(reply, sums=reply.sums + mass[..., None])
        raise AssertionError(self.kind)


def federation(seed, kind, split, sites=20, k=6, d=4, spread=1.0):
    rng = np.random.default_rng(seed)
    middle, y = rng.uniform(-8, 8, (k, d)), rng.integers(k, size=4000)
    X = middle[y] + spread * rng.standard_normal((4000, d))
    where = rng.integers(sites, size=len(X))
    if split == "dirichlet":
        for j in range(k):
            where[y == j] = rng.choice(sites, size=(y == j).sum(), p=rng.dirichlet(np.ones(sites)))
    hostile = set(range(sites // 5)) if kind else set()
    made = [
        Hostile(f"s{i:02}", X[where == i], kind, i) if i in hostile else Site(f"s{i:02}", X[where == i])
        for i in range(sites)
    ]
    honest = X[~np.isin(where, list(hostile))]
    return LocalFederation(made), honest, tuple(f"s{i:02}" for i in sorted(hostile)), k


@pytest.mark.parametrize("kind", ["huge", "swap", "noise", "shift"])
@pytest.mark.parametrize(("split", "most"), [("iid", 1.02), ("dirichlet", 1.05)])
@pytest.mark.parametrize("seed", range(3))
def test_a_fifth_of_hostile_sites(seed, split, most, kind):
    sites, honest, hostile, k = federation(seed, kind, split)
    done = run(Robust(k=k), sites, seed=seed)
    best = KMeans(k, n_init=10, random_state=0).fit(honest).inertia_
    assert inertia_of(honest, done.state.centers) <= most * best
    if kind == "shift":  # a site with few rows may be off by so much by chance
        assert set(done.state.suspects) <= set(hostile)
    else:
        assert done.state.suspects == hostile


@pytest.mark.parametrize("split", ["iid", "dirichlet"])
def test_honest_sites_lose_next_to_nothing_and_none_is_a_suspect(split):
    for seed in range(3):
        sites, honest, _, k = federation(seed, "", split, spread=2.0)
        done = run(Robust(k=k), sites, seed=seed)
        best = KMeans(k, n_init=10, random_state=0).fit(honest).inertia_
        assert inertia_of(honest, done.state.centers) <= 1.01 * best
        assert done.state.suspects == ()


def test_plain_sums_are_ruined_by_the_same_sites():
    """The control: were these attacks harmless, the tests above would say nothing."""
    sites, honest, _, k = federation(0, "huge", "iid")
    start = KMeans(k, n_init=10, random_state=0).fit(honest)
    done = run(Lloyd(k=k, init=start.cluster_centers_), sites, seed=0)
    assert inertia_of(honest, done.state.centers) > 10 * start.inertia_


def test_bad_settings():
    with pytest.raises(InputError, match="needs at least 3 sites to tell which one is wrong, got 2"):
        FederatedKMeans(2, method=Robust()).fit(np.eye(8), sites=["a", "b"] * 4)
    with pytest.raises(InputError, match="weight_cap must be above 0"):
        Robust(k=2, weight_cap=0)
