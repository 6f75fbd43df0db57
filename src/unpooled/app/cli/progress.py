"""One live line while a run goes on, where somebody watches; nothing where nobody does."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from unpooled.core.run import Record


class LiveLine:
    """Shows what is being done, and every round as it ends."""

    def __init__(self, console: Console | None, sites: int = 0) -> None:
        self._status = console.status("") if console is not None else None

    def say(self, text: str) -> None:
        if self._status is not None:
            self._status.update(text)

    def __call__(self, record: Record) -> None:
        asked = len(record.answered) + len(record.silent)
        moved = "" if record.movement == float("inf") else f" · movement {record.movement:.3g}"
        inertia = "" if not record.inertia < float("inf") else f" · inertia {record.inertia:.6g}"
        silent = "".join(f" · {site}: {why}" for site, why in list(record.silent.items())[:3])
        self.say(
            f"round {record.round}{moved}{inertia} · {len(record.answered)} of {asked} sites answered{silent}"
        )


@contextmanager
def progress(quiet: bool) -> Iterator[LiveLine]:
    """A live line on stderr; quiet if asked to be, or if stderr is no terminal."""
    if quiet or not sys.stderr.isatty():
        yield LiveLine(None)
        return
    shown = LiveLine(Console(stderr=True, highlight=False))
    assert shown._status is not None
    with shown._status:
        yield shown
