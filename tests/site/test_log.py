"""The log: any change, cut, insertion, reordering or lost end is found, and named with its line."""

import json
import os
import random

import pytest

from unpooled.errors import LedgerError
from unpooled.site.log import START, Base64Payload, Log, encode_line, entries, line_hash, unpacked, verify
from unpooled.site.log_files import tail

pytestmark = pytest.mark.quick


@pytest.fixture
def path(tmp_path):
    log = Log(tmp_path / "log.jsonl")
    for i in range(12):
        log.append("release", run="r", round=i, payload="x" * (i * 7))
    log.close()
    return log.path


def heads(path):
    return {entry["seq"]: entry["hash"] for _, entry in entries(path)}


def test_a_chain_by_hand(tmp_path):
    log = Log(tmp_path / "log.jsonl")
    first = log.append("opening", site="a")
    second = log.append("release", run="r")
    one, two = (json.loads(line) for line in log.path.read_text().splitlines())
    assert (one["seq"], one["prev"], one["hash"]) == (0, START, first)
    assert (two["seq"], two["prev"], two["hash"]) == (1, first, second)
    assert line_hash(two) == second
    assert verify(log.path) == []


@pytest.mark.parametrize("text", ["plain", "\0packed", 'a "\\u0000packed" b', "caf\u00e9\n"])
def test_packed_bytes_stand_in_a_line_as_any_text_would(tmp_path, text):
    """Whatever else the line says, the very mark of their places included."""
    data = bytes(range(256)) * 3
    log = Log(tmp_path / "log")
    log.append(
        "release",
        asked=[{"payload": Base64Payload(data), "why": text}, {"payload": Base64Payload(b"")}],
        payload=Base64Payload(b"x"),
    )
    log.close()
    ((_, entry),) = entries(tmp_path / "log")
    assert entry["hash"] == line_hash(entry) == log.head
    assert [unpacked(part["payload"]) for part in entry["asked"]] == [data, b""]
    assert entry["asked"][0]["why"] == text
    assert unpacked(entry["payload"]) == b"x"
    assert verify(tmp_path / "log") == []


def test_it_goes_on_where_it_was(path):
    log = Log(path)
    assert log.seq == 11
    log.append("refusal", run="r")
    assert verify(path) == []


def test_one_writer_at_a_time(path):
    log = Log(path)
    with pytest.raises(LedgerError, match="in use by another process"):
        Log(path)
    log.close()
    Log(path).close()


def test_the_file_is_the_sites_alone(path):
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_an_unfinished_line_was_never_sent(path):
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"seq": 12, "half')
    log = Log(path)
    assert path.read_bytes() == whole
    assert log.seq == 11


def test_lines_from_the_end(path):
    lines = path.read_bytes().splitlines()
    assert list(tail(path)) == lines[::-1]


def test_every_flipped_bit_is_found(path):
    """A thousand single flips anywhere in the file."""
    whole = path.read_bytes()
    rng = random.Random(0)
    for _ in range(1000):
        at, bit = rng.randrange(len(whole)), 1 << rng.randrange(8)
        line = whole[:at].count(b"\n") + 1
        path.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
        faults = verify(path)
        assert faults, at
        assert min(fault.line for fault in faults) in (line, line + 1), (at, faults)


@pytest.mark.parametrize("seed", range(60))
def test_every_cut_insertion_and_reordering_is_found(path, seed):
    rng = random.Random(seed)
    lines = path.read_bytes().splitlines(keepends=True)
    kept = heads(path)
    i = rng.randrange(len(lines) - 1)
    match seed % 5:
        case 0:  # a line is cut
            changed, at = lines[:i] + lines[i + 1 :], i + 1
        case 1:  # a line is repeated
            changed, at = [*lines[: i + 1], lines[i], *lines[i + 1 :]], i + 2
        case 2:  # two lines change places
            changed, at = [*lines[:i], lines[i + 1], lines[i], *lines[i + 2 :]], i + 1
        case 3:  # the end is lost
            changed, at = lines[: i + 1], i + 2
        case _:  # the chain is rewritten from here on, every hash anew
            changed, at = lines[:i], i + 1
            previous = json.loads(lines[i - 1])["hash"] if i else START
            for line in lines[i:]:
                entry = json.loads(line)
                entry["prev"], entry["round"] = previous, entry["round"] + 100
                entry["hash"] = previous = line_hash(entry)
                changed.append(encode_line(entry))
    path.write_bytes(b"".join(changed))
    faults = verify(path, kept)
    assert faults
    assert min(fault.line for fault in faults) == at, faults
    assert str(faults[0]).startswith(f"line {at}:")


