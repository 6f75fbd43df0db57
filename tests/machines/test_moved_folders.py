"""Folders of sites, relays and coordinators that are moved: each continues with the files that it has."""

import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from typer.testing import CliRunner

from machines.network import PATIENCE, Network, reserved_port
from studies import study_of, terms_of
from unpooled.app.cli import app
from unpooled.data.schema import AskSchema
from unpooled.federation.log_heads import append_log_heads, forked_logs, readmit
from unpooled.federation.member_session import open_session
from unpooled.federation.provisioning.enrolment import admit, awaiting_admission, enrol, invite
from unpooled.federation.provisioning.enrolment_wire import server_context
from unpooled.federation.provisioning.federation_folder import FederationFolder, create
from unpooled.federation.provisioning.ingress import Ingress
from unpooled.federation.provisioning.site_folder import SiteFolder
from unpooled.protocol import codec
from unpooled.protocol.exchange import Part, Request, RequestId, Response, countersignable
from unpooled.protocol.messages import Refusal
from unpooled.site.endpoint import PendingDecision
from unpooled.site.identity import identity_in
from unpooled.site.log import entries, verify
from unpooled.site.table_store import SummaryFolder

RAW = 'format = 1\n[protect]\nmode = "raw"\n'


@pytest.fixture(scope="module")
def federation(tmp_path_factory, shorter_keys):
    """A federation whose server enrols sites; no engine runs behind it."""
    path, port = tmp_path_factory.mktemp("served") / "fed", reserved_port()
    made = create(path, "fed", f"localhost:{port}", ("north", "south"), engine_name="nvflare")
    context = server_context(*map(str, made.engine.server_identity(made.server)))
    with Ingress(["127.0.0.1"], port, 1, context, lambda asked: enrol(FederationFolder.read(path), asked)):
        yield made


@pytest.fixture
def join(started):
    """``unpooled site join`` or ``start`` up to the start of the engine; returns its output."""

    def call(*words, code=0):
        started.clear()
        command = "join" if len(words) > 1 and str(words[1]).endswith(".json") else "start"
        result = CliRunner().invoke(app, ["site", command, *map(str, words)])
        assert result.exit_code == code, result.output
        assert len(started) == (code == 0)
        return " ".join(result.output.split())

    return call


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    rows = np.column_stack([np.arange(80), rng.normal(50, 9, 80), rng.normal(25, 4, 80)])
    np.savetxt(
        tmp_path / "people.csv", rows, delimiter=",", header="patient_id,age,bmi", comments="", fmt="%.5g"
    )
    return tmp_path / "people.csv"


def admitted(federation, join, folder, *options, site="north"):
    """A site that has joined and was admitted, with the options of its first join."""
    join(folder, invite(federation, site), *options)
    admit(federation, site, awaiting_admission(federation)[site])
    join(folder)
    assert SiteFolder(folder).was_enrolled
    return folder


def everything(folder):
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}


