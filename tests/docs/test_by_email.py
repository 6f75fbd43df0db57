"""The commands of the page about a federation by e-mail, each person in a folder of their own."""

import json
import re
import shlex
import shutil
from importlib.resources import files
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pages import ROOT
from unpooled.app.cli import app

PAGE = (ROOT / "docs" / "tutorials" / "federation.md").read_text(encoding="utf-8")
BY_EMAIL = PAGE.partition("\n## By e-mail\n")[2].partition("\n## ")[0]
HOSPITALS = {"Hospital A": "cleveland", "Hospital B": "hungarian"}


def steps():
    """(person, commands) for every block of commands of the page."""
    blocks = []
    for part in re.split(r"^### ", BY_EMAIL, flags=re.M):
        person = part.partition(":")[0]
        blocks += [(person, block.splitlines()) for block in re.findall(r"```sh\n(.*?)```", part, re.S)]
    return blocks


@pytest.fixture
def machines(tmp_path):
    """Three folders in place of machines. Each hospital has its own file, with ids, and nothing else."""
    head, *rows = (
        (files("unpooled.data.examples") / "heart_disease.csv").read_text(encoding="utf-8").splitlines()
    )
    folders = {"Coordinator": tmp_path / "Coordinator"}
    for person, hospital in HOSPITALS.items():
        folder = folders[person] = tmp_path / person
        folder.mkdir()
        mine = [row.partition(",")[2] for row in rows if row.startswith(hospital)]
        lines = [
            f"patient_id,{head.partition(',')[2]}",
            *(f"{hospital}-{i},{row}" for i, row in enumerate(mine)),
        ]
        (folder / "patients.csv").write_text("\r\n".join(lines) + "\r\n", encoding="utf-8")
    folders["Coordinator"].mkdir()
    return folders


def test_the_page_as_three_people(machines, monkeypatch):
    (_, installed), *blocks = steps()
    assert installed == ["pip install '.[secure]'"]
    study = re.search(r"```toml\n(.*?)```", BY_EMAIL, re.S)[1]
    shown = {}
    for number, (person, lines) in enumerate(blocks):
        monkeypatch.chdir(machines[person])
        for line in lines:
            done = CliRunner().invoke(app, shlex.split(line.removeprefix("unpooled ")), input="y\ny\n")
            assert done.exit_code == 0, (person, line, done.output)
            shown[line] = done.output
        if number == 0:  # the first e-mail
            Path("study.toml").write_text(study, encoding="utf-8")
            for hospital in HOSPITALS:
                for file in ("study.toml", "heart/heart-key.json"):
                    shutil.copy(file, machines[hospital])
        for file in machines[person].glob("hospital-*.unpooled"):  # the e-mail of a hospital
            shutil.copy(file, machines["Coordinator"] / "heart")
    check_fingerprints(shown)
    check_result(machines, monkeypatch)


def check_fingerprints(shown):
    """What is compared by telephone is the same at both ends."""

    def fingerprints(line):
        return re.findall(r"(?:[0-9a-f]{4} ){9}[0-9a-f]{4}", shown[line])

    (key,) = (line for line in shown if "federation key" in line)
    (receive,) = (line for line in shown if "receive" in line)
    exports = [fingerprints(line) for line in shown if "site export" in line]
    assert [[recipient] for recipient, _ in exports] == 2 * [fingerprints(key)]
    assert [site for _, site in exports] == fingerprints(receive)


def check_result(machines, monkeypatch):
    """The result is that of a simulation on the same data."""
    monkeypatch.chdir(machines["Coordinator"])
    data = [f"{person.lower().replace(' ', '-')}.csv" for person in HOSPITALS]
    for person, name in zip(HOSPITALS, data, strict=True):
        shutil.copy(machines[person] / "patients.csv", name)
    columns = "age,sex,cp,trestbps,chol,thalach,exang,oldpeak"
    options = ["--protect", "summary", "-k", "3", "--columns", columns, "--person", "patient_id"]
    options += ["--categorical", "cp", "--na", "chol=0"]
    done = CliRunner().invoke(app, ["fit", *data, *options, "--out", "simulated"])
    assert done.exit_code == 0, done.output
    assert Path("run/model.unpooled").read_bytes() == Path("simulated/model.unpooled").read_bytes()
    result = json.loads(Path("run/result.json").read_text(encoding="utf-8"))
    assert [site["rows"] for site in result["sites"]] == [303, 294]
    assert result["columns"] == columns.split(",")
    assert "Types of heart disease" in Path("report.html").read_text(encoding="utf-8")


def test_the_page_counts_its_commands():
    each = re.search(r"\| commands \| (\d+) for each person \|", PAGE)
    blocks = steps()[1:]
    count = {person: sum(len(lines) for one, lines in blocks if one == person) for person, _ in blocks}
    assert count == dict.fromkeys(("Coordinator", *HOSPITALS), int(each[1]))
