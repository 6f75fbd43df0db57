"""The options that ``fit``, ``run`` and ``export-job`` share, and the job that they make."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unpooled.errors import BadInput

if TYPE_CHECKING:  # commands import what they need when they are called: the help is quick
    from unpooled.jobs import Between, Job

_HOW, _READ, _PREPARE = "Clustering", "Reading files", "Preparation"
_PRIVATE = "Differential privacy"

K = Annotated[str, typer.Option("-k", help="How many clusters: 3, or 2..10 to have it chosen.")]
Out = Annotated[Path | None, typer.Option(help="Folder for model, preparation, history and report.")]
Report = Annotated[Path | None, typer.Option(help="Write the report here too.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]
Method = Annotated[str, typer.Option(help="`unpooled methods` says which.", rich_help_panel=_HOW)]
Restarts = Annotated[
    int, typer.Option(help="All in the same exchanges; the best one wins.", rich_help_panel=_HOW)
]
MaxRounds = Annotated[int, typer.Option(help="Stop after so many rounds.", rich_help_panel=_HOW)]
MinClusterSize = Annotated[
    int,
    typer.Option(
        help="A site shows no group of fewer rows; 1 hides nothing and equals pooling.",
        rich_help_panel=_HOW,
    ),
]
Seed = Annotated[int, typer.Option(help="The same seed gives the same result.", rich_help_panel=_HOW)]
Secure = Annotated[
    bool,
    typer.Option(
        "--secure",
        help="Secure sums: no site's own numbers are seen, and its groups are not hidden. From 3 sites.",
        rich_help_panel=_HOW,
    ),
]
Threads = Annotated[int | None, typer.Option(help="Default: all cores.", rich_help_panel=_HOW)]
SiteColumn = Annotated[
    str | None,
    typer.Option(help="Split by this column instead: each value a site.", rich_help_panel=_READ),
]
Na = Annotated[
    list[str] | None,
    typer.Option(help="A text that means missing, e.g. -9, or chol=0 for one column.", rich_help_panel=_READ),
]
Delimiter = Annotated[
    str | None, typer.Option(help="Of CSV; default: seen from the header.", rich_help_panel=_READ)
]
Decimal = Annotated[str, typer.Option(help="Of CSV: . or ,", rich_help_panel=_READ)]
Columns = Annotated[
    str,
    typer.Option(
        help="same (all sites must have the same), common (those that all have), or names: age,bmi",
        rich_help_panel=_PREPARE,
    ),
]
Exclude = Annotated[str | None, typer.Option(help="Columns to leave out: id,date", rich_help_panel=_PREPARE)]
Categories = Annotated[
    str | None, typer.Option(help="Columns whose numbers are codes: cp,thal", rich_help_panel=_PREPARE)
]
Scale = Annotated[
    str, typer.Option(help="standard, min-max (needs --bounds) or none", rich_help_panel=_PREPARE)
]
Bounds = Annotated[
    list[str] | None, typer.Option(help="Declared: age=0:110; or policy.toml", rich_help_panel=_PREPARE)
]
Missing = Annotated[
    str,
    typer.Option(
        help="fill (mean or most frequent over all sites), drop or refuse", rich_help_panel=_PREPARE
    ),
]
Rare = Annotated[
    float,
    typer.Option(help="Levels that a smaller share of the rows has are merged.", rich_help_panel=_PREPARE),
]

Epsilon = Annotated[
    float | None,
    typer.Option(help="Add noise for this budget; needs --bounds of all columns.", rich_help_panel=_PRIVATE),
]
Delta = Annotated[float, typer.Option(help="Well below 1 / rows.", rich_help_panel=_PRIVATE)]
RowsInAll = Annotated[
    int | None,
    typer.Option(help="Rows in all, if no secret: forecast before spending.", rich_help_panel=_PRIVATE),
]
Force = Annotated[
    bool, typer.Option("--force", help="Go on where noise would win.", rich_help_panel=_PRIVATE)
]


def names(text: str | None) -> tuple[str, ...]:
    """
    >>> names("id, date"), names(None)
    (('id', 'date'), ())
    """
    return tuple(name.strip() for name in text.split(",") if name.strip()) if text else ()


def separators(delimiter: str | None, decimal: str) -> tuple[str | None, str]:
    """The two characters of a CSV file, checked."""
    if decimal not in (".", ","):
        raise BadInput(f"--decimal must be . or , got {decimal!r}")
    if delimiter == "\\t":
        delimiter = "\t"
    if delimiter is not None and len(delimiter) != 1:
        raise BadInput(f"--delimiter must be one character, got {delimiter!r}")
    return delimiter, decimal


def make_job(
    *,
    k: str,
    method: str,
    restarts: int,
    max_rounds: int,
    min_cluster_size: int,
    seed: int,
    na: list[str] | None,
    columns: str,
    exclude: str | None,
    categories: str | None,
    scale: str,
    bounds: list[str] | None,
    missing: str,
    rare: float,
    secure: bool = False,
    epsilon: float | None = None,
    delta: float = 1e-6,
    rows: int | None = None,
    force: bool = False,
    files: tuple[str, ...] = (),
    between: "Between | None" = None,
    site_column: str | None = None,
    delimiter: str | None = None,
    decimal: str = ".",
) -> "Job":
    """The job that a command line describes; whatever is wrong with it is found here."""
    from unpooled.files import Reading
    from unpooled.jobs import Job, parse_ks
    from unpooled.tables import Wishes

    delimiter, decimal = separators(delimiter, decimal)
    chosen: str | tuple[str, ...] = columns if columns in ("same", "common") else names(columns)
    job = Job(
        files=files,
        ks=parse_ks(k),
        reading=Reading(
            columns=None if isinstance(chosen, str) else chosen,
            exclude=names(exclude),
            categories=names(categories),
            na=tuple(na or ()),
            delimiter=delimiter,
            decimal=decimal,
            site_column=site_column,
        ),
        wishes=Wishes(
            columns=chosen,
            scale=scale,
            bounds=_bounds(bounds or [], () if isinstance(chosen, str) else chosen),
            missing=missing,
            rare=rare,
        ),
        method=method,
        n_init=restarts,
        max_rounds=max_rounds,
        min_cluster_size=min_cluster_size,
        seed=seed,
        secure=secure,
        epsilon=epsilon,
        delta=delta,
        rows=rows,
        force=force,
        between=between,
    )
    job.algorithm()
    return job


def check_report(epsilon: float | None, report: Path | None) -> None:
    """There is no report under differential privacy."""
    if epsilon is not None and report is not None:
        raise BadInput("--report asks for sums without noise: with --epsilon there is none")


def policies(bounds: list[str] | None) -> list[str]:
    """The files among what ``--bounds`` says."""
    return [text for text in bounds or () if text.endswith(".toml")]


def _bounds(given: list[str], columns: tuple[str, ...]) -> tuple[tuple[str, float, float], ...]:
    """column=low:high, low:high for all columns that are named, or a site's policy with its domain."""
    found: list[tuple[str, float, float]] = []
    for text in given:
        if text.endswith(".toml"):
            found += _domain(text)
            continue
        name, _, span = text.rpartition("=")
        low, _, high = span.partition(":")
        try:
            pair = float(low), float(high)
        except ValueError:
            raise BadInput(f"bounds are said as column=low:high, got {text!r}") from None
        if not name and not columns:
            raise BadInput(f"bounds {text} are for all columns: name these by --columns age,bmi")
        found += [(each, *pair) for each in ((name.strip(),) if name else columns)]
    return tuple(found)


def _domain(path: str) -> list[tuple[str, float, float]]:
    from unpooled.site.policy import load

    domain = load(path).domain
    if not domain.columns:
        raise BadInput(f"{path}: the policy has no [domain] with columns, lower and upper")
    return list(zip(domain.columns, domain.lower, domain.upper, strict=True))
