"""Backups that somebody changed, or made by hand: nothing of them is written."""

import gzip
import hashlib
import io
import json
import os
import pty
import subprocess
import sys
import tarfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from unpooled.app.cli import app
from unpooled.errors import InputError
from unpooled.site import backup as backups
from unpooled.site.backup import backup, restore
from unpooled.site.log import verify
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse
from unpooled.storage.file_locks import locked

RAW = parse('format = 1\n[protect]\nmode = "raw"')
ABOUT = "unpooled-backup.json"


@pytest.fixture
def kept(tmp_path):
    """The backup of a site, whose folder is gone."""
    folder = tmp_path / "at" / "site"
    open_site("a", np.arange(60.0).reshape(-1, 2), RAW, folder).close()
    (folder / "policy.toml").write_text("format = 1\n")
    count = backup(folder, tmp_path / "site.tar.gz")
    assert count >= 3
    folder.rename(tmp_path / "was")
    return tmp_path / "site.tar.gz"


def contents(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive, "r:gz") as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


def written(archive: Path, files: dict[str, bytes], *more: tarfile.TarInfo) -> None:
    """A whole tar file, without any damage that the format itself would show."""
    with tarfile.open(archive, "w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        for info in more:
            tar.addfile(info)


def with_about(files: dict[str, bytes], **more: bytes) -> dict[str, bytes]:
    """The files of a backup with others, and an account of them that fits."""
    about = json.loads(files[ABOUT])
    rest = {name: data for name, data in files.items() if name != ABOUT} | more
    about["files"] = {name: hashlib.sha256(data).hexdigest() for name, data in rest.items()}
    return {**rest, ABOUT: json.dumps(about).encode()}


def unpooled(*words, code=0, **options):
    result = CliRunner().invoke(app, [str(word) for word in words], **options)
    assert result.exit_code == code, result.output
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return " ".join(result.output.split())


def refused(kept, tmp_path, says, *options, target="at/site"):
    """The restore is refused in one line, and nothing is written anywhere."""
    before = everything(tmp_path)
    printed = unpooled("site", "restore", kept, tmp_path / target, *options, code=1)
    assert says in printed
    assert everything(tmp_path) == before
    assert not Path("/tmp/unpooled-evil.json").exists()


def everything(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_what_is_restored_opens_and_is_the_sites_alone(kept, tmp_path):
    folder = tmp_path / "another" / "place"
    assert f"restored: {folder}, as of 20" in unpooled("site", "restore", kept, folder)
    assert verify(folder / "log.jsonl") == []
    open_site("a", np.arange(60.0).reshape(-1, 2), RAW, folder).close()
    assert (folder / "policy.toml").read_text() == "format = 1\n"
    assert all(path.stat().st_mode & 0o077 == 0 for path in (folder, *folder.rglob("*")))
    assert [path.name for path in folder.parent.iterdir()] == ["place"]
    assert list((tmp_path / "at").iterdir()) == []  # where it was when it was backed up


@pytest.mark.parametrize("change", ["altered", "added", "left out"])
def test_a_file_that_is_not_the_one_that_was_backed_up_is_found(kept, tmp_path, change):
    """In a tar file that is whole, and whose own sums of all bytes fit."""
    files = contents(kept)
    if change == "altered":
        files["policy.toml"] = b"version = 3\n"
    elif change == "added":
        files["other.toml"] = b"format = 1\n"
    else:
        del files["policy.toml"]
    written(kept, files)
    refused(kept, tmp_path, "a file in it is not the one that was backed up")


@pytest.mark.parametrize(
    "name",
    [
        "../evil.json",
        "/tmp/unpooled-evil.json",
        "{there}/evil.json",
        "summary/../../evil.json",
        "./policy.toml",
        "summary//table.csv",
        "policy.toml\n",
        ".bashrc",
        ".config/autostart/evil.desktop",
        "authorized_keys",
        "patients.csv",
        "engine/local/custom/evil.py",
        "engine/startup/start.sh",
        "studies/evil.json",
        "results/run/evil.html",
        "unpooled-backup.json/evil",
        "log.jsonl.owner",
    ],
)
def test_only_files_that_a_backup_writes_are_restored(kept, tmp_path, name):
    written(kept, with_about(contents(kept), **{name.format(there=tmp_path): b"mine"}))
    refused(kept, tmp_path, "in it is not a file that unpooled site backup writes. Nothing was written.")


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE],
)
def test_links_devices_and_folders_are_refused(kept, tmp_path, kind):
    info = tarfile.TarInfo("policy.toml")
    info.type, info.linkname = kind, "/etc/passwd"
    files = contents(kept)
    del files["policy.toml"]
    written(kept, with_about(files), info)
    refused(kept, tmp_path, "'policy.toml' in it is not a plain file")


