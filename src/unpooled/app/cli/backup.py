"""``unpooled site backup`` and ``unpooled site restore``: the folder of a site or of a federation."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from unpooled.app.cli.outputs import FolderOutput, Overwrite, check
from unpooled.errors import InputError

_WHAT = "the folder of a site or of a federation"


def backup(
    folder: Annotated[Path, typer.Argument(help="The folder of a site or of a federation.")],
    out: Annotated[Path, typer.Argument(help="The file to write: .tar.gz. It holds keys.")],
    overwrite: Overwrite = False,
) -> None:
    """Write a folder into one file, also while its site answers: log and ledger are of the same moment.

    unpooled site backup hospital-a /backup/hospital-a.tar.gz
    """
    from unpooled.site.backup import backup as write
    from unpooled.site.backup import files_not_in_backup, is_backup_source

    if not is_backup_source(folder):
        raise InputError(f"{folder}: not {_WHAT}")
    if folder.absolute() in out.absolute().parents:
        raise InputError(f"{out} is in the folder that is backed up")
    check(out, overwrite=overwrite)
    typer.echo(f"written: {out}, {write(folder, out)} files; it holds private keys")
    if others := files_not_in_backup(folder):
        shown = ", ".join(others[:10]) + (f" and {len(others) - 10} more" if len(others) > 10 else "")
        typer.echo(f"not in the backup, because unpooled did not write them: {shown}")


def restore(
    archive: Annotated[Path, typer.Argument(help="A file that unpooled site backup wrote.")],
    folder: Annotated[Path, typer.Argument(help="The folder to write; the backup itself names none.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a folder that exists; it is kept beside the new one.")
    ] = False,
    max_gb: Annotated[
        int, typer.Option(help="Most gigabytes that the files of the backup may have together.", min=1)
    ] = 10,
) -> None:
    """Write a backup into a folder. All of it is checked before anything is written.

    unpooled site restore /backup/hospital-a.tar.gz hospital-a
    """
    from unpooled.site.backup import is_backup_source
    from unpooled.site.backup import restore as write

    own = folder.is_dir() and is_backup_source(folder)
    if own and not overwrite and sys.stdin is not None and sys.stdin.isatty():
        overwrite = typer.confirm(
            f"{folder} exists. Replace it by the backup, and keep it beside under another name?", abort=True
        )
    holds = " (it is kept beside the new one, under another name)"
    check(FolderOutput(folder, _WHAT, own, holds=holds), inputs=[archive], overwrite=overwrite)
    done = write(archive, folder, replace=overwrite, limit=max_gb * 10**9)
    typer.echo(f"restored: {folder}, as of {done.made}")
    if done.replaced is not None:
        typer.echo(f"the folder that was there is kept: {os.path.relpath(done.replaced)}")
    if not (folder / "federation.json").exists():
        typer.echo(
            "If the site has answered since then, it refuses until its newest log is back. If that is lost, "
            "the coordinator decides: unpooled federation admit --again FOLDER SITE --reason ..."
        )
