"""The format of all that unpooled writes: messages, logs, folders, models, checkpoints, policies."""

FORMAT = 1
"""One number for all of them. It changes when an older release could misread what a newer release wrote."""


def format_error(value: object) -> str:
    """Return the text of an error about another format, or "" if the format is right."""
    if type(value) is int and value == FORMAT:
        return ""
    text = "an unknown or earlier format" if value is None else f"format {value!r}"
    return f"{text}, and this release reads format {FORMAT}"
