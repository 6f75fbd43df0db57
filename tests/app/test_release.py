"""``unpooled release``: the checklist of OpenSAFELY on real data, laws over random tables, refusals."""

import csv
import io
import json
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from tests.amounts import amounts
from typer.testing import CliRunner

from unpooled.app.cli import app
from unpooled.app.release.binary_columns import binary_from_rows, binary_from_summaries
from unpooled.app.release.dominance import max_share
from unpooled.app.release.release_register import ReleaseEntry, add, read, relation
from unpooled.app.release.release_tables import ReleaseTable, breaches
from unpooled.app.release.released_counts import REDACTED, Counts, is_derivable
from unpooled.app.run_folder import RunFolder
from unpooled.errors import InputError
from unpooled.privacy.presets import PRESETS


@pytest.fixture(params=amounts(2_000, 50_000))
def tables(request):
    return request.param


OPENSAFELY = PRESETS["opensafely"]


def call(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    return done.exit_code, done.stdout + (done.stderr or "")


def refused(*words):
    code, output = call(*words)
    assert (code, output.count("\n")) == (1, 1), output
    return output


@pytest.fixture(scope="module")
def heart(tmp_path_factory):
    """The folder of a run on the patients of four hospitals."""
    home = tmp_path_factory.mktemp("heart")
    assert call("example", "heart", "-o", home / "heart.csv")[0] == 0
    words = (
        "--site-column",
        "site",
        "--exclude",
        "num",
        "--na",
        "chol=0",
        "--categorical",
        "cp,restecg,slope,thal",
    )
    filled = ("--missing", "fill", "--restarts", 2, "--out", home / "run")
    assert call("fit", home / "heart.csv", *words, "-k", 3, *filled)[0] == 0
    assert (
        call("fit", home / "heart.csv", *words, "-k", 3, "--missing", "keep", "--out", home / "kept")[0] == 0
    )
    return home / "run"


@pytest.fixture(scope="module")
def files(heart):
    """The files of its release, by name."""
    out = heart.parent / "release"
    code, output = call("release", heart, "--preset", "opensafely", "--out", out)
    assert code == 0, output
    return {path.name: path.read_text(encoding="utf-8") for path in out.iterdir()}


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def counts_of(files):
    """(file, column, cell) of every count, as controls.json declares them."""
    about = json.loads(files["controls.json"])["files"]
    for name, described in about.items():
        for row in rows_of(files[name]) if name.endswith(".csv") else ():
            yield from ((name, column, row[column]) for column in described["counts"])


# ---------------------------------------------------------------- the checklist of OpenSAFELY, line by line


def test_1_only_aggregates_are_in_it_and_no_site_but_those_named(files):
    for name, text in files.items():
        if name.endswith(".csv"):
            assert len(rows_of(text)) < 60, name
    assert {row["site"] for row in rows_of(files["clusters_by_site.csv"])} == {
        "cleveland", "hungarian", "switzerland", "va", "total",
    }  # fmt: skip


def test_2_file_types_are_allowed_ones(files):
    assert {name.rsplit(".")[-1] for name in files} == {"csv", "svg", "txt", "json"}
    for name, text in files.items():
        if name.endswith(".svg"):
            assert ElementTree.fromstring(text).tag.endswith("svg")


def test_3_counts_of_seven_or_fewer_are_redacted(files):
    cells = [cell for _, _, cell in counts_of(files)]
    assert len(cells) > 50
    assert REDACTED in cells, "the heart data have a cell of 5: the test needs one"
    assert all(cell == REDACTED or cell == "0" or int(cell) >= 8 for cell in cells)


def test_4_counts_and_those_under_rates_are_multiples_of_five(files):
    assert all(cell == REDACTED or int(cell) % 5 == 0 for _, _, cell in counts_of(files))
    rates = [row for row in rows_of(files["profiles.csv"]) if row["kind"] == "rate"]
    assert len(rates) == 12
    for row in rates:
        if row["cluster"] != "all disclosed" and row["value"] != REDACTED:
            share, count = float(row["value"]), int(row["rows"])
            many = 5 * round(share * count / 5)
            assert abs(many / count - share) < 6e-4, row
            assert min(many, count - many) == 0 or min(many, count - many) >= 8, row
    for column in {row["column"] for row in rows_of(files["categories.csv"])}:
        for cluster in "ABC":
            some = [
                r
                for r in rows_of(files["categories.csv"])
                if (r["column"], r["cluster"]) == (column, cluster)
            ]
            if REDACTED not in {r["share"] for r in some}:
                total = sum(int(r["rows"]) for r in some)
                assert all(abs(int(r["rows"]) / total - float(r["share"])) < 1e-3 for r in some)


def test_5_every_result_has_the_count_behind_it(files):
    for name, described in json.loads(files["controls.json"])["files"].items():
        if name.endswith(".csv"):
            assert described["counts"], name
    for row in rows_of(files["profiles.csv"]):
        assert row["rows"] != REDACTED or row["value"] == REDACTED
    for figure in ("clusters_by_site", "profiles"):
        assert f"{figure}.csv" in files
    drawn = {e.text for e in ElementTree.fromstring(files["clusters_by_site.svg"]).iter() if e.text}
    counts = {cell for row in rows_of(files["clusters_by_site.csv"]) for cell in list(row.values())[1:]}
    bars = {text for text in drawn if text.isdigit()}
    sums = {
        str(sum(int(v) for v in list(row.values())[1:] if v != REDACTED))
        for row in rows_of(files["clusters_by_site.csv"])
    }
    assert bars <= counts | sums


def test_6_context_and_controls_describe_every_file(files):
    context = files["context.txt"]
    for heading in ("Population", "Variables", "Controls", "Relation to earlier releases", "count behind"):
        assert heading in context
    for name in files:
        assert name in context or name in ("context.txt", "controls.json")
    for column in ("age", "thalach", "slope"):
        assert f"{column}: " in context
    assert "rounded to the nearest 5" in context
    assert "fewer than 8" in context
    assert "fbs 1: all rows of cluster C" in context  # a checker must see what applies to everybody
    assert "apply to nobody, or to everybody" in context


def test_numbers_of_nobody_or_everybody_are_redacted_in_uncertain_columns(heart, tmp_path):
    words = ("--preset", "opensafely", "--register", tmp_path / "register", "--out", tmp_path / "out")
    code, output = call("release", heart, *words, "--uncertain", "fbs")
    assert code == 0, output
    assert "or to everybody" not in output
    assert "fbs 1: all rows" not in (tmp_path / "out" / "context.txt").read_text()
    rows = {(r["column"], r["cluster"]): r for r in rows_of((tmp_path / "out" / "profiles.csv").read_text())}
    assert rows["fbs", "C"]["value"] == REDACTED
    assert rows["sex", "B"]["value"] != REDACTED
    assert "there is no column 'x'" in refused("release", heart, *words, "--overwrite", "--uncertain", "x")
    lines = [f"{50 * (i % 2) + i / 99},{'ab'[i % 4 == 1]}" for i in range(120)]  # in one cluster all are a
    (tmp_path / "c.csv").write_text("\n".join(["x,kind", *lines]) + "\n")
    assert call("fit", tmp_path / "c.csv", "-k", 2, "--scale", "none", "--out", tmp_path / "run")[0] == 0
    for more, expected in ((), {"60", "0", "30"}), (("--uncertain", "kind"), {REDACTED, "30"}):
        out = tmp_path / f"out{len(more)}"
        code, output = call("release", tmp_path / "run", "--preset", "cms", "--out", out, *more)
        assert code == 0
        assert ("kind b: nobody of cluster" in (out / "context.txt").read_text()) == (not more)
        assert ("2 numbers apply to nobody, or to everybody" in output) == (not more)
        assert {r["rows"] for r in rows_of((out / "categories.csv").read_text())} == expected


def test_7_no_log_file_is_in_it(files):
    assert not [name for name in files if "log" in name or "history" in name]


def test_8_files_are_below_the_maximum_size(files):
    assert max(len(text.encode()) for text in files.values()) < 16e6


def test_a_number_in_the_text_is_rounded_too(files, heart):
    """No true count of the run is in the context or the controls, where it is not one of the rounded ones."""
    result = json.loads((heart / "result.json").read_text())
    true = {f"{n}" for c in result["clusters"] for n in [c["rows"], *c["rows_by_site"].values()]}
    true |= {f"{site['rows']}" for site in result["sites"]} | {str(result["rows"])}
    words = set(files["context.txt"].replace(",", " ").replace(".", " ").split())
    assert not {n for n in true if int(n) % 5 and int(n) > 20} & words


def test_means_are_rounded_to_the_second_digit_of_their_deviation(files):
    for row in rows_of(files["profiles.csv"]):
        if row["kind"] == "mean" and row["standard_deviation"]:
            digits = row["standard_deviation"].replace(".", "").strip("0")
            assert len(digits) <= 2, row
            decimals = len(row["standard_deviation"].partition(".")[2])
            assert len(row["value"].partition(".")[2]) == decimals, row


def test_if_cells_stay_missing_the_people_with_a_value_are_counted(heart, tmp_path):
    """Hardly any patient of Switzerland and Long Beach has a value of ca, and the count shows it."""
    words = ("--preset", "opensafely", "--out", tmp_path / "out", "--register", tmp_path / "register")
    assert call("release", heart.parent / "kept", *words)[0] == 0
    files = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "out").iterdir()}
    rows = rows_of(files["profiles.csv"])
    sizes = {row["cluster"]: int(row["rows"]) for row in rows_of(files["clusters.csv"])}
    true = RunFolder(heart.parent / "kept").load_result()
    whole = 0
    for row in rows:
        if row["cluster"] == "all disclosed" or row["value"] == REDACTED:
            continue
        place, cluster = (
            true.agreement.preparation.outputs.index((row["column"], "")),
            "ABCDEFGH".index(row["cluster"]),
        )
        known = true.description.known[cluster, place]
        assert known >= 8
        assert int(row["rows"]) <= sizes[row["cluster"]]  # the tables agree with each other
        if known == true.sizes[cluster]:
            assert int(row["rows"]) == sizes[row["cluster"]]
            whole += 1
        else:
            assert abs(int(row["rows"]) - known) <= 2.5, row
    assert whole
    counts = {(row["column"], row["cluster"]): row["rows"] for row in rows}
    assert int(counts["ca", "A"]) < int(counts["age", "A"]) - 50
    assert all(cell == REDACTED or int(cell) % 5 == 0 for _, _, cell in counts_of(files))
    assert all(cell in (REDACTED, "0") or int(cell) >= 8 for _, _, cell in counts_of(files))
    assert "stay missing" in files["context.txt"]


