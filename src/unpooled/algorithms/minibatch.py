"""Mini-batch federated k-means with a decaying server rate and reassignment of unused clusters.

Triebe & Rajagopal: Federated K-Means: clustering algorithm and proof of concept. 2019 (algorithm 1).

Their letters: C share of clients a round (``participation``), T rounds, E local epochs, B batch size,
alpha server learning rate, beta client learning rate. Weights are the counts of the last local epoch. A
cluster below 1% of the ROUND's sampled rows for 20 rounds in a row gets a new uniform position and no
velocity.

The captions give two numbers for alpha, (1, 0.5), and the text does not explain the second.
``as_published`` reads a rate of 1 that decays as t^-0.5: of the readings that we tried it is nearest to the
figures, though it does not give all of them (docs/papers/triebe.md). ``as_published_code`` is the authors'
repository, whose code is three months older than the paper: a rate of 1 and a momentum of 0.5, an
exponential mean, v = m v + (1 - m) lr u; C += v.

The default starts like every other method; the two presets start uniformly on [0, K + 1], for the authors'
1-D data, and run all T rounds.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np

from unpooled import kernels
from unpooled.algorithms import server_updates as updates
from unpooled.algorithms.method import Method, WorkLimits, sample_sites
from unpooled.algorithms.seeding import spread_of, starts
from unpooled.errors import InputError
from unpooled.protocol.algorithm import State, Steps, total
from unpooled.protocol.declarations import Centers, Count, Repeats, Setting, Sum
from unpooled.protocol.limits import MAX_EPOCHS
from unpooled.protocol.messages import Question, SiteId, Summable
from unpooled.protocol.site_batch import ReplyBatch, SiteBatch
from unpooled.protocol.suppression import zero_suppressed
from unpooled.typing import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class EpochMoves(Summable):
    """The difference of a site's centres after its epochs from the received ones, weighted by counts."""

    cells = "counts"

    weighted: Annotated[FloatArray, Sum("k d", rows="counts")]  # count (C_i - C)
    counts: Annotated[FloatArray, Count("k")]  # of the last epoch
    rows: Annotated[FloatArray, Count("1")]  # rows of the site, for the share that reassignment uses


@dataclass(frozen=True, eq=False)
class AskEpochs(Question[EpochMoves]):
    """Weighted movement of the site's centres in E epochs of mini-batch k-means from these centres."""

    reads = "rows"
    asks_for = "for each centre: how far it moves in some epochs of mini-batch k-means on the site's rows"

    centers: Annotated[FloatArray, Centers("k d")]
    epochs: Annotated[int, Repeats(max_value=MAX_EPOCHS)]
    batch: Annotated[int, Setting()]
    rate: Annotated[float, Setting(above=0, max_value=1)]

    def answer_all(self, batch: SiteBatch) -> ReplyBatch[EpochMoves]:
        local = kernels.minibatch(
            batch.X,
            batch.offsets,
            self.centers,
            batch.seeds,
            batch.weights,
            epochs=self.epochs,
            batch=self.batch,
            rate=self.rate,
            threads=batch.threads,
        )
        disclosed = batch.disclosed(local.mass, local.squares)
        counts = zero_suppressed(disclosed, local.mass)
        weighted = zero_suppressed(disclosed, (local.centers - self.centers) * counts[..., None])
        return ReplyBatch(EpochMoves(weighted, counts, counts.sum(axis=1, keepdims=True)), len(batch))


@dataclass(frozen=True, eq=False, kw_only=True)
class MiniBatchState(State):
    """Centres, their velocity, and the number of rounds for which each has been nearly unused."""

    centers: FloatArray  # (k, d)
    velocity: FloatArray  # (k, d)
    unused: IntArray  # (k,)
    low: FloatArray  # (d,) the box in which unused centres get a new place
    high: FloatArray  # (d,)
    movement: float
    inertia: float
    threshold: float
    rounds: int


