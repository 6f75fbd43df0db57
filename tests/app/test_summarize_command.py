"""``unpooled site summarize``, ``review``, ``approve`` and ``erase``: from a CSV to an approved table."""

import csv
import json
import socket

import numpy as np
import pytest
from tests.data.people_tables import parkinsons
from typer.testing import CliRunner

from unpooled.app.cli import app
from unpooled.app.pages import dpia
from unpooled.data import Table
from unpooled.errors import InputError
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.privacy.microaggregation.people import People
from unpooled.site.table_store import SECOND_TABLE, SummaryFolder

ONE = "--one-row-per-person"


def call(*words):
    outcome = CliRunner().invoke(app, [str(word) for word in words])
    if outcome.exception is not None and not isinstance(outcome.exception, SystemExit):
        raise outcome.exception
    return outcome.exit_code, outcome.stdout, outcome.stderr


@pytest.fixture
def patients(tmp_path):
    """200 patients with 1 to 5 visits each."""
    rng = np.random.default_rng(0)
    lines = ["patient,age,pay,smoker"]
    for p in range(200):
        old = rng.random() < 0.4
        for _ in range(rng.integers(1, 6)):
            age = rng.normal(70 if old else 35, 5)
            lines.append(f"P{p:04d},{age:.0f},{np.exp(rng.normal(8, 1)):.2f},{rng.choice(['yes', 'no'])}")
    path = tmp_path / "patients.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_from_a_file_to_an_approved_summary_table(patients, tmp_path, monkeypatch):
    """And nothing leaves this machine: no connection is opened."""
    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(
            socket.socket, name, property(lambda _: pytest.fail("a connection")), raising=False
        )
    site = tmp_path / "north"
    code, printed, _ = call(
        "site",
        "summarize",
        "--no-sensitive-columns",
        site,
        "--data",
        patients,
        "--person",
        "patient",
        "--log-transform",
        "pay",
    )
    assert code == 0
    assert "200 people in" in printed
    assert f"written: {site / 'summary' / 'page.html'}: open it to review the table" in printed
    code, printed, _ = call("site", "review", site, "--html", tmp_path / "page.html")
    assert code == 0
    assert "not approved yet" in printed
    assert "<table>" in (tmp_path / "page.html").read_text()
    assert call("site", "approve", "--table", "--yes", site, "--by", "officer")[0] == 0
    assert SummaryFolder(site).approved
    assert call("site", "review", site, "--csv", tmp_path / "table.csv")[0] == 0
    text = (tmp_path / "table.csv").read_text()
    assert text == (site / "summary" / "table.csv").read_text()
    assert "patient" not in text
    assert "log(pay)" in text.splitlines()[0]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--data", "nothing.csv"), "no such file"),
        (("--person", "nobody"), "no column 'nobody'"),
        (("--person", "patient", "--exclude", "patient"), "must be read to tell people apart"),
        (("--person", "patient", "--study-columns", "weight"), "no column 'weight'"),
        (("--person", "patient", "--log-transform", "smoker"), "has no numbers, so it has no logarithm"),
        (("--min-group-size", 2), "at least 3"),
        (("--study-columns", "age", "--sensitive", "age"), "both"),
        (
            (),
            "which rows belong to one person. These columns seem to identify people: patient (200 ",
        ),
        (
            ("--log-transform", "pay"),
            "Use --person patient to combine the rows of a person, or --one-row-per-person if",
        ),
        (("--one-row-per-person",), "seem to identify people: patient (200 different values in"),
        (
            ("--one-row-per-person", "--person", "patient"),
            "Declare only one of person and one_row_per_person",
        ),
    ],
)
def test_an_error_is_one_line_and_nothing_is_written(patients, tmp_path, words, says):
    site = tmp_path / "north"
    more = () if "--data" in words else ("--data", patients)
    code, out, err = call("site", "summarize", "--no-sensitive-columns", site, *more, *words)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert says in err
    assert not site.exists()


def rows_of(path, *columns):
    """A file of 60 rows of columns, each a function of the row's number."""
    names = ",".join(name for name, _ in columns)
    rows = (",".join(str(value(i)) for _, value in columns) for i in range(60))
    path.write_text(
        "\n".join([f"{names},age", *(f"{row},{40 + i % 23}" for i, row in enumerate(rows))]) + "\n"
    )
    return path


