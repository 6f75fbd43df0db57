"""The review page of a site's officer: pending studies, the log, the summary table, the privacy budget."""

from html import escape
from typing import Any

from unpooled.app.pages.layout import (
    BAD,
    GOOD,
    PENDING,
    QUIET,
    facts,
    figures,
    frame,
    headed,
    link,
    pill,
    scrolled,
    warned,
    when,
)
from unpooled.app.pages.table_page import definition
from unpooled.html.html import counted, size, small

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
    if not state["federation"]:
        return escape(state["name"])
    kind = _CONNECTED.get(state["state"], BAD)
    return f"{escape(state['name'])} in {escape(state['federation'])} {pill(kind, state['state'])}"


def sections(state: dict[str, Any]) -> dict[str, str]:
    """Return the sections of the page by name, each as HTML."""
    return {
        "overview": _overview(state),
        "pending": _pending(state),
        "decided": _decided(state),
        "sent": _sent(state),
        "summary": _summary(state),
        "budget": _budget(state),
        "dpia": _dpia(),
    }


def _overview(state: dict[str, Any]) -> str:
    pending = sum(study["pending"] for study in state["studies"])
    first = f"{pending} studies wait" if pending > 1 else "1 study waits"
    first = f"{first} for your decision." if pending else "No study waits for your decision."
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
    name = '<h2 id="overview-heading" class="unseen">Overview</h2>'
    problems = warned(state["problems"], "Action needed")
    automatic = ""
    if state["purposes"]:
        purposes = "any purpose" if "*" in state["purposes"] else "; ".join(state["purposes"])
        automatic = f"<p>The policy approves studies of its coordinator by itself for {escape(purposes)}.</p>"
    answer = f'<div class="answer"><p>{first}</p></div>{automatic}'
    return f"{name}{answer}{problems}{figures(values) if values else ''}"


# ---------------------------------------------------------------- studies


def _pending(state: dict[str, Any]) -> str:
    studies = [study for study in state["studies"] if study["pending"]]
    if not studies:
        return ""
    lead = "Until you approve a study, the site answers none of its queries, not even for its column names."
    return headed("pending", "Pending studies", "".join(map(_card, studies)), lead)


def _card(study: dict[str, Any]) -> str:
    name = f"study-{study['digest'][:16]}"
    acts = "".join(_act(study, verb) for verb in study["decisions_open"])
    return (
        f'<article class="study" aria-labelledby="{name}"><h3 id="{name}">{escape(study["title"])}</h3>'
        f"{statement(study)}{_queries(study)}"
        f'<p class="actions">{acts}</p></article>'
    )


def _act(study: dict[str, Any], verb: str) -> str:
    kind = "primary" if verb == "approve" else "plain"
    label = f"{_ACTS[verb]} the study {study['title']}"
    return link(
        f"study/{study['digest']}/{verb}", f"{_ACTS[verb]}\N{HORIZONTAL ELLIPSIS}", kind=kind, label=label
    )


def statement(study: dict[str, Any]) -> str:
    """Return the complete statement of a study as HTML."""
    items = []
    for name, value in study["sentences"]:
        if name == "title":
            continue
        text = when(value) if name in ("proposed", "expires") else escape(value)
        items.append((_LABELS.get(name, name), _grouped(value) if name == "key" else text))
    items += [("received", when(study["received"])), ("digest", _grouped(study["digest"]))]
    return facts(items)


def _grouped(digits: str) -> str:
    """Return a key or digest in groups that can be read aloud.

    >>> _grouped("0123456789abcdef")
    '<code>01234567 89abcdef</code>'
    """
    if " " in digits:
        return escape(digits)
    return f"<code>{escape(' '.join(digits[i : i + 8] for i in range(0, len(digits), 8)))}</code>"


def _queries(study: dict[str, Any], *, expanded: bool = False) -> str:
    rows = [tuple(map(escape, query)) for query in study["queries"]]
    head = ("the site answers with", "query", "centres in a query, at most", "work at the site, at most")
    kinds = f"Allowed queries: {counted(len(rows), 'kind')}"
    body = scrolled(f"Allowed queries of {study['title']}, {study['digest'][:8]}", head, rows, left=(0, 1, 3))
    name = f"queries-{study['digest'][:16]}"
    return f'<details id="{name}"{" open" if expanded else ""}><summary>{kinds}</summary>{body}</details>'


