"""The notebooks: their cells run, and show what the notebooks show; each has a picture."""

import json

import pytest

from notebooks import NOTEBOOKS, outputs, texts


@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda page: page.stem)
def test_cells_show_what_the_notebook_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = json.loads(page.read_text(encoding="utf-8"))
    kept = [cell["outputs"] for cell in content["cells"] if cell["cell_type"] == "code"]
    assert [texts(shown) for shown in outputs(page)] == [texts(shown) for shown in kept]
    assert sum("image/png" in one.get("data", {}) for shown in kept for one in shown) >= 1
    assert content["nbformat"] == 4


def test_there_is_one():
    assert [page.stem for page in NOTEBOOKS] == ["cohort"]
