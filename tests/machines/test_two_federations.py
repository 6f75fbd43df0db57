"""A hospital in two federations: one folder, one summary table, one privacy budget, one log."""

from contextlib import ExitStack

import numpy as np
import pytest
from tests.amounts import amounts
from typer.testing import CliRunner

from combinations import fewer_than
from machines.network import reserved_port
from studies import private_study, study_of, terms_of
from unpooled.app.cli import app
from unpooled.data import Number, Preparation
from unpooled.data.schema import AskSchema
from unpooled.federation.member_session import open_session
from unpooled.federation.provisioning.enrolment import admit, awaiting_admission, enrol, invite
from unpooled.federation.provisioning.enrolment_wire import server_context
from unpooled.federation.provisioning.federation_folder import FederationFolder, create
from unpooled.federation.provisioning.ingress import Ingress
from unpooled.federation.provisioning.site_folder import SiteFolder
from unpooled.privacy.dp.accounting import gdp_mu
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments
from unpooled.protocol import codec
from unpooled.protocol.exchange import Part, Request, RequestId, Response
from unpooled.protocol.messages import Refusal
from unpooled.site.audit.overview import read as read_log
from unpooled.site.endpoint import PendingDecision
from unpooled.site.identity import identity_in
from unpooled.site.ledger import Ledger, RunLimits, SumLedger
from unpooled.site.log import entries, verify
from unpooled.site.people_register import Registry
from unpooled.site.table_store import SummaryFolder
from unpooled.storage.file_locks import locked

DELTA = 1e-6
TRANSFORM = Preparation((Number("x", 0.0, 0.0, 1.0), Number("y", 0.0, 0.0, 1.0)), drop=False)
NAMES = {"heart": "north", "lung": "hospital-7"}  # the name of the hospital in each federation


@pytest.fixture(scope="module")
def federations(tmp_path_factory, shorter_keys):
    """Two federations whose servers enrol sites; no engine runs behind them."""
    with ExitStack() as stack:
        yield {name: served(stack, tmp_path_factory.mktemp(name) / name, name) for name in NAMES}


def served(stack, path, name):
    port = reserved_port()
    made = create(path, name, f"localhost:{port}", (NAMES[name],), engine_name="nvflare")
    context = server_context(*map(str, made.engine.server_identity(made.server)))
    stack.enter_context(
        Ingress(["127.0.0.1"], port, 1, context, lambda asked: enrol(FederationFolder.read(path), asked))
    )
    return made


@pytest.fixture
def call(started):
    """A command of ``unpooled``, up to the start of an engine; returns its output."""

    def called(*words, code=0):
        result = CliRunner().invoke(app, list(map(str, words)))
        assert result.exit_code == code, result.output
        return " ".join(result.output.split())

    return called


def write(path, rows):
    lines = (f"{person},{age:.6g},{bmi:.6g},{kind}" for person, (age, bmi, kind) in rows.items())
    path.write_text("\n".join(("patient_id,age,bmi,kind", *lines, "")))
    return path


def people(rng, numbers):
    return {f"P{i}": (rng.normal(50, 9), rng.normal(25, 4), rng.choice(["a", "b"])) for i in numbers}


def joined(call, federations, folder, *options):
    """A site that joined both federations with one folder; the options are those of the first join."""
    for name, federation in federations.items():
        call("site", "join", folder, invite(federation, NAMES[name]), *options)
        admit(federation, NAMES[name], awaiting_admission(federation)[NAMES[name]])
        options = ()
    call("site", "start", folder)
    return {membership.name: membership for membership in SiteFolder(folder).memberships()}


class Member:
    """A site's session in a run of one federation, as the engine opens it."""

    def __init__(self, call, federation, membership, run="r", study=None):
        identity = identity_in(federation.path)
        study = study or study_of(run, identity, federation=federation.address.federation)
        self.call, self.run, self.folder = call, run, membership.site
        self.session = open_session(membership.membership_file, terms_of(study, identity))

    def ask(self, question=None, exchange=0, transform=None):
        part = Part("each" if question is None else "total", question or AskSchema(), transform, 0)
        request = codec.wrap(Request(RequestId(self.run, 0, 0, exchange), (part,)))
        answer = self.session.respond(request)
        if isinstance(answer, PendingDecision):
            self.call("site", "approve", self.folder, "--yes")
            answer = self.session.respond(request)
        assert isinstance(answer, bytes), answer
        (reply,) = codec.unwrap(answer, expect=Response).replies
        return reply

    def close(self):
        self.session.close()


