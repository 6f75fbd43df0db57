"""Files of the last release are read by this one: copy, log and ledger of a site; model, result, checkpoint.

``python -m tests.kept VERSION`` writes such a folder at a release; the one before stays until its formats are
refused on purpose, in a line of the changelog under "What breaks".
"""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.kept.reading import answered, asked, predicted
from typer.testing import CliRunner

from unpooled.app.cli import app
from unpooled.app.run_folder import RunFolder
from unpooled.questions.clusters import ClusterSums
from unpooled.site.log import verify
from unpooled.site.open_site import open_site
from unpooled.site.policy import load

HOME = Path(__file__).parent
VERSIONS = sorted(path.parent.name for path in HOME.glob("*/expected.json"))


@pytest.fixture(params=VERSIONS)
def kept(request, tmp_path):
    return shutil.copytree(HOME / request.param, tmp_path / "kept")


def test_there_are_kept_files():
    assert VERSIONS


def test_a_site_opens_without_its_rows_and_gives_the_same_answer(kept):
    expected = json.loads((kept / "expected.json").read_text())
    site = open_site("north", None, load(kept / "policy.toml"), kept / "site")
    assert asked(site) == expected["answer"]  # the question that was asked then: the same bytes
    assert asked(site, 1) == expected["answer"]
    reply = answered(site, 2)
    assert isinstance(reply, ClusterSums)
    assert reply.mass.sum() == 40  # all persons, in groups
    site.close()


def test_the_log_verifies_and_an_altered_line_is_found(kept):
    log = kept / "site" / "log.jsonl"
    assert verify(log) == []
    lines = log.read_bytes()
    log.write_bytes(lines.replace(b'"north"', b'"south"', 1))
    assert log.read_bytes() != lines
    assert verify(log)


def test_a_model_gives_the_same_labels(kept):
    assert predicted(kept) == json.loads((kept / "expected.json").read_text())["labels"]


def test_a_run_that_was_killed_is_resumed_and_ends_as_the_other_did(kept, monkeypatch):
    monkeypatch.chdir(kept)
    for name, _, changed in json.loads(Path("half/job.json").read_text())["seen"]:
        os.utime(name, ns=(changed, changed))  # the files are copies, with a date of their own
    done = CliRunner().invoke(app, ["resume", "half"])
    assert done.exit_code == 0, done.output
    half, run = (RunFolder(kept / name).load_model() for name in ("half", "run"))
    np.testing.assert_allclose(half.centers, run.centers, rtol=1e-9)
    assert (half.sizes == run.sizes).all()


def test_a_run_is_read_from_its_checkpoint_and_reported(kept):
    folder = RunFolder(kept / "run")
    result = folder.load_result()
    assert (result.k, len(result.job.files)) == (3, 2)
    done = CliRunner().invoke(app, ["report", str(kept / "run")])
    assert done.exit_code == 0, done.output
    assert "<html" in (kept / "run" / "report.html").read_text(encoding="utf-8")
