"""``unpooled site``: rules, log, DPIA report, keys and backups; other modules add the other commands."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unpooled.app.cli import options as o
from unpooled.app.cli.commands import Commands, OnLinux
from unpooled.app.cli.options import Overwrite
from unpooled.app.outputs import FolderOutput, check, inputs_of_table
from unpooled.errors import InputError, LedgerError, PolicyError
from unpooled.html.formatting import counted

if TYPE_CHECKING:
    from unpooled.site.policy import Policy

site = Commands(
    no_args_is_help=True,
    help="Run a site: write its rules, summarize its data, review and approve, join a federation.",
)

POLICY = "policy.toml"  # in the folder of a site
SiteFolderArgument = Annotated[Path, typer.Argument(help="The folder of the site.")]
FederationName = Annotated[
    str, typer.Option(help="One of the federations that the site joined (default: all of them).")
]
LogHeads = Annotated[
    list[Path] | None,
    typer.Option(
        help="Log heads that a coordinator kept (log_heads.jsonl in its folder); they reveal a cut or "
        "rewritten log. Repeat it for every federation of the site."
    ),
]
_BACKED_UP = "the folder of a site or of a federation"


def _print(parts: list[tuple[str, list[str]]]) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    for heading, sentences in parts:
        console.print(f"[bold]{heading}[/bold]")
        for line in sentences:
            console.print(f"  - {line}", markup=False)


# ---------------------------------------------------------------- rules


@site.command()
def init(
    path: Annotated[
        Path, typer.Argument(help="The folder of the site, made if needed; or a .toml file to write.")
    ] = Path("."),
    name: Annotated[str, typer.Option(help="Name of the site.")] = "",
    preset: Annotated[
        str, typer.Option(help="Published rule to follow; unpooled site init --list-presets lists them.")
    ] = "",
    person: Annotated[str, typer.Option(help="Column that identifies the person a row belongs to.")] = "",
    one_row_per_person: Annotated[
        bool, typer.Option("--one-row-per-person", help="Declare that every row is a different person.")
    ] = False,
    consumption: Annotated[
        str | None,
        typer.Option(help="Consumption columns, of which nobody may have a large share of a total: kwh,gas"),
    ] = None,
    max_rows: Annotated[
        int, typer.Option(min=0, help="With differential privacy: the largest possible number of rows.")
    ] = 0,
    relay: Annotated[
        bool, typer.Option("--relay", help="Write the rules of a federation that joins another one.")
    ] = False,
    list_presets: Annotated[bool, typer.Option("--list-presets", help="List the presets and exit.")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Write the policy of a site: safe defaults or a preset, with a comment on each rule.

    unpooled site init hospital-a --name hospital-a --preset opensafely
    """
    from unpooled.site.explain_policy import template
    from unpooled.site.policy import check_declared, parse

    options = bool(name or preset or person or one_row_per_person or consumption or max_rows)
    if list_presets:
        if options or relay or overwrite or path != Path("."):
            raise InputError("--list-presets takes no other option and no path")
        _list_presets()
        return
    if relay:
        from unpooled.federation.relay.relay_policy import TEMPLATE

        if options:
            raise InputError("--relay writes rules about sums; the other options are for a site with data")
        _write_policy(path, TEMPLATE, overwrite)
        return
    text = template(
        name,
        preset,
        person=person,
        one_row_per_person=one_row_per_person,
        consumption=o.names(consumption),
        rows=max_rows,
    )
    _write_policy(path, text, overwrite)
    try:
        check_declared(parse(text), o.names(consumption))
    except PolicyError as error:
        typer.echo(f"complete it before you summarize the data: {error}")


def _write_policy(path: Path, text: str, overwrite: bool) -> None:
    from unpooled.storage.atomic_files import write_atomically

    in_folder = path.suffix != ".toml"
    file = path / POLICY if in_folder else path
    check(file, overwrite=overwrite, make_folders=in_folder)
    if in_folder:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(file, text.encode())
    typer.echo(f"written: {file}")


def _list_presets() -> None:
    from unpooled.privacy.presets import PRESETS

    _print([(rule.name, [rule.asks, f"{rule.rule}. {rule.by}.", rule.where]) for rule in PRESETS.values()])


