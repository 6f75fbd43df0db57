"""The port of a server: whether it is free, and which process listens at it."""

import contextlib
import errno
import os
import socket
from pathlib import Path

_LISTEN = "0A"  # the state of a listening socket in /proc/net/tcp


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
    return bool(_sockets(pid) & _listening(port))


def _owner(port: int) -> str:
    """Return the process that listens at a port, if this user may see it."""
    sockets = _listening(port)
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and _sockets(int(entry.name)) & sockets:
                return f"process {entry.name} ({(entry / 'comm').read_text().strip()})"
    return "another program"


def _listening(port: int) -> set[str]:
    """Return the inodes of the sockets that listen at a port."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(fields[9])
    return inodes


def _sockets(pid: int) -> set[str]:
    """Return the inodes of a process's sockets."""
    inodes = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            link = os.readlink(file)
            if link.startswith("socket:["):
                inodes.add(link[8:-1])
    return inodes
