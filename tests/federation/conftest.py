"""Workers that the tests of this folder share: processes, and a real Dask cluster."""

import logging

import pytest

from unpooled.federation.workers import Processes


@pytest.fixture(scope="session")
def processes():
    with Processes(2) as workers:
        yield workers


@pytest.fixture(scope="session")
def dask():
    from distributed import Client, LocalCluster

    settings = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with LocalCluster(n_workers=2, threads_per_worker=1, **settings) as cluster, Client(cluster) as client:
        yield client


@pytest.fixture
def client(dask):
    """A client with both workers running, even if an earlier test has killed one."""
    dask.wait_for_workers(2, timeout=240)
    return dask