def test_a_name_that_comes_twice_is_refused(kept, tmp_path):
    info = tarfile.TarInfo("policy.toml")
    written(kept, contents(kept), info)
    refused(kept, tmp_path, "'policy.toml' is in it twice")


def test_an_archive_without_an_account_of_its_files_is_none(kept, tmp_path):
    files = contents(kept)
    texts = (b"[]", b'{"format": 1}', b'{"format": 1, "made": "now", "files": {}}')
    for about in (None, *texts, b'{"format": 1, "made": 1, "files": 2}'):
        written(
            kept,
            {name: data for name, data in files.items() if name != ABOUT} | ({ABOUT: about} if about else {}),
        )
        refused(kept, tmp_path, "not a backup of unpooled, or damaged")
    for number, words in (("", "an unknown or earlier format"), ('"format": 2, ', "format 2")):
        about = f'{{{number}"made": "2026-11-17", "files": {{}}}}'.encode()
        written(kept, {ABOUT: about})
        refused(kept, tmp_path, f"the backup has {words}, and this release reads format 1")
    kept.write_bytes(gzip.compress(b"no tar file"))
    refused(kept, tmp_path, "not a backup of unpooled, or damaged")
    kept.unlink()
    refused(kept, tmp_path, "no such file")


# ---------------------------------------------------------------- size


def packed(archive: Path, *pieces: bytes) -> None:
    with gzip.open(archive, "wb", compresslevel=1) as file:
        for piece in pieces:
            file.write(piece)


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


