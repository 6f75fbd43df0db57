"""``unpooled release`` and ``unpooled dossier``: files for an output checker, a document to sign."""

from pathlib import Path
from typing import Annotated

import typer

from unpooled.app.cli import options as o
from unpooled.app.cli.outputs import FolderOutput, Overwrite, check, inputs_of_copy, whole_folder
from unpooled.errors import BadInput


def release(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    preset: Annotated[str, typer.Option(help="The rule to keep to; unpooled policy presets lists them.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder to write.")],
    consumption: Annotated[
        str | None, typer.Option(help="For a rule on shares: the columns of consumption, kwh,gas")
    ] = None,
    uncertain: Annotated[
        str | None,
        typer.Option(help="Columns of which nothing is shown that holds for nobody, or all, of a cluster."),
    ] = None,
    register: Annotated[
        Path | None,
        typer.Option(help="Earlier releases; default: releases.jsonl beside the folder of the run."),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write tables and figures of a run that keep to a preset, with context and controls for a checker.

    unpooled release run --preset opensafely --out release
    """
    from unpooled.app.release import release as made_of
    from unpooled.app.release.earlier import add
    from unpooled.app.release.folder import CONTROLS, REGISTER
    from unpooled.app.run_folder import RunFolder
    from unpooled.core.disk import write_atomically
    from unpooled.privacy.presets import preset as rule_of

    rule, kept = rule_of(preset), RunFolder(run)
    kept.load_job()  # raises if the folder holds no run
    beside = register or run.resolve().parent / REGISTER
    target = FolderOutput(out, "the folder of a release", own=(out / CONTROLS).exists())
    check(target, inputs=[run, *kept.files, beside], overwrite=overwrite)
    if not beside.parent.is_dir():
        raise BadInput(f"{beside}: there is no folder {beside.parent}")
    files, entries, warned = made_of(
        run, rule, out.resolve().name, o.names(consumption), beside, o.names(uncertain)
    )
    with whole_folder(out) as building:
        for name, text in files.items():
            write_atomically(building / name, text.encode(), shared=True)
        add(beside, entries)
    for line in warned:
        typer.echo(f"warning: {line}")
    typer.echo(f"written: {out}: {', '.join(files)}")
    typer.echo(f"noted in {beside}, which has true numbers and stays inside")


def dossier(
    folder: Annotated[Path, typer.Argument(help="The site's own folder, with its copy and its log.")],
    policy: Annotated[
        Path | None,
        typer.Option(help="The site's rules; default: policy.toml in the folder, or those of join."),
    ] = None,
    heads: Annotated[
        Path | None,
        typer.Option(help="Heads that the coordinator kept (heads.jsonl), to check the log's end."),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="The page; default: dossier.html in the folder.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write the dossier of a site for an impact assessment: one page to read, print and sign.

    unpooled dossier north
    """
    from unpooled.app.cli.policy import kept_heads
    from unpooled.core.disk import write_atomically
    from unpooled.runtimes.provisioning.site_folder import joined_under
    from unpooled.site.dossier import page, read

    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder")
    target = html or folder / "dossier.html"
    inputs = [folder / "log.jsonl", folder / "policy.toml", policy, heads, *inputs_of_copy(folder, target)]
    check(target, inputs=inputs, overwrite=overwrite)
    found = read(
        folder, policy or joined_under(folder), kept_heads(heads, folder) if heads is not None else None
    )
    write_atomically(target, page(found).encode())
    typer.echo(f"written: {target}; open it in a browser, fill in the last section, print and sign")
