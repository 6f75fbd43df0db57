"""Changes of the data: a summary table is updated, and earlier tables are deleted.

An update is planned and written next to the summary table; the site answers from the old table until somebody
approves the new one. ``erase_people`` changes the table at once.
"""

import json
import os
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

from unpooled.data.summary_table import SummaryTable
from unpooled.data.table import Table
from unpooled.errors import InputError
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.privacy.microaggregation.renew import Renewal, plan_renewal
from unpooled.site.folder_consistency import check_registry
from unpooled.site.people_register import Registry
from unpooled.site.table_store import ABOUT, APPROVED, SECOND_TABLE, SummaryFolder
from unpooled.storage.atomic_files import write_atomically


def renew(
    place: SummaryFolder,
    table: Table,
    *,
    keep_changed: bool = False,
    extra_spread: float | None = None,
    made: str = "",
) -> Renewal:
    """Plan the update of a summary table and write it as pending; the site answers from it once approved.

    Nothing is written if nothing would change. An earlier update that nobody approved is replaced.
    """
    if extra_spread is not None and not 0 <= extra_spread <= 1:
        raise InputError(f"the extra spread must be from 0 to 1, got {extra_spread!r}")
    settings = check_registered(place)
    with Registry.open(place.folder) as people:
        check_current(place, people)
        history, scales = people.history(), people.scales
        base = people.mark
        renewal = plan_renewal(
            history,
            scales,
            settings,
            table,
            people.digest,
            keep_changed=keep_changed,
            extra_spread=extra_spread,
            made=made,
        )
        if renewal.empty:
            shutil.rmtree(place.renewal, ignore_errors=True)
            return renewal
        with place.build(renewal.summary, settings, registered=True) as building, people.transaction():
            if people.mark != base:
                raise InputError(
                    f"{place.folder}: another process changed the registry meanwhile. Run unpooled site "
                    "summarize again."
                )
            people.propose(_digest_in(building), renewal)
            shutil.rmtree(place.renewal, ignore_errors=True)
            os.rename(building, place.renewal)
    return renewal


def forget(place: SummaryFolder, before: str) -> tuple[Path, ...]:
    """Delete the earlier tables that were made before a date; the registry stays as it is."""
    try:
        day = datetime.strptime(before, "%Y-%m-%d").date().isoformat()
    except ValueError:
        raise InputError(f"--before must be a date such as 2026-11-16, got {before!r}") from None
    place.recover()
    return place.empty_tables(lambda about: str(about["made"]) < day)


def check_registered(place: SummaryFolder) -> SummarySettings:
    """The settings of a summary table whose people are in a registry; InputError if they are not."""
    settings = place.settings()
    if not place.registered:
        why = "it has no registry" if settings.person else "its rows have no person column"
        raise InputError(
            f"{place.folder}: the summary table cannot be updated: {why}, so nobody can be recognised in "
            "changed data. A new table does not have the bound that holds for updates. Make one with "
            f"unpooled site summarize {place.folder} --data FILE --person COLUMN --second-table "
            f'"{SECOND_TABLE}".'
        )
    return settings


def check_current(place: SummaryFolder, people: Registry) -> None:
    """Raise InputError unless the summary table is approved and the one that the registry names."""
    place.read()
    if not people.current:
        raise InputError(
            f"{place.folder}: nobody approved the summary table yet. Approve it with unpooled site approve "
            f"{place.folder} --table, or make it anew with unpooled site summarize."
        )
    check_registry(place.folder, people, place.digest)


def put_beside(
    place: SummaryFolder, summary: SummaryTable, settings: SummarySettings, approval: dict[str, Any] | None
) -> str:
    """Write a table that replaces the present one as soon as the registry names it; returns its digest."""
    with place.build(summary, settings, registered=True) as building:
        digest = _digest_in(building)
        if approval is not None:
            note = {**approval, "digest": digest, "after": "an erasure"}
            write_atomically(building / APPROVED, (json.dumps(note, indent=1) + "\n").encode())
        shutil.rmtree(place.renewal, ignore_errors=True)
        os.rename(building, place.renewal)
    return digest


def _digest_in(folder: Path) -> str:
    return str(json.loads((folder / ABOUT).read_text(encoding="utf-8"))["digest"])
