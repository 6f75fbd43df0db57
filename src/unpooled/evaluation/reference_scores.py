"""Scores of reference tables: the same figures as those of the data, computed at the coordinator."""

from dataclasses import dataclass

import numpy as np

from unpooled import kernels
from unpooled.evaluation.reference_tables import Rows
from unpooled.evaluation.replication import OTHER_HALF, SPLITS, STEPS, between, split_gains
from unpooled.kernels.observed import nearest_observed, observed
from unpooled.protocol.messages import Message
from unpooled.protocol.questions.half_sums import in_part
from unpooled.typing import FloatArray

_RESTARTS = 16  # with fewer, references of many clusters look less sharp than they are


@dataclass(frozen=True, eq=False)
class ReferenceScores(Message):
    """The figures of k clusters in reference tables."""

    gains: FloatArray  # (B,) mean split gains
    ratios: FloatArray  # (B,) inertia between clusters, divided by the inertia within them


class References:
    """Reference tables and their halves; ``scores`` clusters them for one k."""

    def __init__(self, rows: Rows, key: int) -> None:
        self.rows, self._key = rows, key
        count = len(rows.offsets) - 1
        place = np.arange(len(rows.X)) - np.repeat(rows.offsets[:-1], np.diff(rows.offsets))
        self._missing = bool(np.isnan(rows.X).any())
        self._filled = np.where(np.isnan(rows.X), 0.0, rows.X) if self._missing else rows.X
        self._halves = []
        for r in range(2 * SPLITS):
            at = in_part(key, r // 2, r % 2, 0.5, place)
            before = np.concatenate([[0], np.cumsum(at)])
            weights = None if rows.weights is None else rows.weights[at]
            self._halves.append(Rows(rows.X[at], weights, before[rows.offsets]))
        spans = [slice(a, b) for a, b in zip(rows.offsets[:-1], rows.offsets[1:], strict=True)]
        self._spans, self._count = spans, count
        if not self._missing:
            self._total = np.array([_inertia(rows.X[s], _of(rows.weights, s)) for s in spans])
            self._covariances = [_covariances(half) for half in self._halves]

    def scores(self, k: int) -> ReferenceScores:
        """Return the figures of k clusters."""
        rows = self.rows
        seeds = np.uint64(self._key % 2**31) + np.arange(self._count, dtype=np.uint64)
        found = kernels.kmeans(self._filled, rows.offsets, k, seeds, rows.weights, n_init=_RESTARTS)
        if self._missing:
            return self._scores_with_missing(found.centers)
        halves = [
            kernels.local_steps(half.X, half.offsets, found.centers, half.weights, steps=STEPS).centers
            for half in self._halves
        ]
        gains = []
        for r, half in enumerate(self._halves):
            step = kernels.local_steps(half.X, half.offsets, halves[OTHER_HALF[r]], half.weights, steps=1)
            shares = step.mass / np.maximum(step.mass.sum(axis=1, keepdims=True), 1e-300)
            gains.append(split_gains(shares, step.centers, self._covariances[r]))
        inertia = np.maximum(found.inertia, 1e-9 * self._total)
        return ReferenceScores(np.mean(gains, axis=0), np.maximum(self._total - found.inertia, 0.0) / inertia)

    def _scores_with_missing(self, centers: FloatArray) -> ReferenceScores:
        """The same over observed cells: Lloyd steps from the clusters of tables with filled cells."""
        gains, ratios = np.zeros(self._count), np.zeros(self._count)
        for b, span in enumerate(self._spans):
            table = _table(self.rows, span)
            own, _, _, _ = _observed_steps(table, centers[b], 2 * STEPS)
            _, mass, within, apart = _observed_steps(table, own, 1)
            ratios[b] = apart / max(within, 1e-300)
            inside = _within(table, own)
            halves, parts = [], []
            for half in self._halves:
                part = slice(int(half.offsets[b]), int(half.offsets[b + 1]))
                parts.append(_table(half, part))
                halves.append(_observed_steps(parts[-1], own, STEPS)[0])
            found = [_observed_steps(part, halves[OTHER_HALF[r]], 1) for r, part in enumerate(parts)]
            means, mass = np.stack([f[0] for f in found]), np.stack([f[1] for f in found])
            shares = mass / np.maximum(mass.sum(axis=1, keepdims=True), 1e-300)
            gains[b] = split_gains(shares, means, inside + between(shares, means)).mean()
        return ReferenceScores(gains, ratios)


def _table(rows: Rows, span: slice) -> Rows:
    """One of several tables."""
    ends = np.array([0, span.stop - span.start])
    return Rows(rows.X[span], _of(rows.weights, span), ends)


def _of(weights: FloatArray | None, span: slice) -> FloatArray | None:
    return None if weights is None else weights[span]


def _inertia(X: FloatArray, weights: FloatArray | None) -> float:
    """The inertia of all rows of a table."""
    w = np.ones(len(X)) if weights is None else weights
    return float(w @ ((X - w @ X / w.sum()) ** 2).sum(axis=1))


def _covariances(tables: Rows) -> FloatArray:
    """The covariance matrices (B, d, d) of tables."""
    spans = [slice(a, b) for a, b in zip(tables.offsets[:-1], tables.offsets[1:], strict=True)]
    d = tables.X.shape[1]
    return np.stack(
        [np.cov(tables.X[s].T, aweights=_of(tables.weights, s), bias=True).reshape(d, d) for s in spans]
    )


def _observed_steps(
    table: Rows, centers: FloatArray, steps: int
) -> tuple[FloatArray, FloatArray, float, float]:
    """Lloyd steps over observed cells: the centres after them; rows, and inertias within and between
    clusters, of the last step."""
    for _ in range(steps):
        t = observed(table.X, table.offsets, centers, table.weights, quality=False)
        known, mass = t.known[0], t.mass[0]
        moved = centers + np.where(known > 0, t.sums[0] / np.maximum(known, 1e-300), 0.0)
        mean = (known * moved).sum(axis=0) / np.maximum(known.sum(axis=0), 1e-300)
        within = float(t.inertia[0].sum() - (known * (moved - centers) ** 2).sum())
        centers = moved
    return centers, mass, within, float((known * (centers - mean) ** 2).sum())


def _within(table: Rows, centers: FloatArray) -> FloatArray:
    """The covariance within clusters, each entry of the rows that have both columns."""
    labels = nearest_observed(table.X, centers).labels
    there = ~np.isnan(table.X)
    weights = np.ones(len(table.X)) if table.weights is None else table.weights
    Z = np.where(there, table.X - centers[labels], 0.0)
    known = np.maximum(there.T @ (weights[:, None] * there), 1.0)
    sums = Z.T @ (weights[:, None] * there)
    raw = Z.T @ (weights[:, None] * Z) / known - (sums / known) * (sums.T / known)
    values, vectors = np.linalg.eigh(0.5 * (raw + raw.T))
    matrix: FloatArray = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return matrix
