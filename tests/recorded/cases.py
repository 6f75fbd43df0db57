"""The recorded cases by name, each a function that returns plain JSON.

Families, by the first word of a name: method, preset, setting, restarts, scaled, runtime, policy, secure,
resume, private, estimator, fuzzy, dual, files, reproduce.
"""

import contextlib
import json
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tests.recorded import adapter as a
from tests.recorded import data, describing
from tests.recorded.describing import array, number, of_folder, of_log, of_model, of_result, of_run, text
from threadpoolctl import threadpool_limits

CASES: dict[str, Callable[[], dict[str, Any]]] = {}
KEPT = Path(__file__).parent / "kept"
"""Files that the recorded release wrote, which later ones must go on to read."""

K = 3
SEED = 4


def case(name: str) -> Callable[[Callable[[], dict[str, Any]]], Callable[[], dict[str, Any]]]:
    """Enter a function under a name."""

    def enter(function: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
        assert name not in CASES, name
        CASES[name] = function
        return function

    return enter


def perform(name: str) -> dict[str, Any]:
    """The results of a case, as they come back from JSON; one thread, so that sums have one order."""
    with threadpool_limits(1):
        found: dict[str, Any] = json.loads(json.dumps(CASES[name](), allow_nan=False))
    return found


# ---------------------------------------------------------------- what the cases share


def ran(algorithm: Any, rows: Any, weights: Any = None, seed: int = SEED, **settings: Any) -> dict[str, Any]:
    """A run in this process, described."""
    return of_run(a.run(algorithm, sites_of(rows, weights, **settings), seed=seed, name="recorded"))


def sites_of(rows: Any, weights: Any = None, fused: bool = True, secure: Any = None, **settings: Any) -> Any:
    """A federation in this process: fused, or of sites that are asked one by one."""
    if fused and secure is None:
        return a.Simulation.from_rows(rows, weights, n_threads=1, **settings)
    return a.LocalFederation.from_rows(rows, weights, secure=secure, **settings)


def add(name: str, function: Callable[..., dict[str, Any]], *given: Any, **named: Any) -> None:
    """Enter a case that calls ``function`` with what is given."""
    case(name)(lambda: function(*given, **named))


@contextlib.contextmanager
def heard() -> Iterator[list[str]]:
    """The texts of the warnings within."""
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield messages
    messages += [str(warning.message) for warning in caught]


@contextlib.contextmanager
def in_folder() -> Iterator[Path]:
    """A folder of our own, and the current one: what is printed and kept then has no path."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        yield Path(".")


# ---------------------------------------------------------------- every method, with its defaults

RANGE = np.array([[-60.0, -60.0], [60.0, 60.0]])
PROOF = a.Dual(k=K, box=RANGE, n_starts=2, nodes=300, max_rounds=5)

for _name, _method in a.METHODS.items():
    if _name == "dual":
        add("method/dual/even", ran, PROOF, data.EVEN)
        continue
    add(f"method/{_name}/even", ran, _method(k=K), data.EVEN)
    add(f"method/{_name}/skewed", ran, _method(k=K), data.SKEWED)
add("method/dual/small", lambda: ran(a.Dual(k=K), a.dual_problem("2N2D3K1")))

# ---------------------------------------------------------------- every preset

PRESETS: dict[str, tuple[Any, Any]] = {
    "dwf/as_published": (lambda: replace(a.DWF.as_published(k=K), max_rounds=200), data.SKEWED),
    "dwf/as_published/to the end": (lambda: a.DWF.as_published(k=K), data.EVEN),
    "dwf/as_published/half": (
        lambda: replace(a.DWF.as_published(k=K, participation=0.5), max_rounds=40),
        data.EVEN,
    ),
    "ewf/as_published": (lambda: replace(a.EWF.as_published(k=K), max_rounds=200), data.SKEWED),
    "fkm/as_published": (lambda: a.FKM.as_published(k=K, rounds=10), data.SKEWED),
    "fkm/as_published/p 5": (lambda: a.FKM.as_published(k=K, p=5, rounds=5), data.EVEN),
    "k-fed/as_published": (lambda: a.KFed.as_published(k=K, k_local=2), data.SKEWED),
    "k-fed/as_published/even": (lambda: a.KFed.as_published(k=K), data.EVEN),
    "k-fed/as_published_code": (lambda: a.KFed.as_published_code(k=K, k_local=2), data.SKEWED),
    "k-fed/as_published_by_holzer": (lambda: a.KFed.as_published_by_holzer(k=K), data.SKEWED),
    "k-fed/as_published_by_holzer/1": (lambda: a.KFed.as_published_by_holzer(k=K, restarts=1), data.SKEWED),
    "mini-batch/as_published": (lambda: a.MiniBatch.as_published(k=K, rounds=60), data.LINE),
    "mini-batch/as_published/epochs": (
        lambda: a.MiniBatch.as_published(
            k=K, participation=0.5, epochs=3, batch=4, client_rate=0.3, rounds=40
        ),
        data.LINE,
    ),
    "fuzzy/as_published": (lambda: a.Fuzzy.as_published(k=K, rounds=12), data.EVEN),
    "fuzzy/as_published/avg2": (lambda: a.Fuzzy.as_published(k=K, merge="avg2", rounds=12), data.EVEN),
    "fuzzy/as_published/m 1.5": (lambda: a.Fuzzy.as_published(k=K, m=1.5, rounds=8), data.SKEWED),
}
for _name, (_method, _rows) in PRESETS.items():
    add(f"preset/{_name}", lambda method=_method, rows=_rows: ran(method(), rows))
for _update in ("sg", "btm", "qnda", "bundle"):
    add(
        f"preset/dual/as_published/{_update}",
        lambda update=_update: ran(
            replace(a.Dual.as_published(k=K, update=update), max_rounds=12), a.dual_problem("3N2D3K1")
        ),
    )

# ---------------------------------------------------------------- other settings

SETTINGS: dict[str, Any] = {
    "half of the sites": {"participation": 0.5},
    "two sites a round": {"participation": 2},
    "k-fed start": {"init": "k-fed"},
    "random start": {"init": "random"},
    "given centres": {"init": data.GIVEN},
    "clusters from 5": {"min_cluster_size": 5},
}
_BATCHES = a.MiniBatch(
    k=K, batch=4, epochs=2, client_rate=0.7, momentum=0.5, learning_rate=0.8, max_rounds=10
)
SMALL: dict[str, Any] = {
    "lloyd": a.Lloyd(k=K, n_starts=3),
    "dwf": a.DWF(k=K, learning_rate=0.5, momentum=0.4, local_steps=3, max_rounds=12),
    "fkm": a.FKM(k=K, max_rounds=8),
    "mini-batch": _BATCHES,
    "fuzzy": a.Fuzzy(k=K, n_starts=2, max_rounds=15),
}


def suppressing(algorithm: Any, rows: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """A run with settings that sites share where they suppress small clusters."""
    minimum = settings.get("min_cluster_size", 1)
    return ran(replace(algorithm, **settings), rows, min_cluster_size=minimum)


for _name, _method in SMALL.items():
    for _label, _settings in SETTINGS.items():
        if _name == "fkm" and "init" in _settings:
            continue  # it has a start of its own
        add(f"setting/{_name}/{_label}", suppressing, _method, data.EVEN, _settings)
add("setting/k-fed/half of the sites", suppressing, a.KFed(k=K), data.EVEN, {"participation": 0.5})
add("setting/k-fed/clusters from 5", suppressing, a.KFed(k=K), data.SKEWED, {"min_cluster_size": 5})
add("setting/robust/given centres", suppressing, a.Robust(k=K, n_starts=4), data.EVEN, {"init": data.GIVEN})
for _name in ("lloyd", "dwf", "ewf", "fkm", "mini-batch", "fuzzy", "robust"):
    add(f"setting/{_name}/rows without clusters", ran, a.METHODS[_name](k=7, max_rounds=60), data.LARGE)
add("setting/lloyd/one start", ran, a.Lloyd(k=K, n_starts=1), data.SKEWED)
add("setting/lloyd/single precision", ran, a.Lloyd(k=K), data.SINGLE)
add("setting/dwf/single precision", ran, SMALL["dwf"], data.SINGLE)
add("setting/fuzzy/single precision", ran, SMALL["fuzzy"], data.SINGLE)
add("setting/lloyd/five columns", ran, a.Lloyd(k=6), data.WIDE)
add("setting/dwf/weights by rows", ran, a.DWF(k=K, weights="rows", init="random", max_rounds=12), data.SKEWED)
for _name in ("lloyd", "dwf", "ewf", "k-fed", "mini-batch", "fuzzy", "robust"):
    add(f"setting/{_name}/tiny sites", ran, a.METHODS[_name](k=K), data.TINY)
for _name in ("lloyd", "dwf", "fkm", "k-fed", "mini-batch", "fuzzy"):
    _method = SMALL.get(_name, a.KFed(k=K))
    add(f"setting/{_name}/weights", ran, _method, data.EVEN, data.weights_of(data.EVEN))

# ---------------------------------------------------------------- restarts and scaling

RESTARTED: dict[str, Any] = {
    "dwf": SMALL["dwf"],
    "ewf": a.EWF(k=K, local_steps=2, max_rounds=12),
    "fkm": SMALL["fkm"],
    "k-fed": a.KFed(k=K),
    "k-fed by holzer": a.KFed.as_published_by_holzer(k=K, restarts=1),
    "mini-batch": _BATCHES,
    "fuzzy avg2": a.Fuzzy(k=K, merge="avg2", max_rounds=8),
    "lloyd": a.Lloyd(k=K, n_starts=1),
    "lloyd, random": a.Lloyd(k=K, n_starts=1, init="random"),
}
for _name, _method in RESTARTED.items():
    add(f"restarts/{_name}", ran, a.Restarts(_method, 3), data.SKEWED)
add("scaled/lloyd", lambda: ran(a.Scaled(a.Lloyd(k=4, n_starts=3)), data.WIDE))
add("scaled/k-fed", lambda: ran(a.Scaled(a.KFed(k=4)), data.WIDE))
add("scaled/fuzzy", lambda: ran(a.Scaled(a.Fuzzy(k=4, m=1.4, n_starts=3)), data.WIDE))
add("scaled/mini-batch", lambda: ran(a.Scaled(replace(_BATCHES, k=4)), data.WIDE))
add("scaled/best of ewf", lambda: ran(a.Scaled(a.Restarts(a.EWF(k=4, max_rounds=8), 2)), data.WIDE))
add(
    "scaled/lloyd, given centres",
    lambda: ran(a.Scaled(a.Lloyd(k=3, init=np.concatenate(list(data.WIDE.values()))[:3])), data.WIDE),
)

# ---------------------------------------------------------------- runtimes


def over_bytes(algorithm: Any, rows: Any, lost: Any = None) -> dict[str, Any]:
    """A run whose requests go as bytes to sites and back."""
    transport = a.Loopback(
        {name: a.Site(name, X) for name, X in rows.items()}, lost or (lambda n, site: False)
    )
    done = a.run(algorithm, a.Posting(transport), seed=SEED, name="recorded")
    return {**of_run(done), "carried": [transport.exchanges, transport.down, transport.up]}


for _name, _method in SMALL.items():
    add(f"runtime/bytes/{_name}", over_bytes, _method, data.SKEWED)
add("runtime/bytes/k-fed", over_bytes, a.KFed(k=K), data.SKEWED)
add("runtime/bytes/robust", over_bytes, a.Robust(k=K, n_starts=4), data.EVEN)
add("runtime/bytes/dual", over_bytes, PROOF, data.EVEN)
add("runtime/bytes/best of fkm", over_bytes, a.Restarts(SMALL["fkm"], 2), data.EVEN)
add("runtime/bytes/scaled", lambda: over_bytes(a.Scaled(a.Lloyd(k=4, n_starts=2)), data.WIDE))
for _name in ("lloyd", "dwf", "robust"):
    add(
        f"runtime/a site is late/{_name}",
        over_bytes,
        a.METHODS[_name](k=K),
        data.EVEN,
        lambda exchange, site: site == "site-2" and exchange > 2,
    )
add("runtime/not fused/lloyd", ran, a.Lloyd(k=K), data.SKEWED, fused=False)
add("runtime/not fused/mini-batch", ran, _BATCHES, data.EVEN, fused=False)


@case("runtime/another seed")
def another_seed() -> dict[str, Any]:
    return ran(a.Lloyd(k=K), data.SKEWED, seed=123456789)


@case("runtime/stopped after two rounds")
def stopped() -> dict[str, Any]:
    federation = a.Simulation.from_rows(data.SKEWED, n_threads=1)
    return of_run(a.run(a.Lloyd(k=K), federation, seed=SEED, max_rounds=2, name="recorded"))


# ---------------------------------------------------------------- sites with a policy, a ledger and a log


def at_real_sites(algorithm: Any, rows: Any, rules: str, carried: bool = False) -> dict[str, Any]:
    """A run over sites with a policy, and their logs; or the error."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        policy = a.policy(f"format = 1\n{rules}")
        sites = {name: a.open_site(name, X, policy, folder=home / name) for name, X in rows.items()}
        federation: Any = a.LocalFederation(list(sites.values()))
        if carried:
            federation = a.Posting(a.Loopback(sites))
        found: dict[str, Any] = {}
        try:
            found["run"] = of_run(a.run(algorithm, federation, seed=SEED, name="recorded"))
        except Exception as error:
            found["error"] = f"{type(error).__name__}: {error}"
        for site in sites.values():
            site.close()
        found["logs"] = {name: of_log(home / name / "log.jsonl") for name in list(sites)[:3]}
        logged = home / next(iter(sites))
        found["verified"] = a.command("site", "log", "--verify", logged).replace(str(logged), "")
        found["attacked"] = a.command("site", "log", "--attack", logged)
        return found


GUARDED: dict[str, Any] = {
    "lloyd": a.Lloyd(k=K, n_starts=2, min_cluster_size=5),
    "dwf": a.DWF(k=K, min_cluster_size=5, max_rounds=6),
    "fkm": a.FKM(k=K, min_cluster_size=5, max_rounds=4),
    "k-fed": a.KFed(k=K, min_cluster_size=5),
    "mini-batch": replace(_BATCHES, min_cluster_size=5, max_rounds=4),
    "fuzzy": a.Fuzzy(k=K, n_starts=2, max_rounds=5, min_cluster_size=5),
    "robust": a.Robust(k=K, n_starts=2, min_cluster_size=5, max_rounds=6),
}
_RAW, _SUMMARY = '[protect]\nmode = "raw"\n', "[protect]\nauto_approve = true\n"
for _name, _method in GUARDED.items():
    add(f"policy/raw/{_name}", at_real_sites, _method, data.EVEN, _RAW)
    add(f"policy/summary/{_name}", at_real_sites, replace(_method, min_cluster_size=1), data.EVEN, _SUMMARY)
add("policy/three rounds", at_real_sites, GUARDED["lloyd"], data.EVEN, f"{_RAW}[jobs]\nmax_rounds = 3")
_LLOYD_ONLY = f'{_RAW}[jobs]\nalgorithms = ["lloyd"]\ndescribe = false'
add("policy/another method only", at_real_sites, GUARDED["dwf"], data.EVEN, _LLOYD_ONLY)
add("policy/over bytes", at_real_sites, GUARDED["lloyd"], data.EVEN, _RAW, carried=True)
add(
    "policy/scaled",
    lambda: at_real_sites(a.Scaled(a.Lloyd(k=4, n_starts=2, min_cluster_size=5)), data.WIDE, _RAW),
)
add("policy/summary/scaled", lambda: at_real_sites(a.Scaled(a.Lloyd(k=4, n_starts=2)), data.WIDE, _SUMMARY))


@case("policy/dp")
def with_dp() -> dict[str, Any]:
    bounds = "lower = [-1, -1, -1, -1]\nupper = [1, 1, 1, 1]\nrows = 9999\n"
    lines = f'[domain]\ncolumns = ["a", "b", "c", "d"]\n{bounds}'
    with a.fixed_noise(1):
        algorithm = a.Private(k=K, dp=a.Gaussian(1.0))
        return at_real_sites(
            algorithm, data.bounded(), f'[protect]\nmode = "dp"\n{lines}[dp]\nepsilon_total = 1.0'
        )


# ---------------------------------------------------------------- secure sums


def secured(algorithm: Any, rows: Any, minimum: int = 1) -> dict[str, Any]:
    return ran(algorithm, rows, secure=a.SecureSums(), min_cluster_size=minimum)


SUMMED: dict[str, Any] = {
    "lloyd": a.Lloyd(k=K, n_starts=3),
    "dwf": a.DWF(k=K, max_rounds=6),
    "ewf": a.EWF(k=K, local_steps=2, max_rounds=5),
    "mini-batch": replace(_BATCHES, max_rounds=5),
    "fuzzy": a.Fuzzy(k=K, n_starts=2, max_rounds=6),
    "best of dwf": a.Restarts(a.DWF(k=K, max_rounds=4), 2),
}
for _name, _method in SUMMED.items():
    add(f"secure/{_name}", secured, _method, data.EVEN)
add("secure/lloyd, clusters from 5", secured, SUMMED["lloyd"], data.SKEWED, minimum=5)
add("secure/scaled", lambda: secured(a.Scaled(a.Lloyd(k=4, n_starts=2)), data.WIDE))


@case("secure/a site is late")
def secure_late() -> dict[str, Any]:
    masks = a.site_masks(tuple(data.WIDE), min_sites=3, required=True)
    sites = {name: a.Site(name, X, mask=masks[name]) for name, X in data.WIDE.items()}
    transport = a.Loopback(sites, lambda exchange, site: site == "site-3" and exchange > 9)
    federation = a.Posting(transport, secure=a.SecureSums())
    done = a.run(a.Lloyd(k=4, n_starts=2), federation, seed=SEED, name="recorded")
    return {**of_run(done), "carried": [transport.exchanges, transport.down, transport.up]}


# ---------------------------------------------------------------- stopped and gone on with

RESUMED: dict[str, Any] = {
    **SMALL,
    "lloyd": a.Lloyd(k=K, init=data.GIVEN, tol=0.0),
    "robust": a.Robust(k=K, n_starts=4),
    "best of dwf": a.Restarts(SMALL["dwf"], 2),
    "dual": PROOF,
}


def resumed(algorithm: Any, rows: Any) -> dict[str, Any]:
    """A run that goes on from its checkpoint after two rounds, beside one that was never stopped."""

    def federation() -> Any:
        return a.Simulation.from_rows(rows, n_threads=1)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        a.run(algorithm, federation(), seed=SEED, name="recorded", checkpoint=path, max_rounds=2)
        size = path.stat().st_size
        again = of_run(a.run(algorithm, federation(), seed=SEED, checkpoint=path))
    whole = of_run(a.run(algorithm, federation(), seed=SEED, name="recorded"))
    return {"run": again, "as if it never had stopped": again == whole, "checkpoint bytes": size}


for _name, _method in RESUMED.items():
    add(f"resume/{_name}", resumed, _method, data.EVEN)
add("resume/scaled", lambda: resumed(a.Scaled(a.Lloyd(k=4, n_starts=3)), data.WIDE))

KEEPING: dict[str, tuple[Any, Any]] = {
    "lloyd": (a.Lloyd(k=K, init=data.GIVEN, tol=0.0), data.SKEWED),
    "dwf": (SMALL["dwf"], data.EVEN),
    "fuzzy": (SMALL["fuzzy"], data.EVEN),
    "best-of-mini-batch": (a.Restarts(_BATCHES, 2), data.EVEN),
    "scaled-lloyd": (a.Scaled(a.Lloyd(k=4, n_starts=3)), data.WIDE),
}
"""Runs whose checkpoint after two rounds lies in ``kept``."""


def keep() -> None:
    """Write the checkpoints of ``KEEPING`` anew."""
    KEPT.mkdir(exist_ok=True)
    for name, (algorithm, rows) in KEEPING.items():
        path = KEPT / f"{name}.checkpoint"
        path.unlink(missing_ok=True)
        federation = a.Simulation.from_rows(rows, n_threads=1)
        a.run(algorithm, federation, seed=SEED, name="recorded", checkpoint=path, max_rounds=2)


def kept(name: str) -> dict[str, Any]:
    """A run that goes on from a checkpoint of the recorded release, or says which release wrote it."""
    algorithm, rows = KEEPING[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        path.write_bytes((KEPT / f"{name}.checkpoint").read_bytes())
        try:
            return of_run(
                a.run(algorithm, a.Simulation.from_rows(rows, n_threads=1), seed=SEED, checkpoint=path)
            )
        except a.CheckpointError as error:
            return {"refused": str(error).partition(": ")[2]}


for _name in KEEPING:
    add(f"resume/kept checkpoint/{_name}", kept, _name)


# ---------------------------------------------------------------- with differential privacy, the noise fixed


def private(rows: Any, secure: Any = None, k: int = K, **settings: Any) -> dict[str, Any]:
    """A private run under noise that is drawn again, with what it released."""
    with a.fixed_noise(2):
        algorithm = a.Private(k=k, **{"dp": a.Gaussian(1.0), **settings})
        federation = sites_of(rows, secure=secure)
        done = a.run(algorithm, federation, seed=SEED, name="recorded")
    return {
        **of_run(done),
        "epsilon": number(algorithm.epsilon(done.state)),
        "releases": len(done.state.releases),
        "asked": [type(release.question).__name__ for release in done.state.releases],
    }


add("private/one site", private, data.bounded(parts=1))
add("private/two sites", private, data.bounded())
add("private/standard", private, data.bounded(), scale="standard")
add("private/bounds", private, data.bounded(), scale="bounds", dp=a.Gaussian(2.0, lower=-1.5, upper=1.2))
add("private/fuzzy", private, data.bounded(), m=2.0)
add("private/secure", lambda: private(data.bounded(parts=3), secure=a.SecureSums()))


@case("private/true noise")
def true_noise() -> dict[str, Any]:
    """Of noise from the system's entropy only what does not depend on it."""
    algorithm = a.Private(k=K, dp=a.Gaussian(1.0))
    done = a.run(algorithm, a.Simulation.from_rows(data.bounded(), n_threads=1), seed=SEED, name="recorded")
    return {
        "shape": list(done.state.centers.shape),
        "finished": done.finished,
        "exchanges are releases": done.exchanges == len(done.state.releases),
        "sent first": {site: list(pair) for site, pair in done.history[0].sent.items()},
        "epsilon": round(algorithm.epsilon(done.state), 6),
    }


@case("private/estimator")
def private_estimator() -> dict[str, Any]:
    rows = data.bounded()
    X = np.concatenate(list(rows.values()))
    with a.fixed_noise(3), heard() as messages:
        dp = a.Gaussian(1.0, lower=-1, upper=1)
        model = a.FederatedKMeans(K, dp=dp, random_state=0, n_threads=1).fit(rows)
    return {**of_model(model, X[:50], messages), "noisy sizes": array(model.cluster_sizes_)}


@case("private/fuzzy estimator")
def private_fuzzy_estimator() -> dict[str, Any]:
    rows = data.bounded()
    X = np.concatenate(list(rows.values()))
    with a.fixed_noise(4), heard() as messages:
        dp = a.Gaussian(1.0, lower=-1, upper=1)
        model = a.FederatedFuzzyCMeans(K, m=1.5, dp=dp, random_state=0, n_threads=1).fit(rows)
    return of_model(model, X[:50], messages)


# ---------------------------------------------------------------- estimators


def fitted(model: Any, rows: Any = data.WIDE, weights: Any = None) -> dict[str, Any]:
    X = np.concatenate(list(rows.values()))
    with heard() as messages:
        model.set_params(n_threads=1, random_state=SEED).fit(rows, sample_weight=weights)
    return of_model(model, X[::3], messages)


for _name in a.METHODS:
    if _name not in ("fuzzy", "dual"):
        add(f"estimator/{_name}", lambda m=_name: fitted(a.FederatedKMeans(4, method=m, n_init=3)))
        add(
            f"estimator/{_name}/scaled",
            lambda m=_name: fitted(a.FederatedKMeans(4, method=m, n_init=1, scale="standard")),
        )
add(
    "estimator/dual",
    lambda: fitted(a.FederatedKMeans(3, method="dual", n_init=2), a.dual_problem("2N2D3K1")),
)
ESTIMATORS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "clusters from 5": {"protect": "raw", "min_cluster_size": 5},
    "summary tables": {"protect": "summary"},
    "summary tables, scaled": {"protect": "summary", "scale": "standard"},
    "given centres": {"init": np.concatenate(list(data.WIDE.values()))[:4], "scale": "standard"},
    "half of the sites": {"participation": 0.5, "n_init": 2, "max_rounds": 20},
    "an algorithm": {"method": a.DWF(momentum=0.3, local_steps=2), "n_init": 2, "max_rounds": 30},
    "secure": {"secure": True, "n_init": 2, "scale": "standard"},
}
for _name, _settings in ESTIMATORS.items():
    add(f"estimator/{_name}", lambda s=_settings: fitted(a.FederatedKMeans(4, **s)))


@case("estimator/labels of sites")
def labels_of_sites() -> dict[str, Any]:
    X = np.concatenate(list(data.EVEN.values()))
    with heard() as messages:
        model = a.FederatedKMeans(K, random_state=0, n_threads=1)
        model.fit(X, sites=[f"s{i % 3}" for i in range(len(X))], sample_weight=1.0 + np.arange(len(X)) % 4)
    return of_model(model, X, messages)


@case("estimator/a federation")
def federation_estimator() -> dict[str, Any]:
    sites = {name: a.Site(name, X) for name, X in data.EVEN.items()}
    model = a.FederatedKMeans(K, random_state=0).fit_federation(a.Posting(a.Loopback(sites)))
    return of_model(model, np.concatenate(list(data.EVEN.values())), [])


class StoppedError(Exception):
    """What stops a fit in the middle."""


@case("estimator/stopped and gone on with")
def stopped_estimator() -> dict[str, Any]:
    def stop(record: Any) -> None:
        if record.round == 2:
            raise StoppedError

    with tempfile.TemporaryDirectory() as folder:
        settings = {"random_state": 1, "n_threads": 1, "checkpoint": Path(folder) / "run", "method": "dwf"}
        model = a.FederatedKMeans(4, n_init=2, progress=stop, **settings)
        with contextlib.suppress(StoppedError):
            model.fit(data.WIDE)
        again = a.FederatedKMeans(4, n_init=2, **settings).fit(data.WIDE)
    return of_model(again, data.WIDE["site-0"], [])


# ---------------------------------------------------------------- fuzzy

FUZZY: dict[str, dict[str, Any]] = {
    "avg1": {},
    "avg1, sum(u)": {"weights": "sum(u)", "local_steps": 3},
    "avg1, converge": {"local_steps": "converge", "n_init": 2, "max_rounds": 8},
    "avg1, converge, sum(u)": {"local_steps": "converge", "weights": "sum(u)", "n_init": 2, "max_rounds": 8},
    "avg2": {"merge": "avg2", "n_init": 2, "max_rounds": 10},
    "avg2, converge": {"merge": "avg2", "local_steps": "converge", "n_init": 1, "max_rounds": 8},
    "m 1.2": {"m": 1.2, "n_init": 2},
    "m 2.6, random": {"m": 2.6, "init": "random", "n_init": 2},
    "unit start": {"init": "unit", "n_init": 2, "max_rounds": 20},
    "k-fed start, scaled": {"init": "k-fed", "scale": "standard", "m": 1.4, "n_init": 2},
    "given centres": {"init": data.GIVEN},
    "clusters from 5": {"protect": "raw", "min_cluster_size": 5, "n_init": 2},
    "summary tables": {"protect": "summary", "n_init": 2},
    "secure": {"secure": True, "n_init": 2, "max_rounds": 10},
}
for _name, _settings in FUZZY.items():
    add(
        f"fuzzy/{_name}",
        lambda s=_settings: fitted(a.FederatedFuzzyCMeans(K, **s), data.EVEN),
    )
add(
    "fuzzy/weights",
    lambda: fitted(a.FederatedFuzzyCMeans(K, n_init=2), data.SKEWED, data.weights_of(data.SKEWED)),
)
add("fuzzy/coinciding", lambda: fitted(a.FederatedFuzzyCMeans(6, m=3.5, n_init=1, max_rounds=30)))

# ---------------------------------------------------------------- dual, certify, exact

DUAL: dict[str, dict[str, Any]] = {
    "sg, star, pair": {"update": "sg", "topology": "star", "symmetry": "pair"},
    "btm": {"update": "btm", "cuts": 3},
    "qnda": {"update": "qnda"},
    "first site's references, mean": {"references": "first", "primal": "mean", "update": "qnda"},
    "published symmetry": {"symmetry": "published"},
}
for _name, _settings in DUAL.items():
    add(
        f"dual/{_name}",
        lambda s=_settings: ran(a.Dual(k=K, n_starts=2, max_rounds=8, **s), a.dual_problem("2N2D3K2")),
    )
add("dual/a public range", ran, PROOF, data.SKEWED)


def certified(name: str, k: int, box: Any = None) -> dict[str, Any]:
    rows = a.dual_problem(name)
    centers = a.run(a.Lloyd(k=k), a.Simulation.from_rows(rows, n_threads=1), seed=0).state.centers
    proof = a.certify(a.Simulation.from_rows(rows, n_threads=1), centers, box=box)
    names = ("inertia", "lower_bound", "gap", "condition", "proved", "boxes")
    return {name: describing.plain(getattr(proof, name)) for name in names}


add("dual/certify 2N2D3K1", certified, "2N2D3K1", 3)
add("dual/certify 3N2D3K1", certified, "3N2D3K1", 3, box=[[-2, -2], [2, 2]])


@case("dual/exact_kmeans")
def exact() -> dict[str, Any]:
    found = {}
    for name, k in (("2N2D3K1", 3), ("3N3D3K1", 3), ("2N2D4K2", 4)):
        result = a.exact_kmeans(np.concatenate(list(a.dual_problem(name).values())), k)
        found[name] = {
            "centers": array(result.centers),
            "labels": result.labels.tolist(),
            "inertia": number(result.inertia),
            "lower_bound": number(result.lower_bound),
            "proved": result.proved,
        }
    return found


# ---------------------------------------------------------------- files, by the command line


def from_files(*words: Any, k: Any = 4, report: bool = False) -> dict[str, Any]:
    """``unpooled fit`` on three files into a folder, and what it printed."""
    with in_folder() as folder:
        names = data.write_clinics(folder)
        more = ("--report", "r.html") if report else ()
        out = a.command("fit", *names, "-k", k, "--out", "run", "--threads", 1, *more, *words)
        found = {"printed": text(out), **of_folder(folder / "run")}
        if report:
            found["report"] = text((folder / "r.html").read_bytes())
        return found


def json_of(*words: Any) -> dict[str, Any]:
    with in_folder() as folder:
        names = data.write_clinics(folder)
        return of_result(json.loads(a.command("fit", *names, "--json", "--threads", 1, *words)))


add("files/fit -k 4", from_files, report=True)
add("files/fit -k 2..6", from_files, k="2..6")
add("files/fit -k 3,5", from_files, k="3,5")
add("files/fit, raw", from_files, "--protect", "raw")
add("files/fit, summary tables", from_files, "--protect", "summary", k="3,4")
add("files/fit, secure", from_files, "--secure", "--restarts", 2)
add("files/fit, dropped", from_files, "--missing", "drop", "--seed", 3, "--exclude", "z")
add(
    "files/fit, min-max",
    from_files,
    *("--scale", "min-max", "--bounds", "x=-50:50", "--bounds", "y=-500:500", "--bounds", "z=-5000:5000"),
)
add("files/fit, own units", from_files, "--scale", "none", "--restarts", 3)
for _name in a.METHODS:
    if _name != "dual":
        add(f"files/fit --method {_name}", json_of, "-k", "3,4", "--method", _name, "--restarts", 2)


@case("files/fit --method dual")
def files_dual() -> dict[str, Any]:
    with in_folder():
        names = write_nodes("2N2D3K1")
        words = ("-k", 3, "--method", "dual", "--scale", "none", "--restarts", 2)
        return of_result(json.loads(a.command("fit", *names, "--json", "--threads", 1, *words)))


@case("files/other formats")
def files_formats() -> dict[str, Any]:
    with in_folder():
        for name, rows in data.WIDE.items():
            np.save(f"{name}.npy", rows)
        np.savez("more.npz", X=data.WIDE["site-0"] + 0.5)
        names = [f"{name}.npy" for name in data.WIDE]
        out = a.command("fit", *names, "-k", "2..4", "--json", "--threads", 1)
        return of_result(json.loads(out))


def write_nodes(problem: str) -> list[str]:
    """The rows of a dual problem as files in this folder."""
    names = []
    for name, rows in a.dual_problem(problem).items():
        names.append(f"{name}.csv")
        np.savetxt(names[-1], rows, delimiter=",", header="a,b", comments="", fmt="%.17g")
    return names


@case("files/certify")
def files_certify() -> dict[str, Any]:
    with in_folder():
        names = write_nodes("2N2D3K1")
        a.command("fit", *names, "-k", 3, "--out", "run", "--threads", 1)
        proof: dict[str, Any] = json.loads(a.command("certify", "run", "--json"))
        proof.pop("seconds")
        return proof


@case("files/heart")
def files_heart() -> dict[str, Any]:
    """The example from its table to what is made of the run: predict, report, export, resume."""
    with in_folder() as folder:
        a.command("example", "heart", "-o", "heart.csv")
        words = ("--site-column", "site", "--exclude", "num", "--categorical", "cp,restecg,slope,thal")
        found: dict[str, Any] = {"table": text(Path("heart.csv").read_bytes())}
        out = a.command(
            "fit", "heart.csv", "-k", "2..4", *words, "--na", "chol=0", "--out", "run", "--threads", 1
        )
        found |= {"printed": text(out), **of_folder(folder / "run")}
        found["predict"] = a.command("predict", "run", "heart.csv", "-o", "labels.csv")
        found["labels.csv"] = text(Path("labels.csv").read_bytes())
        for to in ("json", "sklearn", "onnx"):
            found[f"export {to}"] = a.command("export", "run", "--to", to, "-o", f"model.{to}")
            found[f"model.{to}"] = text(Path(f"model.{to}").read_bytes())
        before = Path("run/report.html").read_bytes()
        a.command("export", "--to", "html", "run", "-o", "again.html")
        a.command("resume", "run", "--threads", 1)
        found["made again"] = [
            before == Path(path).read_bytes() for path in ("again.html", "run/report.html")
        ]
        return found


def files_private(*words: Any) -> dict[str, Any]:
    with in_folder() as folder, a.fixed_noise(5):
        names = data.write_private(folder)
        bounds = ("--bounds", "age=0:110", "--bounds", "bmi=10:80")
        out = a.command(
            "fit", *names, "-k", 3, "--epsilon", 1, *bounds, "--out", "run", "--threads", 1, *words
        )
        found = {"printed": text(out), **of_folder(folder / "run")}
        found["predict"] = a.command("predict", "run", "a.csv", "-o", "labels.csv")
        found["labels.csv"] = text(Path("labels.csv").read_bytes())
        return found


add("files/private", files_private)
add("files/private, fuzzy", files_private, "--method", "fuzzy", "--scale", "min-max")


@case("files/policy")
def files_policy() -> dict[str, Any]:
    with in_folder():
        a.command("site", "init", "policy.toml", "--name", "north")
        return {
            "template": text(Path("policy.toml").read_bytes()),
            "checked": a.command("site", "policy", "--check", "policy.toml"),
            "explained": text(a.command("site", "policy", "policy.toml")),
        }


@case("files/guide")
def files_guide() -> dict[str, Any]:
    return {"methods": text(a.command("methods")), "listed": text(a.reproduce("--list"))}


# ---------------------------------------------------------------- small reproductions

_TIMES = ("seconds", "CPU s")


def reproduced(
    name: str, selected: Callable[[dict[str, Any]], bool], count: int = 3, folder: Path | None = None
) -> dict[str, Any]:
    """The first runs of the first configurations of an experiment that are selected."""
    made, sources = a.experiment(name), a.Sources(folder)
    settings = [s for s in made.configurations(sources, True) if selected(s)][:count]
    assert settings
    return {json.dumps(s, sort_keys=True): _numbers(made, s, sources) for s in settings}


def _numbers(made: Any, settings: dict[str, Any], sources: Any) -> dict[str, Any]:
    result = made.perform(settings, range(1), sources)
    numbers = {key: [number(v) for v in values] for key, values in result.items() if key not in _TIMES}
    if len(numbers) <= 12:
        return numbers
    return {"count": len(numbers), "sha256": describing.of_json(numbers), "last": list(numbers.items())[-1]}


def _by(**chosen: Any) -> Callable[[dict[str, Any]], bool]:
    return lambda settings: all(settings.get(key) == value for key, value in chosen.items())


for _name in ("garst-fig1", "garst-fig3", "garst-fig4"):
    for _method in ("central", "FKM", "k-FED", "unpooled"):
        if (_name, _method) != ("garst-fig3", "unpooled"):
            add(f"reproduce/{_name}/{_method}", reproduced, _name, _by(method=_method), 1)
for _method in ("DWF", "EWF", "k-FED", "unpooled"):
    add(
        f"reproduce/holzer-synthetic/{_method}",
        reproduced,
        "holzer-synthetic",
        _by(method=_method, split="non-IID"),
        1,
    )
for _name in ("triebe-fraction", "triebe-epochs", "triebe-rate"):
    add(f"reproduce/{_name}", reproduced, _name, lambda settings: True, 2)
for _method in ("central", "avg1", "avg2", "unpooled"):
    add(f"reproduce/stallmann-cases/{_method}", reproduced, "stallmann-cases", _by(method=_method), 1)
    if _method != "unpooled":
        add(f"reproduce/stallmann-g2/{_method}", reproduced, "stallmann-g2", _by(method=_method), 1)
for _method in ("SG", "BTM", "QNDA", "bundle (ours)"):
    add(f"reproduce/dual-tables/{_method}", reproduced, "dual-tables", _by(method=_method), 1)
add("reproduce/compare/penguins", reproduced, "compare", _by(set="penguins", split="by k-means"), 20)
add(
    "reproduce/holzer-participation",
    reproduced,
    "holzer-participation",
    lambda settings: settings.get("take_part") == 5,
    2,
)


def of_digits(name: str, n: int, clients: int, **chosen: Any) -> dict[str, Any]:
    """A reproduction that needs images, on small ones."""
    files = [a.FILES[file] for file in ("mnist", "femnist-iid", "femnist-half-iid")]
    with tempfile.TemporaryDirectory() as folder:
        data.write_digits(Path(folder), files, n, clients)
        return reproduced(name, _by(**chosen), 1, Path(folder))


for _name, _method in (("holzer-mnist", "DWF"), ("holzer-mnist", "k-FED"), ("holzer-femnist", "DWF")):
    add(f"reproduce/{_name}/{_method}, digits", of_digits, _name, 600, 20, method=_method)
add("reproduce/garst-fig5/FKM, digits", of_digits, "garst-fig5", 1797, 10, method="FKM")


@case("reproduce/by the command")
def by_the_command() -> dict[str, Any]:
    """One experiment from its name to its tables and figures; the page but for how long it took."""
    with in_folder() as folder:
        a.reproduce("triebe-epochs", "--runs", 1, "--jobs", 1, "--out", "out")
        made = folder / "out" / "triebe-epochs"
        files: dict[str, Any] = {
            path.name: text(path.read_bytes())
            for path in sorted(made.iterdir())
            if path.suffix in (".csv", ".svg")
        }
        page = (made / "triebe-epochs.md").read_text(encoding="utf-8")
        files["page"] = text(re.sub(r"\d+ CPU seconds", "some CPU seconds", page))
        tasks = [
            json.loads(p.read_text()) for p in (folder / "out" / "results" / "triebe-epochs").glob("*.json")
        ]
        numbers = {
            json.dumps([one["settings"], one["runs"]], sort_keys=True): one["numbers"] for one in tasks
        }
        return {**files, "tasks": len(tasks), "numbers": {"sha256": describing.of_json(numbers)}}


@case("files/demo")
def demo() -> dict[str, Any]:
    """What the demo prints; its figure is not looked at."""
    with in_folder():
        return {"printed": text(a.command("example", "penguins", "--run", "--out", "demo"))}
