"""Signed files: what one party sends to another by mail, on a stick or through a shared folder.

A file is JSON text: a readable header, a body, and the sender's signature over both. The body is encrypted to
the recipient's key (X25519 with a new key for each file, HKDF-SHA256, ChaCha20-Poly1305) with the header as
associated data. Signature and encryption cover the values in canonical JSON, so line ends and layout, which
mail programs change, do not count. ``summary_file`` and ``message_file`` define the kinds of files.
"""

import base64
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from unpooled.errors import InputError
from unpooled.protocol.crypto_labels import Label
from unpooled.storage.file_format import FORMAT, format_error

if TYPE_CHECKING:  # the package cryptography is optional
    from unpooled.privacy.secure_sum.crypto import Identity

# the kinds of files
KEY, TABLE, NOTICE = "recipient key", "summary file", "deletion notice"
SITE_KEY, REQUEST, RESPONSE, PENDING = "site key", "request", "response", "notice of a pending decision"
_KINDS = (KEY, TABLE, NOTICE, SITE_KEY, REQUEST, RESPONSE, PENDING)
_KEY_BYTES = 32
_MAX_BYTES = 256 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")  # as of the sites and federations between machines
_LINE = 76  # characters of an encrypted body in a line


@dataclass(frozen=True)
class RecipientKey:
    """The public keys of a party: the one to which files for it are encrypted, and the one it signs with."""

    name: str
    public: str  # X25519, hexadecimal
    identity: str  # Ed25519, hexadecimal

    @property
    def fingerprint(self) -> str:
        """The fingerprint of name and keys, to compare by telephone."""
        keys = bytes.fromhex(self.public) + bytes.fromhex(self.identity)
        return grouped(sha256(Label.RECIPIENT_FINGERPRINT + keys + self.name.encode()).hexdigest()[:40])

    @property
    def is_valid(self) -> bool:
        """True if the values can be a name and two keys."""
        return is_name(self.name) and is_key(self.public) and is_key(self.identity)

    def to_text(self) -> str:
        """Return the content of the file that a recipient sends to sites."""
        values = {"unpooled": KEY, "format": FORMAT, "name": self.name, "key": self.public}
        values |= {"identity": self.identity, "fingerprint": self.fingerprint}
        return json.dumps(values, indent=1) + "\n"

    @classmethod
    def read(cls, path: Path) -> "RecipientKey":
        """Return the key in a file; InputError if it is not a recipient's key."""
        values = parsed(path, KEY)
        found = cls(*(values.get(name) for name in ("name", "key", "identity")))  # type: ignore[arg-type]
        if not found.is_valid:
            raise InputError(
                f"{path}: the key of the recipient is damaged. Ask the recipient to send it again."
            )
        if values.get("fingerprint") != found.fingerprint:
            raise InputError(
                f"{path}: name, key and fingerprint do not belong together: the file was changed. Ask the "
                "recipient to send it again."
            )
        return found


def recipient_key(identity: "Identity", name: str) -> RecipientKey:
    """Return the public keys of the party with this identity."""
    return RecipientKey(name, _agreement(identity).public.hex(), identity.public.hex())


def _agreement(identity: "Identity") -> Any:
    from unpooled.privacy.secure_sum.crypto import KeyAgreement, derived

    return KeyAgreement(derived(identity.secret, Label.RECIPIENT_KEY))


def sender_fingerprint(key: str) -> str:
    """Return the fingerprint of a site's key, to compare by telephone."""
    return grouped(sha256(Label.MEMBER_FINGERPRINT + bytes.fromhex(key)).hexdigest()[:40])


