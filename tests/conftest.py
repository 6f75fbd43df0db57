"""Fixtures that many tests use."""

import pytest
import sklearn.cluster  # noqa: F401  (loaded, so that its threads can be limited)
from hypothesis import settings
from threadpoolctl import threadpool_limits

from helpers import blobs, split

# the same examples every time, and no folder of past ones beside the code
settings.register_profile("unpooled", database=None, derandomize=True, deadline=None)
settings.load_profile("unpooled")


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """scikit-learn's k-means on small data is many times slower with threads that wait for each other."""
    with threadpool_limits(1):
        yield


@pytest.fixture
def rows():
    """Three separated clusters over four sites."""
    return split(blobs(1, n=80)[0], 4, seed=1)


@pytest.fixture
def overlapping():
    """Rows of overlapping clusters over three sites that differ."""
    return split(blobs(2, n=150, spread=4.0)[0], 3, seed=2, skewed=True)


@pytest.fixture(scope="session")
def postgresql():
    """A PostgreSQL server of the tests' own; without one, tests of it are skipped."""
    from tests.data import postgres

    if postgres.program() is None:
        pytest.skip("there is no PostgreSQL: make postgres installs it where root may")
    with postgres.served() as server:
        yield server
