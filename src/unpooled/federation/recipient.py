"""The recipient of signed summary files: its key, the sites that it knows, and the files that came.

::

    FOLDER/identity.key      the secret; it never leaves the folder
    FOLDER/NAME-key.json     the public key, which the recipient sends to sites
    FOLDER/recipient.json    the name, the known sites with their keys, the files and deletion notices
    FOLDER/runs, results     runs over files, as those of a server

A run uses only files that were received: the record then has the newest file of every site. The files
themselves may be in the folder or in any folder inside it.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from unpooled.data.summary_table import SummaryTable
from unpooled.errors import InputError
from unpooled.federation.run_places import RunPlaces
from unpooled.site.identity import IDENTITY, identity_in
from unpooled.site.message_file import INTRODUCTION, MessageHeader
from unpooled.site.signed_file import (
    NOTICE,
    SITE_KEY,
    TABLE,
    RecipientKey,
    SignedFile,
    is_key,
    is_name,
    open_file,
    recipient_key,
    sender_fingerprint,
)
from unpooled.site.summary_file import Header, table_in
from unpooled.storage.account import account
from unpooled.storage.atomic_files import write_atomically
from unpooled.storage.file_format import FORMAT, format_error
from unpooled.storage.file_locks import locked

if TYPE_CHECKING:
    from unpooled.privacy.secure_sum.crypto import Identity

RECORD = "recipient.json"
AnyFile = SignedFile[Any]  # a summary file, a deletion notice or a site's key
_HEADERS: dict[str, Callable[[Any], Any]] = {
    TABLE: Header.from_json,
    NOTICE: Header.from_json,
    SITE_KEY: MessageHeader.from_json,
}


@dataclass(frozen=True)
class KnownSite:
    """A site whose fingerprint somebody compared."""

    key: str
    since: str
    by: str
    public: str = ""  # the key to which requests are encrypted; "": it takes no part in runs over files


@dataclass(frozen=True)
class ReceivedFile:
    """A summary file that came."""

    site: str
    file: str  # its digest
    study: str  # the digest of its study
    title: str
    line: int  # of the site's log: a later file has a higher one
    exported: str
    received: str
    recalled: str = ""  # when the site asked to delete it; "": it did not


@dataclass(frozen=True)
class Recipient(RunPlaces):
    """The folder of a recipient, who may also coordinate runs over files."""

    folder: Path
    name: str
    sites: dict[str, KnownSite] = field(default_factory=dict)
    files: tuple[ReceivedFile, ...] = ()

    @property
    def path(self) -> Path:  # type: ignore[override]
        return self.folder.absolute()

    @property
    def identity(self) -> "Identity":
        return identity_in(self.folder)

    @property
    def key(self) -> RecipientKey:
        return recipient_key(self.identity, self.name)

    @property
    def key_file(self) -> Path:
        """The file that the recipient sends to sites."""
        return self.folder / f"{self.name}-key.json"

    # ------------------------------------------------------------ the folder

    @classmethod
    def create(cls, folder: Path, name: str = "") -> "Recipient":
        """Return the recipient of a folder; makes its key and its files where they are missing."""
        if (folder / RECORD).exists():
            known = cls.read(folder)
            if name and name != known.name:
                raise InputError(f"{folder}: the recipient is {known.name}. Use another folder for {name}.")
        else:
            known = cls(folder, name or folder.resolve().name)
            if not is_name(known.name):
                raise InputError(
                    f"{known.name!r} cannot be the name of a recipient. Set another with --name: up to 63 "
                    "letters, digits, - and _."
                )
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            identity_in(folder)
            known._write()
        write_atomically(known.key_file, known.key.to_text().encode(), shared=True)
        return known

    @classmethod
    def read(cls, folder: Path) -> "Recipient":
        """Return the recipient of a folder; InputError if there is none, or its record is damaged."""
        path = folder / RECORD
        if not path.exists():
            raise InputError(
                f"{folder}: has no key of a recipient. Make one with unpooled federation key {folder}."
            )
        try:
            values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            wrong = format_error(values.get("format"))
            known = cls(
                folder,
                str(values["name"]),
                {str(site): KnownSite(**known) for site, known in values["sites"].items()},
                tuple(ReceivedFile(**file) for file in values["files"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(f"{path}: damaged. Put the file back from a backup.") from None
        if wrong:
            raise InputError(f"{path}: the record has {wrong}")
        if not (folder / IDENTITY).exists():
            raise InputError(f"{folder / IDENTITY}: the key is lost. Put it back from a backup.")
        return known

    @classmethod
    def find(cls, file: Path) -> "Recipient":
        """Return the recipient in whose folder a file is, or in a folder inside it."""
        for folder in file.resolve().parents:
            if (folder / RECORD).exists():
                return cls.read(folder)
        raise InputError(
            f"{file}: is not in the folder of a key, with which it could be read. Move it into the folder "
            "that unpooled federation key made."
        )

    def _write(self) -> None:
        values = {
            "format": FORMAT,
            "name": self.name,
            "sites": {site: asdict(known) for site, known in self.sites.items()},
            "files": [asdict(file) for file in self.files],
        }
        write_atomically(self.folder / RECORD, (json.dumps(values, indent=1) + "\n").encode())

    # ------------------------------------------------------------ checks of a file

    def open(self, path: Path, kinds: Sequence[str] = (TABLE, NOTICE, SITE_KEY)) -> AnyFile:
        """Return a file for this recipient; InputError if it was changed, or is for somebody else."""
        opened: AnyFile = open_file(path, {kind: _HEADERS[kind] for kind in kinds})
        header, key = opened.header, self.key
        if (meant := header.recipient) != key:
            raise InputError(
                f"{path}: is for {meant.name} (fingerprint {meant.fingerprint}), and this is {key.name} "
                f"(fingerprint {key.fingerprint}). Ask {header.sender} for a file for this key."
            )
        return opened

    def is_known(self, file: AnyFile) -> bool:
        """Return whether the sender is known; InputError if it is known by another key."""
        header = file.header
        known = self.sites.get(header.sender)
        if known is not None and known.key != header.sender_key:
            raise InputError(
                f"{file.path}: {header.sender} is known here by another key (fingerprint "
                f"{sender_fingerprint(known.key)}), and this file is signed with fingerprint "
                f"{sender_fingerprint(header.sender_key)}. Call {header.sender}. If it has a new key: "
                f"unpooled federation receive {as_word(self.folder)} {as_word(file.path)} --new-key"
            )
        return known is not None

    def received(self, file: AnyFile) -> ReceivedFile | None:
        """Return the record of a file; None if it was not received."""
        return next((one for one in self.files if one.file == file.digest), None)

    def newest(self, site: str, study: str) -> ReceivedFile | None:
        """Return the newest received file of a site for a study."""
        files = [one for one in self.files if (one.site, one.study) == (site, study)]
        return max(files, key=lambda one: one.line, default=None)

    def check_usable(self, file: AnyFile) -> None:
        """Raise InputError unless a run may use a summary file."""
        header = file.header
        receive = f"unpooled federation receive {as_word(self.folder)} {as_word(file.path)}"
        if file.kind != TABLE or header.study is None:
            raise InputError(f"{file.path}: a deletion notice, not a summary file. Record it with {receive}.")
        if not self.is_known(file):
            raise InputError(
                f"{file.path}: signed with a key that is not known here: {header.sender}, fingerprint "
                f"{sender_fingerprint(header.sender_key)}. Compare it with {header.sender} by telephone, "
                f"then run {receive}"
            )
        record = self.received(file)
        if record is not None and record.recalled:
            raise InputError(
                f"{file.path}: {header.sender} asked on {record.recalled[:10]} to delete it. Delete it, and "
                f"ask {header.sender} for a new one."
            )
        newest = self.newest(header.sender, header.study.digest)
        if newest is not None and newest.line > header.line:
            raise InputError(
                f"{file.path}: of {header.day}, superseded by the file that {header.sender} exported on "
                f"{newest.exported[:10]} (line {newest.line} of its log). Use that one."
            )
        if record is None:
            raise InputError(f"{file.path}: was not received yet. Check and record it with {receive}")
        if header.study.expired:
            raise InputError(
                f"{file.path}: its study {header.study.title!r} expired on {header.study.expires}. Delete "
                "the file, or agree on a new study."
            )

    # ------------------------------------------------------------ runs over files

    @property
    def members(self) -> dict[str, RecipientKey]:
        """The sites that take part in runs over files, and their keys."""
        return {
            site: RecipientKey(site, known.public, known.key)
            for site, known in sorted(self.sites.items())
            if known.public
        }

    def check_shared(self, shared: Path) -> None:
        """Raise InputError unless runs can go over a shared folder: all sites that came are known."""
        if not shared.is_dir():
            raise InputError(f"{shared}: no such folder. Make it, with a folder in it for each site.")
        unknown = []
        for path in sorted(shared.glob(f"*/{INTRODUCTION}")):
            file = self.open(path, (SITE_KEY,))
            if file.header.sender != path.parent.name:
                raise InputError(
                    f"{path}: is of {file.header.sender}, and in the folder of {path.parent.name}. The name "
                    "of the folder must be that of the site."
                )
            if not self.is_known(file) or not self.sites[file.header.sender].public:
                unknown.append(str(path))
        if unknown or not self.members:
            files = unknown or [str(shared / "SITE" / INTRODUCTION)]
            words = " ".join(as_word(PurePath(path)) for path in files)
            raise InputError(
                f"{'a site is not' if unknown else 'no site is'} known here. Compare the fingerprints by "
                f"telephone with unpooled federation receive {as_word(self.folder)} {words}"
            )

    # ------------------------------------------------------------ receiving

    def receive(self, files: Sequence[AnyFile], *, new_keys: Iterable[str] = ()) -> "Recipient":
        """Record files and deletion notices that were opened; if one fails, nothing is written.

        The senders are known from now on: the caller compared their fingerprints. ``new_keys`` are
        sites whose key is replaced.
        """
        with locked(self.folder, what="unpooled federation receive"):
            known = Recipient.read(self.folder)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            for file in files:
                known = known._with(file, now, file.header.sender in set(new_keys))
            known._write()
        return known

    def _with(self, file: AnyFile, now: str, new_key: bool) -> "Recipient":
        header = file.header
        sites = dict(self.sites)
        known = self
        if new_key and sites[header.sender].key != header.sender_key:  # files of the old key are not used
            known = replace(known, files=tuple(one for one in known.files if one.site != header.sender))
            del sites[header.sender]
        if header.sender not in sites:
            sites[header.sender] = KnownSite(header.sender_key, now, account())
        known = replace(known, sites=sites)
        known.is_known(file)
        if file.kind == SITE_KEY:
            return known._introduced(file)
        if file.kind == NOTICE or header.study is None:
            return known._recalled(file, now)
        table_in(file, self.identity)  # it can be read
        record, newest = known.received(file), known.newest(header.sender, header.study.digest)
        if (record is not None and record.recalled) or (newest is not None and newest.line > header.line):
            known.check_usable(file)  # raises
        if record is not None:
            return known
        if newest is not None and newest.line == header.line:
            raise InputError(
                f"{file.path}: {header.sender} exported another file under the same line {header.line} of "
                "its log: the log was restored from an old backup, or forged. Call the site."
            )
        new = ReceivedFile(
            header.sender,
            file.digest,
            header.study.digest,
            header.study.title,
            header.line,
            header.exported,
            now,
        )
        return replace(known, files=(*known.files, new))

    def _introduced(self, file: AnyFile) -> "Recipient":
        """This recipient after a site's key came."""
        public, site = file.content(self.identity).get("key"), file.header.sender
        if not is_key(public):
            raise InputError(f"{file.path}: the key in it is damaged. Ask {site} to send it again.")
        sites = {**self.sites, site: replace(self.sites[site], public=str(public))}
        return replace(self, sites=sites)

    def _recalled(self, notice: AnyFile, now: str) -> "Recipient":
        """This recipient after a deletion notice; a file that did not come yet is recalled in advance."""
        content = notice.content(self.identity)
        try:
            named = {str(one["file"]): one for one in content["files"]}
            site = notice.header.sender
            files = [
                replace(one, recalled=one.recalled or now) if one.site == site and one.file in named else one
                for one in self.files
            ]
            for digest in named.keys() - {one.file for one in self.files}:
                title, line = str(named[digest]["study"]), int(named[digest]["line"])
                files.append(ReceivedFile(site, digest, "", title, line, "", "", now))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputError(f"{notice.path}: the deletion notice cannot be read") from None
        return replace(self, files=tuple(files))


