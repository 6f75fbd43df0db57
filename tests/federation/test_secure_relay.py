"""A relay in secure sums: its cell below, its part above, and what happens when somebody is gone."""

from dataclasses import replace

import numpy as np
import pytest

from helpers import bits, blobs, split
from unpooled import Lloyd, SecureSums, Simulation, Site, run
from unpooled.data import Table
from unpooled.data.schema import AskColumns
from unpooled.errors import InputError, TooFewAnswersError
from unpooled.federation.relay.relay import Relay, RelayRules
from unpooled.federation.remote import RemoteFederation
from unpooled.privacy.secure_sum.site_mask import site_masks
from unpooled.privacy.secure_sum.stage_messages import Masked
from unpooled.protocol import codec
from unpooled.protocol.algorithm import Ask
from unpooled.protocol.exchange import STAGE, Part, Request, RequestId, Response
from unpooled.protocol.messages import MaskedElsewhere, Refusal
from unpooled.protocol.partial_sum import PartialSum
from unpooled.protocol.questions.cluster_sums import AskLocalMeans, AskMoments

ROWS = split(blobs(2, n=120)[0], 12, 2)
NAMES = sorted(ROWS)
REQUEST_ID = RequestId("r", 0, 0, 0)


class Wire:
    """A carrier to members of this process; ``lost(stage, site)`` loses what a site answers."""

    def __init__(self, members, lost=lambda stage, site: False):
        self.members, self.lost, self.seen = {m.name: m for m in members}, lost, []

    @property
    def sites(self):
        return tuple(sorted(self.members))

    def send_and_receive(self, requests):
        came = {}
        for site, data in requests.items():
            stage = type(codec.unwrap(data).parts[-1].question).__name__
            came[site] = "late" if self.lost(stage, site) else self.members[site].respond(data)
            self.seen.append((stage, site, came[site]))
        return came


def sites(names, required=True):
    masks = site_masks(tuple(names), min_sites=3, required=required)
    return [Site(s, ROWS[s], mask=masks[s]) for s in names]


def federation(members, lost=lambda stage, site: False, **more):
    return RemoteFederation(
        Wire(members, lost),
        secure=SecureSums(),
        federations=[m.name for m in members if m.is_federation],
        **more,
    )


def regions(lost=lambda stage, site: False, folder=None, **rules):
    """Four cells of three sites."""
    return [
        Relay(
            f"r{i}",
            federation(sites(NAMES[3 * i : 3 * i + 3]), lost),
            RelayRules(**rules),
            folder=None if folder is None else folder / f"r{i}",
        )
        for i in range(4)
    ]


def summed(above, question=None, request_id=REQUEST_ID):
    (got,) = above.ask(request_id, (Ask("total", above.sites, question or AskMoments()),))
    return got


def of(names):
    flat = Simulation.from_rows({s: ROWS[s] for s in names}, secure=True)
    return bits(summed(flat).total())


# ---------------------------------------------------------------- what is seen


def test_the_relay_reads_the_sum_of_its_cell_and_the_country_that_of_all():
    cells = regions()
    above = federation(cells)
    got = summed(above)
    assert bits(got.total()) == of(NAMES)
    for cell in cells:  # of a member the relay has masked words, of a region the country has
        wire = cell._downstream._transport
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


def test_a_region_that_answers_in_secure_sums_only_refuses_its_sum_alone():
    (north, *_) = regions(secure=True)
    alone = Request(REQUEST_ID, (Part("total", AskMoments(), None, 0),))
    (reply,) = codec.unwrap(north.respond(codec.wrap(alone)), expect=Response).replies
    assert reply.reason.startswith("only secure sums are allowed, and AskMoments would show")
    with pytest.raises(TooFewAnswersError, match="0 of 4 sites answered"):
        run(Lloyd(k=2), Simulation(regions(secure=True)))


def test_single_replies_are_refused_in_a_secure_tree():
    above = federation(regions())
    (got,) = above.ask(REQUEST_ID, (Ask("each", above.sites, AskLocalMeans(k=2)),))
    assert got.sites == ()
    assert set(got.refusals.values()) == {
        "AskLocalMeans asks for replies of single sites, and a relay passes up only their sum"
    }


@pytest.mark.parametrize(
    ("members", "rules", "why"),
    [
        (
            lambda: Simulation.from_rows({f"{i:02}": np.ones((1, 1)) for i in range(31)}, secure=True),
            {},
            "31 members in one cell of secure sums, 30 are possible: make several regions",
        ),
        (
            lambda: Simulation.from_rows({s: ROWS[s] for s in NAMES}, secure=True),
            {"min_contributors": 2},
            "min_contributors of 2, and in secure sums nobody sees which sites have rows of a cluster",
        ),
    ],
)
def test_a_cell_that_cannot_be_is_refused(members, rules, why):
    with pytest.raises(InputError, match=why):
        Relay("north", members(), RelayRules(**rules))


# ---------------------------------------------------------------- gone, late, killed


@pytest.mark.parametrize("stage", ["AskShares", "AskMasked", "AskConsistency", "AskUnmask"])
def test_a_region_that_falls_silent_at_any_stage_is_out_for_the_run_as_a_site_is(stage):
    gone = {"from": (stage, "r3")}
    above = federation(regions(), lambda at, site: (at, site) == gone["from"])
    got = summed(above)
    late = stage in ("AskConsistency", "AskUnmask")  # it had sent its part
    assert bits(got.total()) == of(NAMES if late else NAMES[:9])
    gone["from"] = ()
    again = summed(above, request_id=replace(REQUEST_ID, round=1))
    assert again.sites == (("r0", "r1", "r2", "r3") if late else ("r0", "r1", "r2"))


