"""Heartbeats: how often a site contacts its server, and when server and site count as silent."""

SITE_INTERVAL = 3.0  # seconds between a site's heartbeats
SITE_TIMEOUT = 60  # seconds without a heartbeat after which the engine's server drops a site
SERVER_INTERVAL = 1.0  # seconds between the server's records of the connected sites
SERVER_SILENCE = 5.0  # seconds without a record after which the server counts as unable to write
