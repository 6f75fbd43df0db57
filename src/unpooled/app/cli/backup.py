"""``unpooled backup`` and ``unpooled restore``: the folder of a site or of a federation."""

from pathlib import Path
from typing import Annotated

import typer

from unpooled.app.cli.outputs import Overwrite, check
from unpooled.errors import BadInput


def backup(
    folder: Annotated[Path, typer.Argument(help="The folder of a site or of a federation.")],
    out: Annotated[Path, typer.Argument(help="The file to write: .tar.gz. It holds keys.")],
    overwrite: Overwrite = False,
) -> None:
    """Write a folder into one file, also while its site answers: log and ledger are of the same moment.

    unpooled backup hospital-a /backup/hospital-a.tar.gz
    """
    from unpooled.site.backup import backup as write

    marks = ("federation.json", "invitation.json", "log.jsonl", "copy")
    if not any((folder / name).exists() for name in marks):
        raise BadInput(f"{folder}: not the folder of a site or of a federation")
    if folder.absolute() in out.absolute().parents:
        raise BadInput(f"{out} is in the folder that is backed up")
    check(out, overwrite=overwrite)
    typer.echo(f"written: {out}, {write(folder, out)} files; it holds private keys")


def restore(archive: Annotated[Path, typer.Argument(help="A file that unpooled backup wrote.")]) -> None:
    """Put a folder back where it was; it must not exist.

    unpooled restore /backup/hospital-a.tar.gz
    """
    from unpooled.site.backup import restore as write

    about = write(archive)
    typer.echo(f"restored: {about['folder']}, as of {about['made']}")
    if not (Path(about["folder"]) / "federation.json").exists():
        typer.echo(
            "If the site has answered since then, it refuses until its newest log is back. If that is lost, "
            "the coordinator decides: unpooled federation readmit FOLDER SITE --reason ..."
        )
