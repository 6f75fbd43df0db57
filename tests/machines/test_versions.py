"""Sites with another installed version of unpooled, in a process of their own, beside those with ours."""

import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from importlib.metadata import version

import pytest

from federation.test_file_runs import SITES, SUMMARY, Federation, command, same_result


def installed(folder, number):
    """The environment of a process in which unpooled is installed in this version."""
    metadata = folder / f"unpooled-{number}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: unpooled\nVersion: {number}\n")
    return {**os.environ, "PYTHONPATH": str(folder)}


@contextmanager
def answering(federation, other, environment):
    """All sites answer: one of them in a process with another version."""
    words = ["site", "answer", str(federation.top / other), str(federation.shared / other), "--watch"]
    process = subprocess.Popen([sys.executable, "-m", "unpooled", *words], env=environment)
    over = threading.Event()

    def answer(site):
        responder = federation.responder(site)
        while not over.is_set():
            responder.answer_all()
            over.wait(0.01)
        responder.close()

    threads = [threading.Thread(target=answer, args=(site,)) for site in SITES if site != other]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
        process.kill()
        process.wait()


@pytest.fixture
def federation(tmp_path):
    return Federation(tmp_path, SUMMARY)


def minor(step):
    """The version this many minor versions later."""
    major, second, _ = version("unpooled").split(".", 2)
    return f"{major}.{int(second) + step}.0"


def test_a_site_one_minor_version_later_takes_part(federation, tmp_path):
    with answering(federation, "south", installed(tmp_path / "later", minor(1))):
        federation.run("run", "-k", "2")
    command("fit", *federation.files, "-k", "2", "--protect", "summary", "--out", federation.top / "fit")
    same_result(federation.top / "run", federation.top / "fit")


def test_a_site_two_minor_versions_later_is_declined_in_one_line_that_names_both(federation, tmp_path):
    later = minor(2)
    with answering(federation, "south", installed(tmp_path / "later", later)):
        line = federation.run("run", "-k", "2", fails=True)
    assert line.count("\n") == 0
    assert f"unpooled {version('unpooled')}, this site {later}" in line
    assert "south" in line
