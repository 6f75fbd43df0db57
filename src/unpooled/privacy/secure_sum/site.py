"""A site's side of a secure sum: answers each stage once, and refuses what an honest coordinator never asks.

Rules that the coordinator cannot change: keys of this run are signed by the pinned identities; the threshold
is at least the site's own; every site is asked the same; a sum has one list of survivors, signed by a
threshold of sites before anything is opened; of every peer the share of one seed is opened, never of both; no
sum of an exchange that is over, and never two different sums of one exchange.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np

from unpooled.core import codec
from unpooled.core.exchange import Part, Turn
from unpooled.core.messages import SiteId, Summable
from unpooled.errors import BadInput, Refused
from unpooled.privacy.secure_sum import crypto, messages, packing
from unpooled.privacy.secure_sum.crypto import Exchange, Identity
from unpooled.privacy.secure_sum.fixed_point import Words, add, negated
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
    Shares,
    Statement,
    SumTerms,
    as_array,
    asked,
    flattened,
    threshold_for,
)
from unpooled.privacy.secure_sum.settings import MIN_SITES

_RUNS = 64  # runs that a site takes part in at the same time


@dataclass(eq=False)
class _MemberSum:
    """A site's state in one sum, filled in stage by stage."""

    terms: SumTerms
    context: bytes
    shares: Shares
    own: tuple[int, int]  # its own shares of its own seeds: self mask, table
    self_seed: bytes = field(repr=False)
    pair_seeds: dict[SiteId, bytes] = field(repr=False)
    unsealing: dict[SiteId, bytes] = field(repr=False)
    sharers: tuple[SiteId, ...] = ()
    held: dict[SiteId, tuple[int, int]] = field(default_factory=dict, repr=False)
    masked: tuple[bytes, Masked] | None = None
    agreed: tuple[tuple[SiteId, ...], Agreed] | None = None
    opened: Opened | None = None

    def statement(self, survivors: tuple[SiteId, ...]) -> Statement:
        return Statement(self.context.hex(), self.sharers, survivors)


@dataclass(eq=False)
class _Run:
    """A site's keys in a run, the sums of its present exchange, and digests of the sums it has opened."""

    epoch: str = ""
    exchange: Exchange = field(default_factory=Exchange)
    keys: Keys | None = None
    roots: dict[bytes, bytes] = field(default_factory=dict, repr=False)  # by peer's name and key
    sums: dict[tuple[Turn, int], _MemberSum] = field(default_factory=dict, repr=False)
    latest: tuple[int, int] = (-1, -1)  # round and exchange of the latest sum in this epoch
    given: dict[tuple[int, int, int], bytes] = field(default_factory=dict)  # opened; kept over epochs


