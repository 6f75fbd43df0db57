"""Runs over files: a site's side. The coordinator's side is ``file_transport``.

The site answers each request in its folder that has no response yet. A request is a file of the coordinator
whose keys the site has pinned. Its study passes the same approval, and its message the same session
(``SiteSession``) and chain, as those that an engine carries. A site that was killed answers the request
again, with the same bytes.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import unpooled.algorithms
import unpooled.evaluation  # noqa: F401  importing them registers what may be asked
from unpooled.errors import CodecError, InputError
from unpooled.federation.provisioning.file_membership import FileMembership
from unpooled.protocol import codec
from unpooled.site.endpoint import PendingDecision
from unpooled.site.identity import identity_in
from unpooled.site.message_file import (
    ENDINGS,
    INTRODUCTION,
    MessageHeader,
    check_place_of,
    introduction,
    open_message,
    packed,
    seal_message,
    unpacked,
)
from unpooled.site.session import RunTerms, SiteSession
from unpooled.site.signed_file import PENDING, REQUEST, RESPONSE, SITE_KEY, open_file, recipient_key
from unpooled.storage.atomic_files import write_atomically


class FileResponder:
    """Answers the requests in a site's folder.

    Parameters
    ----------
    membership
        The site, and the coordinator that it answers.
    folder
        The site's folder in the shared folder.
    on_problem
        Called once with each file that cannot be used, in words.
    """

    def __init__(
        self, membership: FileMembership, folder: Path, on_problem: Callable[[str], None] = lambda text: None
    ) -> None:
        self._settings, self._folder, self._on_problem = membership.settings, folder, on_problem
        self._coordinator, self._identity = membership.coordinator, identity_in(membership.folder)
        self._me = recipient_key(self._identity, membership.site)
        self._sessions: dict[str, SiteSession] = {}  # by the digest of the study
        self._written: dict[Path, tuple[int, int]] = {}  # own files that are whole: size and time
        self.problems: set[str] = set()
        self.pending: set[str] = set()  # titles of studies that somebody must approve

    def introduce(self) -> bool:
        """Write the file with the site's public keys; False if it is there."""
        path = self._folder / INTRODUCTION
        if self._is_whole(path, SITE_KEY):
            return False
        write_atomically(path, introduction(self._identity, self._me, self._coordinator), shared=True)
        return True

    def answer_all(self) -> int:
        """Answer all open requests; returns the number of responses."""
        runs = [path for path in self._folder.iterdir() if path.is_dir()]
        requests = sorted(path for run in runs for path in _files(run) if path.suffix == ENDINGS[REQUEST])
        if not runs:
            self.close()
        self.pending = set()
        return sum(self._answer(path, content) for path, content in self._open_requests(requests))

    def _open_requests(self, paths: Sequence[Path]) -> list[tuple[Path, dict[str, Any]]]:
        """Return the requests without a response and their content, in the order in which they were written.

        A request of a coordinator that was killed may lie beside a later one: a site that began a secure sum
        with new keys must not go back to the old ones.
        """
        found, pinned = [], self._coordinator
        for path in paths:
            try:
                if self._is_whole(path.with_suffix(ENDINGS[RESPONSE]), RESPONSE):
                    continue
                header, content = open_message(
                    path, REQUEST, self._identity, self._me, pinned.name, pinned.identity
                )
                found.append((header.written, path, content))
            except InputError as error:
                if path.exists():  # else the coordinator took the request back
                    self._report(str(error))
            except FileNotFoundError:
                pass
        return [(path, content) for _, path, content in sorted(found, key=lambda one: one[:2])]

    def _report(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.add(problem)
            self._on_problem(problem)

    def close(self) -> None:
        """Close the sessions: the site's log is free."""
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()

    def _answer(self, path: Path, content: dict[str, Any]) -> bool:
        """Answer one request; False if somebody must approve its study first, or it cannot be answered."""
        if not path.exists():  # the coordinator took the request back
            return False
        try:
            message, terms = unpacked(content, "message", path), _terms(content, path)
            return self._respond(path, message, terms)
        except InputError as error:
            self._report(str(error))
        except FileNotFoundError:
            pass  # the coordinator took the request back, or the run has ended
        return False

    def _respond(self, path: Path, message: bytes, terms: RunTerms) -> bool:
        """Write the response to a request; False if somebody must approve its study first."""
        digest = terms.study.digest
        session = self._sessions.setdefault(digest, SiteSession(self._settings, terms))
        answer = session.respond(message)
        if isinstance(answer, PendingDecision):
            self.pending.add(terms.study.title)
            if not self._is_whole(path.with_suffix(ENDINGS[PENDING]), PENDING):
                self._write(path, PENDING, {"reason": str(answer)})
            return False
        if isinstance(answer, bytes):
            self._write(path, RESPONSE, {"message": packed(answer)})
        else:
            self._sessions.pop(digest).close()  # the cause may pass, and the next request opens the site anew
            self._write(path, RESPONSE, {"reason": answer})
        path.with_suffix(ENDINGS[PENDING]).unlink(missing_ok=True)
        if not path.exists():  # the coordinator took the request back while it was answered
            path.with_suffix(ENDINGS[RESPONSE]).unlink(missing_ok=True)
            with suppress(OSError):  # the run's folder holds other files, or is gone
                path.parent.rmdir()
        return True

    def _write(self, request: Path, kind: str, content: dict[str, Any]) -> None:
        path = request.with_suffix(ENDINGS[kind])
        data = seal_message(kind, self._identity, self._me.name, self._coordinator, path, content)
        write_atomically(path, data, shared=True)

    def _is_whole(self, path: Path, kind: str) -> bool:
        """True if a file of this site is there as it was signed; else it is written again."""
        try:
            state = path.stat()
            if self._written.get(path) == (state.st_size, state.st_mtime_ns):
                return True
            header = open_file(path, {kind: MessageHeader.from_json}).header
            if kind != SITE_KEY:
                check_place_of(path, header)
        except (OSError, InputError):
            return False
        if (header.sender_key, header.recipient) != (self._me.identity, self._coordinator):
            return False
        self._written[path] = (state.st_size, state.st_mtime_ns)
        return True


def _files(run: Path) -> list[Path]:
    try:
        return list(run.iterdir())
    except FileNotFoundError:  # the run has ended, and the coordinator removed its folder
        return []


def _terms(content: dict[str, Any], path: Path) -> RunTerms:
    try:
        terms: RunTerms = codec.decode(unpacked(content, "terms", path), expect=RunTerms)
    except CodecError as error:
        raise InputError(f"{path}: its study cannot be read: {error}") from None
    if terms.study.run != path.parent.name:
        raise InputError(f"{path}: is of another run than its study, {terms.study.run}.")
    return terms
