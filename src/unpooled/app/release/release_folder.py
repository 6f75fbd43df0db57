"""The folder of a release: tables, figures, context for a checker, the controls that were applied."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from unpooled import __version__
from unpooled.app.private_result import PrivateResult
from unpooled.app.release import release_register
from unpooled.app.release.dominance import check_shares
from unpooled.app.release.release_figures import figures
from unpooled.app.release.release_tables import (
    ReleaseContents,
    breaches,
    build_private_release,
    build_release,
)
from unpooled.app.result import ClusterResult, JobResult, result_of
from unpooled.app.run_folder import RunFolder
from unpooled.data.transforms import Number
from unpooled.errors import InputError
from unpooled.privacy.presets import Preset

CONTROLS, CONTEXT, REGISTER = "controls.json", "context.txt", "releases.jsonl"


def release(
    run: Path,
    preset: Preset,
    name: str,
    consumption: tuple[str, ...],
    register: Path,
    uncertain: tuple[str, ...] = (),
) -> tuple[dict[str, str], list[release_register.ReleaseEntry], list[str]]:
    """The files of a release by name, the entries of the register with the new one, and warnings.

    Nothing is written. InputError names the number that breaks the preset.
    """
    kept = RunFolder(run)
    job = kept.load_job()
    result = result_of(job, kept.load_run(job))
    if (preset.mode == "dp") != isinstance(result, PrivateResult):
        raise InputError(
            f"{run}: a run with noise; it is released under --preset strict"
            if isinstance(result, PrivateResult)
            else f"{run}: a run without noise, and --preset {preset.name} releases noise only"
        )
    if isinstance(result, PrivateResult):
        made = build_private_release(result, preset)
    else:
        made = build_release(_clusters(result), preset, uncertain)
        check_shares(_clusters(result), preset, consumption)
    broken = breaches(made.tables, preset)
    if broken:
        raise InputError(f"{run}: {broken[0]}; {preset.name} does not allow it")
    date = datetime.now(UTC).date().isoformat()
    entries, now = release_register.read(register), release_register.entry_of(result, preset, name, date)
    said, warned = release_register.relation(now, entries, preset)
    if made.certain:
        warned.append(
            f"{len(made.certain)} numbers hold for nobody, or for everybody of a cluster; the end of "
            f"{CONTEXT} lists them. Where that tells something about whoever is known to be in the cluster, "
            "redact them: --uncertain COLUMNS"
        )
    unit = "rows" if isinstance(result, PrivateResult) else _clusters(result).unit
    files = {file: table.csv() for file, table in made.tables.items()} | figures(made, unit)
    context = _context(result, preset, made, unit, date, said, warned)
    files = {CONTEXT: context, **files}
    files[CONTROLS] = _controls(result, preset, made, unit, date, files, said, warned)
    _check_limits(files, made, preset)
    return files, [*entries, now], warned


def _clusters(result: JobResult) -> ClusterResult:
    assert isinstance(result, ClusterResult)
    return result


def _check_limits(files: dict[str, str], made: ReleaseContents, preset: Preset) -> None:
    for file, table in made.tables.items():
        if preset.max_rows and len(table.rows) > preset.max_rows:
            raise InputError(f"{file} has {len(table.rows)} rows; {preset.name} takes {preset.max_rows}")
    for file, text in files.items():
        if preset.max_bytes and len(text.encode()) > preset.max_bytes:
            raise InputError(f"{file} has {len(text.encode())} bytes; {preset.name} takes {preset.max_bytes}")


def _applied(preset: Preset, made: ReleaseContents, unit: str) -> list[str]:
    """Sentences on the controls, each with how often it was needed."""
    if preset.mode == "dp":
        return [
            "Every number carries noise that was paid for from a privacy budget.",
            f"Counts are rounded to multiples of {preset.rounding}.",
        ]
    said = [
        f"Counts of fewer than {preset.min_people} {unit}, and statistics about them, are redacted. No cluster "
        "has fewer.",
        f"Counts are rounded to the nearest {preset.rounding}; one that would be shown as fewer than "
        f"{preset.min_people} is redacted.",
        "Rates are of rounded counts. Means are rounded to the second digit of their standard deviation.",
        "Totals are sums of the counts that are shown, after rounding.",
        f"Further cells are redacted where a small one would follow from totals. {made.redacted} cells are "
        "redacted in all.",
        "No minimum, maximum, quantile or single value is in the release.",
    ]
    if preset.max_share:
        said.append(f"Nobody has more than {preset.max_share:.0%} of a total in a column of consumption.")
    return said


def _context(
    result: JobResult,
    preset: Preset,
    made: ReleaseContents,
    unit: str,
    date: str,
    said: list[str],
    warned: list[str],
) -> str:
    """The text for the output checker."""
    sites = ", ".join(sorted(made.sites))
    parts = [
        f"RELEASE OF A CLUSTERING, {date}",
        "",
        "Population",
        f"  About {made.population:.0f} {unit} (the sum of the rounded counts that are shown), in "
        f"{made.by_site.values.shape[1]} clusters, of: {sites}.",
        f"  {_unit(result, unit)}",
        "",
        "Variables",
        *(f"  {line}" for line in _variables(result)),
        "",
        "Files, and the count behind each number",
    ]
    for file, table in made.tables.items():
        beside = f"Counts: {', '.join(table.counts)}." if table.counts else ""
        parts.append(f"  {file}: {table.about} {beside}")
    parts += [
        "  clusters_by_site.svg: drawn from clusters_by_site.csv.",
        "  profiles.svg: drawn from profiles.csv.",
        "",
        f"Controls: preset {preset.name} ({preset.rule}; {preset.by})",
        *(f"  {line}" for line in _applied(preset, made, unit)),
        "",
        "Relation to earlier releases",
        *(f"  {line}" for line in (said or ["No earlier release of these sites is in the register."])),
    ]
    if warned:
        parts += ["", "To be looked at", *(f"  {line}." for line in warned)]
    if made.certain:
        parts += [
            "",
            "Numbers that hold for nobody, or for everybody of a cluster",
            *(f"  {c}" for c in made.certain),
        ]
    parts += ["", f"Made by unpooled {__version__} from run {result.run.id}, method {result.job.method}."]
    return "\n".join(parts) + "\n"


def _unit(result: JobResult, unit: str) -> str:
    if unit == "people":
        return "Sites answered from copies: counts are of persons, values of means over groups of persons."
    return "Counts are of rows: every row counts as a person."


def _variables(result: JobResult) -> list[str]:
    if isinstance(result, PrivateResult):
        return [f"{name}: number" for name in result.method.columns]
    transform = _clusters(result).agreement.preparation
    said = [
        f"{column.label}: number, in its own unit"
        if isinstance(column, Number)
        else f"{column.label}: category of {', '.join(column.places)}"
        for column in transform.columns
    ]
    missing = (
        "Rows that lack a value are left out."
        if transform.drop
        else "Values that are missing stay missing: a number is about those who have one."
        if transform.keeps_missing
        else "Missing numbers are filled with the mean of all, missing levels with the commonest."
    )
    return [*said, missing]


def _controls(
    result: JobResult,
    preset: Preset,
    made: ReleaseContents,
    unit: str,
    date: str,
    files: dict[str, str],
    said: list[str],
    warned: list[str],
) -> str:
    """The controls for programs: the preset, what was applied, every file with its digest."""
    value: dict[str, Any] = {
        "version": 1,
        "unpooled": __version__,
        "date": date,
        "run": result.run.id,
        "preset": asdict(preset),
        "unit": unit,
        "population": made.population,
        "sites": sorted(made.sites),
        "applied": _applied(preset, made, unit),
        "cells_redacted": made.redacted,
        "earlier_releases": said,
        "to_be_looked_at": warned,
        "files": {
            file: {
                "sha256": sha256(text.encode()).hexdigest(),
                "bytes": len(text.encode()),
                **({"rows": len(made.tables[file].rows)} if file in made.tables else {}),
                **({"counts": list(made.tables[file].counts)} if file in made.tables else {}),
            }
            for file, text in files.items()
        },
    }
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