@site.command("policy")
def explain_policy(
    path: Annotated[Path, typer.Argument(help="The policy (a .toml file), or the folder of the site.")],
    only_check: Annotated[
        bool, typer.Option("--check", help="Print one line: valid, or the error (exit code 1).")
    ] = False,
) -> None:
    """Explain in plain words what a site will and will not answer, and check its policy.

    unpooled site policy hospital-a
    """
    from unpooled.federation.relay.relay_policy import is_relay_policy, load_relay_policy
    from unpooled.site.explain_policy import explain
    from unpooled.site.policy import Policy, load

    file = _policy_file(path)
    if file is not None and is_relay_policy(file):
        digest = load_relay_policy(file).digest
        typer.echo(f"{file}: valid, the rules of a federation that joins another one, digest {digest[:16]}")
        return
    rules = Policy() if file is None else load(file)
    if not only_check:
        _print(explain(rules))
    if file is None:
        typer.echo(f"{path}: no {POLICY}; the default rules apply")
    else:
        _check_complete(file, rules)
        typer.echo(f"{file}: valid, digest {rules.digest[:16]}")


def _policy_file(path: Path) -> Path | None:
    """Return the policy at a path or of a site's folder; None if the site has the default rules."""
    if not path.is_dir():
        return path
    check_folder(path)
    return path / POLICY if (path / POLICY).exists() else None


def _check_complete(file: Path, rules: "Policy") -> None:
    """Raise PolicyError if a policy names unknown methods, or lacks a value that its mode needs."""
    from unpooled.site.policy import check_declared, check_methods

    check_methods(rules)
    try:
        check_declared(rules, rules.protect.consumption)
    except PolicyError as error:
        raise PolicyError(f"{file}: not complete: {error}") from None


# ---------------------------------------------------------------- log


def read_log_heads(paths: list[Path] | None, log: Path) -> dict[int, str] | None:
    """Return the heads of this site's log that coordinators kept, by line number; None if none are given.

    Federations may know the site by different names.
    """
    if not paths:
        return None
    from unpooled.site.audit.overview import read

    names, heads = read(log).names, dict[int, str]()
    for path in paths:
        for number, head in _heads_in(path, names).items():
            if heads.setdefault(number, head) != head:
                raise LedgerError(
                    f"{path}: two coordinators have different heads of line {number + 1}. Two folders of "
                    "this site have answered."
                )
    return heads


def _heads_in(path: Path, names: list[str]) -> dict[int, str]:
    """Return the heads of the log of a site with one of these names in one coordinator's file."""
    heads: dict[int, str] = {}
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            number, _, head = entry["head"].partition(":")
            if entry["site"] in names and not head:  # admitted again: the earlier heads are of a lost log
                heads.clear()
            elif entry["site"] in names:
                heads.setdefault(int(number), head)  # the first one that came counts
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        raise LedgerError(f"{path}: not a file of log heads") from error
    if not heads:
        raise LedgerError(f"{path}: holds no log head of site {', '.join(sorted(names))}")
    return heads


@site.command("log")
def show_log(
    log: Annotated[Path, typer.Argument(help="The log of a site, or the folder of the site.")],
    html: Annotated[Path | None, typer.Option(help="Write a page to this file instead.")] = None,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Verify that the log is complete, or name every fault (exit code 1)."),
    ] = False,
    attack: Annotated[
        bool,
        typer.Option(
            "--attack", help="Attack the site's own answers: count the rows that can be reconstructed."
        ),
    ] = False,
    log_heads: LogHeads = None,
    overwrite: Overwrite = False,
) -> None:
    """Show what a site sent and refused, by run, and how it was protected; verify or attack it.

    unpooled site log hospital-a --verify
    """
    chosen = [("--verify", verify), ("--attack", attack), ("--html", html is not None)]
    options = [option for option, is_set in chosen if is_set]
    if len(options) > 1:
        raise InputError(f"{' and '.join(options)} exclude each other")
    if attack and log_heads:
        raise InputError("--log-heads has no effect on --attack")
    if not log_heads and _never_asked(log):
        typer.echo(f"{log}: nothing was asked yet")
    elif verify:
        _verify(log, log_heads)
    elif attack:
        _attack(log)
    else:
        _show(log, html, log_heads, overwrite)


