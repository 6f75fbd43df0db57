"""Supervisor of an engine's process, in the foreground: start it, restart it when it dies, stop it."""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from unpooled.core.disk import held, is_held
from unpooled.errors import BadInput

_PAUSES = (1.0, 30.0)  # seconds before a restart: the first, the longest
_STEADY = 60.0  # after so many seconds the pause before a restart is reset
_GRACE = 10.0  # seconds that an engine has to stop by itself


def keep(command: list[str], home: Path, say: Callable[[str], None], look: Callable[[], None]) -> None:
    """Run until SIGTERM or SIGINT. ``look`` is called twice a second; ``say`` gets messages for the user.

    ``home`` is locked meanwhile and holds the process id, by which ``ended`` finds it.
    """
    if is_held(home):
        raise BadInput(f"{home} is in use already (process {_process(home)})")
    with held(home, patience=2.0), (home / "engine.log").open("ab") as log, _signals() as stopped:
        (home / "pid").write_text(f"{os.getpid()}\n")
        pause = _PAUSES[0]
        while not stopped():
            began = time.monotonic()
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=_die_together
            )
            while child.poll() is None and not stopped():
                time.sleep(0.5)
                look()
            if child.poll() is None:
                _stop(child)
                break
            pause = _PAUSES[0] if time.monotonic() - began > _STEADY else pause
            say(f"the engine's process ended with code {child.returncode}; starting it again")
            until = time.monotonic() + pause
            while time.monotonic() < until and not stopped():
                time.sleep(0.1)
            pause = min(2 * pause, _PAUSES[1])
        (home / "pid").unlink(missing_ok=True)


def ended(home: Path, patience: float = 30.0) -> bool:
    """Stop the supervisor that runs in another process; False if none runs."""
    if not is_held(home):
        return False
    process = _process(home)
    if process is None:
        raise BadInput(f"{home} is in use, but does not say by which process")
    os.kill(process, signal.SIGTERM)
    until = time.monotonic() + patience
    while is_held(home):
        if time.monotonic() > until:
            raise BadInput(f"process {process} does not stop; it was told to {patience:g} seconds ago")
        time.sleep(0.2)
    return True


def _process(home: Path) -> int | None:
    try:
        return int((home / "pid").read_text())
    except (FileNotFoundError, ValueError):
        return None


def _stop(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(_GRACE)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _die_together() -> None:
    """Make the engine die with its supervisor: two engines of one name would disturb each other."""
    os.setpgid(0, 0)  # Ctrl-C goes to the supervisor only, which stops the engine in order
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


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
