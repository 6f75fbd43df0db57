"""A secure sum is the sum of the integers of the sites in it, whoever falls silent when; and nothing else."""

import os

import numpy as np
import pytest
from federation import Ring, Vector

from unpooled.core.messages import LeftMasked, Refusal
from unpooled.errors import BadInput, TooFewAnswers
from unpooled.privacy.secure_sum import Fixed, threshold_for
from unpooled.privacy.secure_sum import tally as tally_module
from unpooled.privacy.secure_sum.messages import Masked, Opened, as_array

SCHEDULES = int(os.environ.get("UNPOOLED_SCHEDULES", "300"))


def started(n: int) -> Ring:
    ring = Ring(n)
    ring.agree_on_keys(ring.turn())
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
            ring.terms(ring.turn(number), fixed=Fixed(1, 8)),
            twist=lambda stage, site, reply: (seen.append(reply), reply)[1],
        )
        assert total.sums[0].values.tolist() == [0.75]
        assert total.sites == ring.names
        assert total.silent == {}
    sent = [int(reply.data[0, 0]) for reply in seen if isinstance(reply, Masked)]
    assert len(set(sent)) == 6
    assert not {384, 576, -768} & set(sent)
    assert sum(sent[:3]) % 2**64 != 192  # the sites' own masks are still on


def test_random_schedules_of_silence_are_integer_exact() -> None:
    """Sites 3 to 100, silent from any stage on: the sum over those in it, or one error that counts them."""
    rng = np.random.default_rng(int(os.environ.get("UNPOOLED_SEED", "0")))
    counts, held = {"sum": 0, "error": 0}, None
    for trial in range(SCHEDULES):
        if trial % 20 == 0:  # a ring serves some rounds of one run
            n = int(
                rng.choice([3, 4, 5, 7, 10, 20, 50, 100], p=[0.2, 0.2, 0.2, 0.16, 0.16, 0.065, 0.01, 0.005])
            )
            held = started(n)
        turn = held.turn(trial)
        sites = held.names
        if len(sites) > 4 and rng.random() < 0.3:
            chosen = np.sort(rng.choice(len(sites), int(rng.integers(3, len(sites) + 1)), replace=False))
            sites = tuple(sites[i] for i in chosen)
        stage_of = {
            s: int(rng.integers(4)) if rng.random() < rng.choice([0.0, 0.1, 0.3]) else 9 for s in sites
        }
        fixed = (Fixed(1, 0), Fixed(2, 0), Fixed(3, 64))[trial % 3]
        whole = {s: rng.integers(-(2**40), 2**40, size=5).astype(float) for s in sites}
        terms = held.terms(turn, sites=sites, fixed=fixed)
        inputs = {s: Vector(v) for s, v in whole.items()}
        last = sum(at > 3 for at in stage_of.values())  # sites that are there to the end
        if last < threshold_for(len(sites)):
            with pytest.raises(TooFewAnswers, match=f"{threshold_for(len(sites))} needed"):
                held.sum(inputs, terms, silent=lambda k, s, at=stage_of: k >= at[s])
            counts["error"] += 1
            continue
        total = held.sum(inputs, terms, silent=lambda k, s, at=stage_of: k >= at[s])
        assert total.sites == tuple(s for s in sites if stage_of[s] > 1)
        expected = [sum(int(whole[s][j]) for s in total.sites) for j in range(5)]
        assert [int(v) for v in total.sums[0].values] == expected
        assert set(total.silent) == set(sites) - set(total.sites)
        counts["sum"] += 1
    print(
        f"{SCHEDULES} schedules, 3 to 100 sites: {counts['sum']} exact sums, {counts['error']} clear errors"
    )
    assert counts["sum"] > 0.5 * SCHEDULES
    assert counts["error"] > 0


def test_a_hundred_sites_of_which_a_quarter_drops() -> None:
    ring, rng = started(100), np.random.default_rng(0)
    whole = {s: rng.integers(-(2**40), 2**40, size=5).astype(float) for s in ring.names}
    gone = set(ring.names[::4])
    total = ring.sum(
        {s: Vector(v) for s, v in whole.items()},
        ring.terms(ring.turn(), fixed=Fixed(1, 0)),
        silent=lambda k, s: k == 1 and s in gone,
    )
    assert set(total.sites) == set(ring.names) - gone
    assert total.sums[0].values.tolist() == sum(whole[s] for s in total.sites).tolist()


