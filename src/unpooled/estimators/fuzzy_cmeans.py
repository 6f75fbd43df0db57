"""``FederatedFuzzyCMeans(...).fit(X, sites=...)``."""

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from unpooled import kernels
from unpooled.algorithms import Fuzzy
from unpooled.algorithms.restarts import DEFAULT_RESTARTS
from unpooled.algorithms.scaled import Scaled
from unpooled.data import validation as inputs
from unpooled.errors import InputError
from unpooled.estimators.federated_estimator import FederatedClusterer, RandomState
from unpooled.evaluation.coincident_centers import Coincidence, coinciding
from unpooled.privacy import Gaussian
from unpooled.privacy.secure_sum import SecureSums
from unpooled.protocol.algorithm import Algorithm, Steps, total
from unpooled.protocol.messages import SiteId
from unpooled.protocol.questions.fuzzy_sums import AskFuzzySums, check_m
from unpooled.typing import FloatArray

if TYPE_CHECKING:
    from unpooled.privacy.microaggregation import SummarySettings


class FederatedFuzzyCMeans(FederatedClusterer):
    """Fuzzy c-means over sites that keep their rows: every row belongs to every cluster to some degree.

    Parameters
    ----------
    n_clusters : int
        k, the number of clusters.
    m : float
        The fuzzifier, above 1. Near 1 memberships are almost 0 or 1, as in k-means; the larger, the softer.
        With many columns m = 2 is often too large: all centres then coincide, and a warning names an m that
        avoids it.
    merge : {"avg1", "avg2"}
        "avg1" needs only totals and, with the other defaults, equals pooling; "avg2" clusters all sites'
        own centres, which the coordinator then receives.
    local_steps : int or "converge"
        Steps that a site takes in a round.
    weights : {"sum(u^m)", "sum(u)"}
        The weight of a site's centre in "avg1".
    init : None, {"adaptive", "k-fed", "random", "unit"} or array (k, d)
        The starting centres; "unit" is the paper's rand[0, 1)^d. None, here and in the parameters below, is
        the method's own setting (see Fuzzy).
    n_init : None or int
        Restarts, all in the same exchanges; the lowest objective wins. 1 for a given ``init`` array.
    max_rounds, tol : None, int and float
        Stop after ``max_rounds`` rounds, or when the movement of the centres, summed over clusters, is below
        ``tol`` times the root of the columns' mean variance.
    participation, protect, min_cluster_size, scale, random_state, n_threads, secure, dp
        As in FederatedKMeans. The size of a cluster is its effective number of rows,
        (sum u^m)^2 / sum u^(2 m).

    Attributes
    ----------
    cluster_centers_ : array (k, d), in the columns' own units
    labels_ : array (n,), the cluster of largest membership; only after ``fit``
    objective_ : float, J_m: squared distances weighted by u^m, in scaled columns if ``scale`` is given
    coincidence_ : None, or the centres that coincide and the setting that would separate them
    n_rounds_, n_iter_, history_, run_, algorithm_ : as in FederatedKMeans

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0], [1.2], [0.8], [5.0], [9.0], [9.2], [8.8]])
    >>> model = FederatedFuzzyCMeans(n_clusters=2, random_state=0)
    >>> model = model.fit(X, sites=["a", "a", "b", "b", "c", "c", "c"])
    >>> np.sort(model.predict_proba([[5.0], [1.0]]).max(axis=1)).round(1)
    array([0.5, 1. ])
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        m: float = 2.0,
        merge: str = "avg1",
        local_steps: int | str = 1,
        weights: str = "sum(u^m)",
        init: str | npt.ArrayLike | None = None,
        n_init: int | None = None,
        max_rounds: int | None = None,
        tol: float | None = None,
        participation: float | None = None,
        protect: "str | SummarySettings | None" = None,
        min_cluster_size: int | None = None,
        scale: str | None = None,
        random_state: RandomState = None,
        n_threads: int | None = None,
        secure: bool | SecureSums = False,
        dp: Gaussian | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.m = m
        self.merge = merge
        self.local_steps = local_steps
        self.weights = weights
        self.init = init
        self.n_init = n_init
        self.max_rounds = max_rounds
        self.tol = tol
        self.participation = participation
        self.protect = protect
        self.min_cluster_size = min_cluster_size
        self.scale = scale
        self.random_state = random_state
        self.n_threads = n_threads
        self.secure = secure
        self.dp = dp

    # ------------------------------------------------------------ the algorithm

    def _algorithm(self) -> Algorithm[Any]:
        self._check_settings()
        check_m(self.m, "FederatedFuzzyCMeans")
        if self.dp is not None:
            if self.merge != "avg1" or self.local_steps != 1:
                raise InputError("dp supports only the default merge and local_steps. Leave both unset")
            return self._private(m=float(self.m), **self._explicit_settings(("init", "participation")))
        settings = self._explicit_settings(("init", "max_rounds", "tol", "participation", "min_cluster_size"))
        init = settings.get("init", "adaptive")
        if isinstance(init, str) and init not in ("adaptive", "k-fed", "random", "unit"):
            raise InputError(f"init must be adaptive, k-fed, random, unit or centres, got {init!r}")
        unit = isinstance(init, str) and init == "unit"
        if unit:
            settings["init"] = "random"
        restarts = DEFAULT_RESTARTS if self.n_init is None else int(self.n_init)
        restarts = 1 if isinstance(init, np.ndarray) else restarts
        method = Fuzzy(
            k=int(self.n_clusters),
            m=float(self.m),
            merge=self.merge,  # type: ignore[arg-type]
            local_steps=self.local_steps,
            weights=self.weights,  # type: ignore[arg-type]
            unit_start=unit,
            **settings,
        )
        algorithm = method.with_restarts(restarts)
        return Scaled(algorithm) if self.scale == "standard" else algorithm

    # ------------------------------------------------------------ the score

    def _scored(self, sites: tuple[SiteId, ...], centers: FloatArray) -> Steps[tuple[float, float]]:
        # down: the centres; up: J_m and weights
        sums = yield from total(sites, AskFuzzySums(centers[None], float(self.m)))
        self.coincidence_: Coincidence | None = yield from coinciding(sites, centers, float(self.m), sums)
        return float(sums.inertia.sum()), float(sums.rows.sum())

    def _keep_score(self, score: float, mass: float) -> None:
        self.objective_, self._disclosed_mass = score, mass
        if self.coincidence_ is not None:
            warnings.warn(str(self.coincidence_), stacklevel=4)

    def _keep_private_score(self, score: float) -> None:
        self.objective_, self.coincidence_ = score, None

    def _warn_of_suppressed_rows(self, site_rows: inputs.SiteRows, sqdist: dict[str, FloatArray]) -> None:
        suppressed = 1 - self._disclosed_mass / site_rows.mass
        if suppressed > 0.05:
            warnings.warn(
                f"min_cluster_size={self.min_cluster_size} suppressed {suppressed:.1%} of the memberships: "
                "at their site they belong to smaller clusters",
                stacklevel=3,
            )

    # ------------------------------------------------------------ using the model

    def predict_proba(self, X: Any) -> FloatArray:
        """Return memberships: (n, d) -> (n, k); each row sums to 1."""
        rows = self._transformed(self._checked(X))
        return kernels.memberships(rows, self._scaled_centers, float(self.m), threads=self.n_threads or 1)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return minus the objective J_m of X."""
        rows = self._checked(X)
        weights = None if sample_weight is None else inputs.check_weights(sample_weight, len(rows), "X")
        centers, m = self._scaled_centers[None], float(self.m)
        totals = kernels.fuzzy(self._transformed(rows), [0, len(rows)], centers, m, weights)
        return -float(totals.inertia.sum())
