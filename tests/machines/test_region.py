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
from unpooled.core import codec
from unpooled.core.disk import held
from unpooled.core.exchange import Answer, Envelope, Part, Turn
from unpooled.errors import BadInput, PolicyError
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.questions.clusters import AskMoments
from unpooled.runtimes.coordinator_run import ProgressFile
from unpooled.runtimes.delivery import Delivery, NoAnswer
from unpooled.runtimes.membership import AskMembers, BadTree
from unpooled.runtimes.provisioning.enrolment import Enrolment, _write, invite
from unpooled.runtimes.provisioning.federation_folder import FederationFolder, create
from unpooled.runtimes.provisioning.members import claimed, members_of, proven
from unpooled.runtimes.provisioning.site_folder import SiteFolder
from unpooled.runtimes.region import below as below_module
from unpooled.runtimes.region import passing as passing_module
from unpooled.runtimes.region.end import RelayEnd, end_of
from unpooled.runtimes.region.passing import Passing
from unpooled.runtimes.region.rules import TEMPLATE, Below, RegionRules, parse_rules
from unpooled.runtimes.region.settings import RegionSettings, passed_on
from unpooled.runtimes.remote import RemoteFederation
from unpooled.site.identity import fingerprint_in, identity_in
from unpooled.site.log import entries, verify
from unpooled.site.site_process import SiteEnd, SiteSettings, Waiting
from unpooled.site.study_folder import APPROVED, StudyFolder

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
            _write(regions[name], site, Enrolment("", "2100-01-01T00:00:00+00:00", member=f"{site * 40}"))
    return regions


