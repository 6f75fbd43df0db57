"""Open a site under its policy: its summary table (or its rows, by the policy), rules, ledger and log.

All files are in one folder of the site's own. A site that was killed and opened again gives the same bytes
for the same request.
"""

import logging
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from unpooled.data.bounded_table import BoundedTable
from unpooled.data.summary_table import SummaryTable
from unpooled.data.table import Table
from unpooled.errors import InputError, LedgerError, NotApprovedError, PolicyError
from unpooled.privacy.microaggregation import SummarySettings, microaggregate
from unpooled.protocol import codec
from unpooled.protocol.messages import SiteId
from unpooled.site.allow_list import SCHEMA, aggregate_only
from unpooled.site.audit_log import AuditLog, LogHeadGuard
from unpooled.site.budget_guard import BudgetGuard
from unpooled.site.chain import AnswerSource, Chain, VisibleRows
from unpooled.site.chain_steps import (
    AnswerStep,
    ChargedAnswers,
    FailureStep,
    LedgerStep,
    MaskStep,
    NoiseStep,
    ReplayCache,
    StagesStep,
    SuppressionStep,
    TransactionStep,
    TransformStep,
)
from unpooled.site.equation_budget import EquationBudget, rows_digest
from unpooled.site.fixed_point_range import FixedPointRange
from unpooled.site.folder_consistency import check_registry, check_site_folder
from unpooled.site.folder_place import check_place
from unpooled.site.guards import (
    AllowListGuard,
    ErasureGuard,
    InputGuard,
    NoNoiseGuard,
    RequestIdGuard,
    RoundGuard,
    SecureSumsOnlyGuard,
    SingleSourceGuard,
    source_digest,
)
from unpooled.site.ledger import Ledger, RunLimits, SumLedger
from unpooled.site.log import Log
from unpooled.site.message_limits import MessageLimitsGuard
from unpooled.site.people_register import FILE as REGISTRY
from unpooled.site.people_register import Registry
from unpooled.site.policy import Policy, check_declared
from unpooled.site.site import Site
from unpooled.site.study_guard import StudyGuard, StudyLimitsGuard
from unpooled.site.table_store import ERASURES, SummaryFolder
from unpooled.typing import FloatArray, Rows

if TYPE_CHECKING:
    from unpooled.privacy.secure_sum.site_mask import SiteMask
    from unpooled.privacy.secure_sum.sum_member import Member

DP_INTERVAL = 0.25  # seconds: a site in mode "dp" responds at multiples of it (Endpoint.interval)


logger = logging.getLogger(__name__)


class DataFrame(Protocol):
    """A data frame of any package."""

    @property
    def columns(self) -> Iterable[str]: ...
    def __getitem__(self, name: str) -> npt.ArrayLike: ...


TableLike = Table | Rows | DataFrame | Mapping[str, npt.ArrayLike]


