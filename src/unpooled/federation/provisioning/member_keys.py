"""The keys by which a tree of federations identifies its members, as they come with enrolments.

At its enrolment a site proves that it holds the key of its folder (``identity.key``), which is the same in
every federation that it joins with this folder. The coordinator records the fingerprint, and whether the
member is a federation.
"""

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from unpooled.protocol.crypto_labels import Label
from unpooled.protocol.site_id import SiteId

if TYPE_CHECKING:
    from unpooled.federation.provisioning.federation_folder import FederationFolder
    from unpooled.privacy.secure_sum.crypto import Identity

KEY, PROOF, FEDERATION = "member_key", "proof", "federation"  # in a request to be enrolled


@dataclass(frozen=True)
class MemberClaim:
    """A member's claim about itself: the fingerprint of its key, and whether it is a federation."""

    key: str = ""  # "": it has none, or did not prove it
    federation: bool = False


def member_claim(identity: "Identity", enrolment: str, federation: bool) -> dict[str, str]:
    """Return a member's claim: its public key, a proof of the private key, and whether it is a federation."""
    claim = {KEY: identity.public.hex(), FEDERATION: "yes" if federation else ""}
    return {**claim, PROOF: identity.sign(_statement(enrolment)).hex()}


def verified_claim(request: dict[str, Any], enrolment: str) -> MemberClaim:
    """Return the proven claim of a member; ``enrolment`` is the fingerprint of the key that it enrols."""
    federation = request.get(FEDERATION) == "yes"
    try:
        public = bytes.fromhex(str(request.get(KEY, "")))
        proof = bytes.fromhex(str(request.get(PROOF, "")))
        Ed25519PublicKey.from_public_bytes(public).verify(proof, _statement(enrolment))
    except (ValueError, InvalidSignature):
        return MemberClaim("", federation)
    return MemberClaim(sha256(Label.MEMBER_FINGERPRINT + public).hexdigest()[:40], federation)


def _statement(enrolment: str) -> bytes:
    return Label.MEMBERSHIP_PROOF + enrolment.encode()


def known_members(federation: "FederationFolder") -> tuple[dict[SiteId, str], tuple[SiteId, ...]]:
    """Return the known fingerprints of the sites' keys, and the members that are federations."""
    from unpooled.federation.provisioning.enrolment import enrolments

    records = enrolments(federation)
    federations = tuple(site for site, record in records.items() if record.federation)
    keys = {
        site: record.member_key
        for site, record in records.items()
        if record.member_key and not record.federation
    }
    return keys, federations
