"""A relay: what it passes up, what it refuses, and what it does when members fail or the tree is invalid."""

import json
from dataclasses import replace

import numpy as np
import pytest

from helpers import EXACT, Declines, arrays_in, bits, blobs, split
from unpooled.algorithms import Lloyd
from unpooled.algorithms.minibatch import AskEpochs
from unpooled.data import Table
from unpooled.data.schema import AskSchema
from unpooled.errors import InputError, LedgerError, QueryRefusedError, TooFewAnswersError
from unpooled.federation import LocalFederation, Simulation
from unpooled.federation.member_tree import AskMembers
from unpooled.federation.relay import relay_steps
from unpooled.federation.relay.relay import Relay
from unpooled.federation.relay.relay_policy import RelayRules
from unpooled.federation.transport_federation import TransportFederation
from unpooled.protocol import codec, run
from unpooled.protocol.algorithm import each, together, total
from unpooled.protocol.exact_sum import exact_sum
from unpooled.protocol.exchange import Part, Request, RequestId, Response, run_protocol
from unpooled.protocol.messages import Refusal
from unpooled.protocol.partial_sum import PartialSum
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskLocalMeans, AskMoments
from unpooled.protocol.site_batch import SiteBatch
from unpooled.site import Guard, Site
from unpooled.site.log import entries, unpacked, verify
from unpooled.site.open_site import open_site
from unpooled.site.policy import Policy, Protect
from unpooled.storage.file_format import FORMAT

TWO = RelayRules(exact=True, min_sites=2)
REQUEST_ID = RequestId("r", 0, 0, 0)
OVERLAPPING = split(blobs(3, n=160, spread=4.0)[0], 6, 3)


def hospitals(names="abc", guards=None, **more):
    rows = [OVERLAPPING[f"site-{i}"] for i in range(6)]
    guards = guards or {}
    return [Site(s, rows[i], guards=guards.get(s, ()), **more) for i, s in enumerate(names)]


def request(question, verb="total", request_id=REQUEST_ID, index=0):
    return Request(request_id, (Part(verb, question, None, index),))


def reply_of(relay, question, verb="total", request_id=REQUEST_ID):
    """The only reply of a relay to the bytes of a request."""
    response = codec.unwrap(relay.respond(codec.wrap(request(question, verb, request_id))), expect=Response)
    (reply,) = response.replies
    return reply


class Broken(Guard):
    """A guard that fails the first ``times`` times."""

    def __init__(self, times=10**9):
        self.times = times

    def check(self, exchange):
        self.times -= 1
        if self.times >= 0:
            raise RuntimeError("patient 4711 is out of range")


class Wires:
    """A transport to members; ``wires`` replaces the response function of some of them."""

    def __init__(self, members, **wires):
        self._members = {m.name: m for m in members}
        self._wires = wires
        self.sites = tuple(sorted(self._members))

    def send_and_receive(self, requests):
        return {
            name: (self._wires.get(name) or self._members[name].respond)(data)
            for name, data in requests.items()
        }


def federation(members, **wires):
    return TransportFederation(
        Wires(members, **wires),
        exact_sums=True,
        keys={m.name: m.key for m in members if not m.is_federation},
        federations=[m.name for m in members if m.is_federation],
    )


# ---------------------------------------------------------------- what goes up


def test_a_total_goes_up_as_the_exact_sum_of_its_sites_and_nothing_else():
    reply = reply_of(Relay("north", hospitals(), EXACT), AskMoments())
    assert type(reply) is PartialSum
    assert (reply.kind, reply.sites) == ("Moments", 3)
    own = [
        codec.unwrap(site.receive(codec.wrap(request(AskMoments()))), expect=Response) for site in hospitals()
    ]
    expected = exact_sum(np.stack([response.replies[0].sums for response in own]))
    assert np.array_equal(reply.limbs[1], expected.limbs)
    assert np.array_equal(reply.reply().sums, expected.rounded())


def test_members_get_a_question_at_the_index_that_it_has_above():
    """Draws of sites depend on it: here the drawing question is the second, and one relay has only that."""
    draws = AskEpochs(np.array([[-5.0, -5.0], [5.0, 5.0]]), 1, 3, 0.5)

    def ask(first, sites):
        _, drawn = yield from together([total(first, AskMoments()), total(sites, draws)])
        return drawn

    rows = {site.name: site.rows for site in hospitals("abcdef")}
    flat = run_protocol(ask(tuple("abc"), tuple("abcdef")), Simulation.from_rows(rows, exact_sums=True))
    north, south = Relay("north", hospitals("abc"), EXACT), Relay("south", hospitals("abcdef")[3:], EXACT)
    tree = run_protocol(ask(("north",), ("north", "south")), LocalFederation([north, south]))
    assert bits(tree) == bits(flat)


