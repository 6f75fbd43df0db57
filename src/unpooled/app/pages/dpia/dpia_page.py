"""The page of a DPIA report: data processed and sent, recipients, threats, attack, digests, signature."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version

from unpooled.app.pages.audit_page import AFTER_EXPORT, exported, protection, verdict
from unpooled.app.pages.dpia.data_changes import history_section
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
from unpooled.data.column_kinds import CATEGORY, NUMBER
from unpooled.html.html import counted, html_page, listed, percent, section, size, soft, table
from unpooled.privacy.presets import preset
from unpooled.protocol import codec
from unpooled.site.explain_policy import at_release, explain, kept_by_site

_STYLE = """<style>
td { vertical-align: top; } .left code { font-size: 0.8rem; }
.field { margin: 0 0 1rem; }
.label { display: block; font-weight: 600; font-size: 0.93rem; }
.write { font: inherit; color: inherit; background: var(--bg); line-height: 1.5; overflow-wrap: anywhere;
  white-space: pre-wrap; min-height: calc(var(--lines) * 1.5em + 1rem); margin-top: 0.25rem;
  border: 1px solid var(--line); border-radius: 8px; padding: 0.5rem 0.7rem; }
.write:focus-visible { outline: 2px solid currentColor; outline-offset: 1px; }
.signs { display: grid; grid-template-columns: 2fr 2fr 1fr; gap: 1.2rem; break-inside: avoid; }
.digests { word-break: break-all; }
@media (max-width: 560px) { .signs { grid-template-columns: 1fr; } .left code { font-size: 0.7rem; }
  .threats td, .threats th { min-width: 9rem; } }
