"""The kinds of columns: readers find them, schemas state them, and preparations encode columns by them."""

NUMBER = "number"
CATEGORY = "category"  # a few texts or codes that repeat
TEXT = "text"  # too many different texts for categories
EMPTY = "empty"  # no value in any row
DATE, ID, CODE = "date", "id", "code"  # of a column that looks like these, and is therefore not clustered by
KINDS = frozenset((NUMBER, CATEGORY, TEXT, EMPTY, DATE, ID, CODE))