@pytest.mark.parametrize("name", ["patient_id", "PatientID", "pat_nr", "mrn", "id"])
@pytest.mark.parametrize("spelt", ["{}", "P{}", "00{}"], ids=["numbers", "texts", "codes"])
def test_ids_of_people_that_repeat_are_refused_without_person(tmp_path, name, spelt):
    path = rows_of(tmp_path / "a.csv", (name, lambda i: spelt.format(100 + i % 50)))
    for words in ((), ("--one-row-per-person",)):
        code, _, err = call(
            "site", "summarize", "--no-sensitive-columns", tmp_path / "n", "--data", path, *words
        )
        assert code == 1
        assert f"{name} (50 different values in 60 rows" in err
        assert f"--person {name} " in err
    words = ("--no-sensitive-columns", "--data", path)
    assert "50 people" in call("site", "summarize", tmp_path / "n", *words, "--person", name)[1]
    words = (*words, "--exclude", name, ONE, "--allow-second-folder")
    assert "60 people" in call("site", "summarize", tmp_path / "s", *words)[1]


def test_other_columns_are_not_taken_for_ids_of_people(tmp_path):
    columns = (("ward_id", lambda i: i % 4), ("subject", lambda i: "abc"[i % 3]), ("nr", lambda i: 900 - i))
    path = rows_of(tmp_path / "a.csv", *columns, ("patient_id", lambda i: 100 + i))
    code, _, err = call("site", "summarize", "--no-sensitive-columns", tmp_path / "n", "--data", path, ONE)
    assert (code, "--person" in err) == (0, False)


def test_a_column_of_different_texts_is_a_question(tmp_path):
    path = rows_of(tmp_path / "b.csv", ("surname", lambda i: f"N{i % 50}"))
    code, _, err = call("site", "summarize", "--no-sensitive-columns", tmp_path / "s", "--data", path, ONE)
    assert code == 1
    assert "column surname (50 different texts in 60 rows) may hold names, ids or remarks" in err
    assert "--person surname if it identifies people, --exclude surname to leave it out" in err
    assert not (tmp_path / "s").exists()
    for words, people in (
        (("--person", "surname"), "50 people"),
        ((ONE, "--exclude", "surname"), "60 people"),
        ((ONE, "--categorical", "surname"), "60 people"),
    ):
        code, printed, _ = call(
            "site", "summarize", "--no-sensitive-columns", tmp_path / "s", "--data", path, *words
        )
        assert (code, people in printed) == (0, True)


def test_a_second_table_and_policies_without_one(patients, tmp_path):
    site, words = tmp_path / "north", ("--data", patients, "--person", "patient")
    assert call("site", "summarize", "--no-sensitive-columns", site, *words)[0] == 0
    assert call("site", "approve", site, "--table", "--yes")[0] == 0
    code, _, err = call("site", "summarize", "--no-sensitive-columns", site, *words, "--min-group-size", 9)
    assert code == 1
    assert SECOND_TABLE in err
    assert (
        call("site", "summarize", "--no-sensitive-columns", site, *words, "--second-table", SECOND_TABLE)[0]
        == 0
    )
    policy = tmp_path / "raw.toml"
    policy.write_text('format = 1\n[protect]\nmode = "raw"\n')
    code, _, err = call(
        "site",
        "summarize",
        "--no-sensitive-columns",
        tmp_path / "south",
        "--data",
        patients,
        "--policy",
        policy,
    )
    assert code == 1
    assert "such a site has no summary table" in err
    (tmp_path / "empty").mkdir()
    code, _, err = call("site", "approve", tmp_path / "empty", "--table", "--yes")
    assert (code, "there is no summary table" in err) == (1, True)
    code, _, err = call("site", "review", tmp_path / "empty", "--html", tmp_path / "page.html")
    assert (code, "not the folder of a site" in err) == (1, True)


