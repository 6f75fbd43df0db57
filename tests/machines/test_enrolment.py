"""Enrolment under attack: real sockets and real TLS, in this process."""

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
    """A server in the engine's place that sends back what it receives."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.received = []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection):
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(65536):
                self.received.append(data)
                connection.sendall(data)


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def made(tmp_path_factory, monkeypatch_module):
    """A federation with its ingress open, and an echo in place of the engine."""
    path, port = tmp_path_factory.mktemp("made") / "fed", reserved_port()
    monkeypatch_module.setattr(dial, "TIMEOUT", PATIENCE)  # however busy this machine is
    monkeypatch_module.setattr(ingress, "_HELLO_TIMEOUT", PATIENCE)
    monkeypatch_module.setattr(ingress, "_ENROLMENT_TIMEOUT", PATIENCE)
    federation = create(path, "fed", f"localhost:{port}", ("a", "b", "c", "d"), engine_name="nvflare")
    context = server_context(*map(str, federation.engine.server_identity(federation.server)))
    engine = Echo()
    with Ingress(
        ["127.0.0.1"], port, engine.port, context, lambda request: enrol(FederationFolder.read(path), request)
    ) as opened:
        yield federation, engine, opened
    engine.listener.close()


@pytest.fixture
def federation(made):
    return made[0]


def joined(federation, site, folder):
    """The membership of a site that has accepted a new invitation."""
    return SiteFolder(folder).accept(invite(federation, site))


def test_a_key_is_enrolled_admitted_and_certified(federation, tmp_path):
    others = awaiting_admission(federation)  # of other tests of this federation
    membership = joined(federation, "a", tmp_path / "a")
    with pytest.raises(
        InputError, match=r"has not asked to be admitted yet\. At the site, run unpooled site join"
    ):
        admit(federation, "a", membership.fingerprint())
    for _ in range(2):  # asked again, nothing changes
        assert "not admitted this site yet" in membership.enrol()
        assert awaiting_admission(federation) == others | {"a": membership.fingerprint()}
        assert not membership.enrolled
    with pytest.raises(InputError, match="somebody else used its invitation"):
        admit(federation, "a", "0" * 40)
    admit(federation, "a", membership.fingerprint().upper())
    assert membership.enrol() == ""
    assert membership.enrolled
    _, key, root = membership.engine.identity(membership.engine_folder)
    assert root.read_text() == federation.root()
    assert key.stat().st_mode & 0o077 == 0
    private, files = key.read_text(), [p for p in tmp_path.rglob("*") if p.is_file()]
    files += [p for p in federation.path.rglob("*") if p.is_file()]
    assert [p for p in files if private in p.read_text(errors="ignore")] == [membership.key]  # in one file
    assert membership.enrol() == ""  # a lost answer is given again, to the same key
    with pytest.raises(InputError, match="was already admitted at"):
        admit(federation, "a", membership.fingerprint())


def test_a_kill_at_a_renewal_loses_no_settings(federation, tmp_path, monkeypatch):
    """Whichever file of the engine was the last: the site keeps its rules, and the next attempt completes."""
    membership = joined(federation, "a", tmp_path / "a")
    membership.enrol()
    admit(federation, "a", membership.fingerprint())
    membership.enrol()
    (tmp_path / "a" / "policy.toml").write_text("format = 1\n")
    SiteSettings("a", str(tmp_path / "a.csv"), str(tmp_path / "a")).write()
    settings = SiteSettings.read(membership.membership_file)
    assert (settings.site, settings.data) == ("a", str(tmp_path / "a.csv"))
    key, files = read_key(membership.key), len(list(membership.engine_folder.rglob("*.*")))
    identity = EngineIdentity(private_pem(key), "new", federation.root())
    true, ends = os.replace, 0
    for last in range(20):
        moved = []

        def replace(source, target, moved=moved, last=last):
            if Path(target).parent.parent == membership.engine_folder:
                if len(moved) == last:
                    raise KeyboardInterrupt
                moved.append(target)
            true(source, target)

        monkeypatch.setattr("unpooled.federation.provisioning.site_membership.os.replace", replace)
        try:
            membership._write_engine_files(membership.invitation, identity)
        except KeyboardInterrupt:
            ends += 1
        else:
            break
        finally:
            assert SiteSettings.read(membership.membership_file) == settings
            for path in membership.engine_folder.rglob("*.json"):
                assert json.loads(path.read_text())
    assert ends == len(moved) > 5
    assert membership.engine.identity(membership.engine_folder)[0].read_text() == "new"
    assert len(list(membership.engine_folder.rglob("*.*"))) == files
    with pytest.raises(FileExistsError):
        write_key(membership.key, key)


def test_lost_rules_are_not_replaced_by_the_default_ones(federation, tmp_path):
    """A site that took part, and has a summary table: without policy.toml nobody knows its rules."""
    membership = joined(federation, "b", tmp_path / "b")
    membership.enrol()
    admit(federation, "b", membership.fingerprint())
    membership.enrol()
    data = tmp_path / "b.csv"
    data.write_text("age,bmi\n" + "".join(f"{40 + i % 31},{20 + i % 9}\n" for i in range(60)))
    words = ["site", "summarize", str(tmp_path / "b"), "--data", str(data)]
    words += ["--one-row-per-person", "--no-sensitive-columns"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    for words in ((), ("--data", str(data))):  # the table exists, and the file would not be read again
        result = CliRunner().invoke(app, ["site", "start", str(tmp_path / "b"), *words])
        assert result.exit_code == 1
        assert "its rules are lost. Put" in " ".join(result.output.split())
        assert not SiteFolder(tmp_path / "b").has_settings


@pytest.mark.parametrize(
    ("words", "policy", "says"),
    [
        (("--diverse", "bmi"), "", "nobody declared which rows belong to one person"),
        (("--diverse", "bmi"), "auto_approve = true", "nobody declared which rows belong to one person"),
        (("--person", "who"), "one_row_per_person = true", "the policy has [protect] one_row_per_person"),
        (("--one-row-per-person",), 'person = "who"', "the policy has [protect] person = 'who'"),
        (("--one-row-per-person", "--no-sensitive-columns"), "", "some people seem to have several rows"),
        (("--person", "who"), "", "nobody declared which columns are sensitive"),
        (("--person", "who"), "auto_approve = true", "nobody declared which columns are sensitive"),
        (("--person", "name", "--diverse", "bmi"), "", "no column 'name'"),
        (("--data", "lost.csv"), 'mode = "raw"', "lost.csv"),
    ],
)
def test_a_site_that_cannot_join_with_its_data_accepts_no_invitation(
    federation, tmp_path, started, words, policy, says
):
    data, invitation = tmp_path / "b.csv", invite(federation, "b")
    rows = (f"p{i},{40 + 7 * i % 31},{20 + 5 * i % 9}" for i in range(20))
    data.write_text("\n".join(["who,age,bmi", *(f"{row}\n{row}\n{row}" for row in rows), ""]))
    (tmp_path / "rules.toml").write_text(f"format = 1\n[protect]\n{policy}\n")
    words = (*(() if "--data" in words else ("--data", str(data))), *words)
    words = (*words, *(("--policy", str(tmp_path / "rules.toml")) if policy else ()))
    result = CliRunner().invoke(app, ["site", "join", str(tmp_path / "b"), str(invitation), *words])
    assert result.exit_code == 1, result.output
    assert says in " ".join(result.output.split())
    assert not (tmp_path / "b").exists()


def test_a_site_without_data_accepts_no_invitation(federation, tmp_path, started):
    assert CliRunner().invoke(app, ["site", "init", str(tmp_path / "b")]).exit_code == 0
    words = ["site", "join", str(tmp_path / "b"), str(invite(federation, "b"))]
    result = CliRunner().invoke(app, words)
    assert "the site has no data yet" in " ".join(result.output.split())
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["policy.toml"]


def test_a_thief_who_is_first_is_detected_and_the_site_learns_of_it(federation, tmp_path):
    """An intercepted invitation, used before the site; then used again after the site was admitted."""
    thief = joined(federation, "b", tmp_path / "thief")
    true = SiteFolder(tmp_path / "b").accept(federation.invitation("b"))
    assert "not admitted" in thief.enrol()
    with pytest.raises(InputError, match=rf"used already, at .* by a key .*{thief.fingerprint()}\. If that"):
        true.enrol()
    assert awaiting_admission(federation)["b"] == thief.fingerprint()
    with pytest.raises(InputError, match=r"somebody else used its invitation\. Make a new one with unpooled"):
        admit(federation, "b", true.fingerprint())  # which the site reads out on the telephone
    result = CliRunner().invoke(app, ["federation", "admit", str(federation.path), "b"], input="n\n")
    assert result.exit_code == 1
    assert f"another key came with the invitation of b later: {true.fingerprint()}" in result.output
    assert "not admitted: b" in result.output
    SiteFolder(tmp_path / "b").accept(invite(federation, "b"))  # --again: the thief's secret is void
    with pytest.raises(InputError, match="does not know this site and secret"):
        thief.enrol()
    assert "not admitted" in true.enrol()
    admit(federation, "b", true.fingerprint())
    assert true.enrol() == ""
    late = SiteFolder(tmp_path / "late").accept(federation.invitation("b"))
    with pytest.raises(InputError, match="used already"):  # replayed after the admission
        late.enrol()
    assert not late.engine.identity(late.engine_folder)[0].exists()


def test_an_invitation_expires(federation, tmp_path, monkeypatch):
    membership = joined(federation, "c", tmp_path / "c")
    later = datetime.now(UTC) + timedelta(days=15)
    monkeypatch.setattr(enrolment, "_now", lambda: later)
    with pytest.raises(InputError, match=r"was valid until .*; the coordinator makes a new one"):
        membership.enrol()
    assert awaiting_admission(federation).keys().isdisjoint({"c"})
    monkeypatch.undo()
    assert "not admitted" in membership.enrol()  # asked in time, admitted late
    monkeypatch.setattr(enrolment, "_now", lambda: later)
    assert "not admitted" in membership.enrol()
    admit(federation, "c", membership.fingerprint())
    assert membership.enrol() == ""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"secret": "x"}, "does not know this site and secret"),
        ({"site": "nobody"}, "does not know this site and secret"),
        ({"site": "../../../etc/passwd"}, "does not know this site and secret"),
        ({"request": "x"}, "the request of d is damaged"),
        ({"request": None}, "the request of d is damaged"),
        ({"request": certificate_request("a", new_key())}, "the request is for a, not for d"),
    ],
)
def test_an_invalid_request_is_refused_and_nothing_is_written(federation, change, reason):
    secret = Invitation.read(invite(federation, "d")).secret
    before = {path: path.read_bytes() for path in federation.enrolment.iterdir()}
    answer = enrol(federation, {"site": "d", "secret": secret, "request": "", **change})
    assert answer["state"] == "refused"
    assert reason in answer["reason"]
    assert {path: path.read_bytes() for path in federation.enrolment.iterdir()} == before


def test_an_attacker_between_site_and_server_receives_nothing(federation, tmp_path):
    """A server with a certificate of its own, of the same names: the site sends it nothing."""
    false = create(tmp_path / "false", "fed", "localhost", ("a",), engine_name="nvflare")
    context = server_context(*map(str, false.engine.server_identity(false.server)))
    asked, port = [], reserved_port()
    with Ingress(["127.0.0.1"], port, reserved_port(), context, lambda request: asked.append(request) or {}):
        invitation = Invitation.read(invite(federation, "d"))
        object.__setattr__(invitation, "port", port)
        with pytest.raises(ssl.SSLCertVerificationError):
            ask(invitation, certificate_request("d", new_key()))
    assert asked == []


def test_a_certificate_of_another_key_is_not_used(made, tmp_path):
    """A server that sends somebody else's certificate: the site does not use it."""
    federation = made[0]
    other, port = joined(federation, "c", tmp_path / "c"), reserved_port()
    other.enrol()
    admit(federation, "c", other.fingerprint())
    other.enrol()
    certificate = other.engine.identity(other.engine_folder)[0].read_text()
    context = server_context(*map(str, federation.engine.server_identity(federation.server)))
    answer = {"state": "admitted", "certificate": certificate}
    with Ingress(["127.0.0.1"], port, reserved_port(), context, lambda request: answer):
        invitation = Invitation.read(invite(federation, "d"))
        object.__setattr__(invitation, "port", port)
        invitation.write(tmp_path / "d.json")
        membership = SiteFolder(tmp_path / "d").accept(tmp_path / "d.json")
        with pytest.raises(InputError, match="sent a certificate for another key than this site's"):
            membership.enrol()
    assert certified_key(certificate) is not None
    assert not membership.enrolled


