"""A job over signed summary files: the options that it refuses, and its sites in this process.

The sites answer from the tables in the files, exactly as simulated sites do under ``--protect summary``.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unpooled.data.readers import Reading, is_summary_file
from unpooled.data.summary_table import SummaryTable
from unpooled.errors import InputError

if TYPE_CHECKING:
    from unpooled.app.job import Job


@dataclass(frozen=True)
class SummaryFileFacts:
    """A summary file as a report lists it."""

    site: str
    file: str  # its name, without folders
    fingerprint: str  # of the site's key
    exported: str  # date and time, UTC
    protection: str  # in words
    encrypted: bool
    digest: str
    title: str  # of the study
    purpose: str
    expires: str


def summary_files_of(job: "Job") -> tuple[str, ...]:
    """Return the summary files among the sources of a job."""
    given = job.files if job.tables is None else tuple(job.tables.values())
    return tuple(str(one) for one in given if is_summary_file(one))


def check_summary_files(job: "Job", files: tuple[str, ...]) -> None:
    """Raise InputError for a source or an option that does not go with summary files."""
    if len(files) < len(job.files):
        raise InputError(
            f"{files[0]} is a summary file, and other sources are not. A run takes summary files only, or "
            "none: unpooled site export makes one of a site's table."
        )
    reasons = {
        "--protect raw: the files hold summary tables": job.protect == "raw",
        "--epsilon: noise is added by the sites": job.epsilon is not None,
        "--dask: they are small": bool(job.dask),
        "options that make a summary table (--min-group-size, --person and others): the site made it": (
            job.summary is not None
        ),
        "options that read files (--exclude, --categorical, --na, --site-column and others): the site read "
        "its file. Use --columns to choose columns": job.reading != Reading(columns=job.reading.columns),
    }
    for reason, applies in reasons.items():
        if applies:
            raise InputError(f"summary files do not go with {reason}")


def read_summary_files(job: "Job") -> tuple[dict[str, SummaryTable], tuple[SummaryFileFacts, ...]]:
    """Return the tables of a job's summary files by site, in the order of the files, and the files' facts.

    Raises
    ------
    InputError
        A file may not be used, or stands under the name of another site.
    """
    from unpooled.federation.recipient import read_summaries
    from unpooled.site.signed_file import sender_fingerprint

    files = summary_files_of(job)
    tables, facts = {}, []
    for named, (file, table) in zip(job.files, read_summaries([Path(one) for one in files]), strict=True):
        header, study = file.header, file.header.study
        assert study is not None
        if job.tables is not None and named != header.sender:
            raise InputError(f"{file.path}: is of {header.sender}, and is given as site {named}")
        tables[header.sender] = table
        facts.append(
            SummaryFileFacts(
                header.sender,
                file.path.name,
                sender_fingerprint(header.sender_key),
                header.exported,
                header.protection,
                header.encrypted,
                file.digest,
                study.title,
                study.purpose,
                study.expires,
            )
        )
    return tables, tuple(facts)


def facts_from_json(values: Any) -> tuple[SummaryFileFacts, ...]:
    """Return the facts of files in a stored result."""
    return tuple(SummaryFileFacts(**one) for one in values)
