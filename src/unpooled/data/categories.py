"""Categorical columns: the categories that sites name, their spellings, and their one-hot encoding."""

from collections.abc import Mapping

import numpy as np

from unpooled.data.column_kinds import has_mean
from unpooled.data.missing_values import more_frequent
from unpooled.data.schema import Schema, some
from unpooled.data.transforms import Category
from unpooled.errors import SchemaMismatchError
from unpooled.protocol.messages import SiteId
from unpooled.typing import FloatArray

_MIN_ROWS = 5  # rows of a site from which its categories say something
_MAX_LISTED = 3  # sites whose categories are listed in a warning
_FAMILIES = (  # words for one meaning, by language
    (
        ("m", "male", "man", "mann", "männlich", "maennlich", "homme", "masculin", "masculino", "uomo"),
        ("f", "w", "female", "woman", "frau", "weiblich", "femme", "féminin", "feminin", "femenino", "donna"),
        ("d", "x", "divers", "diverse"),
    ),
    (
        ("y", "yes", "ja", "j", "oui", "si", "sí", "true", "t", "wahr", "1"),
        ("n", "no", "nein", "non", "false", "0"),
    ),
)


def categories_of(schemas: Mapping[SiteId, Schema], name: str) -> tuple[str, ...]:
    """Return the categories that any site names: sorted as numbers where all are, else alphabetically."""
    categories = {category for s in schemas.values() for category in s.categories[s.names.index(name)]}
    try:
        return tuple(sorted(categories, key=float))
    except ValueError:
        return tuple(sorted(categories))


def two_values_of(schemas: Mapping[SiteId, Schema], name: str) -> tuple[str, ...]:
    """Return the one or two values that a column of numbers has over all sites; () if it may have more."""
    by_site = [s.categories[j] for s in schemas.values() if has_mean(s.kinds[j := s.names.index(name)])]
    values = tuple(sorted({value for held in by_site for value in held}, key=float))
    return values if all(by_site) and len(values) <= 2 else ()


def one_hot(
    name: str, categories: tuple[str, ...], counts: FloatArray, n: float, rare_share: float, scaled: bool
) -> tuple[Category, FloatArray, tuple[str, ...]] | None:
    """Return a column's one-hot encoding, the share of each category, and the categories that were merged."""
    keep = [i for i in range(len(categories)) if counts[i] > 0 and counts[i] >= rare_share * n]
    rest = float(counts.sum() - counts[keep].sum())
    rare = tuple(categories[i] for i in range(len(categories)) if i not in keep)
    sizes = np.append(counts[keep], rest) if rest > 0 else counts[keep]
    if len(sizes) < 2:
        return None
    fill = more_frequent(sizes)
    filled = sizes.copy()
    filled[fill] += max(n - sizes.sum(), 0.0)
    share = filled / filled.sum()
    # a categorical column weighs as much as a number: variance 1 if these are scaled, else categories 1 apart
    scale = float(np.sqrt(1 - (share**2).sum())) if scaled else float(np.sqrt(2.0))
    return Category(name, tuple(categories[i] for i in keep), rest > 0, fill, scale), share, rare


def spellings(schemas: Mapping[SiteId, Schema], name: str) -> dict[str, list[str]]:
    """Return categories that are probably the same, by their meaning: {"male": ["M", "m", "male"]}.

    The key is the usual spelling. Categories are the same if they differ by capitals or blanks, or if all of
    them are words for a sex, or for yes and no, and have the same meaning.
    """
    categories = sorted(
        {category for s in schemas.values() for category in s.categories[s.names.index(name)]}
    )
    plain = {category: " ".join(category.casefold().split()) for category in categories}
    for family in _FAMILIES:
        meant = {word: words[0] for words in family for word in words}
        ours = [text for text in plain.values() if text in meant]
        whole = len(ours) == len(plain) or (
            len(plain) - len(ours) <= 2
            and {words[0] for words in family[:2]} <= {meant[text] for text in ours}
        )  # others, such as "unknown", may stand beside both poles
        if ours and whole and not all(text in "01" for text in ours):
            plain = {category: meant.get(text, text) for category, text in plain.items()}
            break

    def common(category: str) -> tuple[int, int, bool]:
        """The usual spelling is that of most sites, then the longest, then the one without capitals."""
        return len(_sites_with(schemas, name, category)), len(category), category.islower()

    alike: dict[str, list[str]] = {}
    for category, text in plain.items():
        alike.setdefault(text, []).append(category)
    return {max(same, key=common): same for same in alike.values() if len(same) > 1}


def check_spelling(schemas: Mapping[SiteId, Schema], name: str) -> None:
    """Raise SchemaMismatchError if categories of a column are probably one in several spellings."""
    same = spellings(schemas, name)
    if not same:
        return
    where = "; ".join(
        " and ".join(
            f"{category} ({', '.join(_sites_with(schemas, name, category))})" for category in categories
        )
        for categories in same.values()
    )
    pairs = ",".join(f"{old}={new}" for new, categories in same.items() for old in categories if old != new)
    raise SchemaMismatchError(
        f"column {name}: several spellings of one category: {where}; --recode {name}:{pairs} reads them as "
        f"one (between machines the sites do), --exclude {name} leaves the column out",
        (),
    )


def differing_categories(schemas: Mapping[SiteId, Schema], name: str) -> str:
    """Return a warning for sites that share no category of a column with any other site, or "".

    Sites with few rows, or with less than two rows per category, are ignored: they may differ by chance.
    """
    categories = {site: set(s.categories[s.names.index(name)]) for site, s in schemas.items()}
    odd = []
    for site, s in schemas.items():
        there = float(s.rows[0]) - float(np.nan_to_num(s.missing[s.names.index(name)], nan=0.0))
        others = set().union(*(categories[other] for other in schemas if other != site))
        enough = there >= max(_MIN_ROWS, 2 * len(categories[site]))
        if enough and categories[site] and others and not categories[site] & others:
            odd.append(site)
    if not odd:
        return ""
    where = "; ".join(f"{site}: {some(sorted(categories[site]))}" for site in odd[:_MAX_LISTED])
    rest = set().union(*(categories[site] for site in schemas if site not in odd[:_MAX_LISTED]))
    where += f"; elsewhere: {some(sorted(rest))}" if rest else ""
    return (
        f"{name} at {some(odd)}: no other site has any of its categories ({where}); other spellings? "
        f"--recode {name}:SPELLING=CATEGORY reads them as one (between machines the sites do), --exclude "
        f"{name} leaves the column out"
    )


def _sites_with(schemas: Mapping[SiteId, Schema], name: str, category: str) -> list[SiteId]:
    return [site for site, s in schemas.items() if category in s.categories[s.names.index(name)]]


def all_differ(schemas: Mapping[SiteId, Schema], name: str) -> bool:
    """Return whether no two of at least ten rows share a category; a summary table does not show it."""
    cells, categories = 0.0, set[str]()
    for s in schemas.values():
        j = s.names.index(name)
        there = float(s.rows[0]) - float(s.missing[j])
        if s.protection[0] == "summary" or len(s.categories[j]) != there:
            return False
        cells += there
        categories.update(s.categories[j])
    return cells >= 10 and len(categories) == cells
