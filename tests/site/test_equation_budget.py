"""Raw rows in secure sums: the equations that they open are counted in the ledger, and limited."""

from contextlib import closing

import numpy as np
import pytest

from attacks.stages import AUTHORITY, SlowCoordinator, request_id
from kills import Hospital
from studies import study_of
from unpooled import FederatedKMeans
from unpooled.algorithms import Lloyd
from unpooled.app.job import Job, RemoteRunOptions
from unpooled.app.propose_study import propose_study
from unpooled.data import Number, Preparation, Table
from unpooled.data.missing_values import PreparationWithMissing
from unpooled.data.schema import AskColumns
from unpooled.data.transforms import Affine, Category, Shaped
from unpooled.errors import InputError, LedgerError, PolicyError, TooFewAnswersError, TooFewPeopleError
from unpooled.federation import LocalFederation, Simulation
from unpooled.privacy import SecureSums
from unpooled.privacy.microaggregation import SummarySettings, microaggregate
from unpooled.privacy.microaggregation.summarize import make_first_summary
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.protocol import codec, run
from unpooled.protocol.algorithm import total
from unpooled.protocol.exchange import Part, Request, Response, run_protocol
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskDrawnSums, AskMoments, AskScatter
from unpooled.protocol.questions.description import AskBorders, AskCovariance, AskCrossing, AskProfile
from unpooled.protocol.questions.exact_sums import AskExactSums
from unpooled.protocol.questions.fuzzy_sums import AskFuzzySums
from unpooled.protocol.questions.half_sums import AskHalfSums
from unpooled.protocol.questions.sums_with_missing import AskObservedSums
from unpooled.site.audit.posterior import determined
from unpooled.site.equation_budget import opened_equations
from unpooled.site.ledger import Ledger
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse
from unpooled.site.study_guard import StudyGuard
from unpooled.site.study_store import APPROVED, StudyFolder

RULES = 'format = 1\n[protect]\nmode = "raw"\n[aggregation]\n'  # every masked sum is over the rows
GROUPED = (  # a site that answers only in secure sums answers from groups of its rows, but for exact rounds
    'format = 1\n[protect]\nmode = "raw"\none_row_per_person = true\n[aggregation]\nsecure = "required"\n'
)
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
        (AskExactSums(centers(8)[0]), None, 7),
        (AskExactSums(centers(1)[0]), None, 1),
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
        "format = 1\n[protect]\nauto_approve = true\none_row_per_person = true\nno_sensitive_columns = true\n"
        '[aggregation]\nsecure = "required"\n'
    )
    sites = hospitals(tmp_path, rows_of(60), rules)
    assert ask(sites, AskClusterSums(centers(8, sets=3)), "r").mass.sum() == 540
    assert opened(tmp_path / "s0") == 0


def test_an_ordinary_run_on_rows_is_refused_before_any_cell_is_opened(tmp_path):
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


# ---------------------------------------------------------------- exact rounds after groups of rows


def row_sums(rows, points):
    """The counts and sums about the centres of all rows, in the clear."""
    X = np.concatenate(list(rows.values()))
    own = ((X[:, None] - points) ** 2).sum(axis=2).argmin(axis=1)
    return np.bincount(own, minlength=len(points)), [
        (X[own == j] - point).sum(axis=0) for j, point in enumerate(points)
    ]


def test_only_exact_rounds_read_the_rows_of_a_site_that_answers_only_in_secure_sums(tmp_path):
    """100 rows in groups of 5: 5% of 100 times 4/5 are four equations, one of them the sum over all rows."""
    rows = rows_of(100)
    sites, points = hospitals(tmp_path, rows, GROUPED), centers(3)[0]
    groups = {name: microaggregate(X, SummarySettings(min_group_size=5)) for name, X in rows.items()}
    want = run_protocol(
        total(NAMES, AskClusterSums(points[None])),
        Simulation.from_rows(
            {s: t.matrix() for s, t in groups.items()}, {s: t.people for s, t in groups.items()}
        ),
    )
    found = ask(sites, AskClusterSums(points[None]), "groups")
    np.testing.assert_allclose(found.sums, want.sums, atol=1e-9)
    assert opened(tmp_path / "s0") == 0
    exact = ask(sites, AskExactSums(points), "rows")
    counts, sums = row_sums(rows, points)
    assert exact.mass.tolist() == counts.tolist()
    np.testing.assert_allclose(exact.sums, sums, atol=1e-9)
    assert exact.exact.tolist() == [3.0]
    assert [opened(tmp_path / name) for name in NAMES] == [2, 2, 2]


