"""Holzer et al., section 2.5: weights that are rounded to some decimals, one of the paper's privacy options.

A client's weight for a cluster is the share of its rows in that cluster, rounded, times its rows. The paper
expects "only a minor improvement in terms of privacy" and runs no experiment. Here: the score of DWF with
rounded weights, and the rows that a client sends as a centroid in the last round. Such a centroid is the mean
of one row, whatever the weight beside it. This is a simulation without protection: a real site answers from
its summary table, in which a row is the average of a group of people.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from reproduction.common import inertia_per_row, seed_from
from reproduction.data_sources import Sources
from reproduction.experiment import Experiment, Numbers, Presentation, Results, Settings, seed_of
from reproduction.holzer import PAPER, SITES, SPLITS, K, site_of_rows
from reproduction.result_table import ResultTable, row
from unpooled import kernels
from unpooled.algorithms import DWF
from unpooled.algorithms.dwf import WEIGHTINGS
from unpooled.data.examples import synthetic
from unpooled.data.partitions import split_rows
from unpooled.federation import Simulation
from unpooled.protocol.run_loop import run
from unpooled.typing import FloatArray

EXACT = "exact"
DECIMALS = (EXACT, 2, 1, 0)
NAMES = ("score", "rows sent as centroids in the last round")


def rounded(decimals: int, counts: FloatArray, rows: FloatArray) -> FloatArray:
    """Return a client's weights: the rounded share of its rows in each cluster, times its rows.

    >>> rounded(1, np.array([[4.0, 16.0]]), np.array([[20.0]])), rounded(0, np.array([[4.0, 16.0]]), 20.0)
    (array([[ 4., 16.]]), array([[ 0., 20.]]))
    """
    weights: FloatArray = np.round(counts / rows, decimals) * rows
    return weights


@contextmanager
def weighting(decimals: int | str) -> Iterator[str]:
    """Give the name of these weights; DWF knows rounded ones only here."""
    if isinstance(decimals, str):
        yield "counts"
        return
    name = f"share of {decimals} decimals"
    WEIGHTINGS[name] = partial(rounded, decimals)
    try:
        yield name
    finally:
        del WEIGHTINGS[name]


def perform(settings: Settings, runs: range, sources: Sources) -> Numbers:
    """Return the score, and how many rows are a centroid that a client sends."""
    X, _ = synthetic.holzer()
    out: Numbers = {name: [] for name in NAMES}
    for number in runs:
        same: Settings = {"set": "synthetic", "split": settings["split"], "sites": SITES}
        site = site_of_rows(X, settings["split"], SITES, None, np.random.default_rng(seed_of(same, number)))
        federation = Simulation.from_rows(split_rows(X, site), n_threads=1)
        seed = seed_from(np.random.default_rng(seed_of(settings, number)))
        with weighting(settings["decimals"]) as weights:
            method = DWF.as_published(k=K["synthetic"], weights=weights)
            state = run(method, federation, seed=seed).state
        order = np.argsort(site, kind="stable")
        offsets = np.concatenate([[0], np.cumsum(np.bincount(site, minlength=SITES))])
        last = kernels.local_steps(X[order], offsets, state.previous, steps=method.local_steps)
        out["score"].append(inertia_per_row(X, state.centers))
        out[NAMES[1]].append(float((last.support == 1).sum()))
    return out


def _configurations(sources: Sources, quick: bool) -> list[Settings]:
    return [{"split": split, "decimals": d} for split in SPLITS for d in DECIMALS]


def _present(results: Results, sources: Sources, quick: bool) -> Presentation:
    rows = []
    for s in _configurations(sources, quick):
        label = "exact" if s["decimals"] == EXACT else f"{s['decimals']} decimals"
        rows += [row((s["split"], label, name), results.values(s, name)) for name in NAMES]
    table = ResultTable("rounding", "DWF with rounded weights", ("split", "weights", "score"), tuple(rows))
    return Presentation((table,), (), NOTES)


NOTES = (
    "The paper names this option without an experiment. Rounding hides counts and no centroid: a client that "
    "has one row in a cluster sends that row as its centroid, with exact and with rounded weights.",
)

EXPERIMENTS = (
    Experiment(
        "holzer-rounding",
        PAPER,
        "DWF with rounded weights (section 2.5)",
        full=10,
        quick=2,
        block=10,
        configurations=_configurations,
        perform=perform,
        present=_present,
    ),
)
