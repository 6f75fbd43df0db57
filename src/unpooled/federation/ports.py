"""The port of a server: whether it is free, and which process listens at it."""

import contextlib
import errno
import socket
from typing import Any

import psutil


def port_taken(port: int) -> str:
    """Return the reason why a server cannot listen at a port of this machine, or "" if it can."""
    for info in socket.getaddrinfo(None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE):
        try:
            with socket.socket(info[0], info[1]) as probe:
                probe.setsockopt(
                    socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
                )  # a socket that just closed is fine
                if info[0] == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(info[4])
                probe.listen()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return (
                    f"port {port} of this machine belongs to {_owner(port)}. Stop that process, or make a "
                    "federation with another port."
                )
            if error.errno == errno.EACCES:
                return f"only root may open port {port}. Use a port from 1024 on."
    return ""


def listens(pid: int, port: int) -> bool:
    """Return True if a process listens at a port."""
    return any(_listens(connection, port) for connection in psutil.Process(pid).net_connections("tcp"))


def _owner(port: int) -> str:
    """Return the process that listens at a port, if this user may see it."""
    for connection in psutil.net_connections("tcp"):
        if _listens(connection, port) and connection.pid is not None:
            with contextlib.suppress(psutil.Error):
                return f"process {connection.pid} ({psutil.Process(connection.pid).name()})"
    return "another program"


def _listens(connection: Any, port: int) -> bool:
    return bool(connection.status == psutil.CONN_LISTEN and connection.laddr.port == port)
