"""Questions, replies, batches of rows, and sums over sites."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unpooled.errors import InputError
from unpooled.protocol.messages import Question
from unpooled.protocol.questions.cluster_sums import Moments
from unpooled.protocol.site_batch import ReplyBatch, SiteBatch, ordered_sum
from unpooled.protocol.suppression import effective_size, zero_suppressed

pytestmark = pytest.mark.quick


def batch_of(*sizes: int, minimum: float = 1.0, weights=None) -> SiteBatch:
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    X = np.arange(2.0 * offsets[-1]).reshape(-1, 2)
    seeds = np.arange(len(sizes), dtype=np.uint64)
    return SiteBatch(X, offsets, weights, seeds, minimum, memory=tuple({} for _ in sizes))


def moments(*values: float) -> Moments:
    return Moments(*(np.array([v]) for v in values))


def test_a_batch_of_many_sites_is_made_of_batches_of_one():
    batch = batch_of(2, 0, 3, weights=np.arange(5.0))
    assert len(batch) == 3
    assert batch.row_counts.tolist() == [2, 0, 3]
    last = batch.site(2)
    assert last.X.tolist() == batch.X[2:].tolist()
    assert last.offsets.tolist() == [0, 3]
    assert last.weights.tolist() == [2, 3, 4]
    assert last.seeds.tolist() == [2]
    assert last.memory[0] is batch.memory[2]
    assert len(batch.site(1).X) == 0


def test_effective_size_by_hand():
    # four rows of weight 1; a row of 1000 among 1000 of weight 1/1000; nothing
    mass, squares = np.array([4.0, 1001.0, 0.0]), np.array([4.0, 1000000.001, 0.0])
    assert effective_size(mass, squares) == pytest.approx([4.0, 1.002, 0.0], abs=1e-3)


@given(st.lists(st.floats(0.01, 100.0), min_size=1, max_size=30))
def test_effective_size_is_between_one_and_the_number_of_rows(weights):
    w = np.array(weights)
    size = effective_size(np.array([w.sum()]), np.array([(w * w).sum()]))[0]
    assert 1 - 1e-9 <= size <= len(w) + 1e-9


def test_which_cells_are_large_enough():
    counts = np.array([0.0, 1.0, 2.0, 5.0])
    assert batch_of(9).large(counts, counts).all()
    assert batch_of(9, minimum=2).large(counts, counts).tolist() == [False, False, True, True]
    # a question may raise the site's minimum, never lower it
    assert batch_of(9, minimum=2).large(counts, counts, 5).tolist() == [False, False, False, True]
    assert batch_of(9, minimum=5).large(counts, counts, 2).tolist() == [False, False, False, True]


def test_what_is_suppressed_does_not_follow_by_subtraction():
    counts = np.array(
        [[0.0, 1.0, 2.0, 5.0], [3.0, 2.0, 0.0, 4.0], [1.0, 1.0, 9.0, 2.0], [7.0, 1.0, 0.0, 0.0]]
    )
    assert batch_of(9).disclosed(counts, counts).all()
    assert batch_of(9, minimum=2).disclosed(counts, counts).tolist() == [
        [
            False,
            False,
            False,
            True,
        ],  # the one row alone would be the total minus the rest: 2 is suppressed too
        [True, True, False, True],  # nothing is suppressed but a cell without rows
        [False, False, True, True],  # two rows in two cells protect one another
        [False, False, False, False],
    ]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(1, 6))
def test_every_disclosed_cell_is_large_and_suppressed_rows_are_none_or_many(sizes, minimum):
    counts = np.array(sizes, dtype=float)
    disclosed = batch_of(9, minimum=minimum).disclosed(counts, counts)
    suppressed = counts[~disclosed].sum()
    if minimum == 1:
        assert disclosed.all()
    else:
        assert (counts[disclosed] >= minimum).all()
        assert suppressed == 0 or suppressed >= minimum or not disclosed.any()
        # and no more is suppressed than needed: without the largest suppressed cell it would be too little
        if suppressed and (large := counts[~disclosed & (counts >= minimum)]).size:
            assert suppressed - large.max() < minimum


def test_weights_cannot_smuggle_a_row_past_the_minimum():
    # one row of weight 100 with a row of weight zero, or with four of weight 0.01
    mass, squares = np.array([100.0, 100.04]), np.array([100.0**2, 100.0**2 + 4e-4])
    assert not batch_of(9, minimum=2).large(mass, squares).any()
    assert not batch_of(9, minimum=2).disclosed(mass, squares).any()


def test_zero_suppressed_leaves_no_trace_of_a_suppressed_value():
    result = zero_suppressed(np.array([[True, False]]), np.array([[[-1.0, 2.0], [-3.0, 4.0]]]))
    assert result.tolist() == [[[-1.0, 2.0], [0.0, 0.0]]]
    assert not np.signbit(result[0, 1]).any()


def test_replies_add_up_field_by_field():
    added = moments(1, 2, 3) + moments(10, 20, 30)
    assert [added.n, added.sums[0], added.squares[0]] == [11, 22, 33]


def test_a_reply_batch_is_a_list_of_replies():
    whole = ReplyBatch(Moments(np.array([[1.0], [2.0]]), np.ones((2, 3)), np.zeros((2, 3))), 2)
    assert len(whole) == 2
    assert [reply.n for reply in whole] == [1.0, 2.0]
    assert whole[1].sums.shape == (3,)


@pytest.mark.parametrize("seed", range(5))
def test_fold_is_the_same_to_the_bit_however_it_is_cut_into_blocks(seed):
    rng = np.random.default_rng(seed)
    parts = 10.0 ** rng.integers(-12, 12, (3, 20, 4)) * rng.standard_normal((3, 20, 4))
    replies = [Moments(*row) for row in parts.transpose(1, 0, 2)]
    one_by_one = np.zeros((3, 4))
    for reply in replies:
        one_by_one += (reply.mass, reply.sums, reply.squares)
    cuts = np.sort(rng.choice(np.arange(1, 20), 3, replace=False))
    blocks = [replies[a:b] for a, b in zip([0, *cuts], [*cuts, 20], strict=True)]
    batches = [ReplyBatch(Moments(*(a[b[0] : b[1]] for a in parts)), b[1] - b[0]) for b in [(0, 7), (7, 20)]]
    for total in (ordered_sum([replies]), ordered_sum(blocks), ordered_sum(batches)):
        assert np.array_equal([total.mass, total.sums, total.squares], one_by_one)


def test_a_question_without_an_answer_says_so():
    @dataclass(frozen=True, eq=False)
    class Mute(Question[Moments], prefix="test_messages"):
        pass

    with pytest.raises(InputError, match="Mute does not say how it is answered"):
        Mute().answer(batch_of(1))
    assert Mute().reply_numbers(3) == 0