def test_a_lost_end_needs_a_witness(path):
    """What the coordinator's heads are for: a lone chain cannot know its own end."""
    kept = heads(path)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-2]))
    assert verify(path) == []
    (fault,) = verify(path, kept)
    assert "at least 2 lines are lost" in fault.what


def test_not_a_log(tmp_path):
    (tmp_path / "log.jsonl").write_text("hello\n")
    with pytest.raises(LedgerError, match="another program changed line 1"):
        Log(tmp_path / "log.jsonl")
    assert verify(tmp_path / "log.jsonl")[0].line == 1


# ---------------------------------------------------------------- rotation


def test_a_rotated_log_is_one_chain(path):
    before, known = list(tail(path)), heads(path)
    log = Log(path)
    kept = log.rotate()
    assert kept.name == "log-000000000-000000011.jsonl"
    assert (log.seq, log.hash_at(11), log.hash_at(3)) == (12, known[11], known[3])
    log.append("release", run="r", round=12)
    assert log.rotate().name == "log-000000012-000000013.jsonl"
    assert log.rotate() is None  # nothing was answered since
    log.close()
    log = Log(path)
    assert log.seq == 14
    assert verify(path, known) == []
    assert [entry["seq"] for _, entry in entries(path)] == list(range(15))
    assert list(tail(path))[3:] == before
    with pytest.raises(LedgerError, match="in use"):
        Log(path)
    log.close()


def test_files_that_are_elsewhere_are_missed_and_altered_ones_found(path):
    known, log = heads(path), Log(path)
    first = log.rotate()
    log.append("release", run="r", round=12)
    second = log.rotate()
    log.close()
    away = first.rename(first.with_suffix(".away"))
    log = Log(path)
    assert log.hash_at(12)
    log.close()
    assert verify(path, known) == []  # from the line on that goes on after it
    away.rename(first)
    second.rename(second.with_suffix(".away"))
    with pytest.raises(LedgerError, match="does not continue"):
        Log(path)
    assert "lines before it are missing" in str(verify(path)[0])
    second.with_suffix(".away").rename(second)
    whole = first.read_bytes()
    first.write_bytes(whole.replace(b'"round":5', b'"round":6'))
    assert [fault.line for fault in verify(path)] == [6]
    first.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    assert "lines before it are missing" in str(verify(path)[0])
    first.write_bytes(whole)
    assert verify(path) == []
    wrong = {**known, 11: "0" * 64}
    assert verify(path, wrong)[0].line == 12
    first.unlink()
    assert "continues another line than the one that the coordinator kept" in str(verify(path, wrong)[0])


def test_a_kill_during_a_rotation_leaves_the_log_as_it_was(path, monkeypatch):
    """Between the two names of the file: the log is whole, and the next rotation does it again."""
    whole = path.read_bytes()

    def killed(*_):
        raise KeyboardInterrupt

    log = Log(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            log.rotate()
    log.close()
    assert path.read_bytes() == whole
    assert verify(path) == []
    log = Log(path)
    assert log.rotate() is not None
    log.close()
    assert verify(path) == []
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "log-000000000-000000011.jsonl",
        "log.jsonl",
        "log.jsonl.owner",
    ]


def test_a_large_log_is_rotated_when_it_is_opened(path, monkeypatch):
    monkeypatch.setattr("unpooled.site.log.ROTATE_BYTES", 100)
    Log(path).close()
    assert (path.parent / "log-000000000-000000011.jsonl").exists()
    Log(path).close()
    assert len(list(path.parent.glob("log-*"))) == 1  # nothing was answered since
