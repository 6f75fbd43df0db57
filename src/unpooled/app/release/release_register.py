"""The register of releases: what was released before of the same persons, and whether it may be compared.

It is a file beside the folders of runs, ``releases.jsonl``, and has true numbers: it stays inside.
"""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path

from unpooled.app.private_result import PrivateResult
from unpooled.app.result import ClusterResult, JobResult
from unpooled.data.transforms import Number
from unpooled.errors import InputError
from unpooled.privacy.presets import PRESETS, Preset
from unpooled.storage.atomic_files import write_atomically
from unpooled.storage.file_locks import lock


@dataclass(frozen=True)
class ReleaseEntry:
    """One release, with true numbers."""

    name: str  # of its folder
    date: str
    run: str
    preset: str
    sites: dict[str, float]  # persons of every site
    used: float  # persons that are clustered
    clusters: tuple[float, ...]
    columns: tuple[str, ...]
    summary_dates: dict[str, str] = field(
        default_factory=dict
    )  # by site: the date of the copy it answered from
    means: dict[str, str] = field(default_factory=dict)  # by column: a digest of the mean over all sites


def entry_of(result: JobResult, preset: Preset, name: str, date: str) -> ReleaseEntry:
    """The entry of a run that is about to be released."""
    if isinstance(result, ClusterResult):
        a = result.agreement
        sites = dict(zip(a.sites, a.rows.tolist(), strict=True))
        columns = tuple(column.name for column in a.preparation.columns)
        clusters = tuple(result.sizes.tolist())
        summary_dates = {
            site: made for site, (mode, made) in zip(a.sites, a.protection, strict=True) if mode == "summary"
        }
        complete = " of complete rows" if a.preparation.drop else ""
        means = {
            column.label + complete: sha256(f"{column.fill:.9g}".encode()).hexdigest()[:16]
            for column in a.preparation.columns
            if isinstance(column, Number)
        }
        return ReleaseEntry(
            name, date, result.run.id, preset.name, sites, a.used, clusters, columns, summary_dates, means
        )
    assert isinstance(result, PrivateResult)
    columns = tuple(result.method.columns)
    return ReleaseEntry(name, date, result.run.id, preset.name, {}, 0.0, (), columns)


def read(path: Path) -> list[ReleaseEntry]:
    """The entries of a register, none if there is no file; InputError names the line that is not one."""
    if not path.exists():
        return []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a register of releases ({error})") from error
    found = []
    for number, line in enumerate(lines, 1):
        try:
            said = json.loads(line)
            for name in ("clusters", "columns"):
                said[name] = tuple(said[name])
            found.append(ReleaseEntry(**said))
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"{path}, line {number}: not an entry of a register of releases") from error
    return found


def add(path: Path, entries: Sequence[ReleaseEntry]) -> None:
    """Write a register with one entry more, the last; InputError if another release was noted meanwhile."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        lock(folder, wait=True)
        if read(path) != list(entries[:-1]):
            raise InputError(f"{path}: another release was noted meanwhile; try again")
        text = "".join(json.dumps(asdict(entry), ensure_ascii=False) + "\n" for entry in entries)
        write_atomically(path, text.encode())
    finally:
        os.close(folder)


def relation(
    now: ReleaseEntry, before: Iterable[ReleaseEntry], preset: Preset
) -> tuple[list[str], list[str]]:
    """Sentences on the relation to earlier releases, and warnings; InputError if a difference is too small.

    Neither has a true number.
    """
    said, warned = [], []
    for old in before:
        which = f"release {old.name} of {old.date} (preset {old.preset})"
        if old.run == now.run:
            if old.preset != now.preset:
                raise InputError(
                    f"this run was released under preset {old.preset} ({old.name}, {old.date}); what two "
                    f"rules show of one table can be put together, so it is not under {now.preset} too"
                )
            said.append(f"{which} has the same numbers, of the same run.")
            continue
        both = [site for site in now.sites if site in old.sites]
        if not both:
            said.append(f"{which} has no site in common with this one.")
            continue
        min_difference = max(
            preset.min_people, PRESETS[old.preset].min_people if old.preset in PRESETS else 0
        )
        _check_differences(now, old, both, min_difference)
        said.append(
            f"{which} is of another run, of {len(both)} of the same sites; no number of persons differs from "
            f"this one by fewer than {min_difference}, other than by none. Numbers are compared, not who the persons "
            "are."
        )
        if replaced := _replaced(now, old, both):
            warned.append(
                f"{replaced}, as many persons as in release {old.name} and other values: somebody may have "
                "come for somebody else, or have changed, and the difference of both releases is about them. "
                "Counts are rounded, and so are means; look at both before both are handed out"
            )
        for j, size in enumerate(now.clusters):
            near = [c + 1 for c, n in enumerate(old.clusters) if 0 < abs(n - size) < min_difference]
            if near:
                others = ", ".join(map(str, near))
                warned.append(
                    f"cluster {j + 1} here and cluster {others} of release {old.name} have nearly as many "
                    "persons: if one holds the other, their difference is about a few persons. Counts are "
                    "rounded, and so are means; look at both before both are handed out"
                )
    return said, warned


def _replaced(now: ReleaseEntry, old: ReleaseEntry, both: list[str]) -> str:
    """Where there are as many persons as in an earlier release, but not the same ones; "" if nowhere.

    A site with as many persons, and a copy of another day; or the same sites with as many in all, and another
    mean of a column.
    """
    other = [
        site
        for site in both
        if now.sites[site] == old.sites[site]
        and site in now.summary_dates
        and site in old.summary_dates
        and now.summary_dates[site] != old.summary_dates[site]
    ]
    if other:
        return f"{', '.join(other)}: a copy of another day"
    if now.sites == old.sites and now.used == old.used:
        columns = [name for name, mean in now.means.items() if old.means.get(name, mean) != mean]
        return f"all sites together ({', '.join(columns)})" if columns else ""
    return ""


def _check_differences(now: ReleaseEntry, old: ReleaseEntry, both: list[str], min_difference: int) -> None:
    """Raise InputError where a population differs from an earlier one by some persons, but too few.

    ``min_difference`` is the larger number of both presets: what either of them protects is not shown by both.
    """
    pairs = [(f"site {site}", now.sites[site], old.sites[site]) for site in both]
    pairs.append(("the whole run", now.used, old.used))
    for what, here, there in pairs:
        if 0 < abs(here - there) < min_difference:
            raise InputError(
                f"{what} has {here:.0f} persons here and {there:.0f} in release {old.name} ({old.preset}): a "
                f"difference of {abs(here - there):.0f}, and nothing about fewer than {min_difference} is shown"
            )
