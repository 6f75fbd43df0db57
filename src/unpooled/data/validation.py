"""Validation of a user's input into one array of rows per site: checked once, here, and not again later."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unpooled.errors import InputError
from unpooled.protocol.messages import SiteId
from unpooled.typing import FloatArray, IntArray, Rows

_OTHER_CELLS = "unpooled.cluster takes tables with missing values and categories"


@dataclass(frozen=True, eq=False)
class SiteRows:
    """Rows by site, and the order that maps per-site results back to the input."""

    rows: dict[SiteId, Rows]
    weights: dict[SiteId, FloatArray] | None
    order: npt.NDArray[np.int64] | None  # original index of every row by site; None: already in order
    within: dict[SiteId, FloatArray] | None = None  # where rows are groups: the variance inside them

    @property
    def mass(self) -> float:
        """The number of rows of all sites, or their weight."""
        if self.weights is not None:
            return float(sum(w.sum() for w in self.weights.values()))
        return float(sum(len(X) for X in self.rows.values()))

    def restored(self, by_site: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return values per row (sites by name, one after the other) in the original order of the rows."""
        if self.order is None:
            return by_site
        out = np.empty_like(by_site)
        out[self.order] = by_site
        return out


def is_by_site(X: object) -> bool:
    """Return whether X is a mapping or sequence of 2-D tables, one per site, rather than one table."""
    if isinstance(X, Mapping):
        return not hasattr(X, "shape")  # some sparse matrices are mappings
    return isinstance(X, list | tuple) and len(X) > 0 and all(getattr(x, "ndim", 0) == 2 for x in X)


def split_by_site(X: Any, sample_weight: Any, sites: Any) -> tuple[list[Any], list[Any], list[SiteId]]:
    """Return the tables, weights and names of a mapping or sequence of sites."""
    if sites is not None:
        raise InputError("sites= labels the rows of one table; here X is already given by site")
    if isinstance(X, Mapping):
        if not X:
            raise InputError("X is an empty mapping: no site")
        names = [str(name) for name in X]
        tables = list(X.values())
        if sample_weight is not None and not isinstance(sample_weight, Mapping):
            raise InputError("X is given by site name, so sample_weight must be too")
        weights = [None] * len(tables) if sample_weight is None else [sample_weight.get(n) for n in X]
    else:
        width = len(str(len(X) - 1))
        names = [f"site-{i:0{width}d}" for i in range(len(X))]
        tables = list(X)
        weights = [None] * len(tables) if sample_weight is None else list(sample_weight)
        if len(weights) != len(tables):
            raise InputError(f"{len(weights)} weight arrays for {len(tables)} sites")
    if len(set(names)) < len(names):
        raise InputError(f"site names must differ as text: {len(names)} sites, {len(set(names))} names")
    return tables, weights, names


def aligned(tables: list[Any], names: list[SiteId]) -> list[Any]:
    """Return the tables with columns in the order of the first; InputError if names or kinds differ.

    Tables without names of columns, arrays, are taken as they are; the two do not mix.
    """
    columns = [_column_names(table) for table in tables]
    known = [at for at, own in enumerate(columns) if own is not None]
    if not known:
        return tables
    if len(known) < len(tables):
        without = names[next(at for at, own in enumerate(columns) if own is None)]
        raise InputError(
            f"site {names[known[0]]} has names of columns, site {without} has none: give all as tables"
        )
    first = columns[0]
    assert first is not None
    for name, own in zip(names, columns, strict=True):
        assert own is not None
        if len(set(own)) < len(own):
            raise InputError(f"site {name}: two columns are named {next(c for c in own if own.count(c) > 1)}")
        lacks, more = [c for c in first if c not in own], [c for c in own if c not in first]
        if lacks or more:
            differences = [f"{name} lacks {', '.join(map(str, lacks))}"] if lacks else []
            differences += [f"{name} has {', '.join(map(str, more))}, which {names[0]} lacks"] if more else []
            raise InputError(f"columns differ between sites: {'; '.join(differences)}")
    for column in first:
        text = [name for name, table in zip(names, tables, strict=True) if _has_text(table[column])]
        if text and len(text) < len(tables):
            raise InputError(
                f"column {column} is text at {', '.join(text)} and numbers elsewhere; convert it there"
            )
    return [table[first] for table in tables]


def _column_names(table: Any) -> list[Any] | None:
    return list(table.columns) if hasattr(table, "columns") and hasattr(table, "dtypes") else None


def _has_text(column: object) -> bool:
    values = np.asarray(column)
    return values.dtype.kind in "US" or (
        values.dtype.kind == "O" and any(isinstance(v, str | bytes) for v in values.tolist())
    )


def check_text(X: Any, where: str = "X") -> None:
    """Raise InputError for text, with its column: numpy's own error would not name it."""
    columns = getattr(X, "columns", None)
    if columns is not None and hasattr(X, "dtypes"):
        named = [(str(c), X[c].to_numpy()) for c in columns]
    elif isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "OUS":
        named = [(str(j), X[:, j]) for j in range(X.shape[1])]
    else:
        return
    for name, column in named:
        if column.dtype.kind not in "OUS":
            continue
        for i, value in enumerate(column):
            if isinstance(value, str | bytes) and not _is_number(value):
                raise InputError(
                    f"{where} has text in column {name}, row {i}: {str(value)[:20]!r}. {_OTHER_CELLS}"
                )


