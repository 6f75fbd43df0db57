"""The TLS ingress of a server: it answers enrolments and forwards all other connections to the engine.

The engine by itself listens on every address of the machine, on IPv4 only, and shares its port with any other
program. So the engine listens on the loopback interface, and this thread listens at the named address,
exclusively. It forwards bytes without reading them: the TLS connection is between site and engine.
"""

import asyncio
import contextlib
import errno
import json
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

from unpooled.errors import InputError
from unpooled.federation.ports import port_taken
from unpooled.federation.provisioning.enrolment_wire import LIMIT, PROTOCOL
from unpooled.federation.provisioning.names import is_loopback

LOOPBACK = "127.0.0.1"
_HELLO_TIMEOUT = 3.0  # seconds in which a connection must send its TLS hello
_ENROLMENT_TIMEOUT = 5.0  # seconds that each step of an enrolment may take
_MAX_SILENT = 256  # connections that have not sent their hello yet
_MAX_OPEN = 4096  # connections in all
_MAX_CONCURRENT = 8  # enrolments that are answered at the same time
_WINDOW = 10.0  # seconds in which enrolments are counted
_MAX_PER_WINDOW, _MAX_PER_ADDRESS = 400, 200  # enrolments in a window, in all and from one address
_BUFFER = 1 << 15
_MARK = PROTOCOL.encode()

EnrolmentHandler = Callable[[dict[str, Any]], dict[str, str]]


class Ingress:
    """Listens at addresses of this machine, in one thread, until it is closed."""

    def __init__(
        self,
        listen: Sequence[str],
        port: int,
        engine_port: int,
        context: ssl.SSLContext,
        answer: EnrolmentHandler,
    ) -> None:
        self._engine_port, self._context, self._answer = engine_port, context, answer
        self._listeners = [_bound(host, port) for host in listen]
        self._recent: Counter[str] = Counter()
        self._since = time.monotonic()
        self._silent: dict[asyncio.Task[None] | None, str] = {}  # addresses of those without a hello
        self._open = 0
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Ingress":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)
        for listener in self._listeners:
            listener.close()

    @property
    def is_open(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        self._limit = asyncio.Semaphore(_MAX_CONCURRENT)
        for listener in self._listeners:
            self._begin(self._accept(listener))
        self._loop.run_forever()
        for task in self._tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self._loop.close()

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, address = await self._loop.sock_accept(listener)
            except OSError:  # e.g. too many open files: other connections will end
                await asyncio.sleep(0.1)
                continue
            if len(self._silent) >= _MAX_SILENT:
                self._drop_silent_connection()
            if self._open >= _MAX_OPEN:
                client.close()
                continue
            self._begin(self._receive(client, str(address[0])))
            await asyncio.sleep(0)  # one peer that keeps connecting must not delay the others

    def _drop_silent_connection(self) -> None:
        """End the oldest silent connection of the address that has the most."""
        busiest = Counter(self._silent.values()).most_common(1)[0][0]
        oldest = next(task for task, address in self._silent.items() if address == busiest)
        del self._silent[oldest]
        if oldest is not None:
            oldest.cancel()

    async def _receive(self, client: socket.socket, address: str) -> None:
        self._open += 1
        try:
            client.setblocking(False)
            task = asyncio.current_task()
            self._silent[task] = address
            try:
                hello = await asyncio.wait_for(_hello(client), _HELLO_TIMEOUT)
            finally:
                self._silent.pop(task, None)
            if _MARK in hello:
                await self._enrol(client, address)
            elif hello:
                await self._forward(client)
        except Exception:  # noqa: S110
            pass  # the other side is gone, too slow, or uses another protocol: that needs no message
        finally:
            self._open -= 1
            client.close()

    # ------------------------------------------------------------ enrolment

    async def _enrol(self, client: socket.socket, address: str) -> None:
        if not self._allowed(address):
            return
        async with self._limit:
            reader = asyncio.StreamReader(limit=LIMIT, loop=self._loop)
            protocol = asyncio.StreamReaderProtocol(reader, loop=self._loop)
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: protocol, client, ssl=self._context, ssl_handshake_timeout=_ENROLMENT_TIMEOUT
            )
            writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
            try:
                request = json.loads(await asyncio.wait_for(reader.readline(), _ENROLMENT_TIMEOUT))
                if isinstance(request, dict):
                    reply = await asyncio.to_thread(self._answer, request)
                    writer.write(json.dumps(reply).encode() + b"\n")
                    await asyncio.wait_for(writer.drain(), _ENROLMENT_TIMEOUT)
            finally:
                writer.close()
                with contextlib.suppress(OSError, TimeoutError):
                    await asyncio.wait_for(writer.wait_closed(), _ENROLMENT_TIMEOUT)

    def _allowed(self, address: str) -> bool:
        """Return False if there were too many enrolments lately, in all or from one address."""
        if time.monotonic() - self._since > _WINDOW:
            self._recent.clear()
            self._since = time.monotonic()
        if self._recent.total() >= _MAX_PER_WINDOW or self._recent[address] >= _MAX_PER_ADDRESS:
            return False
        self._recent[address] += 1
        return True

    # ------------------------------------------------------------ the engine's connections

    async def _forward(self, client: socket.socket) -> None:
        with socket.socket() as engine:
            engine.setblocking(False)
            await self._loop.sock_connect(engine, (LOOPBACK, self._engine_port))
            for end in (client, engine):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            both_ways = ((client, engine), (engine, client))
            pumps = [asyncio.ensure_future(self._pump(*ends)) for ends in both_ways]
            try:
                await asyncio.gather(*pumps)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, source: socket.socket, target: socket.socket) -> None:
        """Forward bytes until the source ends."""
        while data := await self._loop.sock_recv(source, _BUFFER):  # nothing is allocated while it waits
            await self._loop.sock_sendall(target, data)
            del data
        target.shutdown(socket.SHUT_WR)


