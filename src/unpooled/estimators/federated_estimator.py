"""The base class of the estimators: rows by site, a run over them, labels and distances."""

import secrets
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from unpooled import kernels
from unpooled.algorithms import Private, PrivateState
from unpooled.algorithms.method import check_number
from unpooled.data import validation as inputs
from unpooled.errors import InputError, TooFewPeopleError
from unpooled.federation import LocalFederation, Simulation
from unpooled.optimality.exact import relative_gap
from unpooled.privacy import Forecast, Gaussian
from unpooled.privacy.secure_sum import SecureSums, secure_sums, threshold_for
from unpooled.protocol.algorithm import Algorithm, Steps, transformed
from unpooled.protocol.checkpoint import load
from unpooled.protocol.exchange import Federation, RoundLog, run_protocol
from unpooled.protocol.messages import SiteId
from unpooled.protocol.run_loop import RoundRecord, Run, run
from unpooled.protocol.transform import Transform
from unpooled.typing import FloatArray, Rows

if TYPE_CHECKING:
    from unpooled.privacy.microaggregation import SummarySettings

Progress = Callable[[RoundRecord], None]
RandomState = int | np.random.RandomState | np.random.Generator | None


class FederatedClusterer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the estimators: a subclass defines the algorithm to run and the score of its result."""

    n_clusters: int
    protect: "str | SummarySettings | None"
    min_cluster_size: int | None
    participation: float | None
    scale: str | None
    random_state: RandomState
    n_threads: int | None
    secure: bool | SecureSums
    run_: Run[Any]
    n_rounds_: int
    dp: Gaussian | None

    # ------------------------------------------------------------ defined by subclasses

    def _algorithm(self) -> Algorithm[Any]:
        raise NotImplementedError

    def _scored(self, sites: tuple[SiteId, ...], centers: FloatArray) -> Steps[tuple[float, float]]:
        """The score of the final centres, and the number (or weight) of the rows in it."""
        raise NotImplementedError

    def _keep_score(self, score: float, mass: float) -> None:
        raise NotImplementedError

    def _warn_of_suppressed_rows(self, site_rows: inputs.SiteRows, sqdist: dict[str, FloatArray]) -> None:
        """Warn of the rows that real sites would suppress; only a simulation can know them."""

    # ------------------------------------------------------------ fitting

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sites: Any = None,
        sample_weight: Any = None,
        checkpoint: str | Path | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Simulate sites in this process, and cluster their rows.

        Parameters
        ----------
        X : array (n, d), or a mapping or sequence of arrays
            One table with a site label per row in ``sites``, or one table per site.
        y : ignored
        sites : array (n,) or None
            The label of each row's site; None: all rows are at one site.
        sample_weight : array (n,), mapping or sequence of arrays, or None
            The weights of the rows, in the form of ``X``.
        checkpoint : path or None
            Write the state there after every round, and go on from it if it exists.
        progress : callable or None
            Called with every round's RoundRecord.

        Returns
        -------
        self

        Raises
        ------
        InputError
            If a setting or the rows cannot be used, with the site, the row and the column.
        """
        algorithm = self._algorithm()
        site_rows = self._rows_by_site(X, sites, sample_weight)
        if self.dp is not None:
            self._check_bounds(self.dp, site_rows.weights is not None)
        minimum = self._minimum(algorithm)
        grouped = self._groups_rows
        summarized = self.protect not in (None, "raw") or grouped
        answering = self._summary_tables(site_rows) if summarized else site_rows
        inputs.check_enough(answering.rows, answering.weights, int(self.n_clusters))
        if self.participation is not None:
            check_number(self.participation, len(answering.rows))
        secure = None if self.secure is False else secure_sums(self.secure)
        federation: Federation = (
            Simulation.from_rows(
                answering.rows,
                answering.weights,
                within=answering.within,
                min_cluster_size=minimum,
                n_threads=self.n_threads,
            )
            if secure is None
            else LocalFederation.from_rows(
                answering.rows,
                answering.weights,
                within=answering.within,
                raw={name: site_rows.rows[name] for name in answering.rows} if grouped else None,
                min_cluster_size=minimum,
                secure=secure,
            )
        )
        self._run(algorithm, federation, checkpoint=checkpoint, progress=progress)
        names = sorted(site_rows.rows)
        assignments = [
            kernels.nearest(
                self._transformed(site_rows.rows[name]), self._scaled_centers, threads=self.n_threads or 1
            )
            for name in names
        ]
        self.labels_ = site_rows.restored(np.concatenate([near.labels for near in assignments]))
        if summarized:  # the run knows the objective of the summary tables; a simulation also has the rows
            self._keep_score(-sum(self.score(X) for X in site_rows.rows.values()), site_rows.mass)
        if minimum > 1 and self.dp is None:
            self._warn_of_suppressed_rows(
                site_rows, {n: f.sqdist for n, f in zip(names, assignments, strict=True)}
            )
        return self

    def _summary_tables(self, site_rows: inputs.SiteRows) -> inputs.SiteRows:
        """The summary tables of the sites, as arrays of groups; a site of too few people is left out."""
        from unpooled.privacy.microaggregation import SummarySettings, microaggregate

        if site_rows.weights is not None:
            raise InputError(
                "sample_weight and protect exclude each other: in a summary table every person counts once"
            )
        if self.dp is not None:
            raise InputError(
                "protect and dp exclude each other: a summary table would void the guarantee of "
                "differential privacy"
            )
        settings = self.protect if isinstance(self.protect, SummarySettings) else SummarySettings()
        tables_by_site = {}
        for name, X in site_rows.rows.items():
            with suppress(TooFewPeopleError):
                tables_by_site[name] = microaggregate(X, settings)
        small = sorted(set(site_rows.rows) - set(tables_by_site))
        if not tables_by_site:
            fewest = settings.group_size_for(0, 0)
            raise InputError(f"no site has enough rows for a summary table: it needs at least {fewest}")
        if small:
            warnings.warn(f"sites with too few rows for a summary table: {', '.join(small)}", stacklevel=3)
        return inputs.SiteRows(
            {name: summary.matrix() for name, summary in tables_by_site.items()},
            {name: summary.people for name, summary in tables_by_site.items()},
            None,
            {name: np.nan_to_num(summary.within) for name, summary in tables_by_site.items()},
        )

    def fit_federation(
        self,
        federation: Federation,
        *,
        quorum: float = 0.5,
        checkpoint: str | Path | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Cluster the rows of a federation's sites. The rows stay there, so there are no ``labels_``.

        Parameters
        ----------
        federation : Federation
            The sites, such as a ``LocalFederation``.
        quorum : float
            Share of the asked sites that must answer.
        checkpoint : path or None
            Write the state there after every round, and go on from it if it exists.
        progress : callable or None
            Called with every round's RoundRecord.

        Returns
        -------
        self

        Raises
        ------
        InputError
            If ``secure`` is set and the federation has no secure sums.
        """
        if secure_sums(self.secure) is not None and not federation.secure:
            raise InputError("secure needs a federation with secure=SecureSums(), and this one has none")
        self._run(self._algorithm(), federation, quorum=quorum, checkpoint=checkpoint, progress=progress)
        self.n_features_in_ = self.cluster_centers_.shape[1]
        return self

    def _run(
        self,
        algorithm: Algorithm[Any],
        federation: Federation,
        *,
        quorum: float = 0.5,
        checkpoint: str | Path | None,
        progress: Progress | None,
    ) -> None:
        if isinstance(algorithm, Private) and algorithm.dp.rows is not None:
            noises = algorithm.noises or float(len(federation.sites))
            if federation.secure:
                noises /= threshold_for(len(federation.sites))
            _warn_of_noise(algorithm.forecast(algorithm.dp.rows, noises), 4)
        seed = self._seed(checkpoint)
        done: Run[Any] = run(
            algorithm,
            federation,
            seed=seed,
            checkpoint=checkpoint,
            quorum=quorum,
            progress=progress,
        )
        state = done.state
        if isinstance(algorithm, Private):
            self._keep_private(algorithm, done)
            return
        self.scaling_: Transform | None = state.scaling
        scaled = state.scaled_centers
        steps = transformed(self.scaling_, self._scored(tuple(sorted(federation.sites)), scaled))
        number, round_log = done.rounds + 1, RoundLog()
        score, mass = run_protocol(
            steps, federation, run=done.id, seed=seed, number=number, quorum=quorum, round_log=round_log
        )
        closing = RoundRecord(number, 0.0, score, round_log.exchanges, round_log.sent, round_log.silent)
        self.run_ = replace(done, closing=closing)
        self.cluster_centers_: FloatArray = np.array(state.centers)
        self._scaled_centers = np.array(scaled)
        self.n_rounds_ = done.rounds - state.comparison_rounds
        self.history_ = done.history
        self.algorithm_ = algorithm
        if algorithm.build().ran_out(state):
            warnings.warn(
                f"the run stopped after {self.n_rounds_} rounds, before the centres came to rest. "
                "Raise max_rounds or tol.",
                ConvergenceWarning,
                stacklevel=3,
            )
        self._n_features_out = len(scaled)
        self._keep_score(score, mass)
        if state.lower_bound is not None:
            self.lower_bound_ = state.lower_bound
            self.gap_ = relative_gap(self.lower_bound_, score)
            self.bound_condition_ = state.bound_condition

    # ------------------------------------------------------------ with differential privacy

    def _private(self, **settings: Any) -> Private:
        """The private algorithm with the estimator's settings; InputError if ``dp`` is not a Gaussian."""
        if not isinstance(self.dp, Gaussian):
            raise InputError(
                f"dp must be None or unpooled.privacy.Gaussian(epsilon, delta, lower, upper), got {self.dp!r}"
            )
        return Private(k=int(self.n_clusters), dp=self.dp, scale=self.scale, **settings)

    def _check_bounds(self, dp: Gaussian, weighted: bool) -> None:
        if weighted:
            raise InputError("sample_weight cannot be used with dp: a weight would scale what one row adds")
        if dp.columns not in (None, self.n_features_in_):
            raise InputError(f"dp has bounds for {dp.columns} columns, X has {self.n_features_in_}")

    def _keep_private(self, algorithm: Private, done: Run[PrivateState]) -> None:
        """Set the attributes from released numbers only: even the inertia is not asked for again."""
        state = done.state
        self.run_, self.n_rounds_, self.history_, self.algorithm_ = done, done.rounds, done.history, algorithm
        self.cluster_centers_ = np.array(state.centers)
        self.scaling_ = None if self.scale is None else state.inertia_transform
        self._scaled_centers = self.cluster_centers_ if self.scale is None else state.estimate * state.unit
        self._n_features_out = len(state.estimate)
        self.epsilon_, self.delta_ = algorithm.epsilon(state), algorithm.dp.delta
        self.cluster_sizes_ = state.sizes
        self.forecast_ = algorithm.forecast_of(state)
        if algorithm.dp.rows is None:
            _warn_of_noise(self.forecast_, 5)
        self._keep_private_score(state.inertia)

    def _keep_private_score(self, score: float) -> None:
        raise NotImplementedError

    # ------------------------------------------------------------ rows

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
        for name, table in zip(names, tables, strict=True):
            inputs.check_text(table, f"site {name}")
        tables = inputs.aligned(tables, names)
        rows: dict[str, Any] = {}
        for name, table in zip(names, tables, strict=True):
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
                raise InputError(
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
        validate_data(self, tables[0], skip_check_array=True)  # keeps the number of columns, and their names
        starts = dict(zip(names, np.cumsum([0] + [len(rows[n]) for n in names[:-1]]), strict=True))
        order = np.concatenate([starts[n] + np.arange(len(rows[n])) for n in sorted(names)])
        return inputs.SiteRows(rows, weights, order)

    # ------------------------------------------------------------ settings

    def _check_settings(self) -> None:
        for name in ("n_clusters", "n_init", "max_rounds", "min_cluster_size"):
            value = getattr(self, name)
            if value is None and name != "n_clusters":
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise InputError(f"{name} must be a whole number >= 1, got {value!r}")
        if self.dp is None and self.scale not in (None, "standard"):
            raise InputError(f'scale must be None or "standard", got {self.scale!r}')
        if self.protect not in (None, "raw", "summary") and not _is_settings(self.protect):
            raise InputError(
                f'protect must be None, "summary", SummarySettings or "raw", got {self.protect!r}'
            )
        if self.min_cluster_size not in (None, 1) and self.protect != "raw":
            warnings.warn(
                'min_cluster_size belongs to protect="raw" and does nothing without it; '
                'protect="summary" needs no minimum',
                DeprecationWarning,
                stacklevel=4,
            )

    def _explicit_settings(self, names: tuple[str, ...]) -> dict[str, Any]:
        """The settings that were given, by name; those that are None are left to the method."""
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if "min_cluster_size" in names and self.protect != "raw":
            given.pop("min_cluster_size", None)
        elif "min_cluster_size" in names:
            given["min_cluster_size"] = self._raw_minimum()
        if "init" in given and not isinstance(given["init"], str):
            given["init"] = np.asarray(given["init"], dtype=np.float64)
        return given

    @property
    def _groups_rows(self) -> bool:
        """Whether sites answer from groups of their rows: in raw mode, if they answer only in secure sums."""
        return self.protect == "raw" and self.secure is not False and self.dp is None

    def _minimum(self, algorithm: Algorithm[Any]) -> int:
        """The size of the smallest cluster that simulated sites disclose; a method may raise it."""
        if self.protect == "raw":
            return self._raw_minimum()
        if self.protect is not None:
            return 1
        return int(algorithm.innermost.min_cluster_size)

    def _raw_minimum(self) -> int:
        return 5 if self.min_cluster_size is None else int(self.min_cluster_size)

    def _seed(self, checkpoint: str | Path | None) -> int:
        if self.random_state is None:
            if checkpoint is not None and Path(checkpoint).exists():
                return load(Path(checkpoint)).seed  # the checkpoint needs the seed of its run
            return secrets.randbits(63)
        if isinstance(self.random_state, int | np.integer):
            if self.random_state < 0:
                raise InputError(f"random_state must be >= 0, got {self.random_state}")
            return int(self.random_state)
        if isinstance(self.random_state, np.random.Generator):
            return int(self.random_state.integers(2**63))
        return int(self.random_state.randint(2**31))

    # ------------------------------------------------------------ using the model

    @property
    def n_iter_(self) -> int:
        """The number of rounds, ``n_rounds_``, under scikit-learn's name."""
        return self.n_rounds_

    def predict(self, X: Any) -> npt.NDArray[np.int32]:
        """Return the nearest centre of every row: (n, d) -> (n,)."""
        return self._nearest(self._checked(X))

    def transform(self, X: Any) -> FloatArray:
        """Return distances to the centres: (n, d) -> (n, k), in scaled columns if ``scale`` is given."""
        rows = self._transformed(self._checked(X))
        out = np.empty((len(rows), len(self._scaled_centers)))
        for j, center in enumerate(self._scaled_centers):
            out[:, j] = kernels.nearest(rows, center[None]).sqdist
        return np.sqrt(out, out=out)

    def _nearest(self, rows: Rows) -> npt.NDArray[np.int32]:
        threads = self.n_threads or 1
        return kernels.nearest(self._transformed(rows), self._scaled_centers, threads=threads).labels

    def _transformed(self, rows: Rows) -> Rows:
        return rows if self.scaling_ is None else self.scaling_.apply(rows)

    def _checked(self, X: Any) -> Rows:
        check_is_fitted(self)
        rows: Rows = validate_data(
            self, X, dtype=[np.float64, np.float32], order="C", reset=False, ensure_all_finite=False
        )
        inputs.check_finite(rows, "X")
        return rows


def _is_settings(protect: object) -> bool:
    from unpooled.privacy.microaggregation.summary_settings import SummarySettings

    return isinstance(protect, SummarySettings)


def _warn_of_noise(expected: Forecast, stacklevel: int) -> None:
    if expected.warning is not None:
        warnings.warn(expected.warning, stacklevel=stacklevel)
