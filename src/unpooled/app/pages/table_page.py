"""The page of a copy, for the officer who approves it: the very table, how it was made, what it costs."""

from html import escape

import numpy as np

from unpooled.data.summary_table import OTHER, SummaryTable
from unpooled.data.table import CODE, DATE, EMPTY, ID, TEXT
from unpooled.html.html import counted, html_page, percent, section, small, soft, table
from unpooled.privacy.microaggregation import SummarySettings

_MOST = 2000  # rows on the page; the CSV has all of them
_MOST_ALIKE = 12  # columns that are named where groups are alike
_NOTHING = (  # why nothing is shown of a column, and the kinds of such columns
    ("they are dates", (DATE,)),
    ("they are ids, or numbers of rows", (ID,)),
    ("they are codes", (CODE,)),
    ("they have too many different texts", (TEXT,)),
    ("too few persons share a value", (EMPTY,)),
)
_KNOWN = (  # share of cases in which a candidate who was in is told from one who was not, by g: 3, 5, 8, 11
    (4, ("76", "69", "66", "62")),
    (16, ("94", "84", "74", "68")),
)


def facts(copy: SummaryTable, settings: SummarySettings, rare: tuple[str, ...] | None = None) -> list[str]:
    """Sentences on the copy: its size, its date, how it was made.

    ``rare``: the columns in which a rare level is counted as the commonest one; None: not known.
    """
    n, sizes = copy.people.sum(), copy.people
    said = [
        f"{n:.0f} persons in {counted(len(copy), 'group')} of {sizes.min():.0f} to {sizes.max():.0f}; made "
        f"on {copy.made}. The table below is all that this site answers from: the most that anybody can "
        "learn."
        if len(copy)
        else "No group is left in the copy: the site answers nothing until it is renewed.",
        f"Rows of one person were put together by column {settings.person}."
        if settings.person
        else "Every row counts as a person. If a person can have several rows, make the copy with --person.",
        f"A cell is shown where at least {copy.min_group_size} persons of a group have a value; a mean is cut so "
        "that nobody dominates it, and rounded.",
    ]
    if settings.columns:
        said.append(f"Groups suit studies of: {', '.join(settings.columns)}.")
    if settings.sensitive:
        said.append(f"Did not decide who is grouped with whom: {', '.join(settings.sensitive)}.")
    if settings.log:
        said.append(f"Of these columns only the logarithm is in the copy: {', '.join(settings.log)}.")
    if settings.consumption:
        said.append(
            f"Of {', '.join(settings.consumption)} a cell is shown only if nobody has more than "
            f"{settings.max_share * 100:g} % of the group's total."
        )
    return [*said, *_rare(copy, rare), *_odd_columns(copy), *_alike(copy, settings)]


def _odd_columns(copy: SummaryTable) -> list[str]:
    """Sentences on columns of which nothing, or next to nothing, is in the copy, each with the reason."""
    said = []
    for why, kinds in _NOTHING:
        none = [name for name, kind in zip(copy.names, copy.kinds, strict=True) if kind in kinds]
        if none:
            said.append(f"Of these columns nothing is shown, for {why}: {', '.join(none)}.")
    if bare := without_categories(copy):
        said.append(
            "Of these columns nothing is shown but how many persons of a group have a value, for none of "
            f"their values is shared by {copy.min_group_size} persons: {', '.join(bare)}."
        )
    if flat := _flat(copy):
        said.append(
            f"These columns are constant but for a few persons, and shown as their median: {', '.join(flat)}."
        )
    return said


def without_categories(copy: SummaryTable) -> list[str]:
    """Categories of which the copy names no level, as of names or ids in letters: all values are rare."""
    return [name for name, categories in copy.categories.items() if categories == (OTHER,)]


def _flat(copy: SummaryTable) -> list[str]:
    return [
        name
        for name, mean in copy.means.items()
        if len(np.unique(mean[copy.people_with_value(name) > 0])) == 1 and len(copy) > 1
    ]


def _rare(copy: SummaryTable, rare: tuple[str, ...] | None) -> list[str]:
    """A sentence on rare levels that are counted as the commonest one; ``rare``: where, if it is known.

    How many persons they are is not said: the page may be shown to others, and the copy does not tell it.
    """
    without = [name for name, categories in copy.categories.items() if OTHER not in categories]
    few = f"fewer than {copy.min_group_size} persons"
    if rare is None and without:
        return [
            f"Where {few} of all have a rare level, they are counted under the commonest level, not under "
            f"{OTHER}; this may be so in: {', '.join(without)}."
        ]
    if named := [name for name in without if rare and name in rare]:
        return [
            f"Persons with a rare level ({few} of all, by column) are counted under the commonest level, not "
            f"under {OTHER}, in: {', '.join(named)}."
        ]
    return []


def uniform_groups(copy: SummaryTable) -> list[tuple[str, int]]:
    """(column, groups in which all persons are alike in it) of categories, and of columns of 0 and 1."""
    found, flat = [], set(_flat(copy))
    for name in copy.names:
        shown = copy.people_with_value(name) > 0
        same = 0
        if name in copy.counts and len(copy.categories[name]) > 1:
            same = int((copy.counts[name].max(axis=1) == copy.people_with_value(name))[shown].sum())
        elif name in copy.means and name not in flat:
            mean = copy.means[name][shown]
            if mean.size and mean.min() >= 0 and mean.max() <= 1:
                same = int(((mean == 0) | (mean == 1)).sum())
        if same:
            found.append((name, same))
    return sorted(found, key=lambda one: -one[1])


