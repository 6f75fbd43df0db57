"""Nothing is overwritten without ``--overwrite``, and an input never: for every command that writes.

The tables below say of every path that a command takes what it is; a path that they lack fails a test.
"""

import os
import shutil
import typing
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from unpooled.algorithms import Lloyd
from unpooled.app.cli import app
from unpooled.app.demo import FIGURE
from unpooled.federation import LocalFederation
from unpooled.federation.provisioning.enrolment import invite
from unpooled.federation.provisioning.federation_folder import FederationFolder, create
from unpooled.federation.provisioning.site_folder import SiteFolder
from unpooled.protocol import run
from unpooled.site.folder_place import PLACE
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

MINE = b"not to be lost\n"
K = ("-k", "2", "--restarts", "1")
SITES = ("--site", "a", "--site", "b")
SHIPPED = Path(str(files("unpooled.data.examples"))) / "penguins.csv"


@dataclass(frozen=True)
class Writing:
    """A file that a command writes: the words that have it written, and files that the command reads."""

    words: Callable[[Path, Path], list[object]]  # of the folder with all that there is, and the output
    inputs: tuple[str | Path, ...] = ()
    at: str = "new.file"  # where it is written, if the option names its folder


FILES = {
    ("fit", "report"): Writing(
        lambda d, out: [*fit(d), "--names", d / "names.toml", "--report", out],
        ("a.csv", "b.csv", "names.toml"),
    ),
    ("resume", "report"): Writing(
        lambda d, out: ["resume", d / "run", "--report", out], ("a.csv", "run/checkpoint", "run/job.json")
    ),
    ("federation run", "report"): Writing(
        lambda d, out: ["federation", "run", d / "fed", *K, "--report", out],
        ("fed/federation.json", "fed/authority/root.key", "fed/invitations/a.json"),
    ),
    ("predict", "out"): Writing(
        lambda d, out: ["predict", d / "run", d / "a.csv", "-o", out],
        ("a.csv", "b.csv", "run/model.unpooled"),
    ),
    ("export", "out"): Writing(
        lambda d, out: ["export", d / "run", "--to", "json", "-o", out], ("run/model.unpooled", "b.csv")
    ),
    ("export", "out", "html"): Writing(
        lambda d, out: ["export", "--to", "html", d / "run", "-o", out], ("run/checkpoint", "a.csv")
    ),
    ("example", "out"): Writing(lambda d, out: ["example", "penguins", "-o", out], (SHIPPED,)),
    ("site backup", "out"): Writing(lambda d, out: ["site", "backup", d / "kept", out]),
    ("site init", "path"): Writing(lambda d, out: ["site", "init", out], at="new.toml"),
    ("site log", "html"): Writing(
        lambda d, out: ["site", "log", d / "kept", "--log-heads", d / "log_heads.jsonl", "--html", out],
        ("kept/log.jsonl", "log_heads.jsonl"),
    ),
    ("site review", "html"): Writing(
        lambda d, out: ["site", "review", d / "site", "--html", out], ("site/summary/table.csv", "a.csv")
    ),
    ("fit", "save_data_config"): Writing(
        lambda d, out: [*fit(d), "--save-data-config", out], ("a.csv", "b.csv")
    ),
    ("site summarize", "save_data_config"): Writing(
        lambda d, out: [
            "site",
            "summarize",
            "--no-sensitive-columns",
            d / "updated",
            "--data",
            d / "people.csv",
            "--save-data-config",
            out,
        ],
        ("people.csv",),
    ),
    ("site summarize", "people_out"): Writing(
        lambda d, out: [
            "site",
            "summarize",
            "--no-sensitive-columns",
            d / "updated",
            "--data",
            d / "people.csv",
            "--people-out",
            out,
        ],
        ("people.csv",),
    ),
    ("site dpia", "html"): Writing(
        lambda d, out: [
            "site",
            "dpia",
            d / "kept",
            "--policy",
            d / "rules.toml",
            "--log-heads",
            d / "log_heads.jsonl",
            "--html",
            out,
        ],
        ("kept/log.jsonl", "rules.toml", "log_heads.jsonl"),
    ),
    ("site review", "csv"): Writing(
        lambda d, out: ["site", "review", d / "site", "--csv", out],
        ("site/summary/table.csv", "site/summary/about.json", "a.csv"),
    ),
    ("site export", "out"): Writing(
        lambda d, out: [
            *("site", "export", d / "updated", "--yes", "--recipient", d / "key" / "key-key.json"),
            *("--study", d / "study.toml", "-o", out),
        ],
        ("key/key-key.json", "study.toml", "updated/summary/table.csv"),
        at="new.unpooled",
    ),
    ("example", "out", "run"): Writing(
        lambda d, out: ["example", "penguins", "--run", "--out", out.parent], at=f"figures/{FIGURE}"
    ),
}
FOLDERS = {
    ("fit", "out"),
    ("federation run", "out"),
    ("compare", "out"),
    ("federation export-job", "job_folder"),
    ("federation export-job", "out"),
    ("release", "out"),
    ("site restore", "folder"),
}
CONTINUED = {  # the command continues with what exists, if it is of its kind
    ("resume", "folder"),
    ("names", "folder"),  # by the names, in its report and tables
    ("site join", "folder"),
    ("site start", "folder"),
    ("site start", "log_file"),  # a log goes on
    ("site join", "log_file"),
    ("site answer", "folder"),
    ("site answer", "shared"),
    ("site confirm", "folder"),
    ("site summarize", "folder"),
    ("site review", "folder"),  # by the decisions of its officer
    ("site approve", "folder"),
    ("site decline", "folder"),
    ("site erase", "folder"),
    ("site export", "folder"),  # by a line of its log
    ("federation key", "folder"),
    ("federation receive", "folder"),
    ("site prune", "folder"),
    ("release", "register"),
    ("federation invite", "folder"),
    ("federation admit", "folder"),
    ("federation remove", "folder"),
    ("federation serve", "folder"),
    ("federation serve", "log_file"),
    ("federation run", "files"),  # requests and responses, each in a file of its own
    ("site status", "metrics"),
    ("federation status", "metrics"),
}
NEVER = {("federation init", "folder")}  # it holds keys
READ = {
    ("fit", "names"),
    ("federation run", "names"),
    ("federation export-job", "names"),
    ("fit", "data_config"),
    ("predict", "folder"),
    ("predict", "file"),
    ("export", "folder"),
    ("certify", "folder"),
    ("compare", "data_folder"),
    ("compare-runs", "old"),
    ("compare-runs", "new"),
    ("names", "file"),
    ("release", "run"),
    ("federation run", "folder"),
    ("federation watch", "folder"),
    ("federation status", "folder"),
    ("site join", "invitation"),
    ("site join", "policy"),
    ("site join", "downstream"),
    ("site start", "downstream"),
    ("site status", "folder"),
    ("site stop", "folder"),
    ("site backup", "folder"),
    ("site restore", "archive"),
    ("site policy", "path"),
    ("site summarize", "policy"),
    ("site summarize", "data_config"),
    ("site export", "recipient"),
    ("site export", "study"),
    ("site export", "policy"),
    ("site dpia", "folder"),
    ("site dpia", "policy"),
    ("site dpia", "log_heads"),
    ("site keys", "folder"),
    ("site log", "log"),
    ("site log", "log_heads"),
}


