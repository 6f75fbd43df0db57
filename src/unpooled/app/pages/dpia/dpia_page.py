"""The page of a DPIA report: data processed and sent, recipients, threats, attack, digests, signature."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from unpooled.app.pages.audit_page import AFTER_EXPORT, asked, exported, protection, verdict
from unpooled.app.pages.dpia.data_changes import history
from unpooled.app.pages.dpia.memberships import memberships
from unpooled.app.pages.dpia.site_facts import SiteFacts
from unpooled.app.pages.dpia.threats import threats
from unpooled.app.pages.table_page import (
    NOT_MEASURED,
    STAYS,
    not_promised,
    variance_kept,
    without_categories,
)
from unpooled.app.pages.table_page import facts as table_facts
from unpooled.data.column_kinds import CATEGORY, has_mean
from unpooled.html.formatting import counted, listed, percent, size
from unpooled.html.rendering import render
from unpooled.privacy.presets import preset
from unpooled.site.explain_policy import at_release, explain, kept_by_site


def page(site: SiteFacts) -> str:
    """Return the HTML page: it works without a script, contacts no other host, and prints."""
    measured = site.summary is not None
    return render(
        "dpia.html",
        title=f"DPIA report of site {site.name}",
        date=datetime.now(UTC).date().isoformat(),
        first=_first(site),
        processed=_processed(site),
        changes=history(site.changes, site.mode),
        memberships=memberships(site.memberships),
        sent=_sent(site),
        visibility=_visibility(site),
        threats=[{**t._asdict(), "test": _breakable(t.test)} for t in threats(site.mode)],
        risks=(site.risks or (NOT_MEASURED,)) if measured else (),
        stays=STAYS,
        not_promised=not_promised(site.summary) if site.summary is not None else [],
        attack=_attack(site),
        policy=_rules(site),
        policy_from=site.policy_from,
        digests=_digests(site),
    )


def _first(site: SiteFacts) -> dict[str, Any]:
    """Return the state of the site in a few lines."""
    answer = {
        "summary": "This site answers from a summary table (microaggregation): every row is the average of "
        "at least g people, i.e. k-anonymity with k = g. Its own rows do not leave it. Queries of any kind "
        "and number disclose no more than the summary table.",
        "dp": "This site answers from its rows with differential privacy: every answer is noisy and charged "
        "to one privacy budget. It has no summary table.",
        "raw": "This site answers only in secure sums, from groups of its rows; exact rounds read the rows "
        "and disclose a limited share of them to linear algebra."
        if site.policy is not None and site.policy.groups_rows
        else "This site answers exactly, from its rows. Rows can be reconstructed from its answers: only "
        "the contract with its partners protects them.",
    }[site.mode]
    rule = (
        preset(site.policy.protect.preset) if site.policy is not None and site.policy.protect.preset else None
    )
    second = []
    if rule is not None and site.policy is not None:
        second = [f"The policy follows the preset {rule.name} ({rule.by}): {kept_by_site(site.policy)}"]
        second += at_release(site.policy)
    if site.summary is not None and site.mode == "summary":
        second.append(
            f"The summary table was approved by {site.approval['by'] or 'an account without a name'} on "
            f"{site.approval['utc'][:10]}."
            if site.approval
            else "Nobody has approved the summary table."
        )
    runs = site.record.runs if site.record is not None else []
    files = site.record.exports if site.record is not None else []
    figures = []
    if site.summary is not None:
        figures += [
            (f"{site.summary.people.sum():,.0f}", "people"),
            (f"{len(site.summary):,}", "group" if len(site.summary) == 1 else "groups"),
            (f"{site.summary.min_group_size}", "minimum group size"),
        ]
    figures += [
        (f"{len(runs)}", "run answered" if len(runs) == 1 else "runs answered"),
        *([(f"{len(files)}", "summary file" if len(files) == 1 else "summary files")] if files else []),
        (size(sum(run.bytes for run in runs) + sum(file.bytes for file in files)), "sent"),
        _attack_findings(site),
    ]
    return {"answer": answer, "second": second, "warnings": _warnings(site), "figures": figures}


def _attack_findings(site: SiteFacts) -> tuple[str, str]:
    """Return the number of rows that the attack on the log found, and what they are."""
    what = "rows of the summary table found by attack" if site.mode == "summary" else "rows found by attack"
    record = site.record
    left = [len(table) for run in record.runs for table in run.tables] if record is not None else []
    left += [file.groups for file in record.exports] if record is not None else []
    if left:
        return f"{max(left):,}", "rows of the summary table that left"
    if record is not None and site.attack is None:
        return "?", what
    return f"{0 if site.attack is None else len(site.attack.rows):,}", what


def _warnings(site: SiteFacts) -> list[str]:
    warnings = []
    if site.record is not None and not site.record.intact:
        warnings.append(verdict(site.record))
    if site.policy is None:
        warnings.append(f"The policy is {site.policy_from}.")
    elif site.record is not None and site.record.policies and site.record.policies[-1] != site.policy.digest:
        warnings.append(
            f"The site last answered under another policy (digest {site.record.policies[-1][:16]}) than the "
            f"one described here (digest {site.policy.digest[:16]})."
        )
    if site.renewal_pending:
        warnings.append("An update of the summary table is pending: this page describes the table in use.")
    if site.changes.damage:
        warnings.append(site.changes.damage)
    if site.mode == "summary" and site.summary is None:
        warnings.append("There is no summary table in the folder.")
    if site.policy is not None and site.policy.protect.auto_approve:
        warnings.append(
            "The policy has auto_approve = true: the site answers from a summary table that nobody approved."
        )
    return warnings


def _processed(site: SiteFacts) -> dict[str, Any]:
    """Return the columns of the summary table, or the declared ranges of a site that has none."""
    if site.summary is None or site.settings is None:
        domain = site.policy.domain if site.policy is not None else None
        ranges = zip(domain.columns, domain.lower, domain.upper, strict=True) if domain is not None else ()
        return {
            "lead": "Rows at the site. The site discloses what the policy declares of them.",
            "domain": [(name, f"{low:g} to {high:g}") for name, low, high in ranges],
        }
    named = {
        "studied": site.settings.study_columns,
        "sensitive: does not count in the grouping": site.settings.ungrouped,
        "diverse: no value is too frequent in a group": site.settings.diverse,
        "consumption": site.settings.consumption,
    }
    costs = {name: (share, disclosed) for name, share, disclosed in variance_kept(site.summary)}
    bare = without_categories(site.summary)
    columns = []
    for name, kind in zip(site.summary.names, site.summary.kinds, strict=True):
        share, disclosed = costs.get(name, (float("nan"), 0.0))
        held, something = "nothing", False
        if name in bare:
            held = "how many have a value"
        elif has_mean(kind):
            held, something = f"means of groups, {percent(disclosed)} of people", True
        elif kind == CATEGORY:
            categories = listed(site.summary.categories[name], 4)
            held, something = f"people by category ({categories}), {percent(disclosed)}", True
        columns.append(
            {
                "name": name,
                "held": held,
                "disclosed": something,
                "share": None if share != share else share,
                "declared": ", ".join(mark for mark, some in named.items() if name in some),
            }
        )
    sizes = site.summary.people
    facts = [
        f"{sizes.sum():.0f} people in {counted(len(site.summary), 'group')} of {sizes.min():.0f} to "
        f"{sizes.max():.0f}; made on {site.summary.made}. summary/table.csv lists every group."
        if len(site.summary)
        else "The summary table has no groups left: the site answers nothing until it is updated.",
        *table_facts(site.summary, site.settings, site.rare)[1:],
    ]
    update = " and to update it" if site.changes.registered else ""
    return {
        "lead": f"The site reads rows to make the summary table{update}, and not to answer. These columns "
        "are in the table.",
        "domain": None,
        "facts": facts,
        "columns": columns,
    }


def _sent(site: SiteFacts) -> dict[str, Any]:
    """Return what left the site: runs, their questions, and summary files."""
    runs = site.record.runs if site.record is not None else []
    files = site.record.exports if site.record is not None else []
    lead = "From the site's own log"
    if runs:
        lead += ", which holds every answer byte for byte. Masked: readable only in a sum"
    elif files:
        lead += ", which names every file"
    kinds: dict[str, int] = {}
    for run in runs:
        for name, times in run.questions.items():
            kinds[name] = kinds.get(name, 0) + times
    if site.mode == "summary":  # its rows are groups
        protected = [(run.id, protection(replace(run, smallest=None))) for run in runs]
    else:
        protected = [(run.id, protection(run)) for run in runs]
    return {
        "lead": f"{lead}.",
        "files": [*map(exported, files), AFTER_EXPORT] if files else [],
        "runs": [
            (
                run.id,
                run.first[:16].replace("T", " "),
                f"{run.answers}",
                f"{run.refusals}",
                f"{run.numbers:,}",
                size(run.bytes),
                f"{run.masked}",
                f"{run.alone}",
            )
            for run in runs
        ],
        "asked": asked(kinds),
        "protection": [[f"Run {run}: {line}" for line in lines] for run, lines in protected],
    }


def _visibility(site: SiteFacts) -> list[tuple[str, str, str]]:
    """Return (party, what it sees, what it does not see)."""
    stated = (
        "The schema: names, kinds and categories of its columns, its number of people and of groups, and for "
        "each column how many values are missing, its rough size and spread, and its variance within groups"
    )
    if site.mode == "dp":
        stated = "The columns and the number of rows that the policy declares"
    readable = {
        "summary": "The study's columns of its summary table",
        "dp": "Counts and sums from its rows, with noise",
        "raw": "Counts and sums from its rows",
    }[site.mode]
    secure = site.policy.aggregation.secure if site.policy is not None else "preferred"
    alone = sum(run.alone for run in site.record.runs) if site.record is not None else 0
    single = {
        "required": "Of all other answers only sums over all sites",
        "preferred": f"{readable}; if a run uses secure sums, only sums over all sites",
        "off": readable,
    }[secure]
    if site.record is not None and site.record.exports:
        single += ". A recipient of a summary file sees the study's columns of the summary table"
    if alone:
        single += f". Up to now {counted(alone, 'answer')} of this site could be read singly"
    return [
        (
            "Coordinator",
            f"{stated}. {single}",
            "Rows, the column that identifies people, how the file is read",
        ),
        (
            "Other sites",
            "The centres that the coordinator sends, the categories that any site has, and with secure sums "
            "which sites take part",
            "Answers of this site",
        ),
        ("The network", "Encrypted messages, their sizes and times", "Their content"),
        (
            "Readers of the result",
            "Centres, counts and profiles over all sites. Of this site: its number of people, the date of "
            "its table, its missing values, and how much it sent. Without secure sums also its people in "
            "each cluster, which a release rounds, and suppresses if they are few; their mean distance from "
            "the centres; how far the centres move without it; and in the report the position of its people "
            "on the map",
            "Rows, the summary table, single answers of this site",
        ),
        (
            "This site",
            "All of its own: rows, summary table, log, ledger",
            "Anything of other sites except what the row above names",
        ),
    ]


def _breakable(test: str) -> list[str]:
    """Return the parts of a test's name between which it may wrap: after a slash, a colon, an underscore.

    >>> _breakable("tests/site/test_log.py::test_it")
    ['tests/', 'site/', 'test_', 'log.py::', 'test_', 'it']
    """
    return re.findall(r".+?(?:/|::|_|$)", test)


def _attack(site: SiteFacts) -> list[str]:
    """Return sentences on what an attack on the log finds."""
    if site.record is None:
        sentences = ["Nothing has left this site, so there is nothing to attack."]
    elif site.record.exports and not site.record.runs:
        sentences = ["The site answered no query. A summary file discloses the summary table, and no more."]
    elif any(run.tables for run in site.record.runs):
        sentences = ["The summary table itself left. No answer computed from it discloses more."]
    elif site.attack is None:
        sentences = ["The log is damaged: it could not be attacked."]
    else:
        found, rows, sentences = site.attack, len(site.attack.rows), []
        if found.cells or not found.masked:
            sentences = [
                "The attack had all answers in the log. It subtracted "
                f"{found.cells:,} groups from each other, checked each difference by its squares, and "
                "repeated the search with what it found.",
                f"It found {rows} rows. The site answered from its summary table, so each of them is a mean "
                "over a group of people."
                if site.mode == "summary"
                else f"It found {rows} rows; a longer search may find more.",
            ]
        sentences += [found.not_judged] if found.not_judged else []
    return sentences


def _rules(site: SiteFacts) -> list[tuple[str, list[str]]]:
    """Return the policy in words; nothing if it is unknown."""
    if site.policy is None:
        return []
    table = site.settings
    if table is not None and site.summary is not None:
        table = replace(table, min_group_size=site.summary.min_group_size)
    return explain(site.policy, table)


def _digests(site: SiteFacts) -> list[tuple[str, str]]:
    """Return versions and digests by name."""
    items = [
        ("page generated by", f"unpooled {version('unpooled')}"),
        ("site answered with", ", ".join(f"unpooled {v}" for v in site.versions) or "nothing yet"),
    ]
    if site.policy is not None:
        items.append(("policy", site.policy.digest))
        if site.policy.protect.preset:
            rule = preset(site.policy.protect.preset)
            items.append(("preset", f"{rule.name}: {rule.rule}. {rule.by}. {rule.where}"))
    if site.summary is not None:
        items += [("summary table", site.summary_digest), ("made on", site.summary.made)]
        items.append(("earlier summary tables", str(site.changes.kept)))
    if site.approval:
        items.append(("approved", f"{site.approval['by']}, {site.approval['utc']}"))
    if site.record is not None:
        items += [("log", verdict(site.record))]
        items += [("not checked", text) for text in site.record.unchecked]
        if site.record.spent:
            spent = site.record.spent
            items.append(
                ("privacy budget", f"epsilon {spent['epsilon']:.3g} spent, {spent['remaining']:.3g} left")
            )
    return items + [(f"SHA-256 of {name}", digest) for name, digest in site.files]
