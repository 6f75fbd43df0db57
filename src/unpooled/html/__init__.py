"""Pages: the templates and the style sheet of all of them, charts in SVG, and numbers as people read them."""