def commands(group, *names):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *names, name)
        else:
            yield " ".join((*names, name)), command


def call(*words):
    """Exit code and stderr of a command."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stderr


def fit(folder):
    return ["fit", folder / "a.csv", folder / "b.csv", *K]


def everything(folder):
    """All that is in a folder: names, links and bytes."""
    return {
        path: os.readlink(path) if path.is_symlink() else path.is_file() and path.read_bytes()
        for path in folder.rglob("*")
    }


def refused(folder, *words, says):
    """The command is refused in one line, and leaves all as it was."""
    before = everything(folder)
    code, err = call(*words)
    assert (code, err.count("\n")) == (1, 1), err
    assert says in err
    assert everything(folder) == before


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two tables, a federation and a site's log: what commands read."""
    folder = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(0)
    rows = {s: rng.normal(size=(40, 2)) + 8 * rng.integers(2, size=(40, 1)) for s in "abc"}
    for name in "ab":
        np.savetxt(folder / f"{name}.csv", rows[name], delimiter=",", header="x,y", comments="")
    create(folder / "fed", "fed", "localhost", ("a", "b"), engine_name="nvflare")
    for name in "ab":
        invite(FederationFolder.read(folder / "fed"), name)
    sites = [
        open_site(s, X, parse('format = 1\n[protect]\nmode = "raw"'), folder=folder / f"kept-{s}")
        for s, X in rows.items()
    ]
    done = run(Lloyd(k=2, min_cluster_size=5, n_starts=1), LocalFederation(sites), seed=1)
    assert done.finished
    for site in sites:
        site.close()
    (folder / "kept-a").rename(folder / "kept")
    (folder / "log_heads.jsonl").write_text('{"site": "a", "head": "0:0"}\n')
    (folder / "names.toml").write_text('[columns]\nx = "Length"\n')
    (folder / "rules.toml").write_text('format = 1\n[protect]\nmode = "raw"\n')
    words = [
        "site",
        "summarize",
        "--no-sensitive-columns",
        folder / "site",
        "--data",
        folder / "a.csv",
        "--one-row-per-person",
    ]
    assert call(*words) == (0, "")
    people = np.column_stack([np.arange(40), rows["a"]])
    np.savetxt(folder / "people.csv", people, delimiter=",", header="id,x,y", comments="", fmt="%.6g")
    words = [
        "site",
        "summarize",
        "--no-sensitive-columns",
        folder / "updated",
        "--data",
        folder / "people.csv",
        "--person",
        "id",
    ]
    assert call(*words) == (0, "")
    assert call("site", "approve", "--table", "--yes", folder / "updated") == (0, "")
    assert call("federation", "key", folder / "key") == (0, "")
    texts = (f'{name} = "{name}"' for name in ("title", "purpose", "contact"))
    (folder / "study.toml").write_text("\n".join([*texts, "expires = 2999-01-01", ""]))
    return folder


