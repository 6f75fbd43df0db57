"""Common parts of the commands: one-line errors, the options of a job, and the job built from them."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer

from unpooled import __version__
from unpooled.app.cli import option_types as t
from unpooled.errors import InputError
from unpooled.options.reading import OPTIONS, Option, Reading
from unpooled.options.values import plain_name

if TYPE_CHECKING:  # imported by commands only when they run, so that --help is fast
    from unpooled.app.job import Job, RemoteRunOptions
    from unpooled.privacy.microaggregation import SummarySettings

Out = Annotated[
    Path | None, typer.Option("-o", "--out", help="Folder for model, preparation, history and report.")
]
Report = Annotated[Path | None, typer.Option(help="Also write the report to this file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]
Protect = Annotated[
    str,
    typer.Option(
        help="What the simulated sites answer from: none (their rows; equals pooling), summary (a summary "
        "table, as real sites do) or raw (their rows; small groups are suppressed).",
        rich_help_panel=t.PROTECT,
    ),
]
Timings = Annotated[
    bool,
    typer.Option("--timings", help="Print the seconds of each phase on stderr.", rich_help_panel=t.MORE_HOW),
]
Plan = Annotated[
    bool,
    typer.Option(
        "--plan",
        help="With --epsilon and --rows: print the expected loss, and that of summary tables; read no file.",
        rich_help_panel=t.MORE_PROTECT,
    ),
]
Threads = Annotated[
    int | None, typer.Option(help="Number of threads (default: all cores).", rich_help_panel=t.MORE_HOW)
]
Dask = t.Dask


def reading_option(declared: Option, *, hidden: bool = False) -> Any:
    """Return what ``--help`` shows of an option for reading files."""
    return typer.Option(help=declared.help, rich_help_panel=declared.panel, hidden=hidden)


SiteColumn = Annotated[str | None, reading_option(OPTIONS["site_column"])]


def _version(show: bool) -> None:
    if show:
        typer.echo(f"unpooled {__version__}")
        raise typer.Exit


def version(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Read the options that precede a command."""


def names(text: str | None) -> tuple[str, ...]:
    """Return the names in a comma-separated list.

    >>> names("id, date"), names(None)
    (('id', 'date'), ())
    """
    return tuple(plain_name(name) for name in text.split(",") if name.strip()) if text else ()


class Options:
    """Base class of groups of options, see ``takes_options``: dataclasses whose fields are options."""

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """Return the options as parameters of a command."""
        return list(inspect.signature(cls).parameters.values())


C = TypeVar("C", bound=Callable[..., None])


def takes_options(command: C) -> C:
    """Return the command with its groups of options split into single options, as typer needs them."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[type[Options], tuple[str, ...]]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        kind = parameter.annotation
        if isinstance(kind, type) and issubclass(kind, Options):
            own = kind.parameters()
            groups[name] = kind, tuple(each.name for each in own)
            parameters += own
        else:
            parameters.append(parameter)

    @functools.wraps(command)
    def with_groups(**values: object) -> None:
        for name, (kind, names) in groups.items():
            values[name] = kind(**{each: values.pop(each) for each in names})
        command(**values)

    listed = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    with_groups.__signature__ = inspect.Signature(listed)  # type: ignore[attr-defined]
    with_groups.__annotations__ = {p.name: p.annotation for p in listed}
    return cast(C, with_groups)


@dataclass(frozen=True, kw_only=True)
class JobOptions(Options):
    """Options of a job: the columns to cluster, and the method."""

    k: t.K = "auto"
    method: t.Method = "lloyd"
    module: t.Module = None
    restarts: t.RestartCount = 10
    max_rounds: t.MaxRounds = 300
    seed: t.Seed = 0
    certify: t.Certify = None
    names: t.Names = None
    secure: t.Secure = False
    polish: t.Polish = 1
    exact_sums: t.ExactSums = False
    columns: t.Columns = "same"
    outcomes: t.Outcomes = None
    min_cluster_size: t.MinClusterSize = None
    scale: t.Scale = "standard"
    bounds: t.Bounds = None
    missing: t.Missing = "auto"
    min_category_share: t.MinCategoryShare = 0.01
    epsilon: t.Epsilon = None
    delta: t.Delta = 1e-6
    rows: t.RowsInAll = None
    sites_per_person: t.SitesPerPerson = 1
    accept_noise: t.AcceptNoise = False

    def job(
        self,
        protect: str,
        *,
        files: tuple[str, ...] = (),
        remote: "RemoteRunOptions | None" = None,
        reading: "Reading | None" = None,
        summary: "SummarySettings | None" = None,
        dask: str = "",
    ) -> "Job":
        """Return the job that the options describe; raises InputError for any error in them."""
        from unpooled.app.job import Job, parse_ks
        from unpooled.data import PreparationOptions

        if self.names is not None:
            from unpooled.app.keep_names import read_names

            read_names(self.names)
        if self.min_cluster_size is not None and protect != "raw":
            typer.echo("unpooled: --min-cluster-size has no effect without --protect raw", err=True)
        same = self.columns in ("same", "common", "any")
        chosen: str | tuple[str, ...] = self.columns if same else names(self.columns)
        return Job.from_options(
            files,
            parse_ks(self.k),
            reading or Reading(),
            summary,
            PreparationOptions(
                columns=chosen,
                outcomes=names(self.outcomes),
                **_scales(self.scale),
                bounds=_bounds(self.bounds or [], () if isinstance(chosen, str) else chosen),
                missing=self.missing,
                min_category_share=self.min_category_share,
            ),
            method=self.method,
            n_init=self.restarts,
            max_rounds=self.max_rounds,
            protect=protect,
            min_cluster_size=5 if self.min_cluster_size is None else self.min_cluster_size,
            seed=self.seed,
            secure=self.secure,
            polish=self.polish,
            exact_sums=self.exact_sums,
            epsilon=self.epsilon,
            delta=self.delta,
            rows=self.rows,
            sites_per_person=self.sites_per_person,
            accept_noise=self.accept_noise,
            remote=remote,
            modules=tuple(self.module or ()),
            certify=self.certify or "",
            names=str(self.names) if self.names is not None else "",
            dask=dask,
        )


class ReadingOptions(Options):
    """Options for reading a site's file; only the site itself sets them. ``Reading`` declares them."""

    hidden = False  # in --help

    def __init__(self, **given: Any) -> None:
        self.given = {name: value for name, value in given.items() if value not in (None, [])}

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        parameters = []
        for name, declared in OPTIONS.items():
            if declared.of_site:
                kind = list[str] if declared.kind.several else str
                shown: Any = Annotated[kind | None, reading_option(declared, hidden=cls.hidden)]
                keyword = inspect.Parameter.KEYWORD_ONLY
                parameters.append(inspect.Parameter(name, keyword, default=None, annotation=shown))
        return parameters

    def reading(self, site_column: str | None = None) -> "Reading":
        return Reading.from_command(self.given | {"site_column": site_column})

    @property
    def is_set(self) -> bool:
        return bool(self.given)


