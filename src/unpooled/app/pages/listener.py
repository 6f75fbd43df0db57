"""Connections to the desk: bounded in number, and closed if nobody shows in time that it may be here."""

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

from unpooled.app.pages.access import HOSTS, Access
from unpooled.app.pages.folder_watch import Poller, Reader
from unpooled.app.pages.page_server import PageServer
from unpooled.errors import InputError

_MAX_UNAUTHENTICATED = 32  # connections that have not shown a cookie; then the oldest of them is closed
_PROVE = 10.0  # seconds in which a connection must show it
_SOON = 1.0  # seconds in which a connection that was just taken has begun
_IDLE = 30.0  # seconds after which a connection without a question is closed

Say = Callable[[str], None]


class ConnectionLimit:
    """Makes the handlers of connections, and closes those of strangers that stay."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._strangers: list[Any] = []

    def __call__(self) -> Any:
        handler, loop = self._make(), asyncio.get_running_loop()
        while len(self._strangers) >= _MAX_UNAUTHENTICATED:
            self._look(self._strangers[0])
        self._strangers.append(handler)
        loop.call_later(_PROVE, self._look, handler)
        return handler

    def mark_known(self, handler: Any) -> None:
        """Somebody has shown a right cookie on this connection."""
        if handler in self._strangers:
            self._strangers.remove(handler)

    def _look(self, handler: Any) -> None:
        if handler in self._strangers:
            self._strangers.remove(handler)
            _end(handler)
            asyncio.get_running_loop().call_later(_SOON, _end, handler)  # if it had no connection yet


def _end(handler: Any) -> None:
    if handler.transport is not None:
        handler.transport.abort()


def bound(port: int) -> socket.socket:
    """A socket on the loopback address; InputError if the port is not to be had."""
    try:
        return socket.create_server((HOSTS[0], port))
    except OverflowError:
        raise InputError(f"--port must be between 0 and 65535, got {port}") from None
    except OSError as error:
        raise InputError(
            f"port {port} of this machine cannot be had: {error.strerror}; --port 0 takes a free one"
        ) from None


async def serve(folder: Path, reader: Reader, page: ModuleType, port: int, say: Say) -> None:
    """Serve a folder until SIGINT or SIGTERM. UnpooledError if the folder is gone."""
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
        with _asked(lambda: say(access.new_link())):
            say("open this link in a browser on this machine; it can be used once:")
            say(access.new_link())
            say("Enter makes another link; Ctrl-C ends the desk, and nothing else")
            done, _ = await asyncio.wait((watching, ended), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # raises if the folder is gone
    finally:
        watching.cancel()
        ended.cancel()
        served.close()
        await runner.cleanup()


def _silent() -> logging.Logger:
    """A log that nobody reads: what strangers send is not shown on the terminal."""
    log = logging.Logger("desk")
    log.addHandler(logging.NullHandler())
    return log


def _signals() -> asyncio.Event:
    """An event that is set by SIGINT or SIGTERM, from now on."""
    loop, came = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, came.set)
    return came


@contextlib.contextmanager
def _asked(act: Callable[[], None]) -> Iterator[None]:
    """Act whenever Enter is pressed, where there is somebody who can."""
    loop = asyncio.get_running_loop()
    try:
        keyboard = sys.stdin.fileno()
        loop.add_reader(keyboard, lambda: _pressed(keyboard, act))
    except (OSError, ValueError, AttributeError):  # no keyboard, or a file
        yield
        return
    try:
        yield
    finally:
        loop.remove_reader(keyboard)


def _pressed(keyboard: int, act: Callable[[], None]) -> None:
    if os.isatty(keyboard) and os.tcgetpgrp(keyboard) != os.getpgrp():
        return  # in the background, what is typed is for another program
    if os.read(keyboard, 1024):
        act()
    else:
        asyncio.get_running_loop().remove_reader(keyboard)
