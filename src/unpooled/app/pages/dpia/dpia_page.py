"""The page of a dossier: what is processed and sent, who sees what, threats, attack, digests, signature."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version

from unpooled.app.pages.audit_page import protection, verdict
from unpooled.app.pages.dpia.data_changes import history_section
from unpooled.app.pages.dpia.site_facts import SiteFacts
from unpooled.app.pages.dpia.threats import threats
from unpooled.app.pages.table_page import facts as copy_facts
from unpooled.app.pages.table_page import not_promised, variance_kept, without_categories
from unpooled.data.table import CATEGORY, NUMBER
from unpooled.html.html import counted, html_page, listed, percent, section, size, soft, table
from unpooled.privacy.presets import preset
from unpooled.protocol import codec
from unpooled.site.explain_policy import at_release, explain, kept_by_site

_STYLE = """<style>
td { vertical-align: top; } .left code { font-size: .8rem; }
.field { margin: 0 0 1rem; }
.label { display: block; font-weight: 600; font-size: .93rem; }
.write { font: inherit; color: inherit; background: var(--bg); line-height: 1.5; overflow-wrap: anywhere;
  white-space: pre-wrap; min-height: calc(var(--lines) * 1.5em + 1rem); margin-top: .25rem;
  border: 1px solid var(--line); border-radius: 8px; padding: .5rem .7rem; }
.write:focus-visible { outline: 2px solid currentColor; outline-offset: 1px; }
.signs { display: grid; grid-template-columns: 2fr 2fr 1fr; gap: 1.2rem; break-inside: avoid; }
.digests { word-break: break-all; }
@media (max-width: 560px) { .signs { grid-template-columns: 1fr; } .left code { font-size: .7rem; }
  .threats td, .threats th { min-width: 9rem; } }
