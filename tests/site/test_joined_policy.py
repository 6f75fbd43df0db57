"""A site's policy may be anywhere: its settings name it, and somebody who checks its log looks there."""

import numpy as np
import pytest
from typer.testing import CliRunner

from unpooled.app.cli import app
from unpooled.app.pages import dpia
from unpooled.app.pages.review_state import SiteState
from unpooled.federation.provisioning.enrolment import invite
from unpooled.federation.provisioning.federation_folder import FederationFolder, create
from unpooled.federation.provisioning.site_folder import SiteFolder
from unpooled.protocol.exchange import Part, Request, RequestId
from unpooled.protocol.questions.cluster_sums import AskMoments
from unpooled.site.open_site import open_site
from unpooled.site.policy import load
from unpooled.site.session import SiteSettings

NOTE = "the policy that the site"


@pytest.fixture
def joined(tmp_path):
    """A site that joined a federation with a policy outside its folder, and answered under it."""
    create(tmp_path / "fed", "fed", "localhost", ("a",), engine_name="nvflare")
    invite(FederationFolder.read(tmp_path / "fed"), "a")
    policy, site = tmp_path / "rules.toml", SiteFolder(tmp_path / "a")
    policy.write_text('format = 1\n[protect]\nmode = "raw"\n')
    site.accept(tmp_path / "fed" / "invitations" / "a.json")
    site.write_settings(SiteSettings("a", "a.csv", str(site.path), str(policy)))
    opened = open_site("a", np.arange(80.0).reshape(40, 2), load(policy), site.path)
    opened.answer(Request(RequestId("r", 0, 0, 0), (Part("total", AskMoments(), None, 0),)))
    opened.close()
    return site.path, policy


def printed(*words):
    result = CliRunner().invoke(app, list(map(str, words)))
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def test_the_policy_that_the_settings_name_is_checked(joined):
    folder, policy = joined
    for words in (
        ("site", "log", "--verify", folder),
        ("site", "log", "--verify", folder / "log.jsonl"),
        ("site", "log", folder),
    ):
        assert NOTE not in printed(*words)
    record, _ = SiteState(folder)._read_log()
    assert not [text for text in record.unchecked if NOTE in text]
    assert NOTE not in dpia.page(dpia.read(folder, policy))
    policy.write_text("format = 1\n")
    assert f"not checked: {NOTE} last answered under: another one is in {policy}" in printed(
        "site", "log", "--verify", folder
    )


def test_without_settings_it_is_reported_that_there_is_no_policy(joined):
    folder, _ = joined
    for gone in ("invitation.json", "engine/local"):
        for path in [folder / gone, *(folder / gone).glob("*")]:
            path.unlink() if path.is_file() else None
        assert "there is no policy.toml next to the log" in printed("site", "log", "--verify", folder)


@pytest.mark.parametrize(
    "words",
    [
        ("site", "join", "nosuch.json"),
        ("site", "join", "nosuch.json", "--folder", "x"),
        ("site", "status", "n"),
        ("site", "stop", "n"),
    ],
)
def test_what_is_not_there_is_reported_as_not_there(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, list(words))
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert f"{words[2]}: no such file" in result.stderr
    assert list(tmp_path.iterdir()) == []
