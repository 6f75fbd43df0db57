"""A coordinator that drives the stages of a secure sum one by one, through real sites."""

from dataclasses import replace
from typing import Any

from unpooled.errors import TooFewAnswersError
from unpooled.privacy.secure_sum import threshold_for
from unpooled.privacy.secure_sum.aggregate import aggregate
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.privacy.secure_sum.stage_messages import AskKeys, AskMasked, Participants, SumParameters
from unpooled.protocol import codec
from unpooled.protocol.exchange import STAGE, Part, Request, RequestId, Response, parts_digest
from unpooled.protocol.messages import Refusal

AUTHORITY = Identity.new()


class SlowCoordinator:
    """It stops between two stages for as long as it likes, and begins an exchange anew with other keys."""

    def __init__(self, sites, authority=AUTHORITY):
        self.sites, self.refused, self._authority = sites, {}, authority
        self._participants = None

    def _post(self, name, request_id, *parts):
        wire = codec.wrap(Request(request_id, parts))
        reply = codec.unwrap(self.sites[name].respond(wire), expect=Response).replies[-1]
        if isinstance(reply, Refusal):
            self.refused[name] = reply.reason
        return reply

    def begin(self, request_id, question, transform=None, epoch="e"):
        names = sorted(self.sites)
        keys = {name: self._post(name, request_id, Part(STAGE, AskKeys(epoch), None, 0)) for name in names}
        if self.refused:
            return
        if self._participants is None:
            identities = tuple(keys[name].data[:32].tobytes().hex() for name in names)
            participants = Participants(request_id.run, tuple(names), identities)
            self._participants = replace(
                participants, signature=self._authority.sign(participants.statement).hex()
            )
        self._part, self._request_id = Part("total", question, transform, 0), request_id
        self._came: Any = None
        terms = SumParameters(
            request_id,
            epoch,
            self._participants.digest,
            tuple(names),
            threshold_for(len(names)),
            parts_digest([self._part]),
        )
        self._stages = aggregate(terms, self._participants, keys, (0,))

    def stage(self):
        """Ask one stage; the sum at the end, else None."""
        try:
            asks = self._stages.send(self._came)
        except StopIteration as stop:
            return stop.value.sums[0]
        self._came = {}
        for name, question in asks.items():
            about = [self._part] if isinstance(question, AskMasked) else []
            self._came[name] = self._post(name, self._request_id, *about, Part(STAGE, question, None, 0))
        return None

    def rest(self):
        """All stages that are left: the sum, or None if too many sites refuse."""
        try:
            while not self.refused:
                if (found := self.stage()) is not None:
                    return found
        except TooFewAnswersError:
            pass
        return None


def request_id(exchange=0, run="r"):
    return RequestId(run, 0, 0, exchange)
