"""Sites of this process that answer for themselves: each is asked with bytes, through its own door."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from unpooled.privacy.secure_sum import SecureSums, check_range
from unpooled.protocol.messages import SiteId
from unpooled.site import Site
from unpooled.site.allow_list import aggregate_only
from unpooled.typing import FloatArray


class PlainSite(NamedTuple):
    """The rows of a site without rules of its own."""

    name: SiteId
    rows: Any  # an array, a Table or a Copy
    weights: FloatArray | None
    within: FloatArray | None
    grouped: bool
    minimum: int


class LocalTransport:
    """The carrier within one process: a site that fails ends the run, unless ``tolerate_failures``."""

    def __init__(self, sites: Mapping[SiteId, Site], tolerate_failures: bool = False) -> None:
        self._sites, self._tolerate_failures = sites, tolerate_failures

    @property
    def sites(self) -> tuple[SiteId, ...]:
        return tuple(self._sites)

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
    """A Site for each, with its part in secure sums if they are used, and the settings of these."""
    masks: Mapping[SiteId, Any] = {}
    if secure is not None:
        from unpooled.privacy.secure_sum.site_mask import site_masks

        for h in plain_sites:
            _check_range(h.name, h.rows, h.weights)
        secure = replace(secure, min_cluster_size=max(secure.min_cluster_size, minimum))
        names = tuple(h.name for h in plain_sites)
        masks = site_masks(
            names,
            min_sites=secure.min_sites,
            required=True,
            allowed_in_clear=allowed_in_clear,
            suggested_methods=aggregate_only(),
        )
    sites = [
        Site(
            h.name,
            h.rows,
            h.weights,
            grouped=h.grouped,
            within=h.within,
            min_cluster_size=minimum,
            mask=masks.get(h.name),
        )
        for h in plain_sites
    ]
    return sites, secure


def _check_range(name: SiteId, rows: Any, weights: FloatArray | None) -> None:
    """InputError if the rows of an array are too large for secure sums; a table's columns have units."""
    if isinstance(rows, np.ndarray) and rows.size:
        mass = float(len(rows)) if weights is None else float(np.sum(weights))
        check_range(f"site {name}", float(np.abs(rows).max()), max(mass, 1.0) * rows.shape[1])
