"""Paths in the files of a folder that may be moved: relative where they stay within the folder."""

import os
from pathlib import Path


def portable(path: str | Path, within: str | Path, at: Path) -> str:
    """Return how a file in ``at`` names ``path``: relative if both are in ``within``, else absolute.

    A link is named as such and not by its target, because its owner may let it point elsewhere later.
    """
    absolute_path, top, here = Path(path).absolute(), os.path.realpath(within), os.path.realpath(at)
    place = os.path.join(os.path.realpath(absolute_path.parent), absolute_path.name)
    if os.path.realpath(absolute_path) == top:
        place = top
    if os.path.commonpath([top, here]) == os.path.commonpath([top, place]) == top:
        return os.path.relpath(place, here)
    return place if ".." in absolute_path.parts else str(absolute_path)


def located(text: str | Path, at: Path) -> str:
    """Return the absolute path that a file in ``at`` names."""
    return str(text) if os.path.isabs(text) else os.path.normpath(at.absolute() / text)
