"""The officer's page: studies to decide about, the copy, what left, the budget, is the record whole."""

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
from unpooled.html.html import counted, size, small

_LABELS = {
    "clusters": "k",
    "expects": "protection",
    "seen": "the coordinator sees",
    "at most": "asks at most",
    "key": "coordinator's key",
}
_DECIDED = 50  # studies that are listed
_STATES = {"approved": GOOD, "pending": PENDING, "declined": QUIET, "withdrawn": BAD, "expired": QUIET}
_CONNECTED = {"connected": GOOD, "trying to connect": PENDING, "awaiting admission": PENDING}
_ACTS = {"approve": "Approve", "decline": "Decline", "withdraw": "Withdraw"}
_MEANS = {
    "approve": "From then on the site answers this run, within what the study says, until it expires. The "
    "approval is a line of the site's log, and can be withdrawn at any time.",
    "decline": "The run goes on without this site, and the coordinator is told why. Nothing leaves.",
    "withdraw": "The next question of the run is refused, also in the middle. What left before is not taken "
    "back.",
}


def title(state: dict[str, Any]) -> str:
    waiting = sum(study["pending"] for study in state["studies"])
    return f"{f'({waiting}) ' if waiting else ''}{state['name']}: desk"


def heading(state: dict[str, Any]) -> str:
    return f"The desk of {state['name']}"


def where(state: dict[str, Any]) -> str:
    """The line at the top: which site this is, and whether it is connected."""
    if not state["federation"]:
        return escape(state["name"])
    kind = _CONNECTED.get(state["state"], BAD)
    return f"{escape(state['name'])} in {escape(state['federation'])} {pill(kind, state['state'])}"


def sections(state: dict[str, Any]) -> dict[str, str]:
    """The sections of the page by name, each as HTML."""
    return {
        "answer": _answer(state),
        "waiting": _waiting(state),
        "decided": _decided(state),
        "sent": _sent(state),
        "summary": _summary(state),
        "budget": _budget(state),
        "dpia": _dpia(),
    }


def _answer(state: dict[str, Any]) -> str:
    waiting = sum(study["pending"] for study in state["studies"])
    first = f"{waiting} studies wait" if waiting > 1 else "1 study waits"
    first = f"{first} for your decision." if waiting else "No study waits for a decision."
    summary, left = state["summary"] or {}, state["sent"]
    shown = []
    if "people" in summary:
        shown.append(
            (f"{summary['people']:,.0f}", f"persons in {counted(summary['groups'], 'group')} of the copy")
        )
    if left is not None:
        shown += [
            (f"{left['answers']:,}", "answers that left"),
            (f"{left['numbers']:,}", "numbers in them"),
            (size(left["bytes"]), "in all"),
            ("whole" if left["intact"] else "NOT WHOLE", "the record"),
        ]
    elif not state["has_log"]:
        shown.append(("nothing", "has left"))
    name = '<h2 id="answer-heading" class="unseen">At a glance</h2>'
    problems = warned(state["problems"], "To be done")
    alone = ""
    if state["purposes"]:
        purposes = "any purpose" if "*" in state["purposes"] else "; ".join(state["purposes"])
        alone = (
            f"<p>By the policy, studies of its coordinator are approved at once for {escape(purposes)}.</p>"
        )
    said = f'<div class="answer"><p>{first}</p></div>{alone}'
    return f"{name}{said}{problems}{figures(shown) if shown else ''}"


# ---------------------------------------------------------------- studies


def _waiting(state: dict[str, Any]) -> str:
    studies = [study for study in state["studies"] if study["pending"]]
    if not studies:
        return ""
    lead = "Before you approve it, the site answers nothing of a study: not even the names of its columns."
    return headed("waiting", "Waiting for you", "".join(map(_card, studies)), lead)


def _card(study: dict[str, Any]) -> str:
    name = f"study-{study['digest'][:16]}"
    acts = "".join(_act(study, verb) for verb in study["may"])
    return (
        f'<article class="study" aria-labelledby="{name}"><h3 id="{name}">{escape(study["title"])}</h3>'
        f"{statement(study)}{_asked(study)}"
        f'<p class="actions">{acts}</p></article>'
    )


def _act(study: dict[str, Any], verb: str) -> str:
    kind = "primary" if verb == "approve" else "plain"
    label = f"{_ACTS[verb]} the study {study['title']}"
    return link(
        f"study/{study['digest']}/{verb}", f"{_ACTS[verb]}\N{HORIZONTAL ELLIPSIS}", kind=kind, label=label
    )


def statement(study: dict[str, Any]) -> str:
    """All that a study says of itself."""
    shown = []
    for name, value in study["sentences"]:
        if name == "title":
            continue
        said = when(value) if name in ("proposed", "expires") else escape(value)
        shown.append((_LABELS.get(name, name), _grouped(value) if name == "key" else said))
    shown += [("came", when(study["received"])), ("digest", _grouped(study["digest"]))]
    return facts(shown)