def test_the_policy_sets_how_a_table_is_made_and_no_option_loosens_it(patients, tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text(
        'format = 1\n[protect]\nperson = "patient"\nmin_group_size = 8\nsensitive = ["smoker"]\n'
    )
    site = tmp_path / "north"
    assert (
        call(
            "site",
            "summarize",
            site,
            "--data",
            patients,
            "--policy",
            policy,
            "--min-group-size",
            6,
        )[0]
        == 0
    )
    settings = SummaryFolder(site).settings()
    assert (settings.min_group_size, settings.person, settings.sensitive) == (8, "patient", ("smoker",))
    words = ("--data", patients, "--policy", policy, "--person", "smoker")
    code, _, err = call("site", "summarize", tmp_path / "south", *words)
    assert code == 1
    assert "--person: the policy has [protect] person = 'patient'" in err


def test_a_rehearsal_makes_the_summary_table_of_each_file(patients, tmp_path):
    """``fit --protect summary`` makes the same tables as ``site summarize``: the same people and groups."""
    out = tmp_path / "run"
    words = ("--protect", "summary", "--person", "patient", "-k", 2, "--out", out)
    code, printed, _ = call("fit", patients, *words)
    assert code == 0
    assert "200 people at 1 site" in " ".join(printed.split())
    result = json.loads((out / "result.json").read_text())
    assert result["sites"][0]["protection"] == "summary"
    assert result["inertia_estimated_for_rows"] > result["inertia"]
    assert "its summary table of" in (out / "report.html").read_text()


def test_options_of_a_summary_table_need_one(patients):
    code, _, err = call("fit", patients, "-k", 2, "--person", "patient")
    assert code == 1
    assert "--protect summary" in err
    code, _, err = call("fit", patients, "-k", 2, "--protect", "dp")
    assert code == 1
    assert "protect must be one of none, summary, raw" in err


def test_a_minimum_cluster_size_without_raw_rows_has_no_effect(patients):
    code, _, err = call("fit", patients, "-k", 2, "--exclude", "patient", "--min-cluster-size", 5)
    assert code == 0
    assert "has no effect without --protect raw" in err


def test_a_column_of_logarithms_keeps_its_meaning_in_a_study(patients):
    words = (
        "--protect",
        "summary",
        "--person",
        "patient",
        "--log-transform",
        "pay",
        "--columns",
        "age,pay",
        "--json",
    )
    code, printed, _ = call("fit", patients, "-k", 2, *words)
    assert code == 0
    assert json.loads(printed)["columns"] == ["age", "log(pay)"]


def test_a_table_of_a_messy_file_names_the_columns_without_cells(tmp_path):
    rng = np.random.default_rng(0)
    sizes, days, sexes = rng.integers(70, 79, 40), rng.integers(1, 29, 40), rng.choice(list("MmWw"), 40)
    cells = zip(range(1, 41), sizes, days, sexes, strict=True)
    rows = "".join(f"{nr};{size},5;{day:02}.03.2024;{sex}\n" for nr, size, day, sex in cells)
    (tmp_path / "a.csv").write_bytes(("nr;größe;aufnahme;sex\n" + rows).encode("cp1252"))
    words = [
        "site",
        "summarize",
        str(tmp_path / "site"),
        "--data",
        str(tmp_path / "a.csv"),
        ONE,
        "--no-sensitive-columns",
        "--recode",
        "sex:M=m,W=w",
    ]
    for recode, wrong in (
        ("sex:M=m,F=w", "--recode sex:F=w: no row has F in column sex"),
        ("a:M=m", "column a;"),
    ):
        done = CliRunner().invoke(app, [*words[:-1], recode])
        assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
        assert wrong in done.stderr
        assert not (tmp_path / "site").exists()
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.stderr
    assert "columns without cells in the summary table: nr (id), aufnahme (date)" in done.stdout
    head, *groups = (tmp_path / "site/summary/table.csv").read_text(encoding="utf-8").splitlines()
    assert head == "people in the group,größe,sex = m,sex = w"
    assert sum(int(line.split(",")[0]) for line in groups) == 40


NAMED = (ONE, "--categorical", "surname")


def cases(path, *, sex=lambda i: "fm"[i % 2]):
    """120 people of two kinds, with names, dates of birth, and a column of 0 and 1."""
    lines = ["surname,birth,age,sex,hiv"]
    for i in range(120):
        lines.append(f"N{i},19{50 + i % 40}-03-{1 + i % 28:02},{70 if i < 60 else 35},{sex(i)},{int(i < 60)}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_reason_why_a_column_has_no_cells_is_the_right_one(tmp_path):
    site = tmp_path / "north"
    _, printed, _ = call(
        "site", "summarize", "--no-sensitive-columns", site, "--data", cases(tmp_path / "a.csv"), *NAMED
    )
    assert "columns without cells in the summary table: surname (text), birth (date)\n" in printed
    assert "--numbers" not in printed  # helps with neither of them
    assert "if a date matters, add a column of numbers to the file" in printed
    facts = call("site", "review", site, "--html", tmp_path / "page.html")[1]
    assert "suppressed, because they are dates: birth." in facts
    assert "have a value in these columns, because no value is shared by 5 people: surname." in facts
    assert "too few people share" not in facts
    costs = (tmp_path / "page.html").read_text().split(">Cost<")[1].split("</section>")[0]
    assert "age" in costs
    assert "surname" not in costs


def test_rare_categories_that_count_as_the_most_common_one_are_named(tmp_path):
    site, words = tmp_path / "north", ("site", "review", tmp_path / "north", "--html", tmp_path / "page.html")
    path = cases(tmp_path / "a.csv", sex=lambda i: "x" if i in (3, 70) else "fm"[i % 2])
    printed = call("site", "summarize", "--no-sensitive-columns", site, "--data", path, *NAMED)[1]
    assert "rare categories count as the most common one: sex (2 people)" in printed
    sentence = "by column) count under the most common category, not under other, in: sex."
    assert sentence in call(*words)[1]
    assert sentence in (tmp_path / "page.html").read_text()
    assert sentence in dpia.page(dpia.read(site))
    (site / "summary" / "notes.json").unlink()  # an update has none
    assert "This may be the case in: sex." in call(*words, "--overwrite")[1]
    call(
        "site",
        "summarize",
        "--no-sensitive-columns",
        tmp_path / "south",
        "--data",
        cases(tmp_path / "b.csv"),
        *NAMED,
    )
    assert (
        "most common category"
        not in call("site", "review", tmp_path / "south", "--html", tmp_path / "south.html")[1]
    )


def test_groups_that_are_alike_in_a_column_are_reported_with_the_remedy(tmp_path):
    path = cases(tmp_path / "a.csv")
    call("site", "summarize", "--no-sensitive-columns", tmp_path / "north", "--data", path, *NAMED)
    groups = len(SummaryFolder(tmp_path / "north").read())
    facts = call("site", "review", tmp_path / "north", "--html", tmp_path / "page.html")[1]
    assert f"hiv ({groups} groups)" in facts
    assert "--diverse COLUMN (e.g. " in facts
    call("site", "summarize", tmp_path / "south", "--data", path, "--sensitive", "sex,hiv", *NAMED)
    facts = call("site", "review", tmp_path / "south", "--html", tmp_path / "south.html")[1]
    assert "--sensitive COLUMN" not in facts


def changed(patients):
    """The file a month later: 6 patients left, 30 are new."""
    rng = np.random.default_rng(1)
    head, *lines = patients.read_text().splitlines()
    kept = [line for line in lines if int(line[1:5]) >= 6]
    new = [f"P{p:04d},{rng.normal(50, 15):.0f},{np.exp(rng.normal(8, 1)):.2f},no" for p in range(200, 230)]
    patients.write_text("\n".join([head, *kept, *new]) + "\n")


def test_an_update_from_a_changed_file_forecasts_the_state_of_everybody(patients, tmp_path):
    site, who = tmp_path / "north", tmp_path / "who.csv"
    words = ("--person", "patient", "--log-transform", "pay", "--exclude", "smoker")
    assert call("site", "summarize", "--no-sensitive-columns", site, "--data", patients, *words)[0] == 0
    code, _, err = call("site", "summarize", "--no-sensitive-columns", site, "--data", patients)
    assert code == 1
    assert "nobody declared which rows belong to one person" in err  # it would be made anew
    assert call("site", "approve", "--table", "--yes", site)[0] == 0
    code, printed, _ = call("site", "summarize", "--no-sensitive-columns", site, "--data", patients)
    assert code == 0
    assert "Nothing changes" in printed
    before = (site / "summary" / "table.csv").read_text()
    changed(patients)
    code, printed, _ = call(
        "site",
        "summarize",
        "--no-sensitive-columns",
        site,
        "--data",
        patients,
        "--people-out",
        who,
        "--extra-spread",
        1,
    )
    assert code == 0
    table = {line[:40].strip(): line[40:].split() for line in printed.splitlines()}
    assert table["in the file"] == ["224"]
    assert table["left since they were disclosed"] == ["6"]
    assert table["changed since they were disclosed"] == ["0"]  # read by the settings of the first time
    states = [state for _, state in csv.reader(who.read_text().splitlines()[1:])]
    assert len(states) == 224
    for state in set(states):
        assert table[state][0] == str(states.count(state))
    disclosed = sum(states.count(s) for s in ("still disclosed", "disclosed again", "newly disclosed"))
    assert table["people of the file who are disclosed"][1] == f"{disclosed / 224:.1%}"
    assert (site / "summary" / "table.csv").read_text() == before
    code, printed, _ = call("site", "review", site, "--html", tmp_path / "page.html")
    assert "not approved yet: the site answers from the old table" in printed
    update = (tmp_path / "page.html").read_text()
    assert "the site answers from the old" in update
    assert call("site", "review", site, "--current", "--html", tmp_path / "current.html")[0] == 0
    assert "the site answers from the old" not in (tmp_path / "current.html").read_text()
    assert call("site", "review", site, "--current", "--csv", tmp_path / "current.csv")[0] == 0
    assert (tmp_path / "current.csv").read_text() == before
    assert call("site", "review", site, "--csv", tmp_path / "update.csv")[0] == 0
    assert (tmp_path / "update.csv").read_text() == (site / "renewal" / "table.csv").read_text() != before
    assert call("site", "approve", "--table", "--yes", site)[0] == 0
    assert (site / "summary" / "table.csv").read_text() != before
    assert SummaryFolder(site).read().people.sum() == disclosed
    assert (site / "summary" / "table.csv").read_text() == (tmp_path / "update.csv").read_text()
    printed = call("site", "review", site, "--html", tmp_path / "page.html", "--overwrite")[1]
    assert "answers from the old" not in printed
    assert printed.splitlines()[-2] == "approved"


def test_somebody_is_erased_by_a_command(patients, tmp_path):
    site = tmp_path / "north"
    call("site", "summarize", "--no-sensitive-columns", site, "--data", patients, "--person", "patient")
    call("site", "approve", "--table", "--yes", site)
    before = SummaryFolder(site).digest
    for wrong, says in (
        ("P9999", "never disclosed, so not known here: P9999"),
        ("", "an id is empty"),
        (" ", "an id is empty"),
    ):
        code, printed, err = call("site", "erase", "--yes", site, "P0003", wrong)
        assert (code, printed, err.count("\n")) == (1, "", 1)
        assert says in err
    assert SummaryFolder(site).digest == before
    assert not (site / "erasures.json").exists()
    code, printed, _ = call("site", "erase", "--yes", site, "P0003", "P9999", "P0003", "--block-unknown")
    assert code == 0
    assert "erased: 1 person; withdrawn: 1 group with " in printed
    assert "blocked: P9999, of whom nothing was ever disclosed" in printed
    code, printed, _ = call("site", "erase", "--yes", site, "P9998", "--block-unknown")
    assert (code, "erased:" in printed) == (0, False)
    code, printed, _ = call("site", "summarize", "--no-sensitive-columns", site, "--data", patients)
    assert code == 0
    assert "erased, and still in the file                  1" in printed
    assert "deleted" not in call("site", "prune", site, "--before", "2000-01-01")[1]


@pytest.mark.parametrize("command", [("summarize", "--data"), ("erase", "--yes")])
def test_without_ids_of_people_nothing_is_updated_or_erased(patients, tmp_path, command):
    site = tmp_path / "north"
    assert (
        "cannot be updated"
        in call(
            "site",
            "summarize",
            "--no-sensitive-columns",
            site,
            "--data",
            patients,
            "--exclude",
            "patient",
            ONE,
        )[1]
    )
    call("site", "approve", "--table", "--yes", site)
    code, _, err = call("site", command[0], site, *command[1:], patients)
    assert code == 1
    assert "its rows have no person column" in err
    assert err.count("\n") == 1


def test_many_people_are_recognised_by_their_ids_wherever_they_are_in_the_file(tmp_path):
    """More ids than a column has categories: they are not numbered by their place in the file."""
    rng, site, path = np.random.default_rng(1), tmp_path / "north", tmp_path / "patients.csv"
    lines = [f"P{p:05d},{rng.normal(70 if p % 3 else 35, 5):.1f}" for p in range(1200)]
    path.write_text("\n".join(["patient,age", *lines]) + "\n")
    call("site", "summarize", "--no-sensitive-columns", site, "--data", path, "--person", "patient")
    call("site", "approve", "--table", "--yes", site)
    path.write_text("\n".join(["patient,age", *reversed(lines[1:])]) + "\n")
    code, printed, _ = call("site", "summarize", "--no-sensitive-columns", site, "--data", path)
    assert code == 0
    table = {line[:40].strip(): line[40:].split() for line in printed.splitlines()}
    assert table["left since they were disclosed"] == ["1"]
    assert table["changed since they were disclosed"] == ["0"]
    assert "erased: 1 person" in call("site", "erase", "--yes", site, "P00700")[1]


def test_ids_that_were_not_kept_are_not_taken_for_others():
    table = Table(("who", "age"), ("text", "number"), {}, np.arange(4000.0).reshape(2000, 2))
    people = People(table, SummarySettings(person="who", no_sensitive_columns=True))
    assert people.count == 2000
    with pytest.raises(InputError, match="column who has many different texts, which were not kept"):
        _ = people.ids


# ---------------------------------------------------------------- the rows of one person


def parkinsons_file(path, *, name="subject#"):
    table = parkinsons()
    names = [name if one == "subject#" else one for one in table.names]
    np.savetxt(path, table.values, delimiter=",", header=",".join(names), comments="", fmt="%.8g")
    return path


@pytest.mark.parametrize("name", ["subject#", "code", "x"])
def test_visits_of_people_are_refused_whatever_the_id_is_called(name, tmp_path):
    path, site = parkinsons_file(tmp_path / "visits.csv", name=name), tmp_path / "north"
    for words in ((), (ONE,)):
        code, printed, err = call("site", "summarize", "--no-sensitive-columns", site, "--data", path, *words)
        assert (code, printed, err.count("\n")) == (1, "", 1)
        assert f"{name} (42 different values in 5508 rows, 131 rows each; within a value sex, age" in err
        assert f"--person {name} to combine the rows of a person" in err
        assert not site.exists()
    assert f"add --not-a-person {name}" in err
    code, printed, _ = call(
        "site", "summarize", "--no-sensitive-columns", site, "--data", path, "--person", name
    )
    assert (code, "42 people in" in printed) == (0, True)
    assert name not in (site / "summary" / "table.csv").read_text().splitlines()[0].split(",")
    page = call("site", "review", site, "--text")[1]
    assert f"The site declared that column {name} identifies people" in " ".join(page.split())


def test_without_the_id_the_visits_are_refused_all_the_same(tmp_path):
    path = parkinsons_file(tmp_path / "visits.csv")
    words = ("--data", path, ONE, "--exclude", "subject#")
    code, _, err = call("site", "summarize", "--no-sensitive-columns", tmp_path / "north", *words)
    assert code == 1
    assert "seem to identify people: age (22 different values in 5508 rows" in err


def test_the_officer_who_knows_better_declares_it_and_the_report_states_it(tmp_path):
    path, site = parkinsons_file(tmp_path / "visits.csv"), tmp_path / "north"
    words = ("--data", path, ONE, "--not-a-person", "subject#,age")
    assert call("site", "summarize", "--no-sensitive-columns", site, *words)[0] == 0
    settings = json.loads((site / "summary" / "about.json").read_text())["settings"]
    assert settings["one_row_per_person"] is True
    assert settings["not_a_person"] == ["subject#", "age"]
    assert call("site", "review", site, "--html", tmp_path / "page.html")[0] == 0
    for page in ((tmp_path / "page.html").read_text(), dpia.page(dpia.read(site))):
        assert "The site declared that every row is a different person." in page
        assert "nobody can be erased from the table" in page
        assert "The site declared that these columns do not identify people: subject#, age." in page


def test_other_ids_of_the_people_never_enter_a_table(tmp_path):
    rng, path, site = np.random.default_rng(0), tmp_path / "a.csv", tmp_path / "north"
    lines = ["who,insured,age,crp"]
    for i, insured in enumerate(rng.permutation(60)):
        lines += [f"P{i},{7000 + insured},{30 + i % 40},{rng.normal(5, 2):.2f}" for _ in range(3)]
    path.write_text("\n".join(lines) + "\n")
    code, printed, _ = call(
        "site", "summarize", "--no-sensitive-columns", site, "--data", path, "--person", "who"
    )
    assert code == 0
    assert "left out, because they identify people as who does: insured" in printed
    assert (site / "summary" / "table.csv").read_text().splitlines()[0] == "people in the group,age,crp"
    assert call("site", "approve", "--table", "--yes", site)[0] == 0
    assert "Nothing changes" in call("site", "summarize", "--no-sensitive-columns", site, "--data", path)[1]


def test_the_first_command_stops_where_ids_would_empty_the_table_and_is_repeated_freely(tmp_path):
    """The documented first command, on a file with an id; a table that nobody approved is made anew."""
    rng, path, site = np.random.default_rng(0), tmp_path / "a.csv", tmp_path / "north"
    rows = [
        f"N{i},K-{i:03d},{rng.normal(60, 9):.0f},{'' if i % 5 == 0 else round(rng.normal(130, 9))}"
        for i in range(180)
    ]
    path.write_text("\n".join(["name,patient,age,trestbps", *rows]) + "\n")
    words = ("site", "summarize", "--no-sensitive-columns", site, "--data", path, "--exclude", "name")
    code, _, err = call(*words, ONE)
    assert code == 1
    assert "column patient (180 different texts in 180 rows) may hold names, ids or remarks" in err
    assert "--person patient if it identifies people, --exclude patient to leave it out" in err
    assert call(*words, ONE, "--exclude", "name,patient")[0] == 0
    assert call(*words, "--person", "patient")[0] == 0
    assert sorted(one.name for one in site.iterdir() if "summary" in one.name) == ["summary"]
    assert SummaryFolder(site).settings().person == "patient"
    assert call("site", "approve", "--table", "--yes", site)[0] == 0
    code, _, err = call(*words, ONE)
    assert (code, SECOND_TABLE in err) == (1, True)


def test_a_rehearsal_warns_once_of_columns_that_identify_people(tmp_path):
    path = parkinsons_file(tmp_path / "visits.csv")
    words = ("fit", path, "-k", 2, "--restarts", 1, "--protect", "summary")
    code, _, err = call(*words)
    assert code == 0
    assert " ".join(err.split()).count("subject# (42 different values") == 1
    assert "--person" in err
    for more in (("--person", "subject#"), (ONE, "--not-a-person", "subject#,age")):
        code, _, err = call(*words, *more)
        assert (code, "identify people" in err) == (0, False)


def test_a_first_table_needs_its_sensitive_columns(tmp_path):
    path, site = cases(tmp_path / "a.csv"), tmp_path / "north"
    code, _, err = call("site", "summarize", site, "--data", path, *NAMED)
    assert code == 1
    assert "nobody declared which columns are sensitive" in err
    assert not site.exists()
    code, printed, _ = call("site", "summarize", site, "--data", path, "--diverse", "sex", *NAMED)
    assert code == 0
    text = (site / "summary" / "notes.json").read_text()
    page = call("site", "review", site, "--text")[1]
    for sentence in (
        "Attribute inference: someone who knows all other columns is right about sex for",
        "Singling",
    ):
        assert sentence in printed
        assert sentence in text
        assert sentence in page
    assert "The price of diverse values of sex" in printed
    assert "In no group is a value of sex more frequent than in the whole table by more than 30" in page
