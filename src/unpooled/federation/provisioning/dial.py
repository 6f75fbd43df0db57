"""Connections of a site to its server without the engine: for enrolment, and to explain a failure.

As the engine does, it takes a proxy from the environment: ``grpc_proxy``, ``https_proxy`` or ``http_proxy``,
with a user and a password if there are any, except for hosts in ``no_grpc_proxy`` or else in ``no_proxy``.
"""

import base64
import os
import socket
import ssl
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from unpooled.errors import InputError
from unpooled.federation.engine import Address

TIMEOUT = 5.0  # seconds
_DATES = (9, 10)  # OpenSSL's codes: not valid yet, expired


@dataclass(frozen=True)
class HttpProxy:
    """An HTTP proxy, and the user and password for it."""

    host: str
    port: int
    user: str = field(default="", repr=False)  # "name:password", or nothing

    def request(self, where: Address) -> bytes:
        """Return the request to be connected."""
        lines = [f"CONNECT {where.host}:{where.port} HTTP/1.1", f"Host: {where.host}:{where.port}"]
        if self.user:
            lines.append(f"Proxy-Authorization: Basic {base64.b64encode(self.user.encode()).decode()}")
        return "\r\n".join([*lines, "", ""]).encode()


def open_connection(where: Address) -> socket.socket:
    """Open a TCP connection to the server, through the proxy if there is one; raise OSError if it fails."""
    proxy = proxy_for(where.host)
    if proxy is None:
        return socket.create_connection((where.host, where.port), timeout=TIMEOUT)
    connection = socket.create_connection((proxy.host, proxy.port), timeout=TIMEOUT)
    try:
        connection.sendall(proxy.request(where))
        answer = b""
        while b"\r\n\r\n" not in answer:
            more = connection.recv(1)  # no byte beyond the proxy's answer: the server's bytes follow
            if not more or len(answer) > 8192:
                raise ConnectionError(f"the proxy {proxy.host}:{proxy.port} ended the connection")
            answer += more
        status = answer.split(b"\r\n", 1)[0].decode("ascii", "replace")
        if status.split(" ")[1:2] != ["200"]:
            raise ConnectionError(
                f"the proxy {proxy.host}:{proxy.port} refuses the connection: {status[:100]}"
            )
    except BaseException:
        connection.close()
        raise
    return connection


def proxy_for(host: str) -> HttpProxy | None:
    """Return the proxy for a host; None: connect directly."""
    url = _first("grpc_proxy", "https_proxy", "http_proxy")
    direct = [entry.strip().lstrip(".").lower() for entry in _first("no_grpc_proxy", "no_proxy").split(",")]
    if not url or any(entry and f".{host.lower()}".endswith(f".{entry}") for entry in direct):
        return None
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        port = parts.port or 80
    except ValueError:
        port = 0
    if parts.scheme != "http" or not parts.hostname or not port:
        without_password = url.rpartition("@")[2]  # a message never contains a password
        raise InputError(f"the proxy in the environment must be http://host:port, got {without_password!r}")
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
    return HttpProxy(parts.hostname, port, user)


def _first(*names: str) -> str:
    """Return the first non-empty variable of the environment."""
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def explain_connection_error(error: OSError, where: Address) -> str:
    """Return a sentence on why a connection failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _DATES:
            return f"{error.verify_message}: check the clock of this machine, and that of the server"
        return f"the server's certificate is not of this federation ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return f"the server refuses the connection ({error.reason})"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there; the server is not up, or a firewall refuses"
    if isinstance(error, TimeoutError):
        return "no answer; a firewall may be in the way"
    if isinstance(error, socket.gaierror):
        return f"the name {where.host} is not known here"
    return f"the network refuses the connection ({error.strerror or error})"
