"""Warnings about the columns of sites: another unit at one site, a tail that dominates the distances."""

from collections.abc import Mapping, Sequence
from shlex import quote

import numpy as np

from unpooled.data.schema import Schema, some
from unpooled.protocol.messages import SiteId

_MANY = np.log10(5.0)  # another unit is suspected where mean and spread both differ by this factor
_MIN_ROWS = 5  # rows of a site from which its mean and spread say something
_FAR = 1.5  # standard deviations between means from which a smaller factor is suspicious
_MANY_SD = 8.0  # the same where the spread is that of other sites
_AS_NEAR = 0.06  # of a power of ten: explanations that are as near as the nearest
_FACTORS = {  # usual conversions: a factor, and what it may be
    2.2046: "kilograms and pounds",
    2.54: "inches and centimetres",
    3.2808: "metres and feet",
    4.184: "kilocalories and kilojoules",
    12.0: "months and years, or inches and feet",
    18.016: "glucose in mmol/l and mg/dl",
    28.35: "ounces and grams",
    38.67: "cholesterol in mmol/l and mg/dl",
    88.4: "creatinine in mg/dl and µmol/l",
    365.25: "days and years",
    10.0: "",
    100.0: "",
    1000.0: "",
}
_TAIL = 0.4  # of the squared distances; of a normal distribution it is 0.03, of an exponential one 0.3
_SAME = 0.1  # of a power of ten: as near to a conversion as sites that differ and coarse sizes are
_ALIKE = 0.2  # between the factor of the means and that of the spreads


def constant_somewhere(schemas: Mapping[SiteId, Schema], name: str) -> list[str]:
    """Return warnings for sites where every value of a column is the same, and elsewhere they differ."""
    sizes = _stated_sizes(schemas, name)
    usual = {site: v for site, v in sizes.items() if np.isfinite(v).all()}
    if len(sizes) < 2 or not usual:
        return []
    warnings = []
    for site, (size, _) in sizes.items():
        others = [v for other, v in usual.items() if other != site]
        if site in usual or not others:
            continue
        typical = np.median(np.array(others), axis=0)
        if np.isneginf(size):
            about = _about(10 ** typical[0])
            warnings.append(f"{name} at {site}: every value is 0; elsewhere it is about {about}")
        elif len(others) > 1 or abs(size - typical[0]) >= _MANY:
            warnings.append(f"{name} at {site}: every value is the same; elsewhere they differ")
    return warnings


def odd_units(schemas: Mapping[SiteId, Schema], name: str) -> list[str]:
    """Return warnings for sites where a column probably has another unit: from its mean and its spread.

    A change of the unit multiplies both by one factor, or moves the mean alone. Sites with few rows are
    ignored. The others are cut into two groups where their sizes are farthest apart, and the warning names
    the smaller group; of two groups of the same size, the one without the first site.
    """
    sizes = _stated_sizes(schemas, name)
    coarse = any(schema.protection[0] == "raw" for schema in schemas.values())
    usual = {site: v for site, v in sizes.items() if np.isfinite(v).all()}
    if len(sizes) < 2 or not usual:
        return []
    odd, rest = _apart(usual)
    if not odd:
        return []
    own, typical = (np.median(np.array([usual[s] for s in group]), axis=0) for group in (odd, rest))
    where = "elsewhere" if len(odd) < len(rest) or len(rest) == 1 else f"at {some(rest)}"
    own, typical = ((float(size), float(spread)) for size, spread in (own, typical))
    guess, at = _conversion(own, typical, coarse, where), some(odd)
    advice = f"Convert it at {at}, or leave it out (--exclude {name})"
    return [f"{name} at {at}: {guess} {advice}"] if guess else []


def _stated_sizes(schemas: Mapping[SiteId, Schema], name: str) -> dict[SiteId, tuple[float, float]]:
    """The sizes and spreads that sites state of a column, without sites that have few values of it."""
    sizes = {}
    for site, schema in schemas.items():
        j = schema.names.index(name)
        there = float(schema.rows[0]) - float(np.nan_to_num(schema.missing[j], nan=0.0))
        if not np.isnan(schema.size[j]) and there >= _MIN_ROWS:
            sizes[site] = float(schema.size[j]), float(schema.spread[j])
    return sizes


def _apart(sizes: Mapping[SiteId, tuple[float, float]]) -> tuple[list[SiteId], list[SiteId]]:
    """The sites cut into two groups, the odd one first; none is odd if a group is as wide as half the gap."""
    order = sorted(sizes, key=lambda site: sizes[site][0])
    values = np.array([sizes[site][0] for site in order])
    if len(order) < 2:
        return [], order
    cut = int(np.argmax(np.diff(values))) + 1
    gap = float(np.median(values[cut:]) - np.median(values[:cut]))
    if any(np.abs(group - np.median(group)).max() >= gap / 2 for group in (values[:cut], values[cut:])):
        return [], order
    first = min(sizes)
    odd, rest = sorted((order[:cut], order[cut:]), key=lambda group: (len(group), first in group))
    return sorted(odd), sorted(rest)


