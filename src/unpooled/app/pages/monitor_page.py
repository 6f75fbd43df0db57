"""The monitor of a federation: runs in progress, the state of sites, past runs and their reports."""

from html import escape
from typing import Any
from urllib.parse import quote

from unpooled.app.pages.layout import (
    BAD,
    GOOD,
    PENDING,
    QUIET,
    clock,
    duration,
    facts,
    figures,
    headed,
    link,
    pill,
    scrolled,
    warned,
    when,
)
from unpooled.app.report.charts import curve
from unpooled.html.html import cards, counted, natural, size

NAME = "monitor"
_SITES = {"connected": GOOD, "awaiting admission": PENDING, "invited": QUIET, "not connected": BAD}
_RUNS = {
    "starting": PENDING,
    "waiting": PENDING,
    "running": GOOD,
    "finished": GOOD,
    "failed": BAD,
    "stopped": BAD,
}
_NONE = "&ndash;"


def title(state: dict[str, Any]) -> str:
    """Return the title of the window."""
    live = [run for run in state["runs"] if run["state"] == "running" and run["round"] is not None]
    return f"{state['name']}: round {live[0]['round']}" if live else f"{state['name']}: monitor"


def heading(state: dict[str, Any]) -> str:
    """Return the heading of the page."""
    return f"Monitor of {state['name']}"


def where(state: dict[str, Any]) -> str:
    """Return the line at the top as HTML: the federation, and whether its server is running."""
    up = pill(GOOD, "server running") if state["up"] else pill(BAD, "server not running")
    return f"{escape(state['name'])} at {escape(state['address'])} {up}"


def sections(state: dict[str, Any]) -> dict[str, str]:
    """Return the sections of the page by name, each as HTML."""
    return {
        "overview": _overview(state),
        "runs": _runs(state) if state["runs"] else "",
        "sites": _sites(state),
        "past": _past(state),
    }


def _overview(state: dict[str, Any]) -> str:
    live = [run for run in state["runs"] if run["state"] in ("starting", "waiting", "running")]
    first = _now(live[0]) if live else "No run is in progress."
    connected = sum(site == "connected" for site in state["sites"].values())
    values = [(f"{connected} of {len(state['sites'])}", "sites connected")]
    if live and live[0]["waiting"]:
        asked = len({*live[0]["asked"], *live[0]["waiting"]})
        values.append((f"{len(live[0]['waiting'])} of {asked}", "sites have not decided"))
    elif live and live[0]["round"] is not None:
        run = live[0]
        values += [
            (_NONE if run["round"] is None else str(run["round"]), "round"),
            (_NONE if run["movement"] is None else f"{run['movement']:.3g}", "movement of the centres"),
            (_NONE if run["inertia"] is None else f"{run['inertia']:,.6g}", "inertia"),
            _time_left(run),
        ]
    name = '<h2 id="overview-heading" class="unseen">Overview</h2>'
    problems = warned(state["problems"], "Action needed")
    return f'{name}<div class="answer"><p>{first}</p></div>{problems}{figures(values)}'


def _now(run: dict[str, Any]) -> str:
    """Return a sentence on what a run is doing."""
    what = f"<b>{escape(run['title'] or 'The run ' + run['run'])}</b>"
    if run["waiting"]:
        return f"{what} is {escape(run['waiting_text'])}."
    if run["state"] == "starting" or run["round"] is None:
        return f"{what} is starting at the sites."
    answered, silent = len(run["answered"]), len(run["silent"])
    return f"{what} is in round {run['round']}: {answered} of {answered + silent} sites answered."


def _time_left(run: dict[str, Any]) -> tuple[str, str]:
    if run["time_left"] is None:
        return _NONE, "time left: not known yet"
    seconds, is_estimate = run["time_left"]
    return duration(seconds), "time left, estimated" if is_estimate else "left at most"


def _runs(state: dict[str, Any]) -> str:
    return headed("runs", "Runs in progress", "".join(map(_run, state["runs"])))


