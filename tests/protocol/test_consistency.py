"""Replies that contradict what a site stated are refused by name, and the run goes on without them."""

from dataclasses import replace

import numpy as np
import pytest

from helpers import ALGORITHMS, blobs, each_algorithm, inertia_of, split
from unpooled import FederatedKMeans
from unpooled.algorithms import Lloyd
from unpooled.data import Number, Preparation, Table
from unpooled.data.schema import AskColumns, AskSchema
from unpooled.errors import ReplyError
from unpooled.evaluation.influential_sites import influential_sites, moves_without
from unpooled.federation import LocalFederation
from unpooled.protocol import run
from unpooled.protocol.consistency import ConsistencyCheck
from unpooled.protocol.exchange import Part, Request, RequestId
from unpooled.protocol.questions.cluster_sums import (
    AskClusterSums,
    AskMoments,
    ClusterSums,
    LocalMeans,
    Moments,
)
from unpooled.protocol.questions.description import AskProfile
from unpooled.site import Guard, Site

CENTERS = np.array([[[0.0, 0.0], [8.0, 8.0]]])


class Liar(Site):
    """A site whose replies are changed on the way out."""

    def __init__(self, name, X, lie):
        super().__init__(name, X, guards=[Guard()])
        self.lie = lie

    def answer(self, request):
        response = super().answer(request)
        lies = (self.lie(reply, request.request_id.round) for reply in response.replies)
        return replace(response, replies=tuple(lies))


def heavy(reply, number):
    """A thousand million rows far away, in every sum over clusters."""
    if not isinstance(reply, ClusterSums):
        return reply
    mass = np.full_like(reply.mass, 1e9)
    return ClusterSums(1000.0 * mass[..., None] * np.ones_like(reply.sums), mass, 3e6 * mass)


def far(reply, number):
    """Its own rows, but a thousand away."""
    if not isinstance(reply, ClusterSums):
        return reply
    shift = reply.mass[..., None] * 1000.0
    return replace(reply, sums=reply.sums + shift, inertia=reply.inertia + 4e6 * reply.mass)


def too_sharp(reply, number):
    if not isinstance(reply, ClusterSums):
        return reply
    return replace(reply, sums=reply.sums + 5 * reply.mass[..., None], inertia=np.zeros_like(reply.inertia))


