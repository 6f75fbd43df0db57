"""A finished job as one HTML page: no script, no network request; for light and dark screens and paper."""

from unpooled.app.report.sections import page

__all__ = ["page"]
