"""Optimal clusterings: the exact solver, lower bounds, and certificates from totals only."""