def test_single_replies_are_refused_by_name_and_summed_where_the_rules_name_them():
    question = AskClusterSums(np.zeros((1, 1, 2)))
    refusal = reply_of(Relay("north", hospitals(), EXACT), question, "each")
    assert refusal.reason == (
        "AskClusterSums asks for replies of single sites, and a relay passes up only their sum"
    )
    forwarding = RelayRules(exact=True, forwarded=("AskClusterSums",))
    assert reply_of(Relay("north", hospitals(), forwarding), question, "each").sites == 3
    relays = [Relay(f"r{i}", hospitals(), forwarding) for i in range(3)]

    def ask():
        return (yield from each(("r0", "r1", "r2"), question))

    (one,) = {bits(reply) for reply in run_protocol(ask(), LocalFederation(relays)).values()}
    assert codec.decode(one).mass.sum() == sum(len(site.rows) for site in hospitals())


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"forwarded": ("AskLocalMeans",)}, "AskLocalMeans have no sum, so they would go up one by"),
        ({"forwarded": ("AskMoment",)}, "there is no question 'AskMoment'"),
        ({"min_sites": 0}, "min_sites must be 1 or more, got 0"),
        ({"min_people": 0}, "min_people must be 1 or more, got 0"),
        ({"min_sites": 2, "min_contributors": 3}, "min_contributors of 3 is above min_sites of 2"),
        ({"quorum": 1.5}, "quorum must be a share between 0 and 1, got 1.5"),
        ({"columns": "all"}, "columns must be one of same, common, any, got 'all'"),
    ],
)
def test_invalid_rules_are_refused(rules, message):
    with pytest.raises(InputError, match=message):
        RelayRules(exact=True, **rules)


def test_a_relay_needs_members_with_names_of_their_own_and_exact_sums():
    with pytest.raises(InputError, match="Its federation needs exact_sums=True"):
        Relay("north", Simulation.from_rows(OVERLAPPING), EXACT)
    for members in ([], [*hospitals("a"), *hospitals("a")]):
        with pytest.raises(InputError, match="needs at least one member, and members need different names"):
            Relay("north", members, EXACT)


def test_an_unknown_stage_of_a_secure_sum_is_refused_with_a_reason():
    refusal = reply_of(Relay("north", hospitals(), EXACT), AskMoments(), "stage")
    assert refusal.reason == "AskMoments is not a stage of a secure sum"


# ---------------------------------------------------------------- its own minimum


def test_a_relay_below_its_minimum_of_sites_reports_it_in_one_line():
    north, south = Relay("north", hospitals("ab"), EXACT), Relay("south", hospitals("abc"), EXACT)
    with pytest.raises(
        TooFewAnswersError,
        match=r"1 of 2 sites answered, 2 needed; missing: north \(2 of its sites answered, and north answers "
        r"for 3 or more\)$",
    ):
        run(Lloyd(k=2), LocalFederation([north, south]), quorum=1.0)
    assert run(Lloyd(k=2), LocalFederation([north, south])).history[0].answered == ("south",)
    deeper = Relay("west", [Relay("inner", hospitals("ab"), TWO), *hospitals("cd")[1:]], EXACT)
    assert reply_of(deeper, AskMoments()).sites == 3


def test_a_relay_below_its_minimum_of_people_reports_it_and_suppresses_small_cells():
    rows = sum(len(site.rows) for site in hospitals())
    few = Relay("north", hospitals(), RelayRules(exact=True, min_people=rows + 1))
    assert reply_of(few, AskMoments()).reason == (
        f"north answers for {rows + 1} people or more, and has fewer"
    )
    enough = Relay("north", hospitals(), RelayRules(exact=True, min_people=rows))
    assert reply_of(enough, AskMoments()).reply().n == rows
    far = AskClusterSums(np.array([[[0.0, 0.0], [1e6, 0.0]]]))
    assert reply_of(enough, far).reply().mass.tolist() == [[rows, 0.0]]
    near = AskClusterSums(np.array([[[-3.0, 0.0], [3.0, 0.0]]]))
    assert reply_of(enough, near).reply().mass.tolist() == [[0.0, 0.0]]
    assert not np.any(reply_of(enough, near).reply().sums)


# ---------------------------------------------------------------- tables


def table(**columns):
    return Table.from_columns({name: np.array(values) for name, values in columns.items()})


def schema_of(tables, **rules):
    members = [Site(f"h{i}", t) for i, t in enumerate(tables)]
    return reply_of(
        Relay("north", members, RelayRules(exact=True, min_sites=1, **rules)), AskSchema(), "each"
    )


