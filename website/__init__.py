"""The documentation site: made from the Markdown of the tree by ``python -m website``, checked in a browser."""
