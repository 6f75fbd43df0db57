"""The grouping of people after a withdrawal: near each other, never with somebody they were with before.

The nearest people are collected around every person who returns, and the tightest of these groups is taken
first. A group has somebody new: if it is withdrawn one day, this is the person whom R3 withholds, and without
them nobody could return from it. A group that would be too wide is not made; its people wait. With limits on
classes, no group exceeds one: people of a class that is too frequent wait, too. So does a person of whom the
new group and the earlier ones together would say more than a limit allows.
"""

import heapq
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from unpooled.kernels.grouping import ClassLimits, groups
from unpooled.typing import FloatArray, IntArray

_SLACK = 1e-9  # of a limit
_AT_ONCE = 4000  # people that are compared with each other; more are cut into parts that lie apart


def regroup(
    Z: npt.ArrayLike,
    past: Sequence[tuple[int, ...]],
    min_size: int,
    max_spread: float = np.inf,
    limits: ClassLimits | None = None,
    odds: FloatArray | None = None,
) -> list[list[int]]:
    """Return groups of at least ``min_size`` people, as rows of Z (n, w); the others must wait.

    A group has at most 2 ``min_size`` - 1 people, unless ``limits`` required that groups were joined.

    ``past`` has the numbers of the groups that each person was in; () is somebody new. ``max_spread`` is the
    largest mean squared distance of people from the mean of their group. ``odds`` (n, classes) is what the
    earlier groups of people say about their classes (diversity.py).

    >>> Z = np.array([[0.0], [0.1], [0.3], [5.0], [5.1], [5.2]])
    >>> regroup(Z, [(1,), (2,), (), (1,), (2,), ()], 3)
    [[0, 1, 2], [3, 4, 5]]
    >>> regroup(Z, [(1,), (1,), (), (1,), (1,), ()], 3)
    [[2, 3, 5]]
    >>> regroup(Z, [(1,), (1,), (), (1,), (1,), ()], 3, max_spread=1.0)
    []
    """
    points = np.asarray(Z, dtype=np.float64)
    regrouped = []
    for rows in _parts(points):
        own = None if limits is None else limits._replace(classes=limits.classes[rows])
        known = None if odds is None else odds[rows]
        part = _Regrouping(points[rows], [past[i] for i in rows.tolist()], min_size, max_spread, own, known)
        regrouped += [sorted(rows[group].tolist()) for group in part.run()]
    return sorted(regrouped)


def _parts(Z: FloatArray) -> list[IntArray]:
    """All rows, halved across their widest column until no part is too large."""
    done, waiting = [], [np.arange(len(Z))]
    while waiting:
        rows = waiting.pop()
        if len(rows) <= _AT_ONCE:
            done.append(rows)
            continue
        column = int(np.var(Z[rows], axis=0).argmax())
        order = rows[np.argsort(Z[rows, column], kind="stable")]
        waiting += [np.sort(half) for half in np.array_split(order, 2)]
    return done


