"""Review page and monitor: open only with the link and from the page itself; no data, no locks."""

import asyncio
import csv
import errno
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from urllib.parse import urlencode

import numpy as np
import psutil
import pytest
from accessible import check_accessible
from browser import browser
from review_pages import PATIENCE, served_page, wait_until
from typer.testing import CliRunner

from studies import study_of
from unpooled.app.cli import app
from unpooled.app.job import Job, RemoteRunOptions
from unpooled.app.pages import cached_reading, listener
from unpooled.app.pages.access import Access
from unpooled.app.pages.cached_reading import BackgroundReading
from unpooled.app.pages.monitor_page import sections as federation_sections
from unpooled.app.pages.monitor_state import FederationState, rounds_to_rest
from unpooled.app.pages.review_page import sections as site_sections
from unpooled.app.pages.review_state import VERBS, SiteState
from unpooled.app.run_folder import RunFolder
from unpooled.federation import LocalFederation
from unpooled.federation.progress_file import ProgressFile
from unpooled.federation.provisioning.federation_folder import FederationFolder, create
from unpooled.protocol import run
from unpooled.protocol.exchange import RequestId
from unpooled.site import table_store
from unpooled.site.audit.overview import read as audited
from unpooled.site.folder_place import PLACE
from unpooled.site.ledger import Ledger, RunLimits
from unpooled.site.log import Log, entries
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse
from unpooled.site.study_store import APPROVED, StudyFolder
from unpooled.site.table_store import SummaryFolder
from unpooled.storage.file_locks import locked

ODD = "<img src=x onerror=alert(1)>\"'</title><script>alert(2)</script>&amp;"
SUMMARY_POLICY = 'format = 1\n[protect]\nmode = "summary"\nperson = "patient"\n'
DP_POLICY = (
    'format = 1\n[protect]\nmode = "dp"\n[dp]\nepsilon_total = 4\n[domain]\n'
    'columns = ["age"]\nlower = [0]\nupper = [110]\nrows = 200\n'
)


