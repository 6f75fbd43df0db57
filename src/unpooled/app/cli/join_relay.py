"""``unpooled site join --downstream``: a federation takes part in another one, through a relay."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from unpooled.errors import InputError
from unpooled.html.formatting import counted

if TYPE_CHECKING:
    from unpooled.federation.provisioning.federation_folder import FederationFolder
    from unpooled.federation.provisioning.site_folder import SiteFolder
    from unpooled.federation.relay.relay_folder import RelaySettings


def checked_relay(
    place: "SiteFolder",
    invitation: Path | None,
    downstream: Path | None,
    policy: Path | None,
    about_data: bool,
) -> "FederationFolder | None":
    """Return the federation that takes part through a relay; None if a site takes part. Writes nothing.

    ``about_data``: there are options about a site's data.
    """
    from unpooled.federation.provisioning.federation_folder import FederationFolder
    from unpooled.federation.provisioning.invitations import Invitation
    from unpooled.federation.provisioning.names import check_path
    from unpooled.federation.recipient import RECORD
    from unpooled.federation.relay.relay_policy import load_relay_policy
    from unpooled.site.identity import identity_in
    from unpooled.site.table_store import SummaryFolder

    known = place.is_federation
    if downstream is None and not known:
        return None
    if about_data:
        raise InputError(
            f"{place.path}: a federation takes part, which has no data of its own. --data and the options "
            "about reading and grouping are for its members."
        )
    if SummaryFolder(place.path).exists or (not known and place.has_settings):
        raise InputError(f"{place.path} is the folder of a site that answers from data. Name another folder.")
    if downstream is None:
        downstream = Path(place.relay_settings.downstream)
    if (downstream / RECORD).exists() and not (downstream / "federation.json").exists():
        raise InputError(
            f"{downstream}: its runs go over files, and a relay does not ask its members over files. While a "
            "query from above waits, it asks them through the server of their federation. Make one with "
            "unpooled federation init."
        )
    rules = place.policy if policy is None else policy
    federation = FederationFolder.read(check_path(downstream))
    above = [membership.invitation for membership in place.memberships()]
    for upstream in above if invitation is None else [Invitation.read(invitation)]:
        if upstream.authority == identity_in(federation.path).public.hex():
            raise InputError(
                f"{federation.path} is {upstream.federation} itself: a federation cannot be its own member"
            )
    if policy is not None or rules.exists():
        load_relay_policy(rules).check_members(len(federation.sites))
    place.check_audit_trail()
    return federation


def new_relay_settings(place: "SiteFolder", downstream: "FederationFolder") -> "RelaySettings":
    """Write and return the settings of a federation that takes part; enrolment reads them."""
    from unpooled.federation.relay.relay_folder import RelaySettings

    RelaySettings("", str(downstream.path), str(place.path)).write()
    return place.relay_settings


def print_relay(settings: "RelaySettings") -> None:
    """Print what a federation sends upstream as a member of another one."""
    from unpooled.federation.provisioning.federation_folder import FederationFolder

    downstream, rules = FederationFolder.read(Path(settings.downstream)), settings.rules()
    relay = rules.relay
    typer.echo(
        f"federation: {downstream.address.federation} with {counted(len(downstream.sites), 'member')}; the "
        f"relay sends upstream sums over {counted(relay.min_sites, 'site')} or more, one schema, and "
        "fingerprints of keys"
    )
    typer.echo(
        f"rules: {settings.policy}; quorum {relay.quorum:g}, minimum number of people "
        f"{relay.min_people}, columns {relay.columns}"
    )
    if rules.downstream.secure:
        typer.echo("its members use secure sums: the relay reads only their sum")
    if relay.secure:
        typer.echo("upstream it takes part only in secure sums")
    typer.echo(f"its own server queries its members: unpooled federation serve {settings.downstream}")
    typer.echo(f"the relay logs all that it sends in {Path(settings.folder) / 'log.jsonl'}")
