"""A country, two relays and four hospitals on this machine, set up by the commands of docs/relays.md."""

import contextlib
import csv
import json
import re
import shlex
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from machines.network import Network, reserved_port, until
from unpooled.federation.progress_file import ProgressFile
from unpooled.federation.provisioning.enrolment import awaiting_admission, enrolments
from unpooled.federation.provisioning.federation_folder import FederationFolder, connected_sites
from unpooled.site.study_store import StudyFolder
from unpooled.storage.file_locks import is_locked

PAGE = Path(__file__).parents[2] / "docs" / "relays.md"
RELAYS = {"north": ("hospital-a", "hospital-b"), "south": ("hospital-c", "hospital-d")}
HOSPITALS = [hospital for some in RELAYS.values() for hospital in some]
OTHERS = {
    "north": "south",
    "hospital-a": "hospital-c",
    "hospital-b": "hospital-d",
    "hospital-e": "hospital-f",
}
LATER = ("hospital-e", "hospital-f", "hospital-g")  # one more in each federation, for secure sums
SERVE, JOIN, RUN = ["federation", "serve"], ["site", "join"], ["federation", "run"]


def steps(title):
    """Section by section of a part of the page: the commands in its order, by the person who gives them."""
    part = PAGE.read_text(encoding="utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]
    sections = []
    for section in part.split("\n### ")[1:]:
        person = section.split(":")[0]
        blocks = re.findall(r"```sh\n(.*?)```", section, re.S)
        lines = [line for block in blocks for line in block.splitlines()]
        if lines:
            sections.append({who: [rename(line) for line in lines] for who, rename in people_like(person)})
    return sections


def people_like(person):
    """The people who give the commands of one person, and how their names differ in the commands."""

    def south(text):
        for here, there in OTHERS.items():
            text = text.replace(here, there)
        return text

    if person == "Country":
        return [("Country", str)]
    if person == "North":
        return [("North", str), ("South", south)]
    first = person.removeprefix("Hospital ").lower()
    return [
        (
            f"Hospital-{letter.upper()}",
            lambda text, letter=letter: text.replace(f"hospital-{first}", f"hospital-{letter}"),
        )
        for letter in {"a": "abcd", "e": "efg"}[first]
    ]


class TreeNetwork(Network):
    """Processes by name: ``Country``, ``North``, ``north`` (its relay), ``hospital-a``, ``run``."""

    def __init__(self, folder, source, env=None):
        self.alone(folder, env)
        self.ports = {name: reserved_port() for name in ("country", "north", "south")}
        self.commands = {}  # of what is running, to start it again
        every = (*HOSPITALS, *LATER)
        for person in ("Country", "North", "South", *(name.title() for name in every)):
            (folder / person).mkdir()
        with source.open() as file:
            rows = list(csv.DictReader(file))
        for number, hospital in enumerate(every):
            with (folder / hospital.title() / "patients.csv").open("w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows[number::4] if hospital in HOSPITALS else rows[number::9])

    def perform(self, title="Between machines"):
        """Run the commands of a part of the page; people with the same commands run them at the same time."""
        for section in steps(title):
            with ThreadPoolExecutor(len(section)) as people:
                list(people.map(self.person, section.keys(), section.values()))

    def person(self, person, lines):
        for line in lines:
            for name, port in self.ports.items():
                line = line.replace(f"{name}.example.org:8002", f"localhost:{port}")
            words, folder = shlex.split(line), self.folder / person
            if words[0] == "unpooled":
                self.step(person, words[1:], folder)
            else:
                subprocess.run(words, cwd=folder, check=True)

    def step(self, person, words, folder):
        if words[:2] == ["federation", "admit"]:  # the telephone
            federation = FederationFolder.read(folder / words[2])
            new = {site for site, record in enrolments(federation).items() if not record.certificate}
            until(lambda: set(awaiting_admission(federation)) == new, f"all to ask {words[2]} of {person}")
        if words[:2] == ["site", "approve"]:
            until(StudyFolder(folder / words[2]).pending, f"the study at {person}")
        if words[:2] == RUN:
            words += ["--deadline", "600"]  # no member is left out because this machine is busy
            self.wait_all()
        if words[:2] in (SERVE, JOIN, RUN):
            self.lasting(self.name_of(person, words), words, folder)
        else:
            self.command(*words, folder=folder, entered="y\ny\n")
        if words[:2] == ["site", "init"]:
            rules = folder / words[2]
            text = rules.read_text().replace("deadline = 40.0", "deadline = 500.0")
            rules.write_text(text.replace("wait = 60.0", "wait = 600.0"))
        if words[:2] == ["federation", "invite"]:
            invited = FederationFolder.read(folder / words[2]).invitation(words[3])
            shutil.copy(invited, self.folder / words[3].title())
        if words[:2] == SERVE:
            until(lambda: "the server is up" in self.output(person), f"the server of {person}")
            federation = FederationFolder.read(folder / words[2])
            for site in federation.sites:
                shutil.copy(federation.invitation(site), self.folder / site.title())

    @staticmethod
    def name_of(person, words):
        return person if words[:2] == SERVE else "run" if words[:2] == RUN else person.lower()

    def lasting(self, name, words, folder):
        self.commands[name] = (words, folder)
        self.start(name, *words, folder=folder)

    def again(self, name):
        """Start a killed process again, as an administrator would."""
        words, folder = self.commands[name]
        home = self.home_of(name)
        if home is not None:
            until(lambda: not is_locked(home), f"{home} to be free")
        if words[:2] == RUN:
            words = ["resume", words[words.index("--out") + 1]]
        elif words[:2] == JOIN:
            words = ["site", "start", words[2]]
        self.start(name, *words, folder=folder)

    def home_of(self, name):
        words, folder = self.commands[name]
        if words[:2] == SERVE:
            return folder / words[2] / "server"
        if words[:2] == RUN:
            return None
        return next((folder / words[2] / "federations").iterdir(), None)

    def federation(self, person):
        return FederationFolder.read(self.folder / person / ("national" if person == "Country" else "region"))

    def wait_all(self):
        """Wait until all members of all federations are connected."""
        for person in ("Country", "North", "South"):
            federation = self.federation(person)
            until(
                lambda federation=federation: set(connected_sites(federation) or ()) == set(federation.sites),
                f"all members of {person}",
            )

    def member(self, name):
        """The folder of a member: of a relay, or of a hospital."""
        return self.folder / name.title() / name

    def reached(self):
        """The last round of the run, -1 before the first."""
        with contextlib.suppress(FileNotFoundError, KeyError):
            words, folder = self.commands["run"]
            job = json.loads((folder / words[words.index("--out") + 1] / "job.json").read_text())["job"]
            progress = ProgressFile(self.federation("Country").runs / job["remote"]["run"]).read()
            return progress.get("record", {}).get("round", -1)
        return -1

    def at(self, number):
        """Wait until the run has finished a round."""

        def has_reached():
            assert self.processes["run"].poll() is None, f"over before round {number}\n{self.output('run')}"
            return self.reached() >= number

        until(has_reached, f"round {number}", pause=0.005)

    def job_of(self, name):
        """The process of the job that runs at a server, at a relay or at a hospital."""
        module = "runner_process" if name in ("Country", "North", "South") else "worker_process"
        return until(lambda: self._process(name, module), f"the job of {name}", pause=0.01)