def test_a_site_whose_budget_is_used_up_answers_an_exact_round_from_groups_and_says_so(tmp_path):
    rows = {"s0": rows_of(100)["s0"], **{name: rows_of(600)[name] for name in NAMES[1:]}}
    sites, points = hospitals(tmp_path, rows, GROUPED), centers(8)[0]
    found = ask(sites, AskExactSums(points), "r")
    assert found.exact.tolist() == [2.0]
    assert [opened(tmp_path / name) for name in NAMES] == [0, 7, 7]
    assert found.mass.sum() == 1300
    own = {name: X for name, X in rows.items() if name != "s0"}
    table = microaggregate(rows["s0"])
    nearest = ((table.matrix()[:, None] - points) ** 2).sum(axis=2).argmin(axis=1)
    of_groups = np.bincount(nearest, table.people, len(points))
    np.testing.assert_allclose(found.mass, row_sums(own, points)[0] + of_groups, atol=1e-9)


@pytest.mark.parametrize(
    ("n", "k", "allowed"), [(50, 2, True), (50, 3, False), (200, 8, True), (199, 8, False)]
)
def test_the_budget_of_small_sites_allows_few_clusters(tmp_path, n, k, allowed):
    """5% of 50 people times 4/5 are 2 equations, and of 200 people 8: the sum over all rows, and k - 1."""
    sites = hospitals(tmp_path, rows_of(n), GROUPED)
    assert ask(sites, AskExactSums(centers(k)[0]), "r").exact.tolist() == [3.0 if allowed else 0.0]


def test_exact_rounds_have_no_single_answers_and_inertia_travels_as_one_number(tmp_path):
    sites = hospitals(tmp_path, rows_of(600), GROUPED)
    points = centers(8)[0]
    found = ask(sites, AskExactSums(points), "r")
    assert {name: getattr(found, name).shape for name in ("mass", "inertia", "exact")} == {
        "mass": (8,),
        "inertia": (1,),
        "exact": (1,),
    }
    preferred = open_site("s0", rows_of(600)["s0"], parse(RULES))
    request = Request(request_id(), (Part("total", AskExactSums(points), None, 0),))
    (refused,) = codec.unwrap(preferred.respond(codec.wrap(request)), expect=Response).replies
    assert refused.reason == "AskExactSums is answered only in secure sums"


def test_rows_are_not_read_where_a_person_has_several_or_the_policy_suppresses_values(tmp_path):
    rng = np.random.default_rng(0)
    table = {
        name: Table.from_columns({"who": np.repeat(np.arange(100.0), 2), "x": rng.normal(size=200)})
        for name in NAMES
    }
    sites = hospitals(
        tmp_path,
        table,
        GROUPED.replace("one_row_per_person = true", 'person = "who"'),
    )
    prepared = Preparation((Number("x", 0.0, 0.0, 1.0),), drop=False)
    found = ask(sites, AskExactSums(np.array([[-1.0], [1.0]])), "r", prepared)
    assert (found.exact.tolist(), found.mass.sum(), opened(tmp_path / "s0")) == ([0.0], 300, 0)


def test_an_exact_round_reads_only_what_the_groups_disclose(tmp_path):
    """One equation about all categories would list the rare ones; ranks would be other functions of rows."""
    rows = {
        name: Table.from_columns(
            {
                "x": X[:, 0],
                "name": [f"{name} {i}" if i % 40 == 0 else "aa" if i % 2 else "b" for i in range(200)],
            }
        )
        for name, X in rows_of(200).items()
    }
    sites = hospitals(tmp_path, rows, GROUPED)
    names = tuple(sorted({name for table in rows.values() for name in table.categories["name"]}))
    listed = Preparation((Category("name", names, False, 0, 1.0),), drop=False)
    found = ask(sites, AskExactSums(np.zeros((1, len(names)))), "names", listed)
    assert found.exact.tolist() == [3.0]
    assert dict(zip(names, found.sums[0].round(6), strict=True)) == dict.fromkeys(names, 0.0) | {
        "aa": 300.0,
        "b": 285.0,
    }
    ranks = Preparation((Shaped("x", 0.0, 0.0, 1.0, "rank", (-9.0, 2.0, 9.0)),), drop=False)
    assert "rank(x)" in ask(sites, AskExactSums(np.zeros((1, 1))), "ranks", ranks)["s0"]
    assert [opened(tmp_path / name) for name in NAMES] == [1, 1, 1]


