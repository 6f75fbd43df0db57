"""Routes to the server: IPv6 only, a proxy, one address of several. In network namespaces, as root."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from machines.conftest import may_make_networks
from machines.network import Network, ip, until

NAME, PORT, PROXY = "coordinator.test", 8002, 3128
OPTIONS = ("-k", "3", "--restarts", "2", "--seed", "4", "--quorum", "1")
SCRIPT = """
import sys, threading
from machines.test_enrolment import Proxy
with Proxy(("::", int(sys.argv[1]))) as proxy:
    printed = 0
    while True:
        threading.Event().wait(0.2)
        for target in proxy.asked[printed:]:
            print(target, flush=True)
            printed += 1
"""


@pytest.fixture
def spaces():
    """Two namespaces with IPv6 addresses only, and the server's name in their file of hosts."""
    if not may_make_networks():
        pytest.skip("network namespaces cannot be made on this machine")
    tag = f"r{os.getpid() % 100000}"
    names = {"coordinator": f"{tag}a", "site": f"{tag}b"}
    try:
        for space in names.values():
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
            folder = Path("/etc/netns") / space
            folder.mkdir(parents=True)
            (folder / "hosts").write_text(f"127.0.0.1 localhost\nfd00:77::1 {NAME}\n")
        ip("link", "add", f"{tag}x", "netns", names["coordinator"], "type", "veth", "peer", f"{tag}y",
           "netns", names["site"])  # fmt: skip
        for space, link, number in (("coordinator", "x", 1), ("site", "y", 2)):
            ip("-n", names[space], "addr", "add", f"fd00:77::{number}/64", "dev", f"{tag}{link}", "nodad")
            ip("-n", names[space], "link", "set", f"{tag}{link}", "up")
        yield names
    finally:
        for space in names.values():
            subprocess.run(["ip", "netns", "del", space], check=False)
            shutil.rmtree(Path("/etc/netns") / space, ignore_errors=True)


@pytest.mark.long
def test_ipv6_only_and_through_a_proxy(spaces, hospital_files, tmp_path):
    """One site connects directly, the other by a proxy; the server has no IPv4 address. Same result."""
    files = {name: hospital_files[name] for name in ("cleveland", "va")}
    here, there = (("ip", "netns", "exec", spaces[name]) for name in ("coordinator", "site"))
    behind = (*there, "env", f"https_proxy=http://{NAME}:{PROXY}")
    network = Network(
        tmp_path / "network", files, host=NAME, port=PORT,
        prefix={"server": here, "cleveland": there, "va": behind},
    )  # fmt: skip
    path = f"{Path(__file__).parents[1]}:{os.environ.get('PYTHONPATH', '')}"
    words = [*here, sys.executable, "-c", SCRIPT, str(PROXY)]
    with (tmp_path / "proxy.out").open("wb") as out:
        proxy = subprocess.Popen(words, stdout=out, stderr=out, env={**os.environ, "PYTHONPATH": path})
    try:
        network.up()
        assert f"serving heart at fd00:77::1, port {PORT}" in network.output("server")
        until(lambda: (tmp_path / "proxy.out").read_text().count(f"{NAME}:{PORT}") >= 2, "the proxy")
        network.run("routes", *OPTIONS)
        network.finish("routes")
        network.command(
            "fit", *files.values(), "--out", tmp_path / "fit", *OPTIONS[:-2], "--protect", "summary"
        )
        for name in ("model.unpooled", "preparation.json"):
            assert (network.out("routes") / name).read_bytes() == (tmp_path / "fit" / name).read_bytes()
    finally:
        network.close()
        proxy.kill()
        proxy.wait()
