"""Names, invitations, keys and formats: an error is one line, and leaves no files behind."""

import contextlib
import json
import shutil
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nvflare.apis.event_type import EventType
from nvflare.apis.shareable import Shareable
from typer.testing import CliRunner

from unpooled.app.cli import app
from unpooled.errors import InputError
from unpooled.federation.nvflare.executor import Responder
from unpooled.federation.progress_file import ProgressFile
from unpooled.federation.provisioning.enrolment import invite
from unpooled.federation.provisioning.federation_folder import create
from unpooled.federation.provisioning.invitations import Invitation
from unpooled.federation.provisioning.keys import enrolment_fingerprint, new_key
from unpooled.federation.provisioning.names import check_name, parse_address
from unpooled.federation.provisioning.site_folder import SiteFolder

pytestmark = pytest.mark.usefixtures("shorter_keys")


def unpooled(*words, code=0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    made = create(tmp_path_factory.mktemp("fed") / "f", "fed", "localhost", ("a", "b"), engine_name="nvflare")
    for site in made.sites:
        invite(made, site)
    return made


@pytest.mark.parametrize(
    ("name", "address", "sites", "message"),
    [
        ("fed", "h", ("a", "A"), "different names"),
        ("fed", "h", (), "different names"),
        ("fed", "h", ("server",), r"the engine uses it for itself\. Try site-server\."),
        ("fed", "h", ("../a",), "cannot be the name of a site"),
        ("fed", "h", ("b", "101"), r"the engine reads it as a number\. Try site-101\."),
        ("fed", "h", ("1e5",), "the engine reads it as a number"),
        ("fed", "h", ("Infinity",), "the engine reads it as a number"),
        ("fed", "h", ("t",), r"the engine reads it as a boolean\. Try site-t\."),
        ("yes", "h", ("a",), r"the engine reads it as a boolean\. Try federation-yes\."),
        ("fed", "h", ("H",), "it is the server's host name"),
        ("fed", "h", ("localhost",), "cannot be the name of a site"),
        ("f f", "h", ("a",), "cannot be the name of a federation"),
        ("fed", "h:x", ("a",), "host:port"),
        ("fed", "h:99999", ("a",), "65535, got 99999"),
        ("fed", "fd00::1", ("a",), "Give the machine a name, in DNS or /etc/hosts"),
    ],
)
def test_an_invalid_name_or_address_is_refused_and_nothing_is_written(
    tmp_path, name, address, sites, message
):
    with pytest.raises(InputError, match=message):
        create(tmp_path / "f", name, address, sites, engine_name="nvflare")
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=300, deadline=None)
@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,8}", fullmatch=True))
def test_the_engine_reads_every_name_as_a_name(name):
    """The engine's command-line parser returns a name unchanged, or unpooled refuses the name."""
    from nvflare.fuel.utils.argument_utils import parse_vars

    try:
        check_name(name, "site")
    except InputError:
        return
    assert parse_vars([f"uid={name}"]) == {"uid": name}


@pytest.mark.parametrize("name", ["101", "1e5", "t", "yes", "off", "nan", "1_0", "../../oops"])
def test_every_entry_point_checks_names(federation, tmp_path, name):
    before = sorted(federation.path.rglob("*"))
    assert f"{name!r} cannot be" in unpooled("federation", "invite", federation.path, name, code=1)
    assert sorted(federation.path.rglob("*")) == before
    invitation = tmp_path / "invitation.json"
    values = json.loads(federation.invitation("a").read_text())
    for field in ("site", "federation"):
        invitation.write_text(json.dumps({**values, field: name}))
        output = unpooled("site", "join", tmp_path / "site", invitation, "--data", __file__, code=1)
        assert f"invitation.json: {name!r} cannot be" in output
        assert output.count("\n") == 1
    assert list(tmp_path.iterdir()) == [invitation]
    jobs = (
        "federation",
        "export-job",
        tmp_path / "job",
        "--site",
        name,
        "-k",
        "2",
        "--out",
        tmp_path / "run",
    )
    assert f"{name!r} cannot be" in unpooled(*jobs, code=1)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"unpooled": "request"}, "not an invitation"),
        ({"format": 2}, r"an invitation of format 2, and this release reads format 1\. Ask the coordinator"),
        ({"format": True}, "an invitation of format True, and this release reads format 1"),
        ({"host": "x y"}, "host or host:port"),
        ({"port": 70000}, "65535"),
        ({"port": "8002"}, "65535"),
        ({"secret": 5}, "missing, unknown or wrong entries"),
        ({"more": "x"}, "missing, unknown or wrong entries"),
        ({"root": "x"}, "damaged"),
        ({"authority": "x"}, "damaged"),
        ({"engine": "os"}, "engine must be one of nvflare, got 'os'"),
    ],
)
def test_invalid_invitations_are_refused(federation, tmp_path, changed, message):
    file = tmp_path / "invitation.json"
    file.write_text(json.dumps({**json.loads(federation.invitation("a").read_text()), **changed}))
    with pytest.raises(InputError, match=message):
        Invitation.read(file)
    for text in ("", "{}", "[1]"):
        file.write_text(text)
        with pytest.raises(InputError, match="not an invitation"):
            Invitation.read(file)
    assert parse_address("10.1.2.3:99") == ("10.1.2.3", 99)


