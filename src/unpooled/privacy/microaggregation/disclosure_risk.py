"""What a summary table reveals of its people, measured by attacks on the site's own rows.

Half of the people, drawn at random, are made into a summary table; the other half are controls. An attacker
sees the table and knows rows. What an attack finds of controls follows from the population; the difference
between members and controls follows from being in the table.

- Attribute inference: the attacker knows all other columns of a person, and weighs all groups by Bayes' rule.
- Membership inference: the likelihood ratio of being in a group against being only near it.
- Singling out and linkability as Giomi, Boenisch, Wehmeyer and Tasnadi define them (Anonymeter, PoPETs 2023):
  a predicate that exactly one person fulfils; two parts of a row that lead to the same record.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from unpooled import kernels
from unpooled.data.column_kinds import CATEGORY, EMPTY, has_cells, has_mean, kind_of
from unpooled.data.summary_table import OTHER
from unpooled.data.table import Table
from unpooled.errors import TooFewPeopleError
from unpooled.privacy.microaggregation.diversity import one_category
from unpooled.privacy.microaggregation.people import People, count_disclosed, released_names
from unpooled.privacy.microaggregation.summarize import make_first_summary, microaggregate
from unpooled.privacy.microaggregation.summary_settings import SummarySettings
from unpooled.typing import FloatArray, IntArray

GROUP_SIZES = (5, 8, 11, 16, 25)
MAX_FOUND = 0.05  # of the members, at 1% false alarms: what a proposed minimum group size allows
_FALSE_ALARMS, _CLOSE = 0.01, 0.1
_INSIDE = 0.05  # people of the whole table added to a group, so that nothing is impossible
_FEW_PEOPLE, _SPLITS = 1000, 5  # up to so many people are divided several times into members and controls
_MAX_PEOPLE = 4000  # drawn at random from a larger table
_PREDICATES, _PREDICATE_COLUMNS, _DRAWS = 500, 4, 5000
_FEW_VALUES = 10  # an estimate of a number with no more values, such as a score, is right or wrong


@dataclass(frozen=True)
class AttributeRisk:
    """How often an attacker who knows all other columns is right about a column."""

    column: str
    members: float
    controls: float
    guess: float  # by the most frequent value, or the median
    uniform: float  # share of the groups in which all people are alike
    number: bool  # right: within 10% of the value; otherwise a category, or one of a few numbers


@dataclass(frozen=True)
class MembershipRisk:
    """Membership inference from summary tables of one minimum group size."""

    min_group_size: int
    auc: float  # 0.5: guessing
    found: float  # members found at 1% false alarms


@dataclass(frozen=True)
class Risks:
    """The risks of a summary table; pairs are of members and of controls."""

    people: int
    membership: MembershipRisk
    attributes: tuple[AttributeRisk, ...]  # the largest advantage of members first
    singled_out: tuple[float, float]
    linked: tuple[float, float]


def measure_risks(
    table: Table, settings: SummarySettings, columns: tuple[str, ...] = (), seed: int = 0
) -> Risks:
    """Return the risks of a summary table with these settings; ``columns``: the only ones to infer.

    TooFewPeopleError if half of the people are too few for a summary table.

    >>> rng = np.random.default_rng(0)
    >>> rows = Table.from_columns({f"x{j}": rng.normal(size=400) for j in range(8)})
    >>> risks = measure_risks(rows, SummarySettings(min_group_size=5))
    >>> risks.membership.auc > 0.75, risks.attributes[0].members > risks.attributes[0].controls
    (True, True)
    """
    attacks = _attacks(table, settings, seed)
    first = attacks[0]
    names = [name for name in first.columns if first.varies(name) and (not columns or name in columns)]
    attributes = [_attribute(name, attacks) for name in names]
    attributes.sort(key=lambda one: (one.controls - one.members, one.column))
    alone = np.mean([attack.singled_out(np.random.default_rng(seed)) for attack in attacks], axis=0)
    linked = np.mean([attack.linked() for attack in attacks], axis=0)
    return Risks(
        first.count,
        _membership(attacks),
        tuple(attributes),
        (float(alone[0]), float(alone[1])),
        (float(linked[0]), float(linked[1])),
    )


def membership_by_size(table: Table, settings: SummarySettings, seed: int = 0) -> tuple[MembershipRisk, ...]:
    """Return the membership risk for every minimum group size that the table has enough people for."""
    found = []
    for size in GROUP_SIZES:
        try:
            found.append(_membership(_attacks(table, replace(settings, min_group_size=size), seed)))
        except TooFewPeopleError:
            break
    return tuple(found)


def proposed_size(risks: tuple[MembershipRisk, ...]) -> int:
    """Return the smallest minimum group size with at most 5% of the members found; 0 if there is none.

    >>> proposed_size((MembershipRisk(5, 0.9, 0.2), MembershipRisk(8, 0.8, 0.04)))
    8
    """
    return next((risk.min_group_size for risk in risks if risk.found <= MAX_FOUND), 0)


def _attacks(table: Table, settings: SummarySettings, seed: int) -> "list[_Attack]":
    """Return the attacks on a table; a small one is divided several times into members and controls.

    A hundredth of some dozen controls is nobody, so that one division says little about false alarms.
    """
    attacks = [_Attack(table, settings, seed)]
    if attacks[0].count <= _FEW_PEOPLE:
        attacks += [_Attack(table, settings, seed + i) for i in range(1, _SPLITS)]
    return attacks


def _membership(attacks: "Sequence[_Attack]") -> MembershipRisk:
    """The membership risk by the attackers who are best on average."""
    auc, share = np.mean([attack.membership() for attack in attacks], axis=0).max(axis=0)
    return MembershipRisk(attacks[0].summary.min_group_size, float(auc), float(share))


def _attribute(name: str, attacks: "Sequence[_Attack]") -> AttributeRisk:
    """The risk of a column by the attacker who is best on average."""
    there = [attack for attack in attacks if name in attack.columns and attack.varies(name)]
    right = np.mean([attack.attribute(name) for attack in there], axis=0)  # (attackers, 2)
    members, controls = right[right[:, 0].argmax()]
    guess, uniform = np.mean([attack.guess_and_uniform(name) for attack in there], axis=0)
    number = attacks[0].is_number(name) and not len(attacks[0].few_values(name))
    return AttributeRisk(name, float(members), float(controls), float(guess), float(uniform), number)


class _Attack:
    """Members in a summary table, controls, and what the attacker knows of both."""

    def __init__(self, table: Table, settings: SummarySettings, seed: int) -> None:
        people = People(table, settings)
        order = np.random.default_rng(seed).permutation(people.count)[:_MAX_PEOPLE]
        half = len(order) // 2
        mine = np.zeros(people.count, dtype=np.bool_)
        mine[order[:half]] = True
        size = _size(table, people, settings)
        settings = replace(settings, min_group_size=size)
        self.count = len(order)
        if half < 2 * size:
            raise TooFewPeopleError(f"there are fewer than {4 * size} people, too few to measure risks")
        members = replace(table, values=table.values[mine[people.row_of]])
        self.summary = microaggregate(members, settings)
        released = dict(zip(self.summary.names, self.summary.kinds, strict=True))
        self.values: dict[str, tuple[FloatArray, FloatArray]] = {}  # members and controls
        rows = (order[:half], order[half:])
        for name in table.names:
            kind = released.get(f"log({name})" if name in settings.log_transform else name, EMPTY)
            if name == settings.person or not has_cells(kind):
                continue
            known = people.number(name) if has_mean(kind) else self._categories(table, people, name)
            shown = f"log({name})" if name in settings.log_transform else name
            self.values[shown] = known[rows[0]], known[rows[1]]
        self.columns = tuple(self.values)
        if not self.columns:
            raise TooFewPeopleError("the table of half of the people discloses no column")

    def _categories(self, table: Table, people: People, name: str) -> FloatArray:
        names = self.summary.categories[name]
        place = {category: i for i, category in enumerate(names)}
        rest = place.get(OTHER, int(self.summary.counts[name].sum(axis=0).argmax()))
        places = np.array([place.get(text, rest) for text in table.categories[name]], dtype=np.int64)
        of = one_category(people.category(name), places, len(names), people.count).astype(np.float64)
        return np.where(of < 0, np.nan, of)

    def log_likelihood(self, name: str, x: FloatArray, *, near: bool = False) -> FloatArray:
        """(n, groups) of the values of people in groups, or ``near`` them; a suppressed cell is anybody's."""
        summary = self.summary
        known = summary.people_with_value(name)
        value = np.nan_to_num(x)
        if self.is_number(name):
            mean = summary.means[name]
            overall = float(known @ (mean - known @ mean / known.sum()) ** 2 / known.sum())
            inside = float(summary.within[summary.index(name)])
            inside = overall if np.isnan(inside) else inside
            n = np.maximum(known, 2.0)
            variance = max(inside, 1e-6 * overall, 1e-12) * ((n + 1) / (n - 1) if near else np.ones_like(n))
            out = -0.5 * ((value[:, None] - mean) ** 2 / variance + np.log(variance))
        else:
            counts = self.counts(name)
            share = counts.sum(axis=0) / counts.sum()
            more = 1.0 if near else _INSIDE  # people of the whole table
            chance = (counts + more * share) / (np.maximum(known, 1.0) + more)[:, None]
            out = np.log(np.maximum(chance, 1e-9)).T[value.astype(int)]
        out = np.where(known > 0, out, self.log_population(name, x)[:, None])
        return np.where(np.isnan(x)[:, None], 0.0, out)

    def varies(self, name: str) -> bool:
        """Whether the table discloses different values of a column."""
        return name in self.summary.means or len(self.summary.categories[name]) > 1

    def binary(self, name: str) -> bool:
        """Whether a numeric column has only 0 and 1, as far as the attacker knows."""
        return name in self.summary.means and all(
            bool(np.isin(x[~np.isnan(x)], (0.0, 1.0)).all()) for x in self.values[name]
        )

    def counts(self, name: str) -> FloatArray:
        """(groups, values) the people with each value of a category, or of 0 and 1."""
        if name in self.summary.counts:
            return self.summary.counts[name]
        ones = self.summary.people_with_value(name) * self.summary.means[name]
        return np.stack([self.summary.people_with_value(name) - ones, ones], axis=1)

    def posterior(self, who: int, names: tuple[str, ...]) -> FloatArray:
        """(n, groups) how probable each group is for members (0) or controls (1), by some columns."""
        total = np.log(self.summary.people) + np.zeros((len(self.values[self.columns[0]][who]), 1))
        for name in names:
            total = total + self.log_likelihood(name, self.values[name][who])
        total -= total.max(axis=1, keepdims=True)
        weight = np.exp(total)
        return np.asarray(weight / weight.sum(axis=1, keepdims=True))

    def membership(self) -> list[tuple[float, float]]:
        """The area and the share found of several attackers, who compare a person's group with others.

        They compare all groups, or the best one, with the population, with people who are near a group, or
        with both. Whether a value is missing counts as a value: a table discloses how many people of a group
        have one.
        """
        ratios = []
        for who in (0, 1):
            inside = near = np.log(self.summary.people / self.summary.people.sum())[None, :]
            anybody = np.zeros(len(self.values[self.columns[0]][who]))
            for name in self.columns:
                x = self.values[name][who]
                inside = inside + self.log_likelihood(name, x) + self.log_missing(name, x, _INSIDE)
                near = near + self.log_likelihood(name, x, near=True) + self.log_missing(name, x, 1.0)
                anybody = anybody + self.log_population(name, x) + self.log_missing_anywhere(name, x)
            own, best = np.logaddexp.reduce(inside, axis=1), inside.max(axis=1)
            around = np.logaddexp.reduce(near, axis=1)
            ratios.append(
                (
                    own - anybody,
                    own - around,
                    best - anybody,
                    best - around,
                    2 * best - anybody - around,
                    (inside - near).max(axis=1),
                )
            )
        return [_separated(*pair) for pair in zip(*ratios, strict=True)]

    def log_missing(self, name: str, x: FloatArray, more: float) -> FloatArray:
        """(n, groups) of having a value, or none; ``more``: people of the whole table added to a group."""
        known, people = self.summary.people_with_value(name), self.summary.people
        share = known.sum() / people.sum()
        few = np.minimum((self.summary.min_group_size - 1) / 2, share * people)  # behind a suppressed cell
        chance = (np.where(known > 0, known, few) + more * share) / (people + more)
        chance = np.clip(chance, 1e-6, 1 - 1e-6)
        out: FloatArray = np.log(np.where(np.isnan(x)[:, None], 1 - chance, chance))
        return out

    def log_missing_anywhere(self, name: str, x: FloatArray) -> FloatArray:
        """(n,) the log-likelihood of having a value, or none, in the whole table."""
        share = self.summary.people_with_value(name).sum() / self.summary.people.sum()
        there = float(np.clip(share, 1e-6, 1 - 1e-6))
        out: FloatArray = np.log(np.where(np.isnan(x), 1 - there, there))
        return out

    def log_population(self, name: str, x: FloatArray) -> FloatArray:
        """(n,) the log-likelihood of values in the whole table; 0 of a missing one."""
        summary, known = self.summary, self.summary.people_with_value(name)
        if self.is_number(name):
            mean = float(known @ summary.means[name] / known.sum())
            inside = float(np.nan_to_num(summary.within[summary.index(name)]))
            variance = max(inside + float(known @ (summary.means[name] - mean) ** 2 / known.sum()), 1e-12)
            out = -0.5 * ((x - mean) ** 2 / variance + np.log(variance))
        else:
            share = self.counts(name).sum(axis=0) / self.counts(name).sum()
            out = np.log(share + 1e-9)[np.nan_to_num(x).astype(int)]
        result: FloatArray = np.where(np.isnan(x), 0.0, out)
        return result

    def few_values(self, name: str) -> FloatArray:
        """The values of a numeric column of which an estimate is right or wrong, and not near or far."""
        seen: FloatArray = np.unique(np.concatenate(self.values[name]))
        seen = seen[~np.isnan(seen)]
        positions = kind_of(self.summary.kinds[self.summary.index(name)]).has_positions
        return seen if positions or len(seen) <= _FEW_VALUES else seen[:0]

    def is_number(self, name: str) -> bool:
        """Whether the table has the column's means, and not only those of 0 and 1."""
        return name in self.summary.means and not self.binary(name)

    def attribute(self, name: str) -> FloatArray:
        """(attackers, 2) the shares of members and of controls whose value each attacker infers.

        They weigh all groups by Bayes' rule, or take the most probable one.
        """
        others = tuple(other for other in self.columns if other != name)
        known, right = self.summary.people_with_value(name), np.zeros((2, 2))
        for who, x in enumerate(self.values[name]):
            weight, there = self.posterior(who, others) * (known > 0), ~np.isnan(x)
            nearest = (np.arange(len(known)) == weight.argmax(axis=1)[:, None]).astype(np.float64)
            for attacker, each in enumerate((weight, nearest)):
                if self.is_number(name):
                    estimate = each @ self.summary.means[name] / np.maximum(each.sum(axis=1), 1e-300)
                    few = self.few_values(name)
                    correct = _nearest(few, estimate) == x if len(few) else _close(estimate, x)
                else:
                    share = self.counts(name) / np.maximum(known, 1.0)[:, None]
                    correct = (each @ share).argmax(axis=1) == x
                right[attacker, who] = correct[there].mean() if there.any() else 0.0
        return right

    def guess_and_uniform(self, name: str) -> tuple[float, float]:
        """The share of members with the most frequent value, or near the median, and of groups all alike."""
        known = self.summary.people_with_value(name)
        there = self.values[name][0][~np.isnan(self.values[name][0])]
        if self.is_number(name):
            if len(self.few_values(name)):
                values, times = np.unique(there, return_counts=True)
                guess = there == values[times.argmax()]
            else:
                guess = _close(np.full(len(there), np.median(there)), there)
            mean = self.summary.means[name]
            share = mean.min() >= 0 and mean.max() <= 1
            same = (mean == 0) | (mean == 1) if share else np.zeros(len(mean), dtype=np.bool_)
        else:
            guess = there == np.bincount(there.astype(int)).argmax()
            same = self.counts(name).max(axis=1) == known
        return float(guess.mean()), float(same[known > 0].mean()) if (known > 0).any() else 0.0

    def singled_out(self, rng: np.random.Generator) -> tuple[float, float]:
        """The share of predicates that exactly one person fulfils, of members and of controls.

        As Anonymeter's: from the values of a group, of which exactly one group has all.
        """
        alone, done = np.zeros(2), set()
        for _ in range(_DRAWS):
            group = int(rng.integers(len(self.summary)))
            known = [name for name in self.columns if self.summary.people_with_value(name)[group] > 0]
            names = tuple(sorted(rng.choice(known, min(_PREDICATE_COLUMNS, len(known)), replace=False)))
            groups = np.ones(len(self.summary), dtype=np.bool_)
            people = [np.ones(len(x), dtype=np.bool_) for x in self.values[self.columns[0]]]
            for name in names:
                of = self.summary.people_with_value(name) > 0
                if name in self.summary.means:
                    mean = self.summary.means[name]
                    sign = 1.0 if mean[group] > np.median(mean[of]) else -1.0
                    groups &= of & (sign * mean >= sign * mean[group])
                    fits = [sign * x >= sign * mean[group] for x in self.values[name]]
                else:
                    most = self.summary.counts[name].argmax(axis=1)
                    groups &= of & (most == most[group])
                    fits = [x == most[group] for x in self.values[name]]
                people = [own & more for own, more in zip(people, fits, strict=True)]
            if groups.sum() == 1 and (group, names) not in done:
                done.add((group, names))
                alone += [own.sum() == 1 for own in people]
            if len(done) == _PREDICATES:
                break
        return float(alone[0] / max(len(done), 1)), float(alone[1] / max(len(done), 1))

    def linked(self) -> tuple[float, float]:
        """The share of people whose columns, in two halves, lead to the same group."""
        first, second = self.columns[::2], self.columns[1::2]
        if not second or len(self.summary) < 2:
            return 0.0, 0.0
        same = [
            float(
                (
                    self.posterior(who, first).argmax(axis=1) == self.posterior(who, second).argmax(axis=1)
                ).mean()
            )
            for who in (0, 1)
        ]
        return same[0], same[1]


