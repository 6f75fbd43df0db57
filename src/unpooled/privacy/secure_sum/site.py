"""A site's side of a secure sum: answers each stage once, and refuses what an honest coordinator never asks.

Rules that the coordinator cannot change: the roster is fixed when a run starts and its keys are pinned; keys
of the run are signed by these identities; a sum is over all sites of the roster that have not left the run,
and who left does not return; the threshold is that of the whole roster; every site is asked the same; a sum
has one list of survivors, signed by a threshold of sites before anything is opened; of every peer the share
of one seed is opened, never of both; no sum of an exchange that is over, and never two different sums of one
exchange.

The state of a run is kept before a reply leaves, and all secrets are derived from one that is in it: a site
that was killed goes on where it was, with the same bytes, and has forgotten no rule.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

import numpy as np

from unpooled.core import codec
from unpooled.core.exchange import Part, Turn
from unpooled.core.messages import SiteId, Summable
from unpooled.core.subtotal import Subtotal
from unpooled.errors import BadInput, Refused
from unpooled.privacy import Spending
from unpooled.privacy.secure_sum import crypto, messages
from unpooled.privacy.secure_sum.crypto import Exchange, Identity, SumSeeds
from unpooled.privacy.secure_sum.fixed_point import Words, add, negated
from unpooled.privacy.secure_sum.member_store import MemberRun, MemberStore, MemoryStore
from unpooled.privacy.secure_sum.messages import (
    Agreed,
    AskAgreed,
    AskKeys,
    AskMasked,
    AskOpened,
    AskShares,
    Keys,
    KeyStatement,
    Masked,
    Opened,
    Roster,
    Shares,
    Statement,
    SumTerms,
    as_array,
    asked,
    check_list,
    from_hex,
    threshold_for,
    worded,
)
from unpooled.privacy.secure_sum.settings import MIN_SITES

_NOISY = "noise "  # before the digest of what was masked, where noise is in it


class Member:
    """One site in secure sums.

    ``authority``: the key that rosters must be signed by; None: any roster is taken, and its keys are pinned.
    ``min_sites`` is the fewest sites whose replies it lets itself be summed with; a sum also needs more than
    two thirds of the sites on the roster (``threshold_for``).
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
            raise BadInput(f"a secure sum needs at least {MIN_SITES} sites, got min_sites={min_sites}")
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

    def keys(self, turn: Turn, ask: AskKeys) -> Keys:
        """The site's identity and a key for key agreement, signed; a new epoch has another key."""
        state = self._run(turn.run) or MemberRun(secrets.token_bytes(messages.KEY).hex())
        if state.epoch != ask.epoch or not state.epochs:
            state = replace(
                state, epoch=ask.epoch, epochs=state.epochs + 1, begun=None, masked="", sealed=(), agreed=()
            )
            self._keep(turn.run, state)
        public = self._exchange(state).public
        statement = KeyStatement(turn.run, ask.epoch, self.name, public.hex())
        signed = self._identity.public + public + self._identity.sign(statement.bytes)
        known = b"" if state.roster is None else codec.encode(state.roster)
        return Keys(as_array(signed), state.left, as_array(known))

    def _exchange(self, state: MemberRun) -> Exchange:
        return Exchange(crypto.derived(bytes.fromhex(state.secret), b"exchange %d" % state.epochs))

    # ------------------------------------------------------------ shares

    def shares(self, turn: Turn, ask: AskShares) -> Shares:
        """Shares for all sites of two seeds: of its own mask, and of its table of pair seeds."""
        terms, state = ask.terms, self._run(turn.run)
        if state is None or state.epoch != terms.epoch:
            raise Refused("this site has no key of this run and epoch")
        if state.begun is not None and state.begun.terms.turn == turn:
            if codec.encode(state.begun) != codec.encode(ask):
                raise Refused("other terms for a sum that has begun")
            return self._made(state, ask).shares
        if state.roster is not None and state.roster.digest != ask.roster.digest:
            raise Refused("another roster than the one that this run began with")
        pinned, place = self._store.pinned(), (turn.round, turn.exchange)
        check_roster(ask.roster, turn.run, self.name, self._identity.public, self._authority, pinned)
        again = place in {given[:2] for given in state.given}  # the same list of survivors is checked later
        present = state.present if state.roster is not None and not again else ask.roster.sites
        check_terms(terms, turn, self.name, ask.roster, present, self.min_sites)
        _check_not_over(place, state)
        seeds = self._made(state, ask)
        if not ask.roster.keys.items() <= pinned.items():
            self._store.pin(ask.roster.keys)
        present = state.present or ask.roster.sites
        begun = replace(
            state, roster=ask.roster, present=present, begun=ask, masked="", sharers=(), sealed=(), agreed=()
        )
        self._keep(turn.run, begun)
        return seeds.shares

    def _made(self, state: MemberRun, ask: AskShares) -> SumSeeds:
        """The secrets of a sum. They depend on the run's secret, the terms and the peers' keys alone."""
        about = sha256(b"%d" % state.epochs + codec.encode(ask)).digest()
        if self._seeds is None or self._seeds[0] != about:
            secret = crypto.derived(
                bytes.fromhex(state.secret), b"sum %d " % state.epochs + ask.terms.context
            )
            roots = self._pair_roots(state, ask)
            self._seeds = (about, crypto.seeds_of(secret, ask.terms, self.name, roots))
        return self._seeds[1]

    def _pair_roots(self, state: MemberRun, ask: AskShares) -> dict[SiteId, bytes]:
        """By peer: the secret that only this site and the peer know."""
        run, exchange = ask.terms.turn.run, self._exchange(state)
        if self._roots_of != (run, state.epochs):
            self._roots, self._roots_of = {}, (run, state.epochs)
        peers = peer_keys(ask, self.name, exchange.public, ask.roster.keys, set(self._roots))
        about = sha256(codec.encode(KeyStatement(run, state.epoch, "", ""))).digest()
        for site, data in peers.items():
            if site.encode() + data not in self._roots:
                root = exchange.root(data[messages.KEY : 2 * messages.KEY], about)
                if root is None:
                    raise Refused(f"the key of {site} is not a key")
                self._roots[site.encode() + data] = root
        return {site: self._roots[site.encode() + data] for site, data in peers.items()}

    # ------------------------------------------------------------ masked

    def check_masked(self, turn: Turn, ask: AskMasked, parts: Sequence[Part]) -> None:
        """Refuse what ``masked`` would refuse, before anything is computed or paid for."""
        state, terms = self._sum(turn, ask)
        if asked(parts) != terms.asked:
            raise Refused("the questions are not those that the terms of the sum name")
        check_list(ask.sharers, terms.sites, "sharers", terms.threshold, self.name)
        if ask.sealed.shape != (len(ask.sharers) - 1, messages.SEALED):
            raise Refused(f"sealed shares of shape {ask.sealed.shape} from {len(ask.sharers)} sites")
        sealed = tuple(row.tobytes().hex() for row in ask.sealed)
        other = (ask.sharers, sealed) != (state.sharers, state.sealed)
        if state.masked and (other or state.masked.startswith(_NOISY)):  # noise would be drawn again
            raise Refused("a second masking of the same sum")
        self._unsealed(replace(state, sharers=ask.sharers, sealed=sealed))

    def masked(
        self, turn: Turn, ask: AskMasked, parts: Sequence[Part], replies: Sequence[Summable | Subtotal]
    ) -> Masked:
        """The replies to ``parts``, masked with this site's own stream and one for every other sharer.

        A number that is not finite is sent as 0, as all are from 2^116 on: to refuse it would tell of it.
        """
        self.check_masked(turn, ask, parts)
        (state, _), (layout, words) = self._sum(turn, ask), worded(replies)
        noisy = any(isinstance(part.question, Spending) for part in parts)
        what = _NOISY * noisy + sha256(repr(layout).encode() + words.tobytes()).hexdigest()
        if state.masked and state.masked != what:
            raise Refused("a second masking of the same sum")
        self._hide(state, ask.sharers, words)
        sealed = tuple(row.tobytes().hex() for row in ask.sealed)
        if not state.masked:
            self._keep(turn.run, replace(state, masked=what, sharers=ask.sharers, sealed=sealed))
        return Masked(layout, words.view(np.int64))

    def _unsealed(self, state: MemberRun) -> dict[SiteId, tuple[int, int]]:
        """By sharer: its shares for this site."""
        assert state.begun is not None
        seeds = self._made(state, state.begun)
        held = {self.name: seeds.own}
        peers = [site for site in state.sharers if site != self.name]
        for site, row in zip(peers, state.sealed, strict=True):
            two = crypto.unseal(seeds.unsealing[site], bytes.fromhex(row), seeds.context)
            if two is None:
                raise Refused(f"the shares of {site} are not what it sealed for this site and this sum")
            first, second = two[: messages.SHARE], two[messages.SHARE :]
            held[site] = (int.from_bytes(first, "little"), int.from_bytes(second, "little"))
        return held

    def _hide(self, state: MemberRun, sharers: tuple[SiteId, ...], words: Words) -> None:
        """Add this site's own stream and those it has with later sites; subtract those with earlier sites."""
        assert state.begun is not None
        seeds, shape = self._made(state, state.begun), (words.shape[0], words.shape[1])
        add(words, crypto.mask(seeds.self_seed, seeds.context, shape))
        minus = np.zeros_like(words)
        for site in sharers:
            if site != self.name:
                stream = crypto.mask(seeds.pair_seeds[site], seeds.context, shape)
                add(words if self.name < site else minus, stream)
        add(words, negated(minus))

    # ------------------------------------------------------------ agreed, opened

    def agreed(self, turn: Turn, ask: AskAgreed) -> Agreed:
        """A signature on the list of sites in the sum; only one list is signed for a sum."""
        state, terms = self._sum(turn, ask)
        if not state.masked:
            raise Refused("this site has sent nothing to this sum")
        if state.agreed and state.agreed != ask.survivors:
            raise Refused("a second list of survivors of the same sum")
        check_list(ask.survivors, state.sharers, "survivors", terms.threshold, self.name)
        place = (turn.round, turn.exchange)
        before = {given[:2]: given[2] for given in state.given}.get(place)
        if before is not None and before != _what(terms, ask.survivors, state.masked):
            raise Refused("another sum of this exchange was opened before")
        if not state.agreed:
            self._keep(turn.run, replace(state, agreed=ask.survivors))
        statement = Statement(terms.context.hex(), state.sharers, ask.survivors)
        return Agreed(as_array(self._identity.sign(statement.bytes)))

    def opened(self, turn: Turn, ask: AskOpened) -> Opened:
        """For every sharer one share of a seed: its own mask's if it is in the sum, else its table's."""
        state, terms = self._sum(turn, ask)
        if not state.agreed or state.agreed != ask.survivors:
            raise Refused("the survivors are not those that this site has signed")
        assert state.roster is not None
        statement = Statement(terms.context.hex(), state.sharers, ask.survivors)
        check_opening(ask, statement, terms.threshold, state.roster.keys)
        held = self._unsealed(state)
        given = (turn.round, turn.exchange, _what(terms, ask.survivors, state.masked))
        if given not in state.given:
            of_round = tuple(g for g in state.given if g[0] == turn.round)
            present = tuple(site for site in state.present if site in ask.survivors)
            self._keep(turn.run, replace(state, given=(*of_round, given), present=present))
        shares = (held[site][0 if site in ask.survivors else 1] for site in state.sharers)
        return Opened(as_array(b"".join(share.to_bytes(messages.SHARE, "little") for share in shares)))

    def sizes(self, turn: Turn, ask: AskMasked) -> tuple[int, int]:
        """Of a sum that has begun: the number of sites on the roster, and the fewest in the sum."""
        state, terms = self._sum(turn, ask)
        assert state.begun is not None
        return len(state.begun.roster.sites), terms.threshold

    def forget(self) -> None:
        """Read the state of runs again from where it is kept: what was kept last was taken back."""
        self._runs.clear()

    def _sum(self, turn: Turn, ask: AskMasked | AskAgreed | AskOpened) -> tuple[MemberRun, SumTerms]:
        state = self._run(turn.run)
        if state is None or state.begun is None or state.epoch != ask.epoch or state.begun.terms.turn != turn:
            raise Refused("this site knows of no such sum, or it is over")
        if len(state.begun.roster.sites) < self.min_sites:  # it was raised since the sum began
            raise Refused(
                f"a sum over {len(state.begun.roster.sites)} sites, this site's minimum is {self.min_sites}"
            )
        return state, state.begun.terms


