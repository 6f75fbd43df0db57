"""The commands of the page about runs over files, each person in a folder of their own."""

import re
import shlex
import shutil
import threading
from pathlib import Path

from typer.testing import CliRunner

from docs.test_by_email import HOSPITALS, machines  # noqa: F401  a fixture
from pages import ROOT
from unpooled.app.cli import app
from unpooled.federation.file_responder import FileResponder
from unpooled.federation.provisioning.file_membership import FileMembership
from unpooled.site.study_store import APPROVED, StudyFolder

PAGE = (ROOT / "docs" / "deployment" / "by-files.md").read_text(encoding="utf-8")


def call(line, answers="y\ny\n"):
    done = CliRunner().invoke(app, shlex.split(line.removeprefix("unpooled ")), input=answers)
    assert done.exit_code == 0, (line, done.output)
    return re.findall(r"(?:[0-9a-f]{4} ){9}[0-9a-f]{4}", done.output)


def test_the_page_as_three_people(machines, monkeypatch, tmp_path):  # noqa: F811
    share = tmp_path / "share"
    machines = {
        person: folder.rename(tmp_path / person.replace(" ", "-")) for person, folder in machines.items()
    }
    for person, folder in machines.items():
        (folder / "share").symlink_to(share)
        if person in HOSPITALS:
            (share / f"hospital-{person[-1].lower()}").mkdir(parents=True)
    parts = re.split(r"^## ", PAGE, flags=re.M)[1:]
    shown = {}
    for part in parts:
        person = part.partition(":")[0]
        for block in re.findall(r"```sh\n(.*?)```", part, re.S):
            monkeypatch.chdir(machines[person])
            for line in block.splitlines():
                shown[line.split()[1:3][1], person] = call(line)
        for hospital in HOSPITALS:  # the first e-mail
            shutil.copy(machines["Coordinator"] / "heart" / "heart-key.json", machines[hospital])
    (key,) = shown["key", "Coordinator"]
    joined = [shown["join", hospital] for hospital in HOSPITALS]
    assert [coordinator for coordinator, _ in joined] == [key, key]
    assert [site for _, site in joined] == shown["receive", "Coordinator"]
    (run,) = re.findall(r"^unpooled federation run .*$", PAGE, re.M)
    for person in HOSPITALS:
        folder = machines[person] / f"hospital-{person[-1].lower()}"
        call(f"unpooled site approve {shlex.quote(str(folder))} --table --yes")
    over = threading.Event()

    def hospital(person, name):
        folder = machines[person] / name
        responder = FileResponder(FileMembership.find(folder), share / name)
        while not over.wait(0.05):
            responder.answer_all()
            for study in StudyFolder(folder).pending():
                StudyFolder(folder).decide(study.study.digest, APPROVED, "the officer")
        responder.close()

    threads = [threading.Thread(target=hospital, args=(p, f"hospital-{p[-1].lower()}")) for p in HOSPITALS]
    for thread in threads:
        thread.start()
    try:
        monkeypatch.chdir(machines["Coordinator"])
        call(f"{run} --deadline 3600")  # a slow machine loses no site
    finally:
        over.set()
        for thread in threads:
            thread.join()
    for person in HOSPITALS:
        shutil.copy(machines[person] / "patients.csv", f"hospital-{person[-1].lower()}.csv")
    options = "-k 3 --protect summary --person patient_id --out fit"
    call(f"unpooled fit hospital-a.csv hospital-b.csv {options}")
    assert Path("run/model.unpooled").read_bytes() == Path("fit/model.unpooled").read_bytes()
    assert Path("report.html").exists()
