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

from unpooled.core.disk import write_atomically
from unpooled.data.copy import Copy
from unpooled.data.table import Table
from unpooled.errors import BadInput
from unpooled.privacy.copy import CopySettings
from unpooled.privacy.copy.make import assembled
from unpooled.privacy.copy.renew import Renewal, renewed
from unpooled.site.copy_folder import ABOUT, APPROVED, FURTHER, CopyFolder
from unpooled.site.erasures import Erasures
from unpooled.site.registry import Registry


def renew(
    place: CopyFolder, table: Table, *, keep_changed: bool = False, wider: float | None = None, made: str = ""
) -> Renewal:
    """Plan the renewal of a copy and write it beside; nothing is answered from it before it is approved.

    Nothing is written where nothing would change. An earlier renewal that nobody approved is replaced.
    """
    if wider is not None and not 0 <= wider <= 1:
        raise BadInput(f"wider must be from 0 to 1, got {wider!r}")
    settings = check_registered(place)
    with Registry.opened(place.folder) as persons:
        _check_current(place, persons)
        history, scales = persons.history(), persons.scales
        base = persons.mark
        found = renewed(
            history,
            scales,
            settings,
            table,
            persons.digest,
            keep_changed=keep_changed,
            wider=wider,
            made=made,
        )
        if found.empty:
            shutil.rmtree(place.renewal, ignore_errors=True)
            return found
        with place.built(found.copy, settings, registered=True) as building, persons.whole():
            if persons.mark != base:
                raise BadInput(f"{place.folder}: another process changed the registry meanwhile: renew again")
            persons.propose(_digest_in(building), found)
            shutil.rmtree(place.renewal, ignore_errors=True)
            os.rename(building, place.renewal)
    return found


class Erasure(NamedTuple):
    """The effect of an erasure."""

    groups: int  # taken out of the copy
    persons: int  # who are in them, and no longer shown
    never_shown: tuple[str, ...]  # ids of which nothing was ever shown
    emptied: tuple[Path, ...]  # earlier copies whose tables are gone


def erase(place: CopyFolder, ids: Iterable[str], by: str = "", *, bar: bool = False) -> Erasure:
    """Take persons out of the copy at once, each with his whole group, and never show them again.

    The new copy is the old one without these rows, so it is approved where the old one was. BadInput if one
    of the persons was never shown, unless ``bar`` says that such ids are to be barred from later copies.
    """
    wanted = tuple(dict.fromkeys(ids))
    if not wanted or not all(person.strip() for person in wanted):
        raise BadInput("an empty id is nobody's: name the persons as the file has them")
    settings = check_registered(place)
    with Registry.opened(place.folder) as persons:
        _check_current(place, persons)
        history, scales = persons.history(), persons.scales
        who = {person: persons.person(person) for person in wanted}
        unknown = [person for person in wanted if not history.of(who[person])]
        if unknown and not bar:
            raise BadInput(
                f"{place.folder}: never shown, so not known here: {', '.join(unknown)}. Nobody was erased. "
                "If it is no slip, and they must never be shown either, say --bar"
            )
        groups = {n for one in who.values() if (n := history.live_group(one)) is not None}
        approval = json.loads((place.path / APPROVED).read_text(encoding="utf-8")) if place.approved else None
        with persons.whole():
            digest = ""
            if groups:
                left = [history.groups[n].cells for n in sorted(history.live - groups)]
                copy = assembled(scales, [cells for cells in left if cells is not None])
                digest = _put_beside(place, copy, settings, approval)
            else:
                shutil.rmtree(place.renewal, ignore_errors=True)
            entry = os.urandom(16).hex()
            Erasures(place.folder).begin(entry, len(groups), by)  # running sites stop
            persons.erase(who.values(), digest, by, entry)
        emptied = place.settle()
    return Erasure(
        len(groups),
        sum(len(history.groups[n].members) for n in groups),
        tuple(unknown),
        emptied,
    )


def forget(place: CopyFolder, before: str) -> tuple[Path, ...]:
    """Delete the tables of earlier copies that were made before a date; the registry stays as it is."""
    try:
        day = datetime.strptime(before, "%Y-%m-%d").date().isoformat()
    except ValueError:
        raise BadInput(f"--before must be a date as 2026-11-16, got {before!r}") from None
    place.settle()
    return place.emptied(lambda about: str(about["made"]) < day)


def check_registered(place: CopyFolder) -> CopySettings:
    """The settings of a copy whose persons are in a registry; BadInput if they are not."""
    settings = place.settings()
    if not place.registered:
        why = "it was made before there were registries" if settings.person else "its rows name no persons"
        raise BadInput(
            f"{place.folder}: {why}, so nobody can be recognised in a changed table, and everybody would be "
            "shown a second time. A copy that is made anew is without the bound of renewals: unpooled copy "
            f'make --person COLUMN --further "{FURTHER}"'
        )
    return settings


def _check_current(place: CopyFolder, persons: Registry) -> None:
    place.read()
    if not persons.current:
        raise BadInput(f"{place.folder}: nobody approved the copy yet: unpooled copy approve {place.folder}")
    place.check_registry(persons)


def _put_beside(
    place: CopyFolder, copy: Copy, settings: CopySettings, approval: dict[str, Any] | None
) -> str:
    """Write a copy that takes the place of the present one when the registry says so; its digest."""
    with place.built(copy, settings, registered=True) as building:
        digest = _digest_in(building)
        if approval is not None:
            said = {**approval, "digest": digest, "after": "an erasure"}
            write_atomically(building / APPROVED, (json.dumps(said, indent=1) + "\n").encode())
        shutil.rmtree(place.renewal, ignore_errors=True)
        os.rename(building, place.renewal)
    return digest


def _digest_in(folder: Path) -> str:
    return str(json.loads((folder / ABOUT).read_text(encoding="utf-8"))["digest"])
