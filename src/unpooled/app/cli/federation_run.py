"""``unpooled federation run`` and ``unpooled federation export-job``: jobs between machines."""

from pathlib import Path
from typing import Annotated, Any

import typer

from unpooled.app.cli import options as o
from unpooled.app.cli.commands import OnLinux
from unpooled.app.cli.federation_commands import FederationArgument, federation
from unpooled.app.cli.log_options import Verbose
from unpooled.app.cli.options import Overwrite
from unpooled.app.cli.run_and_print import run_and_print
from unpooled.app.outputs import FolderOutput, beside_run, check, run_output, whole_folder
from unpooled.errors import InputError
from unpooled.options.declaration import flag
from unpooled.options.remote_run import DEADLINE, EXPIRES, QUORUM, WAIT


def _waiting(text: str, *names: str) -> Any:
    """Return an option about waiting, under its own name or others."""
    return typer.Option(*names, help=text, rich_help_panel="Waiting")


def _of_study(text: str) -> Any:
    """Return an option of the study that the sites approve."""
    return typer.Option(help=text, rich_help_panel="The study that sites approve")


Quorum = Annotated[float, _waiting("Share of the sites that must answer in each round trip.")]
Deadline = Annotated[float, _waiting("Seconds that a site has to answer.")]
Patience = Annotated[
    float, _waiting("Seconds to wait for a server or sites that are not connected.", "--wait")
]
Title = Annotated[str, _of_study("Title of the study (default: made from the job).")]
Purpose = Annotated[str, _of_study("Purpose of the study, as the sites read it and their policies name it.")]
Contact = Annotated[str, _of_study("Person responsible for the study, and how to reach them.")]
Expires = Annotated[float, _of_study("Days after which the sites stop answering.")]
Approval = Annotated[
    float,
    _waiting("Seconds to wait for sites that have not approved the study (default 0: until it expires)."),
]
Files = Annotated[
    Path | None,
    _waiting(
        "Shared folder with a folder per site; requests and responses are files in it, without a server."
    ),
]
Expected = Annotated[
    str,
    typer.Option(
        help="What the sites answer from: summary or raw. Their policies decide; this adapts the method.",
        rich_help_panel="Protection",
    ),
]


class SiteOnlyOptions(o.ReadingOptions):
    """Options that only a site may set; they are hidden here, and each is refused by name."""

    hidden = True

    def refuse(self) -> None:
        for name in self.given:
            raise InputError(
                f"{flag(name)}: only a site decides how its file is read, with unpooled site join, "
                "unpooled site start or unpooled site summarize"
            )


def _study(title: str, purpose: str, contact: str, expires: float) -> dict[str, Any]:
    """Return the title, purpose, contact and dates of a study."""
    from unpooled.app.propose_study import now_and_later
    from unpooled.site.study import UNSTATED

    created, end = now_and_later(expires)
    texts = {
        "title": title.strip(),
        "purpose": purpose.strip(),
        "contact": contact.strip() or UNSTATED,
    }
    return {**texts, "created": created, "expires": end}


