"""A command that runs for long replaces its process by one that imports only what it needs from then on.

At first a command reads options, data and rules, for which it imports several times as much as a supervisor
needs. The process keeps its id, its parent and its output.
"""

import errno
import json
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from unpooled.errors import UnpooledError


def words(module: str, values: dict[str, Any]) -> list[str]:
    """Return the module and its argument: ``values``, which its function ``main`` takes, as JSON."""
    return [module, json.dumps(values)]


def begin(module: str, values: dict[str, Any]) -> NoReturn:
    """Replace this process by one that calls ``main`` of a module with the values."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-m", *words(module, values)])  # noqa: S606, own words


def call(main: Callable[..., None]) -> None:
    """Call a module's ``main`` with the values of the command line; an error is one line, as of a command."""
    try:
        main(**json.loads(sys.argv[1]))
    except (UnpooledError, OSError) as error:
        print(f"unpooled: {error_line(error)}", file=sys.stderr)
        sys.exit(1)


def error_line(error: UnpooledError | OSError) -> str:
    """Return an error in one line; for the file system with the file, for a full disk with the machine."""
    if isinstance(error, UnpooledError):
        return str(error)
    text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    if error.errno == errno.ENOSPC:
        import socket

        text += f" ({socket.gethostname()}). Free some space and repeat the command."
    return text
