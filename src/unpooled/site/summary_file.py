"""Signed summary files: a site's summary table, or a deletion notice, on its way to one recipient.

A file is JSON text: a readable header, a body, and the site's signature over both. The body is encrypted to
the recipient's key (X25519 with a new key for each file, HKDF-SHA256, ChaCha20-Poly1305) with the header as
associated data; a plain body is the officer's choice. Signature and encryption cover the values in canonical
JSON. Line ends and layout, which mail programs change, do not count.
"""

import base64
import json
import os
import re
from dataclasses import dataclass, fields
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unpooled.data.summary_table import SummaryTable, check_plausible, described, from_csv, to_csv
from unpooled.errors import InputError
from unpooled.protocol.crypto_labels import Label
from unpooled.site.study import is_strange
from unpooled.site.study_file import StudyFile
from unpooled.storage.file_format import FORMAT, format_error

if TYPE_CHECKING:  # the package cryptography is optional
    from unpooled.privacy.secure_sum.crypto import Identity

SUFFIX = ".unpooled"
TABLE, NOTICE, KEY = "summary file", "deletion notice", "recipient key"  # kinds of files
_KEY_BYTES = 32
_MAX_BYTES, _MAX_TEXT = 256 << 20, 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")  # as of the sites and federations between machines
_LINE = 76  # characters of an encrypted body in a line

TERMS = (
    "The recipient uses this file for the study named here and for nothing else, and deletes it when the "
    "study expires. After export these limits hold by agreement: the site cannot enforce them.",
    "An erasure at the site cannot recall this file. The site sends a deletion notice instead.",
)


@dataclass(frozen=True)
class RecipientKey:
    """The public key to which sites encrypt their files, and the name of its owner."""

    name: str
    public: str  # X25519, hexadecimal

    @property
    def fingerprint(self) -> str:
        """The fingerprint of name and key, to compare by telephone."""
        data = Label.RECIPIENT_FINGERPRINT + bytes.fromhex(self.public) + self.name.encode()
        return grouped(sha256(data).hexdigest()[:40])

    def to_text(self) -> str:
        """Return the content of the file that a recipient sends to sites."""
        values = {"unpooled": KEY, "format": FORMAT, "name": self.name, "key": self.public}
        return json.dumps({**values, "fingerprint": self.fingerprint}, indent=1) + "\n"

    @classmethod
    def read(cls, path: Path) -> "RecipientKey":
        """Return the key in a file; InputError if it is not a recipient's key."""
        values = _parsed(path, KEY)
        name, key = values.get("name"), values.get("key")
        if not is_name(name) or not _is_hex(key, _KEY_BYTES):
            raise InputError(
                f"{path}: the key of the recipient is damaged. Ask the recipient to send it again."
            )
        found = cls(str(name), str(key))
        if values.get("fingerprint") != found.fingerprint:
            raise InputError(
                f"{path}: name, key and fingerprint do not belong together: the file was changed. Ask the "
                "recipient to send it again."
            )
        return found


def recipient_key(identity: "Identity", name: str) -> RecipientKey:
    """Return the public key of the recipient with this identity."""
    return RecipientKey(name, _agreement(identity).public.hex())


def _agreement(identity: "Identity") -> Any:
    from unpooled.privacy.secure_sum.crypto import KeyAgreement, derived

    return KeyAgreement(derived(identity.secret, Label.RECIPIENT_KEY))


def sender_fingerprint(key: str) -> str:
    """Return the fingerprint of a site's key, to compare by telephone."""
    return grouped(sha256(Label.MEMBER_FINGERPRINT + bytes.fromhex(key)).hexdigest()[:40])


