"""The register of releases: what was released before of the same persons, and whether it may be compared.

It is a file beside the folders of runs, ``releases.jsonl``, and has true numbers: it stays inside.
"""

import fcntl
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from unpooled.app.private_result import PrivateResult
from unpooled.app.result import ClusterResult, JobResult
from unpooled.core.disk import write_atomically
from unpooled.errors import BadInput
from unpooled.privacy.presets import Preset


@dataclass(frozen=True)
class Entry:
    """One release, with true numbers."""

    name: str  # of its folder
    date: str
    run: str
    preset: str
    sites: dict[str, float]  # persons of every site
    used: float  # persons that are clustered
    clusters: tuple[float, ...]
    columns: tuple[str, ...]


def entry_of(result: JobResult, preset: Preset, name: str, date: str) -> Entry:
    """The entry of a run that is about to be released."""
    if isinstance(result, ClusterResult):
        a = result.agreement
        sites = dict(zip(a.sites, a.rows.tolist(), strict=True))
        columns = tuple(column.name for column in a.preparation.columns)
        clusters = tuple(result.sizes.tolist())
        return Entry(name, date, result.run.id, preset.name, sites, a.used, clusters, columns)
    assert isinstance(result, PrivateResult)
    columns = tuple(result.method.columns)
    return Entry(name, date, result.run.id, preset.name, {}, 0.0, (), columns)


def read(path: Path) -> list[Entry]:
    """The entries of a register, none if there is no file; BadInput names the line that is not one."""
    if not path.exists():
        return []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not a register of releases ({error})") from error
    found = []
    for number, line in enumerate(lines, 1):
        try:
            said = json.loads(line)
            for name in ("clusters", "columns"):
                said[name] = tuple(said[name])
            found.append(Entry(**said))
        except (ValueError, TypeError, KeyError) as error:
            raise BadInput(f"{path}, line {number}: not an entry of a register of releases") from error
    return found


def add(path: Path, entries: Sequence[Entry]) -> None:
    """Write a register with one entry more, the last; BadInput if another release was noted meanwhile."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if read(path) != list(entries[:-1]):
            raise BadInput(f"{path}: another release was noted meanwhile; try again")
        text = "".join(json.dumps(asdict(entry), ensure_ascii=False) + "\n" for entry in entries)
        write_atomically(path, text.encode())
    finally:
        os.close(folder)


def relation(now: Entry, before: Iterable[Entry], preset: Preset) -> tuple[list[str], list[str]]:
    """Sentences on the relation to earlier releases, and warnings; BadInput if a difference is too small.

    Neither has a true number.
    """
    said, warned = [], []
    for old in before:
        which = f"release {old.name} of {old.date} (preset {old.preset})"
        if old.run == now.run:
            if old.preset != now.preset:
                raise BadInput(
                    f"this run was released under preset {old.preset} ({old.name}, {old.date}); what two "
                    f"rules show of one table can be put together, so it is not under {now.preset} too"
                )
            said.append(f"{which} has the same numbers, of the same run.")
            continue
        both = [site for site in now.sites if site in old.sites]
        if not both:
            said.append(f"{which} has no site in common with this one.")
            continue
        _check_differences(now, old, both, preset)
        said.append(
            f"{which} is of another run, of {len(both)} of the same sites; no number of persons differs from "
            f"this one by fewer than {preset.persons}."
        )
        for j, size in enumerate(now.clusters):
            near = [c + 1 for c, n in enumerate(old.clusters) if 0 < abs(n - size) < preset.persons]
            if near:
                others = ", ".join(map(str, near))
                warned.append(
                    f"cluster {j + 1} here and cluster {others} of release {old.name} have nearly as many "
                    "persons: if one holds the other, their difference is about a few persons. Counts are "
                    "rounded, and so are means; look at both before both are handed out"
                )
    return said, warned


def _check_differences(now: Entry, old: Entry, both: list[str], preset: Preset) -> None:
    """Raise BadInput where a population differs from an earlier one by some persons, but too few."""
    pairs = [(f"site {site}", now.sites[site], old.sites[site]) for site in both]
    pairs.append(("the whole run", now.used, old.used))
    for what, here, there in pairs:
        if 0 < abs(here - there) < preset.persons:
            raise BadInput(
                f"{what} has {here:.0f} persons here and {there:.0f} in release {old.name}: a difference of "
                f"{abs(here - there):.0f}, and {preset.name} shows nothing about fewer than {preset.persons}"
            )
