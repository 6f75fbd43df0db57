"""Diagnosis of a site that does not reach its federation: try to connect, and explain the failure."""

import ssl
from pathlib import Path

from unpooled.federation.engine import Address
from unpooled.federation.provisioning.dial import explain_connection_error, open_connection

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


def diagnose_connection(where: Address, certificate: Path, key: Path, root: Path) -> str:
    """Connect to the server as the engine would, and return a sentence on what failed."""
    context = ssl.create_default_context(cafile=str(root))
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["h2"])
    try:
        with (
            open_connection(where) as plain,
            context.wrap_socket(plain, server_hostname=where.host) as secure,
        ):
            secure.sendall(_PREFACE)  # a server reports a refused certificate only after the first data
            secure.recv(1)
    except ssl.SSLCertVerificationError as error:
        return explain_connection_error(error, where)
    except ssl.SSLError as error:
        return f"the server refuses this site's certificate ({error.reason})"
    except OSError as error:
        return explain_connection_error(error, where)
    return "the server is reached and accepts the certificate, but refuses this site"