def naming(folder, path):
    """The files in a folder that name a path."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return [file for file in files if str(path).encode() in file.read_bytes()]


def test_a_moved_site_opens_its_summary_table(federation, join, table, tmp_path):
    old, new = tmp_path / "north", tmp_path / "elsewhere" / "north"
    admitted(federation, join, old, "--data", table, "--person", "patient_id", "--no-sensitive-columns")
    digest = SummaryFolder(old).digest
    assert naming(old, old) == []
    new.parent.mkdir()
    shutil.move(old, new)
    assert f"the site logs all that it sends in {new / 'log.jsonl'}" in join(new)
    assert SummaryFolder(new).digest == digest
    assert SiteFolder(new).settings.folder == str(new)
    assert not old.exists()
    join(new, "--data", table)
    assert SummaryFolder(new).digest == digest
    assert sorted(path.name for path in new.glob("summary*")) == ["summary"]


def written(path, text):
    path.write_text(text)
    return path


def test_files_within_the_folder_are_found_where_it_is_now(federation, join, table, tmp_path, monkeypatch):
    """Whether their paths are relative or absolute, by the name of the folder or by a link to it."""
    old, new = tmp_path / "north", tmp_path / "new"
    old.mkdir()
    (tmp_path / "link").symlink_to("north")
    shutil.copy(table, old / "people.csv")
    written(old / "policy.toml", RAW)
    monkeypatch.chdir(old)
    admitted(federation, join, tmp_path / "link", "--data", "people.csv")
    monkeypatch.chdir(tmp_path)
    assert naming(old, tmp_path) == []
    old.rename(new)
    output = join(new)
    assert f"data: {new / 'people.csv'}, 80 rows" in output
    assert f"rules: {new / 'policy.toml'}" in output
    assert not old.exists()


def test_data_stay_where_they_are_and_rules_move_with_the_folder(
    federation, join, table, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "rules.toml", RAW)
    admitted(federation, join, tmp_path / "north", "--data", "people.csv", "--policy", "rules.toml")
    (tmp_path / "rules.toml").unlink()
    (tmp_path / "deep").mkdir()
    (tmp_path / "north").rename(tmp_path / "deep" / "north")
    monkeypatch.chdir("/")
    output = join(tmp_path / "deep" / "north")
    assert f"data: {table}, 80 rows" in output
    assert f"rules: {tmp_path / 'deep' / 'north' / 'policy.toml'}" in output
    table.rename(tmp_path / "renamed.csv")
    assert f"{table}: no such file" in join(tmp_path / "deep" / "north", code=1)
    output = join(tmp_path / "deep" / "north", "--data", tmp_path / "renamed.csv")
    assert f"data: {tmp_path / 'renamed.csv'}, 80 rows" in output


def test_a_query_within_the_folder_updates_the_table_of_a_moved_site(table, tmp_path, monkeypatch):
    old, new, database = tmp_path / "north", tmp_path / "new", tmp_path / "people.sqlite"
    old.mkdir()
    written(old / "cohort.sql", "SELECT * FROM people WHERE age > 0")
    with closing(sqlite3.connect(database)) as db, db:
        db.execute("CREATE TABLE people (patient_id TEXT, age REAL, bmi REAL)")
        rows = [line.split(",") for line in table.read_text().splitlines()[1:]]
        db.executemany("INSERT INTO people VALUES (?, ?, ?)", rows)
    monkeypatch.chdir(old)
    for words in (
        (
            "summarize",
            ".",
            "--no-sensitive-columns",
            "--data",
            database,
            "--query",
            "cohort.sql",
            "--person",
            "patient_id",
        ),
        ("approve", ".", "--table", "--yes"),
    ):
        result = CliRunner().invoke(app, ["site", *map(str, words)])
        assert result.exit_code == 0, result.output
    monkeypatch.chdir(tmp_path)
    old.rename(new)
    result = CliRunner().invoke(
        app, ["site", "summarize", "--no-sensitive-columns", str(new), "--data", str(database)]
    )
    assert result.exit_code == 0, result.output
    assert "Nothing changes" in result.output


@pytest.mark.parametrize(
    ("removed", "named"),
    [
        (["summary"], "summary/about.json, summary/table.csv"),
        (["summary/table.csv"], "summary/table.csv"),
        (["registry.sqlite"], "registry.sqlite"),
        (["log.jsonl"], "log.jsonl"),
        (["ledger.sqlite"], "ledger.sqlite"),
        (
            ["summary", "registry.sqlite", "log.jsonl", "ledger.sqlite"],
            "ledger.sqlite, log.jsonl, summary/about.json, summary/table.csv",
        ),
    ],
)
def test_an_admitted_site_does_not_replace_missing_files(federation, join, table, tmp_path, removed, named):
    folder = admitted(
        federation,
        join,
        tmp_path / "north",
        "--data",
        table,
        "--person",
        "patient_id",
        "--no-sensitive-columns",
    )
    for name in removed:
        shutil.rmtree(folder / name) if (folder / name).is_dir() else (folder / name).unlink()
    before = everything(tmp_path)
    for words in (
        (),
        ("--data", table),
        ("--data", table, "--person", "patient_id", "--no-sensitive-columns"),
    ):
        output = join(folder, *words, code=1)
        assert f"the site was admitted before, and its files are missing: {named}. Restore" in output
        assert everything(tmp_path) == before


def test_an_admitted_site_does_not_begin_a_new_privacy_budget(federation, join, table, tmp_path):
    policy = written(
        tmp_path / "dp.toml",
        'format = 1\n[protect]\nmode = "dp"\n[dp]\nepsilon_total = 2.0\n[domain]\nrows = 100\n',
    )
    folder = admitted(
        federation, join, tmp_path / "north", "--data", table, "--exclude", "patient_id", "--policy", policy
    )  # fmt: skip
    for name in ("ledger.sqlite", "log.jsonl"):
        (folder / name).unlink()
    assert "are missing: ledger.sqlite, log.jsonl" in join(folder, code=1)
    assert not (folder / "ledger.sqlite").exists()
    assert not (folder / "log.jsonl").exists()


def test_a_site_is_admitted_only_with_all_its_files(federation, join, table, tmp_path):
    """A first join that failed, or was killed, can be repeated until the coordinator admits the site."""
    folder = tmp_path / "north"
    invitation = invite(federation, "north")
    join(folder, invitation, "--data", tmp_path / "nothing.csv", code=1)
    assert awaiting_admission(federation) == {}
    join(folder, invitation, "--data", table, "--one-row-per-person", "--no-sensitive-columns")
    assert awaiting_admission(federation)
    assert not SiteFolder(folder).was_enrolled
    assert verify(folder / "log.jsonl") == []
    result = CliRunner().invoke(app, ["site", "log", str(folder)])
    assert (result.exit_code, "Nothing has left" in result.output) == (0, True)
    shutil.rmtree(folder / "summary")
    join(folder, "--data", table, "--one-row-per-person", "--no-sensitive-columns")
    assert SummaryFolder(folder).exists


def test_a_moved_relay_and_its_federation(federation, join, tmp_path):
    """The folders of a relay and of its federation side by side, moved together; and each by itself."""
    both = tmp_path / "both"
    create(both / "south", "south", "localhost:1", ("a", "b"), engine_name="nvflare")
    old = both / "as-member"
    admitted(federation, join, old, "--downstream", both / "south", site="south")
    assert naming(old, old) == []
    new = tmp_path / "as-member"
    old.rename(new)
    assert f"the relay logs all that it sends in {new / 'log.jsonl'}" in join(new)
    assert not old.exists()
    (new / "log.jsonl").unlink()
    assert "its files are missing: log.jsonl" in join(new, code=1)
    (new / "log.jsonl").touch()
    (both / "south").rename(tmp_path / "south")
    assert f"{both / 'south'}: not the folder of a federation" in join(new, code=1)
    assert str(tmp_path / "south") in join(new, "--downstream", tmp_path / "south")
    assert list(both.iterdir()) == []
    assert naming(tmp_path / "south", both) == []


def copied(federation, join, table, tmp_path):
    """A site in a folder, and a copy of the folder."""
    original, copy = tmp_path / "north", tmp_path / "copy"
    admitted(federation, join, original, "--data", table, "--person", "patient_id", "--no-sensitive-columns")
    approve(original)
    shutil.copytree(original, copy, symlinks=True)
    return original, copy


def approve(folder):
    called("site", "approve", folder, "--table", "--yes")


def called(*words, code=0):
    result = CliRunner().invoke(app, list(map(str, words)))
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def log_of(folder):
    return (folder / "log.jsonl").read_bytes()


def test_a_copied_folder_answers_nothing_until_an_officer_confirms_it(federation, join, table, tmp_path):
    original, copy = copied(federation, join, table, tmp_path)
    (membership,) = SiteFolder(copy).memberships()
    before = log_of(original)
    message = (
        "it was copied, or moved to another disk or machine. A site lives in one folder, so nothing is "
        "answered. If no other copy of it is used any more, confirm this one with unpooled site confirm "
        f"{copy}."
    )
    assert message in join(copy, code=1)
    assert message in called("site", "status", copy, code=3)
    session = open_session(membership.membership_file, signed(federation, "r"))
    assert "moved or copied, and nobody there has confirmed it" in answer(session, copy)
    session.close()
    assert f"confirmed: the site lives on in {copy}" in called("site", "confirm", copy, "--by", "Dr. Low")
    assert "nothing to confirm" in called("site", "confirm", copy)
    join(copy)
    session = open_session(membership.membership_file, signed(federation, "r"))
    assert isinstance(answer(session, copy), bytes)
    session.close()
    assert verify(copy / "log.jsonl") == []
    assert [entry["by"] for _, entry in entries(copy / "log.jsonl") if entry["kind"] == "moved"] == [
        "Dr. Low"
    ]
    assert log_of(original) == before  # the copy writes into its own log


def signed(federation, run):
    """The terms of a study of a federation."""
    identity = identity_in(federation.path)
    return terms_of(study_of(run, identity, federation=federation.address.federation), identity)


def answer(session, folder, run="r", head=""):
    """The answer of a session to one question, after an officer approved the study."""
    part = Part("each", AskSchema(), None, 0)
    request = codec.wrap(Request(RequestId(run, 0, 0, 0), (part,), countersigned=head))
    if isinstance(session.respond(request), PendingDecision):
        called("site", "approve", folder, "--yes")
    return session.respond(request)


def test_two_folders_of_one_site_are_found_by_the_heads_of_their_logs(federation, join, table, tmp_path):
    """An officer who confirms a copy and uses both: whichever answered last goes on, the other refuses."""
    original, copy = copied(federation, join, table, tmp_path)
    called("site", "confirm", copy)
    identity, heads, replies = identity_in(federation.path), tmp_path / "heads.jsonl", {}
    head = countersigned = ""
    for number, folder in enumerate((original, copy)):
        (membership,) = SiteFolder(folder).memberships()
        session = open_session(membership.membership_file, signed(federation, f"r{number}"))
        replies[folder] = codec.unwrap(answer(session, folder, f"r{number}", countersigned), expect=Response)
        session.close()
        head = replies[folder].head or head
        countersigned = f"{head}:{identity.sign(countersignable('north', head)).hex()}"
    assert not isinstance(replies[original].replies[0], Refusal)
    assert "another folder of this site has answered" in replies[copy].replies[0].reason or (
        "two folders of this site are in use" in replies[copy].replies[0].reason
    )
    append_log_heads(heads, [("north", "7:aa"), ("south", "7:bb"), ("north", "9:cc"), ("north", "7:aa")])
    assert forked_logs(heads) == {}
    append_log_heads(heads, [("north", "9:dd")])
    assert forked_logs(heads) == {"north": 9}
    readmit(heads, "north", "one folder is gone")
    append_log_heads(heads, [("north", "9:ee")])
    assert forked_logs(heads) == {}


def test_the_coordinator_reports_two_folders_of_one_site(federation):
    append_log_heads(federation.log_heads, [("north", "4:aa"), ("north", "4:bb")])
    try:
        assert "two folders of north have answered: line 5 of its log came with two contents. " in called(
            "federation", "status", federation.path, code=3
        )
    finally:
        federation.log_heads.unlink()


def test_a_restored_folder_is_confirmed(federation, join, table, tmp_path):
    original, _ = copied(federation, join, table, tmp_path)
    called("site", "backup", original, tmp_path / "backup.tar.gz")
    called("site", "restore", tmp_path / "backup.tar.gz", tmp_path / "restored")
    assert "was restored, or copied without its place" in join(tmp_path / "restored", code=1)
    called("site", "confirm", tmp_path / "restored")
    join(tmp_path / "restored")
    assert SummaryFolder(tmp_path / "restored").digest == SummaryFolder(original).digest


@pytest.mark.parametrize("name", ["log.jsonl", "ledger.sqlite", "registry.sqlite", "summary", "federations"])
def test_a_link_in_place_of_a_file_is_refused(federation, join, table, tmp_path, name):
    """A copy with links would write into the files of the original."""
    original, copy = copied(federation, join, table, tmp_path)
    shutil.rmtree(copy / name) if (copy / name).is_dir() else (copy / name).unlink()
    (copy / name).symlink_to(original / name)
    before = everything(original)
    for words in (("start", copy), ("confirm", copy)):
        assert f"{copy / name} is a link, and a site's files must be in its own folder" in called(
            "site", *words, code=1
        )
    assert everything(original) == before


def test_hard_links_to_the_original_are_refused(federation, join, table, tmp_path):
    """cp -al: the copy's log would be the original's."""
    original, copy = copied(federation, join, table, tmp_path)
    (copy / "log.jsonl").unlink()
    (copy / "log.jsonl").hardlink_to(original / "log.jsonl")
    assert f"{copy / 'log.jsonl'} has a second name in another folder" in called(
        "site", "confirm", copy, code=1
    )


def test_nothing_is_written_outside_of_the_folder(federation, join, table, tmp_path, monkeypatch):
    """By a link to it, in a parent that cannot be written, and from another folder."""
    parent, here = tmp_path / "parent", tmp_path / "here"
    here.mkdir()
    (parent / "north").mkdir(parents=True)
    (tmp_path / "link").symlink_to(parent)
    monkeypatch.chdir(here)
    before = {path for path in everything(tmp_path) if parent / "north" not in path.parents}
    parent.chmod(0o500)
    try:
        link = tmp_path / "link" / "north"
        admitted(federation, join, link, "--data", table, "--person", "patient_id", "--no-sensitive-columns")
        approve(link)
        (membership,) = SiteFolder(link).memberships()
        session = open_session(membership.membership_file, signed(federation, "r"))
        assert isinstance(answer(session, link), bytes)
        session.close()
    finally:
        parent.chmod(0o700)
    assert {path for path in everything(tmp_path) if parent / "north" not in path.parents} == before


@pytest.mark.long
def test_a_run_between_moved_folders(hospital_files, tmp_path):
    """After a first run the site is moved, and the federation is restored elsewhere from a backup.

    The site answers a second run from the same summary table.
    """
    network = Network(tmp_path / "before", {"va": hospital_files["va"]})
    try:
        network.up()
        network.command("federation", "run", network.home, "-k", "2", "--seed", "1", "--deadline", "600")
        digest = SummaryFolder(network.site_folder("va")).digest
        network.stop("va")
        network.command("federation", "serve", "--stop", network.home)
        for name in ("va", "server"):
            network.processes.pop(name).wait(PATIENCE)
        assert naming(network.site_folder("va"), network.site_folder("va")) == []
        later = tmp_path / "later"
        later.mkdir()
        (network.folder / "at").rename(later / "at")
        for folder in (network.home, later / "at" / "va"):
            output = network.command("site", "backup", folder, tmp_path / f"{folder.name}.tar.gz").stdout
            assert "not in the backup" not in output
        network.command("site", "restore", tmp_path / "federation.tar.gz", later / "federation")
        network.home.rename(tmp_path / "lost")
        old, network.folder, network.home = network.folder, later, later / "federation"
        remaining = sorted(old.rglob("*"))
        (first,) = (path for path in (network.home / "results").iterdir() if path.is_dir())
        network.command("resume", first)
        network.serve()
        network.join("va")
        network.wait_connected()
        network.run("second", "-k", "2", "--seed", "1")
        network.finish("second")
        assert SummaryFolder(network.site_folder("va")).digest == digest
        assert (network.out("second") / "model.unpooled").read_bytes() == (
            first / "model.unpooled"
        ).read_bytes()
        assert sorted(old.rglob("*")) == remaining
    finally:
        network.close()
