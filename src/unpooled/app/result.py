"""The result of a job: the job, its run, and what people, machines and a report want to know of it."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from unpooled.app.job import Job
from unpooled.app.model import Model
from unpooled.core.run import Run


@dataclass(frozen=True, eq=False)
class Result(ABC):
    """A finished job. ``result_of`` makes it, with or without noise."""

    job: Job
    run: Run[Any]

    @abstractmethod
    def model(self) -> Model:
        """The preparation and the centres, to be saved."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """For machines; nan is null."""

    @property
    def preparation_json(self) -> dict[str, Any] | None:
        """The preparation, for people and other programs; None where sites agreed on nothing."""
        return None

    def report(self) -> str | None:
        """The report as one HTML page; None where there is none."""
        return None


def result_of(job: Job, run: Run[Any]) -> Result:
    """The result of a job's finished run."""
    if job.epsilon is not None:
        from unpooled.app.private_result import PrivateResult

        return PrivateResult(job, run)
    from unpooled.app.cluster_result import ClusterResult

    return ClusterResult(job, run)


def figure(value: float) -> str:
    """A number for people: three digits, more where the whole part has them.

    >>> figure(61.234), figure(4207.4), figure(0.01234), figure(float("nan"))
    ('61.2', '4207', '0.0123', '-')
    """
    if not math.isfinite(value):
        return "-"
    if abs(value) >= 1000 or value == 0:
        return f"{value:.0f}"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{value:.{min(max(digits, 0), 6)}f}"


def plain(value: Any) -> Any:
    """As JSON has it: nan is null, whole numbers are whole."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float | np.floating):
        number = float(value)
        return (
            None
            if not math.isfinite(number)
            else int(number)
            if number.is_integer() and abs(number) < 1e15
            else number
        )
    if isinstance(value, np.integer):
        return int(value)
    return value
