"""The attack where little was disclosed, where rows lie between groups, and where its time is over."""

import numpy as np
import pytest
from test_attack import cells, found_in

from unpooled.algorithms.dwf import AskLocalMoves
from unpooled.protocol.exchange import Part, Request, RequestId
from unpooled.protocol.questions.cluster_sums import AskMoments
from unpooled.site import Site
from unpooled.site.audit import search
from unpooled.site.audit.attack import attack, probe
from unpooled.site.audit.known_sums import CellDisclosures, Partition, Space, disclosed_in

X = np.array([[0.1], [0.5], [1.2], [2.7], [3.4], [4.8], [5.1]])


def remote(border: float) -> CellDisclosures:
    return cells(X, np.array([[border - 9.0], [border + 9.0]]))


def test_where_nothing_was_disclosed_nothing_is_found():
    none = attack([Space(2)])
    assert (none.cells, len(none.rows)) == (0, 0)
    refused = probe(lambda question: None, np.zeros(2), np.ones(2), 30, np.random.default_rng(0))
    assert (refused.cells, len(refused.rows)) == (0, 0)


def test_without_a_total_a_difference_of_disclosed_cells_is_still_a_row():
    """A cell is hidden in every reply, so that nobody knows how many rows there are."""
    sides = [remote(b) for b in (2.0, 3.0)]
    suppressed = [
        CellDisclosures(s.points, s.n * [1, 0], s.sums * [[1], [0]], s.squares * np.array([1.0, 0.0]))
        for s in sides
    ]
    assert found_in(*suppressed).rows.round(9).tolist() == [[2.7]]
    assert len(found_in(suppressed[0]).rows) == 0


@pytest.mark.parametrize("side", [0, 1])
def test_a_row_between_two_cells_is_taken_from_both_together(side):
    """None can tell in which of two cells a row is that is as near to one as to the other."""
    rows = np.array([[-4.0], [-3.0], [0.0], [2.5], [3.0], [6.0]])
    centers, nearest = np.array([[-3.5], [3.5]]), np.array([side, 1 - side])
    far = cells(np.delete(rows, 2, axis=0), centers)
    with_row = CellDisclosures(
        centers,
        far.n + (nearest == 0),
        far.sums + np.where(nearest == 0, 0.0 - centers[:, 0], 0.0)[:, None],
        far.squares + np.where(nearest == 0, 3.5**2, 0.0),
    )
    space = Space(1, disclosed=[with_row])
    space.prepare()
    assert space.take(np.zeros(1) - space.origin)
    (left,) = space.partitions
    assert left.n.tolist() == [5.0, 0.0]  # of both cells together, and of none apart
    np.testing.assert_allclose(left.sums[0] + 5 * space.origin, rows.sum())
    assert space.rows == 5


def test_a_row_between_a_disclosed_and_a_suppressed_cell_makes_both_unknown():
    cells_of = Partition(np.array([[-1.0], [1.0], [9.0]]), np.array([-1, 0, 1]), *np.ones((3, 2)) * 4)
    cells_of.sums = np.full((2, 1), 4.0)
    assert cells_of.group_of(np.zeros(1), 1e-9) == -1
    assert cells_of.group.tolist() == [-1, -1, 1]
    assert cells_of.n.tolist() == [0.0, 4.0]
    assert cells_of.group_of(np.full(1, 8.0), 1e-9) == 1


def test_a_move_of_one_step_shows_the_sums_of_its_rows():
    def answered(question):
        request = Request(RequestId("r", 0, 0, 0), (Part("total", question, None, 0),))
        (reply,) = Site("a", X).answer(request).replies
        return list(disclosed_in(question, reply))

    centers = np.array([[0.0], [4.0]])
    (one,) = answered(AskLocalMoves(centers, 1, "counts"))
    by_hand = cells(X, centers)
    for name in ("n", "sums", "squares"):
        np.testing.assert_allclose(getattr(one, name), getattr(by_hand, name), atol=1e-12)
    assert answered(AskLocalMoves(centers, 3, "counts")) == []  # of several steps it is no sum of known rows
    assert answered(AskLocalMoves(centers, 1, "rows")) == []
    assert [cells.kind for cells in answered(AskMoments())] == ["all"]


def test_an_attack_ends_when_its_time_is_over(monkeypatch):
    """A search that is not finished has found less, and nothing that is no row."""
    at = [remote(b) for b in (1, 2, 3)]
    assert len(found_in(*at).rows) == 2
    monkeypatch.setattr(search, "_WORK", 0.0)
    less = found_in(*at).rows
    assert len(less) <= 2
    assert all(np.abs(X - row).min() < 1e-9 for row in less)