async def _hello(client: socket.socket) -> bytes:
    """Return the first record of a TLS connection, without consuming it; b"" if this is not TLS."""
    loop = asyncio.get_running_loop()
    while True:
        ready = asyncio.Event()
        loop.add_reader(client, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(client)
        seen = client.recv(LIMIT + 5, socket.MSG_PEEK)
        if not seen or not b"\x16\x03".startswith(seen[:2]):
            if seen:
                client.recv(1 << 16)  # else the system would reset the connection instead of closing it
            return b""
        if len(seen) >= 5 and len(seen) >= min(5 + int.from_bytes(seen[3:5], "big"), LIMIT):
            return seen
        await asyncio.sleep(0.02)


def local_addresses(host: str) -> list[str]:
    """Return the addresses of this machine under a name; raise InputError if there is none."""
    try:
        addresses = [str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except socket.gaierror:
        raise InputError(
            f"the name {host} is not known here. Name an address of this machine with --listen ADDRESS."
        ) from None
    own = [address for address in dict.fromkeys(addresses) if _is_own(address)]
    if not own:
        raise InputError(
            f"{host} is {', '.join(dict.fromkeys(addresses))}, which is not an address of this machine. Name "
            "one with --listen ADDRESS."
        )
    return own


def is_unreachable(host: str, listen: Sequence[str]) -> bool:
    """Return True if the server listens only on loopback, although sites must reach it from elsewhere."""
    return not is_loopback(host) and all(is_loopback(address) for address in listen)


def raise_open_file_limit() -> None:
    """Raise the limit of open files of this process, and so of the engine, to what the system allows."""
    import resource  # Unix only, and this module can be imported everywhere

    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """Reserve a port of the loopback interface for as long as the block lasts.

    The system gives a bound port to no other program, neither to listen at nor to connect from. The engine
    can still listen at it, because both sockets allow that (SO_REUSEADDR) and this one does not listen.
    """
    with socket.socket() as reservation:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reservation.bind((LOOPBACK, 0))
        yield int(reservation.getsockname()[1])


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _is_own(address: str) -> bool:
    try:
        with socket.socket(_family(address)) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _bound(address: str, port: int) -> socket.socket:
    """Return a socket that listens at this address exclusively."""
    listener = socket.socket(_family(address))
    try:
        listener.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # not REUSEPORT: it would share the port
        if listener.family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((address, port))
        listener.listen(256)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise InputError(
                port_taken(port) or f"port {port} of {address} was in use a moment ago. Try again."
            ) from None
        raise InputError(f"cannot listen at {address}, port {port}: {error.strerror}") from None
    listener.setblocking(False)
    return listener
