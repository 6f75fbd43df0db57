"""The state of secure sums in the ledger of a site: it outlives the process."""

from collections.abc import Mapping
from hashlib import sha256

from unpooled.core.messages import SiteId
from unpooled.site.ledger import Ledger
from unpooled.site.ledger_contents import RUNS


class SumLedger:
    """A ``MemberStore`` in a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._db = ledger, ledger._db

    def run(self, run: str) -> bytes | None:
        found = self._db.execute("SELECT state FROM sums WHERE run = ?", (run,)).fetchone()
        return None if found is None else bytes(found[0])

    def keep(self, run: str, state: bytes) -> None:
        with self._ledger._writing("sums", run, sha256(state).hexdigest()) as db:
            (used,) = db.execute("SELECT COALESCE(MAX(used), 0) + 1 FROM sums").fetchone()
            db.execute("INSERT OR REPLACE INTO sums VALUES (?, ?, ?)", (run, state, used))
            db.execute(
                "DELETE FROM sums WHERE run NOT IN (SELECT run FROM sums ORDER BY used DESC LIMIT ?)",
                (RUNS,),
            )

    def latest(self) -> bytes | None:
        """The state of the run of secure sums that was asked about last."""
        found = self._db.execute("SELECT state FROM sums ORDER BY used DESC LIMIT 1").fetchone()
        return None if found is None else bytes(found[0])

    def pinned(self) -> dict[SiteId, bytes]:
        return {site: bytes(key) for site, key in self._db.execute("SELECT site, key FROM pinned")}

    def pin(self, keys: Mapping[SiteId, bytes]) -> None:
        with self._ledger._writing("pinned", [(site, key.hex()) for site, key in sorted(keys.items())]) as db:
            db.executemany("INSERT OR IGNORE INTO pinned VALUES (?, ?)", sorted(keys.items()))

    def forget(self, site: SiteId) -> bool:
        """Forget the key of a site, so that the next one is pinned; False if none was pinned."""
        if site not in self.pinned():
            return False
        with self._ledger._writing("forgotten", site) as db:
            return db.execute("DELETE FROM pinned WHERE site = ?", (site,)).rowcount > 0
