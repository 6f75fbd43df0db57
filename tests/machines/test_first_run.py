"""The commands of a first live run, in the order of the tutorial, each person in a folder of their own."""

import csv
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from machines.network import Network, reserved_port, until
from unpooled.site.study_store import StudyFolder

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "federation.md"
PLACE = "coordinator.example.org:8002"
BOTH_WAIT = r"waiting for hospital-a since \d+:\d\d, hospital-b since \d+:\d\d to approve"


def steps():
    """(person, command) for every command of the page."""
    person, commands = "everybody", []
    live = PAGE.read_text(encoding="utf-8").partition("\n## Live\n")[2]
    for part in re.split(r"^### ", live, flags=re.M):
        if commands or part.startswith("Coordinator"):
            person = part.split(":")[0]
        for block in re.findall(r"```sh\n(.*?)```", part, re.S):
            commands += [(person, line) for line in block.splitlines()]
    return commands


def kinds(folder):
    """The kinds of lines in a site's log, if there is one."""
    log = folder / "log.jsonl"
    return [json.loads(line)["kind"] for line in log.read_text().splitlines()] if log.exists() else []


@pytest.fixture
def machines(hospital_files, tmp_path):
    """Three folders in place of machines. Each hospital has its own file, with names, and nothing else."""
    for folder in ("Coordinator", "Hospital A", "Hospital B"):
        (tmp_path / folder.replace(" ", "-")).mkdir()
    for letter, hospital in (("A", "cleveland"), ("B", "hungarian")):
        with hospital_files[hospital].open() as file:
            rows = list(csv.DictReader(file))
        with (tmp_path / f"Hospital-{letter}" / "patients.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, ["name", *rows[0]])
            writer.writeheader()
            writer.writerows({"name": f"patient {i}", **row} for i, row in enumerate(rows))
    made = Network.__new__(Network)
    made.alone(tmp_path)
    yield made
    made.close()


def test_the_page_about_a_first_run(machines, tmp_path):
    commands = steps()
    installed = [line for person, line in commands if line.startswith("pip")]
    assert len(installed) == 1  # on three machines
    assert 3 * len(installed) + len(commands) - 1 <= 12
    address, before = f"localhost:{reserved_port()}", set(tmp_path.rglob("*"))
    for person, line in commands[1:]:
        words = shlex.split(line.replace(PLACE, address))[1:]
        folder = tmp_path / person.replace(" ", "-")
        lasting = words[:2] in (["federation", "serve"], ["site", "join"], ["federation", "run"])
        if words[:2] == ["federation", "admit"]:  # the telephone: all have read out their fingerprints
            for site in "AB":
                until(
                    lambda site=site: machines.fingerprint(f"Hospital-{site}"), f"the fingerprint of {site}"
                )
                until(
                    lambda site=site: f"hospital-{site.lower()} asks" in machines.output("Coordinator"),
                    "asking",
                )
        if words[:2] == ["site", "approve"]:
            until(lambda: re.search(BOTH_WAIT, machines.output("run")), "the run to wait for both officers")
            site = folder / words[2]
            until((site / "summary" / "page.html").exists, f"the page of {person}")
            until(StudyFolder(site).pending, f"the study at {person}")
            message = "a study is pending: k-means of heart, k 2..4"
            until(lambda text=message, who=folder.name: text in machines.output(who), "the message")
            assert "release" not in kinds(site)
        if words[:2] == ["federation", "run"]:
            words += ["--deadline", "600"]  # no site is left out because this machine is busy
        if lasting:
            machines.start("run" if words[1] == "run" else folder.name, *words, folder=folder)
        else:
            done = machines.command(*words, folder=folder, entered="y\ny\n")
            if words[1] == "admit":
                for letter in "AB":
                    fingerprint = machines.fingerprint(f"Hospital-{letter}")
                    assert f"hospital-{letter.lower()}: {fingerprint}" in done.stdout
        if words[1] == "serve":
            until(lambda: "the server is up" in machines.output("Coordinator"), "the server")
            for letter in "ab":  # the two files that are sent
                sent = tmp_path / "Coordinator" / "heart" / "invitations" / f"hospital-{letter}.json"
                shutil.copy(sent, tmp_path / f"Hospital-{letter.upper()}")
    machines.finish("run")
    assert "release" in kinds(tmp_path / "Hospital-A" / "hospital-a")
    report = tmp_path / "Coordinator" / "report.html"
    handled = (
        [p for p in before if p.is_file()] + list(tmp_path.glob("Hospital-*/hospital-*.json")) + [report]
    )
    assert len(handled) <= 6
    assert report.stat().st_size > 10_000
    files = [tmp_path / f"Hospital-{letter}" / "patients.csv" for letter in "AB"]
    both = [folder / f"hospital-{folder.name[-1].lower()}.csv" for folder in (f.parent for f in files)]
    for source, target in zip(files, both, strict=True):
        shutil.copy(source, target)
    machines.command(
        "fit", *both, "-k", "2..4", "--protect", "summary", "--exclude", "name", "--out", tmp_path / "fit"
    )
    for name in ("model.unpooled", "preparation.json"):
        assert (tmp_path / "Coordinator" / "run" / name).read_bytes() == (
            tmp_path / "fit" / name
        ).read_bytes()
