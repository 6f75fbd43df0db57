"""Garst & Reinders: Federated K-means clustering. The runs of figures 1, 3 and 4.

Five sites, k = 16, 100 rounds, 200 runs. The paper scores central k-means by one ARI over all rows, FKM and
k-FED by the mean of every site's own ARI; both scores are given for all. FKM follows the authors' code: its
sites begin with raw records (k-means++ seeds), which no protocol of ours sends. This start is therefore
computed here, where all rows are available; "FKM, means only" is the same through the protocol. k-FED is that
of its authors' code, with k' = k; "informed" is the k' with the best mean ARI, chosen with the true labels.
Their loop over all sets weighs the sites' ARIs of k-FED by the sizes of the last set alone; that score is
given too.

With the authors' sets (``--data``) every run uses the same rows. Without them every run draws its own set,
and a published number, which is of one set, may differ by the spread over sets.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from reproduction.common import ari_by_site, final_centers, pooled_kmeans, round_by_round, seed_from
from reproduction.data_sources import Sources
from reproduction.experiment import Numbers, Settings, seed_of
from unpooled import kernels
from unpooled.algorithms import FKM, KFed, Lloyd
from unpooled.algorithms.fkm import FKMState
from unpooled.app.compare.scores import ari, labels_of
from unpooled.data.examples import synthetic
from unpooled.data.examples.synthetic import PartitionedData
from unpooled.protocol.algorithm import Algorithm, Steps
from unpooled.protocol.messages import SiteId
from unpooled.typing import FloatArray

PAPER = "Garst, Reinders: Federated K-means clustering. 2023."
K, ROUNDS = 16, 100
DRAWN_ROUNDS = (0, 1, 2, 5, 10, 20, 50, 100)  # rounds whose ARI figure 3 shows


def data_of(settings: Settings, rng: np.random.Generator, sources: Sources) -> PartitionedData:
    """Return the set of a figure: the authors', or one that is drawn."""
    if settings["data"] != "generated":
        stored, key = sources.arrays("garst"), _key(settings)
        X, y, client = (stored[f"{key}_{part}"] for part in ("X", "y", "client"))
        return PartitionedData(
            np.ascontiguousarray(X, dtype=float), y.astype(np.int64), client.astype(np.int64)
        )
    if "beta" not in settings:
        return synthetic.garst_variable(seed=rng)
    return synthetic.garst(settings["beta"], noise=settings["noise"], per_cluster=settings["rows"], seed=rng)


def last_sizes(settings: Settings, number: int, sources: Sources) -> FloatArray | None:
    """Return the rows of each site in the last set of the authors' loop.

    It has beta 10, 200 rows per cluster and noise 1.5. Returns None for the set whose sites have different
    clusters, which is not in that loop.
    """
    if "beta" not in settings:
        return None
    last: Settings = {"data": settings["data"], "beta": 10.0, "noise": 1.5, "rows": 200}
    of_last = data_of(last, np.random.default_rng(seed_of({**last, "last": True}, number)), sources)
    return np.bincount(of_last.site).astype(np.float64)


def _key(settings: Settings) -> str:
    if "beta" not in settings:
        return "clusterwise_small"
    return f"b{settings['beta']:g}_ppc{settings['rows']}_n{settings['noise']:g}"


@dataclass(frozen=True, eq=False, kw_only=True)
class FKMFromCenters(FKM):
    """FKM from given centres instead of its own first exchange."""

    first: FloatArray  # (k, d)

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[FKMState]:
        return FKMState(
            centers=self.first, movement=float("inf"), inertia=float("nan"), threshold=0.0, rounds=0
        )
        yield ()


def from_records(drawn: PartitionedData, k: int, rng: np.random.Generator, p: int = 2) -> FKMFromCenters:
    """Return FKM with the authors' start: sites send k-means++ seeds, which are rows, and their counts."""
    rows, counts = [], []
    for X in drawn.sites().values():
        seed = rng.integers(0, 2**63, size=1, dtype=np.uint64)
        seeds = kernels.kmeans(X, np.array([0, len(X)]), min(k, len(X)), seed, max_iter=0)
        large = seeds.mass[0] >= p
        rows.append(seeds.centers[0][large])
        counts.append(seeds.mass[0][large])
    published = FKM.as_published(k=k, p=p, rounds=ROUNDS)
    first, _ = published.clustered(np.concatenate(rows), np.concatenate(counts), rng)
    return FKMFromCenters(**{f.name: getattr(published, f.name) for f in fields(published)}, first=first)


def perform(settings: Settings, runs: range, sources: Sources) -> Numbers:
    """Return the ARI over all rows and by site, and for FKM as published also over the rounds."""
    method = settings["method"]
    out: Numbers = {}
    for number in runs:
        # all methods see the same set in the same run
        seen: Settings = {key: settings[key] for key in ("beta", "noise", "rows") if key in settings}
        drawn = data_of(settings, np.random.default_rng(seed_of(seen, number)), sources)
        rng = np.random.default_rng(seed_of(settings, number))
        if method == "FKM":
            rounds = list(round_by_round(from_records(drawn, K, rng), drawn.sites(), seed_from(rng)))
            for at in DRAWN_ROUNDS:
                score = ari_by_site(drawn.y, labels_of(drawn.X, rounds[at]), drawn.site)
                out.setdefault(f"round {at}", []).append(score)
            centers = rounds[-1]
        else:
            centers = _centers(method, settings, drawn, rng)
        labels = labels_of(drawn.X, centers)
        out.setdefault("ARI", []).append(ari(drawn.y, labels))
        out.setdefault("ARI by site", []).append(ari_by_site(drawn.y, labels, drawn.site))
        sizes = last_sizes(settings, number, sources) if method == "k-FED" else None
        if sizes is not None:
            score = ari_by_site(drawn.y, labels, drawn.site, sizes.tolist())
            out.setdefault("ARI by site, last sizes", []).append(score)
    return out


def _centers(method: str, settings: Settings, drawn: PartitionedData, rng: np.random.Generator) -> FloatArray:
    if method == "central":
        return pooled_kmeans(drawn.X, K, rng)
    algorithms: dict[str, Algorithm[Any]] = {
        "FKM, means only": FKM.as_published(k=K, rounds=ROUNDS),
        "FKM, our default": FKM(k=K),
        "k-FED": KFed.as_published_code(k=K, k_local=settings.get("k_local", K)),
        "k-FED, algorithm 2": KFed.as_published(k=K),
        "unpooled": Lloyd(k=K),
    }
    return final_centers(algorithms[method], drawn.sites(), seed_from(rng))
