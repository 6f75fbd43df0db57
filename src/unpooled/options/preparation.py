"""The options for preparing columns before clustering, each declared once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from unpooled.errors import InputError
from unpooled.options.declaration import COLUMNS, MORE_HOW, OptionGroup, option
from unpooled.options.values import (
    BoundsValue,
    ChosenColumnsValue,
    ColumnsValue,
    NumberValue,
    ScalesValue,
    ScaleValue,
    WordValue,
    plain_name,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class PreparationChoices(OptionGroup):
    """The options for preparing columns; ``data.PreparationOptions`` checks them."""

    columns: str | tuple[str, ...] = option(
        "same",
        ChosenColumnsValue(),
        panel=COLUMNS,
        help="Columns to cluster: same (must agree at all sites), common (columns that all sites have), any "
        "(all; a site may lack some), or names: age,bmi",
        doc='``"same"``: all sites must have the same columns; ``"common"`` takes those that all have; '
        '``"any"`` takes all; or the names of the columns to cluster.',
    )
    exclude: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = option(
        (),
        ColumnsValue(),
        panel=MORE_HOW,
        help="Columns that describe the clusters and do not count in the distance: mortality,days",
        doc="The columns that describe the clusters and do not count in the distance.",
    )
    scale: str = option(  # of every column of numbers,
        "standard",
        ScaleValue(),
        panel=COLUMNS,
        help="Scaling: standard, robust (median and interquartile range), log, rank, none or min-max (needs "
        "--bounds); for single columns: standard,income=log,crp=rank",
        doc='How numbers are scaled: ``"standard"``, ``"robust"``, ``"log"``, ``"rank"``, ``"none"``, or '
        '``"min-max"``, which needs ``bounds``.',
    )
    scales: tuple[tuple[str, str], ...] = option(  # but for these: (column, its scale)
        (),
        ScalesValue(),
        of_all=False,
        help="",
        doc="The scale of single columns, by name.",
    )
    bounds: tuple[tuple[str, float, float], ...] = option(  # declared, never computed from data
        (),
        BoundsValue(),
        panel=COLUMNS,
        help="Declared bounds: age=0:110,bmi=10:60; or policy.toml.",
        doc='The declared range of columns, which differential privacy needs: ``{"age": (0, 110)}``.',
    )
    missing: str = option(  # "auto": "keep" if many cells are missing, else "fill"
        "auto",
        WordValue(),
        panel=COLUMNS,
        help="Missing values: keep (compare rows by the values they have), fill (mean or most frequent value "
        "over all sites), drop or refuse; auto keeps them if more than 5% are missing, and else fills them.",
        doc='``"keep"`` compares rows by the values that they have, ``"fill"`` fills missing values, '
        '``"drop"`` leaves such rows out, ``"refuse"`` ends with an error. ``"auto"`` keeps missing values '
        "if they are more than 5%, and else fills them.",
    )
    min_category_share: float = option(
        0.01,
        NumberValue(),
        panel=MORE_HOW,
        help="Merge categories with a smaller share of the rows.",
        doc="Categories with a smaller share of the rows are merged.",
    )
    max_categories: int = 50

    @classmethod
    def values_from_command(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        values = super().values_from_command(given)
        if (text := values.get("scale")) is not None:
            values |= _scales(text)
        if (bounds := values.get("bounds")) is not None:
            columns = values.get("columns", "same")
            values["bounds"] = _for_named_columns(bounds, () if isinstance(columns, str) else columns)
        return values

    def words_of(self, name: str, of_files: bool = True) -> list[str]:
        if name == "scale" and self.scales:
            own = [f"{column}={scale}" for column, scale in self.scales]
            return ["--scale", ",".join([self.scale, *own])]
        return super().words_of(name, of_files)


class PreparationArguments(TypedDict, total=False):
    """The options as arguments of ``cluster``, for type checkers."""

    columns: str | Sequence[str]
    outcomes: str | Sequence[str]
    scale: str
    scales: Mapping[str, str] | None
    bounds: Mapping[str, tuple[float, float]] | None
    missing: str
    min_category_share: float


def _scales(text: str) -> dict[str, Any]:
    """Return the scale of all columns and those of single columns.

    >>> _scales("robust"), _scales("income=log, crp=rank")
    ({'scale': 'robust', 'scales': ()}, {'scale': 'standard', 'scales': (('income', 'log'), ('crp', 'rank'))})
    """
    parts = [part.strip().rpartition("=") for part in text.split(",") if part.strip()]
    common = [scale for name, _, scale in parts if not name]
    if len(common) > 1:
        raise InputError(f"--scale takes one scale for all columns and others as column=scale, got {text!r}")
    own = tuple((plain_name(name), scale.strip()) for name, _, scale in parts if name)
    return {"scale": common[0] if common else "standard", "scales": own}


def _for_named_columns(
    bounds: tuple[tuple[str, float, float], ...], columns: tuple[str, ...]
) -> tuple[tuple[str, float, float], ...]:
    """Return the bounds by column; those without a column are for all columns that are named."""
    for name, low, high in bounds:
        if not name and not columns:
            raise InputError(
                f"--bounds {low:g}:{high:g} is for all columns. Name them with --columns age,bmi."
            )
    return tuple((own, low, high) for name, low, high in bounds for own in ((name,) if name else columns))
