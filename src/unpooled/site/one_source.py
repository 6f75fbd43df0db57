"""A run is answered from one source: one protection, one copy, one set of rules, one study.

A copy that was renewed, a policy that was made stricter, a study that was withdrawn and another that took its
name: what was begun under the one is over under the other. Repeated turns and the stages of secure sums are
refused as well, so that no sum that was masked before is opened afterwards.
"""

import json
from hashlib import sha256

from unpooled.core.exchange import Answer, Envelope
from unpooled.errors import Refused
from unpooled.site.ledger import Ledger
from unpooled.site.site import Guard


def source(protection: str, copy: str, rules: str, study: str) -> str:
    """The digest of what a site answers from; each part is a digest or a name, "" if there is none."""
    return sha256(json.dumps([protection, copy, rules, study]).encode()).hexdigest()


class OneSource(Guard):
    """Refuse a run that was begun from another source. The ledger remembers it for every run."""

    def __init__(self, ledger: Ledger, source: str) -> None:
        self._ledger, self._source = ledger, source
        self._known: dict[str, str] = {}

    def admit(self, post: Envelope) -> None:
        run = post.turn.run
        if run not in self._known:
            begun = self._ledger.source(run)
            if begun is None:
                return
            self._known = {run: begun}
        if self._known[run] != self._source:
            raise Refused(
                "this run was begun when the site answered from another copy, or under other rules or "
                "another study; begin a new run"
            )

    def leaving(self, post: Envelope, answer: Answer) -> None:
        if post.turn.run not in self._known and self._ledger.source(post.turn.run) is None:
            self._ledger.begin(post.turn.run, self._source)
