"""Random histories of a noise site: requests again and again, other runs between, groups, epochs, kills.

A history is short: one site, or a ring of sites in secure sums, in folders of their own. Sites die at random
points between a charge and its answer, coordinators in the middle of an exchange, and both go on. What left
every site is noted byte for byte, and in the end the ledgers must have been paid for all of it.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from unpooled.data.transforms import Affine
from unpooled.errors import UnpooledError
from unpooled.federation.transport_federation import TransportFederation
from unpooled.privacy import PrivateQuestion, SecureSums
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments
from unpooled.protocol import codec
from unpooled.protocol.algorithm import together, total
from unpooled.protocol.exchange import Part, Request, RequestId, Response, Transport, run_protocol
from unpooled.protocol.messages import Refusal
from unpooled.site import Site
from unpooled.site.chained_file import ChainedFile
from unpooled.site.ledger import Ledger
from unpooled.site.log import Log
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

RULES = """
format = 1
[protect]
mode = "dp"
[dp]
epsilon_total = 90
[jobs]
max_runs = 100000
max_rounds = 100000
[domain]
rows = 300
"""
SECURE = RULES + '[aggregation]\nsecure = "required"\n'
X = np.random.default_rng(0).normal(size=(60, 2))
BOX = np.full(2, 30.0)


class ProcessDeathError(BaseException):
    """A process was killed."""


class Fuse:
    """Kills at the n-th point that a site passes while it writes; ``left`` None: at none."""

    def __init__(self) -> None:
        self.left: int | None = None

    def burn(self, at_the_end: Callable[[], object] | None = None) -> None:
        if self.left is None:
            return
        self.left -= 1
        if self.left < 0:
            self.left = None
            if at_the_end is not None:
                at_the_end()
            raise ProcessDeathError


@contextmanager
def fused(fuse: Fuse) -> Iterator[None]:
    """All sites of this process with a fuse before and after everything that they write."""
    link, append, charge, keep = ChainedFile._link, Log.append, Ledger.charge, Ledger.keep
    transaction = ChainedFile.transaction

    def linking(self, entry):
        fuse.burn()
        link(self, entry)

    def appending(self, kind, **fields):
        fuse.burn(lambda: os.write(self._file, b'{"asked":[{"pay'))  # a line that was cut off
        head = append(self, kind, **fields)
        fuse.burn()
        return head

    def charging(self, *words):
        charge(self, *words)
        fuse.burn()

    def keeping(self, *words):
        keep(self, *words)
        fuse.burn()

    @contextmanager
    def together_kept(self):
        with transaction(self):
            yield
        fuse.burn()

    patched: dict[type, dict[str, Callable[..., Any]]] = {
        ChainedFile: {"_link": linking, "transaction": together_kept},
        Log: {"append": appending},
        Ledger: {"charge": charging, "keep": keeping},
    }
    before = {(cls, name): vars(cls)[name] for cls, names in patched.items() for name in names}
    for cls, names in patched.items():
        for name, function in names.items():
            setattr(cls, name, function)
    try:
        yield
    finally:
        for (cls, name), function in before.items():
            setattr(cls, name, function)


@dataclass
class Observed:
    """What left one site, and what it cost."""

    prices: dict[str, float] = field(default_factory=dict)  # by the bytes that left
    answers: dict[bytes, set[str]] = field(default_factory=dict)  # by the request
    lost: float = 0.0  # the most that was charged for answers that nobody has

    def note(self, message: Request, data: bytes) -> None:
        answer: Response = codec.unwrap(data, expect=Response)
        if any(isinstance(reply, Refusal) for reply in answer.replies) or not price(message):
            return
        bytes_left = codec.encode(replace(answer, head="")).hex()
        self.prices[bytes_left] = price(message)
        self.answers.setdefault(codec.encode(replace(message, countersigned="")), set()).add(bytes_left)

    def check(self, spent: float) -> None:
        """The same request has the same bytes for ever; all bytes are paid, and little more."""
        assert all(len(strings) == 1 for strings in self.answers.values())
        paid = sum(self.prices.values())
        assert paid <= spent * (1 + 1e-9)
        assert spent <= (paid + self.lost) * (1 + 1e-9) + 1e-15


def price(message: Request) -> float:
    return sum(p.question.privacy_cost for p in message.parts if isinstance(p.question, PrivateQuestion))


@dataclass
class Tally:
    """What histories came to, in all."""

    histories: int = 0
    answers: int = 0
    repeated: int = 0
    kills: int = 0
    coordinators: int = 0  # that were killed and went on
    sums: int = 0
    paid: float = 0.0
    spent: float = 0.0


class LivingSite:
    """A site that may die while it answers, and is opened again from its folder."""

    def __init__(self, name: str, rules: str, folder: Path, fuse: Fuse, tally: Tally) -> None:
        self.name, self._rules, self._folder, self._fuse, self._tally = name, rules, folder, fuse, tally
        self.seen, self._site = Observed(), self._opened()

    def _opened(self) -> Site:
        return open_site(self.name, X, parse(self._rules), self._folder)

    def restart(self) -> None:
        self._site.close()
        self._site = self._opened()

    def respond(self, data: bytes, dies_at: int | None = None) -> bytes | None:
        """Its answer; None if it died first."""
        message, self._fuse.left = codec.unwrap(data, expect=Request), dies_at
        known = codec.encode(replace(message, countersigned="")) in self.seen.answers
        try:
            out = self._site.respond(data)
        except ProcessDeathError:
            self._tally.kills += 1
            self.seen.lost += price(message)
            self.restart()
            return None
        finally:
            self._fuse.left = None
        self.seen.note(message, out)
        self._tally.repeated += known
        return out

    def end(self) -> None:
        """Open the ledger once more, and compare it with the answers that left."""
        self.restart()
        self._site.close()
        ledger = Ledger(self._folder / "ledger.sqlite", self.name)
        spent = ledger.spent()
        ledger.close()
        self.seen.check(spent)
        self._tally.answers += len(self.seen.prices)
        self._tally.paid += sum(self.seen.prices.values())
        self._tally.spent += spent


def request(rng: Any, rounds: dict[str, int]) -> Request:
    """One of few requests, so that they come again; a round that is over comes now and then."""
    run = f"run {rng.integers(2)}"
    rounds[run] = rounds.get(run, 0) + int(rng.random() < 0.15)
    request_id = RequestId(
        run, int(rng.integers(2)), rounds[run] - int(rng.random() < 0.05), int(rng.integers(2))
    )
    transform = Affine(np.zeros(2), np.ones(2)) if rng.random() < 0.2 else None
    parts = [
        Part("total", AskNoisyMoments(0.001 * (1 + int(rng.integers(2))), BOX), transform, i)
        for i in range(1 + int(rng.random() < 0.2))
    ]
    return Request(replace(request_id, round=max(request_id.round, 0)), tuple(parts))


def alone(rng: Any, site: Any, restart: Callable[[], None], requests: int) -> None:
    """A history of one site: ``site(data, dies)`` answers, and dies on the way if it is reported so."""
    rounds: dict[str, int] = {}
    for _ in range(requests):
        if rng.random() < 0.06:
            restart()
        site(codec.wrap(request(rng, rounds)), rng.random() < 0.2)


class _Wire(Transport):
    """The carrier of a ring: loses answers, delivers requests twice, and ends with its coordinator."""

    def __init__(self, rng: Any, ring: dict[str, LivingSite], ends: int) -> None:
        self._rng, self._ring, self._ends = rng, ring, ends
        self.sites = tuple(ring)

    def send_and_receive(self, messages):
        self._ends -= 1
        came = {}
        for name, data in messages.items():
            site, rng = self._ring[name], self._rng
            if rng.random() < 0.03:
                site.restart()
            answer = site.respond(data, int(rng.integers(12)) if rng.random() < 0.06 else None)
            if answer is None or rng.random() < 0.05:
                answer = site.respond(data)  # again
            if rng.random() < 0.96:
                came[name] = answer
        if not self._ends:
            raise ProcessDeathError  # the coordinator, with answers that it never used
        return came


def ring(rng: Any, sites: dict[str, LivingSite], tally: Tally) -> None:
    """A history of secure sums with noise: resumes repeat a round under other keys, sites are lost."""
    for number in range(2):
        for _ in range(2):
            ends = int(rng.integers(1, 6)) if rng.random() < 0.4 else -1
            federation = TransportFederation(_Wire(rng, sites, ends), secure=SecureSums())
            asks = [
                total(federation.sites, AskNoisyMoments(0.001, BOX)) for _ in range(1 + (rng.random() < 0.3))
            ]
            try:
                run_protocol(together(asks), federation, run="r", number=number)
                tally.sums += 1
            except ProcessDeathError:
                tally.coordinators += 1
                continue
            except UnpooledError:
                continue  # too few sites were left
            if rng.random() < 0.5:
                break  # else the round is asked again, by a coordinator that has lost its place


def history(seed: int, folder: Path, tally: Tally) -> None:
    """One history in this process; an AssertionError if a ledger was not paid."""
    rng, fuse = np.random.default_rng(seed), Fuse()
    tally.histories += 1
    try:
        with fused(fuse):
            if rng.random() < 0.8:
                site = LivingSite("a", RULES, folder / "a", fuse, tally)
                alone(
                    rng,
                    lambda data, dies: site.respond(data, int(rng.integers(10)) if dies else None),
                    site.restart,
                    7,
                )
                site.end()
            else:
                names = [f"s{i}" for i in range(3 + int(rng.random() < 0.4))]
                sites = {name: LivingSite(name, SECURE, folder / name, fuse, tally) for name in names}
                ring(rng, sites, tally)
                for site in sites.values():
                    site.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def serve(folder: str, rules: str, pipe: Any) -> None:
    """A site in a process of its own, which may be killed at any time: answers what comes by the pipe."""
    site = open_site("a", X, parse(rules), folder)
    pipe.send_bytes(b"open")
    while True:
        pipe.send_bytes(site.respond(pipe.recv_bytes()))
