"""The page of a summary table, for the officer who approves it: the table, how it was made, its cost."""

from dataclasses import replace

import numpy as np

from unpooled.data.column_kinds import KINDS, has_cells, kind_of
from unpooled.data.summary_table import OTHER, SummaryTable
from unpooled.html.formatting import counted
from unpooled.html.rendering import render
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.site.explain_policy import diversity

_MAX_ROWS = 2000  # on the page; the CSV has all of them
_MAX_UNIFORM = 12  # columns with uniform groups that are named
NOT_MEASURED = "The risks of this table were not measured: site summarize measures them for a first table."
STAYS = "These figures come from rows. They stay in the site's folder, and are in no answer."


def definition(min_group_size: float) -> str:
    """Return what a summary table is, for the first use of the word on a page."""
    return (
        "A summary table (microaggregation): every row is the average of at least "
        f"{min_group_size:g} people, i.e. k-anonymity with k = {min_group_size:g}."
    )


def facts(summary: SummaryTable, settings: SummarySettings, rare: tuple[str, ...] | None = None) -> list[str]:
    """Return sentences on a summary table: its size, its date, how it was made.

    ``rare``: the columns in which a rare category counts as the most common one; None: unknown.
    """
    n, sizes = summary.people.sum(), summary.people
    sentences = [
        f"{n:.0f} people in {counted(len(summary), 'group')} of {sizes.min():.0f} to {sizes.max():.0f}; made "
        f"on {summary.made}. The site answers only from the table below: queries of any kind and number "
        "disclose no more."
        if len(summary)
        else "The summary table has no groups left: the site answers nothing until it is updated.",
        *_below_default(summary, settings),
        _declaration(settings),
        f"A cell is disclosed if at least {summary.min_group_size} people of a group have a value. Otherwise "
        "it is empty, and its number of people with a value is given as 0. Means are cut so that nobody "
        "dominates them, and rounded.",
    ]
    if settings.not_a_person:
        sentences.append(
            "The site declared that these columns do not identify people: "
            f"{', '.join(settings.not_a_person)}."
        )
    if settings.study_columns:
        sentences.append(
            f"The grouping gives more weight to these columns: {', '.join(settings.study_columns)}."
        )
    if settings.ungrouped:
        sentences.append(f"The grouping ignores these columns: {', '.join(settings.ungrouped)}.")
    if settings.diverse:
        sentences.append(diversity(settings.diverse, settings.diverse_by))
    if settings.no_sensitive_columns:
        sentences.append("The site declared that no column is sensitive.")
    if settings.log_transform:
        sentences.append(
            f"The table holds only the logarithm of these columns: {', '.join(settings.log_transform)}."
        )
    if settings.consumption:
        sentences.append(
            f"A cell of {', '.join(settings.consumption)} is disclosed only if nobody has more than "
            f"{settings.max_share * 100:g}% of the group's total."
        )
    return [*sentences, *_rare(summary, rare), *_odd_columns(summary), *_uniform(summary, settings)]


def _below_default(summary: SummaryTable, settings: SummarySettings) -> list[str]:
    """Return a sentence if the minimum group size that was set is below the default."""
    columns = sum(has_cells(kind) for kind in summary.kinds)
    default = replace(settings, min_group_size=0).group_size_for(int(summary.people.sum()), columns)
    if not settings.min_group_size or summary.min_group_size >= default:
        return []
    return [
        f"The minimum group size of {summary.min_group_size} was set by the policy or an option. The default "
        f"for this number of people and columns is {default}: smaller groups disclose more about who is in "
        "the table."
    ]


def _declaration(settings: SummarySettings) -> str:
    """Return what the site declared about the rows of a person."""
    if settings.person:
        return (
            f"The site declared that column {settings.person} identifies people: rows of one person were "
            "combined."
        )
    return (
        "The site declared that every row is a different person. Without a column that identifies people, "
        "nobody can be erased from the table, and it cannot be updated."
    )


