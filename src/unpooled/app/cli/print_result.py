"""Print the result of a job: the headline, the clusters, the choice of k, and notes."""

from typing import TYPE_CHECKING, cast

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from unpooled.html.formatting import counted

if TYPE_CHECKING:  # not imported at run time, so that --help is fast
    from unpooled.app.private_result import PrivateResult
    from unpooled.app.result import ClusterResult, JobResult


def print_result(result: "JobResult", console: Console) -> None:
    """Print the result of a job."""
    from unpooled.app.result import ClusterResult

    if isinstance(result, ClusterResult):
        _show_clusters(result, console)
    else:
        _show_private(cast("PrivateResult", result), console)


def _show_clusters(result: "ClusterResult", console: Console) -> None:
    first, second = result.headline()
    console.print(f"[bold]{escape(first)}[/bold] {escape(f'{second} {result.certified}'.strip())}\n")
    console.print(_clusters(result))
    if result.outcomes:
        from unpooled.app.outcome_cells import note

        console.print()
        console.print(_outcomes(result))
        console.print(note(result.outcomes_estimated))
    if len(result.choice.scores) > 1:
        console.print()
        console.print(_scores(result))
        console.print(_DECIDING)
    console.print()
    for line in notes(result):
        console.print(escape(line))


def _show_private(result: "PrivateResult", console: Console) -> None:
    console.print(f"[bold]{escape(result.headline()[0])}[/bold]\n")
    table = Table(title="Clusters: rows and centres")
    for name in ("cluster", "rows", *result.method.columns):
        table.add_column(escape(name), justify="right")
    for row in result.rows():
        table.add_row(*row)
    console.print(table)
    for line in result.notes():
        console.print(escape(line))


def _clusters(result: "ClusterResult") -> Table:
    from unpooled.html.formatting import cluster_letter, natural

    table = Table(title="Clusters")
    table.add_column("cluster")
    d = result.description
    order = sorted(range(len(d.sites)), key=lambda i: natural(d.sites[i]))
    listed = order if len(order) <= 6 and not result.job.aggregate_only else []
    borderline = result.borderline
    more = [] if borderline is None else ["borderline"]
    for name in (*(d.sites[i] for i in listed), result.unit, *more):
        table.add_column(escape(name), justify="right")
    table.add_column("what sets it apart", overflow="fold")
    for j in range(result.k):
        by_site = [_count(result.size_at(i, j)) for i in listed]
        shares = [] if borderline is None else [_share(borderline[j])]
        traits = escape(result.distinctive_traits(j))
        table.add_row(cluster_letter(j), *by_site, f"{result.sizes[j]:.0f}", *shares, traits)
    return table


def _share(value: float) -> str:
    """Return the text of a share; nan is one that was suppressed.

    >>> _share(0.125), _share(float("nan"))
    ('12%', 'suppressed')
    """
    return "suppressed" if value != value else f"{value:.0%}"


def _count(rows: float) -> str:
    """Return the text of a number of rows; nan is one that was suppressed.

    >>> _count(12.0), _count(0.0), _count(float("nan"))
    ('12', '-', 'suppressed')
    """
    return "suppressed" if rows != rows else f"{rows:.0f}" if rows else "-"


def _outcomes(result: "ClusterResult") -> Table:
    from unpooled.app.outcome_cells import cells_of, name_of
    from unpooled.html.formatting import cluster_letter

    table = Table(title="Outcomes, which do not count in the distance")
    for head in ("outcome", "cluster", result.unit, "value", "difference from the others", "effect"):
        table.add_column(head, justify="left" if head == "outcome" else "right")
    for o in result.outcomes:
        for j in range(result.k):
            table.add_row(escape(name_of(o)) if j == 0 else "", cluster_letter(j), *cells_of(o, j))
        table.add_section()
    return table


