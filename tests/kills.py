"""Sites in processes of their own that are killed between two steps of their chain."""

import multiprocessing
import os
import signal
import sys
from pathlib import Path
from typing import Any

from unpooled.federation.relay.relay import Relay
from unpooled.federation.relay.relay_policy import RelayRules
from unpooled.protocol import codec
from unpooled.site import Site
from unpooled.site.chain import Chain, Step
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse
from unpooled.site.study import Study
from unpooled.site.study_guard import StudyGuard
from unpooled.site.study_store import StudyFolder

_PRELOADED = ("unpooled", "numpy", "cryptography", "scipy", "opendp")
LEFT = "response of the killed process"


class Kill(Step):
    """A step that kills its process: on the way in, or with the response on the way out.

    ``name`` is that of the step before which it is.
    """

    def __init__(self, name: str, on_the_way: str, left: Path) -> None:
        self.name, self._on_the_way, self._left = (
            name,
            on_the_way,
            left,
        )

    def __call__(self, exchange, call_next):
        if self._on_the_way == "out":
            self._left.write_bytes(codec.wrap(call_next(exchange)))
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


class Hospital:
    """A site of a folder, opened for each request and closed again, as by a process that ends."""

    def __init__(self, name, X, rules: str, folder: Path, study: Study | None = None, authority=None) -> None:
        self._arguments = (name, X, rules, folder, study, authority)
        self.folder, self.deaths = folder, list[Any]()

    def open(self):
        name, X, rules, folder, study, authority = self._arguments
        guard = None if study is None else StudyGuard(study, StudyFolder(folder))
        return open_site(name, X, parse(rules), folder, study=guard, authority=authority)

    def steps(self) -> tuple[str, ...]:
        """The steps of its chain."""
        site = self.open()
        try:
            return site.chain.names
        finally:
            site.close()

    def respond(self, data: bytes) -> bytes:
        """The response to a request, after the deaths that are planned for it."""
        for place, on_the_way in self.deaths:
            self.die(data, place, on_the_way)
        site = self.open()
        try:
            response = site.respond(data)
            assert site.respond(data) == response
            return response
        finally:
            site.close()

    def die(self, data: bytes, place: int, on_the_way: str) -> bytes:
        """Kill a process that answers, before the step at this place; return its response, if any."""
        left = self.folder.with_name(f"{self.folder.name} {LEFT}")
        left.unlink(missing_ok=True)
        context = multiprocessing.get_context("forkserver")
        known = [name for name in sys.modules if name.split(".")[0] in _PRELOADED]
        context.set_forkserver_preload(["__main__", *known])
        process = context.Process(target=_answer_and_die, args=(self, data, place, on_the_way, left))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        return left.read_bytes() if left.exists() else b""


class Region(Hospital):
    """A relay of a folder whose members, sites of this process, have these rows by name."""

    def __init__(self, name, rows, rules: RelayRules, folder: Path) -> None:
        self._name, self._rows, self._rules = name, rows, rules
        self.folder, self.deaths = folder, list[Any]()

    def open(self):
        members = [Site(site, X) for site, X in self._rows.items()]
        return Relay(self._name, members, self._rules, folder=self.folder)


def _answer_and_die(hospital: Hospital, data: bytes, place: int, on_the_way: str, left: Path) -> None:
    site = hospital.open()
    steps = site.chain.steps
    name = steps[min(place, len(steps) - 1)].name
    site.chain = Chain(*steps[:place], Kill(name, on_the_way, left), *steps[place:])
    site.respond(data)