def test_two_federations_are_answered_from_one_table_and_share_one_log(call, federations, tmp_path):
    folder, data = tmp_path / "site", write(tmp_path / "p.csv", people(np.random.default_rng(0), range(60)))
    memberships = joined(
        call, federations, folder, "--data", data, "--person", "patient_id", "--no-sensitive-columns"
    )
    call("site", "approve", folder, "--table", "--yes")
    members = [Member(call, federations[name], memberships[name]) for name in NAMES]
    assert [member.ask().names for member in members] == [("age", "bmi", "kind")] * 2
    assert members[0].ask(exchange=1).names == ("age", "bmi", "kind")  # the log is handed back
    for member in members:
        member.close()
    lines = [entry for _, entry in entries(folder / "log.jsonl")]
    assert verify(folder / "log.jsonl") == []
    openings = [entry for entry in lines if entry["kind"] == "opening"]
    assert {entry["summary"] for entry in openings} == {SummaryFolder(folder).digest}
    assert [(entry["site"], entry["federation"]) for entry in openings[:2]] == [
        ("north", "heart"),
        ("hospital-7", "lung"),
    ]
    assert len({entry["authority"] for entry in openings}) == 2
    assert [run.id for run in read_log(folder).runs] == ["r in heart", "r in lung"]
    assert [(path / "studies").is_dir() for path in (folder, *(m.path for m in memberships.values()))] == [
        *(False, True, True)
    ]
    status = call("site", "status", folder, code=3)
    assert "north in heart: stopped" in status
    assert "hospital-7 in lung: stopped" in status
    assert call("site", "stop", folder, "--federation", "lung") == "was not running"
    assert "has not joined liver. It has joined heart, lung" in call(
        "site", "start", folder, "--federation", "liver", code=1
    )
    call("site", "log", folder, "--verify")
    assert "What left site north alias hospital-7" in call("site", "log", folder)


def test_the_dpia_report_names_both_federations_and_every_study(call, federations, tmp_path):
    folder, data = tmp_path / "site", write(tmp_path / "p.csv", people(np.random.default_rng(0), range(60)))
    memberships = joined(
        call, federations, folder, "--data", data, "--person", "patient_id", "--no-sensitive-columns"
    )
    call("site", "approve", folder, "--table", "--yes")
    for name, federation in federations.items():
        study = study_of("r", identity_in(federation.path), federation=name, title=f"Kinds of {name} <1>")
        member = Member(call, federation, memberships[name], study=study)
        member.ask()
        member.close()
    call("site", "decline", folder, "2", "--by", "Dr. Low")
    call("site", "dpia", folder)
    report = (folder / "dpia.html").read_text()
    part = report.split("<h2>Federations and studies</h2>")[1].split("</section>")[0]
    for name, membership in memberships.items():
        assert f">{name}</td>" in part
        assert f">{NAMES[name]}</td>" in part
        assert membership.authority() in part
        assert f"<b>Kinds of {name} &lt;1&gt;</b><br>to find groups" in part
    assert part.count(">approved</td>") == 1
    assert part.count(">withdrawn</td>") == 1
    assert ">Dr. Low, 20" in part
    assert "The coordinators of two federations compare what this site sent them" in report
    store = memberships["lung"].path / "studies"
    (file,) = store.iterdir()
    file.write_text("")
    call("site", "dpia", folder, "--overwrite")
    assert f"<p>{file}: not a study, or damaged" in (folder / "dpia.html").read_text()


def test_a_policy_with_an_id_is_of_one_name_in_all_federations(call, federations, tmp_path):
    folder, data = tmp_path / "site", write(tmp_path / "p.csv", people(np.random.default_rng(0), range(60)))
    rules = tmp_path / "policy.toml"
    rules.write_text('format = 1\n[site]\nid = "north"\n')
    first = invite(federations["heart"], "north")
    call(
        "site",
        "join",
        folder,
        first,
        "--data",
        data,
        "--person",
        "patient_id",
        "--no-sensitive-columns",
        "--policy",
        rules,
    )
    error = call("site", "join", folder, invite(federations["lung"], "hospital-7"), code=1)
    assert (
        f"{folder / 'policy.toml'} is the policy of north, and the invitation is for hospital-7. Ask the "
        "coordinator for an invitation of north, or remove id from [site] in the policy."
    ) in error
    assert [membership.name for membership in SiteFolder(folder).memberships()] == ["heart"]
    (folder / "policy.toml").write_text("format = 1\n")
    call("site", "join", folder, invite(federations["lung"], "hospital-7"))


