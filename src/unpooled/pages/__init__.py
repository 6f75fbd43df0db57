"""Small pieces of HTML and SVG: reports, audits and recomputed papers are written in them."""
