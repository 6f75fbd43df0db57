"""The result of a job without noise: the answer in words, profiles of the clusters, sites, warnings."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from unpooled import __version__
from unpooled.algorithms.method import METHODS, citation
from unpooled.app.export.json_model import columns_json, missing_json
from unpooled.app.job import Job
from unpooled.app.model import Model
from unpooled.data import AgreedSchema
from unpooled.evaluation import AnalysisState, Choice, Description
from unpooled.evaluation.analysis import ALL_SITES
from unpooled.html.html import figure, natural_order
from unpooled.optimality.certificate import Certificate, certificate_from_parts
from unpooled.protocol.run_loop import Run
from unpooled.typing import FloatArray


@dataclass(frozen=True, eq=False)
class JobResult(ABC):
    """A finished job. ``result_of`` makes it, with or without noise."""

    job: Job
    run: Run[Any]

    @abstractmethod
    def model(self) -> Model:
        """The preparation and the centres, to be saved."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """The result for programs; nan is null."""

    @property
    def preparation_json(self) -> dict[str, Any] | None:
        """The preparation, for people and other programs; None if sites agreed on none."""
        return None

    def report(self) -> str | None:
        """The report as one HTML page, or None."""
        return None


def result_of(job: Job, run: Run[Any]) -> JobResult:
    """The result of a job's finished run."""
    if job.epsilon is not None:
        from unpooled.app.private_result import PrivateResult

        return PrivateResult(job, run)
    return ClusterResult(job, run)


@dataclass(frozen=True, eq=False)
class Trait:
    """A difference of a cluster from all rows, in one column (or one level of a category)."""

    column: str
    category: str  # "" for a number
    value: float  # the cluster's mean in the column's own unit, or the share of the level
    spread: float  # standard deviation within the cluster; nan for a level
    overall: float
    effect: float  # how many standard deviations of all rows the cluster's mean lies from theirs

    @property
    def name(self) -> str:
        return f"{self.column}: {self.category}" if self.category else self.column

    def text(self) -> str:
        """
        >>> Trait("age", "", 61.2, 5.0, 53.5, 0.8).text(), Trait("sex", "m", 0.9, 0.0, 0.5, 0.8).text()
        ('age 61.2 (all 53.5)', 'sex m 90 % (all 50 %)')
        """
        if self.category:
            value, overall = (round(share, 2) + 0.0 for share in (self.value, self.overall))  # never -0 %
            return f"{self.column} {self.category} {value:.0%} (all {overall:.0%})".replace("%", " %")
        return f"{self.column} {figure(self.value)} (all {figure(self.overall)})"


def one_per_column(traits: list[Trait]) -> list[Trait]:
    """The differences with one level per category, the one that differs most."""
    seen: dict[str, Trait] = {}
    for trait in traits:
        seen.setdefault(trait.column, trait)
    return list(seen.values())


