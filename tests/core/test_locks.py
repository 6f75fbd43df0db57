"""Locks between processes name their holder; and what needs Linux says so in one sentence elsewhere."""

import subprocess
import sys

import pytest

from unpooled.core.disk import Holder, held, holder, is_held, start_of
from unpooled.core.locks import require_linux
from unpooled.errors import BadInput
from unpooled.site.log import Log

pytestmark = pytest.mark.quick


def test_a_process_that_ended_does_not_live_and_has_no_start():
    done = subprocess.Popen([sys.executable, "-c", "pass"])
    done.wait()
    assert start_of(done.pid) == ""
    assert not Holder(done.pid, "", "nothing").lives  # an unknown start is no sign of life
    me = Holder.me("a test")
    assert me.lives
    assert not Holder(me.pid, "1", "an earlier process of this number").lives


def test_a_lock_is_held_by_name_until_it_is_left(tmp_path):
    assert not is_held(tmp_path)
    assert holder(tmp_path) is None
    with held(tmp_path, what="a test"):
        assert is_held(tmp_path)
        assert (holder(tmp_path) or Holder.me("")).what == "a test"
        with (
            pytest.raises(BadInput, match=r"process \d+ \(a test\) is working on it"),
            held(tmp_path, patience=0.0),
        ):
            pass
    assert not is_held(tmp_path)
    assert holder(tmp_path) is None


def test_a_file_that_names_nobody_is_no_holder(tmp_path):
    for content in ("", "[]", "{}", '{"pid": "x", "started": "", "what": ""}'):
        (tmp_path / "lock").write_text(content)
        assert Holder.read(tmp_path / "lock") is None
    assert Holder.read(tmp_path / "none") is None


def test_elsewhere_a_site_says_that_it_needs_linux(tmp_path, monkeypatch):
    require_linux("a site")
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(BadInput, match="the record of a site needs Linux, and this is darwin; files"):
        Log(tmp_path / "log.jsonl")
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []
