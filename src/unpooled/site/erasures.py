"""The erasures of a site as its folder tells of them: when, how many groups, ordered by whom; never of whom.

An erasure is written here before the registry has it, so that sites that are running stop first, and marked
as finished when copy and tables are as the registry says; whoever comes after a kill finishes it, or takes
back what the registry never got. A finished one names the registry's entry: a registry of before is found
by this file, also where nothing was answered since.
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
            found = json.loads(self.path.read_text(encoding="utf-8"))
            if isinstance(found, list) and all(isinstance(one, dict) for one in found):
                return found
        except FileNotFoundError:
            return []
        except ValueError:
            pass
        raise LedgerError(f"{self.path}: not a list of erasures, or damaged")

    def identifiers(self) -> tuple[tuple[Any, ...], ...]:
        """What tells one erasure from another; the same before and after it is finished."""
        return tuple((one.get("utc"), one.get("groups"), one.get("entry")) for one in self.read())

    @property
    def unfinished(self) -> bool:
        """True if a process was killed during an erasure, or is at it."""
        try:
            return f'"{_UNFINISHED}"'.encode() in self.path.read_bytes()
        except FileNotFoundError:
            return False

    def begin(self, entry: str, groups: int, by: str) -> None:
        """Tell running sites of an erasure, before the registry has it under the name ``entry``."""
        said = {
            "utc": datetime.now(UTC).isoformat(timespec="seconds"),
            "groups": groups,
            "by": by,
            "entry": entry,
            _UNFINISHED: True,
        }
        self._write([*self.read(), said])

    def finish(self, entries: Collection[str]) -> None:
        """Keep those that the registry has; what it never got is as if it had not been asked for."""
        kept = [one for one in self.read() if not one.get(_UNFINISHED) or one["entry"] in entries]
        self._write([{key: value for key, value in one.items() if key != _UNFINISHED} for one in kept])

    def check(self, entries: Collection[str]) -> None:
        """Raise LedgerError unless the registry, which has ``entries``, has every finished erasure."""
        for one in self.read():
            if not one.get(_UNFINISHED) and one.get("entry") not in entries:
                raise LedgerError(
                    f"{self.folder}: the registry of persons is older than {ERASURES}, or lost: it does not "
                    f"have the erasure of {one.get('utc')}, and would show who was erased. Put the newest "
                    "registry and copy back; nothing is answered or renewed"
                )

    def _write(self, said: list[dict[str, Any]]) -> None:
        write_atomically(self.path, (json.dumps(said, indent=1) + "\n").encode())