def _odd_columns(summary: SummaryTable) -> list[str]:
    """Return sentences on columns that are suppressed, fully or nearly, each with the reason."""
    sentences = []
    for name, kind in zip(summary.names, map(kind_of, summary.kinds), strict=True):
        if kind.legend:
            sentences.append(f"In the means of {name}, {kind.legend}.")
    for text, kind in KINDS.items():
        named = [name for name, own in zip(summary.names, summary.kinds, strict=True) if own == text]
        if named and kind.suppressed:
            sentences.append(f"These columns are suppressed, because {kind.suppressed}: {', '.join(named)}.")
    if bare := without_categories(summary):
        sentences.append(
            "The table discloses only how many people of a group have a value in these columns, because no "
            f"value is shared by {summary.min_group_size} people: {', '.join(bare)}."
        )
    if flat := _flat(summary):
        sentences.append(
            "These columns are constant except for a few people, and disclosed as their median: "
            f"{', '.join(flat)}."
        )
    return sentences


def without_categories(summary: SummaryTable) -> list[str]:
    """Return the categorical columns without a named category, e.g. names: all their values are rare."""
    return [name for name, categories in summary.categories.items() if categories == (OTHER,)]


def _flat(summary: SummaryTable) -> list[str]:
    return [
        name
        for name, mean in summary.means.items()
        if len(np.unique(mean[summary.people_with_value(name) > 0])) == 1 and len(summary) > 1
    ]


def _rare(summary: SummaryTable, rare: tuple[str, ...] | None) -> list[str]:
    """Return a sentence on rare categories that count as the most common one; ``rare``: where, if known.

    It does not state how many people they are: others may see the page, and the table does not disclose it.
    """
    without = [name for name, categories in summary.categories.items() if OTHER not in categories]
    few = f"fewer than {summary.min_group_size} people"
    if rare is None and without:
        return [
            f"If {few} in total have rare categories of a column, they count under its most common category, "
            f"not under {OTHER}. This may be the case in: {', '.join(without)}."
        ]
    if named := [name for name in without if rare and name in rare]:
        return [
            f"People with rare categories ({few} in total, by column) count under the most common category, "
            f"not under {OTHER}, in: {', '.join(named)}."
        ]
    return []


def uniform_groups(summary: SummaryTable) -> list[tuple[str, int]]:
    """Return (column, groups in which all people are alike) of categories, and of columns of 0 and 1."""
    found, flat = [], set(_flat(summary))
    for name in summary.names:
        disclosed = summary.people_with_value(name) > 0
        same = 0
        if name in summary.counts and len(summary.categories[name]) > 1:
            same = int((summary.counts[name].max(axis=1) == summary.people_with_value(name))[disclosed].sum())
        elif name in summary.means and name not in flat:
            mean = summary.means[name][disclosed]
            if mean.size and mean.min() >= 0 and mean.max() <= 1:
                same = int(((mean == 0) | (mean == 1)).sum())
        if same:
            found.append((name, same))
    return sorted(found, key=lambda one: -one[1])


def _uniform(summary: SummaryTable, settings: SummarySettings) -> list[str]:
    found = uniform_groups(summary)
    if not found:
        return []
    named = ", ".join(f"{name} ({counted(groups, 'group')})" for name, groups in found[:_MAX_UNIFORM])
    named += f" and {len(found) - _MAX_UNIFORM} more" if len(found) > _MAX_UNIFORM else ""
    sentence = (
        f"All people of a group are alike in: {named}. Someone who knows a person's group learns these "
        "values of the person."
    )
    open_to = [name for name, _ in found if name not in settings.ungrouped]
    if open_to:
        sentence += (
            f" Use --diverse COLUMN (e.g. {open_to[0]}) if nobody may learn a column in this way: no group "
            "then has too many equal values of it."
        )
    return [sentence]


