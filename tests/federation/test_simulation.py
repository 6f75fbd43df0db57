"""All sites in one process: fused or one by one, in blocks, some of them, and invalid input."""

from dataclasses import dataclass

import numpy as np
import pytest

from helpers import Declines, bits, blobs, split
from unpooled.algorithms import DWF, Lloyd
from unpooled.algorithms.dwf import AskLocalMoves
from unpooled.algorithms.fkm import AskOneStep
from unpooled.algorithms.kfed import AskDennisMeans
from unpooled.algorithms.minibatch import AskEpochs
from unpooled.data import Table
from unpooled.data.transforms import Affine
from unpooled.errors import InputError, SiteFailedError
from unpooled.federation import LocalFederation, Simulation, simulation
from unpooled.federation.simulated_rows import ArrayRows, simulated_rows
from unpooled.protocol import run
from unpooled.protocol.algorithm import each, together, total, transformed
from unpooled.protocol.exchange import RoundLog, UniformSizes, run_protocol
from unpooled.protocol.messages import Question
from unpooled.protocol.questions.cluster_sums import (
    AskClusterSums,
    AskLocalMeans,
    AskMoments,
    AskScatter,
    Moments,
)
from unpooled.protocol.site_batch import SiteBatch
from unpooled.site import Site

pytestmark = pytest.mark.quick

CENTERS = np.random.default_rng(0).uniform(-10, 10, (4, 3))
QUESTIONS = [
    AskMoments(),
    AskMoments(np.full(3, 2.0)),
    AskClusterSums(np.stack([CENTERS, CENTERS[::-1] + 1])),
    AskLocalMeans(4),
    AskLocalMeans(3, n_init=3, steps=2, min_size=2.0),
    AskScatter(CENTERS),
    AskLocalMoves(CENTERS, 3, "counts"),
    AskLocalMoves(CENTERS, 1, "equal"),
    AskLocalMoves(CENTERS, 2, "rows"),
    AskOneStep(CENTERS, "before", 2.0),
    AskOneStep(CENTERS, "after", 2.0),
    AskDennisMeans(2),
    AskEpochs(CENTERS, 2, 5, 0.7),
]


def uneven(seed: int, d: int = 3, dtype=np.float64):
    """Sites of very different size, one of them empty."""
    rng = np.random.default_rng(seed)
    sizes = [1, 0, 2, 37, 5, 130, 11]
    return {f"s{i}": (6 * rng.standard_normal((n, d))).astype(dtype) for i, n in enumerate(sizes)}


def weights_for(rows, seed: int):
    rng = np.random.default_rng(seed)
    return {s: rng.integers(0, 4, len(X)).astype(float) for s, X in rows.items()}


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: type(q).__name__)
@pytest.mark.parametrize("minimum", [1, 2, 5])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_fused_equals_site_by_site_for_every_question(question, minimum, dtype):
    rows = uneven(1, dtype=dtype)
    for weights in (None, weights_for(rows, 2)):
        both = [
            Simulation.from_rows(rows, weights, min_cluster_size=minimum, n_threads=2),
            LocalFederation.from_rows(rows, weights, min_cluster_size=minimum),
        ]
        for transform in (None, Affine(np.array([1.0, 0.0, -1.0]), np.array([2.0, 1.0, 0.5]))):
            for sites in (both[0].sites, ("s5", "s0", "s3")):
                fused, alone = (
                    run_protocol(transformed(transform, each(sites, question)), f, seed=3, number=2)
                    for f in both
                )
                assert set(fused) == set(sites)
                assert all(bits(fused[s]) == bits(alone[s]) for s in sites)


SUMMED = [
    q
    for q in QUESTIONS
    if isinstance(q, AskMoments | AskClusterSums | AskScatter | AskLocalMoves | AskEpochs)
]


@pytest.mark.parametrize("question", SUMMED, ids=lambda q: type(q).__name__)
@pytest.mark.parametrize("block", [1, 40, 100])
def test_totals_in_small_blocks_have_the_same_bits(question, block, monkeypatch):
    rows = uneven(4)
    whole, round_log = RoundLog(), RoundLog()
    straight = run_protocol(total(tuple(rows), question), Simulation.from_rows(rows), round_log=whole)
    alone = run_protocol(total(tuple(rows), question), LocalFederation.from_rows(rows))
    monkeypatch.setattr(simulation, "_BLOCK_NUMBERS", block)
    blocked = run_protocol(total(tuple(rows), question), Simulation.from_rows(rows), round_log=round_log)
    assert bits(blocked) == bits(straight) == bits(alone)
    assert round_log.sent == whole.sent
    exact = [
        bits(run_protocol(total(tuple(rows), question), kind.from_rows(rows, exact_sums=True)))
        for kind in (Simulation, LocalFederation)
    ]
    assert exact[0] == exact[1]


