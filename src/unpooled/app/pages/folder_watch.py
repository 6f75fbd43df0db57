"""What changed in a folder: it is read again and again in a thread, and whoever waits is told of changes."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from unpooled.app.pages.layout import frame, mark, parts
from unpooled.errors import InputError, UnpooledError

_WATCHED, _ALONE = 0.5, 2.0  # seconds between readings: while somebody looks, and else
_FRESH = 0.3  # seconds for which a reading counts as of now
_NEWS = 50  # sentences that are kept for whoever is late


class Reader(Protocol):
    """A folder that can be read, unless it is gone."""

    folder: Path

    @property
    def gone(self) -> bool: ...
    def read(self) -> dict[str, Any]: ...


@dataclass
class Snapshot:
    """A page at one moment."""

    state: dict[str, Any]
    title: str
    where: str
    sections: dict[str, str]
    number: int = 0
    marks: dict[str, str] = field(default_factory=dict)

    def since(self, marks: dict[str, str]) -> dict[str, str]:
        """The sections that somebody with these marks has not got."""
        return {name: html for name, html in self.sections.items() if marks.get(name) != self.marks[name]}


class Poller:
    """Keeps the present picture of a folder; ``page`` puts a state into words."""

    def __init__(self, reader: Reader, page: ModuleType) -> None:
        self._reader, self._page = reader, page
        self._changed = asyncio.Condition()
        self._reading = asyncio.Lock()
        self._read_at = -1e9
        self._changes: list[tuple[int, str]] = []
        self.snapshot: Snapshot | None = None
        self.viewers = 0

    async def now(self) -> Snapshot:
        """The picture of this moment."""
        async with self._reading:
            if self.snapshot is None or time.monotonic() - self._read_at > _FRESH:
                await self._read()
            assert self.snapshot is not None
            return self.snapshot

    def invalidate(self) -> None:
        """Something was done just now: what was read before does not count."""
        self._read_at = -1e9

    async def run(self) -> None:
        """Look until the folder is gone: then its UnpooledError is raised."""
        while True:
            await self.now()
            until = time.monotonic() + _ALONE
            while time.monotonic() < until:
                await asyncio.sleep(_WATCHED)
                if self.viewers:
                    break

    async def _read(self) -> None:
        state = await asyncio.to_thread(self._patiently)
        self._read_at = time.monotonic()
        sections = await asyncio.to_thread(self._page.sections, state)
        before = self.snapshot
        new = Snapshot(state, self._page.title(state), self._page.where(state), sections)
        new.marks = {name: mark(html) for name, html in sections.items()}
        if before is not None and (before.marks, before.where) == (new.marks, new.where):
            return
        new.number = before.number + 1 if before is not None else 1
        if before is not None:
            said: Callable[..., list[str]] = self._page.changes
            self._changes = [*self._changes, *((new.number, text) for text in said(before.state, state))][
                -_NEWS:
            ]
        self.snapshot = new
        async with self._changed:
            self._changed.notify_all()

    def _patiently(self) -> dict[str, Any]:
        """Read, and again where files were being replaced; what was known before, if it cannot be read."""
        for pause in (0.05, 0.2, 0.5, 0.0):
            if self._reader.gone:
                raise InputError(f"{self._reader.folder}: the folder is gone; the desk is closed")
            try:
                return self._reader.read()
            except (OSError, ValueError, KeyError, UnpooledError) as wrong:
                error = wrong
                time.sleep(pause)
        if self.snapshot is None:
            raise error
        said = f"the folder cannot be read, and what is shown is old: {error}"
        return {**self.snapshot.state, "problems": [said]}

    async def next(self, number: int, patience: float) -> Snapshot | None:
        """A picture later than that of a number; None if none came in time."""
        try:
            async with asyncio.timeout(patience), self._changed:
                await self._changed.wait_for(
                    lambda: self.snapshot is not None and self.snapshot.number != number
                )
        except TimeoutError:
            return None
        return self.snapshot

    def changes_since(self, number: int) -> list[str]:
        return [text for at, text in self._changes if at > number]

    def render(self, snapshot: Snapshot) -> str:
        """The page as a whole."""
        heading = self._page.heading(snapshot.state)
        return frame(snapshot.title, snapshot.where, heading, parts(snapshot.sections), live=True)
