"""A backup is whole or not there, and what comes back is what was saved, in its own place."""

import hashlib
import io
import json
import os
import tarfile

import numpy as np
import pytest

from unpooled.errors import BadInput
from unpooled.site import backup as backups
from unpooled.site.backup import backup, restore
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

AUTO = parse("version = 2\n[protect]\nauto = true")


@pytest.fixture
def folder(tmp_path):
    open_site("a", np.random.default_rng(0).normal(size=(60, 2)), AUTO, tmp_path / "a").close()
    return tmp_path / "a"


def archive(path, folder, files: dict[str, bytes]) -> None:
    """An archive that somebody else made, with all digests in order."""
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    about = json.dumps({"folder": str(folder), "files": digests}).encode()
    with tarfile.open(path, "w:gz") as tar:
        for name, data in {**files, "unpooled-backup.json": about}.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def test_a_site_comes_back_and_answers(folder, tmp_path):
    before = {p.name: p.read_bytes() for p in (folder / "copy").iterdir()}
    assert backup(folder, tmp_path / "b.tar.gz") > 3
    folder.rename(tmp_path / "lost")
    assert restore(tmp_path / "b.tar.gz")["folder"] == str(folder)
    assert {p.name: p.read_bytes() for p in (folder / "copy").iterdir()} == before
    assert (folder / "log.jsonl").stat().st_mode & 0o777 == 0o600
    open_site("a", None, AUTO, folder).close()


@pytest.mark.parametrize("name", ["../evil.txt", "/tmp/unpooled-evil.txt", "copy/../../evil.txt"])
def test_no_file_of_an_archive_is_written_outside_of_its_folder(tmp_path, name):
    place = tmp_path / "deep" / "a"
    archive(tmp_path / "b.tar.gz", place, {"policy.toml": b"version = 2\n", name: b"evil"})
    with pytest.raises(BadInput, match="would be written outside of"):
        restore(tmp_path / "b.tar.gz")
    assert not (tmp_path / "deep").exists()
    assert not os.path.exists("/tmp/unpooled-evil.txt")


def test_a_backup_that_fails_leaves_the_one_before(folder, tmp_path, monkeypatch):
    target = tmp_path / "b.tar.gz"
    backup(folder, target)
    whole = target.read_bytes()

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(backups, "_add", full)
    with pytest.raises(OSError, match="No space left"):
        backup(folder, target)
    assert target.read_bytes() == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b.tar.gz"]


def test_a_restore_that_fails_leaves_nothing_and_can_be_done_again(folder, tmp_path, monkeypatch):
    backup(folder, tmp_path / "b.tar.gz")
    folder.rename(tmp_path / "lost")

    def full(*_):
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", full)
        with pytest.raises(OSError, match="No space left"):
            restore(tmp_path / "b.tar.gz")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.tar.gz", "lost"]
    restore(tmp_path / "b.tar.gz")
    open_site("a", None, AUTO, folder).close()
