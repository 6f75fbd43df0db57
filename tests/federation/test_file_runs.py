"""Runs over files: the bits of every other runtime, and every file that must not be used."""

import json
import random
import re
import shutil
import sqlite3
import threading
from collections import Counter
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from studies import study_of
from unpooled.app.cli import app
from unpooled.data.schema import AskSchema, Schema
from unpooled.errors import InputError
from unpooled.federation import retrying_transport
from unpooled.federation.file_responder import FileResponder
from unpooled.federation.file_transport import FileTransport
from unpooled.federation.provisioning.file_membership import FileMembership
from unpooled.federation.recipient import Recipient
from unpooled.privacy.dp.accounting import gdp_mu
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.protocol import codec
from unpooled.protocol.exchange import Part, Request, RequestId, Response
from unpooled.site.identity import identity_in
from unpooled.site.log import verify
from unpooled.site.message_file import packed, seal_message
from unpooled.site.session import RunTerms, SiteSession, SiteSettings
from unpooled.site.signed_file import REQUEST, RESPONSE, recipient_key
from unpooled.site.study import signable

SITES = ("east", "north", "south")
STUDIES = '[studies]\napprove = "known"\npurposes = ["*"]\n'
RAW = f'format = 1\n[protect]\nmode = "raw"\n{STUDIES}'
DP = (
    f'format = 1\n[protect]\nmode = "dp"\n[dp]\nepsilon_total = 5\n[domain]\nrows = 180\n'
    f'columns = ["age", "bmi"]\nlower = [0, 10]\nupper = [110, 60]\n{STUDIES}'
)
SUMMARY = f'format = 1\n[protect]\nmode = "summary"\nauto_approve = true\n{STUDIES}'
PRIVATE = ("-k", "2", "--epsilon", "4", "--bounds", "age=0:110", "--bounds", "bmi=10:60", "--accept-noise")


def command(*words, fails=False):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == fails, done.output
    return done.stderr.strip() if fails else done.output


class Federation:
    """A coordinator and three sites that joined by its key, with a shared folder between them."""

    def __init__(self, top: Path, rules: str) -> None:
        self.top, self.shared = top, top / "share"
        self.home = Recipient.create(top / "heart").folder
        for seed, site in enumerate(SITES):
            rng = np.random.default_rng(seed)
            kind = rng.integers(0, 2, 60)
            X = np.c_[rng.normal(40 + 25 * kind, 4), rng.normal(22 + 8 * kind, 1)]
            lines = ["age,bmi", *(f"{a:.1f},{b:.1f}" for a, b in X)]
            (top / f"{site}.csv").write_text("\n".join(lines) + "\n")
            (top / site).mkdir()
            (top / site / "policy.toml").write_text(rules)
            SiteSettings("", str(top / f"{site}.csv"), str(top / site)).write()
            if rules == SUMMARY:
                words = ("--data", top / f"{site}.csv", "--one-row-per-person", "--no-sensitive-columns")
                command("site", "summarize", top / site, *words)
            FileMembership(top / site, site, self.coordinator.key).write()
            (self.shared / site).mkdir(parents=True)
            assert self.responder(site).introduce()
            assert not self.responder(site).introduce()
        keys = [self.shared / site / "site-key.unpooled" for site in SITES]
        self.coordinator.receive([self.coordinator.open(path) for path in keys])

    @property
    def coordinator(self) -> Recipient:
        return Recipient.read(self.home)

    @property
    def files(self):
        return [self.top / f"{site}.csv" for site in SITES]

    def responder(self, site, folder=None, problems=None):
        add = (lambda text: None) if problems is None else problems.append
        return FileResponder(FileMembership.find(self.top / site), folder or self.shared / site, add)

    @contextmanager
    def answering(self, carry=lambda: None, folder=None):
        """Sites that answer, each in a thread; ``carry`` is called all the time beside them."""
        over = threading.Event()

        def answer(site):
            responder = self.responder(site, folder and folder / site)
            while not over.is_set():
                responder.answer_all()
                over.wait(0.01)
            responder.close()

        def carrying():
            while not over.is_set():
                carry()
                over.wait(0.005)

        threads = [threading.Thread(target=answer, args=(site,)) for site in SITES]
        threads.append(threading.Thread(target=carrying))
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()

    def run(self, out, *options, fails=False):
        words = (
            "federation",
            "run",
            self.home,
            "--files",
            self.shared,
            "--out",
            self.top / out,
            "--quorum",
            1,
        )
        return command(*words, "--deadline", 600, *options, fails=fails)

    def releases(self, site):
        """The digests of all answers of a site by request, from its log, which must be whole."""
        log = self.top / site / "log.jsonl"
        assert verify(log) == []
        digests = {}
        for entry in map(json.loads, log.read_text().splitlines()):
            if entry["kind"] == "release":
                digests.setdefault((entry["run"], entry["request"]), set()).add(entry["digest"])
        return digests

    def spent(self, site):
        """The number of charges, that of different requests among them, and mu^2 of all together."""
        with closing(sqlite3.connect(self.top / site / "ledger.sqlite")) as ledger:
            rows = ledger.execute("SELECT run, round, exchange, request, spent FROM releases").fetchall()
        return len(rows), len({row[:4] for row in rows}), sum(row[4] for row in rows)


