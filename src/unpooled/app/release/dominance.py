"""The dominance rule of a release: a maximum share of one person in the total of a column of consumption."""

import math
from collections.abc import Sequence

import numpy as np

from unpooled.app.release.release_tables import behind
from unpooled.app.result import ClusterResult
from unpooled.data.transforms import Number, Shaped
from unpooled.errors import InputError
from unpooled.html.formatting import cluster_letter
from unpooled.privacy.presets import Preset


def check_shares(result: ClusterResult, preset: Preset, named: Sequence[str]) -> None:
    """Raise InputError if one person may have more than the preset's share of a total that is disclosed."""
    if not preset.max_share:
        return
    settings = result.job.summary
    columns = tuple(named) or (settings.consumption if settings is not None else ())
    if not columns:
        raise InputError(f"--preset {preset.name} needs --consumption with the columns of consumption")
    a = result.agreement
    used = {column.name: column for column in a.preparation.columns}
    known = {*used, *a.columns, *(name for name, _ in a.left_out), *result.job.reading.exclude}
    for name in columns:
        if name not in known:
            raise InputError(f"--consumption: there is no column {name!r}; columns are {', '.join(used)}")
        column = used.get(name)
        if column is None:
            continue  # not in the run, so nothing about it is disclosed
        if not isinstance(column, Number) or isinstance(column, Shaped):
            raise InputError(
                f"column {name} does not have totals in this run, so its shares cannot be checked"
            )
        if (
            settings is not None
            and name in settings.consumption
            and settings.max_share <= preset.max_share
            and settings.min_group_size >= preset.min_people
        ):
            continue  # every cell of the summary tables obeys the rule, and so do sums of cells
        _check_bound(result, preset, name)


def _check_bound(result: ClusterResult, preset: Preset, name: str) -> None:
    a = result.agreement
    if a.from_summaries:
        raise InputError(
            f"column {name}: one person may dominate a total, because this run did not make the summary "
            f"tables with --consumption {name} and --min-group-size {preset.min_people}"
        )
    missing = a.missing[:, a.columns.index(name)] if name in a.columns else np.zeros(1)
    if not result.keeps_missing and np.nan_to_num(missing, nan=1.0).any():
        raise InputError(
            f"column {name} has missing values that were filled, so its shares cannot be checked"
        )
    for c in range(result.k):
        trait = next(t for t in result.column_means(c) if t.column == name)
        place = a.preparation.outputs.index((trait.column, ""))
        share = max_share(float(behind(result)[c, place]), trait.value, trait.spread)
        if share > preset.max_share:
            raise InputError(
                f"cluster {cluster_letter(c)}: one of its {result.sizes[c]:.0f} {result.unit} may have up to "
                f"{share:.0%} of its total of {name} (by mean and standard deviation); {preset.name} allows "
                f"{preset.max_share:.0%}"
            )


def max_share(count: float, mean: float, spread: float) -> float:
    """Return the largest share that one of ``count`` values can have of their total, by mean and deviation.

    No value lies farther from the mean than the deviation times sqrt(count - 1) (Samuelson: How Deviant Can
    You Be? Journal of the American Statistical Association 63, 1968).

    >>> x = np.array([1.0, 1.0, 1.0, 5.0])
    >>> round(max_share(4, float(x.mean()), float(x.std())), 3)  # 5 of 8
    0.625
    """
    if not mean:
        return 1.0 if spread else 0.0
    return min(1.0, (abs(mean) + spread * math.sqrt(max(count - 1, 0.0))) / (count * abs(mean)))
