"""The questions that spend: exact sums under the noise, what one row can shift, who pays for what."""

import dataclasses

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from question_samples import QUESTIONS
from seeded_noise import SHARES, batch, questions, whitened
from unpooled.algorithms import Private
from unpooled.algorithms.private import private_kmeans
from unpooled.errors import CodecError, InputError, QueryRefusedError
from unpooled.federation import Simulation
from unpooled.privacy import Gaussian, PrivateQuestionLimits
from unpooled.privacy.dp import noise as noise_module
from unpooled.privacy.dp.noisy_cluster_sums import AskNoisyCells, clip_norms
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments, AskNoisySpread
from unpooled.privacy.dp.private_questions import PrivateQuestion
from unpooled.protocol import codec, run


@pytest.fixture
def silent(monkeypatch):
    """No noise: to see what is under it. Only a test that reaches into the module can do this."""
    monkeypatch.setattr(noise_module.Noise, "added", lambda self, sums, step, sd: sums * step)


def test_the_laws_are_about_every_private_question_of_the_package():
    private = {kind for kind in QUESTIONS if issubclass(kind, PrivateQuestion)}
    assert {type(question) for question in questions(np.random.default_rng(0), 2)} == private


@pytest.mark.usefixtures("silent")
def test_no_row_shifts_a_reply_by_more_than_its_price():
    """400 rows chosen to hurt, for every question: on corners, on centres, far out, not finite, random."""
    worst = 0.0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        d = int(rng.integers(1, 5))
        base = rng.normal(0, 0.5, (7, d))
        for question in questions(rng, d):
            before = whitened(question, question.answer(batch(base)), d)
            rows = np.concatenate(
                [
                    rng.choice([-1.0, 1.0], (5, d)) * question.box,
                    rng.choice([-1e30, 1e30, np.inf, -np.inf, np.nan, 0.0, -0.0], (5, d)),
                    rng.uniform(-2, 2, (9, d)),
                    question.centers[:1] if isinstance(question, AskNoisyCells) else np.zeros((1, d)),
                ]
            )
            for row in rows:
                after = whitened(question, question.answer(batch(np.vstack([base, row]))), d)
                worst = max(worst, float(np.linalg.norm(after - before)) / question.mu)
    assert 0.99 < worst <= 1 + 1e-12


@pytest.mark.usefixtures("silent")
def test_no_person_at_several_sites_shifts_a_sum_by_more_than_its_price():
    """Rows chosen to hurt, one at each site of a person. With one noise for the sum of the replies all of the
    price is needed; if each reply has its own noise, the person's price is s mu^2, of s^2 mu^2 charged."""
    shared = own = 0.0
    for seed, sites in enumerate((2, 3, 5)):
        rng = np.random.default_rng(seed)
        d = int(rng.integers(1, 5))
        base = [rng.normal(0, 0.5, (7, d)) for _ in range(sites)]
        for asked in questions(rng, d):
            question = dataclasses.replace(asked, sites_per_person=sites)
            before = [whitened(question, question.answer(batch(rows)), d) for rows in base]
            corner, random = rng.choice([-1.0, 1.0], (1, d)) * question.box, rng.uniform(-2, 2, (sites, d))
            for person in (
                [corner] * sites,
                [corner, *np.split(random, sites)][:sites],
                np.split(random, sites),
            ):
                after = [
                    whitened(question, question.answer(batch(np.vstack([rows, row]))), d)
                    for rows, row in zip(base, person, strict=True)
                ]
                shifts = np.array(after) - before
                price = question.privacy_cost
                shared = max(shared, float((shifts.sum(axis=0) ** 2).sum()) / price)
                own = max(own, float((shifts**2).sum()) / (price / sites))
    assert 0.98 < shared <= 1 + 1e-12
    assert 0.98 < own <= 1 + 1e-12


@pytest.mark.usefixtures("silent")
def test_cells_by_hand():
    question = AskNoisyCells(
        1.0, np.array([[0.0, 0.0], [1.0, 1.0]]), np.ones(2), np.array([0.5, 0.1]), SHARES
    )
    result = question.answer(batch([[0.3, 0.4], [0.0, 0.1], [1.0, 0.9], [5.0, 1.0], [0.6, np.nan]]))
    np.testing.assert_allclose(result.count, [2, 2])  # the row that lacks a value counts for nothing
    np.testing.assert_allclose(result.sums, [[0.6, 1.0], [0.0, -1.0]], atol=1e-8)  # 5 counts as the bound, 1
    np.testing.assert_allclose(result.squares, [1.04, 1.0], atol=1e-8)
    in_units = question.in_units(result)
    np.testing.assert_allclose(in_units.sums, [[0.3, 0.5], [0.0, -0.1]], atol=1e-8)
    np.testing.assert_allclose(in_units.squares, [0.26, 0.01], atol=1e-8)
    far = question.answer(batch([[0.0, 1.0], [1.0, 0.5]]))  # cut to the radius of their own cells
    np.testing.assert_allclose(question.in_units(far).sums, [[0.0, 0.5], [0.0, -0.1]], atol=1e-8)


