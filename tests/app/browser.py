"""A headless Chromium, driven over its debugging pipe: the requests, errors and looks of a page."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
# the browser reads commands from descriptor 3, and answers on 4
_BEGIN = """
import fcntl, os, sys
down, up = (fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3])
os.dup2(down, 3)
os.dup2(up, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class DeclinedError(AssertionError):
    """The browser refused a command, e.g. because the page was just being replaced."""


class Browser:
    """One page. ``requests`` are the addresses it asked for, ``complaints`` its errors and warnings."""

    def __init__(self, out: int, back: int) -> None:
        self._out, self._back, self._rest = out, back, b""
        self._number = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._loaded: set[str] = set()  # by the number of a navigation, as the browser gives it
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Network", "Runtime", "Log", "Page"):
            self._send(f"{domain}.enable")
        self._send("Page.setLifecycleEventsEnabled", enabled=True)

    def _send(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        command: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            command["sessionId"] = self._session
        os.write(self._out, json.dumps(command).encode() + b"\0")
        while True:
            message = self._receive()
            if message.get("id") == self._number:
                if "error" in message:
                    raise DeclinedError(str(message))
                return message["result"]

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = os.read(self._back, 1 << 20)
            assert data, "the browser ended"
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        parameters = message.get("params", {})
        match message.get("method"):
            case "Page.lifecycleEvent" if parameters["name"] == "load":
                self._loaded.add(parameters["loaderId"])
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(str(parameters["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.complaints.append(str(parameters["args"]))
            case "Log.entryAdded":
                self.complaints.append(parameters["entry"]["text"])
        return message

    def open(self, path: Path | str, width: int = 1200, *, dark: bool = False, paper: bool = False) -> None:
        """Open a file or an address, on a screen of a width, light or dark, or as on paper."""
        self._send(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._send("Emulation.setEmulatedMedia", media="print" if paper else "screen", features=scheme)
        address = path if isinstance(path, str) else path.resolve().as_uri()
        loader = self._send("Page.navigate", url=address).get("loaderId")
        while loader not in (None, *self._loaded):  # None: another place on the same page
            self._receive()

    def until(self, script: str, patience: float = 600.0) -> Any:
        """Wait until an expression is true on the page, within a limit; return its value."""
        end, value = time.monotonic() + patience, None
        while not value:
            with contextlib.suppress(DeclinedError):
                value = self.value(f"(() => {{ try {{ return {script}; }} catch (e) {{ return null; }} }})()")
            assert time.monotonic() < end, f"waited for {script}\n{self.value('document.body.innerText')}"
            time.sleep(0.05)
        return value

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            event = {"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code}
            self._send(
                "Input.dispatchKeyEvent", **event, **({"text": text} if text and kind == "keyDown" else {})
            )

    def type(self, text: str) -> None:
        """Type into the focused element."""
        self._send("Input.insertText", text=text)

    def named(self) -> list[dict[str, Any]]:
        """Return what a screen reader sees: role, name and properties of every visible element."""
        self._send("Accessibility.enable")
        nodes = self._send("Accessibility.getFullAXTree")["nodes"]
        return [
            {
                "role": node["role"]["value"],
                "name": node.get("name", {}).get("value", ""),
                **{item["name"]: item["value"].get("value") for item in node.get("properties", ())},
            }
            for node in nodes
            if not node.get("ignored")
        ]

    def value(self, script: str) -> Any:
        """Return the value of an expression on the page."""
        answer = self._send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        image = self._send("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(image["data"]))

    def pdf(self) -> bytes:
        return base64.b64decode(self._send("Page.printToPDF", printBackground=True)["data"])


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A fresh browser with an empty profile; a test is skipped if there is none on this machine."""
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        pytest.skip("Chromium is not installed")
    down, out = os.pipe()
    back, up = os.pipe()

    process = subprocess.Popen(
        [sys.executable, "-c", _BEGIN, str(down), str(up), program, *_FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(down, up),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(down)
    os.close(up)
    try:
        yield Browser(out, back)
    finally:
        process.kill()
        process.wait()
        os.close(out)
        os.close(back)
