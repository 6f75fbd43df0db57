"""The register of site folders refuses a second folder over the same data, through the real command."""

import errno
import multiprocessing
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from unpooled.app.cli import app
from unpooled.errors import LedgerError
from unpooled.site import folder_register
from unpooled.site.folder_place import PLACE, FolderMovedError, check_place, folder_id
from unpooled.site.folder_register import FILE, VARIABLE, DataSource, one_folder, register_path
from unpooled.site.open_site import open_site


def write(path, people=range(60), seed=0):
    rng = np.random.default_rng(seed)
    lines = [f"P{i:04d},{rng.integers(20, 90)},{rng.normal():.3f},{rng.normal():.3f}" for i in people]
    path.write_text("\n".join(["patient_id,age,a,b", *lines]) + "\n")
    return path


def summarize(folder, data, *options, person=True):
    who = ["--person", "patient_id"] if person else ["--one-row-per-person", "--exclude", "patient_id"]
    words = ["site", "summarize", str(folder), "--data", str(data), "--no-sensitive-columns"]
    ran = CliRunner().invoke(app, [*words, *who, *options])
    if ran.exit_code == 1 and ran.output.count("unpooled: ") == 1:
        return ran.output
    assert ran.exit_code == 0, ran.output
    return ""


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture
def north(tmp_path):
    """A site folder, and its data."""
    data = write(tmp_path / "patients.csv")
    assert summarize(tmp_path / "north", data) == ""
    return tmp_path / "north", data


def test_a_second_folder_over_the_same_file_is_refused_until_it_is_allowed(north, tmp_path):
    folder, data = north
    error = summarize(tmp_path / "south", data)
    assert f"{folder} of " in error
    assert "holds the same data" in error
    assert "--allow-second-folder" in error
    assert not (tmp_path / "south").exists()
    assert summarize(tmp_path / "south", data, "--allow-second-folder") == ""


@pytest.mark.parametrize("way", ["renamed", "symlink", "copied", "changed", "newcomers", "other columns"])
def test_the_same_data_are_recognised(north, tmp_path, way):
    _, data = north
    other, options = tmp_path / "other.csv", ()
    if way == "renamed":
        data.rename(other)
    elif way == "symlink":
        other.symlink_to(data)
    elif way == "copied":
        shutil.copy(data, other)
    elif way == "changed":  # in its place, and without ids
        other = write(data, range(100, 180), seed=1)
    elif way == "newcomers":
        write(other, range(10, 75), seed=2)
    else:
        other, options = data, ("--columns", "age,a")
    assert "--allow-second-folder" in summarize(tmp_path / "south", other, *options)


def test_eight_tables_with_different_settings_are_not_made(north, tmp_path):
    _, data = north
    settings = [
        ("--columns", "age,a"),
        ("--columns", "a,b"),
        ("--study-columns", "b"),
        ("--log-transform", "age"),
        (),
    ]
    settings += [("--min-group-size", str(size)) for size in (6, 7, 8)]
    for number, options in enumerate(settings):
        error = summarize(tmp_path / f"south-{number}", data, *options)
        assert "Someone who sees the answers of both folders can compare them" in error
        assert not (tmp_path / f"south-{number}").exists()


def test_a_duplicate_of_a_folder_answers_nothing_even_if_it_never_joined(north, tmp_path):
    folder, _ = north
    run("site", "approve", folder, "--yes")
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    with pytest.raises(FolderMovedError, match="it was copied"):
        open_site("north", folder=copy)
    open_site("north", folder=folder).close()
    run("site", "confirm", copy)
    open_site("north", folder=copy).close()
    assert folder_id(copy) == folder_id(folder)


def test_a_backup_has_the_id_of_a_folder_and_not_its_place(north, tmp_path):
    folder, data = north
    (folder / "dpia.html").write_text("signed")
    run("site", "backup", folder, tmp_path / "b.tar.gz")
    known = folder_id(folder)
    shutil.rmtree(folder)
    run("site", "restore", tmp_path / "b.tar.gz", folder)
    assert folder_id(folder) == known
    assert (folder / "dpia.html").read_text() == "signed"
    with pytest.raises(FolderMovedError, match="was restored"):  # even if it has the same inode again
        check_place(folder)
    run("site", "confirm", folder)
    check_place(folder)
    assert f"the site folder {folder} of" in summarize(tmp_path / "south", data)


def run(*words):
    ran = CliRunner().invoke(app, list(map(str, words)))
    assert ran.exit_code == 0, ran.output


def test_other_people_are_not_refused(north, tmp_path):
    assert summarize(tmp_path / "south", write(tmp_path / "south.csv", range(60, 120), seed=3)) == ""


def test_a_few_people_of_two_departments_are_not_the_same_data(north, tmp_path):
    assert summarize(tmp_path / "south", write(tmp_path / "south.csv", range(57, 117), seed=3)) == ""