def is_name(name: object) -> bool:
    """Return whether this can be the name of a site or of a recipient: letters, digits, - and _."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def is_key(value: object) -> bool:
    """Return whether this can be a public key, hexadecimal."""
    return isinstance(value, str) and re.fullmatch(f"[0-9a-f]{{{2 * _KEY_BYTES}}}", value) is not None


def grouped(digits: str) -> str:
    """Return digits in groups of four.

    >>> grouped("0123456789ab")
    '0123 4567 89ab'
    """
    return " ".join(digits[i : i + 4] for i in range(0, len(digits), 4))


class FileHeader(Protocol):
    """The readable part of a file; each kind of file has a class of its own."""

    @property
    def sender(self) -> str: ...
    @property
    def sender_key(self) -> str: ...  # Ed25519, hexadecimal
    @property
    def recipient(self) -> RecipientKey: ...
    @property
    def encrypted(self) -> bool: ...
    def to_json(self) -> dict[str, Any]: ...


H = TypeVar("H", bound=FileHeader)


@dataclass(frozen=True, eq=False)
class SignedFile(Generic[H]):
    """A file whose signature is right; its body is read by ``content``."""

    path: Path
    kind: str
    header: H
    digest: str  # of the whole file, as it was signed
    ephemeral: str
    body: Any

    def content(self, identity: "Identity") -> dict[str, Any]:
        """Return the body, decrypted by the recipient; InputError if it was not written for it."""
        if not self.header.encrypted:
            return dict(self.body)
        from unpooled.privacy.secure_sum.crypto import unseal

        key = _file_key(_agreement(identity), bytes.fromhex(self.ephemeral))
        try:
            sealed = base64.b64decode("".join(self.body), validate=True)
        except (ValueError, TypeError):
            sealed = b""
        text = None if key is None else unseal(key, sealed, _about(self.kind, self.header, self.ephemeral))
        if text is None:
            raise InputError(f"{self.path}: cannot be decrypted. Ask {self.header.sender} to send it again.")
        return dict(json.loads(text))


def seal_file(
    kind: str, header: FileHeader, content: dict[str, Any], identity: "Identity"
) -> tuple[bytes, str]:
    """Return the bytes of a signed file, encrypted if its header says so, and its digest."""
    ephemeral, body = "", content
    if header.encrypted:
        from unpooled.privacy.secure_sum.crypto import KeyAgreement, seal

        agreement = KeyAgreement(os.urandom(_KEY_BYTES))
        key = _file_key(agreement, bytes.fromhex(header.recipient.public))
        if key is None:
            raise InputError(f"the key of {header.recipient.name} is not valid. Ask for another one.")
        ephemeral = agreement.public.hex()
        sealed = seal(key, _canonical(content), _about(kind, header, ephemeral))
        text = base64.b64encode(sealed).decode("ascii")
        body = [text[i : i + _LINE] for i in range(0, len(text), _LINE)]  # type: ignore[assignment]
    signed = _signed_values(kind, header, ephemeral, body)
    digest = sha256(_canonical(signed)).hexdigest()
    signature = identity.sign(Label.SIGNED_FILE + digest.encode()).hex()
    text = json.dumps({**signed, "signature": signature}, indent=1, ensure_ascii=False)
    return (text + "\n").encode(), digest


def open_file(path: Path, kinds: Mapping[str, Callable[[Any], H]]) -> SignedFile[H]:
    """Return a signed file of one of some kinds; InputError if it was cut or changed, or is something else.

    ``kinds`` has for each kind the function that reads its header.
    """
    from unpooled.privacy.secure_sum.crypto import is_signed
    from unpooled.protocol.crypto_labels import from_hex

    values = parsed(path, *kinds)
    kind = str(values["unpooled"])
    again = "Ask its sender to send it again."
    try:
        header = kinds[kind](values.get("header"))
    except InputError as error:
        raise InputError(f"{path}: {error}. {again}") from None
    ephemeral, body, signature = (values.get(name) for name in ("ephemeral_key", "body", "signature"))
    right = isinstance(body, list if header.encrypted else dict) and isinstance(signature, str)
    if not right or not isinstance(ephemeral, str) or (header.encrypted != is_key(ephemeral)):
        raise InputError(f"{path}: its body is damaged. {again}")
    signed = _signed_values(kind, header, ephemeral, body)
    digest = sha256(_canonical(signed)).hexdigest()
    statement = Label.SIGNED_FILE + digest.encode()
    if values != {**signed, "signature": signature} or not is_signed(
        bytes.fromhex(header.sender_key), statement, from_hex(str(signature))
    ):
        raise InputError(
            f"{path}: was changed after {header.sender} signed it: its signature is wrong. {again}"
        )
    return SignedFile(path, kind, header, digest, ephemeral, body)


def _file_key(agreement: Any, peer: bytes) -> bytes | None:
    from unpooled.privacy.secure_sum.crypto import derived

    root = agreement.root(peer, bytes(Label.SIGNED_FILE_KEY))
    return None if root is None else derived(root, Label.SIGNED_FILE_KEY)


def _about(kind: str, header: FileHeader, ephemeral: str) -> bytes:
    """The associated data of the encryption."""
    return _canonical(_signed_values(kind, header, ephemeral, None))


def _signed_values(kind: str, header: FileHeader, ephemeral: str, body: object) -> dict[str, Any]:
    values = {"unpooled": kind, "format": FORMAT, "header": header.to_json(), "ephemeral_key": ephemeral}
    return {**values, "body": body}


def _canonical(values: object) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def parsed(path: Path, *kinds: str) -> dict[str, Any]:
    """Return the values in a file of one of these kinds; InputError if it is cut, or something else."""
    what = " or a ".join(kinds)
    if path.is_dir():
        raise InputError(f"{path}: a folder, not a {what}")
    if not path.exists():
        raise InputError(f"{path}: no such file")
    if path.stat().st_size > _MAX_BYTES:
        raise InputError(f"{path}: too large for a {what}")
    data = path.read_bytes()
    if data.startswith(b"unpooled model"):
        raise InputError(f"{path}: the model of a run, not a {what}")
    try:
        values = json.loads(data.decode("utf-8-sig"), object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise InputError(
            f"{path}: cut off or damaged: not a whole {what}. Ask the sender to send it again."
        ) from None
    kind = values.get("unpooled") if isinstance(values, dict) else None
    if kind not in kinds:
        but = f", but a {kind}" if kind in _KINDS else ""
        raise InputError(f"{path}: not a {what}{but}")
    if wrong := format_error(values.get("format")):
        raise InputError(f"{path}: the {kind} has {wrong}. Use the same release as its sender.")
    return dict(values)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The values of a JSON object; ValueError if a name is there twice: people might read the other one."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a name is there twice")
    return values
