"""The review page of a site's officer: pending studies, the log, the summary table, the privacy budget."""

from typing import Any

from unpooled.app.pages.layout import BAD, GOOD, PENDING, QUIET
from unpooled.app.pages.table_page import definition
from unpooled.html.formatting import counted, size, times
from unpooled.html.rendering import fragment, render

_LABELS = {
    "clusters": "k",
    "key": "coordinator's key",
}
NAME = "review page"
_DECIDED = 50  # studies that are listed
_STATES = {"approved": GOOD, "pending": PENDING, "declined": QUIET, "withdrawn": BAD, "expired": QUIET}
_CONNECTED = {"connected": GOOD, "trying to connect": PENDING, "awaiting admission": PENDING}
_ACTS = {"approve": "Approve", "decline": "Decline", "withdraw": "Withdraw"}
_MEANS = {
    "approve": "The site then answers this run, within the limits of the study, until the study expires. The "
    "log records the approval. You can withdraw it at any time.",
    "decline": "The run continues without this site, and the coordinator receives your reason. The site "
    "sends nothing.",
    "withdraw": "The site refuses the next query of the run, even in the middle of it. Answers that it sent "
    "before cannot be taken back.",
}


def title(state: dict[str, Any]) -> str:
    """Return the title of the window."""
    pending = sum(study["pending"] for study in state["studies"])
    return f"{f'({pending}) ' if pending else ''}{state['name']}: review page"


def heading(state: dict[str, Any]) -> str:
    """Return the heading of the page."""
    return f"Review page of {state['name']}"


def where(state: dict[str, Any]) -> str:
    """Return the line at the top as HTML: the site, and whether it is connected."""
    kind = _CONNECTED.get(state["state"], BAD)
    return _section(
        "where", name=state["name"], federation=state["federation"], kind=kind, state=state["state"]
    )


def sections(state: dict[str, Any]) -> dict[str, str]:
    """Return the sections of the page by name, each as HTML."""
    return {
        "overview": _overview(state),
        "pending": _section("pending", studies=[_study(s) for s in state["studies"] if s["pending"]]),
        "decided": _decided(state),
        "sent": _sent(state),
        "summary": _summary(state),
        "budget": _budget(state),
        "dpia": _section("dpia"),
    }


def _section(name: str, /, **values: object) -> str:
    return fragment("review.html", name, **values)


def _overview(state: dict[str, Any]) -> str:
    pending = sum(study["pending"] for study in state["studies"])
    first = f"{pending} studies wait" if pending > 1 else "1 study waits"
    summary, sent = state["summary"] or {}, state["sent"]
    values = []
    if "people" in summary:
        label = f"people in {counted(summary['groups'], 'group')} of the summary table"
        values.append((f"{summary['people']:,.0f}", label))
    if sent is not None:
        values += [
            (f"{sent['answers']:,}", "answers sent"),
            (f"{sent['numbers']:,}", "numbers in them"),
            (size(sent["bytes"]), "in total"),
            ("intact" if sent["intact"] else "NOT INTACT", "the log"),
        ]
    elif not state["has_log"]:
        values.append(("nothing", "sent"))
    purposes = "any purpose" if "*" in state["purposes"] else "; ".join(state["purposes"])
    return _section(
        "overview",
        first=f"{first} for your decision." if pending else "No study waits for your decision.",
        automatic=purposes,
        problems=state["problems"],
        values=values,
    )


# ---------------------------------------------------------------- studies


def _study(study: dict[str, Any]) -> dict[str, Any]:
    """Return a study as the page shows it."""
    last = study["decisions"][-1] if study["decisions"] else {"by": "", "at": "", "reason": ""}
    return {
        "id": study["digest"][:16],
        "title": study["title"],
        "purpose": study["purpose"],
        "state": study["state"],
        "kind": _STATES[study["state"]],
        "expires": study["expires"],
        "by": last["by"],
        "at": last["at"],
        "reason": last["reason"],
        "statement": _statement(study),
        "queries": study["queries"],
        "acts": [
            {
                "verb": verb,
                "href": f"study/{study['digest']}/{verb}",
                "text": _ACTS[verb],
                "label": f"{_ACTS[verb]} the study {study['title']}",
            }
            for verb in study["decisions_open"]
        ],
    }