@federation.command(cls=OnLinux)
@o.takes_options
def run(
    folder: FederationArgument,
    options: o.JobOptions,
    reading: SiteOnlyOptions,
    out: o.Out = None,
    report: o.Report = None,
    as_json: o.AsJson = False,
    overwrite: Overwrite = False,
    protect: Expected = "summary",
    quorum: Quorum = QUORUM,
    deadline: Deadline = DEADLINE,
    wait: Patience = WAIT,
    wait_approval: Approval = 0.0,
    files: Files = None,
    title: Title = "",
    purpose: Purpose = "",
    contact: Contact = "",
    expires: Expires = EXPIRES,
    verbose: Verbose = False,
) -> None:
    """Cluster the rows of a federation's sites; the rows stay at the sites.

    unpooled federation run heart -k 2..6 --report report.html --out run

    unpooled federation run heart -k 3 --files share
    """
    from unpooled.app.job import RemoteRunOptions
    from unpooled.app.run_folder import RunFolder
    from unpooled.app.run_remote import RemoteRun
    from unpooled.federation.provisioning.federation_folder import (
        FederationFolder,
        federation_folder_files,
        new_run_name,
    )
    from unpooled.federation.provisioning.member_keys import known_members
    from unpooled.federation.recipient import RECORD, Recipient

    served: FederationFolder | Recipient
    keys: dict[str, str] | None = None
    federations: tuple[str, ...] = ()
    if files is not None:
        served = Recipient.read(folder)
        served.check_shared(files)
        sites = tuple(served.members)
    else:
        if not (folder / "federation.json").exists() and (folder / RECORD).exists():
            raise InputError(f"{folder} has no server. Name the shared folder of its sites with --files DIR.")
        served = FederationFolder.read(folder)
        sites, (keys, federations) = served.sites, known_members(served)
    study = _study(title, purpose, contact, expires)
    remote = RemoteRunOptions(
        str(served.path),
        new_run_name(),
        sites,
        quorum,
        deadline,
        wait,
        approval_timeout=wait_approval,
        federations=federations,
        files="" if files is None else str(files.absolute()),
        **study,
    )
    reading.refuse()
    job = options.job(protect, remote=remote)
    prepared = RemoteRun.from_job(job, served, keys)
    o.check_report(options, report)
    results = RunFolder(out if out is not None else served.results / remote.run)
    check(
        run_output(results),
        beside_run(report, results),
        inputs=[*federation_folder_files(served.path), *options.inputs],
        overwrite=overwrite,
    )
    run_and_print(
        job, results, report, new=True, as_json=as_json, threads=None, prepared=prepared, verbose=verbose
    )


@federation.command(cls=OnLinux)
@o.takes_options
def export_job(
    job_folder: Annotated[Path, typer.Argument(help="Job folder to write, for NVFLARE's console.")],
    site: Annotated[list[str], typer.Option(help="Name of a site in your project; repeat for every site.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder of the run, for its results.")],
    options: o.JobOptions,
    reading: SiteOnlyOptions,
    overwrite: Overwrite = False,
    protect: Expected = "summary",
    engine: Annotated[str, typer.Option(help="Engine of the job folder.")] = "nvflare",
    quorum: Quorum = QUORUM,
    deadline: Deadline = DEADLINE,
    wait_approval: Approval = 0.0,
    title: Title = "",
    purpose: Purpose = "",
    contact: Contact = "",
    expires: Expires = EXPIRES,
) -> None:
    """Write a job folder for a federation that you provision and run yourself.

    unpooled federation export-job jobs/heart --site hospital-a --site hospital-b -k 3 --out run
    """
    from unpooled.app.job import RemoteRunOptions
    from unpooled.app.run_folder import RunFolder
    from unpooled.app.run_remote import task_and_terms
    from unpooled.federation.engine import engine as find_engine
    from unpooled.federation.provisioning.federation_folder import new_run_name
    from unpooled.federation.provisioning.names import check_name

    reading.refuse()
    for name in site:
        check_name(name, "site")
    study = _study(title, purpose, contact, expires)
    remote = RemoteRunOptions(
        "", new_run_name(), tuple(sorted(site)), quorum, deadline, approval_timeout=wait_approval, **study
    )
    job = options.job(protect, remote=remote)
    assert job.remote is not None
    folder, chosen = RunFolder(out), find_engine(engine)
    files = tuple(job_folder / name for name in chosen.JOB_FILES)
    own = files[0].is_file() and all(p in files or p.is_dir() for p in job_folder.rglob("*"))
    check(
        FolderOutput(job_folder, "the folder of a job and nothing else", own, files),
        run_output(folder),
        inputs=options.inputs,
        overwrite=overwrite,
    )
    task, terms = task_and_terms(job)
    with whole_folder(job_folder) as written:
        chosen.write_job(written, task, terms)
    folder.begin(job)
    typer.echo(
        f"written: {job_folder}\nOnce the job is done, copy runs/{job.remote.run}/checkpoint from the "
        f"server's workspace into {out}, and unpooled resume {out} writes the model and the report."
    )
