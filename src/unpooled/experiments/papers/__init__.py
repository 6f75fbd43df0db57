"""The papers recomputed: every table and figure, beside what was published.

``unpooled reproduce`` is the command; here is how it works. experiment.py says what an experiment is,
registry.py lists them, working.py does their tasks side by side, store.py keeps the results, table.py
compares them with what was published, and writing.py writes tables, figures and pages. A paper is a module.
"""

from unpooled.experiments.papers.experiment import (
    Experiment,
    Plot,
    Presented,
    Results,
    Settings,
    Task,
    seed_of,
)
from unpooled.experiments.papers.table import Published, ResultTable, Row, row, statistic

__all__ = [
    "Experiment",
    "Plot",
    "Presented",
    "Published",
    "ResultTable",
    "Results",
    "Row",
    "Settings",
    "Task",
    "row",
    "seed_of",
    "statistic",
]