@pytest.fixture
def there(made, tmp_path):
    """The same in a folder of its own, with a run on it."""
    folder = tmp_path / "there"
    shutil.copytree(made, folder, ignore=shutil.ignore_patterns(PLACE))
    assert call(*fit(folder), "--out", folder / "run") == (0, "")
    return folder


@pytest.fixture
def offline(monkeypatch):
    """``unpooled federation run`` up to where it would call the server."""

    def perform(job, folder, report, **_):
        folder.begin(job)
        if report is not None:
            report.write_text("a report")

    return lambda: monkeypatch.setattr(
        import_module("unpooled.app.cli.federation_run"), "run_and_print", perform
    )


# ---------------------------------------------------------------- no command is missing


def kinds_in(kind):
    """A type and all types in it: those of list[Path] | None."""
    return {kind, *(inner for one in typing.get_args(kind) for inner in kinds_in(one))}


def test_the_tables_have_every_path_that_a_command_takes():
    found, may = set(), set()
    for name, command in commands(typer.main.get_command(app)):
        hints = typing.get_type_hints(command.callback)
        found |= {(name, p) for p, kind in hints.items() if Path in kinds_in(kind)}
        may |= {name} if "overwrite" in hints else set()
    written = {(command, parameter) for command, parameter, *_ in FILES}
    assert found == {*written, *FOLDERS, *CONTINUED, *NEVER, *READ}
    assert may == {command for command, *_ in (*FILES, *FOLDERS)}


# ---------------------------------------------------------------- files


@pytest.fixture(params=FILES, ids=" ".join)
def writing(request):
    return FILES[request.param]


def test_an_existing_file_is_replaced_only_with_overwrite(writing, there, offline):
    out = there / writing.at
    words = writing.words(there, out)
    if words[:2] == ["federation", "run"]:
        offline()
    out.parent.mkdir(exist_ok=True)
    out.write_bytes(MINE)
    refused(there, *words, says=f"{out} already exists. Use --overwrite to replace it")
    code, err = call(*words, "--overwrite")
    assert (code, err) == (0, "")
    assert out.read_bytes() != MINE
    assert not [path for path in out.parent.iterdir() if path.name.startswith(".")]


def test_a_link_that_leads_nowhere_is_there_too(writing, there):
    out = there / writing.at
    out.parent.mkdir(exist_ok=True)
    out.symlink_to(there / "nowhere")
    refused(there, *writing.words(there, out), says=f"{out} already exists. Use --overwrite to replace it")


READING = [(name, given) for name, writing in FILES.items() for given in writing.inputs]


@pytest.mark.parametrize(
    ("name", "given"), READING, ids=lambda x: " ".join(x) if isinstance(x, tuple) else str(x)
)
def test_an_input_is_never_overwritten(name, given, there):
    read = there / given
    before, names = read.read_bytes(), [read, there / "symbolic.link"]
    names[1].symlink_to(read)
    if there in read.parents:  # what is shipped may lie on another disk
        names.append(there / "hard.link")
        names[2].hardlink_to(read)
    for out, more in zip(names, (("--overwrite",), (), ("--overwrite",)), strict=False):
        refused(there, *FILES[name].words(there, out), *more, says="an input is never overwritten")
        assert read.read_bytes() == before


