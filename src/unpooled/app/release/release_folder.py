"""The folder of a release: tables, figures, context for the output checker, and the applied controls."""

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
from unpooled.app.result import ClusterResult, JobResult
from unpooled.app.run_folder import RunFolder
from unpooled.data.transforms import Number
from unpooled.errors import InputError
from unpooled.html.formatting import counted
from unpooled.privacy.presets import Preset
from unpooled.storage.file_format import FORMAT

CONTROLS, CONTEXT, REGISTER = "controls.json", "context.txt", "releases.jsonl"


def release(
    run: Path,
    preset: Preset,
    name: str,
    consumption: tuple[str, ...],
    register: Path,
    uncertain: tuple[str, ...] = (),
) -> tuple[dict[str, str], list[release_register.ReleaseEntry], list[str]]:
    """Return the files of a release by name, the register with the new entry, and warnings.

    Nothing is written. InputError names the number that breaks the preset.
    """
    folder = RunFolder(run)
    result = folder.load_any_result(folder.load_job())
    if (preset.mode == "dp") != isinstance(result, PrivateResult):
        raise InputError(
            f"{run}: a run with differential privacy. Release it under --preset strict."
            if isinstance(result, PrivateResult)
            else f"{run}: a run without noise, and --preset {preset.name} releases noisy numbers only"
        )
    if isinstance(result, PrivateResult):
        contents = build_private_release(result, preset)
    else:
        contents = build_release(_clusters(result), preset, uncertain)
        check_shares(_clusters(result), preset, consumption)
    broken = breaches(contents.tables, preset)
    if broken:
        raise InputError(f"{run}: {broken[0]}; {preset.name} does not allow it")
    date = datetime.now(UTC).date().isoformat()
    entries, now = release_register.read(register), release_register.entry_of(result, preset, name, date)
    relations, warnings = release_register.relation(now, entries, preset)
    if certain := len(contents.certain):
        apply = "apply" if certain > 1 else "applies"
        warnings.append(
            f"{counted(certain, 'number')} {apply} to nobody, or to everybody of a cluster; the end of "
            f"{CONTEXT} lists them. If such a number discloses something about people known to be in the "
            "cluster, redact it with --uncertain COLUMNS."
        )
    unit = "rows" if isinstance(result, PrivateResult) else _clusters(result).unit
    files = {file: table.csv() for file, table in contents.tables.items()} | figures(contents, unit)
    context = _context(result, preset, contents, unit, date, relations, warnings)
    files = {CONTEXT: context, **files}
    files[CONTROLS] = _controls(result, preset, contents, unit, date, files, relations, warnings)
    _check_limits(files, contents, preset)
    return files, [*entries, now], warnings


def _clusters(result: JobResult) -> ClusterResult:
    assert isinstance(result, ClusterResult)
    return result


def _check_limits(files: dict[str, str], contents: ReleaseContents, preset: Preset) -> None:
    for file, table in contents.tables.items():
        if preset.max_rows and len(table.rows) > preset.max_rows:
            raise InputError(f"{file} has {len(table.rows)} rows; {preset.name} allows {preset.max_rows}")
    for file, text in files.items():
        if preset.max_bytes and len(text.encode()) > preset.max_bytes:
            raise InputError(
                f"{file} has {len(text.encode())} bytes; {preset.name} allows {preset.max_bytes}"
            )


def _applied(preset: Preset, contents: ReleaseContents, unit: str) -> list[str]:
    """Return sentences on the controls that were applied."""
    if preset.mode == "dp":
        return [
            "Every number carries noise that was charged to a privacy budget.",
            f"Counts are rounded to multiples of {preset.rounding}.",
        ]
    controls = [
        f"Counts of fewer than {preset.min_people} {unit}, and statistics about them, are redacted. No "
        "cluster has fewer.",
        f"Counts are rounded to the nearest {preset.rounding}; a count that would round to fewer than "
        f"{preset.min_people} is redacted.",
        "Rates are computed from rounded counts. Means are rounded to the second digit of their standard "
        "deviation.",
        "Totals are sums of the disclosed counts, after rounding.",
        "More cells are redacted if a small one could be computed from totals (complementary suppression). "
        f"{contents.redacted} cells are redacted in total.",
        "No minimum, maximum, quantile or single value is in the release.",
    ]
    if preset.max_share:
        controls.append(f"Nobody has more than {preset.max_share:.0%} of a total in a column of consumption.")
    return controls


