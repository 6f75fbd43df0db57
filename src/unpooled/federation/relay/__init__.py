"""Relays: a federation that takes part in another federation, in the place of a site.

``relay`` is the relay itself, in any process. Between machines the relay has a session in the run above, as a
site has (``relay_session``), and keeps a run of its own federation open for as long (``downstream``). The
job's process at its own server (``forwarder``) asks the members; the two are connected on one machine
(``ipc``).
"""
