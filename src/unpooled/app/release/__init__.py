"""A release: the tables and figures of a run as an output checker accepts them, under a preset."""

from unpooled.app.release.release_folder import release

__all__ = ["release"]
