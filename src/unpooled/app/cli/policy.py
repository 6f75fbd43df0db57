"""``unpooled policy`` and ``unpooled audit``: the rules of a site, and the record of what left it."""

import json
from pathlib import Path
from typing import Annotated

import typer

from unpooled.app.cli import options as o
from unpooled.app.cli.outputs import Overwrite, check
from unpooled.errors import InputError, LedgerError, PolicyError

policy = typer.Typer(no_args_is_help=True, help="Write, check and explain the rules of a site.")
sums = typer.Typer(no_args_is_help=True, help="The keys of the other sites, as secure sums use them.")
audit = typer.Typer(no_args_is_help=True, help="Show, verify and attack the record of what left a site.")

_FILE = Annotated[Path, typer.Argument(help="The policy, a TOML file.")]
_LOG = Annotated[Path, typer.Argument(help="The site's log, or its folder.")]
_HEADS = Annotated[
    Path | None,
    typer.Option(
        help="Heads that the coordinator kept (log_heads.jsonl): they show a log that was cut or rewritten."
    ),
]


def _print(parts: list[tuple[str, list[str]]]) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    for heading, sentences in parts:
        console.print(f"[bold]{heading}[/bold]")
        for line in sentences:
            console.print(f"  - {line}", markup=False)


@policy.command("init")
def policy_init(
    path: Annotated[Path, typer.Argument(help="File to write.")] = Path("policy.toml"),
    site: Annotated[str, typer.Option(help="The site's name.")] = "",
    preset: Annotated[
        str, typer.Option(help="A published rule to keep to; unpooled site init --list-presets")
    ] = "",
    person: Annotated[str, typer.Option(help="The column that says whose row it is.")] = "",
    consumption: Annotated[
        str | None, typer.Option(help="Columns of which nobody may have a large share of a total: kwh,gas")
    ] = None,
    rows: Annotated[int, typer.Option(min=0, help="With noise: the most rows that there can be.")] = 0,
    federation: Annotated[
        bool, typer.Option("--federation", help="The rules of a federation that joins another one instead.")
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Write a policy with safe defaults, or those of a preset, and a comment on each rule."""
    from unpooled.site.explain_policy import template
    from unpooled.site.policy import check_declared, parse
    from unpooled.storage.atomic_files import write_atomically

    if federation:
        from unpooled.federation.relay.rules_file import TEMPLATE

        if site or preset or person or consumption or rows:
            raise InputError("--federation: its rules are about sums; the other options are for a site")
        check(path, overwrite=overwrite)
        write_atomically(path, TEMPLATE.encode())
        typer.echo(f"written: {path}")
        return
    text = template(site, preset, person=person, consumption=o.names(consumption), rows=rows)
    check(path, overwrite=overwrite)
    write_atomically(path, text.encode())
    typer.echo(f"written: {path}")
    try:
        check_declared(parse(text), o.names(consumption))
    except PolicyError as error:
        typer.echo(f"to be filled in before a copy is made: {error}")


@policy.command("presets")
def policy_presets() -> None:
    """List the presets: the published rules that a policy or a release can keep to."""
    from unpooled.privacy.presets import PRESETS

    _print([(rule.name, [rule.asks, f"{rule.rule}. {rule.by}.", rule.where]) for rule in PRESETS.values()])


@policy.command("check")
def policy_check(path: _FILE) -> None:
    """Read a policy and name any error in it."""
    from unpooled.federation.relay.rules_file import is_relay_policy, load_relay_policy
    from unpooled.site.policy import check_declared, check_methods, load

    if is_relay_policy(path):
        typer.echo(
            f"{path}: in order, the rules of a federation, digest {load_relay_policy(path).digest[:16]}"
        )
        return
    found = load(path)
    check_methods(found)
    try:
        check_declared(found, found.protect.consumption)
    except PolicyError as error:
        raise PolicyError(f"{path}: not complete: {error}") from None
    typer.echo(f"{path}: in order, digest {found.digest[:16]}")


@policy.command("explain")
def policy_explain(path: _FILE) -> None:
    """Explain in plain words what the site will and will not answer."""
    from unpooled.site.explain_policy import explain
    from unpooled.site.policy import load

    _print(explain(load(path)))


def kept_heads(path: Path | None, log: Path) -> dict[int, str] | None:
    """The heads of this site's log that the coordinator kept, by number: one line of JSON for each."""
    if path is None:
        return None
    from unpooled.site.audit.overview import read

    site = read(log).site
    found: dict[int, str] = {}
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            kept = json.loads(line)
            number, _, head = kept["head"].partition(":")
            if kept["site"] == site and not head:  # readmitted: the heads before are those of a lost log
                found.clear()
            elif kept["site"] == site:
                found.setdefault(int(number), head)  # the first one that came counts
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        raise LedgerError(f"{path}: not a file of heads") from error
    if not found:
        raise LedgerError(f"{path}: holds no head of site {site}")
    return found


@audit.command("show")
def audit_show(
    log: _LOG,
    html: Annotated[Path | None, typer.Option(help="Write the page here instead.")] = None,
    log_heads: _HEADS = None,
    overwrite: Overwrite = False,
) -> None:
    """Show what left, in which run, how it was protected, what was refused, and whether the log is whole."""
    from unpooled.app.pages.audit_page import lines, page
    from unpooled.federation.provisioning.site_folder import find_joined_policy
    from unpooled.site.audit.overview import read
    from unpooled.storage.atomic_files import write_atomically

    check(html, inputs=[log, log / "log.jsonl", log_heads], overwrite=overwrite)
    record = read(log, kept_heads(log_heads, log), policy=find_joined_policy(log))
    if html is None:
        _print(lines(record))
        return
    write_atomically(html, page(record).encode())
    typer.echo(f"written: {html}")


@audit.command("verify")
def audit_verify(log: _LOG, log_heads: _HEADS = None) -> None:
    """Prove that the log is whole, or name every line where it is not (exit code 1)."""
    from unpooled.app.pages.audit_page import verdict
    from unpooled.federation.provisioning.site_folder import find_joined_policy
    from unpooled.site.audit.overview import read

    record = read(log, kept_heads(log_heads, log), policy=find_joined_policy(log))
    typer.echo(verdict(record))
    for fault in record.faults:
        typer.echo(str(fault), err=True)
    for text in record.unchecked:
        typer.echo(f"not checked: {text}")
    if record.faults:
        raise typer.Exit(1)


@audit.command("attack")
def audit_attack(log: _LOG) -> None:
    """Attack this site's own messages: count the rows that could be recovered from all that left."""
    from unpooled.site.audit.attack import on_log
    from unpooled.site.audit.overview import read

    found = on_log(read(log).path)
    typer.echo(
        f"{len(found.rows)} rows could be recovered from {found.cells} groups: "
        f"{len(found.single)} shown alone, {len(found.differences)} as differences of groups."
    )
    if len(found.rows):
        typer.echo(
            'A site with [protect] mode = "summary" answers from groups: what is found there are their means.'
        )


@audit.command("rotate")
def audit_rotate(
    folder: Annotated[Path, typer.Argument(help="The site's own folder, with its log.")],
) -> None:
    """Go on in a new file of the log, in the same chain; the site must not run meanwhile.

    Logs above 64 MiB are rotated by themselves when the site opens them.
    """
    from unpooled.site.log import Log

    if not (folder / "log.jsonl").exists():
        raise LedgerError(f"{folder}: there is no log")
    log = Log(folder / "log.jsonl", "unpooled audit rotate")
    try:
        kept = log.rotate()
    finally:
        log.close()
    typer.echo("nothing was answered since the last rotation" if kept is None else f"written: {kept}")
    if kept is not None:
        typer.echo("Keep it beside the log until the next rotation; then it may go where archives are kept.")


_FOLDER = Annotated[Path, typer.Argument(help="The site's own folder, with its log and ledger.")]


@sums.command("show")
def sums_show(folder: _FOLDER) -> None:
    """Show the keys of the other sites, and the fingerprint of the last run that sites read out in a call."""
    from unpooled.site.pinned_keys import pinned_keys

    found = pinned_keys(folder)
    if not found.keys:
        typer.echo("no key is pinned yet: the first run with secure sums does it")
    for site, key in found.keys.items():
        typer.echo(f"{site}: {key.hex()}")
    if found.fingerprint:
        typer.echo(f"the last run was among {', '.join(found.sites)}; fingerprint {found.fingerprint}")
        typer.echo("All of them must have the same fingerprint: compare it in one call.")


@sums.command("forget")
def sums_forget(
    folder: _FOLDER, site: Annotated[str, typer.Argument(help="The site whose key changed.")]
) -> None:
    """Forget the key of a site, after its officer has confirmed the new one; the next key is pinned."""
    from unpooled.site.pinned_keys import forget

    forget(folder, site)
    typer.echo(f"forgotten: the next key of {site} is taken")
