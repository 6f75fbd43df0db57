"""Identities of sites as two small files: the site's own, and the pinned ones of all sites.

``identity.key`` holds the secret, is made on first use and never leaves the site. ``roster.toml`` holds the
public half of every site, the own one included; sites exchange them by a channel that the coordinator cannot
change, since secure sums protect against the coordinator::

    [sites]
    hospital-a = "3b6a27bc..."   # 64 hexadecimal digits
    hospital-b = "8139770e..."
"""

import os
import tomllib
from pathlib import Path

from unpooled.core.messages import SiteId
from unpooled.errors import BadInput
from unpooled.privacy.secure_sum import messages
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.privacy.secure_sum.settings import MIN_SITES
from unpooled.privacy.secure_sum.site import Member

IDENTITY, ROSTER = "identity.key", "roster.toml"


def identity_in(folder: str | Path) -> Identity:
    """The site's identity; created if there is none yet, in a file that only its owner can read."""
    path = Path(folder) / IDENTITY
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return Identity(_key(path, path.read_text(encoding="ascii").strip()))
    with os.fdopen(handle, "w", encoding="ascii") as file:
        identity = Identity.new()
        file.write(identity.secret.hex() + "\n")
        file.flush()
        os.fsync(file.fileno())
    return identity


def read_roster(path: str | Path) -> dict[SiteId, bytes]:
    """The public key of every site, by name."""
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not TOML: {error}") from error
    sites = content.get("sites")
    if set(content) != {"sites"} or not isinstance(sites, dict):
        raise BadInput(f"{path}: a roster has one section, [sites]")
    roster = {str(name): _key(path, key, str(name)) for name, key in sites.items()}
    if len(set(roster.values())) < len(roster):
        raise BadInput(f"{path}: two sites have the same key")
    return roster


def member_in(name: SiteId, folder: str | Path, *, min_sites: int = MIN_SITES) -> Member | None:
    """The site's part in secure sums, from the files in its folder; None if there is no roster."""
    path = Path(folder) / ROSTER
    return (
        Member(name, identity_in(folder), read_roster(path), min_sites=min_sites) if path.exists() else None
    )


def _key(path: str | Path, text: object, name: str = "the identity") -> bytes:
    try:
        key = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        key = b""
    if len(key) != messages.KEY:
        raise BadInput(f"{path}: {name} must be {2 * messages.KEY} hexadecimal digits")
    return key
