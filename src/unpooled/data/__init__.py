"""Input data: tables from files, and one preparation that all sites agree on before clustering."""

from unpooled.data.schema_agreement import Agreement, Wishes, agree
from unpooled.data.table import Table
from unpooled.data.views import Category, Number, Preparation

__all__ = ["Agreement", "Category", "Number", "Preparation", "Table", "Wishes", "agree"]
