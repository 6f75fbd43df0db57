"""Files on disk: atomic writes, locks between processes, portable paths, the format number, safe CSV."""
