"""Data sets, ways to split them, the papers recomputed, and the demo."""