def _check_not_over(place: tuple[int, int], state: MemberRun) -> None:
    """Refuse an exchange that is over: a sum begins once an epoch, else its keys would be used twice."""
    opened = {given[:2] for given in state.given}
    last = None if state.begun is None else state.begun.terms.turn
    before = (-1, -1) if last is None else (last.round, last.exchange)
    if place < before or (place not in opened and place < max(opened, default=place)):
        raise Refused(f"round {place[0]}, exchange {place[1]} is over")


def _what(terms: SumTerms, survivors: tuple[SiteId, ...], masked: str) -> str:
    """A digest of a sum without its keys: after a crash the same sum may be opened again, and no other.

    The numbers that this site adds are in it: if they had changed, two sums would show by how much. Noise is
    drawn anew for every sum, and paid for.
    """
    numbers = "" if masked.startswith(_NOISY) else masked
    return sha256(repr((terms.asked, survivors, numbers)).encode()).hexdigest()


# ---------------------------------------------------------------- checks: each refuses by raising
Identities = Mapping[SiteId, bytes]  # the Ed25519 key of every site


def check_roster(
    roster: Roster, run: str, me: SiteId, own: bytes, authority: bytes | None, pinned: Identities
) -> None:
    """Refuse a roster of another run, not signed by the authority, or with other keys than were pinned."""
    sites, keys = roster.sites, roster.identities
    if roster.run != run:
        raise Refused("the roster is that of another run")
    if list(sites) != sorted(set(sites)) or len(keys) != len(sites) or len(set(keys)) < len(keys):
        raise Refused("the sites of the roster are not in order, or two of them have one key")
    if not all(len(from_hex(key)) == messages.KEY and key == key.lower() for key in keys):
        raise Refused("the roster holds a key that is not one")
    if roster.keys.get(me) != own:
        raise Refused("the roster does not hold this site's own key")
    if authority is not None and not crypto.is_signed(
        authority, roster.statement, from_hex(roster.signature)
    ):
        raise Refused("the roster is not signed by the authority of this federation")
    for site, key in roster.keys.items():
        if pinned.get(site, key) != key:
            raise Refused(
                f"{site} has another key than this site saw first; if its officer confirms the new one, "
                f"unpooled sums forget FOLDER {site} lets it in"
            )


