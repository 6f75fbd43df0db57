"""The state of a site in its secure sums, and the keys that it has pinned: kept before a reply leaves."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from unpooled.privacy.secure_sum.stage_messages import AskShares, Participants
from unpooled.protocol.messages import Message, SiteId

RUNS = 64  # runs that a site takes part in at the same time


@dataclass(frozen=True, eq=False)
class MemberRun(Message):
    """A site's state in a run: its secret, the participants, those still in it, and the latest sum."""

    secret: str = field(repr=False)  # hexadecimal; all keys and seeds of the run are derived from it
    epoch: str = ""
    epochs: int = 0  # epochs so far: each has other keys, even if its name is repeated
    participants: Participants | None = None
    present: tuple[SiteId, ...] = ()  # participants that have not left the run
    current_sum: AskShares | None = None  # the latest sum
    masked: str = ""  # digest of what was masked in it
    sharers: tuple[SiteId, ...] = ()
    sealed: tuple[str, ...] = ()  # the others' shares of it, as received
    agreed: tuple[SiteId, ...] = ()  # the list of its survivors that was signed
    unmasked: tuple[tuple[int, int, str], ...] = ()  # in the last round: round, exchange, digest

    @property
    def departed(self) -> tuple[SiteId, ...]:
        sites = self.participants.sites if self.participants is not None else ()
        return tuple(site for site in sites if site not in self.present)


class MemberStore(Protocol):
    """Where a site keeps the state of its runs and the keys that it has pinned, before a reply leaves."""

    def run(self, run: str) -> bytes | None: ...
    def keep(self, run: str, state: bytes) -> None: ...
    def pinned(self) -> dict[SiteId, bytes]: ...
    def pin(self, keys: Mapping[SiteId, bytes]) -> None: ...


class MemoryStore:
    """A store for simulation: nothing outlives the process."""

    def __init__(self) -> None:
        self._runs: dict[str, bytes] = {}
        self._pinned: dict[SiteId, bytes] = {}

    def run(self, run: str) -> bytes | None:
        return self._runs.get(run)

    def keep(self, run: str, state: bytes) -> None:
        self._runs.pop(run, None)
        self._runs[run] = state
        while len(self._runs) > RUNS:
            self._runs.pop(next(iter(self._runs)))

    def pinned(self) -> dict[SiteId, bytes]:
        return dict(self._pinned)

    def pin(self, keys: Mapping[SiteId, bytes]) -> None:
        self._pinned |= keys