def _statement(study: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the complete statement of a study: (name, kind of the value, value)."""
    items = []
    for name, value in study["sentences"]:
        if name == "key" and " " not in value:
            items.append((_LABELS[name], "code", _grouped(value)))
        elif name != "title":
            kind = "time" if name in ("proposed", "expires") else "text"
            items.append((_LABELS.get(name, name), kind, value))
    return [*items, ("received", "time", study["received"]), ("digest", "code", _grouped(study["digest"]))]


def _grouped(digits: str) -> str:
    """Return a key or digest in groups that can be read aloud.

    >>> _grouped("0123456789abcdef")
    '01234567 89abcdef'
    """
    return " ".join(digits[i : i + 8] for i in range(0, len(digits), 8))


def _decided(state: dict[str, Any]) -> str:
    studies = [study for study in state["studies"] if not study["pending"]]
    return _section(
        "decided",
        studies=[_study(study) for study in studies[: -_DECIDED - 1 : -1]],
        more=max(len(studies) - _DECIDED, 0),
        command=f"unpooled site status {state['folder']}",
    )


# ---------------------------------------------------------------- summary table, log, budget


def _summary(state: dict[str, Any]) -> str:
    table = state["summary"]
    source = {"dp": "with differential privacy", "raw": "from its raw rows"}.get(state["mode"] or "", "")
    return _section(
        "summary",
        table=table,
        source=source,
        auto_approve=state["auto_approve"],
        approve=table["waiting"] and f"table/{table['waiting']['digest']}/approve"
        if table and "fault" not in table
        else None,
        definition=definition(table["min_group_size"]) if table and "fault" not in table else "",
    )


def _sent(state: dict[str, Any]) -> str:
    runs = state["sent"]["runs"] if state["sent"] is not None else []
    reasons = [f"{times(n)}: {why}" for run in runs for why, n in run["reasons"].items()]
    return _section("sent", record=state["sent"], has_log=state["has_log"], reasons=reasons[-5:])


def _budget(state: dict[str, Any]) -> str:
    budget = state["budget"]
    explanation = {
        "summary": "A summary table needs no privacy budget: no number of queries discloses more than "
        "the table.",
        "raw": "A site in raw mode has no privacy budget: it gives exact answers from its rows, to "
        "partners bound by contract.",
    }.get(
        state["mode"] or "",
        "The folder does not hold the policy, so it is not known whether there is a budget.",
    )
    if budget is not None:
        spent, total = budget["spent"], budget["total"]
        budget = {
            "text": f"epsilon {spent:.3g} of {total:g} is spent",
            "unit": budget["unit"],
            "delta": f"{budget['delta']:g}",
            "total": f"{total:g}",
            "spent": f"{min(spent, total):.6g}",
            "fault": budget["fault"],
        }
    return _section("budget", budget=budget, explanation=explanation)


# ---------------------------------------------------------------- confirmation of a decision


def confirmation(
    state: dict[str, Any], study: dict[str, Any], verb: str, secret: str, by: str, problem: str = ""
) -> str:
    """Return the page that asks to confirm a decision; ``secret`` proves that the form comes from it."""
    act, summary = _ACTS[verb], state["summary"] or {}
    lacks = verb == "approve" and "digest" in summary and not summary["approved"]
    also = "The review page lets you approve it."
    return render(
        "confirmation.html",
        name=NAME,
        title=f"{act} {study['title']}?",
        where=where(state),
        heading=f"{act} a study",
        sections={},
        home="../../",
        study=_study(study),
        verb=verb,
        act=act,
        meaning=_MEANS[verb],
        secret=secret,
        by=by,
        problem=problem,
        also=also if lacks and not state["auto_approve"] else "",
    )


def table_confirmation(state: dict[str, Any], secret: str, by: str, problem: str = "") -> str:
    """Return the page that asks to confirm the approval of the summary table, or of its update."""
    waiting = state["summary"]["waiting"]
    what = "update of the summary table" if waiting["update"] else "summary table"
    return render(
        "table_confirmation.html",
        name=NAME,
        title=f"Approve the {what}?",
        where=where(state),
        heading=f"Approve the {what}",
        sections={},
        home="../../",
        what=what,
        table=waiting,
        definition=definition(state["summary"]["min_group_size"]),
        digest=_grouped(waiting["digest"]),
        secret=secret,
        by=by,
        problem=problem,
    )


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return sentences on what changed, for screen readers."""
    texts = []
    known = {study["digest"]: study["state"] for study in before["studies"]}
    for study in after["studies"]:
        if study["digest"] not in known and study["pending"]:
            texts.append(f"A study waits for your decision: {study['title']}.")
        elif known.get(study["digest"], study["state"]) != study["state"]:
            texts.append(f"{study['title']}: {study['state']}.")
    if before["state"] != after["state"] and after["state"]:
        texts.append(f"{after['name']}: {after['state']}.")
    intact = [state["sent"] is None or state["sent"]["intact"] for state in (before, after)]
    if intact == [True, False]:
        texts.append("The log is not intact.")
    return texts
