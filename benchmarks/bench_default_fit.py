"""The default fit, ten restarts at ten sites, against one start of pooled scikit-learn: CPU, one thread."""

import sys
import time
from collections.abc import Iterator

import numpy as np
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from unpooled import FederatedKMeans

SITES = 10


def blobs(n: int, d: int, k: int, seed: int = 0) -> np.ndarray:
    """k overlapping clusters of unequal size."""
    rng = np.random.default_rng(seed)
    centers, share = rng.normal(0, 3, (k, d)), rng.dirichlet(np.full(k, 5.0))
    return centers[rng.choice(k, n, p=share)] + rng.standard_normal((n, d))


def images(n: int) -> np.ndarray:
    """Made-up images of 28 x 28: strokes mixed, and noise."""
    rng = np.random.default_rng(0)
    strokes = rng.gamma(0.3, 1.0, (60, 784)) * (rng.random((60, 784)) < 0.2)
    mix = rng.dirichlet(np.full(60, 0.1), n)
    return np.minimum(
        255.0, 255 * (mix @ strokes) + rng.gamma(0.5, 8.0, (n, 784)) * (rng.random((n, 784)) < 0.1)
    )


CASES = {
    "100k x 2, k 16": (lambda: blobs(100_000, 2, 16), 16),
    "200k x 16, k 32": (lambda: blobs(200_000, 16, 32), 32),
    "1M x 16, k 32": (lambda: blobs(1_000_000, 16, 32), 32),
    "50k x 64, k 20": (lambda: blobs(50_000, 64, 20), 20),
    "uniform 50k x 8, k 20": (lambda: np.random.default_rng(0).random((50_000, 8)), 20),
    "images 20k x 784, k 20": (lambda: images(20_000), 20),
}


def cpu(work) -> tuple[float, object]:
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


def measured(case: str, repeats: int = 3) -> dict[str, float]:
    """Medians over alternating runs."""
    make, k = CASES[case]
    X = make()
    sites = np.arange(len(X)) % SITES
    samples: dict[str, list[float]] = {"ours": [], "one": [], "inertia": [], "exchanges": []}
    with threadpool_limits(1):
        for seed in range(repeats):
            ours, model = cpu(
                lambda seed=seed: FederatedKMeans(k, random_state=seed, n_threads=1).fit(X, sites=sites)
            )
            one, peer = cpu(lambda seed=seed: KMeans(k, n_init=1, random_state=seed).fit(X))
            samples["ours"].append(ours)
            samples["one"].append(one)
            samples["inertia"].append(model.inertia_ / peer.inertia_)
            samples["exchanges"].append(model.run_.exchanges)
    return {name: float(np.median(values)) for name, values in samples.items()}


def rows() -> Iterator[tuple[str, float, float]]:
    for case in CASES:
        found = measured(case)
        yield f"default fit against one start of scikit-learn, {case}", 1.0, found["one"] / found["ours"]


def main() -> None:
    for case in CASES:
        if len(sys.argv) > 1 and not any(word in case for word in sys.argv[1:]):
            continue
        f = measured(case)
        print(
            f"{case:25} ours {f['ours']:6.3f}  one {f['one']:6.3f}  ratio {f['ours'] / f['one']:5.2f}  "
            f"inertia {f['inertia']:.5f}  exchanges {f['exchanges']:.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
