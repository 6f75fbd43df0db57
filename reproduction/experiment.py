"""Experiments: runs that can be done one by one, and the tables and figures made of them.

An experiment lists its configurations: dictionaries of plain JSON values. Every configuration is run ``full``
or ``quick`` times, in blocks. A block is a Task, seeded by its settings and the numbers of its runs alone, so
that tasks may be done in any order, anywhere, and twice. A quick result is the beginning of a full one.
``perform`` does a block and returns one number per run under every name; ``present`` makes the tables
and figures.

To add a paper, write a module with an Experiment, and add a line to ``catalogue.py``.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from reproduction.data_sources import Sources
from reproduction.result_table import ResultTable
from unpooled.errors import InputError
from unpooled.typing import FloatArray

Settings = dict[str, Any]
"""Plain JSON: text, numbers, lists, dictionaries."""

Numbers = dict[str, list[float]]
"""Results of a block: under every name one number per run."""


@dataclass(frozen=True)
class Task:
    """A block of runs of one configuration."""

    experiment: str
    version: int
    settings: Settings
    runs: range

    @property
    def digest(self) -> str:
        """The digest of all that the result depends on; it names the result.

        >>> Task("a", 1, {"k": 2}, range(0, 5)).digest == Task("a", 1, {"k": 2}, range(0, 5)).digest
        True
        >>> Task("a", 1, {"k": 2}, range(0, 5)).digest == Task("a", 1, {"k": 3}, range(0, 5)).digest
        False
        """
        runs = self.runs.start, self.runs.stop
        key = [version("unpooled"), self.experiment, self.version, self.settings, *runs]
        return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Plot:
    """A drawing, as SVG, and its caption."""

    name: str  # of its file
    title: str
    svg: str


@dataclass(frozen=True)
class Presentation:
    """The outcome of an experiment: tables, figures, and notes on numbers that do not match."""

    tables: tuple[ResultTable, ...]
    figures: tuple[Plot, ...] = ()
    notes: tuple[str, ...] = ()


class Results:
    """All numbers of an experiment, by configuration."""

    def __init__(self, found: Sequence[tuple[Settings, Mapping[str, Sequence[float]]]]) -> None:
        self._by: dict[str, dict[str, list[float]]] = {}
        for settings, numbers in found:
            into = self._by.setdefault(_key(settings), {})
            for name, values in numbers.items():
                into.setdefault(name, []).extend(values)

    def values(self, settings: Settings, name: str) -> FloatArray:
        """Return (runs,) the numbers of that name."""
        try:
            return np.array(self._by[_key(settings)][name], dtype=np.float64)
        except KeyError:
            raise InputError(
                f"There are no results of {name!r} for {settings}. Run this configuration."
            ) from None

    def has(self, settings: Settings, name: str) -> bool:
        """Return True if there are numbers of that name."""
        return name in self._by.get(_key(settings), {})


def _key(settings: Settings) -> str:
    return json.dumps(settings, sort_keys=True)


@dataclass(frozen=True)
class Experiment:
    """One table or figure of a paper."""

    name: str  # name on the command line, e.g. "garst-fig1"
    paper: str  # citation
    title: str
    full: int  # runs, as in the paper
    quick: int
    block: int  # runs in a task
    configurations: Callable[[Sources, bool], list[Settings]]  # (available data, quick?)
    perform: Callable[[Settings, range, Sources], Numbers]
    present: Callable[[Results, Sources, bool], Presentation]
    version: int = 1  # increase it when results change
    needs: tuple[str, ...] = ()  # data sets that it requires
    data: str = "generated"  # the source of its data if it uses none of --data

    def tasks(self, sources: Sources, quick: bool, runs: int | None = None) -> list[Task]:
        """Return all blocks; ``runs``, if given, is the number of runs of every configuration."""
        n = runs if runs is not None else self.quick if quick else self.full
        if n < 1:
            raise InputError(f"{self.name}: the number of runs must be at least 1. It is {n}.")
        found = []
        for settings in self.configurations(sources, quick):
            # "most_runs" limits the runs of a configuration, e.g. to one if nothing is random; "times"
            # multiplies them where they are cheap
            count = min(n, int(settings.get("most_runs", n))) * int(settings.get("times", 1))
            for a in range(0, count, self.block):
                found.append(Task(self.name, self.version, settings, range(a, min(count, a + self.block))))
        return found


def seed_of(settings: Settings, run: int, *more: int) -> list[int]:
    """Return the entropy of a run's own generator, from its settings and number alone.

    >>> seed_of({"k": 3}, 0) == seed_of({"k": 3}, 0), seed_of({"k": 3}, 0) == seed_of({"k": 3}, 1)
    (True, False)
    """
    digest = hashlib.sha256(_key(settings).encode()).digest()
    return [int.from_bytes(digest[:8], "little"), run, *more]
