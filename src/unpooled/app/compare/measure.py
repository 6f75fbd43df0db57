"""One run of a method under a protection: its quality, its cost, and the rows that an attack rebuilds.

The attack is that of ``unpooled audit`` (site/audit): it sees what a coordinator sees, every message that
left a site, and it counts the rows that follow from them exactly. It reads counts, sums and means, those with
noise as if they had none; a method whose messages are of another kind is not examined, which is said instead
of a number. The active attack does not depend on a method: it asks a site what it likes.
"""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from reproduction.common import ari, labels_of

from unpooled import kernels
from unpooled.algorithms.method import METHODS
from unpooled.algorithms.private import Private
from unpooled.app.compare.inertia_bound import lower_bound
from unpooled.app.compare.problems import Problem
from unpooled.errors import InputError, TooFewPeopleError, UnpooledError
from unpooled.federation import Simulation
from unpooled.optimality.parts import not_above
from unpooled.privacy.dp.gaussian import Gaussian
from unpooled.privacy.microaggregation import microaggregate
from unpooled.protocol import codec
from unpooled.protocol.exchange import Request, Response
from unpooled.protocol.run_loop import run
from unpooled.site.audit.attack import Reading, attack, in_process, on_log, probe
from unpooled.site.audit.known_sums import Space, centres_in, disclosed_despite_noise, disclosed_in
from unpooled.site.log import entries, unpacked
from unpooled.site.open_site import open_site
from unpooled.site.policy import Policy, parse
from unpooled.site.site import Site
from unpooled.typing import FloatArray

PROTECTIONS = ("none", "summary", "raw", "dp")
ROUNDS = 100
PUBLISHED = ":published"  # after the name of a method: as its authors ran it
_DUAL = 40  # rows of a site up to which the dual method is run


@dataclass(frozen=True)
class MethodRun:
    """One run of a method. ``why`` says why there is none."""

    method: str
    protection: str
    seed: int
    why: str = ""
    inertia: float = float("nan")
    ari: float | None = None
    rounds: int = 0
    exchanges: int = 0
    bytes_per_site: float = float("nan")  # of the site that sends most
    seconds: float = float("nan")  # CPU, all sites and the coordinator
    reconstructed: int = 0  # rows
    messages: int = 0
    examined: int = 0  # messages that the attack reads
    left_out: int = 0  # sites with too few persons for a copy


@dataclass(frozen=True)
class Comparison:
    """All runs on a problem, and what they are compared with."""

    problem: str
    rows: int
    columns: int
    k: int
    sites: int
    pooled: float  # inertia of pooled k-means, best of 10
    best: float  # lowest inertia known
    bound: float  # below which no k centres are
    ceiling: dict[str, float]  # protection -> lowest inertia known from what sites answer from
    ceiling_ari: float | None  # of the clustering with the lowest inertia known
    probed: dict[str, int]  # protection -> rows that an active attacker rebuilds
    runs: tuple[MethodRun, ...] = field(default=())


def compare(
    problem: Problem,
    *,
    methods: Sequence[str] = (),
    protections: Sequence[str] = PROTECTIONS,
    seeds: Iterable[int] = (0,),
    epsilon: float = 1.0,
    seconds: float = 5.0,
    questions: int = 200,
    say: Callable[[str], None] = lambda what: None,
) -> Comparison:
    """Every method under every protection on one problem; ``say`` hears what is being done.

    ``seconds`` go into the search for a bound, ``questions`` are those of the active attacker to a site.
    """
    rows, chosen = problem.sites(), tuple(methods) or tuple(METHODS)
    todo = [(seed, protection, method) for seed in seeds for protection in protections for method in chosen]
    found: list[tuple[FloatArray, float]] = []
    pooled = _kmeans(problem.X, problem.k)
    found.append((pooled, _inertia(problem.X, pooled)))
    runs = []
    for i, (seed, protection, method) in enumerate(todo):
        what = f"{method}, protection {protection}, seed {seed}"
        say(f"run {i + 1} of {len(todo)}, and the attack on it: {what}")
        done, centers = one(problem, method, protection, seed, epsilon)
        runs.append(done)
        if centers is not None:
            found.append((centers, done.inertia))
    say("a bound below which no clustering is")
    near = min(found, key=lambda pair: pair[1])[0]
    exact, bound = lower_bound(problem.X, problem.k, near, seconds)
    if exact is not None:
        found.append((exact, _inertia(problem.X, exact)))
    centers, best = min(found, key=lambda pair: pair[1])
    say(f"{len(protections)} attacks that ask what they like")
    top = ari(problem.y, labels_of(problem.X, centers)) if problem.y is not None else None
    return Comparison(
        problem.name,
        len(problem.X),
        problem.X.shape[1],
        problem.k,
        len(rows),
        found[0][1],
        best,
        not_above(bound, best),
        {p: _ceiling(problem, rows, p, best, runs) for p in protections},
        top,
        {p: probed(rows, p, epsilon, questions) for p in protections},
        tuple(runs),
    )


