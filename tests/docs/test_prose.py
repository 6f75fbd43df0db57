"""The style linter finds what it is meant to find, and leaves ordinary English and code alone."""

import json

import pytest
from tools.check_prose import (
    Finding,
    check,
    literals,
    markdown_prose,
    name_advice,
    names,
    prose_findings,
    template_prose,
)

pytestmark = pytest.mark.quick


def found(text):
    return [finding.text for finding in prose_findings("page.md", text)]


@pytest.mark.parametrize(
    ("text", "hit"),
    [
        ("Who reads the table learns nothing.", "Who"),
        ("It ends here. Whoever comes later waits.", "Whoever"),
        ("- Who signs it decides.", "Who"),
        ("| Who signs it |", "Who"),
        ("This is no average.", "is no"),
        ("This is\nno average.", "is\nno"),
        ("The officer opens his page.", "his"),
        ("He approves it.", "He"),
        ("The site shall answer.", "shall"),
        ("also if it is empty", "also if"),
        ("also while\nit runs", "also while"),
        ("an index of .90", ".9"),
        ("an index (.90)", ".9"),
        ("34 % of the people", "%"),
    ],
)
def test_a_rule_finds_its_sentence(text, hit):
    assert found(text) == [hit]


@pytest.mark.parametrize(
    "text",
    [
        "The person who reads the table learns nothing.",
        "Who can read the table? Nobody.",
        "The whole row. Whole rows.",
        "There is no table. If there\nis no table, it stops.",
        "The table is no longer in use. It is\nno longer there.",
        "The history of this site: the shell, the other.",
        "even if it is empty",
        "an index of 0.90, version 1.2, the file a/.90",
        "34% of the people, 100 %(percent)s",
    ],
)
def test_ordinary_english_passes(text):
    assert found(text) == []


def test_code_and_comments_of_a_page_are_not_prose():
    page = "a\n```python\n5 % 2\n```\n`is no` and <!-- shall\n --> he\n~~~\nshall\n~~~\n``x ` shall``\n"
    text = markdown_prose(page)
    assert text.count("\n") == page.count("\n")
    assert [(finding.line, finding.text) for finding in prose_findings("page.md", text)] == [(6, "he")]


def test_tags_and_values_of_a_template_are_not_prose():
    text = template_prose(
        '{# Shall. #}\n<p class="no"\n title="5 %">{{ share }} % is {% if a %}no{% endif %} x</p>\n'
    )
    assert text.count("\n") == 3
    found = sorted((finding.line, finding.text) for finding in prose_findings("a.html", text))
    assert found == [(1, "Shall"), (3, "%"), (3, "is no")]


def test_literals_are_whole_and_a_field_counts_as_a_number():
    source = 'x = f"{share:.1f} % of {n}"\ny = ("a " "b")\n\n\ndef f():\n    """Doc."""\n'
    assert list(literals(source)) == [(1, "0 % of 0"), (2, "a b"), (6, "Doc.")]


BANNED = "purse open_desk Desk DOSSIER twins wishes _tied lean said told_in over_holes trusted copies"
FINE = "copy _copy deepcopy copyfile copy_rows that_copy_files_are_kept copied clean untold desktop x _"


@pytest.mark.parametrize("name", [*BANNED.split(), "CopySettings", "with_copy", "copy_page", "theCopy"])
def test_a_banned_word_is_found_in_a_name(name):
    assert name_advice(name) is not None


@pytest.mark.parametrize("name", [*FINE.split(), "zero_copy_only"])
def test_other_names_pass(name):
    assert name_advice(name) is None


def test_names_are_identifiers_and_no_words_of_strings_or_comments():
    assert list(names("said = 'told'  # desk\nif said: pass\n")) == [(1, "said"), (2, "said")]


def test_a_file_is_checked_by_what_it_is(tmp_path):
    source = '"""Shall."""\nsaid = "5 %"\nprint(said)\n'
    for folder in ("src", "tests"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "desk.py").write_text(source, encoding="utf-8")
    page, notebook = tmp_path / "page.md", tmp_path / "page.ipynb"
    page.write_text("one\ntwo shall\n", encoding="utf-8")
    cells = [
        {"cell_type": "code", "source": ["5 % 2"]},
        {"cell_type": "markdown", "source": ["One\n", "shall"]},
    ]
    notebook.write_text(json.dumps({"cells": cells}, indent=1), encoding="utf-8")

    def places(path):
        return [(finding.line, finding.text) for finding in check(path, tmp_path)]

    assert places(tmp_path / "src" / "desk.py") == [(1, "desk"), (1, "Shall"), (2, "said"), (2, "%")]
    assert places(tmp_path / "tests" / "desk.py") == [(1, "desk"), (2, "said")]
    assert places(page) == [(2, "shall")]
    at = notebook.read_text(encoding="utf-8").splitlines().index('    "shall"') + 1
    assert places(notebook) == [(at, "shall")]


def test_a_finding_names_file_and_line():
    assert (
        str(Finding("docs/page.md", 3, "shall", 'write "must"')) == "docs/page.md:3: 'shall': write \"must\""
    )
