"""Attacks on trees of federations: from above a relay, by a relay, by a member."""

from dataclasses import replace

import numpy as np
import pytest

from helpers import EXACT, ONE_ROW_PER_PERSON, bits, blobs, split
from unpooled.algorithms import Lloyd
from unpooled.data import Table
from unpooled.errors import LedgerError
from unpooled.federation import LocalFederation, Simulation
from unpooled.federation.relay.relay import Relay
from unpooled.federation.relay.relay_policy import RelayRules
from unpooled.federation.transport_federation import TransportFederation
from unpooled.privacy import SecureSums
from unpooled.privacy.microaggregation import microaggregate
from unpooled.privacy.microaggregation.combine_summaries import combine_with_rows
from unpooled.privacy.microaggregation.row_record import RowRecord
from unpooled.privacy.secure_sum.site_mask import site_masks
from unpooled.privacy.secure_sum.stage_messages import AskKeys, AskShares
from unpooled.protocol import codec, run
from unpooled.protocol.algorithm import Ask
from unpooled.protocol.exchange import STAGE, Part, Request, RequestId, Response
from unpooled.protocol.messages import Refusal
from unpooled.protocol.partial_sum import PartialSum
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskMoments
from unpooled.site import Site
from unpooled.site.audit.posterior import determined
from unpooled.site.ledger import Ledger
from unpooled.site.open_site import open_site

REQUEST_ID = RequestId("r", 0, 0, 0)


class Tapped:
    """A carrier whose every answer an attacker reads; ``away(site)``: it does not come through."""

    def __init__(self, members, away=lambda site: False):
        self.members, self.away, self.seen = {m.name: m for m in members}, away, []
        self.sites = tuple(sorted(self.members))

    def send_and_receive(self, requests):
        came = {s: "late" if self.away(s) else self.members[s].respond(data) for s, data in requests.items()}
        pairs = [(codec.unwrap(requests[s]), came[s]) for s in requests if isinstance(came[s], bytes)]
        self.seen += [(request, codec.unwrap(data)) for request, data in pairs]
        return came


def above(members, **more):
    return TransportFederation(
        Tapped(members), exact_sums=True, federations=[m.name for m in members], **more
    )


def asked(federation, question, request_id=REQUEST_ID):
    (result,) = federation.ask(request_id, (Ask("total", federation.sites, question),))
    return result


# ---------------------------------------------------------------- a cluster that one site alone has rows of


def one_cluster_a_site(seed):
    """Six hospitals that share two clusters; four of them have one more of their own."""
    rng = np.random.default_rng(seed)
    rows = {}
    for i in range(6):
        X = np.concatenate([rng.normal(c, 0.5, (12, 2)) for c in (0.0, 6.0)])
        own = rng.normal((30 + 10 * i, -20), 0.5, (7, 2))
        rows[f"h{i}"] = np.concatenate([X, own]) if i < 4 else X
    return rows


def regions_of(rows, **rules):
    return [
        Relay(
            f"r{j}",
            [Site(s, rows[s]) for s in sorted(rows)[3 * j : 3 * j + 3]],
            RelayRules(exact=True, **rules),
        )
        for j in (0, 1)
    ]


def own_numbers(rows, seen):
    """How many sums of one site's cells an attacker reads above the relays."""
    found = set()
    for request, answer in seen:
        for part, reply in zip(request.parts, answer.replies, strict=True):
            if not (isinstance(reply, PartialSum) and isinstance(part.question, AskClusterSums)):
                continue
            relay_sum = reply.reply()
            for site, X in rows.items():
                own = asked(Simulation.from_rows({site: X}), part.question).total()
                same = (relay_sum.mass == own.mass) & (own.mass > 0)
                same &= np.isclose(relay_sum.sums, own.sums, rtol=1e-9, atol=1e-9).all(axis=-1)
                found |= {(site, part.question.centers.tobytes(), *at) for at in np.argwhere(same).tolist()}
    return len(found)


