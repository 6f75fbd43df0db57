"""A site's side of a secure sum: answers each stage once, and refuses what an honest coordinator never asks.

The coordinator cannot change these rules:

- The participant list is fixed when a run starts, and its keys are pinned. These identities sign the keys of
  the run.
- A sum is over all participants that have not left the run, and a site that left does not return.
- The threshold is that of the whole participant list, and every site gets the same questions.
- A sum has one list of survivors, signed by a threshold of sites before anything is unmasked.
- A site gives the share of one seed of every peer, never of both.
- There is no sum of an exchange that is over, and never two different sums of one exchange.

The state of a run is kept before a reply leaves, and all secrets are derived from one that is in it: a site
that was killed continues where it was, with the same bytes and the same rules.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

import numpy as np

from unpooled.errors import InputError, QueryRefusedError
from unpooled.privacy import PrivateQuestion
from unpooled.privacy.secure_sum import crypto, stage_messages
from unpooled.privacy.secure_sum.crypto import Identity, KeyAgreement, SumSeeds
from unpooled.privacy.secure_sum.fixed_point import Words, add, negated
from unpooled.privacy.secure_sum.member_state import MemberRun, MemberStore, MemoryStore
from unpooled.privacy.secure_sum.stage_messages import (
    AskConsistency,
    AskKeys,
    AskMasked,
    AskShares,
    AskUnmask,
    ConsistencySignature,
    ConsistencyStatement,
    Keys,
    KeyStatement,
    Masked,
    Participants,
    Shares,
    SumParameters,
    UnmaskShares,
    as_array,
    as_words,
    check_list,
    threshold_for,
)
from unpooled.privacy.secure_sum.sum_settings import MIN_SITES
from unpooled.protocol import codec
from unpooled.protocol.crypto_labels import Label, from_hex
from unpooled.protocol.exchange import Part, RequestId, parts_digest
from unpooled.protocol.messages import SiteId, Summable
from unpooled.protocol.partial_sum import PartialSum

_NOISY = "noise "  # before the digest of what was masked, where noise is in it


class Member:
    """One site in secure sums.

    ``authority`` is the key that must sign participant lists; None: any list is accepted, and its keys are
    pinned. ``min_sites`` is the fewest sites in a sum; a sum also needs more than two thirds of the
    participants (``threshold_for``).
    """

    def __init__(
        self,
        name: SiteId,
        identity: Identity,
        *,
        min_sites: int = MIN_SITES,
        authority: bytes | None = None,
        store: MemberStore | None = None,
    ) -> None:
        if min_sites < MIN_SITES:
            raise InputError(f"a secure sum needs at least {MIN_SITES} sites, got min_sites={min_sites}")
        self.name, self.min_sites, self._identity, self._authority = name, min_sites, identity, authority
        self._store: MemberStore = MemoryStore() if store is None else store
        self._runs: dict[str, MemberRun] = {}  # what the store holds, decoded
        self._roots: dict[bytes, bytes] = {}  # of the latest run and epoch, by peer's name and key
        self._roots_of = ("", -1)
        self._seeds: tuple[bytes, SumSeeds] | None = None  # of the latest sum, by its context and keys

    def _run(self, run: str) -> MemberRun | None:
        if run not in self._runs:
            kept = self._store.run(run)
            if kept is None:
                return None
            self._runs = {run: codec.decode(kept, expect=MemberRun)}
        return self._runs[run]

    def _keep(self, run: str, state: MemberRun) -> MemberRun:
        self._store.keep(run, codec.encode(state))
        self._runs = {run: state}
        return state

    # ------------------------------------------------------------ keys: once an epoch

    def keys(self, request_id: RequestId, ask: AskKeys) -> Keys:
        """Return the site's identity and a signed key for key agreement; a new epoch has another key."""
        state = self._run(request_id.run) or MemberRun(secrets.token_bytes(stage_messages.KEY).hex())
        if state.epoch != ask.epoch or not state.epochs:
            state = replace(
                state,
                epoch=ask.epoch,
                epochs=state.epochs + 1,
                current_sum=None,
                masked="",
                sealed=(),
                agreed=(),
            )
            self._keep(request_id.run, state)
        public = self._exchange(state).public
        statement = KeyStatement(request_id.run, ask.epoch, self.name, public.hex())
        signed = self._identity.public + public + self._identity.sign(statement.bytes)
        known = b"" if state.participants is None else codec.encode(state.participants)
        return Keys(as_array(signed), state.departed, as_array(known))

    def _exchange(self, state: MemberRun) -> KeyAgreement:
        return KeyAgreement(
            crypto.derived(bytes.fromhex(state.secret), Label.RUN_KEY_AGREEMENT, b"%d" % state.epochs)
        )

    # ------------------------------------------------------------ shares

    def shares(self, request_id: RequestId, ask: AskShares) -> Shares:
        """Return shares for all sites of two seeds: of its own mask, and of its table of pair seeds."""
        terms, state = ask.terms, self._run(request_id.run)
        if state is None or state.epoch != terms.epoch:
            raise QueryRefusedError("this site has no key for this run and epoch")
        if state.current_sum is not None and state.current_sum.terms.request_id == request_id:
            if codec.encode(state.current_sum) != codec.encode(ask):
                raise QueryRefusedError("other terms for a sum that has begun")
            return self._made(state, ask).shares
        if state.participants is not None and state.participants.digest != ask.participants.digest:
            raise QueryRefusedError("the participant list is not the one that this run began with")
        pinned, place = self._store.pinned(), (request_id.round, request_id.exchange)
        check_participants(
            ask.participants, request_id.run, self.name, self._identity.public, self._authority, pinned
        )
        again = place in {sum_[:2] for sum_ in state.unmasked}  # the same survivors are checked later
        present = state.present if state.participants is not None and not again else ask.participants.sites
        check_terms(terms, request_id, self.name, ask.participants, present, self.min_sites)
        _check_not_over(place, state)
        seeds = self._made(state, ask)
        if not ask.participants.keys.items() <= pinned.items():
            self._store.pin(ask.participants.keys)
        present = state.present or ask.participants.sites
        begun = replace(
            state,
            participants=ask.participants,
            present=present,
            current_sum=ask,
            masked="",
            sharers=(),
            sealed=(),
            agreed=(),
        )
        self._keep(request_id.run, begun)
        return seeds.shares

    def _made(self, state: MemberRun, ask: AskShares) -> SumSeeds:
        """The secrets of a sum. They depend on the run's secret, the terms and the peers' keys alone."""
        about = sha256(b"%d" % state.epochs + codec.encode(ask)).digest()
        if self._seeds is None or self._seeds[0] != about:
            secret = crypto.derived(
                bytes.fromhex(state.secret), Label.RUN_SUM, b"%d " % state.epochs + ask.terms.context
            )
            roots = self._pair_roots(state, ask)
            self._seeds = (about, crypto.derive_seeds(secret, ask.terms, self.name, roots))
        return self._seeds[1]

    def _pair_roots(self, state: MemberRun, ask: AskShares) -> dict[SiteId, bytes]:
        """By peer: the secret that only this site and the peer know."""
        run, exchange = ask.terms.request_id.run, self._exchange(state)
        if self._roots_of != (run, state.epochs):
            self._roots, self._roots_of = {}, (run, state.epochs)
        peers = peer_keys(ask, self.name, exchange.public, ask.participants.keys, set(self._roots))
        about = sha256(codec.encode(KeyStatement(run, state.epoch, "", ""))).digest()
        for site, data in peers.items():
            if site.encode() + data not in self._roots:
                root = exchange.root(data[stage_messages.KEY : 2 * stage_messages.KEY], about)
                if root is None:
                    raise QueryRefusedError(f"the key of {site} is not a key")
                self._roots[site.encode() + data] = root
        return {site: self._roots[site.encode() + data] for site, data in peers.items()}

    # ------------------------------------------------------------ masked

    def check_masked(self, request_id: RequestId, ask: AskMasked, parts: Sequence[Part]) -> None:
        """Refuse what ``masked`` would refuse, before anything is computed or charged."""
        state, terms = self._sum(request_id, ask)
        if parts_digest(parts) != terms.asked:
            raise QueryRefusedError("the queries are not those in the terms of the sum")
        check_list(ask.sharers, terms.sites, "sharers", terms.threshold, self.name)
        if ask.sealed.shape != (len(ask.sharers) - 1, stage_messages.SEALED):
            raise QueryRefusedError(
                f"the sealed shares of {len(ask.sharers)} sites have the shape {ask.sealed.shape}"
            )
        sealed = tuple(row.tobytes().hex() for row in ask.sealed)
        other = (ask.sharers, sealed) != (state.sharers, state.sealed)
        if state.masked and (other or state.masked.startswith(_NOISY)):  # noise would be drawn again
            raise QueryRefusedError("a second masking of the same sum")
        self._unsealed(replace(state, sharers=ask.sharers, sealed=sealed))

    def masked(
        self,
        request_id: RequestId,
        ask: AskMasked,
        parts: Sequence[Part],
        replies: Sequence[Summable | PartialSum],
    ) -> Masked:
        """Return the replies to ``parts``, masked with this site's own stream and one for every other sharer.

        A number that is not finite, or from 2^116 on, is sent as 0: a refusal would disclose it.
        """
        self.check_masked(request_id, ask, parts)
        (state, _), (layout, words) = self._sum(request_id, ask), as_words(replies)
        noisy = any(isinstance(part.question, PrivateQuestion) for part in parts)
        what = _NOISY * noisy + sha256(repr(layout).encode() + words.tobytes()).hexdigest()
        if state.masked and state.masked != what:
            raise QueryRefusedError("a second masking of the same sum")
        self._mask(state, ask.sharers, words)
        sealed = tuple(row.tobytes().hex() for row in ask.sealed)
        if not state.masked:
            self._keep(request_id.run, replace(state, masked=what, sharers=ask.sharers, sealed=sealed))
        return Masked(layout, words.view(np.int64))

    def _unsealed(self, state: MemberRun) -> dict[SiteId, tuple[int, int]]:
        """By sharer: its shares for this site."""
        assert state.current_sum is not None
        seeds = self._made(state, state.current_sum)
        shares = {self.name: seeds.own}
        peers = [site for site in state.sharers if site != self.name]
        for site, row in zip(peers, state.sealed, strict=True):
            two = crypto.unseal(seeds.unsealing[site], bytes.fromhex(row), seeds.context)
            if two is None:
                raise QueryRefusedError(
                    f"the shares of {site} are not what it sealed for this site and this sum"
                )
            first, second = two[: stage_messages.SHARE], two[stage_messages.SHARE :]
            shares[site] = (int.from_bytes(first, "little"), int.from_bytes(second, "little"))
        return shares

    def _mask(self, state: MemberRun, sharers: tuple[SiteId, ...], words: Words) -> None:
        """Add this site's own stream and those it has with later sites; subtract those with earlier sites."""
        assert state.current_sum is not None
        seeds, shape = self._made(state, state.current_sum), (words.shape[0], words.shape[1])
        add(words, crypto.mask(seeds.self_seed, seeds.context, shape))
        minus = np.zeros_like(words)
        for site in sharers:
            if site != self.name:
                stream = crypto.mask(seeds.pair_seeds[site], seeds.context, shape)
                add(words if self.name < site else minus, stream)
        add(words, negated(minus))

    # ------------------------------------------------------------ consistency, unmask

    def sign_consistency(self, request_id: RequestId, ask: AskConsistency) -> ConsistencySignature:
        """Return a signature on the list of sites in the sum; only one list is signed for a sum."""
        state, terms = self._sum(request_id, ask)
        if not state.masked:
            raise QueryRefusedError("this site has sent nothing to this sum")
        if state.agreed and state.agreed != ask.survivors:
            raise QueryRefusedError("a second list of survivors of the same sum")
        check_list(ask.survivors, state.sharers, "survivors", terms.threshold, self.name)
        place = (request_id.round, request_id.exchange)
        before = {sum_[:2]: sum_[2] for sum_ in state.unmasked}.get(place)
        if before is not None and before != _sum_digest(terms, ask.survivors, state.masked):
            raise QueryRefusedError("another sum of this exchange was unmasked before")
        if not state.agreed:
            self._keep(request_id.run, replace(state, agreed=ask.survivors))
        statement = ConsistencyStatement(terms.context.hex(), state.sharers, ask.survivors)
        return ConsistencySignature(as_array(self._identity.sign(statement.bytes)))

    def unmask(self, request_id: RequestId, ask: AskUnmask) -> UnmaskShares:
        """Return for every sharer one share of a seed: its mask's if it is in the sum, else its table's."""
        state, terms = self._sum(request_id, ask)
        if not state.agreed or state.agreed != ask.survivors:
            raise QueryRefusedError("the survivors are not those that this site has signed")
        assert state.participants is not None
        statement = ConsistencyStatement(terms.context.hex(), state.sharers, ask.survivors)
        check_unmask(ask, statement, terms.threshold, state.participants.keys)
        unsealed = self._unsealed(state)
        unmasked = (request_id.round, request_id.exchange, _sum_digest(terms, ask.survivors, state.masked))
        if unmasked not in state.unmasked:
            of_round = tuple(one for one in state.unmasked if one[0] == request_id.round)
            present = tuple(site for site in state.present if site in ask.survivors)
            self._keep(request_id.run, replace(state, unmasked=(*of_round, unmasked), present=present))
        shares = (unsealed[site][0 if site in ask.survivors else 1] for site in state.sharers)
        return UnmaskShares(
            as_array(b"".join(share.to_bytes(stage_messages.SHARE, "little") for share in shares))
        )

    def was_unmasked(self, request_id: RequestId) -> bool:
        """Return whether a sum of this exchange was unmasked before, under any keys."""
        state = self._run(request_id.run)
        places = () if state is None else state.unmasked
        return (request_id.round, request_id.exchange) in {one[:2] for one in places}

    def sizes(self, request_id: RequestId, ask: AskMasked) -> tuple[int, int]:
        """Return the number of participants and the threshold of a sum that has begun."""
        state, terms = self._sum(request_id, ask)
        assert state.current_sum is not None
        return len(state.current_sum.participants.sites), terms.threshold

    def forget(self) -> None:
        """Read the state of runs again from the store: the last state was rolled back."""
        self._runs.clear()

    def _sum(
        self, request_id: RequestId, ask: AskMasked | AskConsistency | AskUnmask
    ) -> tuple[MemberRun, SumParameters]:
        state = self._run(request_id.run)
        if (
            state is None
            or state.current_sum is None
            or state.epoch != ask.epoch
            or state.current_sum.terms.request_id != request_id
        ):
            raise QueryRefusedError("this site does not know this sum, or the sum is over")
        if len(state.current_sum.participants.sites) < self.min_sites:  # it was raised since the sum began
            raise QueryRefusedError(
                f"a sum over {len(state.current_sum.participants.sites)} sites, and this site's minimum is "
                f"{self.min_sites}"
            )
        return state, state.current_sum.terms


