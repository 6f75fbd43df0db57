"""Secure sums under a policy: identities and rosters in files, the guards, the log."""

import json
import stat
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from helpers import blobs, split
from unpooled import FederatedKMeans, InProcess, SecureSums
from unpooled.app.cli import app
from unpooled.core import codec
from unpooled.core.exchange import Answer, conduct
from unpooled.core.messages import Summable
from unpooled.core.protocol import each, total
from unpooled.errors import BadInput, PolicyError, TooFewAnswers
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.privacy.secure_sum.site import Member
from unpooled.questions.clusters import AskMoments, AskScatter
from unpooled.questions.fuzzy import AskFuzzySums
from unpooled.site.audit.summary import read
from unpooled.site.identity import identity_in, member_in, read_roster
from unpooled.site.log import unpacked
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

TRUSTED = 'version = 2\n[protect]\nmode = "trusted"\n'
REQUIRED = f'{TRUSTED}[aggregation]\nsecure = "required"\n'


def federation(tmp_path, rules: str = REQUIRED, n: int = 160) -> tuple[InProcess, dict]:
    """Four sites with folders of their own, who have pinned each other."""
    X, _ = blobs(2, n=n, d=2, k=3)
    rows = {f"site-{i}": X[i::4] for i in range(4)}
    lines = []
    for name in rows:
        (tmp_path / name).mkdir(exist_ok=True)
        said = CliRunner().invoke(app, ["policy", "key", str(tmp_path / name), "--site", name])
        assert said.exit_code == 0
        lines.append(said.output)
    sites = []
    for name, X in rows.items():
        (tmp_path / name / "roster.toml").write_text("[sites]\n" + "".join(lines))
        sites.append(open_site(name, X, parse(rules), folder=tmp_path / name))
    return InProcess(sites, secure=SecureSums()), rows


