"""Federations of federations: the bits of a flat federation with ``exact_sums``, for any tree and method."""

import json

import numpy as np
import pandas
import pytest
from tests.amounts import amounts

from helpers import ALGORITHMS, EXACT, bits, blobs, each_algorithm, split
from unpooled import cluster
from unpooled.algorithms import Lloyd
from unpooled.app.job import Job
from unpooled.data import PreparationOptions, Table
from unpooled.errors import InputError, TooFewAnswersError
from unpooled.evaluation import Analysis
from unpooled.federation import LocalFederation, Simulation
from unpooled.federation.relay.relay import Relay
from unpooled.federation.relay.relay_policy import RelayRules
from unpooled.privacy.microaggregation import microaggregate
from unpooled.protocol import codec, run
from unpooled.protocol.exchange import Federation
from unpooled.site import Site

ANY = RelayRules(exact=True, min_sites=1, quorum=1.0)


@pytest.fixture(params=amounts(2, 40))
def trees(request):
    return request.param


def grown(rows, rng, depth, name="land"):
    """The members of a random tree over sites: relays of relays, over transports or fused, some empty."""
    names = sorted(rows)
    if depth == 0 or len(names) < 3:
        return [Site(s, rows[s]) for s in names]
    names = [names[i] for i in rng.permutation(len(names))]
    cuts = np.sort(rng.choice(np.arange(1, len(names)), rng.integers(1, min(4, len(names))), replace=False))
    members = []
    for i, part in enumerate(np.split(np.array(names), cuts)):
        below = {str(s): rows[str(s)] for s in part}
        if len(below) == 1 and rng.random() < 0.5:
            members += [Site(s, X) for s, X in below.items()]
        elif rng.random() < 0.3:
            members.append(Relay(f"{name}-{i}", Simulation.from_rows(below, exact_sums=True), ANY))
        else:
            members.append(Relay(f"{name}-{i}", grown(below, rng, depth - 1, f"{name}-{i}"), ANY))
    return members


def deep(members):
    return max((1 + deep(m.downstream._transport._members.values()) if below(m) else 1) for m in members)


def below(member):
    return isinstance(member, Relay) and hasattr(member.downstream, "_transport")


class Verbs(Federation):
    """A federation that notes the questions that are asked of single sites."""

    def __init__(self, federation):
        self._federation, self.sites, self.single_replies = federation, federation.sites, []

    def ask(self, request_id, asks):
        self.single_replies += [ask.title for ask in asks if ask.verb == "each"]
        return self._federation.ask(request_id, asks)


def figures(done):
    return bits(tuple((r.inertia, r.movement, r.silent) for r in done.history))


def small(seed):
    rows = split(blobs(seed, n=90, spread=2.0)[0], 8, seed)
    return {**rows, "empty": np.zeros((0, 2))}


@each_algorithm
def test_law_every_method_of_totals_ends_with_the_bits_of_the_flat_federation(name, trees):
    """The others are refused, by the name of their question."""
    for seed in range(trees):
        rng, rows = np.random.default_rng(seed), small(seed)
        flat = Verbs(Simulation.from_rows(rows, exact_sums=True))
        members = grown(rows, rng, 1 + seed % 4)
        while len(members) < 3:  # some methods ask for three
            members = grown(rows, rng, 1 + seed % 4)
        algorithm = ALGORITHMS[name](max_rounds=4)
        straight = run(algorithm, flat, seed=seed)
        if flat.single_replies:
            with pytest.raises(
                TooFewAnswersError,
                match=rf"{flat.single_replies[0]} asks for replies of single sites, and a relay",
            ):
                run(algorithm, LocalFederation(members), seed=seed, quorum=1.0)
            return
        tree = run(algorithm, LocalFederation(members), seed=seed)
        assert bits(tree.state) == bits(straight.state)
        assert figures(tree) == figures(straight)


def test_the_law_is_about_methods_and_trees_of_several_levels():
    rng = np.random.default_rng(0)
    depths = {deep(grown(small(seed), rng, 3)) for seed in range(12)}
    assert {2, 3} <= depths
    methods = [name for name in ALGORITHMS if not shows_sites(name)]
    assert {"lloyd", "dwf", "ewf", "mini-batch", "fuzzy", "scaled-lloyd", "best-of-dwf"} <= set(methods)
    assert {"fkm", "k-fed", "dual", "robust"} <= set(ALGORITHMS) - set(methods)


def shows_sites(name):
    rows = small(0)
    flat = Verbs(Simulation.from_rows(rows))
    run(ALGORITHMS[name](max_rounds=1), flat)
    return bool(flat.single_replies)


@pytest.mark.parametrize("seed", range(12))
def test_law_without_exact_sums_trees_and_flat_agree_to_rounding(seed):
    rows = small(seed)
    start = blobs(seed, n=3, k=3)[0]
    algorithm = Lloyd(k=3, init=start, max_rounds=5, tol=0.0)
    flat = run(algorithm, Simulation.from_rows(rows), seed=seed).state
    tree = run(algorithm, LocalFederation(grown(rows, np.random.default_rng(seed), 3)), seed=seed).state
    assert np.allclose(tree.centers, flat.centers, rtol=1e-12, atol=1e-12)
    assert tree.inertia == pytest.approx(flat.inertia, rel=1e-12)


