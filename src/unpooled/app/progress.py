"""Progress of a job, as a line on a terminal or in a notebook, and the times of its phases."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console

from unpooled.protocol.run_loop import RoundRecord

ROUND = "rounds"  # the phase of every round


class Observer(Protocol):
    """An observer of a job: called with every round, every activity, every notice and every warning."""

    def __call__(self, record: RoundRecord) -> None: ...
    def activity(self, text: str, phase: str = "") -> None: ...
    def notify(self, text: str) -> None: ...
    def warn(self, text: str) -> None: ...


class ProgressLine:
    """A line with the current activity or the last finished round.

    ``display`` shows the line; None shows nothing. ``marks`` are the phases of the job and the rounds, with
    the times at which they began.
    """

    def __init__(self, display: Callable[[str], None] | None) -> None:
        self._display, self._shown = display, ""
        self.marks: list[tuple[str, float]] = []

    def activity(self, text: str, phase: str = "") -> None:
        """Show what the job is doing, and note the beginning of a phase."""
        if phase:
            self.marks.append((phase, time.monotonic()))
        if self._display is not None and text != self._shown:
            self._shown = text
            self._display(text)

    def notify(self, text: str) -> None:
        """Show a notice to the person who waits, even without a line of progress."""
        if self._display is not None:
            self._display(text)
        else:
            print(f"unpooled: {text}", file=sys.stderr)

    def warn(self, text: str) -> None:
        """Print a warning."""
        print(f"warning: {text}", file=sys.stderr)

    def __call__(self, record: RoundRecord) -> None:
        self.marks.append((ROUND, time.monotonic()))
        asked = len(record.answered) + len(record.silent)
        moved = "" if record.movement == float("inf") else f" · movement {record.movement:.3g}"
        inertia = "" if not record.inertia < float("inf") else f" · inertia {record.inertia:.6g}"
        silent = "".join(f" · {site}: {why}" for site, why in list(record.silent.items())[:3])
        self.activity(
            f"round {record.round}{moved}{inertia} · {len(record.answered)} of {asked} sites answered{silent}"
        )


@contextmanager
def progress(quiet: bool) -> Iterator[ProgressLine]:
    """Yield a line of progress in a notebook or on a terminal; elsewhere, or if ``quiet``, a silent one."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules and not quiet else None
    if shell is not None and hasattr(shell, "kernel"):
        from IPython.display import display

        handle: Any = display({"text/plain": ""}, raw=True, display_id=True)
        try:
            yield ProgressLine(lambda text: handle.update({"text/plain": text}, raw=True))
        finally:
            handle.update({"text/plain": ""}, raw=True)
    elif quiet or not sys.stderr.isatty():
        yield ProgressLine(None)
    else:
        with Console(stderr=True, highlight=False).status("") as status:
            yield ProgressLine(lambda text: status.update(text))
