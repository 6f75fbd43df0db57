"""The core of the package: messages, questions, protocols, runs.

The names exported here are all that a new method needs.
"""

from unpooled.core.arrays import BoolArray, FloatArray, IntArray, Rows
from unpooled.core.declarations import (
    Box,
    Centers,
    Count,
    Extreme,
    Mean,
    Noisy,
    Numbers,
    Point,
    Sum,
    Text,
    Value,
)
from unpooled.core.exchange import Trace, conduct
from unpooled.core.messages import Message, Question, Reply, SiteId, Summable
from unpooled.core.protocol import Algorithm, State, Steps, View, each, together, total, viewed
from unpooled.core.run import Record, Run, run
from unpooled.core.stack import Stack, Stacked

__all__ = [
    "Algorithm",
    "BoolArray",
    "Box",
    "Centers",
    "Count",
    "Extreme",
    "FloatArray",
    "IntArray",
    "Mean",
    "Message",
    "Noisy",
    "Numbers",
    "Point",
    "Question",
    "Record",
    "Reply",
    "Rows",
    "Run",
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
    "conduct",
    "each",
    "run",
    "together",
    "total",
    "viewed",
]
