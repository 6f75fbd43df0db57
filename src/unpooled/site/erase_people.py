"""Erasure of people at their request (GDPR, Article 17): it takes effect at once.

The group of each person is withdrawn from the summary table, and nothing takes its place.
"""

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from unpooled.errors import InputError
from unpooled.privacy.microaggregation.summarize import assemble_summary
from unpooled.site.erasures import Erasures
from unpooled.site.people_register import Registry
from unpooled.site.table_changes import check_current, check_registered, put_beside
from unpooled.site.table_store import APPROVED, SummaryFolder


class Erasure(NamedTuple):
    """The effect of an erasure."""

    groups: int  # withdrawn from the summary table
    people: int  # in these groups, and no longer disclosed
    never_disclosed: tuple[str, ...]  # ids of people who were never disclosed
    emptied: tuple[Path, ...]  # folders of earlier tables that were deleted


class PlannedErasure(NamedTuple):
    """The effect that an erasure would have."""

    groups: int  # that would be withdrawn
    people: int  # in these groups
    left: int  # people who would stay disclosed
    never_disclosed: tuple[str, ...]  # ids of people who were never disclosed


def plan_erasure(place: SummaryFolder, ids: Iterable[str], *, block_unknown: bool = False) -> PlannedErasure:
    """Return the effect of an erasure, and write nothing; InputError as from ``erase``."""
    check_registered(place)
    with Registry.open(place.folder) as people:
        check_current(place, people)
        found = _find(place, people, ids, block_unknown)
        history = people.history()
    return PlannedErasure(
        len(found.groups),
        sum(len(history.groups[n].members) for n in found.groups),
        sum(len(history.groups[n].members) for n in history.live - found.groups),
        found.unknown,
    )


class _Found(NamedTuple):
    """People in the registry."""

    who: tuple[str, ...]  # their keyed digests
    groups: set[int]  # the groups in the summary table that they are in
    unknown: tuple[str, ...]  # ids of people who were never disclosed


def _find(place: SummaryFolder, people: Registry, ids: Iterable[str], block_unknown: bool) -> _Found:
    """Return people in the registry; InputError for an id that is empty or, unless wanted, unknown."""
    requested = tuple(dict.fromkeys(ids))
    if not requested or not all(person.strip() for person in requested):
        raise InputError("an id is empty. Give the ids of the people as they are in the file.")
    history = people.history()
    who = {person: people.person(person) for person in requested}
    unknown = tuple(person for person in requested if not history.groups_of(who[person]))
    if unknown and not block_unknown:
        raise InputError(
            f"{place.folder}: never disclosed, so not known here: {', '.join(unknown)}. Nobody was "
            "erased. Correct the ids, or use --block-unknown to keep these ids out of later tables too."
        )
    groups = {n for one in who.values() if (n := history.live_group(one)) is not None}
    return _Found(tuple(who.values()), groups, unknown)


def erase(place: SummaryFolder, ids: Iterable[str], by: str = "", *, block_unknown: bool = False) -> Erasure:
    """Withdraw the groups of some people at once, and never disclose these people again.

    The new summary table is the old one without these rows, so it is approved if the old one was. InputError
    if one of the people was never disclosed, unless ``block_unknown`` keeps such ids out of later tables.
    """
    settings = check_registered(place)
    with Registry.open(place.folder) as people:
        check_current(place, people)
        history, scales = people.history(), people.scales
        who, groups, unknown = _find(place, people, ids, block_unknown)
        approval = json.loads((place.path / APPROVED).read_text(encoding="utf-8")) if place.approved else None
        with people.transaction():
            digest = ""
            if groups:
                left = [history.groups[n].cells for n in sorted(history.live - groups)]
                summary = assemble_summary(scales, [cells for cells in left if cells is not None])
                digest = put_beside(place, summary, settings, approval)
            else:
                shutil.rmtree(place.renewal, ignore_errors=True)
            entry = os.urandom(16).hex()
            Erasures(place.folder).begin(entry, len(groups), by)  # running sites stop
            people.erase(who, digest, by, entry)
        emptied = place.recover()
    return Erasure(
        len(groups),
        sum(len(history.groups[n].members) for n in groups),
        unknown,
        emptied,
    )