def open_site(
    name: SiteId,
    table: TableLike | None = None,
    policy: Policy | None = None,
    folder: str | Path | None = None,
    *,
    weights: FloatArray | None = None,
    member: "Member | None" = None,
    authority: bytes | None = None,
    threads: int = 1,
    what: str = "another program",
    study: StudyGuard | None = None,
) -> Site:
    """Open a site that answers under ``policy``: by default from a summary table in ``folder``.

    Parameters
    ----------
    name : str
        The name of the site.
    table : table or None
        A Table, a DataFrame, a mapping of columns, or an array (n, d). It is read to make the summary table,
        and is not needed if ``folder`` has one.
    policy : Policy or None
        The rules of the site; None takes the default policy. To make a summary table, they must declare which
        rows belong to one person: ``person`` or ``one_row_per_person`` in ``[protect]``. With a folder, they
        must also declare the sensitive columns: ``diverse``, ``sensitive`` or ``no_sensitive_columns``.
    folder : path or None
        The site's own folder. The site answers from a summary table in it once the table is approved
        (``unpooled site approve``), or if the policy has ``auto_approve = true``. Without a folder, for
        simulation, nothing is written.
    weights : array of shape (n,) or None
        The weight of each row.
    member : Member or None
        The site's part in secure sums; by default that of the identity in the folder.
    authority : bytes or None
        The coordinator's public key, from the site's invitation. With it the site accepts participant lists
        of secure sums and countersigned heads of the log only if this key signed them.
    threads : int
        Threads of the kernels.
    what : str
        The activity that other processes read while the log is in use.
    study : StudyGuard or None
        Restricts a run between machines to an approved study; the log must have the approval.

    Returns
    -------
    Site
        The open site. Close it to release its log.

    Raises
    ------
    PolicyError
        If the policy cannot be kept with this table.
    InputError
        If the table cannot be used, or the folder's files do not agree with each other.

    Examples
    --------
    >>> from unpooled.site.policy import parse
    >>> policy = parse('format = 1\\n[protect]\\nmode = "raw"')
    >>> open_site("north", np.zeros((9, 2)), policy).name
    'north'
    """
    policy = Policy() if policy is None else policy
    if policy.site.id and policy.site.id != name:
        raise LedgerError(f"the policy is for site {policy.site.id}, and the site was opened as {name}")
    home = Path(folder) if folder is not None else None
    only_secure = policy.aggregation.secure == "required" or (study is not None and study.secure)
    rows = _from_rows(table, policy, weights, only_secure=only_secure)  # before any file is made
    with ExitStack() as opened:
        tables = None if home is None else _recovered(home)
        log = None if tables is None else _open_log(tables.folder, what)
        if log is not None:
            opened.callback(log.close)
        federation = "" if authority is None else authority.hex()
        ledger = Ledger(None if home is None else home / "ledger.sqlite", name, federation)
        opened.callback(ledger.close)
        if tables is not None and log is not None:
            _check_folder(tables, log, ledger, policy, study)
        if rows is not None and tables is not None:
            _check_rows_allowed(tables, policy.protect.mode, rows.groups)
        erasures = ErasureGuard(None if home is None else home / ERASURES)  # before the table is read
        source = _from_summary(table, policy, tables) if rows is None else rows
        recorder = AuditLog(
            name,
            policy,
            ledger,
            log,
            summary=source.digest,
            registry=_registry_mark(home),
            authority=authority,
            study="" if study is None else study.digest,
            federation="" if study is None else study.study.federation,
        )
        mask = _mask(name, policy, home, source.X, member, ledger, authority, study)
        chain = _chain(name, policy, source, recorder, ledger, mask, study, erasures, threads)
        recorder.record_opening()
        opened.pop_all()  # from here on the site closes them
    return Site(
        name,
        source.X,
        source.weights,
        grouped=source.grouped,
        within=source.within,
        min_cluster_size=source.min_cluster_size,
        log=recorder,
        max_message_bytes=policy.wire.max_message_bytes,
        key=_fingerprint(home),
        interval=DP_INTERVAL if policy.private else 0.0,
        chain=chain,
    )


def _chain(
    name: SiteId,
    policy: Policy,
    source: "AnswerSource",
    log: AuditLog,
    ledger: Ledger,
    mask: "SiteMask | None",
    study: StudyGuard | None,
    erasures: ErasureGuard,
    threads: int,
) -> Chain:
    """The chain of a site under its policy, in the order of ``chain.CHAIN``."""
    mode, bound = policy.protect.mode, "" if study is None else study.digest
    single_source = SingleSourceGuard(
        ledger, source_digest(mode, source.digest, policy.answer_rules_digest, bound)
    )
    budget = BudgetGuard(policy, ledger, None if study is None else study.study) if policy.private else None
    limits = RunLimits(policy.jobs.max_runs, policy.jobs.max_rounds, inf) if mode == "raw" else None
    equations = _equations(policy, source, ledger)
    return Chain(
        LogHeadGuard(log),
        RequestIdGuard(),
        FailureStep(log),
        study,
        single_source,
        erasures,
        ReplayCache(log.answered()),
        log,
        None if budget is None else ChargedAnswers(ledger),
        MessageLimitsGuard(source.X),
        StagesStep(mask),
        TransformStep(source.visible, grouped=source.grouped, raw=source.raw, equations=equations),
        None if study is None else StudyLimitsGuard(study.study),
        AllowListGuard(policy),
        InputGuard(),
        _secure_sums_only(policy, study) if mask is None else None,
        NoNoiseGuard() if mode == "summary" else RoundGuard(ledger),
        budget,
        SuppressionStep(source.min_cluster_size),
        NoiseStep(None if budget is None else budget.accountant, mask),
        AnswerStep(name, threads=threads, checked=True),
        TransactionStep(ledger, mask),
        None if mask is None else MaskStep(mask),
        study,
        erasures,
        LedgerStep(ledger, single_source, limits, equations),
    )