@dataclass(frozen=True, eq=False)
class ClusterResult(JobResult):
    """A finished job: its clusters described by sums, without the groups that sites suppress."""

    run: Run[AnalysisState]
    later_proof: Certificate | None = None  # made after the run, from files

    @property
    def proof(self) -> Certificate | None:
        """The certificate, where one was asked for: made after the run, or in its last round."""
        bound = self.run.state.bound
        if self.later_proof is not None or bound is None:
            return self.later_proof
        last = self.run.records[-1]
        asked = tuple(sorted({*last.answered, *last.silent}))
        return certificate_from_parts(self.description.centers, bound, asked, tuple(last.silent))

    @property
    def certified(self) -> str:
        """The certificate in words, or nothing."""
        from unpooled.app.certify_result import words

        return words(self.proof, self) if self.proof is not None else ""

    @property
    def agreement(self) -> AgreedSchema:
        return self.run.state.agreement.in_order(natural_order(self.run.state.agreement.sites))

    @property
    def choice(self) -> Choice:
        assert self.run.state.choice is not None
        return self.run.state.choice

    @property
    def description(self) -> Description:
        found = self.run.state.description
        assert found is not None
        return found.in_order(natural_order(found.sites))

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites whose rows are in the result."""
        return self.agreement.sites if self.job.aggregate_only else self.description.sites

    @property
    def k(self) -> int:
        return len(self.description.centers)

    @property
    def sizes(self) -> FloatArray:
        """(k,) rows of each cluster that sites show, in total."""
        total: FloatArray = self.description.sizes.sum(axis=0)
        return total

    @property
    def suppressed(self) -> int:
        """Rows in groups that are too small to be shown: at their site, or under secure sums at all sites."""
        return round(self.agreement.used - float(self.sizes.sum()))

    @property
    def sites_with_minimum(self) -> tuple[str, ...]:
        """The sites that may hold rows of a cluster of which they show none: trusted ones, with a minimum."""
        modes = dict(zip(self.agreement.sites, self.agreement.protection, strict=True))
        return tuple(site for site in self.agreement.sites if modes[site][0] == "raw")

    @property
    def unit(self) -> str:
        """The unit of counts: persons, where sites answer from copies."""
        return "people" if self.agreement.from_summaries else "rows"

    @property
    def inertia(self) -> float:
        """The inertia of the clustering; of the copies, where sites answer from copies."""
        return float(self.choice.scores[self.choice.best].inertia)

    @property
    def inertia_of_rows(self) -> float:
        """The inertia estimated for rows: that of the copies, and the variance within their groups."""
        return self.inertia + self.agreement.used * sum(self.agreement.within)

    @property
    def citation(self) -> str:
        cited = citation(self.job.method)
        return (
            f"{cited} {citation(METHODS[self.job.method]().with_missing())}" if self.keeps_missing else cited
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings: odd columns, suspect sites, doubtful clusters."""
        said = list(self.agreement.warnings)
        suspects = getattr(self.run.state.chosen, "suspects", ())
        if suspects:
            said.append(
                f"{', '.join(suspects)}: sums far from those of all other sites, left out of the centres; "
                "broken, hostile, or other data. Sizes and profiles below still include what they sent"
            )
        if self.description.movers:
            said.append(
                f"{', '.join(self.description.movers)}: states many more rows than other sites, and without "
                "it a cluster would lie elsewhere; a very large site, or numbers that are not true"
            )
        blurred = self.description.borderline
        if blurred is not None and np.nanmin(blurred, initial=1.0) > 0.99:
            said.append(
                "every row is borderline: the fuzzy centres fell together, for distances in many columns are "
                "all alike; k-means (--method lloyd) does not have this"
            )
        if self.run.state.uncertified:
            said.append(f"no certificate: {self.run.state.uncertified}")
        return tuple(said)

    @property
    def left_out(self) -> list[dict[str, Any]]:
        """All that is not in the result: {"site": ...}, {"column": ...} or {"rows": ...}, each with "why"."""
        a, silent = self.agreement, dict(self.job.absent)
        for record in self.run.records:
            silent.update({site: why for site, why in record.silent.items() if site not in self.sites})
        found: list[dict[str, Any]] = [{"site": site, "why": why} for site, why in silent.items()]
        found += [{"column": name, "why": why} for name, why in a.left_out]
        found += [
            {"rows": n, "why": f"at the end of {source}, without any value"} for source, n in self.job.blank
        ]
        lost = round(float(a.rows.sum()) - a.used) if a.preparation.drop or self.keeps_missing else 0
        why = "they have no value in any column" if self.keeps_missing else "they lack a value"
        rows = ((lost, why), (self.suppressed, "they are in groups too small to be shown"))
        return found + [{"rows": n, "why": why} for n, why in rows if n > 0]

    @property
    def preparation_json(self) -> dict[str, Any]:
        a = self.agreement
        return {
            "columns": columns_json(a.preparation),
            "rows_with_missing_values": missing_json(a.preparation),
            "left_out": self.left_out,
            "merged_categories": {name: list(categories) for name, categories in a.merged},
            "warnings": list(a.warnings),
        }

    def model(self) -> Model:
        made_by = f"unpooled {__version__}, {self.job.method}, k={self.k}, seed {self.job.seed}"
        return Model(self.agreement.preparation, self.description.centers, self.sizes, made_by)

    def traits(self, cluster: int) -> list[Trait]:
        """The columns of a cluster, the most distinctive first."""
        d, transform = self.description, self.agreement.preparation
        values, overall = transform.undo(d.means), transform.undo(d.mean[None])[0]
        scales = (
            transform.undo(np.ones((1, transform.width)))[0]
            - transform.undo(np.zeros((1, transform.width)))[0]
        )
        inside = dict(zip((c.label for c in transform.columns), self.agreement.within, strict=True))
        found = []
        for j, (column, category) in enumerate(transform.outputs):
            gap = d.means[cluster, j] - d.mean[j]
            within = 0.0 if category else inside[column]  # of copies: what their groups hide of the spread
            deviation, own = (
                math.hypot(v, math.sqrt(within)) for v in (d.deviation[j], d.deviations[cluster, j])
            )
            effect = float(gap / deviation) if deviation > 0 else 0.0
            spread = float("nan") if category else float(own * scales[j])
            found.append(
                Trait(column, category, float(values[cluster, j]), spread, float(overall[j]), effect)
            )
        return sorted(found, key=lambda trait: -abs(trait.effect))

    def distinctive_traits(self, cluster: int) -> str:
        """The three largest differences of a cluster, in words."""
        largest = [t for t in one_per_column(self.traits(cluster))[:3] if abs(t.effect) >= 0.2]
        return ", ".join(t.text() for t in largest) or "close to the mean in every column"

    def headline(self) -> tuple[str, str]:
        """The answer in two sentences."""
        d, n = self.description, self.agreement.used
        shares = ", ".join(f"{size / max(self.sizes.sum(), 1):.0%}".replace("%", " %") for size in self.sizes)
        everywhere = [j + 1 for j in range(self.k) if (d.sizes[:, j] > 0).all()]
        places = _places(d, self.k, everywhere, self.sites_with_minimum)
        there = f"{n:,.0f} {self.unit} at {len(self.sites)} {'site' if len(self.sites) == 1 else 'sites'}"
        span = f"{self.job.ks[0]} to {self.job.ks[-1]}"
        if self.choice.none:
            reasons = "; ".join(self.choice.reasons)
            return (
                f"k-means finds no clusters: {there} are described as one group.",
                f"Of k = {span}, none is better: {reasons}.",
            )
        many = "cluster" if self.k == 1 else "clusters"
        first = f"{there} fall into {self.k} {many} ({shares} of them); {places}."
        if self.k == 1:
            return first, f"One cluster is all {self.unit} together."
        asked = self.job.ks[0]
        if len(self.job.ks) == 1 and asked != self.k:
            return first, f"You asked for {asked}, and only {self.k} have any {self.unit}."
        if len(self.job.ks) == 1:
            if self.choice.clear:
                reasons = "; ".join(self.choice.reasons[1:]) or "nothing speaks against it"
                return first, f"You asked for {self.k}: {reasons}."
            return first, f"You asked for {self.k}, but be careful: {'; '.join(self.choice.reasons)}."
        if self.choice.clear:
            return first, f"Of k = {span}, {self.k} is recommended: {'; '.join(self.choice.reasons)}."
        return first, (
            f"No k from {span} is clearly right, and {self.k} is only the least doubtful: "
            f"{'; '.join(self.choice.reasons)}."
        )

    def report(self) -> str:
        from unpooled.app.report import page

        return page(self)

    def to_json(self) -> dict[str, Any]:
        from unpooled.app.export.json_result import result_json

        return result_json(self)

    def size_at(self, i: int, j: int) -> float:
        """The rows of site i in cluster j; nan if the site may have some that it does not show."""
        d = self.description
        return (
            float("nan")
            if not d.sizes[i, j] and d.sites[i] in self.sites_with_minimum
            else float(d.sizes[i, j])
        )

    def fit(self) -> FloatArray:
        """(S,) inertia per row at every site; nan if the site shows nothing."""
        d = self.description
        rows = d.sizes.sum(axis=1)
        per_row: FloatArray = d.inertias.sum(axis=1) / np.where(rows > 0, rows, np.nan)
        return per_row

    @property
    def keeps_missing(self) -> bool:
        """True if missing cells stay missing: clusters are then made from the cells that there are."""
        return self.agreement.preparation.keeps_missing

    @property
    def missing_cells(self) -> int:
        """Missing cells of the columns in use; few count as none, nearly all as all, as sites state them."""
        used = {c.name for c in self.agreement.preparation.columns}
        take = [j for j, name in enumerate(self.agreement.columns) if name in used]
        missing = np.nan_to_num(self.agreement.missing[:, take], posinf=np.inf)
        return int(np.minimum(missing, self.agreement.rows[:, None]).sum())


