"""The register of releases, which protects people against differences between releases about them.

The register is a file beside the folders of runs, ``releases.jsonl``. It holds true numbers and must not be
released itself.
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
from unpooled.html.formatting import cluster_letter
from unpooled.privacy.presets import PRESETS, Preset
from unpooled.storage.atomic_files import write_atomically
from unpooled.storage.file_locks import lock

_COMPARE = "Counts and means are rounded; compare both releases before you hand out both."


@dataclass(frozen=True)
class ReleaseEntry:
    """One release, with true numbers."""

    name: str  # of its folder
    date: str
    run: str
    preset: str
    sites: dict[str, float]  # people of every site
    used: float  # people that are clustered
    clusters: tuple[float, ...]
    columns: tuple[str, ...]
    summary_dates: dict[str, str] = field(default_factory=dict)  # by site: the date of its summary table
    means: dict[str, str] = field(default_factory=dict)  # by column: a digest of the mean over all sites


def entry_of(result: JobResult, preset: Preset, name: str, date: str) -> ReleaseEntry:
    """Return the entry of a run that is about to be released."""
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
    """Return the entries of a register, none if there is no file; InputError names a line that is wrong."""
    if not path.exists():
        return []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a register of releases ({error})") from error
    entries = []
    for number, line in enumerate(lines, 1):
        try:
            values = json.loads(line)
            for name in ("clusters", "columns"):
                values[name] = tuple(values[name])
            entries.append(ReleaseEntry(**values))
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"{path}, line {number}: not an entry of a register of releases") from error
    return entries


def add(path: Path, entries: Sequence[ReleaseEntry]) -> None:
    """Write a register whose last entry is new; raise InputError if another release was noted meanwhile."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        lock(folder, wait=True)
        if read(path) != list(entries[:-1]):
            raise InputError(f"{path}: another release was noted meanwhile. Try again.")
        text = "".join(json.dumps(asdict(entry), ensure_ascii=False) + "\n" for entry in entries)
        write_atomically(path, text.encode())
    finally:
        os.close(folder)


def relation(
    now: ReleaseEntry, before: Iterable[ReleaseEntry], preset: Preset
) -> tuple[list[str], list[str]]:
    """Return sentences on the relation to earlier releases, and warnings, both without true numbers.

    Raise InputError if the difference to an earlier release is too small.
    """
    relations, warnings = [], []
    for old in before:
        which = f"release {old.name} of {old.date} (preset {old.preset})"
        if old.run == now.run:
            if old.preset != now.preset:
                raise InputError(
                    f"this run was released under preset {old.preset} ({old.name}, {old.date}). It cannot be "
                    f"released under {now.preset} too, because two versions disclose more than one."
                )
            relations.append(f"{which} has the same numbers, from the same run.")
            continue
        both = [site for site in now.sites if site in old.sites]
        if not both:
            relations.append(f"{which} has no site in common with this one.")
            continue
        min_people = PRESETS[old.preset].min_people if old.preset in PRESETS else 0
        min_difference = max(preset.min_people, min_people)
        _check_differences(now, old, both, min_difference)
        relations.append(
            f"{which} is from another run, with {len(both)} of the same sites. The numbers of people at each "
            f"of these and in total are equal in both, or differ by at least {min_difference}. The check "
            "compares numbers, not identities."
        )
        if replaced := _replaced(now, old, both):
            warnings.append(
                f"{replaced}, as many people as in release {old.name} but other values: a person may have "
                "been replaced or have new values, and the difference between both releases is about that "
                f"person. {_COMPARE}"
            )
        for j, size in enumerate(now.clusters):
            near = [i for i, n in enumerate(old.clusters) if 0 < abs(n - size) < min_difference]
            if near:
                others = ", ".join(map(cluster_letter, near))
                warnings.append(
                    f"cluster {cluster_letter(j)} here and cluster {others} of release {old.name} have "
                    "nearly as many people: if one contains the other, their difference is about a few "
                    f"people. {_COMPARE}"
                )
    return relations, warnings


def _replaced(now: ReleaseEntry, old: ReleaseEntry, both: list[str]) -> str:
    """Return where there are as many people as in an earlier release, but not the same; "" if nowhere.

    That is a site with as many people and a summary table of another day, or the same sites with as many
    people in total and another mean of a column.
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
        return f"{', '.join(other)}: a summary table of another day"
    if now.sites == old.sites and now.used == old.used:
        columns = [name for name, mean in now.means.items() if old.means.get(name, mean) != mean]
        return f"all sites together ({', '.join(columns)})" if columns else ""
    return ""


def _check_differences(now: ReleaseEntry, old: ReleaseEntry, both: list[str], min_difference: int) -> None:
    """Raise InputError if a population differs from an earlier one by some people, but too few.

    ``min_difference`` is the larger minimum of both presets, so that both together disclose no smaller group.
    """
    pairs = [(f"site {site}", now.sites[site], old.sites[site]) for site in both]
    pairs.append(("the whole run", now.used, old.used))
    for what, here, there in pairs:
        if 0 < abs(here - there) < min_difference:
            raise InputError(
                f"{what} has {here:.0f} people here and {there:.0f} in release {old.name} ({old.preset}): a "
                f"difference of {abs(here - there):.0f}, and nothing about fewer than {min_difference} may "
                "be disclosed"
            )
