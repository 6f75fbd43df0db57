"""The guard that answers a run from one source: one summary table, one set of rules, one study."""

import json
from hashlib import sha256

from unpooled.errors import QueryRefusedError
from unpooled.site.chain import Exchange, Guard
from unpooled.site.ledger import Ledger


def source_digest(protection: str, summary: str, rules: str, study: str) -> str:
    """Return the digest of what a site answers from; each part is a digest or a name, "" if there is none."""
    return sha256(json.dumps([protection, summary, rules, study]).encode()).hexdigest()


class SingleSourceGuard(Guard):
    """Refuse a run that began from another source; the ledger keeps the source of every run.

    After an update of the summary table, a change of the rules, or another study of the same name, a run that
    began before is over. Repeated requests and stages of secure sums are refused too, so no sum that was
    masked before is unmasked afterwards.
    """

    name = "source"

    def __init__(self, ledger: Ledger, source: str) -> None:
        self._ledger, self._source = ledger, source
        self._known: dict[str, str] = {}

    def check(self, exchange: Exchange) -> None:
        run = exchange.request.request_id.run
        if run not in self._known:
            begun = self._ledger.source(run)
            if begun is None:
                return
            self._known = {run: begun}
        if self._known[run] != self._source:
            raise QueryRefusedError(
                "this run began when the site answered from another summary table, or under other rules or "
                "another study. Start a new run."
            )

    def begin(self, run: str) -> None:
        """Record what a run is answered from, before its first answer leaves."""
        if run not in self._known and self._ledger.source(run) is None:
            self._ledger.begin(run, self._source)