def test_sites_of_one_array_are_those_of_a_mapping_and_nothing_is_made_for_each():
    rows = {f"{i:07}": X for i, X in enumerate(uneven(4).values())}
    X = np.concatenate(list(rows.values()))
    weights = np.random.default_rng(0).integers(1, 4, len(X)).astype(float)
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in rows.values()])])
    parts = dict(zip(rows, np.split(weights, offsets[1:-1]), strict=True))
    for algorithm in (Lloyd(k=2), DWF(k=2, local_steps=2)):
        for w, by_site in ((None, None), (weights, parts)):
            stacked = Simulation(ArrayRows(X, offsets, w))
            one, other = (
                run(algorithm, stacked, seed=1),
                run(algorithm, Simulation.from_rows(rows, by_site), seed=1),
            )
            assert bits(one.state) == bits(other.state)
            assert stacked.rows == len(X)
            assert all(isinstance(record.sent, UniformSizes) for record in one.history)
            assert [dict(record.sent) for record in one.history] == [dict(r.sent) for r in other.history]
            assert len(stacked._memory[one.id]._known) <= 1  # no memory of sites that need none
    named = Simulation(ArrayRows(X, offsets, names=sorted(rows)))
    assert named.sites == tuple(rows)


@pytest.mark.parametrize(
    ("offsets", "names", "message"),
    [
        ([0, 2], None, "offsets must not decrease, start at 0 and end at 3, the number of rows"),
        ([0, 2, 1, 3], None, "offsets must not decrease"),
        ([1, 3], None, "offsets must not decrease"),
        ([0], None, "offsets must not decrease"),
        ([0, 1, 3], ["b", "a"], "names must be sorted and different, one for each of the 2 sites"),
        ([0, 1, 3], ["a", "a"], "names must be sorted"),
        ([0, 1, 3], ["a"], "names must be sorted"),
    ],
)
def test_offsets_and_names_of_stacked_sites_that_do_not_fit_are_refused(offsets, names, message):
    with pytest.raises(InputError, match=message):
        ArrayRows(np.zeros((3, 1)), offsets, names=names)


def test_equal_numbers_of_bytes_sent_by_all_sites_are_a_mapping():
    same = UniformSizes(("a", "b"), (3, 40))
    assert same == {"a": (3, 40), "b": (3, 40)}
    assert same != {"a": (3, 40)}
    assert same == UniformSizes(("a", "b"), (3, 40)) != UniformSizes(("a", "c"), (3, 40))
    assert same.plus(UniformSizes(("a", "b"), (1, 2))) == {"a": (4, 42), "b": (4, 42)}
    assert same.plus({"a": (1, 2)}) is None
    with pytest.raises(KeyError):
        same["c"]


def test_blocks_split_the_sites(monkeypatch):
    sizes = []

    @dataclass(frozen=True, eq=False)
    class Watching(AskMoments, prefix="test_simulation"):
        def answer_all(self, batch):
            sizes.append(len(batch))
            return super().answer_all(batch)

    monkeypatch.setattr(simulation, "_BLOCK_NUMBERS", 14)
    rows = uneven(4)
    moments = run_protocol(total(tuple(rows), Watching()), Simulation.from_rows(rows))
    assert sizes == [1, 2, 2, 2, 1]  # one to check its declarations; 7 numbers per site: two sites a block
    assert moments.n == sum(map(len, rows.values()))


def test_each_in_blocks(monkeypatch):
    rows = uneven(4)
    straight = run_protocol(each(tuple(rows), AskLocalMeans(3)), Simulation.from_rows(rows))
    monkeypatch.setattr(simulation, "_BLOCK_NUMBERS", 1)
    blocked = run_protocol(each(tuple(rows), AskLocalMeans(3)), Simulation.from_rows(rows))
    assert {s: bits(r) for s, r in straight.items()} == {s: bits(r) for s, r in blocked.items()}


def test_parts_of_one_exchange_that_ask_different_sites_draw_the_same():
    rows = uneven(4)
    asked = [("s3", "s5"), ("s5",), ("s0", "s3", "s6")]
    fused, alone = (
        run_protocol(
            together([each(sites, AskLocalMeans(3, steps=1)) for sites in asked]),
            kind.from_rows(rows),
        )
        for kind in (Simulation, LocalFederation)
    )
    for a, b in zip(fused, alone, strict=True):
        assert {s: bits(r) for s, r in a.items()} == {s: bits(r) for s, r in b.items()}