def test_the_key_stays_at_the_site(federation, tmp_path):
    """The invitation has no key; the site makes its own in its folder, where only its owner can read it."""
    membership = SiteFolder(tmp_path / "a").accept(federation.invitation("a"))
    assert membership.key.stat().st_mode & 0o077 == 0
    assert membership.path.stat().st_mode & 0o077 == 0
    assert (tmp_path / "a").stat().st_mode & 0o077 == 0
    assert federation.invitation("a").stat().st_mode & 0o077 == 0
    assert "PRIVATE" not in federation.invitation("a").read_text()
    secret = json.loads(federation.invitation("a").read_text())["secret"]
    record = federation.enrolment / "a.json"
    assert secret not in record.read_text()  # the coordinator's state alone enrols nobody


def test_the_first_authority_is_pinned(federation, tmp_path):
    """A second federation with the same name and site has another authority, and is refused."""
    membership = SiteFolder(tmp_path / "a").accept(federation.invitation("a"))
    key, pinned = membership.key.read_bytes(), membership.authority()
    false = create(tmp_path / "false", "fed", "localhost", ("a",), engine_name="nvflare")
    output = unpooled("site", "join", tmp_path / "a", invite(false, "a"), code=1)
    assert f"has pinned for fed ({pinned}). Call the coordinator" in output
    assert output.count("\n") == 1
    assert membership.key.read_bytes() == key
    assert membership.authority() == pinned
    for other in (invite(federation, "b"), None):  # another site of the same federation; the same site again
        words = (
            "site",
            "join",
            tmp_path / "a",
            other or invite(federation, "a"),
            "--data",
            tmp_path / "none",
        )
        output = unpooled(*words, code=1)
        assert ("is a in fed, and the invitation of the same coordinator is for b" in output) is (
            other is not None
        )
    assert membership.key.read_bytes() == key


def test_one_fingerprint_covers_both_directions(federation, tmp_path):
    """It differs if the authority, the site's name or the site's key differs."""
    membership = SiteFolder(tmp_path / "a").accept(federation.invitation("a"))
    other = create(tmp_path / "false", "fed", "localhost", ("a",), engine_name="nvflare")
    first, second = new_key().public_key(), new_key().public_key()
    fingerprints = {
        membership.fingerprint(),
        enrolment_fingerprint(federation.root(), "a", first),
        enrolment_fingerprint(federation.root(), "a", second),
        enrolment_fingerprint(federation.root(), "b", first),
        enrolment_fingerprint(other.root(), "a", first),
    }
    assert len(fingerprints) == 5
    assert all(len(text.replace(" ", "")) == 40 for text in fingerprints)


# ---------------------------------------------------------------- files of another format


def in_format(path, value):
    """Give a file another format, or with ``None`` that of the time before formats: a version."""
    values = json.loads(path.read_text())
    del values["format"]
    path.write_text(json.dumps({**values, **({"version": 2} if value is None else {"format": value})}))


@pytest.mark.parametrize(
    ("value", "problem"), [(None, "an unknown or earlier format"), (2, "format 2"), ("1", "format '1'")]
)
def test_a_federation_of_another_format_is_refused_and_never_looks_empty(
    federation, tmp_path, value, problem
):
    home = tmp_path / "old"
    shutil.copytree(federation.path, home)
    (home / "runs" / "20250101-120000-abcd").mkdir()
    in_format(home / "federation.json", value)
    before = sorted(home.rglob("*"))
    for words in (
        ("status", home),
        ("status", home, "--json"),
        ("serve", home),
        ("serve", home, "--stop"),
        ("run", home, "-k", "2", "--out", tmp_path / "out"),
        ("admit", home),
        ("invite", home, "c"),
        ("remove", home, "a"),
        ("remove", home, "--older-than", "0"),
    ):
        output = unpooled("federation", *words, code=1)
        assert output.count("\n") == 1
        assert (
            f"the folder of a federation of {problem}, and this release reads format 1. Make a new" in output
        )
    assert sorted(home.rglob("*")) == before


def test_a_site_with_an_invitation_of_another_format_is_refused(federation, tmp_path):
    site = SiteFolder(tmp_path / "a").accept(federation.invitation("a"))
    in_format(site.path / "invitation.json", None)
    shutil.copy(site.path / "invitation.json", tmp_path / "a.json")
    before = sorted((tmp_path / "a").rglob("*"))
    for words in (
        ("join", tmp_path / "a", tmp_path / "a.json"),
        ("start", tmp_path / "a"),
        ("stop", tmp_path / "a"),
        ("status", tmp_path / "a"),
    ):
        output = unpooled("site", *words, code=1)
        assert output.count("\n") == 1
        assert "an invitation of an unknown or earlier format, and this release reads format 1." in output
    assert sorted((tmp_path / "a").rglob("*")) == before


def test_the_progress_of_a_run_of_another_format_is_refused(tmp_path):
    progress = ProgressFile(tmp_path)
    progress.write("running")
    assert progress.read()["state"] == "running"
    in_format(progress.path, None)
    with pytest.raises(InputError, match=r"progress\.json: a run of an unknown or earlier format"):
        progress.read()


def test_a_job_of_another_format_is_refused_at_the_site(tmp_path):
    """As one that an earlier release exported: its configuration holds no format."""
    sent = []

    class Engine:
        def register_aux_message_handler(self, topic, handler):
            self.handler = handler

        @contextlib.contextmanager
        def new_context(self):
            yield None

        def send_aux_request(self, targets, topic, request, timeout, context, optional):
            sent.append(request)

    engine = Engine()
    context = SimpleNamespace(get_engine=lambda: engine)
    responder = Responder("terms of an earlier release")
    responder.handle_event(EventType.START_RUN, context)
    engine.handler("", Shareable({"payload": b"x", "correlation_id": "1"}), context)
    (answer,) = sent
    assert answer["reason"] == "the job is of an unknown or earlier format, and this release reads format 1"
