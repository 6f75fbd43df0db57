"""Names of federations and sites, addresses and paths: each is checked at the entry points."""

import ipaddress
import re
from pathlib import Path

from unpooled.errors import InputError

PORT = 8002
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_RESERVED = {"server", "all", "admin", "console", "localhost"}  # by engines and certificates
_BOOLEANS = {"y", "yes", "t", "true", "on", "n", "no", "f", "false", "off"}


def check_name(name: object, kind_of_name: str) -> str:
    """Return a name; raise InputError if it cannot be the name of a folder and a setting of the engine.

    >>> check_name("hospital-a", "site")
    'hospital-a'
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} cannot be the name of a {kind_of_name}. Use up to 63 letters, digits, - and _, "
            "beginning with a letter or digit."
        )
    problem = ""
    if name.lower() in _RESERVED:
        problem = "uses it for itself"
    elif name.lower() in _BOOLEANS:
        problem = "reads it as a boolean"
    elif _is_number(name):
        problem = "reads it as a number"
    if problem:
        raise InputError(
            f"{name!r} cannot be the name of a {kind_of_name}, because the engine {problem}. "
            f"Try {kind_of_name}-{name}."
        )
    return name


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def check_path(path: Path) -> Path:
    """Return the absolute path; raise InputError if it has spaces, which engines cannot handle."""
    path = path.absolute()
    if re.search(r"\s", str(path)):
        raise InputError(f"{path}: the folder's path must not contain spaces")
    return path


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of an address.

    >>> parse_address("coordinator.example.org"), parse_address("10.0.0.5:9000")
    (('coordinator.example.org', 8002), ('10.0.0.5', 9000))
    """
    if text.count(":") > 1:
        raise InputError(
            f"{text}: the engine does not accept an IPv6 address. Give the machine a name, in DNS or "
            "/etc/hosts, and use the name."
        )
    host, _, port = text.partition(":")
    if port and not port.isdigit():
        raise InputError(f"an address must be host or host:port, got {text!r}")
    return check_host(host, text), check_port(int(port) if port else PORT)


def check_host(host: object, text: str = "") -> str:
    """Return a host; raise InputError if it is not a host name or an IPv4 address."""
    if not isinstance(host, str) or not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", host):
        raise InputError(f"an address must be host or host:port, got {text or host!r}")
    return host


def check_port(port: object) -> int:
    """Return a port; raise InputError if it is not between 1 and 65535."""
    if not isinstance(port, int) or not 0 < port < 65536:
        raise InputError(f"a port must be between 1 and 65535, got {port}")
    return port


def is_loopback(host: str) -> bool:
    """Return True for a host that means this machine on every machine, e.g. localhost."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.rstrip(".").lower() == "localhost"
