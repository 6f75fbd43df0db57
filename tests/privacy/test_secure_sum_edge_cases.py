"""Secure sums at the edges: odd transforms and questions, a round begun twice, more runs than are kept."""

from dataclasses import replace

import numpy as np
import pytest
from ring import Ring, Vector
from test_secure_runs import Wire, secure

from unpooled.data import Number, Preparation, Table
from unpooled.data.schema import AskColumns
from unpooled.data.transforms import Affine, Category
from unpooled.errors import InputError, QueryRefusedError, TooFewAnswersError
from unpooled.federation import LocalFederation
from unpooled.privacy import SecureSums
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments
from unpooled.privacy.microaggregation import microaggregate
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.privacy.secure_sum.fixed_point import words_of
from unpooled.privacy.secure_sum.stage_messages import AskKeys, as_words
from unpooled.protocol.algorithm import each, together, total, transformed
from unpooled.protocol.exact_sum import exact_sum
from unpooled.protocol.exchange import STAGE, Part, Request, RequestId, run_protocol
from unpooled.protocol.messages import Refusal
from unpooled.protocol.partial_sum import partial_sum
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskLocalMeans, AskMoments, Moments
from unpooled.site.fixed_point_range import FixedPointRange, stated_sizes
from unpooled.site.ledger import Ledger
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

X = np.random.default_rng(0).normal(size=(200, 2))
ROWS = {f"s{i}": X[i::4] for i in range(4)}
SUMS = (
    "format = 1\n[protect]\nauto_approve = true\none_row_per_person = true\nno_sensitive_columns = true\n"
    '[aggregation]\nsecure = "required"\n'
)
DP = """format = 1
[protect]
mode = "dp"
[dp]
epsilon_total = 5
honest_sites = 3
[domain]
rows = 1000
"""


@pytest.fixture
def federation(tmp_path):
    """Sites of arrays and, under other names, of tables: both with their guards."""

    def of(tables, rules=SUMS):
        made.extend(open_site(name, own, parse(rules), tmp_path / name) for name, own in tables.items())
        return LocalFederation(made, secure=SecureSums())

    made: list = []
    yield of
    for site in made:
        site.close()


# ---------------------------------------------------------------- what a site refuses before it adds


@pytest.mark.parametrize(
    ("transform", "says"),
    [
        (Affine(np.zeros(2), np.array([1.0, np.nan])), "the scaling of a column is not a positive number"),
        (Affine(np.zeros(2), np.array([1.0, -1.0])), "the scaling of a column is not a positive number"),
        (Affine(np.array([np.inf, 0.0]), np.ones(2)), "the scaling of a column is not a positive number"),
        (Affine(np.zeros(3), np.ones(3)), r"a scaling of shape \(3,\) for rows of 2 columns"),
    ],
)
def test_a_scaling_that_is_none_is_refused_by_all(federation, transform, says):
    sites = federation(ROWS)
    with pytest.raises(TooFewAnswersError, match=f"0 of 4 sites.*{says}"):
        run_protocol(transformed(transform, total(sites.sites, AskMoments())), sites, run="r")


def tables():
    own = {name: {"age": rows[:, 0] + 50, "sex": ["f", "m"] * 25} for name, rows in ROWS.items()}
    return {name: Table.from_columns(columns) for name, columns in own.items()}


def prepared(scale: float) -> Preparation:
    return Preparation((Number("age", 50.0, 50.0, 10.0), Category("sex", ("f", "m"), False, 0, scale)), False)


def test_the_scale_of_a_category_is_held_to_a_count(federation):
    sites = federation(tables())
    result = run_protocol(transformed(prepared(0.5), total(sites.sites, AskMoments())), sites, run="r")
    assert result.n == 200
    with pytest.raises(TooFewAnswersError, match=r"0 of 4 sites.*the unit of column sex.* is far above"):
        run_protocol(transformed(prepared(2.0**40), total(sites.sites, AskMoments())), sites, run="q")


