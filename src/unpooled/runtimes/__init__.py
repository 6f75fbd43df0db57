"""Runtimes: they carry questions to sites and replies back."""

from unpooled.runtimes.in_process import InProcess

__all__ = ["InProcess"]
