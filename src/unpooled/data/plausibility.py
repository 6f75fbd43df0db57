"""Doubts about the columns of sites: another unit at one site, a tail that carries the distances."""

from collections.abc import Mapping

import numpy as np

from unpooled.core.messages import SiteId
from unpooled.data.schema import Schema

_MANY = np.log10(5.0)  # another unit is suspected where mean and spread both differ by this factor
_LEAST = 5  # rows of a site from which its mean and spread say something
_FAR = 1.5  # standard deviations between means from which a smaller factor is suspicious
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


def odd_units(schemas: Mapping[SiteId, Schema], name: str) -> list[str]:
    """Warnings for sites where a column probably has another unit: from its mean and its spread.

    A change of the unit multiplies both by one factor. Sites of few rows say nothing about either.
    """
    sizes: dict[SiteId, tuple[float, float]] = {}
    for site, schema in schemas.items():
        j = schema.names.index(name)
        there = float(schema.rows[0]) - float(np.nan_to_num(schema.missing[j], nan=0.0))
        if not np.isnan(schema.size[j]) and there >= _LEAST:
            sizes[site] = float(schema.size[j]), float(schema.spread[j])
    coarse = any(schema.protection[0] == "trusted" for schema in schemas.values())
    usual = {site: v for site, v in sizes.items() if np.isfinite(v).all()}
    if len(sizes) < 2 or not usual:
        return []
    warnings = []
    for site, (size, spread) in sizes.items():
        others = [v for other, v in usual.items() if other != site]
        if not others or (len(sizes) == 2 and site in usual and site == min(sizes)):
            continue  # of two sites that differ, warn about one only
        typical = np.median(np.array(others), axis=0)
        if np.isneginf(size):
            about = _about(10 ** typical[0])
            warnings.append(f"{name} at {site}: every value is 0; elsewhere it is about {about}")
        elif np.isneginf(spread):
            if len(others) > 1 or abs(size - typical[0]) >= _MANY:
                warnings.append(f"{name} at {site}: every value is the same; elsewhere they differ")
        elif all(abs(v[0] - typical[0]) < abs(size - typical[0]) / 2 for v in others):
            guess = _conversion((size, spread), (float(typical[0]), float(typical[1])), coarse)
            if guess:
                warnings.append(
                    f"{name} at {site}: {guess} Convert it at {site}, or leave it out (--exclude {name})"
                )
    return warnings


def _conversion(own: tuple[float, float], typical: tuple[float, float], coarse: bool) -> str:
    """The suspicion in words, or ""; both are log10 of root mean square and of standard deviation.

    Sizes that are ``coarse`` show large factors only.
    """
    a, b = own[0] - typical[0], own[1] - typical[1]
    way = "larger" if a > 0 else "smaller"
    said = f"values about {_about(10 ** abs(a))} times {way} than elsewhere; another unit"
    mean, other_mean = (np.sqrt(max(100**r - 100**s, 0.0)) for r, s in (own, typical))
    far = not coarse and abs(mean - other_mean) > _FAR * 10 ** typical[1]
    if far and (
        _fahrenheit(mean, own[1], other_mean, typical[1]) or _fahrenheit(other_mean, typical[1], mean, own[1])
    ):
        return f"{said} (degrees Celsius and Fahrenheit)?"
    if far and abs(a - b) <= _ALIKE:
        near = sorted(_FACTORS, key=lambda factor: abs(abs(a) - np.log10(factor)))[:2]
        known = [_FACTORS[factor] for factor in near if abs(abs(a) - np.log10(factor)) <= _SAME]
        if known:
            return f"{said} ({', or '.join(filter(None, known))})?" if known[0] else f"{said}?"
    if min(a, b) >= _MANY or max(a, b) <= -_MANY:
        return f"{said}?"
    return ""


def _fahrenheit(hot: float, hot_spread: float, cold: float, cold_spread: float) -> bool:
    """True if one column may be the other in degrees Fahrenheit; less is needed of the heat of a body."""
    near = 0.15 if 33 < cold < 42 else 0.08
    factor = hot_spread - cold_spread - np.log10(1.8)
    return bool(hot > cold and abs(factor) <= near and abs(hot / (1.8 * cold + 32) - 1) < near)


def _about(value: float) -> str:
    """A value to two significant digits, as text.

    >>> _about(316.2), _about(0.0316)
    ('320', '0.032')
    """
    return f"{float(f'{value:.2g}'):g}"


def long_tail(schemas: Mapping[SiteId, Schema], name: str) -> str:
    """A warning if few values of a column carry much of its squared distances, or ""."""
    shares, rows = [], []
    for schema in schemas.values():
        share = float(schema.tail[schema.names.index(name)])
        if not np.isnan(share):
            shares.append(share)
            rows.append(float(schema.rows[0]))
    share = float(np.average(shares, weights=rows)) if sum(rows) else 0.0
    if share < _TAIL:
        return ""
    return (
        f"{name}: {share:.0%}".replace("%", " %")
        + " of its squared distances come from values beyond 3 standard "
        f"deviations, a long tail or a small group; --scale {name}=log or {name}=rank lets all rows count "
        f"(a copy: --log {name})"
    )
