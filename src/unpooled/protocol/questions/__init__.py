"""Questions that several methods or reports ask: moments, cluster sums, fuzzy sums, descriptions."""
