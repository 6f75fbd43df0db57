"""Names, invitations and keys: whatever is wrong with one is said in one line, and nothing is left behind."""

import json
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from unpooled.app.cli import app
from unpooled.errors import InputError
from unpooled.federation.provisioning.enrolment import invite
from unpooled.federation.provisioning.federation_folder import FederationFolder, create
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
    ("name", "address", "sites", "wrong"),
    [
        ("fed", "h", ("a", "A"), "different names"),
        ("fed", "h", (), "different names"),
        ("fed", "h", ("server",), "the engine uses it for itself; try site-server"),
        ("fed", "h", ("../a",), "cannot be the name of a site"),
        ("fed", "h", ("b", "101"), "the engine reads it as a number; try site-101"),
        ("fed", "h", ("1e5",), "the engine reads it as a number"),
        ("fed", "h", ("Infinity",), "the engine reads it as a number"),
        ("fed", "h", ("t",), "the engine reads it as a boolean; try site-t"),
        ("yes", "h", ("a",), "the engine reads it as a boolean; try federation-yes"),
        ("fed", "h", ("H",), "the server is reached under it"),
        ("fed", "h", ("localhost",), "cannot be the name of a site"),
        ("f f", "h", ("a",), "cannot be the name of a federation"),
        ("fed", "h:x", ("a",), "host:port"),
        ("fed", "h:99999", ("a",), "65535, got 99999"),
        ("fed", "fd00::1", ("a",), "give it a name, in DNS or /etc/hosts"),
    ],
)
def test_what_cannot_be_is_said_and_nothing_is_left(tmp_path, name, address, sites, wrong):
    with pytest.raises(InputError, match=wrong):
        create(tmp_path / "f", name, address, sites, engine_name="nvflare")
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=300, deadline=None)
@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,8}", fullmatch=True))
def test_the_engine_reads_every_name_as_a_name(name):
    """Its own reading of its command line gives a name back as it is, or the name is refused."""
    from nvflare.fuel.utils.argument_utils import parse_vars

    try:
        check_name(name, "site")
    except InputError:
        return
    assert parse_vars([f"uid={name}"]) == {"uid": name}


@pytest.mark.parametrize("name", ["101", "1e5", "t", "yes", "off", "nan", "1_0", "../../oops"])
def test_no_name_enters_elsewhere(federation, tmp_path, name):
    before = sorted(federation.path.rglob("*"))
    assert f"{name!r} cannot be" in unpooled("federation", "invite", federation.path, name, code=1)
    assert sorted(federation.path.rglob("*")) == before
    letter = tmp_path / "letter.json"
    said = json.loads(federation.invitation("a").read_text())
    for field in ("site", "federation"):
        letter.write_text(json.dumps({**said, field: name}))
        says = unpooled("site", "join", letter, "--data", __file__, code=1)
        assert f"letter.json: {name!r} cannot be" in says
        assert says.count("\n") == 1
    assert list(tmp_path.iterdir()) == [letter]
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
    ("changed", "wrong"),
    [
        ({"unpooled": "request"}, "not an invitation"),
        ({"version": 1}, "version 1, this program reads version 2; ask the coordinator"),
        ({"host": "x y"}, "host or host:port"),
        ({"port": 70000}, "65535"),
        ({"port": "8002"}, "65535"),
        ({"secret": 5}, "lacks something"),
        ({"more": "x"}, "lacks something"),
        ({"root": "x"}, "damaged"),
        ({"authority": "x"}, "damaged"),
        ({"engine": "os"}, "engines are nvflare"),
    ],
)
def test_invitations_that_are_none(federation, tmp_path, changed, wrong):
    letter = tmp_path / "letter.json"
    letter.write_text(json.dumps({**json.loads(federation.invitation("a").read_text()), **changed}))
    with pytest.raises(InputError, match=wrong):
        Invitation.read(letter)
    for text in ("", "{}", "[1]"):
        letter.write_text(text)
        with pytest.raises(InputError, match="not an invitation"):
            Invitation.read(letter)
    assert parse_address("10.1.2.3:99") == ("10.1.2.3", 99)


def test_the_key_stays_at_the_site(federation, tmp_path):
    """The invitation has no key; the site's is made in its folder, where only its owner reads it."""
    place = SiteFolder(tmp_path / "a")
    place.accept(federation.invitation("a"))
    assert (place.path / "private.key").stat().st_mode & 0o077 == 0
    assert place.path.stat().st_mode & 0o077 == 0
    assert federation.invitation("a").stat().st_mode & 0o077 == 0
    assert "PRIVATE" not in federation.invitation("a").read_text()
    secret = json.loads(federation.invitation("a").read_text())["secret"]
    kept = federation.enrolment / "a.json"
    assert secret not in kept.read_text()  # who reads the coordinator's state cannot enrol


def test_the_first_authority_is_pinned(federation, tmp_path):
    """A second federation of the same name and site is another authority, and is not taken for the first."""
    place = SiteFolder(tmp_path / "a")
    place.accept(federation.invitation("a"))
    key, pinned = (place.path / "private.key").read_bytes(), place.authority()
    false = create(tmp_path / "false", "fed", "localhost", ("a",), engine_name="nvflare")
    said = unpooled("site", "join", invite(false, "a"), "--folder", place.path, code=1)
    assert f"has pinned ({pinned}): call the coordinator" in said
    assert said.count("\n") == 1
    assert (place.path / "private.key").read_bytes() == key
    assert place.authority() == pinned
    for other in (invite(federation, "b"), None):  # another site of the same federation; the same site again
        words = (
            "site",
            "join",
            other or invite(federation, "a"),
            "--folder",
            place.path,
            "--data",
            tmp_path / "none",
        )
        said = unpooled(*words, code=1)
        assert ("is the folder of a in fed" in said) is (other is not None)
    assert (place.path / "private.key").read_bytes() == key


def test_one_fingerprint_covers_both_directions(federation, tmp_path):
    """It differs if the authority differs, the site's name, or the site's key."""
    place = SiteFolder(tmp_path / "a")
    place.accept(federation.invitation("a"))
    other = create(tmp_path / "false", "fed", "localhost", ("a",), engine_name="nvflare")
    first, second = new_key().public_key(), new_key().public_key()
    seen = {
        place.fingerprint(),
        enrolment_fingerprint(federation.root(), "a", first),
        enrolment_fingerprint(federation.root(), "a", second),
        enrolment_fingerprint(federation.root(), "b", first),
        enrolment_fingerprint(other.root(), "a", first),
    }
    assert len(seen) == 5
    assert all(len(text.replace(" ", "")) == 40 for text in seen)


def test_a_federation_of_an_earlier_version_says_what_to_do(federation, tmp_path):
    shutil.copytree(federation.path, tmp_path / "old")
    path = tmp_path / "old" / "federation.json"
    path.write_text(path.read_text().replace('"version": 2', '"version": 1'))
    with pytest.raises(InputError, match="unpooled federation init makes a new one"):
        FederationFolder.read(tmp_path / "old")