def test_a_run_of_the_same_name_in_another_federation_has_nothing_in_common_with_it(tmp_path):
    """Answers, rounds, secure sums and pinned keys are those of one federation; the budget is that of all."""
    path = tmp_path / "ledger.sqlite"
    one, two = Ledger(path, "a", "aa"), Ledger(path, "b", "bb")
    request = RequestId("r", 0, 3, 0)
    one.charge(request, "x", 0.5, RunLimits(1, 9, 1.0))
    one.keep(request, "x", b"answer")
    one.begin("r", "source")
    assert one.cached_response(request, "x") == b"answer"
    assert two.cached_response(request, "x") is None
    assert (two.latest("r"), two.source("r"), two.spent("r")) == (-1, None, 0.0)
    assert two.spent() == one.spent() == 0.5
    with pytest.raises(Exception, match="the policy allows 1 runs, and the site answered 1"):
        two.charge(request, "x", 0.1, RunLimits(1, 9, 1.0))
    with pytest.raises(Exception, match=r"the privacy budget does not allow it: 50\.0% is spent"):
        two.charge(request, "x", 0.6, RunLimits(9, 9, 1.0))
    SumLedger(one).keep("r", b"state")
    SumLedger(one).pin({"south": b"k" * 32})
    assert SumLedger(two).run("r") is None
    assert SumLedger(two).pinned() == {}
    SumLedger(two).pin({"south": b"j" * 32})
    assert SumLedger(one).pinned() == {"south": b"k" * 32}
    for _ in range(70):
        SumLedger(two).keep(f"r{_}", b"state")
    assert SumLedger(one).run("r") == b"state"
    for ledger in (one, two):
        ledger.check()
        ledger.close()
    assert Ledger.names(path) == {"aa": "a", "bb": "b"}
    with pytest.raises(Exception, match="the ledger of site a, opened as c"):
        Ledger(path, "c", "aa")


def private_site(path, rows=80):
    """The policy of a site with a privacy budget of epsilon 1, and its data."""
    rules, data = path / "dp.toml", path / "p.csv"
    rules.write_text(
        'format = 1\n[protect]\nmode = "dp"\n[dp]\nepsilon_total = 1.0\n[domain]\nrows = 80\n'
        'columns = ["x", "y"]\nlower = [-30, -30]\nupper = [30, 30]\n'
    )
    X = np.random.default_rng(0).normal(4, 5, (rows, 2))
    np.savetxt(data, X, delimiter=",", header="x,y", comments="")
    return rules, data


def test_twenty_folders_do_not_give_twenty_budgets(call, federations, tmp_path):
    rules, data = private_site(tmp_path)
    invitation = invite(federations["heart"], "north")
    call("site", "join", tmp_path / "site-0", invitation, "--data", data, "--policy", rules)
    renamed = tmp_path / "other name.csv"
    renamed.write_bytes(data.read_bytes())
    for number in range(1, 20):
        words = ("--data", (data, renamed)[number % 2], "--policy", rules)
        error = call("site", "join", tmp_path / f"site-{number}", invitation, *words, code=1)
        assert f"the site folder {tmp_path / 'site-0'} of" in error
        assert "two budgets add up. Use that folder, which can join several federations" in error
        assert not (tmp_path / f"site-{number}").exists()
    again = invite(federations["heart"], "north")
    call("site", "join", tmp_path / "site-1", again, *words, "--allow-second-folder")


@pytest.mark.parametrize("more", ["", "1,2\n", "high,2\n", "1,2\n" * 500])
def test_a_site_with_a_budget_joins_and_starts_whatever_its_rows_are(call, federations, tmp_path, more):
    """The coordinator learns nothing from whether it opens; only the officer reads a number of rows."""
    rules, data = private_site(tmp_path)
    data.write_text(data.read_text() + more)
    words = ("--data", data, "--policy", rules)
    call("site", "join", tmp_path / "site", invite(federations["heart"], "north"), *words)
    (membership,) = SiteFolder(tmp_path / "site").memberships()
    study = private_study("r", identity_in(federations["heart"].path), epsilon=0.9, federation="heart")
    member = Member(call, federations["heart"], membership, study=study)
    reply = member.ask(AskNoisyMoments(gdp_mu(0.1, DELTA), np.full(2, 30.0)), transform=TRANSFORM)
    member.close()
    assert not isinstance(reply, Refusal)


