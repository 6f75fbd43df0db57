"""Message files: the requests and responses of a run that is carried by files (``signed_file``).

The folder of a site in the shared folder, here that of north::

    north/site-key.unpooled    the site's public keys, signed: the coordinator receives it once
    north/RUN/NAME.request     a request of the coordinator
    north/RUN/NAME.response    the response of the site
    north/RUN/NAME.pending     somebody at the site must approve the study; the response replaces it

Both parties check every file with ``open_message``. It is whole, of the party that was pinned, for this party
of this run and under the name that its sender gave it, or it is not used. The name is that of the request,
so no response counts for another one.
"""

import base64
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unpooled.errors import InputError
from unpooled.site.signed_file import (
    PENDING,
    REQUEST,
    RESPONSE,
    SITE_KEY,
    RecipientKey,
    is_key,
    is_name,
    open_file,
    seal_file,
    sender_fingerprint,
)
from unpooled.site.study import is_strange

if TYPE_CHECKING:  # the package cryptography is optional
    from unpooled.privacy.secure_sum.crypto import Identity

INTRODUCTION = "site-key.unpooled"  # in the folder of a site
ENDINGS = {REQUEST: ".request", RESPONSE: ".response", PENDING: ".pending"}
_MAX_NAME = 200


@dataclass(frozen=True)
class MessageHeader:
    """The readable part of a message: from whom, for whom, in which run, and the name of the request."""

    sender: str
    sender_key: str  # Ed25519, hexadecimal
    recipient: RecipientKey
    run: str  # "": a site introduces itself
    name: str  # of the file, without its ending: the same for a request and its response
    written: str  # date and time, UTC

    encrypted = True

    def to_json(self) -> dict[str, Any]:
        """Return the header for its file."""
        return {
            "sender": self.sender,
            "sender_key": self.sender_key,
            "recipient": self.recipient.name,
            "recipient_key": self.recipient.public,
            "recipient_identity": self.recipient.identity,
            "run": self.run,
            "name": self.name,
            "written": self.written,
        }

    @classmethod
    def from_json(cls, values: Any) -> "MessageHeader":
        """Return the header of these values; InputError if it is not what ``to_json`` writes."""
        try:
            recipient = RecipientKey(
                *(values[name] for name in ("recipient", "recipient_key", "recipient_identity"))
            )
            own = ("sender", "sender_key", "run", "name", "written")
            header = cls(recipient=recipient, **{name: values[name] for name in own})
            right = (
                is_name(header.sender)
                and is_key(header.sender_key)
                and recipient.is_valid
                and max(len(header.run), len(header.name)) < _MAX_NAME
                and not is_strange(header.run + header.name)
                and datetime.fromisoformat(header.written).tzinfo is not None
                and header.to_json() == values  # nothing is lacking, and nothing else is there
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            right = False
        if not right:
            raise InputError("its header is damaged")
        return header


def seal_message(
    kind: str,
    identity: "Identity",
    sender: str,
    recipient: RecipientKey,
    path: Path,
    content: dict[str, Any],
) -> bytes:
    """Return the bytes of the file at ``path``, signed by its sender and encrypted to its recipient."""
    written = datetime.now(UTC).isoformat(timespec="microseconds")  # requests are answered in their order
    header = MessageHeader(sender, identity.public.hex(), recipient, path.parent.name, path.stem, written)
    return seal_file(kind, header, content, identity)[0]


def open_message(
    path: Path, kind: str, identity: "Identity", me: RecipientKey, sender: str, sender_key: str
) -> tuple[MessageHeader, dict[str, Any]]:
    """Return the header and the content of a file for ``me``.

    Raises
    ------
    InputError
        The file is cut or changed, not of this sender, for somebody else, or in the place of another.
    """
    file = open_file(path, {kind: MessageHeader.from_json})
    header = file.header
    if header.recipient != me:
        raise InputError(f"{path}: is for {header.recipient.name}, and this is {me.name}. Nobody answers it.")
    if (header.sender, header.sender_key) != (sender, sender_key):
        raise InputError(
            f"{path}: is signed by {header.sender} with fingerprint {sender_fingerprint(header.sender_key)}, "
            f"and must be signed by {sender} with fingerprint {sender_fingerprint(sender_key)}."
        )
    check_place_of(path, header)
    return header, file.content(identity)


def check_place_of(path: Path, header: MessageHeader) -> None:
    """Raise InputError if a file was moved to another run, or to another request of the run."""
    if header.run != path.parent.name:
        raise InputError(f"{path}: belongs to run {header.run}, and is in the folder of another run.")
    if header.name != path.stem:
        raise InputError(f"{path}: is about request {header.name}, and has the name of another one.")


def introduction(identity: "Identity", site: RecipientKey, coordinator: RecipientKey) -> bytes:
    """Return the file by which a site introduces itself: the key to which requests are encrypted."""
    return seal_message(SITE_KEY, identity, site.name, coordinator, Path(INTRODUCTION), {"key": site.public})


def packed(data: bytes) -> str:
    """Return bytes as text for the content of a file."""
    return base64.b64encode(data).decode("ascii")


def unpacked(content: dict[str, Any], name: str, path: Path) -> bytes:
    """Return bytes in the content of a file; InputError if it does not have them."""
    try:
        return base64.b64decode(content[name], validate=True)
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{path}: lacks its {name}. Use the same release as its sender.") from None
