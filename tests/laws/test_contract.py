"""Every algorithm x every check. A new method joins by one line in helpers.ALGORITHMS."""

import dataclasses
import inspect
import re

import numpy as np
import pytest
from tests.amounts import amounts

from helpers import ALGORITHMS, Declines, arrays_in, bits, blobs, each_algorithm, pooled, split, watched
from unpooled import algorithms
from unpooled.errors import InputError, TooFewAnswersError
from unpooled.federation import LocalFederation, Simulation
from unpooled.protocol import codec, run
from unpooled.site import Site

every_preset = pytest.mark.parametrize("name", ALGORITHMS)


def outcome(done):
    """All that must be the same to the last bit in two equal runs."""
    history = tuple(
        (r.round, r.movement, r.inertia, r.exchanges, r.numbers, r.bytes, r.silent) for r in done.history
    )
    return bits((done.state, history, done.finished))


def test_every_method_takes_part_in_the_contract():
    made = {type(make()) for make in ALGORITHMS.values()}
    methods = {c for _, c in inspect.getmembers(algorithms, inspect.isclass)} - {algorithms.Method}
    methods -= {
        algorithms.Private,
        algorithms.PrivateState,
    }  # noise has no seed: tests/algorithms/test_private.py
    assert methods <= made


@every_preset
def test_algorithm_and_state_travel_in_the_codec(name, rows):
    algorithm = ALGORITHMS[name]()
    assert bits(codec.decode(bits(algorithm))) == bits(algorithm)
    state = run(algorithm, Simulation.from_rows(rows)).state
    again = codec.decode(bits(state), expect=type(state))
    assert bits(again) == bits(state)
    assert np.array_equal(again.centers, state.centers)


@every_preset
def test_it_ends_with_finite_centres_and_reports_it(name, rows):
    done = run(ALGORITHMS[name](), Simulation.from_rows(rows))
    assert done.finished
    assert done.state.centers.shape == (3, 2)
    assert np.isfinite(done.state.centers).all()


@each_algorithm
@pytest.mark.parametrize("kind", [Simulation, LocalFederation])
def test_resumed_at_every_round_equals_the_straight_run(name, kind, overlapping, tmp_path):
    algorithm, path = ALGORITHMS[name](), tmp_path / "run"
    straight = run(algorithm, kind.from_rows(overlapping), seed=5)
    done = run(algorithm, kind.from_rows(overlapping), seed=5, checkpoint=path, max_rounds=0)
    while not done.finished:
        # a federation of its own every time: nothing but the file is carried over
        done = run(algorithm, kind.from_rows(overlapping), seed=5, checkpoint=path, max_rounds=1)
    assert outcome(done) == outcome(straight)


@every_preset
def test_same_seed_same_result(name, rows):
    algorithm = ALGORITHMS[name]()
    first = run(algorithm, Simulation.from_rows(rows), seed=7)
    second = run(algorithm, Simulation.from_rows(rows), seed=7)
    assert outcome(first) == outcome(second)


@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - {"lloyd-given", "dual-published"}))
def test_another_seed_starts_elsewhere(name, overlapping):
    """All methods but one that is given its start, and one that starts at zero, draw something."""
    seeds = [
        run(ALGORITHMS[name](), Simulation.from_rows(overlapping), seed=s, max_rounds=0).state
        for s in range(3)
    ]
    assert len({bits(state) for state in seeds}) > 1


@each_algorithm
def test_order_of_the_sites_is_irrelevant(name, rows):
    algorithm = ALGORITHMS[name]()
    straight = run(algorithm, Simulation.from_rows(rows), seed=3)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(sorted(rows))
        shuffled = run(algorithm, Simulation.from_rows({site: rows[site] for site in order}), seed=3)
        assert outcome(shuffled) == outcome(straight)


