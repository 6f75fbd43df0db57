"""What clustering summary tables is expected to lose, from public numbers alone.

The loss is the inertia of all rows at the centres found from summary tables over that of pooling, less 1. It
depends on the number of groups that the people of a cluster make at a site. Both curves were fitted to the
shapes of ``benchmarks/bench_summary_table.py``, from half a group to 13: about the median of tables, and the
loss that few exceed. They do not hold if a cluster is a few people far from all others, whom no group shows.
"""

from dataclasses import dataclass

from unpooled.privacy.microaggregation.summary_settings import SummarySettings


@dataclass(frozen=True)
class ExpectedLoss:
    """The expected loss of clustering summary tables.

    >>> print(ExpectedLoss(min_group_size=11, groups=4.0))
    about 0.5% above the inertia of pooling, or 2.5% (4 groups for a cluster at a site)
    """

    min_group_size: int
    groups: float  # that the people of an average cluster make at a site

    @property
    def excess(self) -> float:
        """The loss of a typical table."""
        return max(0.08 / self.groups**2, 0.01 / self.groups)

    @property
    def excess_at_most(self) -> float:
        """The loss that few tables exceed: those of more than one group for a cluster, one in ten."""
        return max(0.3 / self.groups**2, 0.1 / self.groups)

    def __str__(self) -> str:
        return (
            f"about {100 * self.excess:.2g}% above the inertia of pooling, or "
            f"{100 * self.excess_at_most:.2g}% ({self.groups:.2g} groups for a cluster at a site)"
        )


def expected_loss(settings: SummarySettings, people: int, sites: int, columns: int, k: int) -> ExpectedLoss:
    """Return what k clusters of ``people`` at ``sites`` sites of equal size are expected to lose.

    >>> expected_loss(SummarySettings(), 4400, 4, 3, 5)
    ExpectedLoss(min_group_size=11, groups=20.0)
    """
    each = max(people // sites, 1)
    size = settings.group_size_for(each, columns)
    return ExpectedLoss(size, each / k / size)
