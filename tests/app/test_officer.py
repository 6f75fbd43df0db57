"""``unpooled site init``, ``site policy`` and ``site log`` as an officer uses them."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from unpooled.algorithms import Lloyd
from unpooled.app.cli import app
from unpooled.errors import LedgerError
from unpooled.federation import LocalFederation
from unpooled.privacy.presets import PRESETS
from unpooled.protocol import run
from unpooled.site.log import Log, entries
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse


def call(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    return done.exit_code, done.stdout + (done.stderr or "")


@pytest.fixture
def log(tmp_path):
    """The log of one of three sites after a run."""
    rng = np.random.default_rng(3)
    rows = {s: rng.normal(size=(80, 2)) + 8 * rng.integers(2, size=(80, 1)) for s in "abc"}
    sites = [
        open_site(s, X, parse('format = 1\n[protect]\nmode = "raw"'), folder=tmp_path / s)
        for s, X in rows.items()
    ]
    run(Lloyd(k=2, min_cluster_size=5, n_starts=2), LocalFederation(sites), seed=1)
    for site in sites:
        site.close()
    return tmp_path / "a" / "log.jsonl"


def test_a_policy_from_init_to_explain(tmp_path):
    path = tmp_path / "policy.toml"
    assert call("site", "init", path, "--name", "north") == (0, f"written: {path}\n")
    code, printed = call("site", "policy", "--check", path)
    assert code == 0
    assert "valid, digest" in printed
    code, printed = call("site", "policy", path)
    assert code == 0
    for word in (
        "Answers",
        "Refuses",
        "Protects",
        "The site answers from a summary table",
        "No series of queries reveals more than the summary table itself",
    ):
        assert word in " ".join(printed.split())
    code, printed = call("site", "init", path)
    assert code == 1
    assert "already exists. Use --overwrite to replace it" in printed


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_written_and_in_order(tmp_path, name):
    path = tmp_path / "policy.toml"
    code, printed = call("site", "init", path, "--name", "north", "--preset", name)
    assert code == 0
    assert printed.startswith(f"written: {path}\n")
    assert ("complete it before you summarize the data" in printed) == (name == "utility-15-15")
    code, printed = call("site", "policy", "--check", path)
    if name == "utility-15-15":
        assert (code, printed.count("\n")) == (1, 1)
        assert 'not complete: [protect] preset = "utility-15-15" needs consumption' in printed
        assert "valid" not in printed
        assert call("site", "init", path, "--preset", name, "--consumption", "kwh", "--overwrite")[0] == 0
        code, printed = call("site", "policy", "--check", path)
    assert (code, "valid, digest" in printed) == (0, True)
    starts = {line.index(" # ") for line in path.read_text().splitlines() if " # " in line.lstrip("# ")}
    assert len(starts) == 1, "comments begin below each other"
    explained, listed = (
        " ".join(call("site", *words)[1].split()) for words in (("policy", path), ("init", "--list-presets"))
    )
    assert f"The policy follows the preset {name}: " in explained
    assert (PRESETS[name].asks in explained) == (name == "strict")  # the others are kept at a release only
    assert PRESETS[name].asks in listed


def test_an_unknown_preset_is_one_line_and_writes_nothing(tmp_path):
    code, printed = call("site", "init", tmp_path / "policy.toml", "--preset", "hospital")
    assert (code, printed.count("\n")) == (1, 1)
    assert (
        "unknown preset 'hospital'. The presets are opensafely, cms, datashield, utility-15-15, strict"
        in printed
    )
    assert not list(tmp_path.iterdir())


def test_a_summary_table_under_15_15_from_policy_to_page(tmp_path):
    rng = np.random.default_rng(2)
    kwh = np.exp(rng.normal(3, 1.5, 200))
    (tmp_path / "homes.csv").write_text(
        "area,kwh\n"
        + "\n".join(f"{a:.1f},{k:.2f}" for a, k in zip(rng.normal(90, 20, 200), kwh, strict=True))
    )
    policy, site = tmp_path / "policy.toml", tmp_path / "north"
    make = (
        "site",
        "summarize",
        "--no-sensitive-columns",
        site,
        "--data",
        tmp_path / "homes.csv",
        "--policy",
        policy,
    )
    make += ("--one-row-per-person",)
    assert call("site", "init", policy, "--preset", "utility-15-15")[0] == 0
    code, printed = call(*make)
    assert (code, printed.count("\n")) == (1, 1)
    assert "needs consumption" in printed
    assert not site.exists()
    assert (
        call("site", "init", policy, "--preset", "utility-15-15", "--consumption", "kwh", "--overwrite")[0]
        == 0
    )
    assert call(*make)[0] == 0
    assert (
        "nobody has more than 15% of the group's total"
        in call("site", "review", site, "--html", site / "p")[1]
    )
    cells = [line.split(",") for line in (site / "summary" / "table.csv").read_text().splitlines()]
    assert any("" in row for row in cells), "no cell is withheld: the data are not skewed enough"


def test_a_wrong_policy_is_one_line(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text("format = 1\n[protect]\nmin_cluster = 5\n")
    code, printed = call("site", "policy", "--check", path)
    assert code == 1
    assert printed.count("\n") == 1
    assert "unknown key in [protect] 'min_cluster'" in printed


def test_what_left(log):
    code, printed = call("site", "log", log)
    assert code == 0
    assert "What left site a" in printed
    assert "The log is intact" in printed
    assert "AskClusterSums" in printed
    code, printed = call("site", "log", log.parent)
    assert code == 0


def test_the_page(log, tmp_path):
    page = tmp_path / "audit.html"
    assert call("site", "log", log, "--html", page)[0] == 0
    text = page.read_text()
    assert "What left site a" in text
    assert "http://" not in text
    assert "<script" not in text


def test_verify_and_what_it_says_of_tampering(log):
    *_, last = (entry for _, entry in entries(log))
    log_heads = log.parent / "log_heads.jsonl"
    log_heads.write_text(json.dumps({"site": "a", "head": f"{last['seq']}:{last['hash']}"}) + "\n")
    assert call("site", "log", "--verify", log, "--log-heads", log_heads)[0] == 0
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:-1]))
    assert call("site", "log", "--verify", log)[0] == 0
    code, printed = call("site", "log", "--verify", log, "--log-heads", log_heads)
    assert code == 1
    assert "the end is cut off" in printed
    log.write_bytes(b"".join([lines[0], lines[1].replace(b'"round":0', b'"round":1'), *lines[2:]]))
    code, printed = call("site", "log", "--verify", log)
    assert code == 1
    assert "line 2: its content does not fit its hash" in printed


def test_log_heads_of_one_coordinator_do_not_hide_what_another_one_knows(log, tmp_path):
    """The first federation's heads end early: a cut after them shows only in those of the second."""
    every = [entry for _, entry in entries(log)]
    first, second = tmp_path / "heart.jsonl", tmp_path / "lung.jsonl"
    for path, entry in ((first, every[2]), (second, every[-1])):
        path.write_text(json.dumps({"site": "a", "head": f"{entry['seq']}:{entry['hash']}"}) + "\n")
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    verify = ("site", "log", "--verify", log)
    code, printed = call(*verify, "--log-heads", first)
    assert code == 0
    assert "not checked: whether the log was cut off after line 3: " in printed
    for heads in ((second, first), (first, second)):
        code, printed = call(*verify, *(word for path in heads for word in ("--log-heads", path)))
        assert code == 1
        assert "the end is cut off" in printed
    second.write_text(json.dumps({"site": "a", "head": f"{every[2]['seq']}:{'0' * 64}"}) + "\n")
    code, printed = call(*verify, "--log-heads", first, "--log-heads", second)
    assert code == 1
    assert "two coordinators have different heads of line 3." in printed


