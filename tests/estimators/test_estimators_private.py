"""The estimators with dp: what they hold afterwards, what they refuse, what never leaves."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.preprocessing import StandardScaler

from unpooled import FederatedFuzzyCMeans, FederatedKMeans
from unpooled.errors import ForecastRefusedError, InputError, QueryRefusedError, TooFewAnswersError
from unpooled.federation import LocalFederation
from unpooled.privacy import Gaussian, PrivateQuestion, PrivateQuestionLimits
from unpooled.privacy.dp.noise import BudgetAccountant
from unpooled.site import Guard, Site

X, _ = make_blobs(9000, 5, centers=4, random_state=2)
SITES = np.arange(len(X)) % 3
DP = Gaussian(1.0, lower=-15, upper=15)


def test_kmeans_holds_what_was_spent_and_expected():
    model = FederatedKMeans(4, dp=DP, random_state=0).fit(X, sites=SITES)
    best = KMeans(4, n_init=10, random_state=0).fit(X).inertia_
    assert -model.score(X) / best < 1.01
    assert model.inertia_ / best == pytest.approx(1, rel=0.3)  # from releases, with noise
    assert model.epsilon_ == pytest.approx(1.0, rel=1e-6)
    assert model.epsilon_ <= 1.0 + 1e-9
    assert model.delta_ == 1e-6
    assert model.forecast_.excess < 0.01
    assert model.cluster_sizes_.sum() == pytest.approx(9000, rel=0.1)
    assert model.labels_.shape == (9000,)
    assert np.array_equal(model.predict(X), model.labels_)


@pytest.mark.parametrize("scale", ["standard", "bounds"])
def test_scaling_keeps_units_apart(scale):
    wide = X * [1, 10, 100, 1, 1]
    dp = Gaussian(1.0, lower=[-15, -150, -1500, -15, -15], upper=[15, 150, 1500, 15, 15])
    model = FederatedKMeans(4, dp=dp, scale=scale, random_state=0).fit(wide, sites=SITES)
    one = StandardScaler().fit(wide)
    best = KMeans(4, n_init=10, random_state=0).fit(one.transform(wide)).inertia_
    found = ((one.transform(wide) - one.transform(model.cluster_centers_)[model.labels_]) ** 2).sum()
    # the worst was 1.0033 of 200 runs by bounds, and 1.023 of 250 by noisy scales
    assert found / best < (1.05 if scale == "standard" else 1.01)
    assert model.transform(wide[:5]).argmin(axis=1).tolist() == model.labels_[:5].tolist()


@pytest.mark.parametrize("m", [1.5, 2.0])
def test_fuzzy(m):
    model = FederatedFuzzyCMeans(4, m=m, dp=DP, random_state=0).fit(X, sites=SITES)
    exact = FederatedFuzzyCMeans(4, m=m, random_state=0).fit(X, sites=SITES)
    assert model.score(X) / exact.score(X) < 1.01
    assert model.objective_ / exact.objective_ == pytest.approx(1, rel=0.3)
    assert model.epsilon_ == pytest.approx(1.0, rel=1e-6)
    assert model.predict_proba(X[:3]).sum(axis=1) == pytest.approx(np.ones(3))


def test_a_checkpoint_pays_once(tmp_path):
    model = FederatedKMeans(4, dp=DP, random_state=3)
    first = clone(model).fit(X, sites=SITES, checkpoint=tmp_path / "run")
    again = clone(model).fit(X, sites=SITES, checkpoint=tmp_path / "run")
    assert np.array_equal(first.cluster_centers_, again.cluster_centers_)


def test_clones():
    model = clone(FederatedKMeans(4, dp=DP))
    assert model.dp.epsilon == 1.0


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"dp": 1.0}, "dp must be None or unpooled.privacy.Gaussian"),
        ({"dp": Gaussian(lower=[0, 0], upper=1)}, "bounds for 2 columns, X has 5"),
        ({"dp": DP, "method": "dwf"}, "dp has a method of its own"),
        ({"dp": DP, "init": X[:4]}, "init cannot be used"),
        ({"dp": DP, "participation": 0.5}, "participation must be 1.0"),
        ({"dp": DP, "scale": "robust"}, "scale"),
        ({"scale": "bounds"}, "scale"),
    ],
)
def test_what_is_refused(settings, says):
    with pytest.raises(InputError, match=says):
        FederatedKMeans(4, **settings).fit(X)


def test_weights_are_refused():
    with pytest.raises(InputError, match="sample_weight cannot be used with dp"):
        FederatedKMeans(4, dp=DP).fit(X, sample_weight=np.ones(len(X)))


def test_a_forecast_warns_before_and_refuses():
    with pytest.raises(ForecastRefusedError, match="clusters of 9,000 rows: n mu"):
        FederatedKMeans(40, dp=Gaussian(0.1, lower=-15, upper=15, rows=9000)).fit(X)
    seen = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        FederatedKMeans(4, dp=Gaussian(0.1, lower=-15, upper=15, rows=9000)).fit(
            X, progress=lambda record: seen.append(len(caught))
        )
    assert seen[0] == 1  # before the first release
    assert "noise may obscure or shift some clusters" in str(caught[0].message)
    assert caught[0].filename == __file__


class Charges(Guard):
    """A guard as a site has it: nothing without noise, nothing beyond the budget."""

    def __init__(self, left):
        self.left = left

    def check(self, exchange):
        for question in (asked.part.question for asked in exchange.parts):
            if not isinstance(question, PrivateQuestion):
                raise QueryRefusedError("answered without noise")
            question.check(PrivateQuestionLimits(self.left))

    def accountant(self, request):
        return Paying(self)


class Paying(BudgetAccountant):
    def __init__(self, guard):
        self.guard = guard

    def _charge(self, price):
        self.guard.left -= price


def guarded(left):
    guards = [Charges(left) for _ in range(3)]
    return LocalFederation(
        [Site(f"s{i}", X[i == SITES], guards=[g], accountant=g.accountant) for i, g in enumerate(guards)]
    )


def test_a_site_that_charges_lets_one_budget_through():
    federation = guarded(DP.mu**2)
    model = FederatedKMeans(4, dp=DP, random_state=0).fit_federation(federation)
    assert -model.score(X) / KMeans(4, n_init=10, random_state=0).fit(X).inertia_ < 1.01
    with pytest.raises(TooFewAnswersError, match="privacy budget: the query costs"):
        FederatedKMeans(4, dp=DP, random_state=0).fit_federation(federation)
    with pytest.raises(TooFewAnswersError, match="answered without noise"):
        FederatedKMeans(4).fit_federation(guarded(1.0))


def test_under_secure_sums_the_sites_make_up_one_noise():
    """Three sites, all of them needed: each adds a third of the variance."""
    own = FederatedKMeans(4, dp=DP).fit(X, sites=SITES)
    shared = FederatedKMeans(4, dp=DP, secure=True).fit(X, sites=SITES)
    assert own.run_.state.noises == 3
    assert shared.run_.state.noises == pytest.approx(1.0)
    assert shared.epsilon_ == pytest.approx(own.epsilon_)
