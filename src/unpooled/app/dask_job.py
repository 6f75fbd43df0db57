"""A job whose files are read by the workers of a Dask cluster, and never by this process."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unpooled.data.readers import Reading, is_file, open_source, site_name
from unpooled.errors import InputError

if TYPE_CHECKING:
    from unpooled.app.job import Job
    from unpooled.federation import Simulation

_clients: dict[int, Any] = {}  # of the federations of jobs that run


def check_dask(job: "Job") -> None:
    """InputError, with the reason, for a job that a Dask cluster does not do."""
    reasons = {
        "--secure: workers of one owner have no secrets from each other": job.secure,
        "--epsilon: noise is for a site as a whole, not for its partitions": job.epsilon is not None,
        "--protect raw: a minimum size is for a site as a whole": job.protect == "raw",
        "--certify: a proof needs all rows of a site in one place": bool(job.certify),
        "--site-column: every file is a site": job.reading.site_column is not None,
        "tables in memory: workers read files": job.tables is not None,
        "a run between machines": job.remote is not None,
    }
    for reason, is_so in reasons.items():
        if is_so:
            raise InputError(f"--dask does not go with {reason}")
    for file in job.files:
        if not is_file(file):
            raise InputError(f"--dask is for files that every worker can read; {site_name(file)} is none")


def on_dask(job: "Job", reading: Reading, on_left_out: Callable[[str, str], None]) -> "Simulation":
    """The sites of a job: the row groups of Parquet files are partitions, any other file is one.

    Where persons have several rows, those of one are in one partition; ``on_left_out`` hears of sites without copy.
    """
    from unpooled.data.readers.read_tables import check_names, read_table
    from unpooled.federation import Simulation
    from unpooled.federation.workers import RowPartition, parquet_partitions, summary_partitions
    from unpooled.federation.workers.dask_cluster import client_at

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
        federation = Simulation.from_rows(rows, executor=client)
    except BaseException:
        client.close()
        raise
    _clients[id(federation)] = client
    return federation


def release(federation: "Simulation") -> None:
    """Let the cluster go, once the job is done."""
    _clients.pop(id(federation)).close()
