"""docs/speed.md: measurements of speed, beside those of peers in the same run.

``python -m benchmarks.speed_page [--out FILE] [--only WORD]``: one thread each unless a row states otherwise;
about ten minutes on a quiet machine. The page has the load before and after. Rows of peers that are not
installed are left out: faiss-cpu, scikit-learn-intelex and scikit-fuzzy may be in any folder of
``PYTHONPATH``. Targets are those of the benchmarks; they are not on the page.
"""

import argparse
import datetime
import functools
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from benchmarks import bench_default_fit, bench_fuzzy, bench_lloyd_step, bench_rounds
from benchmarks.bench_default_fit import FEW_ROWS, processor
from unpooled import FederatedKMeans, __version__, kernels
from unpooled.privacy.dp.discrete_gaussian import discrete_gaussian

PAGE = Path(__file__).parents[1] / "docs" / "speed.md"
Cells = list[str]


def table(heads: Cells, rows: Iterable[Cells]) -> str:
    """A Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(value: float) -> str:
    """
    >>> number(0.01234), number(5.5), number(1234.5), number(0)
    ('0.0123', '5.50', '1,234', '0')
    """
    if value == 0:
        return "0"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 1 or value >= 100 else f"{value:.2f}"


# ---------------------------------------------------------------- the default fit


def default_fit() -> str:
    heads = ["rows", "ours, s", "one start of scikit-learn, s", "n_init=10, s", "ours / one start"]
    heads += ["inertia / that of n_init=10", "round trips"]
    return table(heads, map(_one_fit, bench_default_fit.CASES))


def _one_fit(case: str) -> Cells:
    make, k = bench_default_fit.CASES[case]
    one, X = bench_default_fit.measured(case), make()
    with threadpool_limits(1):
        ten, pooled = bench_default_fit.cpu(lambda: KMeans(k, n_init=10, random_state=0).fit(X))
        model = FederatedKMeans(k, random_state=0, n_threads=1).fit(X, sites=np.arange(len(X)) % 10)
    seconds = [number(value) for value in (one["ours"], one["peer"], ten, one["starts"])]
    inertia, exchanges = f"{model.inertia_ / pooled.inertia_:.4f}", f"{one['exchanges']:.0f}"
    return [case, *seconds, inertia, exchanges]


def growth() -> str:
    """One count grows at a time, from 50,000 rows of 8 columns at ten sites with k 16."""

    def fit(n: int = 50_000, d: int = 8, k: int = 16, sites: int = 10) -> Cells:
        X, labels = bench_default_fit.blobs(n, d, k), np.arange(n) % sites
        found = []
        with threadpool_limits(1):
            for seed in range(3):
                method = FederatedKMeans(k, random_state=seed, n_threads=1)
                found.append(bench_default_fit.cpu(functools.partial(method.fit, X, sites=labels)))
        took, (_, model) = float(np.median([seconds for seconds, _ in found])), found[0]
        return [f"{n:,}", str(d), str(k), f"{sites:,}", number(took), str(model.run_.exchanges)]

    rows = [{"n": n} for n in (5_000, 50_000, 500_000)]
    rows += [{"d": d} for d in (2, 32, 128)]
    rows += [{"k": k} for k in (4, 64, 256)]
    rows += [{"sites": sites} for sites in (1, 100, 1_000, 10_000)]
    return table(["rows", "columns", "k", "sites", "seconds", "round trips"], [fit(**one) for one in rows])


def against_intelex() -> str:
    try:
        from sklearnex.cluster import KMeans as Accelerated
    except ImportError:
        return "scikit-learn-intelex was not installed."

    def one_start(case: str) -> Cells:
        make, k = bench_default_fit.CASES[case]
        X, found = make(), []
        sites = np.arange(len(X)) % 10
        for seed in range(3):
            peer = Accelerated(k, n_init=1, random_state=seed)
            method = FederatedKMeans(k, random_state=seed, n_threads=1)
            with threadpool_limits(1):
                theirs, _ = bench_default_fit.cpu(functools.partial(peer.fit, X))
                ours, model = bench_default_fit.cpu(functools.partial(method.fit, X, sites=sites))
            found.append((ours, theirs, model.inertia_ / float(peer.inertia_)))
        ours, theirs, inertia = np.median(np.array(found), axis=0)
        return [case, *(number(value) for value in (ours, theirs, ours / theirs)), f"{inertia:.4f}"]

    heads = ["rows", "ours, s", "intelex n_init=1, s", "ours / intelex", "inertia / that of intelex"]
    many = [case for case, (make, _) in bench_default_fit.CASES.items() if len(make()) > FEW_ROWS]
    return table(heads, map(one_start, many))


def against_faiss() -> str:
    try:
        import faiss
    except ImportError:
        return "faiss-cpu was not installed."
    faiss.omp_set_num_threads(1)

    def one_start(case: str) -> Cells:
        make, k = bench_default_fit.CASES[case]
        X, found = make().astype(np.float32), []
        sites = np.arange(len(X)) % 10
        for seed in range(3):
            peer = faiss.Kmeans(X.shape[1], k, niter=25, seed=seed, max_points_per_centroid=len(X))
            method = FederatedKMeans(k, n_init=1, random_state=seed, n_threads=1)
            theirs, _ = bench_default_fit.cpu(functools.partial(peer.train, X))
            ours, model = bench_default_fit.cpu(functools.partial(method.fit, X, sites=sites))
            found.append((ours, theirs, model.inertia_ / float(peer.obj[-1])))
        ours, theirs, inertia = np.median(np.array(found), axis=0)
        seconds = [number(value) for value in (ours, theirs, ours / theirs)]
        return [case, *seconds, f"{inertia:.4f}"]

    cases = ("200k x 16, k 32", "1M x 16, k 32", "50k x 64, k 20")
    heads = ["rows", "ours, s", "faiss, s", "ours / faiss", "inertia / that of faiss"]
    return table(heads, map(one_start, cases))


# ---------------------------------------------------------------- steps and rounds


def measurements(rows: Iterable[tuple[str, float, float]]) -> str:
    """The rows of a benchmark without their targets."""
    lines = [
        [what.replace(": at most", ":").replace(" (at most)", ""), number(measured)]
        for what, _, measured in rows
    ]
    return table(["measurement", "value"], lines) if lines else "The peer was not installed."


def two_threads() -> str:
    rows = []
    for n, d, k in ((10**6, 2, 16), (10**6, 16, 32), (60_000, 784, 20)):
        X = np.random.default_rng(0).standard_normal((n, d))
        offsets, centers = np.array([0, n]), X[:k][None].copy()

        def step(threads: int, X=X, offsets=offsets, centers=centers) -> Callable[[], object]:
            return lambda: kernels.totals(X, offsets, centers, threads=threads)

        one, two = bench_lloyd_step.seconds(step(1), step(2))
        first, second = step(1)(), step(2)()
        same = all(np.array_equal(a, b) for a, b in zip(first[:3], second[:3], strict=True))
        rows.append([f"{n:,} x {d}, k {k}", number(one / two), "yes" if same else "**no**"])
    return table(["Lloyd step", "times the speed of one thread", "same bits"], rows)


# ---------------------------------------------------------------- from files


_CSV = """
import sys, numpy as np
rng = np.random.default_rng(0)
centers = rng.normal(0, 1.5, (6, 16))
for i in range(4):
    X = centers[rng.integers(6, size=250_000)] + rng.standard_normal((250_000, 16))
    import pyarrow, pyarrow.csv
    pyarrow.csv.write_csv(pyarrow.table({f"x{j}": X[:, j] for j in range(16)}), f"{sys.argv[1]}/h{i}.csv")
