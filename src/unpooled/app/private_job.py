"""A job under differential privacy: the options that it requires and refuses, and its algorithm."""

from typing import TYPE_CHECKING

import numpy as np

from unpooled.algorithms import Private
from unpooled.errors import InputError
from unpooled.privacy import Gaussian

if TYPE_CHECKING:
    from unpooled.app.job import Job

_SCALES = {"standard": "standard", "min-max": "bounds", "none": None}


def check_private(job: "Job") -> None:
    """Raise InputError for every option that would release something without noise."""
    if job.protect != "none" and job.remote is None:
        raise InputError(
            f"--epsilon and --protect {job.protect} exclude each other: with --epsilon every answer has noise"
        )
    if not job.preparation_options.bounds:
        raise InputError(
            "--epsilon needs the bounds of every column that is used, from knowledge of the subject: "
            "--bounds age=0:110. Bounds taken from the data would disclose extreme rows."
        )
    names = [name for name, _, _ in job.preparation_options.bounds]
    columns = job.preparation_options.columns
    if not isinstance(columns, str) and set(columns) != set(names):
        odd = sorted(set(columns) ^ set(names))
        raise InputError(
            f"--epsilon: --columns and --bounds must name the same columns. In one only: {', '.join(odd)}."
        )
    if job.reading.categorical:
        raise InputError(
            "--epsilon works on numbers only: the list of categories would be learnt from rows, without noise"
        )
    if job.preparation_options.outcomes:
        raise InputError(
            "--outcomes needs one more query of the rows, after the clusters are known, and the run spends "
            "its whole epsilon on the clusters. Run without --outcomes, or without --epsilon."
        )
    if job.preparation_options.missing == "refuse":
        raise InputError(
            "--missing refuse would disclose whether a value is missing. With --epsilon use fill or drop."
        )
    if job.preparation_options.missing == "keep":
        raise InputError("--missing keep counts cells without noise. With --epsilon use fill or drop.")
    if len(job.ks) > 1:
        raise InputError(
            f"--epsilon with {len(job.ks)} values of k: the criteria that choose k read rows again, outside "
            "the privacy budget. Give one k."
        )
    if job.method not in ("lloyd", "fuzzy"):
        raise InputError(f"--epsilon is for --method lloyd or fuzzy, got {job.method!r}")
    private_method(job)


def private_method(job: "Job") -> Private:
    """Return the private algorithm of a job with an epsilon."""
    assert job.epsilon is not None
    names, lower, upper = (tuple(part) for part in zip(*job.preparation_options.bounds, strict=True))
    return Private(
        k=job.ks[0],
        dp=Gaussian(
            job.epsilon,
            job.delta,
            np.array(lower),
            np.array(upper),
            job.rows,
            job.accept_noise,
            job.sites_per_person,
        ),
        scale=_SCALES[job.preparation_options.scale],
        m=2.0 if job.method == "fuzzy" else None,
        columns=names,
        drop=job.preparation_options.missing == "drop",
    )