def _never_asked(folder: Path) -> bool:
    """Return True for the folder of a site that has joined no federation and exported nothing.

    A site that joined has a log, even if nobody has asked it.
    """
    from unpooled.app.pages.review_state import is_site
    from unpooled.site.log_files import segments
    from unpooled.site.study_store import FEDERATIONS

    marks = (FEDERATIONS, "ledger.sqlite")
    written = any((folder / mark).exists() for mark in marks) or any(
        file.exists() for file in segments(folder / "log.jsonl")
    )
    return is_site(folder) and not written


def _show(log: Path, html: Path | None, log_heads: list[Path] | None, overwrite: bool) -> None:
    from unpooled.app.pages.audit_page import lines, page
    from unpooled.site.audit.overview import read
    from unpooled.storage.atomic_files import write_atomically

    check(html, inputs=[log, log / "log.jsonl", *(log_heads or ())], overwrite=overwrite)
    report = read(log, read_log_heads(log_heads, log))
    if html is None:
        _print(lines(report))
        return
    write_atomically(html, page(report).encode())
    typer.echo(f"written: {html}")


def _verify(log: Path, log_heads: list[Path] | None) -> None:
    from unpooled.app.pages.audit_page import verdict
    from unpooled.site.audit.overview import read

    report = read(log, read_log_heads(log_heads, log))
    typer.echo(verdict(report))
    for fault in report.faults:
        typer.echo(str(fault), err=True)
    for text in report.unchecked:
        typer.echo(f"not checked: {text}")
    if report.faults:
        raise typer.Exit(1)


def _attack(log: Path) -> None:
    from unpooled.site.audit.attack import on_log
    from unpooled.site.audit.overview import read

    report = read(log)
    found = on_log(report.path)
    transfers = sum(bool(run.tables) for run in report.runs)
    if transfers:
        typer.echo(
            f"The study's columns of the summary table left as a whole in {counted(transfers, 'run')}. This "
            "attack does not judge a table: unpooled site review shows the risks that were measured for it."
        )
    if found.cells or not (found.masked or transfers):
        typer.echo(
            f"{counted(len(found.rows), 'row')} can be reconstructed from {counted(found.cells, 'group')}: "
            f"{len(found.single)} disclosed alone, {len(found.differences)} as differences of groups."
        )
    if found.not_judged:
        typer.echo(found.not_judged)
    if len(found.rows):
        typer.echo(
            'A site with [protect] mode = "summary" answers from groups: there, these rows are group means.'
        )


# ---------------------------------------------------------------- DPIA report