@pytest.fixture
def federation(tmp_path):
    return Federation(tmp_path, RAW)


@pytest.fixture
def quick_retries(monkeypatch):
    monkeypatch.setattr(retrying_transport, "_FIRST_TIMEOUT", 0.3)


def same_result(one: Path, other: Path):
    assert (one / "model.unpooled").read_bytes() == (other / "model.unpooled").read_bytes()
    assert (one / "preparation.json").read_bytes() == (other / "preparation.json").read_bytes()


# ---------------------------------------------------------------- the same bits


def test_a_run_over_files_has_the_model_of_a_simulation(federation):
    options = ("-k", "2..3", "--restarts", "2", "--protect", "raw")
    with federation.answering():
        federation.run("run", *options)
    command("fit", *federation.files, *options, "--out", federation.top / "fit")
    same_result(federation.top / "run", federation.top / "fit")
    assert [path.name for path in (federation.shared / "east").iterdir()] == ["site-key.unpooled"]
    for site in SITES:
        assert all(len(digests) == 1 for digests in federation.releases(site).values())


FAULTS = ("late", "lost", "cut", "twice")


class Carrier:
    """Carries files between coordinator and sites: late, twice, in any order, cut, or not at all.

    The first files suffer each fault once, however fast the others are; later ones as chance has it.
    """

    def __init__(self, here: Path, there: Path, seed: int) -> None:
        self.here, self.there, self.chance = here, there, random.Random(seed)
        self.old: list[tuple[Path, bytes]] = []  # files of before, which come again
        self.due = list(FAULTS)
        self.faults = Counter()
        for site in SITES:
            (there / site).mkdir(parents=True)

    def __call__(self) -> None:
        for source, target, endings in (
            (self.here, self.there, (".request",)),
            (self.there, self.here, (".response", ".pending")),
        ):
            try:
                files = [path for path in source.glob("*/*/*") if path.suffix in endings]
            except FileNotFoundError:  # the run has just ended, and its folder went while it was read
                continue
            files = [path for path in files if path.name[0] != "."]
            self.chance.shuffle(files)
            for path in files:
                self._carry(path, target / path.relative_to(source))

    def _carry(self, path: Path, target: Path) -> None:
        what = self.chance.choices((*FAULTS, "well"), (6, 1, 1, 1, 6))[0]
        try:
            data = path.read_bytes()
            if target.exists() and target.read_bytes() == data:
                return
            what = self.due[0] if self.due else what
            if what == "lost":
                path.unlink()
        except FileNotFoundError:
            return
        del self.due[:1]
        self.faults[what] += 1
        if what in ("late", "lost"):
            return
        self.old.append((target, data))
        if what == "twice":
            target, data = self.chance.choice(self.old[:-1] or self.old)
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(data[: len(data) // 2] if what == "cut" else data)


@pytest.mark.parametrize("seed", [1, *(pytest.param(i, marks=pytest.mark.long) for i in range(2, 12))])
def test_files_that_are_late_lost_cut_or_come_again_change_nothing(federation, quick_retries, seed):
    options = ("-k", "2", "--restarts", "2", "--protect", "raw")
    carrier = Carrier(federation.shared, federation.top / "sites", seed)
    with federation.answering(carrier, carrier.there):
        federation.run("run", *options)
    assert min(carrier.faults[what] for what in FAULTS) > 0
    command("fit", *federation.files, *options, "--out", federation.top / "fit")
    same_result(federation.top / "run", federation.top / "fit")
    for site in SITES:
        assert all(len(digests) == 1 for digests in federation.releases(site).values())


def test_a_private_run_over_bad_links_charges_each_query_once(tmp_path, quick_retries):
    federation = Federation(tmp_path, DP)
    carrier = Carrier(federation.shared, federation.top / "sites", 5)
    with federation.answering(carrier, carrier.there):
        federation.run("run", *PRIVATE)
    for site in SITES:
        number, different, mu_squared = federation.spent(site)
        assert number == different > 0
        assert mu_squared == pytest.approx(gdp_mu(4, 1e-6) ** 2)
        releases = federation.releases(site)
        assert all(len(digests) == 1 for digests in releases.values())  # the noise was drawn once
        assert len(releases) == number + 1  # the schema is free


@pytest.mark.long
def test_secure_sums_over_bad_links_have_the_bits_of_a_simulation(tmp_path, quick_retries):
    federation = Federation(tmp_path, SUMMARY)
    options = ("-k", "2", "--restarts", "1", "--protect", "summary", "--secure")
    carrier = Carrier(federation.shared, federation.top / "sites", 6)
    with federation.answering(carrier, carrier.there):
        federation.run("run", *options)
    command("fit", *federation.files, *options, "--out", federation.top / "fit")
    same_result(federation.top / "run", federation.top / "fit")


# ---------------------------------------------------------------- files that must not be used


class Conversation:
    """One request of the coordinator to a site, as a file."""

    def __init__(self, federation: Federation, run: str = "r", number: int = 0) -> None:
        self.federation, self.problems = federation, []
        self.identity = identity_in(federation.home)
        study = study_of(run, self.identity, protection="raw")
        terms = RunTerms.from_study(study, self.identity.sign(signable(study.digest)).hex())
        keys = federation.coordinator.members
        self.data = codec.wrap(Request(RequestId(run, 0, number, 0), (Part("each", AskSchema(), None, 0),)))
        self.terms = terms
        self.transport = FileTransport(
            federation.shared,
            "heart",
            self.identity,
            keys,
            terms,
            deadline=0.0,  # what is there when the request is written counts, and nothing is waited for
            on_problem=self.problems.append,
        )

    def send(self, site="north"):
        """What the coordinator receives within its deadline."""
        return self.transport.send_and_receive({site: self.data})[site]

    def run_folder(self, site="north"):
        return self.federation.shared / site / self.terms.study.run

    def file(self, ending, site="north"):
        (path,) = self.run_folder(site).glob(f"*{ending}")
        return path


@pytest.fixture
def conversation(federation):
    made = Conversation(federation)
    assert made.send() == "no answer"
    yield made
    made.transport.close(remove=False)


def edited(data: bytes, change) -> bytes:
    values = json.loads(data)
    change(values)
    return json.dumps(values).encode()


def first_character(values):
    line = values["body"][0]
    values["body"][0] = ("A" if line[0] != "A" else "B") + line[1:]


def later(values):
    values["header"]["written"] = "2030-01-01T00:00:00+00:00"


STRANGER = Identity(bytes(range(32)))


def signed_by_a_stranger(path, conversation, kind, recipient):
    return seal_message(kind, STRANGER, path.parent.parent.name, recipient, path, {"message": packed(b"")})


def bad_requests(conversation):
    """The path and content of each bad file, from a good one, and what is said about it."""
    good = conversation.file(".request")
    data, federation = good.read_bytes(), conversation.federation
    north = recipient_key(identity_in(federation.top / "north"), "north")
    other = Conversation(federation, "s")
    other.send("north")
    second = Conversation(federation, "r", 1)
    second.send("north")
    for_south = Conversation(federation)
    for_south.send("south")
    stranger = seal_message(REQUEST, STRANGER, "heart", north, good, {"message": "", "terms": ""})
    renamed = next(path for path in good.parent.glob("*.request") if path != good)
    return {
        "cut": (good, data[: len(data) // 2], r"cut off or damaged: not a whole request"),
        "empty": (good, b"", r"cut off or damaged: not a whole request"),
        "edited": (good, edited(data, first_character), r"was changed after heart signed it"),
        "header": (good, edited(data, later), r"was changed after heart signed it"),
        "re-signed": (good, stranger, r"is signed by heart with fingerprint .*, and must be signed by heart"),
        "another site's": (good, for_south.file(".request", "south").read_bytes(), r"is for south"),
        "another run's": (
            good,
            other.file(".request").read_bytes(),
            r"belongs to run s, and is in the folder",
        ),
        "another request's": (
            good,
            renamed.read_bytes(),
            r"is about request .*, and has the name of another",
        ),
        "a response": (
            good,
            data.replace(b'"unpooled": "request"', b'"unpooled": "response"'),
            r"but a resp",
        ),
    }


BAD_REQUESTS = ("cut", "empty", "edited", "header", "re-signed", "another site's", "another run's")
BAD_REQUESTS += ("another request's", "a response")


@pytest.mark.parametrize("fault", BAD_REQUESTS)
def test_a_bad_request_gets_one_message_and_nothing_is_written(federation, conversation, fault):
    path, data, message = bad_requests(conversation)[fault]
    for folder in federation.shared.glob("north/*/"):
        shutil.rmtree(folder)
    path.parent.mkdir()
    path.write_bytes(data)
    before = {file: file.read_bytes() for file in federation.top.rglob("*") if file.is_file()}
    problems = []
    responder = federation.responder("north", problems=problems)
    assert responder.answer_all() == responder.answer_all() == 0
    responder.close()
    (text,) = problems
    assert re.search(message, text), text
    assert text.startswith(f"{path}: ")
    assert {file: file.read_bytes() for file in federation.top.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize(
    "fault", ["cut", "edited", "re-signed", "another site's", "another run's", "another"]
)
def test_a_bad_response_gets_one_message_and_is_not_used(federation, conversation, fault):
    assert federation.responder("north").answer_all() == 1
    path = conversation.file(".response")
    data, me = path.read_bytes(), federation.coordinator.key
    north, south = (identity_in(federation.top / site) for site in ("north", "south"))

    def sealed(identity=north, site="north", at=path):
        return seal_message(RESPONSE, identity, site, me, at, {"message": packed(b"x")})

    faults = {
        "cut": (data[:-20], r"cut off or damaged: not a whole response"),
        "edited": (edited(data, first_character), r"was changed after north signed it"),
        "re-signed": (sealed(STRANGER), r"must be signed by north"),
        "another site's": (sealed(south, "south"), r"is signed by south"),
        "another run's": (sealed(at=path.parent.with_name("s") / path.name), r"belongs to run s"),
        "another": (sealed(at=path.with_name("00.response")), r"is about request 00"),
    }
    bad, message = faults[fault]
    path.write_bytes(bad)
    assert isinstance(conversation.send(), str)
    (text,) = conversation.problems
    assert re.search(message, text), text
    assert federation.responder("north").answer_all() == 1  # the site writes it again
    assert isinstance(conversation.send(), bytes)


def test_a_request_that_is_taken_back_while_it_is_answered_leaves_no_file(
    federation, conversation, monkeypatch
):
    answer = SiteSession.respond

    def respond(session, message):
        conversation.transport.close(remove=True)  # the run ends at this moment
        conversation.run_folder().mkdir(exist_ok=True)  # a slow share still has it
        return answer(session, message)

    monkeypatch.setattr(SiteSession, "respond", respond)
    responder = federation.responder("north")
    assert responder.answer_all() == 1
    assert not conversation.run_folder().exists()
    assert responder.answer_all() == 0
    responder.close()


def test_a_good_response_is_bytes_that_the_site_gives_again(federation, conversation):
    assert federation.responder("north").answer_all() == 1
    answer = conversation.send()
    assert isinstance(answer, bytes)
    conversation.file(".response").unlink()
    assert federation.responder("north").answer_all() == 1  # by a new process
    assert schema(conversation.send()) == schema(answer)
    again = Conversation(federation)  # the coordinator, too, was killed: it finds the response
    assert schema(again.send()) == schema(answer)
    assert len(list(again.file(".request").parent.iterdir())) == 2


def test_a_request_of_a_coordinator_that_was_killed_goes_when_the_next_one_comes(federation, conversation):
    """A site that began a secure sum with new keys would go back to the old ones, and be out of the run."""
    old = conversation.file(".request")
    later = Conversation(federation, number=1)  # another process of the coordinator, with another request
    later.send()
    assert not old.exists()
    assert later.file(".request").exists()


def test_requests_are_answered_in_the_order_in_which_they_were_written(federation, conversation):
    """In a folder that is synchronised or copied, an old request may lie beside the new one."""
    old = conversation.file(".request")
    kept, names = old.read_bytes(), []
    for number in range(1, 6):
        later = Conversation(federation, number=number)
        later.send()
        names.append((later.file(".request"), later.file(".request").read_bytes()))
    for path, data in [(old, kept), *names]:
        path.write_bytes(data)
    assert federation.responder("north").answer_all() == 6
    lines = (federation.top / "north" / "log.jsonl").read_text().splitlines()
    answered = [entry["round"] for entry in map(json.loads, lines) if entry["kind"] in ("release", "refusal")]
    assert answered == list(range(6))


def schema(answer):
    (reply,) = codec.unwrap(answer, expect=Response).replies
    assert isinstance(reply, Schema)
    return codec.encode(reply)


def test_a_coordinator_whose_key_is_another_is_not_answered(federation, tmp_path):
    """The officers of a site pinned the key by its fingerprint."""
    other = Recipient.create(tmp_path / "elsewhere" / "heart")
    with pytest.raises(InputError, match=r"has pinned another key for heart"):
        FileMembership(federation.top / "north", "north", other.key).check_new()
    output = command("site", "join", federation.top / "north", other.key_file, "--yes", fails=True)
    assert "has pinned another key for heart" in " ".join(output.split())
    with pytest.raises(InputError, match=r"is north in heart, not west"):
        FileMembership(federation.top / "north", "west", federation.coordinator.key).check_new()


def test_a_run_begins_only_with_sites_that_are_known(federation):
    assert "has no server. Name the shared folder" in command(
        "federation", "run", federation.home, fails=True
    )
    record = json.loads((federation.home / "recipient.json").read_text())
    del record["sites"]["south"]
    (federation.home / "recipient.json").write_text(json.dumps(record))
    output = " ".join(federation.run("run", "-k", "2", fails=True).split())
    assert "a site is not known here" in output
    assert "share/south/site-key.unpooled" in output
    assert not (federation.top / "run").exists()
    (federation.shared / "south").rename(federation.shared / "west")
    assert "is of south, and in the folder of west" in federation.run("run", "-k", "2", fails=True)


def test_a_site_answers_in_the_folder_of_its_name(federation):
    wrong = federation.shared / "south"
    output = command("site", "answer", federation.top / "north", wrong, fails=True)
    assert "the folder of north must have its name" in output
    assert "no such folder" in command("site", "answer", federation.top / "north", wrong / "x", fails=True)


def test_a_study_waits_for_an_officer_and_the_response_replaces_the_notice(tmp_path):
    federation = Federation(tmp_path, RAW.replace(STUDIES, ""))
    conversation = Conversation(federation)
    assert conversation.send() == "no answer"
    words = ("site", "answer", federation.top / "north", federation.shared / "north")
    assert "a study is pending" in command(*words)
    assert conversation.file(".pending").exists()
    assert conversation.send() == "nobody at the site has approved the study yet"
    command("site", "approve", federation.top / "north", "--yes")
    output = command(*words, "-v")
    assert "answered: 1 request" in output
    assert re.search(r" DEBUG north: run \S+, round \d+: answered \d+ quer", output)
    assert not list(conversation.file(".response").parent.glob("*.pending"))
    assert isinstance(conversation.send(), bytes)
    command("site", "decline", federation.top / "north")
    conversation.file(".response").unlink()
    assert "answered: 1 request" in command(*words)
    assert conversation.send() == "the site has withdrawn the study"
    conversation.transport.close(remove=True)
    assert sorted(path.name for path in (federation.shared / "north").iterdir()) == ["site-key.unpooled"]


def test_a_relay_takes_no_part_over_files_and_the_reason_is_given(federation, tmp_path):
    """While a query from above waits, a relay asks its members: only a server does that."""
    relay, key = tmp_path / "relay", federation.coordinator.key_file
    output = " ".join(command("site", "join", relay, key, "--downstream", tmp_path, fails=True).split())
    assert "a relay does not take part over files. While a query from above waits" in output
    (tmp_path / "invitation.json").write_text("{}")
    words = ("site", "join", relay, tmp_path / "invitation.json", "--downstream", federation.home)
    output = " ".join(command(*words, fails=True).split())
    assert "its runs go over files, and a relay does not ask its members over files" in output
    assert not relay.exists()


def test_a_folder_that_was_copied_answers_only_after_somebody_confirmed_it(federation, conversation):
    copy = federation.top / "elsewhere" / "north"
    shutil.copytree(federation.top / "north", copy)
    words = ("site", "answer", copy, federation.shared / "north")
    assert "confirm this one with unpooled site confirm" in " ".join(command(*words, fails=True).split())
    assert "confirmed" in command("site", "confirm", copy)
    assert "answered: 1 request" in command(*words)
    assert "north in heart, over files; mode raw" in command("site", "status", copy)


def test_the_membership_is_part_of_a_backup(federation):
    command("site", "backup", federation.top / "north", federation.top / "north.tar")
    command("site", "restore", federation.top / "north.tar", federation.top / "restored" / "north")
    restored = FileMembership.find(federation.top / "restored" / "north")
    assert restored.coordinator == federation.coordinator.key
    (restored.path / "coordinator.json").write_text("{")
    with pytest.raises(InputError, match=r"damaged. Put the file back"):
        FileMembership.find(federation.top / "restored" / "north")
