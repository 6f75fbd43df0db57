"""The pages as the site has them: those of docs, those of the project, and where links between them lead.

The Markdown of the tree is written for a code host. Two things differ on the site: files outside ``docs``
that a page points to come along, and ``<!-- site: ... -->`` holds what only the site can show.
"""

import posixpath
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"

ALONG = {  # a file of the tree, and where it is on the site
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CODE_OF_CONDUCT.md": "project/code-of-conduct.md",
    "CITATION.cff": "project/CITATION.cff",
    "LICENSE": "project/LICENSE.txt",
    "src/unpooled/data/examples/HEART_DISEASE.md": "project/heart-disease-data.md",
    "src/unpooled/data/examples/PENGUINS.md": "project/penguin-data.md",
}
LISTED = ("deployment/examples",)  # folders that a page points to as such
_HOME = {"README.md": "index.md", **ALONG}
_LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)]*)?\))")
_ONLY_HERE = re.compile(r"<!-- site:\s(.*?)-->", re.S)
_FENCE = re.compile(r"(^```.*?^```$)", re.M | re.S)

# Parts of the navigation, and the pages in each. A page of docs that is named nowhere is an explanation.
PARTS: dict[str, list[str]] = {
    "Start": ["index.md", "install.md"],
    "Tutorials": [
        "tutorials/first-report.md",
        "tutorials/officer.md",
        "tutorials/federation.md",
        "tutorials/python.md",
    ],
    "How-to": [
        "officer.md",
        "files.md",
        "choosing-k.md",
        "cluster.md",
        "policy.md",
        "summary-table.md",
        "review.md",
        "release.md",
        "deployment/index.md",
        "deployment/operation.md",
        "deployment/*",
        "deployment/examples/*",
        "relays.md",
        "workers.md",
        "extending.md",
    ],
    "Explanation": [
        "privacy.md",
        "threats.md",
        "secure-sums.md",
        "methods.md",
        "methods/lloyd.md",
        "methods/missing.md",
        "methods/private.md",
        "methods/*",
        "exact.md",
        "comparison.md",
        "architecture.md",
        "*",
    ],
    "Reference": ["reference/index.md", "reference/*", "glossary.md"],
    "Evidence": ["results.md", "reproduce.md", "papers/*", "leakage.md", "speed.md", "gallery/index.md"],
    "Project": ["project/*"],
}


def lay_out(folder: Path) -> None:
    """Write the Markdown of the site, and all files beside it, into ``folder``."""
    shutil.copytree(DOCS, folder)
    for name, place in ALONG.items():
        if (ROOT / name).exists():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / place)
    for name in LISTED:
        list_files(folder / name)
    came_from = {place: name for name, place in ALONG.items()}
    for page in sorted(folder.rglob("*.md")):
        place = page.relative_to(folder).as_posix()
        text = page.read_text(encoding="utf-8")
        page.write_text(for_site(text, came_from.get(place, f"docs/{place}"), place), encoding="utf-8")


def for_site(text: str, source: str, place: str) -> str:
    """A page's text with what only the site shows, and with links out of docs turned to their new place."""

    def turned(match: re.Match[str]) -> str:
        target = match[2]
        if re.match(r"[a-z]+:", target):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        home = _HOME.get(path, path.removeprefix("docs/") if path.startswith("docs/") else None)
        if home is None:
            raise SystemExit(f"{source}: a link to {target}, which the site does not have")
        if target.endswith("/"):
            home += "/index.md"
        return match[1] + posixpath.relpath(home, posixpath.dirname(place) or ".") + match[3]

    parts = _FENCE.split(_ONLY_HERE.sub(lambda m: m[1].strip(), text))
    return "".join(part if part.startswith("```") else _LINK.sub(turned, part) for part in parts)


def list_files(folder: Path) -> None:
    """A page for a folder: its files."""
    files = "".join(f"- [{file.name}]({file.name})\n" for file in sorted(folder.iterdir()))
    (folder / "index.md").write_text(f"# Files to start from\n\n{files}", encoding="utf-8")


def navigation(folder: Path) -> list[dict[str, list[str]]]:
    """Every page of the site once: in the part that names it, or in the last one."""
    left = [page.relative_to(folder).as_posix() for page in sorted(folder.rglob("*.md"))]
    parts: dict[str, list[str]] = {name: [] for name in PARTS}
    named = {page for pages in PARTS.values() for page in pages if "*" not in page}
    for name, pages in PARTS.items():
        for pattern in pages:
            if "*" not in pattern:
                found = [pattern] if pattern in left else []
            else:
                start = pattern.removesuffix("*")
                found = [
                    p for p in left if p not in named and p.startswith(start) and "/" not in p[len(start) :]
                ]
            parts[name] += found
            left = [page for page in left if page not in found]
    if left:
        raise SystemExit(f"in no part of the navigation: {', '.join(left)}")
    return [{name: pages} for name, pages in parts.items() if pages]