class Member:
    """One site in secure sums. ``roster`` pins all identities, its own included: name to 32 public bytes.

    ``min_sites`` is the fewest sites whose replies it lets itself be summed with; a sum also needs more than
    two thirds of the sites that were asked (``threshold_for``).
    """

    def __init__(
        self,
        name: SiteId,
        identity: Identity,
        roster: Mapping[SiteId, bytes],
        *,
        min_sites: int = MIN_SITES,
    ) -> None:
        if min_sites < MIN_SITES:
            raise BadInput(f"a secure sum needs at least {MIN_SITES} sites, got min_sites={min_sites}")
        if roster.get(name) != identity.public:
            raise BadInput(f"site {name}: its own identity is not the one that the roster pins")
        self.name, self.min_sites, self._identity, self._roster = name, min_sites, identity, dict(roster)
        self._runs: dict[str, _Run] = {}

    # ------------------------------------------------------------ keys: once an epoch

    def keys(self, turn: Turn, ask: AskKeys) -> Keys:
        """A fresh key for key agreement, signed. A new epoch forgets all secrets of the old one."""
        run = self._runs.pop(turn.run, None) or _Run()
        self._runs[turn.run] = run
        while len(self._runs) > _RUNS:
            self._runs.pop(next(iter(self._runs)))
        if run.keys is None or run.epoch != ask.epoch:
            run.epoch, run.exchange, run.roots, run.sums = ask.epoch, Exchange(), {}, {}
            run.latest = (-1, -1)
            public = run.exchange.public
            statement = KeyStatement(turn.run, ask.epoch, self.name, public.hex())
            run.keys = Keys(as_array(public + self._identity.sign(statement.bytes)))
        return run.keys

    # ------------------------------------------------------------ shares

    def shares(self, turn: Turn, ask: AskShares) -> Shares:
        """Shares for all sites of two fresh seeds: of its own mask, and of its table of pair seeds."""
        terms, run = ask.terms, self._runs.get(turn.run)
        if run is None or run.keys is None or run.epoch != terms.epoch:
            raise Refused("this site has no key of this run and epoch")
        known = run.sums.get((turn, terms.group))
        if known is not None:
            if known.terms != terms:
                raise Refused("other terms for a sum that has begun")
            return known.shares
        check_terms(terms, turn, self.name, self._roster, self.min_sites)
        self._check_not_over(turn, run)
        roots = self._roots(run, ask)
        run.sums = {key: s for key, s in run.sums.items() if key[0] == turn}  # the last exchange is over
        run.latest = (turn.round, turn.exchange)
        new_sum = self._make_shares(terms, roots)
        run.sums[turn, terms.group] = new_sum
        return new_sum.shares

    def _check_not_over(self, turn: Turn, run: _Run) -> None:
        """Refuse an exchange that is over: a sum begins once an epoch, else its keys would be used twice."""
        place, opened = (turn.round, turn.exchange), {key[:2] for key in run.given}
        if place < run.latest or (place not in opened and place < max(opened, default=place)):
            raise Refused(f"round {turn.round}, exchange {turn.exchange} is over")

    def _roots(self, run: _Run, ask: AskShares) -> dict[SiteId, bytes]:
        """By peer: the secret that only this site and the peer know."""
        peers = peer_keys(ask, self.name, run.exchange.public, self._roster, set(run.roots))
        about = sha256(codec.encode(KeyStatement(ask.terms.turn.run, run.epoch, "", ""))).digest()
        for site, data in peers.items():
            if site.encode() + data not in run.roots:
                root = run.exchange.root(data[: messages.KEY], about)
                if root is None:
                    raise Refused(f"the key of {site} is not a key")
                run.roots[site.encode() + data] = root
        return {site: run.roots[site.encode() + data] for site, data in peers.items()}

    def _make_shares(self, terms: SumTerms, roots: dict[SiteId, bytes]) -> _MemberSum:
        sites, context, me = terms.sites, terms.context, terms.sites.index(self.name)
        self_seed, table_seed = secrets.token_bytes(messages.SEED), secrets.token_bytes(messages.SEED)
        of_self = crypto.share(self_seed, terms.threshold, len(sites))
        of_table = crypto.share(table_seed, terms.threshold, len(sites))
        pair_seeds, unsealing, sealed = {}, {}, []
        for i, site in enumerate(sites):
            if i == me:
                continue
            seed, up, down = crypto.pair_keys(roots[site], context)
            pair_seeds[site], unsealing[site] = seed, down if me < i else up
            two = of_self[i].to_bytes(messages.SHARE, "little") + of_table[i].to_bytes(
                messages.SHARE, "little"
            )
            sealed.append(crypto.seal(up if me < i else down, two, context))
        table_key = crypto.labelled(b"table", context, table_seed)
        table = crypto.seal(table_key, b"".join(pair_seeds.values()), context)
        check = crypto.labelled(b"check", context, self_seed)[: messages.SEED]
        return _MemberSum(
            terms=terms,
            context=context,
            shares=Shares(as_array(check + table + b"".join(sealed))),
            own=(of_self[me], of_table[me]),
            self_seed=self_seed,
            pair_seeds=pair_seeds,
            unsealing=unsealing,
        )

    # ------------------------------------------------------------ masked

    def masked(
        self, turn: Turn, ask: AskMasked, parts: Sequence[Part], replies: Sequence[Summable]
    ) -> Masked:
        """The replies to ``parts``, masked with this site's own stream and one for every other sharer."""
        this = self._sum(turn, ask)
        request = sha256(codec.encode(ask)).digest()
        if this.masked is not None:
            if this.masked[0] != request:
                raise Refused("a second masking of the same sum")
            return this.masked[1]
        if asked(parts) != this.terms.asked:
            raise Refused("the questions are not those that the terms of the sum name")
        check_list(ask.sharers, this.terms.sites, "sharers", this.terms.threshold, self.name)
        if ask.sealed.shape != (len(ask.sharers) - 1, messages.SEALED):
            raise Refused(f"sealed shares of shape {ask.sealed.shape} from {len(ask.sharers)} sites")
        held = self._unsealed(this, ask)
        layout, vector = flattened(replies)
        words = packing.packed(this.terms, layout, vector)
        self._hide(this, ask.sharers, words)
        reply = Masked(layout, words.view(np.int64))
        this.sharers, this.held, this.masked = ask.sharers, held, (request, reply)
        return reply

    def _unsealed(self, this: _MemberSum, ask: AskMasked) -> dict[SiteId, tuple[int, int]]:
        held = {self.name: this.own}
        peers = [site for site in ask.sharers if site != self.name]
        for site, row in zip(peers, ask.sealed, strict=True):
            two = crypto.unseal(this.unsealing[site], row.tobytes(), this.context)
            if two is None:
                raise Refused(f"the shares of {site} are not what it sealed for this site and this sum")
            first, second = two[: messages.SHARE], two[messages.SHARE :]
            held[site] = (int.from_bytes(first, "little"), int.from_bytes(second, "little"))
        return held

    def _hide(self, this: _MemberSum, sharers: tuple[SiteId, ...], words: Words) -> None:
        """Add this site's own stream and those it has with later sites; subtract those with earlier sites."""
        shape = (words.shape[0], words.shape[1])
        add(words, crypto.mask(this.self_seed, this.context, shape))
        minus = np.zeros_like(words)
        for site in sharers:
            if site != self.name:
                stream = crypto.mask(this.pair_seeds[site], this.context, shape)
                add(words if self.name < site else minus, stream)
        add(words, negated(minus))

    # ------------------------------------------------------------ agreed, opened

    def agreed(self, turn: Turn, ask: AskAgreed) -> Agreed:
        """A signature on the list of sites in the sum; only one list is signed for a sum."""
        this = self._sum(turn, ask)
        if this.agreed is not None:
            if this.agreed[0] != ask.survivors:
                raise Refused("a second list of survivors of the same sum")
            return this.agreed[1]
        if this.masked is None:
            raise Refused("this site has sent nothing to this sum")
        check_list(ask.survivors, this.sharers, "survivors", this.terms.threshold, self.name)
        before = self._runs[turn.run].given.get((turn.round, turn.exchange, ask.group))
        if before is not None and before != _what(this.terms, ask.survivors):
            raise Refused("another sum of this exchange was opened before")
        reply = Agreed(as_array(self._identity.sign(this.statement(ask.survivors).bytes)))
        this.agreed = (ask.survivors, reply)
        return reply

    def opened(self, turn: Turn, ask: AskOpened) -> Opened:
        """For every sharer one share of a seed: its own mask's if it is in the sum, else its table's."""
        this = self._sum(turn, ask)
        if this.agreed is None or this.agreed[0] != ask.survivors:
            raise Refused("the survivors are not those that this site has signed")
        check_opening(ask, this.statement(ask.survivors), this.terms.threshold, self._roster)
        if this.opened is None:
            shares = (this.held[site][0 if site in ask.survivors else 1] for site in this.sharers)
            data = b"".join(share.to_bytes(messages.SHARE, "little") for share in shares)
            place = (turn.round, turn.exchange, ask.group)
            self._runs[turn.run].given[place] = _what(this.terms, ask.survivors)
            this.opened = Opened(as_array(data))
            this.held, this.pair_seeds, this.unsealing, this.self_seed = {}, {}, {}, b""
        return this.opened

    def noise_share(self, turn: Turn, ask: AskMasked) -> float:
        """This site's share of the noise's standard deviation: a threshold of sites adds the whole."""
        return float(self._sum(turn, ask).terms.threshold ** -0.5)

    def _sum(self, turn: Turn, ask: AskMasked | AskAgreed | AskOpened) -> _MemberSum:
        run = self._runs.get(turn.run)
        this = run.sums.get((turn, ask.group)) if run is not None else None
        if this is None or this.terms.epoch != ask.epoch:
            raise Refused("this site knows of no such sum, or it is over")
        return this


