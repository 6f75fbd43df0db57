"""The entry point of a site or a relay: encoded requests come in, encoded responses go out."""

import logging

from unpooled.errors import CodecError, QueryRefusedError, SiteFailedError, UnpooledError
from unpooled.privacy.secure_sum import stage_messages as _stages  # noqa: F401 registers its messages
from unpooled.protocol import codec
from unpooled.protocol.exchange import Request, RequestId, Response
from unpooled.protocol.messages import Refusal, SiteId
from unpooled.site.chain import Chain, Exchange
from unpooled.site.chain_steps import Recorder

log = logging.getLogger(__name__)
NO_REQUEST = RequestId("", 0, 0, 0)  # in responses to messages that cannot be read
MAX_MESSAGE_BYTES = 16 * 2**20


class PendingDecision(str):
    """The reason why a member does not answer yet: a person there must decide. It is not a failure."""


class NotYet(Exception):  # noqa: N818 it is not an error
    """A member cannot answer yet, but will: it is asked again. The message may be disclosed."""


class NoAnswerError(Exception):
    """A member cannot answer this request, and nothing of it is logged. The message may be disclosed."""


class Endpoint:
    """A member of a federation: a name, a chain that answers requests, and the recorder in it."""

    is_federation = False  # True of a relay, whose members are sites or relays

    def __init__(
        self,
        name: SiteId,
        chain: Chain,
        log: Recorder,
        *,
        key: str = "",
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        interval: float = 0.0,
    ) -> None:
        self.name, self.chain, self.log = str(name), chain, log
        self.key = key  # the fingerprint of its public key; "": it has none
        self.max_message_bytes = max_message_bytes
        # seconds: a session gives responses at multiples of it after the request; 0: at once
        self.interval = interval

    def close(self) -> None:
        """Close the log and the ledger, if there are any."""
        self.log.close()

    def answer(self, request: Request) -> Response:
        """Answer a request. A repeated request gets the same response, and nothing is computed again."""
        return self.chain(Exchange(request))

    def receive(self, data: bytes) -> bytes:
        """Answer an encoded request with an encoded response; raise if that fails."""
        request: Request = codec.unwrap(data, expect=Request, limit=self.max_message_bytes)
        try:
            return codec.wrap(self.answer(request))
        except (UnpooledError, NotYet, NoAnswerError):
            raise
        except Exception as error:
            titles = ", ".join(codec.name_of(type(part.question)) for part in request.parts)
            raise SiteFailedError(
                f"site {self.name}, round {request.request_id.round}, {titles}: {error}"
            ) from error

    def respond(self, data: bytes) -> bytes:
        """Answer like ``receive``, but never raise: a failure is a refusal, whose reason contains no data."""
        given = self.answer_or_reason(data)
        return given if isinstance(given, bytes) else codec.wrap(Response(NO_REQUEST, (Refusal(given),)))

    def answer_or_reason(self, data: bytes) -> bytes | str:
        """Return an encoded response, or the reason why there is none; a failure is a refusal."""
        try:
            return self.receive(data)
        except CodecError as error:  # no request is known that an answer could name
            return f"not a message for this site: {error}"
        except NotYet as error:
            return PendingDecision(str(error))
        except NoAnswerError as error:
            return str(error)
        except Exception as error:
            log.error("a query failed: %s", error)
            request: Request = codec.unwrap(data, expect=Request)
            cause = error.__cause__ if isinstance(error, SiteFailedError) else error
            reason = f"failed with {type(cause).__name__}; the site's own log has the details"
            return codec.wrap(self.log.failed(Exchange(request), QueryRefusedError(reason)))
