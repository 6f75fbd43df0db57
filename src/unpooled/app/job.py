"""A job: its files, and how they are read, prepared and clustered. A run is repeated or resumed from it."""

import dataclasses
import glob
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from unpooled.algorithms import METHODS, Method, Private
from unpooled.algorithms.polish import check_polish
from unpooled.algorithms.registry import import_methods
from unpooled.app.dask_job import check_dask
from unpooled.app.private_job import check_private, private_method
from unpooled.app.propose_study import now_and_later
from unpooled.app.summary_file_job import check_summary_files, summary_files_of
from unpooled.data import PreparationOptions
from unpooled.data.readers import Reading, is_file, is_summary_file
from unpooled.errors import InputError, ModelError
from unpooled.evaluation import Analysis
from unpooled.optimality.bounds import UNLIMITED
from unpooled.optimality.parts import EFFORTS
from unpooled.options.clustering import ClusteringChoices
from unpooled.options.declaration import tuples
from unpooled.options.remote_run import DEADLINE, EXPIRES, QUORUM, WAIT
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.protocol.algorithm import Algorithm

AUTO = tuple(range(1, 13))  # the k that -k auto compares
PROTECTIONS = ("none", "summary", "raw")
_MAX_DEADLINE, _MAX_DEADLINE_OVER_FILES = 86400, 30 * 86400  # seconds
_IN_TIME = 0.5  # billions of arithmetic operations per second of the deadline: a quarter of a core's speed


@dataclass(frozen=True)
class RemoteRunOptions:
    """The federation that runs a job between machines, and the limits on waiting for its sites."""

    federation: str  # its folder; "" if the console of another program submits the job
    run: str  # name of the job in the federation
    sites: tuple[str, ...]
    quorum: float = QUORUM
    deadline: float = DEADLINE  # seconds per exchange of messages
    wait: float = WAIT  # seconds to wait for a server or sites that are not connected
    title: str = ""  # of the study that sites must approve; "": derived from the job
    purpose: str = ""
    contact: str = ""
    created: str = field(default_factory=lambda: now_and_later(EXPIRES)[0])
    expires: str = field(default_factory=lambda: now_and_later(EXPIRES)[1])
    approval_timeout: float = 0.0  # seconds to wait for approvals; 0: until the study expires
    federations: tuple[str, ...] = ()  # the sites that are federations themselves: they answer with totals
    files: str = ""  # the shared folder, if requests and responses go over files; "": over an engine

    def __post_init__(self) -> None:
        if not self.sites or len(set(self.sites)) < len(self.sites):
            raise InputError(
                f"a run needs at least one site, each once, got {', '.join(self.sites) or 'none'}"
            )
        if not 0 < self.quorum <= 1:
            raise InputError(f"--quorum must be a share above 0 and up to 1, got {self.quorum}")
        most = _MAX_DEADLINE_OVER_FILES if self.files else _MAX_DEADLINE
        if not 0 < self.deadline <= most:
            raise InputError(f"--deadline must be between 0 and {most} seconds, got {self.deadline}")
        if self.approval_timeout < 0:
            raise InputError(f"--wait-approval must be 0 seconds or more, got {self.approval_timeout}")


