"""Common parts of the commands: one-line errors, the options of a job, and the job built from them."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar, cast

import typer

from unpooled import __version__
from unpooled.errors import InputError
from unpooled.options.clustering import ClusteringChoices
from unpooled.options.declaration import MORE_HOW, MORE_PROTECT, READING, Option, OptionGroup, flag
from unpooled.options.preparation import PreparationChoices
from unpooled.options.reading import Reading
from unpooled.options.summarizing import SummaryChoices
from unpooled.options.values import SwitchValue, plain_name

if TYPE_CHECKING:  # imported by commands only when they run, so that --help is fast
    from unpooled.app.job import Job, RemoteRunOptions
    from unpooled.privacy.microaggregation import SummarySettings

FILES = "CSV (also .tsv, .txt, .gz, .zst), Parquet, .xlsx, .npy, .npz, SQLite, DuckDB"  # that are read
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace outputs that exist; never an input.")]
Out = Annotated[
    Path | None, typer.Option("-o", "--out", help="Folder for model, preparation, history and report.")
]
Report = Annotated[Path | None, typer.Option(help="Also write the report to this file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]
Timings = Annotated[
    bool,
    typer.Option("--timings", help="Print the seconds of each phase on stderr.", rich_help_panel=MORE_HOW),
]
Plan = Annotated[
    bool,
    typer.Option(
        "--plan",
        help="With --epsilon and --rows: print the expected loss, and that of summary tables; read no file.",
        rich_help_panel=MORE_PROTECT,
    ),
]
Threads = Annotated[
    int | None, typer.Option(help="Number of threads (default: all cores).", rich_help_panel=MORE_HOW)
]
K = Annotated[
    str, typer.Option("-k", help="Number of clusters: 3; or auto, 2..10 or 2,4,8 to let unpooled choose one.")
]


def declared_option(name: str, declared: Option, *, hidden: bool = False) -> Any:
    """Return an option of a command, as its declaration describes it."""
    own = declared.name or name
    words = [flag(own)] if isinstance(declared.kind, SwitchValue) else []
    shown = typer.Option(*words, help=declared.help, rich_help_panel=declared.panel, hidden=hidden)
    typed = list[str] if declared.kind.several else declared.kind.typed
    return Annotated[typed | None, shown] if typed is not bool else Annotated[bool, shown]


def declared_parameter(
    name: str, declared: Option, default: Any, *, hidden: bool = False
) -> inspect.Parameter:
    """Return an option as a parameter of a command."""
    shown = None if declared.unset or default in ((), "") else default
    kind = declared_option(name, declared, hidden=hidden)
    own = declared.name or name
    return inspect.Parameter(own, inspect.Parameter.KEYWORD_ONLY, default=shown, annotation=kind)


_CLUSTERING = ClusteringChoices.declared()
Protect = declared_option("protect", _CLUSTERING["protect"])
Dask = declared_option("dask", _CLUSTERING["dask"])
Module = declared_option("modules", _CLUSTERING["modules"])
SiteColumn = declared_option("site_column", Reading.declared()["site_column"])


DataConfig = Annotated[
    Path | None,
    typer.Option(
        help="File with options for reading and preparing data: data.toml. Options of the command replace "
        "its own.",
        rich_help_panel=READING,
    ),
]
SaveDataConfig = Annotated[
    Path | None,
    typer.Option(help="Write these options to a file for --data-config.", rich_help_panel=READING),
]


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


class DeclaredOptions(Options):
    """Options that groups declare; what a command was called with is in ``given``."""

    groups: ClassVar[tuple[type[OptionGroup], ...]]
    hidden = False  # in --help

    def __init__(self, **given: Any) -> None:
        usual = {parameter.name: parameter.default for parameter in self.parameters()}
        self.given = {n: v for n, v in given.items() if v not in (None, []) and v != usual.get(n)}

    @classmethod
    def takes(cls, declared: Option) -> bool:
        """Return whether the commands of this group take an option."""
        return declared.of_all

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        return [
            declared_parameter(name, declared, group.defaults()[name], hidden=cls.hidden)
            for group in cls.groups
            for name, declared in group.declared().items()
            if cls.takes(declared)
        ]

    def add(self, given: Mapping[str, Any]) -> None:
        """Take options from a file, where the command was not called with them."""
        own = {parameter.name for parameter in self.parameters()}
        self.given = {name: value for name, value in given.items() if name in own} | self.given

    @property
    def is_set(self) -> bool:
        return bool(self.given)


class JobOptions(DeclaredOptions):
    """Options of a job: the columns to cluster, and the method."""

    groups = (ClusteringChoices, PreparationChoices)

    def __init__(self, *, k: str = "auto", **given: Any) -> None:
        super().__init__(**given)
        self.k = k

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        k = inspect.Parameter("k", inspect.Parameter.KEYWORD_ONLY, default="auto", annotation=K)
        return [k, *super().parameters()]

    @property
    def is_private(self) -> bool:
        return "epsilon" in self.given

    @property
    def inputs(self) -> list[str | Path]:
        """The files that options name: that of ``--names``, and policies among the values of ``--bounds``."""
        names = [self.given["names"]] if "names" in self.given else []
        return [*names, *(text for text in self.given.get("bounds", ()) if text.endswith(".toml"))]

    def preparation(self) -> PreparationChoices:
        """Return how the columns are prepared."""
        bounds = [bound for text in self.given.get("bounds", ()) for bound in _bounds_in(text)]
        return PreparationChoices.from_command(self.given | {"bounds": bounds})

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

        if "names" in self.given:
            from unpooled.app.keep_names import read_names

            read_names(self.given["names"])
        if "min_cluster_size" in self.given and protect != "raw":
            typer.echo("unpooled: --min-cluster-size has no effect without --protect raw", err=True)
        preparation = self.preparation()
        chosen = {name: getattr(preparation, name) for name in preparation.declared()}
        return Job.from_options(
            files,
            parse_ks(self.k),
            reading or Reading(),
            summary,
            PreparationOptions(**chosen),
            **Job.values_from_command(self.given),
            protect=protect,
            remote=remote,
            dask=dask,
        )


class ReadingOptions(DeclaredOptions):
    """Options for reading a site's file; only the site itself sets them. ``Reading`` declares them."""

    groups = (Reading,)

    @classmethod
    def takes(cls, declared: Option) -> bool:
        return declared.of_site

    def reading(self, site_column: str | None = None) -> "Reading":
        return Reading.from_command(self.given | {"site_column": site_column})


