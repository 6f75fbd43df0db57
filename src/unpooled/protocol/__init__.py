"""Messages, questions, protocols and the loop that runs them.

The names exported here are all that a new method needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unpooled.protocol.algorithm import Algorithm, State, Steps, each, together, total, transformed
    from unpooled.protocol.declarations import (
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
    from unpooled.protocol.exchange import RoundLog, run_protocol
    from unpooled.protocol.messages import Message, Question, Reply, SiteId, Summable
    from unpooled.protocol.run_loop import RoundRecord, Run, run
    from unpooled.protocol.site_batch import ReplyBatch, SiteBatch
    from unpooled.protocol.transform import Transform
    from unpooled.typing import BoolArray, FloatArray, IntArray, Rows

_HOME = {
    "Algorithm": "protocol.algorithm",
    "BoolArray": "typing",
    "Box": "protocol.declarations",
    "Centers": "protocol.declarations",
    "Count": "protocol.declarations",
    "Extreme": "protocol.declarations",
    "FloatArray": "typing",
    "IntArray": "typing",
    "Length": "protocol.declarations",
    "Mean": "protocol.declarations",
    "Message": "protocol.messages",
    "Noisy": "protocol.declarations",
    "Numbers": "protocol.declarations",
    "Point": "protocol.declarations",
    "Question": "protocol.messages",
    "Repeats": "protocol.declarations",
    "Reply": "protocol.messages",
    "ReplyBatch": "protocol.site_batch",
    "RoundLog": "protocol.exchange",
    "RoundRecord": "protocol.run_loop",
    "Rows": "typing",
    "Run": "protocol.run_loop",
    "Setting": "protocol.declarations",
    "SiteBatch": "protocol.site_batch",
    "SiteId": "protocol.messages",
    "State": "protocol.algorithm",
    "Steps": "protocol.algorithm",
    "Sum": "protocol.declarations",
    "Summable": "protocol.messages",
    "Text": "protocol.declarations",
    "Transform": "protocol.transform",
    "Value": "protocol.declarations",
    "Work": "protocol.declarations",
    "each": "protocol.algorithm",
    "run": "protocol.run_loop",
    "run_protocol": "protocol.exchange",
    "together": "protocol.algorithm",
    "total": "protocol.algorithm",
    "transformed": "protocol.algorithm",
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
    "Repeats",
    "Reply",
    "ReplyBatch",
    "RoundLog",
    "RoundRecord",
    "Rows",
    "Run",
    "Setting",
    "SiteBatch",
    "SiteId",
    "State",
    "Steps",
    "Sum",
    "Summable",
    "Text",
    "Transform",
    "Value",
    "Work",
    "each",
    "run",
    "run_protocol",
    "together",
    "total",
    "transformed",
]


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: a process that only manages files needs no arrays."""
    if name in _HOME:
        return getattr(import_module(f"unpooled.{_HOME[name]}"), name)
    raise AttributeError(f"module 'unpooled.protocol' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
