"""Restarts of any method in the same exchanges."""

import numpy as np
import pytest

from helpers import blobs, inertia_of, pooled, split, watched
from unpooled.algorithms import DWF, FKM, Fuzzy, KFed, Lloyd, Restarts, Robust
from unpooled.algorithms.registry import METHODS
from unpooled.algorithms.same_centers import distinct
from unpooled.algorithms.scaled import Scaled
from unpooled.errors import InputError
from unpooled.federation import Simulation
from unpooled.protocol import run
from unpooled.protocol.algorithm import Algorithm, Wrapper
from unpooled.protocol.questions.cluster_sums import AskMoments


@pytest.fixture
def hard():
    """Many clusters, of which a random start usually misses some."""
    return split(blobs(7, n=400, k=10, spread=0.7)[0], 5, 7)


@pytest.mark.parametrize("inner", [DWF(k=10, init="random"), FKM(k=10), KFed(k=10, server_restarts=1)])
def test_the_lowest_federated_inertia_wins(hard, inner):
    done = run(Restarts(inner, 6), Simulation.from_rows(hard), seed=1)
    X = pooled(hard)
    inertias = [inertia_of(X, s.centers) for s in done.state.states]
    assert len(inertias) == 6
    assert len(set(np.round(inertias, 6))) > 1  # the restarts do differ
    np.testing.assert_allclose(done.state.inertias, inertias)
    assert inertias[done.state.best] == pytest.approx(min(inertias))
    assert done.state.inertia == pytest.approx(min(inertias))
    assert np.array_equal(done.state.centers, done.state.states[done.state.best].centers)


def test_ten_restarts_cost_the_exchanges_of_the_longest_and_one_to_score_them(hard):
    done = run(Restarts(DWF(k=10, init="random"), 10), Simulation.from_rows(hard), seed=1)
    longest = max(s.rounds for s in done.state.states)
    assert done.exchanges == 1 + longest + 1
    assert done.rounds == longest + 1


def test_one_shot_methods_cost_two_exchanges(hard):
    done = run(Restarts(KFed(k=10, server_restarts=1), 10), Simulation.from_rows(hard))
    assert done.exchanges == 2


def test_restarts_are_better_than_one(hard):
    X = pooled(hard)
    method = DWF(k=10, init="random")
    one = [inertia_of(X, run(method, Simulation.from_rows(hard), seed=s).state.centers) for s in range(5)]
    best = inertia_of(X, run(Restarts(method, 10), Simulation.from_rows(hard)).state.centers)
    assert best < np.mean(one)


def test_one_adaptive_seeding_serves_all_restarts(hard):
    federation, recorder = watched(hard)
    done = run(Restarts(DWF(k=10), 5), federation)
    moments = [part for part, _ in recorder.seen if isinstance(part.question, AskMoments)]
    assert len(done.state.states) <= 5
    assert len(moments) <= (1 + 5) * len(hard)
    assert done.history[0].exchanges == 5  # four for the seeding, one for all restarts' own moments
    assert (
        inertia_of(pooled(hard), done.state.centers)
        <= 1.001 * run(Lloyd(k=10), Simulation.from_rows(hard)).state.inertia
    )


def test_before_they_are_scored_the_best_so_far_is_the_result(hard):
    begun = run(Restarts(DWF(k=10, init="random"), 4), Simulation.from_rows(hard), max_rounds=2).state
    assert begun.best == -1
    assert np.isnan(begun.inertias).all()
    assert begun.inertia == min(s.inertia for s in begun.states)
    assert begun.movement == max(s.movement for s in begun.states)


def test_a_restart_that_is_finished_is_left_alone(hard):
    federation, recorder = watched(hard)
    done = run(Restarts(DWF(k=10, init="random"), 6), federation)
    ends = sorted(s.rounds for s in done.state.states)
    assert ends[0] < ends[-1]
    asked = sum(type(part.question).__name__ == "AskLocalMoves" for part, _ in recorder.seen)
    assert asked == sum(ends) * len(hard)