@pytest.mark.usefixtures("silent")
def test_fuzzy_cells_are_the_sums_of_fuzzy_c_means():
    from unpooled import kernels

    rng = np.random.default_rng(0)
    X, centers = rng.uniform(-1, 1, (500, 3)), rng.uniform(-1, 1, (4, 3))
    for m in (1.3, 2.0, 3.0):
        asked = AskNoisyCells(1.0, centers, np.ones(3), np.array([3.0, 2.5, 3.4, 3.0]), SHARES, m=m)
        result = asked.in_units(asked.answer(batch(X)))
        exact = kernels.fuzzy(X, [0, 500], centers[None], m)
        np.testing.assert_allclose(result.count, exact.mass[0, 0], atol=1e-5)
        np.testing.assert_allclose(result.sums, exact.sums[0, 0], atol=1e-5)
        np.testing.assert_allclose(result.squares, exact.inertia[0, 0], atol=1e-5)


@pytest.mark.usefixtures("silent")
def test_order_and_stacking_change_not_a_bit():
    """Whole steps are added, so a reply, and what a row changes in it, does not depend on rows' order."""
    rng = np.random.default_rng(3)
    X = rng.normal(0, 0.4, (20_000, 3))
    for question in questions(rng, 3):
        one, other = question.answer(batch(X)), question.answer(batch(X[rng.permutation(len(X))]))
        for field in dataclasses.fields(one):
            assert np.array_equal(getattr(one, field.name), getattr(other, field.name))


def test_noise_has_the_size_it_should_and_never_repeats():
    """2000 noises of each part: a standard deviation off by 10 % is 6 of its own errors, p < 1e-9."""
    question = AskNoisyCells(0.5, np.zeros((2000, 1)), np.ones(1), np.geomspace(1e-3, 1.0, 2000), SHARES)
    a, b = question.answer(batch(np.zeros((0, 1)))), question.answer(batch(np.zeros((0, 1))))
    in_units = question.in_units(a)
    for values, sds in zip(
        (in_units.count, in_units.sums[:, 0], in_units.squares), question.sds, strict=True
    ):
        assert (values / sds).std() == pytest.approx(1.0, rel=0.1)
        assert abs((values / sds).mean()) < 6 / 2000**0.5
    assert not np.array_equal(a.count, b.count)  # the same question, the same seeds
    assert a.noises == 1.0


def test_a_share_of_the_noise_is_what_secure_sums_ask_for():
    question = AskNoisyMoments(0.5**0.5, np.ones(3), bins=2000)
    result = question.answer(batch(np.zeros((0, 3)), share=0.5))
    assert result.histogram.std() == pytest.approx(0.5 / 0.5, rel=0.15)  # 2000 noises
    assert result.noise[0] == 0.25
    assert (result + result + result + result).noise[0] == 1.0  # four such sites: one noise


def test_what_a_site_can_check():
    question = AskNoisyCells(0.3, np.zeros((4, 2)), np.ones(2), np.full(4, 0.5), SHARES)
    assert question.privacy_cost == pytest.approx(0.09)
    question.check(PrivateQuestionLimits(remaining=0.09))
    with pytest.raises(QueryRefusedError, match=r"costs mu\^2 = 0.09, and 0.05 is left"):
        question.check(PrivateQuestionLimits(remaining=0.05))
    with pytest.raises(QueryRefusedError, match=r"16 noisy numbers\. At most 10"):
        question.check(PrivateQuestionLimits(remaining=1.0, numbers=10))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"mu": 0.0}, "mu must be from"),
        ({"mu": float("nan")}, "mu must be from"),
        ({"rho": np.array([0.0])}, "rho must be from"),
        ({"rho": np.array([1.0, 1.0, 1e-300, 1.0])}, "rho must be from"),  # residuals would not be finite
        ({"rho": np.array([1.0, np.nan, 1.0, 1.0])}, "rho must be from"),
        ({"rho": np.array([1.0, 1.0, 1.0, 99.0])}, "to the box's diagonal 2.8"),
        ({"rho": np.ones(3)}, "one radius or 4"),
        ({"shares": (0.5, 0.6, 0.1)}, "add up to 1"),
        ({"shares": (1.0, 0.0, 0.0)}, "positive"),
        ({"centers": np.array([[2.0, 0.0]])}, "outside the box"),
        ({"centers": np.array([[np.nan, 0.0]])}, "not finite"),
        ({"centers": np.zeros((2, 3))}, "do not fit 2 columns"),
        ({"box": np.array([1.0, -1.0])}, "box must be a positive half width"),
        ({"m": 1.0}, "m must be above 1"),
    ],
)
def test_a_question_that_makes_no_sense_cannot_be_made_nor_arrive(change, says):
    good = AskNoisyCells(0.3, np.zeros((4, 2)), np.ones(2), np.full(4, 0.5), SHARES)
    with pytest.raises(InputError, match=says):
        dataclasses.replace(good, **change)
    bad = dataclasses.replace(good)
    for name, value in change.items():
        object.__setattr__(bad, name, value)
    with pytest.raises(CodecError):
        codec.decode(codec.encode(bad))


