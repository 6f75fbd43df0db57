"""Secure sums over any transport: their stages are additional exchanges under the same request id.

A secure sum takes four exchanges instead of one: shares, the question itself, signatures, unmask shares; the
first sum of a run takes one more for keys. Questions to each site (``each``) are sent with the summed
questions. The first sum of a run fixes its participants; a site that does not answer in a sum is out for the
rest of the run.
"""

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from unpooled.errors import CodecError, InputError, ReplyError, TooFewAnswersError
from unpooled.privacy.secure_sum import SecureSums, stage_messages, threshold_for
from unpooled.privacy.secure_sum.aggregate import SecureSumResult, aggregate, is_keys
from unpooled.privacy.secure_sum.stage_messages import (
    AskKeys,
    AskMasked,
    Keys,
    Participants,
    SumParameters,
)
from unpooled.protocol import codec
from unpooled.protocol.algorithm import Asks
from unpooled.protocol.exchange import (
    STAGE,
    Aggregate,
    Part,
    Replies,
    Request,
    RequestId,
    format_silent_sites,
    gather,
    parts_digest,
    size,
)
from unpooled.protocol.messages import Question, Refusal, Reply, SiteId
from unpooled.protocol.partial_sum import PartialSum

Exchange = Callable[[Mapping[SiteId, Request]], dict[SiteId, tuple[Reply, ...]]]


@dataclass(frozen=True, eq=False)
class SecureAggregate(Aggregate[Any]):
    """A secure sum, and the numbers and bytes that left each site for it, over all stages."""

    unrounded_sum: Callable[[], PartialSum] | None = None
    sent_by_site: Mapping[SiteId, tuple[int, int]] = field(default_factory=dict)

    def sent(self) -> dict[SiteId, tuple[int, int]]:
        return {site: self.sent_by_site.get(site, (0, 0)) for site in self.sites}

    def partial_sum(self, min_contributors: int = 1) -> PartialSum:
        assert self.unrounded_sum is not None
        return self.unrounded_sum()


