"""Locks between processes name their owner; on other systems the code that needs Linux says so."""

import subprocess
import sys

import pytest

from unpooled.errors import InputError
from unpooled.site.log import Log
from unpooled.storage.file_locks import LockOwner, is_locked, lock_owner, locked, process_start, require_linux

pytestmark = pytest.mark.quick


def test_a_process_that_ended_does_not_live_and_has_no_start():
    done = subprocess.Popen([sys.executable, "-c", "pass"])
    done.wait()
    assert process_start(done.pid) == ""
    assert not LockOwner(done.pid, "", "nothing").is_alive  # an unknown start is not a sign of life
    me = LockOwner.me("a test")
    assert me.is_alive
    assert not LockOwner(me.pid, "1", "an earlier process of this number").is_alive


def test_a_lock_is_held_by_name_until_it_is_left(tmp_path):
    assert not is_locked(tmp_path)
    assert lock_owner(tmp_path) is None
    with locked(tmp_path, what="a test"):
        assert is_locked(tmp_path)
        assert (lock_owner(tmp_path) or LockOwner.me("")).what == "a test"
        with (
            pytest.raises(InputError, match=r"process \d+ \(a test\) is working on it"),
            locked(tmp_path, patience=0.0),
        ):
            pass
    assert not is_locked(tmp_path)
    assert lock_owner(tmp_path) is None


def test_a_file_that_names_nobody_has_no_owner(tmp_path):
    for content in ("", "[]", "{}", '{"pid": "x", "started": "", "what": ""}'):
        (tmp_path / "lock").write_text(content)
        assert LockOwner.read(tmp_path / "lock") is None
    assert LockOwner.read(tmp_path / "none") is None


def test_elsewhere_servers_need_linux_and_the_log_of_a_site_does_not(tmp_path, monkeypatch):
    require_linux("a server")
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(InputError, match=r"a server needs Linux, and this is darwin\. Files"):
        require_linux("a server")
    log = Log(tmp_path / "log.jsonl")
    log.append("opening", site="north")
    log.close()
    assert Log(tmp_path / "log.jsonl").seq == 0
