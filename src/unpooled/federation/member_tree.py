"""The tree of a federation's members: each federation reports the keys of its members, once a run.

The coordinator at the top thereby detects a site that is reached by two paths and a federation that contains
itself. A federation reports the fingerprint of a member's key and nothing else: no name, no address. An
invalid tree ends the run with an error of one line.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated

from unpooled.errors import CodecError, InputError, QueryRefusedError
from unpooled.protocol import codec
from unpooled.protocol.declarations import Text
from unpooled.protocol.exchange import Part, Request, RequestId, Response, Transport
from unpooled.protocol.messages import Question, Refusal, Reply, SiteId
from unpooled.protocol.site_batch import SiteBatch
from unpooled.storage.file_format import works_with

_MAX_BYTES = 64 * 2**20  # bytes of an answer: fingerprints of a million sites


@dataclass(frozen=True, eq=False)
class Members(Reply):
    """The fingerprints of the keys of a federation and of all its members, or why they are not a tree."""

    keys: Annotated[tuple[str, ...], Text("keys")]
    version: Annotated[str, Text()]  # of unpooled
    fault: Annotated[str, Text()] = ""


@dataclass(frozen=True, eq=False)
class AskMembers(Question[Members]):
    """Asks a federation for its members; ``ancestors`` are the fingerprints of the federations above it."""

    reads = "nothing"
    asks_for = "the members of this federation, down to single sites"

    ancestors: Annotated[tuple[str, ...], Text("ancestors")] = ()

    def answer_all(self, batch: SiteBatch) -> list[Members]:
        raise QueryRefusedError("this is a site, not a federation. It has no members.")


class TreeError(InputError):
    """The federations do not form a tree. ``public_message`` names no members and may be passed up."""

    def __init__(self, message: str, public_message: str = "") -> None:
        super().__init__(message)
        self.public_message = public_message or message


class MemberTree:
    """The members of one federation: the keys of its sites, and its federations, which it asks for theirs."""

    def __init__(
        self, transport: Transport, keys: Mapping[SiteId, str], federations: Sequence[SiteId]
    ) -> None:
        self._transport, self._federations = transport, tuple(sorted(federations))
        self._paths = {key: site for site, key in sorted(keys.items()) if key}  # of every known key
        if len(self._paths) < sum(map(bool, keys.values())):
            one, other = next((a, b) for a in keys for b in keys if a < b and keys[a] == keys[b])
            raise TreeError(
                f"{one} and {other} are the same site: they have the same key",
                "two members are the same site",
            )
        self._sites = dict(self._paths)
        self._run: str | None = None
        self._known: set[SiteId] = set()  # federations that have reported their members
        self._closed = False  # the keys have been passed up: no federation can be added any more

    def keys(self, request_id: RequestId, ancestors: tuple[str, ...]) -> tuple[str, ...]:
        """Return the fingerprints of all members, to be passed up; federations that are silent stay out."""
        self.unanswered(request_id, ancestors)
        self._closed = True
        return tuple(sorted(self._paths))

    def unanswered(self, request_id: RequestId, ancestors: tuple[str, ...] = ()) -> dict[SiteId, str]:
        """Return the federations that have not reported their members, and why; they take no part so far."""
        if request_id.run != self._run:
            self._run, self._known, self._closed, self._paths = (
                request_id.run,
                set(),
                False,
                dict(self._sites),
            )
        new = [site for site in self._federations if site not in self._known]
        if self._closed:
            return dict.fromkeys(new, "did not report its members in time")
        if not new:
            return {}
        request = codec.wrap(Request(request_id, (Part("each", AskMembers(ancestors), None, 0),)))
        responses = self._transport.send_and_receive(dict.fromkeys(new, request))
        silent: dict[SiteId, str] = {}
        for site in new:
            data = responses.get(site)
            if not isinstance(data, bytes):
                silent[site] = data or "no answer"
                continue
            for key in _read(site, data).keys:
                other = self._paths.setdefault(key, site)
                if other != site:
                    raise TreeError(
                        f"one member is reached by two paths, {other} and {site} (key {key[:16]})",
                        "one of its members is reached by two paths",
                    )
            self._known.add(site)
        return silent

    def needs_exchange(self, run: str) -> bool:
        """Return True if federations must still be asked in this run, which takes an exchange of its own."""
        done = self._closed or len(self._known) == len(self._federations)
        return bool(self._federations) and not (run == self._run and done)


def _read(site: SiteId, data: bytes) -> Members:
    """Return the members of a federation; raise TreeError with its reason if it reports none."""
    try:
        answer: Response = codec.unwrap(data, expect=Response, limit=_MAX_BYTES)
    except CodecError as error:
        raise TreeError(f"the answer of {site} cannot be read: {error}") from error
    reply = answer.replies[0] if answer.replies else None
    if isinstance(reply, Refusal):
        raise TreeError(f"{site}: {reply.reason}")
    if not isinstance(reply, Members):
        raise TreeError(f"{site} did not report its members")
    if reply.fault:
        raise TreeError(f"{site}: {reply.fault}")
    if not works_with(reply.version, version("unpooled")):
        raise TreeError(
            f"{site} has unpooled {reply.version}, the federation above it {version('unpooled')}. They may "
            "be one minor version apart."
        )
    return reply