def peak(act) -> int:
    """The most bytes that an act holds at once."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_backup_that_unpacks_to_more_than_the_limit_is_refused(kept, tmp_path):
    """By what its headers say, before it is unpacked; and by what is there."""
    packed(kept, header("log.jsonl", 1_100_000_000), bytes(1 << 20))
    refused(kept, tmp_path, "its files have more than 1 GB together", "--max-gb", 1)
    kept.unlink()
    data = bytes(600_000)
    written(
        kept,
        with_about(
            {ABOUT: b'{"format": 1, "made": "2026-11-17"}'}, **{"log.jsonl": data, "log_heads.jsonl": data}
        ),
    )
    before = everything(tmp_path)
    with pytest.raises(InputError, match=r"its files have more than 0\.001 GB together"):
        restore(kept, tmp_path / "at" / "site", limit=1_000_000)
    assert everything(tmp_path) == before
    restore(kept, tmp_path / "at" / "site", limit=2_000_000)


def test_a_restore_holds_little_of_a_large_file_at_once(kept, tmp_path):
    large = 30_000_000
    with gzip.open(kept, "wb", compresslevel=1) as file, tarfile.open(fileobj=file, mode="w|") as tar:
        digest = hashlib.sha256(bytes(large)).hexdigest()
        about = json.dumps({"format": 1, "made": "2026-11-17", "files": {"log.jsonl": digest}}).encode()
        for name, data in (("log.jsonl", bytes(large)), (ABOUT, about)):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    folder = tmp_path / "at" / "site"
    assert peak(lambda: restore(kept, folder)) < large / 5
    assert (folder / "log.jsonl").stat().st_size == large


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_parts_of_the_format_are_not_read_into_memory_either(kept, tmp_path, kind):
    """A header may announce a name of many megabytes, or of a negative length."""
    large = 30_000_000
    packed(kept, header("x", large, kind), bytes(large))
    assert peak(lambda: refused(kept, tmp_path, "not a backup of unpooled, or damaged")) < large / 5
    packed(kept, header("x", -512, kind), bytes(large))
    assert peak(lambda: refused(kept, tmp_path, "not a backup of unpooled, or damaged")) < large / 5


def test_headers_without_end_are_refused(kept, tmp_path, monkeypatch):
    record = b"11 comment=\n"
    packed(kept, *[header("x", len(record), tarfile.XHDTYPE) + record.ljust(512, b"\0")] * 3000)
    refused(kept, tmp_path, "not a backup of unpooled, or damaged")
    monkeypatch.setattr(backups, "_MAX_FILES", 5)
    written(
        kept,
        with_about({ABOUT: b'{"format": 1, "made": "2026-11-17"}'}, **{f"p{i}.toml": b"" for i in range(6)}),
    )
    refused(kept, tmp_path, "too many files are in it")


# ---------------------------------------------------------------- a folder that is there


def test_a_folder_that_is_there_is_replaced_only_on_request_and_kept(kept, tmp_path):
    folder = tmp_path / "at" / "site"
    folder.mkdir()
    (folder / "log.jsonl").write_text("a newer log\n")
    refused(
        kept, tmp_path, "already exists (it is kept beside the new one, under another name). Use --overwrite"
    )
    for number in (1, 2):
        printed = unpooled("site", "restore", kept, folder, "--overwrite")
        assert f"site.replaced-{number}" in printed
        assert verify(folder / "log.jsonl") == []
    assert (tmp_path / "at" / "site.replaced-1" / "log.jsonl").read_text() == "a newer log\n"
    assert sorted(path.name for path in folder.parent.iterdir()) == [
        "site",
        "site.replaced-1",
        "site.replaced-2",
    ]


@pytest.mark.parametrize(("answer", "code"), [("n", 1), ("y", 0)])
def test_a_person_at_a_terminal_is_asked(kept, tmp_path, answer, code):
    folder = tmp_path / "at" / "site"
    unpooled("site", "restore", kept, folder)  # nothing is there, so nothing is asked
    before = everything(tmp_path)
    keyboard, terminal = pty.openpty()
    try:
        os.write(keyboard, f"{answer}\n".encode())
        words = [sys.executable, "-m", "unpooled", "site", "restore", str(kept), str(folder)]
        done = subprocess.run(words, stdin=terminal, capture_output=True, text=True, timeout=120)
    finally:
        os.close(keyboard)
        os.close(terminal)
    assert done.returncode == code, done.stderr
    assert "already exists. Replace it with the backup" in done.stdout + done.stderr
    assert (everything(tmp_path) == before) == (answer == "n")
    assert (tmp_path / "at" / "site.replaced-1").exists() == (answer == "y")


def test_a_folder_of_something_else_and_one_in_use_are_not_replaced(kept, tmp_path):
    (tmp_path / "at" / "site").mkdir()
    (tmp_path / "at" / "site" / "thesis.txt").write_text("mine")
    refused(kept, tmp_path, "is not empty, and not the folder of a site or of a federation", "--overwrite")
    (tmp_path / "file").write_text("mine")
    refused(kept, tmp_path, "there is a file of that name", "--overwrite", target="file")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "log.jsonl").touch()
    with locked(tmp_path / "used", what="a test"):
        refused(kept, tmp_path, "is in use (process", "--overwrite", target="used")


def test_a_restore_that_fails_at_its_end_leaves_the_folder_that_was_there(kept, tmp_path, monkeypatch):
    folder = tmp_path / "at" / "site"
    unpooled("site", "restore", kept, folder)
    (folder / "policy.toml").write_text("format = 1  # newer\n")
    before, true = everything(tmp_path), os.rename

    def fails(source, target):
        if Path(source).name.startswith(".site."):
            raise OSError("No space left on device")
        true(source, target)

    monkeypatch.setattr(os, "rename", fails)
    with pytest.raises(OSError, match="No space left"):
        restore(kept, folder, replace=True)
    assert everything(tmp_path) == before


# ---------------------------------------------------------------- what a backup has


def test_a_backup_names_the_files_that_it_does_not_have(kept, tmp_path):
    was = tmp_path / "was"
    (was / "patients.csv").write_text("id\n1\n")
    (was / "notes").mkdir()
    (was / "notes" / "a.txt").write_text("mine")
    printed = unpooled("site", "backup", was, tmp_path / "again.tar.gz")
    assert printed.endswith(
        "not in the backup, because unpooled did not write them: notes/a.txt, patients.csv"
    )
    assert not {"patients.csv", "notes/a.txt"} & set(contents(tmp_path / "again.tar.gz"))


def test_a_log_without_a_ledger_is_backed_up_too(kept, tmp_path):
    (tmp_path / "was" / "ledger.sqlite").unlink()
    unpooled("site", "backup", tmp_path / "was", tmp_path / "again.tar.gz")
    assert contents(tmp_path / "again.tar.gz")["log.jsonl"] == (tmp_path / "was" / "log.jsonl").read_bytes()


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