@pytest.mark.parametrize("name", ["lloyd", "dwf-slow", "fuzzy", "mini-batch-small", "lloyd-one-start"])
def test_exact_sums_are_the_same_fused_or_site_by_site_in_any_order(name):
    """Also with names that sort otherwise: then every sum is taken in another order."""
    rows = small(5)
    algorithm = ALGORITHMS[name](max_rounds=3).build()
    fused = run(algorithm, Simulation.from_rows(rows, exact_sums=True, n_threads=2), seed=1)
    alone = run(algorithm, LocalFederation.from_rows(rows, exact_sums=True), seed=1)
    assert bits(fused.state) == bits(alone.state)
    if "mini-batch" not in name:  # whose sites draw by their names
        renamed = {f"{9 - i}": rows[s] for i, s in enumerate(sorted(rows))}
        other = run(algorithm, Simulation.from_rows(renamed, exact_sums=True), seed=1)
        assert bits(other.state) == bits(fused.state)


def test_folded_sums_do_depend_on_the_order():
    """Else the test above would show nothing."""
    found = []
    for seed in range(20):
        rows = small(seed)
        renamed = {f"{9 - i}": rows[s] for i, s in enumerate(sorted(rows))}
        algorithm = Lloyd(k=3, init=blobs(seed, n=3)[0], max_rounds=2, tol=0.0)
        found.append(
            bits(run(algorithm, Simulation.from_rows(rows)).state)
            == bits(run(algorithm, Simulation.from_rows(renamed)).state)
        )
    assert not all(found)


def tables(seed):
    """Tables of numbers and categories with missing cells; a category, and a column, at some only."""
    rng, found = np.random.default_rng(seed), {}
    for i in range(6):
        n = 30 + 5 * i
        kind = rng.integers(2, size=n)
        age = 40 + 20 * kind + rng.normal(size=n)
        age[rng.random(n) < 0.02] = np.nan
        categories = np.array(["a", "b", "c" if i == 3 else "a"])
        found[f"h{i}"] = Table.from_columns(
            {
                "age": age,
                "dose": 1000 * kind + 50 * rng.normal(size=n),
                "ward": categories[rng.integers(3, size=n)],
                "empty": np.full(n, np.nan) if i < 4 else rng.normal(size=n),
            }
        )
    return found


@pytest.mark.parametrize("summarized", [False, True])
def test_law_a_whole_analysis_of_tables_has_the_bits_of_the_flat_one(summarized):
    held = {s: microaggregate(t) if summarized else t for s, t in tables(1).items()}
    analysis = Analysis(
        PreparationOptions(), (Lloyd(k=2, n_starts=2), Lloyd(k=3, n_starts=2)), aggregate_only=True
    )
    flat = run(analysis, Simulation.from_rows(held, exact_sums=True), seed=2).state
    relay = Relay("north", [Site(s, held[s]) for s in ("h0", "h1", "h2")], EXACT)
    deeper = Relay("west", [Site(s, held[s]) for s in ("h3", "h4")], RelayRules(exact=True, min_sites=2))
    south = Relay("south", [deeper, Site("h5", held["h5"])], EXACT)
    tree = run(analysis, LocalFederation([relay, south]), seed=2).state
    assert bits(tree.centers) == bits(flat.centers)
    assert bits(tree.agreement.preparation) == bits(flat.agreement.preparation)
    assert tree.agreement.rows.tolist() == [105.0, 150.0]
    assert tree.agreement.missing.sum(axis=0).tolist() == flat.agreement.missing.sum(axis=0).tolist()
    assert {mode for mode, _ in tree.agreement.protection} == {"summary" if summarized else "none"}
    assert codec.encode(tree.agreement.mean) == codec.encode(flat.agreement.mean)


@pytest.mark.parametrize("aggregate_only", [False, True])
def test_a_whole_analysis_of_tables_over_relays_that_summarize(aggregate_only):
    """Numbers, categories, missing cells, a column at some only: the answers are those of a site."""
    held = {s: microaggregate(t) for s, t in tables(1).items()}
    analysis = Analysis(PreparationOptions(), (Lloyd(k=2, n_starts=2),), aggregate_only=aggregate_only)
    flat = run(analysis, Simulation.from_rows(held), seed=2).state
    relay = Relay("north", [Site(s, held[s]) for s in ("h0", "h1", "h2")])
    south = Relay("south", [Site(s, held[s]) for s in ("h3", "h4", "h5")])
    tree = run(analysis, LocalFederation([relay, south]), seed=2).state
    assert tree.agreement.rows.tolist() == [105.0, 150.0]
    assert tree.agreement.protection[0][0] == "summary"
    ours, theirs = (one.agreement.preparation for one in (tree, flat))
    assert ours.outputs == theirs.outputs
    ends = [[one.centers[:, :2].min(axis=0), one.centers[:, :2].max(axis=0)] for one in (tree, flat)]
    assert np.allclose(*ends, atol=0.1)  # age and dose of the two kinds of patients


def test_a_job_with_exact_sums_has_the_same_bits_whatever_its_sites_are_called():
    frames = {s: {n: t.values[:, i] for i, n in enumerate(("age", "dose"))} for s, t in tables(3).items()}
    frames = {s: pandas.DataFrame(columns) for s, columns in frames.items()}
    renamed = {f"z{9 - i}": frames[s] for i, s in enumerate(sorted(frames))}
    found, other = (cluster(given, 2, exact_sums=True, random_state=1) for given in (frames, renamed))
    assert bits(found.model.centers) == bits(other.model.centers)
    job = found.job_result.job
    assert job.exact_sums
    assert Job.from_json(json.loads(json.dumps(job.to_json()))).exact_sums
    assert "--exact-sums" in job.command()
    with pytest.raises(InputError, match="exact_sums=True and secure=True exclude each other"):
        cluster(frames, 2, exact_sums=True, secure=True)
