"""Workers: rows as partitions in other processes, where an executor has them: a process pool, or Dask.

For a site, or a simulation, that is larger than a machine. All workers belong to one owner: this is no
federation between owners, and workers get no keys.
"""

from unpooled.runtimes.workers.copies import copy_partitions
from unpooled.runtimes.workers.federation import WorkerFederation
from unpooled.runtimes.workers.parquet import parquet_partitions
from unpooled.runtimes.workers.partition import RowPartition
from unpooled.runtimes.workers.processes import Processes

__all__ = ["Processes", "RowPartition", "WorkerFederation", "copy_partitions", "parquet_partitions"]
