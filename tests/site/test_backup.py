"""A backup is whole or not there, and what comes back is what was saved, in the place that the user names."""

import os

import numpy as np
import pytest

from unpooled.site import backup as backups
from unpooled.site.backup import backup, restore
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

AUTO = parse(
    "format = 1\n[protect]\nauto_approve = true\none_row_per_person = true\nno_sensitive_columns = true"
)


@pytest.fixture
def folder(tmp_path):
    open_site("a", np.random.default_rng(0).normal(size=(60, 2)), AUTO, tmp_path / "a").close()
    return tmp_path / "a"


def test_a_site_comes_back_and_answers(folder, tmp_path):
    before = {p.name: p.read_bytes() for p in (folder / "summary").iterdir()}
    assert backup(folder, tmp_path / "b.tar.gz") > 3
    folder.rename(tmp_path / "lost")
    assert restore(tmp_path / "b.tar.gz", folder).replaced is None
    assert {p.name: p.read_bytes() for p in (folder / "summary").iterdir()} == before
    assert (folder / "log.jsonl").stat().st_mode & 0o777 == 0o600
    open_site("a", None, AUTO, folder).close()


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
            restore(tmp_path / "b.tar.gz", folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.tar.gz", "lost"]
    restore(tmp_path / "b.tar.gz", folder)
    open_site("a", None, AUTO, folder).close()
