"""Runs over files: the coordinator's side. The site's side is ``file_responder``.

A shared folder has one folder per site: on a network share, an SFTP server, in a synchronised folder or on a
stick. ``FileTransport`` writes each request as a signed and encrypted file into the folder of its site and
waits for the file with the response. The formats are in ``site/message_file.py``; deadlines and retries are
those of every transport (``RetryingTransport``).

No file is trusted and none is needed twice. A lost or damaged request is written again. A response that comes
late, twice or for another request does nothing, because it names its request.
The name of a request follows from its content: a coordinator that was killed writes the same request again
under the same name and finds the response that came meanwhile.
"""

import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from unpooled.errors import InputError
from unpooled.federation.retrying_transport import NoAnswer, OnAnswer, RetryingTransport
from unpooled.protocol import codec
from unpooled.protocol.crypto_labels import Label
from unpooled.protocol.site_id import SiteId
from unpooled.site.message_file import ENDINGS, open_message, packed, seal_message, unpacked
from unpooled.site.session import RunTerms
from unpooled.site.signed_file import PENDING, REQUEST, RESPONSE, RecipientKey, recipient_key
from unpooled.storage.atomic_files import write_atomically

if TYPE_CHECKING:
    from unpooled.privacy.secure_sum.crypto import Identity

_FIRST_PAUSE, _MAX_PAUSE = 0.02, 1.0  # seconds between two looks for responses; it grows while none comes
_NAME_DIGITS = 24


@dataclass
class _Sent:
    """The request that a site has to answer now."""

    data: bytes
    sealed: bytes
    path: Path
    answered: OnAnswer | None  # None while no exchange waits for the response
    seen: tuple[Path, int, int] | None = None  # path, size and time of the last file that was read


class FileTransport(RetryingTransport):
    """A Transport by files in one folder per site.

    Parameters
    ----------
    folder
        The shared folder.
    name, identity
        The coordinator.
    sites
        The public keys of the sites.
    terms
        The terms of the run; every request has them, so a site needs no other file to answer it.
    deadline, approval_timeout
        As of every transport.
    on_problem
        Called once with each file that cannot be used, in words.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        identity: "Identity",
        sites: Mapping[SiteId, RecipientKey],
        terms: RunTerms,
        *,
        deadline: float,
        approval_timeout: float = 0.0,
        on_problem: Callable[[str], None] = lambda text: None,
    ) -> None:
        super().__init__(tuple(sites), self._write, deadline=deadline, approval_timeout=approval_timeout)
        self._folder, self._identity, self._keys = folder, identity, sites
        self._me, self._run, self._on_problem = recipient_key(identity, name), terms.study.run, on_problem
        self._terms = packed(codec.encode(terms))
        self._problems: set[str] = set()
        self._requests: dict[SiteId, _Sent] = {}
        self._lock = threading.Lock()  # of the requests: both threads read responses
        self._closed = threading.Event()
        self._news = threading.Event()
        threading.Thread(target=self._look_for_responses, daemon=True).start()

    def close(self, *, remove: bool) -> None:
        """Stop looking for responses; ``remove``: the run is over and its files go."""
        self._closed.set()
        self._news.set()
        for site in self.sites if remove else ():
            run = self._folder / site / self._run
            for request in run.glob(f"*{ENDINGS[REQUEST]}"):  # first, so that the site answers nothing more
                request.unlink(missing_ok=True)
            shutil.rmtree(run, ignore_errors=True)

    def send_and_receive(self, requests: Mapping[SiteId, bytes]) -> Mapping[SiteId, bytes | str]:
        try:
            return super().send_and_receive(requests)
        finally:
            with self._lock:  # a response that comes later stays where it is
                for sent in self._requests.values():
                    sent.answered = None

    def _write(self, site: SiteId, data: bytes, answered: OnAnswer) -> None:
        """Write a request, unless it is there undamaged, and report a response that is there."""
        with self._lock:
            self._requests[site] = sent = self._written(site, data)
            sent.answered, sent.seen = answered, None  # what is there is reported again
            self._report(site, sent)
        self._news.set()

    def _written(self, site: SiteId, data: bytes) -> _Sent:
        sent = self._requests.get(site)
        if sent is None or sent.data is not data:
            path = self._folder / site / self._run / f"{self._file_name(data)}{ENDINGS[REQUEST]}"
            content = {"terms": self._terms, "message": packed(data)}
            sealed = seal_message(REQUEST, self._identity, self._me.name, self._keys[site], path, content)
            for other in path.parent.glob(f"*{ENDINGS[REQUEST]}"):
                if other != path:  # nobody waits for its response any more, or its coordinator was killed
                    _remove(other)
            sent = _Sent(data, sealed, path, None)
        if not sent.path.exists() or sent.path.read_bytes() != sent.sealed:
            sent.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(sent.path, sent.sealed, shared=True)
        return sent

    def _look_for_responses(self) -> None:
        pause = _FIRST_PAUSE
        while not self._closed.is_set():
            with self._lock:
                found = [self._report(site, sent) for site, sent in self._requests.items()]
            if any(found):
                pause = _FIRST_PAUSE
            if self._news.wait(pause):
                self._news.clear()
                pause = _FIRST_PAUSE
            pause = min(1.5 * pause, _MAX_PAUSE)

    def _report(self, site: SiteId, sent: _Sent) -> bool:
        """Report a response, or why there is none, to the exchange that waits; False if nothing is new."""
        answer = None if sent.answered is None else self._read(site, sent)
        if answer is None or sent.answered is None:
            return False
        sent.answered(answer)
        return True

    def _read(self, site: SiteId, sent: _Sent) -> bytes | NoAnswer | None:
        """The response to a request, or why there is none; None if nothing new is there."""
        for kind in (RESPONSE, PENDING):
            path = sent.path.with_suffix(ENDINGS[kind])
            try:
                state = path.stat()
                seen = (path, state.st_size, state.st_mtime_ns)
                if seen == sent.seen:
                    return None
                answer = self._answer(site, sent, path, kind)
            except OSError:
                continue  # it is not there (yet)
            except InputError as error:  # the site may write it again
                if not path.exists():
                    continue
                if str(error) not in self._problems:
                    self._problems.add(str(error))
                    self._on_problem(str(error))
                answer = NoAnswer(str(error))
            sent.seen = seen
            return answer
        return None

    def _answer(self, site: SiteId, sent: _Sent, path: Path, kind: str) -> bytes | NoAnswer:
        key = self._keys[site].identity
        _, content = open_message(path, kind, self._identity, self._me, site, key)
        if kind == PENDING:
            return NoAnswer(str(content.get("reason"))[:500], waiting=True)
        if "reason" in content:
            _remove(sent.path)  # if the run is resumed, the site is asked anew
            return NoAnswer(str(content["reason"])[:500], retry=False)
        return unpacked(content, "message", path)

    def _file_name(self, data: bytes) -> str:
        """The name of a request: the same for the same request; it says nothing about its content."""
        from unpooled.privacy.secure_sum.crypto import derived

        return derived(self._identity.secret, Label.REQUEST_NAME, sha256(data).digest()).hex()[:_NAME_DIGITS]


def _remove(request: Path) -> None:
    """Remove the files of one request."""
    for ending in ENDINGS.values():
        request.with_suffix(ending).unlink(missing_ok=True)
