"""The examples in the help of the commands: each runs as it is written, in an order in which a user could."""

import csv
import random
import re
import shlex
import shutil
from pathlib import Path

import typer
from typer.testing import CliRunner

from studies import study_of
from unpooled.app.cli import app
from unpooled.site.study_store import StudyFolder

MACHINES = Path(__file__).parents[1] / "machines"
# Examples that wait for other machines or for a browser, and the tests that run these commands so.
LIVE = {
    "unpooled federation serve heart": "network.py",
    "unpooled federation admit heart": "test_enrolment.py",
    'unpooled federation admit heart hospital-a --again --reason "disk lost"': "test_enrolment.py",
    "unpooled federation run heart -k 2..6 --report report.html --out run": "test_runs.py",
    "unpooled federation run heart -k 3 --files share": "test_file_processes.py",
    "unpooled federation watch heart": "../app/test_review_and_monitor.py",
    "unpooled site review hospital-a": "../app/test_review_and_monitor.py",
    "unpooled site join hospital-a hospital-a.json --data patients.csv --person patient_id "
    "--diverse diagnosis": "network.py",
    "unpooled site join region region.json --downstream heart --policy rules.toml": "relay_network.py",
    "unpooled site start hospital-a": "network.py",
    "unpooled site answer hospital-a share/hospital-a --watch": "test_file_processes.py",
    "unpooled site stop hospital-a": "test_processes.py",
    "unpooled site keys hospital-a --forget hospital-b": "test_keys.py",
}
RUN = """
unpooled methods
unpooled example penguins --run
unpooled fit hospital-*.csv -k 3 --report report.html --out run
unpooled predict run new.csv -o labels.csv
unpooled export run --to onnx
unpooled certify run --effort quick
unpooled names run names.toml
unpooled resume run
unpooled compare-runs run-2026 run-2027
unpooled release run --preset opensafely --out release
unpooled compare hospital-*.csv -k 3 --label diagnosis --out compared
unpooled compare --suite my-sets --label class
unpooled site init hospital-a --name hospital-a --preset opensafely
unpooled site policy hospital-a
unpooled site summarize hospital-a --data patients.csv --person patient_id --diverse diagnosis
unpooled site approve hospital-a
unpooled federation key heart
unpooled site export hospital-a --recipient heart-key.json --study study.toml -o hospital-a.unpooled
unpooled federation receive heart heart/*.unpooled
unpooled site join hospital-a heart-key.json --data patients.csv --person patient_id --diverse diagnosis
unpooled site decline hospital-a 2 --reason "no agreement with you"
unpooled site log hospital-a --verify
unpooled site dpia hospital-a
unpooled site status hospital-a
unpooled site erase hospital-a P0017
unpooled site prune hospital-a --before 2026-01-01
unpooled site backup hospital-a hospital-a.tar.gz
unpooled site restore hospital-a.tar.gz hospital-a
unpooled site confirm hospital-a
unpooled federation init heart --name heart --address 10.0.0.1 --site hospital-a --site hospital-b
unpooled federation invite heart hospital-c
unpooled federation status heart
unpooled federation remove heart hospital-b
unpooled federation remove heart --older-than 30
unpooled federation export-job jobs/heart --site hospital-a --site hospital-b -k 3 --out run
""".strip().splitlines()


def examples():
    """The examples in the help of every command, by its name."""

    def every(group, *path):
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from every(command, *path, name)
            else:
                lines = re.sub(r"(?<=\S)\n(?=\S)", " ", command.help).splitlines()
                yield (*path, name), [line for line in lines if line.startswith("unpooled ")]

    return dict(every(typer.main.get_command(app)))


def test_every_command_has_an_example_that_a_test_runs():
    found = examples()
    assert [path for path, lines in found.items() if not lines] == []
    assert sorted(line for lines in found.values() for line in lines) == sorted([*RUN, *LIVE])
    assert [file for file in LIVE.values() if not (MACHINES / file).exists()] == []


def table(path, seed, people=60):
    draw = random.Random(seed)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["patient_id", "age", "bmi", "diagnosis"])
        for i in range(people):
            kind = draw.randrange(3)
            age, bmi = 30 + 20 * kind + draw.gauss(0, 3), 20 + 5 * kind + draw.gauss(0, 1)
            rows.writerow([f"P{i:04d}", f"{age:.1f}", f"{bmi:.1f}", "abc"[kind]])


def prepare(line, here):
    """Make what an example finds, and no example before it made."""
    if line.startswith("unpooled fit"):
        for seed, name in enumerate(("hospital-a", "hospital-b", "new", "patients")):
            table(here / f"{name}.csv", seed)
    elif line.startswith("unpooled names"):
        Path("names.toml").write_text('[columns]\nbmi = "Body mass index"\n[clusters]\nA = "Younger"\n')
    elif line.startswith("unpooled compare-runs"):
        for name in ("run-2026", "run-2027"):
            shutil.copytree("run", name)
    elif line.startswith("unpooled compare --suite"):
        Path("my-sets").mkdir()
        shutil.move("compared", "compared-files")
        table(here / "my-sets" / "one.csv", 5, people=30)
        text = (here / "my-sets" / "one.csv").read_text()
        (here / "my-sets" / "one.csv").write_text(text.replace("diagnosis", "class", 1))
    elif line.startswith("unpooled site export"):
        shutil.copy("heart/heart-key.json", here)
        lines = ('title = "Groups"', 'purpose = "care"', 'contact = "Dr. Low"', "expires = 2099-06-30")
        Path("study.toml").write_text("\n".join(lines))
    elif line.startswith("unpooled federation receive"):
        shutil.move("hospital-a.unpooled", "heart")
    elif line.startswith("unpooled site decline"):
        for number in (1, 2):
            StudyFolder(here / "hospital-a").receive("heart", study_of(f"run-{number}"), "")
    elif line.startswith("unpooled site restore"):
        shutil.move("hospital-a", "lost")
    elif line.startswith("unpooled federation init"):
        shutil.move("heart", "by-email")
    elif line.startswith("unpooled federation export-job"):
        shutil.move("run", "run-of-files")


def test_the_examples_run_as_they_are_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    codes = {
        "unpooled federation status heart": 3,
        "unpooled site status hospital-a": 6,
    }  # a study is pending
    for line in RUN:
        prepare(line, tmp_path)
        done = CliRunner().invoke(app, shlex.split(line)[1:], input="y\n" * 5)
        assert done.exit_code == codes.get(line, 0), (line, done.stdout, done.stderr, done.exception)
