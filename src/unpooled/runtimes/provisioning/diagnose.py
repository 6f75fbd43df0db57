"""Diagnosis of a site that does not reach its federation: try to connect, and explain the failure."""

import socket
import ssl
from pathlib import Path

from unpooled.runtimes.engine import Address

_PATIENCE = 5.0  # seconds
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


def obstacle(where: Address, certificate: Path, key: Path, root: Path) -> str:
    """Connect to the server as the engine would; a sentence on what failed."""
    context = ssl.create_default_context(cafile=str(root))
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection((where.host, where.port), timeout=_PATIENCE) as plain,
            context.wrap_socket(plain, server_hostname=where.host) as secure,
        ):
            secure.sendall(_PREFACE)  # a server reports a refused certificate only after the first data
            secure.recv(1)
    except ssl.SSLCertVerificationError as error:
        return f"the server's certificate is not of this federation ({error.verify_message})"
    except ssl.SSLError as error:
        return f"the server refuses this site's certificate ({error.reason})"
    except ConnectionRefusedError:
        return "nothing listens there; the server is not up, or a firewall refuses"
    except TimeoutError:
        return "no answer; a firewall may be in the way"
    except socket.gaierror:
        return f"the name {where.host} is not known here"
    except OSError as error:
        return f"the network does not let it through ({error.strerror or error})"
    return "the server is reached and knows the certificate, but does not let this site in"
