"""Start of a process that ends with its parent: ``python -P die_with_parent.py PARENT MODULE ARGUMENTS...``.

Runs as a script, before anything else is imported. The operating system kills this process when its parent
dies, even if this process is stopped or hangs. If the parent died before, this script ends the process.
``PARENT`` is the parent's process id. The kernel watches the thread that started the process, so that thread
must not end early.
"""

import ctypes
import os
import runpy
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def command(module: str, *words: str) -> list[str]:
    """Return the command that runs a module in a process that ends with this one."""
    return [sys.executable, "-P", str(Path(__file__)), str(os.getpid()), module, *words]


def die_with_parent(parent: int) -> None:
    """Let this process end with its parent; end at once if the parent has ended."""
    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        os._exit(1)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    del sys.argv[1]  # the module becomes the program's name
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