class Region:
    """A region whose run below is served in this process; its hospitals answer, or do what they are told."""

    def __init__(
        self, federation, name, folder, rules="version = 1\n[relay]\nmin_sites = 2\n", members="abcd"
    ):
        (folder / "rules.toml").write_text(rules)
        self.federation, self.study = federation, study_of("r", ABOVE)
        self.home = folder / name
        self.home.mkdir()
        self.settings = RegionSettings(
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
        passing = Passing(self.work, self.ending.is_set)
        courier = Delivery(
            self.federation.sites, self.post, deadline=PATIENCE, stopped=passing.stopped, approval=60.0
        )
        self.serving = threading.Thread(target=passing.serve, args=(courier,), daemon=True)
        self.serving.start()
        return self

    def begun(self):
        """Wait until the run below takes questions."""
        until(lambda: ProgressFile(self.work).read()["state"] == "running", "the run below")
        return self

    def end(self, **how):
        return RelayEnd(self.settings, replace(terms_of(self.study, ABOVE), **how))

    def over(self):
        self.ending.set()
        self.serving.join(PATIENCE)


@pytest.fixture
def north(made, tmp_path):
    region = Region(made["north"], "north", tmp_path).approve().serve().begun()
    yield region
    region.over()


def post(question=None, number=0, verb="total"):
    question = AskMoments() if question is None else question
    return codec.wrap(Envelope(Turn("r", 0, number, 0), (Part(verb, question, None, 0),)))


def _bytes(said):
    return said if isinstance(said, bytes) else None


def answer(end, data):
    """The bytes of an answer. The run below may take a while to be reached."""
    return until(lambda: _bytes(end.respond(data)), "an answer")


def reply_of(data):
    assert isinstance(data, bytes), data
    (reply,) = codec.unwrap(data, expect=Answer).replies
    return reply


# ---------------------------------------------------------------- its process, and the run below


def test_a_relays_process_answers_from_the_run_below_and_ends_it(north):
    end = north.end()
    reply = reply_of(answer(end, post()))
    assert (reply.sites, reply.reply().n) == (2, 60.0)
    end.close()
    north.serving.join(PATIENCE)
    assert not north.work.exists()
    assert verify(north.home / "log.jsonl") == []
    opening = next(entry for _, entry in entries(north.home / "log.jsonl") if entry["kind"] == "opening")
    assert (opening["study"], opening["protection"]) == (north.study.digest, "sums")
    assert end.respond(post(number=1)) == "the run is over"


def test_a_relay_that_is_killed_gives_the_same_bytes_and_finds_its_run_again(north):
    first = north.end()
    said = answer(first, post())
    first._site.close()  # what the kernel does for a process that is killed
    first._region._opened[0]._line.close()
    again, asked = north.end(), len(north.asked)
    assert again.respond(post()) == said
    assert len(north.asked) == asked  # from its log
    assert reply_of(answer(again, post(number=1))).sites == 2
    again.close()


def test_answers_that_came_while_the_relay_was_gone_are_kept_for_it(north):
    held_up = threading.Event()
    north.does["b"] = lambda data: held_up.wait(PATIENCE) and north.sites["b"].respond(data)
    first = north.end()
    asking = threading.Thread(target=first.respond, args=(post(),), daemon=True)
    asking.start()
    until(lambda: "a" in north.asked, "the question below")
    first._region._opened[0]._line._connection.close()  # killed in the middle of a question
    asking.join(PATIENCE)
    first._site.close()
    held_up.set()
    second = north.end()
    assert reply_of(answer(second, post())).sites == 2
    second.close()


def test_members_that_have_not_approved_make_the_region_wait_and_no_longer(north):
    north.does["b"] = lambda data: NoAnswer("nobody has approved it", waiting=True)
    end = north.end()
    why = "members below have not approved the study yet"
    said = until(lambda: (s := end.respond(post())) == why and s, "it to wait")  # it may be opening the run
    assert isinstance(said, Waiting)
    assert "b" in ProgressFile(north.work).read()["waiting"]
    assert isinstance(end.respond(post()), Waiting)
    del north.does["b"]
    assert reply_of(until(lambda: _bytes(end.respond(post())), "an answer", pause=0.2)).sites == 2
    end.close()


def test_a_member_that_declines_leaves_the_region_below_its_minimum(north):
    north.does["b"] = lambda data: NoAnswer("declines", again=False)
    end = north.end()
    assert reply_of(answer(end, post())).reason == "1 of its sites answered, and north answers for 2 or more"
    del north.does["b"]
    assert reply_of(answer(end, post())).sites == 2  # asked again, it is tried again
    end.close()
    kinds = [entry["kind"] for _, entry in entries(north.home / "log.jsonl")]
    assert kinds[-2:] == ["refusal", "release"]


def test_a_study_of_another_run_or_beyond_its_rounds_is_refused(north):
    end = north.end()
    later = reply_of(answer(end, post(number=north.study.rounds + 1)))
    assert "the approved study has at most" in later.reason
    other = codec.wrap(Envelope(Turn("x", 0, 0, 0), (Part("total", AskMoments(), None, 0),)))
    assert "this is another run" in reply_of(answer(end, other)).reason
    assert north.asked == []
    end.close()


def test_a_coordinator_learns_no_member_by_a_study_that_was_withdrawn(north):
    """Fingerprints of members' keys are told outside of what a study lists; they end with it all the same."""
    end = north.end()
    members = Envelope(Turn("r", 0, 0, 1), (Part("each", AskMembers(), None, 0),))
    assert reply_of(answer(end, codec.wrap(members))).keys
    StudyFolder(north.home).decide(north.study.digest, "withdrawn", "an officer", "no longer")
    again = end.respond(codec.wrap(replace(members, turn=Turn("r", 0, 1, 1))))
    assert again == "the site has withdrawn the study: no longer"
    end.close()


def test_a_question_that_fails_at_a_region_is_asked_of_its_members_once(north, monkeypatch):
    asked = []

    def failing(self, post, parts):
        asked.append(post)
        raise ZeroDivisionError

    monkeypatch.setattr("unpooled.runtimes.relay.Relay._found", failing)
    end = north.end()
    answer = codec.unwrap(end.respond(post()), expect=Answer)
    end.close()
    assert [reply.reason for reply in answer.replies] == [
        "failed with ZeroDivisionError; the site's own log says more"
    ]
    assert len(asked) == 1


def test_nobody_is_asked_before_the_region_has_approved(made, tmp_path):
    region = Region(made["north"], "north", tmp_path)
    said = region.end().respond(post())
    assert isinstance(said, Waiting)
    assert not region.work.exists()


def test_another_version_above_or_in_the_middle_is_one_clear_reason(north, monkeypatch):
    assert (
        north.end(version="99.0").respond(post()).startswith("the coordinator has unpooled 99.0, this site")
    )
    monkeypatch.setattr("unpooled.runtimes.relay.version", lambda name: "99.0")
    end = north.end()
    country = RemoteFederation(Ends(north=end), federations=["north"])
    with pytest.raises(
        BadTree, match=r"north has unpooled 99.0, the federation above it .*: a tree has one version"
    ):
        run(Lloyd(k=2), country, name="r")
    end.close()


def test_a_run_below_that_nobody_asks_any_more_ends_by_itself(made, tmp_path, monkeypatch):
    monkeypatch.setattr(passing_module, "LEASE", 0.5)
    region = Region(made["north"], "north", tmp_path).approve().serve()
    region.serving.join(PATIENCE)
    assert not region.serving.is_alive()
    assert not region.work.exists()


def test_a_region_whose_server_is_not_up_says_so_and_is_tried_again(made, tmp_path, monkeypatch):
    monkeypatch.setattr(below_module, "_AGAIN", 0.5)
    rules = "version = 1\n[relay]\nmin_sites = 2\n[below]\nwait = 0\n"
    region = Region(made["south"], "south", tmp_path, rules).approve()
    end = region.end()
    said = until(lambda: (s := end.respond(post())) and not isinstance(s, Waiting) and s, "a reason")
    assert said == "the federation below was not asked: its server is not up"
    region.serve().begun()
    assert reply_of(until(lambda: _bytes(end.respond(post())), "an answer", pause=0.5)).sites == 2
    end.close()
    region.over()


# ---------------------------------------------------------------- trees that are none


class Ends:
    """A carrier to relays' processes."""

    def __init__(self, **ends):
        self._ends, self.sites = ends, tuple(ends)

    def carry(self, posts):
        return {site: until(lambda s=site, d=data: self._said(s, d), site) for site, data in posts.items()}

    def _said(self, site, data):
        said = self._ends[site].respond(data)
        return None if isinstance(said, Waiting) else said


@pytest.fixture
def country(made, tmp_path, north):
    (tmp_path / "s").mkdir()
    south = Region(made["south"], "south", tmp_path / "s").approve().serve().begun()
    ends = {"north": north.end(), "south": south.end()}
    yield RemoteFederation(Ends(**ends), federations=["north", "south"], exact_sums=True)
    for one in ends.values():
        one.close()
    south.over()


def test_two_regions_give_the_clustering_of_one_federation(country):
    from unpooled import InProcess

    start = np.array([[0.0, -1.0], [0.0, 1.0]])
    done = run(Lloyd(k=2, init=start), country, name="r")
    rows = dict(zip("abcd", ROWS, strict=True))
    want = run(Lloyd(k=2, init=start), InProcess.of(rows, exact_sums=True), name="r")
    assert np.array_equal(done.state.centers, want.state.centers)


def test_a_region_of_regions_passes_up_their_sums_and_their_waiting(north, tmp_path):
    land = create(tmp_path / "land", "land-fed", "localhost", ("c", "north"), engine_name="nvflare")
    for site in land.sites:
        known = {"federation": True} if site == "north" else {"member": "c" * 40}
        _write(land, site, Enrolment("", "2100-01-01T00:00:00+00:00", **known))
    (tmp_path / "l").mkdir()
    region, inner = Region(land, "land", tmp_path / "l", members="c").approve().serve().begun(), north.end()

    def asked(data):
        said = inner.respond(data)
        return NoAnswer(str(said), waiting=True) if isinstance(said, Waiting) else said

    region.does["north"] = asked
    top = region.end()
    north.does["b"] = lambda data: NoAnswer("nobody has approved it", waiting=True)
    assert reply_of(until(lambda: _bytes(top.respond(post(AskMembers(), verb="each"))), "who")).keys == tuple(
        sorted(["a" * 40, "b" * 40, "c" * 40, fingerprint_in(north.home), fingerprint_in(region.home)])
    )
    assert isinstance(top.respond(post()), Waiting)
    del north.does["b"]
    reply = reply_of(until(lambda: _bytes(top.respond(post())), "an answer", pause=0.2))
    assert (reply.sites, reply.reply().n) == (3, 90.0)
    top.close()
    inner.close()
    region.over()


def test_a_hospital_reached_by_two_paths_is_found_by_its_key(country, made):
    _write(made["south"], "d", Enrolment("", "2100-01-01T00:00:00+00:00", member="a" * 40))
    try:
        with pytest.raises(BadTree, match=r"^one member is reached by two paths, north and south \(key aaaa"):
            run(Lloyd(k=2), country, name="r")
    finally:
        _write(made["south"], "d", Enrolment("", "2100-01-01T00:00:00+00:00", member="d" * 40))


def test_a_federation_that_contains_itself_is_one_clear_error(made, tmp_path):
    region = Region(made["south"], "south", tmp_path).approve()
    region.work.mkdir()
    with held(region.work, what="the coordinator's process of a run"):
        end = region.end()
        with pytest.raises(
            BadTree, match="south: the federation south-fed contains itself: its own run r asks"
        ):
            run(Lloyd(k=2), RemoteFederation(Ends(south=end), federations=["south"]), name="r")
        end.close()
    region.work.joinpath("lock").unlink()
    region.work.rmdir()


def test_two_relays_of_one_federation_are_one_clear_error(north, tmp_path):
    (tmp_path / "two").mkdir()
    other = Region(north.federation, "again", tmp_path / "two").approve()
    first, second = north.end(), other.end()
    both = RemoteFederation(Ends(north=first, again=second), federations=["north", "again"])
    with pytest.raises(
        BadTree, match="the federation north-fed is reached by two paths: two relays pass this"
    ):
        run(Lloyd(k=2), both, name="r")
    second.close()
    assert reply_of(answer(first, post())).sites == 2  # the run of the first goes on
    first.close()


def test_fingerprints_of_members_are_all_that_goes_up_of_them(north):
    end = north.end()
    said = reply_of(answer(end, post(AskMembers(), verb="each")))
    assert said.keys == tuple(sorted(["a" * 40, "b" * 40, fingerprint_in(north.home)]))
    end.close()


# ---------------------------------------------------------------- studies, rules, keys, joining


def test_the_study_below_names_the_one_above_and_is_the_same_when_passed_on_again(made):
    study = study_of("r", ABOVE, federation="national", title="x" * 490)
    one, two = (passed_on(study, made["north"], "north", Below(contact="Dr. North")) for _ in range(2))
    assert one.study.digest == two.study.digest
    assert one.study.fault() == ""
    assert f"north in national; its study {study.digest[:16]}" in one.study.title
    assert one.study.contact.endswith("at north-fed: Dr. North")
    assert (one.study.purpose, one.study.questions, one.study.run) == (study.purpose, study.questions, "r")
    assert one.study.authority == identity_in(made["north"].path).public.hex()
    assert not one.study.secure
    assert passed_on(study, made["north"], "north", Below(secure=True)).study.secure


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[relay]", "version is missing; this release reads version 1"),
        ("version = 2", "version 2, this release reads version 1"),
        ("version = 1\n[relay]\nmin_sites = 0", r"\[relay\] min_sites must be 1 or more"),
        ("version = 1\n[relay]\nquorum = 'half'", r"\[relay\] quorum must be a number, got 'half'"),
        ("version = 1\n[relay]\nsites = 2", r"unknown key in \[relay\] 'sites'; known are min_sites"),
        ("version = 1\n[relay]\npasses = ['x']", r"\[relay\] passes: no question is called 'x'"),
        ("version = 1\n[below]\ndeadline = 0", r"\[below\] deadline must be between 0 and 86400 seconds"),
        ("version = 1\n[studies]\napprove = 'known'", "approve = \"known\" and purposes belong together"),
        ("version = 1\nrelay = 3", r"relay must be a section, \[relay\]"),
        ("version 1", "not TOML"),
    ],
)  # fmt: skip
def test_rules_that_make_no_sense_are_refused_by_file_section_and_key(text, why):
    with pytest.raises(PolicyError, match=f"^rules.toml: .*{why}"):
        parse_rules(text, "rules.toml")


