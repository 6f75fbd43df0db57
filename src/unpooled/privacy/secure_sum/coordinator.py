"""Secure sums over any carrier: their stages are further exchanges of the same turn.

Four exchanges where a plain sum takes one: shares, the question itself, signatures, opened shares; before the
first sum of a run, one more for keys. Questions to each site (``each``) travel with the summed questions. The
roster of a run is fixed by its first sum; a site that falls silent in a sum is out for the rest of the run.
"""

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from unpooled.core import codec
from unpooled.core.exchange import STAGE, Envelope, Gathered, Part, Summed, Turn, gather, size, whys
from unpooled.core.messages import Question, Refusal, Reply, SiteId
from unpooled.core.protocol import Asks
from unpooled.core.subtotal import Subtotal
from unpooled.errors import BadInput, BadReply, CodecError, TooFewAnswers
from unpooled.privacy.secure_sum import SecureSums, messages, threshold_for
from unpooled.privacy.secure_sum.messages import AskKeys, AskMasked, Keys, Roster, SumTerms, asked
from unpooled.privacy.secure_sum.tally import Total, is_keys, tally

Exchange = Callable[[Mapping[SiteId, Envelope]], dict[SiteId, tuple[Reply, ...]]]


@dataclass(frozen=True, eq=False)
class SecureTotal(Summed[Any]):
    """A secure sum, and the numbers and bytes that left each site for it, over all stages."""

    exactly: Callable[[], Subtotal] | None = None  # the sum, unrounded
    sent: Mapping[SiteId, tuple[int, int]] = field(default_factory=dict)

    def left(self) -> dict[SiteId, tuple[int, int]]:
        return {site: self.sent.get(site, (0, 0)) for site in self.sites}

    def subtotal(self, least: int = 1) -> Subtotal:
        assert self.exactly is not None
        return self.exactly()