def _places(d: Description, k: int, everywhere: list[int], sites_with_minimum: tuple[str, ...]) -> str:
    if d.sites == (ALL_SITES,):
        return "secure sums do not show which site has which"
    if len(d.sites) == 1:
        return "there is one site"
    if len(everywhere) == k:
        return "every cluster is found at every site" if k > 1 else "it is found at every site"
    some = [j for j in range(k) if j + 1 not in everywhere]
    alike: dict[tuple[str, ...], list[str]] = {}
    for j in some:
        there = tuple(s for i, s in enumerate(d.sites) if d.sizes[i, j] > 0)
        alike.setdefault(there, []).append(str(j + 1))
    said, shown = [], list(alike.items())[:3]
    for there, clusters in shown:
        where = " and ".join(there) if len(there) <= 2 else f"{len(there)} of {len(d.sites)} sites"
        many = f"{', '.join(clusters[:-1])} and {clusters[-1]}" if len(clusters) > 1 else clusters[0]
        which = f"cluster{'s' if len(clusters) > 1 else ''} {many}"
        said.append(f"{which} only at {where}" if there else f"{which} at no site")
    rest = len(some) - sum(len(clusters) for _, clusters in shown)
    more = f" and {rest} more are not everywhere" if rest else ""
    hiding = any(d.sizes[i, j] == 0 and s in sites_with_minimum for j in some for i, s in enumerate(d.sites))
    small = ", as far as sites show: they leave out groups that are too small" if hiding else ""
    return _joined(said) + more + small


def _joined(parts: Any) -> str:
    parts = list(parts)
    return ", and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)
