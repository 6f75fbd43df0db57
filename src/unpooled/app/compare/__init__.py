"""All methods side by side, on your own data or on suites of data sets: ``unpooled compare``.

``problems.py`` reads the data, ``measure.py`` runs a method under a protection and measures it,
``comparison_table.py`` makes the table, the JSON and the figure, and ``comparison_files.py`` formats them.
"""

from unpooled.app.compare.comparison_table import figure, table, to_json
from unpooled.app.compare.measure import PROTECTIONS, Comparison, compare, methods_and_presets
from unpooled.app.compare.problems import SUITES, Problem, from_files, from_folder, split_of, suite

__all__ = [
    "PROTECTIONS",
    "SUITES",
    "Comparison",
    "Problem",
    "compare",
    "figure",
    "from_files",
    "from_folder",
    "methods_and_presets",
    "split_of",
    "suite",
    "table",
    "to_json",
]