"""
_POLARS = """
import sys, time, polars
begin = time.monotonic()
for path in sys.argv[1:]:
    polars.read_csv(path).to_numpy()
print(time.monotonic() - begin)
"""


def from_files() -> str:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", _CSV, folder], check=True)
        files = sorted(map(str, Path(folder).glob("*.csv")))
        scan = _phases(files, "2..10", f"{folder}/scan")
        env = {**os.environ, "POLARS_MAX_THREADS": str(os.cpu_count())}
        words = [sys.executable, "-c", _POLARS, *files]
        ones, peers = [], []
        for turn in range(5):
            ones.append(_phases(files, "10", f"{folder}/{turn}"))
            peers.append(
                float(subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout)
            )
        one = {name: min(took[name] for took in ones) for name in ones[0]}
        polars = min(peers)
    rows = [[name, number(scan[name]), number(one.get(name, 0.0))] for name in scan]
    clustering = ("columns and starts", "rounds", "choice of k")
    ratio = sum(scan[name] for name in clustering) / sum(one[name] for name in clustering)
    return (
        table(["phase", "k 2..10, s", "k 10, s"], rows)
        + f"\n\nReading takes {number(one['reading'])} s, polars {number(polars)} s for the same files into "
        "arrays, the fastest of five in turns. "
        f"The scan of nine k takes {number(ratio)} times as long as the largest k alone."
    )


def _phases(files: list[str], ks: str, folder: str) -> dict[str, float]:
    words = [
        sys.executable,
        "-m",
        "unpooled",
        "fit",
        *files,
        "-k",
        ks,
        "--report",
        f"{folder}-{ks}.html",
        "--json",
    ]
    output = subprocess.run([*words, "--timings"], capture_output=True, text=True, check=True).stderr
    return {name: float(took) for name, took in re.findall(r"│ ([a-z ]+?) +│ +([0-9.]+) │", output)}


# ---------------------------------------------------------------- noise


def noise() -> str:
    count, scale = 15_680, 2.0**30 * 1.37
    ours = bench_default_fit.cpu(lambda: discrete_gaussian(count, scale))[0] / count * 1e6
    try:
        import opendp.prelude as dp
    except ImportError:
        return f"784 columns, k 20: {number(ours)} µs per number."
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
    draw = dp.m.make_gaussian(*space, scale=scale)
    theirs = bench_default_fit.cpu(lambda: draw([0] * count))[0] / count * 1e6
    return (
        f"784 columns, k 20 ({count:,} numbers): {number(ours)} µs per number; OpenDP's sampler takes "
        f"{number(theirs)} µs, {number(theirs / ours)} times as much."
    )


# ---------------------------------------------------------------- the machine


def roofline() -> str:
    """Bytes and operations per row of a Lloyd step, against the limits of this machine."""
    bandwidth, flops = _bandwidth(), {np.float64: _flops(np.float64), np.float32: _flops(np.float32)}
    rows = []
    for n, d, k in ((10**6, 2, 16), (10**6, 16, 32), (60_000, 784, 20), (28_000, 784, 64)):
        for dtype in (np.float64, np.float32):
            ours, theirs = bench_lloyd_step.beside_sklearn(n, d, k, dtype)
            size, work = np.dtype(dtype).itemsize * d, 2 * d * k + 2 * d
            rate = flops[np.float64] if d <= 4 else flops[np.float32]  # what centres are ranked in
            reading, counting = n * size / bandwidth / 1e9, n * work / rate / 1e9
            shares = reading / ours, counting / ours
            limit = "memory" if shares[0] > shares[1] else "arithmetic"
            if max(shares) < 0.4:
                limit = "neither: moving rows into lanes, finding the minimum of k, sums by cluster"
            rows.append(
                [
                    f"{n:,} x {d}, k {k}, {dtype.__name__}",
                    f"{size}",
                    f"{work:,}",
                    *(f"{100 * share:.0f}%" for share in shares),
                    number(theirs / ours),
                    number(theirs / max(reading, counting)),
                    limit,
                ]
            )
    heads = ["Lloyd step", "bytes per row", "operations per row", "share of the bandwidth"]
    heads += ["share of the arithmetic", "times the speed of scikit-learn", "at the machine's limit"]
    heads += ["limited by"]
    return (
        f"One core reads {number(bandwidth)} GB/s from memory (a sum over 256 MB) and does "
        f"{number(flops[np.float64])} GF/s in float64, {number(flops[np.float32])} in float32 (numpy's "
        "matrix product, 1024 x 1024). From 5 columns on centres are ranked in float32, so the rate of "
        "float32 is compared; float64 decides if float32 cannot. *At the machine's limit* is the speed, in "
        "multiples of that of scikit-learn, of a step that would only read its rows or only multiply, "
        "whichever takes longer. No implementation is faster on this machine.\n\n"
        f"{table(heads, rows)}"
    )


def small_sites() -> str:
    """The parts of a round of many small sites."""
    X = bench_rounds.holzer()
    offsets, centers = np.linspace(0, len(X), 101).astype(np.int64), X[:5].copy()
    job = bench_rounds.one_round(X, 5, 100, 5)
    total, steps = bench_lloyd_step.seconds(
        job, lambda: kernels.local_steps(X, offsets, centers, steps=5, threads=1), times=100
    )
    return (
        f"A round of 100 sites, 5 steps, 10,100 x 2, k 5, takes {number(1e6 * total)} µs: "
        f"{number(1e6 * steps)} µs in the kernel, the rest in the Python code of the round and the method."
    )


def long_rows() -> str:
    """The limit of fuzzy c-means over long rows."""
    X = np.random.default_rng(0).standard_normal((60_000, 64))
    offsets, centers = np.linspace(0, len(X), 11).astype(np.int64), X[:10].copy()[None]
    with threadpool_limits(1):
        (took,) = bench_lloyd_step.seconds(lambda: kernels.fuzzy(X, offsets, centers, 2.0, threads=1))
    floor = X.nbytes / _bandwidth() / 1e9
    return (
        f"60k x 64, k 10: the kernel takes {number(1e3 * took)} ms; reading the rows once takes "
        f"{number(1e3 * floor)} ms at the memory bandwidth below."
    )


def _bandwidth() -> float:
    X = np.ones(1 << 25)
    X.sum()
    return X.nbytes / min(_once(X.sum) for _ in range(5)) / 1e9


def _flops(dtype: type) -> float:
    A = np.random.default_rng(0).standard_normal((1024, 1024)).astype(dtype)
    with threadpool_limits(1):
        A @ A
        return 2 * 1024**3 / min(_once(lambda: A @ A) for _ in range(5)) / 1e9


def _once(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


PARTS: tuple[tuple[str, str, Callable[[], str]], ...] = (
    (
        "The default fit",
        "Ten restarts at ten sites, against **one** start of scikit-learn on the pooled rows; with up to "
        f"{FEW_ROWS:,} rows a start is a tenth of n_init=10. CPU seconds, float64, medians of three "
        "alternating runs, with few rows of thirty; `python -m benchmarks.bench_default_fit` alone.",
        default_fit,
    ),
    (
        "How the cost grows",
        "The default fit, CPU seconds of one thread, medians of three: one count grows at a time.",
        growth,
    ),
    (
        "The default fit beside scikit-learn-intelex",
        "Ten restarts at ten sites, against **one** start of scikit-learn-intelex: CPU seconds.",
        against_intelex,
    ),
    (
        "One start in float32 beside faiss",
        "faiss-cpu, 25 iterations over all rows; ours `n_init=1` at ten sites, until it converges. "
        "faiss starts from random rows, so the ratio of inertias compares the starts.",
        against_faiss,
    ),
    (
        "One Lloyd step, and small calls",
        "Against scikit-learn's own step, the fastest of nine alternating runs. Rows without a unit are "
        "multiples of scikit-learn's speed.",
        lambda: measurements(bench_lloyd_step.rows()),
    ),
    ("Two threads", "", two_threads),
    (
        "Rounds of many sites",
        "Rows without a unit are multiples of the speed of a loop of scikit-learn's KMeans over the sites.",
        lambda: f"{measurements(bench_rounds.rows())}\n\n{small_sites()}",
    ),
    (
        "Fuzzy c-means",
        "The speed of a round of ten sites, in multiples of that of a step of scikit-fuzzy.",
        lambda: f"{measurements(bench_fuzzy.rows())}\n\n{long_rows()}",
    ),
    (
        "From files to the report",
        "`unpooled fit` on four CSV files, a million rows x 16 in all, all cores; seconds by `--timings`.",
        from_files,
    ),
    ("Noise for differential privacy", "", noise),
    ("Limits of the machine", "", roofline),
)


def page(parts: Iterable[tuple[str, str, Callable[[], str]]] = PARTS) -> str:
    """Measure all parts, and return the page."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    before, began = os.getloadavg()[0], time.monotonic()
    text = []
    for title, about, make in parts:
        print(title, flush=True)
        found = make() or "Nothing was measured."
        text.append("\n\n".join(filter(None, (f"## {title}", about, found))))
    where = f"{processor()}, {os.cpu_count()} cores, kernels {kernels.BACKEND} ({kernels.ISA})"
    head = (
        "# Speed\n\n"
        "`python -m benchmarks.speed_page` writes this page, with the peers in the same run; no number is "
        "typed.\n\n"
        f"unpooled {__version__}, {datetime.date.today():%d %B %Y}, {where}; load before {before:.1f}, after "
        f"{os.getloadavg()[0]:.1f}; {(time.monotonic() - began) / 60:.0f} minutes."
    )
    return "\n\n".join([head, *text]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--out", type=Path, default=PAGE)
    parser.add_argument("--only", default="", help="print the parts whose title has this word")
    args = parser.parse_args()
    if args.only:
        print(page([part for part in PARTS if args.only in part[0]]))
        return
    args.out.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
