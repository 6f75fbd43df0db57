"""The format of all that unpooled writes: messages, logs, folders, models, checkpoints, policies."""

import re

FORMAT = 1
"""One number for all of them. It changes when an older release could misread what a newer release wrote."""


def format_error(value: object) -> str:
    """Return the text of an error about another format, or "" if the format is right."""
    if type(value) is int and value == FORMAT:
        return ""
    text = "an unknown or earlier format" if value is None else f"format {value!r}"
    return f"{text}, and this release reads format {FORMAT}"


def works_with(version: str, other: str) -> bool:
    """Return True if two releases of unpooled take part in one run: they are at most one minor version apart.

    A release that changes ``FORMAT`` is not read by the one before it, whatever its version.

    >>> [works_with("0.2.1", other) for other in ("0.2.0.dev0", "0.1.9", "0.3.0", "0.4.0", "1.2.0", "odd")]
    [True, True, True, False, False, False]
    """
    first, second = (re.match(r"(\d+)\.(\d+)(\.|$)", text) for text in (version, other))
    if first is None or second is None:
        return version == other
    return first[1] == second[1] and abs(int(first[2]) - int(second[2])) <= 1
