"""The papers recomputed: every table and figure beside the published numbers.

``python -m reproduction`` is the command. ``experiment.py`` defines an experiment, ``catalogue.py`` lists all
of them, ``runner.py`` runs their tasks, ``worker.py`` runs tasks in parallel, ``result_store.py`` saves the
results, ``result_table.py`` compares them with the published numbers, ``output.py`` writes tables and
figures, and ``recorded.py`` keeps the tables in this repository and writes the pages of docs/ from them. Each
paper is a module.
"""

from reproduction.experiment import Experiment, Plot, Presentation, Results, Settings, Task, seed_of
from reproduction.result_table import Published, ResultTable, Row, row, statistic

__all__ = [
    "Experiment",
    "Plot",
    "Presentation",
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
