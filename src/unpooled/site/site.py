"""A site: its rows, and the chain that every request to it passes (chain.py).

``open_site`` builds the chain of a site under its policy. A site that is made here, for simulation, has the
few steps that answer, and those that are given.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from unpooled.data.summary_table import SummaryTable
from unpooled.data.table import Table
from unpooled.privacy.dp.noise import BudgetAccountant, SimulatedAccountant
from unpooled.protocol.exchange import Request
from unpooled.protocol.messages import SiteId
from unpooled.site.chain import Chain, Guard, VisibleRows
from unpooled.site.chain_steps import (
    AnswerStep,
    MaskStep,
    NoiseStep,
    Recorder,
    ReplayCache,
    StagesStep,
    SuppressionStep,
    TransactionStep,
    TransformStep,
)
from unpooled.site.endpoint import MAX_MESSAGE_BYTES, Endpoint
from unpooled.site.guards import RequestIdGuard
from unpooled.site.message_limits import MessageLimitsGuard
from unpooled.typing import FloatArray, Rows

if TYPE_CHECKING:
    from unpooled.privacy.secure_sum.site_mask import SiteMask


class Site(Endpoint):
    """A site: what it answers from, and its chain.

    Parameters
    ----------
    name
        Its name in the federation.
    X
        A SummaryTable, a Table, or an array (n, d).
    weights
        The weight of every row of an array.
    grouped
        The rows of an array are groups, ``weights`` their numbers of people and ``within`` the variance
        inside them.
    within
        The variance within groups, (d,).
    raw
        The rows behind the groups, for exact rounds in secure sums; None: there is none.
    min_cluster_size
        The smallest cluster of raw rows that the site discloses; 1 suppresses nothing.
    guards
        Rules of the site, which may refuse a request.
    mask
        Its part in secure sums.
    log
        Records what leaves the site.
    accountant
        Returns the accountant that charges the noise in the answer to a request. By default a site without
        guards does not have a budget, and one with guards refuses queries with noise.
    threads
        Threads of the kernels.
    max_message_bytes
        Largest size of a request.
    key
        The fingerprint of its public key; "": it has none.
    interval
        Seconds: between machines its responses leave at multiples of it after the request, so that their time
        does not disclose the number of rows. 0: at once.
    chain
        The whole chain of a site under a policy (``open_site``), in place of guards, mask, accountant and
        threads. Its own step suppresses; ``min_cluster_size`` then only describes it.

    Examples
    --------
    >>> import numpy as np
    >>> Site("north", np.ones((3, 2))).rows.shape
    (3, 2)
    """

    def __init__(
        self,
        name: SiteId,
        X: Rows | Table | SummaryTable,
        weights: FloatArray | None = None,
        *,
        grouped: bool = False,
        within: FloatArray | None = None,
        raw: Rows | Table | None = None,
        min_cluster_size: int = 1,
        guards: Sequence[Guard] = (),
        mask: "SiteMask | None" = None,
        log: Recorder | None = None,
        accountant: Callable[[Request], BudgetAccountant] | None = None,
        threads: int = 1,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        key: str = "",
        interval: float = 0.0,
        chain: Chain | None = None,
    ) -> None:
        self.rows, self.weights, self.within = X, weights, within
        self.grouped = grouped or isinstance(X, SummaryTable)  # it answers from groups of people
        self.min_cluster_size = min_cluster_size
        recorder = Recorder() if log is None else log
        simulated = None if guards else _simulated
        super().__init__(
            name,
            chain
            or Chain(
                RequestIdGuard(),
                ReplayCache(),
                recorder,
                MessageLimitsGuard(X),
                StagesStep(mask),
                TransformStep(
                    VisibleRows(X, weights, within),
                    grouped=self.grouped,
                    raw=None if raw is None else VisibleRows(raw, None, None),
                ),
                *guards,
                SuppressionStep(min_cluster_size),
                NoiseStep(accountant or simulated, mask),
                AnswerStep(str(name), threads=threads, checked=bool(guards)),
                TransactionStep(None, mask),
                None if mask is None else MaskStep(mask),
            ),
            recorder,
            key=key,
            max_message_bytes=max_message_bytes,
            interval=interval,
        )


def _simulated(request: Request) -> BudgetAccountant:
    """The accountant of a simulation without a budget."""
    return SimulatedAccountant()
