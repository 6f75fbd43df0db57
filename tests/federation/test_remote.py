"""The federation over any transport: the requests that it sends, and how it treats every kind of response."""

import re
from dataclasses import replace

import numpy as np
import pytest

from helpers import ALGORITHMS, each_algorithm, opened
from unpooled import certify
from unpooled.algorithms import Lloyd
from unpooled.app.job import Job, RemoteRunOptions
from unpooled.app.result import ClusterResult
from unpooled.data import PreparationOptions, Table
from unpooled.data.schema import AskSchema
from unpooled.errors import CodecError, ReplyError, SiteFailedError, TooFewAnswersError
from unpooled.evaluation import Analysis
from unpooled.federation import LocalFederation, Simulation
from unpooled.federation.transport_federation import TransportFederation, countersignable, pack
from unpooled.optimality.bounds import PartsBound
from unpooled.privacy import SecureSums
from unpooled.privacy.secure_sum.crypto import Identity, is_signed
from unpooled.protocol import codec
from unpooled.protocol.algorithm import Ask
from unpooled.protocol.exchange import Part, Request, RequestId, Response
from unpooled.protocol.messages import Question, Refusal
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskMoments, ClusterSums, Moments
from unpooled.protocol.run_loop import run
from unpooled.site import Site
from unpooled.site.chain_steps import Recorder
from unpooled.site.log import entries, verify
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

REQUEST_ID = RequestId("run", 0, 1, 0)
ROWS = {name: np.random.default_rng(i).normal(size=(40, 2)) for i, name in enumerate("abcd")}


class Wire:
    """A transport that may change responses, by site."""

    def __init__(self, tampers=None, rows=ROWS):
        self._sites = {name: Site(name, X) for name, X in rows.items()}
        self._tampers = tampers or {}

    @property
    def sites(self):
        return tuple(self._sites)

    def send_and_receive(self, requests):
        responses = {name: self._sites[name].respond(data) for name, data in requests.items()}
        for name, tamper in self._tampers.items():
            if name in responses:
                responses[name] = tamper(responses[name])
        return {name: data for name, data in responses.items() if data is not None}


def changed(**fields):
    """Tamper with the fields of every reply."""

    def tamper(data):
        response = codec.unwrap(data, expect=Response)
        replies = tuple(
            replace(r, **{n: f(getattr(r, n)) for n, f in fields.items()}) for r in response.replies
        )
        return codec.wrap(replace(response, replies=replies))

    return tamper


def asks(question=None):
    return (Ask("each", tuple(ROWS), question or AskMoments(np.zeros(2))),)


def test_each_site_gets_one_request_with_its_own_parts():
    two = (Ask("each", ("a", "b"), AskMoments()), Ask("total", ("b",), AskMoments(np.ones(2))))
    requests = pack(REQUEST_ID, two)
    assert {site: addressed.asks for site, addressed in requests.items()} == {"a": (0,), "b": (0, 1)}
    assert [part.verb for part in requests["b"].request.parts] == ["each", "total"]
    assert [part.index for part in requests["b"].request.parts] == [0, 1]


def test_over_bytes_the_result_has_the_bits_of_the_fused_run():
    over_bytes = run(Lloyd(k=3), TransportFederation(Wire()), seed=4)
    fused = run(Lloyd(k=3), Simulation.from_rows(ROWS), seed=4)
    assert codec.encode(over_bytes.state) == codec.encode(fused.state)


def test_a_certificate_in_the_run_is_the_same_bound_in_every_federation(tmp_path):
    """Over bytes, site by site, under secure sums, after a stop, and asked for afterwards."""
    tables = {s: Table.from_columns({"x": X[:, 0], "y": X[:, 1]}) for s, X in ROWS.items()}
    job = Analysis(PreparationOptions(), (Lloyd(k=3, n_starts=2),), certify="quick", work=30.0)
    plain = run(job, Simulation.from_rows(tables), seed=4)
    transform, bound = plain.state.agreement.preparation, plain.state.bound
    after = certify(Simulation.from_rows(tables), plain.state.centers, effort="quick", transform=transform)
    assert 0 < bound.lower[0] == after.lower_bound < bound.inertia[0]
    checkpoint = tmp_path / "checkpoint"
    run(job, Simulation.from_rows(tables), seed=4, checkpoint=checkpoint, max_rounds=plain.rounds - 1)
    secure = LocalFederation.from_rows(
        tables, secure=SecureSums(), allowed_in_clear=(codec.name_of(AskSchema),)
    )
    for federation, options, analysis in (
        (TransportFederation(Wire(rows=tables)), {}, job),
        (LocalFederation.from_rows(tables), {}, job),
        (Simulation.from_rows(tables), {"checkpoint": checkpoint}, job),
        (secure, {}, replace(job, aggregate_only=True)),
    ):
        assert run(analysis, federation, seed=4, **options).state.bound.lower[0] == bound.lower[0]
    tight = run(replace(job, work=1e-9), Simulation.from_rows(tables), seed=4).state.bound
    assert 0 <= tight.lower[0] < bound.lower[0]  # less work gives a weaker bound


