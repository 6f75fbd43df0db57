"""The plan of a private job: its expected loss, and that of summary tables, from public numbers alone.

Public are the number of rows (``--rows``), of columns (``--bounds``), of clusters and of sites. No file is
read, and no budget is spent.
"""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from unpooled.app.private_job import private_method
from unpooled.errors import InputError
from unpooled.privacy import Forecast
from unpooled.privacy.dp.gaussian import privacy_unit
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.privacy.microaggregation.expected_loss import ExpectedLoss, expected_loss
from unpooled.privacy.secure_sum import threshold_for
from unpooled.privacy.secure_sum.sum_settings import MIN_SITES

if TYPE_CHECKING:
    from unpooled.app.job import Job


@dataclass(frozen=True)
class PrivatePlan:
    """What a private job is expected to lose, and what the alternatives are."""

    forecast: Forecast
    protects: str  # the privacy unit, in words
    sites: int
    secure: Forecast | None  # the same with secure sums, where they are possible and not asked for
    summary: ExpectedLoss

    @classmethod
    def from_job(cls, job: "Job") -> "PrivatePlan":
        """Return the plan of a job with an epsilon; InputError if a number that it needs is not public."""
        if job.epsilon is None:
            raise InputError("--plan is for differential privacy. Add --epsilon.")
        if job.rows is None:
            raise InputError(
                "--plan reads no file, so it needs the number of rows in total. Add --rows, if that number "
                "is public."
            )
        if job.reading.site_column is not None:
            raise InputError(
                "--plan reads no file, so it cannot count the sites in --site-column. Name one file per site."
            )
        method, sites, d = private_method(job), len(job.files), len(job.preparation_options.bounds)
        shared = sites / threshold_for(sites) if sites >= MIN_SITES else float(sites)
        forecast = method.forecast(job.rows, shared if job.secure else float(sites), d)
        can_share = sites >= MIN_SITES and not job.secure
        return cls(
            forecast,
            privacy_unit(job.sites_per_person),
            sites,
            method.forecast(job.rows, shared, d) if can_share else None,
            expected_loss(SummarySettings(), job.rows, sites, d, job.ks[0]),
        )

    def lines(self) -> list[str]:
        """Return the plan for people, one fact per line."""
        f, table = self.forecast, self.summary
        own = "" if f.hopeless or f.warning else f": {f}"
        return [
            f"Differential privacy, epsilon {f.epsilon:g}, for {self.protects}{own}.",
            *([f"A run would be refused: {f.refusal()}"] if f.hopeless else []),
            *([f"{f.warning[0].upper()}{f.warning[1:]}"] if f.warning else []),
            *(
                [f"With secure sums (--secure) the {self.sites} sites share one noise: {self.secure}."]
                if self.secure is not None
                else []
            ),
            f"Summary tables (--protect summary), groups of at least {table.min_group_size} people: {table}.",
            self.advice,
            "Summary tables protect by k-anonymity. Only differential privacy limits what somebody with any "
            "other knowledge can learn.",
        ]

    @property
    def advice(self) -> str:
        """Which of both is expected to lose less."""
        noise, table = self.forecast if self.secure is None else self.secure, self.summary
        less = (noise.excess_apart <= table.excess, noise.excess_overlapping <= table.excess_at_most)
        if noise.hopeless or not any(less):
            return "Summary tables are expected to lose less."
        if all(less):
            return "Differential privacy is expected to lose less."
        return "Which of both loses less depends on how far the clusters lie apart."

    def to_json(self) -> dict[str, Any]:
        """Return the plan for programs."""

        def numbers(forecast: Forecast) -> dict[str, Any]:
            return {
                "strength": forecast.strength,
                "excess_apart": forecast.excess_apart,
                "excess_overlapping": forecast.excess_overlapping,
                "refused": forecast.hopeless,
                "warning": forecast.warning,
            }

        return {
            "rows": self.forecast.n,
            "columns": self.forecast.d,
            "k": self.forecast.k,
            "sites": self.sites,
            "epsilon": self.forecast.epsilon,
            "delta": self.forecast.delta,
            "protects": self.protects,
            "private": numbers(self.forecast),
            "private_secure": None if self.secure is None else numbers(self.secure),
            "summary": {
                **asdict(self.summary),
                "excess": self.summary.excess,
                "excess_at_most": self.summary.excess_at_most,
            },
            "advice": self.advice,
        }