@each_algorithm
@pytest.mark.parametrize(("minimum", "weighted"), [(1, False), (2, True)])
def test_fused_equals_site_by_site(name, minimum, weighted, overlapping):
    """With an empty site and unequal sites."""
    rows = {**overlapping, "empty": np.zeros((0, 2))}
    weights = {s: np.random.default_rng(len(X)).integers(0, 3, len(X)).astype(float) for s, X in rows.items()}
    algorithm, w = ALGORITHMS[name](min_cluster_size=minimum), weights if weighted else None
    fused = run(algorithm, Simulation.from_rows(rows, w, min_cluster_size=minimum, n_threads=2), seed=2)
    alone = run(algorithm, LocalFederation.from_rows(rows, w, min_cluster_size=minimum), seed=2)
    assert outcome(fused) == outcome(alone)


@each_algorithm
def test_rows_are_not_touched(name, rows):
    before = {site: X.copy() for site, X in rows.items()}
    for X in rows.values():
        X.setflags(write=False)
    run(ALGORITHMS[name](), Simulation.from_rows(rows))
    run(ALGORITHMS[name](), LocalFederation.from_rows(rows))
    assert all(np.array_equal(rows[site], before[site]) for site in rows)


@each_algorithm
def test_a_declining_site_is_survived_and_recorded(name, rows):
    sites = [Site(s, X, guards=[Declines("no consent")] if s == "site-2" else []) for s, X in rows.items()]
    done = run(ALGORITHMS[name](), LocalFederation(sites))
    assert done.finished
    assert np.isfinite(done.state.centers).all()
    for record in done.history:
        if record.exchanges:
            assert record.silent == {"site-2": "no consent"}
            assert record.answered == ("site-0", "site-1", "site-3")


@each_algorithm
def test_a_declining_site_leaves_the_result_of_the_others(name, rows):
    """As if the site were not there; only the names of the sites feed the randomness of each."""
    sites = [Site(s, X, guards=[Declines()] if s == "site-2" else []) for s, X in rows.items()]
    others = {s: X for s, X in rows.items() if s != "site-2"}
    with_it = run(ALGORITHMS[name](), LocalFederation(sites), seed=4)
    without = run(ALGORITHMS[name](), Simulation.from_rows(others), seed=4)
    assert bits(with_it.state) == bits(without.state)


@every_preset
def test_too_few_answers_is_one_named_error(name, rows):
    sites = [Site(s, X, guards=[Declines("asleep")] if s != "site-1" else []) for s, X in rows.items()]
    with pytest.raises(
        TooFewAnswersError, match=r"round 0, \w+: 1 of 4 sites answered, 2 needed; missing: .*asleep"
    ):
        run(ALGORITHMS[name](), LocalFederation(sites), quorum=0.5)


@each_algorithm
@pytest.mark.parametrize("participation", [0.5, 2])
def test_partial_participation(name, participation, overlapping):
    rows = {**overlapping, "site-9": overlapping["site-0"][::2] + 0.1}
    algorithm = ALGORITHMS[name](participation=participation, max_rounds=6)
    done = run(algorithm, Simulation.from_rows(rows), seed=1)
    assert np.isfinite(done.state.centers).all()
    assert outcome(run(algorithm, LocalFederation.from_rows(rows), seed=1)) == outcome(done)
    if name.startswith(("best-of", "scaled")) or not done.rounds:
        return  # restarts choose for themselves, and each is asked of its own two
    assert {len(r.answered) for r in done.history[1:]} == {2}
    assert len({r.answered for r in done.history[1:]}) > 1 or done.rounds < 3


@each_algorithm
def test_history_lists_what_each_site_sent(name, rows):
    done = run(ALGORITHMS[name](), Simulation.from_rows(rows))
    federation, recorder = watched(rows)
    run(ALGORITHMS[name](), federation)
    for site, (numbers, size) in done.sent().items():
        assert numbers > 0
        assert size > 8 * numbers  # every number takes eight bytes, and the rest of the message some more
        assert site in rows
    assert sum(n for n, _ in done.sent().values()) == sum(
        a.size for _, reply in recorder.seen for a in arrays_in(reply)
    )
    assert sum(b for _, b in done.sent().values()) == sum(len(bits(reply)) for _, reply in recorder.seen)


