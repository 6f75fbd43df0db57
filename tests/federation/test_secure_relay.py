"""A relay in secure sums: among its members, in the federation above, and when a member is gone."""

from dataclasses import replace

import numpy as np
import pytest

from helpers import EXACT, bits, blobs, split
from unpooled.algorithms import Lloyd
from unpooled.data import Table
from unpooled.data.schema import AskColumns
from unpooled.errors import InputError, TooFewAnswersError
from unpooled.federation import LocalFederation
from unpooled.federation.relay.relay import Relay
from unpooled.federation.relay.relay_policy import RelayRules
from unpooled.federation.transport_federation import TransportFederation
from unpooled.privacy import SecureSums
from unpooled.privacy.secure_sum.site_mask import site_masks
from unpooled.privacy.secure_sum.stage_messages import Masked
from unpooled.protocol import codec, run
from unpooled.protocol.algorithm import Ask
from unpooled.protocol.exchange import STAGE, Part, Request, RequestId, Response
from unpooled.protocol.messages import MaskedElsewhere, Refusal
from unpooled.protocol.partial_sum import PartialSum
from unpooled.protocol.questions.cluster_sums import AskLocalMeans, AskMoments
from unpooled.site import Site

ROWS = split(blobs(2, n=120)[0], 12, 2)
NAMES = sorted(ROWS)
REQUEST_ID = RequestId("r", 0, 0, 0)


class Wire:
    """A transport to members of this process; ``lost(stage, site)`` loses the response of a site."""

    def __init__(self, members, lost=lambda stage, site: False):
        self.members, self.lost, self.seen = {m.name: m for m in members}, lost, []

    @property
    def sites(self):
        return tuple(sorted(self.members))

    def send_and_receive(self, requests):
        responses = {}
        for site, data in requests.items():
            stage = type(codec.unwrap(data).parts[-1].question).__name__
            responses[site] = "late" if self.lost(stage, site) else self.members[site].respond(data)
            self.seen.append((stage, site, responses[site]))
        return responses


def sites(names, required=True):
    masks = site_masks(tuple(names), min_sites=3, required=required)
    return [Site(s, ROWS[s], mask=masks[s]) for s in names]


def federation(members, lost=lambda stage, site: False, **more):
    return TransportFederation(
        Wire(members, lost),
        secure=SecureSums(),
        federations=[m.name for m in members if m.is_federation],
        **more,
    )


def secure_relays(lost=lambda stage, site: False, folder=None, **rules):
    """Four relays, each with three sites that sum securely."""
    return [
        Relay(
            f"r{i}",
            federation(sites(NAMES[3 * i : 3 * i + 3]), lost),
            RelayRules(exact=True, **rules),
            folder=None if folder is None else folder / f"r{i}",
        )
        for i in range(4)
    ]


def summed(above, question=None, request_id=REQUEST_ID):
    (aggregate,) = above.ask(request_id, (Ask("total", above.sites, question or AskMoments()),))
    return aggregate


def flat_sum(names):
    flat = LocalFederation.from_rows({s: ROWS[s] for s in names}, secure=True)
    return bits(summed(flat).total())


# ---------------------------------------------------------------- what each party reads


def test_a_relay_reads_only_the_sum_of_its_members_and_the_coordinator_only_that_of_all():
    relays = secure_relays()
    above = federation(relays)
    assert bits(summed(above).total()) == flat_sum(NAMES)
    for relay in relays:  # the relay receives masked replies of its members, the coordinator of the relays
        wire = relay.downstream._transport
        answers = [codec.unwrap(data) for stage, _, data in wire.seen if stage == "AskMasked"]
        assert [type(reply) for answer in answers for reply in answer.replies] == [
            MaskedElsewhere,
            Masked,
        ] * 3
    kinds = {
        type(reply)
        for stage, _, data in above._transport.seen
        if stage != "AskMembers"
        for reply in codec.unwrap(data).replies
    }
    assert PartialSum not in kinds
    assert Refusal not in kinds


