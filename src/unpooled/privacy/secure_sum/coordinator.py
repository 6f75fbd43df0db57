"""Secure sums over any carrier: their stages are further exchanges of the same turn.

Four exchanges where a plain sum takes one: shares, the question itself, signatures, opened shares; before the
first sum of a run, one more for keys. Questions to each site (``each``) travel with the summed questions.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from unpooled.core.exchange import STAGE, Envelope, Gathered, Part, Summed, Turn, gather, size
from unpooled.core.messages import Question, Refusal, Reply, SiteId
from unpooled.core.protocol import Ask, Asks
from unpooled.errors import BadInput, BadReply
from unpooled.privacy import Spending
from unpooled.privacy.secure_sum import SecureSums, threshold_for
from unpooled.privacy.secure_sum.messages import AskKeys, AskMasked, Keys, SumTerms, asked
from unpooled.privacy.secure_sum.packing import Scales, narrowed, one_word
from unpooled.privacy.secure_sum.tally import DoesNotFit, Stages, Total, is_keys, tally

Exchange = Callable[[Mapping[SiteId, Envelope]], dict[SiteId, tuple[Reply, ...]]]


@dataclass(frozen=True, eq=False)
class SecureTotal(Summed[Any]):
    """A secure sum, and the numbers and bytes that left each site for it, over all stages."""

    sent: Mapping[SiteId, tuple[int, int]] = field(default_factory=dict)

    def left(self) -> dict[SiteId, tuple[int, int]]:
        return {site: self.sent.get(site, (0, 0)) for site in self.sites}


@dataclass(eq=False)
class _OpenSum:
    """A secure sum in progress: the asks it answers, its stages, their present questions, its result."""

    terms: SumTerms
    indices: tuple[int, ...]
    stages: Stages
    wide: SumTerms  # terms in two words a number, for a retry if the numbers do not fit in one
    asks: dict[SiteId, Question[Any]] = field(default_factory=dict)
    total: Total | None = None
    misfit: bool = False
    before: dict[SiteId, tuple[int, int]] = field(default_factory=dict)  # sent before a retry

    def advance(self, replies: Mapping[SiteId, Reply] | None) -> None:
        try:
            self.asks = self.stages.send(replies)  # type: ignore[arg-type]
        except StopIteration as stop:
            self.asks, self.total = {}, stop.value
        except DoesNotFit as error:
            if self.terms == self.wide:
                raise
            self.asks, self.misfit, self.before = {}, True, error.sent


class SecureSummation:
    """The coordinator's side of secure sums; ``exchange`` carries envelopes down and replies up."""

    def __init__(self, exchange: Exchange, wishes: SecureSums) -> None:
        self._carry, self._wishes = exchange, wishes
        self._fixed, self._rounded = lru_cache(wishes.fixed), wishes.rounded
        self._trips = 0  # carrier exchanges made for the present call of ask
        self._nameless = ""  # a run id of our own, for turns that name no run
        self._at: tuple[str, int, int] = ("", -1, -1)
        self._epoch = ""
        self._keys: dict[SiteId, Keys] = {}
        self._scales: dict[tuple[str, ...], Scales] = {}

    def ask(self, turn: Turn, asks: Asks) -> list[Gathered[Any]]:
        turn, self._trips = self._begin(turn), 0
        groups: dict[tuple[SiteId, ...], list[int]] = {}
        for i, ask in enumerate(asks):
            if ask.verb == "total":
                self._check(turn, ask)
                groups.setdefault(tuple(sorted(ask.sites)), []).append(i)
        silent, cost = self._fetch_keys(turn, sorted({site for sites in groups for site in sites}))
        sums = [
            self._sum(turn, number, asks, sites, tuple(indices), silent)
            for number, (sites, indices) in enumerate(groups.items())
        ]
        replies: list[dict[SiteId, Reply]] = [{} for _ in asks]
        while any(s.total is None for s in sums):
            self._stage(turn, asks, sums, replies)
            sums = [self._again(asks, s, len(groups), silent) if s.misfit else s for s in sums]
        return self._gathered(asks, sums, replies, silent, cost)

    def _exchange(self, envelopes: Mapping[SiteId, Envelope]) -> dict[SiteId, tuple[Reply, ...]]:
        self._trips += 1
        return self._carry(envelopes)

    # ------------------------------------------------------------ before the first stage

    def _begin(self, turn: Turn) -> Turn:
        """The turn with a run id; start a new epoch if a run begins, or goes back to repeat a round."""
        run, at, place = turn.run, self._at, (turn.round, turn.exchange)
        if not run:
            if at[0] != self._nameless or place <= at[1:]:
                self._nameless = secrets.token_hex(8)
            run = self._nameless
        if run != at[0]:
            self._scales = {}
        if run != at[0] or place <= at[1:]:
            self._epoch, self._keys = secrets.token_hex(8), {}
        self._at = (run, *place)
        return replace(turn, run=run)

    def _check(self, turn: Turn, ask: Ask[Any]) -> None:
        least = self._wishes.min_sites
        if len(ask.sites) < least:
            raise BadInput(
                f"round {turn.round}, {ask.title}: a secure sum needs at least {least} sites, "
                f"got {len(ask.sites)}"
            )
        if not isinstance(ask.question, Question):
            raise BadInput(f"{ask.title}: a secure sum asks every site the same question")

    def _fetch_keys(
        self, turn: Turn, sites: list[SiteId]
    ) -> tuple[dict[SiteId, str], dict[SiteId, tuple[int, int]]]:
        """Ask for missing keys: the sites that gave none, with reasons, and the bytes that the keys cost."""
        missing = [site for site in sites if site not in self._keys]
        if not missing:
            return {}, {}
        part = Part(STAGE, AskKeys(self._epoch), None, 0)
        replies = self._exchange({site: Envelope(turn, (part,)) for site in missing})
        silent: dict[SiteId, str] = {}
        for site in missing:
            (reply,) = replies.get(site, (Refusal("no answer"),))
            if isinstance(reply, Keys) and is_keys(reply):
                self._keys[site] = reply
            else:
                silent[site] = reply.reason if isinstance(reply, Refusal) else "its key was not usable"
        return silent, {site: (0, size(self._keys[site])[1]) for site in missing if site in self._keys}

    def _sum(
        self,
        turn: Turn,
        group: int,
        asks: Asks,
        sites: tuple[SiteId, ...],
        indices: tuple[int, ...],
        silent: Mapping[SiteId, str],
    ) -> _OpenSum:
        present = tuple(site for site in sites if site in self._keys)
        parts = [Part("total", asks[i].question_for(sites[0]), asks[i].view, i) for i in indices]
        # noise is drawn once a sum, so a noisy sum takes two words at once and is never retried
        noisy = any(isinstance(part.question, Spending) for part in parts)
        wide = SumTerms(
            turn=turn,
            group=group,
            epoch=self._epoch,
            sites=present,
            threshold=threshold_for(len(present), self._wishes.min_sites),
            fixed=self._fixed(max(len(present), 1)),
            asked=asked(parts),
            rounded=0 if noisy else self._rounded,
        )
        terms = wide
        if wide.rounded:
            slack = one_word(len(present)).fraction - wide.rounded
            scales = self._scales.setdefault(_kind(asks, indices), Scales()).scales(parts, slack)
            terms = narrowed(wide, scales) if scales else wide
        started = _OpenSum(terms, indices, tally(terms, self._keys, indices, silent), wide)
        started.advance(None)
        return started

    def _again(self, asks: Asks, failed: _OpenSum, groups: int, silent: Mapping[SiteId, str]) -> _OpenSum:
        """Retry a sum in two words a number, under a new group number."""
        self._scales[_kind(asks, failed.indices)].misfits += 1
        wide = replace(failed.wide, group=failed.terms.group + groups)
        stages = tally(wide, self._keys, failed.indices, silent)
        retry = _OpenSum(wide, failed.indices, stages, wide, before=failed.before)
        retry.advance(None)
        return retry

    # ------------------------------------------------------------ one stage of all sums together

    def _stage(
        self, turn: Turn, asks: Asks, sums: list[_OpenSum], replies: list[dict[SiteId, Reply]]
    ) -> None:
        """Carry the present questions of all sums in one exchange; the masked stage takes the asks along."""
        going = [s for s in sums if s.total is None]
        parts: dict[SiteId, list[tuple[Part, _OpenSum | None]]] = {}
        for open_sum in going:
            for site, question in open_sum.asks.items():
                site_parts = parts.setdefault(site, [])
                if isinstance(question, AskMasked):
                    site_parts += [(self._part(asks, i, site), None) for i in open_sum.indices]
                site_parts.append((Part(STAGE, question, None, open_sum.terms.group), open_sum))
        first = any(isinstance(q, AskMasked) for s in going for q in s.asks.values()) and not any(replies)
        if first:  # the questions to each site travel once, with the first masked stage
            for i, ask in enumerate(asks):
                for site in ask.sites if ask.verb == "each" else ():
                    parts.setdefault(site, []).append((self._part(asks, i, site), None))
        answers = self._exchange(
            {site: Envelope(turn, tuple(part for part, _ in own)) for site, own in parts.items()}
        )
        staged: dict[int, dict[SiteId, Reply]] = {open_sum.terms.group: {} for open_sum in going}
        for site, site_parts in parts.items():
            for (part, owner), reply in zip(site_parts, answers.get(site, ()), strict=False):
                if owner is not None:
                    staged[owner.terms.group][site] = reply
                elif part.verb == "each":
                    replies[part.index][site] = reply
        for open_sum in going:
            open_sum.advance(staged[open_sum.terms.group])

    def _part(self, asks: Asks, i: int, site: SiteId) -> Part:
        return Part(asks[i].verb, asks[i].question_for(site), asks[i].view, i)

    # ------------------------------------------------------------ results

    def _gathered(
        self,
        asks: Asks,
        sums: list[_OpenSum],
        replies: list[dict[SiteId, Reply]],
        silent: Mapping[SiteId, str],
        cost: Mapping[SiteId, tuple[int, int]],
    ) -> list[Gathered[Any]]:
        out: list[Gathered[Any]] = [
            replace(gather(ask, by_site), exchanges=self._trips)
            for ask, by_site in zip(asks, replies, strict=True)
        ]
        for open_sum in sums:
            assert open_sum.total is not None
            total = open_sum.total
            if open_sum.terms.rounded:
                parts = [self._part(asks, i, total.sites[0]) for i in open_sum.indices]
                self._scales[_kind(asks, open_sum.indices)].learn(parts, total.sums)
            for site in total.silent:
                self._keys.pop(site, None)  # it may have restarted, so its key is fetched anew
            sent = dict(total.sent)
            for site, (numbers, amount) in (*cost.items(), *open_sum.before.items()):
                before = sent.get(site, (0, 0))
                sent[site] = (before[0] + numbers, before[1] + amount)
            cost = {}
            for i, summed in zip(open_sum.indices, total.sums, strict=True):
                try:
                    asks[i].question_for(total.sites[0]).check_reply(summed, len(total.sites))
                except BadReply as error:
                    raise BadReply(f"{asks[i].title}: the secure sum cannot be: {error}") from error
                summed = summed.of_at_least(self._wishes.min_cluster_size)
                refusals = {**silent, **total.silent}
                out[i] = SecureTotal(total.sites, [], refusals, exchanges=self._trips, sum=summed, sent=sent)
                sent = {}  # counted once for the whole sum, with its first ask
        return out


def _kind(asks: Asks, indices: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(asks[i].title for i in indices)
