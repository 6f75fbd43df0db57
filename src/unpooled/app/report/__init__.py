"""A finished job as one HTML page that needs nothing else: no script, no request; light, dark, on paper."""

from unpooled.app.report.sections import page

__all__ = ["page"]
