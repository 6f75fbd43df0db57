"""Enrolment, as an attacker sees it: real sockets and real TLS, in this process."""

import base64
import contextlib
import gc
import json
import os
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from machines.network import PATIENCE, reserved_port, until
from unpooled.app.cli import app
from unpooled.errors import InputError
from unpooled.federation.engine import EngineIdentity
from unpooled.federation.provisioning import dial, enrolment, ingress
from unpooled.federation.provisioning.enrolment import admit, awaiting_admission, enrol, invite
from unpooled.federation.provisioning.enrolment_wire import LIMIT, PROTOCOL, ask, server_context
from unpooled.federation.provisioning.federation_folder import FederationFolder, create
from unpooled.federation.provisioning.ingress import Ingress, local_addresses
from unpooled.federation.provisioning.invitations import Invitation
from unpooled.federation.provisioning.keys import (
    certificate_request,
    certified_key,
    new_key,
    private_pem,
    read_key,
    write_key,
)
from unpooled.federation.provisioning.site_folder import SiteFolder
from unpooled.site.session import SiteSettings

pytestmark = pytest.mark.usefixtures("shorter_keys")


class Echo:
    """Something in the engine's place: it gives back what it gets."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.got = []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        with contextlib.suppress(OSError):
            while True:
                line, _ = self.listener.accept()
                threading.Thread(target=self._one, args=(line,), daemon=True).start()

    def _one(self, line):
        with line, contextlib.suppress(OSError):
            while data := line.recv(65536):
                self.got.append(data)
                line.sendall(data)


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def made(tmp_path_factory, monkeypatch_module):
    """A federation with its front door open, and an echo behind it."""
    path, port = tmp_path_factory.mktemp("made") / "fed", reserved_port()
    monkeypatch_module.setattr(dial, "PATIENCE", PATIENCE)  # however busy this machine is
    monkeypatch_module.setattr(ingress, "_HELLO", PATIENCE)
    monkeypatch_module.setattr(ingress, "_ANSWER", PATIENCE)
    federation = create(path, "fed", f"localhost:{port}", ("a", "b", "c", "d"), engine_name="nvflare")
    context = server_context(*map(str, federation.engine.server_identity(federation.server)))
    engine = Echo()
    with Ingress(
        ["127.0.0.1"], port, engine.port, context, lambda said: enrol(FederationFolder.read(path), said)
    ) as opened:
        yield federation, engine, opened
    engine.listener.close()


@pytest.fixture
def federation(made):
    return made[0]


def joined(federation, site, folder):
    """A site that has accepted a new invitation."""
    place = SiteFolder(folder)
    place.accept(invite(federation, site))
    return place


def test_a_key_is_enrolled_admitted_and_certified(federation, tmp_path):
    place = joined(federation, "a", tmp_path / "a")
    with pytest.raises(InputError, match="has not asked yet: unpooled site join"):
        admit(federation, "a", place.fingerprint())
    for _ in range(2):  # asked again, nothing changes
        assert "not admitted this site yet" in place.enrol()
        assert awaiting_admission(federation) == {"a": place.fingerprint()}
        assert not place.enrolled
    with pytest.raises(InputError, match="somebody else used its invitation"):
        admit(federation, "a", "0" * 40)
    admit(federation, "a", place.fingerprint().upper())
    assert place.enrol() == ""
    assert place.enrolled
    _, key, root = place.engine.identity(place.engine_folder)
    assert root.read_text() == federation.root()
    assert key.stat().st_mode & 0o077 == 0
    private = (place.path / "private.key").read_text()
    assert all(private not in p.read_text(errors="ignore") for p in federation.path.rglob("*") if p.is_file())
    assert place.enrol() == ""  # a lost answer is given again, to the same key
    with pytest.raises(InputError, match="was admitted at"):
        admit(federation, "a", place.fingerprint())


def test_a_kill_at_a_renewal_loses_no_settings(federation, tmp_path, monkeypatch):
    """Whichever file of the engine was the last: the rules of the site stay, the next try completes it."""
    place = joined(federation, "a", tmp_path / "a")
    place.enrol()
    admit(federation, "a", place.fingerprint())
    place.enrol()
    settings = SiteSettings("a", str(tmp_path / "a.csv"), str(place.path), str(tmp_path / "strict.toml"))
    place.write_settings(settings)
    key, files = read_key(place.path / "private.key"), len(list(place.engine_folder.rglob("*.*")))
    identity = EngineIdentity(private_pem(key), "new", federation.root())
    true, ends = os.replace, 0
    for last in range(20):
        moved = []

        def replace(source, target, moved=moved, last=last):
            if Path(target).parent.parent == place.engine_folder:
                if len(moved) == last:
                    raise KeyboardInterrupt
                moved.append(target)
            true(source, target)

        monkeypatch.setattr("unpooled.federation.provisioning.site_folder.os.replace", replace)
        try:
            place._write_engine_files(place.invitation, identity)
        except KeyboardInterrupt:
            ends += 1
        else:
            break
        finally:
            assert place.settings == settings
            for path in place.engine_folder.rglob("*.json"):
                assert json.loads(path.read_text())
    assert ends == len(moved) > 5
    assert place.engine.identity(place.engine_folder)[0].read_text() == "new"
    assert len(list(place.engine_folder.rglob("*.*"))) == files
    with pytest.raises(FileExistsError):
        write_key(place.path / "private.key", key)


def test_lost_settings_are_not_replaced_by_the_usual_ones(federation, tmp_path):
    """A site that took part, and has a copy: without its settings nobody knows its rules."""
    place = joined(federation, "b", tmp_path / "b")
    place.enrol()
    admit(federation, "b", place.fingerprint())
    place.enrol()
    data = tmp_path / "b.csv"
    data.write_text("age,bmi\n" + "".join(f"{40 + i % 31},{20 + i % 9}\n" for i in range(60)))
    said = CliRunner().invoke(app, ["site", "summarize", str(place.path), "--data", str(data)])
    assert said.exit_code == 0, said.output
    for words in ((), ("--data", str(data))):  # the copy is there, and the file would not be read again
        said = CliRunner().invoke(app, ["site", "start", str(place.path), *words])
        assert said.exit_code == 1
        assert "its rules are not known: say them with --policy FILE" in " ".join(said.output.split())
        assert not place.has_settings


def test_a_thief_who_is_first_is_found_and_the_site_is_told(federation, tmp_path):
    """An intercepted invitation, used before the site; then used again after the site was admitted."""
    thief = joined(federation, "b", tmp_path / "thief")
    true = SiteFolder(tmp_path / "b")
    true.accept(federation.invitation("b"))
    assert "not admitted" in thief.enrol()
    with pytest.raises(InputError, match=f"used already, at .* by a key .*{thief.fingerprint()}; if that"):
        true.enrol()
    assert awaiting_admission(federation) == {"b": thief.fingerprint()}
    with pytest.raises(InputError, match="somebody else used its invitation; unpooled federation invite"):
        admit(federation, "b", true.fingerprint())  # what is read out on the telephone
    said = CliRunner().invoke(app, ["federation", "admit", str(federation.path)], input="n\n")
    assert said.exit_code == 1
    assert f"another key came with the invitation of b later: {true.fingerprint()}" in said.output
    assert "not admitted: b" in said.output
    true.accept(invite(federation, "b"))  # --again: the thief's secret is void
    with pytest.raises(InputError, match="knows no such site and secret"):
        thief.enrol()
    assert "not admitted" in true.enrol()
    admit(federation, "b", true.fingerprint())
    assert true.enrol() == ""
    late = SiteFolder(tmp_path / "late")
    late.accept(federation.invitation("b"))
    with pytest.raises(InputError, match="used already"):  # replayed after the admission
        late.enrol()
    assert not (late.engine_folder / "startup").exists()


def test_an_invitation_runs_out(federation, tmp_path, monkeypatch):
    place = joined(federation, "c", tmp_path / "c")
    later = datetime.now(UTC) + timedelta(days=15)
    monkeypatch.setattr(enrolment, "_now", lambda: later)
    with pytest.raises(InputError, match=r"was valid until .*; the coordinator makes a new one"):
        place.enrol()
    assert awaiting_admission(federation).keys().isdisjoint({"c"})
    monkeypatch.undo()
    assert "not admitted" in place.enrol()  # asked in time, admitted late
    monkeypatch.setattr(enrolment, "_now", lambda: later)
    assert "not admitted" in place.enrol()
    admit(federation, "c", place.fingerprint())
    assert place.enrol() == ""


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"secret": "x"}, "knows no such site and secret"),
        ({"site": "nobody"}, "knows no such site and secret"),
        ({"site": "../../../etc/passwd"}, "knows no such site and secret"),
        ({"request": "x"}, "the request of d is damaged"),
        ({"request": None}, "the request of d is damaged"),
        ({"request": certificate_request("a", new_key())}, "the request is for a, not for d"),
    ],
)
def test_what_is_wrong_is_refused_and_leaves_nothing(federation, change, wrong):
    secret = Invitation.read(invite(federation, "d")).secret
    before = {path: path.read_bytes() for path in federation.enrolment.iterdir()}
    said = enrol(federation, {"site": "d", "secret": secret, "request": "", **change})
    assert said["state"] == "refused"
    assert wrong in said["reason"]
    assert {path: path.read_bytes() for path in federation.enrolment.iterdir()} == before


def test_somebody_between_site_and_server_gets_nothing(federation, tmp_path):
    """A server with a certificate of its own, of the same names: the site sends it nothing."""
    false = create(tmp_path / "false", "fed", "localhost", ("a",), engine_name="nvflare")
    context = server_context(*map(str, false.engine.server_identity(false.server)))
    asked, port = [], reserved_port()
    with Ingress(["127.0.0.1"], port, reserved_port(), context, lambda said: asked.append(said) or {}):
        invitation = Invitation.read(invite(federation, "d"))
        object.__setattr__(invitation, "port", port)
        with pytest.raises(ssl.SSLCertVerificationError):
            ask(invitation, certificate_request("d", new_key()))
    assert asked == []


def test_a_certificate_of_another_key_is_not_taken(made, tmp_path):
    """A server that sends somebody else's certificate: the site does not use it."""
    federation = made[0]
    other, port = joined(federation, "c", tmp_path / "c"), reserved_port()
    other.enrol()
    admit(federation, "c", other.fingerprint())
    other.enrol()
    certificate = other.engine.identity(other.engine_folder)[0].read_text()
    context = server_context(*map(str, federation.engine.server_identity(federation.server)))
    answer = {"state": "admitted", "certificate": certificate}
    with Ingress(["127.0.0.1"], port, reserved_port(), context, lambda said: answer):
        place = SiteFolder(tmp_path / "d")
        invitation = Invitation.read(invite(federation, "d"))
        object.__setattr__(invitation, "port", port)
        invitation.write(tmp_path / "d.json")
        place.accept(tmp_path / "d.json")
        with pytest.raises(InputError, match="not of this site's key"):
            place.enrol()
    assert certified_key(certificate) is not None
    assert not place.enrolled


