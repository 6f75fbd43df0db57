"""The detector's comparison of cells, against the sets of rows that they are."""

import numpy as np
import pytest

from unpooled import Site
from unpooled.core.exchange import Envelope, Part, Turn
from unpooled.questions.clusters import AskClusterSums
from unpooled.site.differencing import Differencing
from unpooled.site.ledger import Ledger, RunLimits

LIMITS = RunLimits(100, 100, 0.0)


def counted(shown: list[list[set[int]]], minimum: int) -> list[int]:
    """For each envelope: how many of its cells differ by 1 .. minimum - 1 rows from a known one."""
    known: list[set[int]] = []
    out = []
    for cells in shown:
        known += cells
        out.append(sum(any(0 < len(cell ^ other) < minimum for other in known) for cell in cells))
    return out


class Keeps(Differencing):
    """The detector; charges as the site would, and keeps what it found."""

    def __init__(self, ledger, minimum):
        super().__init__(ledger, minimum, refuse=False)
        self.ledger, self.found = ledger, []

    def leaving(self, post, views, labels):
        super().leaving(post, views, labels)
        self.found.append(self.pairs)
        self.ledger.charge(post.turn, f"{post.turn.round}", 0.0, LIMITS)


@pytest.mark.parametrize("seed", range(30))
def test_it_counts_what_sets_of_rows_would(seed, tmp_path):
    """Over many envelopes, more rows than are looked at first, and a ledger opened again halfway."""
    rng = np.random.default_rng(seed)
    n, k, minimum = int(rng.integers(20, 1500)), int(rng.integers(2, 9)), int(rng.integers(2, 12))
    X = rng.normal(size=(n, 3))
    centers = rng.normal(size=(2, k, 3))
    questions, shown = [], []
    for _ in range(8):
        centers = centers + rng.normal(scale=rng.choice([0.0, 0.003, 0.03]), size=centers.shape)
        questions.append(AskClusterSums(centers.copy()))
        labels = ((X[:, None] - centers[:, None]) ** 2).sum(axis=3).argmin(axis=2)
        cells = {frozenset(np.flatnonzero(one == j).tolist()) for one in labels for j in range(k)}
        shown.append([set(cell) for cell in cells if len(cell) >= minimum])
    found = []
    for half in (range(4), range(4, 8)):
        ledger = Ledger(tmp_path / "ledger", "a")
        detector = Keeps(ledger, minimum)
        site = Site("a", X, guards=[detector])
        for i in half:
            site.answer(Envelope(Turn("run", 0, i, 0), (Part("total", questions[i], None, 0),)))
        found += detector.found
        ledger.close()
    assert found == counted(shown, minimum)
