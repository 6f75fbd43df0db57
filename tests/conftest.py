"""Fixtures that many tests use, and an environment that is the same on every machine."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
import sklearn.cluster  # noqa: F401  (loaded, so that its threads can be limited)
from hypothesis import settings
from threadpoolctl import threadpool_limits
from xdist.scheduler import LoadFileScheduling

from helpers import blobs, split

# doctests are looked for in every module, and two files of the same name cannot both be imported as one
collect_ignore_glob = ["*/conftest.py"]

# the same examples every time, and no folder of past ones beside the code
settings.register_profile("unpooled", database=None, derandomize=True, deadline=None)
settings.load_profile("unpooled")

# Variables that change output or answers: typer and rich read these, libpq reads those that begin with PG.
# typer reads some of them once, when the tests import it. Subprocesses inherit what is left.
_TERMINAL = ("COLUMNS", "LINES", "TERMINAL_WIDTH", "NO_COLOR", "FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS")
for _name in [*os.environ]:
    if _name in (*_TERMINAL, "UNPOOLED_MEMORY") or _name.startswith("PG"):
        del os.environ[_name]
os.environ["TERM"] = "dumb"


def _replace_process(*words):
    raise AssertionError(f"a command would replace the process of the tests: {words}")


os.execv = _replace_process

# The tests write thousands of small files, each with fsync. In memory they do not wait for a disk.
_MEMORY = Path("/dev/shm")
if "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > 4 << 30:
    os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)


class ByFile(LoadFileScheduling):
    """A worker takes a file at a time. The tests between processes are two units, started first.

    A test between processes starts up to ten processes and waits for them most of the time. More than two
    such tests at once would slow each other down, and every worker would set up the federation they share.
    """

    SHARED = (
        "commands",
        "hostile",
        "kills",
        "logs_and_metrics",
        "operation",
        "own_method",
        "processes",
        "runs",
    )

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        if not file.startswith("tests/machines/"):
            return file
        name = file.removeprefix("tests/machines/test_").removesuffix(".py")
        return f"tests/machines, {'the shared federation' if name in self.SHARED else 'others'}"


def pytest_xdist_make_scheduler(config, log):
    return ByFile(config, log) if config.getoption("dist") == "load" else None  # unless --dist says otherwise


class NameFailures:
    """Names each failure when it happens. Its traceback comes at the end of the run."""

    def __init__(self, terminal):
        self._terminal = terminal

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self._terminal.write_line(f"\n{report.outcome.upper()} {report.nodeid} ({report.when})")


@pytest.hookimpl(trylast=True)  # after the terminal has registered
def pytest_configure(config):
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(config, "workerinput"):  # a worker of xdist has no terminal
        config.pluginmanager.register(NameFailures(terminal))


def pytest_collection_modifyitems(items):
    """Start the tests between processes first, and count docstrings as quick tests."""
    items.sort(key=lambda item: "tests/machines/" not in item.nodeid)
    for item in items:
        if isinstance(item, pytest.DoctestItem):
            item.add_marker("quick")


def _register(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNPOOLED_REGISTER", str(tmp_path_factory.mktemp("register")))
        yield


# Every test, and every fixture of a wider scope, has a register of site folders of its own.
_register_of_test = pytest.fixture(autouse=True, name="_register_of_test")(_register)
_register_of_module = pytest.fixture(autouse=True, scope="module", name="_register_of_module")(_register)
_register_of_run = pytest.fixture(autouse=True, scope="session", name="_register_of_run")(_register)


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
        pytest.skip("PostgreSQL is not installed")
    with postgres.served() as server:
        yield server
