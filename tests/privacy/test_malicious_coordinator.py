"""Every move of a lying coordinator that we could think of, and why a site refuses it.

Each move begins from an honest sum of seven sites of which one drops after sharing. It gets the ring (what
the honest coordinator asked is in ``ring.asks``) and makes its request of one site.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ring import Ring, Vector, through

from unpooled.errors import InputError, QueryRefusedError
from unpooled.privacy.secure_sum.crypto import Identity, KeyAgreement
from unpooled.privacy.secure_sum.stage_messages import (
    AskConsistency,
    AskKeys,
    ConsistencyStatement,
    KeyStatement,
    as_array,
)
from unpooled.privacy.secure_sum.sum_member import Member
from unpooled.protocol.exchange import Part, RequestId
from unpooled.protocol.questions.cluster_sums import AskMoments

SHARES, MASKED, AGREED, OPENED = range(4)
MOVES: dict[str, tuple[int, Callable[[Ring, Member, Any], Any], str]] = {}


def move(stage: int, reason: str) -> Callable[..., Any]:
    """Register a move, made when the honest sum has come to ``stage``, which is not yet answered by s000."""

    def add(function: Callable[[Ring, Member, Any], Any]) -> Callable[[Ring, Member, Any], Any]:
        MOVES[function.__name__.replace("_", " ")] = (stage, function, reason)
        return function

    return add


class ReachedError(Exception):
    pass


def honest_until(stage: int, number: int = 0) -> tuple[Ring, Any]:
    """A ring, and what s000 would be asked next; s006 drops after it has shared."""
    ring = Ring(7)
    ring.agree_on_keys(ring.request_id(number))
    return ring, go_on(ring, stage, number)


def go_on(ring: Ring, stage: int, number: int) -> Any:
    inputs = {s: Vector(np.array([1.0, 2.0])) for s in ring.names}

    def stop(at: int, site: str) -> bool:
        if at == stage:
            raise ReachedError
        return at == 1 and site == "s006"

    with pytest.raises(ReachedError):
        ring.sum(inputs, ring.terms(ring.request_id(number)), silent=stop)
    return ring.asks[stage]["s000"]


def mask(ring: Ring, member: Member, ask: Any, number: int = 0) -> Any:
    return member.masked(ring.request_id(number), ask, ring.parts, [Vector(np.array([1.0, 2.0]))])


# ---------------------------------------------------------------- at the shares


@move(SHARES, "the key of s002 is not signed by its identity")
def a_key_swapped_for_the_coordinators(ring, member, ask):
    keys = ask.keys.copy()
    keys[2, 32:64] = as_array(KeyAgreement(bytes(range(32))).public)
    member.shares(ring.request_id(), replace(ask, keys=keys))


def swapped(ask, identity, run="run", public=None):
    """The keys with one of the coordinator's own in place of s002's, signed by an identity of its own."""
    public = KeyAgreement(bytes(range(32))).public if public is None else public
    signature = identity.sign(KeyStatement(run, "e", "s002", public.hex()).bytes)
    keys = ask.keys.copy()
    keys[2] = as_array(identity.public + public + signature)
    return keys


@move(SHARES, "the identity of s002 differs from the participant list")
def a_key_signed_by_another_identity(ring, member, ask):
    member.shares(ring.request_id(), replace(ask, keys=swapped(ask, Identity.new())))


@move(SHARES, "the participant list is not signed by the authority")
def a_participants_of_the_coordinators_making(ring, member, ask):
    invented = Identity.new()
    participants = replace(
        ring.signed("run", s002=invented.public.hex()), signature=ask.participants.signature
    )
    terms = replace(ask.terms, participants=participants.digest)
    member.shares(
        ring.request_id(), replace(ask, terms=terms, participants=participants, keys=swapped(ask, invented))
    )


@move(MASKED, "the participant list is not the one that this run began with")
def another_participants_in_the_middle_of_a_run(ring, member, ask):
    invented, old = Identity.new(), ring.asks[SHARES]["s000"]
    participants = ring.signed("run", s002=invented.public.hex())
    terms = replace(old.terms, request_id=ring.request_id(1), participants=participants.digest)
    member.shares(
        ring.request_id(1), replace(old, terms=terms, participants=participants, keys=swapped(old, invented))
    )


@move(MASKED, "the participant list is not the one that this run began with")
def a_participants_with_one_site_less_in_the_same_run(ring, member, ask):
    old = ring.asks[SHARES]["s000"]
    participants = replace(
        ring.participants, sites=ring.names[:-1], identities=ring.participants.identities[:-1]
    )
    participants = replace(participants, signature=ring.authority.sign(participants.statement).hex())
    terms = replace(
        old.terms, request_id=ring.request_id(1), participants=participants.digest, sites=ring.names[:-1]
    )
    member.shares(
        ring.request_id(1), replace(old, terms=terms, participants=participants, keys=old.keys[:-1])
    )


@move(MASKED, "s002 has another key than the pinned one")
def a_new_key_of_a_site_in_the_next_run(ring, member, ask):
    invented, old, request_id = Identity.new(), ring.asks[SHARES]["s000"], RequestId("next", 0, 0, 0)
    member.keys(request_id, AskKeys("e"))
    participants = ring.signed("next", s002=invented.public.hex())
    terms = replace(old.terms, request_id=request_id, participants=participants.digest)
    keys = swapped(old, invented, run="next")
    member.shares(request_id, replace(old, terms=terms, participants=participants, keys=keys))


@move(SHARES, "the participant list is that of another run")
def the_participants_of_another_run(ring, member, ask):
    participants = ring.signed("other")
    terms = replace(ask.terms, participants=participants.digest)
    member.shares(ring.request_id(), replace(ask, terms=terms, participants=participants))


@move(SHARES, "does not have this site's own key")
def a_participants_with_another_key_of_this_site(ring, member, ask):
    participants = ring.signed("run", s000=Identity.new().public.hex())
    terms = replace(ask.terms, participants=participants.digest)
    member.shares(ring.request_id(), replace(ask, terms=terms, participants=participants))


@move(SHARES, "two of them have the same key")
def one_key_under_two_names(ring, member, ask):
    participants = ring.signed("run", s003=ring.identities["s002"].public.hex())
    terms = replace(ask.terms, participants=participants.digest)
    member.shares(ring.request_id(), replace(ask, terms=terms, participants=participants))


@move(SHARES, "an invalid key")
def a_participants_of_no_keys(ring, member, ask):
    participants = ring.signed("run", s003="zz")
    terms = replace(ask.terms, participants=participants.digest)
    member.shares(ring.request_id(), replace(ask, terms=terms, participants=participants))


@move(SHARES, "for another participant list")
def terms_of_another_participants(ring, member, ask):
    member.shares(ring.request_id(), replace(ask, terms=replace(ask.terms, participants="0" * 64)))


@move(SHARES, "the identity of s002 differs from the participant list")
def a_key_of_another_site_under_this_name(ring, member, ask):
    keys = ask.keys.copy()
    keys[2] = keys[3]
    member.shares(ring.request_id(), replace(ask, keys=keys))


@move(SHARES, "the key of s002 is not signed by its identity")
def a_key_of_another_run(ring, member, ask):
    keys = ask.keys.copy()
    keys[2] = ring.members["s002"].keys(replace(ring.request_id(), run="other"), AskKeys("e")).data
    member.shares(ring.request_id(), replace(ask, keys=keys))


@move(SHARES, "the key of s002 is not signed by its identity")
def a_key_of_an_old_epoch(ring, member, ask):
    keys = ask.keys.copy()
    keys[2] = ring.members["s002"].keys(ring.request_id(), AskKeys("older")).data
    member.shares(ring.request_id(), replace(ask, keys=keys))


@move(SHARES, "the key of s002 is not a key")
def a_key_of_small_order(ring, member, ask):
    keys = swapped(ask, ring.identities["s002"], public=bytes(32))
    member.shares(ring.request_id(), replace(ask, keys=keys))


@move(SHARES, "the key of this site in the request is not its own")
def another_key_as_this_sites_own(ring, member, ask):
    keys = ask.keys.copy()
    keys[0, 32:] = ring.keys["s001"].data[32:]
    member.shares(ring.request_id(), replace(ask, keys=keys))


@move(SHARES, "the keys of 7 sites have the shape")
def too_few_keys(ring, member, ask):
    member.shares(ring.request_id(), replace(ask, keys=ask.keys[:-1]))


@move(SHARES, "threshold 4 for 7 of 7 sites, and this site's minimum is 5")
def a_lowered_threshold(ring, member, ask):
    member.shares(ring.request_id(), replace(ask, terms=replace(ask.terms, threshold=4)))


@move(SHARES, "threshold 8 for 7 of 7 sites")
def a_threshold_that_nobody_reaches(ring, member, ask):
    member.shares(ring.request_id(), replace(ask, terms=replace(ask.terms, threshold=8)))


@move(SHARES, "a sum over 2 sites, and this site's minimum is 3")
def a_participants_of_two(ring, member, ask):
    participants = replace(
        ring.participants, sites=ring.names[:2], identities=ring.participants.identities[:2]
    )
    participants = replace(participants, signature=ring.authority.sign(participants.statement).hex())
    terms = replace(ask.terms, participants=participants.digest, sites=("s000", "s001"), threshold=2)
    member.shares(ring.request_id(), replace(ask, terms=terms, participants=participants, keys=ask.keys[:2]))


@move(SHARES, "threshold 3 for 3 of 7 sites, and this site's minimum is 5")
def a_sum_over_three_of_seven(ring, member, ask):
    terms = replace(ask.terms, sites=ring.names[:3], threshold=3)
    member.shares(ring.request_id(), replace(ask, terms=terms, keys=ask.keys[:3]))


@move(SHARES, "t000 is not a participant")
def an_invented_site(ring, member, ask):
    terms = replace(ask.terms, sites=(*ask.terms.sites, "t000"), threshold=6)
    member.shares(ring.request_id(), replace(ask, terms=terms))


@move(SHARES, "not in order")
def one_site_twice(ring, member, ask):
    terms = replace(ask.terms, sites=("s000", "s001", "s001", *ask.terms.sites[3:]))
    member.shares(ring.request_id(), replace(ask, terms=terms))


@move(SHARES, "this site is not among them")
def a_sum_without_the_site_that_is_asked(ring, member, ask):
    member.shares(ring.request_id(), replace(ask, terms=replace(ask.terms, sites=ask.terms.sites[1:])))


@move(SHARES, "for another exchange")
def terms_of_another_round(ring, member, ask):
    member.shares(ring.request_id(5), ask)


@move(SHARES, "no key for this run and epoch")
def an_epoch_that_never_was(ring, member, ask):
    member.shares(ring.request_id(), replace(ask, terms=replace(ask.terms, epoch="f")))


@move(SHARES, "no key for this run and epoch")
def a_run_without_keys(ring, member, ask):
    request_id = replace(ring.request_id(), run="other")
    member.shares(request_id, replace(ask, terms=replace(ask.terms, request_id=request_id)))


# ---------------------------------------------------------------- at the masked reply


@move(MASKED, "other terms for a sum that has begun")
def other_terms_once_begun(ring, member, ask):
    shares = ring.asks[SHARES]["s000"]
    member.shares(ring.request_id(), replace(shares, terms=replace(shares.terms, threshold=6)))


@move(MASKED, "not those in the terms of the sum")
def another_question_than_the_others_get(ring, member, ask):
    parts = (Part("total", AskMoments(np.array([9.0])), None, 0),)
    member.masked(ring.request_id(), ask, parts, [Vector(np.array([1.0, 2.0]))])


@move(MASKED, "4 sharers, and the threshold is 5")
def sharers_below_the_threshold(ring, member, ask):
    mask(ring, member, replace(ask, sharers=ask.sharers[:4], sealed=ask.sealed[:3]))


@move(MASKED, "not among the sharers")
def sharers_without_this_site(ring, member, ask):
    mask(ring, member, replace(ask, sharers=ask.sharers[1:], sealed=ask.sealed[1:]))


@move(MASKED, "not among the allowed sites")
def sharers_that_were_not_asked(ring, member, ask):
    mask(ring, member, replace(ask, sharers=(*ask.sharers[:-1], "s999")))


@move(MASKED, "not what it sealed for this site")
def forged_shares(ring, member, ask):
    sealed = ask.sealed.copy()
    sealed[1, 5] ^= 1
    mask(ring, member, replace(ask, sealed=sealed))


@move(MASKED, "not what it sealed for this site")
def shares_meant_for_another(ring, member, ask):
    mask(ring, member, replace(ask, sealed=ring.asks[MASKED]["s001"].sealed))


@move(MASKED, "not what it sealed for this site")
def shares_of_an_earlier_round(ring, member, ask):
    later = go_on(ring, MASKED, 1)
    mask(ring, member, replace(later, sealed=ask.sealed), 1)


@move(MASKED, "the sealed shares of 7 sites have the shape")
def shares_of_wrong_length(ring, member, ask):
    mask(ring, member, replace(ask, sealed=ask.sealed[:, :-1]))


@move(MASKED, "second masking")
def two_maskings_with_different_sharers(ring, member, ask):
    mask(ring, member, ask)
    mask(ring, member, replace(ask, sharers=ask.sharers[:-1], sealed=ask.sealed[:-1]))


@move(MASKED, "sent nothing to this sum")
def survivors_before_the_masked_reply(ring, member, ask):
    member.sign_consistency(ring.request_id(), AskConsistency("e", ask.sharers))


@move(MASKED, "round 0, exchange 0 is over")
def back_to_an_old_round(ring, member, ask):
    old = ring.asks[SHARES]["s000"]
    go_on(ring, MASKED, 1)
    member.shares(ring.request_id(), old)


@move(MASKED, "does not know this sum, or the sum is over")
def a_masked_reply_of_an_old_round(ring, member, ask):
    go_on(ring, MASKED, 1)
    mask(ring, member, ask)


@move(MASKED, "does not know this sum")
def a_stage_of_another_epoch(ring, member, ask):
    mask(ring, member, replace(ask, epoch="f"))


# ---------------------------------------------------------------- at the list of survivors


@move(AGREED, "4 survivors, and the threshold is 5")
def survivors_below_the_threshold(ring, member, ask):
    member.sign_consistency(ring.request_id(), replace(ask, survivors=ask.survivors[:4]))


@move(AGREED, "this site is not among the survivors")
def survivors_without_this_site(ring, member, ask):
    member.sign_consistency(ring.request_id(), replace(ask, survivors=ask.survivors[1:]))


@move(AGREED, "not among the allowed sites")
def survivors_that_never_shared(ring, member, ask):
    member.sign_consistency(ring.request_id(), replace(ask, survivors=(*ask.survivors, "s999")))


@move(AGREED, "second list of survivors")
def two_lists_of_survivors(ring, member, ask):
    member.sign_consistency(ring.request_id(), ask)
    member.sign_consistency(ring.request_id(), replace(ask, survivors=ask.survivors[:-1]))


@move(AGREED, "not those that this site has signed")
def opening_before_signing(ring, member, ask):
    ring.sum(
        {s: Vector(np.array([1.0, 2.0])) for s in ring.names},
        ring.terms(ring.request_id()),
        silent=lambda stage, site: (stage == 1 and site == "s006") or (stage >= 2 and site == "s000"),
    )
    member.unmask(ring.request_id(), ring.asks[OPENED]["s001"])


# ---------------------------------------------------------------- at the opening


@move(OPENED, "both shares of s001")
def both_shares_of_one_peer(ring, member, ask):
    member.unmask(ring.request_id(), replace(ask, dropped=("s001", *ask.dropped)))


@move(OPENED, "not the sharers that did not survive")
def the_pair_masks_of_nobody_that_dropped(ring, member, ask):
    member.unmask(ring.request_id(), replace(ask, dropped=()))


@move(OPENED, "not those that this site has signed")
def other_survivors_than_were_signed(ring, member, ask):
    survivors = ask.survivors[:-1]
    member.unmask(ring.request_id(), replace(ask, survivors=survivors, dropped=("s005", "s006")))


@move(OPENED, "4 signers, and the threshold is 5")
def too_few_signatures(ring, member, ask):
    member.unmask(ring.request_id(), replace(ask, signers=ask.signers[:4], signatures=ask.signatures[:4]))


@move(OPENED, "has not signed this list")
def a_forged_signature(ring, member, ask):
    signatures = ask.signatures.copy()
    signatures[3, 7] ^= 1
    member.unmask(ring.request_id(), replace(ask, signatures=signatures))


@move(OPENED, "has not signed this list")
def a_signature_under_another_list(ring, member, ask):
    context = ring.terms(ring.request_id()).context.hex()
    other = ConsistencyStatement(context, (*ask.survivors, *ask.dropped), ask.survivors[:-1])
    signatures = ask.signatures.copy()
    signatures[1] = as_array(ring.identities["s001"].sign(other.bytes))
    member.unmask(ring.request_id(), replace(ask, signatures=signatures))


@move(OPENED, "has not signed this list")
def signatures_of_an_earlier_round(ring, member, ask):
    later = go_on(ring, OPENED, 1)
    member.unmask(ring.request_id(1), replace(later, signatures=ask.signatures))


@move(OPENED, "not in order")
def one_signer_counted_twice(ring, member, ask):
    signers = (ask.signers[0], *ask.signers[:4])
    member.unmask(ring.request_id(), replace(ask, signers=signers))


@move(OPENED, "the signatures of 5 sites have the shape")
def signatures_of_wrong_length(ring, member, ask):
    member.unmask(ring.request_id(), replace(ask, signatures=ask.signatures[:, :-1]))


@move(OPENED, "not those that this site has signed")
def a_second_opening_with_another_list(ring, member, ask):
    member.unmask(ring.request_id(), ask)
    member.unmask(ring.request_id(), replace(ask, survivors=ask.survivors[:-1], dropped=("s005", "s006")))


@move(OPENED, "another sum of this exchange was unmasked before")
def the_same_exchange_again_without_one_site_under_new_keys(ring, member, ask):
    for m in ring.members.values():
        if m.name != "s006":
            m.unmask(ring.request_id(), ask)
    ring.agree_on_keys(ring.request_id(), "f")
    terms = ring.terms(ring.request_id(), epoch="f")
    inputs = {s: Vector(np.array([1.0, 2.0])) for s in ring.names}

    def silent(stage: int, site: str) -> bool:
        if stage == 2:
            raise ReachedError
        return stage == 1 and site == "s005"

    with pytest.raises(ReachedError):
        ring.sum(inputs, terms, silent=silent)
    member.sign_consistency(ring.request_id(), ring.asks[AGREED]["s000"])


@pytest.mark.parametrize("name", MOVES)
def test_a_site_refuses(name: str) -> None:
    stage, make, reason = MOVES[name]
    ring, ask = honest_until(stage)
    with pytest.raises(QueryRefusedError, match=reason):
        make(ring, ring.members["s000"], through(ask))


@pytest.mark.parametrize("stage", [SHARES, MASKED, AGREED, OPENED])
def test_and_answers_the_honest_request_again_with_the_same_bytes(stage: int) -> None:
    ring, ask = honest_until(stage)
    inputs = {"s000": Vector(np.array([1.0, 2.0]))}
    first, again = (ring.reply("s000", ring.request_id(), ask, inputs) for _ in range(2))
    assert dataclasses.is_dataclass(first)
    np.testing.assert_array_equal(first.data, again.data)


def test_the_same_sum_may_be_opened_again_under_new_keys() -> None:
    """A coordinator that crashed and goes on repeats its round; that shows nothing new."""
    ring = Ring(4)
    inputs = {s: Vector(np.array([1.0, 2.0])) for s in ring.names}
    for epoch in ("e", "f"):
        ring.agree_on_keys(ring.request_id(), epoch)
        total = ring.sum(inputs, ring.terms(ring.request_id(), epoch=epoch))
        assert total.sums[0].values.tolist() == [4.0, 8.0]


@pytest.mark.parametrize("name", [name for name in MOVES if MOVES[name][0] > SHARES])
def test_a_site_that_was_killed_refuses_it_too(name: str) -> None:
    """What it has kept is all that a rule needs: a kill makes no site forget."""
    stage, make, reason = MOVES[name]
    ring, ask = honest_until(stage)
    for site in ring.names:
        ring.restart(site)
    with pytest.raises(QueryRefusedError, match=reason):
        make(ring, ring.members["s000"], through(ask))


def test_a_name_of_an_epoch_that_comes_again_has_other_keys() -> None:
    """Else a coordinator could go back to an old epoch and have a sum of it masked once more."""
    member, request_id = Ring(3).members["s000"], RequestId("run", 0, 0, 0)
    keys = [member.keys(request_id, AskKeys(epoch)).data.tobytes() for epoch in ("e", "f", "e", "e")]
    assert len({keys[0], keys[1], keys[2]}) == 3
    assert keys[2] == keys[3]


def test_a_member_knows_its_minimum() -> None:
    one = Identity.new()
    with pytest.raises(InputError, match="at least 3 sites, got min_sites=2"):
        Member("a", one, min_sites=2)
    assert one.secret.hex() not in repr(one)
