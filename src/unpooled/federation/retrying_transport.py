"""A Carrier over any function that posts a message to a site: deadlines and retries, without threads.

A retry is safe, since a site answers a repeated turn with the same bytes. So a lost request, a lost reply or
a dead process at the site costs a retry and no more, until the deadline.
"""

import contextlib
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from unpooled.protocol.site_id import SiteId

_WAITS = (0.25, 4.0, 30.0)  # seconds for the first try: least, in the first exchange, most; see ``ready``
_SLACK = 4.0  # first try: so many times the site's last response time; each retry has twice as long
_PAUSE = (0.05, 0.5)  # seconds between tries that failed at once: the first, the longest
_ASK = 1.0  # seconds between questions to a site where a person is to decide
_LOOK = 0.25  # seconds between looks whether the run was aborted


@dataclass(frozen=True)
class NoAnswer:
    """A failed try: the reason, in words that may be shown, and whether to retry.

    ``unreached``: the site was not reached, so that another run may reach it; else it declined.
    """

    reason: str
    retry: bool = True
    unreached: bool = False
    waiting: bool = False  # a person at the site is to approve the study: it is asked on, slowly


OnAnswer = Callable[[bytes | NoAnswer], None]
SendRequest = Callable[[SiteId, bytes, OnAnswer], None]


@dataclass
class _Attempt:
    """The present try to get one site's answer. All times are by the monotonic clock."""

    sent: float
    due: float  # when to try again
    until: float
    wait: float
    pause: float = _PAUSE[0]
    early: bool = False  # it failed before its time
    reason: str = "no answer"


