"""The coordinator's side of a secure sum: a generator of stages that ends in the sum.

It yields one question per site and receives the sites' replies; a site that sent nothing, refused, or sent an
unusable reply is left out from there on, by name. A federation transports the questions.

Bonawitz et al.: Practical secure aggregation for privacy-preserving machine learning. CCS 2017,
figure 4, with one departure: a site shares out not its key but the seed of a sealed table of this sum's pair
seeds. Opening the masks of a dropped site thus opens one sum and no other, so keys last for a whole run; with
shares of the key, new keys would be needed for every sum.
"""

from collections import Counter
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from unpooled.errors import TooFewAnswersError
from unpooled.privacy.secure_sum import crypto, stage_messages
from unpooled.privacy.secure_sum.fixed_point import LIMBS, Words, add, decode, negated
from unpooled.privacy.secure_sum.stage_messages import (
    AskConsistency,
    AskMasked,
    AskShares,
    AskUnmask,
    ConsistencySignature,
    Keys,
    Layout,
    Masked,
    Participants,
    Shares,
    SumParameters,
    UnmaskShares,
    is_valid_layout,
    length,
    sites_in,
    subtotals,
    unflatten,
)
from unpooled.protocol.crypto_labels import Label
from unpooled.protocol.exchange import format_silent_sites, size
from unpooled.protocol.messages import Question, Refusal, Reply, SiteId, Summable
from unpooled.protocol.partial_sum import PartialSum

Q = TypeVar("Q", bound=Reply)
RepliesBySite = Mapping[SiteId, Reply]
Stages = Generator[dict[SiteId, Question[Any]], RepliesBySite, "SecureSumResult"]


@dataclass(frozen=True, eq=False)
class SecureSumResult:
    """The sum over the sites in it, one summed reply per question, and the missing sites with reasons."""

    sites: tuple[SiteId, ...]  # the members that are in the sum
    count: int  # sites behind them: more if members are federations
    layout: Layout
    words: Words  # (2, N), unrounded
    silent: dict[SiteId, str]
    sent: dict[SiteId, tuple[int, int]]  # numbers and bytes that left each site, over all stages

    @cached_property
    def sums(self) -> tuple[Summable, ...]:
        return unflatten(self.layout, decode(self.words))

    @cached_property
    def unrounded(self) -> tuple[PartialSum, ...]:
        return subtotals(self.layout, self.words, self.count)


@dataclass(eq=False)
class _SumLog:
    """The record of a sum: missing sites with reasons, and the numbers and bytes that each site sent."""

    terms: SumParameters
    silent: dict[SiteId, str] = field(default_factory=dict)
    sent: dict[SiteId, tuple[int, int]] = field(default_factory=dict)

    def usable(
        self,
        stage: str,
        asked: Mapping[SiteId, Any],
        replies: RepliesBySite,
        kind: type[Q],
        fits: Callable[[Q], bool],
    ) -> dict[SiteId, Q]:
        """Return the usable replies; TooFewAnswersError if they are fewer than the threshold."""
        good: dict[SiteId, Q] = {}
        for site in asked:
            reply = replies.get(site)
            if reply is not None:
                before = self.sent.get(site, (0, 0))
                self.sent[site] = (before[0] + _numbers(reply), before[1] + size(reply)[1])
            if isinstance(reply, kind) and fits(reply):
                good[site] = reply
            elif isinstance(reply, Refusal):
                self.silent[site] = reply.reason
            else:
                self.silent[site] = "no answer" if reply is None else f"its {stage} were not usable"
        self.require(len(good), stage)
        return good

    def require(self, count: int, stage: str) -> None:
        if count < self.terms.threshold:
            request_id = self.terms.request_id
            raise TooFewAnswersError(
                f"round {request_id.round}, secure sum, {stage}: {count} of {len(self.terms.sites)} sites, "
                f"{self.terms.threshold} needed; missing: {format_silent_sites(self.silent)}"
            )


def _numbers(reply: Reply) -> int:
    """Count the numbers about rows in a reply; keys, shares and signatures count 0."""
    return reply.data.shape[-1] - 1 if isinstance(reply, Masked) and reply.data.ndim else 0


def is_keys(reply: Reply | None) -> bool:
    """Return whether a reply has the form of a site's signed key."""
    return (
        isinstance(reply, Keys)
        and reply.data.shape == (stage_messages.SIGNED_KEY,)
        and reply.data.dtype == np.uint8
    )


