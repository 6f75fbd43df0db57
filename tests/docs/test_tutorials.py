"""Tutorials and the pages by role: their commands run, print what is shown, leave the files named."""

import json

import pytest

from tutorials import ROLES, TUTORIALS, commands, printed


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


LEFT = {
    "analyst": ("report.html", "run/result.json", "labelled.csv", "model.json", "rehearsal/result.json"),
    "officer-start": ("policy.toml", "summary-table.html", "north/summary"),
    "it": ("heart/invitations/hospital-a.json", "heart.tar.gz"),
    "researcher": (),
}


@pytest.mark.parametrize("page", ROLES, ids=lambda page: page.name)
def test_commands_of_a_role_run_and_leave_what_they_say(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert all(output for output in printed(page))
    for name in LEFT[page.stem]:
        assert (tmp_path / name).exists(), name
