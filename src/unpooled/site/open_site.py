"""Open a site under its policy: its summary table (or its rows, by the policy), rules, ledger and log.

All files are in one folder of the site's own. A site that was killed and opened again gives the same bytes
for the same request.
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
    """Open a site that answers under ``policy``: by default from a summary table in ``folder``.

    Parameters
    ----------
    table
        A Table, a DataFrame, a mapping of columns, or an array (n, d). It is read to make the summary table,
        and is not needed if ``folder`` has one.
    folder
        The site's own folder. The site answers from a summary table in it once the table is approved
        (``unpooled site approve``), or if the policy has ``auto_approve = true``. Without a folder, for
        simulation, nothing is written.
    member
        The site's part in secure sums; by default that of the identity in the folder.
    authority
        The coordinator's public key, from the site's invitation. With it the site accepts participant lists
        of secure sums and countersigned heads of the log only if this key signed them.
    what
        The activity that other processes read while the log is in use.
    study
        Restricts a run between machines to an approved study; the log must have the approval.
    """
    policy = Policy() if policy is None else policy
    if policy.site.id and policy.site.id != name:
        raise LedgerError(f"the policy is for site {policy.site.id}, and the site was opened as {name}")
    home = Path(folder) if folder is not None else None
    if home is not None:
        check_protection(home / "log.jsonl", policy.protect.mode)
    if not policy.private:
        _check_no_noise_before(name, home)
    if home is not None:
        SummaryFolder(home).recover()  # after a kill
    erased = ErasureGuard(
        None if home is None else home / ERASURES
    )  # reads the erasures before the table is read
    source, digest = _answer_source(table, policy, home, weights)
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
        mask = _mask(name, policy, home, source["X"], member, ledger, authority, study)
        mark = "" if registry is None else registry.mark
        bound = "" if study is None else study.digest
        single_source = SingleSourceGuard(
            ledger, source_digest(policy.protect.mode, digest, policy.answer_rules_digest, bound)
        )
        first = [] if study is None else [study]
        guards = [*first, single_source, erased, *_guards(policy, ledger, mask, study)]
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
        **source,
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
    """Raise LedgerError if the site answered with differential privacy, which other answers would void."""
    if home is None or not (home / "ledger.sqlite").exists():
        return
    ledger = Ledger(home / "ledger.sqlite", name)
    spent = ledger.spent()
    ledger.close()
    if spent:
        raise LedgerError(
            f"{home}: the site answered with differential privacy before, and another mode would void its "
            "promise. Use a folder of its own."
        )


def _answer_source(
    table: Any, policy: Policy, home: Path | None, weights: FloatArray | None
) -> tuple[dict[str, Any], str]:
    """The arguments of a Site for what it answers from, and the digest of its summary table, "" if none."""
    mode = policy.protect.mode
    if mode == "summary":
        if weights is not None:
            raise InputError(
                "weights of rows do not go with a summary table, in which every person counts once. Open the "
                "site without weights."
            )
        summary, digest = _summary(table, policy, home)
        if home is not None and not SummaryFolder(home).registered:
            SummaryFolder(home).check_nobody_erased("a summary table without a person column")
        return site_arguments(summary), digest
    if table is None:
        raise InputError(f'mode = "{mode}" answers from rows, and there is no table. Give the rows as table.')
    if home is not None:
        SummaryFolder(home).check_nobody_erased(f'mode = "{mode}", which answers from rows,')
    if mode == "dp":
        if weights is not None:
            raise InputError(
                "weights of rows do not go with differential privacy: a weight would scale what a row adds. "
                "Open the site without weights."
            )
        return {"X": _declared(as_table(table), policy, home)}, ""
    return {"X": as_table(table), "weights": weights, "min_cluster_size": policy.protect.min_cluster_size}, ""


def _declared(table: Any, policy: Policy, home: Path | None) -> Any:
    """The rows of a site with mode = "dp": the declared columns, and at most ``rows_per_person`` of a person.

    LedgerError if the site has a summary table, which would void the promise of differential privacy.
    """
    if home is not None and SummaryFolder(home).exists:
        raise LedgerError(
            f'{home}: the folder has a summary table, and the policy has mode = "dp". Use a folder of its '
            "own."
        )
    domain, person = policy.domain, policy.protect.person if policy.dp.privacy_unit == "person" else ""
    if isinstance(table, np.ndarray):
        if person:
            raise PolicyError('[dp] privacy_unit = "person" is for tables with named columns')
        if len(table) > domain.rows:
            raise PolicyError(
                f"[domain] rows: the table has {len(table)} rows, more than the declared {domain.rows}"
            )
        return table
    if not domain.columns:
        raise PolicyError('[protect] mode = "dp" needs [domain] columns, with their lower and upper bounds')
    try:
        return BoundedTable.from_table(table, domain.columns, domain.rows, person, policy.dp.rows_per_person)
    except InputError as error:
        raise PolicyError(f"[domain] {error}") from error


def _guards(policy: Policy, ledger: Ledger, mask: Mask | None, study: StudyGuard | None) -> list[Guard]:
    """The guards of the policy; those that count answers come last, so a refusal costs nothing."""
    guards: list[Guard] = [AllowListGuard(policy), InputGuard()]
    if mask is None and policy.aggregation.secure == "required":
        guards.append(SecureSumsOnlyGuard())
    elif mask is None and study is not None and study.secure:
        guards.append(SecureSumsOnlyGuard("the approved study allows only secure sums"))
    approved = None if study is None else study.study
    last: dict[str, Guard] = {
        "summary": NoNoiseGuard(),
        "dp": BudgetGuard(policy, ledger, approved) if policy.private else NoNoiseGuard(),
        "raw": LimitsGuard(policy, ledger),
    }
    return [*guards, last[policy.protect.mode]]


def site_arguments(summary: SummaryTable) -> dict[str, Any]:
    """Return the arguments of a Site that answers from a summary table; that of an array is an array."""
    if summary.named:
        return {"X": summary}
    return {
        "X": summary.matrix(),
        "weights": summary.people,
        "grouped": True,
        "within": np.nan_to_num(summary.within),
    }


def _summary(table: Any, policy: Policy, home: Path | None) -> tuple[SummaryTable, str]:
    """The summary table in the folder, or a new one, and its digest; NotApprovedError if not approved."""
    settings = policy.protect.settings()
    if home is None:
        if table is None:
            raise InputError("there is neither a table nor a folder with a summary table. Give one of them.")
        check_declared(policy, settings.consumption)
        summary = microaggregate(as_table(table), settings)
        return summary, summary.digest
    kept = SummaryFolder(home)
    if not kept.exists:
        if table is None:
            raise InputError(f"{home}: there is no summary table. Make one with unpooled site summarize.")
        check_declared(policy, settings.consumption)
        kept.make(as_table(table), settings)
    summary = kept.read()
    check_declared(policy, kept.settings().consumption)
    _check_settings(settings, kept.settings(), summary.min_group_size)
    if not (policy.protect.auto_approve or kept.approved):
        raise NotApprovedError(
            f"{kept.path}: nobody approved the summary table yet. Review it with unpooled site review "
            f"{home}, then approve it with unpooled site approve {home} --table."
        )
    if not len(summary):
        raise InputError(
            f"{home}: the summary table has no group left after an erasure. Update it with unpooled site "
            "summarize."
        )
    if kept.registered:
        if not kept.approved:
            kept.adopt_proposal("auto_approve = true in the policy")
        with Registry.open(home) as people:
            kept.check_registry(people)
    return summary, kept.digest


def _check_settings(required: SummarySettings, made: SummarySettings, min_group_size: int) -> None:
    """Raise PolicyError if the summary table was made with less protection than the policy requires."""
    if required.min_group_size > min_group_size:
        raise PolicyError(
            f"[protect] min_group_size = {required.min_group_size}, but the summary table has groups of "
            f"{min_group_size} people"
        )
    if required.consumption and made.max_share > required.max_share:
        raise PolicyError(
            f"[protect] max_share = {required.max_share:g}, but the summary table was made with "
            f"{made.max_share:g}"
        )
    for name in ("person", "sensitive", "log", "consumption"):
        rule, setting = getattr(required, name), getattr(made, name)
        if rule and rule != setting:
            raise PolicyError(f"[protect] {name} = {rule!r}, but the summary table was made with {setting!r}")


def as_table(table: Any) -> Any:
    """Return a table as a site holds it: a Table, or an array (n, d) of numbers."""
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
    """The site's part in secure sums, by its policy; its identity and its state are in its folder."""
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
        raise PolicyError(f"the policy requires sums over {rule.min_sites} sites, got {member.min_sites}")
    return SiteMask(
        member,
        required=rule.secure == "required" or (study is not None and study.secure),
        allowed_in_clear=tuple(map(codec.name_of, SCHEMA)),
        suggested_methods=aggregate_only(),
        honest_sites=policy.dp.honest_sites,
        bounds=None if policy.private else FixedPointRange(X),
    )
