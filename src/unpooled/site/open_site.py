"""Open a site under its policy: its copy (or its rows, where the policy says so), rules, ledger and log.

All files are in one folder of the site's own. A site that was killed and opened again gives the same bytes
for the same turn.
"""

from pathlib import Path
from typing import Any

import numpy as np

from unpooled.core import codec
from unpooled.core.arrays import FloatArray
from unpooled.core.messages import SiteId
from unpooled.data.copy import Copy
from unpooled.data.table import Table
from unpooled.errors import BadInput, LedgerError, NotApproved, PolicyError
from unpooled.privacy.copy import CopySettings, make_copy
from unpooled.site.allow_list import SCHEMA, only_totals
from unpooled.site.copy_folder import CopyFolder
from unpooled.site.guards import Allowed, Limits, NoNoise, Sight, SumsOnly
from unpooled.site.ledger import Ledger
from unpooled.site.log import AuditLog, Log, check_ledger
from unpooled.site.policy import Policy
from unpooled.site.site import Guard, Mask, Site


def open_site(
    name: SiteId,
    table: Any = None,
    policy: Policy | None = None,
    folder: str | Path | None = None,
    *,
    weights: FloatArray | None = None,
    member: Any = None,
    threads: int = 1,
) -> Site:
    """A site that answers under ``policy``: by default from a copy, of which ``folder`` keeps the files.

    ``table`` is a Table, a DataFrame, a mapping of columns, or an array (n, d). It is read while the copy is
    made, and is not needed where ``folder`` has one; a copy in a folder is answered from once it is approved
    (``unpooled copy approve``), or if the policy has ``auto = true``. Without a folder nothing is written:
    for simulation. ``member`` is the site's part in secure sums; by default that of ``roster.toml`` in the
    folder.
    """
    policy = Policy() if policy is None else policy
    if policy.site.id and policy.site.id != name:
        raise LedgerError(f"the policy is that of site {policy.site.id}, opened as {name}")
    home = Path(folder) if folder is not None else None
    mode = policy.protect.mode
    ledger: Ledger | None = None
    held: dict[str, Any] = {}
    if mode == "copy":
        if weights is not None:
            raise BadInput("weights of rows do not go with a copy: in it every person counts once")
        copy, digest = _copy(table, policy, home)
        held = answered_from(copy)
    else:
        if table is None:
            raise BadInput(f'mode "{mode}" answers from rows, and none were given')
        minimum = policy.protect.min_cluster_size if mode == "trusted" else 1
        held = {"X": as_table(table), "weights": weights, "min_cluster_size": minimum}
        digest = ""
    if home is not None:
        home.mkdir(parents=True, exist_ok=True)
    guards: list[Guard] = [Allowed(policy), Sight()]
    mask = _mask(name, policy, home, member)
    if policy.aggregation.secure == "required" and mask is None:
        guards.append(SumsOnly())
    if mode == "copy":
        guards.append(NoNoise())
    else:
        ledger = Ledger(None if home is None else home / "ledger.sqlite", name)
        guards.append(Limits(policy, ledger))  # last: a refusal costs nothing
    log = None if home is None else Log(home / "log.jsonl")
    if log is not None and ledger is not None:
        try:
            check_ledger(log, ledger)
        except LedgerError:
            log.close()
            ledger.close()
            raise
    books = AuditLog(name, policy, ledger, log, digest)
    return Site(
        name,
        **held,
        guards=guards,
        mask=mask,
        audit=books,
        threads=threads,
        max_message_bytes=policy.wire.max_message_bytes,
        answered=books.answered(),
    )


def answered_from(copy: Copy) -> dict[str, Any]:
    """The arguments of a Site that answers from a copy; the copy of an array is an array of groups."""
    if copy.named:
        return {"X": copy}
    return {
        "X": copy.matrix(),
        "weights": copy.persons,
        "grouped": True,
        "within": np.nan_to_num(copy.within),
    }


def _copy(table: Any, policy: Policy, home: Path | None) -> tuple[Copy, str]:
    """The copy in the site's folder, or one made now, and its digest; NotApproved if it is not approved."""
    settings = policy.protect.settings()
    if home is None:
        if table is None:
            raise BadInput("neither a table nor a folder with a copy was given")
        copy = make_copy(as_table(table), settings)
        return copy, copy.digest
    kept = CopyFolder(home)
    if not kept.exists:
        if table is None:
            raise BadInput(f"{home}: there is no copy; unpooled copy make writes one")
        kept.make(as_table(table), settings)
    copy = kept.read()
    _check_settings(settings, kept.settings(), copy.group_size)
    if not (policy.protect.auto or kept.approved):
        raise NotApproved(
            f"{kept.path}: nobody approved the copy yet; unpooled copy show {home} opens it, "
            f"unpooled copy approve {home} approves it"
        )
    return copy, kept.digest


def _check_settings(asked: CopySettings, made: CopySettings, group_size: int) -> None:
    """Raise PolicyError if the copy was made with less protection than the policy asks for."""
    if asked.g > group_size:
        raise PolicyError(f"[protect] g = {asked.g}, but the copy has groups from {group_size} persons on")
    for name in ("person", "sensitive", "log"):
        wanted, is_so = getattr(asked, name), getattr(made, name)
        if wanted and wanted != is_so:
            raise PolicyError(f"[protect] {name} = {wanted!r}, but the copy was made with {is_so!r}")


def as_table(table: Any) -> Any:
    """A table as a site holds it: a Table, or an array (n, d) of numbers."""
    if isinstance(table, Table):
        return table
    if isinstance(table, np.ndarray):
        if table.ndim != 2:
            raise BadInput(f"rows must be an array (n, d), got one of shape {table.shape}")
        return table
    columns = getattr(table, "columns", None)
    if columns is not None:
        return Table.of({str(name): np.asarray(table[name]) for name in columns})
    if isinstance(table, dict):
        return Table.of(table)
    raise BadInput(f"rows must be a Table, a DataFrame, a mapping of columns or an array, got {type(table)}")


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