def _check_not_over(place: tuple[int, int], state: MemberRun) -> None:
    """Refuse an exchange that is over: a sum begins once an epoch, else its keys would be used twice."""
    unmasked = {one[:2] for one in state.unmasked}
    last = None if state.current_sum is None else state.current_sum.terms.request_id
    before = (-1, -1) if last is None else (last.round, last.exchange)
    if place < before or (place not in unmasked and place < max(unmasked, default=place)):
        raise QueryRefusedError(f"round {place[0]}, exchange {place[1]} is over")


def _sum_digest(terms: SumParameters, survivors: tuple[SiteId, ...], masked: str) -> str:
    """A digest of a sum without its keys: after a crash the same sum may be unmasked again, and no other.

    It depends on the numbers that this site adds: if they had changed, two sums would disclose the change.
    Noise is drawn and charged anew for every sum.
    """
    numbers = "" if masked.startswith(_NOISY) else masked
    return sha256(repr((terms.asked, survivors, numbers)).encode()).hexdigest()


# ---------------------------------------------------------------- checks: each refuses by raising
Identities = Mapping[SiteId, bytes]  # the Ed25519 key of every site


def check_participants(
    participants: Participants, run: str, me: SiteId, own: bytes, authority: bytes | None, pinned: Identities
) -> None:
    """Refuse a participant list of another run, without the authority's signature, or with other keys."""
    sites, keys = participants.sites, participants.identities
    if participants.run != run:
        raise QueryRefusedError("the participant list is that of another run")
    if list(sites) != sorted(set(sites)) or len(keys) != len(sites) or len(set(keys)) < len(keys):
        raise QueryRefusedError("the participants are not in order, or two of them have the same key")
    if not all(len(from_hex(key)) == stage_messages.KEY and key == key.lower() for key in keys):
        raise QueryRefusedError("the participant list has an invalid key")
    if participants.keys.get(me) != own:
        raise QueryRefusedError("the participant list does not have this site's own key")
    if authority is not None and not crypto.is_signed(
        authority, participants.statement, from_hex(participants.signature)
    ):
        raise QueryRefusedError("the participant list is not signed by the authority of this federation")
    for site, key in participants.keys.items():
        if pinned.get(site, key) != key:
            raise QueryRefusedError(
                f"{site} has another key than the pinned one. If its officer confirms the new key, run "
                f"unpooled site keys FOLDER --forget {site}."
            )


