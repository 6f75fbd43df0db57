"""The sites of a job in this process: its sources are read, and what is left out of them is noted."""

import dataclasses
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unpooled.app.dask_job import on_dask
from unpooled.app.job import AUTO, Job
from unpooled.app.summary_file_job import (
    SummaryFileFacts,
    facts_from_json,
    read_summary_files,
    summary_files_of,
)
from unpooled.data import Table
from unpooled.data.person_columns import person_columns
from unpooled.data.readers import Reading, read_sites
from unpooled.data.schema import AskSchema
from unpooled.data.summary_table import SummaryTable
from unpooled.errors import InputError, TooFewPeopleError
from unpooled.federation import LocalFederation, Simulation
from unpooled.federation.table_transfer import RehearsedTransfer
from unpooled.privacy.microaggregation import SummarySettings, microaggregate
from unpooled.privacy.secure_sum import SecureSums
from unpooled.protocol import codec

if TYPE_CHECKING:  # an optional package
    from unpooled.federation.workers.dask_cluster import DaskFederation

_ASKED_IN_CLEAR = (codec.name_of(AskSchema),)  # asked of each site even under secure sums


@dataclass(frozen=True)
class ReadingFacts:
    """The facts that a run in this process learns while it reads its sources."""

    left_out: tuple[tuple[str, str], ...] = ()  # sites that do not take part, with the reason
    blank_rows: tuple[tuple[str, int], ...] = ()  # number of rows without a value at the end of a source
    ks: tuple[int, ...] = ()  # the k that are compared, if -k auto would compare more than there are rows
    summary_files: tuple[SummaryFileFacts, ...] = ()  # in place of sources

    def to_json(self) -> dict[str, object]:
        """Return the facts for ``result.json``, without those that are empty; ``from_json`` reads them."""
        values = {
            "left_out": dict(self.left_out),
            "blank_rows": dict(self.blank_rows),
            "ks": list(self.ks),
            "summary_files": [dataclasses.asdict(file) for file in self.summary_files],
        }
        return {name: value for name, value in values.items() if value}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "ReadingFacts":
        """Return the facts that ``to_json`` wrote."""
        return cls(
            tuple(content.get("left_out", {}).items()),
            tuple(content.get("blank_rows", {}).items()),
            tuple(content.get("ks", ())),
            facts_from_json(content.get("summary_files", ())),
        )


# larger tables are searched for columns that identify people only where a summary table is made of them
_MAX_ROWS_SEARCHED = 50_000
NO_FACTS = ReadingFacts()  # of a run between machines: its sites read their sources


@dataclass(frozen=True)
class LocalSites:
    """The sites of a job in this process, and what was learnt while their sources were read."""

    federation: "Simulation | RehearsedTransfer | LocalFederation | DaskFederation"
    facts: ReadingFacts
    warning: str = ""  # on columns that seem to identify people in several rows


def local_sites(job: Job, threads: int | None = None) -> LocalSites:
    """Read the sources of a job, and return its sites in this process."""
    left_out: dict[str, str] = {}
    blank_rows: dict[str, int] = {}
    reading, warning = _reading(job), ""
    summary_files: tuple[SummaryFileFacts, ...] = ()
    federation: Simulation | RehearsedTransfer | LocalFederation | DaskFederation
    if job.dask:
        federation = on_dask(job, reading, left_out.__setitem__)
    else:
        rows: Mapping[str, Table | SummaryTable]
        raw: Mapping[str, Table] | None = None
        if summary_files_of(job):
            rows, summary_files = read_summary_files(job)
        else:
            rows = tables = read_sites(
                job.files if job.tables is None else job.tables,
                reading,
                left_out.__setitem__,
                blank_rows.__setitem__,
            )
            warning = repeated_people(tables, job)
            if job.protect == "summary" or _groups_rows(job):
                rows = _summary_tables(job, tables, left_out)
                if _groups_rows(job):
                    rows = {name: dataclasses.replace(groups, made="") for name, groups in rows.items()}
                    raw = {name: tables[name] for name in rows}
        if job.secure:
            federation = LocalFederation.from_rows(
                rows,
                raw=raw,
                min_cluster_size=job.minimum,
                secure=SecureSums(),
                allowed_in_clear=_ASKED_IN_CLEAR,  # sites agree on columns before anything can be summed
            )
        else:
            federation = Simulation.from_rows(
                rows, min_cluster_size=job.minimum, n_threads=threads, exact_sums=job.exact_sums
            )
            summaries = {name: one for name, one in rows.items() if isinstance(one, SummaryTable)}
            if summaries:
                federation = RehearsedTransfer(federation, summaries, job.table_columns)
    ks = _possible_ks(job, federation.rows)
    facts = ReadingFacts(tuple(left_out.items()), tuple(blank_rows.items()), ks, summary_files)
    return LocalSites(federation, facts, warning)


