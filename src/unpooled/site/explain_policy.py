"""A policy as a commented file, and explained in sentences."""

import json
from dataclasses import fields, replace
from typing import Literal

from unpooled.privacy.microaggregation.summary_settings import SummarySettings
from unpooled.privacy.presets import PRESETS, preset
from unpooled.site.allow_list import aggregate_only
from unpooled.site.policy import Budget, Domain, Policy, Protect, SiteSection, parse
from unpooled.site.study import BY_AGREEMENT

_COMMENTS, _LONG = 33, 60  # the column of comments, and the length from which a line has its comment after it
_ROWS = 1_000_000  # the declared rows of a site with mode = "dp", until its officer writes a number
TEMPLATE = """\
# The rules under which this site answers queries. `unpooled site policy` explains them.
# A rule that is missing here has its default. An unknown key is an error.
# Nothing that a coordinator sends can loosen a rule.
format = {format}

[site]
id = {id}\t# the name under which the site joins; "": any
contact = {contact}\t# the person to ask about this policy

[protect]
mode = {mode}\t# summary: a summary table | dp: differential privacy | raw: exact answers
min_group_size = {min_group_size}\t# summary: fewest people in a group; 0: by people and columns
person = {person}\t# summary: the column that identifies people
one_row_per_person = {one_row_per_person}\t# summary: declare that every row is a different person
study_columns = {study_columns}\t# summary: columns that studies are about
sensitive = {sensitive}\t# summary: columns that do not decide who is grouped with whom
diverse = {diverse}\t# summary: sensitive columns of which no group has too many equal values
diverse_by = {diverse_by}\t# summary: how far a value's share in a group may exceed its share in the table
no_sensitive_columns = {no_sensitive_columns}\t# summary: declare that no column is sensitive
log_transform = {log_transform}\t# summary: columns of which the table has only the logarithm
preset = {preset}\t# a published rule that this policy follows: {presets}
consumption = {consumption}\t# summary: columns in which nobody may have a large share of a total
max_share = {max_share}\t# summary: the largest share of a group's total in such a column
auto_approve = {auto_approve}\t# summary: answer from a table that nobody approved
min_cluster_size = {min_cluster_size}\t# raw: fewest rows in a group that is disclosed

[jobs]
algorithms = {algorithms}
modules = {modules}\t# installed modules whose methods the site trusts, e.g. "hospital_methods"
describe = {describe}\t# sums for the report: profiles, spread, how sites differ
max_runs = {max_runs}\t# dp, raw
max_rounds = {max_rounds}\t# dp, raw: in one run

[studies]
approve = {approve}\t# ask: somebody here approves each study | known: the policy does, for these purposes
purposes = {purposes}\t# known: word for word, as studies name them; "*": any

[aggregation]
secure = {secure}\t# secure sums: off | preferred | required
min_sites = {min_sites}\t# fewest sites in a secure sum
max_equations = {max_equations}\t# raw: equations about rows in secure sums, as a share of the rows
{dp}
[wire]
max_message_bytes = {max_message_bytes}
"""
_DP = """
[dp]\t# differential privacy: one budget for all answers together
privacy_unit = {privacy_unit}\t# row | person (the column [protect] person identifies people)
rows_per_person = {rows_per_person}\t# a person's other rows are left out
sites_per_person = {sites_per_person}\t# sites at which one person may have rows: a study must state as many
honest_sites = {honest_sites}\t# participants of a secure sum that share one noise; 1: only this site
delta = {delta}
epsilon_total = {epsilon_total}
{domain}"""
_DOMAIN = """
[domain]\t# dp: the public facts about the table, declared here and not computed from rows
columns = {columns}
lower = {lower}
upper = {upper}
rows = {rows}\t# an upper bound on the number of rows
"""
_DP_EXAMPLE = """
# For mode = "dp":
# [dp]
# delta = 1e-6
# epsilon_total = 1.0
# [domain]                       # the public facts about the table, declared here and not computed from rows
# columns = ["age", "bmi"]
# lower = [0, 10]
# upper = [110, 80]
# rows = 10000                   # an upper bound on the number of rows
"""