def call(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    return done.exit_code, done.stdout + (done.stderr or "")


def table(path, seed):
    """Write a table of people with unique values; return its cells as they are written."""
    rng = np.random.default_rng(seed)
    rows = [
        {"patient": f"P{seed}{i:04}", ODD: f"{rng.normal(50, 9):.5f}", "bmi": f"{rng.normal(25, 4):.6f}"}
        for i in range(120)
    ]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return {value for row in rows for value in row.values()}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of a site that answered a run from its summary table, and all values of its data."""
    folder = tmp_path_factory.mktemp("made")
    values = table(folder / "rows.csv", 1)
    site = folder / "north"
    (folder / "policy.toml").write_text(SUMMARY_POLICY)
    words = [
        "site",
        "summarize",
        "--no-sensitive-columns",
        site,
        "--data",
        folder / "rows.csv",
        "--policy",
        folder / "policy.toml",
    ]
    assert call(*words)[0] == 0
    shutil.copy(folder / "policy.toml", site)
    assert call("site", "approve", "--table", "--yes", site, "--by", ODD)[0] == 0
    opened = open_site("north", None, parse(SUMMARY_POLICY), site)
    analysed(opened, 1)
    opened.close()
    return folder, values


def analysed(site, seed):
    """Run an analysis on the summary table of one site."""
    job = Job(("x",), (2,), n_init=1, protect="summary")
    return run(job.algorithm, LocalFederation([site]), seed=seed)


def received(site, number, title="Groups", **how):
    """Give a site a study, which is then pending; return its digest."""
    study = study_of(f"run-{number}", title=title, **how)
    StudyFolder(site).receive("north", study, "")
    return study.digest


@pytest.fixture(scope="module")
def north(made):
    """The site with a pending study, one with an awkward name, an approved one, and an expired one."""
    site = made[0] / "north"
    digests = {
        "odd": received(site, 1, ODD, purpose=ODD, contact=ODD, columns=(ODD,)),
        "plain": received(site, 2),
        "approved": received(site, 3, "An approved one"),
        "expired": received(site, 4, "An old one", expires="2020-01-01T00:00:00+00:00"),
    }
    StudyFolder(site).decide(digests["approved"], APPROVED, ODD)
    return site, digests


@pytest.fixture(scope="module")
def served(north):
    with served_page(north[0]) as running:
        yield running


@pytest.fixture
def apart(north, tmp_path):
    """A review page on a duplicate of the site's folder, for a test that changes it; and that folder."""
    site = tmp_path / "north"
    shutil.copytree(north[0], site, ignore=shutil.ignore_patterns(PLACE))
    with served_page(site) as running:
        yield running, site


def checked_state(site):
    """Read the state of a site until its log is checked, which takes a thread of its own."""
    reader = SiteState(site)
    wait_until(lambda: reader.read()["sent"] is not None)
    return reader.read()


def decided(site, digest):
    return [(d.decision, d.by, d.reason) for d in StudyFolder(site).read(digest).decisions]


def untouched(folder):
    return {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in folder.rglob("*") if p.is_file()}


# ---------------------------------------------------------------- access


def test_the_link_opens_once_and_gives_a_cookie_for_its_path_alone(served, north):
    path = served.link.partition(str(served.port))[2]
    assert served.ask(path, Cookie=None)[::2] == (403, "refused\n")  # it was used
    path = another_link(served).partition(str(served.port))[2]
    for ahead in ({"Sec-Purpose": "prefetch;prerender"}, {"Purpose": "prefetch"}):  # a browser looks ahead
        assert served.ask(path, **{"Cookie": None, **ahead})[0] == 403
    status, headers, text = served.ask(path, Cookie=None, Sec_Fetch_Site="cross-site")
    cookie = headers["Set-Cookie"]
    path_token = re.search(r'content="0;url=(/[\w-]{20,}/)"', text)[1]
    assert status == 200
    assert re.match(
        rf"unpooled-pages-{served.port}=[\w-]{{40,}}; HttpOnly; Path={path_token}; SameSite=Strict", cookie
    )
    assert served.ask(path, Cookie=None)[0] == 403
    value = cookie.partition(";")[0]
    assert served.ask(path_token, Cookie=value)[0] == 200
    assert served.ask(served.path_token, Cookie=value)[0] == 403  # of another session
    assert served.page()  # the first one goes on


@pytest.mark.parametrize(
    "changed",
    [
        {"Cookie": None},
        {"Cookie": "unpooled-pages=x"},
        {"Host": "evil.example:PORT"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1:1"},
        {"Host": "127.0.0.1:PORT@evil.example"},
        {"Host": "[::1]:PORT"},
        {"Host": None},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},  # another port of this machine
    ],
    ids=str,
)
def test_requests_from_elsewhere_are_refused(served, north, changed):
    changed = {name: value and value.replace("PORT", str(served.port)) for name, value in changed.items()}
    digest = north[1]["plain"]
    acts = (f"study/{digest}/approve", f"table/{digest}/approve")
    for name in ("", "events", "summary", "dpia", "style.css", "nothing", *acts):
        status, headers, text = served.ask(f"{served.path_token}{name}", **changed)
        assert status in (400, 403)
        assert "north" not in text
        assert "study" not in text
        assert "Server" not in headers or status == 400
    assert served.ask(f"{served.path_token}study/{digest}/approve", "POST", "secret=x", **changed)[0] in (
        400,
        403,
    )
    assert decided(*(north[0], digest)) == []


def test_other_ways_and_places_are_refused_alike(served):
    short, names = served.path_token[:-2] + "/", ("", "events", "summary", "dpia", "style.css", "x", "x/y")
    for path in ("/", "/favicon.ico", "/x/", short, "//", *(f"/open/{name}" for name in names)):
        for changed in ({}, {"Cookie": None}):
            assert served.ask(path, **changed)[::2] == (403, "refused\n"), path
        assert served.ask(path, "POST", "a=b")[::2] == (403, "refused\n"), path
    for method in ("HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT"):
        assert served.ask(served.path_token, method)[0] == 403, method
    assert served.ask(f"{served.path_token}nothing")[0] == 404
    assert served.ask(f"{served.path_token}", "POST", "a=b")[0] == 405


POSTS = {
    "of another origin": {"Origin": "http://evil.example"},
    "of another port": {"Origin": "http://127.0.0.1:1", "Sec-Fetch-Site": "same-site"},
    "of no origin": {"Origin": None},
    "of an opaque origin": {"Origin": "null", "Sec-Fetch-Site": None},
    "of an opaque foreign origin": {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
    "typed in": {"Sec-Fetch-Site": "none"},
    "of another name of this host": {"Origin": "http://localhost:PORT"},
    "as text": {"Content-Type": "text/plain"},
    "as JSON": {"Content-Type": "application/json"},
}


@pytest.mark.parametrize("case", POSTS)
def test_a_post_from_elsewhere_is_refused(served, north, case):
    site, digests = north
    path = f"{served.path_token}study/{digests['plain']}/approve"
    secret = re.search(r'name="secret" value="([^"]+)"', served.ask(path)[2])[1]
    body = urlencode({"secret": secret, "by": "x"})
    changed = {n: v and v.replace("PORT", str(served.port)) for n, v in POSTS[case].items()}
    assert served.ask(path, "POST", body, **changed)[::2] == (403, "refused\n")
    assert decided(site, digests["plain"]) == []


def test_a_form_needs_the_secret_of_its_session_and_has_an_end(served, north):
    site, digests = north
    path = f"{served.path_token}study/{digests['plain']}/approve"
    secret = re.search(r'name="secret" value="([^"]+)"', served.ask(path)[2])[1]
    for wrong in ("", "x", secret[:-1], secret + "x", "ü"):
        assert served.ask(path, "POST", urlencode({"secret": wrong, "by": "x"}))[0] == 403
    assert served.ask(path, "POST", urlencode({"secret": secret, "by": "x" * 200_000}))[0] == 413
    for given in ({"by": "x" * 101}, {"by": "a\nb"}, {"by": "x", "reason": "no"}):
        status, _, text = served.post(digests["plain"], "approve", **given)
        assert status == 409
        assert "The decision failed" in text
    assert decided(site, digests["plain"]) == []
    assert secret not in served.page()


def test_pieces_of_requests_are_not_put_together(served):
    """Requests that two servers could read differently are refused, and the connection ends."""
    path, port = served.path_token, served.port
    head = f"Host: 127.0.0.1:{port}\r\nCookie: {served.cookie}\r\n"
    for text in (
        f"POST {path} HTTP/1.1\r\n{head}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG",
        f"GET {path} HTTP/1.1\r\n{head}Host: evil.example\r\n\r\n",
        f"GET {path} HTTP/1.1\r\n{head}Content-Length: 1\r\nContent-Length: 9\r\n\r\n",
        f"GET {path} HTTP/1.1\r\n{head}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        f"GET http://evil.example{path} HTTP/1.1\r\nHost: evil.example\r\nCookie: {served.cookie}\r\n\r\n",
        f"GET {path} HTTP/1.1\r\nCookie: {served.cookie}\r\n\r\n",
        f"GET {path}\r\n\r\n",
        "\x16\x03\x01 nonsense\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as wire:
            wire.sendall(text.encode("latin-1"))
            wire.shutdown(socket.SHUT_WR)
            answer = b""
            while data := wire.recv(65536):
                answer += data
        assert re.match(rb"HTTP/1\.[01] (400|403)", answer) or not answer, (text, answer[:200])
        assert b"north" not in answer


def test_idle_connections_do_not_keep_others_out(served):
    """The oldest of too many connections without a cookie is closed; a request with one is served."""
    wires = [socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE) for _ in range(40)]
    try:
        assert served.page()
        assert wires[0].recv(10) == b""
        wires[-1].sendall(b"GET / HTTP/1.1\r\n")  # still open, and slow
    finally:
        for wire in wires:
            wire.close()


def test_connections_without_a_cookie_are_closed_even_before_they_begin(monkeypatch):
    monkeypatch.setattr(listener, "_SOON", 0.01)

    class Connection:
        def __init__(self):
            self.transport, self.aborted = None, False

        def abort(self):
            self.aborted, self.transport = True, None

    async def come():
        made = listener.ConnectionLimit(Connection)
        every = [made() for _ in range(100)]
        made.mark_known(every[-1])
        for one in every:  # all at once: none had a connection when it was counted
            one.transport = one
        async with asyncio.timeout(PATIENCE):
            while sum(one.aborted for one in every) < 68:
                await asyncio.sleep(0.01)
        early = [one.aborted for one in every]
        for one in every:
            made._close(one)  # as after a while
        return early, [one.aborted for one in every]

    monkeypatch.setattr(listener, "_PROVE", 3600.0)
    early, late = asyncio.run(come())
    assert early == [True] * 68 + [False] * 32
    assert late == [True] * 99 + [False]  # a connection with a cookie stays


def test_nothing_that_strangers_send_is_on_the_terminal(served):
    """The terminal shows only lines of the program, whatever bytes come."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE) as wire:
        wire.sendall(b"GET \x1b[2J* HTTP/1.1\r\nHost: \x1b]0;evil\x07\r\n\r\n")
        wire.recv(1000)
    served.process.stdin.write("\n")
    served.process.stdin.flush()
    lines = []
    while "/open/" not in "".join(lines[-1:]):
        lines.append(served.process.stdout.readline())
    assert not any("\x1b" in line or "Error" in line or "Traceback" in line for line in lines), lines


def test_pages_that_are_kept_up_to_date_are_counted(apart):
    served, _ = apart  # no browser has a page of it
    with ExitStack() as streams:
        opened = [streams.enter_context(served.stream()) for _ in range(12)]
        assert all(stream.next()["title"] for stream in opened)
        assert served.ask(f"{served.path_token}events")[::2] == (
            503,
            "too many windows of the review page are open\n",
        )

    def status():
        with served.stream() as again:
            return again.answer.status

    wait_until(lambda: status() == 200)  # the server sees one by one that they were closed


def test_every_answer_forbids_what_it_does_not_need(served, north):
    digest = north[1]["plain"]
    for name in (
        "",
        "style.css",
        "pages.js",
        f"study/{digest}/approve",
        "summary",
        "audit",
        "dpia",
        "nothing",
    ):
        _, headers, _ = served.ask(f"{served.path_token}{name}")
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "frame-ancestors 'none'" in policy
        assert "base-uri 'none'" in policy
        assert "unsafe-inline' 'self" not in policy
        apart = name in ("summary", "audit", "dpia")
        assert ("sandbox allow-scripts" in policy) == apart
        assert "allow-same-origin" not in policy
        assert ("'unsafe-inline'" in policy) == apart  # styles of a document that cannot ask for anything
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "Access-Control-Allow-Origin" not in headers
        assert "Server" not in headers


def test_secrets_are_long_and_one_link_counts():
    access = Access(1234)
    links = {access.new_link() for _ in range(50)}
    assert len(links) == 50
    assert sum(access.used(link.rpartition("/")[2]) is not None for link in links) == 1
    assert access.used("") is None
    sessions = [access.used(access.new_link().rpartition("/")[2]) for _ in range(20)]
    name = access.cookie_name
    found = [access.session(one.path_token, f"a=b; {name}={one.cookie}") for one in sessions]
    assert found == [None] * 12 + sessions[12:]  # the oldest are forgotten
    assert access.session(sessions[-1].path_token, f"{name}={sessions[-2].cookie}") is None
    assert access.session(sessions[-1].path_token, sessions[-1].cookie) is None
    other = f"{name}=x; {name}={sessions[-1].cookie}; {name}=y"  # of other servers on this machine
    assert access.session(sessions[-1].path_token, other) == sessions[-1]
    assert access.session("", "") is None


# ---------------------------------------------------------------- the review page


def test_the_page_has_the_whole_statement_and_escapes_names(served, north):
    page = served.page()
    for text in (
        "Pending studies",
        "to find groups",
        "AskSchema",
        north[1]["plain"][:8],
        "not signed",
    ):
        assert text in page
    assert "2 studies wait for your decision." in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    for text in served.sent:
        assert b"<img src=x" not in text
        assert b"<script>alert" not in text
    assert page.count("<script") == 1
    assert "An old one" in page
    assert page.count(">Withdraw") == 1
    assert f"study/{north[1]['expired']}/" not in page


def test_no_data_is_sent_beyond_the_summary_table(served, made, north):
    """Everything that the page sends is searched for the cells of the data; the summary table's may occur."""
    folder, values = made
    with served.stream() as stream:
        stream.next()
    asked = [f"study/{digest}/{verb}" for digest in north[1].values() for verb in VERBS]
    for name in ("", "summary", "audit", "dpia", "style.css", "pages.js", *asked):
        served.ask(f"{served.path_token}{name}")
    with (folder / "north" / "summary" / "table.csv").open() as file:
        disclosed = {cell for row in csv.reader(file) for cell in row}
    sent = b"\n".join(served.sent).decode()
    secret = values - disclosed
    assert len(secret) > 300
    assert [value for value in secret if value in sent] == []
    assert sent.count("answers from this table, not from the data") >= 2


def test_only_a_decision_writes_and_it_is_that_of_the_command(apart, north):
    served, site = apart
    digests = north[1]
    new = received(site, 9, "To be decided")
    before = untouched(site)
    served.page()
    served.page("dpia")
    served.page("audit")
    served.page(f"study/{new}/approve")
    assert untouched(site) == before
    status, headers, _ = served.post(new, "approve")
    assert (status, headers["Location"]) == (303, "../../")
    assert decided(site, new) == [("approved", "Dr. Low", "")]
    line = [entry for _, entry in entries(site / "log.jsonl")][-1]
    assert (line["kind"], line["decision"], line["by"], line["study"]) == (
        "study",
        "approved",
        "Dr. Low",
        new,
    )
    assert "To be decided" in served.page()
    status, _, text = served.post(new, "approve")
    assert status == 409
    assert "is approved. It cannot be approved." in text
    assert served.post(new, "withdraw", reason="a complaint <b>")[0] == 303
    assert decided(site, new)[-1] == ("withdrawn", "Dr. Low", "a complaint <b>")
    assert "a complaint &lt;b&gt;" in served.page()
    twice = received(site, 10, "Pressed twice")
    with ThreadPoolExecutor(4) as hands:
        answers = list(hands.map(lambda _: served.post(twice, "approve")[0], range(4)))
    assert sorted(answers) == [303, 409, 409, 409]
    assert len(decided(site, twice)) == 1
    assert served.post(digests["odd"], "decline", reason="no")[0] == 303
    assert decided(site, digests["odd"]) == [("declined", "Dr. Low", "no")]
    assert audited(site).intact


@pytest.mark.parametrize(
    "path",
    [
        f"study/{'0' * 64}/approve",
        "study/../../etc/passwd/approve",
        "study/%2e%2e%2f%2e%2e%2fetc%2fpasswd/approve",
        "report/x",
        "report/..%2f..%2fnorth",
        "summary/../../north/log.jsonl",
        "log.jsonl",
        "..%2flog.jsonl",
        "style.css%00.html",
    ],
)
def test_no_other_file_is_reached(served, path):
    status, _, text = served.ask(f"{served.path_token}{path}")
    assert status in (403, 404, 409)
    assert len(text) < 200


def test_changes_are_sent_as_they_happen_and_nothing_else(apart):
    served, site = apart
    with served.stream() as stream:
        first = stream.next()
        names = {"overview", "pending", "sent", "summary", "decided", "budget", "dpia"}
        assert set(first["sections"]) == names
        assert first["changes"] == ""
        received(site, 11, "Something new")
        while not (update := stream.next())["changes"]:
            pass  # of earlier changes
        assert update["changes"] == "A study waits for your decision: Something new."
        assert {"overview", "pending"} <= set(update["sections"])
        assert not {"summary", "decided", "budget", "dpia"} & set(update["sections"])
        assert "Something new" in update["sections"]["pending"][1]
    assert "Something new" in served.page()  # a later visitor sees it too


# ---------------------------------------------------------------- beside a site that runs


def test_a_site_that_answers_is_neither_held_up_nor_misread(made, north, tmp_path):
    """The site has its log and its ledger open, and writes; the page reads both, and shows the answers."""
    site = tmp_path / "north"
    shutil.copytree(north[0], site, ignore=shutil.ignore_patterns(PLACE))
    before = checked_state(site)["sent"]["answers"]
    opened = open_site("north", None, parse(SUMMARY_POLICY), site)
    with served_page(site) as running:
        text = running.page()
        assert "the log is intact" in text
        for seed in range(3):
            analysed(opened, seed)
            running.page()
        opened.close()
        for _ in range(20):  # nobody else holds the log, however often the page reads it
            Log(site / "log.jsonl").close()
        answers = f"<b>{checked_state(site)['sent']['answers']}</b>answers"
        wait_until(lambda: answers in running.page())
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(PATIENCE) == 0
    record = audited(site)
    assert record.intact
    assert sum(r.answers for r in record.runs) > before
    assert "THE LOG IS NOT INTACT" not in b"".join(running.sent).decode()


def test_a_line_that_is_just_being_written_is_not_a_fault(north, tmp_path):
    site = tmp_path / "north"
    shutil.copytree(north[0], site, ignore=shutil.ignore_patterns(PLACE))
    log = site / "log.jsonl"
    whole = log.read_bytes()
    log.write_bytes(whole[:-40])
    assert checked_state(site)["sent"]["intact"]
    lines = whole.splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:2], lines[2].replace(b'"', b"'", 1), *lines[3:]]))
    state = checked_state(site)
    assert not state["sent"]["intact"]
    assert "line 3" in state["sent"]["faults"][0]


