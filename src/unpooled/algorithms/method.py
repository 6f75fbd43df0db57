"""The base class of all methods: the settings of each, and the facts that each declares about itself."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, ClassVar, Self, cast

import numpy as np

from unpooled.algorithms.seeding import COMPLETE, INITS, LOCAL_RESTARTS, QuestionSet, Starts, starts
from unpooled.errors import InputError
from unpooled.protocol import codec
from unpooled.protocol.algorithm import Algorithm, Steps, together, total
from unpooled.protocol.messages import Message, Question, SiteId
from unpooled.protocol.questions.cluster_sums import (
    LOCAL_STEPS,
    AskClusterSums,
    AskLocalMeans,
    AskMoments,
    AskScatter,
)
from unpooled.typing import FloatArray


def check_participation(participation: float) -> None:
    """Raise InputError unless it is a share in (0, 1], or a whole number of sites of at least 1."""
    share = isinstance(participation, float) and 0 < participation <= 1
    number = isinstance(participation, int) and not isinstance(participation, bool) and participation >= 1
    if not (share or number):
        raise InputError(
            f"participation must be a share in (0, 1] or a number of sites >= 1, got {participation!r}"
        )


def check_number(participation: float, sites: int) -> None:
    """Refuse the number 1 where the share 1.0 was probably meant."""
    if isinstance(participation, int) and participation == 1 and sites > 1:
        raise InputError(
            f"participation=1 is one site of {sites} a round, 1.0 is all of them. Use 1.0, or a share "
            f"such as {1 / sites:.2g} for one site"
        )


def sample_sites(
    sites: tuple[SiteId, ...], participation: float, rng: np.random.Generator
) -> tuple[SiteId, ...]:
    """Return a random part of the sites, in site order: a share of them (float) or a number of them (int).

    >>> sample_sites(("a", "b", "c", "d"), 0.5, np.random.default_rng(1))
    ('b', 'c')
    >>> sample_sites(("a", "b", "c", "d"), 1.0, np.random.default_rng(1))
    ('a', 'b', 'c', 'd')
    """
    check_number(participation, len(sites))
    if isinstance(participation, float):
        number = max(1, int(participation * len(sites) + 1e-9))
    else:
        number = min(participation, len(sites))
    if number == len(sites):
        return sites
    return tuple(sites[i] for i in sorted(rng.choice(len(sites), number, replace=False)))


def is_full(participation: float, sites: tuple[SiteId, ...]) -> bool:
    """Return whether every site takes part in every round."""
    return participation == 1.0 if isinstance(participation, float) else participation >= len(sites)


WorkLimits = dict[type[Question[Any]], dict[str, float]]
"""By question and field: the largest value that is asked."""

METHODS: dict[str, type["Method"]] = {}
"""Every method by its name: those of the package, and those of modules that were imported."""


def import_methods(modules: Sequence[str]) -> None:
    """Import installed modules, which register their methods; InputError if one cannot be imported."""
    for module in modules:
        try:
            import_module(module)
        except ImportError as error:
            raise InputError(f"module {module} cannot be imported: {error}") from error


@dataclass(frozen=True)
class RestartRules:
    """The rules for starts that run side by side: their comparison, and when one is dropped."""

    tie_tolerance: float = 1e-9  # starts within this factor of the lowest score are equal: the first leads
    leader_tolerance: float = 1.0  # of the threshold: below 1 the leader, which is the result, runs longer
    patience: int = 20  # rounds at its present pace that a start is given to catch up
    score_slack: float = 1.0  # times the leader's score: a start must be able to get below it
    score_slack_suppressed: float = 1.005  # the same where rows are suppressed: a step may lose a little
    max_stale_rounds: int | None = None  # allowed rounds without a gain; None: any number
    max_stale_rounds_suppressed: int | None = None
    duplicate_distance: float = 0.0  # of the typical distance to a centre: nearer starts count as one
    sample_rows: bool = False  # starts of very many rows are made on a sample of them
    # > 0: no start is dropped; all stop when the leader rests, or has not gained for this number of rounds
    leader_max_stale_rounds: int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class Method(Message, abstract=True):
    """The settings of every method. ``k`` may be left out where an estimator fills it in.

    A method is an Algorithm (protocol/algorithm.py) whose settings the codec can encode: they identify a
    checkpoint. A subclass declares its name (``class DWF(Method, method="dwf")``), the questions it asks, the
    paper to cite, when to use it, and what it needs of a single site.
    """

    method: ClassVar[str] = ""
    asks: ClassVar[tuple[type[Question[Any]], ...]] = ()  # besides those that every method may ask
    citation: ClassVar[str] = ""
    advice: ClassVar[str] = ""  # when to use it, in one line
    visibility: ClassVar[str] = "totals"  # what the method needs of a site: "totals" over sites, or more
    restart_rules: ClassVar[RestartRules | None] = None  # of concurrent starts; None: each runs to its end
    own_objective: ClassVar[bool] = False  # restarts compare by their states' inertia, not squared distances
    question_set: ClassVar[QuestionSet] = COMPLETE  # the questions by which a start is found

    k: int | None = None
    init: str | FloatArray = "adaptive"  # or "k-fed", "random", or centres (k, d)
    max_rounds: int = 300
    tol: float = 1e-4  # on the squared movement, relative to the mean variance of the columns
    participation: float = 1.0  # share of sites a round (float), or number of sites (int)
    min_cluster_size: int = 1  # the minimum that the sites are known to use; they enforce their own

    def __init_subclass__(cls, *, method: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.method = method
        if not method:
            return
        if codec.class_named(codec.name_of(cls)) is not cls:
            raise InputError(
                f'{cls.__qualname__}: a method outside of unpooled needs a prefix, e.g. prefix="hospital"'
            )
        other = METHODS.get(method)
        if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise InputError(
                f"two methods are called {method!r}: {other.__module__}.{other.__qualname__} and "
                f"{cls.__module__}.{cls.__qualname__}"
            )
        METHODS[method] = cls

    def __post_init__(self) -> None:
        name = type(self).__name__
        if self.k is not None and (not isinstance(self.k, int | np.integer) or self.k < 1):
            raise InputError(f"{name}: k must be a whole number >= 1, got {self.k!r}")
        if isinstance(self.init, str):
            if self.init not in INITS:
                raise InputError(
                    f"{name}: init must be one of {', '.join(INITS)} or centres, got {self.init!r}"
                )
        elif not isinstance(self.init, np.ndarray) or self.init.ndim != 2:
            raise InputError(f"{name}: init as centres must be an array (k, d)")
        if self.max_rounds < 1:
            raise InputError(f"{name}: max_rounds must be >= 1, got {self.max_rounds}")
        if not self.tol >= 0:
            raise InputError(f"{name}: tol must be >= 0, got {self.tol}")
        if self.min_cluster_size < 1:
            raise InputError(f"{name}: min_cluster_size must be >= 1, got {self.min_cluster_size}")
        check_participation(self.participation)

    @classmethod
    def questions(cls) -> tuple[type[Question[Any]], ...]:
        """Return all questions that a run may ask: the method's, and those of starts, inertia and indices."""
        return (AskMoments, AskClusterSums, AskScatter, *cls.asks)

    def work_limits(self) -> WorkLimits:
        """Return the largest numbers of steps, epochs or restarts that it asks of a site.

        The study states them. A method with a question that declares such a field adds it here. Otherwise the
        study states the largest value that any site accepts.
        """
        return {AskLocalMeans: {"n_init": LOCAL_RESTARTS, "steps": LOCAL_STEPS}}

    @property
    def clusters(self) -> int:
        """k; InputError if it was not given."""
        if self.k is None:
            name = type(self).__name__
            raise InputError(f"{name}: the number of clusters is missing. Pass it as k, e.g. {name}(k=3)")
        return int(self.k)

    # ------------------------------------------------------------ starts

    @property
    def own_start(self) -> bool:
        """True if the method has its own start and ignores ``init``."""
        return False

    @property
    def n_concurrent_starts(self) -> int:
        """The number of starts that run side by side; 0 for a method without concurrent starts."""
        return 0

    def seeds(self, sites: tuple[SiteId, ...], count: int, rng: np.random.Generator) -> Steps[Starts]:
        """Return up to ``count`` starts of k centres each."""
        return (
            yield from starts(
                sites,
                self.clusters,
                self.init,
                count,
                rng,
                min_cluster_size=self.min_cluster_size,
                question_set=self.question_set,
                sample_rows=self.restart_rules is not None and self.restart_rules.sample_rows,
            )
        )

    def begin(self, centers: FloatArray, seeding: Starts) -> Any:
        """Return the state of a start from centres (k, d), where several run side by side."""
        raise NotImplementedError

    def may_drop_starts(self, sites: tuple[SiteId, ...]) -> bool:
        """Return whether a start that falls behind may be dropped."""
        return True

    def with_init(self, change: Callable[[Any], Any]) -> Self:
        """Return the same method with given starting centres changed, e.g. into scaled columns."""
        return replace(self, init=change(self.init)) if isinstance(self.init, np.ndarray) else self

    @property
    def supports_missing(self) -> bool:
        """True if the method can cluster rows with missing cells, see ``with_missing``."""
        return False

    def with_missing(self) -> Any:
        """Return the method for rows with missing cells; InputError if it cannot cluster them."""
        raise InputError(
            f"--missing keep needs --method lloyd, got {self.method}. Use --missing fill or --missing drop"
        )

    def with_restarts(self, n: int | None) -> Algorithm[Any]:
        """Return the method with ``n`` restarts; None: the default number."""
        from unpooled.algorithms.restarts import DEFAULT_RESTARTS, Restarts

        n = DEFAULT_RESTARTS if n is None else n
        return cast(Algorithm[Any], self) if n == 1 else Restarts(self, n)

    def build(self) -> Algorithm[Any]:
        """Return the algorithm that a run executes: concurrent starts, or itself up to ``max_rounds``."""
        from unpooled.algorithms.restarts import ConcurrentRestarts, RoundLimited

        return ConcurrentRestarts(self) if self.n_concurrent_starts else RoundLimited(self)

    def score_restarts(
        self, sites: tuple[SiteId, ...], centers: FloatArray
    ) -> Steps[tuple[FloatArray, FloatArray]]:
        """Return the inertia of every restart (R, k, d), and its score; the lowest score wins."""
        # down: every restart's centres; up: their inertia, and the moments
        asks: list[Steps[Any]] = [total(sites, AskClusterSums(centers)), total(sites, AskMoments())]
        sums, moments = yield from together(asks)
        inertias = sums.inertia.sum(axis=1)
        suppressed = np.maximum(moments.n - sums.mass.sum(axis=1), 0.0)  # scored as if they had no cluster
        return inertias, inertias + suppressed * float(moments.variance.sum())


def share_or_zero(sums: FloatArray, weights: FloatArray) -> Any:
    """Return sums / weights per cluster, 0 where there is no weight: (k, d), (k,) -> (k, d)."""
    full = weights > 0
    return np.where(full, 1 / np.where(full, weights, 1.0), 0.0)[:, None] * sums


def list_methods() -> tuple[type[Method], ...]:
    """Return every method that has a name, the default first."""
    return tuple(METHODS.values())


def citation(method: Any) -> str:
    """Return the paper to cite for a method: its name, or the algorithm that ran (``model.algorithm_``)."""
    while hasattr(method, "inner"):
        method = method.inner
    cited: Any = METHODS.get(method) if isinstance(method, str) else method
    if not getattr(cited, "citation", ""):
        raise InputError(f"no citation is known for {method!r}; methods are {', '.join(METHODS)}")
    return str(cited.citation)
