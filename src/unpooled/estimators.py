"""The scikit-learn face: ``FederatedKMeans(...).fit(X, sites=...)``."""

import secrets
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from unpooled import inputs, kernels
from unpooled.algorithms import METHODS, BestOf, Lloyd
from unpooled.codec import FloatArray
from unpooled.errors import BadInput
from unpooled.metrics import inertia
from unpooled.preparing import Affine, Scaled, ScaledState
from unpooled.protocol import Algorithm, Federation, conduct, viewed
from unpooled.running import Record, Run, run
from unpooled.runtimes import InProcess

_DEFAULTS: dict[str, Any] = {
    "init": "adaptive",
    "max_rounds": 300,
    "tol": 1e-4,
    "participation": 1.0,
    "min_cluster_size": 1,
}


class FederatedKMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """K-means over sites that keep their rows.

    Parameters
    ----------
    n_clusters : int
        k, the number of clusters.
    method : str or Algorithm
        "lloyd" (exact, the default), "dwf", "ewf", "fkm", "k-fed", "mini-batch", or an algorithm object such
        as ``Dwf(momentum=0.8)``. An object keeps its own settings but for those that are given here with
        another value than their default.
    init : {"adaptive", "k-fed", "random"} or array (k, d)
        Where the centres start; "adaptive" needs only totals and does not depend on the split.
    n_init : int
        Restarts, all in the same exchanges; the lowest federated inertia wins. 1 for a given ``init`` array.
    max_rounds, tol :
        Stop after so many rounds, or when the squared movement is below ``tol`` times the mean variance.
    participation : float or int
        Share of the sites, or number of sites, that takes part in a round.
    min_cluster_size : int
        The smallest cluster a site shows. 1 hides nothing and equals pooling; real sites start from 5.
    scale : None or "standard"
        Standardise the columns over all sites, by two totals.
    random_state : int, RandomState or None
    quorum : float
        Share of the asked sites that must answer.
    checkpoint : path or None
        Write the state there after every round, and go on from it if it exists.
    progress : callable or None
        Called with every round's Record.
    n_threads : int or None
        Threads for simulated sites; None takes all cores.

    Attributes
    ----------
    cluster_centers_ : array (k, d), in the columns' own units
    labels_ : array (n,), after ``fit``; ``fit_federation`` never sees rows and has none
    inertia_ : float, in scaled columns if ``scale`` is given
    n_rounds_ : int
    history_ : tuple of Record, one per round: movement, inertia, who answered, what left each site
    run_ : the whole Run
    algorithm_ : what was run

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
        method: Any = "lloyd",
        init: Any = "adaptive",
        n_init: int = 10,
        max_rounds: int = 300,
        tol: float = 1e-4,
        participation: float = 1.0,
        min_cluster_size: int = 1,
        scale: str | None = None,
        random_state: Any = None,
        quorum: float = 0.5,
        checkpoint: str | Path | None = None,
        progress: Callable[[Record], None] | None = None,
        n_threads: int | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.method = method
        self.init = init
        self.n_init = n_init
        self.max_rounds = max_rounds
        self.tol = tol
        self.participation = participation
        self.min_cluster_size = min_cluster_size
        self.scale = scale
        self.random_state = random_state
        self.quorum = quorum
        self.checkpoint = checkpoint
        self.progress = progress
        self.n_threads = n_threads

    # ------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any = None, *, sites: Any = None, sample_weight: Any = None) -> Self:
        """Simulate sites in this process: X (n, d) with a site label per row, or one table per site."""
        algorithm = self._algorithm()
        given = self._rows_by_site(X, sites, sample_weight)
        inputs.check_enough(given.rows, given.weights, int(self.n_clusters))
        federation = InProcess.of(
            given.rows, given.weights, min_cluster_size=int(self.min_cluster_size), threads=self.n_threads
        )
        self._run(algorithm, federation)
        parts = [self._nearest(given.rows[name]) for name in federation.sites]
        self.labels_ = given.restored(np.concatenate(parts))
        return self

    def fit_federation(self, federation: Federation) -> Self:
        """Cluster the rows of a federation's sites, wherever they are; no row is seen here."""
        self._run(self._algorithm(), federation)
        self.n_features_in_ = self.cluster_centers_.shape[1]
        return self

    def _run(self, algorithm: Any, federation: Federation) -> None:
        seed = self._seed()
        done: Run[Any] = run(
            algorithm,
            federation,
            seed=seed,
            checkpoint=self.checkpoint,
            quorum=self.quorum,
            progress=self.progress,
        )
        state = done.state
        self.view_: Affine | None = state.view if isinstance(state, ScaledState) else None
        scaled: FloatArray = state.inner.centers if isinstance(state, ScaledState) else state.centers
        score = viewed(self.view_, inertia(tuple(sorted(federation.sites)), scaled))
        self.inertia_ = conduct(
            score, federation, run=done.id, seed=seed, number=done.rounds + 1, quorum=self.quorum
        )
        self.cluster_centers_: FloatArray = np.array(state.centers)
        self._scaled_centers = np.array(scaled)
        self.n_rounds_ = done.rounds
        self.history_ = done.history
        self.run_ = done
        self.algorithm_ = algorithm
        self._n_features_out = len(scaled)

    def _rows_by_site(self, X: Any, sites: Any, sample_weight: Any) -> inputs.SiteRows:
        if inputs.is_by_site(X):
            return self._many_tables(X, sites, sample_weight)
        inputs.check_text(X)
        rows = validate_data(
            self, X, dtype=[np.float64, np.float32], order="C", ensure_all_finite=False, ensure_min_samples=1
        )
        inputs.check_finite(rows, "X")
        weights = None if sample_weight is None else inputs.check_weights(sample_weight, len(rows), "X")
        return inputs.group_rows(rows, weights, sites)

    def _many_tables(self, X: Any, sites: Any, sample_weight: Any) -> inputs.SiteRows:
        tables, given, names = inputs.split_by_site(X, sample_weight, sites)
        rows: dict[str, Any] = {}
        for name, table in zip(names, tables, strict=True):
            inputs.check_text(table, f"site {name}")
            array = check_array(
                table,
                dtype=[np.float64, np.float32],
                order="C",
                ensure_all_finite=False,
                ensure_min_samples=0,
                input_name=f"site {name}",
            )
            inputs.check_finite(array, f"site {name}")
            rows[name] = array
        first = names[0]
        for name, array in rows.items():
            if array.shape[1] != rows[first].shape[1]:
                raise BadInput(
                    f"sites with different columns: {first} has {rows[first].shape[1]}, "
                    f"{name} has {array.shape[1]}"
                )
        if len({array.dtype for array in rows.values()}) > 1:
            rows = {name: array.astype(np.float64) for name, array in rows.items()}
        weights = None
        if sample_weight is not None:
            weights = {
                name: inputs.check_weights(1.0 if w is None else w, len(rows[name]), f"site {name}")
                for name, w in zip(names, given, strict=True)
            }
        self.n_features_in_ = rows[first].shape[1]
        starts = dict(zip(names, np.cumsum([0] + [len(rows[n]) for n in names[:-1]]), strict=True))
        order = np.concatenate([starts[n] + np.arange(len(rows[n])) for n in sorted(names)])
        return inputs.SiteRows(rows, weights, order)

    # ------------------------------------------------------------ what to run

    def _algorithm(self) -> Algorithm[Any]:
        self._check_settings()
        settings = {name: getattr(self, name) for name in _DEFAULTS}
        if not isinstance(self.init, str):
            settings["init"] = np.asarray(self.init, dtype=np.float64)
        k = int(self.n_clusters)
        if isinstance(self.method, str):
            if self.method not in METHODS:
                raise BadInput(f"method must be one of {', '.join(METHODS)}, got {self.method!r}")
            algorithm: Any = METHODS[self.method](k=k, **settings)
        else:
            algorithm = _adjusted(self.method, k, settings)
        n_init = 1 if isinstance(settings["init"], np.ndarray) else int(self.n_init)
        if isinstance(algorithm, Lloyd):
            if isinstance(self.method, str) or n_init != 10:
                algorithm = replace(algorithm, n_starts=n_init)
        elif n_init > 1 and not isinstance(algorithm, BestOf):
            algorithm = BestOf(algorithm, n_init)
        return Scaled(algorithm) if self.scale == "standard" else algorithm

    def _check_settings(self) -> None:
        for name, least in (("n_clusters", 1), ("n_init", 1), ("max_rounds", 1), ("min_cluster_size", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise BadInput(f"{name} must be a whole number >= {least}, got {value!r}")
        if self.scale not in (None, "standard"):
            raise BadInput(f'scale must be None or "standard", got {self.scale!r}')

    def _seed(self) -> int:
        if self.random_state is None:
            return secrets.randbits(63)
        if isinstance(self.random_state, int | np.integer):
            if self.random_state < 0:
                raise BadInput(f"random_state must be >= 0, got {self.random_state}")
            return int(self.random_state)
        if isinstance(self.random_state, np.random.Generator):
            return int(self.random_state.integers(2**63))
        return int(self.random_state.randint(2**31))

    # ------------------------------------------------------------ using the model

    def predict(self, X: Any) -> npt.NDArray[np.int32]:
        """The nearest centre of every row: (n, d) -> (n,)."""
        return self._nearest(self._checked(X))

    def transform(self, X: Any) -> FloatArray:
        """Distances to the centres: (n, d) -> (n, k), in scaled columns if ``scale`` is given."""
        rows = self._viewed(self._checked(X))
        out = np.empty((len(rows), len(self._scaled_centers)))
        for j, center in enumerate(self._scaled_centers):
            out[:, j] = kernels.nearest(rows, center[None]).sqdist
        return np.sqrt(out, out=out)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Minus the inertia of X."""
        rows = self._checked(X)
        distances = kernels.nearest(self._viewed(rows), self._scaled_centers).sqdist
        if sample_weight is not None:
            distances = distances * inputs.check_weights(sample_weight, len(rows), "X")
        return -float(distances.sum())

    def _nearest(self, rows: Any) -> npt.NDArray[np.int32]:
        threads = self.n_threads or 1
        return kernels.nearest(self._viewed(rows), self._scaled_centers, threads=threads).labels

    def _viewed(self, rows: Any) -> Any:
        return rows if self.view_ is None else self.view_.apply(rows)

    def _checked(self, X: Any) -> Any:
        check_is_fitted(self)
        rows = validate_data(
            self, X, dtype=[np.float64, np.float32], order="C", reset=False, ensure_all_finite=False
        )
        inputs.check_finite(rows, "X")
        return rows


def _adjusted(method: Any, k: int, settings: dict[str, Any]) -> Any:
    """The user's algorithm with k filled in, and with what the estimator was told beyond its defaults."""
    if isinstance(method, BestOf):
        return replace(method, inner=_adjusted(method.inner, k, settings))
    if not all(hasattr(method, name) for name in ("start", "round", "finished")):
        raise BadInput(f"method must be a name or an algorithm, got {method!r}")
    known = {f.name for f in fields(method)}
    if getattr(method, "k", None) not in (None, k):
        raise BadInput(f"n_clusters={k}, but the method has k={method.k}")
    told = {
        name: value
        for name, value in settings.items()
        if name in known and (isinstance(value, np.ndarray) or value != _DEFAULTS[name])
    }
    return replace(method, **({"k": k} if "k" in known else {}), **told)