def is_name(name: object) -> bool:
    """Return whether this can be the name of a site or of a recipient: letters, digits, - and _."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def grouped(digits: str) -> str:
    """Return digits in groups of four.

    >>> grouped("0123456789ab")
    '0123 4567 89ab'
    """
    return " ".join(digits[i : i + 4] for i in range(0, len(digits), 4))


@dataclass(frozen=True)
class Header:
    """The readable part of a file: who sent what to whom, when and for which study."""

    sender: str
    sender_key: str  # Ed25519, hexadecimal
    recipient: str
    recipient_key: str  # X25519, hexadecimal
    line: int  # of the site's log that records the file; a later file of the site has a higher one
    exported: str  # date and time, UTC
    study: StudyFile | None  # None: a deletion notice, which is about several
    protection: str  # in words
    encrypted: bool

    @property
    def day(self) -> str:
        return self.exported[:10]

    def to_json(self) -> dict[str, Any]:
        """Return the header for its file, with the terms and fingerprints that people read."""
        values: dict[str, Any] = {
            "sender": self.sender,
            "sender_key": self.sender_key,
            "sender_fingerprint": sender_fingerprint(self.sender_key),
            "recipient": self.recipient,
            "recipient_key": self.recipient_key,
            "recipient_fingerprint": RecipientKey(self.recipient, self.recipient_key).fingerprint,
            "line": self.line,
            "exported": self.exported,
            "protection": self.protection,
            "encrypted": self.encrypted,
        }
        if self.study is not None:
            values["study"] = {**vars(self.study), "columns": list(self.study.columns)}
            values["terms"] = list(TERMS)
        return values

    @classmethod
    def from_json(cls, values: Any) -> "Header":
        """Return the header of these values; InputError if it is not what ``to_json`` writes."""
        try:
            study = StudyFile.from_json(values["study"]) if "study" in values else None
            names = [field.name for field in fields(cls) if field.name != "study"]
            header = cls(study=study, **{name: values[name] for name in names})
            right = (
                is_name(header.sender)
                and is_name(header.recipient)
                and _is_hex(header.sender_key, _KEY_BYTES)
                and _is_hex(header.recipient_key, _KEY_BYTES)
                and type(header.line) is int
                and type(header.encrypted) is bool
                and datetime.fromisoformat(header.exported).tzinfo is not None
                and len(header.protection) < _MAX_TEXT
                and not is_strange(header.protection)
                and header.to_json() == values  # nothing is lacking, and nothing else is there
            )
        except (KeyError, TypeError, ValueError, AttributeError, InputError):
            right = False
        if not right:
            raise InputError("its header is damaged")
        return header


@dataclass(frozen=True, eq=False)
class SignedFile:
    """A file whose signature is right; its body is read by ``content``."""

    path: Path
    kind: str  # TABLE or NOTICE
    header: Header
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
            raise InputError(
                f"{self.path}: cannot be decrypted. Ask {self.header.sender} to export it again."
            )
        return dict(json.loads(text))

    def table(self, identity: "Identity") -> SummaryTable:
        """Return the summary table in the file; InputError if it is not one."""
        content = self.content(identity)
        try:
            table = from_csv("\n".join(content["table"]) + "\n", content["about"])
            check_plausible(table)
        except (KeyError, TypeError, ValueError, AttributeError, InputError) as error:
            raise InputError(f"{self.path}: the summary table in it cannot be used: {error}") from None
        return table


def seal_file(kind: str, header: Header, content: dict[str, Any], identity: "Identity") -> tuple[bytes, str]:
    """Return the bytes of a signed file, encrypted if its header says so, and its digest."""
    ephemeral, body = "", content
    if header.encrypted:
        from unpooled.privacy.secure_sum.crypto import KeyAgreement, seal

        agreement = KeyAgreement(os.urandom(_KEY_BYTES))
        key = _file_key(agreement, bytes.fromhex(header.recipient_key))
        if key is None:
            raise InputError(f"the key of {header.recipient} is not valid. Ask for another one.")
        ephemeral = agreement.public.hex()
        sealed = seal(key, _canonical(content), _about(kind, header, ephemeral))
        text = base64.b64encode(sealed).decode("ascii")
        body = [text[i : i + _LINE] for i in range(0, len(text), _LINE)]  # type: ignore[assignment]
    signed = _signed_values(kind, header, ephemeral, body)
    digest = sha256(_canonical(signed)).hexdigest()
    signature = identity.sign(Label.SUMMARY_FILE + digest.encode()).hex()
    text = json.dumps({**signed, "signature": signature}, indent=1, ensure_ascii=False)
    return (text + "\n").encode(), digest


def open_file(path: Path) -> SignedFile:
    """Return a signed file; InputError if it was cut or changed, or is something else."""
    from unpooled.privacy.secure_sum.crypto import is_signed
    from unpooled.privacy.secure_sum.stage_messages import from_hex

    values = _parsed(path, TABLE, NOTICE)
    kind = str(values["unpooled"])
    again = "Ask the site to send it again."
    try:
        header = Header.from_json(values.get("header"))
    except InputError as error:
        raise InputError(f"{path}: {error}. {again}") from None
    ephemeral, body, signature = (values.get(name) for name in ("ephemeral_key", "body", "signature"))
    right = isinstance(body, list if header.encrypted else dict) and isinstance(signature, str)
    if not right or not isinstance(ephemeral, str) or (header.encrypted != _is_hex(ephemeral, _KEY_BYTES)):
        raise InputError(f"{path}: its body is damaged. {again}")
    signed = _signed_values(kind, header, ephemeral, body)
    digest = sha256(_canonical(signed)).hexdigest()
    statement = Label.SUMMARY_FILE + digest.encode()
    if values != {**signed, "signature": signature} or not is_signed(
        bytes.fromhex(header.sender_key), statement, from_hex(str(signature))
    ):
        raise InputError(
            f"{path}: was changed after {header.sender} signed it: its signature is wrong. {again}"
        )
    return SignedFile(path, kind, header, digest, ephemeral, body)


def is_summary_file(given: object) -> bool:
    """Return whether this names a summary file, by its ending.

    >>> is_summary_file("north.unpooled"), is_summary_file("NORTH.UNPOOLED"), is_summary_file("north.csv")
    (True, True, False)
    """
    return isinstance(given, str | Path) and str(given).lower().endswith(SUFFIX)


def table_content(table: SummaryTable, digest: str) -> dict[str, Any]:
    """Return the body of a summary file: the table and the digest of the site's whole one."""
    return {"about": {**described(table), "digest": digest}, "table": to_csv(table).rstrip("\n").split("\n")}


def _file_key(agreement: Any, peer: bytes) -> bytes | None:
    from unpooled.privacy.secure_sum.crypto import derived

    root = agreement.root(peer, bytes(Label.SUMMARY_FILE_KEY))
    return None if root is None else derived(root, Label.SUMMARY_FILE_KEY)


def _about(kind: str, header: Header, ephemeral: str) -> bytes:
    """The associated data of the encryption."""
    return _canonical(_signed_values(kind, header, ephemeral, None))


def _signed_values(kind: str, header: Header, ephemeral: str, body: Any) -> dict[str, Any]:
    values = {"unpooled": kind, "format": FORMAT, "header": header.to_json(), "ephemeral_key": ephemeral}
    return {**values, "body": body}


def _canonical(values: Any) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _parsed(path: Path, *kinds: str) -> dict[str, Any]:
    """The values in a file of one of these kinds; InputError if it is cut, or something else."""
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
        but = f", but a {kind}" if kind in (TABLE, NOTICE, KEY) else ""
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


def _is_hex(value: object, length: int) -> bool:
    return isinstance(value, str) and re.fullmatch(f"[0-9a-f]{{{2 * length}}}", value) is not None
