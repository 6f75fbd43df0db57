"""Entry point of the engine's processes, for a faster start: ``python -m ...engine_main MODULE ARGUMENTS``.

The engine imports all its drivers, even the one for HTTP; sites use gRPC and, within a machine, TCP. It also
tests the primes of its own private key whenever it reads the file, twice in each process, although that was
done when the key was made and when the site enrolled. Both cost processor time in every process, which
matters if many sites share a machine.
"""

import functools
import runpy
import sys
from typing import Any

from unpooled.federation import die_with_parent


def command(module: str, *words: str) -> list[str]:
    """Return the command that runs a module of the engine in a process that ends with this one."""
    return die_with_parent.command(__name__, module, *words)


def prepare() -> None:
    """Skip the driver for HTTP and the tests of the process's own key."""
    from cryptography.hazmat.primitives import serialization

    sys.modules["aiohttp"] = None  # type: ignore[assignment]  # the engine ignores a driver that lacks it
    load_key: Any = serialization.load_pem_private_key
    serialization.load_pem_private_key = functools.partial(load_key, unsafe_skip_rsa_key_validation=True)


if __name__ == "__main__":
    prepare()
    del sys.argv[0]  # the module becomes the program's name
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
