"""HTML and SVG elements for reports, the pages about a site and a federation, and recomputed papers."""