def as_word(path: PurePath) -> str:
    """Return a path as a word of a command, for the shells of Windows too."""
    return f'"{path}"' if any(c.isspace() for c in str(path)) else str(path)


def read_summaries(paths: Sequence[Path]) -> list[tuple[SignedFile[Header], SummaryTable]]:
    """Return the files of a run, each of another site and all of one study, with their tables.

    Raises
    ------
    InputError
        A file may not be used, two are of one site, or they are of different studies.
    """
    recipients = {path: Recipient.find(path) for path in paths}
    opened = [recipients[path].open(path, (TABLE, NOTICE)) for path in paths]
    first: dict[str, AnyFile] = {}
    for file in opened:
        before = first.setdefault(file.header.sender, file)
        if before is file:
            continue
        if before.digest == file.digest:
            raise InputError(f"{before.path} and {file.path} are the same file of {file.header.sender}")
        newer, older = (file, before) if file.header.line > before.header.line else (before, file)
        if newer.header.study == older.header.study:
            raise InputError(
                f"{older.path} is superseded by {newer.path}: both are of {file.header.sender}, and the "
                f"second was exported later, on {newer.header.day}. Leave the first one out."
            )
        raise InputError(f"{before.path} and {file.path} are both of {file.header.sender}. Use one of them.")
    for file in opened:
        recipients[file.path].check_usable(file)
    for file in opened[1:]:
        one, other = opened[0].header.study, file.header.study
        if one != other and one is not None and other is not None:
            raise InputError(
                f"{opened[0].path} is for the study {one.title!r}, and {file.path} for {other.title!r} "
                f"(digests {one.digest[:8]} and {other.digest[:8]}). A run uses files of one study."
            )
    return [(file, table_in(file, recipients[file.path].identity)) for file in opened]


def read_summary(path: str | Path) -> SummaryTable:
    """Return the summary table in a signed file that was received.

    Parameters
    ----------
    path : str or path
        The file, in the folder of the recipient's key or in a folder inside it.

    Returns
    -------
    SummaryTable
        Its rows are groups: ``means`` and ``counts`` by column, ``people`` in each group.

    Raises
    ------
    InputError
        The file was changed, is not for this recipient, or may not be used.

    Examples
    --------
    >>> from unpooled import read_summary
    >>> read_summary("hospital-a.unpooled")
    Traceback (most recent call last):
    unpooled.errors.InputError: hospital-a.unpooled: is not in the folder of a key, with which it could be \
read. Move it into the folder that unpooled federation key made.
    """
    ((_, table),) = read_summaries([Path(path)])
    return table
