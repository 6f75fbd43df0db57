"""Setup of a federation between machines: its parties, their keys, and the folders that each keeps."""
