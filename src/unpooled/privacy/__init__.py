"""Differential privacy: what noise is worth."""