def left_over(rows, relays, seen):
    """Relay by relay and set of cells: how many sites the rows come from that its cells leave out."""
    least = []
    members = {relay.name: relay.members for relay in relays}
    for name, request, answer in seen:
        for part, reply in zip(request.parts, answer.replies, strict=True):
            if not (isinstance(reply, PartialSum) and isinstance(part.question, AskClusterSums)):
                continue
            relay_sum = reply.reply().mass
            own = {
                s: asked(Simulation.from_rows({s: rows[s]}), part.question).total().mass
                for s in members[name]
            }
            for r in range(len(relay_sum)):
                there = {s: (own[s][r] > 0) & (relay_sum[r] == 0) for s in own}
                left = sum(bool(mask.any()) for mask in there.values())
                if left:
                    least.append(left)
    return least


class Named(Tapped):
    """The same, with the name of the relay that answered."""

    def send_and_receive(self, requests):
        came = super().send_and_receive(requests)
        fresh = self.seen[-len(requests) :]
        self.seen[-len(requests) :] = [(name, *pair) for name, pair in zip(requests, fresh, strict=True)]
        return came


def tapped_run(rows, **rules):
    relays = regions_of(rows, **rules)
    wire = Named(relays)
    federation = TransportFederation(wire, exact_sums=True, federations=[r.name for r in relays])
    done = run(Lloyd(k=5, n_starts=3, max_rounds=6), federation, seed=1)
    return relays, wire.seen, done


