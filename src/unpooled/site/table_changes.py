"""Data that change: a copy is renewed, persons are erased from it, earlier copies are forgotten.

A renewal is planned and written beside the copy; the site goes on answering from the old one until somebody
approves the new one. An erasure is at once: the group of the person goes, and nothing comes in its place.
"""

import json
import os
import shutil
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from unpooled.data.summary_table import SummaryTable
from unpooled.data.table import Table
from unpooled.errors import InputError
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.privacy.microaggregation.renew import Renewal, plan_renewal
from unpooled.privacy.microaggregation.summarize import assemble_summary
from unpooled.site.erasures import Erasures
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
    """Plan the renewal of a copy and write it beside; nothing is answered from it before it is approved.

    Nothing is written where nothing would change. An earlier renewal that nobody approved is replaced.
    """
    if extra_spread is not None and not 0 <= extra_spread <= 1:
        raise InputError(f"wider must be from 0 to 1, got {extra_spread!r}")
    settings = check_registered(place)
    with Registry.open(place.folder) as people:
        _check_current(place, people)
        history, scales = people.history(), people.scales
        base = people.mark
        found = plan_renewal(
            history,
            scales,
            settings,
            table,
            people.digest,
            keep_changed=keep_changed,
            extra_spread=extra_spread,
            made=made,
        )
        if found.empty:
            shutil.rmtree(place.renewal, ignore_errors=True)
            return found
        with place.build(found.summary, settings, registered=True) as building, people.transaction():
            if people.mark != base:
                raise InputError(
                    f"{place.folder}: another process changed the registry meanwhile: renew again"
                )
            people.propose(_digest_in(building), found)
            shutil.rmtree(place.renewal, ignore_errors=True)
            os.rename(building, place.renewal)
    return found


class Erasure(NamedTuple):
    """The effect of an erasure."""

    groups: int  # taken out of the copy
    people: int  # who are in them, and no longer shown
    never_disclosed: tuple[str, ...]  # ids of which nothing was ever shown
    emptied: tuple[Path, ...]  # earlier copies whose tables are gone


def erase(place: SummaryFolder, ids: Iterable[str], by: str = "", *, block_unknown: bool = False) -> Erasure:
    """Take persons out of the copy at once, each with his whole group, and never show them again.

    The new copy is the old one without these rows, so it is approved where the old one was. InputError if one
    of the persons was never shown, unless ``block_unknown`` says that such ids are to be barred from later copies.
    """
    wanted = tuple(dict.fromkeys(ids))
    if not wanted or not all(person.strip() for person in wanted):
        raise InputError("an empty id is nobody's: name the persons as the file has them")
    settings = check_registered(place)
    with Registry.open(place.folder) as people:
        _check_current(place, people)
        history, scales = people.history(), people.scales
        who = {person: people.person(person) for person in wanted}
        unknown = [person for person in wanted if not history.groups_of(who[person])]
        if unknown and not block_unknown:
            raise InputError(
                f"{place.folder}: never shown, so not known here: {', '.join(unknown)}. Nobody was erased. "
                "If it is no slip, and they must never be shown either, say --block-unknown"
            )
        groups = {n for one in who.values() if (n := history.live_group(one)) is not None}
        approval = json.loads((place.path / APPROVED).read_text(encoding="utf-8")) if place.approved else None
        with people.transaction():
            digest = ""
            if groups:
                left = [history.groups[n].cells for n in sorted(history.live - groups)]
                copy = assemble_summary(scales, [cells for cells in left if cells is not None])
                digest = _put_beside(place, copy, settings, approval)
            else:
                shutil.rmtree(place.renewal, ignore_errors=True)
            entry = os.urandom(16).hex()
            Erasures(place.folder).begin(entry, len(groups), by)  # running sites stop
            people.erase(who.values(), digest, by, entry)
        emptied = place.recover()
    return Erasure(
        len(groups),
        sum(len(history.groups[n].members) for n in groups),
        tuple(unknown),
        emptied,
    )


def forget(place: SummaryFolder, before: str) -> tuple[Path, ...]:
    """Delete the tables of earlier copies that were made before a date; the registry stays as it is."""
    try:
        day = datetime.strptime(before, "%Y-%m-%d").date().isoformat()
    except ValueError:
        raise InputError(f"--before must be a date as 2026-11-16, got {before!r}") from None
    place.recover()
    return place.empty_tables(lambda about: str(about["made"]) < day)


def check_registered(place: SummaryFolder) -> SummarySettings:
    """The settings of a copy whose persons are in a registry; InputError if they are not."""
    settings = place.settings()
    if not place.registered:
        why = "it was made before there were registries" if settings.person else "its rows name no persons"
        raise InputError(
            f"{place.folder}: {why}, so nobody can be recognised in a changed table, and everybody would be "
            "shown a second time. A copy that is made anew is without the bound of renewals: unpooled site "
            f'summarize {place.folder} --data FILE --person COLUMN --second-table "{SECOND_TABLE}"'
        )
    return settings


def _check_current(place: SummaryFolder, people: Registry) -> None:
    place.read()
    if not people.current:
        raise InputError(
            f"{place.folder}: nobody approved the copy yet: unpooled site approve {place.folder} --table. "
            f'A different one is made with --second-table "{SECOND_TABLE}"'
        )
    place.check_registry(people)


def _put_beside(
    place: SummaryFolder, copy: SummaryTable, settings: SummarySettings, approval: dict[str, Any] | None
) -> str:
    """Write a copy that takes the place of the present one when the registry says so; its digest."""
    with place.build(copy, settings, registered=True) as building:
        digest = _digest_in(building)
        if approval is not None:
            said = {**approval, "digest": digest, "after": "an erasure"}
            write_atomically(building / APPROVED, (json.dumps(said, indent=1) + "\n").encode())
        shutil.rmtree(place.renewal, ignore_errors=True)
        os.rename(building, place.renewal)
    return digest


def _digest_in(folder: Path) -> str:
    return str(json.loads((folder / ABOUT).read_text(encoding="utf-8"))["digest"])
