"""Signed summary files: a federation by e-mail, and every file that a run must not use."""

import base64
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path, PureWindowsPath

import numpy as np
import pytest
from typer.testing import CliRunner

import unpooled
from unpooled.app.cli import app
from unpooled.data.readers import is_summary_file
from unpooled.data.summary_table import restricted, to_csv
from unpooled.errors import InputError, PolicyError
from unpooled.federation.recipient import Recipient, as_word, read_summary
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.site.audit.overview import read as read_log
from unpooled.site.export_table import export_table, plan_export
from unpooled.site.folder_place import PLACE
from unpooled.site.identity import fingerprint_in, identity_in
from unpooled.site.policy import Policy, parse
from unpooled.site.signed_file import RecipientKey, seal_file
from unpooled.site.study_file import StudyFile
from unpooled.site.summary_file import open_summary_file
from unpooled.site.table_store import SummaryFolder

STUDY = """\
title = "Types of patients"
purpose = "Find similar patients"
contact = "Ada Example, data@example.org"
columns = ["age", "bmi", "sex"]
expires = 2999-12-31
"""
SITES = ("east", "north", "south")


def command(*words, fails=False):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert (done.exit_code == 1) is fails, done.output
    return done.stderr.strip() if fails else done.output


def csv_of(path: Path, seed: int, people: int = 60, name: str = "p") -> Path:
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 2, people)
    lines = ["id,age,bmi,sex"]
    for i in range(people):
        age, bmi = rng.normal(40 + 25 * kind[i], 4), rng.normal(22 + 8 * kind[i], 1)
        lines.append(f"{name}{i},{age:.1f},{bmi:.1f},{'fm'[rng.integers(2)]}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Three sites, a recipient, and their files, which were received."""
    top = tmp_path_factory.mktemp("files")
    command("federation", "key", top / "heart")
    (top / "heart" / "study.toml").write_text(STUDY)
    for seed, site in enumerate(SITES):
        data = csv_of(top / f"{site}.csv", seed, name=site)
        command("site", "summarize", "--no-sensitive-columns", top / site, "--data", data, "--person", "id")
        command("site", "approve", top / site, "--yes")
        export(top, site)
    command("federation", "receive", top / "heart", *files(top), "--yes")
    return top


@pytest.fixture
def place(made, tmp_path):
    """A copy of all of it, for one test."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns(PLACE))
    return tmp_path


def export(top, site, *words, to="heart", out=None):
    key, study = top / to / f"{to}-key.json", top / "heart" / "study.toml"
    out = out or top / "heart" / f"{site}.unpooled"
    command("site", "export", top / site, "--recipient", key, "--study", study, "-o", out, "--yes", *words)
    return out


def files(top, sites=SITES):
    return [top / "heart" / f"{site}.unpooled" for site in sites]


# ---------------------------------------------------------------- the same result


def test_files_give_the_model_labels_and_report_of_fit_protect_summary(made, tmp_path):
    options = ("-k", "2..3", "--restarts", "3", "--columns", "age,bmi,sex")
    command("fit", *files(made), *options, "--out", tmp_path / "by-files")
    data = [made / f"{site}.csv" for site in SITES]
    command("fit", *data, *options, "--protect", "summary", "--person", "id", "--out", tmp_path / "simulated")
    one, other = tmp_path / "by-files", tmp_path / "simulated"
    assert (one / "model.unpooled").read_bytes() == (other / "model.unpooled").read_bytes()
    assert (one / "preparation.json").read_bytes() == (other / "preparation.json").read_bytes()
    results = [json.loads((folder / "result.json").read_text()) for folder in (one, other)]
    listed = results[0].pop("reading")["summary_files"]
    assert [file["site"] for file in listed] == list(SITES)
    for result in results:  # the simulated sites describe the column id, too, which the files do not have
        for site in result["sites"]:
            site["missing_cells"].pop("id", None)
        result["left_out"] = [item for item in result["left_out"] if item.get("column") != "id"]
    assert results[0] == results[1]
    for run in (one, other):
        command("predict", run, data[0], "-o", run / "labels.csv")
    assert (one / "labels.csv").read_bytes() == (other / "labels.csv").read_bytes()


def test_the_reports_differ_in_the_provenance_only(tmp_path):
    """The files have the columns of the study and no others, so that the same numbers are sent."""
    command("federation", "key", tmp_path / "heart")
    (tmp_path / "heart" / "study.toml").write_text(STUDY)
    for seed, site in enumerate(SITES):
        data = csv_of(tmp_path / f"{site}.csv", seed)
        data.write_text("".join(line.partition(",")[2] for line in data.read_text().splitlines(True)))
        command(
            "site",
            "summarize",
            "--no-sensitive-columns",
            tmp_path / site,
            "--data",
            data,
            "--one-row-per-person",
        )
        command("site", "approve", tmp_path / site, "--yes")
        export(tmp_path, site)
    command("federation", "receive", tmp_path / "heart", *files(tmp_path), "--yes")
    data = [tmp_path / f"{site}.csv" for site in SITES]
    options = ("-k", "2,3", "--restarts", "3", "--certify", "quick", "--seed", "7")
    command("fit", *files(tmp_path), *options, "--out", tmp_path / "a")
    command("fit", *data, *options, "--protect", "summary", "--out", tmp_path / "b")
    one, other = ((tmp_path / run / "report.html").read_text() for run in "ab")
    section = re.search(r'<section id="provenance">.*?</section>\n', one, re.DOTALL)
    for site in SITES:
        assert f"{site}.unpooled" in section[0]
        assert fingerprint_in(tmp_path / site) in section[0].replace(" ", "")
    assert "average of at least" in section[0]
    assert "Types of patients" in section[0]
    one = one.replace(section[0], "")
    paths = [re.search(r"<pre>.*?</pre>", page, re.DOTALL)[0] for page in (one, other)]
    assert paths[0] == paths[1]  # with the names of the sites in place of their data
    assert one == other
    for name in ("model.unpooled", "preparation.json", "history.csv", "certificate"):
        if (tmp_path / "a" / name).exists():
            assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_any_method_and_certificate_from_the_same_files(made, tmp_path):
    command("fit", *files(made), "-k", "2", "--method", "k-fed", "--out", tmp_path / "run")
    assert "Proved" in command("certify", tmp_path / "run", "--effort", "quick")
    command("fit", *files(made), "-k", "3", "--method", "fuzzy", "--restarts", "2")
    by_name = {site: made / "heart" / f"{site}.unpooled" for site in SITES}
    result = unpooled.cluster(by_name, 2, n_init=2)
    assert result.k == 2
    assert result.sizes["people"].sum() > 150
    with pytest.raises(InputError, match="holds groups of people, and labels are of rows"):
        _ = result.labels
    with pytest.raises(InputError, match=r"is of east, and is given as site west"):
        unpooled.cluster({"west": by_name["east"]}, 2)


def test_a_plain_file_holds_the_same_table_and_is_readable(place):
    export(place, "north", "--plain", "--overwrite")
    path = files(place)[1]
    command("federation", "receive", place / "heart", path)
    body = json.loads(path.read_text())["body"]
    summary = SummaryFolder(place / "north").read()
    kept, lacking = restricted(summary, ("age", "bmi", "sex"))
    assert "\n".join(body["table"]) + "\n" == to_csv(kept) == to_csv(read_summary(path))
    assert not lacking
    assert kept.names == ("age", "bmi", "sex")
    assert '"id"' not in path.read_text()
    (entry,) = [one for one in read_log(place / "north").exports if not one.encrypted]
    assert entry.columns == ("age", "bmi", "sex")


def test_an_encrypted_file_has_a_readable_header_and_no_number_of_the_table(made):
    text = files(made)[1].read_text()
    values = json.loads(text)
    header = values["header"]
    assert header["sender"] == "north"
    assert header["recipient"] == "heart"
    assert header["study"]["purpose"] == "Find similar patients"
    assert any("by agreement" in term for term in header["terms"])
    assert any("cannot recall" in term for term in header["terms"])
    sealed = base64.b64decode("".join(values["body"]))
    table = to_csv(read_summary(files(made)[1])).encode()
    assert table[:40] not in sealed
    assert len(sealed) > len(table)


def test_a_file_says_nothing_about_columns_that_are_not_of_the_study(place):
    """Not even the name of one, or its values, where it has only two."""
    data = place / "north.csv"
    head, *lines = data.read_text().splitlines()
    rows = [f"{line},{i % 2},{'yes' if i % 3 else 'no'}" for i, line in enumerate(lines)]
    data.write_text("\n".join([f"{head},hidden_number,hidden_category", *rows]) + "\n")
    shutil.rmtree(place / "north")
    command("site", "summarize", "--no-sensitive-columns", place / "north", "--data", data, "--person", "id")
    command("site", "approve", place / "north", "--yes")
    export(place, "north", "--plain", "--overwrite")
    whole = SummaryFolder(place / "north").read()
    assert {"hidden_number", "hidden_category"} <= set(whole.names)
    assert "hidden" not in files(place)[1].read_text()
    kept = whole.only(("sex", "age"))
    assert kept.names == ("sex", "age")
    assert np.array_equal(kept.means["age"], whole.means["age"])
    assert np.array_equal(kept.known[:, 1], whole.people_with_value("age"))
    assert kept.within_of("age") == whole.within_of("age")
    assert to_csv(whole.only(whole.names)) == to_csv(whole)
    assert whole.only(whole.names).digest == whole.digest


# ---------------------------------------------------------------- files that a run must not use


def cut(place):
    path = files(place)[0]
    path.write_bytes(path.read_bytes()[:-300])
    return "east.unpooled: cut off or damaged"


def edited_header(place):
    path = files(place)[0]
    path.write_text(path.read_text().replace("Find similar patients", "Find single patients"))
    return "was changed after east signed it"


def edited_body(place):
    path = files(place)[0]
    values = json.loads(path.read_text())
    line = values["body"][1]
    values["body"][1] = ("A" if line[0] != "A" else "B") + line[1:]
    path.write_text(json.dumps(values))
    return "was changed after east signed it"


def with_a_second_header(place):
    """A reader of the text would see another purpose than the one that was signed."""
    path = files(place)[0]
    shown = '"header": {"study": {"purpose": "Find nothing"}},'
    path.write_text(path.read_text().replace('"header"', f'{shown} "header"', 1))
    return "cut off or damaged"


def resigned(place):
    """Somebody signs the same content with a key of their own, under the name of the site."""
    path = files(place)[0]
    opened = open_summary_file(path)
    other = Identity.new()
    content = opened.content(identity_in(place / "heart"))
    header = replace(opened.header, sender_key=other.public.hex())
    path.write_bytes(seal_file(opened.kind, header, content, other)[0])
    return "east is known here by another key"


def for_somebody_else(place):
    command("federation", "key", place / "other")
    export(place, "east", "--overwrite", to="other", out=files(place)[0])
    return "is for other (fingerprint "


def of_another_study(place):
    study = place / "heart" / "study.toml"
    study.write_text(STUDY.replace("Types", "Costs"))
    export(place, "east", "--overwrite")
    command("federation", "receive", place / "heart", files(place)[0])
    return "is for the study 'Costs of patients', and "


def superseded(place):
    old = files(place)[0].read_bytes()
    export(place, "east", "--overwrite")
    command("federation", "receive", place / "heart", files(place)[0])
    files(place)[0].write_bytes(old)
    return "superseded by the file that east exported on "


def with_its_successor(place):
    export(place, "east", out=place / "heart" / "z-new.unpooled")
    return "east.unpooled is superseded by "


def from_an_unknown_key(place):
    record = place / "heart" / "recipient.json"
    values = json.loads(record.read_text())
    del values["sites"]["east"]
    record.write_text(json.dumps(values))
    return "signed with a key that is not known here: east, fingerprint "


def not_received(place):
    export(place, "east", "--overwrite")
    return "was not received yet"


def duplicated(place):
    shutil.copy(files(place)[0], place / "heart" / "again.unpooled")
    return "are the same file of east"


def of_an_expired_study(place):
    path, folder = files(place)[0], place / "heart"
    opened = open_summary_file(path)
    header = replace(opened.header, study=replace(opened.header.study, expires="2001-01-01"))
    identity = identity_in(place / "east")
    content = opened.content(identity_in(folder))
    path.write_bytes(seal_file(opened.kind, header, content, identity)[0])
    Recipient.read(folder).receive([open_summary_file(path)])
    return "expired on 2001-01-01"


def outside_the_folder(place):
    (place / "mail").mkdir()
    shutil.move(files(place)[0], place / "mail" / "east.unpooled")
    return "is not in the folder of a key"


REFUSED = [
    cut,
    edited_header,
    edited_body,
    with_a_second_header,
    resigned,
    for_somebody_else,
    of_another_study,
    superseded,
    with_its_successor,
    from_an_unknown_key,
    not_received,
    duplicated,
    of_an_expired_study,
    outside_the_folder,
]


@pytest.mark.parametrize("fault", REFUSED, ids=lambda fault: fault.__name__)
def test_a_file_that_may_not_be_used_is_refused(fault, place):
    message = fault(place)
    given = [*sorted((place / "heart").glob("*.unpooled")), *sorted(place.glob("mail/*.unpooled"))]
    before = contents(place)
    out, report = place / "run", place / "report.html"
    shown = command("fit", *given, "-k", "2", "--out", out, "--report", report, fails=True)
    assert message in shown
    assert shown.startswith("unpooled: ")
    assert "\n" not in shown
    assert contents(place) == before  # nothing is written


@pytest.mark.parametrize("fault", [cut, edited_header, edited_body, resigned, for_somebody_else, superseded])
def test_receiving_refuses_the_same_files_and_records_nothing(fault, place):
    message = fault(place)
    before = contents(place)
    shown = command("federation", "receive", place / "heart", *files(place), "--yes", fails=True)
    assert message in shown
    assert contents(place) == before


def contents(top):
    """All files but locks, and what SQLite leaves beside a file that was read."""
    paths = [path for path in sorted(top.rglob("*")) if path.is_file() and path.name != "lock"]
    return {path: path.read_bytes() for path in paths if not path.name.endswith(("-shm", "-wal"))}


def test_every_changed_byte_of_a_file_is_found(made, tmp_path):
    data = files(made)[0].read_bytes()
    whole = open_summary_file(files(made)[0])
    rng = np.random.default_rng(0)
    for at in rng.choice(len(data), 150, replace=False):
        changed = bytearray(data)
        changed[at] ^= 1 << rng.integers(7)
        path = tmp_path / "east.unpooled"
        path.write_bytes(changed)
        try:
            changed_digest = open_summary_file(path).digest
        except InputError as error:
            message = str(error)
        else:
            assert changed_digest == whole.digest  # it was white space between values
            continue
        assert str(path) in message
        assert "\n" not in message


def test_a_lost_site_may_return_with_a_new_key(place):
    shutil.rmtree(place / "east")
    command(
        "site",
        "summarize",
        "--no-sensitive-columns",
        place / "east",
        "--data",
        place / "east.csv",
        "--person",
        "id",
    )
    command("site", "approve", place / "east", "--yes")
    export(place, "east", "--overwrite")
    receive = ("federation", "receive", place / "heart", files(place)[0], "--yes")
    assert "known here by another key" in command(*receive, fails=True)
    assert "fingerprint" in command(*receive, "--new-key")
    command("fit", *files(place), "-k", "2")


def test_without_an_answer_nobody_is_known_and_nothing_leaves(place):
    record = place / "heart" / "recipient.json"
    values = json.loads(record.read_text())
    record.write_text(json.dumps({**values, "sites": {}, "files": []}))
    before = contents(place)
    receive = ["federation", "receive", str(place / "heart"), str(files(place)[0])]
    done = CliRunner().invoke(app, receive, input="n\n")
    assert done.exit_code == 1
    assert "Did east read this fingerprint" in done.output
    key, study = place / "heart" / "heart-key.json", place / "heart" / "study.toml"
    words = [
        "site",
        "export",
        place / "east",
        "--recipient",
        key,
        "--study",
        study,
        "-o",
        place / "x.unpooled",
    ]
    done = CliRunner().invoke(app, list(map(str, words)), input="n\n")
    assert done.exit_code == 1
    assert "by agreement" in done.output
    assert contents(place) == before


# ---------------------------------------------------------------- the site


def test_the_log_and_the_dpia_report_state_what_left(made, tmp_path):
    text = command("site", "log", made / "north")
    flat = " ".join(text.split())
    assert "the summary table left for heart" in flat
    assert "Find similar patients" in flat
    assert "hold by agreement" in flat
    assert "cannot recall" in flat
    assert "Nothing has left" not in flat
    assert "intact" in command("site", "log", made / "north", "--verify")
    command("site", "dpia", made / "north", "--html", tmp_path / "dpia.html")
    page = (tmp_path / "dpia.html").read_text()
    assert "the summary table left for heart" in page
    assert "cannot recall" in page
    assert "1</b>summary file<" in page
    assert "</b>rows of the summary table that left<" in page
    assert "found by attack" not in page.partition("<h2>")[0]


def test_an_erasure_writes_a_deletion_notice_that_the_recipient_follows(place):
    text = command("site", "erase", place / "north", "north3", "--yes")
    (notice,) = (place / "north").glob("deletion-notice-heart-*.unpooled")
    assert f"send to heart: {notice}, which asks to delete 1 summary file" in text
    assert "A deletion notice names it" in " ".join(command("site", "log", place / "north").split())
    assert "intact" in command("site", "log", place / "north", "--verify")
    came = shutil.copy(notice, place / "heart")
    shown = command("fit", *files(place), came, "-k", "2", fails=True)
    assert "a deletion notice" in shown or "both of north" in shown
    assert "asks you to delete" in command("federation", "receive", place / "heart", came)
    shown = command("fit", *files(place), "-k", "2", fails=True)
    assert "north asked on " in shown
    assert "to delete it" in shown
    export(place, "north", "--overwrite")
    command("federation", "receive", place / "heart", files(place)[1])
    command("fit", *files(place), "-k", "2")
    command("site", "erase", place / "south", "south3", "--yes")
    assert len(list((place / "north").glob("deletion-notice-*"))) == 1
    again = command("site", "erase", place / "north", "north9", "--yes")  # names only the second file
    assert "asks to delete 1 summary file" in again


def test_a_notice_that_overtakes_its_file_recalls_it(place):
    export(place, "north", "--overwrite")
    late = files(place)[1]
    command("site", "erase", place / "north", "north3", "--yes")
    (notice,) = (place / "north").glob("deletion-notice-heart-*.unpooled")
    command("federation", "receive", place / "heart", shutil.copy(notice, place / "heart"))
    assert "to delete it" in command("federation", "receive", place / "heart", late, fails=True)


def test_an_update_is_a_further_file(place):
    data = place / "north.csv"
    more = csv_of(place / "more.csv", 9, 40, "q").read_text().splitlines()[1:]
    data.write_text(data.read_text() + "\n".join(more) + "\n")
    old = open_summary_file(files(place)[1]).header
    command("site", "summarize", "--no-sensitive-columns", place / "north", "--data", data)
    command("site", "approve", place / "north", "--yes")
    export(place, "north", "--overwrite")
    new = open_summary_file(files(place)[1]).header
    assert new.line > old.line
    assert new.sender_key == old.sender_key
    command("federation", "receive", place / "heart", files(place)[1])
    command("fit", *files(place), "-k", "2")


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ('[aggregation]\nsecure = "required"', "may read only sums over all sites"),
        ('[protect]\nmode = "raw"', "such a site has no summary table"),
    ],
)
def test_a_policy_may_forbid_that_the_table_leaves(made, rules, message):
    key, study = (
        RecipientKey.read(made / "heart" / "heart-key.json"),
        StudyFile.read(made / "heart/study.toml"),
    )
    with pytest.raises(PolicyError, match=message):
        plan_export(made / "north", parse(f"format = 1\n{rules}"), key, study)


def test_a_table_that_nobody_approved_does_not_leave(made, tmp_path):
    data = csv_of(tmp_path / "west.csv", 7, name="west")
    words = ["--no-sensitive-columns", "--data", data, "--person", "id"]
    command("site", "summarize", tmp_path / "west", *words)
    words = ["--recipient", made / "heart" / "heart-key.json", "--study", made / "heart" / "study.toml"]
    out = tmp_path / "west.unpooled"
    shown = command("site", "export", tmp_path / "west", *words, "-o", out, "--yes", fails=True)
    assert "nobody approved the summary table yet" in shown
    assert not out.exists()


def test_a_table_that_changed_after_the_review_does_not_leave(place):
    key, study = RecipientKey.read(place / "heart/heart-key.json"), StudyFile.read(place / "heart/study.toml")
    plan = plan_export(place / "north", Policy(), key, study)
    command("site", "erase", place / "north", "north3", "--yes")
    with pytest.raises(InputError, match="changed meanwhile"):
        export_table(place / "north", Policy(), plan, identity_in(place / "north"))


def test_a_backup_of_the_recipient_is_whole(made, tmp_path):
    command("site", "backup", made / "heart", tmp_path / "heart.tar.gz")
    command("site", "restore", tmp_path / "heart.tar.gz", tmp_path / "heart")
    assert Recipient.read(tmp_path / "heart").key == Recipient.read(made / "heart").key


# ---------------------------------------------------------------- other inputs


def test_a_summary_table_as_csv_is_refused_with_the_way_out(made, tmp_path):
    for site in SITES:
        command("site", "review", made / site, "--csv", tmp_path / f"{site}.csv")
    tables = [tmp_path / f"{site}.csv" for site in SITES]
    for given in (tables, [made / site / "summary" / "table.csv" for site in SITES]):
        shown = command("fit", *given, "-k", "2", fails=True)
        assert "its rows are groups of people" in shown
        assert "unpooled site export" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--protect", "raw"], "summary files do not go with --protect raw"),
        (["--person", "id"], "do not go with options that make a summary table"),
        (["--exclude", "age"], "do not go with options that read files"),
        (["--epsilon", "1", "--bounds", "age=0:99", "--rows", "9"], "do not go with --epsilon"),
    ],
)
def test_options_of_sites_are_refused(made, words, message):
    assert message in command("fit", *files(made), "-k", "2", *words, fails=True)


def test_summary_files_and_rows_do_not_mix(made):
    shown = command("fit", *files(made), made / "north.csv", "-k", "2", fails=True)
    assert "A run takes summary files only, or none" in shown


def test_other_files_of_the_same_ending_are_refused(made, tmp_path):
    command("fit", *files(made), "-k", "2", "--restarts", "1", "--out", tmp_path / "run")
    shutil.copy(tmp_path / "run" / "model.unpooled", made / "heart" / "model.unpooled")
    try:
        shown = command("fit", made / "heart" / "model.unpooled", "-k", "2", fails=True)
    finally:
        (made / "heart" / "model.unpooled").unlink()
    assert "the model of a run, not a summary file" in shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (STUDY.replace("purpose", "goal"), "a study has no entry 'goal'"),
        (STUDY.replace('purpose = "Find similar patients"\n', ""), "the study lacks purpose"),
        (STUDY.replace("2999-12-31", '"soon"'), "expires must be a day"),
        (STUDY.replace('["age", "bmi", "sex"]', '"age"'), "columns must be a list of names"),
        (STUDY.replace('"bmi"', '"age"'), "columns must name each column once"),
        (STUDY.replace("Ada", "\\u202eAda"), "contact must be one line"),
        ("title =", "not a study"),
    ],
)
def test_a_study_that_is_wrong_is_named(tmp_path, text, message):
    (tmp_path / "study.toml").write_text(text)
    with pytest.raises(InputError, match=re.escape(message)):
        StudyFile.read(tmp_path / "study.toml")


def test_methods_are_compared_on_the_groups_of_the_files(made, tmp_path):
    words = ("-k", "2", "--method", "lloyd,k-fed", "--out", tmp_path / "compared")
    command("compare", *files(made), *words)
    (measured,) = json.loads((tmp_path / "compared" / "comparison.json").read_text())
    people = [table.people for table in map(read_summary, files(made))]
    assert measured["rows"] == sum(map(len, people))
    assert {run["protection"] for run in measured["runs"]} == {"summary"}
    for run in measured["runs"]:
        assert 0 < measured["bound"] <= measured["best"] <= run["inertia"]
    lloyd = next(run for run in measured["runs"] if run["method"] == "lloyd")
    assert lloyd["inertia"] == pytest.approx(measured["pooled"])
    command("fit", *files(made), "-k", "2", "--out", tmp_path / "run")
    fitted = json.loads((tmp_path / "run" / "result.json").read_text())
    assert fitted["inertia"] == pytest.approx(measured["best"])  # each group counts with its people
    text = (tmp_path / "compared" / "comparison.md").read_text()
    assert "groups of summary files" in text
    shown = command(
        "compare", *files(made), "-k", "2", "--protect", "raw", "--out", tmp_path / "x", fails=True
    )
    assert "under --protect summary only" in shown


# ---------------------------------------------------------------- conventions of other systems


@pytest.mark.parametrize(
    "changed",
    [
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: data.replace(b"\n", b"\r"),
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: json.dumps(json.loads(data), ensure_ascii=True, indent=4).encode(),
        lambda data: json.dumps(json.loads(data)).encode(),
    ],
    ids=["Windows", "old Macintosh", "mark", "indented", "one line"],
)
def test_line_ends_and_layout_do_not_count(place, changed):
    for path in (*files(place), place / "heart" / "heart-key.json"):
        path.write_bytes(changed(path.read_bytes()))
    assert RecipientKey.read(place / "heart" / "heart-key.json") == Recipient.read(place / "heart").key
    command("federation", "receive", place / "heart", *files(place))
    assert read_summary(files(place)[0]).people.sum() == 60


def test_a_study_has_one_digest_under_any_line_ends_and_order(tmp_path):
    lines = STUDY.splitlines()
    texts = ["\n".join(lines), "\r\n".join(lines), "\ufeff# remark\r\n" + "\n".join(reversed(lines))]
    studies = []
    for i, text in enumerate(texts):
        (tmp_path / f"{i}.toml").write_bytes(text.encode())
        studies.append(StudyFile.read(tmp_path / f"{i}.toml"))
    assert len({study.digest for study in studies}) == 1
    assert StudyFile.from_json({**vars(studies[0]), "columns": ["age"]}).digest != studies[0].digest


def test_names_of_files_have_any_case_and_a_site_keeps_its_own(place):
    folder = place / "heart" / "Neue Dateien"
    folder.mkdir()
    moved = [shutil.move(path, folder / f"{path.stem.upper()} (1).UNPOOLED") for path in files(place)]
    command("fit", *moved, "-k", "2", "--restarts", "1", "--out", place / "run")
    result = json.loads((place / "run" / "result.json").read_text())
    assert [site["site"] for site in result["sites"]] == list(SITES)


def test_commands_in_messages_can_be_copied_under_windows():
    assert as_word(PureWindowsPath(r"C:\Users\Ada Example\heart")) == r'"C:\Users\Ada Example\heart"'
    assert as_word(PureWindowsPath(r"D:\heart\NORTH.UNPOOLED")) == r"D:\heart\NORTH.UNPOOLED"
    assert is_summary_file(r"D:\heart\NORTH.UNPOOLED")
