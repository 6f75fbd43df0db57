"""Runtimes: what carries questions to sites and replies back."""

from unpooled.runtimes.inprocess import InProcess

__all__ = ["InProcess"]