def test_number_of_threads_is_irrelevant():
    rows = split(blobs(3, n=3000, d=3, k=4, spread=3.0)[0], 7)
    states = [bits(run(Lloyd(k=4), Simulation.from_rows(rows, n_threads=t)).state) for t in (1, 2, 5)]
    assert len(set(states)) == 1


def test_rows_that_lie_in_one_array_are_not_copied():
    X = np.random.default_rng(0).normal(size=(100, 3))
    rows = {"a": X[10:40], "b": X[40:41], "c": X[41:90]}
    joined = simulated_rows(rows).untransformed()
    assert np.shares_memory(joined.X, X)
    assert np.array_equal(joined.X, X[10:90])
    for other in ({"a": X[40:90], "b": X[10:40]}, {"a": X[:10], "b": X[20:30]}, {"a": X[:50:2], "b": X[50:]}):
        stacked = simulated_rows(other).untransformed().X
        assert np.array_equal(stacked, np.concatenate([other["a"], other["b"]]))


def test_narrower_tables_of_one_array_are_stacked_right():
    X = np.arange(24.0)
    rows = {"a": X[:12].reshape(4, 3), "b": X[12:].reshape(4, 3)}
    fused, alone = (
        run_protocol(each(("a", "b"), AskMoments()), kind.from_rows(rows))
        for kind in (Simulation, LocalFederation)
    )
    assert all(bits(fused[s]) == bits(alone[s]) for s in rows)


def test_sites_of_a_simulation_have_one_kind_of_rows():
    table = Table.from_columns({"a": [1.0, 2.0]})
    with pytest.raises(InputError, match=r"must all have arrays.*Use LocalFederation.from_rows"):
        Simulation.from_rows({"a": np.zeros((2, 1)), "b": table})
    federation, scaling = Simulation.from_rows({"a": table}), Affine(np.zeros(1), np.ones(1))
    with pytest.raises(InputError, match="Affine transforms arrays; tables need a Preparation"):
        run_protocol(transformed(scaling, each(("a",), AskMoments())), federation)


def test_a_site_with_a_rule_of_its_own_keeps_it():
    rows = uneven(1)
    sites = [Site(s, X, guards=[Declines("busy")] if s == "s3" else []) for s, X in rows.items()]
    assert "s3" not in run_protocol(each(tuple(rows), AskMoments()), LocalFederation(sites))


def test_sites_with_different_minima_each_keep_their_own():
    X = np.array([[0.0], [0.1], [9.0], [9.1], [9.2]])
    sites = [Site("a", X), Site("b", X, min_cluster_size=3), Site("c", X, min_cluster_size=2)]
    question = AskClusterSums(np.array([[[0.0], [9.0]]]))
    replies = run_protocol(each(("a", "b", "c"), question), LocalFederation(sites))
    assert replies["a"].mass.tolist() == replies["c"].mass.tolist() == [[2.0, 3.0]]
    assert replies["b"].mass[0, 0] == 0.0


# ---------------------------------------------------------------- errors


@dataclass(frozen=True, eq=False)
class Fails(Question[Moments], prefix="test_simulation"):
    """A question with a bug that shows at sites with a single row."""

    reads = "rows"

    def answer_all(self, batch: SiteBatch):
        if (batch.row_counts == 1).any():
            raise ZeroDivisionError("one row is too few")
        return AskMoments().answer_all(batch)


def test_a_failing_site_is_named_with_round_and_question():
    with pytest.raises(
        SiteFailedError, match=r"site s0, round 6, test_simulation\.Fails: one row is too few"
    ):
        run_protocol(total(("s5", "s0"), Fails()), LocalFederation.from_rows(uneven(1)), number=6)
    with pytest.raises(SiteFailedError, match=r"round 6, test_simulation\.Fails: one row is too few"):
        run_protocol(total(("s5", "s0"), Fails()), Simulation.from_rows(uneven(1)), number=6)


def test_no_site_at_all():
    with pytest.raises(InputError, match="at least one site, got 0"):
        LocalFederation([])


def test_two_sites_of_one_name():
    with pytest.raises(InputError, match="site names must differ: 2 sites, 1 names"):
        LocalFederation([Site("a", np.ones((1, 1))), Site("a", np.ones((1, 1)))])


def test_sites_with_different_columns():
    with pytest.raises(InputError, match="sites with different columns: a has 2, b has 3"):
        Simulation.from_rows({"a": np.ones((4, 2)), "b": np.ones((4, 3))})
