"""Raw rows in secure sums: the equations that they open are counted in the ledger, and limited."""

from contextlib import closing

import numpy as np
import pytest

from attacks.stages import AUTHORITY, SlowCoordinator, request_id
from kills import Hospital
from unpooled import FederatedKMeans, Lloyd, LocalFederation, SecureSums, run
from unpooled.data import Number, Preparation, Table
from unpooled.data.missing_values import PreparationWithMissing
from unpooled.data.schema import AskColumns
from unpooled.data.transforms import Affine
from unpooled.errors import PolicyError, TooFewAnswersError
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.protocol.exchange import Part
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskDrawnSums, AskMoments, AskScatter
from unpooled.protocol.questions.description import AskBorders, AskCovariance, AskCrossing, AskProfile
from unpooled.protocol.questions.fuzzy_sums import AskFuzzySums
from unpooled.protocol.questions.half_sums import AskHalfSums
from unpooled.protocol.questions.sums_with_missing import AskObservedSums
from unpooled.site.audit.posterior import determined
from unpooled.site.equation_budget import opened_equations
from unpooled.site.ledger import Ledger
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

RULES = 'format = 1\n[protect]\nmode = "raw"\n[aggregation]\nsecure = "required"\n'
NAMES = ("s0", "s1", "s2")


def centers(k: int, seed: int = 0, sets: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(sets, k, 2))


def rows_of(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(n, 2)) for name in NAMES}


def hospitals(folder, rows, rules: str = RULES, authority=AUTHORITY) -> dict[str, Hospital]:
    return {
        name: Hospital(name, X, rules, folder / name, authority=authority.public) for name, X in rows.items()
    }


def opened(folder) -> int:
    with closing(Ledger.open_read_only(folder / "ledger.sqlite")) as ledger:
        return ledger.equations()


def ask(sites, question, run_name: str, transform=None, authority=AUTHORITY):
    """One secure sum in a run of its own: the sum, or the sites' reasons."""
    coordinator = SlowCoordinator(sites, authority)
    coordinator.begin(request_id(0, run_name), question, transform, epoch=run_name)
    found = coordinator.rest()
    return coordinator.refused if found is None else found


# ---------------------------------------------------------------- tiny cases by hand


def test_sixty_rows_allow_three_equations(tmp_path):
    """5% of 60 rows: the sum over all rows, and two more."""
    sites = hospitals(tmp_path, rows_of(60))
    assert ask(sites, AskClusterSums(centers(3)), "first").mass.sum() == 180  # 1 + 2
    assert [opened(tmp_path / name) for name in NAMES] == [2, 2, 2]
    refused = ask(sites, AskClusterSums(centers(2, seed=1)), "second")
    assert set(refused) == set(NAMES)
    assert refused["s0"] == (
        "the equation budget does not allow it: secure sums over rows of this site may open 3 equations in "
        "all, the sum over all rows included. They opened 3 so far, and this query would open 1 more. Use "
        "summary tables with secure sums, or ask for fewer clusters in fewer rounds."
    )
    assert [opened(tmp_path / name) for name in NAMES] == [2, 2, 2]  # a refusal opens nothing


def test_one_query_that_is_too_large_is_refused_as_a_whole(tmp_path):
    sites = hospitals(tmp_path, rows_of(60))
    reason = ask(sites, AskClusterSums(centers(4)), "first")["s0"]
    assert "opened 0 so far, and this query would open 4 more" in reason
    assert ask(sites, AskClusterSums(centers(3)), "second").mass.sum() == 180


