"""Capture of all frames of hosts, and the data that must not be in them."""

import contextlib
import json
import random
import signal
import subprocess
import sys
from pathlib import Path

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


@contextlib.contextmanager
def captured(hosts, folder: Path):
    """Capture all frames of hosts, including those of their loopback links; yields the file of each."""
    files = {name: folder / f"{name}.wire" for name in hosts}
    processes, outputs = [], []
    try:
        for name, (space, _, _) in hosts.items():
            words = ["ip", "netns", "exec", space, sys.executable, "-c", CAPTURE, str(files[name])]
            processes.append(subprocess.Popen(words, stdout=subprocess.PIPE))
            output = processes[-1].stdout
            assert output is not None
            outputs.append(output)
            assert output.readline() == b"captures\n"
        yield files
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
            process.wait(240)
        for output in outputs:
            output.close()


def send_in_clear(hosts, files, word: str) -> None:
    """Send a word in clear from one host to another, and wait until both captures have it."""
    (space, _, _), (_, address, _) = hosts["va"], hosts["coordinator"]
    words = ["ip", "netns", "exec", space, sys.executable, "-c", CONTROL, word, address]
    subprocess.run(words, check=True)
    both = [files["va"], files["coordinator"]]
    until(lambda: all(word.encode() in file.read_bytes() for file in both), "the word in clear")
    for number, (name, (inside, _, _)) in enumerate(hosts.items()):  # and within each host
        within = f"{word} within host {number}".encode()  # a host's name must not be in the capture
        here = ["ip", "netns", "exec", inside, sys.executable, "-c", CONTROL, within.decode(), "127.0.0.1"]
        subprocess.run(here, check=True)
        file = files[name]
        until(lambda file=file, seen=within: seen in file.read_bytes(), "the word within a host")


def secrets_of(network: Network, files: dict[str, Path], run: str) -> list[bytes]:
    """Words and bytes that must not be captured: all names, and a sample of rows, questions and replies."""
    words = {b"cleveland", b"kmeans", b"summaries", name_of(network, run).encode()}
    rows, pieces = set(), set()
    for site, path in files.items():
        heading, *lines = path.read_text().splitlines()
        words |= {name.encode() for name in heading.split(",") if len(name) > 4}
        rows |= {line.encode() for line in lines}
        for line in (network.site_folder(site) / "log.jsonl").read_text().splitlines():
            entry = json.loads(line)
            for text in (entry.get("payload"), *(asked["payload"] for asked in entry.get("asked", ()))):
                data = unpacked(text) if text else b""
                pieces |= {data[at : at + 32] for at in range(0, len(data) - 32, 256)}
    distinctive = sorted(piece for piece in pieces if len(set(piece)) > 12)  # no run of zeros
    chance = random.Random(0)
    return [*words, *chance.sample(sorted(rows), 50), *chance.sample(distinctive, 100)]


def name_of(network: Network, run: str) -> str:
    return str(json.loads((network.out(run) / "job.json").read_text())["job"]["remote"]["run"])
