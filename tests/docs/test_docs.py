"""The pages are programs: their Python runs, prints what they show, and what they point to exists."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

import figures
from pages import PAGES, ROOT, Block, blocks, printed, with_methods, with_threats
from unpooled.algorithms import METHODS
from unpooled.site.allow_list import METHOD_NAMES
from unpooled.site.policy import Policy

DOCS = [page for page in PAGES if page.name != "README.md"]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


SLOW = ("docs/methods.md", "docs/threats.md", "docs/relays.md", "docs/gallery/index.md")  # 6 to 20 seconds


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=pytest.mark.long) if name_of(p) in SLOW else p for p in DOCS],
    ids=name_of,
)
def test_python_of_a_page_prints_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block, output in zip(blocks(page), printed(page), strict=True):
        assert output == (block.output or ""), f"{name_of(page)}, line {block.line}"
    if page.parent == figures.GALLERY:
        figures.check(page, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_of_a_page_lead_somewhere(page):
    text = re.sub(
        r"<!-- site:.*?-->", "", page.read_text(encoding="utf-8"), flags=re.S
    )  # test_site.py has those
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_every_page_is_in_the_index_or_that_of_the_methods():
    docs = ROOT / "docs"
    for page in DOCS:
        index = docs / ("methods.md" if page.parent.name == "methods" else "index.md")
        if page != index:
            assert f"]({page.relative_to(docs)}" in index.read_text(encoding="utf-8"), page


def test_the_table_of_methods_is_what_they_say_of_themselves():
    text = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    assert with_methods(text) == text
    assert text.count("](methods/") >= len(METHOD_NAMES)


def test_the_table_of_threats_is_that_of_the_dpia_report():
    text = (ROOT / "docs" / "threats.md").read_text(encoding="utf-8")
    assert with_threats(text) == text
    assert "| `summary` | Queries are chosen to single out a person" in text


def test_the_shares_on_the_privacy_page_are_those_of_the_attacks():
    def row(name, page):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        return [cell.strip() for cell in re.search(rf"^\| {name}.*?\|(.*)\|$", text, re.M)[1].split("|")]

    shares = {
        mode: cell.partition(",")[0]
        for mode, cell in zip(row("method", "leakage.md"), row("lloyd", "leakage.md"), strict=True)
    }
    quoted = row("rows that our attack reconstructs", "privacy.md")
    assert [cell.partition(" ")[0] for cell in quoted] == [shares[mode] for mode in ("summary", "dp", "raw")]


def test_the_page_of_the_policy_lists_every_key_with_its_section():
    """The block that prints the file is compared with the code, as every block is."""
    (block,) = [block for block in blocks(ROOT / "docs" / "policy.md") if "print(template(" in block.code]
    listed, section = {}, ""
    for heading, key in re.findall(r"^(?:\[(\w+)\]|(\w+) = )", block.output or "", re.M):
        section = heading or section
        listed.setdefault(section, set()).update({key} - {""})
    sections = {one.name: getattr(Policy(), one.name) for one in fields(Policy)}
    keys = {name: {key.name for key in fields(rules)} for name, rules in sections.items() if name != "format"}
    assert listed == {"": {"format"}, **keys}


def test_method_pages_carry_the_citation():
    pages = " ".join(page.read_text(encoding="utf-8") for page in DOCS)
    for entry in (METHODS[name] for name in METHOD_NAMES):
        title = entry.citation.split(": ", 1)[1].split(". ")[0]
        assert title in pages, entry.method


EVIDENCE = ("papers", "leakage.md", "results.md", "speed.md")  # written by runs


def words_of(text):
    """The words of a page without its code, the parts that are generated, and the targets of links."""
    text = re.sub(r"<!-- [a-z]+: .*?<!-- end -->", "", text, flags=re.S)
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    text = re.sub(r"<!--.*?-->|<[^>]+>", "", text, flags=re.S)
    return [word for word in re.sub(r"\]\([^)]*\)", "]", text).split() if re.search(r"\w", word)]


def test_words_of_a_page_are_those_that_somebody_wrote():
    page = "# A page\n\n<!-- risk: First -->\n> made\n<!-- end -->\n- [b](c.md) `d` - 5\n\n```sh\nls\n```\n"
    assert words_of(page) == ["A", "page", "[b]", "`d`", "5"]


def test_the_pages_are_few_and_short():
    """Shorten another page before you add to one."""
    written = [page for page in DOCS if page.relative_to(ROOT / "docs").parts[0] not in EVIDENCE]
    assert len(written) <= 40
    assert sum(len(words_of(page.read_text(encoding="utf-8"))) for page in written) <= 30_000


NAMED = re.findall(
    r"`(tests/[\w/.]+)(?:::(\w+))?`", "".join(page.read_text(encoding="utf-8") for page in PAGES)
)


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED)))
def test_a_test_that_a_page_names_is_there(file, name):
    assert (ROOT / file).exists()
    assert not name or f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")


def test_a_wrong_output_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n", encoding="utf-8")
    assert blocks(page) == [Block("print(1 + 1)\n", "3\n", 1)]
    assert printed(page) == ["2\n"]
