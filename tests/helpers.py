"""What the tests share: small data, splits, an independent Lloyd, guards that watch, and every algorithm."""

import dataclasses
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unpooled.algorithms import DWF, EWF, FKM, METHODS, Dual, Fuzzy, KFed, Lloyd, MiniBatch, Restarts, Robust
from unpooled.algorithms.scaled import Scaled
from unpooled.errors import QueryRefusedError
from unpooled.federation import LocalFederation
from unpooled.federation.relay.relay_policy import RelayRules
from unpooled.federation.transport_federation import MAX_RESPONSE_BYTES, check_response
from unpooled.protocol import codec
from unpooled.protocol.exchange import Part, Request, Response, round_rng, run_protocol
from unpooled.protocol.messages import Refusal, Reply
from unpooled.site import Guard, Site
from unpooled.site.chain import Exchange
from unpooled.site.chain_steps import Recorder as BaseRecorder
from unpooled.site.endpoint import Endpoint
from unpooled.site.ledger import Ledger
from unpooled.site.policy import parse

EXACT = RelayRules(exact=True)
ONE_ROW_PER_PERSON = parse("format = 1\n[protect]\none_row_per_person = true\nno_sensitive_columns = true\n")
"""The default policy, with the declaration that a summary table needs."""

# ---------------------------------------------------------------- data


def blobs(seed: int, n: int = 120, d: int = 2, k: int = 3, spread: float = 0.5, box: float = 10.0):
    """n rows about k centres; a small spread separates them, a large one makes them overlap."""
    rng = np.random.default_rng(seed)
    middle = rng.uniform(-box, box, (k, d))
    labels = rng.integers(k, size=n)
    return middle[labels] + spread * rng.standard_normal((n, d)), labels


def split(X, parts: int, seed: int = 0, skewed: bool = False) -> dict[str, Any]:
    """Rows dealt to sites: at random, or sorted by the first column, so that sites differ."""
    rng = np.random.default_rng(seed)
    order = np.argsort(X[:, 0], kind="stable") if skewed else rng.permutation(len(X))
    cuts = np.sort(rng.choice(np.arange(1, len(X)), parts - 1, replace=False))
    return {f"site-{i}": X[rows] for i, rows in enumerate(np.split(order, cuts))}


def pooled(rows: dict[str, Any]):
    """All rows in one array, sites by name."""
    return np.concatenate([rows[name] for name in sorted(rows)])


# ---------------------------------------------------------------- the oracle: pooled k-means in a few lines


def nearest(X, centers):
    """(n,) index of the nearest centre."""
    return ((X[:, None] - centers[None]) ** 2).sum(axis=2).argmin(axis=1)


def lloyd_step(X, centers, weights=None):
    """One step of pooled Lloyd; a cluster without rows keeps its centre."""
    labels, after = nearest(X, centers), centers.astype(np.float64)
    for j in range(len(centers)):
        if (labels == j).any():
            after[j] = np.average(
                X[labels == j], axis=0, weights=None if weights is None else weights[labels == j]
            )
    return after


def lloyd(X, centers, steps: int = 300, weights=None):
    """Pooled Lloyd for a number of steps, or until nothing changes."""
    for _ in range(steps):
        after = lloyd_step(X, centers, weights)
        if np.array_equal(after, centers):
            break
        centers = after
    return centers


def inertia_of(X, centers) -> float:
    """Squared distances to the nearest centre, summed."""
    return float(((X[:, None] - centers[None]) ** 2).sum(axis=2).min(axis=1).sum())


def in_order(centers):
    """Centres sorted by their columns: to compare two clusterings whose clusters come in any order."""
    return centers[np.lexsort(centers.T[::-1])]


# ---------------------------------------------------------------- running


def bits(message: Any) -> bytes:
    """What two things that are the same to the last bit share."""
    return codec.encode(message)


def rounds(algorithm: Any, federation: Any, count: int, seed: int = 0) -> Iterator[Any]:
    """The states after the start and after each of ``count`` rounds, finished or not."""
    algorithm, sites = algorithm.build(), federation.sites
    state = run_protocol(algorithm.start(sites, round_rng(seed, 0)), federation, seed=seed)
    yield state
    for number in range(1, count + 1):
        steps = algorithm.round(state, sites, round_rng(seed, number))
        state = run_protocol(steps, federation, seed=seed, number=number)
        yield state