def to_toml(policy: Policy) -> str:
    """Return a policy as a file with a comment on each rule."""
    p, jobs, dp, domain = policy.protect, policy.jobs, policy.dp, policy.domain
    private = _DP_EXAMPLE
    if policy.private or domain.columns:
        ranges = {name: _toml(getattr(domain, name)) for name in domain.__dataclass_fields__}
        private = _DP.format(
            **{name: _toml(getattr(dp, name)) for name in dp.__dataclass_fields__},
            domain=_DOMAIN.format(**ranges) if domain.columns or domain.rows else "",
        )
    values = {
        **{name: getattr(p, name) for name in p.__dataclass_fields__},
        **{name: getattr(jobs, name) for name in jobs.__dataclass_fields__},
        "format": policy.format,
        "id": policy.site.id,
        "contact": policy.site.contact,
        **{name: getattr(policy.studies, name) for name in policy.studies.__dataclass_fields__},
        "secure": policy.aggregation.secure,
        "min_sites": policy.aggregation.min_sites,
        "max_equations": policy.aggregation.max_equations,
        "max_message_bytes": policy.wire.max_message_bytes,
    }
    rules = {name: _toml(value) for name, value in values.items()}
    text = _aligned(TEMPLATE.format(**rules, dp=private, presets=" | ".join(PRESETS)))
    if p.preset:
        rule = PRESETS[p.preset]
        text = f"# Preset {rule.name}: {rule.rule}.\n# {rule.by}: {rule.where}\n{text}"
    assert parse(text) == policy
    return text


def _aligned(text: str) -> str:
    """The text with the comments, which follow a tab, in one column; a tab in a value is escaped by JSON."""
    parts = [line.partition("\t") for line in text.splitlines()]
    width = max(_COMMENTS, *(len(rule) + 2 for rule, _, comment in parts if comment and len(rule) < _LONG))
    return "".join(
        f"{rule:<{width - 1}} {comment}\n" if comment else f"{rule}\n" for rule, _, comment in parts
    )


