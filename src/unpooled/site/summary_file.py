"""Summary files: a site's summary table, or a deletion notice, on its way to one recipient.

They are signed files (``signed_file``). Their body is encrypted; a plain body is the officer's choice.
"""

from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unpooled.data.summary_table import SummaryTable, from_body, to_body
from unpooled.errors import InputError
from unpooled.site.signed_file import (
    NOTICE,
    TABLE,
    RecipientKey,
    SignedFile,
    is_key,
    is_name,
    open_file,
    sender_fingerprint,
)
from unpooled.site.study import is_strange
from unpooled.site.study_file import StudyFile

if TYPE_CHECKING:  # the package cryptography is optional
    from unpooled.privacy.secure_sum.crypto import Identity

_MAX_TEXT = 1000

TERMS = (
    "The recipient uses this file for the study named here and for nothing else, and deletes it when the "
    "study expires. After export these limits hold by agreement: the site cannot enforce them.",
    "An erasure at the site cannot recall this file. The site sends a deletion notice instead.",
)


@dataclass(frozen=True)
class Header:
    """The readable part of a file: who sent what to whom, when and for which study."""

    sender: str
    sender_key: str  # Ed25519, hexadecimal
    recipient: RecipientKey
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
            "recipient": self.recipient.name,
            "recipient_key": self.recipient.public,
            "recipient_identity": self.recipient.identity,
            "recipient_fingerprint": self.recipient.fingerprint,
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
            recipient = RecipientKey(
                *(values[name] for name in ("recipient", "recipient_key", "recipient_identity"))
            )
            names = [field.name for field in fields(cls) if field.name not in ("study", "recipient")]
            header = cls(study=study, recipient=recipient, **{name: values[name] for name in names})
            right = (
                is_name(header.sender)
                and is_key(header.sender_key)
                and header.recipient.is_valid
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


def open_summary_file(path: Path) -> SignedFile[Header]:
    """Return a summary file or a deletion notice; InputError if it was changed, or is something else."""
    return open_file(path, {TABLE: Header.from_json, NOTICE: Header.from_json})


def table_in(file: SignedFile[Header], identity: "Identity") -> SummaryTable:
    """Return the summary table in a file, decrypted by the recipient; InputError if it is not one."""
    content = file.content(identity)
    try:
        return from_body(content["about"], content["table"])
    except (KeyError, TypeError, InputError) as error:
        raise InputError(f"{file.path}: {error}") from None


def table_content(table: SummaryTable, digest: str) -> dict[str, Any]:
    """Return the body of a summary file: the table and the digest of the site's whole one."""
    about, lines = to_body(table)
    return {"about": {**about, "digest": digest}, "table": lines}
