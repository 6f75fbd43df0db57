"""The first sections: the answer, and what the clusters look like."""

from html import escape

from unpooled.app.cluster_result import ClusterResult, Trait, once_a_column
from unpooled.app.result import figure
from unpooled.pages.html import chip, percent, section, size, soft, table
from unpooled.pages.svg import colour

_TRAITS = 5
_FULL = 2.0  # standard deviations that fill half a bar, or give a cell its deepest colour


def answer(result: ClusterResult) -> str:
    first, second = result.answer()
    a, run = result.agreement, result.run
    left = max((amount for _, amount in run.left().values()), default=0)
    figures = [
        (f"{a.used:,.0f}", "rows"),
        (str(len(result.sites)), "sites"),
        (str(result.k), "clusters"),
        (str(len(a.preparation.columns)), "columns used"),
        (str(run.exchanges), "exchanges"),
        (size(left), "left a site at most"),
    ]
    body = f'<div class="answer"><p>{escape(first)}</p><p class="second">{escape(second)}</p></div>'
    if result.warnings:
        items = "".join(f"<li>{escape(text)}</li>" for text in result.warnings)
        body += f'<div class="warn" role="note"><b>Look at this first</b><ul>{items}</ul></div>'
    strip = "".join(f"<div><b>{value}</b>{name}</div>" for value, name in figures)
    return f'<section id="answer">{body}<div class="figures">{strip}</div></section>'


def profiles(result: ClusterResult) -> str:
    cards = "".join(_card(result, j) for j in range(result.k))
    lead = (
        "Means in the columns&rsquo; own units, the columns that set a cluster apart most first. A bar shows "
        "how far the cluster&rsquo;s mean lies from the mean of all rows: to the left below it, to the right "
        "above. The full half is two standard deviations."
    )
    heading = f'<h3 class="next">Every column {soft("(mean &plusmn; sd, or share)")}</h3>'
    pairs = " two" if result.k in (2, 4) else ""
    body = f'<div class="grid{pairs}">{cards}</div>{heading}{_every_column(result)}'
    return section("What the clusters look like", body, lead, "profiles")


def _card(result: ClusterResult, j: int) -> str:
    rows = float(result.sizes[j])
    share = percent(rows / max(float(result.sizes.sum()), 1.0))
    traits = [t for t in once_a_column(result.traits(j)) if abs(t.effect) >= 0.1][:_TRAITS]
    said = "".join(_trait(t, j) for t in traits) or '<p class="soft">Close to the mean in every column.</p>'
    return f'<div class="cluster"><h3>{chip(j)}{rows:,.0f} rows {soft(f"({share})")}</h3>{said}</div>'


def _trait(t: Trait, j: int) -> str:
    width = min(abs(t.effect) / _FULL, 1.0) * 50
    start = 50 - width if t.effect < 0 else 50
    value, overall = (
        (percent(t.value), percent(t.overall)) if t.level else (figure(t.value), figure(t.overall))
    )
    way = "below" if t.effect < 0 else "above"
    return (
        f'<div class="trait" title="{abs(t.effect):.1f} standard deviations {way} the mean of all rows">'
        f'<span class="name">{escape(t.name)}</span>'
        f'<span class="said">{value} {soft(f"all {overall}")}</span>'
        f'<span class="track"><i class="{colour(j)}" style="left:{start:.1f}%;width:{width:.1f}%"></i></span>'
        "</div>"
    )


def _every_column(result: ClusterResult) -> str:
    by_cluster = [{(t.column, t.level): t for t in result.traits(j)} for j in range(result.k)]
    rows = []
    for key in result.agreement.preparation.outputs:
        traits = [by[key] for by in by_cluster]
        overall = percent(traits[0].overall) if key[1] else figure(traits[0].overall)
        rows.append([escape(traits[0].name), *map(_heat, traits), overall])
    head = ["column", *map(chip, range(result.k)), "all rows"]
    return table(head, rows)


def _heat(t: Trait) -> str:
    depth = 0.55 * min(abs(t.effect) / _FULL, 1.0)
    paint = f"rgba(var(--{'hot' if t.effect > 0 else 'cold'}), {depth:.2f})"
    spread = soft(f"&plusmn; {figure(t.spread)}")
    said = percent(t.value) if t.level else f"{figure(t.value)} {spread}"
    return f'<td class="heat" style="background:{paint}">{said}</td>'
