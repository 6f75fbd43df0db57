"""Fuzz target: bytes from the network, answered by a site.

Whatever comes behind a right checksum, ``respond`` gives an answer back; it never raises.
Run: ``python fuzz/fuzz_site.py fuzz/corpus/fuzz_site -max_total_time=300`` (needs atheris).
"""

import contextlib
import sys

import numpy as np

try:
    import atheris
except ImportError:  # the tests run the target without it
    atheris = None

included = ["unpooled.core", "unpooled.site"]
with atheris.instrument_imports(include=included) if atheris else contextlib.nullcontext():
    from unpooled.core import codec
    from unpooled.core.exchange import Answer
    from unpooled.site.open_site import open_site
    from unpooled.site.policy import parse
import unpooled.questions.clusters  # noqa: E402, F401  (its messages must be known)

ROWS = np.random.default_rng(0).normal(size=(60, 2))
RULES = parse("version = 2\n[protect]\nauto = true")
site = open_site("north", ROWS, RULES)


def one_input(data: bytes) -> None:
    """Raise if these bytes break the promise above."""
    assert isinstance(codec.unwrap(site.respond(codec._checksum(data) + data)), Answer)


def main() -> None:
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
