"""A federation in the place of a site: its rules, its process, its run below, and trees that are none."""

import threading
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from machines.network import PATIENCE, until
from studies import study_of, terms_of
from unpooled import Lloyd, Site, run
from unpooled.app.cli import app
from unpooled.errors import InputError, PolicyError
from unpooled.federation.coordinator_run import ProgressFile
from unpooled.federation.membership import AskMembers, TreeError
from unpooled.federation.provisioning.enrolment import Enrolment, _write, invite
from unpooled.federation.provisioning.federation_folder import FederationFolder, create
from unpooled.federation.provisioning.member_keys import known_members, member_claim, verified_claim
from unpooled.federation.provisioning.site_folder import SiteFolder
from unpooled.federation.relay import downstream as below_module
from unpooled.federation.relay import forwarder as forwarder_module
from unpooled.federation.relay.forwarder import Forwarder
from unpooled.federation.relay.relay_session import RelaySession, open_session
from unpooled.federation.relay.relay_settings import RelaySettings, forwarded_terms
from unpooled.federation.relay.rules_file import TEMPLATE, DownstreamRules, RelayPolicy, parse_relay_policy
from unpooled.federation.remote import RemoteFederation
from unpooled.federation.retrying_transport import NoAnswer, RetryingTransport
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.protocol import codec
from unpooled.protocol.exchange import Part, Request, RequestId, Response
from unpooled.protocol.questions.cluster_sums import AskMoments
from unpooled.site.identity import fingerprint_in, identity_in
from unpooled.site.log import entries, verify
from unpooled.site.session import PendingDecision, SiteSession, SiteSettings
from unpooled.site.study_store import APPROVED, StudyFolder
from unpooled.storage.file_locks import locked

pytestmark = pytest.mark.usefixtures("shorter_keys")

ABOVE = Identity.new()
TWO = "version = 1\n[relay]\nmin_sites = 2\n"
ROWS = np.random.default_rng(3).normal(size=(4, 30, 2))


