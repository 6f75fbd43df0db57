"""Checks of a site before it takes part in a secure sum: rosters, terms, keys, lists; each raises Refused."""

from collections.abc import Mapping

from unpooled.core.exchange import Turn
from unpooled.core.messages import SiteId
from unpooled.errors import Refused
from unpooled.privacy.secure_sum import crypto, messages
from unpooled.privacy.secure_sum.messages import (
    AskOpened,
    AskShares,
    KeyStatement,
    Roster,
    Statement,
    SumTerms,
    from_hex,
    threshold_for,
)

Identities = Mapping[SiteId, bytes]  # the Ed25519 key of every site


def check_roster(
    roster: Roster, run: str, me: SiteId, own: bytes, authority: bytes | None, pinned: Identities
) -> None:
    """Refuse a roster of another run, not signed by the authority, or with other keys than were pinned."""
    sites, keys = roster.sites, roster.identities
    if roster.run != run:
        raise Refused("the roster is that of another run")
    if list(sites) != sorted(set(sites)) or len(keys) != len(sites) or len(set(keys)) < len(keys):
        raise Refused("the sites of the roster are not in order, or two of them have one key")
    if not all(len(from_hex(key)) == messages.KEY and key == key.lower() for key in keys):
        raise Refused("the roster holds a key that is not one")
    if roster.keys.get(me) != own:
        raise Refused("the roster does not hold this site's own key")
    if authority is not None and not crypto.is_signed(
        authority, roster.statement, from_hex(roster.signature)
    ):
        raise Refused("the roster is not signed by the authority of this federation")
    for site, key in roster.keys.items():
        if pinned.get(site, key) != key:
            raise Refused(
                f"{site} has another key than this site saw first; if its officer confirms the new one, "
                f"unpooled sums forget FOLDER {site} lets it in"
            )


def check_terms(
    terms: SumTerms, turn: Turn, me: SiteId, roster: Roster, present: tuple[SiteId, ...], min_sites: int
) -> None:
    """Refuse terms of another exchange or roster, with too few sites, or with too low a threshold.

    ``present``: the sites that have not left the run. The threshold is that of the whole roster, however many
    have left, so at most a third of the sites can leave a run.
    """
    sites, everybody = terms.sites, len(roster.sites)
    if terms.turn != turn:
        raise Refused("the terms of the sum are of another exchange")
    if terms.roster != roster.digest:
        raise Refused("the terms of the sum are of another roster")
    if list(sites) != sorted(set(sites)) or me not in sites:
        raise Refused("the sites of the sum are not in order, or this site is not among them")
    if everybody < min_sites:
        raise Refused(f"a sum over {everybody} sites, this site's minimum is {min_sites}")
    strangers = [site for site in sites if site not in present]
    if strangers:
        why = "left this run" if strangers[0] in roster.sites else "is not on the roster"
        raise Refused(f"{strangers[0]} {why}")
    least = threshold_for(everybody, min_sites)
    if not least <= terms.threshold <= len(sites):
        raise Refused(
            f"threshold {terms.threshold} for {len(sites)} of {everybody} sites, "
            f"this site's minimum is {least}"
        )


def peer_keys(
    ask: AskShares, me: SiteId, own: bytes, identities: Identities, known: set[bytes]
) -> dict[SiteId, bytes]:
    """Every peer's key as received; signatures are checked unless the key is in ``known``."""
    terms, found = ask.terms, {}
    if ask.keys.shape != (len(terms.sites), messages.SIGNED_KEY):
        raise Refused(f"keys of shape {ask.keys.shape} for {len(terms.sites)} sites")
    for site, row in zip(terms.sites, ask.keys, strict=True):
        data = row.tobytes()
        identity, key = data[: messages.KEY], data[messages.KEY : 2 * messages.KEY]
        if identity != identities[site]:
            raise Refused(f"the key of {site} comes with another identity than the roster's")
        if site == me:
            if key != own:
                raise Refused("the key that is said to be this site's is not")
            continue
        if site.encode() + data not in known:
            statement = KeyStatement(terms.turn.run, terms.epoch, site, key.hex()).bytes
            if not crypto.is_signed(identity, statement, data[2 * messages.KEY :]):
                raise Refused(f"the key of {site} is not signed by its identity")
        found[site] = data
    return found


def check_list(
    some: tuple[SiteId, ...], whole: tuple[SiteId, ...], what: str, least: int, me: SiteId | None = None
) -> None:
    """Refuse a list that is unsorted, not within ``whole``, shorter than ``least``, or without ``me``."""
    if list(some) != sorted(set(some)) or not set(some) <= set(whole):
        raise Refused(f"the {what} are not in order, or not among those who may be")
    if len(some) < least:
        raise Refused(f"{len(some)} {what}, the threshold is {least}")
    if me is not None and me not in some:
        raise Refused(f"this site is not among the {what}")


def check_opening(ask: AskOpened, statement: Statement, least: int, identities: Identities) -> None:
    """Refuse to open unless each peer is either in the sum or not, and enough sites signed the list."""
    both = sorted(set(ask.survivors) & set(ask.dropped))
    if both:
        raise Refused(f"both shares of {both[0]}")
    if ask.dropped != tuple(site for site in statement.sharers if site not in ask.survivors):
        raise Refused("the dropped sites are not the sharers that did not survive")
    check_list(ask.signers, ask.survivors, "signers", least)
    if ask.signatures.shape != (len(ask.signers), messages.SIGNATURE):
        raise Refused(f"signatures of shape {ask.signatures.shape} from {len(ask.signers)} sites")
    for site, row in zip(ask.signers, ask.signatures, strict=True):
        if not crypto.is_signed(identities[site], statement.bytes, row.tobytes()):
            raise Refused(f"{site} has not signed this list of survivors")
