"""Workers: partitions of rows in other processes, held by an executor: a process pool, or Dask.

They serve a site, or a simulation, that is larger than one process or machine. All workers belong to one
owner: they are not a federation between owners, and have no keys.
"""

from unpooled.federation.workers.distributed_summary import summary_partitions
from unpooled.federation.workers.parquet_partitions import parquet_partitions
from unpooled.federation.workers.partition import RowPartition
from unpooled.federation.workers.process_pool import Processes
from unpooled.federation.workers.worker_federation import WorkerFederation

__all__ = ["Processes", "RowPartition", "WorkerFederation", "parquet_partitions", "summary_partitions"]