def one(
    problem: Problem, method: str, protection: str, seed: int, epsilon: float = 1.0
) -> tuple[MethodRun, FloatArray | None]:
    """A run, and the centres that it found."""
    rows = problem.sites()
    largest = max(map(len, rows.values()))
    name = method.removesuffix(PUBLISHED)
    if name == "dual" and (largest > _DUAL or problem.k > 4):
        return MethodRun(method, protection, seed, f"for up to {_DUAL} rows a site"), None
    if method.endswith(PUBLISHED) and method not in methods_and_presets():
        raise InputError(f"{name} has no settings as published")
    if protection == "dp" and method not in ("lloyd", "fuzzy"):
        return MethodRun(method, protection, seed, "has no form with noise"), None
    with tempfile.TemporaryDirectory() as folder:
        homes = {name: Path(folder) / name for name in rows}
        opened, heard = _opened(rows, protection, epsilon, homes, _module(name))
        if not opened:
            return MethodRun(method, protection, seed, "no site has enough persons for a copy"), None
        try:
            algorithm = _algorithm(problem, method, protection, epsilon)
            before = time.process_time()
            done = run(algorithm, Simulation(opened), seed=seed)
            spent = time.process_time() - before
        except UnpooledError as error:
            return MethodRun(method, protection, seed, str(error).splitlines()[0]), None
        finally:
            for site in opened:
                site.close()
        centers = np.asarray(done.state.centers, dtype=np.float64)
        hits, messages, examined = 0, 0, 0
        for site in opened:
            read = disclosed_despite_noise if protection == "dp" else disclosed_in
            of_site = _attacked(homes[site.name], heard.get(site.name), rows[site.name], read)
            hits, messages, examined = (
                a + b for a, b in zip((hits, messages, examined), of_site, strict=True)
            )
    found = MethodRun(
        method,
        protection,
        seed,
        "",
        _inertia(problem.X, centers),
        ari(problem.y, labels_of(problem.X, centers)) if problem.y is not None else None,
        done.rounds,
        done.exchanges,
        float(max(size for _, size in done.sent().values())),
        spent,
        hits,
        messages,
        examined,
        len(rows) - len(opened),
    )
    return found, centers


def _algorithm(problem: Problem, method: str, protection: str, epsilon: float) -> Any:
    if protection == "dp":
        low, high = _declared(problem.X)
        budget = Gaussian(epsilon, 1e-6, low, high, rows=len(problem.X), force=True)
        return Private(k=problem.k, dp=budget, m=2.0 if method == "fuzzy" else None)
    minimum = 5 if protection == "raw" else 1
    if method.endswith(PUBLISHED):
        preset = METHODS[method.removesuffix(PUBLISHED)].as_published(k=problem.k)  # type: ignore[attr-defined]
        return replace(preset, min_cluster_size=minimum)
    made: Any = METHODS[method](k=problem.k, max_rounds=ROUNDS, min_cluster_size=minimum)
    return made.with_restarts(None)


def methods_and_presets() -> tuple[str, ...]:
    """All methods, and after them those that are also known as their authors ran them.

    >>> methods_and_presets()[-1].endswith(PUBLISHED)
    True
    """
    return (*METHODS, *(f"{m}{PUBLISHED}" for m, made in METHODS.items() if hasattr(made, "as_published")))


def _module(method: str) -> str:
    """The module of a method that is not of the package; empty for one that is."""
    name = METHODS[method].__module__
    return "" if name.startswith("unpooled.") else name


