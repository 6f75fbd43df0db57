"""Folders and backups in the format before format 1: every command refuses them in one sentence.

``old_format`` was written by commit 3a66f1a. Its names differ (``copy/``, ``mode = "noise"``, tables of the
ledger), so a release that did not refuse them would take a site for an empty one, or its answers for others.
"""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from unpooled.app.cli import app
from unpooled.errors import InputError, LedgerError, PolicyError
from unpooled.site.audit.overview import read
from unpooled.site.backup import backup, is_backup_source, restore
from unpooled.site.folder_consistency import check_folder_format
from unpooled.site.ledger import Ledger
from unpooled.site.log import Log, verify
from unpooled.site.log_files import lines, tail
from unpooled.site.open_site import open_site
from unpooled.site.people_register import Registry
from unpooled.site.policy import load, parse
from unpooled.site.study_store import StudyFolder
from unpooled.site.table_store import ReadOnlySummaryFolder, SummaryFolder

OLD = Path(__file__).parent / "old_format"
FOLDERS = {
    "site": "a summary table, a registry, a log, a ledger and a study",
    "noise": "a log and a ledger of differential privacy",
}
SENTENCE = "has an unknown or earlier format, and this release reads format 1"
WORDS = {  # what a user types after the folder of an old site
    "policy": [[], ["--check"]],
    "summarize": [["--data", "data.csv"], ["--data", "data.csv", "--person", "id"]],
    "review": [[], ["--text"], ["1"], ["--html", "review.html"], ["--csv", "review.csv"]],
    "approve": [["--yes"], ["--table", "--yes"], ["1", "--yes"]],
    "decline": [[], ["1"]],
    "export": [["--recipient", "data.csv", "--study", "data.csv", "-o", "a.unpooled", "--yes"]],
    "start": [[], ["--data", "data.csv"], ["--background"]],
    "stop": [[]],
    "answer": [["."]],
    "confirm": [[]],
    "status": [[], ["--json"]],
    "log": [[], ["--verify"], ["--attack"], ["--html", "log.html"]],
    "dpia": [[], ["--html", "dpia.html"]],
    "keys": [[], ["--forget", "b"]],
    "erase": [["p1", "--yes"], ["nobody", "--block-unknown", "--yes"]],
    "prune": [["--before", "2030-01-01"]],
    "backup": [["out.tar.gz"]],
}
OTHERS = {"init", "join", "restore"}  # write a policy, begin with an invitation, and take a backup


@pytest.fixture
def old(tmp_path, monkeypatch):
    shutil.copytree(OLD, tmp_path / "old")
    rows = "".join(f"p{i},{40 + i % 13},{20 + i % 7}\n" for i in range(24))
    (tmp_path / "data.csv").write_text(f"id,age,bmi\n{rows}")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "old"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_every_command_of_a_site_is_tried_here():
    commands = get_command(app).commands["site"].commands
    assert set(WORDS) | OTHERS == set(commands)


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("words", [(name, *more) for name, some in WORDS.items() for more in some])
def test_a_command_refuses_an_old_folder_in_one_sentence_and_leaves_it_as_it_is(old, folder, words):
    before = contents(old)
    result = CliRunner().invoke(app, ["site", words[0], str(old / folder), *words[1:]])
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert str(old / folder) in result.stderr
    renamed = folder == "site" and words[0] in ("policy", "status") and "is now" in result.stderr
    assert SENTENCE in result.stderr or renamed
    assert contents(old) == before
    assert sorted(path.name for path in old.parent.iterdir()) == ["data.csv", "old"]


@pytest.mark.parametrize(
    "left", ["copy", "copy-2026-11-18-1", "log.jsonl", "ledger.sqlite", "registry.sqlite"]
)
def test_one_file_that_is_left_is_enough(old, left):
    for path in (old / "site").iterdir():
        if path.name != left:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(LedgerError, match=SENTENCE):
        check_folder_format(old / "site")


def test_an_old_backup_is_refused_and_writes_nothing(old):
    result = CliRunner().invoke(app, ["site", "restore", str(old / "backup.tar.gz"), "new"])
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert f"{old / 'backup.tar.gz'}: the backup {SENTENCE}" in result.stderr
    assert not Path("new").exists()
    with pytest.raises(InputError, match=SENTENCE):
        restore(old / "backup.tar.gz", Path("new"))