def aggregate(
    terms: SumParameters,
    participants: Participants,
    keys: Mapping[SiteId, Keys],
    parts: tuple[int, ...],
    federations: frozenset[SiteId] = frozenset(),
) -> Stages:
    """Yield the stages of one sum among ``terms.sites``, of the questions at ``parts`` of the exchange.

    ``federations`` are the members that add the sum over sites of their own.
    """
    log, n = _SumLog(terms), len(terms.sites)

    # down: the terms, the participants, all keys; up: shares of two seeds, sealed for every peer
    everyone = np.stack([keys[site].data for site in terms.sites])
    asks: dict[SiteId, Question[Any]] = dict.fromkeys(terms.sites, AskShares(terms, participants, everyone))
    size = stage_messages.shares(n)
    shares = log.usable("shares", asks, (yield asks), Shares, lambda r: r.data.shape == (size,))
    sharers = tuple(shares)

    # down: the question, and the others' sealed shares for this site; up: the reply, masked
    rows = {site: _sealed(terms, site, shares[site]) for site in sharers}
    asks = {
        site: AskMasked(
            terms.epoch,
            sharers,
            np.stack([rows[peer][site] for peer in sharers if peer != site]),
            parts,
        )
        for site in sharers
    }
    masked = log.usable("masked replies", asks, (yield asks), Masked, lambda r: _is_whole(r, len(parts)))
    masked = _alike(masked, log)
    survivors = tuple(masked)
    dropped = tuple(site for site in sharers if site not in masked)

    # down: the list of sites in the sum; up: a signature on it
    asks = dict.fromkeys(survivors, AskConsistency(terms.epoch, survivors))
    agreed = log.usable(
        "signatures",
        asks,
        (yield asks),
        ConsistencySignature,
        lambda r: r.data.shape == (stage_messages.SIGNATURE,),
    )
    signers = tuple(agreed)[: terms.threshold]

    # down: the signatures; up: for every sharer, one share of one of its two seeds
    signatures = np.stack([agreed[site].data for site in signers])
    asks = dict.fromkeys(survivors, AskUnmask(terms.epoch, survivors, dropped, signers, signatures))
    size = len(sharers) * stage_messages.SHARE
    unmask = log.usable("unmask shares", asks, (yield asks), UnmaskShares, lambda r: r.data.shape == (size,))

    seeds = _restored(terms, sharers, unmask)
    words = _unmasked(terms, shares, masked, seeds)
    count = sites_in(words, len(survivors), len(federations & set(survivors)))
    if count is None:
        where = f"round {terms.request_id.round}, secure sum"
        raise TooFewAnswersError(f"{where}: it is not the sum of answers of honest sites")
    silent = {site: why for site, why in log.silent.items() if site not in masked}
    return SecureSumResult(survivors, count, masked[survivors[0]].layout, words[:, :-1], silent, log.sent)


def _sealed(terms: SumParameters, site: SiteId, shares: Shares) -> dict[SiteId, Any]:
    """By peer: the shares that a site sealed for it."""
    n = len(terms.sites)
    rows = shares.data[stage_messages.SEED + stage_messages.table(n) :].reshape(n - 1, stage_messages.SEALED)
    return dict(zip([peer for peer in terms.sites if peer != site], rows, strict=True))


def _is_whole(reply: Masked, parts: int) -> bool:
    shape = (LIMBS, length(reply.layout) + 1) if is_valid_layout(reply.layout, parts) else None
    return reply.data.shape == shape


def _alike(masked: dict[SiteId, Masked], log: _SumLog) -> dict[SiteId, Masked]:
    """The replies of the most common layout; sites with another one are left out."""
    common, _ = Counter(reply.layout for reply in masked.values()).most_common(1)[0]
    for site, reply in masked.items():
        if reply.layout != common:
            log.silent[site] = "its reply has another shape than the others"
    alike = {site: reply for site, reply in masked.items() if reply.layout == common}
    log.require(len(alike), "masked replies")
    return alike


def _restored(
    terms: SumParameters, sharers: tuple[SiteId, ...], unmask: dict[SiteId, UnmaskShares]
) -> dict[SiteId, bytes | None]:
    """Every sharer's seed, from the unmask shares: of its own mask if it is in the sum, else of its table."""
    senders = list(unmask)[: terms.threshold]
    weights = crypto.weights([terms.sites.index(site) for site in senders])
    shares = [unmask[site].data.tobytes() for site in senders]
    seeds = {}
    for i, site in enumerate(sharers):
        at = slice(i * stage_messages.SHARE, (i + 1) * stage_messages.SHARE)
        seeds[site] = crypto.restore([int.from_bytes(data[at], "little") for data in shares], weights)
    return seeds


def _unmasked(
    terms: SumParameters,
    shares: dict[SiteId, Shares],
    masked: dict[SiteId, Masked],
    seeds: dict[SiteId, bytes | None],
) -> Words:
    """The sum of the masked replies, less the survivors' own masks and their pair masks with the dropped."""
    context, n = terms.context, len(terms.sites)
    limbs, length = next(iter(masked.values())).data.shape
    shape = (limbs, length)
    plus, minus = np.zeros(shape, dtype=np.uint64), np.zeros(shape, dtype=np.uint64)
    for site, seed in seeds.items():
        data = shares[site].data.tobytes()
        if site in masked:
            if (
                seed is None
                or crypto.from_seed(Label.SEED_COMMITMENT, context, seed)[: stage_messages.SEED]
                != data[: stage_messages.SEED]
            ):
                raise TooFewAnswersError(_spoiled(terms, site))
            add(plus, np.ascontiguousarray(masked[site].data).view(np.uint64))
            add(minus, crypto.mask(seed, context, shape))
            continue
        key = crypto.from_seed(Label.TABLE_KEY, context, seed or b"")
        table = crypto.unseal(
            key, data[stage_messages.SEED : stage_messages.SEED + stage_messages.table(n)], context
        )
        if seed is None or table is None:
            raise TooFewAnswersError(_spoiled(terms, site))
        peers = [peer for peer in terms.sites if peer != site]
        for i, peer in enumerate(peers):
            if peer in masked:  # it added the stream if it sorts before the dropped site, else subtracted it
                stream = crypto.mask(
                    table[stage_messages.SEED * i : stage_messages.SEED * (i + 1)], context, shape
                )
                add(minus if peer < site else plus, stream)
    add(plus, negated(minus))
    return plus


def _spoiled(terms: SumParameters, site: SiteId) -> str:
    return (
        f"round {terms.request_id.round}, secure sum: the shares do not give the seed of {site}. A site sent "
        "a wrong share."
    )