def test_the_template_holds_the_usual_rules(tmp_path):
    assert parse_rules(TEMPLATE) == RegionRules()
    file = tmp_path / "rules.toml"
    unpooled("policy", "init", file, "--federation")
    assert "the rules of a federation" in unpooled("policy", "check", file)
    assert "exists" in unpooled("policy", "init", file, "--federation", code=1)
    said = unpooled("policy", "init", tmp_path / "x.toml", "--federation", "--person", "id", code=1)
    assert "the other options are for a site" in said


def test_a_member_proves_its_key_and_nobody_elses():
    one, other = Identity.new(), Identity.new()
    said = claimed(one, "1234", federation=True)
    found = proven(said, "1234")
    assert found.federation
    assert len(found.key) == 40
    assert proven(said, "9999").key == ""  # of another enrolment
    assert proven({**said, "member": other.public.hex()}, "1234").key == ""
    assert proven({}, "1234") == type(found)()
    assert proven({"member": "zz", "proof": ["x"]}, "1234").key == ""


def test_the_key_of_a_site_is_that_of_its_folder_and_of_another_one_that_it_names(made, tmp_path):
    north = made["north"]
    letters = {site: invite(north, site) for site in north.sites}
    one, two = SiteFolder(tmp_path / "one"), SiteFolder(tmp_path / "two")
    one.accept(letters["a"])
    identity_in(one.path)
    two.take_key(one.path)
    two.accept(letters["b"])
    assert fingerprint_in(two.path) == fingerprint_in(one.path)
    identity_in(tmp_path)
    with pytest.raises(BadInput, match="has a key of its own already"):
        two.take_key(tmp_path)
    with pytest.raises(BadInput, match=r"has no identity.key"):
        two.take_key(tmp_path / "nowhere")
    for site in north.sites:  # as the other tests have them
        _write(north, site, Enrolment("", "2100-01-01T00:00:00+00:00", member=f"{site * 40}"))
    assert members_of(north) == ({"a": "a" * 40, "b": "b" * 40}, ())


