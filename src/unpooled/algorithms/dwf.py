"""DWF and EWF: dynamically, and equally, weighted federated k-means.

Holzer, Jacob, Kavane: Dynamically Weighted Federated k-Means. 2023 (algorithms 1-4, equations 3-8).

Every site runs a few Lloyd steps from the received centres C and sends how its own centres C_i differ from
them, weighted: by the rows it has in each cluster (DWF), equally (EWF), or by a weighting of your own. The
server moves by a learning rate and a momentum: C + eta (D - C) + mu (C - C_old), a trace. Only sums over
sites are needed: sum of w (C_i - C), sum of w, and for clusters without any weight the plain sum (eq. 4).

As the authors' code has it, and departing from the printed text: weights count rows under the RECEIVED
centres; a cluster empty at a site keeps its centre there (weight 0 in DWF, an equal share in EWF); the
fallback for clusters without weight divides by the number of sites (printed algorithm 3 divides by zero);
the score is pooled inertia / N. ``Restarts(DWF(...), n)`` is algorithm 1's n_init.

By default eta = 1, mu = 0 and one local step, which is exact Lloyd and needs a twentieth of the rounds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import numpy as np

from unpooled import kernels
from unpooled.algorithms import server_updates as updates
from unpooled.algorithms.kfed import KFed
from unpooled.algorithms.method import Method, WorkLimits, sample_sites
from unpooled.algorithms.seeding import starts
from unpooled.errors import InputError
from unpooled.protocol.algorithm import State, Steps, total
from unpooled.protocol.declarations import Centers, Count, Figure, Mean, Repeats, Sum, Value
from unpooled.protocol.limits import MAX_STEPS
from unpooled.protocol.messages import Question, Reply, SiteId, Summable
from unpooled.protocol.questions.cluster_sums import AskLocalMeans
from unpooled.protocol.site_batch import ReplyBatch, SiteBatch, add_in_order
from unpooled.protocol.suppression import complementary_suppression, zero_suppressed
from unpooled.typing import FloatArray

Weighting = Callable[[FloatArray, FloatArray], FloatArray]
"""(counts (S, k) under the received centres, rows (S, 1)) -> weights (S, k)."""

WEIGHTINGS: dict[str, Weighting] = {
    "counts": lambda counts, rows: counts,  # DWF, eq. 7
    "equal": lambda counts, rows: np.ones_like(counts),  # EWF, eq. 8
    "rows": lambda counts, rows: np.broadcast_to(rows, counts.shape).copy(),  # as federated averaging
}
"""Weightings by name. Add your own at every site: ``WEIGHTINGS["root"] = lambda c, n: np.sqrt(c)``."""


@dataclass(frozen=True, eq=False)
class LocalMoves(Summable):
    """The difference of a site's centres after its own steps from the received ones."""

    cells = "weight"
    divided = False  # a weighting may count all rows of a site for every cluster

    weighted: Annotated[FloatArray, Sum("k d", rows="weight")]  # w (C_i - C)
    weight: Annotated[FloatArray, Count("k")]
    plain: Annotated[FloatArray, Mean("k d", rows="weight")]  # C_i - C
    sites: Annotated[FloatArray, Value("1", min_value=1.0, max_value=1.0)]
    inertia: Annotated[FloatArray, Sum("k", min_value=-1e-6, rows="weight")]  # under the received centres


@dataclass(frozen=True, eq=False)
class _Unfolded(ReplyBatch[LocalMoves]):
    """Replies with the centres (S, k, d) in place of the moves, which are computed during the sum.

    In 784 dimensions steps and sums take 7% longer without this (20 sites, k 10), 17% longer with 100 sites
    and k 20.
    """

    received: FloatArray  # (k, d)

    def __getitem__(self, s: int) -> LocalMoves:
        reply = super().__getitem__(s)
        move = reply.plain - self.received
        return replace(reply, weighted=move * reply.weight[:, None], plain=move)

    def arrays(self) -> tuple[FloatArray, ...]:
        moves = self.reply.plain - self.received
        weight = self.reply.weight
        return moves * weight[..., None], weight, moves, self.reply.sites, self.reply.inertia

    def add_to(self, totals: Sequence[FloatArray]) -> None:
        weighted, weight, plain, sites, inertia = totals
        kernels.fold_moves(self.reply.plain, self.received, self.reply.weight, weighted, plain)
        add_in_order(weight, self.reply.weight)
        add_in_order(sites, self.reply.sites)
        add_in_order(inertia, self.reply.inertia)