def test_the_schema_of_a_relay_is_that_of_one_site():
    a = table(age=[1.0, np.nan, 3.0], ward=["x", "y", "x"], note=[np.nan, np.nan, np.nan])
    b = table(age=[100.0, 200.0], ward=["z", "x"], note=[1.0, 2.0])
    merged = schema_of([a, b])
    assert merged.names == ("age", "ward", "note")
    assert merged.kinds == ("number", "category", "number")
    assert merged.categories == ((), ("x", "y", "z"), ("1", "2"))  # of numbers: two values, or none
    assert merged.rows.tolist() == [5.0]
    assert merged.missing.tolist() == [1.0, 0.0, 3.0]
    sizes = [AskSchema().answer(batch_of(t)).size[0] for t in (a, b)]
    assert merged.size[0] == max(sizes)
    assert merged.protection == ("none", "")


def batch_of(rows):
    return SiteBatch(X=rows, offsets=np.array([0, len(rows)]), weights=None, seeds=np.zeros(1, np.uint64))


def test_a_relay_decides_by_its_own_rules_on_columns_that_differ_among_its_members():
    a, b = table(age=[1.0, 2.0], dose=[1.0, 2.0]), table(age=[1.0, 2.0], bmi=[3.0, 4.0])
    assert schema_of([a, b]).reason == "its sites have different columns: dose, bmi not at all of them"
    assert schema_of([a, b], columns="common").names == ("age",)
    every = schema_of([a, b], columns="any")
    assert every.names == ("age", "dose", "bmi")
    assert every.missing.tolist() == [0.0, 2.0, 2.0]
    texts = schema_of([table(age=["x", "y", "x"]), table(age=[1.0, 2.5])])
    assert texts.reason == "column age is of different kinds at its sites: category, number"


def test_a_relay_of_too_few_sites_or_people_does_not_disclose_their_columns():
    tables = [table(age=[1.0, 2.0, 3.0]), table(age=[1.0, 2.0])]
    members = [Site(f"h{i}", t) for i, t in enumerate(tables)]
    assert "2 of its sites answered" in reply_of(Relay("n", members, EXACT), AskSchema(), "each").reason
    few = Relay("n", members, RelayRules(exact=True, min_sites=2, min_people=6))
    assert reply_of(few, AskSchema(), "each").reason == "n answers for 6 people or more, and has fewer"


# ---------------------------------------------------------------- members that fail, or are late


def test_a_member_that_declines_or_fails_is_missing_as_a_site_is_and_nothing_of_it_goes_up():
    for guard in (Declines("closed: 3 patients"), Broken()):
        north = Relay("north", hospitals("abcd", {"b": [guard]}), EXACT)
        reply = reply_of(north, AskMoments())
        assert reply.sites == 3
        done = run(Lloyd(k=2), LocalFederation([north]))
        others = {s.name: s.rows for s in hospitals("abcd") if s.name != "b"}
        assert bits(done.state) == bits(run(Lloyd(k=2), Simulation.from_rows(others, exact_sums=True)).state)
        strict = Relay("north", hospitals("abcd", {"b": [guard]}), RelayRules(exact=True, quorum=1.0))
        assert reply_of(strict, AskMoments()).reason == "3 of 4 members answered, 4 needed"


def test_a_relay_that_failed_tries_again_when_asked_again(tmp_path):
    north = Relay("north", hospitals("abc", {"b": [Broken(1)]}), EXACT, folder=tmp_path)
    assert reply_of(north, AskMoments()).reason == "2 of its sites answered, and north answers for 3 or more"
    assert reply_of(north, AskMoments()).sites == 3
    kinds = [(entry["kind"], entry.get("downstream", "")) for _, entry in entries(tmp_path / "log.jsonl")]
    assert [kind for kind, _ in kinds] == ["opening", "refusal", "release"]
    assert "b (failed with RuntimeError" in kinds[1][1]  # the relay's own log names the member


def test_a_late_member_is_missing_for_the_exchange_and_a_late_relay_as_well():
    late = {"times": 1}

    def slow(data):
        late["times"] -= 1
        return "late" if late["times"] >= 0 else site.respond(data)

    members = hospitals("abcd")
    site = members[1]
    north = Relay("north", federation(members, b=slow), EXACT)
    assert [reply_of(north, AskMoments(), request_id=replace(REQUEST_ID, round=r)).sites for r in (0, 1)] == [
        3,
        4,
    ]
    relays = [Relay("north", hospitals("abc"), EXACT), Relay("south", hospitals("def"), EXACT)]
    done = run(Lloyd(k=2, max_rounds=3), federation(relays, south=lambda data: "late"))
    assert {tuple(record.silent.items()) for record in done.history} == {(("south", "late"),)}


