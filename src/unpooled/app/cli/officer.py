"""``unpooled release`` and ``unpooled site dpia``: files for an output checker, a document to sign."""

from pathlib import Path
from typing import Annotated

import typer

from unpooled.app.cli import options as o
from unpooled.app.cli.outputs import FolderOutput, Overwrite, check, inputs_of_copy, whole_folder
from unpooled.errors import InputError


def release(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    preset: Annotated[
        str, typer.Option(help="The rule to keep to; unpooled site init --list-presets lists them.")
    ],
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
    from unpooled.app.release.release_folder import CONTROLS, REGISTER
    from unpooled.app.release.release_register import add
    from unpooled.app.run_folder import RunFolder
    from unpooled.privacy.presets import preset as rule_of
    from unpooled.storage.atomic_files import write_atomically

    rule, kept = rule_of(preset), RunFolder(run)
    kept.load_job()  # raises if the folder holds no run
    beside = register or run.resolve().parent / REGISTER
    target = FolderOutput(out, "the folder of a release", own=(out / CONTROLS).exists())
    check(target, inputs=[run, *kept.files, beside], overwrite=overwrite)
    if not beside.parent.is_dir():
        raise InputError(f"{beside}: there is no folder {beside.parent}")
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
    log_heads: Annotated[
        Path | None,
        typer.Option(help="Heads that the coordinator kept (log_heads.jsonl), to check the log's end."),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="The page; default: dossier.html in the folder.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write the dossier of a site for an impact assessment: one page to read, print and sign.

    unpooled site dpia north
    """
    from unpooled.app.cli.policy import kept_heads
    from unpooled.app.pages.dpia import page, read
    from unpooled.federation.provisioning.site_folder import joined_policy
    from unpooled.storage.atomic_files import write_atomically

    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    target = html or folder / "dossier.html"
    inputs = [
        folder / "log.jsonl",
        folder / "policy.toml",
        policy,
        log_heads,
        *inputs_of_copy(folder, target),
    ]
    check(target, inputs=inputs, overwrite=overwrite)
    found = read(
        folder,
        policy or joined_policy(folder),
        kept_heads(log_heads, folder) if log_heads is not None else None,
    )
    write_atomically(target, page(found).encode())
    typer.echo(f"written: {target}; open it in a browser, fill in the last section, print and sign")