def test_a_long_reading_takes_a_tenth_of_the_time_at_most(monkeypatch):
    now, made = [0.0], []

    def read():
        now[0] += 3.0  # seconds that it takes
        made.append(len(made))
        return made[-1]

    monkeypatch.setattr(cached_reading, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(cached_reading, "_EAGER", None)  # a page waits until it is read
    reading = BackgroundReading(read)
    assert reading.get((1,)) == 0
    assert reading.get((1,)) == 0
    for later, value in ((29.0, 0), (2.0, 1)):
        now[0] += later
        assert reading.get((2,)) == value
    assert made == [0, 1]


def test_damaged_files_are_named_and_the_rest_is_shown(north, tmp_path):
    site = tmp_path / "north"
    shutil.copytree(north[0], site, ignore=shutil.ignore_patterns(PLACE))
    StudyFolder(site).file(north[1]["plain"]).write_text("{")
    (site / "summary" / "table.csv").write_text("people\n5\n")
    with served_page(site) as running:
        page = running.page()
        assert "not a study, or damaged" in page
        assert "It cannot be read" in page
        assert "Decided studies" in page
        assert running.ask(f"{running.path_token}summary")[0] == 409
        (site / "studies").rename(site / "studies.away")
        (site / "studies").symlink_to(tmp_path)  # a link that leads elsewhere names no study
        assert running.ask(f"{running.path_token}study/{north[1]['approved']}/withdraw")[0] == 404
        shutil.rmtree(site)
        assert running.process.wait(PATIENCE) == 1
        lines = running.process.stdout.read().splitlines()
        assert lines[-1] == f"unpooled: {site}: the folder was removed, so the page is closed"
        assert len(lines) == 2  # the other one reports that a browser opened the link


def test_an_officer_approves_the_summary_table_that_was_shown(apart):
    running, site = apart
    place = SummaryFolder(site)
    (place.path / table_store.APPROVED).unlink()
    path = f"table/{place.digest}/approve"
    wait_until(lambda: f'href="{path}"' in running.page())
    text = running.page(path)
    assert f"k = {place.read().min_group_size}" in text
    secret = re.search(r'name="secret" value="([^"]+)"', text)[1]
    assert running.ask(f"{running.path_token}{path}", "POST", "secret=x&by=H")[0] == 403
    other = f"{running.path_token}table/{'0' * 64}/approve"
    assert running.ask(other, "POST", f"secret={secret}&by=H")[0] == 404
    assert not place.approved
    assert running.ask(f"{running.path_token}{path}", "POST", f"secret={secret}&by=H")[0] == 303
    assert place.approval()["by"] == "H"
    assert running.ask(f"{running.path_token}{path}")[0] == 404  # nothing waits any more
    assert f'href="{path}"' not in running.page()


def test_a_policy_that_approves_by_itself_is_shown(north, tmp_path):
    site = tmp_path / "north"
    shutil.copytree(north[0], site, ignore=shutil.ignore_patterns(PLACE))
    (site / "policy.toml").write_text(
        f'{SUMMARY_POLICY}[studies]\napprove = "known"\npurposes = ["care", "<i>"]\n'
    )
    text = site_sections(SiteState(site).read())["overview"]
    assert "approves studies of its coordinator by itself for care; &lt;i&gt;." in text


def test_the_budget_is_the_ledgers(tmp_path):
    table(tmp_path / "rows.csv", 2)
    site = tmp_path / "private"
    site.mkdir()
    (site / "policy.toml").write_text(DP_POLICY)
    rows = np.random.default_rng(0).uniform(20, 80, (200, 1))
    opened = open_site("private", rows, parse(DP_POLICY), site)
    ledger = Ledger(site / "ledger.sqlite", "private")
    ledger.charge(RequestId("r", 0, 0, 0), "asked", 0.1, RunLimits(10, 10, 1.0))
    state = SiteState(site).read()  # while it is open
    ledger.close()
    opened.close()
    assert 0 < state["budget"]["spent"] < state["budget"]["total"] == 4
    assert SiteState(site).read()["budget"] == state["budget"]
    assert not (site / "ledger.sqlite-wal").exists()  # reading left nothing behind


# ---------------------------------------------------------------- the monitor


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    """A federation with a run in progress, as a server leaves it, and two past ones."""
    folder = tmp_path_factory.mktemp("federation")
    fed = create(folder / "fed", "fed", "localhost", ("a", "b"), engine_name="nvflare")
    rng = np.random.default_rng(0)
    files = []
    for name in "ab":
        files.append(folder / f"{name}.csv")
        rows = rng.normal(size=(60, 2)) + 6 * rng.integers(3, size=(60, 1))
        np.savetxt(files[-1], rows, delimiter=",", header="x,y", comments="")
    done = folder / "done"
    assert call("fit", *files, "-k", "3", "--out", done)[0] == 0
    job = RunFolder(done).load_job()
    for number, (place, title) in enumerate(
        (
            (fed.results / "r1", "An early one"),
            (folder / "elsewhere", ODD),
            (folder / "now", "The one of now"),
        )
    ):
        shutil.copytree(done, place)
        remote = RemoteRunOptions(str(fed.path), f"r{number + 1}", ("a", "b"), title=title, purpose=ODD)
        kept = RunFolder(place)
        content = json.loads(kept.job.read_text())
        content["job"] = replace(job, files=(), remote=remote).to_json()
        kept.job.write_text(json.dumps(content))
        fed.note_run(remote.run, place)
    (fed.runs / "r3").mkdir()
    shutil.copy(done / "checkpoint", fed.runs / "r3")
    return fed


def in_progress(federation, waiting=(), silent=()):
    """Write the progress of the last run in round 4, as its process does."""
    record = {"round": 4, "movement": 0.5, "inertia": 12.5, "exchanges": 1, "sent": {"a": [10, 80]}}
    record["silent"] = dict(silent)
    ProgressFile(federation.runs / "r3").write("running", waiting=dict(waiting), record=record)


@pytest.fixture(scope="module")
def central(federation):
    with served_page(federation.path) as running:
        yield running


def test_runs_sites_and_reports_are_shown(federation, central):
    running = central
    in_progress(federation, silent={"b": ODD})
    with running.stream() as stream, locked(federation.runs / "r3"):  # as the process of the run does
        while "12.5" not in (page := stream.next()["sections"].get("overview", ["", ""])[1]):
            pass
        page = running.page()
    for text in ("An early one", "The one of now", "invited", "server not running", "0.5", "12.5"):
        assert text in page
    assert "<img src=x" not in page
    assert page.count("<svg") == 2
    assert "did not answer" in page
    for name in ("r1", "r2"):  # in the federation's folder, and elsewhere
        status, headers, text = running.ask(f"{running.path_token}report/{name}")
        assert status == 200
        assert text.startswith("<!doctype html>")
        assert "sandbox" in headers["Content-Security-Policy"]
    for name in ("..%2f..%2fserver%2fstartup%2fserver.key", "r9", "%2e%2e", "", "r3%00"):
        status, _, text = running.ask(f"{running.path_token}report/{name}")
        assert status in (404, 409)
        assert len(text) < 100
    assert running.ask(f"{running.path_token}dpia")[0] == 404
    assert running.ask(f"{running.path_token}study/{'0' * 64}/approve")[0] == 404
    report = federation.results / "r1" / "report.html"
    kept = report.read_bytes()
    report.unlink()
    report.symlink_to(federation.server / "startup" / "server.key")  # a link to another file is not a report
    assert running.ask(f"{running.path_token}report/r1")[::2] == (409, "the run has no report\n")
    report.unlink()
    report.write_text("a secret")
    assert running.ask(f"{running.path_token}report/r1")[0] == 409
    report.write_bytes(kept)
    with running.stream() as stream:
        stream.next()
        work = federation.runs / "r3"
        ProgressFile(work).write(
            "failed", kind="TooFewAnswersError", text="nobody came", table=(), retry=False
        )
        while "The one of now: failed." not in (update := stream.next())["changes"]:
            pass
        assert "nobody came" in update["sections"]["runs"][1]
    half = federation.path / "federation.json"
    whole = half.read_bytes()
    half.write_bytes(whole[:20])  # half saved by hand: the monitor stays up
    wait_until(lambda: "this page is out of date" in running.page())
    half.write_bytes(whole)
    wait_until(lambda: "this page is out of date" not in running.page())


def test_a_waiting_run_names_the_site_and_the_time(federation, monkeypatch):
    """As the coordinator's process writes it, while it holds the run."""
    work = federation.runs / "r3"
    since = time.time() - 60
    ProgressFile(work).write("running", waiting={"b": since})
    with locked(work):
        state = FederationState(federation.path).read()
    (run_now,) = state["runs"]
    assert run_now["state"] == "waiting"
    assert run_now["waiting_text"].startswith("waiting for b since ")
    text = "".join(federation_sections(state).values())
    assert "The one of now</b> is waiting for b since" in text
    assert "has not decided" in text


def test_the_time_left_follows_the_movement():
    assert rounds_to_rest([4.0, 2.0, 1.0, 0.5], 0.5) == 0
    assert rounds_to_rest([4.0, 2.0, 1.0, 0.5], 0.0625) == 3
    assert rounds_to_rest([1.0, 1.1, 1.2], 0.1) is None
    assert rounds_to_rest([1.0, 0.5], 0.1) is None
    assert rounds_to_rest([4.0, 2.0, 1.0], None) is None


# ---------------------------------------------------------------- errors


def test_errors_are_one_line(tmp_path, north):
    (tmp_path / "empty" / "studies").mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for words, message in (
            ([tmp_path / "none"], "no such folder"),
            ([tmp_path / "empty"], "not the folder of a site"),
            (
                [north[0], "--port", port],
                f"port {port} of this machine is not available: {os.strerror(errno.EADDRINUSE)}",
            ),
        ):
            code, output = call("site", "review", *words)
            assert (code, output.count("\n")) == (1, 1), output
            assert message in output
    (tmp_path / "empty" / "federation.json").write_text("{")
    assert "unpooled federation watch" in call("site", "review", tmp_path / "empty")[1]
    assert "not the folder of a federation" in call("federation", "watch", tmp_path / "empty")[1]
    without = "import sys; sys.modules['aiohttp'] = None; from unpooled.app.cli import app; app()"
    words = [sys.executable, "-c", without, "site", "review", north[0]]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "unpooled: the page needs aiohttp, which is not installed. Install it with pip install "
        "'.[pages]' in the folder of unpooled. Or use --text, or --html FILE.\n"
    )