LIES = {
    "heavy": (heavy, "mass of .* where the site stated 100 rows"),
    "far": (far, "the mean of a cluster lies where no rows can be"),
    "too sharp": (too_sharp, "sums of squares below what its sums imply|not usable"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_refused_by_name_and_changes_nothing(name):
    lie, says = LIES[name]
    X, _ = blobs(1, n=400, k=3, spread=0.6)
    rows = {f"s{i}": X[i::4] for i in range(4)}
    sites = [Liar(s, x, lie) if s == "s3" else Site(s, x, guards=[Guard()]) for s, x in rows.items()]
    done = run(Lloyd(k=3), LocalFederation(sites), seed=0)
    reasons = {why for record in done.history for why in record.silent.values()}
    assert {site for record in done.history for site in record.silent} == {"s3"}
    assert any(__import__("re").search(says, why) for why in reasons), reasons
    honest = np.concatenate([rows[s] for s in ("s0", "s1", "s2")])
    best = FederatedKMeans(3, random_state=0).fit(honest).inertia_
    assert inertia_of(honest, done.state.centers) <= 1.01 * best


@each_algorithm
def test_no_honest_site_is_refused(name):
    """Every method, over random splits, weights and minima: nobody who tells the truth is called a liar."""
    for seed in range(2):
        rows = split(blobs(seed, n=150, spread=2.0)[0], 4, seed=seed, skewed=bool(seed))
        for minimum in (1, 5):
            sites = [Site(s, X, min_cluster_size=minimum, guards=[Guard()]) for s, X in rows.items()]
            algorithm = ALGORITHMS[name](min_cluster_size=minimum)
            done = run(algorithm, LocalFederation(sites), seed=seed, max_rounds=4)
            for record in done.history:
                assert not any("not usable" in why for why in record.silent.values()), record.silent


def test_a_transform_that_drops_rows_does_not_bind_other_transforms():
    """Moments of the complete rows, then a total over all rows: more rows, and no lie."""
    table = Table.from_columns({"x": np.arange(40.0), "y": np.where(np.arange(40) < 15, np.nan, 1.0)})
    whole = Preparation((Number("x", 0.0, 0.0, 1.0), Number("y", 0.0, 0.0, 1.0)), drop=True)
    asks = (
        (AskSchema(), None),
        (AskMoments(), whole),
        (AskColumns(("x",), np.zeros(1), np.ones(1), (), (), False), None),
    )
    held, site = ConsistencyCheck(), Site("a", table)
    for number, (question, transform) in enumerate(asks):
        request = Request(RequestId("r", 0, number, 0), (Part("each", question, transform, 0),))
        held.check("a", request, site.answer(request).replies)
    more = replace(request, parts=(Part("each", AskMoments(), whole, 0),))
    with pytest.raises(ReplyError, match="30 rows, where the site stated 25"):
        held.check("a", more, (Moments(np.array([30.0]), np.zeros(2), np.ones(2)),))


def test_sums_of_squares_are_held_to_sums():
    X = np.random.default_rng(0).normal(3, 1, (50, 2))
    for question in (AskMoments(), AskClusterSums(CENTERS), AskProfile(CENTERS[0])):
        reply = _answer(question, X)
        question.check_reply(reply)
        name = "inertia" if isinstance(reply, ClusterSums) else "squares"
        with pytest.raises(ReplyError, match="below what its sums imply"):
            question.check_reply(replace(reply, **{name: 0 * getattr(reply, name)}))


def _answer(question, X):
    return (
        Site("a", X).answer(Request(RequestId("r", 0, 0, 0), (Part("each", question, None, 0),))).replies[0]
    )


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6, 1e8])
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("d", [2, 30])
def test_rounding_is_not_a_contradiction(offset, single, d):
    X = np.random.default_rng(0).normal(offset, 1.0, (300, d)).astype(np.float32 if single else np.float64)
    rng = np.random.default_rng(1)
    for question in (
        AskMoments(),
        AskMoments(X.mean(axis=0).astype(float)),
        AskClusterSums(rng.normal(offset, 2.0, (3, 5, d))),
        AskProfile(rng.normal(offset, 2.0, (5, d))),
    ):
        question.check_reply(_answer(question, X))


def suspects(centers, sums):
    return influential_sites(sums, moves_without(centers, sums))


def test_a_site_that_alone_moves_a_centre_is_named():
    centers = np.array([[0.0, 0.0], [10.0, 0.0]])

    def sums(shift, n=10.0):
        mass = np.array([[n, n]])
        return ClusterSums(np.array([[[shift * n, 0.0], [0.0, 0.0]]]), mass, 100 * mass)

    even = {"a": sums(0.1), "b": sums(-0.1), "c": sums(0.0)}
    assert suspects(centers, even) == ()
    assert suspects(centers, {**even, "d": sums(8.0, 1e4)}) == ("d",)
    assert suspects(centers, {"a": sums(0.0), "d": sums(8.0, 1e4)}) == ()  # of two, who is to say
    moves = moves_without(centers, {"a": sums(0.1), "b": sums(-0.1)})
    np.testing.assert_allclose(moves, [[0.02, 0.0], [0.02, 0.0]])  # 0.1 of the 5 to the border


def test_a_cluster_of_its_own_does_not_make_a_site_suspect():
    centers = np.array([[0.0, 0.0], [10.0, 0.0]])
    alone = ClusterSums(np.zeros((1, 2, 2)), np.array([[0.0, 50.0]]), np.zeros((1, 2)))
    other = ClusterSums(np.zeros((1, 2, 2)), np.array([[50.0, 0.0]]), np.zeros((1, 2)))
    assert suspects(centers, {"a": alone, "b": other, "c": other}) == ()
    assert moves_without(centers, {"a": alone, "b": other, "c": other})[0].tolist() == [0.0, np.inf]


def test_what_states_nothing_is_not_held_to_anything():
    assert LocalMeans(np.zeros((0, 2)), np.zeros(0)).reported_totals(None) is None
    assert Moments(np.zeros(1), np.zeros(2), np.zeros(2)).reported_totals(AskMoments()) is None
