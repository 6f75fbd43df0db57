"""Open a site under its policy: its copy (or its rows, where the policy says so), rules, ledger and log.

All files are in one folder of the site's own. A site that was killed and opened again gives the same bytes
for the same turn.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from unpooled.data.bounded_table import BoundedTable
from unpooled.data.summary_table import SummaryTable
from unpooled.data.table import Table
from unpooled.errors import InputError, LedgerError, NotApprovedError, PolicyError
from unpooled.privacy.microaggregation import SummarySettings, microaggregate
from unpooled.protocol import codec
from unpooled.protocol.messages import SiteId
from unpooled.site.allow_list import SCHEMA, aggregate_only
from unpooled.site.audit_log import AuditLog, check_audit_trail, check_protection
from unpooled.site.budget_guard import BudgetGuard
from unpooled.site.fixed_point_range import FixedPointRange
from unpooled.site.guards import (
    AllowListGuard,
    ErasureGuard,
    InputGuard,
    LimitsGuard,
    NoNoiseGuard,
    SecureSumsOnlyGuard,
)
from unpooled.site.ledger import Ledger, SumLedger
from unpooled.site.log import Log
from unpooled.site.people_register import FILE as REGISTRY
from unpooled.site.people_register import Registry
from unpooled.site.policy import Policy, check_declared
from unpooled.site.single_source_guard import SingleSourceGuard, source_digest
from unpooled.site.site import Guard, Mask, Site
from unpooled.site.study_guard import StudyGuard
from unpooled.site.table_store import ERASURES, SummaryFolder
from unpooled.typing import FloatArray


def open_site(
    name: SiteId,
    table: Any = None,
    policy: Policy | None = None,
    folder: str | Path | None = None,
    *,
    weights: FloatArray | None = None,
    member: Any = None,
    authority: bytes | None = None,
    threads: int = 1,
    what: str = "another program",
    study: StudyGuard | None = None,
) -> Site:
    """A site that answers under ``policy``: by default from a copy, of which ``folder`` keeps the files.

    ``table`` is a Table, a DataFrame, a mapping of columns, or an array (n, d). It is read while the copy is
    made, and is not needed where ``folder`` has one; a copy in a folder is answered from once it is approved
    (``unpooled site approve``), or if the policy has ``auto_approve = true``. Without a folder nothing is written:
    for simulation. ``authority`` is the coordinator's public key, from the site's invitation: with it,
    rosters of secure sums and countersigned heads of the log are taken only if it signed them. ``member`` is
    the site's part in secure sums; by default that of the identity in the folder. ``what`` is the activity
    that others read who find the log in use.
    ``study`` holds a run between machines to what was approved; the log must have the approval.
    """
    policy = Policy() if policy is None else policy
    if policy.site.id and policy.site.id != name:
        raise LedgerError(f"the policy is that of site {policy.site.id}, opened as {name}")
    home = Path(folder) if folder is not None else None
    if home is not None:
        check_protection(home / "log.jsonl", policy.protect.mode)
    if not policy.private:
        _check_no_noise_before(name, home)
    if home is not None:
        SummaryFolder(home).recover()  # what a kill cut off
    erased = ErasureGuard(None if home is None else home / ERASURES)  # looks before the copy is read
    held, digest = _answer_source(table, policy, home, weights)
    if home is not None:
        home.mkdir(parents=True, exist_ok=True)
    registry = Registry(home) if home is not None and (home / REGISTRY).exists() else None
    ledger = Ledger(None if home is None else home / "ledger.sqlite", name)
    log: Log | None = None
    try:
        if home is not None:
            log = Log(home / "log.jsonl", what)
            check_audit_trail(log, ledger, registry)
            if study is not None:
                study.check(log)
        mask = _mask(name, policy, home, held["X"], member, ledger, authority, study)
        mark = "" if registry is None else registry.mark
        bound = "" if study is None else study.digest
        one = SingleSourceGuard(
            ledger, source_digest(policy.protect.mode, digest, policy.answer_rules_digest, bound)
        )
        guards = [*([] if study is None else [study]), one, erased, *_guards(policy, ledger, mask, study)]
        audit_trail = AuditLog(
            name, policy, ledger, log, summary=digest, registry=mark, authority=authority, study=bound
        )
        answered = audit_trail.answered()
    except BaseException:
        ledger.close()
        if log is not None:
            log.close()
        raise
    finally:
        if registry is not None:
            registry.close()
    return Site(
        name,
        **held,
        guards=guards,
        mask=mask,
        audit=audit_trail,
        threads=threads,
        max_message_bytes=policy.wire.max_message_bytes,
        answered=answered,
        key=_fingerprint(home),
    )


def _fingerprint(home: Path | None) -> str:
    """The fingerprint of the site's key; "" where it has none."""
    if home is None or not find_spec("cryptography"):
        return ""
    from unpooled.site.identity import fingerprint_in

    return fingerprint_in(home)


