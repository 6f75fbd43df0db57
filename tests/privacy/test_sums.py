"""A secure sum is the sum of the integers of its sites, whichever site falls silent at whatever stage."""

import numpy as np
import pytest
from ring import Ring, Vector
from tests.amounts import amounts

from unpooled.errors import TooFewAnswersError
from unpooled.privacy.secure_sum import threshold_for
from unpooled.privacy.secure_sum.stage_messages import Masked, UnmaskShares, as_array
from unpooled.protocol.messages import MaskedElsewhere, Refusal


@pytest.fixture(params=amounts(150, 10_000))
def schedules(request):
    return request.param


def started(n: int) -> Ring:
    ring = Ring(n)
    ring.agree_on_keys(ring.request_id())
    return ring


def test_three_numbers_by_hand() -> None:
    """1.5 + 2.25 - 3 = 0.75; what travels is masked, and the same number is never masked alike."""
    ring, seen = started(3), []
    inputs = {
        "s000": Vector(np.array([1.5])),
        "s001": Vector(np.array([2.25])),
        "s002": Vector(np.array([-3.0])),
    }
    for number in range(2):
        total = ring.sum(
            inputs,
            ring.terms(ring.request_id(number)),
            twist=lambda stage, site, reply: (seen.append(reply), reply)[1],
        )
        assert total.sums[0].values.tolist() == [0.75]
        assert total.sites == ring.names
        assert total.silent == {}
    sent = [int(reply.data[1, 0]) for reply in seen if isinstance(reply, Masked)]
    assert len(set(sent)) == 6
    assert not {1, 2, -3} & set(sent)
    assert abs(sum(sent[:3])) > 3  # the sites' own masks are still on


def test_random_schedules_of_silence_are_integer_exact(schedules) -> None:
    """Sites 3 to 100, silent from any stage on: the sum over those in it, or one error that counts them.

    Who is silent is out for the run; a sum that failed ends it. Sites are killed and opened again in between:
    what they keep is all they need.
    """
    rng = np.random.default_rng(0)
    counts, held, sites = {"sum": 0, "error": 0}, None, ()
    for trial in range(schedules):
        if held is None or trial % 20 == 0:  # a ring serves some rounds of one run
            n = int(
                rng.choice([3, 4, 5, 7, 10, 20, 50, 100], p=[0.2, 0.2, 0.2, 0.16, 0.16, 0.065, 0.01, 0.005])
            )
            held = started(n)
            sites = held.names
        request_id, least = held.request_id(trial), threshold_for(len(held.names))
        lost = rng.choice([0.0, 0.03, 0.3], p=[0.5, 0.3, 0.2])
        stage_of = {s: int(rng.integers(4)) if rng.random() < lost else 9 for s in sites}
        killed = {(int(rng.integers(4)), s) for s in sites if rng.random() < 0.2}
        whole = {s: rng.integers(-(2**40), 2**40, size=5).astype(float) for s in sites}
        terms = held.terms(request_id, sites=sites)
        inputs = {s: Vector(v) for s, v in whole.items()}

        def silent(k, s, ring=held, at=stage_of, killed=killed):
            if (k, s) in killed:
                ring.restart(s)
            return k >= at[s]

        last = sum(at > 3 for at in stage_of.values())  # sites that are there to the end
        if last < least:
            with pytest.raises(TooFewAnswersError, match=f"{least} needed"):
                held.sum(inputs, terms, silent=silent)
            counts["error"] += 1
            held = None
            continue
        total = held.sum(inputs, terms, silent=silent)
        assert total.sites == tuple(s for s in sites if stage_of[s] > 1)
        expected = [sum(int(whole[s][j]) for s in total.sites) for j in range(5)]
        assert [int(v) for v in total.sums[0].values] == expected
        assert set(total.silent) == set(sites) - set(total.sites)
        sites = total.sites
        counts["sum"] += 1
    print(
        f"{schedules} schedules, 3 to 100 sites: {counts['sum']} exact sums, {counts['error']} clear errors"
    )
    assert counts["sum"] > 0.5 * schedules
    assert counts["error"] > 0


def test_a_hundred_sites_of_which_a_quarter_drops() -> None:
    ring, rng = started(100), np.random.default_rng(0)
    whole = {s: rng.integers(-(2**40), 2**40, size=5).astype(float) for s in ring.names}
    gone = set(ring.names[::4])
    total = ring.sum(
        {s: Vector(v) for s, v in whole.items()},
        ring.terms(ring.request_id()),
        silent=lambda k, s: k == 1 and s in gone,
    )
    assert set(total.sites) == set(ring.names) - gone
    assert total.sums[0].values.tolist() == sum(whole[s] for s in total.sites).tolist()