class SecureSummation:
    """The coordinator's side of secure sums among ``sites``; ``exchange`` carries envelopes and replies.

    ``sign``: the authority's signature, for rosters. ``federations`` are the members that add the sum over
    sites of their own. ``roster`` is that of the present run, and ``out`` are the sites that left it, with
    reasons.
    """

    def __init__(
        self,
        sites: tuple[SiteId, ...],
        exchange: Exchange,
        wishes: SecureSums,
        sign: Callable[[bytes], bytes] | None = None,
        federations: Iterable[SiteId] = (),
    ) -> None:
        wishes.check_sites(len(sites))
        self._federations = frozenset(federations)
        self._sites = tuple(sorted(sites))
        self._carry, self._wishes, self._sign = exchange, wishes, sign
        self._trips = 0  # carrier exchanges made for the present call of ask
        self._nameless = ""  # a run id of our own, for turns that name no run
        self._at: tuple[str, int, int] = ("", -1, -1)
        self._epoch = ""
        self._keys: dict[SiteId, Keys] = {}
        self._cost: dict[SiteId, tuple[int, int]] = {}  # of keys: counted with the next sum
        self.roster = Roster("", (), ())
        self.out: dict[SiteId, str] = {}

    def begin(self, turn: Turn) -> None:
        """Where a run begins or is resumed: ask for keys, and fix its roster."""
        self._trips = 0
        if not self._keys:
            self._fetch_keys(turn)

    def ask(self, turn: Turn, asks: Asks) -> list[Gathered[Any]]:
        """The answers to asks of which at least one is a total."""
        indices = tuple(i for i, ask in enumerate(asks) if ask.verb == "total")
        self._check(turn, asks, indices)
        terms = SumTerms(
            turn=turn,
            epoch=self._epoch,
            roster=self.roster.digest,
            sites=tuple(site for site in self.roster.sites if site not in self.out),
            threshold=threshold_for(len(self.roster.sites), self._wishes.min_sites),
            asked=asked([self._part(asks, i, self._sites[0]) for i in indices]),
        )
        total, replies = self._stages(terms, asks, indices)
        self.out |= total.silent
        return self._gathered(asks, indices, total, replies)

    def _exchange(self, envelopes: Mapping[SiteId, Envelope]) -> dict[SiteId, tuple[Reply, ...]]:
        self._trips += 1
        return self._carry(envelopes)

    # ------------------------------------------------------------ before the first stage

    def named(self, turn: Turn) -> Turn:
        """The turn with a run id; start a new epoch if a run begins, or goes back to repeat a round."""
        run, at, place = turn.run, self._at, (turn.round, turn.exchange)
        if not run:
            if not self._nameless or at[0] != self._nameless or place <= at[1:]:
                self._nameless = secrets.token_hex(8)
            run = self._nameless
        if run != at[0] or (place <= at[1:] and self._keys):  # before there are keys, nothing is repeated
            self._epoch, self._keys, self.out = secrets.token_hex(8), {}, {}
        self._at = (run, *place)
        return replace(turn, run=run)

    def _check(self, turn: Turn, asks: Asks, indices: tuple[int, ...]) -> None:
        """BadInput unless all totals are over all sites of the run, and ask every site the same."""
        for i in indices:
            ask, where = asks[i], f"round {turn.round}, {asks[i].title}"
            if len(ask.sites) < self._wishes.min_sites:
                raise BadInput(
                    f"{where}: a secure sum needs at least {self._wishes.min_sites} sites, "
                    f"got {len(ask.sites)}"
                )
            if tuple(sorted(ask.sites)) != self._sites:
                raise BadInput(
                    f"{where}: a secure sum over {len(ask.sites)} of {len(self._sites)} sites; sums over "
                    "different sites would show single ones, so each is over all"
                )
            if not isinstance(ask.question, Question):
                raise BadInput(f"{where}: a secure sum asks every site the same question")

    def _fetch_keys(self, turn: Turn) -> None:
        """Ask all sites for keys, and fix the roster of the run: before anything else is asked."""
        sites = self._sites
        part = Part(STAGE, AskKeys(self._epoch), None, 0)
        replies = self._exchange({site: Envelope(turn, (part,)) for site in sites})
        silent: dict[SiteId, str] = {}
        left: set[SiteId] = set()
        known: Counter[bytes] = Counter()  # rosters of this run that sites have from before
        for site in sites:
            (reply,) = replies.get(site, (Refusal("no answer"),))
            if isinstance(reply, Keys) and is_keys(reply) and self._is_ours(reply, turn.run):
                self._keys[site] = reply
                left |= set(reply.left)
                known.update([reply.roster.tobytes()] if len(reply.roster) else [])
            else:
                silent[site] = reply.reason if isinstance(reply, Refusal) else "its key was not usable"
        needed = threshold_for(len(sites), self._wishes.min_sites)
        if len(self._keys) < needed:
            raise TooFewAnswers(
                f"round {turn.round}, secure sum, keys: {len(self._keys)} of {len(sites)} sites, "
                f"{needed} needed; missing: {whys(silent)}"
            )
        if known:
            self.roster = self._resumed(known)
        elif self.roster.run != turn.run:
            self.roster = self._signed(turn.run)
        strangers = {s: "is not on the roster of this run" for s in sites if s not in self.roster.sites}
        strangers |= {s: "is no site of this federation" for s in self.roster.sites if s not in sites}
        self.out = dict.fromkeys(left, "left the run before it was resumed") | strangers | silent
        self._cost = {site: (0, size(key)[1]) for site, key in self._keys.items()}

    def _is_ours(self, reply: Keys, run: str) -> bool:
        """True if a site remembers nothing of this run, or a roster that was signed here, and who left it.

        Without this check a single site that lies could give all others a roster that they refuse.
        """
        if not len(reply.roster):
            return not reply.left
        try:
            roster: Roster = codec.decode(reply.roster.tobytes(), expect=Roster)
        except CodecError:
            return False
        signed = self._sign is None or self._sign(roster.statement).hex() == roster.signature
        return roster.run == run and signed and set(reply.left) < set(roster.sites)

    def _resumed(self, known: "Counter[bytes]") -> Roster:
        """The roster that most sites remember of this run; those who remember another one refuse it."""
        roster: Roster = codec.decode(known.most_common(1)[0][0], expect=Roster)
        return roster

    def _signed(self, run: str) -> Roster:
        identities = (self._keys[site].data[: messages.KEY].tobytes().hex() for site in self._keys)
        roster = Roster(run, tuple(self._keys), tuple(identities))
        return roster if self._sign is None else replace(roster, signature=self._sign(roster.statement).hex())

    # ------------------------------------------------------------ the stages

    def _stages(
        self, terms: SumTerms, asks: Asks, indices: tuple[int, ...]
    ) -> tuple[Total, list[dict[SiteId, Reply]]]:
        """Carry the stages of the sum; the masked one takes the asks along. Also: the replies to ``each``."""
        stages = tally(terms, self.roster, self._keys, indices, self._federations)
        replies: list[dict[SiteId, Reply]] = [{} for _ in asks]
        came: dict[SiteId, Reply] | None = None
        while True:
            try:
                questions = stages.send(came)  # type: ignore[arg-type]
            except StopIteration as stop:
                return stop.value, replies
            parts: dict[SiteId, list[Part]] = {site: [] for site in questions}
            if any(isinstance(question, AskMasked) for question in questions.values()):
                for i, ask in enumerate(asks):
                    for site in ask.sites if ask.verb == "each" else questions:
                        parts.setdefault(site, []).append(self._part(asks, i, site))
            for site, question in questions.items():
                parts[site].append(Part(STAGE, question, None, 0))
            envelopes = {site: Envelope(terms.turn, tuple(own)) for site, own in parts.items()}
            came = {}
            for site, answers in self._exchange(envelopes).items():
                for part, reply in zip(parts[site], answers, strict=False):
                    if part.verb == STAGE:
                        came[site] = reply
                    elif part.verb == "each":
                        replies[part.index][site] = reply

    def _part(self, asks: Asks, i: int, site: SiteId) -> Part:
        return Part(asks[i].verb, asks[i].question_for(site), asks[i].view, i)

    # ------------------------------------------------------------ results

    def _gathered(
        self,
        asks: Asks,
        indices: tuple[int, ...],
        total: Total,
        replies: list[dict[SiteId, Reply]],
    ) -> list[Gathered[Any]]:
        out: list[Gathered[Any]] = [
            replace(gather(ask, by_site), exchanges=self._trips)
            for ask, by_site in zip(asks, replies, strict=True)
        ]
        sent = dict(total.sent)
        cost, self._cost = self._cost, {}
        for site, (numbers, amount) in cost.items():
            before = sent.get(site, (0, 0))
            sent[site] = (before[0] + numbers, before[1] + amount)
        for at, (i, summed) in enumerate(zip(indices, total.sums, strict=True)):
            try:
                asks[i].question_for(total.sites[0]).check_reply(summed, total.count)
            except BadReply as error:
                raise BadReply(f"{asks[i].title}: the secure sum cannot be: {error}") from error
            summed = summed.of_at_least(self._wishes.min_cluster_size)
            out[i] = SecureTotal(
                total.sites,
                [],
                self.out,
                exchanges=self._trips,
                sum=summed,
                sent=sent,
                exactly=partial(_at, total, at),
            )
            sent = {}  # counted once for the whole sum, with its first ask
        return out


def _at(total: Total, place: int) -> Subtotal:
    return total.unrounded[place]