def test_what_groups_of_rows_need(tmp_path):
    rows = rows_of(60)["s0"]
    with pytest.raises(InputError, match="nobody declared which rows belong to one person"):
        open_site("s0", rows, parse(GROUPED.replace("one_row_per_person = true\n", "")))
    with pytest.raises(InputError, match="weights of rows do not go with secure sums in raw mode"):
        open_site("s0", rows, parse(GROUPED), weights=np.ones(60))
    with pytest.raises(TooFewPeopleError):
        open_site("s0", rows[:4], parse(GROUPED))


CHANGES = {
    "one row more": lambda X: np.vstack([X, [0.5, 0.5]]),
    "another group size": lambda X: X,
    "another scale": lambda X: 2 * X,
    "another order": lambda X: X[::-1].copy(),
    "one column": lambda X: X[:, :1].copy(),
    "another name": lambda X: Table.from_columns({"age": X[:, 0], "bmi": X[:, 1]}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_groups_of_other_rows_are_not_answered_from(tmp_path, change):
    """Two sets of groups of nearly the same rows differ by single people."""
    rows = rows_of(200)
    first = hospitals(tmp_path, rows, GROUPED)
    assert ask(first, AskMoments(), "first").mass[0] == 600
    assert ask(first, AskExactSums(centers(3)[0]), "exact").exact.tolist() == [3.0]
    rules = GROUPED
    if change == "another group size":
        rules = GROUPED.replace("[aggregation]", "min_group_size = 7\n[aggregation]")
    others = hospitals(tmp_path, {name: CHANGES[change](X) for name, X in rows.items()}, rules)
    table = change == "another name"
    prepared = Preparation((Number("age", 0.0, 0.0, 1.0), Number("bmi", 0.0, 0.0, 1.0)), drop=False)
    points = centers(3, seed=1)[0][:, : 1 if change == "one column" else 2]
    for number, question in enumerate((AskMoments(), AskExactSums(points))):
        refused = ask(others, question, f"other {number}", prepared if table else None)
        assert "are not those of its earlier secure sums" in refused["s0"]
    assert [opened(tmp_path / name) for name in NAMES] == [2, 2, 2]
    assert ask(hospitals(tmp_path, rows_of(200), GROUPED), AskMoments(), "third").mass[0] == 600


@pytest.mark.parametrize("groups_first", [True, False])
def test_sums_of_rows_and_sums_of_groups_of_them_do_not_leave_one_site(tmp_path, groups_first):
    """Beside the sums of all groups, the whole share in equations would give more than the share in rows."""
    first, second = (GROUPED, RULES) if groups_first else (RULES, GROUPED)
    assert ask(hospitals(tmp_path, rows_of(200), first), AskMoments(), "first").mass[0] == 600
    sites = hospitals(tmp_path, rows_of(200), second)
    for number, question in enumerate(
        (AskMoments(), AskClusterSums(centers(3)), AskExactSums(centers(3)[0]))
    ):
        if isinstance(question, AskExactSums) and second == RULES:
            continue  # these sites answer only from rows
        assert "are not those of its earlier secure sums" in ask(sites, question, f"r{number}")["s0"]
    assert opened(tmp_path / "s0") == (0 if groups_first else 1)


def test_groups_other_than_those_of_the_summary_table_are_not_answered_from(tmp_path):
    X, folder = rows_of(200)["s0"], tmp_path / "s0"
    table = GROUPED.replace('mode = "raw"', "no_sensitive_columns = true\nauto_approve = true")
    open_site("s0", X, parse(table), folder).close()
    open_site("s0", X, parse(GROUPED), folder).close()  # the same groups
    other = GROUPED.replace("[aggregation]", "min_group_size = 7\n[aggregation]")
    with pytest.raises(LedgerError, match="would group the rows in another way"):
        open_site("s0", X, parse(other), folder)


def test_another_version_of_the_rows_counts_as_one_equation_more(tmp_path):
    """Without groups: 60 rows allow 3 equations, of which the sum over all rows of a version is one."""
    assert ask(hospitals(tmp_path, rows_of(60)), AskClusterSums(centers(2)), "first").mass.sum() == 180
    other = {name: np.vstack([X, X[:1]]) for name, X in rows_of(60).items()}
    refused = ask(hospitals(tmp_path, other), AskClusterSums(centers(2)), "second")
    assert "They opened 3 so far, and this query would open 1 more" in refused["s0"]


@pytest.mark.parametrize("seed", range(3))
def test_groups_and_any_sequence_of_exact_rounds_give_at_most_the_budget(tmp_path, seed):
    """Rows that follow from all groups and all exact rounds, all assignments known; restarts in between."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(100, 400))
    rows, other = rows_of(n, seed), Identity.new()
    federations = [hospitals(tmp_path, rows, GROUPED), hospitals(tmp_path, rows, GROUPED, authority=other)]
    table, labels = grouped_rows(rows["s0"])
    sets, answered = [labels], 0
    for number in range(12):
        points = rng.normal(size=(int(rng.integers(2, 6)), 2))
        which = int(rng.integers(2))
        found = ask(
            federations[which], AskExactSums(points), f"r{number}", authority=(AUTHORITY, other)[which]
        )
        if found.exact[0]:
            assert found.exact[0] == 3
            answered += 1
            sets.append(((rows["s0"][:, None] - points) ** 2).sum(axis=2).argmin(axis=1))
    assert answered
    g = table.min_group_size
    assert opened(tmp_path / "s0") + 1 <= 0.05 * n * (g - 1) / g
    assert len(determined(sets, n).rows) <= 0.05 * n


def grouped_rows(X):
    """The groups of rows, and the group (n,) of each, by the means."""
    table = microaggregate(X)
    first = make_first_summary(Table.from_columns({"x": X[:, 0], "y": X[:, 1]}), SummarySettings())
    labels = np.zeros(len(X), dtype=np.int64)
    for group, members in enumerate(first.members):
        labels[members] = group
    assert len(first.members) == len(table)
    return table, labels


def test_a_kill_at_any_moment_of_an_exact_round_neither_loses_nor_repeats_it(tmp_path):
    rows = rows_of(600)  # 24 equations
    sites = hospitals(tmp_path, rows, GROUPED)
    steps = sites["s0"].steps()
    for number, place in enumerate([("mask", "in"), ("ledger", "out"), ("log", "out")]):
        coordinator = SlowCoordinator(sites)
        coordinator.begin(request_id(0, f"r{number}"), AskExactSums(centers(4, seed=number)[0]), epoch="e")
        assert coordinator.stage() is None  # shares
        before = opened(tmp_path / "s0")
        sites["s0"].deaths = [(steps.index(place[0]), place[1])]
        assert coordinator.stage() is None  # masked
        sites["s0"].deaths = []
        found = coordinator.rest()
        assert found.exact.tolist() == [3.0]
        np.testing.assert_allclose(found.sums, row_sums(rows, centers(4, seed=number)[0])[1], atol=1e-9)
        assert opened(tmp_path / "s0") - before == 3


def test_the_same_exact_round_under_new_keys_is_answered_from_rows_again(tmp_path):
    sites = hospitals(tmp_path, rows_of(100), GROUPED)  # 4 equations: one exact round of 3 clusters
    coordinator = SlowCoordinator(sites)
    for epoch in ("e", "f"):
        coordinator.begin(request_id(), AskExactSums(centers(3)[0]), epoch=epoch)
        assert coordinator.rest().exact.tolist() == [3.0]
        assert opened(tmp_path / "s0") == 2


def test_a_run_finds_the_clusters_on_groups_and_makes_one_exact_round(tmp_path):
    rng = np.random.default_rng(3)
    rows = {s: rng.normal(size=(300, 2)) + rng.choice([-5.0, 0.0, 5.0], size=(300, 1)) for s in NAMES}
    sites = [open_site(name, X, parse(GROUPED), tmp_path / name) for name, X in rows.items()]
    model = FederatedKMeans(3, random_state=0, secure=True, protect="raw")
    model.fit_federation(LocalFederation(sites, secure=SecureSums()))
    assert model.run_.state.exact.sites == 3
    assert [opened(tmp_path / name) for name in NAMES] == [2, 2, 2]
    X = np.concatenate(list(rows.values()))
    pooled = FederatedKMeans(3, random_state=0).fit(X)
    assert -model.score(X) <= 1.001 * pooled.inertia_
    again = FederatedKMeans(3, random_state=0, secure=True, protect="raw").fit(rows)
    np.testing.assert_array_equal(again.cluster_centers_, model.cluster_centers_)


# ---------------------------------------------------------------- attacks on the budget itself


@pytest.mark.parametrize("rules", [RULES, GROUPED])
def test_two_coordinators_at_once_do_not_open_the_same_equations_twice(tmp_path, rules):
    """Both sums are allowed while nothing is charged; the second to be masked is refused, in any order."""
    rows, other = rows_of(100), Identity.new()  # 5 equations, or 4 beside groups: one sum of three clusters
    for first in (0, 1):
        folder = tmp_path / str(first)
        both = [(hospitals(folder, rows, rules, one), one) for one in (AUTHORITY, other)]
        coordinators = [SlowCoordinator(sites, authority) for sites, authority in both]
        for number, coordinator in enumerate(coordinators):
            points = centers(4, seed=number)
            question = AskClusterSums(points) if rules == RULES else AskExactSums(points[0])
            coordinator.begin(request_id(0, f"r{number}"), question, epoch="e")
            assert coordinator.stage() is None  # shares
        found = [coordinators[number].rest() for number in (first, 1 - first)]
        assert found[0].mass.sum() == 300
        if rules == RULES:
            assert found[1] is None
            assert "equation budget" in coordinators[1 - first].refused["s0"]
        else:
            assert (found[0].exact.tolist(), found[1].exact.tolist()) == ([3.0], [0.0])
        assert [opened(folder / name) for name in NAMES] == [3, 3, 3]


@pytest.mark.parametrize("rules", [RULES, GROUPED])
@pytest.mark.parametrize("lost", ["older", "deleted", "of another site"])
def test_a_ledger_that_was_put_back_gives_no_equations_back(tmp_path, rules, lost):
    rows, ledger = rows_of(100), tmp_path / "s0" / "ledger.sqlite"
    sites = hospitals(tmp_path, rows, rules)
    assert ask(sites, AskMoments(), "first").mass[0] == 300
    older = ledger.read_bytes()
    question = AskClusterSums(centers(3)) if rules == RULES else AskExactSums(centers(3)[0])
    assert ask(sites, question, "second").mass.sum() == 300
    newest = ledger.read_bytes()
    other = (tmp_path / "s1" / "ledger.sqlite").read_bytes()
    if lost == "deleted":
        ledger.unlink()
    else:
        ledger.write_bytes(older if lost == "older" else other)
    with pytest.raises(LedgerError):
        sites["s0"].open()
    ledger.write_bytes(newest)
    before = opened(tmp_path / "s0")
    assert ask(sites, AskMoments(), "third") is not None
    assert opened(tmp_path / "s0") >= before >= 2


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


# ---------------------------------------------------------------- studies


def test_a_study_that_allows_only_secure_sums_is_answered_from_groups_of_rows(tmp_path):
    rules = '[protect]\nmode = "raw"\none_row_per_person = true\n'
    for secure in (True, False):
        folder = tmp_path / str(secure)
        study = study_of("r", secure=secure)
        approved(folder, study)
        guard = StudyGuard(study, StudyFolder(folder))
        site = open_site("s0", rows_of(60)["s0"], parse(f"format = 1\n{rules}"), folder, study=guard)
        assert site.grouped is secure
        site.close()


def approved(folder, study):
    """A folder of a site in which somebody approved a study."""
    folder.mkdir()
    place = StudyFolder(folder)
    place.receive("s0", study, "")
    place.decide(study.digest, APPROVED, "Dr. Low")


def test_a_study_names_exact_rounds_where_there_are_some():
    remote = RemoteRunOptions("", "r", ("a",), purpose="to find groups")

    def proposed(**how):
        return propose_study(Job(("x",), (3,), remote=remote, **how))[0]

    raw, table = proposed(protect="raw", secure=True), proposed(secure=True)
    assert ("AskExactSums", 3) in raw.questions
    assert raw.rounds == table.rounds + 1
    for study in (table, proposed(protect="raw", secure=True, polish=0), proposed(protect="raw")):
        assert "AskExactSums" not in dict(study.questions)
    with pytest.raises(InputError, match="--polish is for sites that sum raw rows securely"):
        proposed(polish=2)
