"""A Transport over any function that sends a message to a site: deadlines and retries, without threads.

A retry is safe, because a site answers a repeated request with the same bytes. A lost request, a lost
response or a dead process at the site therefore costs only a retry, until the deadline.
"""

import contextlib
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from unpooled.protocol.exchange import Transport
from unpooled.protocol.site_id import SiteId

_MIN_TIMEOUT = 0.25  # seconds that the first attempt has at least
_FIRST_TIMEOUT = 4.0  # seconds that the first attempt has in the first exchange
_MAX_TIMEOUT = 30.0  # seconds that the first attempt has at most; see ``ready``
_SLACK = 4.0  # the first attempt has this multiple of the site's last response time, each retry twice as long
_FIRST_PAUSE, _MAX_PAUSE = 0.05, 0.5  # seconds between attempts that failed at once
_APPROVAL_INTERVAL = 1.0  # seconds between requests to a site where a person must decide
_POLL = 0.25  # seconds between checks whether the run was aborted


@dataclass(frozen=True)
class NoAnswer:
    """A failed attempt: a reason that may be disclosed, and whether to retry."""

    reason: str
    retry: bool = True
    unreached: bool = False  # the site was not reached, and another run may reach it; else it declined
    waiting: bool = False  # a person at the site must approve the study: the site is asked again, slowly


OnAnswer = Callable[[bytes | NoAnswer], None]
SendRequest = Callable[[SiteId, bytes, OnAnswer], None]


@dataclass
class _Attempt:
    """The current attempt to get one site's answer. All times are by the monotonic clock."""

    sent: float
    due: float  # when to try again
    until: float
    wait: float
    pause: float = _FIRST_PAUSE
    early: bool = False  # it failed before its time
    reason: str = "no answer"


class RetryingTransport(Transport):
    """Sends the requests of one exchange to all sites at once, and collects the responses.

    Parameters
    ----------
    sites
        Names of the sites.
    send
        ``send(site, data, answered)`` sends a message to a site and returns at once. ``answered`` is called
        with the response, from any thread; it is not called if a message gets lost.
    deadline
        Seconds that an exchange may take, approximately.
    stopped
        Returns True once the run is aborted.
    approval_timeout
        Seconds to wait, beyond the deadline, for sites where a person must approve the study. ``on_wait`` is
        called with the time since when each of them is waited for, whenever that changes.

    Examples
    --------
    >>> def send(site, data, answered):
    ...     answered(data if site == "a" else NoAnswer("declines", retry=False))
    >>> transport = RetryingTransport(("a", "b"), send, deadline=1.0)
    >>> transport.send_and_receive({"a": b"ping", "b": b"ping"})
    {'a': b'ping', 'b': 'declines'}
    """

    def __init__(
        self,
        sites: Sequence[SiteId],
        send: SendRequest,
        *,
        deadline: float,
        stopped: Callable[[], bool] = lambda: False,
        approval_timeout: float = 0.0,
    ) -> None:
        self.sites = tuple(sorted(sites))
        self._send_to, self._deadline, self._stopped = send, deadline, stopped
        self._approval_timeout = approval_timeout
        self._lost: set[SiteId] = set()
        self._waiting: dict[SiteId, float] = {}  # since when, by the wall clock
        self._began: dict[SiteId, float] = {}  # the same by the monotonic clock, from the first time on
        self._timeout = dict.fromkeys(self.sites, _FIRST_TIMEOUT)
        self._number = 0
        self._inbox: queue.SimpleQueue[tuple[int, SiteId, bytes | NoAnswer | None]] = queue.SimpleQueue()
        self.seconds: list[float] = []  # duration of each exchange
        self.unreached: set[SiteId] = set()  # sites that the last exchange did not reach

    def ready(self, site: SiteId) -> None:
        """Send a request again at once that this site has not answered: its process has just started."""
        self._inbox.put((0, site, None))

    def send_and_receive(self, requests: Mapping[SiteId, bytes]) -> Mapping[SiteId, bytes | str]:
        """Send a request to each site. Return by site its response, or the reason why there is none."""
        began = time.monotonic()
        self._number += 1
        self.unreached = set()
        results: dict[SiteId, bytes | str] = {}
        attempts: dict[SiteId, _Attempt] = {}
        for site, data in requests.items():
            wait = self._timeout[site]
            limit = wait if site in self._lost else self._deadline  # one attempt after a missed deadline
            until = began + min(limit, self._deadline)
            attempts[site] = _Attempt(began, min(began + wait, until), until, wait)
            self._send(site, data)
        while attempts:
            self._collect(attempts, results)
            now, stopped = time.monotonic(), self._stopped()
            for site, attempt in list(attempts.items()):
                if stopped or now >= attempt.until:
                    results[site] = attempts.pop(site).reason
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
            self._send_to(site, data, answered)
        except Exception as error:  # raised by the engine, not by the site
            answered(NoAnswer(f"the engine failed with {type(error).__name__}"))

    def _collect(self, attempts: dict[SiteId, _Attempt], results: dict[SiteId, bytes | str]) -> None:
        """Wait for responses, at most until an attempt is due; then take all that have come.

        A site whose response is here is not given up, even if this process was too slow to read it in time.
        """
        due = min(min(attempt.due, attempt.until) for attempt in attempts.values())
        timeout = max(0.0, min(due - time.monotonic(), _POLL))
        with contextlib.suppress(queue.Empty):
            while True:
                number, site, answer = self._inbox.get(timeout=timeout)
                timeout = 0.0
                if number in (0, self._number):
                    self._receive(site, answer, attempts, results)

    def _receive(
        self,
        site: SiteId,
        answer: bytes | NoAnswer | None,
        attempts: dict[SiteId, _Attempt],
        results: dict[SiteId, bytes | str],
    ) -> None:
        """Record what a site answered in this exchange; None: its process has just started."""
        attempt, now = attempts.get(site), time.monotonic()
        if attempt is None:
            return
        if isinstance(answer, NoAnswer) and answer.waiting:
            self._wait_for(site, attempt, now, answer.reason)
            if now >= self._began[site] + self._approval_timeout:
                results[site] = answer.reason
                del attempts[site]
            return
        if answer is not None:
            self._stop_waiting(site)
        if answer is None:
            attempt.due, attempt.early = now, True
        elif isinstance(answer, bytes):
            results[site] = answer
            self._lost.discard(site)
            self._timeout[site] = min(max(_SLACK * (now - attempt.sent), _MIN_TIMEOUT), _MAX_TIMEOUT)
            del attempts[site]
        elif not answer.retry:
            results[site] = answer.reason
            if answer.unreached:
                self.unreached.add(site)
            del attempts[site]
        else:
            attempt.reason, attempt.early = answer.reason, True
            attempt.due = min(attempt.due, now + attempt.pause)
            attempt.pause = min(2 * attempt.pause, _MAX_PAUSE)

    def _wait_for(self, site: SiteId, attempt: _Attempt, now: float, reason: str) -> None:
        """Ask again in a while; the deadline counts from the site's last answer."""
        attempt.reason, attempt.early = reason, True
        attempt.due = now + _APPROVAL_INTERVAL
        attempt.until = attempt.due + self._deadline
        self._began.setdefault(site, now)
        if site not in self._waiting:
            self._waiting[site] = time.time()
            self._report_waiting()

    def _stop_waiting(self, site: SiteId) -> None:
        """Stop waiting for an approval: the site answered something else, or nothing for too long."""
        if self._waiting.pop(site, None) is not None:
            self._report_waiting()

    def _report_waiting(self) -> None:
        if self.on_wait is not None:
            self.on_wait(self._waiting)