def unpooled(*words, code=0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two regions of two hospitals each, whose keys are known."""
    home = tmp_path_factory.mktemp("regions")
    regions = {}
    for name, sites in (("north", ("a", "b")), ("south", ("c", "d"))):
        regions[name] = create(home / name, f"{name}-fed", "localhost", sites, engine_name="nvflare")
        for site in sites:
            _write(regions[name], site, Enrolment("", "2100-01-01T00:00:00+00:00", member_key=f"{site * 40}"))
    return regions


class RelayHarness:
    """A region whose run below is served in this process; its hospitals answer, or do what they are told."""

    def __init__(
        self, federation, name, folder, rules="version = 1\n[relay]\nmin_sites = 2\n", members="abcd"
    ):
        (folder / "rules.toml").write_text(rules)
        self.federation, self.study = federation, study_of("r", ABOVE)
        self.home = folder / name
        self.home.mkdir()
        self.settings = RelaySettings(
            name, str(federation.path), str(self.home), str(folder / "rules.toml"), ABOVE.public.hex()
        )
        self.work = federation.runs / "r"
        rows = dict(zip("abcd", ROWS, strict=True))
        self.sites = {site: Site(site, rows[site]) for site in federation.sites if site in members}
        self.does = {}  # what a hospital does instead of answering
        self.asked = []
        self.serving = None

    def approve(self):
        place = StudyFolder(self.home)
        place.receive(self.settings.site, self.study, "")
        place.decide(self.study.digest, APPROVED, "the officer")
        return self

    def post(self, site, data, answered):
        self.asked.append(site)
        does = self.does.get(site)
        answered(self.sites[site].respond(data) if does is None else does(data))

    def serve(self):
        """The run below, as the region's server has it."""
        self.work.mkdir(exist_ok=True)
        identity_in(self.home)
        (self.work / "relay").write_text(f"{fingerprint_in(self.home)}\n")
        self.ending = threading.Event()
        forwarder = Forwarder(self.work, self.ending.is_set)
        transport = RetryingTransport(
            self.federation.sites,
            self.post,
            deadline=PATIENCE,
            stopped=forwarder.stopped,
            approval_timeout=60.0,
        )
        self.serving = threading.Thread(target=forwarder.serve, args=(transport,), daemon=True)
        self.serving.start()
        return self

    def begun(self):
        """Wait until the run below takes questions."""
        until(lambda: ProgressFile(self.work).read()["state"] == "running", "the run below")
        return self

    def end(self, **how):
        return RelaySession(self.settings, replace(terms_of(self.study, ABOVE), **how))

    def over(self):
        self.ending.set()
        self.serving.join(PATIENCE)


@pytest.fixture
def north(made, tmp_path):
    region = RelayHarness(made["north"], "north", tmp_path).approve().serve().begun()
    yield region
    region.over()


def request(question=None, number=0, verb="total"):
    question = AskMoments() if question is None else question
    return codec.wrap(Request(RequestId("r", 0, number, 0), (Part(verb, question, None, 0),)))


def _bytes(said):
    return said if isinstance(said, bytes) else None


def answer(end, data):
    """The bytes of an answer. The run below may take a while to be reached."""
    return until(lambda: _bytes(end.respond(data)), "an answer")


def reply_of(data):
    assert isinstance(data, bytes), data
    (reply,) = codec.unwrap(data, expect=Response).replies
    return reply


# ---------------------------------------------------------------- its process, and the run below


def test_a_relays_process_answers_from_the_run_below_and_ends_it(north):
    end = north.end()
    reply = reply_of(answer(end, request()))
    assert (reply.sites, reply.reply().n) == (2, 60.0)
    end.close()
    north.serving.join(PATIENCE)
    assert not north.work.exists()
    assert verify(north.home / "log.jsonl") == []
    opening = next(entry for _, entry in entries(north.home / "log.jsonl") if entry["kind"] == "opening")
    assert (opening["study"], opening["protection"]) == (north.study.digest, "sums")
    assert end.respond(request(number=1)) == "the run is over"


def test_a_relay_that_is_killed_gives_the_same_bytes_and_finds_its_run_again(north):
    first = north.end()
    said = answer(first, request())
    first._site.close()  # what the kernel does for a process that is killed
    first._relay._opened[0]._line.close()
    again, asked = north.end(), len(north.asked)
    assert again.respond(request()) == said
    assert len(north.asked) == asked  # from its log
    assert reply_of(answer(again, request(number=1))).sites == 2
    again.close()


def test_answers_that_came_while_the_relay_was_gone_are_kept_for_it(north):
    held_up = threading.Event()
    north.does["b"] = lambda data: held_up.wait(PATIENCE) and north.sites["b"].respond(data)
    first = north.end()
    asking = threading.Thread(target=first.respond, args=(request(),), daemon=True)
    asking.start()
    until(lambda: "a" in north.asked, "the question below")
    first._relay._opened[0]._line._connection.close()  # killed in the middle of a question
    asking.join(PATIENCE)
    first._site.close()
    held_up.set()
    second = north.end()
    assert reply_of(answer(second, request())).sites == 2
    second.close()


def test_members_that_have_not_approved_make_the_region_wait_and_no_longer(north):
    north.does["b"] = lambda data: NoAnswer("nobody has approved it", waiting=True)
    end = north.end()
    why = "members below have not approved the study yet"
    said = until(
        lambda: (s := end.respond(request())) == why and s, "it to wait"
    )  # it may be opening the run
    assert isinstance(said, PendingDecision)
    assert "b" in ProgressFile(north.work).read()["waiting"]
    assert isinstance(end.respond(request()), PendingDecision)
    del north.does["b"]
    assert reply_of(until(lambda: _bytes(end.respond(request())), "an answer", pause=0.2)).sites == 2
    end.close()


def test_a_member_that_declines_leaves_the_region_below_its_minimum(north):
    north.does["b"] = lambda data: NoAnswer("declines", retry=False)
    end = north.end()
    assert (
        reply_of(answer(end, request())).reason == "1 of its sites answered, and north answers for 2 or more"
    )
    del north.does["b"]
    assert reply_of(answer(end, request())).sites == 2  # asked again, it is tried again
    end.close()
    kinds = [entry["kind"] for _, entry in entries(north.home / "log.jsonl")]
    assert kinds[-2:] == ["refusal", "release"]


def test_a_study_of_another_run_or_beyond_its_rounds_is_refused(north):
    end = north.end()
    later = reply_of(answer(end, request(number=north.study.rounds + 1)))
    assert "the approved study has at most" in later.reason
    other = codec.wrap(Request(RequestId("x", 0, 0, 0), (Part("total", AskMoments(), None, 0),)))
    assert "this is another run" in reply_of(answer(end, other)).reason
    assert north.asked == []
    end.close()


def test_a_coordinator_learns_no_member_by_a_study_that_was_withdrawn(north):
    """Fingerprints of members' keys are told outside of what a study lists; they end with it all the same."""
    end = north.end()
    members = Request(RequestId("r", 0, 0, 1), (Part("each", AskMembers(), None, 0),))
    assert reply_of(answer(end, codec.wrap(members))).keys
    StudyFolder(north.home).decide(north.study.digest, "withdrawn", "an officer", "no longer")
    again = end.respond(codec.wrap(replace(members, request_id=RequestId("r", 0, 1, 1))))
    assert again == "the site has withdrawn the study: no longer"
    end.close()


def test_a_question_that_fails_at_a_region_is_asked_of_its_members_once(north, monkeypatch):
    asked = []

    def failing(self, request, parts):
        asked.append(request)
        raise ZeroDivisionError

    monkeypatch.setattr("unpooled.federation.relay.relay.Relay._totals", failing)
    end = north.end()
    answer = codec.unwrap(end.respond(request()), expect=Response)
    end.close()
    assert [reply.reason for reply in answer.replies] == [
        "failed with ZeroDivisionError; the site's own log says more"
    ]
    assert len(asked) == 1


def test_nobody_is_asked_before_the_region_has_approved(made, tmp_path):
    region = RelayHarness(made["north"], "north", tmp_path)
    said = region.end().respond(request())
    assert isinstance(said, PendingDecision)
    assert not region.work.exists()


def test_another_version_above_or_in_the_middle_is_one_clear_reason(north, monkeypatch):
    assert (
        north.end(version="99.0")
        .respond(request())
        .startswith("the coordinator has unpooled 99.0, this site")
    )
    monkeypatch.setattr("unpooled.federation.relay.relay.version", lambda name: "99.0")
    end = north.end()
    country = RemoteFederation(Sessions(north=end), federations=["north"])
    with pytest.raises(
        TreeError, match=r"north has unpooled 99.0, the federation above it .*: a tree has one version"
    ):
        run(Lloyd(k=2), country, name="r")
    end.close()


def test_a_run_below_that_nobody_asks_any_more_ends_by_itself(made, tmp_path, monkeypatch):
    monkeypatch.setattr(forwarder_module, "LEASE", 0.5)
    region = RelayHarness(made["north"], "north", tmp_path).approve().serve()
    region.serving.join(PATIENCE)
    assert not region.serving.is_alive()
    assert not region.work.exists()


def test_a_region_whose_server_is_not_up_says_so_and_is_tried_again(made, tmp_path, monkeypatch):
    monkeypatch.setattr(below_module, "_AGAIN", 0.5)
    rules = "version = 1\n[relay]\nmin_sites = 2\n[downstream]\nwait = 0\n"
    region = RelayHarness(made["south"], "south", tmp_path, rules).approve()
    end = region.end()
    said = until(
        lambda: (s := end.respond(request())) and not isinstance(s, PendingDecision) and s, "a reason"
    )
    assert said == "the federation below was not asked: its server is not up"
    region.serve().begun()
    assert reply_of(until(lambda: _bytes(end.respond(request())), "an answer", pause=0.5)).sites == 2
    end.close()
    region.over()


# ---------------------------------------------------------------- trees that are none


class Sessions:
    """A carrier to relays' processes."""

    def __init__(self, **sessions):
        self._ends, self.sites = sessions, tuple(sessions)

    def send_and_receive(self, requests):
        return {site: until(lambda s=site, d=data: self._said(s, d), site) for site, data in requests.items()}

    def _said(self, site, data):
        said = self._ends[site].respond(data)
        return None if isinstance(said, PendingDecision) else said


@pytest.fixture
def country(made, tmp_path, north):
    (tmp_path / "s").mkdir()
    south = RelayHarness(made["south"], "south", tmp_path / "s").approve().serve().begun()
    sessions = {"north": north.end(), "south": south.end()}
    yield RemoteFederation(Sessions(**sessions), federations=["north", "south"], exact_sums=True)
    for one in sessions.values():
        one.close()
    south.over()


def test_two_regions_give_the_clustering_of_one_federation(country):
    from unpooled import Simulation

    start = np.array([[0.0, -1.0], [0.0, 1.0]])
    done = run(Lloyd(k=2, init=start), country, name="r")
    rows = dict(zip("abcd", ROWS, strict=True))
    want = run(Lloyd(k=2, init=start), Simulation.from_rows(rows, exact_sums=True), name="r")
    assert np.array_equal(done.state.centers, want.state.centers)


def test_a_region_of_regions_passes_up_their_sums_and_their_waiting(north, tmp_path):
    land = create(tmp_path / "land", "land-fed", "localhost", ("c", "north"), engine_name="nvflare")
    for site in land.sites:
        known = {"federation": True} if site == "north" else {"member_key": "c" * 40}
        _write(land, site, Enrolment("", "2100-01-01T00:00:00+00:00", **known))
    (tmp_path / "l").mkdir()
    region, inner = (
        RelayHarness(land, "land", tmp_path / "l", members="c").approve().serve().begun(),
        north.end(),
    )

    def asked(data):
        said = inner.respond(data)
        return NoAnswer(str(said), waiting=True) if isinstance(said, PendingDecision) else said

    region.does["north"] = asked
    top = region.end()
    north.does["b"] = lambda data: NoAnswer("nobody has approved it", waiting=True)
    assert reply_of(
        until(lambda: _bytes(top.respond(request(AskMembers(), verb="each"))), "who")
    ).keys == tuple(
        sorted(["a" * 40, "b" * 40, "c" * 40, fingerprint_in(north.home), fingerprint_in(region.home)])
    )
    assert isinstance(top.respond(request()), PendingDecision)
    del north.does["b"]
    reply = reply_of(until(lambda: _bytes(top.respond(request())), "an answer", pause=0.2))
    assert (reply.sites, reply.reply().n) == (3, 90.0)
    top.close()
    inner.close()
    region.over()


def test_a_hospital_reached_by_two_paths_is_found_by_its_key(country, made):
    _write(made["south"], "d", Enrolment("", "2100-01-01T00:00:00+00:00", member_key="a" * 40))
    try:
        with pytest.raises(
            TreeError, match=r"^one member is reached by two paths, north and south \(key aaaa"
        ):
            run(Lloyd(k=2), country, name="r")
    finally:
        _write(made["south"], "d", Enrolment("", "2100-01-01T00:00:00+00:00", member_key="d" * 40))


def test_a_federation_that_contains_itself_is_one_clear_error(made, tmp_path):
    region = RelayHarness(made["south"], "south", tmp_path).approve()
    region.work.mkdir()
    with locked(region.work, what="the coordinator's process of a run"):
        end = region.end()
        with pytest.raises(
            TreeError, match="south: the federation south-fed contains itself: its own run r asks"
        ):
            run(Lloyd(k=2), RemoteFederation(Sessions(south=end), federations=["south"]), name="r")
        end.close()
    region.work.joinpath("lock").unlink()
    region.work.rmdir()


def test_two_relays_of_one_federation_are_one_clear_error(north, tmp_path):
    (tmp_path / "two").mkdir()
    other = RelayHarness(north.federation, "again", tmp_path / "two").approve()
    first, second = north.end(), other.end()
    both = RemoteFederation(Sessions(north=first, again=second), federations=["north", "again"])
    with pytest.raises(
        TreeError, match="the federation north-fed is reached by two paths: two relays pass this"
    ):
        run(Lloyd(k=2), both, name="r")
    second.close()
    assert reply_of(answer(first, request())).sites == 2  # the run of the first goes on
    first.close()


def test_fingerprints_of_members_are_all_that_goes_up_of_them(north):
    end = north.end()
    said = reply_of(answer(end, request(AskMembers(), verb="each")))
    assert said.keys == tuple(sorted(["a" * 40, "b" * 40, fingerprint_in(north.home)]))
    end.close()


# ---------------------------------------------------------------- studies, rules, keys, joining


def test_the_study_below_names_the_one_above_and_is_the_same_when_passed_on_again(made):
    study = study_of("r", ABOVE, federation="national", title="x" * 490)
    one, two = (
        forwarded_terms(study, made["north"], "north", DownstreamRules(contact="Dr. North")) for _ in range(2)
    )
    assert one.study.digest == two.study.digest
    assert one.study.fault() == ""
    assert f"north in national; its study {study.digest[:16]}" in one.study.title
    assert one.study.contact.endswith("at north-fed: Dr. North")
    assert (one.study.purpose, one.study.questions, one.study.run) == (study.purpose, study.questions, "r")
    assert one.study.authority == identity_in(made["north"].path).public.hex()
    assert not one.study.secure
    assert forwarded_terms(study, made["north"], "north", DownstreamRules(secure=True)).study.secure


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[relay]", "version is missing; this release reads version 1"),
        ("version = 2", "version 2, this release reads version 1"),
        ("version = 1\n[relay]\nmin_sites = 0", r"\[relay\] min_sites must be 1 or more"),
        ("version = 1\n[relay]\nquorum = 'half'", r"\[relay\] quorum must be a number, got 'half'"),
        ("version = 1\n[relay]\nsites = 2", r"unknown key in \[relay\] 'sites'; known are min_sites"),
        ("version = 1\n[relay]\nforwarded = ['x']", r"\[relay\] forwarded: no question is called 'x'"),
        ("version = 1\n[downstream]\ndeadline = 0", r"\[downstream\] deadline must be between 0 and 86400 seconds"),
        ("version = 1\n[studies]\napprove = 'known'", "approve = \"known\" and purposes belong together"),
        ("version = 1\nrelay = 3", r"relay must be a section, \[relay\]"),
        ("version 1", "not TOML"),
    ],
)  # fmt: skip
def test_rules_that_make_no_sense_are_refused_by_file_section_and_key(text, why):
    with pytest.raises(PolicyError, match=f"^rules.toml: .*{why}"):
        parse_relay_policy(text, "rules.toml")