def shared_clusters(seed, kind, n=100):
    """Eight hospitals: all have all clusters, or those of their region, or one of their own besides."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(0, 8, (16, 3))
    mine = {"shared": lambda i: range(4), "regional": lambda i: range(4 * (i // 4), 4 * (i // 4) + 4)}.get(
        kind, lambda i: (0, 1, 2, 4 + i)
    )
    return {f"h{i}": centers[rng.choice(list(mine(i)), n)] + rng.normal(size=(n, 3)) for i in range(8)}


def opened_sets(seen, points, labels):
    """Of every set of cells that was opened: the cell of each member's group; the attacker knows them."""
    for _, request, _ in seen:
        for part in request.parts:
            if isinstance(part.question, AskClusterSums):
                for centers in part.question.centers:
                    yield ((points[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)[labels]


def groups_above_relays(kind, exact, seed=1):
    """An honest run over two relays, all assignments known: rows and pairs, equations, groups, inertia."""
    rows, found, equations, groups = shared_clusters(seed, kind), 0, 0, 0
    regions = {"north": ["h0", "h1", "h2", "h3"], "south": ["h4", "h5", "h6", "h7"]}
    own = {s: microaggregate(X) for s, X in rows.items()}
    relays = [
        Relay(r, [open_site(s, rows[s], ONE_ROW_PER_PERSON) for s in some], RelayRules(exact=exact))
        for r, some in regions.items()
    ]
    wire = Named(relays)
    federation = TransportFederation(wire, exact_sums=True, federations=[r.name for r in relays])
    done = run(Lloyd(k=4), federation, seed=1)
    for region, some in regions.items():
        table, labels = combine_with_rows({s: own[s] for s in some})
        points, of = table.matrix(), row_numbers(table, labels, [own[s] for s in some])
        if exact:
            points, of = np.concatenate([own[s].matrix() for s in some]), np.arange(len(labels))
        seen = [one for one in wire.seen if one[0] == region]
        judged = determined(opened_sets(seen, points, of), len(labels))
        found, groups = found + len(judged.rows) + len(judged.pairs), groups + len(labels)
        equations += judged.equations
    every = np.concatenate(list(rows.values()))
    pooled = run(Lloyd(k=4), Simulation.from_rows({"all": every}), seed=1).state.centers

    def inertia(centers):
        return ((every[:, None] - centers) ** 2).sum(axis=2).min(axis=1).sum()

    return found, equations, groups, inertia(done.state.centers) / inertia(pooled)


@pytest.mark.parametrize("kind", ["shared", "regional", "own"])
@pytest.mark.parametrize("exact", [True, False])
def test_groups_of_single_hospitals_above_a_relay(kind, exact):
    """From exact sums nearly all groups follow, from a summary none."""
    found, _, groups, inertia = groups_above_relays(kind, exact)
    if exact:
        assert found > 0.8 * groups  # the attack finds what is there
    else:
        assert found == 0
        assert inertia <= 1.03


def named(X):
    return Table.from_columns({f"x{j}": x for j, x in enumerate(X.T)})


def later(seed, rows):
    """The table of a hospital after an update: a tenth of its groups are of other people."""
    rng = np.random.default_rng(seed)
    table = microaggregate(named(rows))
    gone = rng.random(len(table)) < 0.1
    means = {name: np.where(gone, x + rng.normal(0, 0.1, len(x)), x) for name, x in table.means.items()}
    return replace(table, means=means)


def studies_of(seed):
    """What a relay may be asked over time: all members, without one, after updates, about some columns.

    With every table comes what identifies its groups.
    """
    rows = shared_clusters(seed, "own")
    first = {s: microaggregate(named(rows[s])) for s in ("h0", "h1", "h2", "h3")}
    updated = {**first, "h1": later(seed, rows["h1"])}
    without = {s: table for s, table in updated.items() if s != "h2"}
    for tables in (first, {s: t for s, t in first.items() if s != "h3"}, updated):
        yield tables, identities(tables)
    yield {s: table.only(("x0", "x1")) for s, table in updated.items()}, identities(updated)
    for tables in (without, {**without, "h4": microaggregate(named(rows["h4"]))}):
        yield tables, identities(tables)


def identities(tables):
    found = [(s, *t.matrix()[i], t.people[i]) for s, t in tables.items() for i in range(len(t))]
    assert len(set(found)) == len(found)
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("recorded", [True, False])
def test_the_tables_of_several_studies_differ_by_no_group(seed, recorded):
    """The attacker has all tables of a relay and knows which groups are in which row."""
    record, universe, sets, people = RowRecord(), {}, [], []
    for tables, whole in studies_of(seed):
        table, labels = combine_with_rows(tables, record=record if recorded else RowRecord())
        cells = np.full(2000, -1)
        for key, label in zip(whole, labels, strict=True):
            cells[universe.setdefault(key, len(universe))] = max(label, -1)
        sets.append(cells)
        people.append(table.people.sum() / sum(t.people.sum() for t in tables.values()))
    found = determined([cells[: len(universe)] for cells in sets], len(universe))
    if recorded:
        assert (len(found.rows), len(found.pairs)) == (0, 0)
        assert min(people) >= 0.3
    else:
        assert len(found.rows) > 0.2 * len(universe)


def row_numbers(table, labels, own):
    """The row of the sorted table that every group is in."""
    people, X = np.concatenate([t.people for t in own]), np.concatenate([t.matrix() for t in own])
    weight = np.bincount(labels, people)
    means = np.stack([np.bincount(labels, people * x) / weight for x in X.T], axis=1)
    row = ((means[:, None] - table.matrix()) ** 2).sum(axis=2).argmin(axis=1)
    assert sorted(row) == list(range(len(table)))
    return row[labels]


@pytest.mark.parametrize("seed", range(2))
def test_no_cell_of_fewer_sites_goes_up_nor_follows_from_the_total(seed):
    rows = one_cluster_a_site(seed)
    for least in (1, 2, 3):
        relays, seen, _ = tapped_run(rows, min_sites=3, min_contributors=least)
        alone = own_numbers(rows, [(request, answer) for _, request, answer in seen])
        if least == 1:
            assert alone > 4  # the attack finds what is there
            continue
        assert alone == 0
        missing = left_over(rows, relays, seen)
        assert missing
        assert min(missing) >= least


def test_what_is_left_out_costs_the_rows_of_small_clusters_and_nothing_where_all_sites_have_all():
    rows = one_cluster_a_site(0)
    _, _, exact = tapped_run(rows)
    _, _, suppressed = tapped_run(rows, min_sites=3, min_contributors=3)
    X = np.concatenate(list(rows.values()))

    def cost(done):
        return ((X[:, None] - done.state.centers) ** 2).sum(axis=2).min(axis=1).sum()

    assert cost(suppressed) > 1.5 * cost(exact)
    even = {s: X[i::6] for i, s in enumerate(sorted(rows))}
    start = np.array([[0.0, 0.0], [6.0, 6.0], [45.0, -20.0]])
    both = []
    for least in (1, 3):
        federation = above(regions_of(even, min_contributors=least))
        both.append(bits(run(Lloyd(k=3, init=start, max_rounds=3), federation).state))
    assert both[0] == both[1]


def test_documented_two_sums_whose_cells_differ_by_rows_of_one_site_disclose_their_difference():
    """Every cell has three sites. Only what sites answer from, and secure sums, is between this and a row."""
    rows = {s: np.array([[0.0], [1.0], [10.0], [11.0]]) + 0.01 * i for i, s in enumerate("abc")}
    rows["a"] = np.append(rows["a"], [[5.4]], axis=0)
    relay = Relay("r", [Site(s, X) for s, X in rows.items()], RelayRules(exact=True, min_contributors=3))
    federation = above([relay])
    cells = [
        asked(federation, AskClusterSums(np.array([[[0.0], [c]]])), replace(REQUEST_ID, exchange=i)).total()
        for i, c in enumerate((10.0, 11.0))
    ]
    assert cells[1].mass[0, 0] - cells[0].mass[0, 0] == 1
    assert cells[1].sums[0, 0, 0] - cells[0].sums[0, 0, 0] == pytest.approx(5.4)


# ---------------------------------------------------------------- sums over different sets of sites


def test_with_one_set_a_member_that_is_away_cannot_be_seen_in_a_difference(tmp_path):
    rows, away = split(blobs(1, n=80)[0], 4, 1), set()
    for rule in (False, True):
        away.clear()
        below = TransportFederation(
            Tapped([Site(s, X) for s, X in rows.items()], lambda site: site in away), exact_sums=True
        )
        folder = tmp_path / str(rule)
        federation = above([Relay("r", below, RelayRules(exact=True, fixed_membership=rule), folder=folder)])
        whole = asked(federation, AskMoments()).total()
        away.add("site-0")
        later = asked(federation, AskMoments(), replace(REQUEST_ID, round=1))
        if not rule:
            part = whole.sums - later.total().sums
            assert np.allclose(part, rows["site-0"].sum(axis=0))
            continue
        why = "not all sites of this run's first sum answered"
        assert later.refusals == {"r": why}
        relay = federation._transport.members["r"]
        relay.close()
        opened = Relay(
            "r", below, RelayRules(exact=True, fixed_membership=True), folder=folder
        )  # it has not forgotten
        again = asked(above([opened]), AskMoments(), replace(REQUEST_ID, round=2))
        assert again.refusals == {"r": why}
        away.clear()
        assert asked(above([opened]), AskMoments(), replace(REQUEST_ID, round=2)).partial_sum().sites == 4
        fresh = asked(above([opened]), AskMoments(), replace(REQUEST_ID, run="s"))
        assert fresh.partial_sum().sites == 4
        opened.close()


def test_who_is_late_in_the_first_sum_stays_out_where_there_is_one_set():
    rows, away = split(blobs(1, n=80)[0], 4, 1), {"site-0"}
    below = TransportFederation(
        Tapped([Site(s, X) for s, X in rows.items()], lambda site: site in away), exact_sums=True
    )
    federation = above([Relay("r", below, RelayRules(exact=True, fixed_membership=True))])
    first = asked(federation, AskMoments())
    away.clear()
    second = asked(federation, AskMoments(), replace(REQUEST_ID, round=1))
    assert first.partial_sum().sites == second.partial_sum().sites == 3
    assert bits(first.total()) == bits(second.total())


def test_a_release_that_fails_records_no_set_and_its_sum_cannot_leave_after_another(tmp_path, monkeypatch):
    rows, away = split(blobs(1, n=80)[0], 4, 1), set()
    below = TransportFederation(
        Tapped([Site(s, X) for s, X in rows.items()], lambda site: site in away), exact_sums=True
    )
    federation = above([Relay("r", below, RelayRules(exact=True, fixed_membership=True), folder=tmp_path)])

    def full_disk(ledger, run, source):
        raise LedgerError("no space left on the disk")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "begin", full_disk)  # in the transaction, after the members were recorded
        assert "failed with LedgerError" in asked(federation, AskMoments()).refusals["r"]
    away.add("site-0")
    next_exchange = replace(REQUEST_ID, exchange=REQUEST_ID.exchange + 1)
    assert asked(federation, AskMoments(), next_exchange).partial_sum().sites == 3  # the first sum that left
    away.clear()
    assert "this run's first sum" in asked(federation, AskMoments()).refusals["r"]  # it was over four


def test_one_set_is_also_kept_where_the_sites_of_a_relay_below_change():
    rows, away = split(blobs(1, n=80)[0], 4, 1), set()
    below = TransportFederation(
        Tapped([Site(s, X) for s, X in rows.items()], lambda site: site in away), exact_sums=True
    )
    inner = Relay("inner", below, RelayRules(exact=True, min_sites=2))
    federation = above([Relay("r", above([inner]), RelayRules(exact=True, fixed_membership=True))])
    assert asked(federation, AskMoments()).partial_sum().sites == 4
    away.add("site-0")
    assert (
        "this run's first sum" in asked(federation, AskMoments(), replace(REQUEST_ID, round=1)).refusals["r"]
    )


def cells_of(rows):
    names = sorted(rows)
    parts = [names[3 * i : 3 * i + 3] for i in range(4)]
    return [
        Relay(f"r{i}", LocalFederation.from_rows({s: rows[s] for s in p}, secure=True), EXACT)
        for i, p in enumerate(parts)
    ]


def stage(relay, question, request_id, *more):
    data = codec.wrap(Request(request_id, (*more, Part(STAGE, question, None, 0))))
    return codec.unwrap(relay.respond(data), expect=Response).replies[-1]


def test_a_country_cannot_difference_regions_by_other_lists_of_them_nor_replay_a_round():
    relays = cells_of(split(blobs(1, n=60)[0], 12, 1))
    wire = Tapped(relays)
    federation = TransportFederation(wire, secure=SecureSums(), federations=[r.name for r in relays])
    for number in range(2):
        asked(federation, AskMoments(), replace(REQUEST_ID, round=number))
    begun = [
        (request.request_id, part.question)
        for request, _ in wire.seen
        for part in request.parts
        if isinstance(part.question, AskShares)
    ]
    (old_id, old), (_, last) = begun[0], begun[-1]
    participants = last.participants
    fewer = replace(participants, sites=participants.sites[:3], identities=participants.identities[:3])
    terms = replace(
        last.terms,
        request_id=replace(REQUEST_ID, round=2),
        sites=participants.sites[:3],
        participants=fewer.digest,
        threshold=3,
    )
    other = replace(last, terms=terms, participants=fewer, keys=last.keys[:3])
    assert (
        "the participant list is not the one that this run began with"
        in stage(relays[0], other, terms.request_id).reason
    )
    low = replace(
        last, terms=replace(terms, participants=participants.digest, threshold=2), keys=last.keys[:3]
    )
    assert "this site's minimum is 3" in stage(relays[0], low, terms.request_id).reason
    assert stage(relays[0], old, old_id).reason == "round 0, exchange 0 is over"
    stage(relays[0], AskKeys("new"), old_id)  # with new keys it is over, too
    fresh = replace(old, terms=replace(old.terms, epoch="new"))
    assert isinstance(stage(relays[0], fresh, old_id), Refusal)


# ---------------------------------------------------------------- a relay that lies, a member with two names


class Liar(Relay):
    """A relay that changes what it passes up."""

    def __init__(self, *given, lie, **more):
        super().__init__(*given, **more)
        self._lie = lie

    def answer(self, request):
        answer = super().answer(request)
        return replace(answer, replies=tuple(map(self._lie, answer.replies)))


def liar(rows, lie, name="r"):
    return Liar(name, [Site(s, X) for s, X in rows.items()], RelayRules(exact=True, min_sites=1), lie=lie)


def claimed(**other):
    return lambda reply: replace(reply, **other) if isinstance(reply, PartialSum) else reply


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        (claimed(sites=0), "a sum over 0 sites"),
        (claimed(min_contributors=9), "a sum over 3 sites, 9 behind every cell"),
        (claimed(kind="ClusterSums"), "a sum of ClusterSums where Moments"),
        (claimed(low=(99, 99, 99)), "that is not a sum of numbers"),
    ],
)
def test_a_sum_that_cannot_be_is_refused_by_name(lie, why):
    rows = split(blobs(1, n=30)[0], 3, 1)
    result = asked(above([liar(rows, lie)]), AskMoments())
    assert why in result.refusals["r"]


