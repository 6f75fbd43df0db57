"""What goes over the wire, captured between hosts and within each: nothing of the data in clear."""

import json
import signal
import subprocess
import sys

from machines.conftest import READING
from machines.network import Network, until
from unpooled.site.log import unpacked

CAPTURE = """
import signal, socket, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))  # all frames of all links
wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 26)
with open(sys.argv[1], "wb", buffering=0) as out:
    print("captures", flush=True)
    while True:
        out.write(wire.recv(1 << 18))
"""
CONTROL = """
import socket, sys
socket.socket(type=socket.SOCK_DGRAM).sendto(sys.argv[1].encode(), (sys.argv[2], 9))
"""


def test_a_captured_wire_holds_nothing_of_the_data(hosts, hospital_files, tmp_path):
    """Links between the hosts and each host's own: columns, levels, rows, replies, the method, the sites."""
    files = {name: hospital_files[name] for name in ("cleveland", "va")}
    inside = {name: ("ip", "netns", "exec", space) for name, (space, _, _) in hosts.items()}
    network = Network(
        tmp_path, files, host=hosts["coordinator"][1], port=8002, reading=READING,
        prefix={"server": inside["coordinator"], "cleveland": inside["cleveland"], "va": inside["va"]},
    )  # fmt: skip
    captures = []
    try:
        for name in hosts:
            words = [*inside[name], sys.executable, "-c", CAPTURE, str(tmp_path / f"{name}.wire")]
            captures.append(subprocess.Popen(words, stdout=subprocess.PIPE))
            assert captures[-1].stdout.readline() == b"captures\n"
        network.up()
        network.run("seen", "-k", "3", "--restarts", "2", "--seed", "2")
        network.finish("seen")
        control = [*inside["va"], sys.executable, "-c", CONTROL, "a word in clear", hosts["coordinator"][1]]
        subprocess.run(control, check=True)
        caught = [tmp_path / f"{name}.wire" for name in ("coordinator", "va")]
        until(lambda: all(b"a word in clear" in file.read_bytes() for file in caught), "the word in clear")
    finally:
        for process in captures:
            process.send_signal(signal.SIGTERM)
            process.wait(10)
            process.stdout.close()
        network.close()
    wires = {name: (tmp_path / f"{name}.wire").read_bytes() for name in hosts}
    for name, wire in wires.items():
        assert len(wire) > 100_000, name
        for secret in secrets_of(network, files):
            assert secret not in wire, (name, secret[:40])


def secrets_of(network, files):
    """Words and bytes that must not be seen: of the data, of the replies, of the run."""
    found = {b"cleveland", b"kmeans", b"summaries", network.out("seen").name.encode() + b"-"}
    for site, path in files.items():
        lines = path.read_text().splitlines()
        found |= {name.encode() for name in lines[0].split(",") if len(name) > 4}
        found |= {line.encode() for line in lines[1:]}
        for line in (network.site_folder(site) / "log.jsonl").read_text().splitlines():
            entry = json.loads(line)
            for text in (entry.get("payload"), *(asked["payload"] for asked in entry.get("asked", ()))):
                data = unpacked(text) if text else b""
                pieces = (data[at : at + 32] for at in range(0, len(data) - 32, 256))
                found |= {piece for piece in pieces if len(set(piece)) > 12}  # no run of zeros
    assert len(found) > 300
    return found
