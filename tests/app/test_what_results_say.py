"""What a result says of estimates, absences, doubtful columns and rows of one person: true, and of use."""

import html
import json
import re
import shlex

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import unpooled
from unpooled.app.cli import app
from unpooled.app.report.charts import apart
from unpooled.data import Table
from unpooled.errors import InputError


def ran(*words):
    return CliRunner().invoke(app, list(map(str, words)), env={"COLUMNS": "300"})


def two_groups(n: int, seed: int = 0, **more) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    group = rng.integers(2, size=n)
    return pd.DataFrame(
        {"age": rng.normal(40, 9, n) + 30 * group, "hnr": rng.normal(20, 3, n) + 12 * group, **more}
    )


def test_tables_of_few_groups_do_not_pass_averages_off_as_people():
    sites = {name: two_groups(21, seed) for seed, name in enumerate("ab")}
    result = unpooled.cluster(sites, 2, protect="summary", min_group_size=5).job_result
    assert any(w.startswith("a, b: too few groups to state") for w in result.warnings)
    assert result.to_dict()["inertia_estimated_for_rows"] is None
    large = {"c": two_groups(900, 3), **sites}
    result = unpooled.cluster(large, 2, protect="summary", min_group_size=5).job_result
    age = next(t for t in result.traits(0) if t.column == "age")
    assert age.spread == pytest.approx(9, rel=0.15)  # the large site states how people vary, for all
    assert result.inertia_of_rows == pytest.approx(unpooled.cluster(large, 2).job_result.inertia, rel=0.1)


def test_a_value_that_few_people_have_is_not_called_absent_from_the_site():
    sites = {name: two_groups(120, seed, ca=np.arange(120) % 7 + 0.5) for seed, name in enumerate("ab")}
    sites["b"].loc[3:, "ca"] = None  # three people have a value
    summary = unpooled.cluster(sites, 2, protect="summary").job_result.warnings
    assert any("ca at b: no value that enough people have" in w for w in summary)
    sites["b"]["ca"] = None
    rows = unpooled.cluster(sites, 2).job_result.warnings
    assert any("ca at b: no value at all" in w for w in rows)


def test_a_cluster_absent_from_averages_may_be_at_the_site():
    sites = {"a": two_groups(300), "b": two_groups(300, 1).query("age < 52 and hnr < 26")}
    first, _ = unpooled.cluster(sites, 2, protect="summary").job_result.headline()
    assert "only at a, as far as averages of groups show: a site may have a few such people" in first
    first, _ = unpooled.cluster(sites, 2).job_result.headline()
    assert first.endswith("only at a.")


def test_sites_that_are_numbers_are_called_sites():
    frame = pd.concat([two_groups(300).assign(site=1), two_groups(300, 1).query("age < 52").assign(site=2)])
    parts = {number: part.drop(columns="site") for number, part in frame.groupby("site")}
    first, _ = unpooled.cluster(parts, 2).job_result.headline()
    assert "only at site 1" in first


def test_a_site_is_not_worse_described_because_its_rows_have_more_values():
    a, b = two_groups(400, 0), two_groups(400, 1)
    for j in range(4):
        a[f"x{j}"], b[f"x{j}"] = (np.random.default_rng(9 + j).normal(size=400) for _ in "ab")
    b.loc[b.index[10:], ["x0", "x1", "x2", "x3"]] = None
    result = unpooled.cluster({"a": a, "b": b}, 2).job_result
    assert result.keeps_missing
    fits = [s["inertia_per_observed_value"] for s in result.to_dict()["sites"]]
    model = result.model()
    for fit, frame in zip(fits, (a, b), strict=True):
        table = Table.from_columns({c: frame[c].to_numpy() for c in frame})
        X = model.preparation.apply(table)
        squares = np.nansum((X[:, None] - model.centers) ** 2, axis=2).min(axis=1)
        assert fit == pytest.approx(squares.sum() / np.isfinite(X).sum())
    per_row = [fit * cells for fit, cells in zip(fits, (6, 2), strict=True)]
    assert per_row[0] > 2 * per_row[1]  # what a row's distance would say of the site with more values