def _check_no_noise_before(name: SiteId, home: Path | None) -> None:
    """Raise LedgerError if the site has answered with noise: another protection would void it afterwards."""
    if home is None or not (home / "ledger.sqlite").exists():
        return
    ledger = Ledger(home / "ledger.sqlite", name)
    spent = ledger.spent()
    ledger.close()
    if spent:
        raise LedgerError(
            f"{home}: answered with noise before; another protection would void what noise promised, so it "
            "needs a folder of its own"
        )


def _answer_source(
    table: Any, policy: Policy, home: Path | None, weights: FloatArray | None
) -> tuple[dict[str, Any], str]:
    """The arguments of a Site for what it answers from, and the digest of its copy, "" if it has none."""
    mode = policy.protect.mode
    if mode == "summary":
        if weights is not None:
            raise InputError("weights of rows do not go with a copy: in it every person counts once")
        copy, digest = _summary(table, policy, home)
        if home is not None and not SummaryFolder(home).registered:
            SummaryFolder(home).check_nobody_erased("a copy whose rows name no persons")
        return site_arguments(copy), digest
    if table is None:
        raise InputError(f'mode "{mode}" answers from rows, and none were given')
    if home is not None:
        SummaryFolder(home).check_nobody_erased(f'mode = "{mode}", which answers from rows,')
    if mode == "dp":
        if weights is not None:
            raise InputError(
                "weights of rows do not go with noise, because a weight would scale what a row adds. "
                "Open the site without weights."
            )
        return {"X": _declared(as_table(table), policy, home)}, ""
    return {"X": as_table(table), "weights": weights, "min_cluster_size": policy.protect.min_cluster_size}, ""


def _declared(table: Any, policy: Policy, home: Path | None) -> Any:
    """The rows of a site that answers with noise: of the declared columns, at most so many of a person.

    LedgerError where the site has a copy: what noise promises would be void with it.
    """
    if home is not None and SummaryFolder(home).exists:
        raise LedgerError(f'{home}: has a copy, and the policy has mode = "dp": a site has one or the other')
    domain, person = policy.domain, policy.protect.person if policy.dp.privacy_unit == "person" else ""
    if isinstance(table, np.ndarray):
        if person:
            raise PolicyError('[dp] privacy_unit = "person" is for tables with named columns')
        if len(table) > domain.rows:
            raise PolicyError(
                f"[domain] rows: {len(table)} rows, more than the {domain.rows} that are declared"
            )
        return table
    if not domain.columns:
        raise PolicyError('[protect] mode = "dp" needs [domain] columns, with their lower and upper bounds')
    try:
        return BoundedTable.from_table(table, domain.columns, domain.rows, person, policy.dp.rows_per_person)
    except InputError as error:
        raise PolicyError(f"[domain] {error}") from error


def _guards(policy: Policy, ledger: Ledger, mask: Mask | None, study: StudyGuard | None) -> list[Guard]:
    """The rules of the policy, those last that count what was answered: a refusal costs nothing."""
    guards: list[Guard] = [AllowListGuard(policy), InputGuard()]
    if mask is None and policy.aggregation.secure == "required":
        guards.append(SecureSumsOnlyGuard())
    elif mask is None and study is not None and study.secure:
        guards.append(SecureSumsOnlyGuard("the approved study has only secure sums"))
    approved = None if study is None else study.study
    last: dict[str, Guard] = {
        "summary": NoNoiseGuard(),
        "dp": BudgetGuard(policy, ledger, approved) if policy.private else NoNoiseGuard(),
        "raw": LimitsGuard(policy, ledger),
    }
    return [*guards, last[policy.protect.mode]]


