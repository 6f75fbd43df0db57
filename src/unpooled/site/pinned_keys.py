"""The pinned keys of the other sites of each federation, in the ledger of a site."""

from dataclasses import dataclass
from pathlib import Path

from unpooled.errors import InputError
from unpooled.privacy.secure_sum.member_state import MemberRun
from unpooled.protocol import codec
from unpooled.protocol.messages import SiteId
from unpooled.site.ledger import Ledger, SumLedger
from unpooled.site.log import Log


@dataclass(frozen=True)
class PinnedKeys:
    """The pinned key of every site, and the participants of the last run with secure sums."""

    keys: dict[SiteId, bytes]
    sites: tuple[SiteId, ...]
    fingerprint: str  # "": there was no such run


def pinned_keys(folder: Path) -> dict[str, PinnedKeys]:
    """Return the pinned keys in a site's folder, by the public key of each federation's coordinator."""
    pinned = {}
    for federation in Ledger.names(_ledger(folder)):
        ledger = Ledger.open_existing(_ledger(folder), federation)
        try:
            store = SumLedger(ledger)
            latest = store.latest()
            participants = None if latest is None else codec.decode(latest, expect=MemberRun).participants
            pinned[federation] = PinnedKeys(
                dict(sorted(store.pinned().items())),
                () if participants is None else participants.sites,
                participants.fingerprint if participants else "",
            )
        finally:
            ledger.close()
    return pinned


def forget(folder: Path, site: SiteId, federation: str) -> None:
    """Forget the key of a site; InputError if none is pinned. The ledger records it like any other write."""
    ledger = Ledger.open_existing(_ledger(folder), federation)
    log = Log(folder / "log.jsonl")  # the log's lock: no site must run meanwhile
    try:
        ledger.log_head = log.mark
        if not SumLedger(ledger).forget(site):
            raise InputError(f"{folder}: no key of {site} is pinned")
    finally:
        log.close()
        ledger.close()


def _ledger(folder: Path) -> Path:
    path = folder / "ledger.sqlite"
    if not path.exists():
        raise InputError(f"{folder}: not the folder of a site that has answered a query")
    return path