def test_a_relative_name_is_seen_through(there, monkeypatch):
    monkeypatch.chdir(there / "run")
    refused(
        there,
        "predict",
        ".",
        there / "a.csv",
        "-o",
        "../a.csv",
        says=f"../a.csv is the input {there / 'a.csv'}",
    )


def test_the_rows_of_a_run_are_known_from_another_folder_too(there, monkeypatch, tmp_path):
    monkeypatch.chdir(there)
    assert call("fit", "a.csv", "b.csv", *K, "--out", "relative") == (0, "")
    monkeypatch.chdir(tmp_path)
    words = ["export", "--to", "html", there / "relative", "-o", there / "b.csv", "--overwrite"]
    refused(there, *words, says="an input is never overwritten")


def test_the_input_of_a_summary_table_is_known_by_its_columns(there):
    for words in (["site", "dpia", there / "site", "--html"], ["site", "review", there / "updated", "--csv"]):
        refused(there, *words, there / "people.csv", "--overwrite", says="an input is never overwritten")
    out = there / "exported.csv"
    assert call("site", "review", there / "site", "--csv", out) == (0, "")
    assert call("site", "review", there / "site", "--csv", out, "--overwrite") == (0, "")


def test_clusters_are_not_written_under_the_name_of_another_kind(there):
    words = ["predict", there / "run", there / "a.csv", "-o"]
    for name in ("new.xlsx", "new.parquet"):
        refused(there, *words, there / name, says="written as CSV")
    assert call(*words, there / "NEW.CSV") == (0, "")


def test_a_run_in_its_folder_is_part_of_the_input(there):
    for name in ("result.json", "report.html", "history.csv"):
        words = ["predict", there / "run", there / "a.csv", "-o", there / "run" / name, "--overwrite"]
        refused(there, *words, says=f"{there / 'run' / name} is an input")


def test_names_that_are_chosen_for_the_user_are_guarded_too(there, monkeypatch):
    monkeypatch.chdir(there)
    exists = "already exists. Use --overwrite to replace it."
    refused(there, "export", "--to", "html", "run", says=f"run/report.html {exists}")
    for words in (["export", "run", "--to", "json"], ["example", "heart"], ["site", "init"]):
        assert call(*words) == (0, "")
        refused(there, *words, says=exists)
        assert call(*words, "--overwrite") == (0, "")


def test_only_a_regular_file_is_replaced(there):
    os.mkfifo(there / "pipe")
    words = ["predict", there / "run", there / "a.csv", "-o"]
    for name, says in (("pipe", "is not a regular file"), ("run", "there is a folder")):
        refused(there, *words, there / name, "--overwrite", says=says)


# ---------------------------------------------------------------- folders


def test_the_folder_of_a_run_is_replaced_only_with_overwrite(there, offline):
    out = there / "run"
    says = f"{out} already exists (it holds a finished run"
    job = (out / "job.json").read_bytes()
    words = [*fit(there), "--seed", 3, "--out", out]
    refused(there, *words, says=says)
    assert call(*words, "--overwrite") == (0, "")
    assert (out / "job.json").read_bytes() != job
    offline()
    words = ["federation", "run", there / "fed", *K, "--out", out]
    refused(there, *words, says=says)
    assert call(*words, "--overwrite") == (0, "")
    refused(there, *words, says="it holds a run that is not finished")


def test_a_folder_of_something_else_is_not_replaced_at_all(there):
    (there / "mine").mkdir()
    (there / "mine" / "thesis.txt").write_bytes(MINE)
    job = ["federation", "export-job", there / "job", *SITES, *K, "--out", there / "mine"]
    for words in (
        [*fit(there), "--out", there / "mine"],
        ["federation", "run", there / "fed", *K, "--out", there / "mine"],
        job,
    ):
        refused(there, *words, "--overwrite", says="is not empty, and not the folder of a run")
    words = ["compare", there / "a.csv", "-k", 2, "--out", there / "mine", "--overwrite"]
    refused(there, *words, says="is not empty, and not a folder of comparisons")


def test_a_folder_in_which_a_run_was_killed_before_it_began_counts_as_empty(there):
    (there / "begun").mkdir()
    for name in (".job.json.x1", ".unpooled.x2"):
        (there / "begun" / name).write_bytes(b"{")
    assert call(*fit(there), "--out", there / "begun") == (0, "")
    assert not list((there / "begun").glob(".job.json.*"))


