"""Files of 0.1, when no site answered from a copy: read, or refused as the changelog says ("What breaks").

Models, jobs and logs are read, a policy is upgraded, a checkpoint is refused in one line. The files were
written by that version.
"""

import json
import shutil
from pathlib import Path

import pytest
from tests.kept.reading import CENTERS, answered, predicted
from typer.testing import CliRunner

from unpooled.app.cli import app
from unpooled.app.run_folder import RunFolder
from unpooled.core.exchange import Envelope, Part, Turn
from unpooled.core.messages import Refusal
from unpooled.questions.clusters import AskClusterSums
from unpooled.site.log import verify
from unpooled.site.open_site import open_site
from unpooled.site.policy import load, parse


@pytest.fixture
def kept(tmp_path):
    return shutil.copytree(Path(__file__).parent / "0.1", tmp_path / "kept")


def said(*words):
    done = CliRunner().invoke(app, list(map(str, words)))
    return done.exit_code, done.output


def test_a_model_gives_the_same_labels(kept, tmp_path):
    assert predicted(kept) == json.loads((kept / "labels.json").read_text())
    code, text = said("predict", kept / "run", kept / "east.csv", "--out", tmp_path / "labels.csv")
    assert code == 0, text
    code, text = said("export", kept / "run", "--to", "json", "--out", tmp_path / "model.json")
    assert code == 0, text


def test_a_job_is_read_as_it_was_run(kept):
    job = RunFolder(kept / "run").load_job()
    assert (job.protect, job.minimum, job.wishes.missing) == ("trusted", 5, "fill")


@pytest.mark.parametrize("command", ["report", "resume", "certify"])
def test_a_checkpoint_is_refused_in_one_line_and_nothing_is_written(kept, command, monkeypatch):
    monkeypatch.chdir(kept)
    job = json.loads(Path("run/job.json").read_text())
    for seen in job["seen"]:
        seen[2] = Path(seen[0]).stat().st_mtime_ns  # the files are copies, with a date of their own
    Path("run/job.json").write_text(json.dumps(job))
    before = {path: path.read_bytes() for path in kept.rglob("*") if path.is_file()}
    code, text = said(command, "run")
    assert code != 0
    assert " ".join(text.split()).startswith("unpooled: run/checkpoint: ")
    assert "before 0.2" in text
    assert {path: path.read_bytes() for path in kept.rglob("*") if path.is_file()} == before


def test_a_log_verifies_and_an_altered_line_is_found(kept):
    log = kept / "site" / "log.jsonl"
    assert verify(log) == []
    log.write_bytes(log.read_bytes().replace(b'"north"', b'"south"', 1))
    assert verify(log)


def test_a_policy_is_refused_upgraded_and_the_site_goes_on_from_a_copy(kept):
    code, text = said("policy", "check", kept / "policy.toml")
    assert code != 0
    assert "unpooled policy upgrade" in text
    code, text = said("policy", "upgrade", kept / "policy.toml", "--out", kept / "new.toml")
    assert code == 0, text
    assert load(kept / "new.toml").protect.mode == "copy"
    rules = parse((kept / "new.toml").read_text().replace("auto = false", "auto = true"))
    table = {"age": [float(i % 50) for i in range(60)], "pressure": [float(100 + i % 7) for i in range(60)]}
    site = open_site("north", table, rules, kept / "site")
    assert answered(site).mass.sum() == 60
    post = Envelope(Turn("kept", 0, 0, 0), (Part("total", AskClusterSums(CENTERS), None, 0),))
    assert isinstance(site.answer(post).replies[0], Refusal)  # then answered from rows, and not so again
    site.close()
    assert verify(kept / "site" / "log.jsonl") == []