def _grouped(digits: str) -> str:
    """A key or digest in groups that can be read out.

    >>> _grouped("0123456789abcdef")
    '<code>01234567 89abcdef</code>'
    """
    if " " in digits:
        return escape(digits)
    return f"<code>{escape(' '.join(digits[i : i + 8] for i in range(0, len(digits), 8)))}</code>"


def _asked(study: dict[str, Any], *, shown: bool = False) -> str:
    rows = [tuple(map(escape, question)) for question in study["asked"]]
    head = ("it may ask for", "question", "centres at once, at most", "work at the site, at most")
    kinds = f"All that it may ask: {counted(len(rows), 'kind')} of questions"
    body = scrolled(f"All that {study['title']} may ask, {study['digest'][:8]}", head, rows, left=(0, 1, 3))
    name = f"asked-{study['digest'][:16]}"
    return f'<details id="{name}"{" open" if shown else ""}><summary>{kinds}</summary>{body}</details>'


def _decided(state: dict[str, Any]) -> str:
    studies = [study for study in state["studies"] if not study["pending"]]
    if not studies:
        return ""
    rows = []
    for study in studies[: -_DECIDED - 1 : -1]:
        said = study["decisions"][-1] if study["decisions"] else {"by": "", "at": "", "reason": ""}
        reason = f"<br>{escape(said['reason'])}" if said["reason"] else ""
        rows.append(
            (
                f"<b>{escape(study['title'])}</b><br>{escape(study['purpose'])}",
                pill(_STATES[study["state"]], study["state"]),
                f"{escape(said['by'])}{reason}",
                when(said["at"]) if said["at"] else "",
                when(study["expires"]),
                " ".join(_act(study, verb) for verb in study["may"]),
            )
        )
    head = ("study", "state", "by", "decided", "expires", "change")
    lead = "The latest first. Every decision is a line of the site's log."
    if len(studies) > _DECIDED:
        lead += f" And {len(studies) - _DECIDED} more: <code>unpooled site status {escape(state['folder'])}</code>"
    return headed("decided", "Decided", scrolled("Decided studies", head, rows, left=range(6)), lead)


# ---------------------------------------------------------------- copy, log, budget, dossier


def _summary(state: dict[str, Any]) -> str:
    summary = state["summary"]
    if summary is None:
        said = {"dp": "with noise", "raw": "from its rows as they are, trusted"}.get(state["mode"] or "")
        text = f"There is no copy: the site answers {said}." if said else "There is no copy yet."
        return headed("summary", "The copy", f"<p>{escape(text)}</p>")
    if "fault" in summary:
        return headed("summary", "The copy", warned([summary["fault"]], "It cannot be read"))
    folder = state["folder"]
    if summary["approved"]:
        stands = pill(GOOD, "approved") + f" {when(summary['approved'])}"
    elif state["auto_approve"]:
        stands = pill(QUIET, "answered from without approval, by the policy")
    else:
        stands = (
            pill(PENDING, "not approved: nothing is answered")
            + f"<br><code>unpooled site approve {escape(folder)} --table</code>"
        )
    body = f"<p>{stands}</p>"
    if summary["renewal"]:
        text = f"An update of the summary table is pending: unpooled site approve {folder} --table"
        body += warned([text], "To be done")
    body += f"<p>{escape(summary['facts'][0])}</p>"
    body += scrolled(
        "The first groups of the copy", [escape(h) for h in summary["headings"]], summary["rows"], left=()
    )
    more = summary["groups"] - len(summary["rows"])
    body += (
        small(f"and {counted(more, 'more group')}. Means of numbers, persons by level; empty: not shown.")
        if more > 0
        else ""
    )
    body += f'<p class="actions">{link("summary", "Open the whole copy", kind="plain", new=True)}</p>'
    return headed(
        "summary", "The copy", body, "Rows of the copy, not of the data: every row is a group of persons."
    )


def _sent(state: dict[str, Any]) -> str:
    left = state["sent"]
    if left is None:
        said = "The log is being read." if state["has_log"] else "Nothing has left this site."
        return headed("sent", "What left so far", f"<p>{said}</p>")
    kind, text = (GOOD, "the record is whole") if left["intact"] else (BAD, "THE RECORD IS NOT WHOLE")
    body = f"<p>{pill(kind, text)}</p><p>{escape(left['verdict'])}</p>"
    body += warned(left["faults"], "What is wrong with it")
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
        for run in reversed(left["runs"])
    ]
    head = ("run", "first answer", "rounds", "answers", "refusals", "numbers", "size", "masked")
    body += scrolled("What left, run by run", head, rows, left=(0, 1)) if rows else "<p>Nothing has left.</p>"
    reasons = [f"{n} times: {why}" for run in left["runs"] for why, n in run["reasons"].items()]
    body += warned(reasons[-5:], "Refused") if reasons else ""
    if left["unchecked"]:
        items = "".join(f"<li>{escape(text)}</li>" for text in left["unchecked"])
        body += '<details id="unchecked"><summary>What could not be checked here</summary>'
        body += f"<ul>{items}</ul></details>"
    body += f'<p class="actions">{link("audit", "Open the whole record", kind="plain", new=True)}</p>'
    return headed(
        "sent",
        "What left so far",
        body,
        f"By the site&rsquo;s own log, as it was checked {when(left['checked'])}.",
    )


