"""Names of federations and sites, addresses and paths: every one is checked where it enters."""

import ipaddress
import re
from pathlib import Path

from unpooled.errors import InputError

PORT = 8002
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_TAKEN = {"server", "all", "admin", "console", "localhost"}  # names that engines and certificates reserve
_BOOLEANS = {"y", "yes", "t", "true", "on", "n", "no", "f", "false", "off"}


def check_name(name: object, kind_of_name: str) -> str:
    """A name that can be a folder and a setting of the engine, which reads some words as numbers or booleans.

    >>> check_name("hospital-a", "site")
    'hospital-a'
    """
    if isinstance(name, str) and name.lower() in _TAKEN:
        raise InputError(
            f"{name!r} cannot be the name of a {kind_of_name}: the engine uses it for itself; try {kind_of_name}-{name}"
        )
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} cannot be the name of a {kind_of_name}: letters, digits, - and _, up to 63"
        )
    if name.lower() in _BOOLEANS or _is_number(name):
        kind = "a boolean" if name.lower() in _BOOLEANS else "a number"
        raise InputError(
            f"{name!r} cannot be the name of a {kind_of_name}: the engine reads it as {kind}; try {kind_of_name}-{name}"
        )
    return name


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def check_path(path: Path) -> Path:
    """An absolute path without blanks: engines put paths into command lines."""
    path = path.absolute()
    if re.search(r"\s", str(path)):
        raise InputError(f"{path}: the folder's path must not have blanks")
    return path


def parse_address(text: str) -> tuple[str, int]:
    """
    >>> parse_address("coordinator.example.org"), parse_address("10.0.0.5:9000")
    (('coordinator.example.org', 8002), ('10.0.0.5', 9000))
    """
    if text.count(":") > 1:
        raise InputError(
            f"{text}: the engine takes no IPv6 address as such; give it a name, in DNS or /etc/hosts, and "
            "say the name"
        )
    host, _, port = text.partition(":")
    if port and not port.isdigit():
        raise InputError(f"an address is said as host or host:port, got {text!r}")
    return check_host(host, text), check_port(int(port) if port else PORT)


def check_host(host: object, text: str = "") -> str:
    if not isinstance(host, str) or not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", host):
        raise InputError(f"an address is said as host or host:port, got {text or host!r}")
    return host


def check_port(port: object) -> int:
    if not isinstance(port, int) or not 0 < port < 65536:
        raise InputError(f"a port is between 1 and 65535, got {port}")
    return port


def is_loopback(host: str) -> bool:
    """True for a host that no other machine can mean."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.rstrip(".").lower() == "localhost"