@dataclass(frozen=True, eq=False)
class AskLocalMoves(Question[LocalMoves]):
    """Weighted movement of the site's centres in up to ``steps`` Lloyd steps from these centres."""

    reads = "rows"
    asks_for = "for each centre: how far it moves in some steps of k-means on the site's rows"

    centers: Annotated[FloatArray, Centers("k d")]
    steps: Annotated[int, Repeats(max_value=MAX_STEPS)]
    weighting: str

    def disclosed_sums(self, reply: Reply) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray] | None:
        if not isinstance(reply, LocalMoves) or self.steps != 1 or self.weighting != "counts":
            return None
        return self.centers, reply.weight, reply.weighted, reply.inertia  # a move of n rows is their sum

    def disclosed_centers(self, reply: Reply) -> FloatArray | None:
        if not isinstance(reply, LocalMoves) or (self.steps <= 1 and self.weighting == "counts"):
            return None
        centers: FloatArray = self.centers + reply.plain
        return centers

    def answer_all(self, batch: SiteBatch) -> ReplyBatch[LocalMoves]:
        if self.weighting not in WEIGHTINGS:
            raise InputError(f"this site has no weighting {self.weighting!r}")
        # only in simulations: a site that runs for a long time must not keep bounds of every run
        cache = (
            batch.memory[0].setdefault("local steps", kernels.LabelCache()) if len(batch.memory) > 1 else None
        )
        local = kernels.local_steps(
            batch.X,
            batch.offsets,
            self.centers,
            batch.weights,
            steps=self.steps,
            threads=batch.threads,
            cache=cache,
        )
        rows, ones = batch.row_counts[:, None].astype(np.float64), np.ones((len(batch), 1))
        if batch.minimum <= 1:
            weight = WEIGHTINGS[self.weighting](local.mass, rows)
            sent = LocalMoves(local.centers, weight, local.centers, ones, local.inertia)
            return _Unfolded(sent, len(batch), self.centers)
        moves, counts, inertia = local.centers - self.centers, local.mass, local.inertia
        # A centre is the mean of ``support`` rows: that number must be large enough as well as the count.
        supported = (local.support == 0) | (local.support >= batch.minimum)
        large = batch.large(counts, local.squares) | (counts == 0)
        disclosed = complementary_suppression(large & supported, counts, local.squares, batch.minimum)
        moves, counts, inertia = (zero_suppressed(disclosed, a) for a in (moves, counts, inertia))
        weight = WEIGHTINGS[self.weighting](counts, rows)
        weighted = zero_suppressed(weight > 0, moves * weight[..., None])
        return ReplyBatch(LocalMoves(weighted, weight, moves, ones, inertia), len(batch))

    def figures(self) -> Mapping[str, Figure]:
        """Return the figures of the reply; with equal weights they name no count of rows."""
        declared = super().figures()
        if self.weighting != "equal":
            return declared
        unweighted = {"weight": Value("k", min_value=0.0), "weighted": Value("k d"), "plain": Mean("k d")}
        return {**declared, **unweighted, "inertia": Sum("k", min_value=-1e-6)}


@dataclass(frozen=True, eq=False, kw_only=True)
class DWFState(State):
    """The centres, the previous ones, and the movements that the stopping rules use."""

    centers: FloatArray  # (k, d)
    previous: FloatArray  # (k, d)
    movements: FloatArray  # (<= window,) the last ones, oldest first
    inertia: float
    threshold: float
    rounds: int

    @property
    def movement(self) -> float:
        return float(self.movements[-1]) if len(self.movements) else float("inf")


