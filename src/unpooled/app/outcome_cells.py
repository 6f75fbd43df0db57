"""Outcomes by cluster in words, for the console and the report."""

from unpooled.evaluation.outcome_differences import Outcome
from unpooled.html.formatting import figure

_NOTE = (
    "A cluster is compared with all others together. In brackets: the 95% interval of the difference (Welch; "
    "of shares Newcombe), for one comparison. Effect: Cohen's d, of shares Cohen's h."
)
_ESTIMATED = (
    " Figures are estimated from averages of groups (summary tables). The share of a number with two values "
    "is pulled towards the more frequent one; read as a category (--categorical) it is not."
)


def note(estimated: bool) -> str:
    """Return what the figures are; ``estimated`` if sites answer from summary tables."""
    return _NOTE + (_ESTIMATED if estimated else "")


def name_of(o: Outcome) -> str:
    """Return the name of an outcome with its effect size over all clusters."""
    name = f"{o.column} = {o.category}" if o.category else o.column
    size = "Cramér's V" if o.category else "eta squared"
    return name if o.explained != o.explained else f"{name} ({size} {o.explained:.2f})"


def cells_of(o: Outcome, j: int) -> tuple[str, str, str, str]:
    """Return the rows, value, difference with its interval, and effect of an outcome in cluster j."""

    def shown(value: float) -> str:
        return "-" if value != value else f"{100 * value:.1f}%" if o.category else figure(value)

    known, low, high = float(o.known[j]), float(o.low[j]), float(o.high[j])
    spread = "" if o.category or o.deviation[j] != o.deviation[j] else f" ± {figure(float(o.deviation[j]))}"
    difference = shown(float(o.difference[j]))
    if low == low:
        difference += f" ({shown(low)} to {shown(high)})"
    effect = "-" if o.effect[j] != o.effect[j] else f"{o.effect[j]:.2f}"
    return f"{known:.0f}", f"{shown(float(o.value[j]))}{spread}", difference, effect