def test_a_relay_that_answers_only_in_secure_sums_refuses_its_sum_in_clear():
    (north, *_) = secure_relays(secure=True)
    in_clear = Request(REQUEST_ID, (Part("total", AskMoments(), None, 0),))
    (reply,) = codec.unwrap(north.respond(codec.wrap(in_clear)), expect=Response).replies
    assert reply.reason.startswith("only secure sums are allowed, and AskMoments would disclose")
    with pytest.raises(TooFewAnswersError, match="0 of 4 sites answered"):
        run(Lloyd(k=2), LocalFederation(secure_relays(secure=True)))


def test_single_replies_are_refused_in_a_secure_tree():
    above = federation(secure_relays())
    (replies,) = above.ask(REQUEST_ID, (Ask("each", above.sites, AskLocalMeans(k=2)),))
    assert replies.sites == ()
    assert set(replies.refusals.values()) == {
        "AskLocalMeans asks for replies of single sites, and a relay passes up only their sum"
    }


@pytest.mark.parametrize(
    ("members", "rules", "message"),
    [
        (
            lambda: LocalFederation.from_rows({f"{i:02}": np.ones((1, 1)) for i in range(31)}, secure=True),
            {},
            r"31 members are too many for secure sums, 30 are possible\. Divide them among several relays",
        ),
        (
            lambda: LocalFederation.from_rows({s: ROWS[s] for s in NAMES}, secure=True),
            {"min_contributors": 2},
            "min_contributors is 2, and in secure sums nobody can count the sites that have rows",
        ),
    ],
)
def test_members_or_rules_that_secure_sums_cannot_serve_are_refused(members, rules, message):
    with pytest.raises(InputError, match=message):
        Relay("north", members(), RelayRules(exact=True, **rules))


# ---------------------------------------------------------------- gone, late, killed


@pytest.mark.parametrize("stage", ["AskShares", "AskMasked", "AskConsistency", "AskUnmask"])
def test_a_relay_that_falls_silent_at_any_stage_is_out_for_the_run_as_a_site_is(stage):
    gone = {"from": (stage, "r3")}
    above = federation(secure_relays(), lambda at, site: (at, site) == gone["from"])
    first = summed(above)
    late = stage in ("AskConsistency", "AskUnmask")  # it had sent its part
    assert bits(first.total()) == flat_sum(NAMES if late else NAMES[:9])
    gone["from"] = ()
    again = summed(above, request_id=replace(REQUEST_ID, round=1))
    assert again.sites == (("r0", "r1", "r2", "r3") if late else ("r0", "r1", "r2"))


def test_a_site_that_falls_silent_is_out_and_a_relay_with_too_few_sites_reports_it_without_names():
    members = sites(NAMES[:4])
    relay = Relay("r0", federation(members, lambda at, site: at == "AskMasked" and site == NAMES[0]), EXACT)
    others = [Relay(f"r{i}", federation(sites(NAMES[4 * i : 4 * i + 4])), EXACT) for i in (1, 2)]
    above = federation([relay, *others])
    assert bits(summed(above).total()) == flat_sum(NAMES[1:])
    few = secure_relays(lambda at, site: at == "AskMasked" and site == NAMES[0])
    wire = Wire(few)
    above = TransportFederation(wire, secure=SecureSums(), federations=[m.name for m in few])
    aggregate = summed(above)
    assert aggregate.sites == ("r1", "r2", "r3")
    assert bits(aggregate.total()) == flat_sum(NAMES[3:])
    assert aggregate.refusals["r0"] == "failed with TooFewAnswersError; its own log has the details"
    assert not any(NAMES[0].encode() in data for _, _, data in wire.seen)


@pytest.mark.parametrize("stage", ["AskShares", "AskMasked", "AskConsistency", "AskUnmask"])
def test_a_relay_that_is_killed_between_stages_continues_with_the_same_sum(stage, tmp_path):
    relays = secure_relays(folder=tmp_path)
    wire = Wire(relays)
    killed = []

    def kill(at, site):
        if (at, site) == (stage, "r1") and not killed:
            killed.append(wire.members["r1"])
            killed[0].close()
            downstream = TransportFederation(killed[0].downstream._transport, secure=SecureSums())
            wire.members["r1"] = Relay("r1", downstream, RelayRules(exact=True), folder=tmp_path / "r1")
        return False

    wire.lost = kill
    above = TransportFederation(wire, secure=SecureSums(), federations=[m.name for m in relays])
    assert bits(summed(above).total()) == flat_sum(NAMES)
    assert killed
    assert bits(summed(above, request_id=replace(REQUEST_ID, round=1)).total()) == flat_sum(NAMES)
    for relay in wire.members.values():
        relay.close()


