"""The coordinator's page: the run as it goes, sites as they come and go, past runs and their reports."""

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
    live = [run for run in state["runs"] if run["state"] == "running" and run["round"] is not None]
    return f"{state['name']}: round {live[0]['round']}" if live else f"{state['name']}: desk"


def heading(state: dict[str, Any]) -> str:
    return f"The desk of {state['name']}"


def where(state: dict[str, Any]) -> str:
    """The line at the top: which federation this is, and whether its server is up."""
    up = pill(GOOD, "the server is up") if state["up"] else pill(BAD, "the server is not up")
    return f"{escape(state['name'])} at {escape(state['address'])} {up}"


def sections(state: dict[str, Any]) -> dict[str, str]:
    """The sections of the page by name, each as HTML."""
    return {
        "answer": _answer(state),
        "runs": _runs(state) if state["runs"] else "",
        "sites": _sites(state),
        "past": _past(state),
    }


def _answer(state: dict[str, Any]) -> str:
    going = [run for run in state["runs"] if run["state"] in ("starting", "waiting", "running")]
    first = "No run is on its way."
    if going:
        first = _now(going[0])
    there = sum(site == "connected" for site in state["sites"].values())
    shown = [(f"{there} of {len(state['sites'])}", "sites connected")]
    if going and going[0]["waiting"]:
        asked = len({*going[0]["asked"], *going[0]["waiting"]})
        shown.append((f"{len(going[0]['waiting'])} of {asked}", "sites have not decided"))
    elif going and going[0]["round"] is not None:
        run = going[0]
        shown += [
            (_NONE if run["round"] is None else str(run["round"]), "round"),
            (_NONE if run["movement"] is None else f"{run['movement']:.3g}", "movement of the centres"),
            (_NONE if run["inertia"] is None else f"{run['inertia']:,.6g}", "inertia"),
            _time_left(run),
        ]
    name = '<h2 id="answer-heading" class="unseen">At a glance</h2>'
    problems = warned(state["problems"], "To be done")
    return f'{name}<div class="answer"><p>{first}</p></div>{problems}{figures(shown)}'


def _now(run: dict[str, Any]) -> str:
    """What a run does now, in a sentence."""
    what = f"<b>{escape(run['title'] or 'The run ' + run['run'])}</b>"
    if run["waiting"]:
        return f"{what} is {escape(run['said'])}."
    if run["state"] == "starting" or run["round"] is None:
        return f"{what} is starting at the sites."
    answered, silent = len(run["answered"]), len(run["silent"])
    return f"{what} is in round {run['round']}: {answered} of {answered + silent} sites answered."


def _time_left(run: dict[str, Any]) -> tuple[str, str]:
    if run["time_left"] is None:
        return _NONE, "time left: not known yet"
    seconds, resting = run["time_left"]
    return duration(
        seconds
    ), "time left, if the centres come to rest as lately" if resting else "left at most"


def _runs(state: dict[str, Any]) -> str:
    return headed("runs", "On its way", "".join(map(_run, state["runs"])))


def _run(run: dict[str, Any]) -> str:
    name = f"run-{run['run']}"
    ks = run["ks"]
    told = [
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
        ("exchanges", "" if run["exchanges"] is None else str(run["exchanges"])),
        ("study ends", when(run["expires"]) if run["expires"] else ""),
    ]
    body = f"<p>{pill(_RUNS[run['state']], run['state'], live=run['state'] == 'running')}</p>"
    if run["cause"]:
        body += warned([run["cause"]], "Why")
    body += facts([(label, value) for label, value in told if value])
    return (
        f'<article class="study" aria-labelledby="{escape(name)}"><h3 id="{escape(name)}">'
        f"{escape(run['title'] or run['run'])}</h3>{body}{_charts(run)}{_who(run)}</article>"
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
            ("Inertia after each round", "lower is tighter", curve(at, inertia, "inertia by round", "round")),
            (
                "Movement of the centres",
                "log scale; the run ends when they rest",
                curve(at, moved, "movement by round", "round", log=True),
            ),
        ]
    )


def _who(run: dict[str, Any]) -> str:
    rows = []
    for site in sorted({*run["asked"], *run["answered"], *run["silent"], *run["waiting"]}, key=natural):
        if site in run["waiting"]:
            said, more = pill(PENDING, "has not decided"), f"asked since {clock(run['waiting'][site])}"
        elif site in run["silent"]:
            said, more = pill(BAD, "did not answer"), escape(run["silent"][site])
        elif site not in run["answered"]:
            said, more = pill(QUIET, "nothing came yet"), ""
        else:
            numbers, amount = run["answered"][site]
            said, more = pill(GOOD, "answered"), f"{numbers:,} numbers, {size(amount)}"
        rows.append((escape(site), said, more))
    if not rows:
        return ""
    lead = "Who answered in the last round" if run["round"] is not None else "Who answers"
    return f"<h4>{lead}</h4>" + scrolled(
        f"Who answers {run['run']}", ("site", "state", "what came"), rows, left=range(3)
    )


def _sites(state: dict[str, Any]) -> str:
    rows = [
        (
            escape(site),
            pill(_SITES.get(said, QUIET), said),
            when(state["certificates"][site]) if site in state["certificates"] else _NONE,
        )
        for site, said in sorted(state["sites"].items(), key=lambda pair: natural(pair[0]))
    ]
    head = ("site", "state", "its certificate ends")
    lead = "As they come and go. A site dials out to this machine; nobody here can reach into it."
    return headed("sites", "Sites", scrolled("Table of sites", head, rows, left=range(3)), lead)


def _past(state: dict[str, Any]) -> str:
    if not state["past"]:
        return headed("past", "Past runs", "<p>None yet.</p>")
    rows = []
    for run in state["past"]:
        found = "not finished"
        if run["finished"]:
            found = "no clusters" if run["none"] else counted(run["k"] or 0, "cluster")
        label = f"Open the report of {run['title']}"
        opened = link(f"report/{quote(run['run'], safe='')}", "Report", kind="plain", label=label, new=True)
        rows.append(
            (
                f"<b>{escape(run['title'])}</b><br>{escape(run['purpose'] or 'purpose not stated')}",
                when(run["begun"]),
                found,
                str(run["sites"]),
                opened if run["report"] else _NONE,
            )
        )
    head = ("study", "begun", "found", "sites", "report")
    return headed("past", "Past runs", scrolled("Table of past runs", head, rows, left=(0, 1, 2, 4)))


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What somebody who does not see the page is told of a change."""
    said = []
    for site, state in after["sites"].items():
        if before["sites"].get(site, state) != state:
            said.append(f"{site}: {state}.")
    known = {run["run"]: run for run in before["runs"]}
    for run in after["runs"]:
        earlier = known.get(run["run"])
        name = run["title"] or run["run"]
        if earlier is None or earlier["state"] != run["state"]:
            said.append(f"{name}: {run['state']}.")
        if run["said"] and (earlier is None or earlier["said"] != run["said"]):
            said.append(f"{name} is {run['said']}.")
    done = {run["run"] for run in before["past"] if run["report"]}
    said += [
        f"The report of {run['title']} is there."
        for run in after["past"]
        if run["report"] and run["run"] not in done
    ]
    return said