def test_the_folder_of_a_release_is_replaced_only_with_overwrite(there):
    out = there / "released"
    words = ["release", there / "run", "--preset", "datashield", "--out", out]
    assert call(*words) == (0, "")
    refused(there, *words, says=f"{out} already exists. Use --overwrite to replace it")
    assert call(*words, "--overwrite") == (0, "")
    (there / "mine").mkdir()
    (there / "mine" / "thesis.txt").write_bytes(MINE)
    words = ["release", there / "run", "--preset", "datashield", "--out", there / "mine", "--overwrite"]
    refused(there, *words, says="is not empty, and not the folder of a release")


def test_a_run_does_not_replace_the_rows_it_reads(there):
    """History is a table: it can be clustered, but not into its own folder."""
    rows, out = there / "run" / "history.csv", there / "run"
    for given in (rows, there / "symbolic.csv", there / "hard.csv"):
        if given == there / "symbolic.csv":
            given.symlink_to(rows)
        if given == there / "hard.csv":
            given.hardlink_to(rows)
        says = f"{rows} is {'an' if given == rows else 'the'} input"
        refused(there, "fit", given, "-k", 2, "--out", out, "--overwrite", says=says)


def test_the_folder_of_a_job_is_replaced_only_if_it_is_nothing_else(there):
    job, out = there / "jobs" / "heart", there / "later"
    words = ["federation", "export-job", job, *SITES, *K, "--out", out]
    assert call(*words) == (0, "")
    first = everything(job)
    refused(there, *words, says=f"{job} already exists. Use --overwrite to replace it")
    assert call(*words, "--overwrite") == (0, "")
    assert everything(job).keys() == first.keys()
    assert everything(job) != first  # every job has a name of its own
    assert [path.name for path in job.parent.iterdir()] == ["heart"]
    shutil.rmtree(job)
    refused(there, *words, says=f"{out} already exists (it holds a run that is not")
    assert call(*words, "--overwrite") == (0, "")
    (next(path for path in job.iterdir() if path.is_dir()) / "mine.py").write_bytes(MINE)
    refused(there, *words, "--overwrite", says="is not empty, and not the folder of a job and nothing else")


def test_bounds_from_a_policy_are_an_input(there):
    policy = there / "policy.toml"
    policy.write_text('format = 1\n[domain]\ncolumns = ["x", "y"]\nlower = [-9, -9]\nupper = [19, 19]\n')
    bounds = ("--scale", "min-max", "--bounds", policy, "--overwrite")
    for words in (
        [*fit(there), "--report", policy],
        [*fit(there), "--out", policy],
        ["federation", "run", there / "fed", *K, "--report", policy],
        ["federation", "export-job", policy, *SITES, *K, "--out", there / "new"],
        ["federation", "export-job", there / "job", *SITES, *K, "--out", policy],
    ):
        refused(there, *words, *bounds, says=f"{policy} is an input")


def test_two_outputs_are_not_one(there):
    new = there / "new"
    for words in (
        [*fit(there), "--out", new, "--report", new],
        [*fit(there), "--out", new, "--report", new / "result.json"],
        ["federation", "export-job", new, *SITES, *K, "--out", new],
    ):
        refused(there, *words, says="is named for two outputs")


def test_the_report_may_be_that_of_the_folder_or_lie_beside_it(there):
    new = there / "new"
    assert call(*fit(there), "--out", new, "--report", new / "report.html") == (0, "")
    assert call("resume", new, "--report", new / "report.html") == (0, "")
    assert call(*fit(there), "--out", there / "newer", "--report", there / "newer" / "mine.html") == (0, "")


# ---------------------------------------------------------------- what goes on, and what never does


def test_a_federation_is_never_replaced(there):
    words = ["federation", "init", there / "fed", "--name", "fed", "--address", "localhost", *SITES]
    refused(there, *words, says=f"{there / 'fed'} already exists. A federation is never replaced")


def test_a_site_joins_in_a_folder_that_is_its_own(there):
    invitation, site = there / "fed" / "invitations" / "a.json", there / "joined"
    (site / "federations" / "fed").mkdir(parents=True)
    (site / "federations" / "fed" / "mine.txt").write_bytes(MINE)
    words = ["site", "join", site, invitation]
    refused(there, *words, says="is not empty, and not the folder of a site")
    shutil.rmtree(site / "federations")
    (site / "rows.csv").write_bytes(MINE)
    code, err = call(*words)
    assert (code, "has no data yet" in err) == (1, True)
    assert [path.name for path in site.iterdir()] == ["rows.csv"]  # the invitation is not accepted
    assert (site / "rows.csv").read_bytes() == MINE
    for _ in range(2):  # the second time with the same key
        SiteFolder(site).accept(invitation)
    kept = site / "federations" / "fed" / "invitation.json"
    refused(there, "site", "join", site, kept, says="invitation.json is an input")
