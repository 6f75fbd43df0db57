"""Give the tree a version: its one source, the citation, the conda recipe, and a section of the changelog.

python release/prepare.py 0.1.0     # then read the changes, commit, and tag v0.1.0
"""

import re
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSION = r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?"


class NotReady(Exception):  # noqa: N818  a state of the tree, in one line
    """The tree or a file is not ready for a release."""


def version_of(root: Path) -> str:
    """Return the version of the package, from its only source."""
    text = (root / "src/unpooled/__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "([^"]+)"$', text, re.M)[1]


def prepare(root: Path, version: str, date: str) -> None:
    """Write ``version`` into all files that have it; raise NotReady, and write nothing, if one lacks it."""
    if not re.fullmatch(VERSION, version):
        raise NotReady(f"{version!r} is not a version like 0.1.0 or 0.1.0rc1")
    changes = [
        ("src/unpooled/__init__.py", r'^__version__ = "[^"]+"$', f'__version__ = "{version}"'),
        ("CITATION.cff", r"^version: .+$", f"version: {version}"),
        ("conda/recipe.yaml", r'^  version: "[^"]+"$', f'  version: "{version}"'),
        (
            "CHANGELOG.md",
            r"^## \[Unreleased\]\n(?:\nComing as [^\n]+\n)?",
            f"## [Unreleased]\n\n## [{version}] - {date}\n",
        ),
    ]
    written = []
    for name, pattern, text in changes:
        old = (root / name).read_text(encoding="utf-8")
        if f"## [{version}]" in old:
            raise NotReady(f"{name}: has a section for {version} already")
        new, found = re.subn(pattern, lambda _, text=text: text, old, count=1, flags=re.M)
        if not found:
            raise NotReady(f"{name}: has no line for the version")
        written.append((root / name, new))
    for path, new in written:
        path.write_text(new, encoding="utf-8")


def check(root: Path, tag: str) -> str:
    """Return the version of ``tag``; raise NotReady unless all files have it."""
    version = version_of(root)
    if tag != f"v{version}":
        raise NotReady(f"the tag is {tag}, the version {version}")
    for name, line in (("CITATION.cff", f"version: {version}\n"), ("conda/recipe.yaml", f'"{version}"\n')):
        if line not in (root / name).read_text(encoding="utf-8"):
            raise NotReady(f"{name}: its version is not {version}")
    if not re.search(
        rf"^## \[{re.escape(version)}\]", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.M
    ):
        raise NotReady(f"CHANGELOG.md: no section for {version}")
    return version


if __name__ == "__main__":
    try:
        if sys.argv[1:2] == ["--check"] and len(sys.argv) == 3:
            print(check(ROOT, sys.argv[2]))
        elif len(sys.argv) == 2:
            prepare(ROOT, sys.argv[1], f"{datetime.now(UTC):%Y-%m-%d}")
        else:
            raise NotReady("usage: prepare.py VERSION, or prepare.py --check TAG")
    except NotReady as error:
        sys.exit(f"release: {error}")
