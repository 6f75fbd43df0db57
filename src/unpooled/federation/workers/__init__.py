"""Workers: rows as partitions in other processes, where an executor has them: a process pool, or Dask.

For a site, or a simulation, that is larger than a machine. All workers belong to one owner: this is no
federation between owners, and workers get no keys.
"""

from unpooled.federation.workers.distributed_summary import summary_partitions
from unpooled.federation.workers.parquet_partitions import parquet_partitions
from unpooled.federation.workers.partition import RowPartition
from unpooled.federation.workers.process_pool import Processes
from unpooled.federation.workers.worker_federation import WorkerFederation

__all__ = ["Processes", "RowPartition", "WorkerFederation", "parquet_partitions", "summary_partitions"]
