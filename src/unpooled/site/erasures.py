"""The erasures of a site in its folder: when, how many groups and on whose order, but not which people.

An erasure is written here before the registry has it, so that sites that are running stop first. It is marked
as finished when the summary table agrees with the registry. After a kill, the next process finishes it, or
removes it if the registry never had it. A finished erasure names the registry's entry, so this file reveals
an older registry even if nothing was answered since.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from unpooled.errors import LedgerError
from unpooled.storage.atomic_files import write_atomically

ERASURES = "erasures.json"
_UNFINISHED = "unfinished"


@dataclass(frozen=True)
class Erasures:
    """The file in a site's folder. Writers hold the registry's lock."""

    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / ERASURES

    def read(self) -> list[dict[str, Any]]:
        """Return all erasures, the first one first."""
        try:
            erasures = json.loads(self.path.read_text(encoding="utf-8"))
            if isinstance(erasures, list) and all(isinstance(one, dict) for one in erasures):
                return erasures
        except FileNotFoundError:
            return []
        except ValueError:
            pass
        raise LedgerError(f"{self.path}: not a list of erasures, or damaged")

    def identifiers(self) -> tuple[tuple[Any, ...], ...]:
        """Return what identifies each erasure, the same before and after it is finished."""
        return tuple((one.get("utc"), one.get("groups"), one.get("entry")) for one in self.read())

    @property
    def unfinished(self) -> bool:
        """True if a process is erasing somebody, or was killed while it did."""
        try:
            return f'"{_UNFINISHED}"'.encode() in self.path.read_bytes()
        except FileNotFoundError:
            return False

    def begin(self, entry: str, groups: int, by: str) -> None:
        """Announce an erasure to running sites, before the registry has it under the name ``entry``."""
        erasure = {
            "utc": datetime.now(UTC).isoformat(timespec="seconds"),
            "groups": groups,
            "by": by,
            "entry": entry,
            _UNFINISHED: True,
        }
        self._write([*self.read(), erasure])

    def finish(self, entries: Collection[str]) -> None:
        """Keep the erasures that the registry has, as finished, and remove those that it never had."""
        kept = [one for one in self.read() if not one.get(_UNFINISHED) or one["entry"] in entries]
        self._write([{key: value for key, value in one.items() if key != _UNFINISHED} for one in kept])

    def check(self, entries: Collection[str]) -> None:
        """Raise LedgerError unless the registry, which has ``entries``, has every finished erasure."""
        for one in self.read():
            if not one.get(_UNFINISHED) and one.get("entry") not in entries:
                raise LedgerError(
                    f"{self.folder}: the registry of people is older than {ERASURES}, or lost: it lacks the "
                    f"erasure of {one.get('utc')}, and would disclose the erased people. Nothing is answered "
                    "or updated. Put the newest registry and summary table back."
                )

    def _write(self, erasures: list[dict[str, Any]]) -> None:
        write_atomically(self.path, (json.dumps(erasures, indent=1) + "\n").encode())
