"""The engine NVFLARE (https://nvflare.readthedocs.io), version 2.9: mutual TLS, sites only dial out.

This package is the only one that imports the engine. ``nvflare_engine`` has the functions that
``federation.engine.Engine`` asks for, ``startup_kit`` writes the engine's folders, ``controller`` and
``executor`` are the coordinator and a site in a job, ``presence`` records who is connected.
"""
