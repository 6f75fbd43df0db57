"""``unpooled site join --downstream``: a federation takes part in another one, through a relay."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from unpooled.app.cli.site_commands import POLICY
from unpooled.errors import InputError
from unpooled.html.html import counted

if TYPE_CHECKING:
    from unpooled.federation.provisioning.federation_folder import FederationFolder
    from unpooled.federation.provisioning.site_folder import SiteFolder
    from unpooled.federation.relay.relay_settings import RelaySettings

_Checked = tuple["FederationFolder", Path | None]  # the downstream federation, and the file of its rules


def checked_relay(
    place: "SiteFolder",
    invitation: Path | None,
    downstream: Path | None,
    policy: Path | None,
    about_data: bool,
) -> _Checked | None:
    """Return the federation that takes part, and its rules; None if a site takes part. Writes nothing.

    ``about_data``: there are options about a site's data.
    """
    from unpooled.federation.provisioning.federation_folder import FederationFolder
    from unpooled.federation.provisioning.invitations import Invitation
    from unpooled.federation.provisioning.names import check_path
    from unpooled.federation.relay.rules_file import load_relay_policy
    from unpooled.site.identity import identity_in
    from unpooled.site.table_store import SummaryFolder

    known = (place.path / "invitation.json").exists() and place.is_federation
    if downstream is None and not known:
        return None
    if about_data:
        raise InputError(
            f"{place.path}: a federation takes part, which has no data of its own. --data and the options "
            "about reading and grouping are for its members."
        )
    if SummaryFolder(place.path).exists or (
        not known and (place.path / "invitation.json").exists() and place.has_settings
    ):
        raise InputError(
            f"{place.path} is the folder of a site that answers from data. Name another folder with --folder."
        )
    if downstream is None:
        downstream = Path(place.relay_settings.downstream)
    if policy is None and known:
        policy = _path(place.relay_settings.policy)
    if policy is None and (place.path / POLICY).exists():
        policy = place.path / POLICY
    federation = FederationFolder.read(check_path(downstream))
    upstream = Invitation.read(invitation) if invitation is not None else place.invitation
    if upstream.authority == identity_in(federation.path).public.hex():
        raise InputError(
            f"{federation.path} is {upstream.federation} itself: a federation cannot be a member of itself"
        )
    if policy is not None:
        load_relay_policy(policy).check_members(len(federation.sites))
    return federation, policy


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def new_relay_settings(
    place: "SiteFolder", downstream: "FederationFolder", policy: Path | None
) -> "RelaySettings":
    """Write and return the settings of a federation that takes part; enrolment reads them."""
    from unpooled.federation.relay.relay_settings import RelaySettings

    invitation = place.invitation
    settings = RelaySettings(
        site=invitation.site,
        downstream=str(downstream.path),
        folder=str(place.path),
        policy=None if policy is None else str(policy.absolute()),
        authority=invitation.authority,
    )
    place.write_settings(settings)
    return settings


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
        f"rules: {settings.policy or 'the defaults'}; quorum {relay.quorum:g}, minimum number of people "
        f"{relay.min_people}, columns {relay.columns}"
    )
    if rules.downstream.secure:
        typer.echo("its members use secure sums: the relay reads only their sum")
    if relay.secure:
        typer.echo("upstream it takes part only in secure sums")
    typer.echo(f"its own server queries its members: unpooled federation serve {settings.downstream}")
    typer.echo(f"the relay logs all that it sends in {Path(settings.folder) / 'log.jsonl'}")