# ---------------------------------------------------------------- laws


def random_counts(rng):
    shape = rng.integers(1, 6), rng.integers(1, 6)
    return np.floor(rng.exponential(rng.choice([3.0, 15.0, 80.0]), shape)) * (rng.random(shape) > 0.15)


def test_nothing_small_is_disclosed_or_computable_from_totals(tables):
    """Even for someone who knows every true total and the disclosed counts before rounding."""
    protected = computable = 0
    for seed in range(tables // 2):
        rng = np.random.default_rng(seed)
        counts = random_counts(rng)
        rule = PRESETS[("opensafely", "cms", "datashield", "utility-15-15")[seed % 4]]
        released = Counts.from_counts(counts, rule)
        assert not (released.values % 5).any()
        assert ((released.values == 0) | (released.values >= rule.min_people)).all()
        assert (np.abs(released.values - counts)[released.disclosed] <= 2.5).all()
        for j in range(counts.shape[1]):
            assert released.total(j) in (REDACTED, f"{released.values[:, j].sum():.0f}")
        suppressed = ~released.disclosed & (counts > 0)
        rows, columns = counts.shape
        places = np.argwhere(suppressed)
        totals = np.zeros((rows + columns, len(places)))
        totals[places[:, 0], np.arange(len(places))] = 1
        totals[rows + places[:, 1], np.arange(len(places))] = 1
        rank = np.linalg.matrix_rank(totals) if len(places) else 0
        for at, (i, j) in enumerate(places.tolist()):
            alone = np.zeros((1, len(places)))
            alone[0, at] = 1
            known = bool(np.linalg.matrix_rank(np.concatenate([totals, alone])) == rank)
            assert known == is_derivable(suppressed, i, j), "the program's search and linear algebra disagree"
            small = min(counts[i, j], 5 * np.floor(counts[i, j] / 5 + 0.5)) < rule.min_people
            others = released.disclosed & (counts > 0)
            if known and small:  # only if nothing is left that could be suppressed with it
                assert not others[i].any()
                assert not others[:, j].any()
                computable += 1
            protected += small and not known
    assert protected > tables / 8
    assert computable < protected


def test_a_bound_on_shares_is_never_below_the_max_share(tables):
    rng = np.random.default_rng(5)
    near = 0
    for _ in range(tables):
        x = np.exp(rng.normal(0, rng.choice([0.1, 1.0, 3.0]), rng.integers(2, 60)))
        if rng.random() < 0.3:
            x = np.where(rng.random(len(x)) < 0.2, -x, x)
        true = np.abs(x).max() / np.abs(x).sum()
        bound = max_share(len(x), x.mean(), x.std())
        assert bound >= true * (1 - 1e-9)
        near += bound < 2 * true
    assert near > tables / 4, "the bound is so wide that it says nothing"


CODINGS = (
    (0.0, 1.0),
    (1.0, 2.0),
    (-1.0, 1.0),
    (0.0, 2.0),
    (3.0, 7.0),
    (0.5, 1.25),
    (-40.0, 1e5),
    (2015, 2016),
)


def moments(clusters):
    """Mean, deviation and number of the values of each cluster."""
    return np.array([[x.mean(), x.std(), len(x)] for x in clusters]).T


@pytest.mark.parametrize("filled", [False, True])
def test_a_binary_column_is_detected_in_any_coding_and_its_people_are_counted(filled, tables):
    for seed in range(tables // 10):
        rng = np.random.default_rng([seed, filled])
        low, high = CODINGS[seed % len(CODINGS)]
        k = int(rng.integers(1, 5))
        highs = [rng.random(rng.integers(30, 300)) < rng.choice([0.02, 0.1, 0.5, 0.97]) for _ in range(k)]
        missing = [(rng.random(len(x)) < 0.1) & filled for x in highs]
        clusters = [np.where(x, high, low) for x in highs]
        some = np.concatenate([x[~gone] for x, gone in zip(clusters, missing, strict=True)])
        if some.min() == some.max():
            continue
        fill = some.mean()
        clusters = [np.where(gone, fill, x) for x, gone in zip(clusters, missing, strict=True)]
        found = binary_from_rows(*moments(clusters), fill, sum(int(gone.sum()) for gone in missing))
        true = [two for two in found if np.allclose(two[:2], (low, high))]
        assert len(true) == 1, (seed, low, high)
        assert true[0].highs.tolist() == [(x & ~gone).sum() for x, gone in zip(highs, missing, strict=True)]
        assert true[0].lows.tolist() == [(~x & ~gone).sum() for x, gone in zip(highs, missing, strict=True)]
        assert k == 1 or len(found) == 1


def test_a_column_of_more_values_counts_as_binary_only_by_chance_and_in_one_cluster(tables):
    wrong = {True: 0, False: 0}  # by whether there is one cluster
    tried = {True: 0, False: 0}
    for seed in range(tables // 5):
        rng = np.random.default_rng([seed, 7])
        sizes = rng.integers(20, 300, rng.integers(1, 5))
        ages = [np.rint(rng.normal(rng.uniform(30, 70), 9, n)) for n in sizes]
        scores = [rng.integers(0, 4, n).astype(float) for n in sizes]
        for column in (ages, scores, [rng.random(n) for n in sizes]):
            wrong[len(sizes) == 1] += bool(binary_from_rows(*moments(column)))
            tried[len(sizes) == 1] += 1
        means, spreads, sizes = moments(ages)
        assert not binary_from_summaries(means, 0.8 * spreads**2, 15.0, sizes, known=True)
    assert wrong[False] <= tried[False] / 200
    assert wrong[True] <= tried[True] / 20


def coded(home, protect):
    """The release of two clusters of 120, in which columns of two values have 3 and 40 of the higher one."""
    rng, home = np.random.default_rng(8), home / protect
    home.mkdir()
    there = np.zeros(240, dtype=bool)
    there[:3], there[120:160] = True, True
    columns = [rng.normal(size=240) + 50 * (np.arange(240) >= 120), rng.normal(size=240)]
    columns += [np.where(there, high, low) for low, high in CODINGS[:5]]
    names = ["x", "y", *(f"b{i}" for i in range(5))]
    np.savetxt(home / "a.csv", np.column_stack(columns), delimiter=",", header=",".join(names), comments="")
    words = ("--protect", protect, "--columns", ",".join(names), "--scale", "none", "-k", 2, "--restarts", 1)
    size = ("--min-group-size", 5) if protect == "summary" else ()  # a number that divides 120
    code, output = call("fit", home / "a.csv", *words, *size, "--out", home / "run")
    assert code == 0, output
    code, output = call("release", home / "run", "--preset", "opensafely", "--out", home / "out")
    assert code == 0, output
    text = (home / "out" / "profiles.csv").read_text()
    return {(row["column"], row["cluster"]): row for row in rows_of(text)}, home / "out"


@pytest.mark.parametrize("protect", ["none", "summary"])
def test_no_mean_discloses_that_three_people_have_the_other_of_two_values(tmp_path, protect):
    rows, out = coded(tmp_path, protect)
    for i, (low, high) in enumerate(CODINGS[:5]):
        cells = [rows[f"b{i}", cluster] for cluster in "AB"]
        few, many = sorted(cells, key=lambda row: row["value"] != REDACTED)
        assert (few["value"], few["standard_deviation"]) == (REDACTED, REDACTED), few
        assert few["kind"] == many["kind"] == ("rate" if i == 0 else "mean")
        assert many["standard_deviation"] == ""
        share = (float(many["value"]) - low) / (high - low)
        assert share == pytest.approx(40 / 120, abs=0.006)
        everybody = rows[f"b{i}", "all disclosed"]
        unit = "people" if protect == "summary" else "rows"
        assert everybody[unit] == many[unit], "redacted people are not counted"
    assert rows["x", "A"]["standard_deviation"] not in ("", REDACTED)
    drawn = {e.text for e in ElementTree.fromstring((out / "profiles.svg").read_text()).iter() if e.text}
    assert {row["value"] for (_, cluster), row in rows.items() if cluster in "AB"} <= {*drawn, REDACTED}


def test_a_breach_in_a_written_table_is_named():
    table = ReleaseTable(
        "", ("site", "rows"), [("a", "10"), ("b", "5"), ("c", "12"), ("d", REDACTED)], ("rows",)
    )
    assert breaches({"t.csv": table}, OPENSAFELY) == ["t.csv: rows of b is 5", "t.csv: rows of c is 12"]


# ---------------------------------------------------------------- other runs, other presets, refusals


def write_rows(path, X, names="x,y"):
    np.savetxt(path, X, delimiter=",", header=names, comments="", fmt="%.5f")


def fitted(home, name, tables, *words, k=2):
    home.mkdir(exist_ok=True)
    for site, X in tables.items():
        write_rows(home / f"{site}.csv", X)
    paths = [home / f"{site}.csv" for site in tables]
    code, output = call("fit", *paths, "-k", k, "--restarts", 1, "--out", home / name, *words)
    assert code == 0, output
    return home / name


def two(seed, n=60, m=60):
    rng = np.random.default_rng(seed)
    X = np.concatenate([rng.normal(size=(n, 2)), rng.normal(size=(m, 2)) + 8])
    return {"east": X[::2], "west": X[1::2]}


def test_a_cluster_that_is_too_small_is_refused_and_named(tmp_path):
    run = fitted(tmp_path, "run", two(1, 60, 6))
    output = refused("release", run, "--preset", "opensafely", "--out", tmp_path / "out")
    assert "cluster B has 6 rows; opensafely discloses no number about fewer than 8" in output
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "releases.jsonl").exists()
    assert call("release", run, "--preset", "datashield", "--out", tmp_path / "out")[0] == 0
    run = fitted(tmp_path / "twelve", "run", two(1, 60, 12))
    output = refused("release", run, "--preset", "cms", "--out", tmp_path / "twelve" / "out")
    assert "cluster B has 12 rows (rounded 10); cms discloses no number about fewer than 11" in output


def test_a_second_release_that_differs_by_few_people_is_refused(tmp_path):
    tables = two(2)
    first = fitted(tmp_path, "first", tables)
    assert call("release", first, "--preset", "opensafely", "--out", tmp_path / "a")[0] == 0
    code, output = call("release", first, "--preset", "opensafely", "--out", tmp_path / "again")
    assert code == 0
    assert "has the same numbers, from the same run" in (tmp_path / "again" / "context.txt").read_text()
    assert (tmp_path / "a" / "profiles.csv").read_bytes() == (
        tmp_path / "again" / "profiles.csv"
    ).read_bytes()
    output = refused("release", first, "--preset", "cms", "--out", tmp_path / "b")
    assert "this run was released under preset opensafely" in output

    fewer = fitted(tmp_path, "fewer", {**tables, "west": tables["west"][3:]})
    output = refused("release", fewer, "--preset", "opensafely", "--out", tmp_path / "b")
    assert "site west has 57 people here and 60 in release a (opensafely): a difference of 3" in output
    assert not (tmp_path / "b").exists()

    other = fitted(tmp_path, "other", {**tables, "west": tables["west"][5:-5]}, "--seed", 3)
    code, output = call("release", other, "--preset", "opensafely", "--out", tmp_path / "b")
    assert code == 0
    context = (tmp_path / "b" / "context.txt").read_text()
    assert "release a of " in context
    assert "equal in both, or differ by at least 8" in context
    assert "The check compares numbers, not identities" in context
    assert "warning: cluster" in output, "the clusters are 5 smaller"
    assert "To be checked" in context


def test_an_earlier_release_under_a_stricter_preset_keeps_its_threshold():
    """6 people more: datashield alone would disclose that, cms does not."""
    old = ReleaseEntry("p", "2026-01-02", "p", "cms", {"a": 50.0, "b": 90.0}, 140.0, (140.0,), ("x",))
    new = replace(old, name="q", run="q", preset="datashield", sites={"a": 56.0, "b": 90.0}, used=146.0)
    with pytest.raises(InputError, match=r"56 people here and 50 in release p \(cms\): a difference of 6"):
        relation(new, [old], PRESETS["datashield"])
    with pytest.raises(InputError, match="nothing about fewer than 11"):
        relation(old, [new], PRESETS["cms"])
    larger = replace(new, sites={"a": 61.0, "b": 90.0}, used=151.0)
    (relation_text,), _ = relation(larger, [old], PRESETS["datashield"])
    assert "by at least 11" in relation_text


def test_a_release_with_as_many_but_other_people_gives_a_warning(tmp_path):
    """Two people leave and two come: no number differs."""
    tables = two(3)
    assert call("release", fitted(tmp_path, "a", tables), "--preset", "cms", "--out", tmp_path / "ra")[0] == 0
    code, output = call("release", fitted(tmp_path, "b", tables), "--preset", "cms", "--out", tmp_path / "rb")
    assert (code, "warning" in output) == (0, False), "the same rows, in another run"
    tables["west"][:2] += 0.5
    code, output = call("release", fitted(tmp_path, "c", tables), "--preset", "cms", "--out", tmp_path / "rc")
    assert code == 0
    assert "all sites together (x, y), as many people as in release ra but other values" in output
    assert "other values" in (tmp_path / "rc" / "context.txt").read_text()
    old = ReleaseEntry("p", "2026-01-02", "p", "cms", {"a": 50.0}, 50.0, (50.0,), ("x",), {"a": "2026-01-01"})
    _, warnings = relation(replace(old, run="q", summary_dates={"a": "2026-02-01"}), [old], PRESETS["cms"])
    assert "a: a summary table of another day, as many people as in release p" in warnings[0]


def test_a_release_that_was_noted_meanwhile_is_not_lost(tmp_path):
    entries = [
        ReleaseEntry(name, "2026-01-02", name, "cms", {"a": 50.0}, 50.0, (50.0,), ("x",)) for name in "pqr"
    ]
    add(tmp_path / "register", entries[:1])
    add(tmp_path / "register", entries[:2])
    with pytest.raises(InputError, match="another release was noted meanwhile"):
        add(tmp_path / "register", [entries[0], entries[2]])
    assert read(tmp_path / "register") == entries[:2]


def test_the_dominance_rule_applies_to_a_column_of_consumption(tmp_path):
    rng = np.random.default_rng(3)
    heavy = {s: np.column_stack([np.exp(rng.normal(3, 2.0, 100)), rng.normal(size=100)]) for s in "ab"}
    run = fitted(tmp_path, "run", heavy, k=1)
    words = ("release", run, "--preset", "utility-15-15", "--out", tmp_path / "out")
    assert "needs --consumption" in refused(*words)
    assert "there is no column 'z'; columns are x, y" in refused(*words, "--consumption", "z")
    output = refused(*words, "--consumption", "x")
    assert "of its total of x" in output
    assert "utility-15-15 allows 15%" in output
    assert call(*words, "--consumption", "y")[0] == 1  # its mean is near 0: a share of the total is unbounded
    summarized = fitted(
        tmp_path,
        "summarized",
        heavy,
        "--protect",
        "summary",
        "--consumption",
        "x",
        "--min-group-size",
        15,
        k=1,
    )
    code, output = call("release", summarized, "--preset", "utility-15-15", "--out", tmp_path / "out")
    assert code == 0, output
    assert "more than 15%" in (tmp_path / "out" / "context.txt").read_text()


def test_a_run_with_differential_privacy_is_released_under_strict(tmp_path):
    run = fitted(
        tmp_path, "noisy", {s: np.random.default_rng(i).uniform(0, 9, (3000, 2)) for i, s in enumerate("ab")},
        "--epsilon", 5, "--bounds", "x=0:9", "--bounds", "y=0:9",
    )  # fmt: skip
    assert "under --preset strict" in refused("release", run, "--preset", "cms", "--out", tmp_path / "out")
    assert call("release", run, "--preset", "strict", "--out", tmp_path / "out")[0] == 0
    rows = rows_of((tmp_path / "out" / "clusters.csv").read_text())
    assert all(int(row["rows"]) % 5 == 0 for row in rows)


def test_wrong_inputs_are_one_line_and_write_nothing(heart, files, tmp_path):
    out = tmp_path / "out"
    assert "unknown preset 'x'" in refused("release", heart, "--preset", "x", "--out", out)
    assert "no such folder" in refused("release", tmp_path / "none", "--preset", "cms", "--out", out)
    assert "not the folder of a run" in refused("release", tmp_path, "--preset", "cms", "--out", out)
    assert "releases noisy numbers only" in refused("release", heart, "--preset", "strict", "--out", out)
    assert "already exists. Use --overwrite to replace it." in refused(
        "release", heart, "--preset", "opensafely", "--out", heart.parent / "release"
    )
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("mine")
    assert "is not empty, and not the folder of a release" in refused(
        "release", heart, "--preset", "opensafely", "--out", full, "--overwrite"
    )
    broken = tmp_path / "register"
    broken.write_text("{}\n")
    words = ("release", heart, "--preset", "opensafely", "--out", out, "--register", broken)
    assert "line 1: not an entry of a register" in refused(*words)
    words = ("release", heart, "--preset", "opensafely", "--out", out, "--register", full)
    assert "not a register of releases" in refused(*words)
    words = ("release", heart, "--preset", "opensafely", "--out", out, "--register", tmp_path / "no" / "r")
    assert "there is no folder" in refused(*words)
    assert not out.exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["full", "register"]