def test_a_question_about_rows_of_a_table_without_a_transform_is_refused_in_a_sum_too(federation):
    sites = federation(tables())
    with pytest.raises(TooFewAnswersError, match=r"0 of 4 sites.*and this site has a table of named columns"):
        run_protocol(total(sites.sites, AskMoments()), sites, run="r")


def test_columns_whose_origins_and_units_are_of_other_numbers_are_refused():
    bounds = FixedPointRange(microaggregate(tables()["s0"]))
    bounds(Part("total", AskColumns(("age",), np.zeros(1), np.ones(1), (), (), False), None, 0))
    odd = AskColumns(("age",), np.zeros(2), np.ones(1), (), (), False)
    with pytest.raises(QueryRefusedError, match="AskColumns: origin and unit for every number"):
        bounds(Part("total", odd, None, 0))


def test_a_column_of_small_means_has_a_size_of_its_own_in_a_summary_table():
    """Its schema states none: a unit that is fair for others would be far above its values."""
    rng = np.random.default_rng(1)
    summary = microaggregate(
        Table.from_columns({"share": rng.uniform(1e-4, 2e-4, 90), "age": rng.uniform(20, 90, 90)})
    )
    assert stated_sizes(summary)["share"] == pytest.approx(1e-6)
    bounds = FixedPointRange(summary)
    for unit, refused in ((2.0**-13, False), (1.0, False), (2.0**17, True)):
        ask = AskColumns(("share",), np.zeros(1), np.full(1, unit), (), (), False)
        if refused:
            with pytest.raises(QueryRefusedError, match="the unit of column share is far above"):
                bounds(Part("total", ask, None, 0))
        else:
            bounds(Part("total", ask, None, 0))
    none = microaggregate(Table.from_columns({"share": np.zeros(90), "age": rng.uniform(20, 90, 90)}))
    assert stated_sizes(none)["share"] == 0.0  # all its values are 0, and any unit will do


def test_a_reply_that_cannot_be_added_is_in_no_sum():
    wire = Wire(ROWS)
    with pytest.raises(
        TooFewAnswersError, match=r"0 of 4 sites.*a secure sum of replies that cannot be summed"
    ):
        run_protocol(total(wire.sites, AskLocalMeans(2)), secure(wire), run="r")


def test_parts_of_one_sum_are_over_the_same_sites():
    three, two = (partial_sum([[Moments(np.ones(1), np.ones(2), np.ones(2))] * n]) for n in (3, 2))
    assert as_words([three, three])[1].shape[0] == 2
    with pytest.raises(QueryRefusedError, match="different sites answered"):
        as_words([three, two])


# ---------------------------------------------------------------- what must not be given twice


def test_other_numbers_do_not_leave_under_a_mask_that_was_used():
    """The rows changed while the site was down: the difference of both would be the rows' own."""
    ring = Ring(4)
    ring.agree_on_keys(ring.request_id())
    inputs = {name: Vector(np.array([1.0, 2.0])) for name in ring.names}
    ring.sum(inputs, ring.terms(ring.request_id()))
    ask = ring.asks[1]["s000"]
    ring.restart("s000")
    member = ring.members["s000"]
    with pytest.raises(QueryRefusedError, match="a second masking of the same sum"):
        member.masked(ring.request_id(), ask, ring.parts, [Vector(np.array([1.0, 3.0]))])
    member.masked(ring.request_id(), ask, ring.parts, [Vector(np.array([1.0, 2.0]))])


def test_noise_is_shared_in_the_sum_only_and_whole_where_a_reply_is_seen(federation):
    """A single reply that travels with a sum has no other sites to add their part of its noise."""
    sites = federation(ROWS, DP)
    ask = AskNoisyMoments(0.01, np.full(2, 9.0))
    summed, single = run_protocol(together([total(sites.sites, ask), each(sites.sites, ask)]), sites, run="r")
    assert summed.noise[0] == pytest.approx(4 / 2)  # three honest sites of four, of which one may drop out
    assert {name: reply.noise[0] for name, reply in single.items()} == dict.fromkeys(ROWS, 1.0)