class _Regrouping:
    """The people of one part, while they are grouped."""

    def __init__(
        self,
        Z: FloatArray,
        past: Sequence[tuple[int, ...]],
        min_size: int,
        max_spread: float,
        limits: ClassLimits | None,
        odds: FloatArray | None,
    ) -> None:
        self.Z, self.min_size, self.max_spread, self.limits = Z, min_size, max_spread, limits
        self.odds = odds
        self.past = [frozenset(p) for p in past]
        self.new = np.array([not p for p in past], dtype=np.bool_)
        self.free = np.ones(len(Z), dtype=np.bool_)
        self.groups: list[list[int]] = []

    def run(self) -> list[list[int]]:
        self.group_returning()
        self.join()
        self.group_new()
        return self.groups

    def group_returning(self) -> None:
        """Form groups around people who return, the tightest first; one without a member is formed again."""
        if not self.new.any():
            return
        tightest = [
            (self.wide(group), i, group)
            for i in np.flatnonzero(~self.new).tolist()
            if (group := self.grown(i))
        ]
        heapq.heapify(tightest)
        while tightest:
            wide, i, group = heapq.heappop(tightest)
            if wide > self.max_spread:
                return
            if self.free[group].all():
                self.take(group)
            elif self.free[i] and (group := self.grown(i)):
                heapq.heappush(tightest, (self.wide(group), i, group))

    def grown(self, seed: int) -> list[int]:
        """The nearest ``min_size`` people around a seed who may be together; [] if there are too few.

        Where a group would say too much about somebody, it is formed again without them, or, if they are the
        seed, without the last one of the class that it says too much about.
        """
        avoided: set[int] = set()
        for _ in range(2 * self.min_size):
            group = self.nearest(seed, avoided)
            exposed = self.too_well_known(group) if group else None
            if exposed is None:
                return group
            who, same_class = exposed
            avoided.add(who if who != seed else same_class)
            if seed in avoided:
                return []
        return []

    def nearest(self, seed: int, avoided: set[int]) -> list[int]:
        """The nearest ``min_size`` people around a seed, with some new ones; [] if there are too few."""
        free = np.array([i for i in np.flatnonzero(self.free).tolist() if i not in avoided], dtype=np.int64)
        near = free[np.argsort(((self.Z[free] - self.Z[seed]) ** 2).sum(axis=1), kind="stable")]
        fresh = max(1, round(self.min_size * float(self.new[free].mean())))  # as many as make them last
        group, met, missing = [seed], set(self.past[seed]), {True: fresh, False: self.min_size - 1 - fresh}
        for i in near.tolist():
            new = not self.past[i]
            if i == seed or not missing[new] or not met.isdisjoint(self.past[i]) or self.crowded(group, i):
                continue
            group.append(i)
            met |= self.past[i]
            missing[new] -= 1
            if len(group) == self.min_size:
                return group if self.within_limits(group) else []
        for i in near.tolist():
            if (
                len(group) < self.min_size
                and not self.past[i]
                and i not in group
                and not self.crowded(group, i)
            ):
                group.append(i)
        return group if len(group) == self.min_size and self.within_limits(group) else []

    def join(self) -> None:
        """Put people who return and have no group into the nearest group that can take them."""
        means = np.array([self.Z[group].mean(axis=0) for group in self.groups])
        for i in np.flatnonzero(self.free & ~self.new).tolist() if self.groups else ():
            for j in np.argsort(((means - self.Z[i]) ** 2).sum(axis=1), kind="stable")[:8].tolist():
                group = self.groups[j]
                met = frozenset().union(*(self.past[other] for other in group))
                fits = len(group) < 2 * self.min_size - 1 and met.isdisjoint(self.past[i])
                more = [*group, i]
                if (
                    fits
                    and self.wide(more) <= self.max_spread
                    and self.within_limits(more)
                    and self.too_well_known(more) is None
                ):
                    group.append(i)
                    self.free[i] = False
                    means[j] = self.Z[group].mean(axis=0)
                    break

    def group_new(self) -> None:
        """Form groups of only new people, from all that are left."""
        rest = self.within_limits_together(np.flatnonzero(self.free & self.new))
        if len(rest) < self.min_size:
            return
        limits = None if self.limits is None else self.limits._replace(classes=self.limits.classes[rest])
        labels = groups(self.Z[rest], self.min_size, limits=limits)
        for label in range(int(labels.max()) + 1):
            group = rest[labels == label].tolist()
            if self.wide(group) <= self.max_spread:
                self.take(group)

    def crowded(self, group: list[int], i: int) -> bool:
        """Whether a person's class would have too many people even in a full group."""
        return self.limits is not None and self.limits.crowded(np.array(group), i, self.min_size)

    def within_limits(self, group: list[int]) -> bool:
        return self.limits is None or not self.limits.excess(np.array(group))

    def too_well_known(self, group: list[int]) -> tuple[int, int] | None:
        """Somebody of whom this group and the earlier ones say too much, and the last one of that class.

        None if there is nobody.
        """
        if self.limits is None or self.odds is None:
            return None
        for c, (begin, end) in enumerate(zip(self.limits.first[:-1], self.limits.first[1:], strict=True)):
            of = self.limits.classes[group, c]
            counts = np.bincount(of[of >= 0] - begin, minlength=end - begin)
            for i in group:
                if self.new[i] or self.limits.classes[i, c] < 0:
                    continue
                weights = self.odds[i, begin:end] * counts
                total = weights.sum()
                above = weights > (self.limits.limits[begin:end] + _SLACK) * total
                if np.isnan(total) or not total or above.any():
                    same = [
                        j
                        for j, own in zip(group, of.tolist(), strict=True)
                        if own >= 0 and above[own - begin]
                    ]
                    return i, same[-1] if same else i
        return None

    def within_limits_together(self, rows: IntArray) -> IntArray:
        """These people without those of classes that are too frequent among them, the farthest first."""
        if self.limits is None or not len(rows):
            return rows
        far = ((self.Z[rows] - self.Z[rows].mean(axis=0)) ** 2).sum(axis=1)
        rows = rows[np.argsort(-far, kind="stable")]
        while len(rows) and (excess := self.limits.most_exceeded(rows)) >= 0:
            rows = np.delete(rows, int((self.limits.classes[rows] == excess).any(axis=1).argmax()))
        return np.sort(rows)

    def take(self, group: list[int]) -> None:
        self.groups.append(group)
        self.free[group] = False

    def wide(self, group: list[int]) -> float:
        """The mean squared distance of people from their mean."""
        X = self.Z[group]
        return float(((X - X.mean(axis=0)) ** 2).sum() / len(group))