def test_no_restart_at_all():
    with pytest.raises(InputError, match="n must be >= 1, got 0"):
        Restarts(DWF(k=2), 0)


def test_the_facts_of_the_best_start_are_those_of_the_run(hard):
    hostile = {**hard, "z": np.full((400, 2), 1e6)}
    for algorithm in (Robust(k=3), Scaled(Robust(k=3)), Restarts(Robust(k=3, n_starts=4), 2)):
        state = run(algorithm, Simulation.from_rows(hostile), seed=1).state
        assert state.suspects == state.leader.suspects
        assert state.threshold == state.leader.threshold > 0
        assert state.lower_bound is None
    assert "z" in run(Robust(k=3), Simulation.from_rows(hostile), seed=1).state.suspects


def test_without_a_stopping_rule_max_rounds_ends_every_form_of_a_method(hard):
    endless = _Endless(k=3, max_rounds=4)
    federation = Simulation.from_rows(hard)
    assert run(endless, federation).rounds == 4
    assert run(Scaled(endless), federation).rounds == 4
    assert run(Restarts(endless, 3), federation).rounds == 5  # one more compares them
    assert run(Scaled(Restarts(endless, 3)), federation).rounds == 5


class _Endless(DWF):
    def finished(self, state):
        return False


def test_a_state_of_another_class_is_refused(hard):
    class Bare(Algorithm):
        def start(self, sites, rng):
            return 0
            yield ()

    with pytest.raises(InputError, match=r"int is not a State\. Derive it"):
        run(Bare(), Simulation.from_rows(hard))


def levels(algorithm):
    return [algorithm, *levels(algorithm.inner)] if isinstance(algorithm, Wrapper) else [algorithm]


@pytest.mark.parametrize("name", METHODS)
def test_a_number_of_restarts_is_the_number_of_starts(name):
    """The starts of one ``Restarts`` are all that run: no method multiplies them by its own."""
    built = METHODS[name](k=3).with_restarts(4).build()
    assert [one.n for one in levels(built) if isinstance(one, Restarts)] in ([4], [])  # Dual has other starts
    assert built.innermost.n_starts == 4 or isinstance(built, Restarts)


@pytest.mark.parametrize("wrap", [lambda method: Restarts(method, 2), Scaled])
def test_a_wrapper_has_the_settings_of_its_method(wrap):
    method = Fuzzy(k=3, m=1.5, participation=0.5, min_cluster_size=7)
    wrapped = wrap(method)
    assert (wrapped.fuzzifier, wrapped.participation, wrapped.min_cluster_size) == (1.5, 0.5, 7)


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("k", [1, 4, 30])
def test_distinct_starts_are_those_whose_centres_are_not_all_near_an_earlier_one(k, both_ways):
    rng = np.random.default_rng(k)
    base = rng.normal(size=(3, k, 2))
    # steps around the distance: some sets are near although their squared distances add up to more
    sets = np.stack(
        [rng.permutation(base[i % 3] + rng.normal(0, 0.01 + 0.005 * i, (k, 2))) for i in range(15)]
    )
    sets = np.concatenate([sets, np.repeat(base[:, :1], k, axis=1)])  # all centres near one of another set
    kept = []
    for i, own in enumerate(sets):
        away = np.linalg.norm(own[:, None, None] - sets[kept], axis=-1) if kept else np.zeros((k, 0, 1))
        near = (away.min(axis=2) <= 0.15).all(axis=0)
        back = [
            np.linalg.norm(other[:, None] - own, axis=-1).min(axis=1).max() <= 0.15 for other in sets[kept]
        ]
        if not (near & back if both_ways and kept else near).any():
            kept.append(i)
    assert np.flatnonzero(distinct(sets, 0.15, both_ways=both_ways)).tolist() == kept
    assert 3 <= len(kept) < len(sets)