def test_a_sum_in_which_a_number_does_not_fit_shows_nothing_of_the_others(monkeypatch) -> None:
    """Not even the sum without that site: with a larger bound the next one would give its part away."""
    ring, opened = started(4), []
    unmasked = tally_module._unmasked
    monkeypatch.setattr(tally_module, "_unmasked", lambda *a: opened.append(unmasked(*a)) or opened[-1])
    inputs = {s: Vector(np.array([float(i), 7.0])) for i, s in enumerate(ring.names)}
    inputs["s003"] = Vector(np.array([1e9, 7.0]))
    fixed = Fixed.within(1000.0, 4)
    for number in range(2):
        with pytest.raises(BadInput, match="1 of 4 sites have a number"):
            ring.sum(inputs, ring.terms(ring.turn(number), fixed=fixed))
    others = fixed.encode(np.array([0.0 + 1 + 2, 21.0]))[0]
    for words in opened:
        assert not np.intersect1d(words[0, :2], others).size
        assert words[0, 2] == 1
    assert (opened[0][:, :2] != opened[1][:, :2]).all()


def test_a_site_that_drops_in_one_round_is_back_in_the_next() -> None:
    ring = started(4)
    inputs = {s: Vector(np.array([float(i)])) for i, s in enumerate(ring.names)}
    for number, gone in enumerate(["s003", "s001", None]):
        total = ring.sum(inputs, ring.terms(ring.turn(number)), silent=lambda k, s, g=gone: k == 1 and s == g)
        assert total.sums[0].values[0] == 6 - (int(gone[-1]) if gone else 0)


def test_the_same_inputs_give_the_same_bits_whatever_the_masks() -> None:
    rng = np.random.default_rng(3)
    values = {f"s{i:03d}": Vector(rng.standard_normal(40)) for i in range(6)}
    got = []
    for _ in range(2):
        ring = started(6)
        got.append(ring.sum(values, ring.terms(ring.turn())).sums[0].values.tobytes())
    assert got[0] == got[1]


# ---------------------------------------------------------------- wrong sites, seen from the coordinator


def wrong_length(reply):
    return type(reply)(reply.data[:-1])


def with_layout(reply, layout):
    return Masked(layout, reply.data)


WRONG = {
    "shares too short": (0, wrong_length, "its shares were not usable"),
    "another reply instead of shares": (0, lambda r: LeftMasked(), "its shares were not usable"),
    "masked words of another shape": (1, lambda r: Masked(r.layout, r.data[:, :-1]), "not usable"),
    "a kind that is no sum": (1, lambda r: with_layout(r, (("messages.LeftMasked", ()),)), "not usable"),
    "an unknown kind": (1, lambda r: with_layout(r, (("os.system", ((3,),)),)), "not usable"),
    "an impossible shape": (1, lambda r: with_layout(r, ((r.layout[0][0], ((-3,),)),)), "not usable"),
    "another shape than the others": (
        1,
        lambda r: Masked(((r.layout[0][0], ((1, 3),)),), r.data),
        "of another shape than the others",
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
        ring.terms(ring.turn()),
        twist=lambda k, s, reply: change(reply) if (k, s) == (stage, "s002") else reply,
    )
    assert total.sums[0].values.tolist() == [3.0, 6.0, 9.0]
    assert reason in total.silent["s002"]


def test_words_that_no_honest_site_sends_are_found_where_they_can_be() -> None:
    """The last word is a count of sites: what is masked wrongly almost never gives one."""
    ring = started(4)
    inputs = {s: Vector(np.array([1.0])) for s in ring.names}

    def spoil(stage, site, reply):
        return Masked(reply.layout, reply.data + 12345) if (stage, site) == (1, "s001") else reply

    with pytest.raises(TooFewAnswers, match="cannot be the sum of what honest sites send"):
        ring.sum(inputs, ring.terms(ring.turn()), twist=spoil)


@pytest.mark.parametrize(("place", "dropped", "named"), [(3, None, "s000"), (-2, "s003", "s003")])
def test_a_wrong_share_is_found_and_no_wrong_sum_comes_out(place, dropped, named) -> None:
    ring = started(4)
    inputs = {s: Vector(np.array([1.0])) for s in ring.names}

    def spoil(stage, site, reply):
        if (stage, site) != (3, "s001"):
            return reply
        data = bytearray(reply.data.tobytes())
        data[place] ^= 1
        return Opened(as_array(bytes(data)))

    with pytest.raises(TooFewAnswers, match=f"do not give the seed of {named}; a site sent a wrong one"):
        ring.sum(inputs, ring.terms(ring.turn()), silent=lambda k, s: k == 1 and s == dropped, twist=spoil)
