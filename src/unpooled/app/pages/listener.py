"""Connections to a page: limited in number, and closed if they do not present a cookie in time."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from unpooled.app.pages.access import HOSTS, Access
from unpooled.app.pages.folder_watch import Poller, Reader
from unpooled.app.pages.page_server import PageServer
from unpooled.errors import InputError

_MAX_UNAUTHENTICATED = 32  # connections without a cookie; one more closes the oldest of them
_PROVE = 10.0  # seconds in which a connection must present a cookie
_SOON = 1.0  # seconds after which an accepted connection surely has a transport
_IDLE = 30.0  # seconds after which a connection without a request is closed

Say = Callable[[str], None]


class ConnectionLimit:
    """Creates the handlers of connections, and closes connections without a cookie."""

    def __init__(self, create: Callable[[], Any]) -> None:
        self._create = create
        self._unauthenticated: list[Any] = []

    def __call__(self) -> Any:
        handler, loop = self._create(), asyncio.get_running_loop()
        while len(self._unauthenticated) >= _MAX_UNAUTHENTICATED:
            self._close(self._unauthenticated[0])
        self._unauthenticated.append(handler)
        loop.call_later(_PROVE, self._close, handler)
        return handler

    def mark_known(self, handler: RequestHandler) -> None:
        """Keep the connection open: it presented the right cookie."""
        if handler in self._unauthenticated:
            self._unauthenticated.remove(handler)

    def _close(self, handler: RequestHandler) -> None:
        if handler in self._unauthenticated:
            self._unauthenticated.remove(handler)
            _abort(handler)
            asyncio.get_running_loop().call_later(_SOON, _abort, handler)  # if it had no transport yet


def _abort(handler: RequestHandler) -> None:
    if handler.transport is not None:
        handler.transport.abort()


def bound(port: int) -> socket.socket:
    """Return a socket on the loopback address; raise InputError if the port is not available."""
    try:
        return socket.create_server((HOSTS[0], port))
    except OverflowError:
        raise InputError(f"--port must be between 0 and 65535, got {port}") from None
    except OSError as error:
        raise InputError(
            f"port {port} of this machine is not available: {error.strerror}. Use --port 0 for a free port."
        ) from None


async def serve(folder: Path, reader: Reader, page: ModuleType, port: int, say: Say) -> None:
    """Serve the page of a folder until SIGINT or SIGTERM; raise InputError if the folder is removed."""
    poller = Poller(reader, page)
    await poller.now()  # raises if the folder cannot be read
    listening = bound(port)
    access = Access(listening.getsockname()[1])
    connections = ConnectionLimit(lambda: serving())
    server = PageServer(folder, poller, access, connections.mark_known, say)
    runner = web.AppRunner(
        server.app, access_log=None, logger=_silent(), keepalive_timeout=_IDLE, shutdown_timeout=0.5
    )
    await runner.setup()
    assert runner.server is not None
    serving = runner.server
    loop = asyncio.get_running_loop()
    served = await loop.create_server(connections, sock=listening)
    watching = asyncio.create_task(poller.run())
    ended = asyncio.create_task(_signals().wait())
    try:
        with _on_enter(lambda: say(access.new_link())):
            say(f"Open the {poller.page_name} with this link, in a browser on this machine. It works once:")
            say(access.new_link())
            say(f"Press Enter for another link. Ctrl-C closes the {poller.page_name} and nothing else.")
            done, _ = await asyncio.wait((watching, ended), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # raises if the folder was removed
    finally:
        watching.cancel()
        ended.cancel()
        served.close()
        await runner.cleanup()


def _silent() -> logging.Logger:
    """Return a logger without output, so that no bytes from strangers reach the terminal."""
    log = logging.Logger("pages")
    log.addHandler(logging.NullHandler())
    return log


def _signals() -> asyncio.Event:
    """Return an event that SIGINT or SIGTERM sets from now on."""
    loop, signalled = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        if sys.platform == "win32":
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(signalled.set))
        else:
            loop.add_signal_handler(number, signalled.set)
    return signalled


@contextlib.contextmanager
def _on_enter(act: Callable[[], None]) -> Iterator[None]:
    """Act whenever Enter is pressed, if there is a keyboard."""
    loop = asyncio.get_running_loop()
    try:
        keyboard = sys.stdin.fileno()
        loop.add_reader(keyboard, lambda: _pressed(keyboard, act))
    except (OSError, ValueError, AttributeError, NotImplementedError):  # no keyboard, a file, or Windows
        yield
        return
    try:
        yield
    finally:
        loop.remove_reader(keyboard)


def _pressed(keyboard: int, act: Callable[[], None]) -> None:
    if os.isatty(keyboard) and os.tcgetpgrp(keyboard) != os.getpgrp():
        return  # in the background: the keyboard belongs to another program
    if os.read(keyboard, 1024):
        act()
    else:
        asyncio.get_running_loop().remove_reader(keyboard)