def test_a_relay_that_comes_late_is_asked_first_for_its_members():
    calls = []

    def slow(data):
        asked = [codec.name_of(type(p.question)) for p in codec.unwrap(data).parts]
        calls.append(asked)
        return "late" if len(calls) <= 2 else relays[1].respond(data)

    relays = [Relay("north", hospitals("abc"), EXACT), Relay("south", hospitals("def"), EXACT)]
    done = run(Lloyd(k=2, n_starts=1, init="random", tol=0.0, max_rounds=4), federation(relays, south=slow))
    assert calls[:3] == [["AskMembers"]] * 3
    assert [record.answered for record in done.history][:3] == [("north",)] * 2 + [("north", "south")]
    # by then an outer relay has passed up the members: below it a late relay stays out of the run
    calls.clear()
    outer = Relay("nation", federation(relays, south=slow), EXACT)
    done = run(Lloyd(k=2, init="random", n_starts=1, max_rounds=4), LocalFederation([outer]))
    assert done.finished
    assert calls == [["AskMembers"]]


# ---------------------------------------------------------------- its log


def test_a_repeated_question_gets_the_same_bytes_even_from_a_relay_that_was_restarted(tmp_path):
    data = codec.wrap(request(AskMoments()))
    north = Relay("north", hospitals("abcd"), EXACT, folder=tmp_path)
    first = north.receive(data)
    assert north.receive(data) == first
    with pytest.raises(LedgerError, match="in use by another process"):
        Relay("north", hospitals("abcd"), EXACT, folder=tmp_path)
    north.close()
    fewer = Relay(
        "north", hospitals("abcd", {"a": [Declines()]}), EXACT, folder=tmp_path
    )  # one is away by now
    assert fewer.key == north.key
    assert fewer.receive(data) == first
    later = codec.unwrap(
        fewer.receive(codec.wrap(request(AskMoments(), request_id=replace(REQUEST_ID, round=1))))
    )
    assert later.replies[0].sites == 3
    assert verify(tmp_path / "log.jsonl") == []
    opening = next(entry for _, entry in entries(tmp_path / "log.jsonl"))
    assert (opening["site"], opening["protection"], opening["policy"]) == (
        "north",
        "sums",
        RelayRules(exact=True).digest,
    )


def numbers_of(log):
    """All numbers in the answers of a log that are not integers, and the bytes of all answers."""
    numbers, payloads = set(), b""
    for _, entry in entries(log):
        if entry["kind"] != "release":
            continue
        payloads += unpacked(entry["payload"])
        for reply in codec.decode(unpacked(entry["payload"])).replies:
            reply = reply.reply() if isinstance(reply, PartialSum) else reply
            for array in arrays_in(reply):
                values = array[np.isfinite(array)]
                numbers |= set(values[values % 1 != 0].tolist())
    return numbers, payloads


def test_a_hospitals_numbers_are_in_no_log_above_its_relay(tmp_path):
    rules = Policy(protect=Protect(one_row_per_person=True, no_sensitive_columns=True, auto_approve=True))
    rows = np.random.default_rng(1).normal(size=(6, 40, 2))  # every hospital has rows of every cluster
    sites = [open_site(s, X, rules, tmp_path / s) for s, X in zip("abcdef", rows, strict=True)]
    relays = [
        Relay("north", sites[:3], EXACT, folder=tmp_path / "north"),
        Relay("south", sites[3:], EXACT, folder=tmp_path / "south"),
    ]
    country = Relay("country", relays, EXACT, folder=tmp_path / "country")
    start = np.array([[0.0, -1.0], [0.0, 1.0]])
    done = run(Lloyd(k=2, init=start, max_rounds=3), LocalFederation([country]))
    assert done.rounds >= 1
    assert len({site.key for site in (*sites, *relays, country)}) == 9
    for one in (*sites, *relays, country):
        one.close()
    above = {name: numbers_of(tmp_path / name / "log.jsonl") for name in ("north", "south", "country")}
    for name in "abcdef":
        own, _ = numbers_of(tmp_path / name / "log.jsonl")
        assert len(own) > 10
        for numbers, payloads in above.values():
            assert not own & numbers
            assert not any(np.float64(value).tobytes() in payloads for value in own)
    assert above["country"][0].isdisjoint(above["north"][0] | above["south"][0])
    # the search finds numbers that are there: a relay that answers for one site passes them on
    alone = Relay(
        "alone", [Site("x", rows[0])], RelayRules(exact=True, min_sites=1), folder=tmp_path / "alone"
    )
    reply_of(alone, AskMoments())
    disclosed, _ = numbers_of(tmp_path / "alone" / "log.jsonl")
    assert set(AskMoments().answer(batch_of(rows[0])).sums.tolist()) <= disclosed


