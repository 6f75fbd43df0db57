"""Readers of tables: files, databases and tables in memory, each kind in a module of its own."""

from unpooled.data.readers.raw_cells import read_cells
from unpooled.data.readers.read_tables import read_declared, read_sites, read_table
from unpooled.data.readers.source import SUMMARY_FILE, is_file, is_summary_file, open_source, site_name
from unpooled.options.reading import Reading

__all__ = [
    "SUMMARY_FILE",
    "Reading",
    "is_file",
    "is_summary_file",
    "open_source",
    "read_cells",
    "read_declared",
    "read_sites",
    "read_table",
    "site_name",
]