def test_a_site_that_falls_silent_in_its_cell_is_out_and_a_cell_of_too_few_says_so_without_names():
    members = sites(NAMES[:4])
    cell = Relay("r0", federation(members, lambda at, site: at == "AskMasked" and site == NAMES[0]))
    others = [Relay(f"r{i}", federation(sites(NAMES[4 * i : 4 * i + 4]))) for i in (1, 2)]
    above = federation([cell, *others])
    assert bits(summed(above).total()) == of(NAMES[1:])
    few = regions(lambda at, site: at == "AskMasked" and site == NAMES[0])
    wire = Wire(few)
    above = RemoteFederation(wire, secure=SecureSums(), federations=[m.name for m in few])
    got = summed(above)
    assert got.sites == ("r1", "r2", "r3")
    assert bits(got.total()) == of(NAMES[3:])
    assert got.refusals["r0"] == "failed with TooFewAnswers; its own log says more"
    assert not any(NAMES[0].encode() in data for _, _, data in wire.seen)


@pytest.mark.parametrize("stage", ["AskShares", "AskMasked", "AskConsistency", "AskUnmask"])
def test_a_relay_that_is_killed_between_stages_goes_on_with_the_same_sum(stage, tmp_path):
    cells = regions(folder=tmp_path)
    wire = Wire(cells)
    killed = []

    def kill(at, site):
        if (at, site) == (stage, "r1") and not killed:
            killed.append(wire.members["r1"])
            killed[0].close()
            below = killed[0]._downstream._transport
            fresh = RemoteFederation(below, secure=SecureSums())
            wire.members["r1"] = Relay("r1", fresh, RelayRules(), folder=tmp_path / "r1")
        return False

    wire.lost = kill
    above = RemoteFederation(wire, secure=SecureSums(), federations=[m.name for m in cells])
    assert bits(summed(above).total()) == of(NAMES)
    assert killed
    assert bits(summed(above, request_id=replace(REQUEST_ID, round=1)).total()) == of(NAMES)
    for cell in wire.members.values():
        cell.close()


def test_a_country_that_is_killed_repeats_its_round_and_gets_the_same_bits():
    cells = regions()
    first = summed(federation(cells))
    again = summed(federation(cells))  # another coordinator, with keys of its own
    assert bits(first.total()) == bits(again.total())


def test_an_exchange_is_summed_once_though_the_country_begins_it_anew():
    """Else a country that asks again, while a member is gone, would see that member's part."""
    away = set()

    def plain(names):
        return RemoteFederation(
            Wire([Site(s, ROWS[s]) for s in names], lambda at, site: site in away), exact_sums=True
        )

    cells = [Relay(f"r{i}", plain(NAMES[4 * i : 4 * i + 4])) for i in range(3)]
    first = summed(federation(cells))
    away.add(NAMES[0])
    assert bits(summed(federation(cells)).total()) == bits(first.total())
    later = summed(federation(cells), request_id=replace(REQUEST_ID, round=1))
    assert later.partial_sum().sites == 11


def test_a_relay_that_was_opened_again_does_not_sum_an_exchange_anew(tmp_path):
    def relays():
        return [
            Relay(f"r{i}", [Site(s, ROWS[s]) for s in NAMES[4 * i : 4 * i + 4]], folder=tmp_path / f"r{i}")
            for i in range(3)
        ]

    cells = relays()
    summed(federation(cells))
    for cell in cells:
        cell.close()
    again = relays()
    with pytest.raises(TooFewAnswersError, match="summed before this federation was opened again"):
        summed(federation(again))
    for cell in again:
        cell.close()


def test_one_site_in_two_cells_is_found_also_under_secure_sums():
    masks = site_masks(("a", "b", "x"), min_sites=3, required=True)
    twice = [Site(s, ROWS[NAMES[0]], mask=masks[s], key="feed" * 10) for s in ("a", "b")]
    cells = []
    for i, one in enumerate(twice):
        own = [*sites(NAMES[3 * i : 3 * i + 3])[:2], one]
        below = RemoteFederation(Wire(own), secure=SecureSums(), keys={m.name: m.key for m in own})
        cells.append(Relay(f"r{i}", below))
    with pytest.raises(InputError, match=r"one member is reached by two paths, r0 and r1 \(key feedfee"):
        summed(federation([*cells, regions()[3]]))


def test_stages_come_as_they_do_to_a_site():
    (north, *_) = regions()
    both = Request(REQUEST_ID, (Part(STAGE, AskMoments(), None, 0), Part("total", AskMoments(), None, 0)))
    replies = codec.unwrap(north.respond(codec.wrap(both)), expect=Response).replies
    assert {reply.reason for reply in replies} == {"AskMoments is no stage of a secure sum"}


def test_a_sum_that_is_zero_and_one_without_numbers_go_up_as_any_other():
    def cell(i, held):
        return Relay(f"r{i}", Simulation.from_rows({f"{i}{j}": held for j in range(3)}, secure=True))

    nothing = summed(federation([cell(i, np.zeros((4, 2))) for i in range(3)])).total()
    assert (nothing.n, nothing.sums.tolist()) == (36.0, [0.0, 0.0])
    question = AskColumns(("x",), np.zeros(1), np.ones(1), (), (), False)  # no category, so no levels
    tables = federation([cell(i, Table.from_columns({"x": [1.0, 2.0]})) for i in range(3)])
    got = summed(tables, question).total()
    assert (got.sums.tolist(), got.categories.tolist()) == ([27.0], [])