def _what(terms: SumTerms, survivors: tuple[SiteId, ...]) -> bytes:
    """A digest of a sum without its keys: after a crash the same sum may be opened again, and no other.

    Rounded sums have the same numbers in one word as in two, so their number format is not part of it.
    """
    how = terms.rounded or terms.fixed
    return sha256(repr((terms.asked, how, survivors)).encode()).digest()


Roster = Mapping[SiteId, bytes]  # the Ed25519 key of every site, pinned by the site itself


def check_terms(terms: SumTerms, turn: Turn, me: SiteId, roster: Roster, min_sites: int) -> None:
    """Refuse terms of another exchange, with too few or unpinned sites, or with too low a threshold."""
    sites = terms.sites
    if terms.turn != turn:
        raise Refused("the terms of the sum are of another exchange")
    if list(sites) != sorted(set(sites)) or me not in sites:
        raise Refused("the sites of the sum are not in order, or this site is not among them")
    if len(sites) < min_sites:
        raise Refused(f"a sum over {len(sites)} sites, this site's minimum is {min_sites}")
    least = threshold_for(len(sites), min_sites)
    if not least <= terms.threshold <= len(sites):
        raise Refused(f"threshold {terms.threshold} of {len(sites)} sites, this site's minimum is {least}")
    if not (terms.rounded == 0 or 16 <= terms.rounded <= 52) or any(abs(e) > 900 for e in terms.scales):
        raise Refused(f"fields rounded to {terms.rounded} bits, over 2^{terms.scales}")
    if terms.scales and not terms.rounded:
        raise Refused("scales for fields that are not rounded")
    strangers = [site for site in sites if site not in roster]
    if strangers:
        raise Refused(f"{strangers[0]} is not on this site's roster")


