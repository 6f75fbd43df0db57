"""Diagnosis of a site that does not reach its federation: try to connect, and explain the failure."""

import datetime
import ssl
from pathlib import Path

from cryptography import x509

from unpooled.federation.engine import Address
from unpooled.federation.provisioning.dial import explain_connection_error, open_connection

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


def diagnose_connection(where: Address, certificate: Path, key: Path, root: Path) -> str:
    """Connect to the server as the engine would, and return a sentence on what failed."""
    if wrong := _wrong_dates(certificate):
        return wrong
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


def _wrong_dates(certificate: Path) -> str:
    """Return a sentence if the site's certificate is not valid by the clock of this machine, else ""."""
    own = x509.load_pem_x509_certificate(certificate.read_bytes())
    first, last = own.not_valid_before_utc, own.not_valid_after_utc
    now = datetime.datetime.now(datetime.UTC)
    if first <= now <= last:
        return ""
    dates = f"{first:%Y-%m-%d} to {last:%Y-%m-%d}"
    return (
        f"the certificate of this site is valid from {dates}, and the clock of this machine says "
        f"{now:%Y-%m-%d %H:%M} UTC. If the clock is right, ask the coordinator for a new invitation."
    )
