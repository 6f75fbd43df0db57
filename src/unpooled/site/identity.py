"""The identity of a site, or of a coordinator, in a small file: ``identity.key``.

It is made on first use and never leaves its folder. Others see its public half: that of a site in the roster
of every run with secure sums, that of a coordinator in every invitation.
"""

import os
from pathlib import Path

from unpooled.errors import BadInput
from unpooled.privacy.secure_sum import messages
from unpooled.privacy.secure_sum.crypto import Identity

IDENTITY = "identity.key"


def identity_in(folder: str | Path) -> Identity:
    """The identity in a folder; created if there is none yet, in a file that only its owner can read."""
    path = Path(folder) / IDENTITY
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return Identity(_key(path))
    with os.fdopen(handle, "w", encoding="ascii") as file:
        identity = Identity.new()
        file.write(identity.secret.hex() + "\n")
        file.flush()
        os.fsync(file.fileno())
    return identity


def _key(path: Path) -> bytes:
    key = messages.from_hex(path.read_text(encoding="utf-8", errors="replace").strip())
    if len(key) != messages.KEY:
        raise BadInput(f"{path}: the identity must be {2 * messages.KEY} hexadecimal digits")
    return key