def test_a_run_between_sites_that_require_secure_sums(tmp_path) -> None:
    hidden, rows = federation(tmp_path)
    model = FederatedKMeans(3, random_state=0, secure=True).fit_federation(hidden)
    plain = FederatedKMeans(3, random_state=0).fit(rows)
    np.testing.assert_allclose(model.cluster_centers_, plain.cluster_centers_, atol=1e-9)
    kinds = set()
    for line in (tmp_path / "site-0" / "log.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["kind"] == "release":
            answer: Answer = codec.decode(unpacked(entry["payload"]), expect=Answer)
            kinds |= {type(reply).__name__ for reply in answer.replies}
            assert not any(isinstance(reply, Summable) for reply in answer.replies)
    assert kinds == {"Keys", "Shares", "Masked", "LeftMasked", "Agreed", "Opened"}
    verified = CliRunner().invoke(app, ["audit", "verify", str(tmp_path / "site-0")])
    assert verified.exit_code == 0, verified.output


def test_the_log_of_secure_sums_can_be_shown_and_attacked_in_vain(tmp_path) -> None:
    hidden, _ = federation(tmp_path)
    FederatedKMeans(3, random_state=0, secure=True).fit_federation(hidden)
    for site in hidden._remote._carrier._sites.values():
        site.close()
    done = [
        subprocess.run(
            [sys.executable, "-m", "unpooled", "audit", word, str(tmp_path / "site-0")],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for word in ("show", "attack")
    ]
    assert "AskMasked" in done[0]
    run = read(tmp_path / "site-0").runs[0]
    assert run.masked > 0
    assert run.masked + run.keys == run.releases  # nothing left by itself
    assert f"{run.masked} answers left masked" in done[0].replace("\n", " ")
    assert done[1].startswith("0 rows could be recovered from 0 groups")


def test_single_replies_and_plain_sums_are_refused_with_the_reason(tmp_path) -> None:
    hidden, _ = federation(tmp_path)
    with pytest.raises(TooFewAnswers, match=r"AskScatter would show a single site's reply; methods .* lloyd"):
        conduct(each(hidden.sites, AskScatter(np.zeros((1, 2)))), hidden)
    plain = InProcess(list(hidden._remote._carrier._sites.values()))
    with pytest.raises(TooFewAnswers, match="AskMoments would show a single site's reply"):
        conduct(total(plain.sites, AskMoments()), plain)


def test_where_it_is_preferred_both_ways_are_open_and_only_the_plain_one_suppresses(tmp_path) -> None:
    rules = f"{TRUSTED}min_cluster_size = 300\n"
    hidden, _ = federation(tmp_path, rules)
    assert conduct(total(hidden.sites, AskMoments()), hidden, run="a").n == 160
    plain = InProcess(list(hidden._remote._carrier._sites.values()))
    assert conduct(total(plain.sites, AskMoments()), plain, run="b").n == 0


def test_guards_look_at_a_question_before_it_is_masked(tmp_path) -> None:
    hidden, _ = federation(tmp_path, REQUIRED + "[jobs]\nalgorithms = ['lloyd']\n")
    with pytest.raises(TooFewAnswers, match=r"does not allow memberships\.AskFuzzySums"):
        conduct(total(hidden.sites, AskFuzzySums(np.zeros((1, 2, 2)), 2.0)), hidden)


def test_a_restarted_site_keeps_its_identity_and_comes_back(tmp_path) -> None:
    hidden, rows = federation(tmp_path)
    assert conduct(total(hidden.sites, AskMoments()), hidden, run="r").n == 160
    hidden._remote._carrier._sites["site-1"].close()
    hidden._remote._carrier._sites["site-1"] = open_site(
        "site-1", rows["site-1"], parse(REQUIRED), folder=tmp_path / "site-1"
    )
    left = len(rows["site-1"])
    assert conduct(total(hidden.sites, AskMoments()), hidden, run="r", number=1).n == 160 - left
    assert conduct(total(hidden.sites, AskMoments()), hidden, run="r", number=2).n == 160


def test_a_policys_minimum_of_sites_holds(tmp_path) -> None:
    hidden, _ = federation(tmp_path, REQUIRED + "min_sites = 5\n")
    with pytest.raises(TooFewAnswers, match="a sum over 4 sites, this site's minimum is 5"):
        conduct(total(hidden.sites, AskMoments()), hidden)
    one = Identity.new()
    with pytest.raises(PolicyError, match="sums over 5 sites, got 3"):
        open_site(
            "a",
            np.zeros((30, 2)),
            parse(REQUIRED + "min_sites = 5\n"),
            member=Member("a", one, {"a": one.public}),
        )


def test_an_identity_is_made_once_and_is_the_sites_alone(tmp_path) -> None:
    made = identity_in(tmp_path)
    assert identity_in(tmp_path).secret == made.secret
    assert stat.S_IMODE((tmp_path / "identity.key").stat().st_mode) == 0o600
    assert member_in("a", tmp_path) is None
    (tmp_path / "identity.key").write_text("abc")
    with pytest.raises(BadInput, match=r"identity.key: the identity must be 64 hexadecimal digits"):
        identity_in(tmp_path)


BAD = {
    "sites = 3": "one section",
    '[sites]\na = "zz"': "a must be 64 hexadecimal digits",
    '[sites]\na = "00"': "a must be 64 hexadecimal digits",
    "[sites]\na = 1": "a must be 64 hexadecimal digits",
    "[other]": "one section",
    "[sites": "not TOML",
    f'[sites]\na = "{"00" * 32}"\nb = "{"00" * 32}"': "two sites have the same key",
}


@pytest.mark.parametrize("text", BAD)
def test_a_wrong_roster_is_named(text: str, tmp_path) -> None:
    path = tmp_path / "roster.toml"
    path.write_text(text)
    with pytest.raises(BadInput, match=BAD[text]):
        read_roster(path)


def test_fit_with_secure_sums(tmp_path) -> None:
    X, _ = blobs(3, n=120, d=2, k=3)
    for name, rows in split(X, 4).items():
        np.savetxt(tmp_path / f"{name}.csv", rows, delimiter=",", header="x,y", comments="")
    files = sorted(map(str, tmp_path.glob("*.csv")))
    said = {}
    for secure in (False, True):
        words = ["fit", *files, "-k", "2..4", "--json"]
        got = CliRunner().invoke(
            app, words + (["--secure", "--out", str(tmp_path / "run")] if secure else [])
        )
        assert got.exit_code == 0, got.output
        said[secure] = json.loads(got.output)
    assert said[True]["k"] == said[False]["k"]
    assert said[True]["secure"]
    np.testing.assert_allclose(
        [s["inertia"] for s in said[True]["scores"]],
        [s["inertia"] for s in said[False]["scores"]],
        rtol=1e-11,  # a field is rounded to 9e-13 of its largest number
    )
    for a, b in zip(said[True]["clusters"], said[False]["clusters"], strict=True):
        assert a["rows"] == b["rows"]
        assert a["rows_by_site"] is None
    assert "secure sums do not show which site has which" in said[True]["answer"]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "4 sites" in page
    assert "secure sums do not show which site has which" in page
    assert "--secure" in page
    few = CliRunner().invoke(app, ["fit", *files[:2], "-k", "2", "--secure"])
    assert isinstance(few.exception, BadInput) or "at least 3 sites, got 2" in few.output
