"""Start of a process that does not outlive its parent: ``python -P tied.py PARENT MODULE ARGUMENTS...``.

Run as a script, before anything else is imported. The operating system kills this process when its parent
dies, even if this process is stopped or hangs; a parent that died before is noticed here. ``PARENT`` is the
parent's process id. The kernel watches the thread that started the process: it must be one that lives on.
"""

import ctypes
import os
import runpy
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def command(module: str, *words: str) -> list[str]:
    """The command that runs a module in a process that ends with this one."""
    return [sys.executable, "-P", str(Path(__file__)), str(os.getpid()), module, *words]


def die_with_parent(parent: int) -> None:
    """End with the parent, from now on; at once if it has ended."""
    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        os._exit(1)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    del sys.argv[1]  # the module becomes the program's name
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