def _toml(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


def template(
    site: str,
    name: str = "",
    *,
    person: str = "",
    one_row_per_person: bool = False,
    consumption: tuple[str, ...] = (),
    rows: int = 0,
) -> str:
    """Return a policy file with the defaults, or with the preset of a name, and a comment on each rule."""
    protect = Protect(person=person, one_row_per_person=one_row_per_person, consumption=consumption)
    dp, domain = Budget(), Domain(rows=rows)
    if name:
        rule = preset(name)
        rows_in_group = max(rule.min_people, protect.min_cluster_size)
        protect = replace(protect, preset=name, mode=rule.mode, min_cluster_size=rows_in_group)
        if rule.mode == "summary":
            protect = replace(protect, min_group_size=rule.min_people)
        else:
            unit: Literal["row", "person"] = "person" if person else "row"
            dp, domain = Budget(privacy_unit=unit, epsilon_total=rule.epsilon), Domain(rows=rows or _ROWS)
        if rule.max_share:
            protect = replace(protect, max_share=rule.max_share)
    return to_toml(Policy(site=SiteSection(id=site), protect=protect, dp=dp, domain=domain))


def explain(policy: Policy, table: SummarySettings | None = None) -> list[tuple[str, list[str]]]:
    """Return a policy in sentences, by heading: what the site answers, refuses, protects and records.

    ``table`` has the settings that the site's summary table was made with, where there is one: the options of
    ``unpooled site summarize`` may have added to the policy.
    """
    if table is not None:
        names = {one.name for one in fields(Protect)} & {one.name for one in fields(table)}
        made = {name: getattr(table, name) for name in names}
        policy = replace(policy, protect=replace(policy.protect, **made))
    jobs = policy.jobs
    answers = [
        f"The site takes part in these methods: {', '.join(jobs.algorithms) or 'none'}.",
        *_MODES[policy.protect.mode](policy),
    ]
    if jobs.modules:
        answers.append(f"The site trusts the methods of these installed modules: {', '.join(jobs.modules)}.")
    if jobs.describe:
        answers.append("The site sends sums for the report: profiles, spread, rows between clusters.")
    answers.append(_study_approval(policy))
    refuses = [
        "The site refuses a query of another method, a query about another number of columns, and a query "
        "with centres that are not numbers.",
        f"The site does not read a message of more than {policy.wire.max_message_bytes:,} bytes.",
        "The site does not run code that a coordinator sends, and a coordinator cannot choose how the site "
        "reads its file.",
    ]
    if policy.protect.mode != "summary":
        refuses.append(
            f"The site refuses more than {jobs.max_runs} runs, more than {jobs.max_rounds} rounds in one "
            "run, and a query of a round that is over."
        )
    sums = {
        "off": "The coordinator can read the site's own sums.",
        "preferred": "The site masks its sums (secure aggregation) in runs that offer it, so that the "
        "coordinator can read only the sum over sites. In other runs the coordinator can read the site's own "
        "sums.",
        "required": "The site answers only in secure sums (secure aggregation) over at least "
        f"{policy.aggregation.min_sites} sites. It refuses methods that need the answers of single sites. "
        f"These methods need only sums: {', '.join(aggregate_only())}.",
    }[policy.aggregation.secure]
    return [
        ("Answers", answers),
        ("Refuses", refuses),
        ("Protects", [*_follows(policy), *_PROTECTS[policy.protect.mode](policy), sums]),
        ("Records", ["The site logs every answer and refusal, byte for byte, in a tamper-evident log."]),
    ]


def _study_approval(policy: Policy) -> str:
    """The sentence on who approves the studies of runs between machines."""
    purposes = policy.studies.purposes
    if policy.studies.approve == "ask":
        return "In runs between machines the site answers only studies that somebody here approved."
    covered = "any purpose" if "*" in purposes else " or ".join(f'"{purpose}"' for purpose in purposes)
    return (
        f"This policy approves studies of its federation's coordinator for {covered}. The site answers other "
        "studies only after somebody here approved them."
    )


def _follows(policy: Policy) -> list[str]:
    """The published rule that the policy follows, if any: the site's part of it, and the release's part."""
    if not policy.protect.preset:
        return []
    rule = preset(policy.protect.preset)
    source = f"({rule.rule}. {rule.by}.)"
    return [
        f"The policy follows the preset {rule.name}: {kept_by_site(policy)} {source}",
        *at_release(policy),
    ]


def kept_by_site(policy: Policy) -> str:
    """Return the part of its preset that the site enforces, in one sentence."""
    protect, rule = policy.protect, preset(policy.protect.preset)
    if protect.mode == "dp":
        return rule.asks if rule.mode == "dp" else "every answer has noise, whatever the number of people."
    if protect.mode == "raw":
        return f"no group of fewer than {rule.min_people} rows is disclosed."
    share = f", and nobody has more than {rule.max_share:.0%} of a total of consumption"
    size = f"every group of the summary table has at least {rule.min_people} people"
    return f"{size}{share if rule.max_share else ''}."


def at_release(policy: Policy) -> list[str]:
    """Return the part of a preset that applies when a run is released, and not at the site."""
    rule = preset(policy.protect.preset)
    if rule.mode == "dp":
        return []
    return [
        "The site itself does not suppress or round counts: the number of people in a group is exact. "
        f"`unpooled release RUN --preset {rule.name}` suppresses counts of fewer than {rule.min_people} "
        f"people and rounds the others to {rule.rounding}, before results are published."
        if policy.protect.mode == "summary"
        else f"The site itself does not round counts. `unpooled release RUN --preset {rule.name}` suppresses "
        "and rounds them, before results are published."
    ]


def _summary(policy: Policy) -> list[str]:
    p = policy.protect
    size = p.min_group_size or "g"
    proposed = "" if p.min_group_size else " g is at least 5, and larger for many people or columns."
    sentences = [
        "The site answers from a summary table (microaggregation): every row is the average of at least "
        f"{size} people, i.e. k-anonymity with k = {size}.{proposed}",
        "The site reads its rows to make or update the summary table, and not to answer queries.",
        _rows_of_people(p),
    ]
    if p.study_columns:
        sentences.append(f"The grouping gives more weight to these columns: {', '.join(p.study_columns)}.")
    if p.sensitive:
        sentences.append(f"These columns do not decide who is grouped with whom: {', '.join(p.sensitive)}.")
    if p.diverse:
        sentences.append(diversity(p.diverse, p.diverse_by))
    if p.no_sensitive_columns:
        sentences.append("The site declares that no column is sensitive.")
    elif not p.sensitive and not p.diverse:
        sentences.append(
            "This policy does not declare which columns are sensitive. `unpooled site summarize` needs "
            "--diverse, --sensitive or --no-sensitive-columns."
        )
    if p.log_transform:
        sentences.append(
            f"The summary table has only the logarithm of these columns: {', '.join(p.log_transform)}."
        )
    if p.consumption:
        sentences.append(
            f"A group's mean of {', '.join(p.consumption)} is disclosed only if nobody has more than "
            f"{p.max_share * 100:g}% of the group's total."
        )
    return sentences


def _rows_of_people(protect: Protect) -> str:
    """The sentence on which rows belong to one person."""
    if protect.person:
        return f"Column {protect.person} identifies people. It is not in any answer."
    if protect.one_row_per_person:
        return "The site declares that every row is a different person."
    return (
        "This policy does not declare which rows belong to one person. `unpooled site summarize` needs "
        "--person or --one-row-per-person."
    )


def diversity(columns: tuple[str, ...], by: float) -> str:
    """Return a sentence on the limit that holds for these columns."""
    return (
        f"In no group is a value of {', '.join(columns)} more frequent than in the whole table by more than "
        f"{by * 100:g} percentage points. A value that {100 - by * 100:g}% or more of the people have may "
        "fill a group."
    )


def _dp(policy: Policy) -> list[str]:
    domain, person = policy.domain, policy.protect.person
    columns = ", ".join(domain.columns) or "no column by name"
    sentences = [
        "The site answers from its rows with noise (differential privacy), and refuses a query without "
        "noise. It does not have a summary table.",
        f"The site states only what this policy declares about its table: {columns}, at most "
        f"{domain.rows:,} rows.",
    ]
    if policy.dp.privacy_unit == "person":
        each = policy.dp.rows_per_person
        rows = "1 row" if each == 1 else f"{each} rows"
        sentences.append(f"The site uses at most {rows} of each person. Column {person} identifies people.")
    if policy.dp.sites_per_person > 1:
        sentences.append(
            f"A person may have rows at up to {policy.dp.sites_per_person} sites. The site refuses a study "
            "that states fewer, and charges for all of them."
        )
    return sentences


def _raw(policy: Policy) -> list[str]:
    if policy.groups_rows:
        return [
            "The site answers only in secure sums, from groups of its rows. Only exact rounds, after the "
            "clusters were found, read the rows themselves.",
            "The groups are made once. If the rows change, the site refuses all further secure sums.",
        ]
    return [
        "The site answers exactly, from its raw rows. It relies on a contract with the people who run the "
        "federation: they can reconstruct rows from the sums of many groups (`unpooled site log --attack` "
        "counts them).",
        f"The site suppresses the count and the sum of a group of fewer than "
        f"{policy.protect.min_cluster_size} rows.",
    ]


_MODES = {"summary": _summary, "dp": _dp, "raw": _raw}


def _summary_protects(policy: Policy) -> list[str]:
    approved = (
        "The site answers from a summary table that nobody approved (auto_approve = true)."
        if policy.protect.auto_approve
        else "The site answers only from a summary table that somebody at the site approved."
    )
    transfer = (
        "The summary table does not leave: the site takes part only in secure sums."
        if policy.aggregation.secure == "required"
        else "In a run without secure sums the coordinator receives the study's columns of the summary table "
        f'once. {BY_AGREEMENT} `secure = "required"` in [aggregation] keeps the table at the site.'
    )
    return [
        "No series of queries reveals more than the summary table itself, because every answer is computed "
        "from it. `unpooled site review` opens it.",
        transfer,
        approved,
    ]


def _dp_protects(policy: Policy) -> list[str]:
    return [
        f"All answers of all runs together satisfy ({policy.dp.epsilon_total:g}, {policy.dp.delta:g})-"
        f"differential privacy for a {policy.dp.privacy_unit}. When the budget is spent, the site answers "
        "nothing more."
    ]


def _raw_protects(policy: Policy) -> list[str]:
    share = policy.aggregation.max_equations
    sentences = ["Only the contract with the partners protects single rows."]
    if policy.aggregation.secure != "off":
        sentences.append(
            "Secure sums over rows protect the site's totals. They do not protect rows: the coordinator can "
            "compute most rows of all sites together from the sums of an ordinary run."
            if share == 1
            else "Secure sums over rows protect the site's totals. From all of them together, linear algebra "
            f"gives at most {share * 100:g}% of the site's rows: the site counts the equations that they "
            "open, and opens no more."
        )
    return sentences


_PROTECTS = {"summary": _summary_protects, "dp": _dp_protects, "raw": _raw_protects}
