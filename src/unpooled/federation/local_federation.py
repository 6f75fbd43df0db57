"""Sites of this process, asked one by one with the bytes that would travel between machines."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from unpooled.data import Table
from unpooled.data.summary_table import SummaryTable
from unpooled.federation.simulated_rows import check_sites
from unpooled.federation.transport_federation import TransportFederation
from unpooled.privacy.secure_sum import SecureSums, check_range, secure_sums
from unpooled.protocol.exchange import Transport
from unpooled.protocol.messages import SiteId
from unpooled.site import Site
from unpooled.site.allow_list import aggregate_only
from unpooled.site.endpoint import Endpoint
from unpooled.typing import FloatArray, Rows

if TYPE_CHECKING:
    from unpooled.privacy.secure_sum.site_mask import SiteMask


class LocalTransport(Transport):
    """The Transport within one process. A site that fails ends the run, unless ``tolerate_failures``."""

    def __init__(self, members: Mapping[SiteId, Endpoint], tolerate_failures: bool = False) -> None:
        self._members, self._tolerate_failures = members, tolerate_failures
        self.sites = tuple(members)

    def send_and_receive(self, requests: Mapping[SiteId, bytes]) -> dict[SiteId, bytes | str]:
        if self._tolerate_failures:
            return {name: self._members[name].respond(data) for name, data in requests.items()}
        return {name: self._members[name].receive(data) for name, data in requests.items()}


class LocalFederation(TransportFederation):
    """A federation of Site objects in this process; each answers with its own rules.

    Request and response are bytes and pass the same checks as between machines. A simulation without rules at
    the sites is faster as a ``Simulation``, and gives the same bits.

    Parameters
    ----------
    members
        The sites, with different names and the same columns. A member may be a Relay.
    secure
        Settings of secure sums. With them every total is a secure sum.
    exact_sums
        Compute every total exactly and round it once: the same bits in any order of the sites and any tree.
    tolerate_failures
        Count a member that fails as silent. By default it ends the run with its error.

    Examples
    --------
    >>> sites = LocalFederation([Site("north", np.zeros((4, 2))), Site("south", np.ones((3, 2)))])
    >>> sites.sites
    ('north', 'south')
    """

    rows: int  # of the sites; members that are federations do not count

    def __init__(
        self,
        members: Sequence[Endpoint],
        *,
        secure: SecureSums | None = None,
        exact_sums: bool = False,
        tolerate_failures: bool = False,
    ) -> None:
        rows = {member.name: member.rows for member in members if isinstance(member, Site)}
        names = check_sites([member.name for member in members], rows)
        by_name = {member.name: member for member in members}
        super().__init__(
            LocalTransport({name: by_name[name] for name in names}, tolerate_failures),
            secure=secure,
            exact_sums=exact_sums,
            keys={member.name: member.key for member in members if not member.is_federation},
            federations=[member.name for member in members if member.is_federation],
        )
        self.rows = sum(0 if X is None else len(X) for X in rows.values())

    @classmethod
    def from_rows(
        cls,
        rows: Mapping[SiteId, Rows | Table | SummaryTable],
        weights: Mapping[SiteId, FloatArray] | None = None,
        *,
        within: Mapping[SiteId, FloatArray] | None = None,
        raw: Mapping[SiteId, Rows | Table] | None = None,
        min_cluster_size: int = 1,
        secure: SecureSums | bool | None = None,
        allowed_in_clear: tuple[str, ...] = (),
        exact_sums: bool = False,
    ) -> "LocalFederation":
        """Return a federation of one Site for each name and its rows.

        Parameters
        ----------
        rows, weights, within, min_cluster_size
            As in ``Simulation.from_rows``.
        raw
            By site: the rows behind its groups, for exact rounds in secure sums.
        secure
            Settings of secure sums, or True for the default ones. The sites then answer only in secure sums.
        allowed_in_clear
            Names of the questions that sites answer in clear all the same.
        exact_sums
            As in ``LocalFederation``.
        """
        secure = None if secure is None else secure_sums(secure)
        masks: Mapping[SiteId, SiteMask] = {}
        if secure is not None:
            from unpooled.privacy.secure_sum.site_mask import site_masks

            for name, X in rows.items():
                _check_range(
                    str(name),
                    X if raw is None else raw[name],
                    None if weights is None or raw is not None else weights[name],
                )
            secure = replace(secure, min_cluster_size=max(secure.min_cluster_size, min_cluster_size))
            masks = site_masks(
                tuple(map(str, rows)),
                min_sites=secure.min_sites,
                required=True,
                allowed_in_clear=allowed_in_clear,
                suggested_methods=aggregate_only(),
            )
        sites = [
            Site(
                str(name),
                X,
                None if weights is None else weights[name],
                grouped=within is not None,
                within=None if within is None else within[name],
                raw=None if raw is None else raw[name],
                min_cluster_size=min_cluster_size,
                mask=masks.get(str(name)),
            )
            for name, X in rows.items()
        ]
        return cls(sites, secure=secure, exact_sums=exact_sums)


def _check_range(name: SiteId, rows: Rows | Table | SummaryTable, weights: FloatArray | None) -> None:
    """Raise InputError if values of an array are too large for secure sums; a table's columns are scaled."""
    if isinstance(rows, np.ndarray) and rows.size:
        mass = float(len(rows)) if weights is None else float(np.sum(weights))
        check_range(f"site {name}", float(np.abs(rows).max()), max(mass, 1.0) * rows.shape[1])