# ---------------------------------------------------------------- no reply contains a row


def disclosed(part, reply):
    """All vectors that a reader of one reply can form: raw, per mass, and about the centre that was sent."""
    fields = {f.name: getattr(reply, f.name) for f in dataclasses.fields(reply)}
    means = [fields["plain"]] if "plain" in fields else []
    for size in (fields[n] for n in ("mass", "counts", "weight", "rows") if n in fields):
        for a in fields.values():
            if size.shape == (1,) or a.shape[: size.ndim] == size.shape:
                with np.errstate(divide="ignore", invalid="ignore"):
                    means.append(a / size.reshape(size.shape + (1,) * (a.ndim - size.ndim)))
    about = [getattr(part.question, name, None) for name in ("centers", "origin")]
    about = [b + a for b in about if b is not None for a in means if a.shape == b.shape]
    return [*fields.values(), *means, *about]


def rows_among(part, reply, X):
    """The rows of X, as they are and as the question sees them, that are in the reply to rounding."""
    found = []
    for Z in (X,) if part.transform is None else (X, part.transform.apply(X)):
        for a in disclosed(part, reply):
            if a.ndim and a.shape[-1] == Z.shape[1]:
                gaps = np.abs(a.reshape(-1, 1, Z.shape[1]) - Z).max(axis=2)
                found += X[(gaps <= 1e-9 * (1 + np.abs(Z).max())).any(axis=0)].tolist()
    return found


@pytest.fixture(params=amounts(1, 150))
def runs(request):
    return request.param


def tiny_sites(seed: int):
    """Sites of 1 to 12 rows, all rows different."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 13, size=rng.integers(3, 9))
    return {f"s{i}": 3 * rng.standard_normal((n, 2)) + rng.integers(3) for i, n in enumerate(sizes)}


def replies_of(algorithm, rows, minimum, seed):
    """The Recorder of a run."""
    federation, recorder = watched(rows, minimum)
    try:
        run(algorithm, federation, seed=seed)
    except InputError as error:  # the sites disclose too little to start; the bytes sent until then count
        assert re.search("k=3 clusters from|centroids of s0, which discloses none", str(error))  # noqa: PT017
    assert recorder.seen
    return recorder


@each_algorithm
@pytest.mark.parametrize("minimum", [2, 5])
def test_law_25_no_reply_contains_a_row(name, minimum, runs):
    for seed in range(runs):
        rows = tiny_sites(seed) if seed % 4 < 3 else split(blobs(seed, n=60, spread=3.0)[0], 3, seed)
        X = pooled(rows)
        recorder = replies_of(ALGORITHMS[name](min_cluster_size=minimum), rows, minimum, seed)
        for (part, reply), n in zip(recorder.seen, recorder.rows, strict=True):
            assert rows_among(part, reply, X) == []
            # nor does one follow by subtraction from the site's total: none is suppressed, or enough are
            for sizes in (getattr(reply, name) for name in ("mass", "counts") if hasattr(reply, name)):
                suppressed = n - sizes.sum(axis=-1)
                assert ((suppressed == 0) | (suppressed >= minimum) | (suppressed == n)).all()
                assert ((sizes == 0) | (sizes >= minimum)).all()
            # nor even on which side of a centre a suppressed row lies
            assert not any(np.signbit(a[a == 0]).any() for a in arrays_in(reply))


@pytest.mark.parametrize(
    "name", ["lloyd", "scaled-lloyd", "dwf-slow", "k-fed", "k-fed-published", "mini-batch"]
)
def test_without_a_minimum_the_same_search_finds_rows(name):
    recorder = replies_of(ALGORITHMS[name](), rows := tiny_sites(1), 1, 1)
    assert any(rows_among(part, reply, pooled(rows)) for part, reply in recorder.seen)
