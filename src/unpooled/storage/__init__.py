"""Files on disk: atomic writes, locks between processes, relative paths, the format number, safe CSV."""