def test_the_template_holds_the_usual_rules(tmp_path):
    assert parse_relay_policy(TEMPLATE) == RelayPolicy()
    file = tmp_path / "rules.toml"
    unpooled("site", "init", file, "--relay")
    assert "the rules of a federation" in unpooled("site", "policy", "--check", file)
    assert "exists" in unpooled("site", "init", file, "--relay", code=1)
    said = unpooled("site", "init", tmp_path / "x.toml", "--relay", "--person", "id", code=1)
    assert "the other options are for a site" in said


def test_a_member_proves_its_key_and_nobody_elses():
    one, other = Identity.new(), Identity.new()
    said = member_claim(one, "1234", federation=True)
    found = verified_claim(said, "1234")
    assert found.federation
    assert len(found.key) == 40
    assert verified_claim(said, "9999").key == ""  # of another enrolment
    assert verified_claim({**said, "member_key": other.public.hex()}, "1234").key == ""
    assert verified_claim({}, "1234") == type(found)()
    assert verified_claim({"member_key": "zz", "proof": ["x"]}, "1234").key == ""


def test_the_key_of_a_site_is_that_of_its_folder_and_of_another_one_that_it_names(made, tmp_path):
    north = made["north"]
    invitations = {site: invite(north, site) for site in north.sites}
    one, two = SiteFolder(tmp_path / "one"), SiteFolder(tmp_path / "two")
    one.accept(invitations["a"])
    identity_in(one.path)
    two.import_key(one.path)
    two.accept(invitations["b"])
    assert fingerprint_in(two.path) == fingerprint_in(one.path)
    identity_in(tmp_path)
    with pytest.raises(InputError, match="has a key of its own already"):
        two.import_key(tmp_path)
    with pytest.raises(InputError, match=r"has no identity.key"):
        two.import_key(tmp_path / "nowhere")
    for site in north.sites:  # as the other tests have them
        _write(north, site, Enrolment("", "2100-01-01T00:00:00+00:00", member_key=f"{site * 40}"))
    assert known_members(north) == ({"a": "a" * 40, "b": "b" * 40}, ())


