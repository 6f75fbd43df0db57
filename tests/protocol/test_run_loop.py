"""run: its history, its progress, its limits, and what left each site."""

import numpy as np
import pytest

from helpers import Declines, bits, inertia_of, lloyd_step, pooled
from unpooled.algorithms import DWF, KFed, Lloyd
from unpooled.errors import InputError, TooFewAnswersError
from unpooled.federation import LocalFederation, Simulation
from unpooled.protocol import run
from unpooled.site import Site

pytestmark = pytest.mark.quick

INIT = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, -3.0]])


def test_a_round_by_hand():
    rows = {"a": np.array([[0.0], [2.0]]), "b": np.array([[10.0], [14.0]])}
    done = run(Lloyd(k=2, init=np.array([[0.0], [10.0]]), tol=0.0), Simulation.from_rows(rows))
    start, first, second = done.history
    assert (start.round, start.movement, start.inertia) == (0, float("inf"), float("inf"))
    assert (first.round, first.inertia) == (1, 4.0 + 16.0)
    assert first.movement == pytest.approx(np.sqrt(1 + 4))
    assert (second.movement, second.inertia) == (0.0, 2.0 + 8.0)
    assert done.state.centers.tolist() == [[1.0], [12.0]]
    assert (done.rounds, done.finished, done.exchanges) == (2, True, 3)
    # moments: 2 columns' worth and the mass; then two clusters with a sum, a count and an inertia each
    assert start.numbers == {"a": 3, "b": 3}
    assert first.numbers == {"a": 6, "b": 6}
    assert done.sent()["a"] == (15, start.bytes["a"] + first.bytes["a"] + second.bytes["a"])


def test_history_agrees_with_pooled_lloyd(overlapping):
    done = run(DWF(k=3, init=INIT, min_rounds=10, max_rounds=10), Simulation.from_rows(overlapping))
    X, centers = pooled(overlapping), INIT
    assert len(done.history) == 11
    for record in done.history[1:]:
        after = lloyd_step(X, centers)
        assert record.inertia == pytest.approx(inertia_of(X, centers))
        assert record.movement == pytest.approx(np.linalg.norm(after - centers))
        assert record.answered == tuple(sorted(overlapping))
        assert record.exchanges == 1
        centers = after


def test_progress_is_reported_every_round_as_it_happens(rows):
    records = []
    done = run(Lloyd(k=3, init=INIT), Simulation.from_rows(rows), progress=records.append)
    assert records == list(done.history)
    assert [r.round for r in records] == list(range(done.rounds + 1))


def test_max_rounds_counts_further_rounds(rows, tmp_path):
    algorithm = DWF(k=3, init=INIT, tol=0.0, learning_rate=0.1, max_rounds=50)
    assert run(algorithm, Simulation.from_rows(rows), max_rounds=0).rounds == 0
    some = run(algorithm, Simulation.from_rows(rows), max_rounds=3, checkpoint=tmp_path / "c")
    assert (some.rounds, some.finished) == (3, False)
    more = run(algorithm, Simulation.from_rows(rows), max_rounds=3, checkpoint=tmp_path / "c")
    assert (more.rounds, more.finished) == (6, False)
    assert run(algorithm, Simulation.from_rows(rows), max_rounds=500).rounds == 50


def test_progress_goes_on_where_the_checkpoint_is(rows, tmp_path):
    algorithm = DWF(k=3, init=INIT, tol=0.0, learning_rate=0.1, max_rounds=6)
    run(algorithm, Simulation.from_rows(rows), max_rounds=2, checkpoint=tmp_path / "c")
    records = []
    run(algorithm, Simulation.from_rows(rows), checkpoint=tmp_path / "c", progress=records.append)
    assert [r.round for r in records] == [3, 4, 5, 6]


def test_one_exchange_is_enough_for_a_one_shot_method(rows):
    done = run(KFed(k=3), Simulation.from_rows(rows))
    assert (done.rounds, done.exchanges, done.finished) == (0, 1, True)
    assert np.isnan(done.history[0].inertia)


def test_a_site_that_goes_away_later(rows):
    sites = [
        Site(s, X, guards=[Declines("gone home", since=2)] if s == "site-3" else []) for s, X in rows.items()
    ]
    done = run(DWF(k=3, init=INIT, min_rounds=4, max_rounds=4), LocalFederation(sites))
    assert [r.silent for r in done.history] == [{}, {}] + [{"site-3": "gone home"}] * 3
    assert [len(r.answered) for r in done.history] == [4, 4, 3, 3, 3]
    assert done.sent()["site-3"][0] < done.sent()["site-0"][0]


def test_too_few_answers_stop_the_run_and_what_was_saved_goes_on(rows, tmp_path):
    algorithm = DWF(k=3, init=INIT, min_rounds=6, max_rounds=6)
    sites = [Site(s, X, guards=[Declines("strike", since=3)]) for s, X in rows.items()]
    with pytest.raises(TooFewAnswersError, match=r"round 3, AskLocalMoves: 0 of 4 sites answered, 2 needed"):
        run(algorithm, LocalFederation(sites), checkpoint=tmp_path / "c")
    resumed = run(algorithm, Simulation.from_rows(rows), checkpoint=tmp_path / "c")
    assert bits(resumed.state) == bits(run(algorithm, Simulation.from_rows(rows)).state)


def test_history_of_many_rounds_stores_what_repeats_once(rows):
    done = run(DWF(k=3, init=INIT, min_rounds=30, max_rounds=30), Simulation.from_rows(rows))
    assert len({id(r.sent) for r in done.history}) == 2


@pytest.mark.parametrize("seed", [-1, 1.5, "1", None])
def test_a_bad_seed(rows, seed):
    with pytest.raises(InputError, match="seed must be a non-negative integer, got"):
        run(Lloyd(k=3), Simulation.from_rows(rows), seed=seed)


@pytest.mark.parametrize("quorum", [-0.1, 1.1, float("nan")])
def test_a_bad_quorum(rows, quorum):
    with pytest.raises(InputError, match="quorum must be a share between 0 and 1, got"):
        run(Lloyd(k=3), Simulation.from_rows(rows), quorum=quorum)
