"""What a finished job prints: the answer, the clusters, where they are, and what to look at."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from unpooled.app.private_result import PrivateOutcome
from unpooled.app.result import Outcome, figure, once_a_column

_TRAITS = 3


def show(outcome: Outcome, console: Console) -> None:
    """Print the summary of an outcome."""
    first, second = outcome.answer()
    console.print(f"[bold]{escape(first)}[/bold] {escape(second)}\n")
    console.print(_clusters(outcome))
    if len(outcome.choice.scores) > 1:
        console.print()
        console.print(_scores(outcome))
    console.print()
    for line in notes(outcome):
        console.print(escape(line))


def show_private(outcome: PrivateOutcome, console: Console) -> None:
    """Print the summary of a private outcome."""
    console.print(f"[bold]{escape(outcome.answer())}[/bold]\n")
    table = Table(title="Clusters: rows and centres")
    for name in ("cluster", "rows", *outcome.method.columns):
        table.add_column(escape(name), justify="right")
    for row in outcome.rows():
        table.add_row(*row)
    console.print(table)
    for line in outcome.notes():
        console.print(escape(line))


def _clusters(outcome: Outcome) -> Table:
    table = Table(title="Clusters")
    table.add_column("cluster")
    d = outcome.description
    shown = d.sites if len(d.sites) <= 6 and not outcome.job.secure else ()
    for name in (*shown, "rows"):
        table.add_column(escape(name), justify="right")
    table.add_column("what sets it apart", overflow="fold")
    for j in range(outcome.k):
        by_site = [f"{d.sizes[i, j]:.0f}" if d.sizes[i, j] else "-" for i in range(len(shown))]
        traits = [t for t in once_a_column(outcome.traits(j))[:_TRAITS] if abs(t.effect) >= 0.2]
        said = ", ".join(t.say() for t in traits) or "close to the mean in every column"
        table.add_row(str(j + 1), *by_site, f"{outcome.sizes[j]:.0f}", escape(said))
    return table


def _scores(outcome: Outcome) -> Table:
    table = Table(title="Choice of k (* what a criterion would take)")
    heads = ("k", "inertia per row", "silhouette", "calinski-harabasz", "davies-bouldin", "stability", "gap")
    for head in heads:
        table.add_column(head, justify="right")
    votes, c = outcome.choice.votes, outcome.choice
    for i, s in enumerate(c.scores):
        cells = [str(s.k), f"{s.per_row:.4g}", f"{s.silhouette:.3f}", f"{s.calinski_harabasz:.1f}"]
        cells += [f"{s.davies_bouldin:.3f}", f"{s.stability:.2f}", figure(float(c.gaps[i]))]
        for name, k in votes.items():
            at = heads.index(name) if name in heads else 1
            if k == s.k:
                cells[at] += " *"
        table.add_row(*cells, style="bold" if i == c.best else "")
    return table


def notes(outcome: Outcome) -> list[str]:
    """What should be looked at, one line each."""
    a = outcome.agreement
    lines = [f"warning: {text}" for text in outcome.warnings]
    lines += [f"column {name} is left out: {why}" for name, why in a.left_out]
    lines += [f"rare levels of {name} are merged: {', '.join(levels)}" for name, levels in a.merged]
    if a.preparation.drop:
        lost = float(a.rows.sum()) - a.used
        lines.append(f"{lost:.0f} of {a.rows.sum():.0f} rows lack a value and are left out" if lost else "")
    elif outcome.filled:
        cells = float(a.rows.sum()) * len(a.preparation.columns)
        lines.append(
            f"{outcome.filled} missing cells ({100 * outcome.filled / cells:.1f} %) are filled: by the mean "
            "over all sites, or the most frequent level"
        )
    if outcome.hidden > 0:
        lines.append(
            f"{outcome.hidden} rows are in groups that are not shown: of fewer than "
            f"{outcome.job.min_cluster_size} rows over all sites"
            if outcome.job.secure
            else f"{outcome.hidden} rows are in groups that their site does not show: of fewer than "
            f"{outcome.job.min_cluster_size}, or hiding such a one"
        )
    silent: dict[str, list[str]] = {}
    for record in outcome.run.records:
        for site, why in record.silent.items():
            silent.setdefault(site, []).append(why)
    lines += [
        f"warning: {site} is missing from {len(reasons)} of {len(outcome.run.records)} rounds: {reasons[-1]}"
        for site, reasons in silent.items()
    ]
    leaves = "would leave" if outcome.job.between is None else "left"
    left = outcome.run.left()
    most = max(left.values(), key=lambda pair: pair[1])
    lines.append(
        f"{outcome.run.rounds} rounds, {outcome.run.exchanges} exchanges; what {leaves} a site: at most "
        f"{most[0]:,} numbers, {_bytes(most[1])}"
    )
    return [line for line in lines if line]


def _bytes(n: int) -> str:
    """
    >>> _bytes(900), _bytes(120_000)
    ('900 bytes', '120 kB')
    """
    size = float(n)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if size >= 10 or unit == "bytes" else f"{size:.1f} {unit}"