# ---------------------------------------------------------------- invalid trees


def keyed(names, key):
    return [Site(s, OVERLAPPING["site-0"], key=f"{key}-{s}") for s in names]


def test_a_hospital_reached_by_two_paths_is_one_clear_error():
    shared = Site("b", OVERLAPPING["site-0"], key="feed" * 10)
    north = Relay("north", [*keyed("ac", 1), shared], EXACT)
    south = Relay("south", [*keyed("de", 2), shared], EXACT)
    with pytest.raises(
        InputError, match=r"^one member is reached by two paths, north and south \(key feedfee"
    ):
        run(Lloyd(k=2), LocalFederation([north, south]))
    with pytest.raises(InputError, match=r"^one member is reached by two paths, b and north"):
        run(Lloyd(k=2), LocalFederation([north, shared]))
    # further down: the message that goes up names no member
    nation = Relay("nation", [north, south], EXACT)
    with pytest.raises(InputError, match=r"^nation: one of its members is reached by two paths$"):
        run(Lloyd(k=2), LocalFederation([nation]))
    with pytest.raises(InputError, match=r"^b and c are the same site: they have the same key$"):
        LocalFederation([shared, Site("c", OVERLAPPING["site-0"], key="feed" * 10, guards=[Guard()])])


def test_a_federation_that_contains_itself_is_one_clear_error():
    ring = {}
    wires = Wires(hospitals("abc"), south=lambda data: ring["south"].respond(data))
    wires.sites = ("a", "b", "c", "south")
    north = Relay("north", TransportFederation(wires, exact_sums=True, federations=["south"]), EXACT)
    ring["south"] = Relay("south", [north, *hospitals("def")], EXACT)
    for top in ([north], [ring["south"]], [north, *hospitals("x")]):
        with pytest.raises(InputError, match=r"the federation \w+ contains itself$"):
            run(Lloyd(k=2), LocalFederation(top))


def test_another_version_in_the_middle_is_one_clear_error(monkeypatch):
    inner = Relay("inner", hospitals("abc"), EXACT)

    def other_codec(data):
        response = bytearray(inner.respond(data)[codec._CHECKSUM :])
        response[4] = FORMAT + 1
        return codec._checksum(bytes(response)) + bytes(response)

    def does_not_understand(data):
        return codec.wrap(
            Response(RequestId("", 0, 0, 0), (Refusal("not a message for this site: version 1"),))
        )

    for wire, message in (
        (
            other_codec,
            "the answer of inner cannot be read: message of format 2, and this release reads format 1",
        ),
        (does_not_understand, "inner: not a message for this site: version 1"),
    ):
        nation = Relay("nation", federation([inner], inner=wire), EXACT)
        with pytest.raises(InputError, match=f"^nation: {message}$"):
            run(Lloyd(k=2), LocalFederation([nation]))
    monkeypatch.setattr(relay_steps, "version", lambda name: "9.9")
    with pytest.raises(
        InputError, match=r"^inner has unpooled 9\.9, the federation above it [0-9a-z.]+\. They may be one"
    ):
        run(Lloyd(k=2), LocalFederation([inner]))


def test_a_site_is_not_a_federation_and_a_malformed_request_is_refused():
    (site,) = hospitals("a")
    with pytest.raises(InputError, match=r"^a: this is a site, not a federation\. It has no members\.$"):
        run(Lloyd(k=2), TransportFederation(Wires([site]), federations=["a"]))
    for index in (-1, 10**9):
        response = Relay("north", hospitals(), EXACT).answer(request(AskMoments(), index=index))
        assert response.replies[0].reason == "the indices of its questions are not those of an exchange"
    assert reply_of(Relay("north", hospitals(), EXACT), AskLocalMeans(2)).reason == (
        "replies to AskLocalMeans have no sum"
    )
    with pytest.raises(QueryRefusedError):
        AskMembers().answer(batch_of(site.rows))


def test_the_log_of_a_relay_records_the_questions(tmp_path):
    north = Relay("north", hospitals(), EXACT, folder=tmp_path)
    run(Lloyd(k=2, max_rounds=1), LocalFederation([north]))
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    asked = [part["question"] for line in lines for part in line.get("asked", ())]
    assert asked[0] == "AskMembers"
    assert set(asked[1:]) <= {"AskMoments", "AskClusterSums"}