def test_a_round_whose_first_stage_was_lost_begins_again_with_the_same_participants():
    lost = {"AskShares"}
    wire = Wire(ROWS, lambda stage, site: stage in lost or (site == "s3" and stage == "AskKeys" and not lost))
    federation = secure(wire)
    with pytest.raises(TooFewAnswersError, match="secure sum, shares: 0 of 4"):
        run_protocol(total(wire.sites, AskMoments()), federation, run="r")
    lost.clear()
    assert run_protocol(total(wire.sites, AskMoments()), federation, run="r").n == 150
    sums = federation._secure_sums
    assert sums.participants.sites == wire.sites  # who is late at the second time stays on it
    assert set(sums.out) == {"s3"}


def test_a_protocol_without_a_run_keeps_its_keys_to_its_end():
    wire = Wire(ROWS)

    def two(sites):
        first = yield from total(sites, AskMoments())
        return (yield from total(sites, AskClusterSums(first.mean[None, None])))

    assert run_protocol(two(wire.sites), secure(wire)).mass.sum() == 200
    assert sum(stage == "AskKeys" for stage, *_ in wire.seen) == len(ROWS)


def test_a_sum_of_different_questions_is_refused_before_anything_is_asked():
    wire = Wire(ROWS)
    with pytest.raises(InputError, match="a secure sum needs the same question for every site"):
        run_protocol(total(wire.sites, lambda site: AskMoments()), secure(wire), run="r")
    assert {stage for stage, *_ in wire.seen} <= {"AskKeys"}


# ---------------------------------------------------------------- many runs


def test_a_member_in_memory_forgets_the_oldest_of_many_runs_and_says_so():
    ring = Ring(4)
    ring.agree_on_keys(ring.request_id())
    inputs = {name: Vector(np.ones(1)) for name in ring.names}
    for other in range(64):
        ring.members["s000"].keys(RequestId(f"other {other}", 0, 0, 0), AskKeys("e"))
    with pytest.raises(TooFewAnswersError, match=r"s000 \(this site has no key for this run and epoch\)"):
        ring.sum(inputs, ring.terms(ring.request_id()), silent=lambda stage, site: site == "s001")


def test_a_ledger_that_has_let_go_of_old_runs_is_whole(tmp_path):
    site = open_site("a", X, parse(SUMS), tmp_path)
    for number in range(66):
        request = Request(RequestId(f"run {number}", 0, 0, 0), (Part(STAGE, AskKeys("e"), None, 0),))
        assert not isinstance(site.answer(request).replies[0], Refusal)
    site.close()
    open_site("a", None, parse(SUMS), tmp_path).close()  # the chain tells of the same runs as the tables
    ledger = Ledger(tmp_path / "ledger.sqlite", "a")
    assert ledger._db.execute("SELECT COUNT(*) FROM sums").fetchone() == (64,)
    ledger.close()


# ---------------------------------------------------------------- numbers and keys


@pytest.mark.parametrize(
    ("steps", "whole"),
    [(0.49, 0), (0.5, 1), (1.25, 1), (1.75, 2), (-0.25, 0), (-0.75, -1), (2.0**-40, 0), (3 - 2.0**-40, 3)],
)
def test_the_sum_of_a_relay_is_rounded_to_the_nearest_step(steps, whole):
    words = words_of(exact_sum(np.array([[steps * 2.0**-64]])))
    low, high = (int(word) for word in words[:, 0])
    assert (high << 64 | low) == whole % 2**128


def test_an_identity_has_a_secret_of_one_length():
    for wrong in (b"", bytes(31), bytes(33)):
        with pytest.raises(InputError, match=f"a secret of 32 bytes, got {len(wrong)}"):
            Identity(wrong)
    assert replace(Identity(bytes(32))).public == Identity(bytes(32)).public
