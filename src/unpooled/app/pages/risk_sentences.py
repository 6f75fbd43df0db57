"""Sentences on the risks of a summary table, which an officer can sign: measured on the site's own rows."""

from dataclasses import replace

from unpooled.data.table import Table
from unpooled.errors import TooFewPeopleError
from unpooled.html.formatting import percent
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.privacy.microaggregation.disclosure_risk import (
    MAX_FOUND,
    AttributeRisk,
    Risks,
    clustering_cost,
    measure_risks,
    membership_by_size,
    proposed_size,
)

_CLUSTERS = (3, 6)
_NOTABLE = 0.03  # a price of diversity from which on the column makes the clusters
_NAMED = 5  # columns, the worst first


def measured(table: Table, settings: SummarySettings) -> list[str]:
    """Measure the risks and the price of a summary table of these rows, and return them in sentences."""
    try:
        risks = measure_risks(table, settings, settings.ungrouped)
    except TooFewPeopleError:
        return ["There are too few people to measure the risks: half of them must fill several groups."]
    sizes = _group_sizes(table, settings, risks.membership.min_group_size)
    return [*risk_sentences(risks), *sizes, *_diversity_price(table, settings)]


def risk_sentences(risks: Risks) -> list[str]:
    """Return the sentences on risks, the column with the largest one first."""
    half = risks.people // 2
    sentences = [
        f"These risks were measured on {risks.people:,} people of this site: {half:,} were made into a "
        "summary table, and the others are controls. The difference between both is due to the table.",
        "A risk is low if the shares of people in the table and of controls are nearly equal, and if "
        f"membership inference finds at most {percent(MAX_FOUND)}. Otherwise make the table anew: with "
        "larger groups (--min-group-size), fewer columns (--exclude), or --diverse for a sensitive column.",
    ]
    sentences += [_attribute(one) for one in risks.attributes[:_NAMED]]
    membership = risks.membership
    sentences += [
        f"Membership inference: from a pair, one in the table and one not, someone who has both exact rows "
        f"picks the right one in {percent(membership.auc)} (50% is guessing). With 1% false alarms they find "
        f"{percent(membership.found)} of the people in the table.",
        f"Singling out: {percent(risks.singled_out[0])} of predicates made from the table fit exactly one "
        f"person in it, and {percent(risks.singled_out[1])} fit exactly one control.",
        f"Linkability: two halves of a person's columns lead to the same group for "
        f"{percent(risks.linked[0])} of the people in the table, and for "
        f"{percent(risks.linked[1])} of the controls.",
    ]
    return sentences


def _attribute(one: AttributeRisk) -> str:
    right = "is within 10% of" if one.number else "is right about"
    sentence = (
        f"Attribute inference: someone who knows all other columns {right} {one.column} for "
        f"{percent(one.members)} of the people in the table, for {percent(one.controls)} of the controls, "
        f"and by guessing for {percent(one.guess)}."
    )
    if one.uniform:
        sentence += f" In {percent(one.uniform)} of the groups all people are alike in it."
    return sentence


def _group_sizes(table: Table, settings: SummarySettings, in_use: int) -> list[str]:
    """Return a sentence on the risk by minimum group size; it proposes none below the size in use."""
    sizes = membership_by_size(table, settings)
    if not sizes:
        return []
    parts = []
    for one in sizes:
        costs = clustering_cost(table, replace(settings, min_group_size=one.min_group_size), _CLUSTERS)
        prices = ("-" if cost != cost else f"{cost:.3f}" for cost in costs)
        parts.append(f"{one.min_group_size}: {', '.join((percent(one.found), *prices))}")
    proposed = proposed_size(sizes)
    few = f"at most {percent(MAX_FOUND)} are found"
    if not proposed:
        advice = (
            f"At each of these sizes more than {percent(MAX_FOUND)} are found: disclose fewer columns, or "
            "use differential privacy"
        )
    elif proposed > in_use:
        advice = f"Proposal: --min-group-size {proposed}, the smallest of these sizes at which {few}"
    else:
        advice = f"{proposed} is the smallest of these sizes at which {few}; that of this table is {in_use}"
    return [
        "Membership inference by minimum group size: the share found, and the cost in accuracy (inertia of "
        f"{' and of '.join(map(str, _CLUSTERS))} clusters over that from rows). {'; '.join(parts)}. {advice}."
    ]


def _diversity_price(table: Table, settings: SummarySettings) -> list[str]:
    if not settings.diverse:
        return []
    sentences = []
    plain = replace(settings, diverse=(), sensitive=settings.ungrouped)
    costs = (clustering_cost(table, each, _CLUSTERS) for each in (settings, plain))
    for k, with_rule, without in zip(_CLUSTERS, *costs, strict=True):
        if with_rule == with_rule and without == without:
            names = ", ".join(settings.diverse)
            sentence = (
                f"The price of diverse values of {names}, {k} clusters: inertia {with_rule:.3f} of that from "
                f"rows, and {without:.3f} without the rule."
            )
            if with_rule - without > _NOTABLE:
                sentence += f" {names} is what the clusters are made of."
            sentences.append(sentence)
    return sentences
