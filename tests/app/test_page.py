"""The report in a real browser: it renders without errors or requests, and says what was found."""

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from browser import browser

from unpooled.app.job import Job
from unpooled.app.report import page
from unpooled.app.result import ClusterResult
from unpooled.core.run import run
from unpooled.data import Wishes
from unpooled.data.readers import Reading
from unpooled.pages.markup import ellipse, ticks

ODD = "a <b>&\"' ü"  # a name that must be shown as it is, and nothing else


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
    return ClusterResult(job, run(job.algorithm(), job.federation(1), seed=job.seed))


@pytest.fixture(scope="module")
def scanned(hospitals):
    return outcome(hospitals, (2, 3, 4, 5))


@pytest.fixture(scope="module")
def seen(tmp_path_factory, scanned, hospitals):
    """A browser, and the pages to look at."""
    folder = tmp_path_factory.mktemp("pages")
    pages = {
        "scan": page(scanned),
        "one": page(outcome(hospitals, (3,), wishes=Wishes(missing="drop"), min_cluster_size=1)),
        "single": page(
            outcome(hospitals[:1], (1,), reading=Reading(columns=("y",)), wishes=Wishes(columns=("y",)))
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


def test_names_are_shown_as_they_are(seen):
    tab, folder = seen
    tab.open(folder / "scan.html")
    assert ODD in tab.value("document.getElementById('profiles').textContent")
    assert tab.value("document.querySelectorAll('#profiles td b').length") == 0


def test_says_what_was_found(scanned):
    text = page(scanned)
    first, second = scanned.answer()
    assert scanned.k == 3
    assert first.startswith("450 rows at 3 sites fall into 3 clusters")
    assert "3 is recommended" in second
    for part in (
        "Where the clusters are",
        "Absent",
        "Map",
        "Choice of k",
        "Preparation",
        "What left each site",
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


def test_needs_no_script_and_names_no_address(scanned):
    text = page(scanned)
    assert "<script" not in text
    assert re.findall(r'(?:src|href)="(?!data:)', text) == []
    assert "url(" not in text
    assert "@import" not in text


def test_no_row_is_in_it(hospitals, scanned):
    """Values of rows with four digits do not turn up."""
    text = page(scanned)
    for file in hospitals:
        rows = Path(file).read_text(encoding="utf-8").splitlines()[1:]
        cells = {cell for row in rows for cell in row.split(",")[:3] if len(cell) > 6}
        assert not [cell for cell in cells if cell in text]


def test_shapes():
    outline = np.array(ellipse((1.0, 2.0), (4.0, 0.0, 1.0), 2.0))
    np.testing.assert_allclose(outline.max(axis=0), [5.0, 4.0])
    assert ticks(0, 100, 5) == [0, 20, 40, 60, 80, 100]
