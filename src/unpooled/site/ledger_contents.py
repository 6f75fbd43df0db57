"""The tables of a ledger, and their contents as its chain of writes gives them."""

from typing import Any, NamedTuple

from unpooled.site.chained_file import CHAIN

RUNS = 64  # runs of secure sums whose state is kept
SCHEMA = f"""
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS releases (
    run TEXT NOT NULL, round INTEGER NOT NULL, exchange INTEGER NOT NULL, request TEXT NOT NULL,
    spent REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS releases_run ON releases (run, round, exchange, request);
CREATE TABLE IF NOT EXISTS responses (
    run TEXT NOT NULL, round INTEGER NOT NULL, exchange INTEGER NOT NULL, request TEXT NOT NULL,
    answer BLOB NOT NULL, PRIMARY KEY (run, round, exchange, request)
);
CREATE TABLE IF NOT EXISTS sums (run TEXT PRIMARY KEY, state BLOB NOT NULL, used INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS pinned (site TEXT PRIMARY KEY, key BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS run_sources (run TEXT PRIMARY KEY, source TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS sum_members (run TEXT PRIMARY KEY, sites TEXT NOT NULL);
{CHAIN}
"""


class Contents(NamedTuple):
    """The contents of a ledger, apart from its chain."""

    releases: list[tuple[Any, ...]]
    responses: dict[tuple[Any, ...], str]  # the digest of every answer that was charged
    sums: dict[str, str]  # the digest of the state of every run with secure sums, the latest last
    pinned: dict[str, str]
    run_sources: dict[str, str]  # by run: what it was first answered from
    sum_members: dict[str, str]  # by run: the members that the first sum of a relay was over

    def add(self, entry: list[Any]) -> None:
        """Add the entry of a link."""
        kind, *rest = entry
        if kind == "release":
            self.releases.append(tuple(rest))
        elif kind == "responses":
            self.responses[tuple(rest[:-1])] = rest[-1]
        elif kind == "sums":
            self.sums.pop(rest[0], None)
            self.sums[rest[0]] = rest[1]
            if len(self.sums) > RUNS:
                del self.sums[next(iter(self.sums))]
        elif kind == "pinned":
            for site, key in rest[0]:
                self.pinned.setdefault(site, key)
        elif kind == "run_sources":
            self.run_sources[rest[0]] = rest[1]
        elif kind == "sum_members":
            self.sum_members[rest[0]] = rest[1]
        elif kind == "forgotten":
            self.pinned.pop(rest[0], None)
