"""The result of a job without noise: its headline, clusters, sites and warnings."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from unpooled import __version__
from unpooled.algorithms.registry import METHODS, citation
from unpooled.app.export.json_model import columns_json, missing_json
from unpooled.app.job import Job
from unpooled.app.local_sites import NO_FACTS, ReadingFacts
from unpooled.app.model import Model
from unpooled.app.result_names import NO_NAMES, Names
from unpooled.app.traits import Trait, cluster_traits, column_means, distinctive
from unpooled.data import AgreedSchema
from unpooled.data.schema import some
from unpooled.evaluation import AnalysisState, Choice, Description
from unpooled.evaluation.analysis import ALL_SITES
from unpooled.evaluation.outcome_differences import Outcome, outcomes_by_cluster
from unpooled.html.formatting import cluster_letter, counted, natural_order
from unpooled.optimality.certificate import Certificate, certificate_from_parts
from unpooled.protocol.run_loop import Run
from unpooled.typing import FloatArray


@dataclass(frozen=True, eq=False)
class JobResult(ABC):
    """A finished job, with or without noise: what was asked for, and what was found."""

    job: Job
    run: Run[Any]
    facts: ReadingFacts = NO_FACTS
    names: Names = NO_NAMES  # of columns and clusters

    @abstractmethod
    def model(self) -> Model:
        """Return the preparation and the centres, to be saved."""

    @abstractmethod
    def headline(self) -> tuple[str, ...]:
        """Return the answer in a sentence or two."""

    @property
    def certified(self) -> str:
        """The certificate in words; "" if there is none."""
        return ""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the result for programs; nan becomes null."""

    @property
    def preparation_json(self) -> dict[str, Any] | None:
        """The preparation, for people and other programs; None if sites agreed on none."""
        return None

    def report(self) -> str | None:
        """Return the report as one HTML page, or None if there is none."""
        return None


def result_of(job: Job, run: Run[Any], facts: ReadingFacts) -> JobResult:
    """Return the result of a job's finished run, and of the reading before it."""
    if job.epsilon is not None:
        from unpooled.app.private_result import PrivateResult

        return PrivateResult(job, run, facts)
    return ClusterResult(job, run, facts)


