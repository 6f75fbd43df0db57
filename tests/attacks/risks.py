"""Risks of protected tables: the heart sites, an adult-like table, and one with several rows per person."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
from scipy.stats import norm
from sklearn.cluster import KMeans

from unpooled import FederatedKMeans
from unpooled.data import Table
from unpooled.data.readers import Reading, read_table
from unpooled.errors import ForecastRefusedError
from unpooled.privacy import Gaussian
from unpooled.privacy.dp.accounting import gdp_mu
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.privacy.microaggregation.disclosure_risk import clustering_cost, measure_risks

EPSILON, DELTA = 1.0, 1e-6
HEART_CATEGORIES = ("num", "cp", "sex", "fbs", "restecg", "exang", "slope", "thal")
HEART = files("unpooled.data.examples") / "heart_disease.csv"


@dataclass(frozen=True)
class Case:
    """A table, the column that identifies people, and a sensitive column."""

    name: str
    table: Table
    sensitive: str
    person: str = ""

    def settings(self, *, diverse: bool) -> SummarySettings:
        return SummarySettings(person=self.person, diverse=(self.sensitive,) if diverse else ())


def cases() -> Iterator[Case]:
    heart = read_table(str(HEART), Reading(categorical=("site", *HEART_CATEGORIES)))
    names, codes = heart.categories["site"], heart.values[:, heart.index("site")]
    for code, name in enumerate(names):
        rows = heart.values[codes == code]
        table = Table(heart.names, heart.kinds, heart.categories, rows).without(("site",))
        yield Case(f"heart, {name}", table, "num")
    yield Case("adult-like, 600 people", adult(0, 600), "income")
    yield Case("visits, 150 people of 1 to 6 rows", visits(0, 150), "diagnosis", "patient")


def adult(seed: int, n: int) -> Table:
    """People with an age, an education, hours, a wage that follows from them, and an income class."""
    rng = np.random.default_rng(seed)
    age, years = rng.uniform(18, 80, n).round(), rng.integers(6, 18, n).astype(float)
    hours = np.clip(rng.normal(40, 10, n), 5, 80).round()
    wage = np.exp(0.12 * years + 0.01 * (50 - np.abs(age - 50)) + rng.normal(0, 0.4, n))
    married = np.where(rng.random(n) < 1 / (1 + np.exp(-(age - 35) / 8)), "yes", "no")
    income = np.where(wage * hours > np.quantile(wage * hours, 0.7), "high", "low")
    return Table.from_columns(
        {"age": age, "years": years, "hours": hours, "wage": wage, "married": married.tolist(),
         "sex": rng.choice(["f", "m"], n).tolist(), "income": income.tolist()}
    )  # fmt: skip


def visits(seed: int, people: int) -> Table:
    """Patients with a level of their own in four measurements, and a diagnosis that follows from two."""
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(people), rng.integers(1, 7, people))
    level = rng.normal(size=(people, 4))
    X = level[who] + 0.4 * rng.normal(size=(len(who), 4))
    sick = (level[:, 0] + level[:, 1] + rng.normal(0, 0.5, people) > 0.8)[who]
    columns = {f"lab{j}": X[:, j] for j in range(4)}
    return Table.from_columns(
        {"patient": who.astype(float), **columns, "diagnosis": np.where(sick, "yes", "no").tolist()}
    )


def rows_of_a_person(case: Case) -> int:
    """The largest number of rows of a person."""
    if not case.person:
        return 1
    return int(np.unique(case.table.values[:, case.table.index(case.person)], return_counts=True)[1].max())


def numbers(case: Case) -> np.ndarray:
    """The numeric columns in deviations, clipped to 4, a missing value in the middle."""
    table = case.table
    kept = [j for j, kind in enumerate(table.kinds) if kind == "number" and table.names[j] != case.person]
    X = np.asarray(table.values[:, kept], dtype=np.float64)
    X = (X - np.nanmean(X, axis=0)) / np.where(np.nanstd(X, axis=0) > 0, np.nanstd(X, axis=0), 1.0)
    return np.clip(np.nan_to_num(X), -4, 4)


def dp_cost(case: Case, k: int) -> str:
    """The inertia of private k-means on the numeric columns, over that of k-means; or that it is refused."""
    X = numbers(case)
    noise = Gaussian(EPSILON, DELTA, lower=-4, upper=4, rows=len(X))
    try:
        centers = FederatedKMeans(k, dp=noise, random_state=0).fit({"site": X}).cluster_centers_
    except ForecastRefusedError:
        return "refused"
    away = ((X[:, None] - centers) ** 2).sum(axis=2).min(axis=1).sum()
    return f"{away / KMeans(k, n_init=5, random_state=0).fit(X).inertia_:.3f}"


def line(name: str, case: Case, *, diverse: bool, k: int = 3) -> str:
    settings = case.settings(diverse=diverse)
    risks = measure_risks(case.table, settings, (case.sensitive,))
    (one,) = risks.attributes
    return (
        f"{case.name:36} {name:18} {one.members:12.3f} {one.controls:8.3f} {one.uniform:6.2f} "
        f"{risks.membership.auc:6.3f} {risks.membership.found:6.2f} {risks.singled_out[0]:7.3f} "
        f"{risks.singled_out[1]:8.3f} {risks.linked[0]:6.3f} {risks.linked[1]:8.3f} "
        f"{clustering_cost(case.table, settings, (k,))[0]:7.3f}"
    )


def dp_line(case: Case, k: int = 3) -> str:
    """Bounds by theory: noise bounds what anybody learns of a row, whatever is known of all others.

    No attack succeeds on members more often than on controls by more than the total variation distance. The
    budget is for a row; a person with several rows is protected as many times less.
    """
    mu = gdp_mu(EPSILON, DELTA) * rows_of_a_person(case)
    auc, found = norm.cdf(mu / np.sqrt(2)), norm.cdf(norm.ppf(0.01) + mu)
    above = f"at most {2 * norm.cdf(mu / 2) - 1:.2f} above controls"
    return (
        f"{case.name:36} {f'dp, epsilon {EPSILON:g}':18} {above:>28} {auc:6.3f} {found:6.2f} {above:>31} "
        f"{dp_cost(case, k):>7}"
    )


HEAD = (
    f"{'':36} {'':18} {'right':>12} {'controls':>8} {'alike':>6} {'AUC':>6} {'found':>6} {'singled':>7} "
    f"{'controls':>8} {'linked':>6} {'controls':>8} {'inertia':>7}"
)


def print_risks() -> None:
    print(HEAD)
    for case in cases():
        print(line("summary", case, diverse=False), flush=True)
        print(line("summary + diverse", case, diverse=True), flush=True)
        print(dp_line(case), flush=True)
