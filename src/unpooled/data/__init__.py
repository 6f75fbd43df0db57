"""Input data: tables from files, and one preparation that all sites agree on before clustering."""

from unpooled.data.schema_agreement import AgreedSchema, PreparationOptions, agree_schema
from unpooled.data.table import Table
from unpooled.data.transforms import Category, Number, Preparation

__all__ = ["AgreedSchema", "Category", "Number", "Preparation", "PreparationOptions", "Table", "agree_schema"]
