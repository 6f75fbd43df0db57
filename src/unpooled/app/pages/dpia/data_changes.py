"""The section of a DPIA report on data that change: updates, erasures, people no longer disclosed."""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unpooled.errors import LedgerError, UnpooledError
from unpooled.privacy.microaggregation.group_history import History
from unpooled.privacy.microaggregation.renew import STATES
from unpooled.site.people_register import FILE, Registry, ReleasedSummary
from unpooled.site.table_store import ABOUT, ERASURES, TABLE

DISCLOSED, RETURNS, UNDECIDED, WITHHELD, ERASED = "disclosed", "may return", "undecided", "withheld", "erased"


@dataclass(frozen=True)
class Changes:
    """The history of a site's summary tables."""

    kept: int = 0  # earlier summary tables that are in the folder
    emptied: int = 0  # of them: those whose tables were deleted
    registered: bool = False  # the people of the summary table are in a registry
    summaries: tuple[ReleasedSummary, ...] = ()
    groups: int = 0  # ever disclosed
    people: dict[str, int] = field(default_factory=dict)  # ever disclosed, or erased, by their state
    states: dict[str, int] = field(default_factory=dict)  # of the people in the file, at the last update
    pending: tuple[int, int] | None = None  # an update that nobody approved: groups withdrawn and added
    erasures: tuple[dict[str, Any], ...] = ()
    damage: str = ""  # why the registry could not be read


def read(folder: Path, *, registered: bool) -> Changes:
    """Return the facts from registry, erasures and earlier summary tables; nothing is changed."""
    before = sorted(path.parent for path in folder.glob(f"summary-*/{ABOUT}"))
    emptied = sum(not (path / TABLE).exists() for path in before)
    if not registered and not (folder / FILE).exists():
        return Changes(len(before), emptied)
    try:
        with Registry.open(folder) as registry:
            history, summaries = registry.history() if registry.current else History(1), registry.summaries()
            pending, states = registry.proposal() if summaries else None, registry.states
        erasures = _erasures(folder)
    except UnpooledError as error:
        return Changes(len(before), emptied, registered=True, damage=str(error))
    people = Counter(_state(history, person) for person in {*history.people, *history.erased})
    return Changes(
        len(before),
        emptied,
        True,
        summaries,
        len(history.groups),
        dict(people),
        states,
        pending,
        tuple(erasures),
    )


def _erasures(folder: Path) -> list[dict[str, Any]]:
    path = folder / ERASURES
    try:
        listed = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        return [{"utc": str(e["utc"]), "groups": int(e["groups"]), "by": str(e["by"])} for e in listed]
    except (ValueError, KeyError, TypeError):
        raise LedgerError(f"{path}: not a list of erasures, or damaged") from None


def _state(history: History, person: str) -> str:
    if person in history.erased:
        return ERASED
    if history.live_group(person) is not None:
        return DISCLOSED
    if history.may_return(person):
        return RETURNS
    return (
        WITHHELD
        if any(person in history.withheld.get(n, ()) for n in history.groups_of(person))
        else UNDECIDED
    )


def history(changes: Changes, mode: str) -> dict[str, Any]:
    """Return the values of the page's section: sentences, summary tables, erasures."""
    if mode == "raw":
        return _only(
            "Answers follow the rows: after a row has changed, the difference of two answers is that row."
        )
    if mode == "dp":
        return _only(
            "Answers follow the rows. Answers after a change are charged to the same privacy budget."
        )
    kept = f"The folder keeps {_many(changes.kept, 'earlier summary table', 'earlier summary tables')}"
    kept += f", {changes.emptied} of them without the table." if changes.emptied else "."
    if not changes.registered:
        text = (
            "The summary table was made without ids of people. It does not change with the rows, and cannot "
            "be updated; nobody can be erased from it by name. Nothing would bound what this table and a "
            "second, unrelated one disclose together."
        )
        return _only(text, kept)
    if changes.damage:
        return _only(changes.damage, kept)
    return {
        "from_registry": True,
        "sentences": [*_people(changes), kept],
        "summaries": [
            {
                "number": one.number,
                "since": one.since[:16].replace("T", " "),
                "by": one.approved_by,
                "added": one.added,
                "withdrawn": one.retired,
                "digest": one.digest[:16],
            }
            for one in changes.summaries
        ],
        "erasures": [(e["utc"][:16].replace("T", " "), e["by"], str(e["groups"])) for e in changes.erasures],
    }


def _only(*sentences: str) -> dict[str, Any]:
    return {"from_registry": False, "sentences": sentences, "summaries": [], "erasures": []}


def _people(changes: Changes) -> list[str]:
    count = Counter(changes.people)
    not_disclosed = {
        RETURNS: f"{_many(count[RETURNS], 'person was', 'people were')} disclosed before and may be "
        "disclosed again: they are pending until an update can group them with others, or have left the "
        "file.",
        UNDECIDED: f"{_many(count[UNDECIDED], 'person was', 'people were')} disclosed before, and the next "
        "update decides whether they can return.",
        WITHHELD: f"{_many(count[WITHHELD], 'person is', 'people are')} withheld for ever, so that others "
        "can return.",
    }
    sentences = [
        "Summary tables are updated by rules under which no combination of all sums ever disclosed is about "
        "fewer people than a group has.",
        f"{_many(changes.groups, 'group was', 'groups were')} ever disclosed.",
        f"{_many(count[DISCLOSED], 'person is', 'people are')} disclosed now.",
        *(text for state, text in not_disclosed.items() if count[state]),
        f"{_many(count[ERASED], 'person was', 'people were')} erased, and will not be disclosed again."
        if count[ERASED]
        else "Nobody was erased.",
    ]
    if changes.states:
        parts = "; ".join(
            f"{state}: {changes.states[state]}" for state in STATES if changes.states.get(state)
        )
        sentences.append(f"The last update had {sum(changes.states.values()):,} people in its file: {parts}.")
    if changes.pending is not None:
        groups = _many(changes.pending[0], "group", "groups")
        sentences.append(f"An update is pending: it withdraws {groups} and adds {changes.pending[1]}.")
    return sentences


def _many(count: int, one: str, more: str) -> str:
    """
    >>> _many(1, "group", "groups"), _many(2, "group", "groups")
    ('1 group', '2 groups')
    """
    return f"{count:,} {one if count == 1 else more}"
