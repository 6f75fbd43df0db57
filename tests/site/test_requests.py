"""A site under its policy: what it refuses, what it changes, and that a restart changes nothing."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from tests.amounts import amounts

from helpers import ALGORITHMS, bits, blobs, each_algorithm, pooled, split
from unpooled.algorithms import Fuzzy, Lloyd
from unpooled.algorithms.scaled import Scaled
from unpooled.data.summary_question import AskSummary
from unpooled.data.transforms import Affine
from unpooled.errors import LedgerError, TooFewAnswersError
from unpooled.federation import LocalFederation, Simulation
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments
from unpooled.privacy.microaggregation import microaggregate
from unpooled.protocol import codec, run
from unpooled.protocol.exchange import Part, Request, RequestId
from unpooled.protocol.messages import Refusal
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskLocalMeans, AskMoments
from unpooled.protocol.questions.fuzzy_sums import AskFuzzySums
from unpooled.site import Site
from unpooled.site.allow_list import EXACT, NOISY, PREPARE, allowed
from unpooled.site.audit.attack import in_process, on_log, probe
from unpooled.site.log import entries, unpacked, verify
from unpooled.site.open_site import open_site
from unpooled.site.policy import Policy, parse

X = np.random.default_rng(0).normal(size=(60, 2))
CENTERS = np.array([[[-1.0, 0.0], [1.0, 0.0]]])


DECLARED = "auto_approve = true\none_row_per_person = true\nno_sensitive_columns = true"


def policy(text: str = "", mode: str = "raw", more: str = "") -> Policy:
    return parse(f'format = 1\n[protect]\nmode = "{mode}"\n{more}\n{text}')


SUMMARY = policy(mode="summary", more=DECLARED)


def request(question, number=0, exchange=0, transform=None, verb="total"):
    return Request(RequestId("r", 0, number, exchange), (Part(verb, question, transform, 0),))


def asked(site, question, number=0, **more):
    (reply,) = site.answer(request(question, number, **more)).replies
    return reply


def test_an_open_question_is_answered_as_without_a_policy():
    result = asked(open_site("a", X, policy()), AskClusterSums(CENTERS))
    plain = asked(Site("a", X, min_cluster_size=5), AskClusterSums(CENTERS))
    assert bits(result) == bits(plain)


REFUSED = {
    "another method": (
        '[jobs]\nalgorithms = ["lloyd"]',
        AskFuzzySums(CENTERS, 2.0),
        None,
        "does not allow AskFuzzy",
    ),
    "means of its own": ('[jobs]\nalgorithms = ["lloyd"]', AskLocalMeans(3), None, "it allows lloyd"),
    "other columns": (
        "",
        AskClusterSums(np.zeros((1, 1, 3))),
        None,
        "the centres have 3 columns, and the rows have 2",
    ),
    "not finite": ("", AskClusterSums(CENTERS * np.nan), None, "not finite"),
    "no scaling": ("", AskMoments(), Affine(np.zeros(2), np.array([1.0, np.inf])), "not a positive number"),
    "sums only": (
        '[aggregation]\nsecure = "required"',
        AskMoments(),
        None,
        "would disclose a single site's answer",
    ),
}


def test_noise_is_asked_for_where_the_policy_says_so_and_nowhere_else():
    private = open_site("a", X, policy("[dp]\nepsilon_total = 1\n[domain]\nrows = 1000", "dp"))
    assert "AskMoments is answered without noise" in asked(private, AskMoments()).reason
    summarized = open_site("a", X, policy(mode="summary", more="one_row_per_person = true"))
    assert "answers from its summary table" in asked(summarized, AskNoisyMoments(1.0, np.full(2, 9.0))).reason


@pytest.mark.parametrize("mode", ["summary", "raw"])
@pytest.mark.parametrize("case", REFUSED)
def test_what_a_policy_refuses(case, mode, tmp_path):
    text, question, transform, words = REFUSED[case]
    site = open_site("a", X, policy(text, mode, DECLARED), folder=tmp_path / "a")
    reply = asked(site, question, transform=transform)
    assert isinstance(reply, Refusal)
    assert words in reply.reason
    *_, last = (entry for _, entry in entries(tmp_path / "a" / "log.jsonl"))
    assert last["kind"] == "refusal"
    assert last["refused"] == [reply.reason]


def test_single_replies_under_required_sums_name_the_methods_that_would_do():
    site = open_site("a", X, policy('[aggregation]\nsecure = "required"', more="one_row_per_person = true"))
    assert (
        "These methods need only sums: lloyd, dwf, ewf, fuzzy, mini-batch"
        in asked(site, AskLocalMeans(2), verb="each").reason
    )


def test_a_round_that_is_over():
    site = open_site("a", X, policy())
    asked(site, AskMoments(), 3)
    assert asked(site, AskMoments(), 2).reason == "round 2 is over: round 3 was answered"
    assert not isinstance(asked(site, AskMoments(np.zeros(2)), 3), Refusal)


def test_rounds_and_runs():
    site = open_site("a", X, policy("[jobs]\nmax_rounds = 2\nmax_runs = 1"))
    assert "allows 2 rounds" in asked(site, AskMoments(), 3).reason
    asked(site, AskMoments(), 1)
    other = Request(RequestId("other", 0, 0, 0), (Part("total", AskMoments(), None, 0),))
    assert "allows 1 runs" in site.answer(other).replies[0].reason


def test_the_policy_of_another_site(tmp_path):
    with pytest.raises(LedgerError, match="the policy is for site b, and the site was opened as a"):
        open_site("a", X, policy('[site]\nid = "b"'), folder=tmp_path)


@each_algorithm
def test_every_method_asks_what_its_policy_allows_and_ends_with_the_same_bits(name):
    """What a method says it asks, held to what it asks; and a policy changes no result."""
    rows = split(blobs(3, n=240)[0], 3, seed=3)
    algorithm = ALGORITHMS[name](min_cluster_size=2)
    method = algorithm
    while hasattr(method, "inner"):
        method = method.inner
    names = [method.method, *(["k-fed"] if name == "lloyd-k-fed" else [])]  # a start by single sites' means
    text = f"[jobs]\nalgorithms = {json.dumps(names)}\ndescribe = false"
    rules = policy(text, more="min_cluster_size = 2")
    sites = [open_site(s, rows_, rules) for s, rows_ in rows.items()]
    guarded = run(algorithm, LocalFederation(sites), seed=2, max_rounds=4, quorum=1.0)
    plain = run(algorithm, Simulation.from_rows(rows, min_cluster_size=2), seed=2, max_rounds=4, quorum=1.0)
    assert bits(guarded.state) == bits(plain.state)


@each_algorithm
def test_every_method_runs_on_summary_tables_at_sites_with_the_bits_of_a_simulation(name):
    rows = split(blobs(3, n=600)[0], 3, seed=3)
    algorithm = ALGORITHMS[name]()
    sites = [open_site(s, X_, SUMMARY) for s, X_ in rows.items()]
    behind = run(algorithm, LocalFederation(sites), seed=2, max_rounds=4, quorum=1.0)
    summaries = {s: microaggregate(X_) for s, X_ in rows.items()}
    rehearsal = Simulation.from_rows(
        {s: summary.matrix() for s, summary in summaries.items()},
        {s: summary.people for s, summary in summaries.items()},
        within={s: np.nan_to_num(summary.within) for s, summary in summaries.items()},
    )
    assert bits(behind.state) == bits(run(algorithm, rehearsal, seed=2, max_rounds=4, quorum=1.0).state)


def test_preparation_and_noisy_answers_are_always_allowed():
    names = allowed((), describe=False)
    assert names == {codec.name_of(q) for q in (*PREPARE, *EXACT, *NOISY, AskSummary)}


# ---------------------------------------------------------------- restarts


def test_a_restarted_site_gives_the_same_bytes_and_is_not_charged_again(tmp_path):
    site = open_site("a", X, policy(), folder=tmp_path)
    first = site.receive(codec.wrap(request(AskMoments(), 4)))
    second = site.receive(codec.wrap(request(AskClusterSums(CENTERS), 4, exchange=1)))
    lines = len((tmp_path / "log.jsonl").read_bytes().splitlines())
    site.close()
    site = open_site("a", X, policy(), folder=tmp_path)
    assert site.receive(codec.wrap(request(AskClusterSums(CENTERS), 4, exchange=1))) == second
    assert site.receive(codec.wrap(replace(request(AskMoments(), 4), countersigned="signed"))) == first
    assert len((tmp_path / "log.jsonl").read_bytes().splitlines()) == lines + 1  # the opening
    assert "round 3 is over" in asked(site, AskMoments(), 3).reason
    site.close()


CHILD = """
import sys
import numpy as np
from unpooled.protocol import codec
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse
X = np.random.default_rng(0).normal(size=(60, 2))
rules = "format = 1\\n[protect]\\nmode = '%s'\\nauto_approve = true\\none_row_per_person = true" % sys.argv[2]
rules += "\\nno_sensitive_columns = true"
site = open_site("a", X, parse(rules), folder=sys.argv[1])
for line in sys.stdin:
    print(site.respond(bytes.fromhex(line)).hex(), flush=True)
