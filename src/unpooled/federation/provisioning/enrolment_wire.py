"""Enrolment on the wire: one question and one answer over TLS, at the server's one address.

The site verifies the server from the first byte on, with the authority's certificate from its invitation.
"""

import json
import socket
import ssl
from collections.abc import Mapping
from typing import Any

from unpooled.errors import InputError
from unpooled.federation.provisioning.dial import open_connection
from unpooled.federation.provisioning.invitations import Invitation

PROTOCOL = "unpooled-enrolment/1"  # the application protocol by which the server tells it from the engine's
WAITING, ADMITTED, REFUSED = "waiting", "admitted", "refused"  # the states in an answer
LIMIT = 16_384  # bytes of a question, or of an answer


def ask(invitation: Invitation, request: str, member: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the server's answer to a certificate request; ``member`` is the site's claim (member_keys).

    Raises OSError if the server is not reached, and ssl.SSLCertVerificationError, before anything is sent,
    unless the authority in the invitation has certified the server.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=invitation.root)
    context.set_alpn_protocols([PROTOCOL])
    question = {"site": invitation.site, "secret": invitation.secret, "request": request, **(member or {})}
    with (
        open_connection(invitation.address) as plain,
        context.wrap_socket(plain, server_hostname=invitation.host) as secure,
    ):
        if secure.selected_alpn_protocol() != PROTOCOL:
            raise ConnectionError("the server there does not enrol sites")
        secure.sendall(json.dumps(question).encode() + b"\n")
        answer = _line(secure)
    try:
        fields = json.loads(answer)
        return {str(name): str(value) for name, value in fields.items()}
    except (ValueError, AttributeError):
        raise InputError(
            "the server's answer to the enrolment cannot be read. Is another release of unpooled installed "
            "there?"
        ) from None


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    """Return the server's side of TLS, for files of its certificate and key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols([PROTOCOL])
    return context


def _line(secure: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        more = secure.recv(4096)
        if not more or len(data) > LIMIT:
            raise ConnectionError("the server ended the connection")
        data += more
    return data
