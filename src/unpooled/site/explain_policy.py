"""A policy as a commented file, and in plain words."""

import json
from dataclasses import replace
from typing import Any, Literal

from unpooled.privacy.presets import PRESETS, preset
from unpooled.site.allow_list import aggregate_only
from unpooled.site.policy import Budget, Domain, Policy, Protect, SiteSection, parse

_COMMENTS, _LONG = 33, 60  # where comments begin; longer lines push theirs away, and not those of all
_ROWS = 1_000_000  # declared of a site with noise, until its officer says a number
TEMPLATE = """\
# What this site answers. Everything not said here has the value shown by `unpooled site policy`.
# Unknown keys are refused; nothing that a coordinator sends can loosen a rule.
version = 2

[site]
id = {id}\t# the name under which the site joins; "": any
contact = {contact}\t# whom to ask about this policy

[protect]
mode = {mode}\t# summary | dp | raw
min_group_size = {min_group_size}\t# copy: persons in a group, at least; 0: proposed, 5 to 11
person = {person}\t# copy: the column that says whose row it is; "": every row is a person
columns = {columns}\t# copy: columns that studies are about
sensitive = {sensitive}\t# copy: columns that do not decide who is grouped with whom
log = {log}\t# copy: columns of which it holds the logarithm only
preset = {preset}\t# a published rule that this policy keeps to: {presets}
consumption = {consumption}\t# copy: columns of which nobody may have a large share of a total
max_share = {max_share}\t# copy: of a group's total in such a column, at most
auto_approve = {auto_approve}\t# copy: answer from it before anybody approved it
min_cluster_size = {min_cluster_size}\t# trusted: no group of fewer rows is shown

[jobs]
algorithms = {algorithms}
modules = {modules}\t# installed modules whose methods it trusts, e.g. "hospital_methods"
describe = {describe}\t# sums for the report: profiles, spread, how sites differ
max_runs = {max_runs}\t# noise, trusted
max_rounds = {max_rounds}\t# noise, trusted: a run

[studies]
approve = {approve}\t# ask | known: ask somebody here, or approve purposes of this coordinator
purposes = {purposes}\t# known: word for word, as studies name them; "*": any

[aggregation]
secure = {secure}\t# off | preferred | required: only sums over sites can be read
min_sites = {min_sites}
{noise}
[wire]
max_message_bytes = {max_message_bytes}
"""
_NOISE = """
[dp]\t# noise: differential privacy, and a budget for all answers together
privacy_unit = {privacy_unit}\t# whom it protects: row | person (said by [protect] person)
rows_per_person = {rows_per_person}\t# further rows of a person are left out
honest_sites = {honest_sites}\t# on a roster, which share one noise; 1: it adds all
delta = {delta}
epsilon_total = {epsilon_total}
{domain}"""
_DOMAIN = """
[domain]\t# noise: all that is told of the table; stated, never computed from rows
columns = {columns}
lower = {lower}
upper = {upper}
rows = {rows}\t# the most rows that there can be
"""
_NO_NOISE = """
# For mode = "dp":
# [dp]
# delta = 1e-6
# epsilon_total = 1.0
# [domain]                       # all that is told of the table: stated here, never computed from rows
# columns = ["age", "bmi"]
# lower = [0, 10]
# upper = [110, 80]
# rows = 10000                   # the most rows that there can be
"""


def to_toml(policy: Policy) -> str:
    """A policy as a file with a comment on each rule."""
    p, jobs, dp, domain = policy.protect, policy.jobs, policy.dp, policy.domain
    noise = _NO_NOISE
    if policy.private or domain.columns:
        ranges = {name: _toml(getattr(domain, name)) for name in domain.__dataclass_fields__}
        noise = _NOISE.format(
            **{name: _toml(getattr(dp, name)) for name in dp.__dataclass_fields__},
            domain=_DOMAIN.format(**ranges) if domain.columns or domain.rows else "",
        )
    values = {
        **{name: getattr(p, name) for name in p.__dataclass_fields__},
        **{name: getattr(jobs, name) for name in jobs.__dataclass_fields__},
        "id": policy.site.id,
        "contact": policy.site.contact,
        **{name: getattr(policy.studies, name) for name in policy.studies.__dataclass_fields__},
        "secure": policy.aggregation.secure,
        "min_sites": policy.aggregation.min_sites,
        "max_message_bytes": policy.wire.max_message_bytes,
    }
    said = {name: _toml(value) for name, value in values.items()}
    text = _aligned(TEMPLATE.format(**said, noise=noise, presets=" | ".join(PRESETS)))
    if p.preset:
        rule = PRESETS[p.preset]
        text = f"# Preset {rule.name}: {rule.rule}.\n# {rule.by}: {rule.where}\n{text}"
    assert parse(text) == policy
    return text