def _alike(copy: SummaryTable, settings: SummarySettings) -> list[str]:
    found = uniform_groups(copy)
    if not found:
        return []
    named = ", ".join(f"{name} ({counted(groups, 'group')})" for name, groups in found[:_MOST_ALIKE])
    named += f" and {len(found) - _MOST_ALIKE} more" if len(found) > _MOST_ALIKE else ""
    said = f"All persons of a group are alike in: {named}. Who knows of somebody's group knows these of him"
    open_to = [name for name, _ in found if name not in settings.sensitive]
    if open_to:
        said += (
            f"; --sensitive COLUMN (e.g. {open_to[0]}) makes groups without regard to a column that nobody "
            "may learn so"
        )
    return [f"{said}."]


def variance_kept(copy: SummaryTable) -> list[tuple[str, float, float]]:
    """(column, share of its variance between the groups, share of persons in cells that are shown)."""
    out = []
    for name in copy.names:
        if name in copy.categories and copy.categories[name] == (OTHER,):
            continue
        known = copy.people_with_value(name)
        shown = float(known.sum() / max(float(copy.people.sum()), 1.0))
        if name in copy.means:
            mean = float(known @ copy.means[name] / max(float(known.sum()), 1.0))
            between = float(known @ (copy.means[name] - mean) ** 2 / max(float(known.sum()), 1.0))
            inside = float(copy.within[copy.index(name)])
        elif name in copy.counts:
            share = copy.counts[name] / np.maximum(known, 1.0)[:, None]
            overall = known @ share / max(float(known.sum()), 1.0)
            between = float((known @ (share - overall) ** 2).sum() / max(float(known.sum()), 1.0))
            inside = float((known @ (share * (1 - share))).sum() / max(float(known.sum()), 1.0))
        else:
            continue
        whole_variance = between + inside
        out.append((name, between / whole_variance if whole_variance > 0 else float("nan"), shown))
    return out


def not_promised(copy: SummaryTable) -> list[str]:
    """Sentences, with numbers, on what the copy does not promise."""
    near = {g: i for i, g in enumerate((3, 5, 8, 11))}
    at = near[min(near, key=lambda g: abs(g - copy.min_group_size))]
    guessed = " and ".join(f"{rates[at]} % with {columns} columns" for columns, rates in _KNOWN)
    return [
        "The number of persons at this site is told exactly.",
        "Persons of a group who are all alike are known to be alike.",
        "Columns that are sums of others (a, b and a + b) can tell more together than each does; columns "
        "that tell the same are found, and have their holes alike.",
        "Who knows all persons of a group but one can work out the last.",
        "With two columns and many persons, the mean of a group is nearly the row of each of them.",
        "Who has the exact row of somebody can often tell whether he is in the table: of a pair, one in "
        f"and one out, the right one is picked in {guessed} (1000 rows; 50 % is guessing).",
        'Noise (mode = "dp" in the policy) is the protection against these.',
    ]


def page(
    copy: SummaryTable,
    settings: SummarySettings,
    approved: str,
    digest: str,
    *,
    renewal: bool = False,
    rare: tuple[str, ...] | None = None,
) -> str:
    """The HTML page of a copy, or of its renewal that waits for approval; ``rare`` as for ``facts``."""
    answers = "from the old copy" if renewal else "nothing"
    state = f"Approved at {approved} UTC." if approved else f"Not approved yet: the site answers {answers}."
    parts = [
        section("What this is", _list([*facts(copy, settings, rare), state])),
        section(
            "What it costs",
            table(
                ("column", "kept", "persons in shown cells"),
                [(escape(n), _share(share), percent(shown)) for n, share, shown in variance_kept(copy)],
            )
            + _list([_clusters(copy)]),
            lead="Of the variance of a column, the share that lies between groups is kept; what lies within "
            "them is lost.",
        ),
        section("What it does not promise", _list(not_promised(copy))),
        section("The copy", _table(copy), lead="Means of numbers, persons by level. Empty: not shown."),
        small(f"digest {digest}"),
    ]
    return html_page("The copy of this site", "\n".join(parts))


def _clusters(copy: SummaryTable) -> str:
    least = 5 * copy.min_group_size
    return (
        f"Clusters of at least {least} persons at this site are found about as from the rows; smaller ones "
        "lose. unpooled fit --protect summary rehearses a study on your own file."
    )


def _share(share: float) -> str:
    return soft("no variance shown") if np.isnan(share) else percent(share)


def _table(copy: SummaryTable) -> str:
    cells = copy.cells()
    shown = [["" if v != v else f"{v:.6g}" for v in values[:_MOST].tolist()] for _, values in cells]
    out = table([escape(heading) for heading, _ in cells], zip(*shown, strict=True), left=())
    more = len(copy) - _MOST
    return out + (small(f"and {more} more groups in copy/table.csv") if more > 0 else "")


def _list(sentences: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in sentences) + "</ul>"