def test_other_data_of_a_site_are_looked_up_in_the_register(call, federations, tmp_path):
    rules, data = private_site(tmp_path)
    (tmp_path / "second").mkdir()
    _, other = private_site(tmp_path / "second", rows=70)
    for number, (name, file) in enumerate({"north": data, "south": other}.items()):
        invitation = invite(federations[("heart", "lung")[number]], ("north", "hospital-7")[number])
        call("site", "join", tmp_path / name, invitation, "--data", file, "--policy", rules)
    words = ("site", "start", tmp_path / "north", "--data", other)
    assert f"the site folder {tmp_path / 'south'} of" in call(*words, code=1)
    assert SiteFolder(tmp_path / "north").settings.data == str(data)
    call(*words, "--allow-second-folder")
    assert SiteFolder(tmp_path / "north").settings.data == str(other)
    call("site", "start", tmp_path / "north")  # nobody is asked twice


def test_two_federations_spend_one_budget(call, federations, tmp_path):
    rules, data = private_site(tmp_path)
    folder = tmp_path / "site"
    memberships = joined(call, federations, folder, "--data", data, "--policy", rules)
    answered = []
    for name, federation in federations.items():
        identity = identity_in(federation.path)
        study = private_study("r", identity, epsilon=0.9, federation=name)
        member = Member(call, federation, memberships[name], study=study)
        question = AskNoisyMoments(gdp_mu(0.7, DELTA), np.full(2, 30.0))
        answered.append(member.ask(question, transform=TRANSFORM))
        member.close()
    assert not isinstance(answered[0], Refusal)
    assert "privacy budget" in answered[1].reason  # the second federation finds what the first one has left
    ledger = Ledger.open_existing(folder / "ledger.sqlite")
    assert ledger.spent() == pytest.approx(gdp_mu(0.7, DELTA) ** 2)
    ledger.close()


def test_a_second_process_notices_a_renewed_table_an_erasure_and_a_changed_policy(
    call, federations, tmp_path
):
    rng = np.random.default_rng(0)
    rows = people(rng, range(60))
    folder, data = tmp_path / "site", write(tmp_path / "p.csv", rows)
    memberships = joined(
        call, federations, folder, "--data", data, "--person", "patient_id", "--no-sensitive-columns"
    )
    call("site", "approve", folder, "--table", "--yes")

    def reasons():
        """What open sessions in both federations answer to a further request."""
        replies = [member.ask(exchange=1) for member in members.values()]
        return [reply.reason if isinstance(reply, Refusal) else "" for reply in replies]

    for number, change in enumerate(("renewal", "policy", "erasure")):
        members = {name: Member(call, federations[name], memberships[name], f"r{number}") for name in NAMES}
        for member in members.values():
            member.ask()
        assert reasons() == ["", ""]
        for member in members.values():
            member.ask(exchange=1)
        if change == "renewal":
            write(data, rows | people(rng, range(100, 130)))
            call("site", "summarize", folder, "--data", data)
            call("site", "approve", folder, "--table", "--yes")
        elif change == "policy":
            (folder / "policy.toml").write_text('format = 1\n[jobs]\nalgorithms = ["lloyd"]\n')
        else:
            call("site", "erase", folder, "P3", "--yes")
        for reason in reasons():
            assert "another summary table, or under other rules" in reason, (change, reason)
        for member in members.values():
            member.close()
    assert verify(folder / "log.jsonl") == []


