"""A Carrier over any function that takes one message to one site: deadlines, retries, one thread per site.

A retry is safe, since a site answers a repeated turn with the same bytes. So a lost request, a lost reply or
a dead process at the site costs a retry and no more, until the deadline.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from unpooled.core.messages import SiteId

_WAITS = (0.25, 2.0, 30.0)  # seconds for the first try of an exchange: least, initial, most
_SLACK = 4.0  # first try: so many times the site's last response time; each retry has twice as long
_GRACE = 5.0  # seconds beyond the deadline that a thread may take
_SPARE = 4  # threads a site, since some may hang
_PAUSE = (0.05, 0.5)  # seconds between tries that failed at once: the first, the longest


@dataclass(frozen=True)
class NoAnswer:
    """A failed try: the reason, in words that may be shown, and whether to retry."""

    reason: str
    again: bool = True


Send = Callable[[SiteId, bytes, float], bytes | NoAnswer]


class Delivery:
    """Carries one exchange to all sites at once, within about ``deadline`` seconds.

    ``send(site, data, timeout)`` takes a message to a site and brings its answer; it may be called from
    several threads. ``stopped`` returns True once the run is aborted.

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
        self.seconds: list[float] = []  # duration of each exchange
        self._threads = ThreadPoolExecutor(_SPARE * max(1, len(self.sites)), thread_name_prefix="courier")

    def carry(self, posts: Mapping[SiteId, bytes]) -> Mapping[SiteId, bytes | str]:
        """By site: its answer, or the reason why there is none."""
        began = time.monotonic()
        waiting = {site: self._threads.submit(self._deliver, site, data) for site, data in posts.items()}
        results = {site: self._result(site, answer) for site, answer in waiting.items()}
        self.seconds.append(time.monotonic() - began)
        return results

    def _result(self, site: SiteId, answer: "Future[bytes | str]") -> bytes | str:
        """A site's answer, or "late": an engine that ignores its timeouts must not block a round."""
        try:
            return answer.result(self._deadline + _GRACE)
        except TimeoutError:
            self._lost.add(site)
            return "late"

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _deliver(self, site: SiteId, data: bytes) -> bytes | str:
        wait, pause = self._wait[site], _PAUSE[0]
        patience = wait if site in self._lost else self._deadline  # one try after a missed deadline
        until = time.monotonic() + min(patience, self._deadline)
        reason = "no answer"
        while (left := until - time.monotonic()) > 0 and not self._stopped():
            began = time.monotonic()
            try:
                result = self._send(site, data, min(wait, left))
            except Exception as error:  # raised by the engine, not by the site
                result = NoAnswer(f"the engine failed with {type(error).__name__}")
            if isinstance(result, bytes):
                self._lost.discard(site)
                took = time.monotonic() - began
                self._wait[site] = min(max(_SLACK * took, _WAITS[0]), _WAITS[2])
                return result
            reason = result.reason
            if not result.again:
                return reason
            if time.monotonic() - began < min(wait, left):  # failed early: pause before the retry
                time.sleep(max(0.0, min(pause, until - time.monotonic())))
                pause = min(2 * pause, _PAUSE[1])
            else:
                wait *= 2
        self._lost.add(site)
        return reason