def test_joining_with_a_federation_what_is_wrong_is_said_before_anything_is_written(made, tmp_path):
    national = create(tmp_path / "national", "national", "localhost", ("north",), engine_name="nvflare")
    letter = tmp_path / "north.json"
    letter.write_bytes(invite(national, "north").read_bytes())
    bad = tmp_path / "bad.toml"
    bad.write_text("version = 1\n[relay]\nquorum = 3\n")
    region = made["north"].path
    for words, why in (
        (("--federation", national.path), "is national itself: a federation is no member of itself"),
        (("--federation", tmp_path), "not the folder of a federation"),
        (
            ("--federation", region, "--policy", bad),
            "bad.toml: [relay] quorum must be a share between 0 and 1",
        ),
        (("--federation", region, "--data", bad), "a federation takes part, which has no data of its own"),
    ):
        said = unpooled("join", letter, *words, code=1)
        assert why in said, said
        assert not (tmp_path / "north").exists()


def test_the_settings_of_a_member_say_what_it_is(made, tmp_path):
    file = tmp_path / "unpooled.json"
    settings = RegionSettings("north", str(made["north"].path), str(tmp_path / "n"))
    settings.write(file)
    assert RegionSettings.read(file) == settings
    assert isinstance(end_of(file, terms_of(study_of())), RelayEnd)
    SiteSettings("a", "x.csv", str(tmp_path / "a")).write(file)
    assert type(end_of(file, terms_of(study_of()))) is SiteEnd
    assert FederationFolder.read(made["north"].path).sites == ("a", "b")