def peer_keys(
    ask: AskShares, me: SiteId, own: bytes, roster: Roster, known: set[bytes]
) -> dict[SiteId, bytes]:
    """Every peer's key as received, 96 bytes; signatures are checked unless the key is in ``known``."""
    terms, found = ask.terms, {}
    if ask.keys.shape != (len(terms.sites), messages.SIGNED_KEY):
        raise Refused(f"keys of shape {ask.keys.shape} for {len(terms.sites)} sites")
    for site, row in zip(terms.sites, ask.keys, strict=True):
        data = row.tobytes()
        key, signature = data[: messages.KEY], data[messages.KEY :]
        if site == me:
            if key != own:
                raise Refused("the key that is said to be this site's is not")
            continue
        if site.encode() + data not in known:
            statement = KeyStatement(terms.turn.run, terms.epoch, site, key.hex()).bytes
            if not crypto.is_signed(roster[site], statement, signature):
                raise Refused(f"the key of {site} is not signed by the identity that this site has pinned")
        found[site] = data
    return found


def check_list(
    some: tuple[SiteId, ...], whole: tuple[SiteId, ...], what: str, least: int, me: SiteId | None = None
) -> None:
    """Refuse a list that is unsorted, not within ``whole``, shorter than ``least``, or without ``me``."""
    if list(some) != sorted(set(some)) or not set(some) <= set(whole):
        raise Refused(f"the {what} are not in order, or not among those who may be")
    if len(some) < least:
        raise Refused(f"{len(some)} {what}, the threshold is {least}")
    if me is not None and me not in some:
        raise Refused(f"this site is not among the {what}")


def check_opening(ask: AskOpened, statement: Statement, least: int, roster: Roster) -> None:
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
        if not crypto.is_signed(roster[site], statement.bytes, row.tobytes()):
            raise Refused(f"{site} has not signed this list of survivors")
