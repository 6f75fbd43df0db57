"""Match the clusters of two runs by their means, whatever their numbers, columns and sizes."""

from dataclasses import dataclass

import numpy as np

from unpooled.app.result import ClusterResult
from unpooled.app.traits import Trait
from unpooled.errors import InputError
from unpooled.typing import FloatArray

Key = tuple[str, str]  # a column, and a category or ""


@dataclass(frozen=True)
class Match:
    """Two clusters of two runs, each the nearest of the other."""

    old: int
    new: int
    distance: float  # root mean square of the differences of their means, in standard deviations
    changes: tuple[tuple[Trait, Trait, float], ...]  # old, new, difference in deviations; the largest first


@dataclass(frozen=True)
class Matches:
    """The matches of two runs, and the clusters without a counterpart."""

    columns: tuple[str, ...]  # that both runs have
    matched: tuple[Match, ...]
    only_old: tuple[int, ...]
    only_new: tuple[int, ...]


def match_clusters(old: ClusterResult, new: ClusterResult) -> Matches:
    """Return which cluster of an old run is which of a new one.

    Two clusters match if each is the nearest of the other, by the means of the columns that both runs have,
    in standard deviations of the new run's rows.

    Raises
    ------
    InputError
        The runs have no column in common.
    """
    before, after = _traits(old), _traits(new)
    keys = [key for key in after[0] if key in before[0]]
    if not keys:
        raise InputError("the two runs have no column in common")
    deviations = np.array([_deviation(after, key) for key in keys])
    means = [np.array([[one[key].value for key in keys] for one in run]) for run in (before, after)]
    differences = (means[1][None] - means[0][:, None]) / deviations
    away: FloatArray = np.sqrt((differences**2).mean(axis=2))  # (old, new)
    matched = []
    for i, j in enumerate(away.argmin(axis=1).tolist()):
        if int(away[:, j].argmin()) == i:
            order = np.argsort(-np.abs(differences[i, j]), kind="stable")
            changes = tuple(
                (before[i][keys[c]], after[j][keys[c]], float(differences[i, j, c])) for c in order
            )
            matched.append(Match(i, j, float(away[i, j]), changes))
    return Matches(
        tuple(dict.fromkeys(column for column, _ in keys)),
        tuple(matched),
        tuple(i for i in range(old.k) if i not in {m.old for m in matched}),
        tuple(j for j in range(new.k) if j not in {m.new for m in matched}),
    )


def _traits(result: ClusterResult) -> list[dict[Key, Trait]]:
    """The traits of every cluster, by column and category, in the order of the prepared columns."""
    places = {key: place for place, key in enumerate(result.agreement.preparation.outputs)}
    return [
        {
            (t.column, t.category): t
            for t in sorted(
                result.traits(j),
                key=lambda t: places.get((t.column, t.category), places.get((t.column, ""), 0)),
            )
        }
        for j in range(result.k)
    ]


def _deviation(run: list[dict[Key, Trait]], key: Key) -> float:
    """The standard deviation of all rows in the column's own unit."""
    for traits in run:
        trait = traits[key]
        if trait.effect and trait.value != trait.overall:
            return abs((trait.value - trait.overall) / trait.effect)
    trait = run[0][key]
    share = trait.overall
    return float(np.sqrt(share * (1 - share))) or 1.0 if trait.category else trait.spread or 1.0
