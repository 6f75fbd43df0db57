"""Steps besides Lloyd's own: several at each site by itself, mini-batches, and fuzzy c-means.

Arrays are checked as in ``unpooled.kernels``, of which these functions are a part.
"""

import numpy as np
from numpy.typing import ArrayLike

from unpooled import kernels

from .label_cache import LabelCache
from .reference_fuzzy import exponent
from .results import Floats, FuzzyTotals, LocalSteps, MiniBatchSteps


def local_steps(
    X: ArrayLike,
    offsets: ArrayLike,
    centers: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    steps: int = 1,
    recount: bool = False,
    threads: int = 1,
    cache: LabelCache | None = None,
) -> LocalSteps:
    """At each site by itself, up to ``steps`` Lloyd steps from the centres (k, d), or its own of (S, k, d).

    A cluster that is empty keeps its centre. mass, squares and inertia (S, k) are under the received centres;
    support is the effective number of rows in the final centre, (sum w)^2 / sum w^2 of the assignment that
    produced it, and 0 where it is still the received one. With ``recount`` the rows are counted again under
    the final centres, leaving out those without support. A ``cache`` that is kept from call to call saves
    time where the centres move little, and changes nothing else.

    >>> step = local_steps([[0.0], [1.0], [9.0]], [0, 2, 3], [[0.0], [10.0]])
    >>> step.centers[..., 0].tolist(), step.support.tolist()
    ([[0.5, 10.0], [0.0, 9.0]], [[2.0, 0.0], [0.0, 1.0]])
    """
    kernels._check_min(0, steps=steps)
    rows = kernels._rows(X)
    n, d = rows.shape
    sites, start = kernels._offsets(offsets, n), kernels._centers(centers, d, 2, 3)
    if start.ndim == 3 and len(start) != len(sites) - 1:
        raise ValueError(f"centers of shape {start.shape} do not fit {len(sites) - 1} sites")
    return kernels._backend.local_steps(
        rows, sites, start, kernels._weights(weights, n), steps, recount, threads, cache
    )


def minibatch(
    X: ArrayLike,
    offsets: ArrayLike,
    centers: ArrayLike,
    seeds: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    epochs: int = 1,
    batch: int = 0,
    rate: float = 1.0,
    threads: int = 1,
) -> MiniBatchSteps:
    """At each site by itself, mini-batch k-means from the centres (k, d).

    The rows are split in order into batches (0: one batch with all rows), whose order is shuffled in every
    epoch. Counts start at 0 in each epoch; each batch moves a centre towards the mean of its rows by the
    batch's share of the count, times ``rate``. mass and squares (S, k) are those of the last epoch.

    >>> step = minibatch([[0.0], [1.0], [9.0]], [0, 3], [[0.0], [10.0]], [7])
    >>> step.centers[0, :, 0].tolist(), step.mass.tolist()
    ([0.5, 9.0], [[2.0, 1.0]])
    """
    kernels._check_min(0, epochs=epochs, batch=batch)
    rows = kernels._rows(X)
    n, d = rows.shape
    sites = kernels._offsets(offsets, n)
    return kernels._backend.minibatch(
        rows,
        sites,
        kernels._centers(centers, d, 2),
        kernels._seeds(seeds, len(sites) - 1),
        kernels._weights(weights, n),
        epochs,
        batch,
        rate,
        threads,
    )


def _fuzzifier(m: float) -> float:
    m = float(m)
    if not 1 < m < np.inf:
        raise ValueError(f"m must be a finite number above 1, not {m}")
    return m


def fuzzy(
    X: ArrayLike,
    offsets: ArrayLike,
    centers: ArrayLike,
    m: float = 2.0,
    weights: ArrayLike | None = None,
    *,
    threads: int = 1,
) -> FuzzyTotals:
    """The part of each site in a step of fuzzy c-means, for R sets of centres (R, k, d) in one pass.

    u is a row's membership: the squared distances to the power -1 / (m - 1), divided by their sum; 1 for a
    centre on the row, shared equally if there are several. Gives sums (S, R, k, d) of w u^m (x - c), and sums
    (S, R, k) of w u^m, w u, (w u^m)^2 and w u^m |x - c|^2.

    >>> step = fuzzy([[0.0], [1.0], [3.0]], [0, 2, 3], [[[0.0], [4.0]]])
    >>> step.rows[:, 0].round(3).tolist()
    [[1.9, 0.1], [0.1, 0.9]]
    """
    rows, m = kernels._rows(X), _fuzzifier(m)
    n, d = rows.shape
    return kernels._backend.fuzzy(
        rows,
        kernels._offsets(offsets, n),
        kernels._centers(centers, d, 3),
        m,
        exponent(m),
        kernels._weights(weights, n),
        threads,
    )


def memberships(X: ArrayLike, centers: ArrayLike, m: float = 2.0, *, threads: int = 1) -> Floats:
    """(n, k) memberships of the rows in the clusters of the centres (k, d); every row of it sums to 1.

    >>> memberships([[0.0], [1.0], [2.0]], [[0.0], [4.0]]).round(2).tolist()
    [[1.0, 0.0], [0.9, 0.1], [0.5, 0.5]]
    """
    rows, m = kernels._rows(X), _fuzzifier(m)
    return kernels._backend.memberships(
        rows, kernels._centers(centers, rows.shape[1], 2), m, exponent(m), threads
    )
