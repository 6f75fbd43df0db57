"""Small files that a coordinator and a site exchange: an invitation, a request, the approved invitation.

The coordinator sends an invitation. The site makes its key, keeps it, and sends a request back. The
coordinator approves, and the invitation with a certificate in it is all the site needs. None of the three
holds a secret, unless the coordinator made the site's key too.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from unpooled.core.disk import write_atomically
from unpooled.errors import BadInput
from unpooled.runtimes.engine import Address


class _Letter:
    """A JSON file of a known kind."""

    KIND = ""

    def write(self, path: Path) -> None:
        values = {"unpooled": self.KIND, "version": 1, **asdict(self)}  # type: ignore[call-overload]
        write_atomically(path, (json.dumps(values, indent=1) + "\n").encode())

    @classmethod
    def read(cls, path: Path) -> Self:
        try:
            values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            kind, version = values.pop("unpooled"), values.pop("version")
        except (ValueError, KeyError, AttributeError, TypeError):
            raise BadInput(f"{path}: not {_a(cls.KIND)} of a federation") from None
        if (kind, version) != (cls.KIND, 1):
            raise BadInput(f"{path}: {_a(str(kind))} of version {version}, not {_a(cls.KIND)} of version 1")
        try:
            return cls(**values)
        except TypeError:
            raise BadInput(f"{path}: {_a(cls.KIND)} that lacks something or has too much") from None


@dataclass(frozen=True)
class Invitation(_Letter):
    """An invitation: the federation's address, the invited site, and the authority's certificate."""

    KIND = "invitation"

    federation: str
    host: str
    port: int
    engine: str
    site: str
    root: str  # certificate of the federation's authority
    authority: str = ""  # key that signs rosters of secure sums and heads of logs, hexadecimal
    certificate: str = ""  # of the site; "": to be requested
    key: str = ""  # only where the coordinator made it

    @property
    def address(self) -> Address:
        return Address(self.federation, self.host, self.port)

    def approved(self, certificate: str, key: str = "") -> "Invitation":
        return replace(self, certificate=certificate, key=key)


@dataclass(frozen=True)
class Request(_Letter):
    """A site's request for a certificate of the key that it made."""

    KIND = "request"

    federation: str
    site: str
    request: str


def _a(noun: str) -> str:
    return f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"
