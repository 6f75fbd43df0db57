"""The tables of a ledger, and their contents as its chain of writes gives them."""

from typing import Any, NamedTuple

from unpooled.site.chained_file import CHAIN

RUNS = 64  # runs of secure sums in a federation whose state is kept
SCHEMA = f"""
CREATE TABLE IF NOT EXISTS names (federation TEXT PRIMARY KEY, site TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS releases (
    federation TEXT NOT NULL, run TEXT NOT NULL, round INTEGER NOT NULL, exchange INTEGER NOT NULL,
    request TEXT NOT NULL, spent REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS releases_run ON releases (federation, run, round, exchange, request);
CREATE TABLE IF NOT EXISTS responses (
    federation TEXT NOT NULL, run TEXT NOT NULL, round INTEGER NOT NULL, exchange INTEGER NOT NULL,
    request TEXT NOT NULL, answer BLOB NOT NULL, PRIMARY KEY (federation, run, round, exchange, request)
);
CREATE TABLE IF NOT EXISTS sums (
    federation TEXT NOT NULL, run TEXT NOT NULL, state BLOB NOT NULL, used INTEGER NOT NULL,
    PRIMARY KEY (federation, run)
);
CREATE TABLE IF NOT EXISTS pinned (
    federation TEXT NOT NULL, site TEXT NOT NULL, key BLOB NOT NULL, PRIMARY KEY (federation, site)
);
CREATE TABLE IF NOT EXISTS run_sources (
    federation TEXT NOT NULL, run TEXT NOT NULL, source TEXT NOT NULL, PRIMARY KEY (federation, run)
);
CREATE TABLE IF NOT EXISTS sum_members (
    federation TEXT NOT NULL, run TEXT NOT NULL, sites TEXT NOT NULL, PRIMARY KEY (federation, run)
);
{CHAIN}
"""


class Contents(NamedTuple):
    """The contents of a ledger, apart from its chain. Every key begins with the federation."""

    releases: list[tuple[Any, ...]]
    responses: dict[tuple[Any, ...], str]  # the digest of every answer that was charged
    sums: dict[tuple[str, str], str]  # the digest of the state of runs with secure sums, the latest last
    pinned: dict[tuple[str, str], str]
    run_sources: dict[tuple[str, str], str]  # by run: what it was first answered from
    sum_members: dict[tuple[str, str], str]  # by run: the members that the first sum of a relay was over

    def add(self, entry: list[Any]) -> None:
        """Add the entry of a link."""
        kind, *rest = entry
        if kind == "release":
            self.releases.append(tuple(rest))
        elif kind == "responses":
            self.responses[tuple(rest[:-1])] = rest[-1]
        elif kind == "sums":
            federation, run, state = rest
            self.sums.pop((federation, run), None)
            self.sums[federation, run] = state
            of_federation = [key for key in self.sums if key[0] == federation]
            if len(of_federation) > RUNS:
                del self.sums[of_federation[0]]
        elif kind == "pinned":
            federation, keys = rest
            for site, key in keys:
                self.pinned.setdefault((federation, site), key)
        elif kind == "run_sources":
            self.run_sources[rest[0], rest[1]] = rest[2]
        elif kind == "sum_members":
            self.sum_members[rest[0], rest[1]] = rest[2]
        elif kind == "forgotten":
            self.pinned.pop((rest[0], rest[1]), None)
