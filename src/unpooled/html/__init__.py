"""Small pieces of HTML and SVG for reports, audits and recomputed papers."""