@contextlib.contextmanager
def blind(port):
    """A TLS connection of somebody who verifies nothing."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([PROTOCOL])
    with (
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as plain,
        context.wrap_socket(plain) as line,
    ):
        yield line


DEEP = b"[" * 15_000 + b"\n"


@pytest.mark.parametrize(
    "text",
    [b"x" * (4 * LIMIT) + b"\n", DEEP, b"[1]\n", b"{\n", b"\xff\n", b'"a"\n'],
    ids=lambda t: str(t[:4]),
)
def test_nonsense_gets_no_answer(made, text, caplog):
    with blind(made[0].address.port) as line:
        try:
            line.sendall(text)
            assert line.recv(1000) == b""
        except (ConnectionError, ssl.SSLError):
            pass
    until(lambda: made[2]._open == 0, "it to be closed")
    gc.collect()  # a task that failed says so when it is forgotten
    assert made[2].is_open
    assert caplog.records == []


def test_floods_are_bounded_and_hold_up_nobody(made, tmp_path, monkeypatch):
    """Silent connections, and more enrolments than allowed: others are served, and none is kept for ever."""
    federation, _, ingress = made
    port = federation.address.port
    monkeypatch.setattr(ingress, "_AN_ADDRESS", 6)
    monkeypatch.setattr(ingress, "_WINDOW", 1e9)
    ingress._recent.clear()
    monkeypatch.setattr(ingress, "_UNKNOWN", 20)
    place = joined(federation, "d", tmp_path / "d")
    silent = [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) for _ in range(30)]
    assert all(ended(line) for line in silent[:10])  # the oldest made room for the others
    until(lambda: len(ingress._silent) == 20, "the flood")
    assert "not admitted" in place.enrol()
    assert echoed(port, b"\x16\x03\x01\x00\x04abcd") == b"\x16\x03\x01\x00\x04abcd"
    refused = 0
    for _ in range(10):
        try:
            with blind(port) as line:
                line.sendall(json.dumps({"site": "d", "secret": "guess", "request": ""}).encode() + b"\n")
                refused += b"knows no such" in line.recv(1000)
        except (ConnectionError, ssl.SSLError):
            pass
    assert refused == 6 - 1
    assert echoed(port, b"\x16\x03\x01\x00\x04abcd") == b"\x16\x03\x01\x00\x04abcd"  # sites go on
    for line in silent[10:]:
        line.close()
    until(lambda: ingress._open == 0, "all to be closed")
    monkeypatch.setattr(ingress, "_HELLO", 0.1)
    for said in (b"", b"\x16\x03\x01"):  # nothing in time, or the beginning of a greeting
        line = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        line.sendall(said)
        assert ended(line)
    until(lambda: ingress._open == 0, "both to be closed")


def ended(line):
    """True if the other side ended the connection, in whatever way."""
    with line:
        try:
            return line.recv(10) == b""
        except ConnectionError:
            return True


def echoed(port, data):
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as line:
        line.sendall(data)
        line.shutdown(socket.SHUT_WR)
        heard = b""
        while more := line.recv(65536):
            heard += more
        return heard


def test_the_engines_bytes_are_handed_on_unchanged(made):
    """All but enrolment goes to the engine, in both directions, whatever its size; garbage does not."""
    federation, engine, _ = made
    port = federation.address.port
    for size in (1, 100, 3_000_000):
        data = b"\x16\x03\x01\x00\x01" + bytes(i * 7 % 251 for i in range(1000)) * (size // 1000 + 1)
        assert echoed(port, data) == data
    before = len(engine.got)
    assert echoed(port, b"GET / HTTP/1.1\r\n\r\n") == b""
    assert len(engine.got) == before


def test_one_address_and_no_other(made):
    """The port is the server's alone, and only at the address that was named."""
    port = made[0].address.port
    with pytest.raises(InputError, match=f"port {port} of this machine belongs to process .*; stop it"):
        Ingress(["127.0.0.1"], port, 1, None, None)
    other = socket.create_server(("127.0.0.2", port))  # another address of this machine is free
    other.close()
    with pytest.raises(InputError, match="no address of this machine; --listen ADDRESS"):
        local_addresses("192.0.2.1")
    with pytest.raises(InputError, match="is not known here; --listen"):
        local_addresses("nowhere.invalid")
    assert local_addresses("127.0.0.1") == ["127.0.0.1"]
    assert ingress.is_unreachable("coordinator.example.org", ["127.0.1.1"])
    assert not ingress.is_unreachable("localhost", ["127.0.0.1"])