@dataclass(frozen=True, kw_only=True)
class SummaryOptions(Options):
    """Options for making a summary table."""

    min_group_size: t.MinGroupSize = 0
    person: t.Person = ""
    one_row_per_person: t.OneRowPerPerson = False
    not_a_person: t.NotAPerson = None
    sensitive: t.Sensitive = None
    diverse: t.Diverse = None
    log_transform: t.LogTransform = None
    consumption: t.Consumption = None

    def settings(self, study_columns: tuple[str, ...] = ()) -> "SummarySettings":
        from unpooled.privacy.microaggregation import SummarySettings

        return SummarySettings(
            self.min_group_size,
            self.person,
            study_columns,
            names(self.sensitive),
            names(self.log_transform),
            names(self.consumption),
            one_row_per_person=self.one_row_per_person,
            not_a_person=names(self.not_a_person),
            diverse=names(self.diverse),
        )

    @property
    def is_set(self) -> bool:
        return self != SummaryOptions()


def check_report(epsilon: float | None, report: Path | None) -> None:
    """Raise InputError for a report under differential privacy: it needs sums without noise."""
    if epsilon is not None and report is not None:
        raise InputError(
            "--report needs sums without noise, and --epsilon adds noise. Leave one of them out."
        )


def policies(bounds: list[str] | None) -> list[str]:
    """Return the policy files among the values of ``--bounds``."""
    return [text for text in bounds or () if text.endswith(".toml")]


def _bounds(texts: list[str], columns: tuple[str, ...]) -> tuple[tuple[str, float, float], ...]:
    """Return the bounds by column; a text is column=low:high, low:high for all columns, or a policy file."""
    bounds: list[tuple[str, float, float]] = []
    for text in texts:
        if text.endswith(".toml"):
            bounds += _domain(text)
            continue
        name, _, span = text.rpartition("=")
        low, _, high = span.partition(":")
        try:
            pair = float(low), float(high)
        except ValueError:
            raise InputError(f"--bounds must have the form column=low:high, got {text!r}") from None
        if not name and not columns:
            raise InputError(f"--bounds {text} is for all columns. Name them with --columns age,bmi.")
        bounds += [(each, *pair) for each in ((name.strip(),) if name else columns)]
    return tuple(bounds)


def _scales(text: str) -> dict[str, Any]:
    """Return the scale of all columns and those of single columns.

    >>> _scales("robust"), _scales("income=log, crp=rank")
    ({'scale': 'robust', 'scales': ()}, {'scale': 'standard', 'scales': (('income', 'log'), ('crp', 'rank'))})
    """
    parts = [part.rpartition("=") for part in names(text)]
    common = [scale for name, _, scale in parts if not name]
    if len(common) > 1:
        raise InputError(f"--scale takes one scale for all columns and others as column=scale, got {text!r}")
    own = tuple((name.strip(), scale.strip()) for name, _, scale in parts if name)
    return {"scale": common[0] if common else "standard", "scales": own}


def _domain(path: str) -> list[tuple[str, float, float]]:
    from unpooled.site.policy import load

    domain = load(path).domain
    if not domain.columns:
        raise InputError(f"{path}: the policy has no [domain] section with columns, lower and upper")
    return list(zip(domain.columns, domain.lower, domain.upper, strict=True))