def _equations(policy: Policy, source: "AnswerSource", ledger: Ledger) -> EquationBudget | None:
    """The equation budget of a site that answers from raw rows; None: secure sums are not limited."""
    share = policy.aggregation.max_equations
    if policy.protect.mode != "raw" or share == 1:
        return None
    groups = source.groups
    if groups is None:
        return EquationBudget(ledger, share * len(source.X), lambda: rows_digest(source.X))
    g = groups.min_group_size  # with the sums of groups, E equations give up to E g / (g - 1) rows
    return EquationBudget(
        ledger,
        share * float(groups.people.sum()) * (g - 1) / g,
        lambda: groups.digest if source.raw is None else f"{groups.digest} {rows_digest(source.raw.rows)}",
        grouped=True,
    )


def _secure_sums_only(policy: Policy, study: StudyGuard | None) -> SecureSumsOnlyGuard | None:
    """The guard of a site that must answer only in secure sums and does not take part in them."""
    if policy.aggregation.secure == "required":
        return SecureSumsOnlyGuard()
    if study is not None and study.secure:
        return SecureSumsOnlyGuard("the approved study allows only secure sums")
    return None


def _fingerprint(home: Path | None) -> str:
    """The fingerprint of the site's key; "" where it has none."""
    if home is None or not find_spec("cryptography"):
        return ""
    from unpooled.site.identity import fingerprint_in

    return fingerprint_in(home)


def _recovered(home: Path) -> SummaryFolder:
    """The summary tables in a site's folder; a change of them that a kill cut off is finished first."""
    check_place(home)
    tables = SummaryFolder(home)
    tables.recover()
    return tables


def _open_log(home: Path, what: str) -> Log:
    """The log of a site, locked."""
    home.mkdir(parents=True, exist_ok=True)
    return Log(home / "log.jsonl", what)


def _check_folder(
    tables: SummaryFolder, log: Log, ledger: Ledger, policy: Policy, study: StudyGuard | None
) -> None:
    """Raise LedgerError unless the files in the site's folder belong together (``check_site_folder``)."""
    home, table = tables.folder, ""
    if policy.protect.mode == "summary" and tables.exists and tables.registered and tables.approved:
        table = tables.digest
    bound = "" if study is None else study.digest
    with Registry.open(home) if table or (home / REGISTRY).exists() else nullcontext() as registry:
        check_site_folder(home, log, ledger, registry, mode=policy.protect.mode, table=table, study=bound)


def _registry_mark(home: Path | None) -> str:
    """The last link of the registry of people; "" if there is none."""
    if home is None or not (home / REGISTRY).exists():
        return ""
    with Registry.open(home) as registry:
        return registry.mark


def _from_rows(
    table: TableLike | None, policy: Policy, weights: FloatArray | None, *, only_secure: bool
) -> AnswerSource | None:
    """The rows that a site answers from by its policy; None if it answers from a summary table.

    In raw mode a site that answers ``only_secure`` sums answers from groups of its rows.
    """
    mode = policy.protect.mode
    if weights is not None and mode == "summary":
        raise InputError(
            "weights of rows do not go with a summary table, in which every person counts once. Open the "
            "site without weights."
        )
    if mode == "summary":
        return None
    if table is None:
        raise InputError(f'mode = "{mode}" answers from rows, and there is no table. Give the rows as table.')
    if weights is not None and mode == "dp":
        raise InputError(
            "weights of rows do not go with differential privacy: a weight would scale what a row adds. "
            "Open the site without weights."
        )
    if mode == "dp":
        return AnswerSource(_declared(as_table(table), policy))
    if only_secure and policy.aggregation.max_equations < 1:
        return _groups_of_rows(as_table(table), policy, weights)
    return AnswerSource(as_table(table), weights, min_cluster_size=policy.protect.min_cluster_size)


def _groups_of_rows(table: Table | Rows, policy: Policy, weights: FloatArray | None) -> AnswerSource:
    """Groups of the rows of a site in raw mode, with the rows for exact rounds.

    If a person has several rows, or the policy suppresses values of columns, rows are not read at all.
    """
    if weights is not None:
        raise InputError(
            "weights of rows do not go with secure sums in raw mode, for which rows are grouped. Open the "
            "site without weights, or set [aggregation] max_equations = 1."
        )
    settings = policy.protect.settings()
    settings.check_people_declared()
    groups = replace(microaggregate(table, settings), made="")
    rows = (
        None
        if settings.person or settings.log_transform or settings.consumption
        else VisibleRows(table, None, None)
    )
    return AnswerSource.from_summary(groups)._replace(groups=groups, raw=rows)


