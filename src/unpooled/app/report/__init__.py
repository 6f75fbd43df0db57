"""A finished job as one HTML page: for light and dark screens and paper.

The page makes no network request. Its content-security policy allows its one inline script by its hash."""

from unpooled.app.report.sections import page

__all__ = ["page"]
