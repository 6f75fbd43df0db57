"""The transport to sites in this process: request and response are bytes, as between machines."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from unpooled.privacy.secure_sum import SecureSums, check_range
from unpooled.protocol.exchange import Transport
from unpooled.protocol.messages import SiteId
from unpooled.site.allow_list import aggregate_only
from unpooled.site.endpoint import Endpoint
from unpooled.site.site import Site
from unpooled.typing import FloatArray


class PlainSite(NamedTuple):
    """The rows of a site without rules of its own."""

    name: SiteId
    rows: Any  # an array, a Table or a SummaryTable
    weights: FloatArray | None
    within: FloatArray | None
    grouped: bool
    minimum: int


class LocalTransport(Transport):
    """The Transport within one process. A site that fails ends the run, unless ``tolerate_failures``."""

    def __init__(self, sites: Mapping[SiteId, Endpoint], tolerate_failures: bool = False) -> None:
        self._sites, self._tolerate_failures = sites, tolerate_failures
        self.sites = tuple(sites)

    def send_and_receive(self, requests: Mapping[SiteId, bytes]) -> dict[SiteId, bytes | str]:
        if self._tolerate_failures:
            return {name: self._sites[name].respond(data) for name, data in requests.items()}
        return {name: self._sites[name].receive(data) for name, data in requests.items()}


def make_sites(
    plain_sites: Sequence[PlainSite],
    minimum: int,
    secure: SecureSums | None,
    allowed_in_clear: tuple[str, ...],
) -> tuple[list[Site], SecureSums | None]:
    """Return a Site for each, with a mask if secure sums are used, and the settings of the secure sums."""
    masks: Mapping[SiteId, Any] = {}
    if secure is not None:
        from unpooled.privacy.secure_sum.site_mask import site_masks

        for site in plain_sites:
            _check_range(site.name, site.rows, site.weights)
        secure = replace(secure, min_cluster_size=max(secure.min_cluster_size, minimum))
        names = tuple(site.name for site in plain_sites)
        masks = site_masks(
            names,
            min_sites=secure.min_sites,
            required=True,
            allowed_in_clear=allowed_in_clear,
            suggested_methods=aggregate_only(),
        )
    sites = [
        Site(
            site.name,
            site.rows,
            site.weights,
            grouped=site.grouped,
            within=site.within,
            min_cluster_size=minimum,
            mask=masks.get(site.name),
        )
        for site in plain_sites
    ]
    return sites, secure


def _check_range(name: SiteId, rows: Any, weights: FloatArray | None) -> None:
    """Raise InputError if values of an array are too large for secure sums; a table's columns are scaled."""
    if isinstance(rows, np.ndarray) and rows.size:
        mass = float(len(rows)) if weights is None else float(np.sum(weights))
        check_range(f"site {name}", float(np.abs(rows).max()), max(mass, 1.0) * rows.shape[1])
