"""The invitation: the one small file that a coordinator sends to a site.

It holds the certificate of the federation's authority, with which the site authenticates the server from the
first byte on, and a secret that enrols exactly one key. It holds no key of a site: the site makes its own.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unpooled.errors import InputError
from unpooled.federation.engine import ENGINES, Address
from unpooled.federation.provisioning.keys import certified_key
from unpooled.federation.provisioning.names import check_host, check_name, check_port
from unpooled.storage.atomic_files import write_atomically
from unpooled.storage.file_format import FORMAT, format_error

_KIND = "invitation"


@dataclass(frozen=True)
class Invitation:
    """An invitation: the federation's address, the invited site, the authority, and the one-time secret."""

    federation: str
    host: str
    port: int
    engine: str
    site: str
    root: str  # certificate of the federation's authority, PEM
    authority: str  # key that signs participant lists of secure sums and log heads, hexadecimal
    secret: str
    expires: str  # date and time, UTC, until which the secret enrols a key

    @property
    def address(self) -> Address:
        return Address(self.federation, self.host, self.port)

    def write(self, path: Path) -> None:
        """Write the file; only its owner can read it."""
        values = {"unpooled": _KIND, "format": FORMAT, **asdict(self)}
        write_atomically(path, (json.dumps(values, indent=1) + "\n").encode())

    @classmethod
    def read(cls, path: Path) -> "Invitation":
        """Read an invitation. The file is not trusted: names that are paths, and the like, are refused."""
        try:
            values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            kind, written_format = values.pop("unpooled"), values.pop("format", None)
        except (ValueError, KeyError, AttributeError, TypeError):
            raise InputError(f"{path}: not an invitation to a federation") from None
        if kind != _KIND:
            raise InputError(f"{path}: not an invitation to a federation")
        if problem := format_error(written_format):
            raise InputError(
                f"{path}: an invitation of {problem}. Ask the coordinator for an invitation of the release "
                "that is installed here."
            )
        try:
            invitation = cls(**values)
            if not all(isinstance(value, str) for name, value in values.items() if name != "port"):
                raise TypeError
            check_name(invitation.federation, "federation")
            check_name(invitation.site, "site")
            check_host(invitation.host)
            check_port(invitation.port)
            certified_key(invitation.root)
            bytes.fromhex(invitation.authority)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        except TypeError:
            raise InputError(f"{path}: an invitation with missing, unknown or wrong entries") from None
        except ValueError:
            raise InputError(f"{path}: an invitation whose certificate or key is damaged") from None
        if invitation.engine not in ENGINES:
            raise InputError(f"{path}: engine must be one of {', '.join(ENGINES)}, got {invitation.engine!r}")
        return invitation
