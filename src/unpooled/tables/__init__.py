"""Tables of named columns, and how sites agree on what to make of them before clustering."""

from unpooled.tables.agreement import Agreement, Wishes, agree
from unpooled.tables.preparation import Category, Number, Preparation
from unpooled.tables.table import Table

__all__ = ["Agreement", "Category", "Number", "Preparation", "Table", "Wishes", "agree"]
