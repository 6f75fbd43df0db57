"""Input data: tables from files and databases, and the preparation that all sites agree on."""

from unpooled.data.readers.database import Database
from unpooled.data.schema_agreement import AgreedSchema, PreparationOptions, agree_outcomes, agree_schema
from unpooled.data.table import Table
from unpooled.data.transforms import Category, Number, Preparation

__all__ = [
    "AgreedSchema",
    "Category",
    "Database",
    "Number",
    "Preparation",
    "PreparationOptions",
    "Table",
    "agree_outcomes",
    "agree_schema",
]