def test_it_listens_on_this_machine_alone_and_names_no_secret(served):
    process = psutil.Process(served.process.pid)
    sockets = [one.laddr for one in process.net_connections("inet") if one.status == psutil.CONN_LISTEN]
    assert sockets == [("127.0.0.1", served.port)]
    assert served.link.rpartition("/")[2] not in " ".join(process.cmdline())


def test_runs_are_noted_where_their_files_are(federation, tmp_path):
    before, files = federation.noted_runs(), set(federation.results.iterdir())
    federation.note_run("r8", federation.results / "r8")
    assert set(federation.results.iterdir()) == files
    federation.note_run("r9", tmp_path / "out")
    assert FederationFolder.read(federation.path).noted_runs() == {**before, "r9": tmp_path / "out"}
    federation.forget_run("r9")
    assert federation.noted_runs() == before


# ---------------------------------------------------------------- in a real browser


def another_link(running):
    """Press Enter at the terminal; return the new link."""
    running.process.stdin.write("\n")
    running.process.stdin.flush()
    lines = iter(running.process.stdout.readline, "")
    return next(line.strip() for line in lines if "/open/" in line)


@pytest.fixture(scope="module")
def tab(served, tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        opened.open(another_link(served))
        opened.until("document.getElementById('changes') !== null")
        opened.home = opened.value("location.href")
        yield opened


def check_page(tab, address):
    """Check a page in light and dark, wide and narrow: no complaints, no requests to others."""
    for width, dark in ((1200, False), (390, True)):
        tab.requests.clear()
        tab.complaints.clear()
        tab.open(address, width, dark=dark)
        assert check_accessible(tab) >= 4
        assert tab.value("document.documentElement.scrollWidth") <= width
        ink, paper = (tab.value(f"getComputedStyle(document.body).{c}") for c in ("color", "backgroundColor"))
        light = [sum(map(int, re.findall(r"\d+", value)[:3])) for value in (ink, paper)]
        assert (light[0] > light[1]) is dark
        ours = tab.home.rpartition("/")[0].rpartition("/")[0]
        assert [url for url in tab.requests if not url.startswith((ours, "data:"))] == []
        assert tab.complaints == []


def test_the_review_page_is_accessible_and_requests_nothing_elsewhere(tab, north):
    check_page(tab, tab.home)
    assert ODD in tab.value("document.getElementById('decided').textContent")  # as text
    assert tab.value("document.querySelectorAll('img, iframe, script:not([src])').length") == 0
    check_page(tab, f"{tab.home}study/{north[1]['plain']}/decline")
    assert tab.value("document.querySelector('label[for=reason]').textContent").startswith("Reason")


def test_the_monitor_is_accessible_and_opens_a_report_in_isolation(federation, central, tmp_path):
    with locked(federation.runs / "r3"), browser(tmp_path / "profile") as tab:
        in_progress(federation, waiting={"b": time.time()})
        tab.open(another_link(central))
        tab.until("document.querySelectorAll('#runs svg').length === 2")
        tab.home = tab.value("location.href")
        check_page(tab, tab.home)
        assert tab.value("document.querySelectorAll('#runs svg').length") == 2
        tab.complaints.clear()
        tab.open(f"{tab.home}report/r2")
        assert "clusters" in tab.value("document.body.textContent")
        assert tab.value("[...document.querySelectorAll('button')].some(b => b.textContent === 'CSV')")
        assert tab.complaints == []
        request = "fetch(location.href, {credentials: 'include'}).then(r => r.status, e => 'no')"
        assert tab.value(request) == "no"  # it cannot request anything from the server
        assert tab.value("self.origin") == "null"


def test_a_decision_by_keyboard_alone_and_what_changes_is_shown_at_once(tab, apart):
    running, site = apart
    digest = received(site, 21, "By keyboard")
    tab.open(another_link(running))
    tab.until("document.getElementById('changes') !== null")
    home = tab.value("location.href")
    way = f'a[href="study/{digest}/approve"]'
    tab.until(f"document.querySelector('{way}') !== null")
    tab.value(
        f"document.getElementById('queries-{digest[:16]}').open = true; "
        f"document.querySelector('{way}').focus()"
    )
    received(site, 22, "Meanwhile another")
    tab.until("document.getElementById('changes').textContent.includes('Meanwhile another')")
    assert "Meanwhile another" in tab.value("document.getElementById('pending').textContent")
    assert (
        tab.value("document.activeElement.getAttribute('href')") == f"study/{digest}/approve"
    )  # focus stays
    assert tab.value(f"document.getElementById('queries-{digest[:16]}').open")
    tab.press("Enter", 13, "\r")
    tab.until("document.querySelector('form') !== null")
    for _ in range(12):
        if tab.value("document.activeElement.id") == "by":
            break
        tab.press("Tab", 9)
    tab.value("document.activeElement.select()")
    tab.press("H", 72, "H")
    tab.press("Enter", 13, "\r")
    tab.until("document.getElementById('decided').textContent.includes('By keyboard')")
    assert decided(site, digest) == [("approved", "H", "")]
    tab.open("about:blank")
    tab.open(home)  # closing the page loses nothing
    assert "By keyboard" in tab.value("document.getElementById('decided').textContent")
    tab.open("about:blank")  # before this server ends


FOREIGN = """<!doctype html><title>foreign</title><iframe id=f name=f></iframe><script>
window.attack = async (page, path) => {
  const results = {};
  const tried = (name, what) =>
    what.then(v => { results[name] = v; }, () => { results[name] = 'refused'; });
  const frame = document.getElementById('f');  // it loads something even if it may not load the page
  await tried('read', fetch(page, {credentials: 'include'}).then(r => r.text()));
  await tried('blind', fetch(page, {credentials: 'include', mode: 'no-cors'}).then(r => r.type + r.status));
  await tried('stream', new Promise((yes, no) => {
    const s = new EventSource(page + 'events', {withCredentials: true});
    s.onmessage = e => yes(e.data); s.onerror = () => { s.close(); no(); }; }));
  await tried('script', new Promise((yes, no) => {
    const s = document.createElement('script'); s.src = page + 'pages.js'; s.onload = () => yes('ran');
    s.onerror = no; document.body.append(s); }));
  await tried('post', fetch(page + path, {method: 'POST', credentials: 'include', mode: 'no-cors',
    body: new URLSearchParams({secret: 'x', by: 'x'})}).then(r => r.type + r.status));
  const form = document.createElement('form');
  Object.assign(form, {method: 'post', action: page + path, target: 'f'});
  form.innerHTML = '<input name=by value=x><input name=secret value=x>';
  document.body.append(form);
  await new Promise(yes => { frame.onload = yes; form.submit(); });
  await new Promise(yes => { frame.onload = yes; frame.src = page; });
  try { results.inside = frame.contentDocument ? 'readable' : 'closed'; }
  catch (e) { results.inside = 'closed'; }
  return results;
};
</script>"""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])  # the same site to a browser, and another
def test_a_foreign_page_in_the_same_browser_receives_nothing(tab, north, host):
    """It even knows the secret path, but can neither read nor post, and its server never gets the cookie."""
    site, digests = north
    heard = []

    class Foreign(BaseHTTPRequestHandler):
        def do_GET(self):
            heard.append(str(self.headers))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(FOREIGN.encode())

        def log_message(self, *_):
            pass

    before = decided(site, digests["plain"])
    with ThreadingHTTPServer(("127.0.0.1", 0), Foreign) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tab.open(f"http://{host}:{server.server_address[1]}/page")
        path = f"study/{digests['plain']}/approve"
        results = tab.value(f"attack({json.dumps(tab.home)}, {json.dumps(path)})")
        server.shutdown()
    assert results["read"] == results["stream"] == results["script"] == "refused"
    assert results["blind"] in ("opaque0", "refused")
    assert results["post"] in ("opaque0", "refused")
    assert results["inside"] == "closed"
    assert decided(site, digests["plain"]) == before == []
    assert heard
    assert not any("unpooled-pages" in headers for headers in heard)
    tab.open(tab.home)
    assert tab.value("document.getElementById('changes') !== null")  # the page itself still works