@pytest.mark.parametrize(
    ("question", "transform", "equations"),
    [
        (AskMoments(), None, 1),  # no more than the sum over all rows, but no query is free
        (AskCovariance(np.zeros(2)), None, 1),
        (AskClusterSums(centers(8)), None, 7),
        (AskClusterSums(centers(3, sets=5)), None, 10),
        (AskClusterSums(centers(8)), Affine(np.zeros(2), np.ones(2)), 7),
        (AskScatter(centers(4)[0]), None, 3),
        (AskProfile(centers(4)[0]), None, 3),
        (AskCrossing(centers(3)[0], centers(3, seed=1)), None, 9),
        (AskFuzzySums(centers(3), 2.0), None, 3),  # memberships to a power do not add up to rows
        (AskDrawnSums(centers(3), np.zeros(2), 0.5, 0.0, 1), None, 3),  # a sample is not all rows
        (AskHalfSums(centers(3, sets=2), 7), None, 6),  # a half is not all rows
        (AskObservedSums(centers(3)), None, 3),
        (AskColumns(("x",), np.zeros(1), np.ones(1), (), (), True), None, 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_equations_of_a_query_by_hand(question, transform, equations):
    assert opened_equations(Part("total", question, transform, 0)) == equations


def test_rows_left_out_because_of_missing_values_are_another_sum_of_all_rows():
    columns = (Number("x", 0.0, 0.0, 1.0), Number("y", 0.0, 0.0, 1.0))
    ask_three = AskClusterSums(centers(3))
    kinds = [
        Preparation(columns, drop=False),
        Preparation(columns, drop=True),
        PreparationWithMissing(columns, drop=False),
    ]
    assert [opened_equations(Part("total", ask_three, kind, 0)) for kind in kinds] == [2, 3, 3]
    assert opened_equations(Part("total", AskBorders(centers(3)[0]), None, 0)) > 3


def test_the_policy_sets_the_share(tmp_path):
    assert parse(RULES).aggregation.max_equations == 0.05
    for share in ("-0.1", "1.5"):
        with pytest.raises(PolicyError, match=r"max_equations must be from 0 to 1"):
            parse(f"{RULES}max_equations = {share}")
    none = hospitals(tmp_path / "none", rows_of(60), f"{RULES}max_equations = 0")
    assert "may open 0 equations" in ask(none, AskMoments(), "r")["s0"]
    every = hospitals(tmp_path / "every", rows_of(60), f"{RULES}max_equations = 1")
    assert ask(every, AskClusterSums(centers(50)), "r").mass.sum() == 180


def test_other_protections_have_no_equation_budget(tmp_path):
    rules = (
        "format = 1\n[protect]\nauto_approve = true\none_row_per_person = true\n"
        '[aggregation]\nsecure = "required"\n'
    )
    sites = hospitals(tmp_path, rows_of(60), rules)
    assert ask(sites, AskClusterSums(centers(8, sets=3)), "r").mass.sum() == 540
    assert opened(tmp_path / "s0") == 0


def test_an_ordinary_run_is_refused_before_any_cell_is_opened(tmp_path):
    rows = rows_of(200)
    sites = [open_site(name, X, parse(RULES), tmp_path / name) for name, X in rows.items()]
    with pytest.raises(TooFewAnswersError, match=r"the equation budget does not allow it"):
        FederatedKMeans(3, random_state=0, secure=True).fit_federation(
            LocalFederation(sites, secure=SecureSums())
        )
    assert opened(tmp_path / "s0") <= 9


def test_rounds_from_given_centres_fit_into_the_budget(tmp_path):
    """1,000 rows a site: 50 equations, of which six rounds with eight centres use 43."""
    rows = rows_of(1000)
    sites = [open_site(name, X, parse(RULES), tmp_path / name) for name, X in rows.items()]
    method = Lloyd(k=8, init=centers(8)[0], n_starts=1, max_rounds=6, tol=0.0)
    run(method, LocalFederation(sites, secure=SecureSums()), seed=0)
    assert 6 * 7 <= opened(tmp_path / "s0") <= 49


# ---------------------------------------------------------------- sequences, restarts, kills


@pytest.mark.parametrize("seed", range(4))
def test_no_sequence_of_queries_runs_restarts_and_federations_exceeds_the_budget(tmp_path, seed):
    """Every request is answered by a process of its own. Linear algebra gives no more rows than were paid."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(60, 200))
    rows, budget = rows_of(n, seed), int(0.05 * n)
    other = Identity.new()
    federations = [hospitals(tmp_path, rows), hospitals(tmp_path, rows, authority=other)]
    sets, paid, answered = [], 0, 0
    for number in range(12):
        k, count = int(rng.integers(1, 5)), int(rng.integers(1, 3))
        question = AskClusterSums(rng.normal(size=(count, k, 2)))
        which = int(rng.integers(2))
        found = ask(federations[which], question, f"r{number}", authority=(AUTHORITY, other)[which])
        if isinstance(found, dict):
            assert "equation budget" in found["s0"]
            continue
        answered += 1
        paid += max(count * (k - 1), 1)
        for one in question.centers:
            far = ((rows["s0"][:, None] - one[None]) ** 2).sum(axis=2)
            sets.append(far.argmin(axis=1))
        assert [opened(tmp_path / name) for name in NAMES] == [paid] * 3
        assert 1 + paid <= budget
        found = determined(sets, n)
        assert len(found.rows) <= found.equations <= 1 + paid
    assert answered


def test_a_kill_at_any_moment_neither_loses_nor_repeats_what_was_opened(tmp_path):
    """The state of the mask and the count are there together, or neither is: before the answer can leave."""
    rows = rows_of(400)  # 20 equations
    sites = hospitals(tmp_path, rows)
    steps = sites["s0"].steps()
    places = [("mask", "in"), ("ledger", "in"), ("ledger", "out"), ("transaction", "out"), ("log", "out")]
    for number, (name, way) in enumerate(places):
        coordinator = SlowCoordinator(sites)
        coordinator.begin(request_id(0, f"r{number}"), AskClusterSums(centers(4, seed=number)), epoch="e")
        assert coordinator.stage() is None  # shares
        before = opened(tmp_path / "s0")
        sites["s0"].deaths = [(steps.index(name), way)]
        assert coordinator.stage() is None  # masked
        sites["s0"].deaths = []
        assert coordinator.rest() is not None
        assert opened(tmp_path / "s0") - before == 3
    assert "the equation budget" in ask(sites, AskClusterSums(centers(6)), "last")["s0"]


def test_the_same_sum_under_new_keys_opens_nothing_new(tmp_path):
    sites = hospitals(tmp_path, rows_of(60))
    coordinator = SlowCoordinator(sites)
    for epoch in ("e", "f", "g"):  # a coordinator that was killed, twice
        coordinator.begin(request_id(), AskClusterSums(centers(3)), epoch=epoch)
        assert coordinator.rest().mass.sum() == 180
        assert opened(tmp_path / "s0") == 2


def test_a_table_with_named_columns_counts_as_well(tmp_path):
    table = {name: Table.from_columns({"x": X[:, 0], "y": X[:, 1]}) for name, X in rows_of(60).items()}
    sites = hospitals(tmp_path, table)
    columns = (Number("x", 0.0, 0.0, 1.0), Number("y", 0.0, 0.0, 1.0))
    found = ask(sites, AskClusterSums(centers(3)), "r", Preparation(columns, drop=False))
    assert (found.mass.sum(), opened(tmp_path / "s0")) == (180, 2)


# ---------------------------------------------------------------- the attacker with known assignments


def rank_attack(sets, n):
    """The rows whose unit vector is in the span of the indicator vectors, by the rank alone."""
    A = np.concatenate([(cells == c)[None].astype(float) for cells in sets for c in np.unique(cells)])
    rank = np.linalg.matrix_rank(A)
    return [i for i in range(n) if np.linalg.matrix_rank(np.vstack([A, np.eye(n)[i]])) == rank]


@pytest.mark.parametrize("seed", range(6))
def test_posterior_variance_finds_the_rows_in_the_span(seed):
    rng = np.random.default_rng(seed)
    n = 24
    X = rng.normal(size=(n, 2))
    sets = [
        ((X[:, None] - rng.normal(size=(k, 2))[None]) ** 2).sum(axis=2).argmin(axis=1)
        for k in rng.integers(2, 5, size=5)
    ]
    found = determined(sets, n)
    assert found.rows.tolist() == rank_attack(sets, n)
    total = np.concatenate([[(cells == c).astype(float) for c in np.unique(cells)] for cells in sets])
    assert found.equations == np.linalg.matrix_rank(total)
    for i, j in found.pairs:
        pair = np.zeros(n)
        pair[[i, j]] = 1.0
        assert np.linalg.matrix_rank(np.vstack([total, pair])) == found.equations


def test_posterior_variance_of_nothing():
    found = determined([], 5)
    assert (len(found.rows), len(found.pairs), found.equations) == (0, 0, 0)
    apart = determined([np.array([0, 0, -1, -1, 1])], 5)  # rows that a set leaves out
    assert (apart.rows.tolist(), apart.pairs.tolist(), apart.equations) == ([4], [[0, 1]], 2)