def test_the_advice_about_tails_is_one_command_that_works(tmp_path):
    rng, n = np.random.default_rng(0), 400
    frame = two_groups(n).assign(**{
        "RAIN": np.where(rng.random(n) < 0.9, 0.0, rng.exponential(20, n)),
        "PM 2.5(%)": rng.lognormal(0, 1.6, n),
        "edema": rng.choice([0, 0.5, 1], n, p=[0.96, 0.02, 0.02]),
    })  # fmt: skip
    files = [tmp_path / f"{name}.csv" for name in "ab"]
    for file, part in zip(files, (frame[::2], frame[1::2]), strict=True):
        part.to_csv(file, index=False)
    words = ["fit", *files, "-k", "2", "--scale", "standard,hnr=rank"]
    (warning,) = re.findall("warning: (.*3 standard deviations.*)", ran(*words).output)
    for name in ("RAIN", "PM 2.5(%)", "edema"):
        assert re.search(rf"{re.escape(name)} \(\d+%\)", warning)
    advice = shlex.split(re.search(r"--scale .*?(?= lets all rows count)", warning)[0])
    assert "hnr=rank" in advice[1]
    done = ran("fit", *files, "-k", "2", *advice)
    assert done.exit_code == 0, done.output
    assert "standard deviations, a long tail" not in done.output
    (warning,) = re.findall("warning: (.*3 standard dev.*)", ran(*words[:5], "--protect", "summary").output)
    advice = shlex.split(re.search(r"--exclude .*?(?= leaves)", warning)[0])
    done = ran("fit", *files, "-k", "2", "--protect", "summary", *advice)
    assert (done.exit_code, "long tail" in done.output) == (0, False)


def test_the_silhouette_is_called_simplified(tmp_path):
    file = tmp_path / "a.csv"
    two_groups(200).to_csv(file, index=False)
    assert "simplified silhouette" in " ".join(
        ran("fit", file, "-k", "2..3").output.replace("│", " ").split()
    )
    scores = json.loads(ran("fit", file, "-k", "2..3", "--json").output)["scores"]
    assert all("silhouette" not in s and "simplified_silhouette" in s for s in scores)


def test_categories_that_the_fit_did_not_have_are_named(tmp_path):
    frame = two_groups(200).assign(channel=np.array(["shop", "mail"])[np.arange(200) % 2])
    file, run, new = (tmp_path / name for name in ("a.csv", "run", "new.csv"))
    frame.to_csv(file, index=False)
    assert ran("fit", file, "-k", "2", "-o", run).exit_code == 0
    frame.assign(channel="web").to_csv(new, index=False)
    assert (
        "channel: 200 rows with web, which the fit did not have (mail, shop)"
        in ran("predict", run, new).output
    )
    assert "warning" not in ran("predict", run, file).output
    result = unpooled.cluster({"a": frame}, 2)
    with pytest.warns(UserWarning, match="channel: 200 rows with web"):
        result.predict(frame.assign(channel="web"))


def visits() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(40), 25)
    return pd.DataFrame(
        {
            "subject#": who + 1,
            "age": rng.integers(40, 80, 40)[who],
            "sex": rng.integers(2, size=40)[who],
            "jitter": rng.normal(0, 1, 40)[who] + 0.2 * rng.normal(size=1000),
            "shimmer": rng.normal(0, 1, 40)[who] + 0.2 * rng.normal(size=1000),
            "score": rng.normal(0, 1, 40)[who] + 0.1 * rng.normal(size=1000),
        }
    )


def test_rows_of_one_person_are_named_without_a_summary_table_too(tmp_path):
    file = tmp_path / "a.csv"
    visits().to_csv(file, index=False)
    output = " ".join(ran("fit", file, "-k", "2..4").output.split())
    assert "subject# (40 different values in 1000 rows" in output
    advice = shlex.split(re.search(r"(--protect summary --person \S+) to combine", output)[1])
    done = ran("fit", file, "-k", "2..4", *advice)
    assert (done.exit_code, "seems to identify" in done.output) == (0, False), done.output