@site.command()
def dpia(
    folder: SiteFolderArgument,
    policy: Annotated[
        Path | None,
        typer.Option(help="The site's policy (default: policy.toml in the folder)."),
    ] = None,
    log_heads: LogHeads = None,
    html: Annotated[
        Path | None, typer.Option(help="File to write (default: dpia.html in the folder).")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write the DPIA report of a site (data protection impact assessment), to print and sign.

    unpooled site dpia hospital-a
    """
    from unpooled.app.pages.dpia import page, read
    from unpooled.storage.atomic_files import write_atomically

    check_folder(folder)
    target = html or folder / "dpia.html"
    inputs = [folder / "log.jsonl", folder / POLICY, policy, *(log_heads or ())]
    inputs += inputs_of_table(folder, target)
    check(target, inputs=inputs, overwrite=overwrite)
    facts = read(folder, policy, read_log_heads(log_heads, folder))
    write_atomically(target, page(facts).encode())
    typer.echo(f"written: {target}; open it in a browser, fill in the last section, print it and sign it")


def check_folder(folder: Path) -> None:
    """Raise InputError unless the folder exists, and LedgerError if it has another format."""
    from unpooled.site.folder_consistency import check_folder_format

    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    check_folder_format(folder)


# ---------------------------------------------------------------- keys


@site.command(cls=OnLinux)
def keys(
    folder: SiteFolderArgument,
    forget: Annotated[
        str,
        typer.Option(
            help="Forget the key of this site, after its officer confirmed the new one; pin its next key."
        ),
    ] = "",
    federation: FederationName = "",
) -> None:
    """Show the keys of the other sites for secure sums, and the fingerprint of the last run.

    unpooled site keys hospital-a --forget hospital-b
    """
    from unpooled.site.pinned_keys import forget as forget_key
    from unpooled.site.pinned_keys import pinned_keys

    names = _federation_names(folder)
    chosen = {
        key: pinned
        for key, pinned in pinned_keys(folder).items()
        if not federation or names.get(key) == federation
    }
    if forget:
        having = [key for key, pinned in chosen.items() if forget in pinned.keys]
        if len(having) != 1:
            several = ", ".join(names.get(key, key[:16]) for key in having)
            raise InputError(
                f"{folder}: {forget} has a key in several federations: {several}. Name one with --federation."
                if having
                else f"{folder}: no key of {forget} is pinned"
            )
        forget_key(folder, forget, having[0])
        typer.echo(f"forgotten: the site accepts the next key of {forget}")
        return
    if not any(pinned.keys for pinned in chosen.values()):
        typer.echo("no key is pinned yet; the first run with secure sums pins them")
    for key, pinned in chosen.items():
        if pinned.keys and len(chosen) > 1:
            typer.echo(f"in {names.get(key) or 'a federation that the site did not join'}:")
        for name, public in pinned.keys.items():
            typer.echo(f"{name}: {public.hex()}")
        if pinned.fingerprint:
            typer.echo(f"the last run was among {', '.join(pinned.sites)}; fingerprint {pinned.fingerprint}")
            typer.echo("All of them must have the same fingerprint: compare it in one call.")


def _federation_names(folder: Path) -> dict[str, str]:
    """Return the name of every federation that a site joined, by the public key of its coordinator."""
    from unpooled.federation.provisioning.site_folder import SiteFolder

    joined = SiteFolder(folder).memberships()
    return {membership.invitation.authority: membership.name for membership in joined}


# ---------------------------------------------------------------- backups


@site.command(cls=OnLinux)
def backup(
    folder: Annotated[Path, typer.Argument(help="The folder of a site or of a federation.")],
    out: Annotated[Path, typer.Argument(help="The file to write: .tar.gz. It holds private keys.")],
    overwrite: Overwrite = False,
) -> None:
    """Write the folder of a site or of a federation into one file.

    The site may keep answering: log and ledger in the backup are of the same moment.

    unpooled site backup hospital-a hospital-a.tar.gz
    """
    from unpooled.site.backup import backup as write
    from unpooled.site.backup import files_not_in_backup, is_backup_source

    if not is_backup_source(folder):
        raise InputError(f"{folder}: not {_BACKED_UP}")
    if folder.absolute() in out.absolute().parents:
        raise InputError(f"{out} is in the folder that is backed up")
    check(out, overwrite=overwrite)
    typer.echo(f"written: {out}, {write(folder, out)} files; it holds private keys")
    if others := files_not_in_backup(folder):
        named = ", ".join(others[:10]) + (f" and {len(others) - 10} more" if len(others) > 10 else "")
        typer.echo(f"not in the backup, because unpooled did not write them: {named}")


@site.command(cls=OnLinux)
def restore(
    archive: Annotated[Path, typer.Argument(help="A file that unpooled site backup wrote.")],
    folder: Annotated[Path, typer.Argument(help="The folder to write; a backup does not name one.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a folder that exists; it is kept beside the new one.")
    ] = False,
    max_gb: Annotated[
        int, typer.Option(help="Refuse a backup whose files have more gigabytes in total.", min=1)
    ] = 10,
) -> None:
    """Write a backup into a folder. unpooled checks all of it before it writes anything.

    unpooled site restore hospital-a.tar.gz hospital-a
    """
    from unpooled.site.backup import is_backup_source
    from unpooled.site.backup import restore as write

    own = folder.is_dir() and is_backup_source(folder)
    if own and not overwrite and sys.stdin is not None and sys.stdin.isatty():
        overwrite = typer.confirm(
            f"{folder} already exists. Replace it with the backup, and keep it beside under another name?",
            abort=True,
        )
    holds = " (it is kept beside the new one, under another name)"
    check(FolderOutput(folder, _BACKED_UP, own, holds=holds), inputs=[archive], overwrite=overwrite)
    done = write(archive, folder, replace=overwrite, limit=max_gb * 10**9)
    typer.echo(f"restored: {folder}, as of {done.made}")
    if done.replaced is not None:
        typer.echo(f"the folder that was there is kept: {os.path.relpath(done.replaced)}")
    if not (folder / "federation.json").exists():
        typer.echo(
            "A site lives in one folder: if no other copy of it is used any more, confirm this one with "
            f"unpooled site confirm {folder}."
        )
        typer.echo(
            "If the site has answered since then, it refuses until its newest log is back. If that log is "
            "lost, the coordinator decides: unpooled federation admit FOLDER SITE --again --reason ..."
        )
