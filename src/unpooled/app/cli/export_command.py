"""``unpooled site export``: the approved summary table as a signed file for one recipient."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unpooled.app.cli.ask import By, YesCompared, confirm, decided_by
from unpooled.app.cli.options import Overwrite
from unpooled.app.cli.review_commands import check_at_site
from unpooled.app.cli.site_commands import POLICY, SiteFolderArgument, site
from unpooled.app.cli.table_commands import PolicyFile, find_policy
from unpooled.app.outputs import check, inputs_of_table
from unpooled.errors import InputError
from unpooled.html.formatting import counted, size

if TYPE_CHECKING:
    from unpooled.site.export_table import Export
    from unpooled.site.policy import Policy


@site.command("export")
def export_summary(
    folder: SiteFolderArgument,
    recipient: Annotated[
        Path, typer.Option(help="The recipient's key, a file that unpooled federation key wrote.")
    ],
    study: Annotated[
        Path,
        typer.Option(
            help='The study, a TOML file with title, purpose, contact, columns = ["age", "bmi"] (optional) '
            'and expires = "2027-06-30".'
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="The file to write: hospital-a.unpooled.")],
    plain: Annotated[
        bool, typer.Option("--plain", help="Do not encrypt: anyone who gets the file can read the table.")
    ] = False,
    policy: PolicyFile = None,
    name: Annotated[
        str, typer.Option(help="Name of the site (default: as in the policy, or that of the folder).")
    ] = "",
    by: By = "",
    yes: YesCompared = False,
    overwrite: Overwrite = False,
) -> None:
    """Write the approved summary table into a signed file for one recipient and one study.

    The file is encrypted to the recipient's key and may travel by e-mail. The site's log records it.

    unpooled site export hospital-a --recipient heart-key.json --study study.toml -o hospital-a.unpooled
    """
    from unpooled.data.readers import SUMMARY_FILE, is_summary_file
    from unpooled.site.export_table import export_table, plan_export
    from unpooled.site.identity import identity_in
    from unpooled.site.signed_file import RecipientKey, sender_fingerprint
    from unpooled.site.study_file import StudyFile
    from unpooled.storage.atomic_files import write_atomically

    check_at_site(folder)
    inputs = [recipient, study, folder / "log.jsonl", folder / POLICY, *inputs_of_table(folder)]
    check(out, inputs=inputs, overwrite=overwrite)
    if not is_summary_file(out):
        raise InputError(f"{out}: a summary file must end in {SUMMARY_FILE}, so that unpooled fit knows it")
    rules = find_policy(folder, policy)
    plan = plan_export(folder, rules, RecipientKey.read(recipient), StudyFile.read(study), name)
    for line in _facts(plan, rules, encrypted=not plain):
        typer.echo(line)
    confirm("Did the recipient read this fingerprint to you, and may the file leave?", yes)
    identity = identity_in(folder)
    data = export_table(folder, rules, plan, identity, encrypted=not plain, by=decided_by(by, yes))
    write_atomically(out, data)
    typer.echo(f"written: {out}, {size(len(data))}; the log of the site records it")
    typer.echo(
        f"this site's fingerprint, to read to the recipient: {sender_fingerprint(identity.public.hex())}"
    )


def _facts(plan: "Export", rules: "Policy", *, encrypted: bool) -> list[str]:
    """Return what leaves, for whom and for what, as the officer decides on it."""
    from unpooled.site.allow_list import METHOD_NAMES
    from unpooled.site.summary_file import TERMS

    table, study = plan.table, plan.study
    lines = [
        f"study: {study.title}",
        f"purpose: {study.purpose}",
        f"contact: {study.contact}",
        f"expires: {study.expires}",
        f"leaves: {plan.protection}; {counted(table.people.sum(), 'person')} in "
        f"{counted(len(table), 'group')}; digest {plan.digest[:16]}",
        f"columns: {', '.join(table.names)}",
    ]
    if plan.lacking:
        lines.append(f"columns of the study that the table lacks: {', '.join(plan.lacking)}")
    if set(METHOD_NAMES) - set(rules.jobs.algorithms) or not rules.jobs.describe:
        lines.append("the policy's limits on methods and descriptions hold by agreement only")
    lines += TERMS
    if not encrypted:
        lines.append("NOT ENCRYPTED: anyone who gets the file can read the table")
    return [*lines, f"recipient: {plan.recipient.name}, fingerprint {plan.recipient.fingerprint}"]