def test_rows_that_weigh_are_refused():
    weighted = dataclasses.replace(batch(np.zeros((2, 1))), weights=np.array([1.0, 9.0]))
    with pytest.raises(QueryRefusedError, match="weights"):
        AskNoisyMoments(0.1, np.ones(1)).answer(weighted)


def test_bounds_of_other_columns_are_refused():
    with pytest.raises(QueryRefusedError, match="the bounds have 3 columns, and the rows have 2"):
        AskNoisyMoments(0.1, np.ones(3)).answer(batch(np.zeros((5, 2))))


def test_shortened_never_lengthens():
    vectors = np.random.default_rng(1).normal(0, 1, (1000, 4)) * 10.0 ** np.arange(-3, 5).repeat(125)[:, None]
    cut, length = clip_norms(vectors, 0.7)
    assert (np.linalg.norm(cut, axis=1) <= 0.7 * (1 + 1e-12)).all()
    assert (length <= 0.7).all()


# ---------------------------------------------------------------- the questions of whole runs


def skewed(n):
    """Three clusters with long tails to one side."""
    rng = np.random.default_rng(5)
    X = np.repeat([[-0.6, -0.6], [0.0, 0.5], [0.5, -0.5]], n // 3, axis=0)
    return np.clip(X + 0.02 * rng.lognormal(0, 1, X.shape), -1, 1)


RUNS = {  # n, clusters, epsilon, sites per person: many cells and wide radii, few cells, one mean
    "much": (12_000, 3, 2.0, 1),
    "people": (12_000, 3, 2.0, 3),
    "little": (600, 3, 1.0, 1),
    "hardly any": (30, 2, 0.5, 1),
    "fuzzy, scaled": (600, 2, 4.0, 1),
}
SETTINGS = {"fuzzy, scaled": {"m": 2.0, "scale": "standard"}}


@pytest.fixture(scope="module")
def runs():
    """The state of one run of each kind; with hardly any rows the first step is made to show no gain."""
    states = {}
    for name, (n, k, epsilon, sites) in RUNS.items():
        with pytest.MonkeyPatch.context() as patched:
            if name == "hardly any":
                patched.setattr(private_kmeans, "gain_over_mean", lambda question, reply: 0.0)
            dp = Gaussian(epsilon, rows=n, accept_noise=True, sites_per_person=sites)
            method = Private(k=k, dp=dp, **SETTINGS.get(name, {}))
            states[name] = run(method, Simulation.from_rows({"one": skewed(n)}), seed=1).state
    return states


def test_the_runs_have_the_settings_that_the_laws_below_are_about(runs):
    cells = {
        name: [len(r.question.centers) for r in state.releases if isinstance(r.question, AskNoisyCells)]
        for name, state in runs.items()
    }
    assert cells["much"][0] > 20 * 3  # 6 a cluster where there is little
    assert cells["little"][0] <= 6 * 3
    assert cells["hardly any"][-1] == 1
    fuzzy = [release.question for release in runs["fuzzy, scaled"].releases]
    assert isinstance(fuzzy[0], AskNoisySpread)
    assert fuzzy[-1].m == 2.0
    assert runs["much"].reach.max() > 1.5 * runs["hardly any"].reach.max()


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.usefixtures("silent")
def test_no_row_shifts_any_release_of_a_run_by_more_than_its_price(runs, name):
    """Every question that the run asked, again, of tables with and without a row chosen to hurt."""
    rng, worst = np.random.default_rng(7), 0.0
    for release in runs[name].releases:
        question = release.question
        base = rng.normal(0, 0.5, (7, 2))
        before = whitened(question, question.answer(batch(base)), 2)
        rows = [rng.choice([-1.0, 1.0], (4, 2)), rng.choice([-1e30, np.inf, np.nan, 0.0], (3, 2))]
        rows.append(rng.uniform(-2, 2, (6, 2)))
        if isinstance(question, AskNoisyCells):
            edge = rng.integers(len(question.centers), size=6)
            away = rng.normal(size=(6, 2))
            away /= np.linalg.norm(away, axis=1, keepdims=True)
            rows.append(question.centers[edge] + away * question.radii[edge][:, None])
        for row in np.concatenate(rows):
            after = whitened(question, question.answer(batch(np.vstack([base, row]))), 2)
            worst = max(worst, float(np.linalg.norm(after - before)) / question.mu)
    assert 0.99 < worst <= 1 + 1e-12


@pytest.mark.parametrize("name", RUNS)
def test_the_privacy_loss_distribution_of_a_run_has_the_nominal_epsilon(runs, name):
    """PLD of dp-accounting composes the releases that the run asked for; a person is at as many sites as
    were stated."""
    whole, sites = None, RUNS[name][3]
    for release in runs[name].releases:
        noise = 1 / (sites * release.question.mu)
        one = pld.from_gaussian_mechanism(noise, value_discretization_interval=1e-4)
        whole = one if whole is None else whole.compose(one)
    assert whole.get_epsilon_for_delta(1e-6) == pytest.approx(RUNS[name][2], rel=1e-3)