def test_who_is_silent_in_a_sum_is_out_for_the_run() -> None:
    ring = started(7)
    inputs = {s: Vector(np.array([float(i)])) for i, s in enumerate(ring.names)}
    first = ring.sum(inputs, ring.terms(ring.request_id(0)), silent=lambda k, s: k == 1 and s == "s003")
    assert first.sums[0].values[0] == 21 - 3
    with pytest.raises(TooFewAnswersError, match="s003 left this run"):
        ring.sum(inputs, ring.terms(ring.request_id(1)))
    again = ring.sum(inputs, ring.terms(ring.request_id(1), sites=first.sites))
    assert again.sums[0].values[0] == 18
    with pytest.raises(
        TooFewAnswersError, match="threshold 4 for 5 of 7 sites, and this site's minimum is 5"
    ):
        ring.sum(inputs, ring.terms(ring.request_id(2), sites=first.sites[:5], threshold=4))


def test_the_same_inputs_give_the_same_bits_whatever_the_masks() -> None:
    rng = np.random.default_rng(3)
    values = {f"s{i:03d}": Vector(rng.standard_normal(40)) for i in range(6)}
    result = []
    for _ in range(2):
        ring = started(6)
        result.append(ring.sum(values, ring.terms(ring.request_id())).sums[0].values.tobytes())
    assert result[0] == result[1]


# ---------------------------------------------------------------- wrong sites, seen from the coordinator


def wrong_length(reply):
    return type(reply)(reply.data[:-1])


def with_layout(reply, layout):
    return Masked(layout, reply.data)


WRONG = {
    "shares too short": (0, wrong_length, "its shares were not usable"),
    "another reply instead of shares": (0, lambda r: MaskedElsewhere(), "its shares were not usable"),
    "masked words of another shape": (1, lambda r: Masked(r.layout, r.data[:, :-1]), "not usable"),
    "a kind that is no sum": (1, lambda r: with_layout(r, (("messages.LeftMasked", ()),)), "not usable"),
    "an unknown kind": (1, lambda r: with_layout(r, (("os.system", ((3,),)),)), "not usable"),
    "an impossible shape": (1, lambda r: with_layout(r, ((r.layout[0][0], ((-3,),)),)), "not usable"),
    "another shape than the others": (
        1,
        lambda r: Masked(((r.layout[0][0], ((1, 3),)),), r.data),
        "another shape than the others",
    ),
    "a refusal": (1, lambda r: Refusal("not today"), "not today"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_site_is_left_out_by_name(name: str) -> None:
    stage, change, reason = WRONG[name]
    ring = started(4)
    inputs = {s: Vector(np.array([1.0, 2.0, 3.0])) for s in ring.names}
    total = ring.sum(
        inputs,
        ring.terms(ring.request_id()),
        twist=lambda k, s, reply: change(reply) if (k, s) == (stage, "s002") else reply,
    )
    assert total.sums[0].values.tolist() == [3.0, 6.0, 9.0]
    assert reason in total.silent["s002"]


def test_words_that_no_honest_site_sends_are_found_where_they_can_be() -> None:
    """The last number is 0 at every site: what is masked wrongly almost never gives it."""
    ring = started(4)
    inputs = {s: Vector(np.array([1.0])) for s in ring.names}

    def spoil(stage, site, reply):
        return Masked(reply.layout, reply.data + 12345) if (stage, site) == (1, "s001") else reply

    with pytest.raises(TooFewAnswersError, match="is not the sum of answers of honest sites"):
        ring.sum(inputs, ring.terms(ring.request_id()), twist=spoil)


@pytest.mark.parametrize(("place", "dropped", "named"), [(3, None, "s000"), (-2, "s003", "s003")])
def test_a_wrong_share_is_found_and_no_wrong_sum_comes_out(place, dropped, named) -> None:
    ring = started(4)
    inputs = {s: Vector(np.array([1.0])) for s in ring.names}

    def spoil(stage, site, reply):
        if (stage, site) != (3, "s001"):
            return reply
        data = bytearray(reply.data.tobytes())
        data[place] ^= 1
        return UnmaskShares(as_array(bytes(data)))

    with pytest.raises(
        TooFewAnswersError, match=f"do not give the seed of {named}. A site sent a wrong share"
    ):
        ring.sum(
            inputs, ring.terms(ring.request_id()), silent=lambda k, s: k == 1 and s == dropped, twist=spoil
        )
