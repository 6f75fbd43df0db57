"""Results of the kernels: one named tuple per kernel, every array float64 unless stated."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Totals(NamedTuple):
    """Per site, restart and cluster: what a Lloyd step needs (S sites, R restarts, k clusters, d columns)."""

    sums: Floats  #: (S, R, k, d) sum of w (x - c): residuals about the centre, so that nothing cancels
    mass: Floats  #: (S, R, k) sum of w; the number of rows when there are no weights
    squares: Floats  #: (S, R, k) sum of w^2; the array ``mass`` itself when there are no weights
    inertia: Floats  #: (S, R, k) sum of w |x - c|^2


class Nearest(NamedTuple):
    """The nearest centre of every row."""

    labels: NDArray[np.int32]  #: (n,)
    sqdist: Floats  #: (n,) squared distance to that centre


class LocalSteps(NamedTuple):
    """The centres and counts of each site after its own Lloyd steps."""

    centers: Floats  #: (S, k, d) after the steps
    mass: Floats  #: (S, k) sum of w under the received centres
    squares: Floats  #: (S, k) sum of w^2 under the received centres
    inertia: Floats  #: (S, k) sum of w |x - c|^2 under the received centres
    support: Floats  #: (S, k) effective rows averaged in the final centre; 0: still the received one
    recount: Floats  #: (S, k) sum of w under the final centres that have support (zeros unless asked)
    recount_squares: Floats  #: (S, k) the same for w^2


class KMeans(NamedTuple):
    """A whole k-means at each site."""

    centers: Floats  #: (S, k, d); the unused ones are 0
    mass: Floats  #: (S, k) sum of w; 0 where unused
    squares: Floats  #: (S, k) sum of w^2
    inertia: Floats  #: (S,)


class MiniBatchSteps(NamedTuple):
    """The centres and counts of each site after its mini-batch epochs."""

    centers: Floats  #: (S, k, d)
    mass: Floats  #: (S, k) sum of w per cluster over the last epoch
    squares: Floats  #: (S, k) the same for w^2


class ScatterTotals(NamedTuple):
    """Per site and cluster: the sums behind the internal quality measures."""

    mass: Floats  #: (S, k) sum of w
    squares: Floats  #: (S, k) sum of w^2
    distance: Floats  #: (S, k) sum of w |x - c|
    inertia: Floats  #: (S, k) sum of w |x - c|^2
    silhouette: Floats  #: (S, k) sum of w s, s the simplified silhouette of the row


class ObservedTotals(NamedTuple):
    """Per site and cluster of rows with missing cells; v is 1 for an observed cell, 0 for a missing one.

    Where rows are groups of people, v is the share of them that has a value.
    """

    mass: Floats  #: (S, k) sum of w
    squares: Floats  #: (S, k) sum of w^2
    distance: Floats  #: (S, k) sum of w |x - c| sqrt(d / v): as if all columns were like the observed ones
    inertia: Floats  #: (S, k) sum of w |x - c|^2, over observed columns
    silhouette: Floats  #: (S, k) sum of w s, s from distances over observed columns
    sums: Floats  #: (S, k, d) sum of w v (x - c)
    deviations: Floats  #: (S, k, d) sum of w v (x - c)^2
    known: Floats  #: (S, k, d) sum of w v
    known_squares: Floats  #: (S, k, d) sum of (w v)^2


class FuzzyTotals(NamedTuple):
    """Per site, restart and cluster: what a step of fuzzy c-means needs; u is a row's membership."""

    sums: Floats  #: (S, R, k, d) sum of w u^m (x - c)
    mass: Floats  #: (S, R, k) sum of w u^m
    rows: Floats  #: (S, R, k) sum of w u
    squares: Floats  #: (S, R, k) sum of (w u^m)^2
    inertia: Floats  #: (S, R, k) sum of w u^m |x - c|^2, the objective J_m


class PlainNumbers(NamedTuple):
    """A block of numbers, and what its decimal points tell."""

    values: Floats  #: (n, width)
    pointed: bool  #: some number has digits on both sides of a point
    sure: bool  #: some such point cannot divide thousands, as that of 1.234 can
