"""All methods side by side, on data of your own or on suites of sets: ``unpooled compare``.

``problems.py`` has the data, ``measure.py`` one run of a method under a protection with all that is measured
of it, ``table.py`` the outcome as text, JSON and a figure.
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