def _decided(state: dict[str, Any]) -> str:
    studies = [study for study in state["studies"] if not study["pending"]]
    if not studies:
        return ""
    rows = []
    for study in studies[: -_DECIDED - 1 : -1]:
        last = study["decisions"][-1] if study["decisions"] else {"by": "", "at": "", "reason": ""}
        reason = f"<br>{escape(last['reason'])}" if last["reason"] else ""
        rows.append(
            (
                f"<b>{escape(study['title'])}</b><br>{escape(study['purpose'])}",
                pill(_STATES[study["state"]], study["state"]),
                f"{escape(last['by'])}{reason}",
                when(last["at"]) if last["at"] else "",
                when(study["expires"]),
                " ".join(_act(study, verb) for verb in study["decisions_open"]),
            )
        )
    head = ("study", "state", "by", "decided", "expires", "change")
    lead = "The latest first. The site's log records every decision."
    if len(studies) > _DECIDED:
        command = f"unpooled site status {state['folder']}"
        lead += f" And {len(studies) - _DECIDED} more: <code>{escape(command)}</code>"
    return headed("decided", "Decided studies", scrolled("Decisions", head, rows, left=range(6)), lead)


# ---------------------------------------------------------------- summary table, log, budget, DPIA report


def _summary(state: dict[str, Any]) -> str:
    summary = state["summary"]
    if summary is None:
        source = {"dp": "with differential privacy", "raw": "from its raw rows"}.get(state["mode"] or "")
        text = f"The site has no summary table: it answers {source}." if source else "There is none yet."
        return headed("summary", "Summary table", f"<p>{escape(text)}</p>")
    if "fault" in summary:
        return headed("summary", "Summary table", warned([summary["fault"]], "It cannot be read"))
    folder = state["folder"]
    if summary["approved"]:
        approval = pill(GOOD, "approved") + f" {when(summary['approved'])}"
    elif state["auto_approve"]:
        approval = pill(QUIET, "in use without approval, by the policy")
    else:
        approval = (
            pill(PENDING, "not approved: the site answers nothing")
            + f"<br><code>unpooled site approve {escape(folder)} --table</code>"
        )
    body = f"<p>{approval}</p>"
    if summary["update_pending"]:
        text = f"An update is pending. Approve it with unpooled site approve {folder} --table."
        body += warned([text], "Action needed")
    body += f"<p>{escape(summary['facts'][0])}</p>"
    head = [escape(heading) for heading in summary["headings"]]
    body += scrolled("The first groups of the summary table", head, summary["rows"], left=())
    more = summary["groups"] - len(summary["rows"])
    if more > 0:
        body += small(
            f"and {counted(more, 'more group')}. Means of numbers, people by category; empty: suppressed."
        )
    body += f'<p class="actions">{link("summary", "Open the whole table", kind="plain", new=True)}</p>'
    lead = f"{definition(summary['min_group_size'])} The site answers from this table, not from the data."
    return headed("summary", "Summary table", body, lead)


def _sent(state: dict[str, Any]) -> str:
    sent = state["sent"]
    if sent is None:
        text = "The log is being read." if state["has_log"] else "The site has sent nothing."
        return headed("sent", "Answers sent", f"<p>{text}</p>")
    kind, text = (GOOD, "the log is intact") if sent["intact"] else (BAD, "THE LOG IS NOT INTACT")
    body = f"<p>{pill(kind, text)}</p><p>{escape(sent['verdict'])}</p>"
    body += warned(sent["faults"], "Faults in the log")
    rows = [
        (
            escape(run["run"]),
            when(run["first"]),
            f"{run['rounds']}",
            f"{run['answers']:,}",
            f"{run['refusals']:,}",
            f"{run['numbers']:,}",
            size(run["bytes"]),
            f"{run['masked']:,}",
        )
        for run in reversed(sent["runs"])
    ]
    head = ("run", "first answer", "rounds", "answers", "refusals", "numbers", "size", "masked")
    table = scrolled("Answers by run", head, rows, left=(0, 1))
    body += table if rows else "<p>The site has sent no answer.</p>"
    reasons = [f"{n} times: {why}" for run in sent["runs"] for why, n in run["reasons"].items()]
    body += warned(reasons[-5:], "Refused queries") if reasons else ""
    if sent["unchecked"]:
        items = "".join(f"<li>{escape(text)}</li>" for text in sent["unchecked"])
        body += '<details id="unchecked"><summary>Not checked here</summary>'
        body += f"<ul>{items}</ul></details>"
    body += f'<p class="actions">{link("audit", "Open the whole log", kind="plain", new=True)}</p>'
    lead = f"From the site&rsquo;s own log, checked {when(sent['checked'])}."
    return headed("sent", "Answers sent", body, lead)