class Recorder(BaseRecorder):
    """A log that changes nothing: keeps every question, its reply, and the number of rows."""

    def __init__(self) -> None:
        self.seen: list[tuple[Part, Reply]] = []
        self.rows: list[int] = []

    def record(self, exchange: Exchange, response: Response) -> str:
        for asked, reply in zip(exchange.parts, response.replies, strict=True):
            if not isinstance(reply, Refusal):
                self.seen.append((asked.part, reply))
                self.rows.append(len(exchange.parts[0].rows))
        return ""


class Declines(Guard):
    """A guard that refuses every question, from round ``since`` on."""

    def __init__(self, reason: str = "closed today", since: int = 0) -> None:
        self.reason, self.since = reason, since

    def check(self, exchange: Exchange) -> None:
        if exchange.request.request_id.round >= self.since:
            raise QueryRefusedError(self.reason)


def step_of(member: Endpoint, name: str) -> Any:
    """The first step of this name in the chain of a site or a relay."""
    return next(step for step in member.chain.steps if step.name == name)


def ledger_of(member: Endpoint) -> Ledger:
    """The ledger of a site or a relay."""
    ledger: Ledger = step_of(member, "transaction").ledger
    return ledger


def mask_of(member: Endpoint) -> Any:
    """The part of a site or a relay in secure sums."""
    return step_of(member, "transaction").mask


def watched(rows: dict[str, Any], min_cluster_size: int = 1) -> tuple[LocalFederation, Recorder]:
    """A federation all of whose sites share one Recorder."""
    recorder = Recorder()
    sites = [
        Site(name, X, min_cluster_size=min_cluster_size, guards=[Guard()], log=recorder)
        for name, X in rows.items()
    ]
    return LocalFederation(sites), recorder


def arrays_in(value: Any) -> Iterator[Any]:
    """Every array anywhere in a message."""
    if isinstance(value, np.ndarray):
        yield value
    elif dataclasses.is_dataclass(value):
        for f in dataclasses.fields(value):
            yield from arrays_in(getattr(value, f.name))
    elif isinstance(value, tuple):
        for item in value:
            yield from arrays_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from arrays_in(item)


# ---------------------------------------------------------------- every algorithm, small enough for tests

K = 3
_INIT = np.array([[-5.0, -5.0], [0.0, 0.0], [5.0, 5.0]])
_SLOW = DWF(k=K, learning_rate=0.5, momentum=0.4, local_steps=3, max_rounds=12)
_BATCHES = MiniBatch(k=K, batch=4, epochs=2, client_rate=0.7, momentum=0.5, learning_rate=0.8, max_rounds=10)
_RANGE = np.array([[-60.0, -60.0], [60.0, 60.0]])
_PROOF = Dual(k=K, box=_RANGE, n_starts=2, nodes=300, max_rounds=5)
_TRIEBE = MiniBatch.as_published(k=K, participation=1.0, epochs=2, batch=5, rounds=25)