def test_joining_with_a_federation_what_is_wrong_is_said_before_anything_is_written(made, tmp_path):
    national = create(tmp_path / "national", "national", "localhost", ("north",), engine_name="nvflare")
    letter = tmp_path / "north.json"
    letter.write_bytes(invite(national, "north").read_bytes())
    bad = tmp_path / "bad.toml"
    bad.write_text("version = 1\n[relay]\nquorum = 3\n")
    region = made["north"].path
    for words, why in (
        (("--downstream", national.path), "is national itself: a federation is no member of itself"),
        (("--downstream", tmp_path), "not the folder of a federation"),
        (
            ("--downstream", region, "--policy", bad),
            "bad.toml: [relay] quorum must be a share between 0 and 1",
        ),
        (("--downstream", region, "--data", bad), "a federation takes part, which has no data of its own"),
    ):
        said = unpooled("site", "join", letter, *words, code=1)
        assert why in said, said
        assert not (tmp_path / "north").exists()


def test_the_settings_of_a_member_say_what_it_is(made, tmp_path):
    file = tmp_path / "unpooled.json"
    settings = RelaySettings("north", str(made["north"].path), str(tmp_path / "n"))
    settings.write(file)
    assert RelaySettings.read(file) == settings
    assert isinstance(open_session(file, terms_of(study_of())), RelaySession)
    SiteSettings("a", "x.csv", str(tmp_path / "a")).write(file)
    assert type(open_session(file, terms_of(study_of()))) is SiteSession
    assert FederationFolder.read(made["north"].path).sites == ("a", "b")