def check_terms(
    terms: SumTerms, turn: Turn, me: SiteId, roster: Roster, present: tuple[SiteId, ...], min_sites: int
) -> None:
    """Refuse terms of another exchange or roster, with too few sites, or with too low a threshold.

    ``present``: the sites that have not left the run. The threshold is that of the whole roster, however many
    have left, so at most a third of the sites can leave a run.
    """
    sites, everybody = terms.sites, len(roster.sites)
    if terms.turn != turn:
        raise Refused("the terms of the sum are of another exchange")
    if terms.roster != roster.digest:
        raise Refused("the terms of the sum are of another roster")
    if list(sites) != sorted(set(sites)) or me not in sites:
        raise Refused("the sites of the sum are not in order, or this site is not among them")
    if everybody < min_sites:
        raise Refused(f"a sum over {everybody} sites, this site's minimum is {min_sites}")
    strangers = [site for site in sites if site not in present]
    if strangers:
        why = "left this run" if strangers[0] in roster.sites else "is not on the roster"
        raise Refused(f"{strangers[0]} {why}")
    least = threshold_for(everybody, min_sites)
    if not least <= terms.threshold <= len(sites):
        raise Refused(
            f"threshold {terms.threshold} for {len(sites)} of {everybody} sites, "
            f"this site's minimum is {least}"
        )