def test_through_a_proxy_and_what_it_refuses(made, tmp_path, monkeypatch):
    federation = made[0]
    place = joined(federation, "d", tmp_path / "d")
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with Proxy() as proxy:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.port}")
        assert "not admitted" in place.enrol()
        assert proxy.asked == [f"localhost:{federation.address.port}"]
        proxy.lets = False
        assert "the proxy 127.0.0.1" in place.enrol()
        monkeypatch.setenv("no_proxy", "example.org, localhost")
        assert "not admitted" in place.enrol()
        assert len(proxy.asked) == 2
        monkeypatch.setenv("no_grpc_proxy", "example.org")  # which the engine reads in place of no_proxy
        proxy.lets, proxy.wants = True, base64.b64encode(b"me:pass word").decode()
        assert "407" in place.enrol()
        monkeypatch.setenv("https_proxy", f"http://me:pass%20word@127.0.0.1:{proxy.port}")
        assert "not admitted" in place.enrol()
        assert len(proxy.asked) == 4
    monkeypatch.setenv("https_proxy", "socks5://me:hidden@x:1")
    with pytest.raises(InputError, match="not http://host:port, but 'x:1'"):
        place.enrol()


class Proxy:
    """An HTTP proxy that knows CONNECT, as hospitals have them."""

    def __init__(self, address=("127.0.0.1", 0)):
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.listener = socket.create_server(address, family=family)
        self.port = self.listener.getsockname()[1]
        self.asked, self.lets, self.wants = [], True, ""  # wants: the name and password, base64

    def __enter__(self):
        threading.Thread(target=self._run, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()

    def _run(self):
        while True:
            try:
                line, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(line,), daemon=True).start()

    def _one(self, line):
        head = b""
        while b"\r\n\r\n" not in head:
            head += line.recv(1)
        target = head.split()[1].decode()
        self.asked.append(target)
        if self.wants and f"Proxy-Authorization: Basic {self.wants}\r\n".encode() not in head:
            line.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            line.close()
            return
        if not self.lets:
            line.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")
            line.close()
            return
        host, _, port = target.rpartition(":")
        there = socket.create_connection((host, int(port)))
        line.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        other = threading.Thread(target=_pump, args=(there, line), daemon=True)
        other.start()
        _pump(line, there)
        other.join()
        line.close()
        there.close()


def _pump(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def test_an_answer_of_a_slow_server_does_not_hold_the_site_for_ever(tmp_path, federation, monkeypatch):
    monkeypatch.setattr(dial, "PATIENCE", 0.3)
    place = joined(federation, "d", tmp_path / "d")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        invitation = place.invitation
        object.__setattr__(invitation, "port", mute.getsockname()[1])
        invitation.write(place.path / "invitation.json")
        assert "no answer; a firewall may be in the way" in place.enrol()
