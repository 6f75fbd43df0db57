"""A job whose files the workers of a Dask cluster read; this process never reads them."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unpooled.data.readers import Reading, is_file, open_source, site_name
from unpooled.errors import InputError

if TYPE_CHECKING:
    from unpooled.app.job import Job
    from unpooled.federation.workers.dask_cluster import DaskFederation


def check_dask(job: "Job") -> None:
    """Raise InputError, with the reason, for a job that a Dask cluster does not run."""
    reasons = {
        "--secure: workers of one owner have no secrets from each other": job.secure,
        "--epsilon: noise is added once for a whole site, not for its partitions": job.epsilon is not None,
        "--protect raw: the minimum cluster size applies to a whole site": job.protect == "raw",
        "--certify: a certificate needs all rows of a site in one place": bool(job.certify),
        "--site-column: every file is a site": job.reading.site_column is not None,
        "tables in memory: workers read files": job.tables is not None,
        "a run between machines": job.remote is not None,
    }
    for reason, applies in reasons.items():
        if applies:
            raise InputError(f"--dask does not go with {reason}")
    for file in job.files:
        if not is_file(file):
            raise InputError(
                f"--dask needs files that every worker can read, and {site_name(file)} is not a file"
            )


def on_dask(job: "Job", reading: Reading, on_left_out: Callable[[str, str], None]) -> "DaskFederation":
    """Return the sites of a job. Row groups of Parquet files are partitions, any other file is one partition.

    All rows of a person are in the same partition. ``on_left_out`` is called with every site that has too few
    people for a summary table, and the reason.
    """
    from unpooled.data.readers.read_tables import check_names, read_table
    from unpooled.federation.workers import RowPartition, parquet_partitions, summary_partitions
    from unpooled.federation.workers.dask_cluster import DaskFederation, client_at

    short = len({site_name(file) for file in job.files}) == len(job.files)
    sites = {site_name(file) if short else file: file for file in job.files}
    sources = [open_source(file, reading, site) for site, file in sites.items()]  # headers only
    check_names(sources, reading)
    rows: dict[str, Any] = {}
    for site, file in sites.items():
        if Path(file).suffix.lower() in (".parquet", ".pq"):
            rows[site] = parquet_partitions(file, reading, person=job.summary.person if job.summary else "")
        else:
            rows[site] = RowPartition(read_table, (str(Path(file).absolute()), reading))
    client = client_at(job.dask)
    try:
        if job.protect == "summary":
            rows = summary_partitions(rows, client, job.summary, on_left_out)
        return DaskFederation(rows, client)
    except BaseException:
        client.close()
        raise