def _scores(result: "ClusterResult") -> Table:
    table = Table(title="Choice of k (* what a criterion would take)")
    heads = ["k", "inertia per row", "gain", "simulated", "halves", "border"]
    heads += ["simplified silhouette", "calinski harabasz", "davies bouldin"]
    for head in heads:
        table.add_column(head, justify="right")
    votes, c = result.choice.votes, result.choice
    for i, s in enumerate(c.scores):
        j = c.judgements[i]
        cells = [str(s.k), f"{s.per_row:.4g}", f"{j.replication.gain:.2f}"]
        cells += ["nan" if j.expected != j.expected else f"{j.expected:.2f} ± {j.deviation:.2f}"]
        cells += [f"{j.replication.agreement:.2f}", f"{s.border:.2f}"]
        cells += [f"{s.silhouette:.3f}", f"{s.calinski_harabasz:.1f}", f"{s.davies_bouldin:.3f}"]
        cells = ["-" if cell == "nan" else cell for cell in cells]
        for name, k in votes.items():
            if k == s.k:
                cells[heads.index(name.replace("-", " "))] += " *"
        table.add_row(*cells, style="bold" if i == c.best else "")
    return table


_DECIDING = (
    "Deciding figures: gain (how well the clusters of one half of the rows fit the other half) against that "
    "of simulated tables without clusters, halves (agreement of the clusters of two halves: 1 full. Both "
    "start from those of all rows), border (rows between clusters: 0 none, 1 as many as where they are "
    "densest). A k without a simulated gain fails by another condition."
)


def notes(result: "ClusterResult") -> list[str]:
    """Return notes on a result, one line each; rows left out of files were reported when they were read."""
    from unpooled.data.table import called

    a = result.agreement
    lines = [f"warning: {text}" for text in result.warnings]
    if result.borderline is not None:
        lines.append(
            "borderline: rows without a membership of 0.6 or more. unpooled predict writes the memberships "
            "of rows"
        )
    lines += [f"{called(name)} is left out: {why}" for name, why in a.left_out]
    lines += [
        f"rare categories of {name} are merged: {', '.join(categories)}" for name, categories in a.merged
    ]
    if a.preparation.drop:
        lost = result.rows_without_values
        lines.append(f"{lost} of {a.rows.sum():.0f} rows lack a value and are left out" if lost else "")
    elif result.missing_cells:
        cells = float(a.rows.sum()) * len(a.preparation.columns)
        how = "filled: by the mean over all sites, or the most frequent category"
        if result.keeps_missing:
            how = "kept: rows are compared by the values that they have (--missing fill fills them)"
        lines.append(
            f"{result.missing_cells} missing values ({100 * result.missing_cells / cells:.1f}%) are {how}"
        )
    lost = result.rows_without_values if result.keeps_missing else 0
    lines.append(f"{lost} rows have no value in any column and are left out" if lost else "")
    if result.suppressed > 0:
        where = "over all sites" if result.job.secure else "at their site, or protect a group that is"
        lines.append(f"{result.suppressed} rows are in suppressed groups: they are too small {where}")
    if a.from_summaries:
        dates = ", ".join(sorted({made for mode, made in a.protection if mode == "summary" and made}))
        tables = f"summary tables of {dates}" if dates else "groups of their rows"
        lines.append(
            f"sites answer from {tables}: a row is a group of people. Inertia is "
            f"{result.inertia:.6g} for the tables{_inertia_of_rows(result)}"
        )
    lines.append(result.exact_rounds)
    raw = [site for site, (mode, _) in zip(a.sites, a.protection, strict=True) if mode == "raw"]
    if raw:
        lines.append(
            f"warning: {', '.join(raw)}: raw, the answers come from raw rows. Someone who reads all messages "
            "can reconstruct rows from the sums"
        )
    silent: dict[str, list[str]] = {}
    for record in result.run.records:
        for site, why in record.silent.items():
            silent.setdefault(site, []).append(why)
    lines += [
        f"warning: {site} is missing from {len(reasons)} of {len(result.run.records)} rounds: {reasons[-1]}"
        for site, reasons in silent.items()
    ]
    sends = "would send" if result.job.remote is None else "sent"
    most = max(result.run.sent().values(), key=lambda pair: pair[1])
    lines.append(
        f"{result.run.rounds} rounds, {counted(result.run.exchanges, 'round trip')}; a site {sends} at most "
        f"{most[0]:,} numbers, {_bytes(most[1])}"
    )
    return [line for line in lines if line]


def _inertia_of_rows(result: "ClusterResult") -> str:
    estimate = result.inertia_of_rows
    return f", about {estimate:.6g} for the rows" if estimate == estimate else ", and more for the rows"


def _bytes(n: int) -> str:
    """Return a number of bytes with its unit.

    >>> _bytes(900), _bytes(120_000)
    ('900 bytes', '120 kB')
    """
    size = float(n)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if size >= 10 or unit == "bytes" else f"{size:.1f} {unit}"