def _declared(X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Bounds as one who knows the columns would say them: about a tenth wider than the data, on each side."""
    low, high = X.min(axis=0), X.max(axis=0)
    more = np.maximum(0.1 * (high - low), 1e-9)
    return low - more, high + more


# ---------------------------------------------------------------- sites and attacks


class MessageRecorder:
    """A coordinator's memory of what a site without protection sent: questions and replies."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, Any]] = []

    def __call__(self, request: Request, answer: Response) -> None:
        for part, reply in zip(request.parts, answer.replies, strict=True):
            self.heard.append((part.question, reply))


def _policy(protection: str, epsilon: float, rows: int, module: str = "") -> Policy:
    """The policy of a site; ``rows`` are those of all sites, which are taken to be public."""
    rules = {
        "summary": "[protect]\nauto_approve = true",
        "raw": '[protect]\nmode = "raw"',
        "dp": f'[protect]\nmode = "dp"\n[domain]\nrows = {rows}\n[dp]\nepsilon_total = {epsilon}',
    }
    installed = f'\n[jobs]\nmodules = ["{module}"]' if module else ""
    return parse(f"version = 2\n{rules[protection]}{installed}")


def _opened(
    rows: dict[str, FloatArray],
    protection: str,
    epsilon: float,
    homes: dict[str, Path] | None,
    module: str = "",
) -> tuple[list[Site], dict[str, MessageRecorder]]:
    """The sites under a protection; one of too few persons for a copy is left out.

    ``module`` is that of a method of your own, which the sites have installed.
    """
    sites: list[Site] = []
    heard: dict[str, MessageRecorder] = {}
    for name, X in rows.items():
        if protection == "none":
            heard[name] = MessageRecorder()
            sites.append(Site(name, X, audit=heard[name]))
            continue
        try:
            policy = _policy(protection, epsilon, sum(map(len, rows.values())), module)
            sites.append(open_site(name, X, policy, None if homes is None else homes[name]))
        except TooFewPeopleError:
            continue
    return sites, heard


def _attacked(
    home: Path, heard: MessageRecorder | None, X: FloatArray, read: Reading = disclosed_in
) -> tuple[int, int, int]:
    """Rows that follow from all that a site sent, messages, and messages that the attack reads.

    A row that was sent as a centre of the site's own counts too; a protected site sends none of few rows.
    """
    sent = heard.heard if heard is not None else list(_sent(home / "log.jsonl"))
    shown = [list(read(question, reply)) for question, reply in sent]
    if heard is None:
        return on_log(home / "log.jsonl", read).hits(X), len(sent), sum(map(bool, shown))
    found = attack([Space(X.shape[1], disclosed=[one for some in shown for one in some])])
    centres = [c for question, reply in sent if (c := centres_in(question, reply)).size]
    either = replace(found, single=np.concatenate([found.single.reshape(-1, X.shape[1]), *centres]))
    return either.hits(X), len(sent), sum(map(bool, shown))


def _sent(path: Path) -> Iterator[tuple[Any, Any]]:
    """The questions of a log with the replies that left the site."""
    for _, entry in entries(path):
        if entry is None or entry.get("kind") != "release":
            continue
        replies = codec.decode(unpacked(entry["payload"])).replies
        for asked, reply in zip(entry["asked"], replies, strict=True):
            yield codec.decode(unpacked(asked["payload"])), reply


def probed(rows: dict[str, FloatArray], protection: str, epsilon: float = 1.0, questions: int = 200) -> int:
    """Rows that an active attacker rebuilds: one who asks every site what isolates its rows."""
    sites, _ = _opened(rows, protection, epsilon, None)
    hits = 0
    for site in sites:
        X = rows[site.name]
        found = probe(
            in_process(site.answer), X.mean(axis=0), X.std(axis=0), questions, np.random.default_rng(0)
        )
        hits += found.hits(X)
        site.close()
    return hits


# ---------------------------------------------------------------- what a run is compared with


def _kmeans(X: FloatArray, k: int, weights: FloatArray | None = None) -> FloatArray:
    """Centres of pooled k-means: the best of ten starts."""
    seed = np.zeros(1, dtype=np.uint64)
    found = kernels.kmeans(X, np.array([0, len(X)]), k, seed, weights, n_init=10)
    centers: FloatArray = found.centers[0]
    return centers


def _inertia(X: FloatArray, centers: FloatArray) -> float:
    return float(kernels.nearest(X, centers).sqdist.sum())


def _ceiling(
    problem: Problem, rows: dict[str, FloatArray], protection: str, best: float, runs: Sequence[MethodRun]
) -> float:
    """The lowest inertia of the rows that is known to be reached from what sites answer from; nan: noise.

    From rows it is the lowest known. From copies it is that of pooled k-means of all copies, or of a run.
    """
    if protection == "dp":
        return float("nan")
    if protection != "summary":
        return best
    reached = [r.inertia for r in runs if r.protection == "summary" and not r.why]
    summaries = []
    for X in rows.values():
        try:
            summaries.append(microaggregate(X))
        except TooFewPeopleError:
            continue
    if summaries:
        groups = np.concatenate([summary.matrix() for summary in summaries])
        people = np.concatenate([summary.people for summary in summaries])
        if len(groups) >= problem.k:
            reached.append(_inertia(problem.X, _kmeans(groups, problem.k, people)))
    return min(reached, default=float("nan"))
