"""Backups that somebody changed, or made by hand: nothing of them is written."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from unpooled.errors import BadInput
from unpooled.site.backup import backup, restore
from unpooled.site.log import verify
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

TRUSTED = parse('version = 2\n[protect]\nmode = "trusted"')
ABOUT = "unpooled-backup.json"


@pytest.fixture
def kept(tmp_path):
    """The backup of a site, whose folder is gone."""
    folder = tmp_path / "at" / "site"
    open_site("a", np.arange(60.0).reshape(-1, 2), TRUSTED, folder).close()
    (folder / "policy.toml").write_text("version = 2\n")
    count = backup(folder, tmp_path / "site.tar.gz")
    assert count >= 3
    folder.rename(tmp_path / "was")
    return tmp_path / "site.tar.gz"


def contents(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive, "r:gz") as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


def written(archive: Path, files: dict[str, bytes]) -> None:
    """A whole tar file, without any damage that the format itself would show."""
    with tarfile.open(archive, "w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def told(files: dict[str, bytes], **more: bytes) -> dict[str, bytes]:
    """The files of a backup with others, and an account of them that fits."""
    about = json.loads(files[ABOUT])
    rest = {name: data for name, data in files.items() if name != ABOUT} | more
    about["files"] = {name: hashlib.sha256(data).hexdigest() for name, data in rest.items()}
    return {**rest, ABOUT: json.dumps(about).encode()}


def everything(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def test_what_is_restored_opens_and_is_the_sites_alone(kept, tmp_path):
    restore(kept)
    folder = tmp_path / "at" / "site"
    assert verify(folder / "log.jsonl") == []
    open_site("a", np.arange(60.0).reshape(-1, 2), TRUSTED, folder).close()
    assert (folder / "policy.toml").read_text() == "version = 2\n"
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.rglob("*") if path.is_file())
    assert not [path for path in (tmp_path / "at").iterdir() if path != folder]


@pytest.mark.parametrize("change", ["altered", "added", "left out"])
def test_a_file_that_is_not_the_one_that_was_backed_up_is_found(kept, tmp_path, change):
    """In a tar file that is whole, and whose own sums of all bytes fit."""
    files = contents(kept)
    if change == "altered":
        files["policy.toml"] = b"version = 3\n"
    elif change == "added":
        files["other.toml"] = b"version = 2\n"
    else:
        del files["policy.toml"]
    written(kept, files)
    before = everything(tmp_path)
    with pytest.raises(BadInput, match="a file in it is not the one that was backed up"):
        restore(kept)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("name", ["../beside.txt", "deep/../../beside.txt", "{there}/beside.txt"])
def test_no_file_of_a_backup_is_written_outside_of_its_folder(kept, tmp_path, name):
    files = contents(kept)
    written(kept, told(files, **{name.format(there=tmp_path): b"mine"}))
    before = everything(tmp_path)
    with pytest.raises(BadInput, match="would be written outside of"):
        restore(kept)
    assert everything(tmp_path) == before


def test_a_folder_that_is_there_stays_as_it_is(kept, tmp_path):
    folder = tmp_path / "at" / "site"
    folder.mkdir()
    (folder / "log.jsonl").write_text("a newer log\n")
    with pytest.raises(BadInput, match="exists; move it away first"):
        restore(kept)
    assert (folder / "log.jsonl").read_text() == "a newer log\n"
    assert [path.name for path in folder.iterdir()] == ["log.jsonl"]


def test_a_line_that_is_being_written_and_files_of_running_processes_are_not_backed_up(kept, tmp_path):
    was = tmp_path / "was"
    whole = (was / "log.jsonl").read_bytes()
    (was / "log.jsonl").write_bytes(whole + b'{"seq": half of a li')
    (was / "pid").write_text("1")
    (was / ".hidden").write_text("x")
    (was / "link").symlink_to(tmp_path)
    backup(was, tmp_path / "again.tar.gz")
    files = contents(tmp_path / "again.tar.gz")
    assert files["log.jsonl"] == whole
    assert not {"pid", ".hidden", "link"} & set(files)
    assert not any(name.startswith("ledger.sqlite-") for name in files)
    assert (tmp_path / "again.tar.gz").stat().st_mode & 0o077 == 0
