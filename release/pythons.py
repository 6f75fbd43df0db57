"""The wheel of this system on other Pythons: built, installed without a compiler, tried and tested.

    python release/pythons.py python3.12 stable testing:python3.15

A Python is a program, or a suite of Debian, which gets a root of its own under ``build/roots`` (needs root,
debootstrap; UNPOOLED_LEND as in tests/container_steps.py). A wheel of Python 3.12 has Python's stable
interface: the first Python that needs it builds it, all others get the same file. In an empty environment
with no compiler: install, demo, ``import unpooled``, and the tests of ``make quick``.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from artefacts import check_file
from prepare import ROOT, NotReady, version_of
from rehearse import LINUX, TOOLS, compiler, installed, repaired, run, say

sys.path.insert(0, str(ROOT))
from tests.container_steps import copy_tree, debian

OUT = ROOT / "build" / "pythons"
EXTRAS = "figures,nvflare,pages,parquet,secure"  # of the package, that the quick tests use
NEEDED = ["pytest", "hypothesis", "pandas", "polars"]
AUDIT = ["abi3audit"]
HOME = "/srv/unpooled"  # the tree in a root
STABLE = (3, 12)  # from here on one wheel serves all


def built(out: Path, home: Path) -> Path:
    """Build the wheel of this system for the running Python, with the name that auditwheel gives it."""
    run(sys.executable, "-m", "venv", home)
    tools = home / "bin"
    run(tools / "pip", "install", "--quiet", *TOOLS, *LINUX, *AUDIT)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as made:
        build = [tools / "python", "-m", "build", "--no-isolation", "--wheel", "--outdir", made, ROOT]
        run(*build, PATH=path, **compiler(home, tools))
        (wheel,) = repaired(list(Path(made).iterdir()), out, tools, "1580601600")
    say(wheel.name, check_file(wheel, version_of(ROOT), (str(ROOT),)))
    if "abi3" in wheel.name:
        run(tools / "abi3audit", "--strict", wheel)
        say("abi3audit", "uses only the stable interface of Python 3.12")
    return wheel


def tested(wheel: Path, home: Path, scratch: Path) -> None:
    """Run the quick tests of a copied tree in the environment that has the wheel."""
    wanted = (f"{wheel}[{EXTRAS}]", *NEEDED)
    run(home / "bin/pip", "install", "--quiet", "--only-binary", ":all:", *wanted)
    tree = scratch / "tree"
    left_out = shutil.ignore_patterns(".git", ".venv", "build", "*.so", "__pycache__")
    shutil.copytree(ROOT, tree, ignore=left_out)
    place = run(home / "bin/python", "-c", "import unpooled; print(unpooled.__file__)", cwd=tree).strip()
    if not place.startswith(str(home)):
        raise NotReady(f"the tests would run on {place}")
    words = [home / "bin/python", "-m", "pytest", "-m", "quick", "tests", "--pyargs", "unpooled"]
    path = f"{home / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin"
    one = "1"  # else joblib counts the cores by /sys, which a root does not have, and warns
    output = run(*words, cwd=tree, PATH=path, LOKY_MAX_CPU_COUNT=one)
    say("quick tests", output.strip().splitlines()[-1])


def here(wheel: Path | None, out: Path) -> None:
    """Do everything on the running Python."""
    say("Python", sys.version.split()[0])
    with tempfile.TemporaryDirectory(prefix="python-") as name:
        scratch = Path(name)
        wheel = wheel or built(out, scratch / "tools")
        installed(wheel, scratch / "empty", "native")
        tested(wheel, scratch / "empty", scratch)


def version(words: list[str]) -> tuple[int, ...]:
    """Return the version of the Python that this command starts."""
    output = run(*words, "-c", "import sys; print(*sys.version_info[:2])")
    return tuple(map(int, output.split()))


def each(names: list[str]) -> None:
    """Do everything on each of these Pythons."""
    OUT.mkdir(parents=True, exist_ok=True)
    for old in OUT.glob("*.whl"):
        old.unlink()
    for name in names:
        found = shutil.which(name)
        if found:
            follow([found], ROOT)
            continue
        suite, _, python = name.partition(":")
        python = python or "python3"
        root = ROOT / "build" / "roots" / name.replace(":", "-")
        with debian(root, suite, f"{python},{python}-venv,{python}-dev,ca-certificates,binutils"):
            tree = root / HOME[1:]
            shutil.rmtree(tree, ignore_errors=True)
            copy_tree(tree)
            place = tree / "build" / "pythons"
            place.mkdir(parents=True)
            for wheel in OUT.glob("*.whl"):
                shutil.copy(wheel, place)
            follow(["chroot", str(root), python], tree, Path(HOME))
            for wheel in place.glob("*.whl"):
                shutil.copy(wheel, OUT)


def follow(words: list[str], tree: Path, inside: Path | None = None) -> None:
    """Run this file with another Python; ``inside``: the path of the tree for that Python, in its root."""
    inside, stable = inside or tree, version(words) >= STABLE
    wheels = [w for w in (tree / "build/pythons").glob("*.whl") if ("abi3" in w.name) == stable]
    options = [word for wheel in wheels for word in ("--wheel", inside / "build/pythons" / wheel.name)]
    command = [*words, inside / "release/pythons.py", "--here", *options]
    if subprocess.run([str(word) for word in command]).returncode:
        raise NotReady(f"{' '.join(words)}: failed")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="Try the wheel on other Pythons; nothing is published.")
    arguments.add_argument("pythons", nargs="*", help="a program, or a suite of Debian with :program")
    arguments.add_argument("--here", action="store_true", help="on the Python that runs this")
    arguments.add_argument("--wheel", type=Path, help="use this wheel, and build none")
    args = arguments.parse_args()
    try:
        if args.here:
            here(args.wheel, OUT)
        else:
            each(args.pythons)
    except NotReady as error:
        sys.exit(f"pythons: {error}")
