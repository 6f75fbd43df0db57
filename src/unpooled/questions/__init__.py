"""What several methods ask of a site: moments, cluster sums, fuzzy sums, what a report describes."""