@dataclass(frozen=True)
class Job(ClusteringChoices):
    """The settings of ``unpooled fit``, ``unpooled federation run`` or ``unpooled.cluster``, as asked for.

    A run does not change them: what it finds is in its result.
    """

    files: tuple[str, ...]  # or addresses of databases; for tables in memory, the names of the sites
    ks: tuple[int, ...]
    reading: Reading = field(default_factory=Reading)
    preparation_options: PreparationOptions = field(default_factory=PreparationOptions)
    tol: float = 1e-4
    summary: SummarySettings | None = None  # how summary tables are made; None: with the defaults
    remote: RemoteRunOptions | None = None  # None: the files are sites in this process
    begun: str = ""  # the date, as 2026-11-16; stored beside the job, because it does not change the result
    tables: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)  # in memory, by site

    @classmethod
    def from_options(
        cls,
        files: tuple[str, ...],
        ks: tuple[int, ...],
        reading: Reading,
        summary: SummarySettings | None,
        preparation_options: PreparationOptions,
        **settings: Any,
    ) -> "Job":
        """Return the job that a command or a call describes, begun today; raise InputError on any fault.

        If columns are named, no others are read, except for summary tables.
        """
        tables: Mapping[str, Any] | None = settings.get("tables")
        if any(map(is_summary_file, files if tables is None else tables.values())):
            summary = None if summary == SummarySettings() else summary
            if settings.get("protect", "none") == "none":  # the tables in the files protect
                settings["protect"] = "summary"
        if summary is not None and settings.get("protect") != "summary":
            if summary != SummarySettings():
                raise InputError(
                    "--min-group-size, --person, --one-row-per-person, --not-a-person, --sensitive, "
                    "--diverse, --log-transform and --consumption are options of summary tables. Add "
                    "--protect summary."
                )
            summary = None
        if summary is not None:
            outcomes = tuple(
                f"log({n})" if n in summary.log_transform else n for n in preparation_options.outcomes
            )
            preparation_options = dataclasses.replace(preparation_options, outcomes=outcomes)
        if not isinstance(preparation_options.columns, str):
            read = (*preparation_options.columns, *preparation_options.outcomes)
            reading = dataclasses.replace(reading, columns=read)
            if summary is not None:  # groups depend on the columns, some of which the table renames
                log, names = summary.log_transform, preparation_options.columns
                summary = dataclasses.replace(summary, study_columns=names)
                names = tuple(f"log({name})" if name in log else name for name in names)
                preparation_options = dataclasses.replace(preparation_options, columns=names)
        if both := sorted({*preparation_options.outcomes} & {*reading.exclude}):
            raise InputError(
                f"--exclude and --outcomes both name {', '.join(both)}. An outcome never counts in the "
                "distance. Leave it out of --exclude."
            )
        begun = datetime.now(UTC).date().isoformat()
        job = cls(files, ks, reading, preparation_options, summary=summary, begun=begun, **settings)
        _ = job.algorithm  # raises InputError if the method refuses the settings
        return job

    def __post_init__(self) -> None:
        import_methods(self.modules)
        if self.method not in METHODS:
            raise InputError(f"method must be one of {', '.join(METHODS)}, got {self.method!r}")
        if not self.files and self.remote is None:
            raise InputError("no file is given")
        if self.n_init < 1:
            raise InputError(f"--restarts must be at least 1, got {self.n_init}")
        if self.seed < 0:
            raise InputError(f"--seed must be 0 or more, got {self.seed}")
        if self.protect not in PROTECTIONS:
            raise InputError(f"--protect must be one of {', '.join(PROTECTIONS)}, got {self.protect!r}")
        if self.certify not in ("", *EFFORTS):
            raise InputError(f"--certify must be one of {', '.join(EFFORTS)}, got {self.certify!r}")
        if self.secure and self.exact_sums:
            raise InputError(
                "--exact-sums and --secure exclude each other: secure sums do not depend on an order"
            )
        check_polish(self.polish)
        if self.polish != 1 and not (self.secure and self.protect == "raw"):
            raise InputError(
                "--polish is for sites that sum raw rows securely. Add --protect raw and --secure, or leave "
                "it out."
            )
        if files := summary_files_of(self):
            check_summary_files(self, files)
        if self.dask:
            check_dask(self)
        if self.epsilon is None and self.sites_per_person != 1:
            raise InputError("--sites-per-person is for differential privacy. Add --epsilon.")
        if self.epsilon is not None:
            if self.certify:
                raise InputError("--certify needs sums without noise. A private run has no certificate.")
            check_private(self)
        elif self.preparation_options.missing == "keep" and not METHODS[self.method]().supports_missing:
            METHODS[self.method]().with_missing()

    @property
    def minimum(self) -> int:
        """The smallest cluster that sites disclose: a minimum applies to raw rows, not to summary tables."""
        return self.min_cluster_size if self.protect == "raw" else 1

    @property
    def exact_rounds(self) -> int:
        """The exact rounds on rows: only where secure sums over raw rows begin with groups of them."""
        fuzzy = METHODS[self.method]().fuzzifier is not None
        return self.polish if self.secure and self.protect == "raw" and not fuzzy else 0

    @property
    def aggregate_only(self) -> bool:
        """True if the job may use totals only: secure sums, or sites that are federations."""
        return self.secure or bool(self.remote is not None and self.remote.federations)

    @property
    def transfers(self) -> bool:
        """True if sites transfer their summary tables once, and the coordinator computes the rest."""
        return (
            self.remote is not None
            and self.protect == "summary"
            and self.epsilon is None
            and not self.aggregate_only
        )

    @property
    def table_columns(self) -> tuple[str, ...]:
        """The columns of its summary table that a site sends, once; (): all."""
        columns, outcomes = self.preparation_options.columns, self.preparation_options.outcomes
        return () if isinstance(columns, str) or not columns else (*columns, *outcomes)

    @cached_property
    def algorithm(self) -> Analysis | Private:
        """The algorithm to run: one method per k, all in the same exchanges of messages."""
        if self.epsilon is not None:
            return private_method(self)
        methods = tuple(self.method_for(k).with_restarts(self.n_init) for k in self.ks)
        # simulated sites that answer from raw rows are certified after the run, without their minimum
        certify = "" if self.remote is None and self.protect == "raw" else self.certify
        return Analysis(
            self.preparation_options,
            methods,
            aggregate_only=self.aggregate_only,
            certify=certify,
            work=self.certifying,
            polish=self.exact_rounds,
        )

    def algorithm_for(self, ks: tuple[int, ...]) -> Algorithm[Any]:
        """Return the algorithm that compares only these of the job's k; all of them if none is named."""
        if not ks or not isinstance(self.algorithm, Analysis):
            return self.algorithm
        methods = zip(self.ks, self.algorithm.methods, strict=True)
        return dataclasses.replace(self.algorithm, methods=tuple(method for k, method in methods if k in ks))

    @property
    def certifying(self) -> float:
        """The limit of a site's work on a certificate, in billions of operations: it must answer in time."""
        return UNLIMITED if self.remote is None else _IN_TIME * min(self.remote.deadline, _MAX_DEADLINE)

    def method_for(self, k: int) -> Method:
        """Return the method for k clusters, without its restarts."""
        return METHODS[self.method](
            k=k, max_rounds=self.max_rounds, tol=self.tol, min_cluster_size=self.minimum
        )

    def fingerprint(self) -> list[list[Any]]:
        """Return size and modification time of every file, so that a resumed run detects a changed file.

        A server, a pipe and a table in memory have neither: a run on them cannot be resumed.
        """
        prints: list[list[Any]] = []
        for file in [*self.files, *([self.reading.query] if self.reading.query else [])]:
            stat = Path(file).stat() if self.tables is None and is_file(file) else None
            prints.append([file, stat and stat.st_size, stat and stat.st_mtime_ns])
        return prints

    @property
    def inputs(self) -> list[str]:
        """The files that the job reads."""
        named = [*self.files, *([self.reading.query] if self.reading.query else [])]
        return [file for file in named if self.tables is None and is_file(file)]

    def command(self, sites: Sequence[str] | None = None) -> str:
        """Return the command line of this job; with ``sites``, their names stand for their data."""
        ks = [str(k) for k in self.ks]
        is_range = len(ks) > 2 and self.ks == tuple(range(self.ks[0], self.ks[-1] + 1))
        k_option = "auto" if self.ks == AUTO else f"{ks[0]}..{ks[-1]}" if is_range else ",".join(ks)
        words = ["unpooled", *self._command_words(sites), "-k", k_option]
        words += self.reading.words(of_files=sites is None) + self.preparation_options.words() + self.words()
        words += self.summary.words() if self.summary is not None else []
        if self.remote is not None:
            for name in ("quorum", "deadline", "wait"):
                value = getattr(self.remote, name)
                words += [f"--{name}", f"{value:g}"] if value != getattr(RemoteRunOptions, name) else []
            for name in ("files", "title", "purpose", "contact"):
                text = getattr(self.remote, name)
                words += [f"--{name}", text] if text else []
        return shlex.join(words)

    def words_of(self, name: str, of_files: bool = True) -> list[str]:
        usual = "none" if self.remote is None else "summary"
        if name == "protect":
            return [] if self.protect == usual else ["--protect", self.protect]
        if name == "min_cluster_size" and self.protect != "raw":
            return []
        return super().words_of(name, of_files)

    def _command_words(self, sites: Sequence[str] | None) -> list[str]:
        if self.remote is None:
            if sites is not None and self.reading.site_column is not None:
                sites = ("DATA",)
            return ["fit", *(self.files if sites is None else sites)]
        command = ["run", self.remote.federation] if self.remote.federation else ["export-job", "JOB"]
        return ["federation", *command]

    def to_json(self) -> dict[str, Any]:
        """Return the job for its file; ``from_json`` reads it."""
        values = dataclasses.asdict(dataclasses.replace(self, tables=None))
        return {name: value for name, value in values.items() if name not in ("begun", "tables")}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Job":
        """Return the job that ``to_json`` wrote; raise ModelError if it is not one."""
        try:
            return cls(
                **{
                    **{name: tuples(value) for name, value in content.items()},
                    "reading": Reading.from_json(content["reading"]),
                    "preparation_options": PreparationOptions(
                        **{k: tuples(v) for k, v in content["preparation_options"].items()}
                    ),
                    "summary": _summary(content["summary"]),
                    "remote": _remote(content.get("remote")),
                }
            )
        except (TypeError, KeyError, AttributeError) as error:
            raise ModelError(f"the job of the run cannot be read: {error}") from error