"""


def child(folder, mode):
    words = [sys.executable, "-c", CHILD, str(folder), mode]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("kills", amounts(3, 50))
@pytest.mark.parametrize("mode", ["summary", "raw"])
def test_kill_9_at_any_point_never_gives_a_second_different_answer(tmp_path, mode, kills):
    """A site is killed at random moments while it answers requests; each request is sent again afterwards."""
    rng = np.random.default_rng(5)
    seen: dict[int, str] = {}
    number, process = 0, child(tmp_path, mode)
    for _ in range(kills):
        for _ in range(3):
            message = codec.wrap(request(AskClusterSums(CENTERS + 0.01 * number), number)).hex()
            process.stdin.write(message + "\n")
            process.stdin.flush()
            seen.setdefault(number, process.stdout.readline().strip())
            number += 1
        message = codec.wrap(request(AskClusterSums(CENTERS + 0.01 * number), number)).hex()
        process.stdin.write(message + "\n")
        process.stdin.flush()
        try:
            process.wait(rng.uniform(0.0, 0.004))
        except subprocess.TimeoutExpired:
            process.kill()
        printed, _ = process.communicate()
        process = child(tmp_path, mode)
        process.stdin.write(message + "\n")
        process.stdin.flush()
        again = process.stdout.readline().strip()
        if printed.endswith("\n"):  # the first answer got out
            assert printed.strip() == again
        seen[number] = again
        process.stdin.write(message + "\n")
        process.stdin.flush()
        assert process.stdout.readline().strip() == again
        number += 1
    process.kill()
    process.communicate()
    assert verify(tmp_path / "log.jsonl") == []
    ids = [(e["round"], e["request"]) for _, e in entries(tmp_path / "log.jsonl") if e["kind"] == "release"]
    assert len(ids) == len(set(ids)) == number  # every request is in the log once
    assert all(not isinstance(codec.unwrap(bytes.fromhex(a)).replies[0], Refusal) for a in seen.values())


# ---------------------------------------------------------------- attacks


def attacked(site, seed, rows):
    rng = np.random.default_rng(seed)
    found = probe(in_process(site.answer), rows.mean(axis=0), rows.std(axis=0), 200, rng)
    assert found.hits(rows) == len(found.rows)  # what the attack takes for rows are rows
    return len(found.rows)


@pytest.mark.parametrize("seed", range(3))
def test_the_probe_breaks_an_unguarded_site_and_not_one_with_a_summary_table(seed):
    rows = np.random.default_rng(seed).normal(size=(1000, 5))
    assert attacked(Site("a", rows), seed, rows) > 50
    assert attacked(Site("a", rows, min_cluster_size=10), seed, rows) > 50  # a minimum size is not enough
    assert attacked(open_site("a", rows, SUMMARY), seed, rows) == 0


def test_an_attack_on_the_log_finds_what_is_there(tmp_path):
    order = np.sort(X[:, 0])
    sites = {name: open_site("a", X, policy(), folder=tmp_path / name) for name in ("safe", "unsafe")}
    for name, cuts in (("safe", (20, 40)), ("unsafe", (29, 30))):
        for number, i in enumerate(cuts):
            b = (order[i] + order[i + 1]) / 2
            asked(sites[name], AskClusterSums(np.array([[[b - 5, 0.0], [b + 5, 0.0]]])), number)
    assert len(on_log(tmp_path / "safe" / "log.jsonl").rows) == 0
    found = on_log(tmp_path / "unsafe" / "log.jsonl")
    assert len(found.rows) == found.hits(X) == 1


def test_no_answer_from_a_summary_table_is_a_row(tmp_path):
    rows = split(blobs(8, n=300, d=3)[0], 3, seed=8)
    sites = [open_site(s, r, SUMMARY, folder=tmp_path / s) for s, r in rows.items()]
    run(Scaled(Lloyd(k=3, min_cluster_size=5)), LocalFederation(sites), seed=1)
    for name, mine in rows.items():
        found = on_log(tmp_path / name / "log.jsonl")
        assert len(found.rows) == 0
        text = (tmp_path / name / "log.jsonl").read_text()
        assert all(json.loads(line)["kind"] for line in text.splitlines())
        sent = [unpacked(json.loads(line).get("payload", "")) for line in text.splitlines()]
        assert any(sent)
        assert not any(row.tobytes() in data for data in sent for row in mine)


def test_too_many_refusals_are_one_error_with_every_reason():
    rows = split(pooled(split(X, 3)), 3)
    sites = [open_site(s, r, policy("[jobs]\nalgorithms = ['k-fed']\n")) for s, r in rows.items()]
    with pytest.raises(TooFewAnswersError, match="it allows k-fed"):
        run(Fuzzy(k=2), LocalFederation(sites), seed=1)
