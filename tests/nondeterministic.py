"""A plugin of pytest that lists the tests whose outcome could differ from one run to the next.

    pytest -p tests.nondeterministic --varying build/varying

A test varies if it, or a fixture of it, starts a process or a thread, opens a socket, draws from the entropy
of the operating system, makes a key, or sleeps. All others compute from fixed seeds alone, and give the same
each time. Every worker of pytest-xdist writes a file of its own; ``python -m tests.repeat`` reads them.
"""

import os
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

_EVENTS = ("subprocess.Popen", "os.fork", "os.posix_spawn", "socket.connect", "socket.bind", "os.exec")
_touched: set[str] = set()  # by the test that runs


def _noting(what, call):
    def noted(*words, **named):
        _touched.add(what)
        return call(*words, **named)

    return noted


def pytest_addoption(parser):
    parser.addoption("--varying", type=Path, help="the folder for the lists of tests that vary")


def pytest_configure(config):
    if config.getoption("--varying") is None:
        return
    sys.addaudithook(lambda event, _: _touched.add(event) if event in _EVENTS else None)
    noted: list[tuple[Any, str, str]] = [
        (os, "urandom", "entropy"),
        (random, "_urandom", "entropy"),  # of SystemRandom: secrets, and numpy without a seed
        (threading.Thread, "start", "thread"),
        (time, "sleep", "sleep"),
    ]
    for owner, name, event in noted:
        setattr(owner, name, _noting(event, getattr(owner, name)))
    try:
        from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa, x25519
    except ImportError:
        return
    modules: tuple[Any, ...] = (ec, rsa)
    for module in modules:
        module.generate_private_key = _noting("key", module.generate_private_key)
    kinds: tuple[Any, ...] = (ed25519.Ed25519PrivateKey, x25519.X25519PrivateKey)
    for kind in kinds:
        kind.generate = staticmethod(_noting("key", kind.generate))


class _Lists:
    """What fixtures of a wider scope touch counts for every test that uses them."""

    def __init__(self, path):
        self._path, self._fixtures = path, {}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef, request):
        before = set(_touched)
        _touched.clear()
        yield
        self._fixtures[fixturedef] = set(_touched)
        _touched.update(before)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item):
        _touched.clear()
        yield
        info = getattr(item, "_fixtureinfo", None)
        for definitions in info.name2fixturedefs.values() if info is not None else ():
            for definition in definitions:
                _touched.update(self._fixtures.get(definition, ()))
        if _touched:
            with self._path.open("a") as file:
                file.write(f"{item.nodeid}\t{' '.join(sorted(_touched))}\n")


def pytest_sessionstart(session):
    folder = session.config.getoption("--varying")
    if folder is not None:
        name = os.environ.get("PYTEST_XDIST_WORKER", "alone")
        session.config.pluginmanager.register(_Lists(folder / f"{name}.tsv"))
