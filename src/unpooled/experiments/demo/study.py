"""The same penguins clustered in three ways, with an observer at every island."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from unpooled.core.arrays import FloatArray, Rows
from unpooled.core.exchange import Answer, Envelope, size
from unpooled.core.messages import SiteId
from unpooled.estimators import FederatedKMeans
from unpooled.experiments.datasets import Penguins, load_penguins
from unpooled.questions.clusters import AskClusterSums, ClusterSums
from unpooled.runtimes import InProcess
from unpooled.site import Site

K = 3
MINIMUM = 5
SEEDS = 10  # number of runs from other seeds, to check that the run shown is typical

Labels = npt.NDArray[np.int64]


@dataclass(eq=False)
class Door:
    """An observer at a site (its audit): counts what leaves, and searches it for small groups and rows."""

    rows: Rows  # (n, d)
    messages: int = 0
    numbers: int = 0
    zeros: int = 0  # numbers without content: the cell is empty, or suppressed
    bytes: int = 0
    smallest: float = float("inf")  # rows in the smallest group that was shown
    sent: set[int] = field(default_factory=set)  # rows that are contained in what left
    deduced: set[int] = field(default_factory=set)  # rows that follow by subtraction, see _remainders

    def __call__(self, post: Envelope, answer: Answer) -> None:
        numbers, amount = size(answer)
        self.messages += 1
        self.numbers += numbers
        self.bytes += amount
        for part, reply in zip(post.parts, answer.replies, strict=True):
            rows = self.rows if part.view is None else part.view.apply(self.rows)
            fields: list[npt.NDArray[Any]] = list(vars(reply).values())
            self.zeros += sum(int((array == 0).sum()) for array in fields)
            groups = getattr(reply, "mass", np.zeros(0))
            self.smallest = min(self.smallest, float(groups[groups > 0].min(initial=np.inf)))
            if isinstance(reply, ClusterSums) and isinstance(part.question, AskClusterSums):
                fields.append(reply.means(part.question.centers)[reply.mass > 0])
                self.deduced |= _rows_in(rows, _remainders(rows, reply, part.question.centers))
            for array in fields:
                if array.shape[-1] == rows.shape[1]:
                    self.sent |= _rows_in(rows, array.reshape(-1, rows.shape[1]))


def _remainders(rows: Rows, reply: ClusterSums, centers: FloatArray) -> FloatArray:
    """(m, d): all rows (their sum and number left as moments) minus the groups shown, if one row remains."""
    shown = (reply.sums + reply.mass[..., None] * centers).sum(axis=1)
    remaining: FloatArray = (rows.sum(axis=0) - shown)[reply.mass.sum(axis=1) == len(rows) - 1]
    return remaining


def _rows_in(rows: Rows, vectors: FloatArray) -> set[int]:
    """The rows that are among the vectors, up to rounding."""
    if not len(vectors):
        return set()
    far = [np.abs(vectors - row).max(axis=1).min() for row in rows]
    return set(np.flatnonzero(far <= 1e-9 * (1 + np.abs(rows).max(axis=1))).tolist())


@dataclass(frozen=True, eq=False)
class Clustering:
    """Labels and centres, numbered from the lightest cluster to the heaviest, and the observers' records."""

    labels: Labels  # (n,)
    centers: FloatArray  # (k, d) in millimetres and grams
    inertia: float  # of all rows, suppressed ones included, in standardised columns
    exchanges: int = 0
    doors: dict[SiteId, Door] = field(default_factory=dict)

    @property
    def smallest(self) -> int:
        return int(min(door.smallest for door in self.doors.values()))

    @property
    def sent(self) -> int:
        """Rows that left directly."""
        return sum(len(door.sent) for door in self.doors.values())

    @property
    def deduced(self) -> int:
        """Rows that did not leave directly, but follow by subtraction."""
        return sum(len(door.deduced - door.sent) for door in self.doors.values())


@dataclass(frozen=True, eq=False)
class Study:
    """The three clusterings of the same penguins."""

    penguins: Penguins
    pooled: Clustering
    guarded: Clustering  # groups below MINIMUM suppressed
    open: Clustering  # nothing suppressed
    worst: tuple[float, float]  # inertia of the worst of SEEDS seeds: guarded, open

    def sizes(self) -> npt.NDArray[np.int64]:
        """(islands, k): the number of penguins of each island in each cluster of the guarded run."""
        islands = self.guarded.doors
        found = [self.guarded.labels[self.penguins.island == name] for name in islands]
        return np.array([np.bincount(labels, minlength=K) for labels in found])

    def hidden(self) -> int:
        """Penguins in groups that are too small on their island to be shown."""
        sizes = self.sizes()
        return int(sizes[sizes < MINIMUM].sum())


def compare() -> Study:
    """Cluster the penguins: pooled, by guarded sites, and by sites that suppress nothing; seed 0 is shown."""
    penguins = load_penguins()
    guarded, unguarded = (
        [_federated(penguins, minimum, seed, observed=seed == 0) for seed in range(SEEDS)]
        for minimum in (MINIMUM, 1)
    )
    worst = max(run.inertia for run in guarded), max(run.inertia for run in unguarded)
    return Study(penguins, _pooled(penguins, 0), guarded[0], unguarded[0], worst)


def _federated(penguins: Penguins, minimum: int, seed: int, *, observed: bool) -> Clustering:
    doors = {name: Door(rows) for name, rows in penguins.by_island().items()}
    sites = [
        Site(name, door.rows, min_cluster_size=minimum, audit=door if observed else None)
        for name, door in doors.items()
    ]
    model = FederatedKMeans(K, scale="standard", min_cluster_size=minimum, random_state=seed)
    model.fit_federation(InProcess(sites))
    # Every island would label its own penguins with the final centres; here all are labelled at once.
    exchanges = max(door.messages for door in doors.values())
    return _ordered(penguins, model.predict(penguins.X), model.cluster_centers_, exchanges, doors)


def _pooled(penguins: Penguins, seed: int) -> Clustering:
    pipeline = make_pipeline(StandardScaler(), KMeans(K, n_init=10, random_state=seed)).fit(penguins.X)
    scaler, kmeans = pipeline[0], pipeline[-1]
    return _ordered(penguins, kmeans.labels_, scaler.inverse_transform(kmeans.cluster_centers_), 0, {})


def _ordered(
    penguins: Penguins, labels: Any, centers: FloatArray, exchanges: int, doors: dict[SiteId, Door]
) -> Clustering:
    order = np.argsort(centers[:, -1])
    labels, centers = np.argsort(order)[labels], centers[order]
    scaled = (penguins.X - centers[labels]) / penguins.X.std(axis=0)
    return Clustering(labels, centers, float((scaled**2).sum()), exchanges, doors)
