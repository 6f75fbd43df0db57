"""Secure sums under a policy: identities in files, pinned keys and states in the ledger, guards, the log."""

import json
import stat
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from helpers import blobs, split
from unpooled import FederatedKMeans
from unpooled.app.cli import app
from unpooled.errors import InputError, PolicyError, TooFewAnswersError
from unpooled.federation import LocalFederation, Simulation
from unpooled.privacy import SecureSums
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.privacy.secure_sum.sum_member import Member
from unpooled.protocol import codec
from unpooled.protocol.algorithm import each, total
from unpooled.protocol.exchange import Response, run_protocol
from unpooled.protocol.messages import Summable
from unpooled.protocol.questions.cluster_sums import AskMoments, AskScatter
from unpooled.protocol.questions.fuzzy_sums import AskFuzzySums
from unpooled.site.audit.overview import read
from unpooled.site.identity import identity_in
from unpooled.site.log import unpacked
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

RAW = 'format = 1\n[protect]\nmode = "raw"\n'
REQUIRED = f'{RAW}[aggregation]\nsecure = "required"\nmax_equations = 1\n'  # any number of sums over rows


def federation(tmp_path, rules: str = REQUIRED, n: int = 160) -> tuple[Simulation, dict]:
    """Four sites with folders of their own; nobody passed keys around."""
    X, _ = blobs(2, n=n, d=2, k=3)
    rows = {f"site-{i}": X[i::4] for i in range(4)}
    sites = [open_site(name, X, parse(rules), folder=tmp_path / name) for name, X in rows.items()]
    return LocalFederation(sites, secure=SecureSums()), rows