@contextlib.contextmanager
def blind(port):
    """A TLS connection of a client that verifies nothing."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([PROTOCOL])
    with (
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as plain,
        context.wrap_socket(plain) as connection,
    ):
        yield connection


DEEP = b"[" * 15_000 + b"\n"


@pytest.mark.parametrize(
    "text",
    [b"x" * (4 * LIMIT) + b"\n", DEEP, b"[1]\n", b"{\n", b"\xff\n", b'"a"\n'],
    ids=lambda t: str(t[:4]),
)
def test_garbage_gets_no_answer(made, text, caplog):
    with blind(made[0].address.port) as connection:
        try:
            connection.sendall(text)
            assert connection.recv(1000) == b""
        except (ConnectionError, ssl.SSLError):
            pass
    until(lambda: made[2]._open == 0, "it to be closed")
    gc.collect()  # a task that failed is reported when it is collected
    assert made[2].is_open
    assert caplog.records == []


def test_floods_are_bounded_and_delay_nobody(made, tmp_path, monkeypatch):
    """Silent connections, and more enrolments than allowed: others are served, and every one ends."""
    federation, _, opened = made
    port = federation.address.port
    monkeypatch.setattr(ingress, "_MAX_PER_ADDRESS", 6)
    monkeypatch.setattr(ingress, "_WINDOW", 1e9)
    opened._recent.clear()
    monkeypatch.setattr(ingress, "_MAX_SILENT", 20)
    membership = joined(federation, "d", tmp_path / "d")
    silent = [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) for _ in range(30)]
    assert all(ended(connection) for connection in silent[:10])  # the oldest ones are dropped
    until(lambda: len(opened._silent) == 20, "the flood")
    assert "not admitted" in membership.enrol()
    assert echoed(port, b"\x16\x03\x01\x00\x04abcd") == b"\x16\x03\x01\x00\x04abcd"
    refused = 0
    for _ in range(10):
        try:
            with blind(port) as connection:
                guess = {"site": "d", "secret": "guess", "request": ""}
                connection.sendall(json.dumps(guess).encode() + b"\n")
                refused += b"does not know this site" in connection.recv(1000)
        except (ConnectionError, ssl.SSLError):
            pass
    assert refused == 6 - 1
    assert echoed(port, b"\x16\x03\x01\x00\x04abcd") == b"\x16\x03\x01\x00\x04abcd"  # sites are served
    for connection in silent[10:]:
        connection.close()
    until(lambda: opened._open == 0, "all to be closed")
    monkeypatch.setattr(ingress, "_HELLO_TIMEOUT", 0.1)
    for hello in (b"", b"\x16\x03\x01"):  # no hello in time, or only its beginning
        connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        connection.sendall(hello)
        assert ended(connection)
    until(lambda: opened._open == 0, "both to be closed")


def ended(connection):
    """True if the other side ended the connection, in whatever way."""
    with connection:
        try:
            return connection.recv(10) == b""
        except ConnectionError:
            return True


def echoed(port, data):
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while more := connection.recv(65536):
            received += more
        return received


def test_the_engines_bytes_are_forwarded_unchanged(made):
    """All but enrolment goes to the engine, in both directions, whatever its size; garbage does not."""
    federation, engine, _ = made
    port = federation.address.port
    for size in (1, 100, 3_000_000):
        data = b"\x16\x03\x01\x00\x01" + bytes(i * 7 % 251 for i in range(1000)) * (size // 1000 + 1)
        assert echoed(port, data) == data
    before = len(engine.received)
    assert echoed(port, b"GET / HTTP/1.1\r\n\r\n") == b""
    assert len(engine.received) == before


def test_the_server_listens_exclusively_and_only_at_the_named_address(made):
    port = made[0].address.port
    with pytest.raises(InputError, match=rf"port {port} of this machine belongs to process .*\. Stop that"):
        Ingress(["127.0.0.1"], port, 1, None, None)
    other = socket.create_server(("127.0.0.2", port))  # another address of this machine is free
    other.close()
    with pytest.raises(InputError, match=r"not an address of this machine\. Name one with --listen ADDRESS"):
        local_addresses("192.0.2.1")
    with pytest.raises(
        InputError, match=r"is not known here\. Name an address of this machine with --listen"
    ):
        local_addresses("nowhere.invalid")
    assert local_addresses("127.0.0.1") == ["127.0.0.1"]
    assert ingress.is_unreachable("coordinator.example.org", ["127.0.1.1"])
    assert not ingress.is_unreachable("localhost", ["127.0.0.1"])


def test_enrolment_through_a_proxy_that_accepts_or_refuses(made, tmp_path, monkeypatch):
    federation = made[0]
    membership = joined(federation, "d", tmp_path / "d")
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with Proxy() as proxy:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.port}")
        assert "not admitted" in membership.enrol()
        assert enrolments(proxy, federation) == 1
        proxy.accepts = False
        assert "the proxy 127.0.0.1" in membership.enrol()
        monkeypatch.setenv("no_proxy", "example.org, localhost")
        assert "not admitted" in membership.enrol()
        assert enrolments(proxy, federation) == 2
        monkeypatch.setenv("no_grpc_proxy", "example.org")  # which the engine reads in place of no_proxy
        proxy.accepts, proxy.credentials = True, base64.b64encode(b"me:pass word").decode()
        assert "407" in membership.enrol()
        monkeypatch.setenv("https_proxy", f"http://me:pass%20word@127.0.0.1:{proxy.port}")
        assert "not admitted" in membership.enrol()
        assert enrolments(proxy, federation) == 4
    monkeypatch.setenv("https_proxy", "socks5://me:hidden@x:1")
    with pytest.raises(InputError, match="must be http://host:port, got 'x:1'"):
        membership.enrol()


def enrolments(proxy, federation):
    """The number of connections to the federation; libraries in this process may open others."""
    return proxy.asked.count(f"localhost:{federation.address.port}")


class Proxy:
    """An HTTP proxy with CONNECT, as hospitals have them."""

    def __init__(self, address=("127.0.0.1", 0)):
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.listener = socket.create_server(address, family=family)
        self.port = self.listener.getsockname()[1]
        self.asked, self.accepts = [], True
        self.credentials = ""  # name and password, base64

    def __enter__(self):
        threading.Thread(target=self._run, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()

    def _run(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(client,), daemon=True).start()

    def _one(self, client):
        # A library in this process may hang up, or call a host that is not there. No test fails by that.
        with client, contextlib.suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                if not (byte := client.recv(1)):
                    return
                head += byte
            target = head.split()[1].decode()
            self.asked.append(target)
            if self.credentials and f"Proxy-Authorization: Basic {self.credentials}\r\n".encode() not in head:
                client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
                return
            if not self.accepts:
                client.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")
                return
            host, _, port = target.rpartition(":")
            with socket.create_connection((host, int(port))) as server:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                other = threading.Thread(target=_pump, args=(server, client), daemon=True)
                other.start()
                _pump(client, server)
                other.join()


def _pump(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def test_a_site_does_not_wait_for_ever_for_a_silent_server(tmp_path, federation, monkeypatch):
    monkeypatch.setattr(dial, "TIMEOUT", 0.3)
    membership = joined(federation, "d", tmp_path / "d")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        invitation = membership.invitation
        object.__setattr__(invitation, "port", mute.getsockname()[1])
        invitation.write(membership.path / "invitation.json")
        assert "no answer; a firewall may be in the way" in membership.enrol()