@dataclass(frozen=True, eq=False, kw_only=True)
class DWF(Method, method="dwf"):
    """Weighted federated k-means after Holzer et al.

    A run stops when the centres move less than ``tol`` after at least ``min_rounds``, or when the oldest of
    the last ``window`` movements after those rounds is the smallest of them (the movement no longer
    shrinks), or at ``max_rounds``.

    Parameters
    ----------
    k, init, max_rounds, tol, participation, min_cluster_size
        See ``Method``.
    learning_rate : float
        The share of the sites' mean movement that the coordinator follows, in (0, 1].
    momentum : float
        The share of its last movement that the coordinator adds, in [0, 1).
    local_steps : int
        The number of Lloyd steps of a site in a round.
    weights : str
        The weight of a site in a cluster: ``"counts"`` is DWF, ``"equal"`` is EWF; ``WEIGHTINGS`` has all.
    min_rounds : int
        The number of rounds before a run may stop.
    window : int
        The number of movements that are compared.
    tol_kind : {"relative", "absolute"}
        With ``"absolute"``, ``tol`` bounds the movement itself.
    kfed_restarts : int
        Above 0: start by Holzer's k-FED with this number of restarts at the sites and at the server.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled.algorithms import DWF
    >>> from unpooled.federation import Simulation
    >>> from unpooled.protocol import run
    >>> sites = Simulation.from_rows({"north": np.array([[0.0], [9.0]]), "south": np.array([[0.2], [9.2]])})
    >>> sorted(run(DWF(k=2, local_steps=2), sites).state.centers.round(1).ravel().tolist())
    [0.1, 9.1]
    """

    citation = "Holzer, Jacob, Kavane: Dynamically Weighted Federated k-Means. arXiv:2310.14858, 2023."
    advice = "Several local steps a round, momentum, or weights of your own"
    asks = (AskLocalMeans, AskLocalMoves)

    learning_rate: float = 1.0
    momentum: float = 0.0
    local_steps: int = 1
    weights: str = "counts"
    min_rounds: int = 1
    window: int = 300
    tol_kind: Literal["relative", "absolute"] = "relative"
    kfed_restarts: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.learning_rate <= 1:
            raise InputError(f"DWF: learning_rate must be in (0, 1], got {self.learning_rate}")
        if not 0 <= self.momentum < 1:
            raise InputError(f"DWF: momentum must be in [0, 1), got {self.momentum}")
        if self.local_steps < 1:
            raise InputError(f"DWF: local_steps must be >= 1, got {self.local_steps}")
        if self.window < 2:
            raise InputError(f"DWF: window must be >= 2, got {self.window}")
        if self.weights not in WEIGHTINGS:
            raise InputError(f"DWF: weights must be one of {', '.join(WEIGHTINGS)}, got {self.weights!r}")

    @classmethod
    def as_published(
        cls, *, k: int | None = None, participation: float = 1.0, weights: str = "counts"
    ) -> Self:
        """Return the paper's settings: eta 0.01, mu 0.8, 5 local steps, k-FED start, 1e-8, 10,000 rounds."""
        return cls(
            k=k,
            participation=participation,
            weights=weights,
            learning_rate=0.01,
            momentum=0.8,
            local_steps=5,
            min_rounds=16,
            tol=1e-8,
            tol_kind="absolute",
            max_rounds=10_000,
            kfed_restarts=5,
        )

    def work_limits(self) -> WorkLimits:
        usual = super().work_limits()
        if self.kfed_restarts:
            usual[AskLocalMeans]["n_init"] = self.kfed_restarts
        return {**usual, AskLocalMoves: {"steps": self.local_steps}}

    @property
    def own_start(self) -> bool:
        return self.kfed_restarts > 0

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[DWFState]:
        if self.kfed_restarts:
            kfed = KFed.as_published_by_holzer(k=self.clusters, restarts=self.kfed_restarts)
            centers = (yield from kfed.start(sites, rng)).centers
            spread = 1.0
        else:
            seeding = yield from starts(
                sites, self.clusters, self.init, 1, rng, min_cluster_size=self.min_cluster_size
            )
            centers, spread = seeding.centers[0], seeding.spread
        threshold = self.tol if self.tol_kind == "absolute" else float(np.sqrt(self.tol * spread))
        return DWFState(
            centers=centers,
            previous=centers,
            movements=np.zeros(0),
            inertia=float("inf"),
            threshold=threshold,
            rounds=0,
        )

    def round(self, state: DWFState, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[DWFState]:
        asked = sample_sites(sites, self.participation, rng)
        # down: the centres; up: sums over sites of the weighted and the plain moves, and of the weights
        moves = yield from total(asked, AskLocalMoves(state.centers, self.local_steps, self.weights))

        full = moves.weight > 0
        weighted = moves.weighted / np.where(full, moves.weight, 1.0)[:, None]
        target = state.centers + np.where(full[:, None], weighted, moves.plain / moves.sites)
        centers = updates.heavy_ball(state.centers, state.previous, target, self.learning_rate, self.momentum)
        moved = updates.movement(state.centers, centers)
        return replace(
            state,
            centers=centers,
            previous=state.centers,
            movements=np.concatenate([state.movements[-(self.window - 1) :], [moved]]),
            inertia=float(moves.inertia.sum()),
            rounds=state.rounds + 1,
        )

    def finished(self, state: DWFState) -> bool:
        if state.rounds >= self.max_rounds:
            return True
        if state.rounds < self.min_rounds:
            return False
        resting = state.movement < state.threshold or state.movement == 0
        # movements grow while momentum builds up: those of the first min_rounds are not compared
        full = len(state.movements) == self.window and state.rounds >= self.min_rounds + self.window
        return resting or (full and bool(state.movements[0] == state.movements.min()))


@dataclass(frozen=True, eq=False, kw_only=True)
class EWF(DWF, method="ewf"):
    """Equally weighted federated k-means: DWF with equal weights.

    Parameters
    ----------
    k, init, max_rounds, tol, participation, min_cluster_size
        See ``Method``.
    learning_rate, momentum, local_steps, weights, min_rounds, window, tol_kind, kfed_restarts
        See ``DWF``.

    Examples
    --------
    >>> from unpooled.algorithms import EWF
    >>> EWF(k=3).weights
    'equal'
    """

    advice = "Every site has the same weight, however many rows it holds"

    weights: str = "equal"

    @classmethod
    def as_published(
        cls, *, k: int | None = None, participation: float = 1.0, weights: str = "equal"
    ) -> Self:
        """Return the settings of ``DWF.as_published`` with equal weights."""
        return super().as_published(k=k, participation=participation, weights=weights)
