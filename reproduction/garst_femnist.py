"""Garst & Reinders, figure 5: FEMNIST, 10 sites, k = 60; silhouette and simplified silhouette.

The authors' ten writers are not available; the first ten clients of the local FEMNIST file replace them. They
hold other images, so the order of the methods can be compared, but the scores only roughly.
"""

from dataclasses import replace

import numpy as np

from reproduction.common import final_centers, pooled_kmeans, seed_from
from reproduction.data_sources import Sources
from reproduction.experiment import Experiment, Numbers, Plot, Presentation, Results, Settings, seed_of
from reproduction.garst_runs import PAPER, from_records
from reproduction.plots import bars
from reproduction.result_table import STORED, Published, ResultTable, Row, row
from unpooled.algorithms import FKM, KFed, Lloyd
from unpooled.app.compare.scores import labels_of
from unpooled.data.examples.images import read_images
from unpooled.data.examples.synthetic import PartitionedData
from unpooled.evaluation.metrics import simplified_silhouette
from unpooled.federation import Simulation
from unpooled.protocol.exchange import run_protocol
from unpooled.typing import FloatArray

K, SITES = 60, 10
LOCAL = tuple(
    range(9, K + 1, 3)
)  # k' that "informed" k-FED chooses from: 6 gives fewer than 60 means in some runs
NAMES = ("silhouette", "simplified silhouette")
NOTES = (
    "These are not the authors' data. Their ten writers have about 110 images each. Ours, the first ten of "
    "Holzer et al.'s clients, have about 170 images of other writers. Only the order of the methods can be "
    "expected to agree.",
    "The paper sees a high correlation of the silhouette and the simplified silhouette in its figure 5. The "
    "last row is the correlation over the means of all methods and all k'.",
)
PUBLISHED = {  # silhouette, simplified: means of the authors' stored files
    "central": (0.103, 0.233),
    "FKM": (0.094, 0.232),
    "k-FED": (0.078, 0.199),
    "k-FED, informed": (0.083, 0.203),
}


def perform(settings: Settings, runs: range, sources: Sources) -> Numbers:
    """Return the silhouette and the simplified silhouette."""
    from sklearn.metrics import silhouette_score

    images = read_images(sources.path("femnist-iid"))
    assert images.owner is not None
    chosen = images.owner < SITES
    X, site = images.rows(np.float64)[chosen], images.owner[chosen]
    drawn, everything = (
        PartitionedData(X, images.y[chosen], site),
        Simulation.from_rows({"all": X}, n_threads=1),
    )
    out: Numbers = {name: [] for name in NAMES}
    for number in runs:
        rng = np.random.default_rng(seed_of(settings, number))
        centers = _centers(settings, drawn, rng)
        labels = labels_of(X, centers)
        used = np.unique(labels)
        # as in the authors' code: about the means of the clusters, not about the centres
        means = np.array([X[labels == j].mean(axis=0) for j in used])
        out["silhouette"].append(float(silhouette_score(X, labels)))
        out["simplified silhouette"].append(
            run_protocol(simplified_silhouette(everything.sites, means), everything)
        )
    return out


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
    return {"method": method, "data": sources.origin("femnist-iid"), **more}


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
        ("k-FED, informed", f"k-FED, informed: k' = {best}", _settings("k-FED", sources, k_local=best)),
        ("", "FKM, our default", _settings("FKM, our default", sources)),
        ("", "unpooled", _settings("unpooled", sources)),
    ]
    rows: list[Row] = []
    for key, label, settings in listed:
        for i, name in enumerate(NAMES):
            known = Published(PUBLISHED[key][i], digits=3, provenance=STORED) if key else None
            line = row((label, name), results.values(settings, name), known, digits=3)
            rows.append(replace(line, unjudged="other data"))
    all_of = [s for _, _, s in listed[:3] + listed[4:]] + [
        _settings("k-FED", sources, k_local=k) for k in LOCAL
    ]
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
    return Presentation((table,), tuple(figures), NOTES)


EXPERIMENTS = (
    Experiment(
        "garst-fig5",
        PAPER,
        "FKM and k-FED on FEMNIST",
        full=50,
        quick=5,
        block=5,
        configurations=_configurations,
        perform=perform,
        present=_present,
        version=2,
        needs=("femnist-iid",),
    ),
)
