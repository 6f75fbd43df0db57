"""A federation between machines: who is in it, their keys, and the folders that either side keeps."""