def check_terms(
    terms: SumParameters,
    request_id: RequestId,
    me: SiteId,
    participants: Participants,
    present: tuple[SiteId, ...],
    min_sites: int,
) -> None:
    """Refuse terms of another exchange or participant list, with too few sites, or with too low a threshold.

    ``present`` are the sites that have not left the run. The threshold is that of the whole participant list,
    however many have left, so at most a third of the sites can leave a run.
    """
    sites, everybody = terms.sites, len(participants.sites)
    if terms.request_id != request_id:
        raise QueryRefusedError("the terms of the sum are for another exchange")
    if terms.participants != participants.digest:
        raise QueryRefusedError("the terms of the sum are for another participant list")
    if list(sites) != sorted(set(sites)) or me not in sites:
        raise QueryRefusedError("the sites of the sum are not in order, or this site is not among them")
    if everybody < min_sites:
        raise QueryRefusedError(f"a sum over {everybody} sites, and this site's minimum is {min_sites}")
    strangers = [site for site in sites if site not in present]
    if strangers:
        why = "left this run" if strangers[0] in participants.sites else "is not a participant"
        raise QueryRefusedError(f"{strangers[0]} {why}")
    min_count = threshold_for(everybody, min_sites)
    if not min_count <= terms.threshold <= len(sites):
        raise QueryRefusedError(
            f"threshold {terms.threshold} for {len(sites)} of {everybody} sites, "
            f"and this site's minimum is {min_count}"
        )


