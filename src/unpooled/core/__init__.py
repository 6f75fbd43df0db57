"""The core of the package: messages, questions, protocols, runs.

The names exported here are all that a new method needs.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unpooled.core.arrays import BoolArray, FloatArray, IntArray, Rows
    from unpooled.core.declarations import (
        Box,
        Centers,
        Count,
        Extreme,
        Length,
        Mean,
        Noisy,
        Numbers,
        Point,
        Repeats,
        Setting,
        Sum,
        Text,
        Value,
        Work,
    )
    from unpooled.core.exchange import Trace, conduct
    from unpooled.core.messages import Message, Question, Reply, SiteId, Summable
    from unpooled.core.protocol import Algorithm, State, Steps, View, each, together, total, viewed
    from unpooled.core.run import Record, Run, run
    from unpooled.core.stack import Stack, Stacked

_HOME = {
    "Algorithm": "protocol",
    "BoolArray": "arrays",
    "Box": "declarations",
    "Centers": "declarations",
    "Count": "declarations",
    "Extreme": "declarations",
    "FloatArray": "arrays",
    "IntArray": "arrays",
    "Length": "declarations",
    "Mean": "declarations",
    "Message": "messages",
    "Noisy": "declarations",
    "Numbers": "declarations",
    "Point": "declarations",
    "Question": "messages",
    "Record": "run",
    "Repeats": "declarations",
    "Reply": "messages",
    "Rows": "arrays",
    "Run": "run",
    "Setting": "declarations",
    "SiteId": "messages",
    "Stack": "stack",
    "Stacked": "stack",
    "State": "protocol",
    "Steps": "protocol",
    "Sum": "declarations",
    "Summable": "messages",
    "Text": "declarations",
    "Trace": "exchange",
    "Value": "declarations",
    "View": "protocol",
    "Work": "declarations",
    "conduct": "exchange",
    "each": "protocol",
    "run": "run",
    "together": "protocol",
    "total": "protocol",
    "viewed": "protocol",
}

__all__ = [
    "Algorithm",
    "BoolArray",
    "Box",
    "Centers",
    "Count",
    "Extreme",
    "FloatArray",
    "IntArray",
    "Length",
    "Mean",
    "Message",
    "Noisy",
    "Numbers",
    "Point",
    "Question",
    "Record",
    "Repeats",
    "Reply",
    "Rows",
    "Run",
    "Setting",
    "SiteId",
    "Stack",
    "Stacked",
    "State",
    "Steps",
    "Sum",
    "Summable",
    "Text",
    "Trace",
    "Value",
    "View",
    "Work",
    "conduct",
    "each",
    "run",
    "together",
    "total",
    "viewed",
]


def __getattr__(name: str) -> Any:
    """Import a name where it is first used: a process that only keeps files needs no arrays."""
    if name in _HOME:
        return getattr(import_module(f"unpooled.core.{_HOME[name]}"), name)
    raise AttributeError(f"module 'unpooled.core' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


class _Core(ModuleType):
    """This module. ``run`` is the function here, also once the module of that name is imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value.run if name == "run" and isinstance(value, ModuleType) else value)


sys.modules[__name__].__class__ = _Core