def _aligned(text: str) -> str:
    """Comments below each other, where a line has one after a tab; JSON writes a tab in a value otherwise."""
    parts = [line.partition("\t") for line in text.splitlines()]
    width = max(_COMMENTS, *(len(rule) + 2 for rule, _, comment in parts if comment and len(rule) < _LONG))
    return "".join(
        f"{rule:<{width - 1}} {comment}\n" if comment else f"{rule}\n" for rule, _, comment in parts
    )


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


def template(
    site: str, name: str = "", *, person: str = "", consumption: tuple[str, ...] = (), rows: int = 0
) -> str:
    """A policy file of the defaults, or of the preset of a name, each rule with its meaning."""
    protect, dp, domain = Protect(person=person, consumption=consumption), Budget(), Domain(rows=rows)
    if name:
        rule = preset(name)
        least = max(rule.min_people, protect.min_cluster_size)
        protect = replace(protect, preset=name, mode=rule.mode, min_cluster_size=least)
        if rule.mode == "summary":
            protect = replace(protect, min_group_size=rule.min_people)
        else:
            unit: Literal["row", "person"] = "person" if person else "row"
            dp, domain = Budget(privacy_unit=unit, epsilon_total=rule.epsilon), Domain(rows=rows or _ROWS)
        if rule.max_share:
            protect = replace(protect, max_share=rule.max_share)
    return to_toml(Policy(site=SiteSection(id=site), protect=protect, dp=dp, domain=domain))


def explain(policy: Policy) -> list[tuple[str, list[str]]]:
    """A policy in sentences, by heading: what the site answers, refuses, protects and records."""
    jobs = policy.jobs
    will = [
        f"It takes part in: {', '.join(jobs.algorithms) or 'nothing'}.",
        *_MODES[policy.protect.mode](policy),
    ]
    if jobs.modules:
        will.append(f"It trusts the methods of these installed modules: {', '.join(jobs.modules)}.")
    if jobs.describe:
        will.append("It sends sums for the report: profiles, spread, how rows lie between clusters.")
    wont = [
        "A question of another method, of other widths than its rows, or with centres that are not numbers, "
        "is refused.",
        f"A message of more than {policy.wire.max_message_bytes:,} bytes is not read.",
        "Code that a coordinator sends is not run, and how its file is read is not the coordinator's to say.",
    ]
    if policy.protect.mode != "summary":
        wont.append(
            f"More than {jobs.max_runs} runs, or {jobs.max_rounds} rounds a run, or a round that is over, "
            "are refused."
        )
    sums = {
        "off": "Its sums may be read by the coordinator as they are.",
        "preferred": "Its sums are masked where the run offers it, so that only the sum over sites can be "
        "read; in other runs they may be read as they are.",
        "required": f"It answers only in secure sums over at least {policy.aggregation.min_sites} sites; "
        "methods that ask to see single replies are refused (those that do not: "
        f"{', '.join(aggregate_only())}).",
    }[policy.aggregation.secure]
    will.append(_study_approval(policy))
    return [
        ("Answers", will),
        ("Refuses", wont),
        ("Protects", [*_keeps_to(policy), *_PROTECTS[policy.protect.mode](policy), sums]),
        ("Records", ["Every answer and refusal, byte for byte, in a log that shows any later change."]),
    ]


def _study_approval(policy: Policy) -> str:
    """Who approves the studies between machines."""
    purposes = policy.studies.purposes
    if policy.studies.approve == "ask":
        return "It answers nothing of a run between machines before somebody here approved its study."
    said = "any purpose" if "*" in purposes else " or ".join(f'"{purpose}"' for purpose in purposes)
    return (
        f"This policy approves studies of its federation's coordinator for {said}; of others it answers "
        "nothing before somebody here approved them."
    )


def _keeps_to(policy: Policy) -> list[str]:
    """The published rule that the policy keeps to, if any: what of it is kept here, and what at a release."""
    if not policy.protect.preset:
        return []
    rule = preset(policy.protect.preset)
    source = f"({rule.rule}. {rule.by}.)"
    return [f"It keeps to the preset {rule.name}: {kept_by_site(policy)} {source}", *at_release(policy)]