def _summary(content: dict[str, Any] | None) -> SummarySettings | None:
    return None if content is None else SummarySettings(**{k: tuples(v) for k, v in content.items()})


def _remote(content: dict[str, Any] | None) -> RemoteRunOptions | None:
    return None if content is None else RemoteRunOptions(**{k: tuples(v) for k, v in content.items()})


def parse_ks(text: str) -> tuple[int, ...]:
    """Return the numbers of clusters that ``-k`` names.

    >>> parse_ks("3"), parse_ks("2..5"), parse_ks("2,4,8"), len(parse_ks("auto"))
    ((3,), (2, 3, 4, 5), (2, 4, 8), 12)
    """
    if text.strip() == "auto":
        return AUTO
    try:
        if ".." in text:
            low, high = (int(part) for part in text.split(".."))
            ks = tuple(range(low, high + 1))
        else:
            ks = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(
            f"k must be a number (3), a range (2..10), a list (2,4,8) or auto, got {text!r}"
        ) from None
    if not ks or min(ks) < 1 or len(set(ks)) < len(ks):
        raise InputError(f"k must be at least 1, each k once, and a range must increase, got {text!r}")
    return tuple(sorted(ks))


def expand(patterns: list[str]) -> tuple[str, ...]:
    """Return file names; patterns that the shell did not expand are expanded."""
    files: list[str] = []
    for pattern in patterns:
        is_pattern = is_file(pattern) and any(c in pattern for c in "*?[")
        matches = sorted(glob.glob(pattern)) if is_pattern else [pattern]
        if not matches:
            raise InputError(f"no file matches {pattern}")
        files += matches
    twice = sorted({f for f in files if files.count(f) > 1})
    if twice:
        raise InputError(f"{twice[0]} is given twice")
    return tuple(files)
