"""``unpooled site join --downstream``: a coordinator joins a federation above with its own."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from unpooled.errors import InputError
from unpooled.html.html import counted

if TYPE_CHECKING:
    from unpooled.federation.provisioning.federation_folder import FederationFolder
    from unpooled.federation.provisioning.site_folder import SiteFolder
    from unpooled.federation.relay.relay_settings import RelaySettings

_Checked = tuple["FederationFolder", Path | None]  # the federation below, and the file of its rules


def checked_relay(
    site: "SiteFolder", invitation: Path, federation: Path | None, policy: Path | None, given: bool
) -> _Checked | None:
    """The federation that is to take part, and its rules; None if a site is. Nothing is written yet.

    ``given``: options were given that are about a site's data.
    """
    from unpooled.federation.provisioning.federation_folder import FederationFolder
    from unpooled.federation.provisioning.invitations import Invitation
    from unpooled.federation.provisioning.names import check_path
    from unpooled.federation.relay.rules_file import load_relay_policy
    from unpooled.site.identity import identity_in
    from unpooled.site.table_store import SummaryFolder

    known = (site.path / "invitation.json").exists() and site.is_federation
    if federation is None and not known:
        return None
    if given:
        raise InputError(
            f"{site.path}: a federation takes part, which has no data of its own: --data and the options "
            "about reading and copying are for its members"
        )
    if SummaryFolder(site.path).exists or (
        not known and (site.path / "invitation.json").exists() and site.has_settings
    ):
        raise InputError(
            f"{site.path} is the folder of a site that answers from data; --folder names another folder"
        )
    if federation is None:
        federation, policy = Path(site.relay_settings.federation), policy or _path(site.relay_settings.policy)
    elif known and policy is None:
        policy = _path(site.relay_settings.policy)
    downstream = FederationFolder.read(check_path(federation))
    above = Invitation.read(invitation) if invitation.is_file() else site.invitation
    if above.authority == identity_in(downstream.path).public.hex():
        raise InputError(
            f"{downstream.path} is {above.federation} itself: a federation is no member of itself"
        )
    if policy is not None:
        load_relay_policy(policy).check_members(len(downstream.sites))
    return downstream, policy


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def new_relay_settings(
    site: "SiteFolder", downstream: "FederationFolder", policy: Path | None
) -> "RelaySettings":
    """Keep the settings of a federation that takes part; they say what it is when it enrols."""
    from unpooled.federation.relay.relay_settings import RelaySettings

    invitation = site.invitation
    settings = RelaySettings(
        site=invitation.site,
        federation=str(downstream.path),
        folder=str(site.path),
        policy=None if policy is None else str(policy.absolute()),
        authority=invitation.authority,
    )
    site.write_settings(settings)
    return settings


def show_relay(settings: "RelaySettings") -> None:
    """Print what a federation passes up as a member of another one."""
    from unpooled.federation.provisioning.federation_folder import FederationFolder

    downstream, rules = FederationFolder.read(Path(settings.federation)), settings.rules()
    relay = rules.relay
    typer.echo(
        f"federation: {downstream.address.federation} with {counted(len(downstream.sites), 'member')}; what goes up "
        f"are sums over {counted(relay.min_sites, 'site')} or more, one schema, and fingerprints of keys"
    )
    typer.echo(
        f"rules: {settings.policy or 'the usual'}; quorum {relay.quorum:g}, fewest persons "
        f"{relay.min_people}, columns {relay.columns}"
    )
    if rules.downstream.secure:
        typer.echo("its members sum securely: the region reads their sum alone")
    if relay.secure:
        typer.echo("above it takes part in secure sums alone")
    typer.echo(f"its members are asked by its own server: unpooled federation serve {settings.federation}")
    typer.echo(f"what goes up is logged in {Path(settings.folder) / 'log.jsonl'}")