def _budget(state: dict[str, Any]) -> str:
    budget = state["budget"]
    if budget is None:
        said = {
            "summary": "A copy needs no budget: it is the most that anybody can learn, however often one asks.",
            "raw": "A trusted site has no privacy budget: it answers from its rows, to partners bound by "
            "contract.",
        }.get(
            state["mode"] or "",
            "The policy is not in the folder, so it is not known whether there is a budget.",
        )
        return headed("budget", "Privacy budget", f"<p>{escape(said)}</p>")
    spent, total = budget["spent"], budget["total"]
    text = f"epsilon {spent:.3g} of {total:g} is spent"
    body = (
        f"<p><b>{text}</b>, for every {escape(budget['unit'])} of the table (delta {budget['delta']:g}).</p>"
    )
    body += f'<meter min="0" max="{total:g}" value="{min(spent, total):.6g}" aria-label="{text}"></meter>'
    body += warned([budget["fault"]], "The ledger cannot be read") if budget["fault"] else ""
    return headed(
        "budget", "Privacy budget", body, "By the site&rsquo;s ledger. What is spent never comes back."
    )


def _dpia() -> str:
    said = "What is processed, how it is protected, what was sent, every threat with its measure."
    body = f"<p>{said} It is made anew from the folder whenever you open it.</p>"
    body += f'<p class="actions">{link("dpia", "Open the dossier", kind="plain", new=True)}</p>'
    return headed("dpia", "Dossier for an impact assessment", body)


# ---------------------------------------------------------------- the step before a decision


def question(
    state: dict[str, Any], study: dict[str, Any], verb: str, secret: str, by: str, wrong: str = ""
) -> str:
    """The page that asks whether a decision is meant; ``secret`` shows that the answer comes from here."""
    act, kind, why = _ACTS[verb], "primary" if verb == "approve" else "strong", ""
    if verb != "approve":
        why = (
            '<p class="field"><label for="reason">Reason (the coordinator reads it, too)</label>'
            '<input id="reason" name="reason" maxlength="300" autocomplete="off"></p>'
        )
    summary = state["summary"] or {}
    if verb == "approve" and "digest" in summary and not summary["approved"] and not state["auto_approve"]:
        why += warned(
            [f"unpooled site approve {state['folder']} --table"],
            "The copy is not approved yet: nothing is answered before",
        )
    form = (
        f'<form method="post"><input type="hidden" name="secret" value="{escape(secret)}">'
        f'<p class="field"><label for="by">Your name, for the log</label>'
        f'<input id="by" name="by" maxlength="100" value="{escape(by)}" autocomplete="name"></p>{why}'
        f'<p class="actions"><button class="button {kind}" type="submit">'
        f"{act} the study</button> {link('../../', 'Back, without deciding', kind='plain')}</p></form>"
    )
    body = (
        f'<section aria-labelledby="statement"><h2 id="statement">{escape(study["title"])}</h2>'
        f"<p>{pill(_STATES[study['state']], study['state'])}</p>{statement(study)}"
        f"{_asked(study, shown=True)}</section>"
        f'<section aria-labelledby="decision"><h2 id="decision">{act} it?</h2><p>{escape(_MEANS[verb])}</p>'
        f"{warned([wrong], 'It was not done') if wrong else ''}{form}</section>"
    )
    return frame(f"{act} {study['title']}?", where(state), f"{act} a study", body, home="../../")


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What somebody who does not see the page is told of a change."""
    said = []
    known = {study["digest"]: study["state"] for study in before["studies"]}
    for study in after["studies"]:
        if study["digest"] not in known and study["pending"]:
            said.append(f"A study waits for your decision: {study['title']}.")
        elif known.get(study["digest"], study["state"]) != study["state"]:
            said.append(f"{study['title']}: {study['state']}.")
    if before["state"] != after["state"] and after["state"]:
        said.append(f"{after['name']}: {after['state']}.")
    whole = [state["sent"] is None or state["sent"]["intact"] for state in (before, after)]
    if whole == [True, False]:
        said.append("The record is not whole.")
    return said
