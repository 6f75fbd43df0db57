"""Enrolment at the coordinator: an invitation's secret takes one key, which the coordinator then admits.

The secret alone admits nobody. It binds the first key that comes with it, and the coordinator admits that key
after the site has read out its fingerprint. A thief who uses an invitation first is detected on the
telephone, and the site learns at once that somebody else used its invitation.
"""

import datetime
import hashlib
import hmac
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from unpooled.errors import InputError
from unpooled.federation.provisioning.enrolment_wire import ADMITTED, REFUSED, WAITING
from unpooled.federation.provisioning.federation_folder import FederationFolder
from unpooled.federation.provisioning.invitations import Invitation
from unpooled.federation.provisioning.keys import Authority, enrolment_fingerprint, requested_key
from unpooled.federation.provisioning.member_keys import verified_claim
from unpooled.protocol.site_id import SiteId
from unpooled.storage.atomic_files import write_atomically
from unpooled.storage.file_locks import locked

VALID_DAYS = 14  # days that an invitation is valid
_UNKNOWN = "the server does not know this site and secret; ask the coordinator for a new invitation"
_MAX_OTHERS = 5  # keys that came too late and are recorded


@dataclass(frozen=True)
class Enrolment:
    """The state of one site's invitation, in a file of the federation's folder."""

    digest: str  # SHA-256 of the secret: nobody can enrol with the content of this file
    expires: str
    request: str = ""  # of the first key that came with the secret, PEM
    requested_at: str = ""  # when it came
    other_fingerprints: tuple[str, ...] = ()  # fingerprints of keys that came with the secret later
    certificate: str = ""  # once the site is admitted, PEM
    admitted_at: str = ""  # when
    member_key: str = ""  # fingerprint of the key by which a tree of federations identifies the site
    federation: bool = False  # it is a federation

    @property
    def expired(self) -> bool:
        return _now() > datetime.datetime.fromisoformat(self.expires)


def invite(federation: FederationFolder, site: SiteId, *, days: float = VALID_DAYS) -> Path:
    """Write an invitation with a new secret and return its path; earlier ones of this site are void."""
    from unpooled.site.identity import (
        identity_in,
    )  # imported here because a server that enrols does not need it

    secret = secrets.token_urlsafe(24)
    expires = (_now() + datetime.timedelta(days=days)).isoformat(timespec="seconds")
    with _locked(federation):
        _write(federation, site, Enrolment(_digest(secret), expires))
    where = federation.address
    invitation = Invitation(
        where.federation,
        where.host,
        where.port,
        federation.engine_name,
        site,
        federation.root(),
        identity_in(federation.path).public.hex(),
        secret,
        expires,
    )
    path = federation.invitation(site)
    invitation.write(path)
    return path


def enrol(federation: FederationFolder, request: dict[str, Any]) -> dict[str, str]:
    """Answer a site that asks for its certificate: the certificate, that it must wait, or why it is refused.

    A site may ask again and again. Nothing is written unless the secret is right.
    """
    site, secret, pem = (str(request.get(name, "")) for name in ("site", "secret", "request"))
    if site not in federation.sites:
        return _refused(_UNKNOWN)
    with _locked(federation):
        record = _read(federation, site)
        if record is None or not hmac.compare_digest(record.digest, _digest(secret)):
            return _refused(_UNKNOWN)
        try:
            key = requested_key(pem, site)
        except InputError as error:
            return _refused(str(error))
        fingerprint = enrolment_fingerprint(federation.root(), site, key)
        if record.request and fingerprint != fingerprint_of(federation, site, record):
            return _refused(_second(federation, site, record, fingerprint))
        if record.certificate:
            return {"state": ADMITTED, "certificate": record.certificate}
        if record.expired and not record.request:  # a site that asked in time waits, however long it takes
            return _refused(
                f"the invitation was valid until {record.expires}; the coordinator makes a new one: unpooled "
                f"federation invite FOLDER {site} --again"
            )
        claim = verified_claim(request, fingerprint)
        requested_at = record.requested_at or _now().isoformat(timespec="seconds")
        new = replace(
            record, request=pem, requested_at=requested_at, member_key=claim.key, federation=claim.federation
        )
        if new != record:
            _write(federation, site, new)
        return {"state": WAITING}