@dataclass(frozen=True, eq=False, kw_only=True)
class MiniBatch(Method, method="mini-batch"):
    """Mini-batch federated k-means after Triebe & Rajagopal.

    Parameters
    ----------
    k, init, max_rounds, tol, participation, min_cluster_size
        See ``Method``.
    epochs : int
        The number of passes over its rows that a site makes in a round (E).
    batch : int
        The number of rows in a batch (B); 0 takes all rows of a site at once.
    learning_rate : float
        The share of the sites' mean movement that the coordinator follows (alpha).
    decay : float
        Round t has the rate ``learning_rate * t ** -decay``.
    momentum : float
        The share of its last movement that the coordinator adds, in [0, 1).
    client_rate : float
        The learning rate at the sites (beta), in (0, 1].
    reassign_below : float
        The share of a round's rows below which a cluster counts as unused.
    reassign_after : int
        The number of rounds in a row after which an unused cluster gets a new position; 0: never.
    low, high : float or None
        A stated range to start and reassign in. None takes it from the moments of the columns.
    start_uniform : bool
        Whether centres start at uniform positions in that range, whatever ``init`` is.
    stop : bool
        Whether a run stops when the centres rest. Otherwise it has ``max_rounds`` rounds.

    Examples
    --------
    >>> from unpooled.algorithms import MiniBatch
    >>> MiniBatch(k=3, epochs=2, batch=50).epochs
    2
    """

    citation = "Triebe, Rajagopal: Federated K-Means: Clustering Algorithm and Proof of Concept. 2019."
    advice = "Many small sites of which few answer a round; local epochs in batches"
    asks = (AskEpochs,)

    epochs: int = 1
    batch: int = 0
    learning_rate: float = 1.0
    decay: float = 0.0
    momentum: float = 0.0
    client_rate: float = 1.0
    reassign_below: float = 0.01
    reassign_after: int = 20
    low: float | None = None
    high: float | None = None
    start_uniform: bool = False
    stop: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epochs < 1 or self.batch < 0:
            raise InputError(
                f"MiniBatch: epochs must be >= 1 and batch >= 0, got {self.epochs}, {self.batch}"
            )
        if not 0 <= self.momentum < 1:
            raise InputError(f"MiniBatch: momentum must be in [0, 1), got {self.momentum}")
        if not 0 <= self.decay <= 1:
            raise InputError(f"MiniBatch: decay must be in [0, 1], got {self.decay}")
        if not (0 < self.client_rate <= 1 and self.learning_rate > 0):
            raise InputError("MiniBatch: client_rate must be in (0, 1] and learning_rate > 0")
        if (self.low is None) != (self.high is None):
            raise InputError("MiniBatch: state both low and high, or neither")

    @classmethod
    def as_published(
        cls,
        *,
        k: int,
        participation: float = 0.1,
        epochs: int = 1,
        batch: int = 0,
        client_rate: float = 1.0,
        rounds: int = 200,
    ) -> Self:
        """Return the settings of the figures: alpha = (1, 0.5) as 1 t^-0.5, T = 200, a uniform start.

        C, E, B and beta differ by figure.
        """
        return cls(
            k=k,
            participation=participation,
            epochs=epochs,
            batch=batch,
            client_rate=client_rate,
            max_rounds=rounds,
            decay=0.5,
            low=0.0,
            high=k + 1.0,
            start_uniform=True,
            stop=False,
        )

    @classmethod
    def as_published_code(
        cls,
        *,
        k: int,
        participation: float = 0.1,
        epochs: int = 1,
        batch: int = 0,
        client_rate: float = 1.0,
        rounds: int = 200,
    ) -> Self:
        """Return the same with alpha = (1, 0.5) as (rate, momentum), as in the authors' repository."""
        published = cls.as_published(
            k=k,
            participation=participation,
            epochs=epochs,
            batch=batch,
            client_rate=client_rate,
            rounds=rounds,
        )
        return replace(published, decay=0.0, momentum=0.5)

    def work_limits(self) -> WorkLimits:
        return {**super().work_limits(), AskEpochs: {"epochs": self.epochs}}

    @property
    def own_start(self) -> bool:
        return self.start_uniform

    @property
    def stops_at_rest(self) -> bool:
        return self.stop and super().stops_at_rest

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[MiniBatchState]:
        k = self.clusters
        moments = yield from spread_of(sites)
        if moments.n < k:
            raise InputError(f"k={k} clusters from {moments.n:g} rows")
        reach = np.sqrt(3 * moments.variance)  # a uniform range with the data's mean and variance
        low = moments.mean - reach if self.low is None else np.full(len(reach), float(self.low))
        high = moments.mean + reach if self.high is None else np.full(len(reach), float(self.high))
        if self.start_uniform:
            centers = rng.uniform(low, high, (k, len(low)))
        else:
            seeding = yield from starts(sites, k, self.init, 1, rng, min_cluster_size=self.min_cluster_size)
            centers = seeding.centers[0]
        return MiniBatchState(
            centers=centers,
            velocity=np.zeros_like(centers),
            unused=np.zeros(k, dtype=np.int64),
            low=low,
            high=high,
            movement=float("inf"),
            inertia=float("nan"),
            threshold=float(np.sqrt(self.tol * moments.variance.mean())),
            rounds=0,
        )

    def round(
        self, state: MiniBatchState, sites: tuple[SiteId, ...], rng: np.random.Generator
    ) -> Steps[MiniBatchState]:
        asked = sample_sites(sites, self.participation, rng)
        # down: the centres; up: sums over sites of counts and of count-weighted moves
        question = AskEpochs(state.centers, self.epochs, self.batch, self.client_rate)
        moves = yield from total(asked, question)

        update = updates.share_or_zero(moves.weighted, moves.counts)
        rate = self.learning_rate * (state.rounds + 1) ** -self.decay
        velocity = updates.ema(state.velocity, update, rate, self.momentum)
        centers = state.centers + velocity
        unused = np.where(moves.counts < self.reassign_below * moves.rows, state.unused + 1, 0)
        lost = unused >= self.reassign_after if self.reassign_after else np.zeros_like(unused, dtype=bool)
        if lost.any():
            fresh = rng.uniform(state.low, state.high, centers.shape)
            centers = np.where(lost[:, None], fresh, centers)
            velocity = np.where(lost[:, None], 0.0, velocity)
            unused = np.where(lost, 0, unused)
        return replace(
            state,
            centers=centers,
            velocity=velocity,
            unused=unused,
            movement=updates.movement(state.centers, centers),
            rounds=state.rounds + 1,
        )

    def finished(self, state: MiniBatchState) -> bool:
        rests = self.stop and state.rounds > 0 and state.movement <= state.threshold
        return state.rounds >= self.max_rounds or rests