class SummaryOptions(DeclaredOptions):
    """Options for making a summary table."""

    groups = (SummaryChoices,)

    def settings(self, study_columns: tuple[str, ...] = ()) -> "SummarySettings":
        from unpooled.privacy.microaggregation import SummarySettings

        chosen = SummarySettings.values_from_command(self.given)
        return SummarySettings(**chosen, study_columns=study_columns)


def save_data_file(
    path: Path | None,
    *groups: OptionGroup,
    inputs: Sequence[str | Path],
    overwrite: bool,
    quiet: bool = False,
) -> None:
    """Write the options for reading and preparing data to a file, if one is named."""
    if path is not None:
        from unpooled.app.outputs import check
        from unpooled.options.data_file import data_file
        from unpooled.storage.atomic_files import write_atomically

        check(path, inputs=list(inputs), overwrite=overwrite)
        write_atomically(path, data_file(*groups).encode(), shared=True)
        if not quiet:
            typer.echo(f"written: {path}")


def check_report(options: JobOptions, report: Path | None) -> None:
    """Raise InputError for a report under differential privacy: it needs sums without noise."""
    if options.is_private and report is not None:
        raise InputError(
            "--report needs sums without noise, and --epsilon adds noise. Leave one of them out."
        )


def _bounds_in(text: str) -> list[str]:
    """Return the bounds in a value of ``--bounds``: itself, or those that a policy file declares."""
    if not text.endswith(".toml"):
        return [text]
    from unpooled.site.policy import load

    domain = load(Path(text)).domain
    if not domain.columns:
        raise InputError(f"{text}: the policy has no [domain] section with columns, lower and upper")
    return [
        f"{name}={low!r}:{high!r}"
        for name, low, high in zip(domain.columns, domain.lower, domain.upper, strict=True)
    ]
