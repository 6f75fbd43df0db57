"""Defaults of the options of a run between machines: how long it waits, and for whom."""

QUORUM = 0.5  # share of the sites that must answer in each round trip
DEADLINE = 60.0  # seconds that a site has to answer
WAIT = 60.0  # seconds to wait for a server or sites that are not connected
EXPIRES = 30.0  # days after which a study expires
