"""The same penguins clustered in three ways, and a reconstruction attack on the logs of the islands."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from unpooled.data.examples import Penguins, load_penguins
from unpooled.data.summary_table import SummaryTable
from unpooled.estimators import FederatedKMeans
from unpooled.federation import LocalFederation
from unpooled.privacy.microaggregation import microaggregate
from unpooled.protocol.messages import SiteId
from unpooled.site.audit.attack import on_log
from unpooled.site.audit.overview import read
from unpooled.site.open_site import open_site
from unpooled.site.policy import Policy, Protect
from unpooled.typing import FloatArray

K = 3
SEEDS = 10  # number of runs from other seeds, to check that the run shown is typical

Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sent:
    """The messages that an island sent, by its own log, and the rows that an attack reconstructs from it."""

    messages: int
    numbers: int
    bytes: int
    reconstructed: int  # rows


@dataclass(frozen=True, eq=False)
class Clustering:
    """Labels and centres, numbered from the lightest cluster to the heaviest, and what the islands sent."""

    labels: Labels  # (n,)
    centers: FloatArray  # (k, d) in millimetres and grams
    inertia: float  # of all rows, in standardised columns
    sent: dict[SiteId, Sent] = field(default_factory=dict)

    @property
    def reconstructed(self) -> int:
        """The number of rows that an attack reconstructs from the messages of all islands."""
        return sum(one.reconstructed for one in self.sent.values())


@dataclass(frozen=True, eq=False)
class PenguinStudy:
    """The three clusterings of the same penguins."""

    penguins: Penguins
    pooled: Clustering
    from_summaries: Clustering  # sites answer from their summary tables, as real sites do by default
    raw: Clustering  # sites answer from their rows, and suppress clusters of fewer than 5
    summaries: dict[SiteId, SummaryTable]
    worst: float  # inertia of the worst of SEEDS seeds, from summary tables

    def sizes(self) -> npt.NDArray[np.int64]:
        """Return (islands, k) the number of penguins of each island in each cluster, from summary tables."""
        found = [self.from_summaries.labels[self.penguins.island == name] for name in self.summaries]
        return np.array([np.bincount(labels, minlength=K) for labels in found])


def compare() -> PenguinStudy:
    """Cluster the penguins: pooled, from summary tables, and from raw rows; the result is that of seed 0."""
    penguins = load_penguins()
    rows = penguins.by_island()
    others = [
        FederatedKMeans(K, scale="standard", protect="summary", random_state=seed).fit(rows)
        for seed in range(SEEDS)
    ]
    worst = max(_ordered(penguins, m.predict(penguins.X), m.cluster_centers_, {}).inertia for m in others)
    summary = Protect("summary", one_row_per_person=True, no_sensitive_columns=True, auto_approve=True)
    return PenguinStudy(
        penguins,
        _pooled(penguins, 0),
        _federated(penguins, Policy(protect=summary)),
        _federated(penguins, Policy(protect=Protect("raw"))),
        {name: microaggregate(X) for name, X in rows.items()},
        worst,
    )


def _federated(penguins: Penguins, policy: Policy) -> Clustering:
    with tempfile.TemporaryDirectory() as folder:
        homes = {name: Path(folder) / name for name in penguins.by_island()}
        sites = [open_site(name, X, policy, homes[name]) for name, X in penguins.by_island().items()]
        model = FederatedKMeans(K, scale="standard", protect=policy.protect.mode, random_state=0)
        model.fit_federation(LocalFederation(sites))
        for site in sites:
            site.close()
        sent = {name: _sent(home, penguins.X[penguins.island == name]) for name, home in homes.items()}
    # Every island would label its own penguins with the final centres; here all are labelled at once.
    return _ordered(penguins, model.predict(penguins.X), model.cluster_centers_, sent)


def _sent(home: Path, rows: FloatArray) -> Sent:
    (run,) = read(home).runs
    return Sent(run.answers, run.numbers, run.bytes, on_log(home / "log.jsonl").hits(rows))


def _pooled(penguins: Penguins, seed: int) -> Clustering:
    pipeline = make_pipeline(StandardScaler(), KMeans(K, n_init=10, random_state=seed)).fit(penguins.X)
    scaler, kmeans = pipeline[0], pipeline[-1]
    return _ordered(penguins, kmeans.labels_, scaler.inverse_transform(kmeans.cluster_centers_), {})


def _ordered(
    penguins: Penguins, labels: npt.NDArray[Any], centers: FloatArray, sent: dict[SiteId, Sent]
) -> Clustering:
    order = np.argsort(centers[:, -1])
    labels, centers = np.argsort(order)[labels], centers[order]
    scaled = (penguins.X - centers[labels]) / penguins.X.std(axis=0)
    return Clustering(labels, centers, float((scaled**2).sum()), sent)
