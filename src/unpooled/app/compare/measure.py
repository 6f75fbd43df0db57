"""One run of a method under a protection: its quality, its cost, and the rows that an attack reconstructs.

The reconstruction attack is that of ``unpooled site log --attack`` (site/audit). It reads what a coordinator
receives, every message that a site sent, and counts the rows that follow from them exactly. It reads counts,
sums and means, and noisy ones as if they had no noise. A method whose messages are of another kind is
reported as not examined. The active attack does not depend on a method: it sends queries of its own choice.
"""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from unpooled import kernels
from unpooled.algorithms.private import Private
from unpooled.algorithms.registry import METHODS
from unpooled.app.compare.inertia_bound import lower_bound
from unpooled.app.compare.problems import Problem
from unpooled.app.compare.scores import ari, labels_of
from unpooled.errors import InputError, TooFewPeopleError, UnpooledError
from unpooled.federation import LocalFederation
from unpooled.optimality.parts import not_above
from unpooled.privacy.dp.gaussian import Gaussian
from unpooled.privacy.microaggregation import microaggregate
from unpooled.protocol import codec
from unpooled.protocol.exchange import Response
from unpooled.protocol.run_loop import run
from unpooled.site.audit.attack import Reading, attack, in_process, on_log, probe
from unpooled.site.audit.known_sums import Space, centres_in, disclosed_despite_noise, disclosed_in
from unpooled.site.chain import Exchange
from unpooled.site.chain_steps import Recorder
from unpooled.site.log import entries, unpacked
from unpooled.site.open_site import open_site
from unpooled.site.policy import Policy, parse
from unpooled.site.site import Site
from unpooled.typing import FloatArray

SUMMARY = "summary"
PROTECTIONS = ("none", SUMMARY, "raw", "dp")
ROUNDS = 100
PUBLISHED = ":published"  # after the name of a method: as its authors ran it
NO_DP = "has no differentially private variant"
_DUAL = 40  # rows of a site up to which the dual method is run


@dataclass(frozen=True)
class MethodRun:
    """One run of a method. ``not_run`` is the reason if there is none."""

    method: str
    protection: str
    seed: int
    not_run: str = ""
    inertia: float = float("nan")
    ari: float | None = None
    rounds: int = 0
    exchanges: int = 0
    bytes_per_site: float = float("nan")  # of the site that sends most
    seconds: float = float("nan")  # CPU, all sites and the coordinator
    reconstructed: int = 0  # rows
    messages: int = 0
    examined: int = 0  # messages that the attack reads
    left_out: int = 0  # sites with too few people for a summary table


@dataclass(frozen=True)
class Comparison:
    """All runs on a problem, and the numbers that they are compared with."""

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
    actively_reconstructed: dict[str, int]  # protection -> rows that an active attacker reconstructs
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
    progress: Callable[[str], None] = lambda activity: None,
) -> Comparison:
    """Run every method under every protection on one problem.

    Parameters
    ----------
    problem
        The rows, their sites and the number of clusters.
    methods
        Names of ``methods_and_presets``; all methods if empty.
    protections
        Names of ``PROTECTIONS``.
    seeds
        A run of every method for each of them.
    epsilon
        The privacy budget of the protection "dp".
    seconds
        The time limit of the search for a lower bound.
    questions
        How many queries the active attacker sends to a site.
    progress
        Called with a line of text about every step that begins.

    Returns
    -------
    Comparison
        All runs, and the numbers that they are compared with.
    """
    rows, chosen = problem.sites(), tuple(methods) or tuple(METHODS)
    if problem.people is not None and tuple(protections) != (SUMMARY,):
        raise InputError("summary files are compared under --protect summary only: their rows are elsewhere")
    todo = [(seed, protection, method) for seed in seeds for protection in protections for method in chosen]
    found: list[tuple[FloatArray, float]] = []
    pooled = _kmeans(problem.X, problem.k, problem.people)
    found.append((pooled, _inertia(problem, pooled)))
    runs = []
    for i, (seed, protection, method) in enumerate(todo):
        which = f"{method}, protection {protection}, seed {seed}"
        progress(f"run {i + 1} of {len(todo)}, and the attack on it: {which}")
        done, centers = run_method(problem, method, protection, seed, epsilon)
        runs.append(done)
        if centers is not None:
            found.append((centers, done.inertia))
    progress("a lower bound on the inertia of any clustering")
    near = min(found, key=lambda pair: pair[1])[0]
    exact, bound = lower_bound(problem.X, problem.k, near, seconds, problem.people)
    if exact is not None:
        found.append((exact, _inertia(problem, exact)))
    centers, best = min(found, key=lambda pair: pair[1])
    progress(f"{len(protections)} active attacks")
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
        {}
        if problem.people is not None
        else {p: actively_reconstructed(rows, p, epsilon, questions) for p in protections},
        tuple(runs),
    )