def peer_keys(
    ask: AskShares, me: SiteId, own: bytes, identities: Identities, known: set[bytes]
) -> dict[SiteId, bytes]:
    """Return every peer's key as received; signatures are checked unless the key is in ``known``."""
    terms, keys = ask.terms, {}
    if ask.keys.shape != (len(terms.sites), stage_messages.SIGNED_KEY):
        raise QueryRefusedError(f"the keys of {len(terms.sites)} sites have the shape {ask.keys.shape}")
    for site, row in zip(terms.sites, ask.keys, strict=True):
        data = row.tobytes()
        identity, key = data[: stage_messages.KEY], data[stage_messages.KEY : 2 * stage_messages.KEY]
        if identity != identities[site]:
            raise QueryRefusedError(f"the identity of {site} differs from the participant list")
        if site == me:
            if key != own:
                raise QueryRefusedError("the key of this site in the request is not its own")
            continue
        if site.encode() + data not in known:
            statement = KeyStatement(terms.request_id.run, terms.epoch, site, key.hex()).bytes
            if not crypto.is_signed(identity, statement, data[2 * stage_messages.KEY :]):
                raise QueryRefusedError(f"the key of {site} is not signed by its identity")
        keys[site] = data
    return keys


def check_unmask(
    ask: AskUnmask, statement: ConsistencyStatement, min_count: int, identities: Identities
) -> None:
    """Refuse to unmask unless each peer is either in the sum or not, and enough sites signed the list."""
    both = sorted(set(ask.survivors) & set(ask.dropped))
    if both:
        raise QueryRefusedError(f"both shares of {both[0]}")
    if ask.dropped != tuple(site for site in statement.sharers if site not in ask.survivors):
        raise QueryRefusedError("the dropped sites are not the sharers that did not survive")
    check_list(ask.signers, ask.survivors, "signers", min_count)
    if ask.signatures.shape != (len(ask.signers), stage_messages.SIGNATURE):
        raise QueryRefusedError(
            f"the signatures of {len(ask.signers)} sites have the shape {ask.signatures.shape}"
        )
    for site, row in zip(ask.signers, ask.signatures, strict=True):
        if not crypto.is_signed(identities[site], statement.bytes, row.tobytes()):
            raise QueryRefusedError(f"{site} has not signed this list of survivors")