def _reading(job: Job) -> Reading:
    """Return how the sources are read: the columns that the protection needs, as it needs them."""
    reading = job.reading
    if job.epsilon is not None:
        names = tuple(name for name, _, _ in job.preparation_options.bounds)
        reading = dataclasses.replace(reading, columns=names, numbers=names)
    if job.protect == "summary" or _groups_rows(job):  # all its columns, whichever a study uses
        codes = (job.summary.person,) if job.summary is not None and job.summary.person else ()
        reading = dataclasses.replace(reading, columns=None, categorical=(*reading.categorical, *codes))
    return reading


def _groups_rows(job: Job) -> bool:
    """Whether sites answer from groups of their rows: in raw mode, if they answer only in secure sums."""
    return job.protect == "raw" and job.secure


def _summary_tables(
    job: Job, tables: Mapping[str, Table], left_out: dict[str, str]
) -> dict[str, SummaryTable]:
    """Return the summary tables; a site with too few people is left out, as between machines."""
    summaries = {}
    for name, table in tables.items():
        try:
            summaries[name] = microaggregate(table, _settings(job, table))
        except TooFewPeopleError as error:
            left_out[name] = str(error)
        except InputError as error:
            raise InputError(f"site {name}: {error}") from error
    if not summaries:
        raise InputError("no site has enough people for a summary table")
    return summaries


def _settings(job: Job, table: Table) -> SummarySettings:
    """The settings of a site's summary table, in which outcomes do not count in the grouping either."""
    settings, outcomes = job.summary or SummarySettings(), job.preparation_options.outcomes
    named = (n for n in table.names if n in outcomes or f"log({n})" in outcomes)
    more = tuple(name for name in named if name not in settings.ungrouped)
    return dataclasses.replace(settings, sensitive=(*settings.sensitive, *more))


def repeated_people(tables: Mapping[str, Table], job: Job) -> str:
    """Return a warning about the first site with columns that seem to identify people; "" if none has.

    Clusters of rows that are not independent look reproduced: a person's rows are in both halves.
    """
    settings = job.summary or SummarySettings()
    if settings.person:
        return ""
    for site, table in tables.items():
        if job.protect != "summary" and len(table) > _MAX_ROWS_SEARCHED:
            continue
        if found := person_columns(table, settings.not_a_person):
            named = shlex.quote(",".join(found[0].columns))
            what = (
                f"site {site}: {found[0]} seems to identify people, some of them in several rows, and each "
                "row counts as a person"
            )
            if job.protect == "summary":
                return (
                    f"{what}. Use --person COLUMN to combine the rows of a person, or --not-a-person {named} "
                    "if it does not identify people."
                )
            return (
                f"{what}: clusters may be those of single people, and look reproduced. Use --protect summary "
                f"--person {named} to combine the rows of a person. --exclude {named} leaves out the column "
                "only."
            )
    return ""


def _possible_ks(job: Job, rows: int) -> tuple[int, ...]:
    """Return the k that ``-k auto`` can compare if there are too few rows for all of them, else nothing."""
    if job.ks == AUTO:
        return AUTO[:rows] if rows < len(AUTO) else ()
    if len(job.ks) > 1 and max(job.ks) > rows:
        raise InputError(
            f"k = {min(job.ks)} to {max(job.ks)} is too many for {rows} rows. Use a k of at most {rows}."
        )
    return ()