def test_documented_a_relay_that_lies_about_its_members_is_believed():
    """It may invent sites, or leave a key out. It harms those whose replies it reads anyway, and the sum."""
    rows = {"a": np.ones((5, 2))}
    result = asked(above([liar(rows, claimed(sites=50))]), AskMoments())
    assert result.partial_sum().sites == 50
    shared = {"a": np.ones((5, 2))}

    def forgets(reply):
        return replace(reply, keys=()) if hasattr(reply, "keys") else reply

    twice = []
    for name, lie in (("r0", forgets), ("r1", lambda reply: reply)):
        member = Site("a", shared["a"], key="feed" * 10)
        twice.append(Liar(name, [member], RelayRules(exact=True, min_sites=1), lie=lie))
    assert asked(above(twice), AskMoments()).total().n == 10  # counted twice, and not found


def test_documented_a_site_with_two_keys_and_two_names_is_two_sites():
    members = [Site(name, np.ones((5, 2)), key=key * 10) for name, key in (("a", "feed"), ("b", "beef"))]
    relays = [Relay(f"r{i}", [m], RelayRules(exact=True, min_sites=1)) for i, m in enumerate(members)]
    assert asked(above(relays), AskMoments()).total().n == 10


def test_in_a_secure_sum_a_relay_cannot_be_distinguished_from_a_site_by_its_masked_reply():
    """The words are masked, and as long as those of a site: the number of its sites is in none of them."""
    rows = split(blobs(1, n=60)[0], 12, 1)
    relays = cells_of(rows)[:2]
    names = ("x", "y")
    masks = site_masks((*names, "z"), min_sites=3, required=True)
    sites = [Site(s, rows["site-9"], mask=masks[s]) for s in names]
    wire = Tapped([*relays, *sites])
    federation = TransportFederation(wire, secure=SecureSums(), federations=[r.name for r in relays])
    assert asked(federation, AskMoments()).partial_sum().sites == 8
    masked = [a.replies[-1].data for p, a in wire.seen if any(part.verb == "total" for part in p.parts)]
    assert len(masked) == 4
    assert len({data.shape for data in masked}) == 1
    assert not any((data[:, -1] == [0, count]).all() for data in masked for count in (1, 3))