def kept_by_site(policy: Policy) -> str:
    """The part of its preset that a policy keeps to, in one sentence."""
    protect, rule = policy.protect, preset(policy.protect.preset)
    if protect.mode == "dp":
        return (
            rule.asks if rule.mode == "dp" else "every answer carries noise, whatever the number of persons."
        )
    if protect.mode == "raw":
        return f"no group of fewer than {rule.min_people} rows is shown."
    share = f", and nobody has more than {rule.max_share:.0%} of a total of consumption"
    return f"a group of the copy has at least {rule.min_people} persons{share if rule.max_share else ''}."


def at_release(policy: Policy) -> list[str]:
    """What of a preset is done when a run is released, and not by the site."""
    rule = preset(policy.protect.preset)
    if rule.mode == "dp":
        return []
    return [
        "The site itself redacts and rounds no counts: within a group of the copy, persons are counted one "
        f"by one. `unpooled release RUN --preset {rule.name}` redacts counts of fewer than {rule.min_people} "
        f"persons and rounds the others to {rule.rounding}, before results are published."
        if policy.protect.mode == "summary"
        else f"The site itself rounds no counts: `unpooled release RUN --preset {rule.name}` redacts and "
        "rounds, before results are published."
    ]


def _summary(policy: Policy) -> list[str]:
    p = policy.protect
    size = (
        f"at least {p.min_group_size} persons"
        if p.min_group_size
        else "at least 5 persons, of up to 11 at a large site"
    )
    said = [
        f"It answers from its copy: one row per group of {size}. Its rows are read while the copy is made or "
        "renewed, and never to answer.",
        f"Rows of one person are told by column {p.person}, which is in no answer."
        if p.person
        else "Every row counts as a person, unless the copy is made with --person.",
    ]
    if p.columns:
        said.append(f"Groups are made to suit studies of: {', '.join(p.columns)}.")
    if p.sensitive:
        said.append(f"These columns do not decide who is grouped with whom: {', '.join(p.sensitive)}.")
    if p.log:
        said.append(f"Of these columns the copy holds the logarithm only: {', '.join(p.log)}.")
    if p.consumption:
        said.append(
            f"Of {', '.join(p.consumption)} a group's mean is shown only if nobody has more than "
            f"{p.max_share * 100:g} % of the group's total."
        )
    return said


def _dp(policy: Policy) -> list[str]:
    domain, person = policy.domain, policy.protect.person
    said = [
        "It answers from its rows, with noise; a question without noise is refused. It has no copy.",
        f"Of its table it tells what is declared here: {', '.join(domain.columns) or 'no column by name'}, "
        f"at most {domain.rows:,} rows.",
    ]
    if policy.dp.privacy_unit == "person":
        each = policy.dp.rows_per_person
        rows = "1 row" if each == 1 else f"{each} rows"
        said.append(f"It takes at most {rows} of each person, told by column {person}.")
    return said


def _raw(policy: Policy) -> list[str]:
    return [
        "It answers from its rows, exactly, and trusts whoever runs the federation: sums of many groups can "
        "be taken apart into rows (`unpooled site log --attack` shows how many).",
        f"A group of fewer than {policy.protect.min_cluster_size} rows is left out, count and sum alike.",
    ]


_MODES = {"summary": _summary, "dp": _dp, "raw": _raw}


def _summary_protects(policy: Policy) -> list[str]:
    approved = (
        "It answers from a copy that nobody approved."
        if policy.protect.auto_approve
        else "It answers nothing before somebody at the site approved the copy."
    )
    return [
        "Whatever is asked, in whatever order: the copy is the most that anybody can learn. "
        "`unpooled site review` opens it.",
        approved,
    ]


def _dp_protects(policy: Policy) -> list[str]:
    return [
        f"({policy.dp.epsilon_total:g}, {policy.dp.delta:g})-differential privacy for a {policy.dp.privacy_unit}, "
        "over all runs together. When it is spent, nothing more is answered."
    ]


def _raw_protects(policy: Policy) -> list[str]:
    return ["Nothing but the contract with its partners protects single rows."]


_PROTECTS = {"summary": _summary_protects, "dp": _dp_protects, "raw": _raw_protects}
