"""The format of everything that unpooled writes: messages, logs, folders, models, checkpoints, policies."""

from typing import Any

FORMAT = 1
"""One number for all of them. It changes when an older release could misread what a newer one wrote."""


def other_format(found: Any) -> str:
    """Return the sentence of an error about something of another format, or "" if the format is right."""
    if type(found) is int and found == FORMAT:
        return ""
    said = "an unknown or earlier format" if found is None else f"format {found!r}"
    return f"{said}, and this release reads format {FORMAT}"
