"""Holzer et al., figure 1: one round of a toy example, with and without relocation of empty clusters.

Three blobs, each at a client of its own, and a centroid at the middle of each blob. Two of the three clients
take part in the round, with five local steps, eta = 1 and mu = 0. A local cluster without rows keeps its
centroid, as in the paper, or its centroid is relocated to the row that is farthest from its own centroid, as
in scikit-learn. The paper's message: relocation moves the well-placed centroid of the absent client, whether
clients are weighted equally (EWF) or dynamically (DWF), because all weights of that centroid are zero and the
fallback of DWF is the plain mean. The paper has a picture and no number.
"""

import numpy as np

from reproduction.common import inertia_per_row
from reproduction.data_sources import Sources
from reproduction.experiment import Experiment, Numbers, Plot, Presentation, Results, Settings, seed_of
from reproduction.holzer import PAPER
from reproduction.plots import bars
from reproduction.result_table import ResultTable, row
from unpooled.typing import FloatArray

MIDDLES = np.array([[0.0, 0.0], [4.0, 0.0], [2.0, 3.5]])
SPREAD, ROWS, STEPS = 0.5, 40, 5
NAMES = ("movement of the absent client's centroid", "score after the round")


def local_steps(X: FloatArray, centers: FloatArray, *, relocate: bool, steps: int = STEPS) -> FloatArray:
    """Return a client's centroids after some k-means steps."""
    centers = centers.copy()
    for _ in range(steps):
        distances = ((X[:, None] - centers) ** 2).sum(axis=2)
        labels, far = distances.argmin(axis=1), np.argsort(-distances.min(axis=1))
        empty = [j for j in range(len(centers)) if not (labels == j).any()]
        for j in range(len(centers)):
            if j not in empty:
                centers[j] = X[labels == j].mean(axis=0)
        if relocate:
            for place, j in enumerate(empty):
                centers[j] = X[far[place]]
    return centers


def one_round(clients: list[FloatArray], centers: FloatArray, *, relocate: bool, weights: str) -> FloatArray:
    """Return the global centroids after a round of these clients (equations 3, 4, 7 and 8; eta 1, mu 0)."""
    local = np.stack([local_steps(X, centers, relocate=relocate) for X in clients])
    counts = np.ones((len(clients), len(centers)))
    if weights == "DWF":
        nearest = [((X[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1) for X in clients]
        counts = np.array([np.bincount(labels, minlength=len(centers)) for labels in nearest], dtype=float)
        counts[:, counts.sum(axis=0) == 0] = 1.0
    merged: FloatArray = (counts[..., None] * local).sum(axis=0) / counts.sum(axis=0)[:, None]
    return merged


def perform(settings: Settings, runs: range, sources: Sources) -> Numbers:
    """Return how far the absent client's centroid moves, and the score over the rows of all clients."""
    out: Numbers = {name: [] for name in NAMES}
    for number in runs:
        rng = np.random.default_rng(seed_of({"set": "toy"}, number))
        clients = [middle + SPREAD * rng.standard_normal((ROWS, 2)) for middle in MIDDLES]
        after = one_round(clients[:2], MIDDLES, relocate=settings["relocate"], weights=settings["weights"])
        out[NAMES[0]].append(float(np.linalg.norm(after[2] - MIDDLES[2])))
        out[NAMES[1]].append(inertia_per_row(np.concatenate(clients), after))
    return out


def _configurations(sources: Sources, quick: bool) -> list[Settings]:
    return [{"weights": w, "relocate": r} for w in ("EWF", "DWF") for r in (False, True)]


def _present(results: Results, sources: Sources, quick: bool) -> Presentation:
    rows = []
    for s in _configurations(sources, quick):
        label = "with relocation" if s["relocate"] else "no relocation"
        rows += [row((s["weights"], label, name), results.values(s, name)) for name in NAMES]
    table = ResultTable(
        "fig1", "One round, one of three clients absent", ("weights", "empty clusters", "score"), tuple(rows)
    )
    moved = [r for r in rows if r.what[2] == NAMES[0]]
    values, errors = np.array([r.ours for r in moved]), np.array([r.error for r in moved])
    svg = bars(
        NAMES[0], [f"{r.what[0]}, {r.what[1]}" for r in moved], values, errors, np.full(len(moved), np.nan)
    )
    return Presentation((table,), (Plot("fig1", f"Figure 1: {NAMES[0]}", svg),), NOTES)


NOTES = (
    "The paper shows a picture of one such round and no number. Without relocation the absent client's "
    "centroid stays; with relocation it moves to rows of other clients, with equal and with dynamic weights.",
)

EXPERIMENTS = (
    Experiment(
        "holzer-fig1",
        PAPER,
        "one round with and without relocation of empty clusters",
        full=100,
        quick=10,
        block=100,
        configurations=_configurations,
        perform=perform,
        present=_present,
    ),
)
