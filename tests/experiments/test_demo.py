"""The demo: the penguins as shipped, what is printed about them, and that the door's observer finds rows."""

import io
import sys

import numpy as np
import pytest
from rich.console import Console

from unpooled.core.exchange import Answer, Envelope, Part, Turn
from unpooled.experiments.datasets import MEASUREMENTS, load_penguins
from unpooled.experiments.demo import FIGURE, main
from unpooled.experiments.demo.show import show
from unpooled.experiments.demo.study import MINIMUM, Door, compare
from unpooled.questions.clusters import AskClusterSums, ClusterSums


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


def test_nothing_hidden_equals_pooling(result):
    assert result.open.inertia == pytest.approx(result.pooled.inertia, rel=1e-9)
    assert np.array_equal(result.open.labels, result.pooled.labels)
    assert np.allclose(result.open.centers, result.pooled.centers)


def test_guarded_sites_send_no_row_and_come_close_to_pooling(result):
    assert result.guarded.sent == 0
    assert result.guarded.smallest >= MINIMUM
    assert 1 - 1e-9 <= result.guarded.inertia / result.pooled.inertia < 1.01
    assert max(result.worst) / result.pooled.inertia < 1.01


def test_sizes_add_up(result):
    assert result.sizes().sum() == len(result.penguins.X)
    assert result.hidden() == sum(n for n in result.sizes().ravel() if n < MINIMUM)


def test_the_observer_sees_rows_where_nothing_is_hidden(result):
    """The control: a check that never finds anything proves nothing."""
    assert result.open.sent > 0
    assert result.open.smallest == 1


def test_the_observer_counts_all_that_leaves(result):
    for door in result.guarded.doors.values():
        assert door.messages == result.guarded.exchanges
        assert 0 < door.numbers - door.zeros < door.numbers
        assert 8 * door.numbers < door.bytes


def test_the_observer_deduces_a_single_hidden_row_by_subtraction():
    rows = np.array([[1.0, 1.0], [1.0, 3.0], [3.0, 1.0], [3.0, 3.0], [9.0, 8.0]])
    asked = AskClusterSums(np.array([[[1.0, 1.0], [9.0, 9.0]]]))
    shown = ClusterSums(
        sums=np.array([[[4.0, 4.0], [0.0, 0.0]]]),
        mass=np.array([[4.0, 0.0]]),
        inertia=np.array([[16.0, 0.0]]),
    )
    post = Envelope(Turn("", 0, 0, 0), (Part(verb="total", question=asked, view=None, index=0),))
    door = Door(rows)
    door(post, Answer(post.turn, (shown,)))
    assert door.sent == set()
    assert door.deduced == {4}


def test_what_is_printed_is_what_was_computed(result):
    text = text_of(lambda console: show(result, console))
    assert f"{result.pooled.inertia:.3f}" in text
    assert f"{result.guarded.inertia / result.pooled.inertia:.4f}" in text
    assert "No row left its island." in text
    for name, door in result.guarded.doors.items():
        assert name in text
        assert f"{door.bytes:,}" in text
        assert f"{door.numbers:,}" in text
    assert max(map(len, text.splitlines())) <= 80


def test_it_writes_a_figure(result, tmp_path, monkeypatch):
    monkeypatch.setattr("unpooled.experiments.demo.compare", lambda: result)
    text = text_of(lambda console: main(tmp_path / "new" / "folder", console))
    path = tmp_path / "new" / "folder" / FIGURE
    assert path.read_bytes().startswith(b"\x89PNG")
    assert str(path) in text


def test_without_matplotlib_it_prints_and_says_how_to_get_it(result, tmp_path, monkeypatch):
    monkeypatch.setattr("unpooled.experiments.demo.compare", lambda: result)
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "unpooled.experiments.demo.figure", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = text_of(lambda console: main(tmp_path, console))
    assert "No row left its island." in text
    assert "pip install 'unpooled[figures]'" in text
    assert not (tmp_path / FIGURE).exists()