def run_method(
    problem: Problem, method: str, protection: str, seed: int, epsilon: float = 1.0
) -> tuple[MethodRun, FloatArray | None]:
    """Run a method under a protection, attack its messages, and return the run and its centres.

    Raises
    ------
    InputError
        If ``method`` asks for settings as published, and the method has none.
    """
    rows = problem.sites()
    largest = max(map(len, rows.values()))
    name = method.removesuffix(PUBLISHED)
    if name == "dual" and (largest > _DUAL or problem.k > 4):
        return MethodRun(method, protection, seed, f"for up to {_DUAL} rows per site"), None
    if method.endswith(PUBLISHED) and method not in methods_and_presets():
        raise InputError(f"{name} has no published settings. Use {name} without {PUBLISHED}.")
    if protection == "dp" and method not in ("lloyd", "fuzzy"):
        return MethodRun(method, protection, seed, NO_DP), None
    with tempfile.TemporaryDirectory() as folder:
        homes = {name: Path(folder) / name for name in rows}
        if problem.people is None:
            opened, recorders = _opened(rows, protection, epsilon, homes, _module(name))
        else:
            opened, recorders = _of_groups(problem, rows), {}
        if not opened:
            return MethodRun(method, protection, seed, "no site has enough people for a summary table"), None
        try:
            algorithm = algorithm_for(problem, method, protection, epsilon)
            before = time.process_time()
            done = run(algorithm, LocalFederation(opened), seed=seed)
            spent = time.process_time() - before
        except UnpooledError as error:
            return MethodRun(method, protection, seed, str(error).splitlines()[0]), None
        finally:
            for site in opened:
                site.close()
        centers = np.asarray(done.state.centers, dtype=np.float64)
        hits, messages, examined = 0, 0, 0
        for site in opened if problem.people is None else ():  # a file discloses its groups, and no row
            read = disclosed_despite_noise if protection == "dp" else disclosed_in
            of_site = _attacked(homes[site.name], recorders.get(site.name), rows[site.name], read)
            hits, messages, examined = (
                a + b for a, b in zip((hits, messages, examined), of_site, strict=True)
            )
    found = MethodRun(
        method,
        protection,
        seed,
        "",
        _inertia(problem, centers),
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


def algorithm_for(problem: Problem, method: str, protection: str, epsilon: float) -> Any:
    """Return a method as it is compared: with its own settings, and without restarts of its own."""
    if protection == "dp":
        low, high = _declared(problem.X)
        budget = Gaussian(epsilon, 1e-6, low, high, rows=len(problem.X), accept_noise=True)
        return Private(k=problem.k, dp=budget, m=2.0 if method == "fuzzy" else None)
    minimum = 5 if protection == "raw" else 1
    if method.endswith(PUBLISHED):
        preset = METHODS[method.removesuffix(PUBLISHED)].as_published(k=problem.k)
        assert preset is not None
        return replace(preset, min_cluster_size=minimum)
    made = METHODS[method](k=problem.k, max_rounds=ROUNDS, min_cluster_size=minimum)
    return made.with_restarts(None)


def methods_and_presets() -> tuple[str, ...]:
    """Return the names of all methods, then those with the suffix of settings as published.

    >>> methods_and_presets()[-1].endswith(PUBLISHED)
    True
    """
    return (
        *METHODS,
        *(f"{m}{PUBLISHED}" for m, made in METHODS.items() if made.as_published(k=2) is not None),
    )


def _module(method: str) -> str:
    """The module of a method that is not of the package; empty for one that is."""
    name = METHODS[method].__module__
    return "" if name.startswith("unpooled.") else name


def _declared(X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Bounds that an expert would declare: about a tenth wider than the data, on each side."""
    low, high = X.min(axis=0), X.max(axis=0)
    more = np.maximum(0.1 * (high - low), 1e-9)
    return low - more, high + more


# ---------------------------------------------------------------- sites and attacks


class MessageRecorder(Recorder):
    """A record of the questions to a site without protection, and of its replies."""

    def __init__(self) -> None:
        self.messages: list[tuple[Any, Any]] = []

    def record(self, exchange: Exchange, response: Response) -> str:
        for part, reply in zip(exchange.request.parts, response.replies, strict=True):
            self.messages.append((part.question, reply))
        return ""


def policy_for(protection: str, epsilon: float, rows: int, module: str = "") -> Policy:
    """The policy of a site; ``rows`` is the number of rows of all sites, which is taken to be public."""
    rules = {
        "summary": "[protect]\none_row_per_person = true\nno_sensitive_columns = true\nauto_approve = true",
        "raw": '[protect]\nmode = "raw"',
        "dp": f'[protect]\nmode = "dp"\n[domain]\nrows = {rows}\n[dp]\nepsilon_total = {epsilon}',
    }
    installed = f'\n[jobs]\nmodules = ["{module}"]' if module else ""
    return parse(f"format = 1\n{rules[protection]}{installed}")


def _opened(
    rows: dict[str, FloatArray],
    protection: str,
    epsilon: float,
    homes: dict[str, Path] | None,
    module: str = "",
) -> tuple[list[Site], dict[str, MessageRecorder]]:
    """The sites under a protection; one with too few people for a summary table is left out.

    ``module`` is that of a method of your own, which the sites have installed.
    """
    sites: list[Site] = []
    recorders: dict[str, MessageRecorder] = {}
    for name, X in rows.items():
        if protection == "none":
            recorders[name] = MessageRecorder()
            sites.append(Site(name, X, log=recorders[name]))
            continue
        try:
            policy = policy_for(protection, epsilon, sum(map(len, rows.values())), module)
            sites.append(open_site(name, X, policy, None if homes is None else homes[name]))
        except TooFewPeopleError:
            continue
    return sites, recorders


def _of_groups(problem: Problem, rows: dict[str, FloatArray]) -> list[Site]:
    """The sites of summary files: they answer from groups of people."""
    assert problem.people is not None
    assert problem.site is not None
    assert problem.within is not None
    return [
        Site(name, X, problem.people[problem.site == name], grouped=True, within=problem.within[name])
        for name, X in rows.items()
    ]


def _attacked(
    home: Path, recorder: MessageRecorder | None, X: FloatArray, read: Reading = disclosed_in
) -> tuple[int, int, int]:
    """Rows that follow from all that a site sent, messages, and messages that the attack reads.

    A row that an unprotected site sent as a centre of its own counts too; a protected site sends no centre of
    few rows.
    """
    sent = recorder.messages if recorder is not None else list(_sent(home / "log.jsonl"))
    disclosed = [list(read(question, reply)) for question, reply in sent]
    if recorder is None:
        return on_log(home / "log.jsonl", read).hits(X), len(sent), sum(map(bool, disclosed))
    found = attack([Space(X.shape[1], disclosed=[one for some in disclosed for one in some])])
    centres = [c for question, reply in sent if (c := centres_in(question, reply)).size]
    either = replace(found, single=np.concatenate([found.single.reshape(-1, X.shape[1]), *centres]))
    return either.hits(X), len(sent), sum(map(bool, disclosed))


def _sent(path: Path) -> Iterator[tuple[Any, Any]]:
    """The questions of a log with the replies that left the site."""
    for _, entry in entries(path):
        if entry is None or entry.get("kind") != "release":
            continue
        replies = codec.decode(unpacked(entry["payload"])).replies
        for asked, reply in zip(entry["asked"], replies, strict=True):
            yield codec.decode(unpacked(asked["payload"])), reply


def actively_reconstructed(
    rows: dict[str, FloatArray], protection: str, epsilon: float = 1.0, questions: int = 200
) -> int:
    """Return how many rows an active attacker reconstructs, with queries that isolate rows of every site."""
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


def _inertia(problem: Problem, centers: FloatArray) -> float:
    """The inertia of all rows, or of all groups, in which each counts with its people."""
    sqdist = kernels.nearest(problem.X, centers).sqdist
    return float(sqdist.sum() if problem.people is None else problem.people @ sqdist)


def _ceiling(
    problem: Problem, rows: dict[str, FloatArray], protection: str, best: float, runs: Sequence[MethodRun]
) -> float:
    """The lowest inertia that is known to be reached under a protection; nan for differential privacy.

    From rows it is the lowest known. From summary tables it is that of pooled k-means of all of them, or of a
    run.
    """
    if protection == "dp":
        return float("nan")
    if protection != SUMMARY or problem.people is not None:
        return best
    reached = [r.inertia for r in runs if r.protection == "summary" and not r.not_run]
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
            reached.append(_inertia(problem, _kmeans(groups, problem.k, people)))
    return min(reached, default=float("nan"))
