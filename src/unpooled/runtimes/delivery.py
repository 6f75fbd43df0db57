"""A Carrier over anything that can take one message to one site: deadlines, repeats, one thread per site.

A turn may be asked again and again, since a site answers a repeated turn with the same bytes. So whatever is
lost on the way, a request, a reply or a process at the site, costs a repeat and no more, until the deadline.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from unpooled.core.messages import SiteId

_WAITS = (0.25, 2.0, 30.0)  # seconds for the first try of an exchange: the least, the first time, the most
_SLACK = 4.0  # times the time that the site took the last time; every further try has twice as long
_GRACE = 5.0  # seconds beyond the deadline
_SPARE = 4  # threads a site, of which some may hang
_PAUSE = (0.05, 0.5)  # seconds between tries that failed at once: the first, the longest


@dataclass(frozen=True)
class NoAnswer:
    """Why a try brought nothing, in words that may be shown, and whether another may bring something."""

    reason: str
    again: bool = True


Send = Callable[[SiteId, bytes, float], bytes | NoAnswer]


class Delivery:
    """Carries one exchange to all sites at once, within ``deadline`` seconds, give or take a pause.

    ``send(site, data, timeout)`` takes a message to a site and brings its answer; it may be called from
    several threads. ``stopped`` says that the run is being given up.

    >>> courier = Delivery(("a", "b"), lambda site, data, timeout: data if site == "a" else
    ...                   NoAnswer("declines", again=False), deadline=1.0)
    >>> courier.carry({"a": b"ping", "b": b"ping"})
    {'a': b'ping', 'b': 'declines'}
    """

    def __init__(
        self,
        sites: Sequence[SiteId],
        send: Send,
        *,
        deadline: float,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.sites = tuple(sorted(sites))
        self._send, self._deadline, self._stopped = send, deadline, stopped
        self._lost: set[SiteId] = set()
        self._wait = dict.fromkeys(self.sites, _WAITS[1])
        self.seconds: list[float] = []  # that each exchange took
        self._threads = ThreadPoolExecutor(_SPARE * max(1, len(self.sites)), thread_name_prefix="courier")

    def carry(self, posts: Mapping[SiteId, bytes]) -> Mapping[SiteId, bytes | str]:
        """What came back from each site: its answer, or a few words on why there is none."""
        began = time.monotonic()
        waiting = {site: self._threads.submit(self._deliver, site, data) for site, data in posts.items()}
        came = {site: self._result(site, answer) for site, answer in waiting.items()}
        self.seconds.append(time.monotonic() - began)
        return came

    def _result(self, site: SiteId, answer: "Future[bytes | str]") -> bytes | str:
        """Not even an engine that does not keep its timeouts holds up a round."""
        try:
            return answer.result(self._deadline + _GRACE)
        except TimeoutError:
            self._lost.add(site)
            return "late"

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _deliver(self, site: SiteId, data: bytes) -> bytes | str:
        wait, pause = self._wait[site], _PAUSE[0]
        patience = wait if site in self._lost else self._deadline  # who missed a whole deadline gets one try
        until = time.monotonic() + min(patience, self._deadline)
        reason = "no answer"
        while (left := until - time.monotonic()) > 0 and not self._stopped():
            began = time.monotonic()
            try:
                came = self._send(site, data, min(wait, left))
            except Exception as error:  # the engine's, not the site's
                came = NoAnswer(f"the engine failed with {type(error).__name__}")
            if isinstance(came, bytes):
                self._lost.discard(site)
                took = time.monotonic() - began
                self._wait[site] = min(max(_SLACK * took, _WAITS[0]), _WAITS[2])
                return came
            reason = came.reason
            if not came.again:
                return reason
            if time.monotonic() - began < min(wait, left):  # it failed at once: do not hammer
                time.sleep(max(0.0, min(pause, until - time.monotonic())))
                pause = min(2 * pause, _PAUSE[1])
            else:
                wait *= 2
        self._lost.add(site)
        return reason
