"""The benchmarks, with their targets. ``python -m benchmarks quick`` leaves quality out."""

import sys

from benchmarks import bench_exact, bench_fuzzy, bench_lloyd_step, bench_rounds, quality
from unpooled import kernels


def main() -> None:
    """Print all of them."""
    print(f"kernels: {kernels.BACKEND} ({kernels.ISA}); ratios to the peer in this run, one thread each\n")
    for module in (bench_lloyd_step, bench_rounds, bench_fuzzy, bench_exact):
        print(str(module.__doc__).splitlines()[0])
        for what, target, measured in module.rows():
            print(f"  {what:60} target {target:8.1f}   measured {measured:8.1f}", flush=True)
        print()
    if "quick" not in sys.argv:
        quality.main()


if __name__ == "__main__":
    main()