def test_rows_of_declared_people_without_ids_are_recognised_by_their_file(tmp_path):
    data = write(tmp_path / "patients.csv")
    assert summarize(tmp_path / "north", data, person=False) == ""
    assert "holds the same data" in summarize(tmp_path / "south", data, person=False)


def test_a_moved_folder_stays_the_same_folder_and_a_duplicate_does_not(north, tmp_path):
    folder, data = north
    moved = tmp_path / "moved"
    folder.rename(moved)
    error = summarize(tmp_path / "south", data)
    assert f"the site folder {folder} of " in error
    assert ", which was moved or removed since, holds the same data" in error
    assert summarize(moved, data) == ""
    assert f"the site folder {moved} of" in summarize(tmp_path / "south", data)
    shutil.copytree(moved, tmp_path / "copy")
    assert f"is a copy of the site folder {moved}" in summarize(tmp_path / "copy", data)
    shutil.rmtree(moved)  # the copy lives on
    assert summarize(tmp_path / "copy", data) == ""


def test_nothing_is_written_outside_of_the_folder_and_the_register(north, tmp_path):
    folder, _data = north
    assert sorted(path.name for path in tmp_path.iterdir()) == ["north", "patients.csv"]
    assert register_path().name == FILE
    assert [path.name for path in register_path().parent.iterdir()] == [FILE]
    assert PLACE in files(folder)
    assert register_path().stat().st_mode & 0o777 == 0o600
    content = register_path().read_bytes()
    assert b"P0001" not in content
    assert b"patients.csv" not in content


def test_a_failed_summary_registers_nothing(tmp_path):
    data = write(tmp_path / "patients.csv", range(3))  # too few people
    assert summarize(tmp_path / "north", data) != ""
    assert "--allow-second-folder" not in summarize(tmp_path / "south", data)


def test_users_have_registers_of_their_own(north, tmp_path, monkeypatch):
    _, data = north
    monkeypatch.setenv(VARIABLE, str(tmp_path / "other user"))
    assert summarize(tmp_path / "south", data) == ""


def test_without_the_variable_the_register_is_in_the_data_folder_of_the_user(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert register_path() == tmp_path / "unpooled" / FILE
    monkeypatch.setenv("XDG_DATA_HOME", "relative")  # which the specification says to ignore
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert register_path() == tmp_path / "home" / ".local" / "share" / "unpooled" / FILE


def test_a_register_that_cannot_be_written_or_read_is_one_clear_error(tmp_path, monkeypatch):
    data, source = write(tmp_path / "patients.csv"), DataSource(str(tmp_path / "patients.csv"))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "file"))
    error = summarize(tmp_path / "north", data)
    assert "cannot be written" in error
    assert f"Set {VARIABLE}" in error
    assert not (tmp_path / "north").exists()
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    for damage in (b"no database, but long enough to be one" * 40, b""):
        (tmp_path / FILE).write_bytes(damage)
        if damage:
            with pytest.raises(LedgerError, match="or damaged"):
                one_folder(tmp_path, source).__enter__()
            assert (tmp_path / FILE).read_bytes() == damage
    with one_folder(tmp_path, source):
        pass  # an empty file is a new register
    with sqlite3.connect(tmp_path / FILE) as db:
        db.execute("UPDATE about SET value = 'x'")
    with pytest.raises(LedgerError, match="or damaged"), one_folder(tmp_path, source):
        pass


def test_a_read_only_home_is_one_clear_error(tmp_path, monkeypatch):
    def read_only(*args, **kwargs):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    data = write(tmp_path / "patients.csv")
    with monkeypatch.context() as home:
        home.setattr(folder_register.os, "open", read_only)
        assert f"cannot be written: Read-only file system. Set {VARIABLE}" in summarize(
            tmp_path / "north", data
        )
    assert not (tmp_path / "north").exists()


def as_nobody(words, sender):
    os.setgid(65534)
    os.setuid(65534)
    ran = CliRunner().invoke(app, words)
    sender.send((ran.exit_code, ran.output))


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can act as two users")
def test_another_user_of_the_machine_reads_and_changes_nothing_in_a_folder(north):
    """In a folder that all users may enter, as /srv; the commands ran before, so that all is imported."""
    with tempfile.TemporaryDirectory(dir="/tmp") as shared:
        os.chmod(shared, 0o777)
        folder = Path(shared) / "north"
        shutil.copytree(north[0], folder)  # the modes, too
        assert folder.stat().st_mode & 0o777 == 0o700
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for words in (["log"], ["review", "--text"], ["approve", "--by", "N", "--yes"], ["status"]):
            command = ["site", words[0], str(folder), *words[1:]]
            CliRunner().invoke(app, ["site", words[0], str(folder / "nowhere"), *words[1:]])
            receiver, sender = multiprocessing.Pipe(duplex=False)
            child = multiprocessing.get_context("fork").Process(target=as_nobody, args=(command, sender))
            child.start()
            sender.close()
            code, output = receiver.recv()
            child.join()
            assert code == 2, output
            assert "is not readable" in output
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
