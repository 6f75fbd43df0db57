"""The identity of a site, or of a coordinator, in a small file: ``identity.key``.

It is created on first use and never leaves its folder. Its public half is in the participant list of every
run with secure sums, for a site, and in every invitation, for a coordinator.
"""

from hashlib import sha256
from pathlib import Path

from unpooled.errors import InputError
from unpooled.privacy.secure_sum import stage_messages
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.protocol.crypto_labels import Label, from_hex
from unpooled.storage.atomic_files import create_atomically

IDENTITY = "identity.key"


def identity_in(folder: str | Path) -> Identity:
    """Return the identity in a folder, or create one in a file that only its owner can read."""
    path = Path(folder) / IDENTITY
    if not path.exists():
        identity = Identity.new()
        if create_atomically(path, f"{identity.secret.hex()}\n".encode("ascii")):
            return identity
    return Identity(_key(path))


def fingerprint_in(folder: str | Path) -> str:
    """Return the fingerprint of the key in a folder, for a tree of federations; "" if there is none."""
    path = Path(folder) / IDENTITY
    if not path.exists():
        return ""
    return sha256(Label.MEMBER_FINGERPRINT + Identity(_key(path)).public).hexdigest()[:40]


def _key(path: Path) -> bytes:
    key = from_hex(path.read_text(encoding="utf-8", errors="replace").strip())
    if len(key) != stage_messages.KEY:
        raise InputError(f"{path}: the identity must be {2 * stage_messages.KEY} hexadecimal digits")
    return key