@pytest.mark.parametrize("months", amounts(3, 12))
def test_no_combination_of_what_two_federations_received_is_about_fewer_than_g_people(
    call, federations, tmp_path, months
):
    """Everything that left to either federation, over renewals between which they take turns."""
    rng, g = np.random.default_rng(months), 5
    rows = people(rng, range(60))
    folder, data = tmp_path / "site", write(tmp_path / "p.csv", rows)
    memberships = joined(
        call, federations, folder, "--data", data, "--person", "patient_id", "--no-sensitive-columns"
    )
    call("site", "approve", folder, "--table", "--yes")
    tables = []
    for month in range(months):
        name = ("heart", "lung")[month % 2]
        member = Member(call, federations[name], memberships[name], f"r{month}")
        member.ask()
        member.close()
        tables.append(SummaryFolder(folder).digest)
        for person in rng.choice(sorted(rows), 3, replace=False):
            del rows[str(person)]
        rows |= people(rng, range(100 * (month + 1), 100 * (month + 1) + 9))
        write(data, rows)
        call("site", "summarize", folder, "--data", data, "--extra-spread", "1")
        call("site", "approve", folder, "--table", "--yes")
    logged = [entry["summary"] for _, entry in entries(folder / "log.jsonl") if entry["kind"] == "opening"]
    assert list(dict.fromkeys(logged)) == list(dict.fromkeys(tables))
    with Registry.open(folder) as registry:
        assert set(logged) <= {one.digest for one in registry.summaries()}  # one register made all of them
        sums = [set(one.members) for one in registry.history().groups.values()]
    assert len(set(tables)) > 1
    assert fewer_than(g, sums) is None
    other = tmp_path / "other"  # the attack: a second folder, for a federation of its own
    words = ("site", "summarize", other, "--data", data, "--person", "patient_id", "--no-sensitive-columns")
    assert "can join several federations" in call(*words, code=1)
    call(*words, "--allow-second-folder")
    call("site", "approve", other, "--table", "--yes")
    plain = [{p for p, group in groups_of(folder, rows).items() if group == one} for one in live(folder)]
    plain += [{p for p, group in groups_of(other, rows).items() if group == one} for one in live(other)]
    assert fewer_than(g, plain) is not None


def live(folder):
    with Registry.open(folder) as registry:
        return sorted(registry.history().live)


def groups_of(folder, rows):
    """The group that discloses each person now."""
    with Registry.open(folder) as registry:
        known = set(registry.history().live)
        found = {person: registry.groups_of(registry.person(person)) for person in rows}
        return {person: next((g for g in groups if g in known), None) for person, groups in found.items()}


def test_a_federation_that_was_set_up_anew_joins_the_same_folder(call, federations, tmp_path, shorter_keys):
    folder, data = tmp_path / "site", write(tmp_path / "p.csv", people(np.random.default_rng(0), range(60)))
    memberships = joined(
        call, federations, folder, "--data", data, "--person", "patient_id", "--no-sensitive-columns"
    )
    digest = SummaryFolder(folder).digest
    pinned = memberships["heart"].authority()
    with ExitStack() as stack:
        anew = served(stack, tmp_path / "anew", "heart")
        invitation = invite(anew, "north")
        assert f"has pinned for heart ({pinned}). Call the coordinator" in call(
            "site", "join", folder, invitation, code=1
        )
        call("site", "join", folder, invitation, "--set-up-anew")
        admit(anew, "north", awaiting_admission(anew)["north"])
        call("site", "start", folder)
    names = [membership.name for membership in SiteFolder(folder).memberships()]
    assert names == ["heart", "lung"]
    assert SiteFolder(folder).memberships()[0].invitation.authority == identity_in(anew.path).public.hex()
    assert (folder / "federations" / "heart.ended-1" / "invitation.json").exists()
    assert SummaryFolder(folder).digest == digest
    call("site", "backup", folder, tmp_path / "b.tar.gz")
    call("site", "restore", tmp_path / "b.tar.gz", tmp_path / "restored")
    assert (
        tmp_path / "restored" / "federations" / "heart.ended-1" / "engine" / "startup" / "client.key"
    ).exists()


def test_the_data_of_a_running_site_are_not_changed(call, federations, tmp_path):
    folder = tmp_path / "site"
    rules = tmp_path / "raw.toml"
    rules.write_text('format = 1\n[protect]\nmode = "raw"\n')
    rows = people(np.random.default_rng(0), range(60))
    data, other = write(tmp_path / "p.csv", rows), write(tmp_path / "other.csv", rows)
    words = ("--data", data, "--exclude", "patient_id", "--policy", rules)
    memberships = joined(call, federations, folder, *words)
    with locked(memberships["heart"].path):
        assert "the site runs in heart, and all its federations have the same data. Stop it" in call(
            "site", "start", folder, "--federation", "lung", "--data", other, code=1
        )
        call("site", "start", folder, "--federation", "lung")
        words = ("site", "start", folder, "--federation", "heart", "--background")
        assert "already running for heart (process " in call(*words)
        assert "is already in use. Stop the site first" in call("site", "start", folder, code=1)
    rules.write_text("format = 1\n")
    assert "A site has one policy for all federations" in call(
        "site", "join", folder, invite(federations["lung"], "hospital-7"), "--policy", rules, code=1
    )
