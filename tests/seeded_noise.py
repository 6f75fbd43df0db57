"""What the tests of noisy questions share: one of each kind, and replies in units of their noise."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from unpooled.privacy.dp.noise import SimulatedAccountant
from unpooled.privacy.dp.noisy_cluster_sums import AskNoisyCells
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments, AskNoisySpread
from unpooled.protocol.site_batch import SiteBatch

SHARES = (0.3, 0.6, 0.1)


def batch(X, share=1.0, **settings):
    """The rows of one site, and noise that a simulation pays for."""
    noise = SimulatedAccountant().spend([1.0], [share])
    return SiteBatch(
        np.asarray(X, dtype=np.float64), np.array([0, len(X)]), None, np.zeros(1), noise=noise, **settings
    )


def questions(rng, d, mu=0.7):
    """One of each kind, with centres and radii drawn at random."""
    box = rng.uniform(0.2, 1.0, d)
    centers = rng.uniform(-box, box, (5, d))
    rho = rng.uniform(0.05, 1.0, 5)
    yield AskNoisyCells(mu, centers, box, rho, SHARES)
    yield AskNoisyCells(mu, centers, box, rho[:1], SHARES)  # one radius for all cells
    yield AskNoisyCells(mu, centers, box, rho, SHARES, m=float(rng.uniform(1.05, 4.0)))
    yield AskNoisyMoments(mu, box)
    yield AskNoisySpread(mu, box)


def whitened(question, reply, d):
    """The reply in units of its noise."""
    parts: Iterable[tuple[Any, Any]]
    if isinstance(question, AskNoisyCells):
        scaled, (count, sums, squares) = question.in_units(reply), question.sds
        parts = ((scaled.count, count), (scaled.sums, sums[:, None]), (scaled.squares, squares))
    elif isinstance(question, AskNoisyMoments):
        mu = question.mu * 0.5**0.5
        parts = (
            (reply.histogram, 1 / mu),
            (reply.sums, np.linalg.norm(np.broadcast_to(question.box, (d,))) / mu),
        )
    elif isinstance(question, AskNoisySpread):
        parts = zip((reply.count, reply.sums, reply.squares), question.sds(d), strict=True)
    else:
        parts = ((reply.count, 1 / question.mu),)
    return np.concatenate([(values / sd).ravel() for values, sd in parts])