def test_a_run_between_sites_that_require_secure_sums(tmp_path) -> None:
    secure, rows = federation(tmp_path)
    model = FederatedKMeans(3, random_state=0, secure=True).fit_federation(secure)
    plain = FederatedKMeans(3, random_state=0).fit(rows)
    np.testing.assert_allclose(model.cluster_centers_, plain.cluster_centers_, atol=1e-9)
    kinds = set()
    for line in (tmp_path / "site-0" / "log.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["kind"] == "release":
            answer: Response = codec.decode(unpacked(entry["payload"]), expect=Response)
            kinds |= {type(reply).__name__ for reply in answer.replies}
            assert not any(isinstance(reply, Summable) for reply in answer.replies)
    assert kinds == {"Keys", "Shares", "Masked", "MaskedElsewhere", "ConsistencySignature", "UnmaskShares"}
    verified = CliRunner().invoke(app, ["site", "log", "--verify", str(tmp_path / "site-0")])
    assert verified.exit_code == 0, verified.output


def test_the_log_of_secure_sums_can_be_read_and_attacked_in_vain(tmp_path) -> None:
    secure, _ = federation(tmp_path)
    FederatedKMeans(3, random_state=0, secure=True).fit_federation(secure)
    for site in secure._transport._members.values():
        site.close()
    done = [
        subprocess.run(
            [sys.executable, "-m", "unpooled", "site", "log", str(tmp_path / "site-0"), *option],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for option in ([], ["--attack"])
    ]
    assert "AskMasked" in done[0]
    run = read(tmp_path / "site-0").runs[0]
    assert run.masked > 0
    assert (run.answers, run.alone) == (run.masked, 0)  # nothing left by itself
    assert run.keys > 0
    assert f"{run.masked} answers left masked" in done[0].replace("\n", " ")
    assert done[1].startswith(f"{run.masked} answers were masked and are not judged here")


def test_single_replies_and_plain_sums_are_refused_with_the_reason(tmp_path) -> None:
    secure, _ = federation(tmp_path)
    with pytest.raises(
        TooFewAnswersError, match=r"AskScatter would disclose a single site's answer. These methods .* lloyd"
    ):
        run_protocol(each(secure.sites, AskScatter(np.zeros((1, 2)))), secure)
    plain = LocalFederation(list(secure._transport._members.values()))
    with pytest.raises(TooFewAnswersError, match="AskMoments would disclose a single site's answer"):
        run_protocol(total(plain.sites, AskMoments()), plain)


def test_where_it_is_preferred_both_ways_are_open_and_only_the_plain_one_suppresses(tmp_path) -> None:
    rules = f"{RAW}min_cluster_size = 300\n"
    secure, _ = federation(tmp_path, rules)
    assert run_protocol(total(secure.sites, AskMoments()), secure, run="a").n == 160
    plain = LocalFederation(list(secure._transport._members.values()))
    assert run_protocol(total(plain.sites, AskMoments()), plain, run="b").n == 0


def test_guards_look_at_a_question_before_it_is_masked(tmp_path) -> None:
    secure, _ = federation(tmp_path, REQUIRED + "[jobs]\nalgorithms = ['lloyd']\n")
    with pytest.raises(TooFewAnswersError, match=r"does not allow AskFuzzySums"):
        run_protocol(total(secure.sites, AskFuzzySums(np.zeros((1, 2, 2)), 2.0)), secure)


def test_a_restarted_site_goes_on_in_the_same_run(tmp_path) -> None:
    """Three of four sites must stay, and yet each is killed in request: the ledger has all that it needs."""
    secure, rows = federation(tmp_path)
    sites = secure._transport._members
    for number, name in enumerate(("site-1", "site-3", "site-0", "site-1")):
        assert run_protocol(total(secure.sites, AskMoments()), secure, run="r", number=number).n == 160
        sites[name].close()
        sites[name] = open_site(name, rows[name], parse(REQUIRED), folder=tmp_path / name)
    fingerprints = set()
    for name in rows:
        sites[name].close()
        printed = CliRunner().invoke(app, ["site", "keys", str(tmp_path / name)]).output
        assert "site-0, site-1, site-2, site-3; fingerprint" in printed
        fingerprints.add(printed.split("fingerprint ")[1].splitlines()[0])
    assert len(fingerprints) == 1


def test_a_changed_key_is_refused_until_it_is_forgotten(tmp_path) -> None:
    secure, rows = federation(tmp_path)
    sites = secure._transport._members
    run_protocol(total(secure.sites, AskMoments()), secure, run="r")
    sites["site-2"].close()
    (tmp_path / "site-2" / "identity.key").unlink()
    sites["site-2"] = open_site("site-2", rows["site-2"], parse(REQUIRED), folder=tmp_path / "site-2")
    with pytest.raises(TooFewAnswersError, match="site-2 has another key than the pinned one"):
        run_protocol(total(secure.sites, AskMoments()), secure, run="q")
    for name in rows:
        sites[name].close()
        words = ["site", "keys", str(tmp_path / name), "--forget", "site-2"]
        assert CliRunner().invoke(app, words).exit_code == 0
        again = CliRunner().invoke(app, words)
        assert again.exit_code == 1
        assert "no key of site-2 is pinned" in again.output + str(again.exception)
        sites[name] = open_site(name, rows[name], parse(REQUIRED), folder=tmp_path / name)
    assert run_protocol(total(secure.sites, AskMoments()), secure, run="s").n == 160
    verified = CliRunner().invoke(app, ["site", "log", "--verify", str(tmp_path / "site-0")])
    assert verified.exit_code == 0, verified.output


def test_a_policys_minimum_of_sites_holds(tmp_path) -> None:
    secure, _ = federation(tmp_path, REQUIRED + "min_sites = 5\n")
    with pytest.raises(TooFewAnswersError, match="a sum over 4 sites, and this site's minimum is 5"):
        run_protocol(total(secure.sites, AskMoments()), secure)
    one = Identity.new()
    with pytest.raises(PolicyError, match="sums over 5 sites, got 3"):
        open_site(
            "a",
            np.zeros((30, 2)),
            parse(REQUIRED + "min_sites = 5\n"),
            member=Member("a", one),
        )


def test_an_identity_is_made_once_and_is_the_sites_alone(tmp_path) -> None:
    made = identity_in(tmp_path)
    assert identity_in(tmp_path).secret == made.secret
    assert stat.S_IMODE((tmp_path / "identity.key").stat().st_mode) == 0o600
    (tmp_path / "identity.key").write_text("abc")
    with pytest.raises(InputError, match=r"identity.key: the identity must be 64 hexadecimal digits"):
        identity_in(tmp_path)


def test_fit_with_secure_sums(tmp_path) -> None:
    X, _ = blobs(3, n=120, d=2, k=3)
    for name, rows in split(X, 4).items():
        np.savetxt(tmp_path / f"{name}.csv", rows, delimiter=",", header="x,y", comments="")
    files = sorted(map(str, tmp_path.glob("*.csv")))
    printed = {}
    for secure in (False, True):
        words = ["fit", *files, "-k", "2..4", "--json"]
        result = CliRunner().invoke(
            app, words + (["--secure", "--out", str(tmp_path / "run")] if secure else [])
        )
        assert result.exit_code == 0, result.output
        printed[secure] = json.loads(result.output)
    assert printed[True]["k"] == printed[False]["k"]
    assert printed[True]["secure"]
    np.testing.assert_allclose(
        [s["inertia"] for s in printed[True]["scores"]],
        [s["inertia"] for s in printed[False]["scores"]],
        rtol=1e-13,
    )
    for a, b in zip(printed[True]["clusters"], printed[False]["clusters"], strict=True):
        assert a["rows"] == b["rows"]
        assert a["rows_by_site"] is None
    assert "the sums do not disclose which site has which cluster" in printed[True]["headline"]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "4 sites" in page
    assert "the sums do not disclose which site has which cluster" in page
    assert "--secure" in page
    few = CliRunner().invoke(app, ["fit", *files[:2], "-k", "2", "--secure"])
    assert few.exit_code == 1
    assert "at least 3 sites, got 2" in few.output + str(few.exception)