def _is_number(text: str | bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def check_finite(X: Rows, where: str) -> None:
    """Raise InputError for NaN and infinity, with the row and column of the first."""
    for a in range(0, len(X), 65536):
        block = X[a : a + 65536]
        with np.errstate(over="ignore", invalid="ignore"):
            suspect = not np.isfinite(block.sum())
        if suspect and not np.isfinite(block).all():
            i, j = (int(v) for v in np.argwhere(~np.isfinite(block))[0])
            kind = "NaN" if np.isnan(block[i, j]) else "infinity"
            hint = f". {_OTHER_CELLS}" if kind == "NaN" else ""
            raise InputError(
                f"{where} contains {kind} (inf or NaN are not allowed): row {a + i}, column {j}{hint}"
            )


def check_weights(weights: npt.ArrayLike, n: int, where: str) -> FloatArray:
    """Return the weights (n,); InputError unless they are finite and >= 0."""
    array = np.asarray(weights, dtype=np.float64)
    if array.ndim == 0:
        array = np.full(n, float(array))
    if array.shape != (n,):
        raise InputError(f"{where}: sample_weight has shape {array.shape} for {n} rows")
    bad = ~np.isfinite(array) | (array < 0)
    if bad.any():
        i = int(bad.argmax())
        raise InputError(f"{where}: sample_weight must be finite and >= 0, got {array[i]} at row {i}")
    return array


def _factorised(labels: npt.NDArray[Any]) -> tuple[list[Any], IntArray]:
    """The different labels, and the place of each row's label among them: (n,).

    >>> _factorised(np.array(["b", "a", "b"]))
    (['b', 'a'], array([0, 1, 0]))
    """
    if labels.dtype.kind in "iu" and len(labels):
        first, span = int(labels.min()), int(np.ptp(labels)) + 1
        if span <= 4 * len(labels):
            codes = (labels - first).astype(np.int64)
            used = np.flatnonzero(np.bincount(codes, minlength=span))
            place = np.zeros(span, np.int64)
            place[used] = np.arange(len(used))
            return (used + first).tolist(), place[codes]
    values = labels.tolist()
    several = len(set(map(type, values))) > 1  # 1, 1.0 and True are equal, yet not the same text
    keys = [(type(value), value) for value in values] if several else values
    places: dict[Any, int] = {}
    codes = np.fromiter((places.setdefault(key, len(places)) for key in keys), np.int64, len(keys))
    return [key[1] for key in places] if several else list(places), codes


def group_rows(X: Rows, weights: FloatArray | None, sites: npt.ArrayLike | None) -> SiteRows:
    """Return the rows by site of one table with a site label per row (None: one site)."""
    if sites is None:
        return SiteRows({"site-0": X}, None if weights is None else {"site-0": weights}, None)
    # as objects, since numpy would turn 1 and "1", or nan and "nan", into the same text
    labels = np.asarray(sites, dtype=object if isinstance(sites, list | tuple) else None)
    if labels.shape != (len(X),):
        raise InputError(f"sites has shape {labels.shape}, but X has {len(X)} rows: one label per row")
    different, codes = _factorised(labels)
    missing = [code for code, label in enumerate(different) if label is None or label != label]
    if missing:
        raise InputError(f"sites has no label at row {int(np.isin(codes, missing).argmax())}")
    text = np.array(different, dtype=labels.dtype).astype(str)
    names, order_of_names = np.unique(text, return_inverse=True)
    if len(names) < len(different):
        raise InputError("sites has different labels that read the same as text")
    codes = order_of_names[codes]
    counts = np.bincount(codes, minlength=len(names))
    order = np.argsort(codes, kind="stable")
    ordered = X[order]
    ends = np.concatenate([[0], np.cumsum(counts)])
    spans = {str(name): slice(ends[i], ends[i + 1]) for i, name in enumerate(names)}
    by_site = None if weights is None else {name: weights[order][span] for name, span in spans.items()}
    return SiteRows({name: ordered[span] for name, span in spans.items()}, by_site, order)


def check_enough(rows: dict[SiteId, Rows], weights: dict[SiteId, FloatArray] | None, k: int) -> None:
    """Raise InputError unless at least k rows are distinct; counts only as many as needed."""
    if weights is not None:
        rows = {name: X[weights[name] > 0] for name, X in rows.items()}
    n = sum(len(X) for X in rows.values())
    if n < k:
        counted = "rows" if weights is None else "rows with a weight above zero"
        raise InputError(f"n_clusters={k}, but there are only n_samples={n} {counted}")
    for most in (4 * k, n):
        taken, seen = 0, []
        for X in rows.values():
            seen.append(X[: most - taken])
            taken += len(seen[-1])
            if taken >= most:
                break
        distinct = len(np.unique(np.concatenate(seen), axis=0))
        if distinct >= k:
            return
    raise InputError(f"n_clusters={k}, but only {distinct} of the {n} rows are distinct")
