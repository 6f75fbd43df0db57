"""Tables 2-5 of Stallmann & Wilbik (federated fuzzy c-means): what ``python -m reproduction stallmann`` writes.

``python -m benchmarks.fuzzy_tables [--runs 10] [--data folder]``. The experiment itself is the package's:
src/unpooled/reproduce/stallmann.py says what the paper leaves open, and what does not come out and why.
"""

import argparse
import tempfile
from pathlib import Path

from reproduction.catalogue import chosen
from reproduction.data_sources import Sources
from reproduction.output import markdown
from reproduction.runner import finish


def main() -> None:
    parser = argparse.ArgumentParser(description="Tables 2-5 of Stallmann & Wilbik")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument(
        "--data", type=Path, default=None, help="folder with the G2 sets; drawn alike without it"
    )
    parser.add_argument("--no-g2", action="store_true")
    args = parser.parse_args()
    wanted = chosen("stallmann-cases" if args.no_g2 else "stallmann")
    with tempfile.TemporaryDirectory() as folder:
        for done in finish(wanted, Sources(args.data), Path(folder), runs=args.runs):
            print(markdown(done))


if __name__ == "__main__":
    main()
