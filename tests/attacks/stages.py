"""A coordinator that drives the stages of a secure sum one by one, through the doors of real sites."""

from dataclasses import replace

from unpooled.core import codec
from unpooled.core.exchange import STAGE, Answer, Envelope, Part, Turn
from unpooled.core.messages import Refusal
from unpooled.errors import TooFewAnswers
from unpooled.privacy.secure_sum import threshold_for
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.privacy.secure_sum.messages import AskKeys, AskMasked, Roster, SumTerms, asked
from unpooled.privacy.secure_sum.tally import tally

AUTHORITY = Identity.new()


class SlowCoordinator:
    """It stops between two stages for as long as it likes, and begins an exchange anew with other keys."""

    def __init__(self, sites):
        self.sites, self.refused = sites, {}
        self._roster = None

    def _post(self, name, turn, *parts):
        wire = codec.wrap(Envelope(turn, parts))
        reply = codec.unwrap(self.sites[name].respond(wire), expect=Answer).replies[-1]
        if isinstance(reply, Refusal):
            self.refused[name] = reply.reason
        return reply

    def begin(self, turn, question, view=None, epoch="e"):
        names = sorted(self.sites)
        keys = {name: self._post(name, turn, Part(STAGE, AskKeys(epoch), None, 0)) for name in names}
        if self.refused:
            return
        if self._roster is None:
            identities = tuple(keys[name].data[:32].tobytes().hex() for name in names)
            roster = Roster(turn.run, tuple(names), identities)
            self._roster = replace(roster, signature=AUTHORITY.sign(roster.statement).hex())
        self._part, self._turn, self._came = Part("total", question, view, 0), turn, None
        terms = SumTerms(
            turn, epoch, self._roster.digest, tuple(names), threshold_for(len(names)), asked([self._part])
        )
        self._stages = tally(terms, self._roster, keys, (0,))

    def stage(self):
        """Ask one stage; the sum at the end, else None."""
        try:
            asks = self._stages.send(self._came)
        except StopIteration as stop:
            return stop.value.sums[0]
        self._came = {}
        for name, question in asks.items():
            about = [self._part] if isinstance(question, AskMasked) else []
            self._came[name] = self._post(name, self._turn, *about, Part(STAGE, question, None, 0))
        return None

    def rest(self):
        """All stages that are left: the sum, or None if too many sites refuse."""
        try:
            while not self.refused:
                if (found := self.stage()) is not None:
                    return found
        except TooFewAnswers:
            pass
        return None


def turn(exchange=0, run="r"):
    return Turn(run, 0, 0, exchange)
