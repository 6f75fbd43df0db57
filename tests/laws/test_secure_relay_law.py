"""Trees of secure sums: the bits of flat ones and of exact sums, at a cost a site that does not grow."""

import numpy as np
import pytest
from benchmarks.bench_secure_relays import measured
from tests.amounts import amounts

from helpers import ALGORITHMS, EXACT, bits, blobs, split
from unpooled.algorithms import Fuzzy, Lloyd
from unpooled.federation import LocalFederation, Simulation
from unpooled.federation.relay.relay import Relay
from unpooled.federation.relay.relay_policy import RelayRules
from unpooled.privacy import SecureSums
from unpooled.privacy.secure_sum.fixed_point import decode, encode, exact_of, words_of
from unpooled.privacy.secure_sum.site_mask import site_masks
from unpooled.protocol import run
from unpooled.protocol.algorithm import Ask, total
from unpooled.protocol.exchange import RequestId, run_protocol
from unpooled.protocol.questions.cluster_sums import AskClusterSums
from unpooled.site import Site

ANY = RelayRules(exact=True, min_sites=1, quorum=1.0)


@pytest.fixture(params=amounts(1, 40))
def trees(request):
    return request.param


def masked(name, X):
    """A site that takes part in secure sums."""
    return Site(name, X, mask=site_masks((name, "x", "y"), min_sites=3, required=False)[name])


def cell(name, rows, rng, depth):
    """A relay: it sums its sites and relays securely, or reads the answers of its members."""
    names = [sorted(rows)[i] for i in rng.permutation(len(rows))]
    if depth <= 1 or len(names) < 5:
        if len(names) >= 3 and rng.random() < 0.7:
            return Relay(name, LocalFederation.from_rows(rows, secure=True), ANY)
        return Relay(name, [Site(s, rows[s]) for s in names], ANY)
    return Relay(name, members(name, rows, names, rng, depth - 1), ANY, secure=SecureSums())


def members(name, rows, names, rng, depth):
    """Three members or more, of any sizes; one of a single site may be the site itself."""
    cuts = np.sort(rng.choice(np.arange(1, len(names)), rng.integers(2, 4), replace=False))
    found = []
    for i, part in enumerate(np.split(np.array(names), cuts)):
        own = {str(s): rows[str(s)] for s in part}
        if len(own) == 1 and rng.random() < 0.5:
            found += [masked(s, X) for s, X in own.items()]
        else:
            found.append(cell(f"{name}-{i}", own, rng, depth))
    return found


def country(rows, seed, depth):
    rng = np.random.default_rng(seed)
    return LocalFederation(members("land", rows, sorted(rows), rng, depth), secure=SecureSums())


METHODS = ("lloyd", "dwf", "ewf", "mini-batch", "fuzzy", "scaled-lloyd")


@pytest.mark.parametrize("name", METHODS)
def test_law_any_tree_of_secure_sums_has_the_bits_of_the_flat_one(name, trees):
    for seed in range(trees):
        rows = split(blobs(seed, n=90, spread=2.0)[0], 9, seed)
        algorithm = ALGORITHMS[name](max_rounds=1)
        flat = run(algorithm, LocalFederation.from_rows(rows, secure=True), seed=seed).state
        tree = run(algorithm, country(rows, seed, 1 + (seed + METHODS.index(name)) % 4), seed=seed).state
        assert bits(tree) == bits(flat)


@pytest.mark.parametrize("algorithm", [Lloyd(k=3, n_starts=2, max_rounds=2), Fuzzy(k=2, max_rounds=2)])
def test_law_secure_trees_and_exact_sums_agree_to_the_bit_where_numbers_are_steps(algorithm, trees):
    """Any number from 2^-12 on is a whole number of steps of 2^-64; fuzzy sums have smaller ones."""
    for seed in range(trees):
        rows = split(blobs(seed, n=60, spread=2.0)[0], 7, seed)
        exact = run(algorithm, Simulation.from_rows(rows, exact_sums=True), seed=seed).state
        tree = run(algorithm, country(rows, seed, 2), seed=seed).state
        if isinstance(algorithm, Lloyd):
            assert bits(tree) == bits(exact)
        assert np.allclose(tree.centers, exact.centers, rtol=1e-12, atol=1e-12)


def test_secure_cells_below_a_country_that_reads_their_sums_have_the_same_bits():
    rows = split(blobs(1, n=60)[0], 6, 1)
    names = sorted(rows)
    relays = [
        Relay(r, LocalFederation.from_rows({s: rows[s] for s in some}, secure=True), EXACT)
        for r, some in (("north", names[:3]), ("south", names[3:]))
    ]
    algorithm = Lloyd(k=3, max_rounds=3)
    tree = run(algorithm, LocalFederation(relays), seed=1)
    assert bits(tree.state) == bits(
        run(algorithm, LocalFederation.from_rows(rows, secure=True), seed=1).state
    )


def test_law_words_and_exact_sums_are_the_same_numbers():
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**64, size=(2, 5000), dtype=np.uint64)
    assert np.array_equal(words_of(exact_of(words)), words)
    assert np.array_equal(exact_of(words).rounded(), decode(words))
    values = rng.normal(size=20000) * 10.0 ** rng.integers(-60, 18, size=20000)
    assert np.array_equal(words_of(exact_of(encode(values))), encode(values))


def test_law_the_cost_of_a_site_does_not_depend_on_the_number_of_sites():
    few, some = measured(10, flat=False, sums=1)
    many, whole = measured(40, flat=False, sums=1)
    assert (some, whole) == (40.0, 160.0)
    assert many == few
    flat, _ = measured(20, flat=True, sums=1)
    assert flat["mask"] == 2 * few["mask"]  # and flat it does


def test_the_number_of_sites_behind_a_sum_is_known_and_nothing_else_of_a_relay():
    rows = split(blobs(1, n=60)[0], 9, 1)
    federation = country(rows, 3, 2)
    (result,) = federation.ask(*_asked(federation.sites, AskClusterSums(np.zeros((1, 1, 2)))))
    assert result.partial_sum().sites == 9
    assert len(result.sites) < 9
    assert run_protocol(total(federation.sites, AskClusterSums(np.zeros((1, 1, 2)))), federation).mass == [
        [60]
    ]


def _asked(sites, question):

    return RequestId("r", 0, 0, 0), (Ask("total", sites, question),)
