"""The first tutorial: its commands run, print what is shown, and leave the files that it names."""

import json

import pytest

from tutorials import TUTORIALS, commands, printed

LEFT = (
    "report.html",
    "labels.csv",
    "run/model.json",
    "run/model_sklearn.py",
    "rehearsal/result.json",
    "again.html",
)


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.name)
def test_commands_print_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block, output in zip(commands(page), printed(page), strict=True):
        if block.output is not None:
            assert output == block.output
    for name in LEFT:
        assert (tmp_path / name).exists(), name
    assert json.loads((tmp_path / "run" / "result.json").read_text(encoding="utf-8"))["k"] == 3
