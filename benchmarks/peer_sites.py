"""The same sums over many sites by Apple's pfl-research: ``python -m benchmarks.peer_sites SITES``.

``pip install --no-deps --target build/pfl pfl multiprocess dill`` installs pfl beside the environment. Set
PYTHONPATH=build/pfl; without pfl one line reports that. A site there is a Dataset, and our kernel makes its
sums, so that the engines are compared.
"""

import asyncio
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.bench_relays import ROWS, D, K, rows, timed
from unpooled import kernels


def _without_accountants() -> None:
    """Replace the modules that only its privacy needs, and that need not be installed here."""
    for name in ("prv_accountant", "prv_accountant.dpsgd"):
        module: Any = ModuleType(name)
        module.__getattr__ = lambda attribute: object
        sys.modules.setdefault(name, module)


def main() -> int:
    sites = int(float(sys.argv[1]))
    _without_accountants()
    try:
        from pfl.aggregate.simulate import SimulatedBackend
        from pfl.common_types import Population
        from pfl.data.dataset import Dataset
        from pfl.internal.ops import numpy_ops
        from pfl.internal.ops.selector import set_framework_module
        from pfl.metrics import Metrics
        from pfl.stats import MappedVectorStatistics
    except ImportError as error:
        print(f"pfl-research is not measured: {error}")
        return 0
    set_framework_module(numpy_ops)
    X = rows(sites)
    centers = X[None, :: len(X) // K][:, :K].copy()
    offsets = np.array([0, ROWS])

    class Sites:
        def get_cohort(self, size: int) -> Iterator[Any]:
            return ((Dataset([X[s * ROWS : (s + 1) * ROWS]], user_id=str(s)), s) for s in range(size))

    class Sums:
        def simulate_one_user(self, model: Any, user: Any, context: Any) -> Any:
            t = kernels.totals(user.raw_data[0], offsets, centers, None, threads=1)
            return MappedVectorStatistics({"sums": t.sums, "mass": t.mass, "inertia": t.inertia}), Metrics()

    backend = SimulatedBackend(Sites(), Sites())
    context = SimpleNamespace(cohort_size=sites, population=Population.TRAIN)

    def act(number: int) -> Any:
        return asyncio.run(
            backend.async_gather_results(model=None, training_algorithm=Sums(), central_context=context)
        )

    wall, cpu = timed(act, 1)
    found, _ = act(2)
    assert float(found["mass"].sum()) == len(X)
    print(
        f"{sites:9,} sites, pfl-research: a round {wall:.3f} s, {cpu:.3f} CPU s; "
        f"{sites / cpu:,.0f} sites per second on one core ({D} columns, {ROWS} rows per site)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
