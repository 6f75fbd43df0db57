"""The transport to sites in this process: request and response are bytes, as between machines."""

from collections.abc import Mapping
from typing import Protocol

from unpooled.protocol.exchange import Transport
from unpooled.protocol.messages import SiteId


class LocalMember(Protocol):
    """A member of a federation of this process: a site, or a relay, which has a federation of its own."""

    @property
    def name(self) -> SiteId: ...
    @property
    def key(self) -> str: ...  # the fingerprint of its public key; "": it has none
    @property
    def is_federation(self) -> bool: ...
    def receive(self, data: bytes) -> bytes: ...  # an encoded request; raises if the member fails
    def respond(self, data: bytes) -> bytes: ...  # the same, but a failure is an answer


class LocalTransport(Transport):
    """The Transport within one process. A site that fails ends the run, unless ``tolerate_failures``."""

    def __init__(self, members: Mapping[SiteId, LocalMember], tolerate_failures: bool = False) -> None:
        self._members, self._tolerate_failures = members, tolerate_failures
        self.sites = tuple(members)

    def send_and_receive(self, requests: Mapping[SiteId, bytes]) -> dict[SiteId, bytes | str]:
        if self._tolerate_failures:
            return {name: self._members[name].respond(data) for name, data in requests.items()}
        return {name: self._members[name].receive(data) for name, data in requests.items()}