def site_arguments(copy: SummaryTable) -> dict[str, Any]:
    """The arguments of a Site that answers from a copy; the copy of an array is an array of groups."""
    if copy.named:
        return {"X": copy}
    return {
        "X": copy.matrix(),
        "weights": copy.people,
        "grouped": True,
        "within": np.nan_to_num(copy.within),
    }


def _summary(table: Any, policy: Policy, home: Path | None) -> tuple[SummaryTable, str]:
    """The copy in the site's folder, or one made now, and its digest; NotApprovedError if it is not approved."""
    settings = policy.protect.settings()
    if home is None:
        if table is None:
            raise InputError("neither a table nor a folder with a copy was given")
        check_declared(policy, settings.consumption)
        copy = microaggregate(as_table(table), settings)
        return copy, copy.digest
    kept = SummaryFolder(home)
    if not kept.exists:
        if table is None:
            raise InputError(f"{home}: there is no copy; unpooled site summarize writes one")
        check_declared(policy, settings.consumption)
        kept.make(as_table(table), settings)
    copy = kept.read()
    check_declared(policy, kept.settings().consumption)
    _check_settings(settings, kept.settings(), copy.min_group_size)
    if not (policy.protect.auto_approve or kept.approved):
        raise NotApprovedError(
            f"{kept.path}: nobody approved the copy yet; unpooled site review {home} opens it, "
            f"unpooled site approve {home} approves it"
        )
    if not len(copy):
        raise InputError(
            f"{home}: no group of the copy is left after an erasure; unpooled site summarize shows others"
        )
    if kept.registered:
        if not kept.approved:
            kept.adopt_proposal("auto_approve = true in the policy")
        with Registry.open(home) as people:
            kept.check_registry(people)
    return copy, kept.digest


def _check_settings(asked: SummarySettings, made: SummarySettings, min_group_size: int) -> None:
    """Raise PolicyError if the copy was made with less protection than the policy asks for."""
    if asked.min_group_size > min_group_size:
        raise PolicyError(
            f"[protect] min_group_size = {asked.min_group_size}, but the copy has groups from {min_group_size} persons on"
        )
    if asked.consumption and made.max_share > asked.max_share:
        raise PolicyError(
            f"[protect] max_share = {asked.max_share:g}, but the copy was made with {made.max_share:g}"
        )
    for name in ("person", "sensitive", "log", "consumption"):
        wanted, is_so = getattr(asked, name), getattr(made, name)
        if wanted and wanted != is_so:
            raise PolicyError(f"[protect] {name} = {wanted!r}, but the copy was made with {is_so!r}")


def as_table(table: Any) -> Any:
    """A table as a site holds it: a Table, or an array (n, d) of numbers."""
    if isinstance(table, Table):
        return table
    if isinstance(table, np.ndarray):
        if table.ndim != 2:
            raise InputError(f"rows must be an array (n, d), got one of shape {table.shape}")
        return table
    columns = getattr(table, "columns", None)
    if columns is not None:
        return Table.from_columns({str(name): np.asarray(table[name]) for name in columns})
    if isinstance(table, dict):
        return Table.from_columns(table)
    raise InputError(
        f"rows must be a Table, a DataFrame, a mapping of columns or an array, got {type(table)}"
    )


def _mask(
    name: SiteId,
    policy: Policy,
    home: Path | None,
    X: Any,
    member: Any,
    ledger: Ledger,
    authority: bytes | None,
    study: StudyGuard | None,
) -> Mask | None:
    """The site's part in secure sums, as its policy says; its identity and its state are in its folder."""
    rule = policy.aggregation
    if rule.secure == "off" or (member is None and (home is None or not find_spec("cryptography"))):
        return None
    from unpooled.privacy.secure_sum.site_mask import SiteMask
    from unpooled.privacy.secure_sum.sum_member import Member
    from unpooled.site.identity import identity_in

    if member is None:
        assert home is not None
        store = SumLedger(ledger)
        member = Member(name, identity_in(home), min_sites=rule.min_sites, authority=authority, store=store)
    if member.min_sites < rule.min_sites:
        raise PolicyError(f"the policy asks for sums over {rule.min_sites} sites, got {member.min_sites}")
    return SiteMask(
        member,
        required=rule.secure == "required" or (study is not None and study.secure),
        allowed_in_clear=tuple(map(codec.name_of, SCHEMA)),
        suggested_methods=aggregate_only(),
        honest_sites=policy.dp.honest_sites,
        bounds=None if policy.private else FixedPointRange(X),
    )
