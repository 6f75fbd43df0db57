"""Open a site under its policy: rows, rules, ledger, log, and its latest answers.

All files are in one folder of the site's own. A site that was killed and opened again gives the same bytes
for the same turn, and is not charged for it again.
"""

from pathlib import Path
from typing import Any

from unpooled.core import codec
from unpooled.core.arrays import FloatArray, Rows
from unpooled.core.messages import SiteId
from unpooled.errors import LedgerError, PolicyError
from unpooled.site.allow_list import SCHEMA, only_totals
from unpooled.site.differencing import Differencing
from unpooled.site.guards import Allowed, Centroids, Charging, Rounded, Sight, Sizes, SumsOnly
from unpooled.site.ledger import Ledger
from unpooled.site.log import AuditLog, Log
from unpooled.site.microaggregation import Grouping
from unpooled.site.policy import Policy
from unpooled.site.site import Guard, Mask, Site


def open_site(
    name: SiteId,
    X: Rows,
    policy: Policy,
    *,
    folder: str | Path | None = None,
    weights: FloatArray | None = None,
    member: Any = None,
    threads: int = 1,
) -> Site:
    """A site that enforces ``policy`` and keeps its ledger and log in ``folder``.

    Without a folder nothing is written, and limits count within this process only: for simulation.
    ``member`` is the site's part in secure sums (``secure_sum.site.Member``): its identity, and the pinned
    identities; by default those of ``roster.toml`` in the folder, if there is one.
    """
    if policy.site.id and policy.site.id != name:
        raise LedgerError(f"the policy is that of site {policy.site.id}, opened as {name}")
    home = Path(folder) if folder is not None else None
    if home is not None:
        home.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(None if home is None else home / "ledger.sqlite", name)
    books = AuditLog(name, policy, ledger, None if home is None else Log(home / "log.jsonl"))
    differencing = policy.disclosure.differencing
    guards: list[Guard] = [Allowed(policy), Sight(), Sizes(policy), Centroids(policy)]
    mask = _mask(name, policy, home, member)
    if policy.aggregation.secure == "required" and mask is None:
        guards.append(SumsOnly())
    if differencing != "off":
        books.watch = Differencing(
            ledger, policy.disclosure.min_cluster_size, refuse=differencing == "refuse"
        )
        guards.append(books.watch)
    grouped = policy.disclosure.group_rows
    guards += [Rounded(policy), Charging(policy, ledger)]  # charged last: a refusal costs nothing
    return Site(
        name,
        X,
        weights,
        min_cluster_size=max(policy.disclosure.min_cluster_size, grouped),
        guards=guards,
        blur=Grouping(ledger, grouped) if grouped else None,
        mask=mask,
        audit=books,
        threads=threads,
        max_message_bytes=policy.wire.max_message_bytes,
        answered=books.answered(),
    )


def _mask(name: SiteId, policy: Policy, home: Path | None, member: Any) -> Mask | None:
    """The site's part in secure sums, as its policy says."""
    rule = policy.aggregation
    if rule.secure == "off":
        return None
    if member is None and home is not None and (home / "roster.toml").exists():
        from unpooled.site.identity import member_in

        member = member_in(name, home, min_sites=rule.min_sites)
    if member is None:
        return None
    from unpooled.privacy.secure_sum.site_mask import Masking

    if member.min_sites < rule.min_sites:
        raise PolicyError(f"the policy asks for sums over {rule.min_sites} sites, got {member.min_sites}")
    return Masking(
        member,
        required=rule.secure == "required",
        shown=tuple(map(codec.name_of, SCHEMA)),
        instead=only_totals(),
    )
