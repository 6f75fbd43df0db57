"""The report in a real browser: it renders without errors or requests, and contains the result."""

import base64
import csv
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest
from browser import browser
from scipy.cluster.hierarchy import linkage

from unpooled.app.job import Job
from unpooled.app.local_sites import local_sites
from unpooled.app.report import charts, page
from unpooled.app.result import ClusterResult
from unpooled.data import PreparationOptions
from unpooled.data.readers import Reading
from unpooled.html.svg import ellipse, ticks
from unpooled.protocol.run_loop import run

ODD = "a <b>&\"' ü"  # a name that must appear as text


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory):
    """Three files with numbers, a category, missing values and a column of an awkward name."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(4)
    centers = np.array([[0.0, 0.0, 10.0], [6.0, 6.0, 30.0], [-6.0, 6.0, 20.0]])
    for i, name in enumerate(("north", "south", "west")):
        label = rng.integers(3 if i else 2, size=150)
        X = centers[label] + rng.standard_normal((150, 3))
        lines = [f'"{ODD.replace(chr(34), chr(34) * 2)}",y,z,kind']
        for row, j in zip(X, label, strict=True):
            cells = ["" if rng.random() < 0.1 * i else f"{v:.4f}" for v in row]
            lines.append(",".join([*cells, "uvw"[j] if rng.random() < 0.9 else ""]))
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [str(folder / f"{name}.csv") for name in ("north", "south", "west")]


def outcome(files, ks, **settings):
    job = Job(tuple(files), ks, **settings)
    return ClusterResult(job, run(job.algorithm, local_sites(job, 1).federation, seed=job.seed))


@pytest.fixture(scope="module")
def scanned(hospitals):
    return outcome(hospitals, (2, 3, 4, 5))


@pytest.fixture(scope="module")
def seen(tmp_path_factory, scanned, hospitals):
    """A browser, and the pages to look at."""
    folder = tmp_path_factory.mktemp("pages")
    pages = {
        "scan": page(scanned),
        "one": page(
            outcome(
                hospitals, (3,), preparation_options=PreparationOptions(missing="drop"), min_cluster_size=1
            )
        ),
        "single": page(
            outcome(
                hospitals[:1],
                (1,),
                reading=Reading(columns=("y",)),
                preparation_options=PreparationOptions(columns=("y",)),
            )
        ),
        "many": page(outcome(hospitals, (11,), method="dwf", n_init=2, max_rounds=5)),
    }
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    with browser(tmp_path_factory.mktemp("profile")) as open_browser:
        yield open_browser, folder


@pytest.mark.parametrize("name", ["scan", "one", "single", "many"])
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1200, 390])
def test_renders_without_errors_and_without_any_request(seen, name, dark, width):
    tab, folder = seen
    tab.requests.clear()
    tab.complaints.clear()
    tab.open(folder / f"{name}.html", width, dark=dark)
    asked = [url for url in tab.requests if not url.startswith("data:")]
    assert asked == [(folder / f"{name}.html").as_uri()]
    assert tab.complaints == []
    assert tab.value("document.querySelectorAll('section').length") >= 8
    assert tab.value("document.documentElement.scrollWidth") <= width  # nothing sticks out
    assert tab.value(
        "[...document.querySelectorAll('svg')].every(s => s.getBoundingClientRect().height > 50)"
    )
    ink, paper = (tab.value(f"getComputedStyle(document.body).{c}") for c in ("color", "backgroundColor"))
    light = [sum(map(int, re.findall(r"\d+", value)[:3])) for value in (ink, paper)]
    assert (light[0] > light[1]) is dark


def test_content_beyond_the_edge_of_a_phone_has_a_shadow(seen):
    tab, folder = seen
    tab.open(folder / "scan.html", 390)
    shadows = tab.value(
        """[...document.querySelectorAll('.scroll, .wide')].filter(e => e.scrollWidth > e.clientWidth)
            .map(e => getComputedStyle(e).backgroundImage)"""
    )
    assert shadows
    assert all(shadow.count("linear-gradient") == 4 for shadow in shadows)


def test_labels_lie_inside_their_charts(seen):
    tab, folder = seen
    tab.open(folder / "scan.html")
    outside = tab.value(
        """[...document.querySelectorAll('svg text')].filter(t => {
            const a = t.getBoundingClientRect(), b = t.ownerSVGElement.getBoundingClientRect();
            return a.left < b.left - 2 || a.right > b.right + 2 ||
                a.top < b.top - 2 || a.bottom > b.bottom + 2;
        }).map(t => t.textContent)"""
    )
    assert outside == []


def test_prints(seen):
    tab, folder = seen
    tab.open(folder / "scan.html", paper=True)
    assert tab.pdf().startswith(b"%PDF")
    assert tab.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.complaints == []


def test_names_appear_as_text(seen):
    tab, folder = seen
    tab.open(folder / "scan.html")
    assert ODD in tab.value("document.getElementById('profiles').textContent")
    assert tab.value("document.querySelectorAll('#profiles td b').length") == 0


def test_the_report_contains_the_result(scanned):
    text = page(scanned)
    first, second = scanned.headline()
    assert scanned.k == 3
    assert first.startswith("450 rows at 3 sites fall into 3 clusters")
    assert "3 is recommended: the clusters are sharper than those of simulated tables" in second
    assert "clusters found in one half of the rows hold in the other half" in second
    for part in (
        "Clusters by site",
        "Absent",
        "Map",
        "Choice of k",
        "Preparation",
        "Numbers sent by each site",
    ):
        assert part in text
    assert scanned.job.command().split()[0:2] == ["unpooled", "fit"]
    assert "Lloyd: Least Squares" in text
    absent = re.search(r"Absent</h3>(.*?)</ul>", text)[1]
    assert "north" in absent


def test_is_well_formed(scanned):
    """Every element that opens closes, in order."""

    class Nesting(HTMLParser):
        void = frozenset({"meta", "link", "br"})
        open: list[str] = []  # noqa: RUF012

        def handle_starttag(self, tag, attrs):
            if tag not in self.void:
                self.open.append(tag)

        def handle_startendtag(self, tag, attrs):
            pass

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

    parser = Nesting()
    parser.feed(page(scanned))
    assert parser.open == []


def test_names_no_address_and_runs_no_other_script(scanned):
    text = page(scanned)
    script = re.search(r"<script>(.*)</script>", text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text  # no other one may run
    assert text.count("<script") == 1
    assert re.findall(r'(?:src|href)="(?!data:)', text) == []
    assert "url(" not in text
    assert "@import" not in text


def test_the_page_is_complete_without_the_script(scanned):
    """The script adds buttons and sorting; every word and figure of the page is in the HTML."""
    text = re.sub(r"<script>.*</script>", "", page(scanned), flags=re.DOTALL)
    assert "<button" not in text
    assert text.count("<table") >= 4
    assert text.count("<svg") >= 8


def saved(tab, kind):
    """The (name, address) of every file that the buttons of a kind save."""
    return tab.value(
        """(() => {
            const kept = [];
            HTMLAnchorElement.prototype.click = function () { kept.push([this.download, this.href]); };
            document.querySelectorAll('button').forEach(b => { if (b.textContent === 'KIND') b.onclick(); });
            return kept;
        })()""".replace("KIND", kind)
    )


def test_tables_sort_by_a_click_and_are_saved_as_csv(seen):
    tab, folder = seen
    tab.open(folder / "scan.html")
    cells = "[...document.querySelectorAll('#sent tbody tr')].map(r => r.cells[3].textContent)"
    head = "document.querySelectorAll('#sent th')[3]"
    for way in ("ascending", "descending"):
        tab.value(f"{head}.click()")
        sent = [int(cell.replace(",", "")) for cell in tab.value(cells)]
        assert sent == sorted(sent, reverse=way == "descending")
        assert tab.value(f"{head}.getAttribute('aria-sort')") == way
    tables = tab.value("document.querySelectorAll('table').length")
    kept = saved(tab, "CSV")
    assert len(kept) == tables
    name, address = next(item for item in kept if item[0].startswith("sent"))
    lines = list(csv.reader(unquote(address.partition(",")[2]).splitlines()))
    assert name.endswith(".csv")
    assert lines[0][0] == "site"
    assert sorted(line[0] for line in lines[1:]) == ["north", "south", "west"]
    assert all(line[1] == "150" for line in lines[1:])


def test_figures_are_saved_as_svg_that_stands_alone(seen):
    tab, folder = seen
    tab.open(folder / "scan.html")
    kept = saved(tab, "SVG")
    assert len(kept) == tab.value("document.querySelectorAll('svg').length")
    for name, address in kept:
        drawn = ElementTree.fromstring(unquote(address.partition(",")[2]))
        assert name.endswith(".svg")
        assert drawn.tag.endswith("svg")
        assert all("fill:" in node.get("style", "") for node in drawn.iter() if node is not drawn)


def test_the_answer_comes_first_with_a_sentence_a_cluster_and_the_date(hospitals):
    text = page(outcome(hospitals, (3,), begun="2026-11-16"))
    assert '<time datetime="2026-11-16">' in text.partition("<section")[0]
    first = re.search(r'<section id="answer">(.*?)</section>', text, re.DOTALL)[1]
    assert first.count('class="each"') == 3
    assert all(f"{word} " in first for word in ("high", "low", "more often"))
    assert page(outcome(hospitals, (3,))).count("<time") == 0


def test_what_is_left_out_is_in_the_headline(hospitals, tmp_path):
    lines = Path(hospitals[0]).read_text(encoding="utf-8").splitlines()
    constant = tmp_path / "north.csv"
    constant.write_text(
        "\n".join([lines[0] + ",same", *(line + ",1" for line in lines[1:])]) + "\n", encoding="utf-8"
    )
    result = outcome([str(constant)], (3,), preparation_options=PreparationOptions(missing="drop"))
    first = re.search(r'<section id="answer">(.*?)</section>', page(result), re.DOTALL)[1]
    assert "column same: constant" in first
    assert re.search(r"\d+ rows: they lack a value", first)
    silent = replace(result.run.history[0], silent={"west": "late"})
    missing = replace(result, run=replace(result.run, history=(silent, *result.run.history[1:])))
    assert "<b>site west</b>: late" in page(missing).partition("</section>")[0]


def test_rows_of_a_site_that_withdrew_do_not_count_as_rows_without_values(hospitals):
    result = outcome(hospitals, (3,), preparation_options=PreparationOptions(missing="drop"))
    run, agreement = result.run, result.run.state.agreement
    rows = float(agreement.rows[0])
    without = replace(agreement, used=agreement.used - rows)  # the first site stated its rows, and then left
    withdrew = replace(run.history[1], silent={agreement.sites[0]: "withdrawn"})
    state = replace(run.state, agreement=without)
    left = replace(run, state=state, history=(run.history[0], withdrew, *run.history[2:]))
    assert replace(result, run=left).rows_without_values <= result.rows_without_values
    assert replace(result, run=replace(run, state=state)).rows_without_values >= rows


def test_a_hundred_sites_are_listed_in_natural_order(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(1, 101):
        X = rng.standard_normal((12, 2)) + 8 * rng.integers(0, 2, (12, 1))
        np.savetxt(tmp_path / f"site{i}.csv", X, delimiter=",", header="x,y", comments="")
    text = page(outcome([str(path) for path in tmp_path.glob("*.csv")], (2,), n_init=1))
    where = re.search(r'<section id="places">(.*?)</section>', text, re.DOTALL)[1]
    bars = re.findall(r'class="site">(.*?)<', where)
    assert bars == [f"site{i}" for i in range(1, 101)]
    assert re.findall(r"<td[^>]*>(site\d+)</td>", where) == bars
    assert "The 20 sites that fit worst" in text
    assert len(text) < 400_000


def test_random_rows_are_reported_as_no_clusters(tmp_path):
    rng = np.random.default_rng(0)
    for name in "abcd":
        X = rng.standard_normal((250, 3))
        np.savetxt(tmp_path / f"{name}.csv", X, delimiter=",", header="x,y,z", comments="")
    result = outcome([str(tmp_path / f"{name}.csv") for name in "abcd"], tuple(range(2, 9)), n_init=2)
    assert (
        result.headline()[0] == "k-means finds no clusters: 1,000 rows at 4 sites are described as one group."
    )
    assert (result.to_dict()["no_clusters"], result.to_dict()["clear"], result.to_dict()["k"]) == (
        True,
        False,
        1,
    )
    assert "<h1>No clusters over 4 sites</h1>" in page(result)


def test_the_convergence_chart_is_that_of_the_chosen_k(scanned):
    assert "Inertia after each round (k = 3)" in page(scanned)
    traced = scanned.run.state.inertias
    assert traced.shape == (len(scanned.run.history) - 3, 4)
    assert traced[-1, scanned.job.ks.index(3)] == pytest.approx(scanned.inertia, rel=1e-3)


def test_ticks_of_a_logarithmic_axis_do_not_touch():
    for low, high in ((-16.2, -0.3), (-3.0, 0.0), (-0.2, 0.9), (-40.0, 3.0), (2.0, 2.4)):
        exponents = charts._log_ticks(low, high)
        assert len(exponents) <= 6
        assert all(low <= t <= high for t in exponents)
        assert len(exponents) >= 2 or high - low < 1


def test_wards_tree_is_scipys():
    rng = np.random.default_rng(1)
    means, sizes = rng.normal(size=(6, 3)), np.ones(6)
    merges = charts.ward(means, sizes)
    theirs = linkage(means, "ward")
    np.testing.assert_allclose([cost for _, _, cost in merges], theirs[:, 2] ** 2 / 2)
    assert [{a, b} for a, b, _ in merges] == [{int(a), int(b)} for a, b in theirs[:, :2]]


def test_no_row_is_in_it(hospitals, scanned):
    """No value of a row with four digits is in the report."""
    text = page(scanned)
    for file in hospitals:
        rows = Path(file).read_text(encoding="utf-8").splitlines()[1:]
        cells = {cell for row in rows for cell in row.split(",")[:3] if len(cell) > 6}
        assert not [cell for cell in cells if cell in text]


def test_shapes():
    outline = np.array(ellipse((1.0, 2.0), (4.0, 0.0, 1.0), 2.0))
    np.testing.assert_allclose(outline.max(axis=0), [5.0, 4.0])
    assert ticks(0, 100, 5) == [0, 20, 40, 60, 80, 100]
