"""Readers of tables from files: CSV, Parquet and numpy's files, each in a module of its own."""

from unpooled.data.readers.raw_cells import read_cells
from unpooled.data.readers.source import Reading, open_file, read_sites, read_table

__all__ = ["Reading", "open_file", "read_cells", "read_sites", "read_table"]