def _run(run: dict[str, Any]) -> str:
    name = f"run-{run['run']}"
    ks = run["ks"]
    items = [
        ("purpose", escape(run["purpose"] or "not stated")),
        ("method", escape(run["method"])),
        ("k", escape(f"{min(ks)} to {max(ks)}" if len(ks) > 1 else str(ks[0]) if ks else "")),
        ("run", f"<code>{escape(run['run'])}</code>"),
        (
            "rounds",
            f"{run['round'] if run['round'] is not None else 0} of at most {run['max_rounds']}"
            if run["max_rounds"]
            else "",
        ),
        ("round trips", "" if run["round_trips"] is None else str(run["round_trips"])),
        ("study expires", when(run["expires"]) if run["expires"] else ""),
    ]
    body = f"<p>{pill(_RUNS[run['state']], run['state'], live=run['state'] == 'running')}</p>"
    if run["cause"]:
        body += warned([run["cause"]], "Reason")
    body += facts([(label, value) for label, value in items if value])
    return (
        f'<article class="study" aria-labelledby="{escape(name)}"><h3 id="{escape(name)}">'
        f"{escape(run['title'] or run['run'])}</h3>{body}{_charts(run)}{_answers(run)}</article>"
    )


def _charts(run: dict[str, Any]) -> str:
    rounds = [values for values in run["rounds"] if values[0] > 0]
    if len(rounds) < 2:
        return ""
    at = [float(number) for number, _, _ in rounds]
    nan = float("nan")
    inertia = [nan if value is None else value for _, _, value in rounds]
    moved = [nan if value is None else value for _, value, _ in rounds]
    return cards(
        [
            (
                "Inertia after each round",
                "lower is more compact",
                curve(at, inertia, "inertia by round", "round"),
            ),
            (
                "Movement of the centres",
                "log scale; the run ends when it is small",
                curve(at, moved, "movement by round", "round", log=True),
            ),
        ]
    )


def _answers(run: dict[str, Any]) -> str:
    rows = []
    for site in sorted({*run["asked"], *run["answered"], *run["silent"], *run["waiting"]}, key=natural):
        if site in run["waiting"]:
            state, more = pill(PENDING, "has not decided"), f"asked since {clock(run['waiting'][site])}"
        elif site in run["silent"]:
            state, more = pill(BAD, "did not answer"), escape(run["silent"][site])
        elif site not in run["answered"]:
            state, more = pill(QUIET, "no answer yet"), ""
        else:
            numbers, amount = run["answered"][site]
            state, more = pill(GOOD, "answered"), f"{numbers:,} numbers, {size(amount)}"
        rows.append((escape(site), state, more))
    if not rows:
        return ""
    lead = "Answers in the last round" if run["round"] is not None else "Answers"
    head = ("site", "state", "details")
    return f"<h4>{lead}</h4>" + scrolled(f"Answers to {run['run']}", head, rows, left=range(3))


def _sites(state: dict[str, Any]) -> str:
    rows = [
        (
            escape(site),
            pill(_SITES.get(status, QUIET), status),
            when(state["certificates"][site]) if site in state["certificates"] else _NONE,
        )
        for site, status in sorted(state["sites"].items(), key=lambda pair: natural(pair[0]))
    ]
    head = ("site", "state", "certificate expires")
    lead = "A site connects to this machine; this machine cannot connect to a site."
    return headed("sites", "Sites", scrolled("Table of sites", head, rows, left=range(3)), lead)


def _past(state: dict[str, Any]) -> str:
    if not state["past"]:
        return headed("past", "Past runs", "<p>None yet.</p>")
    rows = []
    for run in state["past"]:
        outcome = "not finished"
        if run["finished"]:
            outcome = "no clusters" if run["none"] else counted(run["k"] or 0, "cluster")
        label = f"Open the report of {run['title']}"
        report = link(f"report/{quote(run['run'], safe='')}", "Report", kind="plain", label=label, new=True)
        rows.append(
            (
                f"<b>{escape(run['title'])}</b><br>{escape(run['purpose'] or 'purpose not stated')}",
                when(run["begun"]),
                outcome,
                str(run["sites"]),
                report if run["report"] else _NONE,
            )
        )
    head = ("study", "begun", "result", "sites", "report")
    return headed("past", "Past runs", scrolled("Table of past runs", head, rows, left=(0, 1, 2, 4)))


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return sentences on what changed, for screen readers."""
    texts = []
    for site, state in after["sites"].items():
        if before["sites"].get(site, state) != state:
            texts.append(f"{site}: {state}.")
    known = {run["run"]: run for run in before["runs"]}
    for run in after["runs"]:
        earlier = known.get(run["run"])
        name = run["title"] or run["run"]
        if earlier is None or earlier["state"] != run["state"]:
            texts.append(f"{name}: {run['state']}.")
        text = run["waiting_text"]
        if text and (earlier is None or earlier["waiting_text"] != text):
            texts.append(f"{name} is {text}.")
    done = {run["run"] for run in before["past"] if run["report"]}
    texts += [
        f"The report of {run['title']} is ready."
        for run in after["past"]
        if run["report"] and run["run"] not in done
    ]
    return texts
