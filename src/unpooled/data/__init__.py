"""Rows on their way in: files to tables, and one preparation that all sites agree on before clustering."""

from unpooled.data.agreement import Agreement, Wishes, agree
from unpooled.data.preparation import Category, Number, Preparation
from unpooled.data.table import Table

__all__ = ["Agreement", "Category", "Number", "Preparation", "Table", "Wishes", "agree"]
