"""Supervisor of an engine's process, in the foreground: start it, restart it when it dies, stop it.

No process of the engine outlives the supervisor: each is tied to its parent (``runtimes.tied``). The
supervisor adopts what loses its parent, and says that it has stopped only when nothing is left.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from unpooled.errors import InputError
from unpooled.storage.file_locks import is_locked, lock_owner, locked

_PAUSES = (1.0, 30.0)  # seconds before a restart: the first, the longest
_STEADY = 60.0  # after so many seconds the pause before a restart is reset
_GRACE = 10.0  # seconds that an engine has to stop by itself
_PR_SET_CHILD_SUBREAPER = 36


def supervise(
    command: list[str],
    home: Path,
    say: Callable[[str], None],
    on_tick: Callable[[], None],
    ready: Callable[[], bool] = lambda: True,
    within: contextlib.AbstractContextManager[object] | None = None,
) -> None:
    """Run until SIGTERM or SIGINT. ``on_tick`` is called twice a second; ``say`` gets messages for the user.

    ``home`` is locked meanwhile by a lock that names this process, by which ``ended`` finds it. The engine is
    started once it is ``ready``, which is asked twice a second. ``within`` is entered once the lock is held.
    """
    if is_locked(home):
        raise InputError(f"{home} is in use already ({lock_owner(home) or 'by a process that just started'})")
    with (
        locked(home, 2.0, "the engine's supervisor"),
        within or contextlib.nullcontext(),
        (home / "engine.log").open("ab") as log,
        _signals() as stopped,
    ):
        while not stopped() and not ready():
            _wait(0.5, stopped)
        _supervise(command, log.fileno(), say, on_tick, stopped)


def _supervise(
    command: list[str],
    log: int,
    say: Callable[[str], None],
    on_tick: Callable[[], None],
    stopped: Callable[[], bool],
) -> None:
    _adopt()
    pause = _PAUSES[0]
    while not stopped():
        began = time.monotonic()
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,  # Ctrl-C goes to the supervisor only, which stops the engine in order
        )
        while child.poll() is None and not stopped():
            time.sleep(0.5)
            on_tick()
        if child.poll() is None:
            _stop(child)
        end_children()
        if stopped():
            return
        pause = _PAUSES[0] if time.monotonic() - began > _STEADY else pause
        say(f"the engine's process ended with code {child.returncode}; starting it again")
        _wait(pause, stopped)
        pause = min(2 * pause, _PAUSES[1])


def _wait(seconds: float, stopped: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not stopped():
        time.sleep(0.1)


def stop_supervisor(home: Path, patience: float = 30.0) -> bool:
    """Stop the supervisor that runs in another process, and all that it started; False if none runs.

    One that does not stop in time is killed, and the kernel ends with it what it started.
    """
    if not is_locked(home):
        return False
    process = lock_owner(home)
    if process is None or not process.is_alive:
        raise InputError(f"{home} is in use, but does not say by which process")
    for patient, signals in ((patience, (signal.SIGTERM, signal.SIGCONT)), (10.0, (signal.SIGKILL,))):
        with contextlib.suppress(ProcessLookupError):
            for number in signals:  # one that is halted stops only when it goes on
                os.kill(process.pid, number)
        until = time.monotonic() + patient
        while time.monotonic() < until:
            if not is_locked(home):
                return True
            time.sleep(0.1)
    raise InputError(f"{process} does not stop")


def _stop(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(_GRACE)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _adopt() -> None:
    """Become the parent of all processes below this one that lose their own."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_children() -> None:
    """Kill all children of this process, adopted ones too, and wait until none is left."""
    while True:
        for child in _children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.01)
        except ChildProcessError:
            return


def _children() -> list[int]:
    children = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                if int(parent) == os.getpid():
                    children.append(int(entry.name))
    return children


@contextlib.contextmanager
def _signals() -> Iterator[Callable[[], bool]]:
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
