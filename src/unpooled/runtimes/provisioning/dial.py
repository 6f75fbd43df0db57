"""Connections of a site to its server without the engine: for enrolment, and to explain a failure.

A proxy is taken from the environment as the engine takes it: ``https_proxy``, ``http_proxy``, ``no_proxy``.
"""

import os
import socket
import ssl
from urllib.parse import urlsplit

from unpooled.errors import BadInput
from unpooled.runtimes.engine import Address

PATIENCE = 5.0  # seconds


def dialled(where: Address) -> socket.socket:
    """A TCP connection to the server, through the proxy if there is one; OSError if there is none."""
    proxy = proxy_for(where.host)
    if proxy is None:
        return socket.create_connection((where.host, where.port), timeout=PATIENCE)
    line = socket.create_connection(proxy, timeout=PATIENCE)
    try:
        line.sendall(
            f"CONNECT {where.host}:{where.port} HTTP/1.1\r\nHost: {where.host}:{where.port}\r\n\r\n".encode()
        )
        answer = b""
        while b"\r\n\r\n" not in answer:
            more = line.recv(1)  # not a byte beyond the proxy's answer: what follows is the server's
            if not more or len(answer) > 8192:
                raise ConnectionError(f"the proxy {proxy[0]}:{proxy[1]} ended the connection")
            answer += more
        status = answer.split(b"\r\n", 1)[0].decode("ascii", "replace")
        if status.split(" ")[1:2] != ["200"]:
            raise ConnectionError(f"the proxy {proxy[0]}:{proxy[1]} does not let it through: {status[:100]}")
    except BaseException:
        line.close()
        raise
    return line


def proxy_for(host: str) -> tuple[str, int] | None:
    """The host and the port of the proxy for a host; None: connect directly."""
    said = next((os.environ[n] for n in ("grpc_proxy", "https_proxy", "http_proxy") if os.environ.get(n)), "")
    direct = [entry.strip().lstrip(".").lower() for entry in os.environ.get("no_proxy", "").split(",")]
    if not said or any(entry and f".{host.lower()}".endswith(f".{entry}") for entry in direct):
        return None
    parts = urlsplit(said if "://" in said else f"http://{said}")
    try:
        port = parts.port or 80
    except ValueError:
        port = 0
    if parts.scheme != "http" or not parts.hostname or not port:
        raise BadInput(f"the proxy in the environment is not http://host:port, but {said!r}")
    return parts.hostname, port


def obstacle_of(error: OSError, where: Address) -> str:
    """A sentence on why a connection failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is not of this federation ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return f"the server refuses the connection ({error.reason})"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there; the server is not up, or a firewall refuses"
    if isinstance(error, TimeoutError):
        return "no answer; a firewall may be in the way"
    if isinstance(error, socket.gaierror):
        return f"the name {where.host} is not known here"
    return f"the network does not let it through ({error.strerror or error})"
