"""The documentation site: made from the tree's Markdown by ``python -m website``, checked in a browser."""
