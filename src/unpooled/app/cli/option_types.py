"""The options of a job and of summary tables: the text that ``--help`` prints for each.

Those of reading files are in ``unpooled.options``.
"""

from pathlib import Path
from typing import Annotated

import typer

from unpooled.options.reading import COLUMNS as PREPARE

# The panels of --help. `unpooled fit --help` leaves out the last three; --help-all shows them.
HOW, PROTECT = "Clustering", "Protection"
MORE_HOW, MORE_PROTECT = "Further clustering options", "Further protection options"

FILES = "CSV (also .tsv, .txt, .gz, .zst), Parquet, .xlsx, .npy, .npz, SQLite, DuckDB"  # that are read

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace outputs that exist; never an input.")]
K = Annotated[
    str, typer.Option("-k", help="Number of clusters: 3; or auto, 2..10 or 2,4,8 to let unpooled choose one.")
]
Method = Annotated[
    str, typer.Option(help="Name of the method; `unpooled methods` lists them.", rich_help_panel=HOW)
]
Module = Annotated[
    list[str] | None,
    typer.Option(help="An installed module with additional methods.", rich_help_panel=MORE_HOW),
]
RestartCount = Annotated[
    int,
    typer.Option(
        help="Number of restarts, all in the same round trips; the best one is kept.", rich_help_panel=HOW
    ),
]
MaxRounds = Annotated[int, typer.Option(help="Stop after this many rounds.", rich_help_panel=MORE_HOW)]
MinClusterSize = Annotated[
    int | None,
    typer.Option(
        help="With --protect raw: suppress groups of fewer rows (default: 5).",
        rich_help_panel=MORE_PROTECT,
    ),
]
MinGroupSize = Annotated[
    int,
    typer.Option(
        help="Minimum number of people in a group of the summary table (default 0: 5, or up to 11 for large "
        "tables).",
        rich_help_panel=PROTECT,
    ),
]
Person = Annotated[
    str,
    typer.Option(
        help="Column that identifies the person a row belongs to; it is never queried.",
        rich_help_panel=PROTECT,
    ),
]
OneRowPerPerson = Annotated[
    bool,
    typer.Option(
        "--one-row-per-person",
        help="Declare that every row is a different person. The declaration is recorded.",
        rich_help_panel=MORE_PROTECT,
    ),
]
NotAPerson = Annotated[
    str | None,
    typer.Option(
        help="Columns that do not identify people although they look like it: device. The declaration is "
        "recorded.",
        rich_help_panel=MORE_PROTECT,
    ),
]
Sensitive = Annotated[
    str | None,
    typer.Option(
        help="Sensitive columns, which do not decide who is grouped with whom: hiv,abuse",
        rich_help_panel=MORE_PROTECT,
    ),
]
Diverse = Annotated[
    str | None,
    typer.Option(
        help="Sensitive columns of which no group may have too many equal values: diagnosis. In a group, the "
        "share of a value exceeds its share in the table by at most 30 percentage points.",
        rich_help_panel=MORE_PROTECT,
    ),
]
LogTransform = Annotated[
    str | None,
    typer.Option(
        help="Skewed columns; the summary table holds only their logarithm: income",
        rich_help_panel=MORE_PROTECT,
    ),
]
Consumption = Annotated[
    str | None,
    typer.Option(
        help="Consumption columns; a mean that one person dominates (15% of the total) is suppressed: kwh",
        rich_help_panel=MORE_PROTECT,
    ),
]
Certify = Annotated[
    str | None,
    typer.Option(
        help="Prove how much better another clustering could be: quick, normal or thorough.",
        rich_help_panel=HOW,
    ),
]
Names = Annotated[
    Path | None,
    typer.Option(
        help="Names for the report: a file (columns), or the folder of an earlier run (columns and matching "
        "clusters).",
        rich_help_panel=MORE_HOW,
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        help="Seed of the random numbers; the same seed gives the same result.", rich_help_panel=HOW
    ),
]
Secure = Annotated[
    bool,
    typer.Option(
        "--secure",
        help="Secure aggregation: nobody sees the answer of a single site, and sites suppress no groups. "
        "Needs at least 3 sites.",
        rich_help_panel=PROTECT,
    ),
]
Polish = Annotated[
    int,
    typer.Option(
        help="With --protect raw and --secure: exact rounds on rows, after the clusters were found on groups "
        "of rows.",
        rich_help_panel=MORE_PROTECT,
    ),
]
ExactSums = Annotated[
    bool,
    typer.Option(
        "--exact-sums",
        help="Compute exact sums over sites and round once: the same bits in any order and with any relays.",
        rich_help_panel=MORE_HOW,
    ),
]
Dask = Annotated[
    str | None,
    typer.Option(
        help="Address of a Dask scheduler whose workers read the files, Parquet by row groups: "
        "tcp://host:8786",
        rich_help_panel=MORE_HOW,
    ),
]
Columns = Annotated[
    str,
    typer.Option(
        help="Columns to cluster: same (must agree at all sites), common (columns that all sites have), any "
        "(all; a site may lack some), or names: age,bmi",
        rich_help_panel=PREPARE,
    ),
]
Outcomes = Annotated[
    str | None,
    typer.Option(
        help="Columns that describe the clusters and do not count in the distance: mortality,days",
        rich_help_panel=MORE_HOW,
    ),
]
Scale = Annotated[
    str,
    typer.Option(
        help="Scaling: standard, robust (median and interquartile range), log, rank, none or min-max (needs "
        "--bounds); for single columns: standard,income=log,crp=rank",
        rich_help_panel=PREPARE,
    ),
]
Bounds = Annotated[
    list[str] | None,
    typer.Option(help="Declared bounds: age=0:110; or policy.toml.", rich_help_panel=PREPARE),
]
Missing = Annotated[
    str,
    typer.Option(
        help="Missing values: keep (compare rows by the values they have), fill (mean or most frequent value "
        "over all sites), drop or refuse; auto keeps them if more than 5% are missing, and else fills them.",
        rich_help_panel=PREPARE,
    ),
]
MinCategoryShare = Annotated[
    float,
    typer.Option(help="Merge categories with a smaller share of the rows.", rich_help_panel=MORE_HOW),
]
Epsilon = Annotated[
    float | None,
    typer.Option(
        help="Privacy budget: add noise for this epsilon. Needs --bounds for all columns.",
        rich_help_panel=PROTECT,
    ),
]
Delta = Annotated[
    float,
    typer.Option(help="Delta of the privacy budget, well below 1 / rows.", rich_help_panel=MORE_PROTECT),
]
RowsInAll = Annotated[
    int | None,
    typer.Option(
        help="Number of rows in total, if it is not secret; unpooled then forecasts the error before it "
        "spends the budget.",
        rich_help_panel=MORE_PROTECT,
    ),
]
SitesPerPerson = Annotated[
    int,
    typer.Option(
        help="The most sites at which one person has a row; with --epsilon, which then protects a person.",
        rich_help_panel=MORE_PROTECT,
    ),
]
AcceptNoise = Annotated[
    bool,
    typer.Option("--accept-noise", help="Run even if the noise is too large.", rich_help_panel=MORE_PROTECT),
]
