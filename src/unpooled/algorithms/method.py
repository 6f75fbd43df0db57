"""The base class of all methods: the settings of each, and the facts that each declares about itself."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from unpooled.algorithms.registry import register
from unpooled.algorithms.seeding import COMPLETE, INITS, LOCAL_RESTARTS, QuestionSet, Starts, starts
from unpooled.errors import InputError
from unpooled.protocol.algorithm import Algorithm, State, Steps, together, total
from unpooled.protocol.messages import Message, Question, SiteId
from unpooled.protocol.questions.cluster_sums import (
    LOCAL_STEPS,
    AskClusterSums,
    AskLocalMeans,
    AskMoments,
    AskScatter,
)
from unpooled.typing import FloatArray

if TYPE_CHECKING:
    from unpooled.algorithms.restarts import ComparedState, RestartRules

WorkLimits = dict[type[Question[Any]], dict[str, float]]
"""By question and field: the largest value that is asked."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Method(Message, Algorithm[Any], abstract=True):
    """The settings of every method, and the base class of methods.

    A method is an Algorithm (protocol/algorithm.py) whose settings the codec can encode: they identify a
    checkpoint. A subclass declares its name (``class DWF(Method, method="dwf")``) and the facts below, adds
    settings of its own, and defines ``start``, ``round`` and ``finished``.

    Parameters
    ----------
    k : int or None
        The number of clusters; None where an estimator fills it in.
    init : str or array of shape (k, d)
        How the centres start: ``"adaptive"``, ``"k-fed"`` or ``"random"``, or the centres themselves.
    max_rounds : int
        The largest number of rounds.
    tol : float
        The squared movement of the centres at which a run ends, relative to the mean variance of the columns.
    participation : float or int
        The share of the sites that answer in a round, or their number.
    min_cluster_size : int
        The minimum that the sites are known to use. The sites enforce their own.

    Examples
    --------
    >>> from unpooled.algorithms import DWF
    >>> DWF(k=3, max_rounds=50).with_restarts(4).k
    3
    """

    method: ClassVar[str] = ""
    citation: ClassVar[str] = ""
    advice: ClassVar[str] = ""  # when to use it, in one line
    asks: ClassVar[tuple[type[Question[Any]], ...]] = ()  # besides those that every method may ask
    visibility: ClassVar[str] = "totals"  # what the method needs of a site: "totals" over sites, or more

    k: int | None = None
    init: str | FloatArray = "adaptive"
    max_rounds: int = 300
    tol: float = 1e-4
    participation: float = 1.0
    min_cluster_size: int = 1

    def __init_subclass__(cls, *, method: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.method = method
        if method:
            register(method, cls)

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
    def as_published(cls, *, k: int) -> Self | None:
        """Return the method with its authors' settings; None if they are the defaults."""
        return None

    @property
    def clusters(self) -> int:
        """k; InputError if it was not given."""
        if self.k is None:
            name = type(self).__name__
            raise InputError(f"{name}: the number of clusters is missing. Pass it as k, e.g. {name}(k=3)")
        return int(self.k)

    # ------------------------------------------------------------ questions to the sites

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

    # ------------------------------------------------------------ start and end

    question_set: ClassVar[QuestionSet] = COMPLETE  # the questions by which a start is found

    @property
    def own_start(self) -> bool:
        """True if the method has its own start and ignores ``init``."""
        return False

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

    def with_init(self, centers: FloatArray) -> Self:
        return replace(self, init=centers)

    @property
    def stops_at_rest(self) -> bool:
        """True if the method ends when the centres rest, and not only after ``max_rounds``."""
        return self.tol > 0

    def ran_out(self, state: State) -> bool:
        longer = replace(self, max_rounds=self.max_rounds + 1)  # ``finished`` may check max_rounds too
        return self.stops_at_rest and not longer.finished(state)

    def with_missing(self) -> Algorithm[Any]:
        raise InputError(
            f"--missing keep needs --method lloyd, got {self.method}. Use --missing fill or --missing drop"
        )

    # ------------------------------------------------------------ restarts (restarts.py)

    own_objective: ClassVar[bool] = False  # restarts compare by their states' inertia, not squared distances

    @property
    def restart_rules(self) -> "RestartRules | None":
        """The rules for ``n_starts`` starts side by side; None: one start, and each restart runs to its end.

        A method with such rules defines ``begin``.
        """
        return None

    @property
    def n_starts(self) -> int:
        """The number of starts that run side by side."""
        return 1

    def begin(self, centers: FloatArray, seeding: Starts) -> "ComparedState":
        """Return the state of one of several starts, from centres (k, d)."""
        raise NotImplementedError

    def with_restarts(self, n: int | None) -> Algorithm[Any]:
        from unpooled.algorithms.restarts import DEFAULT_RESTARTS, Restarts

        if self.restart_rules is not None:  # the starts run side by side
            return self if n is None else replace(self, n_starts=n)  # type: ignore[call-arg]
        n = DEFAULT_RESTARTS if n is None else n
        return self if n == 1 else Restarts(self, n)

    def build(self) -> Algorithm[Any]:
        from unpooled.algorithms.restarts import Restarts

        rules = self.restart_rules
        return self if rules is None else Restarts(self, self.n_starts, rules)

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


# ---------------------------------------------------------------- the sites that are asked in a round


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
