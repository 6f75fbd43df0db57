"""The steps of the container file, in a Debian root of this machine: for machines without a container engine.

Needs root and debootstrap: ``python -m tests.container_steps [ROOT]``. RUN and COPY are done as they are
written; the base image is a minimal Debian with Python. At the end the installed command runs as the file's
user. UNPOOLED_LEND names files and folders by which this machine reaches its packages, with colons between.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

TREE = Path(__file__).parents[1]
FILE = TREE / "docs" / "deployment" / "examples" / "Containerfile"
BASE = "python3,python3-venv,python3-dev,ca-certificates"
LENT = ["/etc/resolv.conf", "/proc", *filter(None, os.environ.get("UNPOOLED_LEND", "").split(":"))]
TRIED = (
    ["--version"],
    ["federation", "init", "try", "--name", "try", "--address", "localhost", "--site", "a"],
    ["federation", "status", "try", "--json"],
)


def steps() -> list[list[str]]:
    """Instruction and rest of every line of the container file."""
    text = re.sub(r"^#.*\n", "", FILE.read_text(encoding="utf-8"), flags=re.M).replace("\\\n", " ")
    return [line.split(None, 1) for line in text.splitlines() if line.strip()]


def copy_tree(target: Path) -> None:
    """What is committed, as a build's context has it."""
    words = ["git", "ls-files", "-z"]
    listed = subprocess.run(words, cwd=TREE, capture_output=True, check=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(TREE / name, target / name)


@contextlib.contextmanager
def debian(root: Path, suite: str, packages: str) -> Iterator[None]:
    """A minimal Debian in ``root``, made if there is none, that reaches packages as this machine does."""
    if not (root / "usr").exists():
        words = ["debootstrap", "--variant=minbase", f"--include={packages}", suite]
        subprocess.run([*words, root], check=True)
    with contextlib.ExitStack() as ends:
        for name in LENT:
            place = root / name[1:]
            if os.path.isdir(name):
                place.mkdir(parents=True, exist_ok=True)
                subprocess.run(["mount", "--bind", name, place], check=True)
                ends.callback(partial(subprocess.run, ["umount", place], check=True))
            else:
                shutil.copy(name, place)
        yield


def main(root: Path) -> None:
    with debian(root, "bookworm", BASE):
        (root / "usr/bin/python").unlink(missing_ok=True)
        (root / "usr/bin/python").symlink_to("python3")
        follow(root)


def follow(root: Path) -> None:
    """Do all steps in a root that is ready."""
    env = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    env["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
    settings = {}
    for instruction, rest in steps():
        print(instruction, rest, flush=True)
        settings[instruction] = rest
        if instruction == "RUN":
            subprocess.run(["chroot", root, "sh", "-c", rest], check=True, env=env)
        elif instruction == "COPY" and not rest.startswith("--from"):
            copy_tree(root / rest.split()[1].lstrip("/"))
    entry, user, folder = settings["ENTRYPOINT"].strip('[]"'), settings["USER"], settings["WORKDIR"]
    for words in TRIED:
        command = f"cd {folder} && exec {entry} {' '.join(words)}"
        done = subprocess.run(["chroot", f"--userspec={user}:{user}", root, "sh", "-c", command], env=env)
        assert done.returncode == (3 if "status" in words else 0)  # 3: the server is not up, which is so
    check = f"cd {folder} && {settings['HEALTHCHECK'].split(' CMD ')[1]}"
    done = subprocess.run(["chroot", f"--userspec={user}:{user}", root, "sh", "-c", check], env=env)
    assert done.returncode == 1  # for the same reason
    print("all steps done")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made))
