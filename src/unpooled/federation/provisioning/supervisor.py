"""Supervisor of an engine's process, in the foreground: start it, restart it when it dies, stop it.

No process of the engine outlives the supervisor: each ends with its parent (``federation.die_with_parent``).
The supervisor adopts processes that lose their parent, and reports that it has stopped only when none is
left.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType

import psutil

from unpooled.errors import InputError
from unpooled.storage.file_locks import is_locked, lock_owner, locked

_FIRST_PAUSE, _MAX_PAUSE = 1.0, 30.0  # seconds before a restart; the pause doubles each time
_STEADY = 60.0  # seconds of running after which the pause is reset
_GRACE = 10.0  # seconds that an engine has to stop by itself
_NAME_TIMEOUT = 5.0  # seconds in which a process that has just taken the lock must have named itself
_PR_SET_CHILD_SUBREAPER = 36


def supervise(
    command: list[str],
    home: Path,
    say: Callable[[str], None],
    on_tick: Callable[[], None],
    ready: Callable[[], bool] = lambda: True,
    within: contextlib.AbstractContextManager[object] | None = None,
) -> None:
    """Run an engine until SIGTERM or SIGINT.

    Parameters
    ----------
    command
        Starts the engine.
    home
        The folder that is locked meanwhile; the lock names this process, so ``stop_supervisor`` can find it.
    say
        Called with messages for the user.
    on_tick
        Called twice a second.
    ready
        Called twice a second before the engine starts, until it returns True.
    within
        A context that is entered once the lock is held.
    """
    check_free(home)
    with (
        locked(home, 2.0, "the engine's supervisor"),
        within or contextlib.nullcontext(),
        (home / "engine.log").open("ab") as log,
        _signals() as stopped,
    ):
        while not stopped() and not ready():
            _wait(0.5, stopped)
        _supervise(command, log.fileno(), say, on_tick, stopped)


def check_free(home: Path) -> None:
    """Raise InputError if a supervisor runs in this folder."""
    if is_locked(home):
        owner = lock_owner(home) or "by a process that just started"
        raise InputError(f"{home} is already in use ({owner}). Stop that process first.")


def _supervise(
    command: list[str],
    log: int,
    say: Callable[[str], None],
    on_tick: Callable[[], None],
    stopped: Callable[[], bool],
) -> None:
    _adopt()
    pause = _FIRST_PAUSE
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
        pause = _FIRST_PAUSE if time.monotonic() - began > _STEADY else pause
        say(f"the engine's process ended with code {child.returncode}; starting it again")
        _wait(pause, stopped)
        pause = min(2 * pause, _MAX_PAUSE)


def supervise_all(commands: Mapping[str, list[str]], home: Path, say: Callable[[str], None]) -> None:
    """Run several supervisors until SIGTERM or SIGINT, e.g. one for each federation of a site.

    A supervisor that was stopped stays stopped; one that died is started again.

    Parameters
    ----------
    commands
        Start the supervisors, by name. Their processes must end with this one.
    home
        The folder that is locked meanwhile.
    say
        Called with messages for the user.
    """
    with locked(home, 2.0, "the supervisor of all federations"), _signals() as stopped:
        running = {name: _started(command) for name, command in commands.items()}
        pauses = dict.fromkeys(commands, _FIRST_PAUSE)
        while running and not stopped():
            _wait(0.5, stopped)
            for name, child in list(running.items()):
                if child.poll() == 0:
                    del running[name]
                elif child.poll() is not None and not stopped():
                    say(f"the process for {name} ended with code {child.returncode}; starting it again")
                    _wait(pauses[name], stopped)
                    pauses[name] = min(2 * pauses[name], _MAX_PAUSE)
                    running[name] = _started(commands[name])
        for child in running.values():
            child.terminate()
        for child in running.values():
            _stop(child)


def _started(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)


def _wait(seconds: float, stopped: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not stopped():
        time.sleep(0.1)


def stop_supervisor(home: Path, timeout: float = 30.0) -> bool:
    """Stop the supervisor that runs in another process, and all that it started; return False if none runs.

    A supervisor that does not stop within ``timeout`` seconds is killed; the kernel then ends all that it
    started.
    """
    named_by = time.monotonic() + _NAME_TIMEOUT
    while (process := lock_owner(home)) is None or not process.is_alive:
        if not is_locked(home):
            return False
        if time.monotonic() > named_by:
            raise InputError(f"{home} is in use, but its lock does not name a running process")
        time.sleep(0.05)
    for seconds, signals in ((timeout, (signal.SIGTERM, signal.SIGCONT)), (10.0, (signal.SIGKILL,))):
        with contextlib.suppress(ProcessLookupError):
            for number in signals:  # a suspended process stops only after it is resumed
                os.kill(process.pid, number)
        until = time.monotonic() + seconds
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
    """Become the parent of all descendants that lose their own parent."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_children() -> None:
    """Kill all children of this process, including adopted ones, and wait until none is left."""
    while True:
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.01)
        except ChildProcessError:
            return


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
