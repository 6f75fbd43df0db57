"""The two tutorials: their commands run, print what the pages show, and leave the reports they speak of."""

import json

import pytest

from tutorials import TUTORIALS, commands, printed


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.name)
def test_commands_print_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block, output in zip(commands(page), printed(page), strict=True):
        if block.output is not None:
            assert output == block.output
    assert (tmp_path / "report.html").exists()
    assert json.loads((tmp_path / "run" / "result.json").read_text(encoding="utf-8"))["k"] == 3


def test_there_are_two():
    assert [page.name for page in TUTORIALS] == ["heart.md", "penguins.md"]