def test_a_coordinator_that_is_killed_repeats_its_round_and_gets_the_same_bits():
    relays = secure_relays()
    first = summed(federation(relays))
    again = summed(federation(relays))  # another coordinator, with keys of its own
    assert bits(first.total()) == bits(again.total())


def test_an_exchange_is_summed_once_even_if_the_coordinator_starts_it_again():
    """Else a coordinator that asks again, while a member is gone, could compute that member's part."""
    away = set()

    def plain(names):
        return TransportFederation(
            Wire([Site(s, ROWS[s]) for s in names], lambda at, site: site in away), exact_sums=True
        )

    relays = [Relay(f"r{i}", plain(NAMES[4 * i : 4 * i + 4]), EXACT) for i in range(3)]
    first = summed(federation(relays))
    away.add(NAMES[0])
    assert bits(summed(federation(relays)).total()) == bits(first.total())
    later = summed(federation(relays), request_id=replace(REQUEST_ID, round=1))
    assert later.partial_sum().sites == 11


def test_a_restarted_relay_does_not_sum_an_exchange_again(tmp_path):
    def new_relays():
        return [
            Relay(
                f"r{i}",
                [Site(s, ROWS[s]) for s in NAMES[4 * i : 4 * i + 4]],
                EXACT,
                folder=tmp_path / f"r{i}",
            )
            for i in range(3)
        ]

    relays = new_relays()
    summed(federation(relays))
    for relay in relays:
        relay.close()
    again = new_relays()
    with pytest.raises(TooFewAnswersError, match="summed before this federation was restarted"):
        summed(federation(again))
    for relay in again:
        relay.close()


def test_one_site_at_two_relays_is_detected_in_secure_sums_too():
    masks = site_masks(("a", "b", "x"), min_sites=3, required=True)
    twice = [Site(s, ROWS[NAMES[0]], mask=masks[s], key="feed" * 10) for s in ("a", "b")]
    relays = []
    for i, one in enumerate(twice):
        own = [*sites(NAMES[3 * i : 3 * i + 3])[:2], one]
        downstream = TransportFederation(Wire(own), secure=SecureSums(), keys={m.name: m.key for m in own})
        relays.append(Relay(f"r{i}", downstream, EXACT))
    with pytest.raises(InputError, match=r"one member is reached by two paths, r0 and r1 \(key feedfee"):
        summed(federation([*relays, secure_relays()[3]]))


def test_a_relay_refuses_an_unknown_stage_as_a_site_does():
    (north, *_) = secure_relays()
    both = Request(REQUEST_ID, (Part(STAGE, AskMoments(), None, 0), Part("total", AskMoments(), None, 0)))
    replies = codec.unwrap(north.respond(codec.wrap(both)), expect=Response).replies
    assert {reply.reason for reply in replies} == {"AskMoments is not a stage of a secure sum"}


def test_a_sum_that_is_zero_and_one_without_numbers_go_up_as_any_other():
    def relay(i, rows):
        return Relay(
            f"r{i}", LocalFederation.from_rows({f"{i}{j}": rows for j in range(3)}, secure=True), EXACT
        )

    zero = summed(federation([relay(i, np.zeros((4, 2))) for i in range(3)])).total()
    assert (zero.n, zero.sums.tolist()) == (36.0, [0.0, 0.0])
    question = AskColumns(("x",), np.zeros(1), np.ones(1), (), (), False)  # no categorical column
    tables = federation([relay(i, Table.from_columns({"x": [1.0, 2.0]})) for i in range(3)])
    columns = summed(tables, question).total()
    assert (columns.sums.tolist(), columns.categories.tolist()) == ([27.0], [])
