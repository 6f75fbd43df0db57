"""The monitor of a federation: runs in progress, the state of sites, past runs and their reports."""

from typing import Any
from urllib.parse import quote

from unpooled.app.pages.layout import BAD, GOOD, PENDING, QUIET
from unpooled.app.report.charts import curve
from unpooled.html.formatting import counted, duration, natural, size
from unpooled.html.rendering import fragment

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
_NONE = "\N{EN DASH}"


def title(state: dict[str, Any]) -> str:
    """Return the title of the window."""
    live = [run for run in state["runs"] if run["state"] == "running" and run["round"] is not None]
    return f"{state['name']}: round {live[0]['round']}" if live else f"{state['name']}: monitor"


def heading(state: dict[str, Any]) -> str:
    """Return the heading of the page."""
    return f"Monitor of {state['name']}"


def where(state: dict[str, Any]) -> str:
    """Return the line at the top as HTML: the federation, and whether its server is running."""
    return _section("where", name=state["name"], address=state["address"], up=state["up"])


def sections(state: dict[str, Any]) -> dict[str, str]:
    """Return the sections of the page by name, each as HTML."""
    sites = sorted(state["sites"].items(), key=lambda pair: natural(pair[0]))
    return {
        "overview": _overview(state),
        "runs": _section("runs", runs=list(map(_run, state["runs"]))),
        "sites": _section(
            "sites",
            sites=[
                {
                    "name": site,
                    "state": status,
                    "kind": _SITES.get(status, QUIET),
                    "expires": state["certificates"].get(site, ""),
                }
                for site, status in sites
            ],
        ),
        "past": _section("past", runs=list(map(_past, state["past"]))),
    }


def _section(name: str, /, **values: object) -> str:
    return fragment("monitor.html", name, **values)


def _overview(state: dict[str, Any]) -> str:
    live = [run for run in state["runs"] if run["state"] in ("starting", "waiting", "running")]
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
    return _section(
        "overview",
        run=(live[0]["title"] or f"The run {live[0]['run']}") if live else "",
        now=_now(live[0]) if live else "",
        problems=state["problems"],
        values=values,
    )


def _now(run: dict[str, Any]) -> str:
    """Return what a run is doing, for a sentence that begins with its name."""
    if run["waiting"]:
        return f"is {run['waiting_text']}."
    if run["state"] == "starting" or run["round"] is None:
        return "is starting at the sites."
    answered, silent = len(run["answered"]), len(run["silent"])
    return f"is in round {run['round']}: {answered} of {answered + silent} sites answered."


def _time_left(run: dict[str, Any]) -> tuple[str, str]:
    if run["time_left"] is None:
        return _NONE, "time left: not known yet"
    seconds, is_estimate = run["time_left"]
    return duration(seconds), "time left, estimated" if is_estimate else "left at most"


def _run(run: dict[str, Any]) -> dict[str, Any]:
    """Return a run in progress as the page shows it."""
    ks = run["ks"]
    begun = run["round"] if run["round"] is not None else 0
    return {
        "id": run["run"],
        "title": run["title"] or run["run"],
        "state": run["state"],
        "kind": _RUNS[run["state"]],
        "cause": run["cause"],
        "purpose": run["purpose"],
        "method": run["method"],
        "k": f"{min(ks)} to {max(ks)}" if len(ks) > 1 else str(ks[0]) if ks else "",
        "rounds": f"{begun} of at most {run['max_rounds']}" if run["max_rounds"] else "",
        "round_trips": run["round_trips"],
        "expires": run["expires"],
        "charts": _charts(run),
        "sites": _answers(run),
        "answers_in_round": run["round"] is not None,
    }


def _charts(run: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return (title, hint, chart) of inertia and movement, from the second round on."""
    rounds = [values for values in run["rounds"] if values[0] > 0]
    if len(rounds) < 2:
        return []
    at = [float(number) for number, _, _ in rounds]
    nan = float("nan")
    inertia = [nan if value is None else value for _, _, value in rounds]
    moved = [nan if value is None else value for _, value, _ in rounds]
    charts = [
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
    return [(title, hint, chart) for title, hint, chart in charts if chart]


def _answers(run: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the sites of a run, each with what it did in the last round."""
    sites = []
    for site in sorted({*run["asked"], *run["answered"], *run["silent"], *run["waiting"]}, key=natural):
        kind, state, details, since = QUIET, "no answer yet", "", None
        if site in run["waiting"]:
            kind, state, since = PENDING, "has not decided", run["waiting"][site]
        elif site in run["silent"]:
            kind, state, details = BAD, "did not answer", run["silent"][site]
        elif site in run["answered"]:
            numbers, amount = run["answered"][site]
            kind, state, details = GOOD, "answered", f"{numbers:,} numbers, {size(amount)}"
        sites.append({"name": site, "kind": kind, "state": state, "details": details, "since": since})
    return sites


def _past(run: dict[str, Any]) -> dict[str, Any]:
    """Return a past run as the page shows it."""
    outcome = "not finished"
    if run["finished"]:
        outcome = "no clusters" if run["none"] else counted(run["k"] or 0, "cluster")
    return {
        "title": run["title"],
        "purpose": run["purpose"],
        "begun": run["begun"],
        "outcome": outcome,
        "sites": run["sites"],
        "report": run["report"],
        "path": quote(run["run"], safe=""),
    }


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
