"""Folders of sites, relays and coordinators that are moved: each continues with the files that it has."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from machines.network import PATIENCE, Network, reserved_port
from unpooled.app.cli import app
from unpooled.federation.provisioning import supervisor
from unpooled.federation.provisioning.enrolment import admit, awaiting_admission, enrol, invite
from unpooled.federation.provisioning.enrolment_wire import server_context
from unpooled.federation.provisioning.federation_folder import FederationFolder, create
from unpooled.federation.provisioning.ingress import Ingress
from unpooled.federation.provisioning.site_folder import SiteFolder
from unpooled.site.log import verify
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
def join(monkeypatch):
    """``unpooled site join`` or ``start`` up to the start of the engine; returns its output."""
    started = []
    monkeypatch.setattr(supervisor, "supervise", lambda command, home, *_: started.append(home))

    def call(*words, code=0):
        started.clear()
        command = "start" if Path(words[0]).is_dir() else "join"
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
    join(invite(federation, site), "--folder", folder, *options)
    admit(federation, site, awaiting_admission(federation)[site])
    join(folder)
    assert SiteFolder(folder).enrolled
    return folder


def everything(folder):
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}


def naming(folder, path):
    """The files in a folder that name a path."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return [file for file in files if str(path).encode() in file.read_bytes()]


def test_a_moved_site_opens_its_summary_table(federation, join, table, tmp_path):
    old, new = tmp_path / "north", tmp_path / "elsewhere" / "north"
    admitted(federation, join, old, "--data", table, "--person", "patient_id")
    digest = SummaryFolder(old).digest
    assert naming(old, old) == []
    new.parent.mkdir()
    shutil.move(old, new)
    assert f"the site logs all that it sends in {new / 'log.jsonl'}" in join(new)
    assert SummaryFolder(new).digest == digest
    assert SiteFolder(new).settings.folder == str(new)
    assert not old.exists()
    join(new, "--data", table, "--policy", written(tmp_path / "rules.toml", "format = 1\n"))
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
    admitted(
        federation, join, old, "--data", "people.csv", "--policy", tmp_path / "link" / "policy.toml"
    )  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert naming(old, tmp_path) == []
    old.rename(new)
    output = join(new)
    assert f"data: {new / 'people.csv'}, 80 rows" in output
    assert f"rules: {new / 'policy.toml'}" in output
    assert not old.exists()


def test_a_file_outside_of_the_folder_stays_where_it_is(federation, join, table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    policy = written(tmp_path / "rules.toml", RAW)
    admitted(federation, join, tmp_path / "north", "--data", "people.csv", "--policy", "north/../rules.toml")
    (tmp_path / "deep").mkdir()
    (tmp_path / "north").rename(tmp_path / "deep" / "north")
    monkeypatch.chdir("/")
    output = join(tmp_path / "deep" / "north")
    assert f"data: {table}, 80 rows" in output
    assert f"rules: {policy}" in output


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
    folder = admitted(federation, join, tmp_path / "north", "--data", table, "--person", "patient_id")
    for name in removed:
        shutil.rmtree(folder / name) if (folder / name).is_dir() else (folder / name).unlink()
    rules = written(tmp_path / "rules.toml", "format = 1\n")
    before = everything(tmp_path)
    for words in ((), ("--data", table, "--policy", rules), ("--data", table, "--person", "patient_id")):
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
    join(invitation, "--folder", folder, "--data", tmp_path / "nothing.csv", code=1)
    assert awaiting_admission(federation) == {}
    join(invitation, "--folder", folder, "--data", table, "--one-row-per-person")
    assert awaiting_admission(federation)
    assert not SiteFolder(folder).was_enrolled
    assert verify(folder / "log.jsonl") == []
    result = CliRunner().invoke(app, ["site", "log", str(folder)])
    assert (result.exit_code, "Nothing has left" in result.output) == (0, True)
    shutil.rmtree(folder / "summary")
    join(folder, "--data", table, "--one-row-per-person")
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