ALGORITHMS: dict[str, Callable[..., Any]] = {
    "lloyd": lambda **s: Lloyd(k=K, **s),
    "lloyd-one-start": lambda **s: Lloyd(k=K, n_starts=1, **s),
    "lloyd-k-fed": lambda **s: Lloyd(k=K, init="k-fed", **s),
    "lloyd-random": lambda **s: Lloyd(k=K, init="random", **s),
    "lloyd-given": lambda **s: Lloyd(k=K, init=_INIT, tol=0.0, **s),
    "dwf": lambda **s: DWF(k=K, **s),
    "dwf-slow": lambda **s: replace(_SLOW, **s),
    "dwf-rows": lambda **s: replace(DWF(k=K, init="random", weights="rows", max_rounds=12), **s),
    "dwf-published": lambda **s: replace(DWF.as_published(k=K), **{"max_rounds": 25, **s}),
    "ewf": lambda **s: replace(EWF(k=K, local_steps=2, max_rounds=12), **s),
    "ewf-published": lambda **s: replace(EWF.as_published(k=K), **{"max_rounds": 25, **s}),
    "fkm": lambda **s: FKM(k=K, **s),
    "fkm-published": lambda **s: replace(FKM.as_published(k=K, rounds=6), **s),
    "k-fed": lambda **s: KFed(k=K, **s),
    "k-fed-published": lambda **s: replace(KFed.as_published(k=K, k_local=2), **s),
    "k-fed-holzer": lambda **s: replace(KFed.as_published_by_holzer(k=K), **s),
    "mini-batch": lambda **s: MiniBatch(k=K, **s),
    "mini-batch-small": lambda **s: replace(_BATCHES, **s),
    "mini-batch-published": lambda **s: replace(_TRIEBE, **s),
    "fuzzy": lambda **s: Fuzzy(k=K, **s),
    "fuzzy-sharp": lambda **s: Fuzzy(k=K, m=1.2, n_starts=2, **s),
    "fuzzy-local": lambda **s: replace(
        Fuzzy(k=K, local_steps=3, weights="sum(u)", n_starts=2, max_rounds=12), **s
    ),
    "fuzzy-published": lambda **s: replace(Fuzzy.as_published(k=K), **{"max_rounds": 12, **s}),
    "fuzzy-avg2": lambda **s: replace(Fuzzy(k=K, merge="avg2", max_rounds=12), **s),
    "fuzzy-avg2-published": lambda **s: replace(
        Fuzzy.as_published(k=K, merge="avg2"), **{"max_rounds": 12, **s}
    ),
    "dual": lambda **s: replace(_PROOF, **s),
    "dual-sg": lambda **s: replace(_PROOF, update="sg", topology="star", symmetry="pair", **s),
    "dual-btm": lambda **s: replace(_PROOF, update="btm", cuts=3, **s),
    "dual-published": lambda **s: replace(
        Dual.as_published(k=K), **{"box": _RANGE, "nodes": 300, "max_rounds": 4, **s}
    ),
    "best-of-fuzzy-avg2": lambda **s: Restarts(replace(Fuzzy(k=K, merge="avg2", max_rounds=8), **s), 2),
    "robust": lambda **s: Robust(k=K, **s),
    "robust-given": lambda **s: Robust(k=K, init=_INIT, **s),
    "best-of-dwf": lambda **s: Restarts(DWF(k=K, **s), 3),
    "best-of-fkm": lambda **s: Restarts(FKM(k=K, **s), 3),
    "best-of-holzer": lambda **s: Restarts(replace(KFed.as_published_by_holzer(k=K, restarts=1), **s), 3),
    "best-of-mini-batch": lambda **s: Restarts(replace(_BATCHES, **s), 2),
    "scaled-lloyd": lambda **s: Scaled(Lloyd(k=K, n_starts=3, **s)),
    "scaled-k-fed": lambda **s: Scaled(KFed(k=K, **s)),
    "scaled-best-of-ewf": lambda **s: Scaled(Restarts(replace(EWF(k=K, max_rounds=8), **s), 2)),
}
"""Every method and preset by name; settings such as participation are passed on to it."""
for _name, _method in METHODS.items():  # a new method takes part with its defaults at once
    ALGORITHMS.setdefault(_name, partial(_method, k=K))

_PRESETS = {name for name in ALGORITHMS if name not in METHODS} - {
    "lloyd-given",
    "dwf-slow",
    "k-fed-published",
    "mini-batch-small",
    "fuzzy-avg2",
    "best-of-fkm",
    "scaled-lloyd",
}
each_algorithm = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long) if n in _PRESETS else n for n in ALGORITHMS]
)
"""Every method and one variant of each kind; all other presets only in the long suite."""


# ---------------------------------------------------------------- methods of others


@contextmanager
def registered(folder: Path, modules: list[str]) -> Iterator[None]:
    """Modules of a folder, imported as if they were installed; afterwards nobody knows their methods."""
    before, messages = dict(METHODS), codec.registered()
    names = [name for name in sys.modules if name in modules]
    for name in names:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
    try:
        for module in modules:
            importlib.import_module(module)
        yield
    finally:
        sys.path.remove(str(folder))
        for module in modules:
            sys.modules.pop(module, None)
        METHODS.clear()
        METHODS.update(before)
        codec._register.clear()
        codec._register.update(messages)
        codec._wire_names.clear()


def opened(request: Request, data: bytes, limit: int = MAX_RESPONSE_BYTES) -> Response:
    """The answer to a request, read and checked as a coordinator does."""
    answer: Response = codec.unwrap(data, expect=Response, limit=limit)
    check_response(request, answer)
    return answer
