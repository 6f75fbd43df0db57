"""Table 1 of a paper: every column by cluster, as CSV, Markdown or HTML."""

from pathlib import Path

import numpy as np

from unpooled.app.result import ClusterResult
from unpooled.app.result_names import Names
from unpooled.app.traits import Trait
from unpooled.errors import InputError
from unpooled.html.formatting import cluster_letter, figure, percent
from unpooled.html.rendering import render
from unpooled.storage.spreadsheet import csv_text

FORMATS = (".csv", ".md", ".html")
_SMD = "largest SMD"


def table_one(result: ClusterResult, names: Names) -> list[list[str]]:
    """Return the cells of the table, the head first.

    A column whose values some rows lack has a second row with the numbers of rows that have one. The last
    column is the largest standardised mean difference of two clusters: in standard deviations of all rows.
    """
    k = range(result.k)
    sizes = [float(size) for size in result.sizes]
    head = ["", *(f"{names.cluster(cluster_letter(j))} (n = {sizes[j]:,.0f})" for j in k)]
    head += [f"all (n = {sum(sizes):,.0f})", *([_SMD] if result.k > 1 else [])]
    rows = [head]
    by_cluster = [{(t.column, t.category): t for t in result.traits(j)} for j in k]
    places = {key: place for place, key in enumerate(result.agreement.preparation.outputs)}
    counted = set()
    for key in sorted(by_cluster[0], key=lambda key: places.get(key, places.get((key[0], ""), 0))):
        traits = [by[key] for by in by_cluster]
        rows.append(_row(traits, names))
        if any(round(t.known) < round(t.rows) for t in traits) and traits[0].column not in counted:
            known = [t.known for t in traits]
            rows.append(_known(names.column(traits[0].column), known, result.k))
        counted.add(traits[0].column)
    outcomes = result.outcomes
    if outcomes:
        rows.append(["Outcomes, which do not count in the distance", *[""] * (len(head) - 1)])
    counted = set()
    for o in outcomes:
        label = names.column(o.column)
        cells = [
            percent(v) if o.category else f"{figure(v)} ± {figure(s)}"
            for v, s in zip(o.value.tolist(), o.deviation.tolist(), strict=True)
        ]
        overall = percent(o.overall) if o.category else figure(o.overall)
        title = f"{label} = {o.category}, %" if o.category else f"{label}, mean ± SD"
        rows.append([title, *cells, overall, *([""] if result.k > 1 else [])])
        if o.column not in counted and not np.allclose(o.known, sizes):
            rows.append(_known(label, o.known.tolist(), result.k))
        counted.add(o.column)
    return rows


def _row(traits: list[Trait], names: Names) -> list[str]:
    first, label = traits[0], names.column(traits[0].column)
    if first.category:
        cells = [percent(t.value) for t in traits]
        title, overall = f"{label} = {first.category}, %", percent(first.overall)
    else:
        cells = [f"{t.shown} ± {figure(t.spread)}" for t in traits]
        title, overall = f"{label}, mean ± SD", first.shown_overall
    effects = [t.effect for t in traits]
    return [title, *cells, overall, *([f"{max(effects) - min(effects):.2f}"] if len(traits) > 1 else [])]


def _known(label: str, known: list[float], k: int) -> list[str]:
    cells = [f"{n:,.0f}" for n in known]
    return [f"{label}, n with a value", *cells, f"{sum(known):,.0f}", *([""] if k > 1 else [])]


def notes(result: ClusterResult) -> list[str]:
    """Return what the figures are, a sentence each."""
    sentences = [result.headline()[1]]
    if result.k > 1:
        sentences.append(
            "SMD: standardised mean difference, here the largest difference of two clusters in standard "
            "deviations of all rows."
        )
    if result.agreement.from_summaries:
        sentences.append("Figures are estimated from averages of groups of people (summary tables).")
    if result.missing_cells and not result.keeps_missing and not result.agreement.preparation.drop:
        sentences.append(
            f"{result.missing_cells:,} missing values were filled, by the mean or the most frequent category."
        )
    return sentences


def written_as(result: ClusterResult, names: Names, path: Path) -> str:
    """Return the table in the format that the ending of a file names."""
    rows = table_one(result, names)
    ending = path.suffix.lower()
    if ending == ".csv":
        return csv_text(rows)
    if ending == ".md":
        return _markdown(rows, notes(result))
    if ending == ".html":
        return render("table_one.html", head=rows[0], rows=rows[1:], sentences=notes(result))
    raise InputError(f"{path}: a table is written as {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")


def _markdown(rows: list[list[str]], sentences: list[str]) -> str:
    def line(cells: list[str]) -> str:
        plain = (" ".join(cell.split()).replace("\\", "\\\\").replace("|", "\\|") for cell in cells)
        return f"| {' | '.join(plain)} |"

    head, *body = rows
    rule = f"|{'|'.join(['---', *['--:'] * (len(head) - 1)])}|"
    return "\n".join([line(head), rule, *map(line, body), "", *sentences, ""])