def _budget(state: dict[str, Any]) -> str:
    budget = state["budget"]
    if budget is None:
        explanation = {
            "summary": "A summary table needs no privacy budget: no number of queries discloses more than "
            "the table.",
            "raw": "A site in raw mode has no privacy budget: it gives exact answers from its rows, to "
            "partners bound by contract.",
        }.get(
            state["mode"] or "",
            "The folder does not hold the policy, so it is not known whether there is a budget.",
        )
        return headed("budget", "Privacy budget", f"<p>{escape(explanation)}</p>")
    spent, total = budget["spent"], budget["total"]
    text = f"epsilon {spent:.3g} of {total:g} is spent"
    body = (
        f"<p><b>{text}</b>, for every {escape(budget['unit'])} of the table (delta {budget['delta']:g}).</p>"
    )
    body += f'<meter min="0" max="{total:g}" value="{min(spent, total):.6g}" aria-label="{text}"></meter>'
    body += warned([budget["fault"]], "The ledger cannot be read") if budget["fault"] else ""
    lead = "From the site&rsquo;s ledger. A budget that is spent does not return."
    return headed("budget", "Privacy budget", body, lead)


def _dpia() -> str:
    text = (
        "For a data protection impact assessment (DPIA): the data, their protection, all that the site sent, "
        "and every threat with its measure. Opening the report creates it anew from the folder."
    )
    body = f'<p>{text}</p><p class="actions">{link("dpia", "Open the report", kind="plain", new=True)}</p>'
    return headed("dpia", "DPIA report", body)


# ---------------------------------------------------------------- confirmation of a decision


def confirmation(
    state: dict[str, Any], study: dict[str, Any], verb: str, secret: str, by: str, problem: str = ""
) -> str:
    """Return the page that asks to confirm a decision; ``secret`` proves that the form comes from it."""
    act, kind, extra = _ACTS[verb], "primary" if verb == "approve" else "strong", ""
    if verb != "approve":
        extra = (
            '<p class="field"><label for="reason">Reason (the coordinator will read it)</label>'
            '<input id="reason" name="reason" maxlength="300" autocomplete="off"></p>'
        )
    summary = state["summary"] or {}
    if verb == "approve" and "digest" in summary and not summary["approved"] and not state["auto_approve"]:
        extra += warned(
            [f"Approve it with unpooled site approve {state['folder']} --table."],
            "The site answers nothing until the summary table is approved too",
        )
    form = (
        f'<form method="post"><input type="hidden" name="secret" value="{escape(secret)}">'
        f'<p class="field"><label for="by">Your name, for the log</label>'
        f'<input id="by" name="by" maxlength="100" value="{escape(by)}" autocomplete="name"></p>{extra}'
        f'<p class="actions"><button class="button {kind}" type="submit">'
        f"{act} the study</button> {link('../../', 'Back, without deciding', kind='plain')}</p></form>"
    )
    body = (
        f'<section aria-labelledby="statement"><h2 id="statement">{escape(study["title"])}</h2>'
        f"<p>{pill(_STATES[study['state']], study['state'])}</p>{statement(study)}"
        f"{_queries(study, expanded=True)}</section>"
        f'<section aria-labelledby="decision"><h2 id="decision">{act} it?</h2><p>{escape(_MEANS[verb])}</p>'
        f"{warned([problem], 'The decision failed') if problem else ''}{form}</section>"
    )
    return frame(NAME, f"{act} {study['title']}?", where(state), f"{act} a study", body, home="../../")


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
