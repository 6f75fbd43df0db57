"""Private clustering through the door of sites that ask for it in their policies."""

from contextlib import contextmanager

import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs

from unpooled import FederatedFuzzyCMeans, FederatedKMeans, Gaussian, InProcess
from unpooled.errors import TooFewAnswers
from unpooled.privacy.accounting import epsilon_of
from unpooled.site.opening import open_site
from unpooled.site.policy import parse

X, _ = make_blobs(9000, 5, centers=4, random_state=2)
POLICY = """
version = 1
[site]
id = "a"
[domain]
columns = ["a", "b", "c", "d", "e"]
lower = [-15, -15, -15, -15, -15]
upper = [15, 15, 15, 15, 15]
[dp]
epsilon_total = 1.0
"""


@contextmanager
def opened(folder):
    """Three sites, each with its policy, its ledger and its log, as after a restart."""
    sites = []
    for i in range(3):
        (folder / f"s{i}").mkdir(exist_ok=True)
        policy = parse(POLICY.replace('"a"\n[domain]', f'"s{i}"\n[domain]'), "policy.toml")
        sites.append(open_site(f"s{i}", X[i::3], policy, folder=folder / f"s{i}"))
    yield InProcess(sites)
    for site in sites:
        site.close()


def fitted(model, folder):
    with opened(folder) as federation:
        return model.fit_federation(federation)


def refused(model, folder, says):
    with opened(folder) as federation, pytest.raises(TooFewAnswers, match=says):
        model.fit_federation(federation)


@pytest.mark.parametrize("scale", [None, "standard"])
def test_a_budget_lasts_for_one_run_and_survives_a_restart(tmp_path, scale):
    dp = Gaussian(1.0, lower=-15, upper=15)
    model = fitted(FederatedKMeans(4, dp=dp, scale=scale, random_state=0), tmp_path)
    best = KMeans(4, n_init=10, random_state=0).fit(X).inertia_
    own = ((X - model.cluster_centers_[model.predict(X)]) ** 2).sum()
    assert own / best < 1.02
    refused(FederatedKMeans(4, dp=Gaussian(0.1, lower=-15, upper=15)), tmp_path, "privacy budget")


def test_two_half_budgets_are_added_as_they_compose(tmp_path):
    """Two runs of epsilon 0.6 cost less than 1.2 together: mu^2 adds, not epsilon."""
    dp = Gaussian(0.6, lower=-15, upper=15)
    assert epsilon_of((2 * dp.mu**2) ** 0.5, 1e-6) < 1.0
    fitted(FederatedKMeans(4, dp=dp, random_state=0), tmp_path)
    fitted(FederatedFuzzyCMeans(4, m=1.5, dp=dp, random_state=0), tmp_path)
    refused(FederatedKMeans(4, dp=dp, random_state=0), tmp_path, "privacy budget")


def test_nothing_without_noise_passes(tmp_path):
    refused(FederatedKMeans(4, random_state=0), tmp_path, "the policy asks for differential privacy")