def test_a_log_that_was_cut_and_went_on_does_not_fit_the_heads_that_came_before(log, tmp_path):
    """The coordinator keeps every head: the last one alone would fit a log that was cut and continued."""
    every = [entry for _, entry in entries(log)]
    log_heads = tmp_path / "log_heads.jsonl"
    lines = [json.dumps({"site": "a", "head": f"{e['seq']}:{e['hash']}"}) for e in every]
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:4]))
    with pytest.raises(LedgerError, match="the log is lost, or older than the ledger"):
        open_site("a", np.zeros((30, 2)), parse('format = 1\n[protect]\nmode = "raw"'), folder=log.parent)
    (log.parent / "ledger.sqlite").unlink()  # so it is forged: without a ledger, and by hand
    forged = Log(log)
    while forged.seq < len(every):
        forged.append("opening", site="a")
    forged.close()
    *_, last = (entry for _, entry in entries(log))
    lines.append(json.dumps({"site": "a", "head": f"{last['seq']}:{last['hash']}"}))
    log_heads.write_text(lines[-1] + "\n")
    printed = call("site", "log", "--verify", log, "--log-heads", log_heads)[1]
    assert "rewritten" not in printed  # the last head alone fits
    log_heads.write_text("\n".join(lines) + "\n")
    code, printed = call("site", "log", "--verify", log, "--log-heads", log_heads)
    assert code == 1
    assert "the chain was rewritten" in printed


def test_the_attack(log):
    code, printed = call("site", "log", "--attack", log)
    assert code == 0
    assert "rows can be reconstructed from" in printed


def test_no_log(tmp_path):
    code, printed = call("site", "log", tmp_path)
    assert code == 1
    assert "there is no log" in printed
