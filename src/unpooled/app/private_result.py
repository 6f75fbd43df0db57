"""The result of a private job. It uses only released numbers, so anybody may see it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from unpooled import __version__
from unpooled.algorithms import Private, PrivateState
from unpooled.algorithms.private.private_kmeans import prepared
from unpooled.app.export.json_model import plain
from unpooled.app.local_sites import ReadingFacts
from unpooled.app.model import Model
from unpooled.app.private_job import private_method
from unpooled.app.result import JobResult
from unpooled.data import Preparation
from unpooled.html.formatting import cluster_letter, counted, figure
from unpooled.privacy import Forecast
from unpooled.privacy.dp.gaussian import privacy_unit
from unpooled.protocol.run_loop import Run


@dataclass(frozen=True, eq=False)
class PrivateResult(JobResult):
    """A finished job under differential privacy."""

    run: Run[PrivateState]

    @property
    def method(self) -> Private:
        return private_method(self.job)

    @property
    def epsilon(self) -> float:
        return self.method.epsilon(self.run.state)

    @property
    def forecast(self) -> Forecast:
        return self.method.forecast_of(self.run.state)

    @property
    def order(self) -> Any:
        """The clusters, largest first."""
        return np.argsort(-self.run.state.sizes, kind="stable")

    @property
    def preparation(self) -> Preparation:
        return prepared(self.method.columns, self.run.state.inertia_transform, self.method.drop)

    def model(self) -> Model:
        """Return the preparation and the centres, to be saved."""
        state = self.run.state
        made_by = (
            f"unpooled {__version__}, private {self.job.method}, epsilon {self.epsilon:g}, k={self.job.ks[0]}"
        )
        return Model(
            self.preparation,
            state.estimate[self.order] * state.unit,
            state.sizes[self.order],
            made_by,
            self.method.m,
        )

    def headline(self) -> tuple[str]:
        """Return the answer in a sentence."""
        k, state = self.job.ks[0], self.run.state
        return (
            f"About {state.n:,.0f} rows fall into {counted(k, 'cluster')}; every number here carries noise: "
            f"({self.epsilon:.4g}, {self.job.delta:g})-differential privacy for "
            f"{privacy_unit(self.job.sites_per_person)}.",
        )

    @property
    def left_out(self) -> list[dict[str, Any]]:
        """The sites that are not in the result, or not in all of it: {"site": ..., "why": ...}.

        The participants are public. The number of rows with missing values is secret, and not in the result.
        """
        silent = dict(self.facts.left_out)
        for record in self.run.records:
            silent.update(record.silent)
        return [{"site": site, "why": why} for site, why in silent.items()]

    def notes(self) -> list[str]:
        """Return notes for the reader, one line each."""
        warning = self.forecast.warning
        return [
            f"expected: {self.forecast}",
            *([f"warning: {warning}"] if warning else []),
            f"{len(self.run.state.releases)} releases; a new run spends its epsilon again, and both add up",
        ]

    def rows(self) -> list[list[str]]:
        """Return a table: cluster, rows, the centre in each column's own unit."""
        state = self.run.state
        return [
            [cluster_letter(i), f"{state.sizes[j]:.0f}", *(figure(float(x)) for x in state.centers[j])]
            for i, j in enumerate(self.order)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the result for programs; nan becomes null."""
        state, expected = self.run.state, self.forecast
        columns = self.method.columns
        value = {
            "unpooled": __version__,
            "headline": self.headline()[0],
            "k": self.job.ks[0],
            "epsilon": self.epsilon,
            "delta": self.job.delta,
            "sites_per_person": self.job.sites_per_person,
            "rows": state.n,
            "inertia": state.inertia,
            "expected_excess": expected.excess,
            "warning": expected.warning,
            "clusters": [
                {
                    "label": i,
                    "cluster": cluster_letter(i),
                    "rows": float(state.sizes[j]),
                    "center": dict(zip(columns, map(float, state.centers[j]), strict=True)),
                }
                for i, j in enumerate(self.order)
            ],
            "columns": list(columns),
            "releases": [
                {"question": type(r.question).__name__, "mu_squared": r.question.privacy_cost}
                for r in state.releases
            ],
            "seed": self.job.seed,
            "method": f"private {self.job.method}",
        }
        if self.left_out:
            value["left_out"] = self.left_out
        if self.facts.left_out:  # nothing about rows: it would be a release without noise
            value["reading"] = ReadingFacts(self.facts.left_out).to_json()
        result: dict[str, Any] = plain(value)
        return result
