"""``unpooled federation key`` and ``federation receive``: a federation without a server."""

from pathlib import Path
from typing import Annotated

import typer

from unpooled.app.cli.ask import YesCompared, confirm
from unpooled.app.cli.federation_commands import federation
from unpooled.errors import InputError

KeyFolder = Annotated[Path, typer.Argument(help="The folder of the recipient; its files stay in it.")]


@federation.command()
def key(
    folder: KeyFolder,
    name: Annotated[str, typer.Option(help="Name of the recipient (default: that of the folder).")] = "",
) -> None:
    """Make the key to which sites encrypt their summary files and their responses, or show it.

    It needs no server. Send the file that it names to every site.

    unpooled federation key heart
    """
    from unpooled.app.pages.review_state import is_site
    from unpooled.federation.recipient import Recipient

    if folder.is_dir() and is_site(folder) and not (folder / "federation.json").exists():
        raise InputError(f"{folder} is the folder of a site. Use a folder of its own for the recipient.")
    recipient = Recipient.create(folder, name)
    typer.echo(f"recipient: {recipient.name}")
    typer.echo(f"send to every site: {recipient.key_file}")
    typer.echo(f"fingerprint, to read to every site by telephone: {recipient.key.fingerprint}")
    for site, known in recipient.sites.items():
        typer.echo(f"known site: {site}, since {known.since[:10]}, by {known.by}")


@federation.command()
def receive(
    folder: KeyFolder,
    files: Annotated[
        list[str], typer.Argument(help="Summary files, deletion notices, keys of sites: *.unpooled")
    ],
    new_key: Annotated[
        bool, typer.Option("--new-key", help="A site has a new key, which you compared by telephone.")
    ] = False,
    yes: YesCompared = False,
) -> None:
    """Check summary files, deletion notices and keys of sites that came, and record them.

    Move the files into the folder first: unpooled fit finds the key there. The command asks for the
    fingerprint of each new site. unpooled fit uses files that are recorded, and unpooled
    federation run --files asks sites whose keys are recorded.

    unpooled federation receive heart heart/*.unpooled
    """
    from unpooled.app.job import expand
    from unpooled.federation.recipient import Recipient
    from unpooled.site.signed_file import NOTICE, SITE_KEY, sender_fingerprint

    recipient = Recipient.read(folder)
    opened = [recipient.open(Path(file)) for file in expand(files)]
    asked: dict[tuple[str, str], str] = {}
    replaced = []
    for file in opened:
        header = file.header
        known = recipient.sites.get(header.sender)
        if new_key and known is not None and known.key != header.sender_key:
            replaced.append(header.sender)
        elif recipient.is_known(file):  # raises if the key is another one
            continue
        asked[header.sender, header.sender_key] = sender_fingerprint(header.sender_key)
    for (site, _), fingerprint in asked.items():
        typer.echo(f"{site}: fingerprint {fingerprint}")
        confirm(f"Did {site} read this fingerprint to you by telephone?", yes)
    recipient = recipient.receive(opened, new_keys=replaced)
    for file in opened:
        header = file.header
        if file.kind == SITE_KEY:
            typer.echo(f"received: {file.path}: {header.sender} takes part in runs over files")
        elif file.kind == NOTICE or header.study is None:
            recalled = [one for one in recipient.files if one.site == header.sender and one.recalled]
            typer.echo(f"recorded: {file.path}: {header.sender} asks you to delete what it sent before:")
            for one in recalled:
                typer.echo(f"  the file of {one.exported[:10] or 'a day not known here'}: {one.title}")
            typer.echo("  No run uses them any more. Delete them, and all copies.")
        else:
            typer.echo(
                f"received: {file.path}: {header.sender}, {header.day}, {header.study.title}; "
                f"{header.protection}"
            )
            if folder.resolve() not in file.path.resolve().parents:
                typer.echo(f"move it into {folder}, where its key is, before unpooled fit", err=True)
