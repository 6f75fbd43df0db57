"""Fuzz target: bytes from the network, answered by a site.

Whatever comes behind a right checksum, ``respond`` gives an answer back; it never raises.
Run: ``python fuzz/fuzz_site.py fuzz/corpus/fuzz_site -max_total_time=300`` (needs atheris).
"""

import inspect
import sys

import numpy as np

import unpooled.protocol.questions.cluster_sums  # noqa: F401  (imported so that its messages are known)
from unpooled.protocol import codec
from unpooled.protocol.exchange import Response
from unpooled.site import Site
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

ROWS = np.random.default_rng(0).normal(size=(60, 2))
RULES = parse("format = 1\n[protect]\nauto_approve = true\none_row_per_person = true")
site = open_site("north", ROWS, RULES)


def one_input(data: bytes) -> None:
    """Raise if these bytes break the promise above."""
    assert isinstance(codec.unwrap(site.respond(codec._checksum(data) + data)), Response)


def main() -> None:
    import atheris

    for function in (*vars(codec).values(), *vars(Site).values()):  # by hand, as in fuzz_codec
        if inspect.isfunction(function) and function.__module__ in (codec.__name__, Site.__module__):
            atheris.instrument_func(function)
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