def _size(table: Table, people: People, settings: SummarySettings) -> int:
    return settings.group_size_for(people.count, count_disclosed(released_names(table, settings)))


def _separated(members: FloatArray, controls: FloatArray) -> tuple[float, float]:
    """The area under the ROC curve, and the share of members above all but 1% of the controls."""
    below = np.sort(controls)
    ranks = np.searchsorted(below, members, "left") + np.searchsorted(below, members, "right")
    limit = np.quantile(controls, 1 - _FALSE_ALARMS, method="higher")
    return float(ranks.mean() / (2 * len(controls))), float((members > limit).mean())


def _close(estimate: FloatArray, x: FloatArray) -> np.ndarray:
    return np.abs(estimate - x) <= _CLOSE * np.abs(x) + 1e-12


def _nearest(values: FloatArray, estimate: FloatArray) -> FloatArray:
    """Return the value nearest to each estimate."""
    out: FloatArray = values[np.abs(estimate[:, None] - values).argmin(axis=1)]
    return out


def clustering_cost(
    table: Table, settings: SummarySettings, clusters: Sequence[int], seed: int = 0
) -> tuple[float, ...]:
    """Return the inertia of the rows at centres from the summary table, over that at centres from the rows.

    There is one ratio for each number of clusters; it is nan if the table has too few groups for them.
    Columns are numbers in standard deviations and categories as 0 or 1 / sqrt 2, missing values as the mean.
    """
    people = People(table, settings)
    if people.count > _MAX_PEOPLE:
        drawn = np.random.default_rng(seed).permutation(people.count)[:_MAX_PEOPLE]
        settings = replace(settings, min_group_size=_size(table, people, settings))
        table = replace(table, values=table.values[np.isin(people.row_of, drawn)])
    first = make_first_summary(table, settings)
    X = _standardized(first.people, table, settings)
    means = np.array([X[rows].mean(axis=0) for rows in first.members])
    weights = np.array([len(rows) for rows in first.members])
    ratios = []
    for k in clusters:
        if len(means) <= k:
            ratios.append(float("nan"))
            continue
        pooled = kernels.kmeans(X, [0, len(X)], k, [seed], n_init=10)
        found = kernels.kmeans(means, [0, len(means)], k, [seed], weights, n_init=10)
        centers = found.centers[0][found.mass[0] > 0]
        away = ((X[:, None] - centers) ** 2).sum(axis=2).min(axis=1).sum()
        ratios.append(float(away / pooled.inertia[0]) if pooled.inertia[0] > 0 else 1.0)
    return tuple(ratios)


def _standardized(people: People, table: Table, settings: SummarySettings) -> FloatArray:
    columns: list[FloatArray] = []
    for name, kind in zip(table.names, table.kinds, strict=True):
        if name == settings.person:
            continue
        if has_mean(kind):
            x = people.number(name)
            x = np.where(np.isnan(x), np.nanmean(x) if (~np.isnan(x)).any() else 0.0, x)
            columns.append((x - x.mean()) / (x.std() or 1.0))
        elif kind == CATEGORY:
            has, count = people.category(name), len(table.categories[name])
            shares: IntArray = np.bincount(has.who * count + has.category, has.share, people.count * count)
            columns += list((shares.reshape(people.count, count) / np.sqrt(2)).T)
    return np.stack(columns, axis=1) if columns else np.zeros((people.count, 1))
