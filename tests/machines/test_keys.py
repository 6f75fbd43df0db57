"""Keys are made where they are used; what is wrong with a letter is said in one line."""

import shutil

import pytest
from typer.testing import CliRunner

from unpooled.app.cli import app
from unpooled.errors import BadInput
from unpooled.runtimes.provisioning.federation_folder import create, parse_address
from unpooled.runtimes.provisioning.invitations import Invitation, Request
from unpooled.runtimes.provisioning.keys import new_key, private_pem, request


def unpooled(*words, code=0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


def test_a_site_makes_its_own_key(tmp_path):
    """Invitation, request, approval: the private key never leaves; a request of another key gets nowhere."""
    home, site = tmp_path / "fed", tmp_path / "site"
    site.mkdir()
    unpooled(
        "federation", "init", home, "--name", "f", "--address", "h.example.org", "--site", "a", "--site", "b"
    )
    sent = site / "a.json"
    shutil.copy(home / "invitations" / "a.json", sent)
    said = unpooled("join", sent)
    asked = site / "a.request.json"
    assert "PRIVATE" not in asked.read_text() + sent.read_text()
    assert (site / "a" / "private.key").stat().st_mode & 0o077 == 0
    answer = unpooled("federation", "approve", home, asked)
    fingerprint = said.splitlines()[0].removeprefix("the key of this site: ")
    assert answer.splitlines()[0] == f"the key of a: {fingerprint}"
    shutil.copy(home / "invitations" / "a.json", sent)
    assert "PRIVATE" not in sent.read_text()

    key = (site / "a" / "private.key").read_text()
    assert all(key not in p.read_text(errors="ignore") for p in home.rglob("*") if p.is_file())
    wrong = "is made for another key"
    (site / "a" / "private.key").unlink()
    (site / "a" / "private.key").write_text(private_pem(new_key()))
    assert wrong in unpooled("join", sent, "--data", __file__, code=1)

    forged = tmp_path / "forged.json"
    Request("f", "c", request("c", new_key())).write(forged)
    assert "c is not invited" in unpooled("federation", "approve", home, forged, code=1)
    Request("f", "b", request("a", new_key())).write(forged)
    assert "the request is for a, not for b" in unpooled("federation", "approve", home, forged, code=1)
    Request("g", "a", request("a", new_key())).write(forged)
    assert "a request to g, this is f" in unpooled("federation", "approve", home, forged, code=1)
    assert "exists" in unpooled(
        "federation", "init", home, "--name", "f", "--address", "h", "--site", "a", code=1
    )
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("name", "address", "sites", "wrong"),
    [
        ("f", "h", ("a", "A"), "different names"),
        ("f", "h", (), "different names"),
        ("f", "h", ("server",), "cannot be the name of a site"),
        ("f", "h", ("../a",), "cannot be the name of a site"),
        ("f f", "h", ("a",), "cannot be the name of a federation"),
        ("f", "h:x", ("a",), "host:port"),
        ("f", "h:99999", ("a",), "65535, got 99999"),
    ],
)
def test_what_cannot_be_is_said_and_nothing_is_left(tmp_path, name, address, sites, wrong):
    with pytest.raises(BadInput, match=wrong):
        create(tmp_path / "f", name, address, sites, engine_name="nvflare", with_keys=False)
    assert list(tmp_path.iterdir()) == []


def test_letters_that_are_none(tmp_path):
    path = tmp_path / "letter"
    for text in ("", "{}", "[1]", '{"unpooled": "request", "version": 1}'):
        path.write_text(text)
        with pytest.raises(BadInput, match=r"not an invitation"):
            Invitation.read(path)
    path.write_text('{"unpooled": "invitation", "version": 1, "site": "a"}')
    with pytest.raises(BadInput, match="lacks something"):
        Invitation.read(path)
    assert parse_address("10.1.2.3:99") == ("10.1.2.3", 99)
