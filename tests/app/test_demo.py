"""The demo: the penguins as shipped, its output, and the control that the attack reconstructs raw rows."""

import io
import sys

import numpy as np
import pytest
from rich.console import Console

from unpooled.app.demo import FIGURE, main
from unpooled.app.demo.penguin_study import compare
from unpooled.app.demo.show import show
from unpooled.data.examples import MEASUREMENTS, load_penguins


@pytest.fixture(scope="module")
def result():
    return compare()


def text_of(draw):
    out = io.StringIO()
    draw(Console(file=out, width=80, highlight=False))
    return out.getvalue()


def test_penguins_are_complete_and_typed():
    penguins = load_penguins()
    assert penguins.X.shape == (342, 4)
    assert penguins.X.dtype == np.float64
    assert np.isfinite(penguins.X).all()
    assert penguins.columns == MEASUREMENTS
    assert len(penguins.island) == len(penguins.species) == 342
    assert penguins.dropped == 2
    assert {name: len(rows) for name, rows in penguins.by_island().items()} == {
        "Biscoe": 167,
        "Dream": 124,
        "Torgersen": 51,
    }


def test_raw_sites_come_close_to_pooling_and_their_rows_can_be_reconstructed(result):
    """The control: an attack that never finds anything proves nothing."""
    assert result.raw.inertia / result.pooled.inertia < 1.01
    assert result.raw.reconstructed > 0


def test_summary_tables_give_no_row_and_come_close_to_pooling(result):
    assert result.from_summaries.reconstructed == 0
    assert 1 - 1e-9 <= result.from_summaries.inertia / result.pooled.inertia < 1.01
    assert result.worst / result.pooled.inertia < 1.01


def test_sizes_add_up(result):
    assert result.sizes().sum() == len(result.penguins.X)
    assert sum(table.people.sum() for table in result.summaries.values()) == len(result.penguins.X)


def test_the_output_has_the_computed_numbers(result):
    text = text_of(lambda console: show(result, console))
    assert f"{result.pooled.inertia:.3f}" in text
    assert f"{result.from_summaries.inertia / result.pooled.inertia:.4f}" in text
    assert "No row left its island." in text
    for name, sent in result.from_summaries.sent.items():
        assert name in text
        assert f"{sent.bytes:,}" in text
        assert f"{sent.numbers:,}" in text
    assert max(map(len, text.splitlines())) <= 80


def test_it_writes_a_figure(result, tmp_path, monkeypatch):
    monkeypatch.setattr("unpooled.app.demo.compare", lambda: result)
    text = text_of(lambda console: main(tmp_path / "new" / "folder", console))
    path = tmp_path / "new" / "folder" / FIGURE
    assert path.read_bytes().startswith(b"\x89PNG")
    assert str(path) in text


def test_without_matplotlib_it_prints_how_to_install_it(result, tmp_path, monkeypatch):
    monkeypatch.setattr("unpooled.app.demo.compare", lambda: result)
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "unpooled.app.demo.figure", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = text_of(lambda console: main(tmp_path, console))
    assert "No row left its island." in text
    assert "pip install '.[figures]'" in text
    assert not (tmp_path / FIGURE).exists()