def test_an_array_with_missing_values_or_text_is_sent_to_cluster():
    for X in (np.array([[1.0], [np.nan], [3.0]]), pd.DataFrame({"a": ["x", "y", "z"]})):
        with pytest.raises(InputError, match=r"unpooled\.cluster takes tables with missing values"):
            unpooled.FederatedKMeans(2).fit(X, sites=["a", "a", "b"])


def test_scales_of_single_columns_in_one_text_are_sent_to_scales():
    with pytest.raises(InputError, match=r'scale="standard", scales=\{"age": "log"\}'):
        unpooled.cluster({"a": two_groups(50)}, 2, scale="standard,age=log")


def test_the_first_screen_has_the_answer_its_doubt_a_picture_and_outcomes_follow():
    frame = two_groups(300).assign(
        died=(np.arange(300) % 3 == 0).astype(float), site=np.array(["a", "b"])[np.arange(300) % 2]
    )
    frame.loc[::3, "hnr"] = None
    result = unpooled.cluster(frame, 2, site_column="site", outcomes="died").job_result
    page = result.report()
    answer, rest = page.split('<section id="answer">')[1].split("</section>", 1)
    first, second = (html.escape(text, quote=False) for text in result.headline())
    answer = answer.replace("&#39;", "'").replace("&#34;", '"')
    assert answer.index(f"<p>{first}</p>") < answer.index(f"<p>{second}</p>") < answer.index("<svg")
    assert answer.index("<svg") < answer.index('class="each"')
    assert "a site would send at most" in answer
    assert re.search(r"\d+ of \d+ have a value", answer)
    assert '<section id="outcomes">' in rest
    assert "died = 1 (Cramér" in rest
    assert "mean squared distance of an observed value" in rest


def test_a_column_in_another_unit_at_a_site_comes_before_the_support():
    sites = {name: two_groups(300, seed) for seed, name in enumerate("abc")}
    sites["b"]["hnr"] *= 18.016
    _, second = unpooled.cluster(sites, 2).job_result.headline()
    assert second.startswith("Check the units first: hnr at b: ")
    assert "glucose" in second


def test_a_k_that_nothing_supports_is_a_division_and_not_a_finding():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=400), "y": rng.normal(size=400)})
    first, second = unpooled.cluster({"a": frame}, 3).job_result.headline()
    assert first.startswith("400 rows at 1 site are divided into 3 clusters")
    assert second.startswith("You asked for 3, and 3 clusters are not supported: ")
    first, second = unpooled.cluster({"a": frame}, range(1, 6)).job_result.headline()
    assert first.startswith("k-means finds no clusters")
    assert second.startswith("No number of clusters from 2 to 5 is supported: ")


def test_a_single_row_is_not_a_share_of_zero():
    frame = two_groups(400)
    frame.loc[5, "age"] = 9000.0
    first, second = unpooled.cluster({"a": frame}, 3).job_result.headline()
    assert "under 1% of them" in first
    assert "a cluster has fewer than 10 rows, far from all others" in second


def test_a_percent_sign_in_a_name_stays_where_it_is(tmp_path):
    file = tmp_path / "a.csv"
    two_groups(200).rename(columns={"hnr": "Jitter(%)"}).to_csv(file, index=False)
    printed = ran("fit", file, "-k", "2", "--report", tmp_path / "report.html").output
    for text in (
        printed,
        ran("fit", file, "-k", "2", "--json").output,
        (tmp_path / "report.html").read_text(),
    ):
        assert "Jitter(%)" in text
        assert "Jitter( %)" not in text


def test_no_cluster_covers_another_one_in_the_picture():
    rng = np.random.default_rng(0)
    group = np.arange(400) % 4
    frame = pd.DataFrame({"x": 20.0 * (group == 3), "y": 20.0 * (group == 2), "z": 20.0 * (group == 1)})
    picture = apart(unpooled.cluster({"a": frame + rng.normal(size=(400, 3))}, 4).job_result)
    discs = np.array(re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="10"', picture), dtype=float)
    assert len(discs) == 12  # in every column three clusters are nearly equal
    gaps = np.linalg.norm(discs[:, None] - discs[None], axis=2) + 99 * np.eye(12)
    assert gaps.min() >= 18
