"""``unpooled fit --plan``: what a private run would lose, before a file is read or a budget is spent."""

import json

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from typer.testing import CliRunner

from unpooled import FederatedKMeans
from unpooled.app.cli import app
from unpooled.privacy import Gaussian, forecast
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.privacy.microaggregation.expected_loss import expected_loss

BOUNDS = ("--bounds", "age=0:110", "--bounds", "bmi=10:80", "--bounds", "crp=0:300")


def plan(*words, sites=2):
    names = [f"not-there-{i}.csv" for i in range(sites)]
    done = CliRunner().invoke(app, ["fit", *names, "--plan", *map(str, words)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, " ".join(done.stdout.split()), " ".join(done.stderr.split())


def test_a_plan_reads_no_file_and_states_what_is_expected(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("--epsilon", 1, "-k", 4, "--rows", 20_000, *BOUNDS)
    code, out, err = plan(*words)
    assert (code, err) == (0, "")
    assert f"epsilon 1, for each row: {forecast(Gaussian(1.0), 20_000, 3, 4, noises=2)}" in out
    assert "groups of at least 11 people: " in out
    assert "With secure sums" not in out  # two sites
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("secure", [True, False])
def test_a_plan_for_ten_sites_says_what_secure_sums_would_save(secure):
    words = ("--epsilon", 1, "-k", 4, "--rows", 20_000, *BOUNDS)
    code, out, _ = plan(*words, *(["--secure"] if secure else []), sites=10)
    shared = str(forecast(Gaussian(1.0), 20_000, 3, 4, noises=10 / 7))  # seven of ten must answer
    assert code == 0
    assert ("With secure sums (--secure) the 10 sites share one noise: " + shared in out) is not secure
    assert (f"for each row: {shared}" in out) is secure


def test_a_plan_counts_people_at_several_sites():
    words = ("--epsilon", 1, "-k", 4, "--rows", 20_000, *BOUNDS, "--sites-per-person", 2)
    code, out, _ = plan(*words)
    assert code == 0
    assert "for each person, with one row at each of up to 2 sites: " in out
    assert f"n mu / k = {20_000 * Gaussian(1.0).mu / 2 / 4 / 2**0.5:.3g}" in out


@pytest.mark.parametrize(
    ("epsilon", "rows", "sites", "says"),
    [
        (1, 400, 1, "Summary tables are expected to lose less."),  # the run would be refused
        (1, 20_000, 1, "Summary tables are expected to lose less."),
        (1, 20_000, 100, "Differential privacy is expected to lose less."),
        (1, 20_000, 14, "Which of both loses less depends on how far the clusters lie apart."),
    ],
)
def test_a_plan_says_which_protection_is_expected_to_lose_less(epsilon, rows, sites, says):
    words = ("--epsilon", epsilon, "-k", 4, "--rows", rows, *BOUNDS)
    code, out, _ = plan(*words, *(["--secure"] if sites > 2 else []), sites=sites)
    assert code == 0
    assert says in out
    assert ("A run would be refused: the noise of epsilon" in out) is (rows == 400)


def test_a_plan_for_programs():
    code, out, _ = plan("--epsilon", 1, "-k", 4, "--rows", 20_000, *BOUNDS, "--json", sites=3)
    printed = json.loads(out)
    assert code == 0
    assert (printed["rows"], printed["columns"], printed["k"], printed["sites"]) == (20_000, 3, 4, 3)
    own, shared = printed["private"], printed["private_secure"]
    assert own["excess_apart"] == pytest.approx(forecast(Gaussian(1.0), 20_000, 3, 4, 3).excess_apart)
    assert shared["excess_apart"] < own["excess_apart"]
    assert printed["summary"]["min_group_size"] == 11
    assert printed["advice"] in plan("--epsilon", 1, "-k", 4, "--rows", 20_000, *BOUNDS, sites=3)[1]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("-k", 3), "--plan is for differential privacy. Add --epsilon."),
        (("-k", 3, "--epsilon", 1, *BOUNDS), "Add --rows, if that number is public."),
        (("-k", 3, "--epsilon", 1), "--epsilon needs the bounds"),
        (("--epsilon", 1, "--rows", 100, *BOUNDS), "Give one k."),
        (
            ("-k", 3, "--epsilon", 1, "--rows", 100, *BOUNDS, "--site-column", "who"),
            "Name one file per site.",
        ),
    ],
)
def test_one_line_for_everything_that_a_plan_lacks(words, says):
    code, out, err = plan(*words)
    assert code != 0
    assert out == ""
    assert says in err


@pytest.mark.parametrize(("rows", "d", "spread"), [(1000, 2, 1.0), (1000, 8, 6.0), (150, 3, 1.0)])
def test_summary_tables_lose_what_a_plan_states(rows, d, spread):
    """Four sites, four clusters; the mean of three tables."""
    lost = []
    for seed in range(3):
        X, _ = make_blobs(4 * rows, d, centers=4, cluster_std=spread, random_state=seed)
        site = np.arange(len(X)) % 4
        settings = {"n_clusters": 4, "random_state": 0, "n_threads": 1}
        pooled = FederatedKMeans(**settings).fit(X, sites=site)
        lost.append(
            FederatedKMeans(**settings, protect="summary").fit(X, sites=site).score(X) / -pooled.inertia_
        )
    stated = expected_loss(SummarySettings(), 4 * rows, 4, d, 4)
    assert np.mean(lost) - 1 <= stated.excess_at_most
