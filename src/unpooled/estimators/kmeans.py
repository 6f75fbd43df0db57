"""``FederatedKMeans(...).fit(X, sites=...)``."""

import warnings
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from unpooled import kernels
from unpooled.algorithms import METHODS, Restarts
from unpooled.algorithms.polish import Polish, check_polish
from unpooled.algorithms.scaled import Scaled
from unpooled.data import validation as inputs
from unpooled.errors import InputError
from unpooled.estimators.federated_estimator import FederatedClusterer, RandomState
from unpooled.privacy import Gaussian
from unpooled.privacy.secure_sum import SecureSums
from unpooled.protocol.algorithm import Algorithm, Steps, total
from unpooled.protocol.messages import SiteId
from unpooled.protocol.questions.cluster_sums import AskClusterSums
from unpooled.typing import FloatArray

if TYPE_CHECKING:
    from unpooled.privacy.microaggregation import SummarySettings

_SETTINGS = ("init", "max_rounds", "tol", "participation", "min_cluster_size")  # of every method


class FederatedKMeans(FederatedClusterer):
    """K-means over sites that keep their rows.

    Parameters
    ----------
    n_clusters : int
        k, the number of clusters.
    method : str or Algorithm
        "lloyd" (exact, the default), "dwf", "ewf", "fkm", "k-fed", "mini-batch", "robust", "dual", the name
        of a method of your own, or an object such as ``DWF(momentum=0.8)``. In the settings that follow None
        keeps the method's own value, and any other value replaces it.
    init : None, {"adaptive", "k-fed", "random"} or array (k, d)
        The starting centres; "adaptive" needs only totals and does not depend on the split.
    n_init : None or int
        Restarts, all in the same exchanges; the lowest federated inertia wins. None: the method's own number,
        or 10 if it has none. 1 for a given ``init`` array.
    max_rounds, tol : None, int and float
        Stop after ``max_rounds`` rounds, or when the squared movement is below ``tol`` times the mean
        variance.
    participation : None, float or int
        Share of the sites (float), or number of sites (int), that takes part in a round: 1.0 is all of them.
    protect : None, "summary", SummarySettings or "raw"
        The data from which simulated sites answer. None: their rows, which equals pooling. "summary": a
        summary table (microaggregation) of groups of at least 5 people, as real sites do by default;
        ``labels_`` and ``inertia_`` are still of the rows. "raw": their rows, except clusters of fewer rows
        than ``min_cluster_size``.
    min_cluster_size : None or int
        With protect="raw": the size of the smallest cluster that a site discloses; None is 5.
    scale : None or "standard"
        Standardise the columns over all sites, by two totals.
    random_state : int, RandomState or None
    n_threads : int or None
        Threads for simulated sites; None takes all cores.
    secure : bool or SecureSums
        Secure aggregation: the coordinator receives only sums over sites, never a site's own numbers, so none
        are suppressed, and a minimum counts the rows of all sites together. It needs at least three sites,
        and a method that needs only totals; ``SecureSums`` sets the fewest sites. With protect="raw" the
        sites answer from groups of at least 5 rows, and ``polish`` reads the rows.
    polish : int
        With protect="raw" and secure: the number of exact rounds on rows at the end.
    dp : Gaussian or None
        Differential privacy, e.g. ``Gaussian(epsilon=1, lower=0, upper=100)``: every total carries noise. The
        method is then Private, which finds its own start and number of rounds: n_init, max_rounds, tol and
        min_cluster_size are ignored. With dp, ``scale`` may also be "bounds": all bounds equally wide.

    Attributes
    ----------
    cluster_centers_ : array (k, d), in the columns' own units
    labels_ : array (n,), after ``fit``; ``fit_federation`` never sees rows and has none
    inertia_ : float, in scaled columns if ``scale`` is given; with dp an estimate from released numbers
    epsilon_, delta_, forecast_, cluster_sizes_ : with dp: the spent budget, the forecast, noisy sizes
    n_rounds_ : int, the rounds of the method; a warning if the centres had not come to rest by then
    n_iter_ : the same under scikit-learn's name
    history_ : tuple of RoundRecord, one per round: movement, inertia, the sites that answered, what they sent
    run_ : the whole Run
    algorithm_ : the algorithm that was run
    lower_bound_, gap_, bound_condition_ : of ``Dual`` alone: a lower bound on the inertia of any k centres,
        the relative distance of the inertia from it (1 - lower_bound_ / inertia_), and when the bound holds

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, 2.0], [1.0, 4.0], [1.0, 0.0], [10.0, 2.0], [10.0, 4.0], [10.0, 0.0]])
    >>> model = FederatedKMeans(n_clusters=2, random_state=0)
    >>> model = model.fit(X, sites=["a", "a", "b", "b", "c", "c"])
    >>> sorted(model.cluster_centers_.tolist())
    [[1.0, 2.0], [10.0, 2.0]]
    >>> model.inertia_
    16.0
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        method: str | Algorithm[Any] = "lloyd",
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
        polish: int = 1,
        dp: Gaussian | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.method = method
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
        self.polish = polish
        self.dp = dp

    # ------------------------------------------------------------ the algorithm

    def _algorithm(self) -> Algorithm[Any]:
        self._check_settings()
        if self.dp is not None:
            if self.method != "lloyd":
                raise InputError(f"dp has a method of its own. Leave method unset, got {self.method!r}")
            return self._private(**self._explicit_settings(("init", "participation")))
        settings = self._explicit_settings(_SETTINGS)
        k = int(self.n_clusters)
        if isinstance(self.method, str):
            _refuse_fuzzy(self.method == "fuzzy")
            if self.method not in METHODS:
                names = ", ".join(name for name in METHODS if name != "fuzzy")
                raise InputError(f"method must be one of {names}, got {self.method!r}")
            algorithm: Algorithm[Any] = METHODS[self.method](k=k, **settings)
        else:
            if not isinstance(self.method, Algorithm):
                raise InputError(f"method must be a name or an algorithm, got {self.method!r}")
            _refuse_fuzzy(self.method.innermost.fuzzifier is not None)
            algorithm = _adjusted(self.method, k, settings)
        n_init = 1 if isinstance(settings.get("init"), np.ndarray) else self.n_init
        algorithm = algorithm.with_restarts(None if n_init is None else int(n_init))
        check_polish(self.polish)
        algorithm = Polish(algorithm, int(self.polish)) if self._groups_rows and self.polish else algorithm
        return Scaled(algorithm) if self.scale == "standard" else algorithm

    # ------------------------------------------------------------ the score

    def _scored(self, sites: tuple[SiteId, ...], centers: FloatArray) -> Steps[tuple[float, float]]:
        # down: the centres; up: their inertia, and the number of its rows: sites suppress small clusters
        sums = yield from total(sites, AskClusterSums(centers[None]))
        return float(sums.inertia.sum()), float(sums.mass.sum())

    def _keep_score(self, score: float, mass: float) -> None:
        self.inertia_, self._disclosed_mass = score, mass

    def _keep_private_score(self, score: float) -> None:
        self.inertia_ = score

    def _warn_of_suppressed_rows(self, site_rows: inputs.SiteRows, sqdist: dict[str, FloatArray]) -> None:
        """Warn of the rows, and the share of the inertia, that real sites would suppress."""
        weights = site_rows.weights
        inertia = sum(float(d.sum() if weights is None else weights[s] @ d) for s, d in sqdist.items())
        share_of_rows = 1 - self._disclosed_mass / site_rows.mass
        share_of_inertia = 1 - self.inertia_ / max(inertia, 1e-300)
        if max(share_of_rows, share_of_inertia) > 0.05:
            warnings.warn(
                f"min_cluster_size={self.min_cluster_size} suppressed {share_of_rows:.1%} of the rows, with "
                f"{max(share_of_inertia, 0):.1%} of the inertia: at their site they lie in smaller clusters",
                stacklevel=3,
            )

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return minus the inertia of X."""
        rows = self._checked(X)
        distances = kernels.nearest(self._transformed(rows), self._scaled_centers).sqdist
        if sample_weight is not None:
            distances = distances * inputs.check_weights(sample_weight, len(rows), "X")
        return -float(distances.sum())


def _refuse_fuzzy(fuzzy: bool) -> None:
    if fuzzy:
        raise InputError("fuzzy clusterings have memberships. Use FederatedFuzzyCMeans(n_clusters, m=...)")


def _adjusted(method: Algorithm[Any], k: int, settings: dict[str, Any]) -> Algorithm[Any]:
    """The user's algorithm with k and the settings of the estimator filled in."""
    if isinstance(method, Restarts):
        return replace(method, inner=_adjusted(method.inner, k, settings))
    known = {f.name for f in fields(method)} if is_dataclass(method) else set[str]()
    if method.k not in (None, k):
        raise InputError(f"n_clusters={k}, but the method has k={method.k}")
    unknown = sorted(set(settings) - known)
    if unknown:
        raise InputError(f"{type(method).__name__} has no {', '.join(unknown)}. Leave it None")
    changes = {**settings, "k": k} if "k" in known else settings
    return replace(method, **changes) if is_dataclass(method) else method
