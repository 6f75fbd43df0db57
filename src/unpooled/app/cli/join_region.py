"""``unpooled join --federation``: a coordinator joins a federation above with its own."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from unpooled.errors import BadInput
from unpooled.pages.markup import counted

if TYPE_CHECKING:
    from unpooled.runtimes.provisioning.federation_folder import FederationFolder
    from unpooled.runtimes.provisioning.site_folder import SiteFolder
    from unpooled.runtimes.region.settings import RegionSettings

_Checked = tuple["FederationFolder", Path | None]  # the federation below, and the file of its rules


def checked_region(
    site: "SiteFolder", invitation: Path, federation: Path | None, policy: Path | None, given: bool
) -> _Checked | None:
    """The federation that is to take part, and its rules; None if a site is. Nothing is written yet.

    ``given``: options were given that are about a site's data.
    """
    from unpooled.runtimes.provisioning.federation_folder import FederationFolder
    from unpooled.runtimes.provisioning.invitations import Invitation
    from unpooled.runtimes.provisioning.names import check_path
    from unpooled.runtimes.region.rules import load_rules
    from unpooled.site.copy_folder import CopyFolder
    from unpooled.site.identity import identity_in

    known = (site.path / "invitation.json").exists() and site.is_federation
    if federation is None and not known:
        return None
    if given:
        raise BadInput(
            f"{site.path}: a federation takes part, which has no data of its own: --data and the options "
            "about reading and copying are for its members"
        )
    if CopyFolder(site.path).exists or (
        not known and (site.path / "invitation.json").exists() and site.has_settings
    ):
        raise BadInput(
            f"{site.path} is the folder of a site that answers from data; --folder names another folder"
        )
    if federation is None:
        federation, policy = Path(site.region.federation), policy or _path(site.region.policy)
    elif known and policy is None:
        policy = _path(site.region.policy)
    below = FederationFolder.read(check_path(federation))
    above = Invitation.read(invitation) if invitation.is_file() else site.invitation
    if above.authority == identity_in(below.path).public.hex():
        raise BadInput(f"{below.path} is {above.federation} itself: a federation is no member of itself")
    if policy is not None:
        load_rules(policy).check_members(len(below.sites))
    return below, policy


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def region_settings(site: "SiteFolder", below: "FederationFolder", policy: Path | None) -> "RegionSettings":
    """Keep the settings of a federation that takes part; they say what it is when it enrols."""
    from unpooled.runtimes.region.settings import RegionSettings

    invitation = site.invitation
    settings = RegionSettings(
        site=invitation.site,
        federation=str(below.path),
        folder=str(site.path),
        policy=None if policy is None else str(policy.absolute()),
        authority=invitation.authority,
    )
    site.keep_settings(settings)
    return settings


def show_region(settings: "RegionSettings") -> None:
    """Print what a federation passes up as a member of another one."""
    from unpooled.runtimes.provisioning.federation_folder import FederationFolder

    below, rules = FederationFolder.read(Path(settings.federation)), settings.rules()
    relay = rules.relay
    typer.echo(
        f"federation: {below.address.federation} with {counted(len(below.sites), 'member')}; what goes up "
        f"are sums over {counted(relay.min_sites, 'site')} or more, one schema, and fingerprints of keys"
    )
    typer.echo(
        f"rules: {settings.policy or 'the usual'}; quorum {relay.quorum:g}, fewest persons "
        f"{relay.min_persons}, columns {relay.columns}"
    )
    if rules.below.secure:
        typer.echo("its members sum securely: the region reads their sum alone")
    if relay.secure:
        typer.echo("above it takes part in secure sums alone")
    typer.echo(f"its members are asked by its own server: unpooled serve {settings.federation}")
    typer.echo(f"what goes up is logged in {Path(settings.folder) / 'log.jsonl'}")