class SecureSummation:
    """The coordinator's side of secure sums among ``sites``; ``exchange`` sends requests and returns replies.

    ``sign`` is the authority's signature, for participant lists. ``federations`` are the members that add the
    sum over sites of their own. ``participants`` is the list of the present run, and ``out`` are the sites
    that left it, with reasons.
    """

    def __init__(
        self,
        sites: tuple[SiteId, ...],
        exchange: Exchange,
        settings: SecureSums,
        sign: Callable[[bytes], bytes] | None = None,
        federations: Iterable[SiteId] = (),
    ) -> None:
        settings.check_sites(len(sites))
        self._federations = frozenset(federations)
        self._sites = tuple(sorted(sites))
        self._send, self._settings, self._sign = exchange, settings, sign
        self._trips = 0  # exchanges made for the present call of ask
        self._nameless = ""  # a run id of our own, for requests without one
        self._at: tuple[str, int, int] = ("", -1, -1)
        self._epoch = ""
        self._keys: dict[SiteId, Keys] = {}
        self._cost: dict[SiteId, tuple[int, int]] = {}  # of keys: counted with the next sum
        self.participants = Participants("", (), ())
        self.out: dict[SiteId, str] = {}

    def begin(self, request_id: RequestId) -> None:
        """Begin or resume a run: ask for keys, and fix its participants."""
        self._trips = 0
        if not self._keys:
            self._fetch_keys(request_id)

    def ask(self, request_id: RequestId, asks: Asks) -> list[Replies[Any]]:
        """Return the replies to asks of which at least one is a total."""
        indices = tuple(i for i, ask in enumerate(asks) if ask.verb == "total")
        self._check(request_id, asks, indices)
        terms = SumParameters(
            request_id=request_id,
            epoch=self._epoch,
            participants=self.participants.digest,
            sites=tuple(site for site in self.participants.sites if site not in self.out),
            threshold=threshold_for(len(self.participants.sites), self._settings.min_sites),
            asked=parts_digest([self._part(asks, i, self._sites[0]) for i in indices]),
        )
        total, replies = self._stages(terms, asks, indices)
        self.out |= total.silent
        return self._gathered(asks, indices, total, replies)

    def _exchange(self, requests: Mapping[SiteId, Request]) -> dict[SiteId, tuple[Reply, ...]]:
        self._trips += 1
        return self._send(requests)

    # ------------------------------------------------------------ before the first stage

    def with_run_id(self, request_id: RequestId) -> RequestId:
        """Return the request id with a run; start a new epoch if a run begins, or repeats a round."""
        run, at, place = request_id.run, self._at, (request_id.round, request_id.exchange)
        if not run:
            if not self._nameless or at[0] != self._nameless or place <= at[1:]:
                self._nameless = secrets.token_hex(8)
            run = self._nameless
        if run != at[0] or (place <= at[1:] and self._keys):  # before there are keys, nothing is repeated
            self._epoch, self._keys, self.out = secrets.token_hex(8), {}, {}
        self._at = (run, *place)
        return replace(request_id, run=run)

    def _check(self, request_id: RequestId, asks: Asks, indices: tuple[int, ...]) -> None:
        """Raise InputError unless all totals are over all sites of the run, with one question for all."""
        for i in indices:
            ask, where = asks[i], f"round {request_id.round}, {asks[i].title}"
            if len(ask.sites) < self._settings.min_sites:
                raise InputError(
                    f"{where}: a secure sum needs at least {self._settings.min_sites} sites, "
                    f"got {len(ask.sites)}"
                )
            if tuple(sorted(ask.sites)) != self._sites:
                raise InputError(
                    f"{where}: a secure sum over {len(ask.sites)} of {len(self._sites)} sites. Sums over "
                    "different sites would disclose single ones, so each sum must be over all sites."
                )
            if not isinstance(ask.question, Question):
                raise InputError(f"{where}: a secure sum needs the same question for every site")

    def _fetch_keys(self, request_id: RequestId) -> None:
        """Ask all sites for keys, and fix the participants of the run, before anything else is asked."""
        sites = self._sites
        part = Part(STAGE, AskKeys(self._epoch), None, 0)
        replies = self._exchange({site: Request(request_id, (part,)) for site in sites})
        silent: dict[SiteId, str] = {}
        left: set[SiteId] = set()
        known: Counter[bytes] = Counter()  # participant lists of this run that sites have from before
        for site in sites:
            (reply,) = replies.get(site, (Refusal("no answer"),))
            if isinstance(reply, Keys) and is_keys(reply) and self._is_ours(reply, request_id.run):
                self._keys[site] = reply
                left |= set(reply.departed)
                known.update([reply.participants.tobytes()] if len(reply.participants) else [])
            else:
                silent[site] = reply.reason if isinstance(reply, Refusal) else "its key was not usable"
        needed = threshold_for(len(sites), self._settings.min_sites)
        if len(self._keys) < needed:
            raise TooFewAnswersError(
                f"round {request_id.round}, secure sum, keys: {len(self._keys)} of {len(sites)} sites, "
                f"{needed} needed; missing: {format_silent_sites(silent)}"
            )
        if known:
            self.participants = self._resumed(known)
        elif self.participants.run != request_id.run:
            self.participants = self._signed(request_id.run)
        strangers = {s: "is not a participant of this run" for s in sites if s not in self.participants.sites}
        strangers |= {
            s: "is not a site of this federation" for s in self.participants.sites if s not in sites
        }
        self.out = dict.fromkeys(left, "left the run before it was resumed") | strangers | silent
        self._cost = {site: (0, size(key)[1]) for site, key in self._keys.items()}

    def _is_ours(self, reply: Keys, run: str) -> bool:
        """True if a site has no participant list of this run, or one that was signed here.

        Without this check a single dishonest site could give all others a list that they refuse.
        """
        if not len(reply.participants):
            return not reply.departed
        try:
            participants: Participants = codec.decode(reply.participants.tobytes(), expect=Participants)
        except CodecError:
            return False
        signed = self._sign is None or self._sign(participants.statement).hex() == participants.signature
        return participants.run == run and signed and set(reply.departed) < set(participants.sites)

    def _resumed(self, known: "Counter[bytes]") -> Participants:
        """The participant list that most sites have of this run; sites with another one refuse it."""
        participants: Participants = codec.decode(known.most_common(1)[0][0], expect=Participants)
        return participants

    def _signed(self, run: str) -> Participants:
        identities = (self._keys[site].data[: stage_messages.KEY].tobytes().hex() for site in self._keys)
        participants = Participants(run, tuple(self._keys), tuple(identities))
        return (
            participants
            if self._sign is None
            else replace(participants, signature=self._sign(participants.statement).hex())
        )

    # ------------------------------------------------------------ the stages

    def _stages(
        self, terms: SumParameters, asks: Asks, indices: tuple[int, ...]
    ) -> tuple[SecureSumResult, list[dict[SiteId, Reply]]]:
        """Exchange the stages of the sum, the masked one with the asks; return also the replies to each."""
        stages = aggregate(terms, self.participants, self._keys, indices, self._federations)
        replies: list[dict[SiteId, Reply]] = [{} for _ in asks]
        received: dict[SiteId, Reply] | None = None
        while True:
            try:
                questions = stages.send(received)  # type: ignore[arg-type]
            except StopIteration as stop:
                return stop.value, replies
            parts: dict[SiteId, list[Part]] = {site: [] for site in questions}
            if any(isinstance(question, AskMasked) for question in questions.values()):
                for i, ask in enumerate(asks):
                    for site in ask.sites if ask.verb == "each" else questions:
                        parts.setdefault(site, []).append(self._part(asks, i, site))
            for site, question in questions.items():
                parts[site].append(Part(STAGE, question, None, 0))
            requests = {site: Request(terms.request_id, tuple(own)) for site, own in parts.items()}
            received = {}
            for site, answers in self._exchange(requests).items():
                for part, reply in zip(parts[site], answers, strict=False):
                    if part.verb == STAGE:
                        received[site] = reply
                    elif part.verb == "each":
                        replies[part.index][site] = reply

    def _part(self, asks: Asks, i: int, site: SiteId) -> Part:
        return Part(asks[i].verb, asks[i].question_for(site), asks[i].transform, i)

    # ------------------------------------------------------------ results

    def _gathered(
        self,
        asks: Asks,
        indices: tuple[int, ...],
        total: SecureSumResult,
        replies: list[dict[SiteId, Reply]],
    ) -> list[Replies[Any]]:
        out: list[Replies[Any]] = [
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
            except ReplyError as error:
                raise ReplyError(f"{asks[i].title}: the secure sum is not possible: {error}") from error
            summed = summed.suppress_below(self._settings.min_cluster_size)
            out[i] = SecureAggregate(
                total.sites,
                [],
                self.out,
                exchanges=self._trips,
                sum=summed,
                sent_by_site=sent,
                unrounded_sum=partial(_at, total, at),
            )
            sent = {}  # counted once for the whole sum, with its first ask
        return out


def _at(total: SecureSumResult, place: int) -> PartialSum:
    return total.unrounded[place]