@media print { .write { background: none; border-color: #999; font-size: 9pt; }
  table, .digests { font-size: 8.5pt; } .left code { font-size: 7.5pt; } .field { margin-bottom: 0.6rem; }
  td, th { overflow-wrap: break-word; } tr, li { break-inside: avoid; }
  .figures { grid-template-columns: repeat(6, 1fr); gap: 0.6rem; } .figures b { font-size: 1.2rem; }
  #sign { break-before: page; } footer { display: none; }
  @page { @bottom-right { content: counter(page) " / " counter(pages); font: 9pt sans-serif; } } }
</style>
"""
_OPEN = (
    ("Purpose of the processing", 4),
    ("Legal basis", 3),
    ("Retention: of the rows, of the summary table, of the log", 3),
    ("Recipients, and the contract with them", 3),
    ("Assessment: are the remaining risks acceptable, and why", 5),
)


def page(site: SiteFacts) -> str:
    """Return the HTML page: it works without a script, contacts no other host, and prints."""
    parts = [
        _first(site),
        _processed(site),
        history_section(site.changes, site.mode),
        _sent(site),
        _visibility(site),
        _threats(site),
        _attack(site),
        _rules(site),
        _digests(site),
        _to_sign(),
    ]
    date = datetime.now(UTC).date().isoformat()
    return html_page(f"DPIA report of site {site.name}", _STYLE + "\n".join(parts), date)


def _first(site: SiteFacts) -> str:
    """Return the state of the site in a few lines."""
    answer = {
        "summary": "This site answers from a summary table (microaggregation): every row is the average of "
        "at least g people, i.e. k-anonymity with k = g. Its own rows do not leave it. Queries of any kind "
        "and number disclose no more than the summary table.",
        "dp": "This site answers from its rows with differential privacy: every answer is noisy and charged "
        "to one privacy budget. It has no summary table.",
        "raw": "This site answers exactly, from its rows. Rows can be reconstructed from its answers: only "
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
    body = f"<p>{escape(answer)}</p>" + "".join(f'<p class="second">{escape(line)}</p>' for line in second)
    body = f'<div class="answer">{body}</div>{_warnings(site)}'
    strip = "".join(f"<div><b>{value}</b>{name}</div>" for value, name in figures)
    return f'<section id="first">{body}<div class="figures">{strip}</div></section>'


def _attack_findings(site: SiteFacts) -> tuple[str, str]:
    """Return the number of rows that the attack on the log found, and what they are."""
    what = "rows of the summary table found by attack" if site.mode == "summary" else "rows found by attack"
    if site.record is not None and site.attack is None:
        return "?", what
    return f"{0 if site.attack is None else len(site.attack.rows):,}", what


def _warnings(site: SiteFacts) -> str:
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
    if not warnings:
        return ""
    items = "".join(f"<li>{escape(text)}</li>" for text in warnings)
    return f'<div class="warn" role="note"><b>Look at this first</b><ul>{items}</ul></div>'


def _processed(site: SiteFacts) -> str:
    if site.summary is None or site.settings is None:
        domain = site.policy.domain if site.policy is not None else None
        rows = [
            (escape(name), f"{low:g} to {high:g}")
            for name, low, high in (
                zip(domain.columns, domain.lower, domain.upper, strict=True) if domain is not None else ()
            )
        ]
        body = table(("column", "declared range"), rows) if rows else "<p>No column is declared.</p>"
        return section(
            "What is processed",
            body,
            "Rows at the site. The site discloses what the policy declares of them.",
        )
    named = {
        "studied": site.settings.columns,
        "sensitive: does not count in the grouping": site.settings.ungrouped,
        "diverse: no value is too frequent in a group": site.settings.diverse,
        "consumption": site.settings.consumption,
    }
    costs = {name: (share, disclosed) for name, share, disclosed in variance_kept(site.summary)}
    bare = without_categories(site.summary)
    columns = []
    for name, kind in zip(site.summary.names, site.summary.kinds, strict=True):
        marks = ", ".join(mark for mark, some in named.items() if name in some)
        share, disclosed = costs.get(name, (float("nan"), 0.0))
        held = (
            soft("how many have a value")
            if name in bare
            else f"means of groups, {percent(disclosed)} of people"
            if kind == NUMBER
            else f"people by category ({listed(site.summary.categories[name], 4)}), {percent(disclosed)}"
            if kind == CATEGORY
            else soft("nothing")
        )
        columns.append(
            (escape(name), held, soft("none disclosed") if share != share else percent(share), escape(marks))
        )
    sizes = site.summary.people
    facts = [
        f"{sizes.sum():.0f} people in {counted(len(site.summary), 'group')} of {sizes.min():.0f} to "
        f"{sizes.max():.0f}; made on {site.summary.made}. summary/table.csv lists every group."
        if len(site.summary)
        else "The summary table has no groups left: the site answers nothing until it is updated.",
        *table_facts(site.summary, site.settings, site.rare)[1:],
    ]
    return section(
        "What is processed",
        _list(facts)
        + table(("column", "in the summary table", "variance kept", "declared"), columns, left=(0, 1, 3)),
        "The site reads rows to make the summary table"
        + (" and to update it" if site.changes.registered else "")
        + ", and not to answer. These columns are in the table.",
    )


def _sent(site: SiteFacts) -> str:
    files = site.record.exports if site.record is not None else []
    if site.record is None or not (site.record.runs or files):
        return section("What was sent", "<p>Nothing has left this site.</p>", "From the site's own log.")
    by_files = _list([*map(exported, files), AFTER_EXPORT]) if files else ""
    if not site.record.runs:
        return section("What was sent", by_files, "From the site's own log, which names every file.")
    rows = [
        (
            escape(run.id),
            escape(run.first[:16].replace("T", " ")),
            f"{run.releases}",
            f"{run.refusals}",
            f"{run.numbers:,}",
            size(run.bytes),
            f"{run.masked}",
            f"{run.alone}",
        )
        for run in site.record.runs
    ]
    head = ("run", "first answer", "answers", "refusals", "numbers", "size", "masked", "readable singly")
    asked: dict[str, int] = {}
    for run in site.record.runs:
        for name, times in run.questions.items():
            asked[name] = asked.get(name, 0) + times
    kinds = [
        (escape(codec.meaning_of(name).replace("``", "")), escape(name), str(times))
        for name, times in sorted(asked.items())
    ]
    body = f"<h3>Summary files</h3>{by_files}<h3>Runs</h3>" if files else ""
    body += table(head, rows, left=(0, 1)) + '<h3 class="next">Queries</h3>'
    body += table(("content", "question", "times"), kinds, left=(0, 1))
    for run in site.record.runs:
        run = replace(run, smallest=None) if site.mode == "summary" else run  # its rows are groups
        body += _list([f"Run {run.id}: {line}" for line in protection(run)])
    lead = "From the site's own log, which holds every answer byte for byte. Masked: readable only in a sum."
    return section("What was sent", body, lead)


def _visibility(site: SiteFacts) -> str:
    source = {"summary": "its summary table", "dp": "its rows, with noise", "raw": "its rows"}[site.mode]
    secure = site.policy.aggregation.secure if site.policy is not None else "preferred"
    alone = sum(run.alone for run in site.record.runs) if site.record is not None else 0
    single = {
        "required": "Sums over all sites only",
        "preferred": f"Counts and sums from {source}; only sums over all sites if a run uses secure sums",
        "off": f"Counts and sums from {source}",
    }[secure]
    if site.record is not None and site.record.exports:
        single += ". A recipient of a summary file sees the study's columns of the summary table"
    if alone:
        single += f". Up to now {alone} replies of this site were readable singly"
    rows = [
        ("Coordinator", single, "Rows, the column that identifies people, how the file is read"),
        ("Other sites", "The centres that the coordinator sends", "Answers of this site"),
        ("The network", "Encrypted messages, their sizes and times", "Their content"),
        (
            "Readers of the result",
            "Centres, counts and profiles over all sites. Of this site: its people in each cluster, which a "
            "release rounds, and suppresses if they are few; in the coordinator's report also its missing "
            "values and the position of its people on the map. With secure sums, of this site only missing "
            "values",
            "Rows, the summary table, single answers of this site",
        ),
        (
            "This site",
            "All of its own: rows, summary table, log, ledger",
            "Anything of other sites except centres",
        ),
    ]
    cells = [tuple(map(escape, row)) for row in rows]
    return section("Visibility", table(("party", "sees", "does not see"), cells, left=(0, 1, 2)))


def _threats(site: SiteFacts) -> str:
    rows = [
        (escape(t.threat), escape(t.measure), escape(t.remains), f"<code>{_breakable(t.test)}</code>")
        for t in threats(site.mode)
    ]
    head = ("threat", "measure", "what remains", "test")
    body = f'<div class="threats">{table(head, rows, left=(0, 1, 2, 3))}</div>'
    if site.summary is not None:
        measured = list(site.risks) or [NOT_MEASURED]
        body += f'<h3 class="next">Risks, measured on this site\'s rows</h3><p>{STAYS}</p>' + _list(measured)
        body += '<h3 class="next">What the summary table does not promise</h3>' + _list(
            not_promised(site.summary)
        )
    lead = "The tests are part of the package that made this page; make test runs them."
    return section("Threats and measures", body, lead)


def _breakable(test: str) -> str:
    """Return the name of a test that may wrap after a slash, a colon or an underscore, and nowhere else."""
    return re.sub(r"(/|::|_)", r"\1<wbr>", escape(test))


def _attack(site: SiteFacts) -> str:
    if site.record is None:
        sentences = ["Nothing has left this site, so there is nothing to attack."]
    elif site.record.exports and not site.record.runs:
        sentences = ["The site answered no query. A summary file discloses the summary table, and no more."]
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
    lead = "A reconstruction attack: unpooled site log --attack."
    return section("Attack on this site's own log", _list(sentences), lead)


def _rules(site: SiteFacts) -> str:
    if site.policy is None:
        return section("The policy", f"<p>{escape(site.policy_from)}</p>")
    table = site.settings
    if table is not None and site.summary is not None:
        table = replace(table, min_group_size=site.summary.min_group_size)
    explained = explain(site.policy, table)
    body = "".join(f"<h3>{escape(heading)}</h3>{_list(lines)}" for heading, lines in explained)
    return section("The policy", body, f"In plain words; from {escape(site.policy_from)}.")


def _digests(site: SiteFacts) -> str:
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
    items += [(f"SHA-256 of {name}", digest) for name, digest in site.files]
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in items)
    return section("Versions and digests", f'<dl class="digests">{rows}</dl>')


def _to_sign() -> str:
    fields = "".join(_field(f"f{i}", name, lines) for i, (name, lines) in enumerate(_OPEN))
    signs = "".join(
        _field(f"s{i}", name, 3) for i, name in enumerate(("Name and function", "Signature", "Date"))
    )
    body = f'{fields}<div class="signs">{signs}</div>'
    lead = "Everything above was generated from the site's folder; you fill in only these fields."
    return section("To be filled in and signed", body, lead, "sign")


def _field(name: str, label: str, lines: int) -> str:
    """Return a field that grows with its text, so that nothing is cut on paper."""
    return (
        f'<div class="field"><span class="label" id="{name}-label">{escape(label)}</span>'
        f'<div class="write" id="{name}" contenteditable="true" role="textbox" tabindex="0" '
        f'aria-multiline="true" aria-labelledby="{name}-label" style="--lines: {lines}"></div></div>'
    )


def _list(sentences: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in sentences) + "</ul>" if sentences else ""