@dataclass(frozen=True, eq=False)
class ClusterResult(JobResult):
    """A finished job without noise: clusters described by sums, without the groups that sites suppress."""

    run: Run[AnalysisState]
    later_proof: Certificate | None = None  # made after the run, from files

    @property
    def proof(self) -> Certificate | None:
        """The certificate, if the job asked for one: made after the run, or in its last round."""
        bound = self.run.state.bound
        if self.later_proof is not None or bound is None:
            return self.later_proof
        last = self.run.records[-1]
        asked = tuple(sorted({*last.answered, *last.silent}))
        return certificate_from_parts(self.description.centers, bound, asked, tuple(last.silent))

    @property
    def certified(self) -> str:
        """The certificate in words; "" if there is none."""
        from unpooled.app.certify_result import words

        return words(self.proof, self) if self.proof is not None else ""

    @cached_property
    def agreement(self) -> AgreedSchema:
        """The agreed schema, with the sites in the order in which people read their names."""
        return self.run.state.agreement.in_order(natural_order(self.run.state.agreement.sites))

    @property
    def choice(self) -> Choice:
        assert self.run.state.choice is not None
        return self.run.state.choice

    @cached_property
    def description(self) -> Description:
        """The description of the clusters, with the sites in the order in which people read their names."""
        description = self.run.state.description
        assert description is not None
        return description.in_order(natural_order(description.sites))

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites whose rows are in the result."""
        return self.agreement.sites if self.job.aggregate_only else self.description.sites

    @property
    def ks(self) -> tuple[int, ...]:
        """The k that were compared: those of the job, or fewer if there are too few rows."""
        return self.facts.ks or self.job.ks

    @property
    def k(self) -> int:
        return len(self.description.centers)

    @property
    def sizes(self) -> FloatArray:
        """(k,) rows of each cluster that sites disclose, in total."""
        total: FloatArray = self.description.sizes.sum(axis=0)
        return total

    @property
    def borderline(self) -> FloatArray | None:
        """(k,) of fuzzy clusters the share of rows without a membership of 0.6 or more; None for others.

        nan if no site discloses it.
        """
        d = self.description
        if d.borderline is None:
            return None
        rows = np.where(np.isnan(d.borderline), 0.0, d.sizes)
        shares = (rows * np.nan_to_num(d.borderline)).sum(axis=0)
        known: FloatArray = rows.sum(axis=0)
        overall: FloatArray = np.divide(shares, known, out=np.full(self.k, np.nan), where=known > 0)
        return overall

    @property
    def suppressed(self) -> int:
        """Rows in groups too small to be disclosed: at their site, or under secure sums at all sites."""
        return round(self.agreement.used - float(self.sizes.sum()))

    @property
    def sites_with_minimum(self) -> tuple[str, ...]:
        """The sites that may suppress rows of a cluster: those that answer from raw rows have a minimum."""
        modes = dict(zip(self.agreement.sites, self.agreement.protection, strict=True))
        return tuple(site for site in self.agreement.sites if modes[site][0] == "raw")

    @property
    def unit(self) -> str:
        """The unit of counts: people if sites answer from summary tables, else rows."""
        return "people" if self.agreement.from_summaries else "rows"

    @property
    def inertia(self) -> float:
        """The inertia of the clustering; that of the summary tables if sites answer from them."""
        return float(self.choice.scores[self.choice.best].inertia)

    @property
    def inertia_of_rows(self) -> float:
        """The inertia estimated for rows: that of the summary tables, and the variance within groups.

        nan if no summary table states the variance within its groups.
        """
        a = self.agreement
        if a.unstated_within and set(a.unstated_within) >= {
            site for site, (mode, _) in zip(a.sites, a.protection, strict=True) if mode == "summary"
        }:
            return float("nan")
        return self.inertia + a.used * sum(a.within)

    @property
    def exact_rounds(self) -> str:
        """The exact rounds on rows in words; "" if there were none."""
        exact = self.run.state.exact
        if exact is None:
            return ""
        sites = len(self.agreement.sites)
        where = "all sites" if exact.sites == sites else f"{exact.sites} of {counted(sites, 'site')}"
        why = "" if exact.sites == sites else ". The equation budgets of the others do not allow it"
        return (
            f"after the clusters were found, {counted(exact.number, 'exact round')} moved the centres to the "
            f"means of the rows of {where}. Before the last one the inertia was {exact.inertia:.6g}{why}"
        )

    @property
    def citation(self) -> str:
        """The papers of the method, and of its version for missing values if cells stay missing."""
        cited = citation(self.job.method)
        return (
            f"{cited} {citation(METHODS[self.job.method]().with_missing())}" if self.keeps_missing else cited
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about unusual columns, suspect sites and doubtful clusters."""
        warnings = list(self.agreement.warnings)
        if unstated := self.agreement.unstated_within:
            warnings.append(
                f"{some(list(unstated))}: too few groups to state how people vary within them. Spreads and "
                "inertia are of averages of groups there, and people vary more."
            )
        if self.run.state.outcomes is not None:
            warnings += [w for w in self.run.state.outcomes.warnings if w not in warnings]
        suspects = self.run.state.chosen.suspects
        if suspects:
            warnings.append(
                f"{', '.join(suspects)}: sums far from those of all other sites, left out of the centres. "
                "The data are broken, forged or different. Sizes and profiles still include them."
            )
        if self.description.movers:
            warnings.append(
                f"{', '.join(self.description.movers)}: states many more rows than other sites, and without "
                "it a cluster would lie elsewhere. It is a very large site, or its numbers are wrong."
            )
        borderline = self.description.borderline
        if borderline is not None and np.nanmin(borderline, initial=1.0) > 0.99:
            warnings.append(
                "every row is borderline: the fuzzy centres coincide, because distances in many columns are "
                "nearly equal. Use k-means instead (--method lloyd)."
            )
        if self.run.state.uncertified:
            warnings.append(f"no certificate: {self.run.state.uncertified}")
        return tuple(warnings)

    @property
    def left_out(self) -> list[dict[str, Any]]:
        """All that is not in the result: {"site": ...}, {"column": ...} or {"rows": ...}, each with "why"."""
        a, silent = self.agreement, dict(self.facts.left_out)
        for record in self.run.records:
            silent.update({site: why for site, why in record.silent.items() if site not in self.sites})
        items: list[dict[str, Any]] = [{"site": site, "why": why} for site, why in silent.items()]
        items += [{"column": name, "why": why} for name, why in a.left_out]
        if self.run.state.outcomes is not None:
            items += [{"column": name, "why": why} for name, why in self.run.state.outcomes.left_out]
        items += [
            {"rows": n, "why": f"at the end of {source}, without any value"}
            for source, n in self.facts.blank_rows
        ]
        why = "they have no value in any column" if self.keeps_missing else "they lack a value"
        rows = (
            (self.rows_without_values, why),
            (self.suppressed, "they are in groups too small to be disclosed"),
        )
        return items + [{"rows": n, "why": why} for n, why in rows if n > 0]

    @property
    def rows_without_values(self) -> int:
        """The rows that were left out for their missing values, at the sites that answered to the end."""
        a = self.agreement
        if not (a.preparation.drop or self.keeps_missing):
            return 0
        silent = {site for record in self.run.records for site in record.silent}
        stated = sum(float(n) for site, n in zip(a.sites, a.rows, strict=True) if site not in silent)
        return max(round(stated - a.used), 0)

    @property
    def preparation_json(self) -> dict[str, Any]:
        """The preparation, for people and other programs."""
        a = self.agreement
        return {
            "columns": columns_json(a.preparation),
            "rows_with_missing_values": missing_json(a.preparation),
            "left_out": self.left_out,
            "merged_categories": {name: list(categories) for name, categories in a.merged},
            "warnings": list(a.warnings),
        }

    def model(self) -> Model:
        """Return the preparation and the centres, to be saved."""
        made_by = f"unpooled {__version__}, {self.job.method}, k={self.k}, seed {self.job.seed}"
        m = None if self.choice.none else METHODS[self.job.method]().fuzzifier
        return Model(self.agreement.preparation, self.description.centers, self.sizes, made_by, m)

    @property
    def outcomes(self) -> list[Outcome]:
        """The outcomes by cluster; none if the job names none."""
        agreement, sums = self.run.state.outcomes, self.description.outcomes
        return outcomes_by_cluster(sums, agreement) if agreement is not None and sums is not None else []

    @property
    def outcomes_estimated(self) -> bool:
        """True if outcomes are estimated from averages of groups of people."""
        return self.run.state.outcomes is not None and self.run.state.outcomes.from_summaries

    def traits(self, cluster: int) -> list[Trait]:
        """Return the traits of a cluster, the largest differences from all rows first."""
        return cluster_traits(self.description, self.agreement, cluster)

    def column_means(self, cluster: int) -> list[Trait]:
        """Return the traits of a cluster by prepared column, of numbers with two values the mean too."""
        return column_means(self.description, self.agreement, cluster)

    def distinctive_traits(self, cluster: int) -> str:
        """Return the three largest differences of a cluster in words."""
        return distinctive(self.traits(cluster))

    def headline(self) -> tuple[str, str]:
        """Return the answer in two sentences: what was found, and how well it is supported.

        A column that may have another unit at some sites comes first: it would look like a cluster.
        """
        first, second = self._answer()
        units = self.agreement.odd_units
        return first, f"Check the units first: {'; '.join(units)}. {second}" if units else second

    def _answer(self) -> tuple[str, str]:
        """What was found, and how well it is supported."""
        d, n = self.description, self.agreement.used
        shares = ", ".join(_share(float(size / max(self.sizes.sum(), 1))) for size in self.sizes)
        everywhere = [j for j in range(self.k) if (d.sizes[:, j] > 0).all()]
        places = _places(
            d, self.k, everywhere, self.sites_with_minimum, grouped=self.agreement.from_summaries
        )
        everything = f"{n:,.0f} {self.unit} at {counted(len(self.sites), 'site')}"
        span = f"{self.ks[0]} to {self.ks[-1]}"
        c, asked = self.choice, self.ks[0]
        doubts = "; ".join(c.doubts)
        if c.none:
            return (
                f"k-means finds no clusters: {everything} are described as one group.",
                f"No number of clusters from {max(asked, 2)} to {self.ks[-1]} is supported: {doubts}.",
            )
        verb = "are divided into" if c.verdict == "none" else "fall into"
        first = f"{everything} {verb} {counted(self.k, 'cluster')} ({shares} of them); {places}."
        if self.k == 1:
            return first, f"One cluster is all {self.unit} together."
        if len(self.ks) == 1 and asked != self.k:
            return first, f"You asked for {asked}, and only {self.k} have any {self.unit}."
        support = "; ".join(c.support)
        if c.verdict == "not judged":
            which = (
                f"You asked for {self.k}." if len(self.ks) == 1 else f"{self.k} has the largest silhouette."
            )
            return first, f"{which} Whether there are clusters was not judged: {doubts}."
        if len(self.ks) == 1:
            words = {
                "clear": f"You asked for {self.k}: {support}.",
                "unclear": f"You asked for {self.k}, with doubts: {doubts}. For it: {support}.",
                "none": f"You asked for {self.k}, and {self.k} clusters are not supported: {doubts}.",
            }
            return first, words[c.verdict]
        if c.clear:
            return first, f"Among k = {span}, {self.k} is recommended: {support}."
        return first, (
            f"Among k = {span}, {self.k} is the best supported, and it is not clear: {doubts}. "
            f"For it: {support}."
        )

    def report(self) -> str:
        """Return the report as one HTML page."""
        return self._page

    @cached_property
    def _page(self) -> str:
        from unpooled.app.report import page

        return page(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the result for programs; nan becomes null."""
        from unpooled.app.export.json_result import result_json

        return result_json(self)

    def size_at(self, i: int, j: int) -> float:
        """Return the rows of site i in cluster j; nan if the site may suppress some."""
        d = self.description
        return (
            float("nan")
            if not d.sizes[i, j] and d.sites[i] in self.sites_with_minimum
            else float(d.sizes[i, j])
        )

    def fit(self) -> FloatArray:
        """Return (S,) the mean squared distance at every site; nan if the site discloses nothing.

        It is per row; where cells stay missing, per observed value: a row with fewer values is nearer to its
        centre only because it has fewer. All categories of a column count as one value.
        """
        inertias, amounts = self._fitted
        fits: FloatArray = inertias / np.where(amounts > 0, amounts, np.nan)
        return fits

    @property
    def mean_fit(self) -> float:
        """The mean squared distance over all sites, per row or per observed value as in ``fit``."""
        inertias, amounts = self._fitted
        return float(inertias.sum() / max(float(amounts.sum()), 1.0))

    @property
    def _fitted(self) -> tuple[FloatArray, FloatArray]:
        """(S,) squared distances of every site, and its rows or observed values."""
        d = self.description
        if d.known_by_site is None or d.observed_inertias is None:
            return d.inertias.sum(axis=1), d.sizes.sum(axis=1)
        columns = self.agreement.preparation.columns
        values: FloatArray = d.known_by_site @ np.concatenate(
            [np.full(c.width, 1 / c.width) for c in columns]
        )
        return d.observed_inertias, values

    @property
    def keeps_missing(self) -> bool:
        """True if missing cells stay missing: clusters then depend on the cells that have a value."""
        return self.agreement.preparation.keeps_missing

    @property
    def missing_cells(self) -> int:
        """Missing cells of the columns in use. Sites report "few", which counts as none, and "nearly all"."""
        used = {c.name for c in self.agreement.preparation.columns}
        take = [j for j, name in enumerate(self.agreement.columns) if name in used]
        missing = np.nan_to_num(self.agreement.missing[:, take], posinf=np.inf)
        return int(np.minimum(missing, self.agreement.rows[:, None]).sum())


def _places(
    d: Description,
    k: int,
    everywhere: list[int],
    sites_with_minimum: tuple[str, ...],
    *,
    grouped: bool = False,
) -> str:
    if d.sites == (ALL_SITES,):
        return "the sums do not disclose which site has which cluster"
    if len(d.sites) == 1:
        return "there is one site"
    if len(everywhere) == k:
        return "every cluster is found at every site" if k > 1 else "it is found at every site"
    some = [j for j in range(k) if j not in everywhere]
    by_sites: dict[tuple[str, ...], list[str]] = {}
    for j in some:
        sites = tuple(s for i, s in enumerate(d.sites) if d.sizes[i, j] > 0)
        by_sites.setdefault(sites, []).append(cluster_letter(j))
    parts, listed = [], list(by_sites.items())[:3]
    for sites, clusters in listed:
        where = " and ".join(sites) if len(sites) <= 2 else f"{len(sites)} of {len(d.sites)} sites"
        if len(sites) <= 2 and any(
            site.isdigit() for site in sites
        ):  # "only at 3" would be a number of sites
            where = f"{'sites' if len(sites) > 1 else 'site'} {where}"
        letters = f"{', '.join(clusters[:-1])} and {clusters[-1]}" if len(clusters) > 1 else clusters[0]
        which = f"cluster{'s' if len(clusters) > 1 else ''} {letters}"
        parts.append(f"{which} only at {where}" if sites else f"{which} at no site")
    rest = len(some) - sum(len(clusters) for _, clusters in listed)
    more = f" and {rest} more are not everywhere" if rest else ""
    suppressing = any(
        d.sizes[i, j] == 0 and s in sites_with_minimum for j in some for i, s in enumerate(d.sites)
    )
    small = ", as far as sites disclose: they suppress groups that are too small" if suppressing else ""
    if grouped:
        small = ", as far as averages of groups show: a site may have a few such people"
    return _joined(parts) + more + small


def _share(share: float) -> str:
    """A share as a percentage; of a few rows among very many it is not 0.

    >>> _share(0.42), _share(0.002)
    ('42%', 'under 1%')
    """
    return "under 1%" if 0 < share < 0.005 else f"{share:.0%}"


def _joined(parts: list[str]) -> str:
    return ", and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)