def test_a_site_that_is_silent_at_the_certificate_is_named_in_it():
    def mute(data):
        replies = codec.unwrap(data, expect=Response).replies
        return None if any(isinstance(r, PartsBound) for r in replies) else data

    tables = {s: Table.from_columns({"x": X[:, 0], "y": X[:, 1]}) for s, X in ROWS.items()}
    job = Job(("a",), (3,), certify="quick", remote=RemoteRunOptions("", "run", tuple(tables)))
    done = run(job.algorithm, TransportFederation(Wire({"d": mute}, tables)), seed=4, quorum=0.5)
    result = ClusterResult(job, done)
    assert (result.proof.sites, result.proof.missing) == (("a", "b", "c"), ("d",))
    assert "for the rows of a, b, c; d did not answer." in result.to_dict()["certificate"]
    rest = {s: tables[s] for s in "abc"}
    transform = done.state.agreement.preparation
    again = certify(Simulation.from_rows(rest), done.state.centers, effort="quick", transform=transform)
    assert result.proof.lower_bound == pytest.approx(again.lower_bound, rel=1e-9)


BROKEN = {
    "nothing": (lambda data: None, "no answer"),
    "an engine's reason": (lambda data: "late", "late"),
    "garbage": (lambda data: b"\x00" * 50, "damaged, or not an unpooled message"),
    "no bytes": (lambda data: b"", "damaged"),
    "cut short": (lambda data: data[:-8], "checksum"),
    "too long": (lambda data: data + bytes(4096), "4,096 are allowed|are allowed"),
    "not finite": (changed(sums=lambda a: a * np.nan), "sums holds a number that is not finite"),
    "negative mass": (changed(mass=lambda a: -a), "mass holds -40"),
    "another shape": (changed(sums=lambda a: a[:1]), r"sums of shape \(1,\) where \(2,\)"),
    "an old answer": (
        lambda data: codec.wrap(replace(codec.unwrap(data), request_id=replace(REQUEST_ID, round=0))),
        "round 0, exchange 0",
    ),
    "too many replies": (
        lambda data: codec.wrap(replace(codec.unwrap(data), replies=codec.unwrap(data).replies * 2)),
        "2 replies to 1 questions",
    ),
    "another kind": (
        lambda data: codec.wrap(
            Response(REQUEST_ID, (ClusterSums(np.zeros((1, 1, 2)), np.zeros((1, 1)), np.zeros((1, 1))),))
        ),
        "ClusterSums where Moments",
    ),
    "a request": (lambda data: codec.wrap(Request(REQUEST_ID, ())), "expected Response"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_bad_answer_costs_only_its_own_site(case):
    tamper, pattern = BROKEN[case]
    (replies,) = TransportFederation(Wire({"b": tamper}), max_response_bytes=4096).ask(REQUEST_ID, asks())
    assert replies.sites == ("a", "c", "d")
    assert re.search(pattern, replies.refusals["b"])


@pytest.mark.parametrize("case", ["not finite", "negative mass", "garbage", "nothing"])
def test_a_run_continues_without_the_faulty_site_and_names_it(case):
    done = run(Lloyd(k=3), TransportFederation(Wire({"b": BROKEN[case][0]})), seed=4)
    without = run(Lloyd(k=3), Simulation.from_rows({s: X for s, X in ROWS.items() if s != "b"}), seed=4)
    assert "b" in done.history[0].silent
    assert done.finished
    assert without.finished
    assert np.isfinite(done.state.inertia)


def test_too_many_bad_answers_are_one_error_with_the_names():
    wire = Wire(dict.fromkeys("abc", BROKEN["garbage"][0]))
    with pytest.raises(
        TooFewAnswersError, match=r"1 of 4 sites answered.*a, b, c \(its answer was not usable"
    ):
        run(Lloyd(k=3), TransportFederation(wire), seed=4)


def test_a_response_is_decoded_only_below_the_limit():
    request = Request(REQUEST_ID, (Part("total", AskMoments(), None, 0),))
    data = Site("a", ROWS["a"]).receive(codec.wrap(request))
    assert isinstance(opened(request, data).replies[0], Moments)
    with pytest.raises(CodecError, match="are allowed"):
        opened(request, data, limit=len(data) - 1)


def test_a_site_does_not_read_more_than_it_allows():
    request = codec.wrap(Request(REQUEST_ID, (Part("total", AskClusterSums(np.zeros((1, 2, 2))), None, 0),)))
    site = Site("a", ROWS["a"], max_message_bytes=100)
    with pytest.raises(CodecError, match="100 are allowed"):
        site.receive(request)
    (reply,) = codec.unwrap(site.respond(request)).replies
    assert isinstance(reply, Refusal)


class Secretive(Question[Moments], prefix="test_remote"):
    def answer_all(self, batch):
        raise ValueError(f"row {batch.X[0]}")


def test_no_reason_that_leaves_a_site_holds_data():
    request = codec.wrap(Request(REQUEST_ID, (Part("total", Secretive(), None, 0),)))
    site = Site("a", np.array([[123.456]]))
    with pytest.raises(SiteFailedError, match=r"123\.456"):  # the site's own log may contain it
        site.receive(request)
    (reply,) = codec.unwrap(site.respond(request)).replies
    assert reply.reason == "failed with ValueError; the site's own log has the details"


def test_a_question_knows_its_reply():
    assert AskMoments.reply_type() is Moments
    with pytest.raises(ReplyError, match="mass holds -1"):
        AskMoments().check_reply(Moments(np.array([-1.0]), np.zeros(2), np.zeros(2)))


def test_guarded_sites_in_process_give_the_same_model():
    class Sent(Recorder):
        def record(self, exchange, response):
            sent.append(response)
            return ""

    sent: list[Response] = []
    sites = [Site(name, X, log=Sent()) for name, X in ROWS.items()]
    guarded = run(Lloyd(k=3), LocalFederation(sites), seed=0)
    plain = run(Lloyd(k=3), Simulation.from_rows(ROWS), seed=0)
    assert len(sent) > 0
    assert codec.encode(guarded.state) == codec.encode(plain.state)


def test_the_coordinator_records_and_signs_the_heads_of_logs(tmp_path):
    identity = Identity.new()
    sites = {
        name: open_site(name, X, parse('format = 1\n[protect]\nmode = "raw"'), folder=tmp_path / name)
        for name, X in ROWS.items()
    }
    wire = Wire()
    wire._sites = sites
    federation = TransportFederation(wire, sign=identity.sign)
    run(Lloyd(k=2, min_cluster_size=5, n_starts=1), federation, seed=1)
    for name in ROWS:
        lines = [entry for _, entry in entries(tmp_path / name / "log.jsonl")]
        assert federation.log_heads[name] == f"{lines[-1]['seq']}:{lines[-1]['hash']}"
        seals = [line for line in lines if line["kind"] == "countersigned"]
        assert len(seals) == sum(line["kind"] == "release" for line in lines) - 1
        for seal in seals:
            head = f"{seal['number']}:{seal['head']}"
            assert lines[int(seal["number"])]["hash"] == seal["head"]
            assert is_signed(identity.public, countersignable(name, head), bytes.fromhex(seal["signature"]))
        assert verify(tmp_path / name / "log.jsonl") == []


# ---------------------------------------------------------------- shapes


def wider(value):
    """One column more."""
    return np.concatenate([value, value[..., -1:]], axis=-1)


def longer(value):
    return np.concatenate([value, value[:1]]) if len(value) else np.zeros((9, *value.shape[1:]))


def nested(value):
    return value[None]


@pytest.mark.parametrize("tamper", [wider, longer, nested], ids=lambda f: f.__name__)
@each_algorithm
def test_a_reply_of_wrong_shape_is_dropped_and_the_run_continues(name, tamper):
    """In every round of every method; the result is that of the other sites."""

    def odd(data):
        response = codec.unwrap(data, expect=Response)
        replies = []
        for reply in response.replies:
            arrays = {
                n: v for n in codec.field_names(type(reply)) if isinstance(v := getattr(reply, n), np.ndarray)
            }
            replies.append(replace(reply, **{n: tamper(v) for n, v in arrays.items() if v.size}))
        return codec.wrap(replace(response, replies=tuple(replies)))

    rows = {s: X + 3 * np.arange(40)[:, None] % 9 for s, X in ROWS.items()}
    algorithm = ALGORITHMS[name]()
    with_it = run(algorithm, TransportFederation(Wire({"c": odd}, rows)), seed=4, max_rounds=3)
    without = run(
        algorithm,
        TransportFederation(Wire({}, {s: X for s, X in rows.items() if s != "c"})),
        seed=4,
        max_rounds=3,
    )
    for record in with_it.history:
        if record.exchanges:
            assert set(record.silent) == {"c"}
            assert record.silent["c"].startswith("its answer was not usable:")
    assert codec.encode(with_it.state) == codec.encode(without.state)


def test_two_sites_that_disagree_about_their_columns_are_both_named():
    wire = Wire({"b": changed(sums=wider, squares=wider)}, {s: ROWS[s] for s in "ab"})
    with pytest.raises(ReplyError, match=r"AskMoments: replies of a .*sums \(2,\).* and of b .*sums \(3,\)"):
        run(Lloyd(k=3), TransportFederation(wire), seed=4)
