"""A disk that is full, or a file in the way: nothing is sent that is not on disk, and nothing breaks."""

import errno
import json
import os
import resource
import socket
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest
from typer.testing import CliRunner

from unpooled.app.cli import app
from unpooled.data import Table
from unpooled.errors import LedgerError
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.protocol import codec
from unpooled.protocol.exchange import Part, Request, RequestId, Response
from unpooled.protocol.messages import Refusal
from unpooled.protocol.questions.cluster_sums import AskMoments
from unpooled.site import log as site_log
from unpooled.site.ledger import Ledger
from unpooled.site.log import Log, LogInUse, entries, verify
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse
from unpooled.site.table_store import SummaryFolder

SUMMARY = parse(
    "format = 1\n[protect]\nauto_approve = true\none_row_per_person = true\nno_sensitive_columns = true"
)
X = np.random.default_rng(0).normal(size=(60, 2))


@contextmanager
def space_for(size: int):
    """No file of this process can grow beyond this many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def asked(site, number: int) -> Response:
    request = Request(RequestId("r", 0, number, 0), (Part("total", AskMoments(), None, 0),))
    return codec.unwrap(site.respond(codec.wrap(request)), expect=Response)


@pytest.fixture
def path(tmp_path):
    """A closed log of three answers."""
    log = Log(tmp_path / "log.jsonl")
    for number in range(3):
        log.append("release", run="r", round=number)
    log.close()
    return log.path


def test_a_disk_without_room_for_a_ledger_is_not_a_damaged_ledger(tmp_path):
    path = tmp_path / "ledger.sqlite"
    with space_for(100), pytest.raises(LedgerError, match=f"{path}: the ledger cannot be opened: "):
        Ledger(path, "a")
    Ledger(path, "a").close()


@pytest.mark.parametrize("space", [0, 100], ids=["not a byte", "half a line"])
def test_an_answer_that_the_disk_does_not_take_is_not_sent_and_is_given_later(tmp_path, space):
    site = open_site("a", X, SUMMARY, tmp_path)
    asked(site, 0)
    log = tmp_path / "log.jsonl"
    whole = log.read_bytes()
    with space_for(len(whole) + space):
        printed = asked(site, 1)
    assert [reply.reason for reply in printed.replies] == [
        "failed with LedgerError; the site's own log has the details"
    ]
    assert printed.head == ""  # there is no line that holds it
    assert log.read_bytes() == whole
    later = asked(site, 1)
    assert not isinstance(later.replies[0], Refusal)
    assert later.head.startswith("2:")
    site.close()
    assert verify(log) == []
    assert [entry["kind"] for _, entry in entries(log)] == ["opening", "release", "release"]


def test_a_line_of_which_the_disk_does_not_say_that_it_has_it_is_taken_back(path, monkeypatch):
    whole, log = path.read_bytes(), Log(path)

    def broken(file):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        with pytest.raises(LedgerError, match=r"did not take the line, so nothing is sent: .*Input/output"):
            log.append("release", run="r", round=3)
    assert path.read_bytes() == whole
    log.append("release", run="r", round=3)
    log.close()
    assert verify(path) == []


def open_files(log: Path) -> list[str]:
    """The files beside a log that this process has open, however often."""
    place = str(log.parent.resolve())
    return sorted(file.path for file in psutil.Process().open_files() if file.path.startswith(place))


def test_a_log_that_cannot_be_rotated_goes_on_as_it_was(path, monkeypatch):
    whole, log = path.read_bytes(), Log(path)
    before = open_files(path)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", full)
        with pytest.raises(LedgerError, match=r"cannot be rotated: .*No space left"):
            log.rotate()
    assert open_files(path) == before
    assert path.read_bytes() == whole
    assert sorted(file.name for file in path.parent.iterdir()) == ["log.jsonl", "log.jsonl.owner"]
    log.append("release", run="r", round=3)
    assert log.rotate() is not None
    log.close()
    log.close()  # a second time does nothing: the number of the file may be another's by now
    assert verify(path) == []


def test_a_log_that_is_rotated_while_it_is_opened_is_opened_in_its_new_file(path, monkeypatch):
    """Between the opening of a file and its lock another process puts a new one in its place."""
    real, calls, before = site_log.lock, [], open_files(path)

    def late(file, **how):
        calls.append(file)
        if len(calls) == 1:
            other = Log(path)
            other.rotate()
            other.close()
        real(file, **how)

    monkeypatch.setattr(site_log, "lock", late)
    log = Log(path)
    assert log.seq == 3  # the line that goes on after the rotation
    log.append("release", run="r", round=3)
    log.close()
    assert open_files(path) == before
    assert len(path.read_bytes().splitlines()) == 2
    assert verify(path) == []


def test_a_log_whose_holder_cannot_be_named_is_locked_all_the_same(path):
    (path.parent / "log.jsonl.owner").unlink()
    (path.parent / "log.jsonl.owner").mkdir()
    log = Log(path)
    with pytest.raises(LogInUse, match=r"in use by another process of this site$"):
        Log(path)
    log.close()


def test_a_log_goes_on_where_all_files_before_it_are_elsewhere(path):
    log = Log(path)
    head, kept = log.head, log.rotate()
    log.close()
    kept.unlink()
    log = Log(path)
    assert (log.seq, log.hash_at(2)) == (3, head)
    log.append("release", run="r", round=3)
    log.close()
    assert verify(path, {2: head}) == []
    assert "continues another line" in str(verify(path, {2: "0" * 64})[0])


def test_a_summary_table_that_the_disk_does_not_take_leaves_nothing_behind(tmp_path, monkeypatch):
    rows, place = Table.from_columns({"age": X[:, 0]}), SummaryFolder(tmp_path / "a")
    with space_for(50), pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
        place.make(rows, SummarySettings(one_row_per_person=True, no_sensitive_columns=True))
    assert list(place.folder.iterdir()) == []
    made = place.make(rows, SummarySettings(one_row_per_person=True, no_sensitive_columns=True))
    assert place.read().digest == made.digest
    assert json.loads((place.path / "about.json").read_text())["registry"] is False


def test_a_command_names_the_file_and_the_machine_whose_disk_is_full(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    done = CliRunner().invoke(app, ["site", "init", str(tmp_path / "policy.toml")])
    assert done.exit_code == 1
    assert done.stderr == (
        f"unpooled: {tmp_path / 'policy.toml'}: No space left on device ({socket.gethostname()}). Free some "
        "space and repeat the command.\n"
    )
    assert list(tmp_path.iterdir()) == []
