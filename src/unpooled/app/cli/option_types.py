"""The options of a job, of reading and of copies, one by one: what ``--help`` prints of each."""

from typing import Annotated

import typer

HOW, READ, PREPARE = "Clustering", "Reading files", "Preparation"
PRIVATE, PROTECT = "Differential privacy", "Protection"

FILES = "CSV (also .tsv, .txt, .gz, .zst), Parquet, .xlsx, .npy, .npz, SQLite, DuckDB"  # that are read

K = Annotated[str, typer.Option("-k", help="Number of clusters: 3; or auto, 2..10 or 2,4,8 to choose one.")]
Method = Annotated[
    str, typer.Option(help="Name of the method; `unpooled methods` lists them.", rich_help_panel=HOW)
]
Module = Annotated[
    list[str] | None,
    typer.Option(help="An installed module with additional methods.", rich_help_panel=HOW),
]
RestartCount = Annotated[
    int,
    typer.Option(
        help="Number of restarts, all in the same exchanges; the best is kept.", rich_help_panel=HOW
    ),
]
MaxRounds = Annotated[int, typer.Option(help="Stop after this many rounds.", rich_help_panel=HOW)]
MinClusterSize = Annotated[
    int | None,
    typer.Option(
        help="With --protect raw: groups of fewer rows are not shown; default: 5.",
        rich_help_panel=PROTECT,
    ),
]
GroupSize = Annotated[
    int,
    typer.Option(
        help="Persons in a group of a copy, at least; 0: 5, or up to 11 where there are many.",
        rich_help_panel=PROTECT,
    ),
]
Person = Annotated[
    str,
    typer.Option(help="Column that says whose row it is; it is never asked about.", rich_help_panel=PROTECT),
]
Sensitive = Annotated[
    str | None,
    typer.Option(
        help="Columns that do not decide who is grouped with whom: hiv,abuse", rich_help_panel=PROTECT
    ),
]
Log = Annotated[
    str | None,
    typer.Option(
        help="Skewed columns, of which a copy holds the logarithm only: income", rich_help_panel=PROTECT
    ),
]
Consumption = Annotated[
    str | None,
    typer.Option(
        help="Columns of which a copy shows no mean that one person dominates (15 % of the total): kwh",
        rich_help_panel=PROTECT,
    ),
]
Certify = Annotated[
    str | None,
    typer.Option(
        help="Prove how much better another clustering could be: quick, normal or thorough.",
        rich_help_panel=HOW,
    ),
]
Seed = Annotated[int, typer.Option(help="The same seed gives the same result.", rich_help_panel=HOW)]
Secure = Annotated[
    bool,
    typer.Option(
        "--secure",
        help="Secure sums: nobody sees a site's own numbers; sites suppress no groups. From 3 sites.",
        rich_help_panel=HOW,
    ),
]
ExactSums = Annotated[
    bool,
    typer.Option(
        "--exact-sums",
        help="Sums over sites are exact and rounded once: the same bits in any order, and in any tree.",
        rich_help_panel=HOW,
    ),
]
Dask = Annotated[
    str | None,
    typer.Option(
        help="Workers of a Dask cluster read the files, by row groups of Parquet: tcp://host:8786",
        rich_help_panel=HOW,
    ),
]
Na = Annotated[
    list[str] | None,
    typer.Option(help="A text that means missing, e.g. -9, or chol=0 for one column.", rich_help_panel=READ),
]
Delimiter = Annotated[
    str | None, typer.Option(help="Of CSV; default: detected from the header.", rich_help_panel=READ)
]
Decimal = Annotated[
    str | None,
    typer.Option(
        help="Of CSV: . or , (default: detected from the numbers of a column)", rich_help_panel=READ
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(help="Of CSV: cp1252, utf-16, ...; default: detected", rich_help_panel=READ),
]
Numbers = Annotated[
    str | None,
    typer.Option(
        help="Columns that are numbers even if they look like ids or codes: dose_no", rich_help_panel=READ
    ),
]
Query = Annotated[
    str | None,
    typer.Option(help="Of databases: the file of the site's own query, cohort.sql", rich_help_panel=READ),
]
Sheet = Annotated[str | None, typer.Option(help="Of a workbook with several sheets.", rich_help_panel=READ)]
Long = Annotated[
    str | None,
    typer.Option(
        help="One value a row: the columns of person, feature and value: person_id,concept,value",
        rich_help_panel=READ,
    ),
]
Recode = Annotated[
    list[str] | None,
    typer.Option(help="Spellings of one level: sex:M=male,F=female", rich_help_panel=READ),
]
Columns = Annotated[
    str,
    typer.Option(
        help="same (must agree at all sites), common (those that all sites have), any (all; a site may lack "
        "some), or names: age,bmi",
        rich_help_panel=PREPARE,
    ),
]
Exclude = Annotated[str | None, typer.Option(help="Columns to leave out: id,date", rich_help_panel=PREPARE)]
Categories = Annotated[
    str | None, typer.Option(help="Columns whose numbers are codes: cp,thal", rich_help_panel=PREPARE)
]
Scale = Annotated[
    str,
    typer.Option(
        help="standard, robust (median and middle half), log, rank, none or min-max (needs --bounds); "
        "of single columns: standard,income=log,crp=rank",
        rich_help_panel=PREPARE,
    ),
]
Bounds = Annotated[
    list[str] | None, typer.Option(help="Declared: age=0:110; or policy.toml", rich_help_panel=PREPARE)
]
Missing = Annotated[
    str,
    typer.Option(
        help="keep (compare rows by the cells they have), fill (mean or most frequent over all sites), drop "
        "or refuse; auto: keep where more than 5 % of cells are missing, else fill",
        rich_help_panel=PREPARE,
    ),
]
Rare = Annotated[
    float,
    typer.Option(help="Levels with a smaller share of the rows are merged.", rich_help_panel=PREPARE),
]
Epsilon = Annotated[
    float | None,
    typer.Option(help="Add noise for this budget; needs --bounds of all columns.", rich_help_panel=PRIVATE),
]
Delta = Annotated[float, typer.Option(help="Well below 1 / rows.", rich_help_panel=PRIVATE)]
RowsInAll = Annotated[
    int | None,
    typer.Option(help="Rows in total, if not secret: forecast before spending.", rich_help_panel=PRIVATE),
]
Force = Annotated[
    bool, typer.Option("--force", help="Run even if the noise is too large.", rich_help_panel=PRIVATE)
]
