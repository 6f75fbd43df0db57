"""Microaggregation of a site whose rows are held in several parts: on workers, or larger than memory."""