def variance_kept(summary: SummaryTable) -> list[tuple[str, float, float]]:
    """Return (column, share of its variance between the groups, share of people in disclosed cells)."""
    out = []
    for name in summary.names:
        if name in summary.categories and summary.categories[name] == (OTHER,):
            continue
        known = summary.people_with_value(name)
        disclosed = float(known.sum() / max(float(summary.people.sum()), 1.0))
        if name in summary.means:
            mean = float(known @ summary.means[name] / max(float(known.sum()), 1.0))
            between = float(known @ (summary.means[name] - mean) ** 2 / max(float(known.sum()), 1.0))
            inside = float(summary.within[summary.index(name)])
        elif name in summary.counts:
            share = summary.counts[name] / np.maximum(known, 1.0)[:, None]
            overall = known @ share / max(float(known.sum()), 1.0)
            between = float((known @ (share - overall) ** 2).sum() / max(float(known.sum()), 1.0))
            inside = float((known @ (share * (1 - share))).sum() / max(float(known.sum()), 1.0))
        else:
            continue
        whole_variance = between + inside
        out.append((name, between / whole_variance if whole_variance > 0 else float("nan"), disclosed))
    return out


def _within(summary: SummaryTable, name: str) -> float | None:
    """Return the variance of a column within groups that the table holds; None if it holds none."""
    value = float(summary.within[summary.index(name)])
    return None if np.isnan(value) else value


def not_promised(summary: SummaryTable) -> list[str]:
    """Return sentences on what the summary table does not promise."""
    return [
        "The number of people at this site is disclosed exactly.",
        "If all people of a group are alike, this is visible, except in columns that --diverse names.",
        "Columns that are sums of others (a, b and a + b) can disclose more together than each does alone. "
        "Columns with the same content are detected, and have the same missing values.",
        "Someone who knows every member of a group except one can compute that person's values "
        "approximately.",
        "With two columns and many people, the mean of a group is close to the row of each of them.",
        "Membership inference: someone who has a person's exact row can often decide whether it is in the "
        "table. The risk grows with the number of columns, and falls with the minimum group size "
        f"({summary.min_group_size}).",
        'Differential privacy (mode = "dp" in the policy) protects against these.',
    ]


def page(
    summary: SummaryTable,
    settings: SummarySettings,
    approved: str,
    digest: str,
    *,
    renewal: bool = False,
    rare: tuple[str, ...] | None = None,
    risks: tuple[str, ...] = (),
) -> str:
    """Return the HTML page of a summary table, or of its pending update; ``rare`` as for ``facts``.

    ``risks``: sentences on risks that were measured on the site's rows.
    """
    answers = "from the old table" if renewal else "nothing"
    state = f"Approved at {approved} UTC." if approved else f"Not approved yet: the site answers {answers}."
    cells = summary.cells()
    columns = [["" if v != v else f"{v:.6g}" for v in values[:_MAX_ROWS].tolist()] for _, values in cells]
    return render(
        "summary_table.html",
        title="Summary table of this site",
        definition=definition(summary.min_group_size),
        facts=[*facts(summary, settings, rare), state],
        variances=[
            (name, None if share != share else share, _within(summary, name), disclosed)
            for name, share, disclosed in variance_kept(summary)
        ],
        clusters=_clusters(summary),
        risks=risks or (NOT_MEASURED,),
        stays=STAYS,
        not_promised=not_promised(summary),
        headings=[heading for heading, _ in cells],
        rows=list(zip(*columns, strict=True)),
        more_rows=max(len(summary) - _MAX_ROWS, 0),
        digest=digest,
    )


def _clusters(summary: SummaryTable) -> str:
    smallest = 5 * summary.min_group_size
    return (
        f"Clusters of at least {smallest} people at this site are found about as well as from the rows; "
        "smaller ones less well. unpooled fit --protect summary rehearses a study on your own file."
    )
