"""Changes of a folder: a thread reads it again and again, and everyone who waits receives the changes."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from unpooled.app.pages.layout import mark
from unpooled.errors import InputError, UnpooledError
from unpooled.html.rendering import render

_WATCHED, _UNWATCHED = 0.5, 2.0  # seconds between readings, with and without a viewer
_FRESH = 0.3  # seconds for which a reading counts as current
_CHANGES = 50  # sentences that are kept for viewers who connect again


class Reader(Protocol):
    """A folder that can be read, unless it has been removed."""

    folder: Path

    @property
    def gone(self) -> bool: ...
    def read(self) -> dict[str, Any]: ...


@dataclass
class Snapshot:
    """A page at one moment: its state, and its sections as HTML."""

    state: dict[str, Any]
    title: str
    where: str
    sections: dict[str, str]
    number: int = 0
    marks: dict[str, str] = field(default_factory=dict)

    def since(self, marks: dict[str, str]) -> dict[str, str]:
        """Return the sections that a viewer with these marks lacks."""
        return {name: html for name, html in self.sections.items() if marks.get(name) != self.marks[name]}


class Poller:
    """Keeps a current snapshot of a folder; the module ``page`` renders a state."""

    def __init__(self, reader: Reader, page: ModuleType) -> None:
        self._reader, self._page = reader, page
        self._changed = asyncio.Condition()
        self._reading = asyncio.Lock()
        self._read_at = -1e9
        self._changes: list[tuple[int, str]] = []
        self.snapshot: Snapshot | None = None
        self.viewers = 0

    @property
    def page_name(self) -> str:
        """What the page is called: review page or monitor."""
        return str(self._page.NAME)

    async def now(self) -> Snapshot:
        """Return a current snapshot."""
        async with self._reading:
            if self.snapshot is None or time.monotonic() - self._read_at > _FRESH:
                await self._read()
            assert self.snapshot is not None
            return self.snapshot

    def invalidate(self) -> None:
        """Make the next snapshot read the folder again, because something was just written."""
        self._read_at = -1e9

    async def run(self) -> None:
        """Read the folder until it is removed; then raise InputError."""
        while True:
            await self.now()
            until = time.monotonic() + _UNWATCHED
            while time.monotonic() < until:
                await asyncio.sleep(_WATCHED)
                if self.viewers:
                    break

    async def _read(self) -> None:
        state = await asyncio.to_thread(self._read_with_retries)
        self._read_at = time.monotonic()
        sections = await asyncio.to_thread(self._page.sections, state)
        before = self.snapshot
        new = Snapshot(state, self._page.title(state), self._page.where(state), sections)
        new.marks = {name: mark(html) for name, html in sections.items()}
        if before is not None and (before.marks, before.where) == (new.marks, new.where):
            return
        new.number = before.number + 1 if before is not None else 1
        if before is not None:
            changes: Callable[..., list[str]] = self._page.changes
            numbered = [(new.number, text) for text in changes(before.state, state)]
            self._changes = [*self._changes, *numbered][-_CHANGES:]
        self.snapshot = new
        async with self._changed:
            self._changed.notify_all()

    def _read_with_retries(self) -> dict[str, Any]:
        """Return the state; read again if files are being replaced, and fall back to the previous state."""
        for pause in (0.05, 0.2, 0.5, 0.0):
            if self._reader.gone:
                raise InputError(f"{self._reader.folder}: the folder was removed, so the page is closed")
            try:
                return self._reader.read()
            except (OSError, ValueError, KeyError, UnpooledError) as wrong:
                error = wrong
                time.sleep(pause)
        if self.snapshot is None:
            raise error
        problem = f"the folder cannot be read, so this page is out of date: {error}"
        return {**self.snapshot.state, "problems": [problem]}

    async def next(self, number: int, patience: float) -> Snapshot | None:
        """Return a snapshot later than that of a number; None if there is none in time."""
        try:
            async with asyncio.timeout(patience), self._changed:
                await self._changed.wait_for(
                    lambda: self.snapshot is not None and self.snapshot.number != number
                )
        except TimeoutError:
            return None
        return self.snapshot

    def changes_since(self, number: int) -> list[str]:
        """Return the sentences on changes after a snapshot's number."""
        return [text for at, text in self._changes if at > number]

    def render(self, snapshot: Snapshot) -> str:
        """Return the complete page."""
        return render(
            "live.html",
            name=self.page_name,
            title=snapshot.title,
            where=snapshot.where,
            heading=self._page.heading(snapshot.state),
            sections=snapshot.sections,
            marks=snapshot.marks,
            home="./",
        )