def _context(
    result: JobResult,
    preset: Preset,
    contents: ReleaseContents,
    unit: str,
    date: str,
    relations: list[str],
    warnings: list[str],
) -> str:
    """Return the text for the output checker."""
    sites = ", ".join(sorted(contents.sites))
    parts = [
        f"RELEASE OF A CLUSTERING, {date}",
        "",
        "Population",
        f"  About {contents.population:.0f} {unit} (the sum of the rounded counts that are disclosed), in "
        f"{contents.by_site.values.shape[1]} clusters, from: {sites}.",
        f"  {_unit(result, unit)}",
        "",
        "Variables",
        *(f"  {line}" for line in _variables(result)),
        "",
        "Files, and the count behind each number",
    ]
    for file, table in contents.tables.items():
        counts = f"Counts: {', '.join(table.counts)}." if table.counts else ""
        parts.append(f"  {file}: {table.about} {counts}")
    parts += [
        "  clusters_by_site.svg: drawn from clusters_by_site.csv.",
        "  profiles.svg: drawn from profiles.csv.",
        "",
        f"Controls: preset {preset.name} ({preset.rule}; {preset.by})",
        *(f"  {line}" for line in _applied(preset, contents, unit)),
        "",
        "Relation to earlier releases",
        *(f"  {line}" for line in (relations or ["No earlier release of these sites is in the register."])),
    ]
    if warnings:
        parts += ["", "To be checked", *(f"  {line}" for line in warnings)]
    if contents.certain:
        parts += [
            "",
            "Numbers that apply to nobody, or to everybody of a cluster",
            *(f"  {c}" for c in contents.certain),
        ]
    parts += ["", f"Made by unpooled {__version__} from run {result.run.id}, method {result.job.method}."]
    return "\n".join(parts) + "\n"


def _unit(result: JobResult, unit: str) -> str:
    if unit == "people":
        return (
            "Sites answered from summary tables: counts are of people, values of means over groups of people."
        )
    return "Counts are of rows: every row counts as a person."


def _variables(result: JobResult) -> list[str]:
    if isinstance(result, PrivateResult):
        return [f"{name}: number" for name in result.method.columns]
    transform = _clusters(result).agreement.preparation
    variables = [
        f"{column.label}: number, in its own unit"
        if isinstance(column, Number)
        else f"{column.label}: categories {', '.join(column.places)}"
        for column in transform.columns
    ]
    missing = (
        "Rows that lack a value are left out."
        if transform.drop
        else "Missing values stay missing: a number is about the people who have a value."
        if transform.keeps_missing
        else "Missing numbers are filled with the mean of all, missing categories with the most frequent one."
    )
    return [*variables, missing]


def _controls(
    result: JobResult,
    preset: Preset,
    contents: ReleaseContents,
    unit: str,
    date: str,
    files: dict[str, str],
    relations: list[str],
    warnings: list[str],
) -> str:
    """Return the manifest for programs: the preset, the applied controls, every file with its digest."""
    value: dict[str, Any] = {
        "format": FORMAT,
        "unpooled": __version__,
        "date": date,
        "run": result.run.id,
        "preset": asdict(preset),
        "unit": unit,
        "population": contents.population,
        "sites": sorted(contents.sites),
        "applied": _applied(preset, contents, unit),
        "cells_redacted": contents.redacted,
        "earlier_releases": relations,
        "to_be_checked": warnings,
        "files": {
            file: {
                "sha256": sha256(text.encode()).hexdigest(),
                "bytes": len(text.encode()),
                **({"rows": len(contents.tables[file].rows)} if file in contents.tables else {}),
                **({"counts": list(contents.tables[file].counts)} if file in contents.tables else {}),
            }
            for file, text in files.items()
        },
    }
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
