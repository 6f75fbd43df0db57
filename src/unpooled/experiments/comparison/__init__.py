"""All methods side by side, on data of your own or on suites of sets: ``unpooled compare``.

``problems.py`` has the data, ``measure.py`` one run of a method under a protection with all that is measured
of it, ``table.py`` the outcome as text, JSON and a figure.
"""

from unpooled.experiments.comparison.measure import PROTECTIONS, Measured, compare, methods_and_presets
from unpooled.experiments.comparison.problems import SUITES, Problem, from_files, from_folder, split_of, suite
from unpooled.experiments.comparison.table import figure, table, to_json

__all__ = [
    "PROTECTIONS",
    "SUITES",
    "Measured",
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
