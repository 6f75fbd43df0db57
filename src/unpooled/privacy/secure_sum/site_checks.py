"""What a site checks of what a coordinator says, before it does anything. Refused, or nothing."""

from collections.abc import Mapping

from unpooled.core.envelope import Turn
from unpooled.core.messages import SiteId
from unpooled.errors import Refused
from unpooled.privacy.secure_sum import crypto, sizes
from unpooled.privacy.secure_sum.messages import (
    AskOpened,
    AskShares,
    KeyStatement,
    Statement,
    SumTerms,
    threshold_for,
)

Roster = Mapping[SiteId, bytes]  # everybody's Ed25519 key, pinned by the site itself


def check_terms(terms: SumTerms, turn: Turn, me: SiteId, roster: Roster, min_sites: int) -> None:
    """Terms of this exchange, among enough sites that are all pinned, under no lower threshold than ours."""
    sites = terms.sites
    if terms.turn != turn:
        raise Refused("the terms of the sum are of another exchange")
    if list(sites) != sorted(set(sites)) or me not in sites:
        raise Refused("the sites of the sum are not in order, or this site is not among them")
    if len(sites) < min_sites:
        raise Refused(f"a sum over {len(sites)} sites, this site's minimum is {min_sites}")
    least = threshold_for(len(sites), min_sites)
    if not least <= terms.threshold <= len(sites):
        raise Refused(f"threshold {terms.threshold} of {len(sites)} sites, this site's minimum is {least}")
    if not (terms.rounded == 0 or 16 <= terms.rounded <= 52) or any(abs(e) > 900 for e in terms.scales):
        raise Refused(f"fields rounded to {terms.rounded} bits, over 2^{terms.scales}")
    if terms.scales and not terms.rounded:
        raise Refused("scales for fields that are not rounded")
    strangers = [site for site in sites if site not in roster]
    if strangers:
        raise Refused(f"{strangers[0]} is not on this site's roster")


def peer_keys(
    ask: AskShares, me: SiteId, own: bytes, roster: Roster, known: set[bytes]
) -> dict[SiteId, bytes]:
    """Every peer's key as it came, 96 bytes; all that are not ``known`` are signed by who is pinned."""
    terms, found = ask.terms, {}
    if ask.keys.shape != (len(terms.sites), sizes.SIGNED_KEY):
        raise Refused(f"keys of shape {ask.keys.shape} for {len(terms.sites)} sites")
    for site, row in zip(terms.sites, ask.keys, strict=True):
        data = row.tobytes()
        key, signature = data[: sizes.KEY], data[sizes.KEY :]
        if site == me:
            if key != own:
                raise Refused("the key that is said to be this site's is not")
            continue
        if site.encode() + data not in known:
            statement = KeyStatement(terms.turn.run, terms.epoch, site, key.hex()).bytes
            if not crypto.is_signed(roster[site], statement, signature):
                raise Refused(f"the key of {site} is not signed by the identity that this site has pinned")
        found[site] = data
    return found


def check_list(
    some: tuple[SiteId, ...], whole: tuple[SiteId, ...], what: str, least: int, me: SiteId | None = None
) -> None:
    """A list in order, of no others than may be on it, of at least ``least`` sites, this one among them."""
    if list(some) != sorted(set(some)) or not set(some) <= set(whole):
        raise Refused(f"the {what} are not in order, or not among those who may be")
    if len(some) < least:
        raise Refused(f"{len(some)} {what}, the threshold is {least}")
    if me is not None and me not in some:
        raise Refused(f"this site is not among the {what}")


def check_opening(ask: AskOpened, statement: Statement, least: int, roster: Roster) -> None:
    """Each peer is either in the sum or not, and a threshold of sites has signed who is."""
    both = sorted(set(ask.survivors) & set(ask.dropped))
    if both:
        raise Refused(f"both shares of {both[0]}")
    if ask.dropped != tuple(site for site in statement.sharers if site not in ask.survivors):
        raise Refused("the dropped sites are not the sharers that did not survive")
    check_list(ask.signers, ask.survivors, "signers", least)
    if ask.signatures.shape != (len(ask.signers), sizes.SIGNATURE):
        raise Refused(f"signatures of shape {ask.signatures.shape} from {len(ask.signers)} sites")
    for site, row in zip(ask.signers, ask.signatures, strict=True):
        if not crypto.is_signed(roster[site], statement.bytes, row.tobytes()):
            raise Refused(f"{site} has not signed this list of survivors")
