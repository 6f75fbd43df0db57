"""A review page or a monitor in a process of its own, and a client that sends it any request."""

import contextlib
import http.client
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

SITE_REVIEW = [sys.executable, "-m", "unpooled", "site", "review"]
FEDERATION_WATCH = [sys.executable, "-m", "unpooled", "federation", "watch"]
PATIENCE = 600.0  # seconds; only what hangs takes that long


def wait_until(holds: Callable[[], object]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def first_group(pattern: str, text: str) -> str:
    """Return what the first group of a pattern matches in a text."""
    match = re.search(pattern, text)
    assert match is not None, text
    return match[1]


@dataclass
class ServedPage:
    """A page that is served, and the session of the client that opened its link."""

    process: subprocess.Popen[str]
    link: str
    path_token: str = ""
    cookie: str = ""
    sent: list[bytes] = field(default_factory=list)  # everything that it answered

    @property
    def port(self) -> int:
        return int(first_group(r":(\d+)/", self.link))

    def headers(self, **changed: str | None) -> dict[str, str]:
        """Return the headers that a browser sends from the page itself, with changes; None leaves one out."""
        usual = {
            "Host": f"127.0.0.1:{self.port}",
            "Cookie": self.cookie,
            "Sec-Fetch-Site": "same-origin",
            "Origin": f"http://127.0.0.1:{self.port}",
        }
        headers = {**usual, **{name.replace("_", "-"): value for name, value in changed.items()}}
        return {name: value for name, value in headers.items() if value is not None}

    def ask(
        self, path: str, method: str = "GET", body: bytes | str | None = None, **changed: str | None
    ) -> tuple[int, dict[str, str], str]:
        """(status, headers, text) of an answer."""
        wire = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            wire.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            data = body.encode() if isinstance(body, str) else body
            headers = self.headers(**changed)
            if data is not None:
                headers.setdefault("Content-Type", "application/x-www-form-urlencoded")
                headers["Content-Length"] = str(len(data))
            for name, value in headers.items():
                wire.putheader(name, value)
            wire.endheaders(data)
            response = wire.getresponse()
            answer = response.read()
        finally:
            wire.close()
        self.sent.append(answer)
        return response.status, dict(response.getheaders()), answer.decode()

    def page(self, name: str = "") -> str:
        status, _, text = self.ask(f"{self.path_token}{name}")
        assert status == 200, text
        return text

    def post(self, digest: str, verb: str, **fields: str) -> tuple[int, dict[str, str], str]:
        """Send the form of a decision."""
        path = f"{self.path_token}study/{digest}/{verb}"
        secret = first_group(r'name="secret" value="([^"]+)"', self.ask(path)[2])
        return self.ask(path, "POST", urlencode({"secret": secret, "by": "Dr. Low", **fields}))

    @contextlib.contextmanager
    def stream(self) -> Iterator["Stream"]:
        wire = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            wire.request("GET", f"{self.path_token}events", headers=self.headers())
            yield Stream(wire.getresponse(), self.sent)
        finally:
            wire.close()

    def open(self) -> None:
        """Use the link."""
        status, headers, text = self.ask(self.link.partition(f"{self.port}")[2], Cookie=None)
        assert status == 200, text
        self.cookie, self.path_token = (
            headers["Set-Cookie"].partition(";")[0],
            first_group(r'<a href="([^"]+)"', text),
        )


@dataclass
class Stream:
    """The stream of changes of a page."""

    answer: http.client.HTTPResponse
    sent: list[bytes]

    def next(self) -> dict:
        while True:
            line = self.answer.readline()
            assert line, "the stream ended"
            self.sent.append(line)
            if line.startswith(b"data: "):
                return json.loads(line[6:])


@contextlib.contextmanager
def served_page(
    folder: Path, *options: str, opened: bool = True, env: dict[str, str] | None = None
) -> Iterator[ServedPage]:
    """Run ``unpooled site review`` or ``unpooled federation watch`` on a folder."""
    command = FEDERATION_WATCH if (folder / "federation.json").exists() else SITE_REVIEW
    words: Sequence[str] = [*command, str(folder), *options]
    process = subprocess.Popen(
        words,
        env={**os.environ, **(env or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline() for _ in range(3)]
        assert "Ctrl-C closes the" in lines[-1], lines + process.stdout.readlines()
        page = ServedPage(process, lines[1].strip())
        if opened:
            page.open()
        yield page
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