def _conversion(own: tuple[float, float], typical: tuple[float, float], coarse: bool, where: str) -> str:
    """The suspicion in words, or ""; both are log10 of root mean square and of standard deviation.

    Sizes that are ``coarse`` reveal large factors only. The text names the nearest of several explanations,
    and another one that is about as near.
    """
    a, b = own[0] - typical[0], own[1] - typical[1]
    factor_text = f"values about {_about(10 ** abs(a))} times {'larger' if a > 0 else 'smaller'} than {where}"
    mean, other = (np.sqrt(max(100**r - 100**s, 0.0)) for r, s in (own, typical))
    hot, cold, wider = (mean, other, b) if mean > other else (other, mean, -b)
    apart = abs(mean - other) / 10 ** typical[1]
    known: list[tuple[float, str]] = []
    if not coarse and apart > _FAR and cold > 0:
        near = 0.15 if 33 < cold < 42 else 0.08  # less is needed of the heat of a body
        off, spread = np.log10(hot / (1.8 * cold + 32)), wider - np.log10(1.8)
        if abs(spread) <= near and abs(10**off - 1) < near:
            rare = 0.0 if cold < 45 else _AS_NEAR  # few tables have temperatures above
            known.append((_miss(off, spread) + rare, "degrees Celsius and Fahrenheit"))
        off = np.log10(hot / (cold + 273.15))
        if abs(b) <= _ALIKE and abs(10**off - 1) < 0.08:
            known.append((_miss(off, b), "degrees Celsius and Kelvin"))
        if abs(a - b) <= _ALIKE:
            for factor, what in _FACTORS.items():
                off, spread = abs(a) - np.log10(factor), np.sign(a) * b - np.log10(factor)
                if abs(off) <= _SAME:
                    known.append((_miss(off, spread), what))
    if known:
        known.sort()
        words = list(dict.fromkeys(what for miss, what in known if miss <= known[0][0] + _AS_NEAR))[:2]
        named = ", or ".join(filter(None, words)) if known[0][1] else ""
        return f"{factor_text}; another unit{f' ({named})' if named else ''}?"
    if not coarse and apart > _MANY_SD and abs(b) <= _ALIKE:
        return f"{factor_text}, and spread as there; another unit, whose 0 lies elsewhere?"
    if min(a, b) >= _MANY or max(a, b) <= -_MANY:
        return f"{factor_text}; another unit?"
    return ""


def _miss(off: float, spread: float) -> float:
    """The distance of an explanation from the sites' values; spreads differ between sites and count half."""
    return float(np.hypot(off, spread / 2))


def _about(value: float) -> str:
    """A value to two significant digits, as text.

    >>> _about(316.2), _about(0.0316)
    ('320', '0.032')
    """
    return f"{float(f'{value:.2g}'):g}"


def long_tails(schemas: Mapping[SiteId, Schema], numbers: Sequence[str], scales: Sequence[str]) -> str:
    """Return a warning about columns in which few values account for much of the squared distances, or "".

    ``scales`` are those that were asked for, as in ``--scale``: the advice keeps them.
    """
    found = {name: share for name in numbers if (share := _tail(schemas, name)) >= _TAIL}
    if not found:
        return ""
    listed = ", ".join(f"{name} ({share:.0%})" for name, share in sorted(found.items(), key=lambda f: -f[1]))
    advice = f"--scale {quote(','.join([*scales, *(f'{name}=rank' for name in found)]))} lets all rows count"
    if any(schema.protection[0] == "summary" for schema in schemas.values()):
        advice = (
            f"--exclude {quote(','.join(found))} leaves "
            f"{'it' if len(found) == 1 else 'them'} out. A summary table can also have the logarithm of a "
            "column whose values are all above 0"
        )
    return (
        f"{listed}: this share of the squared distances comes from values beyond 3 standard deviations, a "
        f"long tail or a small group; {advice}"
    )


def _tail(schemas: Mapping[SiteId, Schema], name: str) -> float:
    """The share of a column's squared distances that its far values have, over the sites that state it."""
    shares, rows = [], []
    for schema in schemas.values():
        share = float(schema.tail[schema.names.index(name)])
        if not np.isnan(share):
            shares.append(share)
            rows.append(float(schema.rows[0]))
    return float(np.average(shares, weights=rows)) if sum(rows) else 0.0
