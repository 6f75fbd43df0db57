"""The digest of a message: what two requests have in common if they must get the same answer."""

from dataclasses import replace
from functools import lru_cache
from hashlib import sha256

from unpooled.protocol import codec
from unpooled.protocol.exchange import Request
from unpooled.protocol.messages import Message


@lru_cache(maxsize=8)  # by identity: several steps need the digest of one request
def request_digest(request: Request) -> str:
    """Return a digest of a request, without the countersigned head that came with it."""
    return digest(replace(request, countersigned=""))


@lru_cache(maxsize=32)
def digest(message: Message) -> str:
    """Return a short digest of a message's content."""
    return sha256(codec.encode(message)).hexdigest()[:32]
