"""Why a site does not reach its server: a real TLS server, and clocks that are wrong."""

import datetime
import socket
import ssl
import threading

import pytest

from unpooled.federation.engine import Address
from unpooled.federation.provisioning import diagnose, keys
from unpooled.federation.provisioning.diagnose import diagnose_connection

pytestmark = pytest.mark.usefixtures("shorter_keys")


class Shifted(datetime.datetime):
    """The time of a machine whose clock is wrong."""

    days = 0

    @classmethod
    def now(cls, tz=None):
        return super().now(tz) + datetime.timedelta(days=cls.days)


@pytest.fixture
def clock(monkeypatch):
    """Set the clock of the authority, or of the site, days ahead."""

    def set_clock(module, days):
        there = type("There", (Shifted,), {"days": days})
        monkeypatch.setattr(
            module,
            "datetime",
            type("Module", (), {"datetime": there, "UTC": datetime.UTC, "timedelta": datetime.timedelta}),
        )

    return set_clock


class Party:
    """Files of one party: certificate, key and the authority's certificate."""

    def __init__(self, folder, authority, name, **options):
        folder.mkdir()
        key = keys.new_key()
        self.certificate, self.key, self.root = (folder / n for n in ("own.crt", "own.key", "root.crt"))
        self.certificate.write_text(authority.certify(name, key.public_key(), group="fed", **options))
        keys.write_key(self.key, key)
        self.root.write_text(authority.pem)


@pytest.fixture
def listen():
    """Start a server that requires certificates, and return its address; it reads and answers one byte."""
    sockets, threads = [], []

    def start(party):
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(party.root))
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(party.certificate, party.key)
        listener = socket.create_server(("127.0.0.1", 0))
        sockets.append(listener)

        def serve():
            try:
                plain, _ = listener.accept()
                with context.wrap_socket(plain, server_side=True) as secure:
                    secure.recv(1)
                    secure.sendall(b"x")
            except OSError:  # of the handshake, or the listener was closed
                pass

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return Address("fed", "127.0.0.1", listener.getsockname()[1])

    yield start
    for one in sockets:
        one.close()
    for thread in threads:
        thread.join()


def parties(tmp_path, authority=None, foreign=False):
    authority = authority or keys.Authority.new("fed")
    other = keys.Authority.new("other") if foreign else authority
    server = Party(tmp_path / "server", other, "server", hosts=("127.0.0.1",))
    return server, Party(tmp_path / "site", authority, "a")


def reason(where, site):
    return diagnose_connection(where, site.certificate, site.key, site.root)


def test_a_server_that_accepts_the_certificate(tmp_path, listen):
    server, site = parties(tmp_path)
    assert "accepts the certificate" in reason(listen(server), site)


def test_a_server_of_another_federation(tmp_path, listen):
    server, site = parties(tmp_path, foreign=True)
    assert "not of this federation" in reason(listen(server), site)


def test_a_clock_that_is_behind_is_named_as_the_cause(tmp_path, listen, clock):
    """The server's certificate was made later than this machine's clock says."""
    authority = keys.Authority.new("fed")
    site = Party(tmp_path / "site", authority, "a")
    clock(keys, 40)
    server = Party(tmp_path / "server", authority, "server", hosts=("127.0.0.1",))
    assert "check the clock of this machine" in reason(listen(server), site)


@pytest.mark.parametrize("days", [900, -3])
def test_a_certificate_that_is_not_valid_by_the_sites_clock(tmp_path, clock, days):
    _, site = parties(tmp_path)
    clock(diagnose, days)
    text = reason(Address("fed", "127.0.0.1", 1), site)
    assert "the certificate of this site is valid from" in text
    assert "the clock of this machine says" in text


def test_nothing_listens(tmp_path):
    _, site = parties(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert "nothing listens there" in reason(Address("fed", "127.0.0.1", port), site)
