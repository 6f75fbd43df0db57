"""The copy: how a site's rows become one table of groups of persons, from which it then answers."""

from unpooled.privacy.copy.make import make_copy
from unpooled.privacy.copy.settings import CopySettings

__all__ = ["CopySettings", "make_copy"]
