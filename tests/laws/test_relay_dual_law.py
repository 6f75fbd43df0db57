"""The dual over trees: bounds hold in any tree, and a tree of single sites is the flat federation."""

import numpy as np
import pytest
from tests.amounts import amounts

from helpers import EXACT, Declines, bits
from unpooled import exact_kmeans
from unpooled.algorithms import Dual
from unpooled.errors import InputError, TooFewAnswersError
from unpooled.federation import LocalFederation, Simulation
from unpooled.federation.relay.relay import Relay
from unpooled.federation.relay.relay_policy import DUAL_QUESTIONS, RelayRules
from unpooled.optimality.questions import AskNode
from unpooled.protocol import codec, run
from unpooled.protocol.exchange import Part, Request, RequestId, Response
from unpooled.site import Site

RULES = RelayRules(exact=True, min_sites=1, forwarded=DUAL_QUESTIONS)


@pytest.fixture(params=amounts(6, 40))
def problems(request):
    return request.param


def problem(seed, sites, k):
    """Rows of sites about common places, a row or some of each; and a box that encloses them."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(-1, 1, (k, 2))
    rows = {
        f"s{i}": np.concatenate([c + 0.4 * rng.normal(size=(rng.integers(1, 4), 2)) for c in places])
        for i in range(sites)
    }
    X = np.concatenate(list(rows.values()))
    return rows, np.array([X.min(axis=0) - 0.5, X.max(axis=0) + 0.5]), exact_kmeans(X, k)


def grown(rows, rng, depth, name="r"):
    """The members of a random tree."""
    names = sorted(rows)
    if depth == 0 or len(names) < 2:
        return [Site(s, rows[s]) for s in names]
    cut = int(rng.integers(1, len(names)))
    parts = [{s: rows[s] for s in part} for part in (names[:cut], names[cut:])]
    return [Relay(f"{name}{i}", grown(p, rng, depth - 1, f"{name}{i}"), RULES) for i, p in enumerate(parts)]


def in_cells(centers, references):
    """True if there is one of the centres in the cell of every reference."""
    squares = ((centers[:, None] - references) ** 2).sum(axis=2)
    return len(set(squares.argmin(axis=1))) == len(references)


@pytest.mark.parametrize("symmetry", ["pair", "cell"])
def test_law_bounds_hold_in_any_tree(symmetry, problems):
    gaps = []
    for seed in range(problems):
        rows, box, best = problem(seed, sites=3 + seed % 3, k=2 + seed % 2)
        assert best.proved
        rng = np.random.default_rng(seed)
        algorithm = Dual(k=len(best.centers), box=box, symmetry=symmetry, max_rounds=2, n_starts=2)
        state = run(algorithm, LocalFederation(grown(rows, rng, 1 + seed % 4)), seed=seed).state
        if state.bound_condition == "unconditional" or in_cells(best.centers, state.references):
            assert state.lower_bound <= best.inertia * (1 + 1e-9)
            gaps.append(1 - state.lower_bound / best.inertia)
        assert state.upper_bound >= best.inertia * (1 - 1e-9)
    assert len(gaps) > problems / 2
    assert np.median(gaps) < 0.6  # and they are bounds that say something


@pytest.mark.parametrize("update", ["bundle", "sg", "btm", "qnda"])
def test_a_tree_of_single_sites_is_the_papers_line(update):
    rows, box, _ = problem(1, sites=4, k=2)
    algorithm = Dual(k=2, box=box, update=update, max_rounds=3, n_starts=2)
    flat = run(algorithm, Simulation.from_rows(rows, exact_sums=True), seed=0).state
    line = run(
        algorithm, LocalFederation([Relay(s, [Site(s, X)], RULES) for s, X in rows.items()]), seed=0
    ).state
    assert bits(line) == bits(flat)


def test_a_relay_comes_near_the_flat_bound():
    rows, box, best = problem(3, sites=4, k=2)
    names = sorted(rows)
    parts = {"a": names[:2], "b": names[2:]}
    relays = [Relay(r, [Site(s, rows[s]) for s in some], RULES) for r, some in parts.items()]
    found = [
        run(Dual(k=2, box=box, max_rounds=6), federation, seed=0).state.lower_bound / best.inertia
        for federation in (Simulation.from_rows(rows), LocalFederation(relays))
    ]
    assert found[1] > 0.9 * found[0]


def test_a_member_that_is_silent_weakens_the_bound_of_its_relay_and_leaves_it_true():
    rows, box, best = problem(2, sites=4, k=2)
    members = [Site(s, X, guards=[Declines()] if s == "s0" else []) for s, X in rows.items()]
    relays = [Relay("a", members[:3], RULES), Relay("b", members[3:], RULES)]
    state = run(Dual(k=2, box=box, max_rounds=2), LocalFederation(relays), seed=0).state
    assert 0 < state.lower_bound <= best.inertia


def node(relay, prices, references):
    k = len(prices)
    low, high = np.full((k, 2), -5.0), np.full((k, 2), 5.0)
    question = AskNode(prices, low, high, "cell", references, 100_000)
    request = Request(RequestId("r", 0, 0, 0), (Part("each", question, None, 0),))
    (reply,) = codec.unwrap(relay.respond(codec.wrap(request)), expect=Response).replies
    return reply


def test_the_centroid_of_a_cluster_with_too_few_contributors_is_suppressed():
    places = np.array([[0.0, 0.0], [3.0, 0.0]])
    rows = {s: places[:1] + 0.1 * (1 + i) for i, s in enumerate("abc")}
    rows["a"] = np.concatenate([rows["a"], places[1:] - 0.1])
    rows["b"] = np.concatenate([rows["b"], places[1:] + 0.1])
    for least, seen in ((1, [1.0, 1.0]), (2, [1.0, 1.0]), (3, [0.0, 0.0])):
        rules = RelayRules(exact=True, min_sites=3, min_contributors=least, forwarded=DUAL_QUESTIONS)
        relay = Relay("r", [Site(s, X) for s, X in rows.items()], rules)
        reply = node(relay, np.zeros((2, 2)), places)
        assert reply.seen.tolist() == seen
        assert (reply.counts > 0).tolist() == [s > 0 for s in seen]
        assert reply.complete[0] == 1


def test_what_the_dual_cannot_ask_of_a_tree_is_refused_by_name():
    rows, box, _ = problem(1, sites=3, k=2)
    plain = Relay("r", [Site(s, X) for s, X in rows.items()], EXACT)
    with pytest.raises(TooFewAnswersError, match=r"AskNode asks for replies of single sites"):
        run(Dual(k=2, box=box), LocalFederation([plain]))
    passing = Relay("r", [Site(s, X) for s, X in rows.items()], RULES)
    with pytest.raises(TooFewAnswersError, match=r"AskRange asks for replies of single sites"):
        run(Dual(k=2), LocalFederation([passing]))
    with pytest.raises(InputError, match=r'references="first" are the centroids of r, which discloses none'):
        run(Dual(k=2, box=box, references="first"), LocalFederation([passing]))
    cell = Relay("r", LocalFederation.from_rows(rows, secure=True), RULES)
    with pytest.raises(
        TooFewAnswersError, match=r"AskNode needs the answers of single sites, and here sites sum"
    ):
        run(Dual(k=2, box=box), LocalFederation([cell]))