def peer_keys(
    ask: AskShares, me: SiteId, own: bytes, identities: Identities, known: set[bytes]
) -> dict[SiteId, bytes]:
    """Every peer's key as received; signatures are checked unless the key is in ``known``."""
    terms, found = ask.terms, {}
    if ask.keys.shape != (len(terms.sites), messages.SIGNED_KEY):
        raise Refused(f"keys of shape {ask.keys.shape} for {len(terms.sites)} sites")
    for site, row in zip(terms.sites, ask.keys, strict=True):
        data = row.tobytes()
        identity, key = data[: messages.KEY], data[messages.KEY : 2 * messages.KEY]
        if identity != identities[site]:
            raise Refused(f"the key of {site} comes with another identity than the roster's")
        if site == me:
            if key != own:
                raise Refused("the key that is said to be this site's is not")
            continue
        if site.encode() + data not in known:
            statement = KeyStatement(terms.turn.run, terms.epoch, site, key.hex()).bytes
            if not crypto.is_signed(identity, statement, data[2 * messages.KEY :]):
                raise Refused(f"the key of {site} is not signed by its identity")
        found[site] = data
    return found


def check_opening(ask: AskOpened, statement: Statement, least: int, identities: Identities) -> None:
    """Refuse to open unless each peer is either in the sum or not, and enough sites signed the list."""
    both = sorted(set(ask.survivors) & set(ask.dropped))
    if both:
        raise Refused(f"both shares of {both[0]}")
    if ask.dropped != tuple(site for site in statement.sharers if site not in ask.survivors):
        raise Refused("the dropped sites are not the sharers that did not survive")
    check_list(ask.signers, ask.survivors, "signers", least)
    if ask.signatures.shape != (len(ask.signers), messages.SIGNATURE):
        raise Refused(f"signatures of shape {ask.signatures.shape} from {len(ask.signers)} sites")
    for site, row in zip(ask.signers, ask.signatures, strict=True):
        if not crypto.is_signed(identities[site], statement.bytes, row.tobytes()):
            raise Refused(f"{site} has not signed this list of survivors")
