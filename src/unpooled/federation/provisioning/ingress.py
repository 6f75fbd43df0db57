"""The one address at which a server is reached: enrolments are answered here, all else goes to the engine.

The engine would listen on every address of the machine, on IPv4 alone, and beside another program on the same
port. So it listens on the loopback interface, and this thread listens for it: at the named address and no
other, exclusively. It hands bytes on and reads none of them: the TLS connection is between site and engine.
"""

import asyncio
import contextlib
import errno
import json
import resource
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from unpooled.errors import InputError
from unpooled.federation.ports import port_taken
from unpooled.federation.provisioning.enrolment_wire import LIMIT, PROTOCOL
from unpooled.federation.provisioning.names import is_loopback

LOOPBACK = "127.0.0.1"
_HELLO = 3.0  # seconds in which a connection must say what it wants
_ANSWER = 5.0  # seconds that an enrolment may take, in each of its parts
_UNKNOWN = 256  # connections that have not said yet what they want
_OPEN = 4096  # connections in all
_AT_A_TIME = 8  # enrolments that are answered at the same time
_WINDOW, _A_WINDOW, _AN_ADDRESS = 10.0, 400, 200  # seconds; enrolments in them, in all and of one address
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
        self._silent: dict[asyncio.Task[None] | None, str] = {}  # addresses of those that said nothing yet
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
        self._limit = asyncio.Semaphore(_AT_A_TIME)
        for listener in self._listeners:
            self._begin(self._accept(listener))
        self._loop.run_forever()
        for task in self._tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self._loop.close()

    def _begin(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                line, address = await self._loop.sock_accept(listener)
            except OSError:  # e.g. too many open files: others will end
                await asyncio.sleep(0.1)
                continue
            if len(self._silent) >= _UNKNOWN:
                self._end_a_silent_one()
            if self._open >= _OPEN:
                line.close()
                continue
            self._begin(self._receive(line, str(address[0])))
            await asyncio.sleep(0)  # who connects again and again does not keep the others waiting

    def _end_a_silent_one(self) -> None:
        """Make room for a newcomer: of the address that has most, the oldest silent one ends."""
        crowd = Counter(self._silent.values()).most_common(1)[0][0]
        oldest = next(task for task, address in self._silent.items() if address == crowd)
        del self._silent[oldest]
        if oldest is not None:
            oldest.cancel()

    async def _receive(self, line: socket.socket, address: str) -> None:
        self._open += 1
        try:
            line.setblocking(False)
            task = asyncio.current_task()
            self._silent[task] = address
            try:
                hello = await asyncio.wait_for(_hello(line), _HELLO)
            finally:
                self._silent.pop(task, None)
            if _MARK in hello:
                await self._enrol(line, address)
            elif hello:
                await self._hand_on(line)
        except Exception:  # noqa: S110
            pass  # the other side is gone, too slow, or speaks something else, which is nobody's business
        finally:
            self._open -= 1
            line.close()

    # ------------------------------------------------------------ enrolment

    async def _enrol(self, line: socket.socket, address: str) -> None:
        if not self._allowed(address):
            return
        async with self._limit:
            reader = asyncio.StreamReader(limit=LIMIT, loop=self._loop)
            protocol = asyncio.StreamReaderProtocol(reader, loop=self._loop)
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: protocol, line, ssl=self._context, ssl_handshake_timeout=_ANSWER
            )
            writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
            try:
                question = json.loads(await asyncio.wait_for(reader.readline(), _ANSWER))
                if isinstance(question, dict):
                    reply = await asyncio.to_thread(self._answer, question)
                    writer.write(json.dumps(reply).encode() + b"\n")
                    await asyncio.wait_for(writer.drain(), _ANSWER)
            finally:
                writer.close()
                with contextlib.suppress(OSError, TimeoutError):
                    await asyncio.wait_for(writer.wait_closed(), _ANSWER)

    def _allowed(self, address: str) -> bool:
        """True unless there were too many enrolments lately, in all or from one address."""
        if time.monotonic() - self._since > _WINDOW:
            self._recent.clear()
            self._since = time.monotonic()
        if self._recent.total() >= _A_WINDOW or self._recent[address] >= _AN_ADDRESS:
            return False
        self._recent[address] += 1
        return True

    # ------------------------------------------------------------ the engine's connections

    async def _hand_on(self, line: socket.socket) -> None:
        with socket.socket() as engine:
            engine.setblocking(False)
            await self._loop.sock_connect(engine, (LOOPBACK, self._engine_port))
            for end in (line, engine):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            pumps = [asyncio.ensure_future(self._pump(*ends)) for ends in ((line, engine), (engine, line))]
            try:
                await asyncio.gather(*pumps)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, source: socket.socket, target: socket.socket) -> None:
        """Hand bytes on until the source ends."""
        while data := await self._loop.sock_recv(source, _BUFFER):  # nothing is allocated while it waits
            await self._loop.sock_sendall(target, data)
            del data
        target.shutdown(socket.SHUT_WR)


async def _hello(line: socket.socket) -> bytes:
    """The first record of a TLS connection, which stays unread; b"" if this is none."""
    loop = asyncio.get_running_loop()
    while True:
        ready = asyncio.Event()
        loop.add_reader(line, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(line)
        seen = line.recv(LIMIT + 5, socket.MSG_PEEK)
        if not seen or not b"\x16\x03".startswith(seen[:2]):
            if seen:
                line.recv(1 << 16)  # else the system would cut the connection off instead of ending it
            return b""
        if len(seen) >= 5 and len(seen) >= min(5 + int.from_bytes(seen[3:5], "big"), LIMIT):
            return seen
        await asyncio.sleep(0.02)


def local_addresses(host: str) -> list[str]:
    """The addresses of this machine under a name; InputError, with the way out, if there is none."""
    try:
        addresses = [str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except socket.gaierror:
        raise InputError(
            f"the name {host} is not known here; --listen ADDRESS says where to listen"
        ) from None
    own = [address for address in dict.fromkeys(addresses) if _is_own(address)]
    if not own:
        raise InputError(
            f"{host} is {', '.join(dict.fromkeys(addresses))}, which is no address of this machine; --listen "
            "ADDRESS says where to listen"
        )
    return own


def is_unreachable(host: str, listen: Sequence[str]) -> bool:
    """True if sites are told a host that means this machine alone here, though others mean to reach it."""
    return not is_loopback(host) and all(is_loopback(address) for address in listen)


def raise_open_file_limit() -> None:
    """Raise this process's limit of open files, and that of the engine, to what the system allows."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """A port of the loopback interface, reserved for as long as the block lasts.

    The system gives a bound port to no other program, neither to listen at nor to connect from. The engine
    still listens at it, because both sockets allow that (SO_REUSEADDR) and this one does not listen.
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
    """A socket that listens at this address, and alone."""
    listener = socket.socket(_family(address))
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # not REUSEPORT: nobody else listens
        if listener.family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((address, port))
        listener.listen(256)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise InputError(
                port_taken(port) or f"port {port} of {address} was just in use; try again"
            ) from None
        raise InputError(f"cannot listen at {address}, port {port}: {error.strerror}") from None
    listener.setblocking(False)
    return listener