def _second(federation: FederationFolder, site: SiteId, record: Enrolment, fingerprint: str) -> str:
    """Return the refusal of a second key, and record the key for the coordinator."""
    if fingerprint not in record.other_fingerprints and len(record.other_fingerprints) < _MAX_OTHERS:
        others = (*record.other_fingerprints, fingerprint)
        _write(federation, site, replace(record, other_fingerprints=others))
    return (
        f"the invitation was used already, at {record.requested_at} by a key with the fingerprint "
        f"{fingerprint_of(federation, site, record)}. If that was not this site, somebody else has the "
        f"invitation: call the coordinator, who makes a new one (unpooled federation invite FOLDER {site} "
        "--again)."
    )


def admit(federation: FederationFolder, site: SiteId, fingerprint: str) -> None:
    """Give a waiting site its certificate; raise InputError unless its key has this fingerprint."""
    with _locked(federation):
        record = _read(federation, site)
        if record is None or not record.request:
            raise InputError(
                f"{site} has not asked to be admitted yet. At the site, run unpooled site join FOLDER "
                f"{site}.json."
            )
        if record.certificate:
            raise InputError(f"{site} was already admitted at {record.admitted_at}")
        seen = fingerprint_of(federation, site, record)
        if _bare(fingerprint) != _bare(seen):
            raise InputError(
                f"{site} asked with a key of the fingerprint {seen}, not {fingerprint}: somebody else used "
                f"its invitation. Make a new one with unpooled federation invite {federation.path} {site} "
                "--again."
            )
        key = requested_key(record.request, site)
        certificate = Authority.read(federation.path / "authority").certify(
            site, key, group=federation.address.federation
        )
        _write(
            federation,
            site,
            replace(record, certificate=certificate, admitted_at=_now().isoformat(timespec="seconds")),
        )


def enrolments(federation: FederationFolder) -> dict[SiteId, Enrolment]:
    """Return the state of every site's invitation."""
    records = {site: _read(federation, site) for site in federation.sites}
    return {site: record for site, record in records.items() if record is not None}


def awaiting_admission(federation: FederationFolder) -> dict[SiteId, str]:
    """Return the sites that wait to be admitted, and the fingerprints that they must read out."""
    return {
        site: fingerprint_of(federation, site, record)
        for site, record in enrolments(federation).items()
        if record.request and not record.certificate
    }


def fingerprint_of(federation: FederationFolder, site: SiteId, record: Enrolment) -> str:
    """Return the fingerprint of the key that came with a site's secret."""
    return enrolment_fingerprint(federation.root(), site, requested_key(record.request, site))


def _refused(reason: str) -> dict[str, str]:
    return {"state": REFUSED, "reason": reason}


def _bare(fingerprint: str) -> str:
    return "".join(fingerprint.split()).lower()


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


@contextmanager
def _locked(federation: FederationFolder) -> Iterator[None]:
    """Lock the enrolments: the server writes requests, ``federation admit`` writes certificates."""
    with locked(federation.enrolment):
        yield


def _read(federation: FederationFolder, site: SiteId) -> Enrolment | None:
    try:
        values = json.loads((federation.enrolment / f"{site}.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return Enrolment(**{**values, "other_fingerprints": tuple(values["other_fingerprints"])})


def _write(federation: FederationFolder, site: SiteId, record: Enrolment) -> None:
    data = json.dumps(asdict(record), indent=1) + "\n"
    write_atomically(federation.enrolment / f"{site}.json", data.encode())