def _check_rows_allowed(tables: SummaryFolder, mode: str, groups: SummaryTable | None) -> None:
    """Raise LedgerError if the site may not answer from rows: after an erasure, or after a summary table.

    In raw mode it may answer from the ``groups`` of the summary table, and from no other ones.
    """
    tables.check_nobody_erased(f'mode = "{mode}", which answers from rows,')
    if mode == "dp" and tables.exists:
        raise LedgerError(
            f'{tables.folder}: the folder has a summary table, and the policy has mode = "dp". Set the '
            'policy back to mode = "summary".'
        )
    if groups is not None and tables.exists and replace(tables.read(), made="").digest != groups.digest:
        raise LedgerError(
            f"{tables.folder}: the folder has a summary table, and this policy would group the rows in "
            "another way. Both together would disclose people. Set the policy back to the one of the table."
        )


def _declared(table: Table | Rows, policy: Policy) -> Table | Rows:
    """The declared columns of a site with mode = "dp", with at most ``rows_per_person`` rows of a person.

    Whether it opens depends on the policy and on the names of the columns, and not on rows.
    """
    domain, person = policy.domain, policy.protect.person if policy.dp.privacy_unit == "person" else ""
    if isinstance(table, np.ndarray):
        if person:
            raise PolicyError('[dp] privacy_unit = "person" is for tables with named columns')
    elif not domain.columns:
        raise PolicyError('[protect] mode = "dp" needs [domain] columns, with their lower and upper bounds')
    else:
        try:
            table = BoundedTable.from_table(
                table, domain.columns, domain.rows, person, policy.dp.rows_per_person
            )
        except InputError as error:
            raise PolicyError(f"[domain] {error}") from error
    if len(table) > domain.rows:  # the log.jsonl has no line of it: the coordinator counts its lines
        logger.warning(
            "[domain] rows: the table has %d rows, more than the declared %d. All of them count. Only you "
            "see this. Declare more rows.",
            len(table),
            domain.rows,
        )
    return table


def _from_summary(table: TableLike | None, policy: Policy, tables: SummaryFolder | None) -> AnswerSource:
    """The summary table that a site answers from; LedgerError if it might contain somebody who was erased."""
    source = AnswerSource.from_summary(*_summary(table, policy, tables))
    if tables is not None and not tables.registered:
        tables.check_nobody_erased("a summary table without a person column")
    return source


def _summary(table: TableLike | None, policy: Policy, kept: SummaryFolder | None) -> tuple[SummaryTable, str]:
    """The summary table in the folder, or a new one, and its digest; NotApprovedError if not approved."""
    settings = policy.protect.settings()
    if kept is None:
        if table is None:
            raise InputError("there is neither a table nor a folder with a summary table. Give one of them.")
        check_declared(policy, settings.consumption)
        settings.check_people_declared()
        summary = microaggregate(as_table(table), settings)
        return summary, summary.digest
    home = kept.folder
    if not kept.exists:
        if table is None:
            raise InputError(f"{home}: there is no summary table. Make one with unpooled site summarize.")
        check_declared(policy, settings.consumption)
        kept.make(as_table(table), settings)
    summary, made = kept.read(), kept.settings()
    check_declared(policy, made.consumption)
    made.check_people_declared()
    _check_settings(settings, made, summary.min_group_size)
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
            check_registry(home, people, kept.digest)
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
    if required.diverse and made.diverse_by > required.diverse_by:
        raise PolicyError(
            f"[protect] diverse_by = {required.diverse_by:g}, but the summary table was made with "
            f"{made.diverse_by:g}"
        )
    for name in ("person", "one_row_per_person", "sensitive", "diverse", "log_transform", "consumption"):
        rule, setting = getattr(required, name), getattr(made, name)
        if rule and rule != setting:
            raise PolicyError(f"[protect] {name} = {rule!r}, but the summary table was made with {setting!r}")


def as_table(table: TableLike) -> Table | Rows:
    """Return a table as a site holds it: a Table, or an array (n, d) of numbers."""
    if isinstance(table, Table):
        return table
    if isinstance(table, np.ndarray):
        if table.ndim != 2:
            raise InputError(f"rows must be an array (n, d), got one of shape {table.shape}")
        return table
    if isinstance(table, Mapping):
        return Table.from_columns(dict(table))
    if hasattr(table, "columns"):
        return Table.from_columns({str(name): np.asarray(table[name]) for name in table.columns})
    raise InputError(
        f"rows must be a Table, a DataFrame, a mapping of columns or an array, got {type(table)}"
    )


def _mask(
    name: SiteId,
    policy: Policy,
    home: Path | None,
    X: Rows | Table | SummaryTable,
    member: "Member | None",
    ledger: Ledger,
    authority: bytes | None,
    study: StudyGuard | None,
) -> "SiteMask | None":
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
