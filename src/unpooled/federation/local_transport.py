"""The transport to sites in this process: request and response are bytes, as between machines."""

from collections.abc import Mapping

from unpooled.protocol.exchange import Transport
from unpooled.protocol.messages import SiteId
from unpooled.site.endpoint import Endpoint


class LocalTransport(Transport):
    """The Transport within one process. A site that fails ends the run, unless ``tolerate_failures``."""

    def __init__(self, members: Mapping[SiteId, Endpoint], tolerate_failures: bool = False) -> None:
        self._members, self._tolerate_failures = members, tolerate_failures
        self.sites = tuple(members)

    def send_and_receive(self, requests: Mapping[SiteId, bytes]) -> dict[SiteId, bytes | str]:
        if self._tolerate_failures:
            return {name: self._members[name].respond(data) for name, data in requests.items()}
        return {name: self._members[name].receive(data) for name, data in requests.items()}
