"""The members of a tree of federations: each passes up the fingerprints of its members' keys, once a run.

So a site that is reached by two paths is found, and a federation that contains itself. Nothing else of a
member goes up: no name, no address. What is wrong with the tree ends the run, in one line.
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

_MAX_BYTES = 64 * 2**20  # bytes of an answer: fingerprints of a million sites


@dataclass(frozen=True, eq=False)
class Members(Reply):
    """The fingerprints of the keys of a federation and of all its members, or what is wrong with them."""

    keys: Annotated[tuple[str, ...], Text("keys")]
    version: Annotated[str, Text()]  # of unpooled
    fault: Annotated[str, Text()] = ""


@dataclass(frozen=True, eq=False)
class AskMembers(Question[Members]):
    """Who are your members? ``ancestors``: the federations through which the question came, by fingerprint."""

    reads = "nothing"

    ancestors: Annotated[tuple[str, ...], Text("ancestors")] = ()

    def answer_all(self, batch: SiteBatch) -> list[Members]:
        raise QueryRefusedError("this is a site, not a federation: it has no members")


class TreeError(InputError):
    """Federations that do not make a tree. ``shown``: the same without names of members, to be passed up."""

    def __init__(self, message: str, public_message: str = "") -> None:
        super().__init__(message)
        self.public_message = public_message or message


class Membership:
    """The members of one federation: the keys of sites, and the federations, which are asked for theirs."""

    def __init__(
        self, transport: Transport, keys: Mapping[SiteId, str], federations: Sequence[SiteId]
    ) -> None:
        self._transport, self._federations = transport, tuple(sorted(federations))
        self._paths = {key: site for site, key in sorted(keys.items()) if key}  # of every known key
        if len(self._paths) < sum(map(bool, keys.values())):
            one, other = next((a, b) for a in keys for b in keys if a < b and keys[a] == keys[b])
            raise TreeError(f"{one} and {other} are one site: they have one key", "two members are one site")
        self._sites = dict(self._paths)
        self._run: str | None = None
        self._known: set[SiteId] = set()  # federations that have said who their members are
        self._closed = False  # the keys have been passed up: nobody new can be taken in

    def keys(self, request_id: RequestId, ancestors: tuple[str, ...]) -> tuple[str, ...]:
        """The fingerprints of all members, to be passed up; a federation that is silent now stays out."""
        self.unanswered(request_id, ancestors)
        self._closed = True
        return tuple(sorted(self._paths))

    def unanswered(self, request_id: RequestId, ancestors: tuple[str, ...] = ()) -> dict[SiteId, str]:
        """The federations that have not said who their members are, and why; they take no part before."""
        if request_id.run != self._run:
            self._run, self._known, self._closed, self._paths = (
                request_id.run,
                set(),
                False,
                dict(self._sites),
            )
        new = [site for site in self._federations if site not in self._known]
        if self._closed:
            return dict.fromkeys(new, "did not say in time who its members are")
        if not new:
            return {}
        request = codec.wrap(Request(request_id, (Part("each", AskMembers(ancestors), None, 0),)))
        came = self._transport.send_and_receive(dict.fromkeys(new, request))
        silent: dict[SiteId, str] = {}
        for site in new:
            data = came.get(site)
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
        """True if somebody is to be asked in this run, which takes an exchange of its own."""
        done = self._closed or len(self._known) == len(self._federations)
        return bool(self._federations) and not (run == self._run and done)


def _read(site: SiteId, data: bytes) -> Members:
    """The members of a federation; TreeError if it has none to tell, with its reason."""
    try:
        answer: Response = codec.unwrap(data, expect=Response, limit=_MAX_BYTES)
    except CodecError as error:
        raise TreeError(f"{site} cannot be understood: {error}") from error
    reply = answer.replies[0] if answer.replies else None
    if isinstance(reply, Refusal):
        raise TreeError(f"{site}: {reply.reason}")
    if not isinstance(reply, Members):
        raise TreeError(f"{site} did not say who its members are")
    if reply.fault:
        raise TreeError(f"{site}: {reply.fault}")
    if reply.version != version("unpooled"):
        raise TreeError(
            f"{site} has unpooled {reply.version}, the federation above it {version('unpooled')}: a tree has "
            "one version"
        )
    return reply