class RetryingTransport:
    """Carries one exchange to all sites at once, within about ``deadline`` seconds.

    ``post(site, data, answered)`` sends a message to a site and returns at once; ``answered`` is called with
    what comes back, from any thread, and never if it gets lost. ``stopped`` returns True once the run is
    aborted. A site that says that a person is to decide is waited for, whatever the deadline, for up to
    ``approval_timeout`` seconds in all; ``on_wait`` hears since when, by site, whenever that changes.

    >>> courier = Delivery(("a", "b"), lambda site, data, answered: answered(data if site == "a" else
    ...                   NoAnswer("declines", retry=False)), deadline=1.0)
    >>> courier.carry({"a": b"ping", "b": b"ping"})
    {'a': b'ping', 'b': 'declines'}
    """

    def __init__(
        self,
        sites: Sequence[SiteId],
        post: SendRequest,
        *,
        deadline: float,
        stopped: Callable[[], bool] = lambda: False,
        approval_timeout: float = 0.0,
    ) -> None:
        self.sites = tuple(sorted(sites))
        self._post, self._deadline, self._stopped = post, deadline, stopped
        self._approval_timeout = approval_timeout
        self._lost: set[SiteId] = set()
        self._waiting: dict[SiteId, float] = {}  # since when, by the wall's clock
        self._began: dict[SiteId, float] = {}  # the same by the monotonic clock, from the first time on
        self.on_wait: Callable[[Mapping[SiteId, float]], None] = lambda waiting: None
        self._wait = dict.fromkeys(self.sites, _WAITS[1])
        self._number = 0
        self._inbox: queue.SimpleQueue[tuple[int, SiteId, bytes | NoAnswer | None]] = queue.SimpleQueue()
        self.seconds: list[float] = []  # duration of each exchange
        self.unreached: set[SiteId] = set()  # sites that the last exchange did not reach

    def ready(self, site: SiteId) -> None:
        """A site's process has just started: what it has not answered is sent again at once."""
        self._inbox.put((0, site, None))

    def send_and_receive(self, requests: Mapping[SiteId, bytes]) -> Mapping[SiteId, bytes | str]:
        """By site: its answer, or the reason why there is none."""
        began = time.monotonic()
        self._number += 1
        self.unreached = set()
        results: dict[SiteId, bytes | str] = {}
        tries: dict[SiteId, _Attempt] = {}
        for site, data in requests.items():
            wait = self._wait[site]
            patience = wait if site in self._lost else self._deadline  # one try after a missed deadline
            until = began + min(patience, self._deadline)
            tries[site] = _Attempt(began, min(began + wait, until), until, wait)
            self._send(site, data)
        while tries:
            self._take(tries, results)
            now, stopped = time.monotonic(), self._stopped()
            for site, attempt in list(tries.items()):
                if stopped or now >= attempt.until:
                    results[site] = tries.pop(site).reason
                    self._lost.add(site)
                    self.unreached.add(site)
                    self._stop_waiting(site)
                elif now >= attempt.due:
                    attempt.wait *= 1 if attempt.early else 2
                    attempt.sent, attempt.early = now, False
                    attempt.due = min(now + attempt.wait, attempt.until)
                    self._send(site, requests[site])
        self.seconds.append(time.monotonic() - began)
        return {site: results[site] for site in requests}

    def _send(self, site: SiteId, data: bytes) -> None:
        number = self._number

        def answered(answer: bytes | NoAnswer) -> None:
            self._inbox.put((number, site, answer))

        try:
            self._post(site, data, answered)
        except Exception as error:  # raised by the engine, not by the site
            answered(NoAnswer(f"the engine failed with {type(error).__name__}"))

    def _take(self, tries: dict[SiteId, _Attempt], results: dict[SiteId, bytes | str]) -> None:
        """Wait for what comes in, at most until a try is due; then take all that has come.

        A site whose answer is here is not given up, even if this process was too slow to read it in time.
        """
        due = min(min(attempt.due, attempt.until) for attempt in tries.values())
        patience = max(0.0, min(due - time.monotonic(), _LOOK))
        with contextlib.suppress(queue.Empty):
            while True:
                number, site, answer = self._inbox.get(timeout=patience)
                patience = 0.0
                if number in (0, self._number):
                    self._receive(site, answer, tries, results)

    def _receive(
        self,
        site: SiteId,
        answer: bytes | NoAnswer | None,
        tries: dict[SiteId, _Attempt],
        results: dict[SiteId, bytes | str],
    ) -> None:
        """Note what a site answered in this exchange; None: its process has just started."""
        attempt, now = tries.get(site), time.monotonic()
        if attempt is None:
            return
        if isinstance(answer, NoAnswer) and answer.waiting:
            self._wait_for(site, attempt, now, answer.reason)
            if now >= self._began[site] + self._approval_timeout:
                results[site] = answer.reason
                del tries[site]
            return
        if answer is not None:
            self._stop_waiting(site)
        if answer is None:
            attempt.due, attempt.early = now, True
        elif isinstance(answer, bytes):
            results[site] = answer
            self._lost.discard(site)
            self._wait[site] = min(max(_SLACK * (now - attempt.sent), _WAITS[0]), _WAITS[2])
            del tries[site]
        elif not answer.retry:
            results[site] = answer.reason
            if answer.unreached:
                self.unreached.add(site)
            del tries[site]
        else:
            attempt.reason, attempt.early = answer.reason, True
            attempt.due = min(attempt.due, now + attempt.pause)
            attempt.pause = min(2 * attempt.pause, _PAUSE[1])

    def _wait_for(self, site: SiteId, attempt: _Attempt, now: float, reason: str) -> None:
        """Ask again in a while; the deadline counts from what the site said last."""
        attempt.reason, attempt.early = reason, True
        attempt.due, attempt.until = now + _ASK, now + _ASK + self._deadline
        self._began.setdefault(site, now)
        if site not in self._waiting:
            self._waiting[site] = time.time()
            self.on_wait(self._waiting)

    def _stop_waiting(self, site: SiteId) -> None:
        """The site said something else, or nothing for too long: it is not waited for any more."""
        if self._waiting.pop(site, None) is not None:
            self.on_wait(self._waiting)
