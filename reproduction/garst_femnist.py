"""Garst & Reinders, figure 5: FEMNIST, 10 sites, k = 60; silhouette and simplified silhouette.

The images are the authors' (swiergarst/fedKMeans, b1f39cf, data/MNIST/MNIST_cluster_client0.csv to 9): figure
7 shows how many each client has. The paper prints no number. The published ones are means over the 200 runs
in the authors' repository (4df797b, results/femnist_*.csv; FKM: 94ad7d3, results/FEMNIST_V3.csv).
"""

import numpy as np

from reproduction.common import final_centers, pooled_kmeans, seed_from
from reproduction.data_sources import Sources
from reproduction.experiment import Experiment, Numbers, Plot, Presentation, Results, Settings, seed_of
from reproduction.garst_runs import PAPER, from_records
from reproduction.plots import bars, counts
from reproduction.result_table import STORED, Published, ResultTable, Row, row
from unpooled.algorithms import FKM, KFed, Lloyd
from unpooled.app.compare.scores import labels_of
from unpooled.data.examples.synthetic import PartitionedData
from unpooled.typing import FloatArray, IntArray

K = 60
LOCAL = tuple(range(9, K + 1, 3))  # k' to choose from: 6 gives fewer than 60 means in some runs
NAMES = ("silhouette", "simplified silhouette")
NOTES = ("The last row is the correlation over the means of all methods and all k'.",)


def _stored(mean: float, sd: float) -> Published:
    return Published(mean, sd, 200, provenance=STORED)


PUBLISHED = {  # silhouette, simplified
    "central": (_stored(0.1027, 0.0035), _stored(0.2329, 0.0030)),
    "FKM": (_stored(0.0936, 0.0050), _stored(0.2324, 0.0035)),
    "k-FED": (_stored(0.0781, 0.0058), _stored(0.1991, 0.0069)),
    "k-FED, informed": (_stored(0.0834, 0.0063), _stored(0.2027, 0.0058)),
}
INFORMED = 21  # the k' that the authors' "informed" k-FED found


def images_of(sources: Sources) -> PartitionedData:
    """Return the authors' images, as numbers from 0 to 1; labels are not used."""
    stored = sources.arrays("garst-femnist")
    site = stored["client"].astype(np.int64)
    return PartitionedData(stored["X"] / 255.0, np.zeros_like(site), site)


def perform(settings: Settings, runs: range, sources: Sources) -> Numbers:
    """Return the silhouette and the simplified silhouette."""
    from sklearn.metrics import silhouette_score

    drawn = images_of(sources)
    X = drawn.X
    out: Numbers = {name: [] for name in NAMES}
    for number in runs:
        rng = np.random.default_rng(seed_of(settings, number))
        centers = _centers(settings, drawn, rng)
        labels = labels_of(X, centers)
        out["silhouette"].append(float(silhouette_score(X, labels)))
        out["simplified silhouette"].append(simplified(X, labels))
    return out


def simplified(X: FloatArray, labels: IntArray) -> float:
    """Return the simplified silhouette as in the authors' code, about the means of the clusters.

    A row belongs to the cluster of its nearest centre, which need not have the nearest mean: then its
    contribution is negative. ``unpooled.evaluation.metrics`` takes the nearest mean.

    >>> round(simplified(np.array([[0.0], [2.0], [4.0], [9.0]]), np.array([0, 0, 1, 1])), 3)
    0.62
    """
    from sklearn.metrics import pairwise_distances

    used, own = np.unique(labels, return_inverse=True)
    away = pairwise_distances(X, np.array([X[labels == j].mean(axis=0) for j in used]))
    rows = np.arange(len(X))
    a = away[rows, own]
    away[rows, own] = np.inf
    b = away.min(axis=1)
    return float(((b - a) / np.maximum(a, b)).mean())


def _centers(settings: Settings, drawn: PartitionedData, rng: np.random.Generator) -> FloatArray:
    method = settings["method"]
    if method == "central":
        return pooled_kmeans(drawn.X, K, rng)
    if method == "FKM":
        return final_centers(from_records(drawn, K, rng), drawn.sites(), seed_from(rng))
    if method == "FKM, our default":
        return final_centers(FKM(k=K), drawn.sites(), seed_from(rng))
    if method == "k-FED":
        return final_centers(
            KFed.as_published_code(k=K, k_local=settings["k_local"]), drawn.sites(), seed_from(rng)
        )
    return final_centers(Lloyd(k=K), drawn.sites(), seed_from(rng))


def _settings(method: str, sources: Sources, **more: int) -> Settings:
    return {"method": method, "data": sources.origin("garst-femnist"), **more}


def _configurations(sources: Sources, quick: bool) -> list[Settings]:
    named = [_settings(m, sources) for m in ("central", "FKM", "FKM, our default", "unpooled")]
    return named + [_settings("k-FED", sources, k_local=k) for k in LOCAL]


def _present(results: Results, sources: Sources, quick: bool) -> Presentation:
    best = max(
        LOCAL,
        key=lambda k: float(results.values(_settings("k-FED", sources, k_local=k), "silhouette").mean()),
    )
    listed = [
        ("central", "central, n_init 10", _settings("central", sources)),
        ("FKM", "FKM", _settings("FKM", sources)),
        ("k-FED", "k-FED, k' = 60", _settings("k-FED", sources, k_local=K)),
        ("k-FED, informed", f"k-FED, k' = {INFORMED}", _settings("k-FED", sources, k_local=INFORMED)),
        ("", f"k-FED, informed: k' = {best}", _settings("k-FED", sources, k_local=best)),
        ("", "FKM, our default", _settings("FKM, our default", sources)),
        ("", "unpooled", _settings("unpooled", sources)),
    ]
    rows: list[Row] = []
    for key, label, settings in listed:
        for i, name in enumerate(NAMES):
            known = PUBLISHED[key][i] if key else None
            rows.append(row((label, name), results.values(settings, name), known, digits=4))
    all_of = _configurations(sources, quick)
    both = np.array([[results.values(s, name).mean() for name in NAMES] for s in all_of])
    correlation = np.corrcoef(both.T)[0, 1]
    rows.append(row(("all methods", "correlation of the two scores"), np.array([correlation]), digits=3))
    table = ResultTable("fig5", "FEMNIST, ten sites (higher is better)", ("method", "score"), tuple(rows))
    figures = []
    for name in NAMES:
        of_score = [r for r in rows if r.what[1] == name]
        marks = np.array([r.published.value if r.published is not None else np.nan for r in of_score])
        values, errors = np.array([r.ours for r in of_score]), np.array([r.error for r in of_score])
        svg = bars(name, [r.what[0] for r in of_score], values, errors, marks)
        figures.append(Plot(f"fig5-{name.replace(' ', '-')}", f"Figure 5: {name}", svg))
    sizes = np.bincount(images_of(sources).site)
    svg = counts("images by site", [f"site {i}" for i in range(len(sizes))], sizes)
    figures.append(Plot("fig7", "Figure 7: images by site", svg))
    return Presentation((table,), tuple(figures), NOTES)


EXPERIMENTS = (
    Experiment(
        "garst-fig5",
        PAPER,
        "FKM and k-FED on FEMNIST",
        full=200,
        quick=5,
        block=5,
        configurations=_configurations,
        perform=perform,
        present=_present,
        version=4,
        needs=("garst-femnist",),
    ),
)