@media print { .write { background: none; border-color: #999; font-size: 9pt; }
  table, .digests { font-size: 8.5pt; } .left code { font-size: 7.5pt; } .field { margin-bottom: .6rem; }
  td, th { overflow-wrap: break-word; } tr, li { break-inside: avoid; }
  .figures { grid-template-columns: repeat(6, 1fr); gap: .6rem; } .figures b { font-size: 1.2rem; }
  #sign { break-before: page; } footer { display: none; }
  @page { @bottom-right { content: counter(page) " / " counter(pages); font: 9pt sans-serif; } } }
</style>
"""
_OPEN = (
    ("Purpose of the processing", 4),
    ("Legal basis", 3),
    ("Retention: of the rows, of the copy, of the log", 3),
    ("Recipients, and the contract with them", 3),
    ("Assessment: are the remaining risks acceptable, and why", 5),
)


def page(site: SiteFacts) -> str:
    """The HTML page: it reads without a script, asks no other host for anything, and prints."""
    parts = [
        _first(site),
        _processed(site),
        history_section(site.changes, site.mode),
        _sent(site),
        _sees(site),
        _threats(site),
        _attack(site),
        _rules(site),
        _digests(site),
        _to_sign(),
    ]
    date = datetime.now(UTC).date().isoformat()
    return html_page(f"Dossier of site {site.name}", _STYLE + "\n".join(parts), date)


def _first(site: SiteFacts) -> str:
    """The state of the site in a few lines."""
    said = {
        "summary": "This site answers from its copy, a table of groups of persons. Its rows do not leave it. "
        "Whatever is asked, the copy is the most that anybody can learn.",
        "dp": "This site answers from its rows, with noise that is paid for from one privacy budget. It "
        "has no copy.",
        "raw": "This site answers from its rows as they are. Rows can be worked out from its answers: "
        "nothing but the contract with its partners protects them.",
    }[site.mode]
    rule = (
        preset(site.policy.protect.preset) if site.policy is not None and site.policy.protect.preset else None
    )
    second = []
    if rule is not None and site.policy is not None:
        second = [f"It keeps to the preset {rule.name} ({rule.by}): {kept_by_site(site.policy)}"]
        second += at_release(site.policy)
    if site.summary is not None and site.mode == "summary":
        second.append(
            f"The copy was approved by {site.approval['by'] or 'an account without a name'} on "
            f"{site.approval['utc'][:10]}."
            if site.approval
            else "Nobody has approved the copy."
        )
    runs = site.record.runs if site.record is not None else []
    figures = []
    if site.summary is not None:
        figures += [
            (f"{site.summary.people.sum():,.0f}", "people"),
            (f"{len(site.summary):,}", "group" if len(site.summary) == 1 else "groups"),
            (f"{site.summary.min_group_size}", "persons in a group, at least"),
        ]
    figures += [
        (f"{len(runs)}", "run answered" if len(runs) == 1 else "runs answered"),
        (size(sum(run.bytes for run in runs)), "have left"),
        _attack_findings(site),
    ]
    body = f"<p>{escape(said)}</p>" + "".join(f'<p class="second">{escape(line)}</p>' for line in second)
    body = f'<div class="answer">{body}</div>{_warnings(site)}'
    strip = "".join(f"<div><b>{value}</b>{name}</div>" for value, name in figures)
    return f'<section id="first">{body}<div class="figures">{strip}</div></section>'


def _attack_findings(site: SiteFacts) -> tuple[str, str]:
    """The findings of the attack on the log, and what they are."""
    what = "lines of the copy found by attack" if site.mode == "summary" else "rows found by attack"
    if site.record is not None and site.attack is None:
        return "?", what
    return f"{0 if site.attack is None else len(site.attack.rows):,}", what


def _warnings(site: SiteFacts) -> str:
    said = []
    if site.record is not None and not site.record.intact:
        said.append(verdict(site.record))
    if site.policy is None:
        said.append(f"The policy is {site.policy_from}.")
    elif site.record is not None and site.record.policies and site.record.policies[-1] != site.policy.digest:
        said.append(
            f"The site last answered under another policy (digest {site.record.policies[-1][:16]}) than that "
            f"described here (digest {site.policy.digest[:16]})."
        )
    if site.renewal_pending:
        said.append("A renewed copy waits for its approval: this page is about the copy before it.")
    if site.changes.damage:
        said.append(site.changes.damage)
    if site.mode == "summary" and site.summary is None:
        said.append("There is no copy in the folder.")
    if site.policy is not None and site.policy.protect.auto_approve:
        said.append("The policy has auto_approve = true: the site answers from a copy that nobody approved.")
    if not said:
        return ""
    items = "".join(f"<li>{escape(text)}</li>" for text in said)
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
            "What is processed", body, "Rows at the site. Of them is told what the policy declares."
        )
    named = {
        "studied": site.settings.columns,
        "does not decide who is grouped": site.settings.sensitive,
        "consumption": site.settings.consumption,
    }
    costs = {name: (share, shown) for name, share, shown in variance_kept(site.summary)}
    bare = without_categories(site.summary)
    columns = []
    for name, kind in zip(site.summary.names, site.summary.kinds, strict=True):
        marks = ", ".join(mark for mark, some in named.items() if name in some)
        share, shown = costs.get(name, (float("nan"), 0.0))
        held = (
            soft("how many have a value")
            if name in bare
            else f"means of groups, {percent(shown)} of persons"
            if kind == NUMBER
            else f"persons by level ({listed(site.summary.categories[name], 4)}), {percent(shown)} of persons"
            if kind == CATEGORY
            else soft("nothing")
        )
        columns.append(
            (escape(name), held, soft("none shown") if share != share else percent(share), escape(marks))
        )
    sizes = site.summary.people
    facts = [
        f"{sizes.sum():.0f} persons in {counted(len(site.summary), 'group')} of {sizes.min():.0f} to "
        f"{sizes.max():.0f}; made on {site.summary.made}. copy/table.csv has every line of it."
        if len(site.summary)
        else "No group is left in the copy: the site answers nothing until it is renewed.",
        *copy_facts(site.summary, site.settings, site.rare)[1:],
    ]
    return section(
        "What is processed",
        _list(facts) + table(("column", "in the copy", "variance kept", "declared"), columns, left=(0, 1, 3)),
        "Rows are read at the site when a copy is made"
        + (", and when it is renewed" if site.changes.registered else "")
        + ", and never to answer; these columns are in it.",
    )


def _sent(site: SiteFacts) -> str:
    if site.record is None or not site.record.runs:
        return section("What was sent", "<p>Nothing has left this site.</p>", "From the site's own log.")
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
    head = ("run", "first answer", "answers", "refusals", "numbers", "size", "masked", "seen alone")
    asked: dict[str, int] = {}
    for run in site.record.runs:
        for name, times in run.questions.items():
            asked[name] = asked.get(name, 0) + times
    kinds = [
        (escape(codec.meaning_of(name).replace("``", "")), escape(name), str(times))
        for name, times in sorted(asked.items())
    ]
    body = table(head, rows, left=(0, 1)) + '<h3 class="next">What was asked for</h3>'
    body += table(("asked for", "question", "times"), kinds, left=(0, 1))
    for run in site.record.runs:
        run = (
            replace(run, smallest=None) if site.mode == "summary" else run
        )  # every line of a copy is a group
        body += _list([f"Run {run.id}: {line}" for line in protection(run)])
    lead = "From the site's own log, which has every answer byte for byte. Masked: can be read only in a sum."
    return section("What was sent", body, lead)


def _sees(site: SiteFacts) -> str:
    held = {"summary": "its copy", "dp": "its rows, with noise", "raw": "its rows"}[site.mode]
    secure = site.policy.aggregation.secure if site.policy is not None else "preferred"
    alone = sum(run.alone for run in site.record.runs) if site.record is not None else 0
    single = {
        "required": "Sums over all sites only",
        "preferred": f"Counts and sums from {held}; only sums over all sites where a run uses secure sums",
        "off": f"Counts and sums from {held}",
    }[secure]
    if alone:
        single += f". So far {alone} replies of this site could be seen by themselves"
    rows = [
        ("Coordinator", single, "Rows, the column that says whose row it is, how the file is read"),
        ("Other sites", "The centres that the coordinator sends", "Answers of this site"),
        ("The network", "Encrypted messages, their sizes and times", "What they say"),
        (
            "Readers of the result",
            "Centres, counts and profiles over all sites. Of this site: its persons in each cluster, which a "
            "release rounds and redacts where they are few; in the coordinator's report also missing cells "
            "and where its persons lie on the map. With secure sums, of this site only missing cells",
            "Rows, the copy, single answers of this site",
        ),
        ("This site", "All of its own: rows, copy, log, ledger", "Anything of other sites but centres"),
    ]
    cells = [tuple(map(escape, row)) for row in rows]
    return section("Who sees what", table(("who", "sees", "does not see"), cells, left=(0, 1, 2)))


def _threats(site: SiteFacts) -> str:
    rows = [
        (escape(t.threat), escape(t.measure), escape(t.remains), f"<code>{_breakable(t.test)}</code>")
        for t in threats(site.mode)
    ]
    head = ("threat", "measure", "what remains", "shown by the test")
    body = f'<div class="threats">{table(head, rows, left=(0, 1, 2, 3))}</div>'
    if site.summary is not None:
        body += '<h3 class="next">What the copy does not promise</h3>' + _list(not_promised(site.summary))
    lead = "The tests are part of the package that made this page; make test runs them."
    return section("Threats, measures, and what remains", body, lead)


def _breakable(test: str) -> str:
    """The name of a test, which wraps after a slash, a colon or an underscore, and nowhere else."""
    return re.sub(r"(/|::|_)", r"\1<wbr>", escape(test))


def _attack(site: SiteFacts) -> str:
    if site.record is None:
        said = ["Nothing has left this site, so there is nothing to attack."]
    elif site.attack is None:
        said = ["The log is damaged: it could not be attacked."]
    else:
        cells, rows = site.attack.cells, len(site.attack.rows)
        said = [
            "All answers in the log were attacked as a reader of them all would: "
            f"{cells:,} groups were subtracted from each other, what was left was checked by its squares, "
            "and the search began again with what was found.",
            f"{rows} lines were found. The site answered from its copy, so any that is found is a mean over "
            "a group of persons in the copy."
            if site.mode == "summary"
            else f"{rows} rows were found; a longer search may find more.",
        ]
    return section("The attack on this site's own log", _list(said), "What unpooled site log --attack finds.")


def _rules(site: SiteFacts) -> str:
    if site.policy is None:
        return section("The policy", f"<p>{escape(site.policy_from)}</p>")
    body = "".join(f"<h3>{escape(heading)}</h3>{_list(lines)}" for heading, lines in explain(site.policy))
    return section("The policy", body, f"In plain words; from {escape(site.policy_from)}.")


def _digests(site: SiteFacts) -> str:
    items = [
        ("this page by", f"unpooled {version('unpooled')}"),
        ("site answered with", ", ".join(f"unpooled {v}" for v in site.versions) or "nothing yet"),
    ]
    if site.policy is not None:
        items.append(("policy", site.policy.digest))
        if site.policy.protect.preset:
            rule = preset(site.policy.protect.preset)
            items.append(("preset", f"{rule.name}: {rule.rule}. {rule.by}. {rule.where}"))
    if site.summary is not None:
        items += [("summary", site.summary_digest), ("copy made on", site.summary.made)]
        items.append(("copies before this one", str(site.changes.kept)))
    if site.approval:
        items.append(("approved", f"{site.approval['by']}, {site.approval['utc']}"))
    if site.record is not None:
        items += [("log", verdict(site.record))]
        items += [("not checked", text) for text in site.record.unchecked]
        if site.record.spent:
            spent = site.record.spent
            items.append(
                ("privacy budget", f"epsilon {spent['epsilon']:.3g} spent, {spent['left']:.3g} left")
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
    lead = "All above was generated from the site's folder; only these fields are filled in by hand."
    return section("To be filled in and signed", body, lead, "sign")


def _field(name: str, label: str, lines: int) -> str:
    """A field that grows with what is written into it, so that nothing of it is cut on paper."""
    return (
        f'<div class="field"><span class="label" id="{name}-label">{escape(label)}</span>'
        f'<div class="write" id="{name}" contenteditable="true" role="textbox" tabindex="0" '
        f'aria-multiline="true" aria-labelledby="{name}-label" style="--lines: {lines}"></div></div>'
    )


def _list(sentences: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in sentences) + "</ul>" if sentences else ""