def test_an_old_policy_is_refused_with_the_names_to_write(old):
    with pytest.raises(PolicyError) as caught:
        load(old / "site" / "policy.toml")
    assert str(caught.value) == (
        f"{old / 'site' / 'policy.toml'}: version is now format = 1; [protect] g is now min_group_size; "
        '[protect] mode = "copy" is now mode = "summary"'
    )


MODES = {
    "summary": "[protect]\nauto_approve = true\none_row_per_person = true\nno_sensitive_columns = true",
    "dp": '[protect]\nmode = "dp"\n[dp]\nepsilon_total = 1\n[domain]\nrows = 100',
    "raw": '[protect]\nmode = "raw"',
}


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("mode", MODES)
def test_a_site_does_not_open_an_old_folder_in_any_mode(old, folder, mode):
    """Exact answers after differential privacy would void it, so an unknown log must not look like none."""
    before = contents(old)
    with pytest.raises(LedgerError, match=SENTENCE):
        open_site("a", np.ones((60, 2)), parse(f"format = 1\n{MODES[mode]}"), old / folder)
    assert contents(old) == before


OPENERS = {
    "the summary table": lambda folder: SummaryFolder(folder),
    "the summary table, for reading": lambda folder: ReadOnlySummaryFolder(folder),
    "the ledger": lambda folder: Ledger(folder / "ledger.sqlite", "a"),
    "the ledger, for reading": lambda folder: Ledger.open_read_only(folder / "ledger.sqlite"),
    "the registry": lambda folder: Registry(folder),
    "a new registry": lambda folder: Registry(folder, new=True),
    "the log": lambda folder: Log(folder / "log.jsonl"),
    "the lines of the log": lambda folder: list(lines(folder / "log.jsonl")),
    "the last lines of the log": lambda folder: list(tail(folder / "log.jsonl")),
    "the check of the log": lambda folder: verify(folder / "log.jsonl"),
    "the audit": lambda folder: read(folder),
    "the audit, for reading": lambda folder: read(folder, only_look=True),
    "the studies": lambda folder: StudyFolder(folder).every(),
    "the pending studies": lambda folder: StudyFolder(folder).pending(),
    "a study": lambda folder: StudyFolder(folder).find("1"),
    "a backup": lambda folder: is_backup_source(folder) and backup(folder, folder.parent / "b.tar.gz"),
}


@pytest.mark.parametrize("opener", OPENERS)
def test_a_file_of_an_old_site_is_refused_by_every_reader(old, opener):
    before = contents(old)
    with pytest.raises(LedgerError, match=SENTENCE) as caught:
        OPENERS[opener](old / "site")
    assert str(old / "site") in str(caught.value)
    assert contents(old) == before | {
        name: data for name, data in contents(old).items() if name.endswith(".owner")
    }


@pytest.mark.parametrize("name", ["ledger.sqlite", "registry.sqlite"])
@pytest.mark.parametrize(
    ("mark", "value", "words"),
    [("user_version", 2, "format 2"), ("user_version", 0, "an unknown"), ("application_id", 0, "an unknown")],
)
def test_the_marks_of_a_database_are_both_checked(tmp_path, name, mark, value, words):
    (Ledger(tmp_path / name, "a") if "ledger" in name else Registry(tmp_path, new=True)).close()
    check_folder_format(tmp_path)
    with closing(sqlite3.connect(tmp_path / name)) as db:
        db.execute(f"PRAGMA {mark} = {value}")
    with pytest.raises(LedgerError, match=words):
        check_folder_format(tmp_path)
    with pytest.raises(LedgerError, match=words):
        Ledger(tmp_path / name, "a") if "ledger" in name else Registry(tmp_path)


def test_every_file_of_a_log_has_the_format_in_its_first_line(tmp_path):
    log = Log(tmp_path / "log.jsonl")
    for _ in range(2):
        log.append("opening", protection="summary")
        log.append("release", run="r")
        log.rotate()
    log.close()
    files = sorted(tmp_path.glob("log*.jsonl"))
    assert len(files) == 3
    for file in files:
        first, *rest = file.read_text().splitlines()
        assert '"format":1' in first
        assert not any('"format"' in line for line in rest)
    assert verify(tmp_path / "log.jsonl") == []
