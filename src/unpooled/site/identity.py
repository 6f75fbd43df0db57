"""The identity of a site, or of a coordinator, in a small file: ``identity.key``.

It is made on first use and never leaves its folder. Others see its public half: that of a site in the roster
of every run with secure sums, that of a coordinator in every invitation.
"""

from hashlib import sha256
from pathlib import Path

from unpooled.errors import InputError
from unpooled.privacy.secure_sum import stage_messages
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.protocol.crypto_labels import Label
from unpooled.storage.atomic_files import create_atomically

IDENTITY = "identity.key"


def identity_in(folder: str | Path) -> Identity:
    """The identity in a folder; made in one step if there is none, in a file that only its owner can read."""
    path = Path(folder) / IDENTITY
    identity = Identity.new()
    if create_atomically(path, f"{identity.secret.hex()}\n".encode("ascii")):
        return identity
    return Identity(_key(path))


def fingerprint_in(folder: str | Path) -> str:
    """The fingerprint of the public key in a folder, by which a tree of federations knows it; "" if none."""
    path = Path(folder) / IDENTITY
    if not path.exists():
        return ""
    return sha256(Label.MEMBER_FINGERPRINT + Identity(_key(path)).public).hexdigest()[:40]


def _key(path: Path) -> bytes:
    key = stage_messages.from_hex(path.read_text(encoding="utf-8", errors="replace").strip())
    if len(key) != stage_messages.KEY:
        raise InputError(f"{path}: the identity must be {2 * stage_messages.KEY} hexadecimal digits")
    return key
