"""The options of a job: its method, its protection and its random numbers, each declared once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from unpooled.options.declaration import HOW, MORE_HOW, MORE_PROTECT, PROTECT, OptionGroup, option
from unpooled.options.values import (
    ListedNamesValue,
    NumberValue,
    OptionalWordValue,
    PathValue,
    SwitchValue,
    WholeNumberValue,
    WordValue,
)


@dataclass(frozen=True, kw_only=True)
class ClusteringChoices(OptionGroup):
    """The options of a job apart from reading, columns and summary tables; ``app.Job`` checks them."""

    method: str = option(
        "lloyd",
        WordValue(),
        panel=HOW,
        help="Name of the method; `unpooled methods` lists them.",
        doc="The name of a method; ``unpooled methods`` lists them.",
    )
    n_init: int = option(
        10,
        WholeNumberValue(),
        name="restarts",
        panel=HOW,
        help="Number of restarts, all in the same round trips; the best one is kept.",
        doc="The number of restarts; the best one is kept.",
    )
    max_rounds: int = option(
        300,
        WholeNumberValue(),
        panel=MORE_HOW,
        help="Stop after this many rounds.",
        doc="The largest number of rounds.",
    )
    protect: str = option(  # real sites have policies
        "none",
        WordValue(),
        panel=PROTECT,
        of_all=False,
        help="What the simulated sites answer from: none (their rows; equals pooling), summary (a summary "
        "table, as real sites do) or raw (their rows; small groups are suppressed).",
        doc='What the sites answer from: ``"none"`` and ``"raw"`` rows, or a ``"summary"`` table.',
    )
    min_cluster_size: int = option(  # of sites that answer from raw rows
        5,
        WholeNumberValue(),
        panel=MORE_PROTECT,
        unset=True,
        help="With --protect raw: suppress groups of fewer rows (default: 5).",
        doc='With ``protect="raw"``: groups of fewer rows are suppressed.',
    )
    seed: int = option(
        0,
        WholeNumberValue(),
        python="random_state",
        panel=HOW,
        stated=True,
        help="Seed of the random numbers; the same seed gives the same result.",
        doc="The seed of all random draws.",
    )
    epsilon: float | None = option(  # differential privacy, with the bounds of the preparation options
        None,
        NumberValue(optional=True),
        panel=PROTECT,
        help="Privacy budget: add noise for this epsilon. Needs --bounds for all columns.",
        doc="The privacy budget of differential privacy; None adds no noise.",
    )
    delta: float = option(
        1e-6,
        NumberValue(),
        panel=MORE_PROTECT,
        help="Delta of the privacy budget, well below 1 / rows.",
        doc="Delta of the privacy budget.",
    )
    polish: int = option(
        1,
        WholeNumberValue(),
        panel=MORE_PROTECT,
        help="With --protect raw and --secure: exact rounds on rows, after the clusters were found on groups "
        "of rows.",
        doc='With ``protect="raw"`` and ``secure``: the number of exact rounds on rows, after the clusters '
        "were found on groups of rows.",
    )
    rows: int | None = option(
        None,
        WholeNumberValue(optional=True),
        panel=MORE_PROTECT,
        help="Number of rows in total, if it is not secret; unpooled then forecasts the error before it "
        "spends the budget.",
        doc="The number of rows in total, unless it is secret.",
    )
    sites_per_person: int = option(
        1,
        WholeNumberValue(),
        panel=MORE_PROTECT,
        help="The most sites at which one person has a row; with --epsilon, which then protects a person.",
        doc="The most sites at which one person has a row; ``epsilon`` then protects a person.",
    )
    certify: str = option(
        "",
        OptionalWordValue(),
        panel=HOW,
        help="Prove how much better another clustering could be: quick, normal or thorough.",
        doc='The effort of a proof how much better another clustering could be: ``"quick"``, ``"normal"`` or '
        '``"thorough"``; None proves nothing.',
    )
    names: str = option(
        "",
        PathValue(),
        panel=MORE_HOW,
        help="Names for the report: a file (columns), or the folder of an earlier run (columns and matching "
        "clusters).",
        doc="Names for the report: a file (columns), or the folder of an earlier run (columns and matching "
        "clusters).",
    )
    dask: str = option(
        "",
        OptionalWordValue(),
        panel=MORE_HOW,
        of_all=False,
        help="Address of a Dask scheduler whose workers read the files, Parquet by row groups: "
        "tcp://host:8786",
        doc="The address of a Dask scheduler whose workers read the files.",
    )
    secure: bool = option(
        False,
        SwitchValue(),
        panel=PROTECT,
        help="Secure aggregation: of a site the coordinator reads its schema, and otherwise only sums over "
        "sites, in which small groups are not suppressed. Needs at least 3 sites.",
        doc="Whether the coordinator reads only sums over sites (secure aggregation).",
    )
    exact_sums: bool = option(
        False,
        SwitchValue(),
        panel=MORE_HOW,
        help="Compute exact sums over sites and round once: the same bits in any order and with any relays.",
        doc="Whether every total is the exact sum, rounded once.",
    )
    accept_noise: bool = option(
        False,
        SwitchValue(),
        panel=MORE_PROTECT,
        help="Run even if the noise is too large.",
        doc="Whether to run even if the noise is too large.",
    )
    modules: tuple[str, ...] = option(
        (),
        ListedNamesValue(),
        name="module",
        panel=MORE_HOW,
        help="An installed module with additional methods.",
        doc="Installed modules with additional methods.",
    )


class ClusteringArguments(TypedDict, total=False):
    """The options as arguments of ``cluster``, for type checkers."""

    method: str
    n_init: int
    max_rounds: int
    protect: str
    min_cluster_size: int
    random_state: int
    epsilon: float | None
    delta: float
    polish: int
    rows: int | None
    sites_per_person: int
    certify: str | None
    names: str | None
    secure: bool
    exact_sums: bool
    accept_noise: bool
    modules: str | Sequence[str]
