"""The site: built from the pages without a warning, whole, without dead links, fit for use in a browser."""

import html
import re

import pytest
from website.__main__ import build
from website.check import browser, dead, faults_of, links_of, search_finds, served
from website.commands import PAGES, commands_of
from website.dead_links import dead_links
from website.pages_of_site import for_site
from website.reference import GROUPS, public_names

from pages import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "site"
    build(folder)
    return folder


def test_every_page_of_the_tree_is_a_page_of_the_site(site):
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).exists(), page
    for name in ("reports/heart.html", "reports/summary-table.html", "project/changelog.html", "search.json"):
        assert (site / name).exists(), name


def test_the_site_has_what_only_it_can_show(site):
    first = (site / "index.html").read_text(encoding="utf-8")
    assert 'href="reports/heart.html"' in first
    report = (site / "reports" / "heart.html").read_text(encoding="utf-8")
    assert "4 sites are divided into 3 clusters" in report


def test_every_public_name_has_its_place_in_the_reference(site):
    text = "".join((site / "reference" / f"{file}.html").read_text(encoding="utf-8") for file in GROUPS)
    for name in public_names():
        assert f'id="{name.rpartition(".")[2].lower()}"' in text, name


def test_every_command_has_its_place_in_the_reference_with_all_its_options(site):
    for file, (group, _) in PAGES.items():
        text = html.unescape((site / "reference" / f"{file}.html").read_text(encoding="utf-8"))
        for name, command in commands_of(group).items():
            assert f'id="{name.replace(" ", "-")}"' in text, name
            for option in command.params:
                assert all(f"<code>{word}</code>" in text for word in option.opts if word[0] == "-"), name


def test_dead_links_and_places_are_found(site, tmp_path):
    page = '<a href="b.html#here">b</a><a href="c.html">c</a><a href="#no">d</a><h1 id="here">a</h1>'
    (tmp_path / "a.html").write_text(page)
    (tmp_path / "b.html").write_text("<p>no place</p>")
    assert dead_links(tmp_path) == [
        "a.html: #no (no such place)",
        "a.html: b.html#here (no such place)",
        "a.html: c.html",
    ]
    with pytest.raises(SystemExit, match="which the site does not have"):
        for_site("[gone](../nowhere.txt)", "docs/page.md", "page.md")


def test_pages_in_a_browser(site, tmp_path):
    """Two pages here, on two screens; ``make site`` takes all."""
    with served(site) as root, browser(tmp_path) as tab:
        assert faults_of(tab, f"{root}index.html", 390, dark=True) == []
        assert dead(tab, links_of(tab)) == []
        assert faults_of(tab, f"{root}reports/heart.html", 1280, dark=False) == []
        assert search_finds(tab, site / "index.html") >= 5


@pytest.mark.parametrize("name", ["overview.svg", "gallery/choosing-k.svg"])
def test_no_text_of_a_picture_is_cut_off(name, tmp_path):
    with browser(tmp_path) as tab:
        tab.open(ROOT / "docs" / name, 1280)
        cut = tab.value(
            """(() => { const view = document.documentElement.viewBox.baseVal;
              const all = document.querySelectorAll('text, use');
              return [...all].filter(t => { const m = document.documentElement.getScreenCTM().inverse()
                .multiply(t.getScreenCTM()), b = t.getBBox();
                return [[b.x, b.y], [b.x + b.width, b.y + b.height]].some(([x, y]) => {
                  const p = new DOMPoint(x, y).matrixTransform(m);
                  return p.x < view.x - 1 || p.x > view.x + view.width + 1
                    || p.y < view.y - 1 || p.y > view.y + view.height + 1; });
              }).map(t => t.textContent || t.outerHTML) })()"""
        )
        assert cut == []
        assert tab.value("document.querySelectorAll('text, use').length") > 10


def test_the_numbers_of_the_first_page_are_those_of_the_pages_that_it_names():
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\*\*.*) \|$", text, re.M)
    assert len(rows) >= 3
    for row in rows:
        page = (ROOT / "docs" / re.search(r"\]\(([\w/.-]+)\)", row)[1]).read_text(encoding="utf-8")
        for number in re.findall(r"\*\*([^*]+)\*\*", row):
            assert number in page, (number, row)
        module = re.search(r"python -m ([\w.]+)", row)[1]
        assert (ROOT / f"{module.replace('.', '/')}.py").exists()
