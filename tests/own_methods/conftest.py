"""The methods are imported where a test registers them, and not to look for doctests."""

collect_ignore = ["gaussian_mixture.py", "k_medians.py"]
