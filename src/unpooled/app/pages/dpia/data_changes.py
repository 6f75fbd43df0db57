"""A dossier's words on data that change: renewals, erasures, who is no longer shown; from the registry."""

import json
from collections import Counter
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from unpooled.errors import LedgerError, UnpooledError
from unpooled.html.html import section, table
from unpooled.privacy.microaggregation.group_history import History
from unpooled.privacy.microaggregation.renew import STATES
from unpooled.site.people_register import FILE, Registry, ReleasedSummary
from unpooled.site.table_store import ABOUT, ERASURES, TABLE

DISCLOSED, RETURNS, UNDECIDED, WITHHELD, ERASED = "disclosed", "may return", "undecided", "withheld", "erased"


@dataclass(frozen=True)
class Changes:
    """The history of a site's copies."""

    kept: int = 0  # earlier copies that are in the folder
    emptied: int = 0  # of them: whose tables were deleted
    registered: bool = False  # persons of the copy are in a registry
    summaries: tuple[ReleasedSummary, ...] = ()
    groups: int = 0  # ever shown
    people: dict[str, int] = field(default_factory=dict)  # ever shown, or erased: by what became of them
    states: dict[str, int] = field(default_factory=dict)  # of the persons in the file, at the last renewal
    pending: tuple[int, int] | None = None  # a renewal that nobody approved: groups it takes out, and adds
    erasures: tuple[dict[str, Any], ...] = ()
    damage: str = ""  # why the registry could not be read


def read(folder: Path, *, registered: bool) -> Changes:
    """The facts from registry, erasures and earlier copies; nothing is changed."""
    before = sorted(path.parent for path in folder.glob(f"summary-*/{ABOUT}"))
    emptied = sum(not (path / TABLE).exists() for path in before)
    if not registered and not (folder / FILE).exists():
        return Changes(len(before), emptied)
    try:
        with Registry.open(folder) as registry:
            history, copies = registry.history() if registry.current else History(1), registry.summaries()
            waiting, states = registry.proposal() if copies else None, registry.states
        erasures = _erasures(folder)
    except UnpooledError as error:
        return Changes(len(before), emptied, registered=True, damage=str(error))
    became = Counter(_became(history, person) for person in {*history.people, *history.erased})
    return Changes(
        len(before),
        emptied,
        True,
        copies,
        len(history.groups),
        dict(became),
        states,
        waiting,
        tuple(erasures),
    )


def _erasures(folder: Path) -> list[dict[str, Any]]:
    path = folder / ERASURES
    try:
        said = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        return [{"utc": str(one["utc"]), "groups": int(one["groups"]), "by": str(one["by"])} for one in said]
    except (ValueError, KeyError, TypeError):
        raise LedgerError(f"{path}: not a list of erasures, or damaged") from None


def _became(history: History, person: str) -> str:
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


def history_section(changes: Changes, mode: str) -> str:
    """The section of the page."""
    title = "Data that change"
    if mode == "raw":
        said = ["Answers follow the rows: what an answer differs by, after a row has changed, is that row."]
        return section(title, _list(said))
    if mode == "dp":
        said = ["Answers follow the rows. Those after a change are paid for from the same budget."]
        return section(title, _list(said))
    kept = f"{_many(changes.kept, 'earlier copy is', 'earlier copies are')} kept beside the copy"
    kept += f", of which {changes.emptied} without the table." if changes.emptied else "."
    if not changes.registered:
        said = [
            "The copy was made without ids of persons. It stays as it is when rows change, and cannot be "
            "renewed; nobody can be erased from it by name. A further copy would be without a bound on what "
            "both tell together.",
            kept,
        ]
        return section(title, _list(said))
    if changes.damage:
        return section(title, _list([changes.damage, kept]))
    body = _list([*_persons(changes), kept])
    rows = [
        (
            str(one.number),
            escape(one.since[:16].replace("T", " ")),
            escape(one.approved_by),
            str(one.added),
            str(one.retired),
            f"<code>{escape(one.digest[:16])}</code>",
        )
        for one in changes.summaries
    ]
    if rows:
        head = ("summary", "answered from since (UTC)", "by", "groups added", "taken out", "digest")
        body += table(head, rows, left=(1, 2, 5))
    if changes.erasures:
        lines = [
            (escape(e["utc"][:16].replace("T", " ")), escape(e["by"]), str(e["groups"]))
            for e in changes.erasures
        ]
        body += '<h3 class="next">Erasures</h3>' + table(
            ("when (UTC)", "by", "groups taken out"), lines, left=(0, 1)
        )
    return section(title, body, "From registry.sqlite and erasures.json, which name persons by digests only.")


def _persons(changes: Changes) -> list[str]:
    many = Counter(changes.people)
    said = [
        "Copies are renewed by rules under which no combination of all that was ever shown is about fewer "
        f"persons than a group has. {_many(changes.groups, 'group was', 'groups were')} ever shown.",
        f"{_many(many[DISCLOSED], 'person is', 'persons are')} shown now.",
        f"{_many(many[RETURNS], 'person was', 'persons were')} shown before and may be shown again: they "
        "wait for a renewal with others they can be with, or have left the file.",
        f"{_many(many[UNDECIDED], 'person was', 'persons were')} shown before, and the next renewal decides "
        "whether they can return.",
        f"{_many(many[WITHHELD], 'person is', 'persons are')} held back for ever, so that others could return.",
        f"{_many(many[ERASED], 'person was', 'persons were')} erased, and will never be shown again."
        if many[ERASED]
        else "Nobody was erased.",
    ]
    if changes.states:
        parts = "; ".join(
            f"{state}: {changes.states[state]}" for state in STATES if changes.states.get(state)
        )
        said.append(f"Of {sum(changes.states.values()):,} persons in the file at the last renewal: {parts}.")
    if changes.pending is not None:
        out, added = changes.pending
        said.append(
            f"A renewal waits for approval: it takes {_many(out, 'group', 'groups')} out and adds {added}."
        )
    return said


def _many(count: int, one: str, more: str) -> str:
    """
    >>> _many(1, "group", "groups"), _many(2, "group", "groups")
    ('1 group', '2 groups')
    """
    return f"{count:,} {one if count == 1 else more}"


def _list(sentences: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in sentences) + "</ul>"
